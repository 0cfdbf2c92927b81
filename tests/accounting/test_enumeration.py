"""The enumeration itself, the weights of the theory by enumeration, and the data sets that attain the bounds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr
from tests.adversary import Draw, draws, epsilons, library_bound, reference_bound, space_starts
from tests.enumeration import (
    ADJACENCIES,
    POLICIES,
    TOLERANCE,
    Config,
    Neighbours,
    aligned,
    batch_law,
    both_ways,
    cell_profiles,
    line_profiles,
    neighbours,
    profiles,
)
from tests.reference import exact, profile_float


def literal_batches(n: int, p: float, B: int, overflow: str) -> dict[tuple[int, ...], float]:
    """The law of the batch word for word: every draw, and every way to repair one that overflows."""
    law: dict[tuple[int, ...], float] = {}
    for size in range(n + 1):
        chance = p**size * (1 - p) ** (n - size)
        for drawn in itertools.combinations(range(n), size):
            if size <= B:
                law[drawn] = law.get(drawn, 0.0) + chance
            elif overflow == "truncate":
                for kept in itertools.combinations(drawn, B):
                    law[kept] = law.get(kept, 0.0) + chance / math.comb(size, B)
    total = sum(law.values())
    return {kept: chance / total for kept, chance in law.items()}


# --- the enumeration itself ---


@pytest.mark.parametrize("overflow", POLICIES)
def test_the_law_of_the_batch_is_the_literal_one(overflow: str) -> None:
    for n, p, B in [(1, 0.3, 1), (4, 0.3, 2), (5, 0.9, 1), (6, 0.5, 6), (8, 0.7, 3), (3, 0.2, 9)]:
        members, weights = batch_law(n, p, B, overflow)
        found = {tuple(np.flatnonzero(row).tolist()): weight for row, weight in zip(members, weights, strict=True)}
        assert found == pytest.approx(literal_batches(n, p, B, overflow), rel=1e-13)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("overflow", POLICIES)
def test_neighbours_have_the_outputs_of_both_data_sets(overflow: str, adjacency: str) -> None:
    """Means and variances of the noiseless sums, against the literal law on each data set."""
    config = Config(5, 0.6, 3, 1.0, overflow, adjacency)
    pair = neighbours(config)
    x = np.random.default_rng(1).uniform(-1, 1, pair.vectors)
    others = x[2:] if adjacency == "replace-one" else x[1:]
    second = {"add-remove": [], "zero-out": [0.0], "replace-one": [x[1]]}[adjacency]
    for weights, data in zip(pair.weights, ([x[0], *others], [*second, *others]), strict=True):
        law = literal_batches(len(data), config.p, config.B, overflow)
        for power in (0, 1, 2, 5):
            literal = sum(chance * sum(data[i] for i in kept) ** power for kept, chance in law.items())
            assert weights @ (pair.members @ x) ** power == pytest.approx(literal, abs=1e-13)


def test_enumeration_against_the_gaussian() -> None:
    """One example, p = 1: N(1) against N(0)."""
    eps, mu = np.linspace(0, 3, 13), 1 / 0.8
    expected = ndtr(mu / 2 - eps / mu) - np.exp(eps) * ndtr(-mu / 2 - eps / mu)
    found = profiles(Config(1, 1.0, 1, 0.8, "truncate", "zero-out"), [[1.0]], eps)
    np.testing.assert_allclose(found, [expected, expected], atol=1e-14)


def test_values_on_a_line_are_exact() -> None:
    """Random mixtures with many modes: below a brute-force sum on a fine grid, but by no more than its error."""
    rng = np.random.default_rng(4)
    x = np.linspace(-25, 25, 100_001)
    for _ in range(24):
        means = rng.uniform(-4, 4, 12) / rng.choice([0.3, 1.0])
        weights = np.stack([rng.dirichlet(np.ones(12)) * (rng.uniform(size=12) < 0.7) for _ in range(2)])
        mix = both_ways(np.array([0.0, 0.3, 1.5]))
        density = np.exp(-0.5 * (x[:, None] - means) ** 2) @ weights.T / math.sqrt(2 * math.pi)
        brute = np.maximum(density @ mix.T, 0).sum(axis=0) * (x[1] - x[0])
        values, sizes = line_profiles(means[None], weights, mix)
        assert (np.abs(values[0] - brute) < 1e-6).all()
        assert (values <= sizes).all()


@pytest.mark.parametrize(("dimension", "lost"), [(2, 2e-3), (3, 1e-2)])
def test_cells_lose_little(dimension: int, lost: float) -> None:
    """Below the exact value for data on a line, seen in space; and halving the cells moves no value further than that."""
    rng = np.random.default_rng(5)
    eps = np.array([0.0, 0.3, 1.0])
    for draw in draws(rng, 12):
        config, pair = draw.config, neighbours(draw.config)
        line = rng.uniform(-1, 1, (pair.vectors, 1))
        direction = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0][:1]

        def cells(vectors: np.ndarray, finer: float, config: Config = config, pair: Neighbours = pair) -> np.ndarray:
            means = pair.members @ aligned(vectors, config.adjacency) / config.sigma
            return cell_profiles(means, pair.weights, both_ways(eps), finer)[0]

        exactly = profiles(config, line, eps).ravel()
        coarse = cells(line @ direction, 1.0)
        assert (coarse <= exactly + 1e-12).all()
        assert (exactly - coarse < lost).all()
        for vectors in space_starts(config, dimension, rng)[-2:]:
            assert np.abs(cells(vectors, 1.0) - cells(vectors, 2.0)).max() < lost


@pytest.mark.parametrize(
    ("n", "p", "B"), [(2, 0.5, 1), (4, 0.3, 2), (5, 0.9, 4), (5, 1.0, 3), (4, 0.7, 4), (3, 0.2, 5)]
)
def test_weights_by_enumeration(n: int, p: float, B: int) -> None:
    """w, tau, tq, c, Z, b, b', k from their meaning: sums over subsets in exact fractions."""
    f = Fraction(p)
    others = [(s, f ** sum(s) * (1 - f) ** (n - 1 - sum(s))) for s in itertools.product((0, 1), repeat=n - 1)]
    size = lambda k: sum(pr for s, pr in others if k(sum(s)))  # noqa: E731
    kept = sum(f * pr * Fraction(B, sum(s) + 1) for s, pr in others if sum(s) >= B)
    Z_n = size(lambda k: k < B) + (1 - f) * size(lambda k: k == B)
    Z_N = size(lambda k: k <= B)
    W = exact.weights(n, p, B)
    pairs = [
        (W.w, size(lambda k: k == B - 1)), (W.tau, size(lambda k: k >= B)), (W.tq, kept),
        (W.c, f * size(lambda k: k == B - 1) + kept), (W.Z_n, Z_n), (W.Z_N, Z_N),
    ]  # fmt: skip
    if Z_n:
        full = size(lambda k: k == B)
        pairs += [(W.b, (1 - f) * full / Z_n), (W.b_prime, full / Z_N), (W.k, Z_N / Z_n)]
    for found, expected in pairs:
        ratio = Fraction(expected)
        assert abs(found - exact.mpf(ratio.numerator) / ratio.denominator) < 1e-45
    law = literal_batches(n, p, B, "truncate")
    assert abs(sum(pr for k, pr in law.items() if 0 in k and len(k) == B) - float(W.c)) < 1e-14


# --- the bounds are in order ---


def test_refined_is_never_above_the_note() -> None:
    rng = np.random.default_rng(8)
    for draw in draws(rng, 80):
        if draw.config.overflow == "truncate":
            eps = epsilons(draw.config, rng)
            refined, note = (reference_bound(Draw(draw.config, 1, a), eps) for a in ("refined", "note"))
            assert (refined <= note + 1e-13 * (1 + np.tile(np.exp(eps), 2))).all(), draw


def test_note_label_zero_out_side_result() -> None:
    """With the note's label the exact zero-out profile is below the note's pair and above every placement."""
    s = 0.8
    for q in (0.1, 0.6):
        for e in np.linspace(-2, 2, 21):
            a = exact.mpmath.exp(e)
            if a >= 1:
                ours = exact.K(exact.mpf(q), a * q, (a - 1) * (1 - exact.mpf(q)), exact.mpf(s))
            else:
                ours = exact.hockey_stick_1d(
                    {0: exact.mpf(1)}, {0: 1 - exact.mpf(q), -1: exact.mpf(q)}, a, exact.mpf(s)
                )
            assert ours <= exact.note_overflow_group(a, exact.mpf(q), exact.mpf(s), "zero-out") + 1e-40
            for x1, v in itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=2):
                weights = np.array([[q, 0.0, 1 - q], [0.0, q, 1 - q]])
                value, size = line_profiles(np.array([[x1, 0.0, v]]) / s, weights, both_ways(np.array([e]))[:1])
                assert value <= float(ours) + TOLERANCE * size


# --- and are attained ---


def touches(config: Config, signed: np.ndarray, others: float) -> None:
    """Enclosure bounds are attained with x_1 = 1 at H(P||Q) for the signed epsilons; a negative one is the other direction."""
    eps = np.abs(signed)
    heads = [1.0, -1.0] if config.adjacency == "replace-one" else [1.0]
    truth = profiles(config, [[v] for v in (*heads, *[others] * (config.n - 1))], eps)
    for bound in (library_bound, reference_bound):
        values = bound(Draw(config, 1, "refined"), eps).reshape(truth.shape)
        for way, side in enumerate((signed >= 0, signed <= 0)):
            np.testing.assert_allclose(values[way][side], truth[way][side], rtol=1e-9, atol=1e-10)


def signed_epsilons(config: Config) -> np.ndarray:
    eps = epsilons(config, np.random.default_rng(3))
    return np.concatenate([-eps[::-1], eps])


def split(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Epsilons above and below the loss of the atom, where the worst placement changes."""
    eps = signed_epsilons(config)
    q = float(exact.weights(config.n, config.p, config.B).q)
    edge = 0.0 if config.adjacency != "add-remove" else math.log1p(-q) if q < 1 else -math.inf
    return eps[eps >= edge], eps[eps <= edge]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("n", "p", "B"),
    [(2, 0.3, 1), (4, 0.3, 1), (5, 0.9, 1), (6, 0.5, 1), (3, 1.0, 1), (5, 1.0, 2), (5, 1.0, 4)],
)
def test_tight_cases_touch(n: int, p: float, B: int, adjacency: str) -> None:
    """B = 1, and p = 1: nothing is given away by the released label, so some data set attains every value."""
    for sigma in (0.4, 1.0, 2.5):
        config = Config(n, p, B, sigma, "truncate", adjacency)
        above, below = split(config)
        touches(config, above, others=-1.0)
        touches(config, below, others=1.0)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("overflow", POLICIES)
def test_no_cap_touches_plain_poisson(adjacency: str, overflow: str) -> None:
    for n, p, B in [(3, 0.4, 4), (4, 0.7, 4), (3, 1.0, 3), (1, 0.5, 1)]:
        config = Config(n, p, B, 0.9, overflow, adjacency)
        eps = signed_epsilons(config)
        plain = profile_float.poisson(np.exp(eps), p, 0.9, adjacency)
        value = profile_float.profile(eps, n=n, p=p, B=B, sigma=0.9, overflow=overflow, adjacency=adjacency)
        np.testing.assert_allclose(value, plain, atol=1e-15 * (1 + np.exp(eps)).max())
        touches(config, eps, others=0.0)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_reject_touches_with_little_noise(adjacency: str) -> None:
    """With so little noise that the output shows the batch, releasing the others costs nothing."""
    config = Config(2, 0.4, 1, 0.06, "reject", adjacency)
    eps = np.linspace(0.0, 2.5, 6)
    heads = [[1.0, 0.0], [-1.0, 0.0]] if adjacency == "replace-one" else [[1.0, 0.0]]
    truth = profiles(config, [*heads, [0.0, 1.0]], eps).ravel()
    bound = library_bound(Draw(config, 2, "refined"), eps)
    np.testing.assert_allclose(bound, truth, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("n", "p", "B"), [(2, 0.3, 1), (4, 0.5, 2), (6, 0.8, 4), (5, 0.2, 5), (5, 1.0, 3), (300, 0.1, 30)]
)
def test_capped_group_is_attained(n: int, p: float, B: int, adjacency: str) -> None:
    """The group's own mixtures, from their definition, at the two extreme placements."""
    W = exact.weights(n, p, B)
    w, tau, tq, c = (float(v) for v in (W.w, W.tau, W.tq, W.c))
    P = [(1 - p) * w, tau - tq, c, 0.0]  # at Y, Y + v, Y + x_1, Y + x_1'
    Q = {
        "add-remove": [w, tau, 0.0, 0.0],
        "zero-out": [w + tq, tau - tq, 0.0, 0.0],
        "replace-one": [(1 - p) * w, tau - tq, 0.0, c],
    }[adjacency]
    for sigma in (0.5, 1.5):
        above, below = split(Config(n, p, B, sigma, "truncate", adjacency))
        for eps, v in ((above, -1.0), (below, 1.0)):
            means = np.array([[0.0, v, 1.0, -1.0]]) / sigma
            truth = line_profiles(means, np.array([P, Q]), both_ways(eps)[: len(eps)])[0][0]
            bound = profile_float.capped_group(np.exp(eps), W, sigma, adjacency)
            np.testing.assert_allclose(bound, truth, rtol=1e-9, atol=1e-11)
