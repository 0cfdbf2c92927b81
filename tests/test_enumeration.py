"""Every bound against exact enumeration of small data sets."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from enumeration import TOLERANCE, Config, Mixture, Pair, batches, climb, data_sets, interesting_epsilons, pair
from enumeration import smallest_slack as search
from reference import exact, profile_float

POLICIES = ("truncate", "reject")
ADJACENCIES = exact.ADJACENCIES


def reference(analysis: str = "refined") -> Any:
    """The bound under test: `bound(config, direction)` gives `profile(eps)`. Any other can take its place."""

    def bound(config: Config, direction: str) -> Any:
        kw = {"n": config.n, "p": config.p, "B": config.B, "sigma": config.sigma}
        kw |= {"overflow": config.overflow, "adjacency": config.adjacency, "analysis": analysis}
        return lambda eps: profile_float.profile(eps, direction=direction, **kw)

    return bound


def configs(rng: np.random.Generator, count: int, largest: int = 6) -> list[Config]:
    """Random mechanisms, with the corners B = 1, B = n, B > n and p = 1 well represented."""
    found: list[Config] = []
    while len(found) < count:
        n = int(rng.integers(2, largest + 1))
        B = int(rng.choice([1, 1, n - 1, n, n + 1, int(rng.integers(1, n + 1))]))
        p = float(rng.choice([0.1, 0.3, 0.5, 0.8, 0.95, 0.999, 1.0]))
        overflow = POLICIES[len(found) % 2]
        if B < 1 or (overflow == "reject" and p == 1 and n > B):
            continue
        sigma = float(rng.choice([0.4, 0.7, 1.0, 2.0]))
        found.append(Config(n, p, B, sigma, overflow, ADJACENCIES[len(found) // 2 % 3]))
    return found


def check(analysis: str, count: int, per_config: int, seed: int, d: int) -> float:
    rng = np.random.default_rng(seed)
    worst = math.inf
    for config in configs(rng, count, largest=6 if d == 1 else 5):
        if analysis == "note" and config.overflow == "reject":
            continue
        eps = interesting_epsilons(config, extra=12 if d == 1 else 5)
        low, where = search(reference(analysis), config, data_sets(config, rng, d, per_config), eps)
        assert low > -TOLERANCE[d], (low, where)
        worst = min(worst, low)
    return worst


# --- the enumeration itself ---


def test_enumeration_against_the_gaussian() -> None:
    """One example, p = 1: N(1) against N(0)."""
    config = Config(1, 1.0, 1, 0.8, "truncate", "zero-out")
    truth = pair(config, np.zeros((0, 1)), np.array([1.0]))
    eps = np.linspace(-3, 3, 13)
    mu = 1 / 0.8
    expected = ndtr(mu / 2 - eps / mu) - np.exp(eps) * ndtr(-mu / 2 - eps / mu)
    np.testing.assert_allclose(truth.profile(eps), expected, atol=1e-14)
    np.testing.assert_allclose(truth.profile(eps, "reverse"), expected, atol=1e-14)


def test_integration_error_in_one_dimension() -> None:
    """Close roots and many modes: against adaptive quadrature of the positive part between brute-force roots."""
    rng = np.random.default_rng(4)
    for _ in range(12):
        P, Q = (Mixture(rng.uniform(-4, 4, (6, 1)), rng.dirichlet(np.ones(6))) for _ in range(2))
        for sigma in (0.3, 1.0):
            both = Pair(P, Q, sigma)
            for e in (-0.3, 0.0, 0.4):
                forward, reverse = both.profile(e)[0], both.profile(-e, "reverse")[0]
                # H_a(P||Q) = 1 - a + a H_{1/a}(Q||P): the two directions are integrated separately
                assert abs(forward - (1 - math.exp(e) + math.exp(e) * reverse)) < 1e-13
                x = np.linspace(-13, 13, 100_001)
                density = [
                    sum(w * np.exp(-0.5 * ((x - m[0]) / sigma) ** 2) for m, w in zip(M.means, M.weights, strict=True))
                    for M in (P, Q)
                ]
                step = (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
                grid = np.maximum(density[0] - math.exp(e) * density[1], 0).sum() * step
                assert abs(forward - grid) < 1e-7


def test_integration_error_in_two_dimensions() -> None:
    """Halving the spacing moves nothing by more than the tolerance."""
    rng = np.random.default_rng(5)
    for config in [Config(4, 0.5, 2, 0.4, "truncate", "replace-one"), Config(3, 0.8, 2, 1.0, "reject", "add-remove")]:
        for others, example, replacement in itertools.islice(data_sets(config, rng, 2, 12), 6, None):
            truth = pair(config, others, example, replacement)
            for e in (-0.5, 0.0, 0.7):
                coarse, fine = truth.profile(e)[0], truth.profile(e, spacing=1 / 61)[0]
                assert abs(coarse - fine) < TOLERANCE[2] / 2


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
    law = batches(n, p, B, "truncate")
    assert abs(sum(pr for k, pr in law.items() if 0 in k and len(k) == B) - float(W.c)) < 1e-14


# --- the bounds hold ---


def test_no_bound_is_below_the_truth_1d() -> None:
    check("refined", count=48, per_config=11, seed=1, d=1)


def test_no_note_bound_is_below_the_truth_1d() -> None:
    check("note", count=24, per_config=9, seed=2, d=1)


def test_no_bound_is_below_the_truth_2d() -> None:
    check("refined", count=12, per_config=9, seed=3, d=2)


@pytest.mark.parametrize("overflow", POLICIES)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_optimiser_finds_no_violation(adjacency: str, overflow: str) -> None:
    rng = np.random.default_rng(6)
    for n, B, p in [(3, 1, 0.4), (3, 2, 0.8), (4, 2, 0.6)]:
        config = Config(n, p, B, 0.7, overflow, adjacency)
        for eps in rng.choice(interesting_epsilons(config), 3, replace=False):
            for direction in ("forward", "reverse"):
                low, data = climb(reference(), config, direction, float(eps), rng, steps=50)
                assert low > -TOLERANCE[1], (config, direction, eps, data)


def test_optimiser_reaches_the_bound_where_it_is_attained() -> None:
    """B = 1: from random starts, the search climbs to slack 0 on both sides of a = 1-q."""
    rng = np.random.default_rng(7)
    config = Config(3, 0.5, 1, 0.8, "truncate", "add-remove")
    for eps in (-0.55, -0.2, 0.5):
        low = min(climb(reference(), config, "forward", eps, rng, steps=120)[0] for _ in range(4))
        assert -TOLERANCE[1] < low < 1e-4


def test_refined_is_never_above_the_note() -> None:
    rng = np.random.default_rng(8)
    eps = np.linspace(-3, 3, 61)
    for config in configs(rng, 200):
        if config.overflow == "truncate":
            for direction in ("forward", "reverse"):
                refined, note = (reference(a)(config, direction)(eps) for a in ("refined", "note"))
                assert (refined <= note + 1e-13).all(), config


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
                P = Mixture(np.array([[x1], [v]]), np.array([q, 1 - q]))
                Q = Mixture(np.array([[0.0], [v]]), np.array([q, 1 - q]))
                assert Pair(P, Q, s).profile(e)[0] <= float(ours) + TOLERANCE[1]


# --- and are attained ---


def touches(config: Config, eps: np.ndarray, others: float, direction: str = "forward", example: float = 1.0) -> None:
    truth = pair(config, np.full((config.n - 1, 1), others), np.array([example]), np.array([-example]))
    bound, value = reference()(config, direction)(eps), truth.profile(eps, direction)
    np.testing.assert_allclose(bound, value, rtol=1e-9, atol=1e-13)


def split(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Epsilons above and below the loss of the atom, where the worst placement changes."""
    eps = interesting_epsilons(config)
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
        touches(config, -above, others=-1.0, direction="reverse")
        touches(config, below, others=1.0)
        touches(config, -below, others=1.0, direction="reverse")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("overflow", POLICIES)
def test_no_cap_touches_plain_poisson(adjacency: str, overflow: str) -> None:
    for n, p, B in [(3, 0.4, 4), (4, 0.7, 4), (3, 1.0, 3), (1, 0.5, 1)]:
        config = Config(n, p, B, 0.9, overflow, adjacency)
        if n == B and overflow == "truncate" and p < 1 and n > 1:
            # The refined groups s <= B-2 and s = B-1 have the same profile: still plain Poisson.
            eps = interesting_epsilons(config)
            plain = profile_float.poisson(np.exp(eps), p, 0.9, adjacency)
            np.testing.assert_allclose(reference()(config, "forward")(eps), plain, atol=1e-15)
        touches(config, interesting_epsilons(config), others=0.0)
        touches(config, interesting_epsilons(config), others=0.0, direction="reverse")


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_reject_touches_with_little_noise(adjacency: str) -> None:
    """With so little noise that the output shows the batch, releasing the others costs nothing."""
    config = Config(2, 0.4, 1, 0.06, "reject", adjacency)
    eps = interesting_epsilons(config, extra=4)
    truth = pair(config, np.array([[0.0, 1.0]]), np.array([1.0, 0.0]), np.array([-1.0, 0.0]))
    bound = reference()(config, "forward")(eps)
    np.testing.assert_allclose(bound, truth.profile(eps), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("n", "p", "B"), [(2, 0.3, 1), (4, 0.5, 2), (6, 0.8, 4), (5, 0.2, 5), (5, 1.0, 3), (300, 0.1, 30)]
)
def test_capped_group_is_attained(n: int, p: float, B: int, adjacency: str) -> None:
    """The group's own mixtures, from their definition, at the two extreme placements."""
    W = exact.weights(n, p, B)
    w, tau, tq, c = (float(v) for v in (W.w, W.tau, W.tq, W.c))
    for sigma in (0.5, 1.5):
        above, below = split(Config(min(n, 6), p, min(B, 6), sigma, "truncate", adjacency)) if n <= 6 else (
            np.array([-0.01, 0.0, 0.3, 1.0]), np.array([-1.0, -0.5, -0.3]))  # fmt: skip
        for eps, x1, v in ((above, 1.0, -1.0), (below, 1.0, 1.0)):
            if n > 6 and adjacency != "add-remove":
                eps = eps[eps >= 0] if v < 0 else eps
            P = Mixture(np.array([[0.0], [v], [x1]]), np.array([(1 - p) * w, tau - tq, c]))
            Q = {
                "add-remove": Mixture(np.array([[0.0], [v]]), np.array([w, tau])),
                "zero-out": Mixture(np.array([[0.0], [v]]), np.array([w + tq, tau - tq])),
                "replace-one": Mixture(np.array([[0.0], [v], [-x1]]), np.array([(1 - p) * w, tau - tq, c])),
            }[adjacency]
            bound = profile_float.capped_group(np.exp(eps), W, sigma, adjacency)
            np.testing.assert_allclose(bound, Pair(P, Q, sigma).profile(eps), rtol=1e-9, atol=1e-14)


# --- the long mode ---


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_long_no_bound_is_below_the_truth(seed: int) -> None:
    check("refined", count=300, per_config=24, seed=100 + seed, d=1)
    check("note", count=80, per_config=12, seed=200 + seed, d=1)
    check("refined", count=24, per_config=14, seed=300 + seed, d=2)


@pytest.mark.slow
@pytest.mark.parametrize("overflow", POLICIES)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_long_optimiser_finds_no_violation(adjacency: str, overflow: str) -> None:
    rng = np.random.default_rng(9)
    for config in configs(rng, 30, largest=5):
        if config.p == 1 and overflow == "reject" and config.n > config.B:
            continue
        config = Config(config.n, config.p, config.B, config.sigma, overflow, adjacency)
        for d in (1, 2):
            for eps in rng.choice(interesting_epsilons(config), 4 if d == 1 else 1, replace=False):
                direction = ("forward", "reverse")[int(rng.integers(2))]
                low, data = climb(reference(), config, direction, float(eps), rng, steps=200 if d == 1 else 25, d=d)
                assert low > -TOLERANCE[d], (config, direction, eps, data)
