"""The checker's tables, against integrals, the engine's own profiles, and enumerated data sets."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from flint import arb, ctx, fmpq
from scipy.special import ndtr
from scipy.stats import binom
from tests.checking.checking_lending import rows
from tests.reference import exact as reference_exact
from tests.reference import lending as reference
from tests.reference import secret_size

from filet.accounting.certificate import lending_rows
from filet.accounting.proving.lending import lent_excess
from filet.accounting.proving.sizes import SecretSize, SizesUpTo, cell_starts
from filet.accounting.proving.theorems import lending_step, loss_law
from filet.accounting.search.closed_form import crossings
from filet.accounting.search.lending import choose_shares, lenders
from filet.accounting.terms import Adjacency, Analysis
from filet.checking.theorems import Step, kernel, point, profile, spread, tail, threshold
from filet.scheme import CappedPoisson

ADJACENCIES = ("add-remove", "zero-out", "replace-one")
KINDS = (("truncate", "swap"), ("truncate", "note"), ("reject", "refined"), ("truncate", "union"))


@pytest.fixture(autouse=True)
def _bits():
    with ctx.workprec(200):
        yield


def exact(value: float) -> fmpq:
    return fmpq(*float(value).as_integer_ratio())


def step(n: int, p: float, cap: int, sigma: float, overflow: str, adjacency: str, analysis: str, lend=None) -> Step:
    return Step(n, exact(p), cap, exact(sigma) ** 2, overflow, adjacency, analysis, lend or {})


# --- binomials and the kernel ---


@pytest.mark.parametrize(
    ("n", "p"), [(60_000, 256 / 60_000), (45_000_000, 65_536 / 45_000_000), (50, 0.9), (1_000, 0.5), (7, 1.0)]
)
def test_binomials_agree_with_scipy(n: int, p: float) -> None:
    mean, spread = n * p, math.sqrt(n * p * (1 - p)) + 1
    for z in (-6, -1, 0, 1, 6):
        j = min(max(round(mean + z * spread), 0), n)
        assert float(point(j, n, exact(p))) == pytest.approx(binom.pmf(j, n, p), rel=1e-9)
        assert float(tail(j, n, exact(p))) == pytest.approx(binom.sf(j - 1, n, p), rel=1e-9)


@pytest.mark.parametrize(
    ("n", "p", "j"),
    [(10**15, 0.3, 3 * 10**14), (10**15, 1 - 1e-12, 10**15 - 900), (10**15, 1e-12, 1050), (10**6, 0.5, 10), (10**9, 0.5, 5 * 10**8)],
)  # fmt: skip
def test_binomials_keep_their_digits_far_out(n: int, p: float, j: int) -> None:
    """Neighbouring tails differ by the point between them, in 150 bits and more."""
    difference = tail(j, n, exact(p)) - tail(j + 1, n, exact(p)) - point(j, n, exact(p))
    assert difference.contains(0)
    assert difference.rad() < arb(2) ** -150


@pytest.mark.parametrize("p", [Fraction(1, 3), Fraction(1, 100), Fraction(7, 8)])
def test_tails_and_points_enclose_the_exact_rational_sums(p: Fraction) -> None:
    """What is left out when a sum ends is added: the sum lies below the truth, and the ball around it."""
    n, a, b = 900, p.numerator, p.denominator - p.numerator
    counts = [math.comb(n, k) * a**k * b ** (n - k) for k in range(n + 1)]
    for j, bits in itertools.product((0, 1, 2, 9, 300, 301, 500, 787, 788, 899, 900), (60, 200)):
        exact_tail, exact_point = (fmpq(count, p.denominator**n) for count in (sum(counts[j:]), counts[j]))
        with ctx.workprec(bits):
            found = [tail(j, n, fmpq(a, a + b)), point(j, n, fmpq(a, a + b))]
        with ctx.workprec(1_000):
            for ball, truth in zip(found, (exact_tail, exact_point), strict=True):
                low, high = ball.lower().fmpq(), ball.upper().fmpq()
                assert low <= truth <= high, (j, bits)
                assert high - low < fmpq(2) ** -(bits + 40 if j > n * p else bits - 3), (j, bits)


def test_tails_and_points_of_what_cannot_be_or_must_be_are_exact() -> None:
    for p in (fmpq(1, 3), fmpq(1)):
        assert [tail(j, 5, p) for j in (-1, 0, 6)] == [1, 1, 0]
        assert [point(j, 5, p) for j in (-1, 6)] == [0, 0]
    assert [point(j, 5, fmpq(1)) for j in (4, 5)] == [0, 1]
    assert [tail(j, 5, fmpq(1)) for j in (1, 5)] == [1, 1]


@pytest.mark.parametrize("bits", [1_000, 9_000])
def test_a_tail_of_a_wide_law_is_quick_and_right_at_any_number_of_bits(bits: int) -> None:
    """The function behind it takes hours with thousands of bits: it gets 560, which leaves 500 right ones."""
    n = 10**16 - 1
    with ctx.workprec(bits):
        below, above = tail(5 * 10**15, n, fmpq(1, 2)), tail(5 * 10**15 + 10**8, n, fmpq(1, 2))
    assert below.contains(arb(1) / 2)
    assert 500 < above.rel_accuracy_bits() < 560
    assert float(above) == pytest.approx(ndtr(-2.0), rel=1e-6)


@pytest.mark.parametrize(
    "parts", [((0.3, 1),), ((0.2, 1), (0.1, 2)), ((0.2, 2), (0.1, 3)), ((0.4, 1), (0.01, 3)), ((0.1, 2), (0.3, 4))]
)
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_the_kernel_is_the_integral(parts: tuple[tuple[float, int], ...], sigma: float) -> None:
    c = 0.25
    x = np.linspace(-12, 12, 200_001) * max(sigma, 1)
    cells = [np.diff(ndtr((x - d) / sigma)) for d in range(5)]
    value = np.maximum(c * cells[0] - sum(m * cells[d] for m, d in parts), 0).sum()  # a set of cells, so from below
    found = kernel(arb(exact(sigma)), arb(c), *((arb(m), d) for m, d in parts))
    assert found.rad() < arb(2) ** -120
    assert value <= float(found) + 1e-13
    assert float(found) == pytest.approx(value, abs=1e-7)


@pytest.mark.parametrize(
    "parts", [((0.2, 2), (0.1, 3)), ((0.4, 1), (0.01, 3)), ((0.1, 2), (0.3, 4)), ((0.2, 1), (0.1, 2))]
)
def test_a_threshold_encloses_the_root(parts: tuple[tuple[float, int], ...]) -> None:
    """A point beside it would make the kernel smaller than it is."""
    given = [(arb(m), d) for m, d in parts]
    root = threshold(arb(1), arb(1) / 4, *given)
    with ctx.workprec(60):
        rough = threshold(arb(1), arb(1) / 4, *given)
    assert rough.contains(root)
    assert arb(2) ** -62 < rough.rad() < arb(2) ** -50
    both = sum((m * (d * root - arb(d * d) / 2).exp() for m, d in given), arb(0))
    assert both.overlaps(arb(1) / 4)


def test_a_kernel_without_anything_to_take_away_is_its_weight() -> None:
    assert kernel(arb(1), arb(2)) == kernel(arb(1), arb(2), (arb(0), 1)) == 2
    assert kernel(arb(1), arb(0), (arb(1), 1)) == kernel(arb(1), arb(-1), (arb(1), 1)) == 0
    unsure = kernel(arb(1), arb(0, 0.5), (arb(1), 1))  # a weight between -1/2 and 1/2
    assert unsure.contains(0)
    assert unsure.contains(arb(1) / 2)


# --- one step ---


@pytest.mark.parametrize(("overflow", "analysis"), KINDS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("n", "p", "cap", "sigma"),
    [(60_000, 256 / 60_000, 300, 1.0), (60_000, 256 / 60_000, 256, 1.0), (50_000, 4096 / 50_000, 4200, 3.0), (9, 0.4, 3, 0.7)],
)  # fmt: skip
def test_profiles_agree_with_the_engine(overflow: str, analysis: str, adjacency: str, n: int, p: float, cap: int, sigma: float) -> None:  # fmt: skip
    mine = step(n, p, cap, sigma, overflow, adjacency, analysis)
    law = loss_law(CappedPoisson(n, p, cap, overflow=overflow), sigma, Adjacency(adjacency), Analysis(analysis))  # type: ignore[arg-type]
    losses = np.array([-0.5, -0.05, -0.003, -1e-3, 0.0, 1e-3, 0.02, 0.3, 1.0, 2.5])
    theirs, _ = law.profile(losses, crossings)
    for loss, value in zip(losses, theirs, strict=True):
        assert float(mine.profile(arb(loss), 0)) == pytest.approx(value, rel=1e-9, abs=1e-16)


def mixtures(n: int, p: float, cap: int, overflow: str, adjacency: str, data: list[float]) -> list[dict[float, float]]:
    """The laws of the sum (mean -> weight) on [x_1, others...] and its neighbour, by drawing every batch; last is x_1'."""
    *records, other = data
    sets = [records, {"add-remove": records[1:], "zero-out": [0.0, *records[1:]]}.get(adjacency, [other, *records[1:]])]
    laws_ = []
    for values in sets:
        law: dict[float, float] = {}
        for size in range(len(values) + 1):
            chance = p**size * (1 - p) ** (len(values) - size)
            for drawn in itertools.combinations(values, size):
                if size <= cap:
                    law[sum(drawn)] = law.get(sum(drawn), 0.0) + chance
                elif overflow == "truncate":
                    for kept in itertools.combinations(drawn, cap):
                        law[sum(kept)] = law.get(sum(kept), 0.0) + chance / math.comb(size, cap)
        total = sum(law.values())
        laws_.append({mean: weight / total for mean, weight in law.items()})
    return laws_


def divergence(P: dict[float, float], Q: dict[float, float], sigma: float, a: float) -> float:
    """A lower bound of H_a(P||Q): what the cells of a grid with P > aQ hold."""
    x = np.concatenate([[-np.inf], np.linspace(-8, 8, 4001), [np.inf]]) * max(1.0, sigma)
    cells = [sum(w * np.diff(ndtr((x - mean) / sigma)) for mean, w in law.items()) for law in (P, Q)]
    return float(np.maximum(cells[0] - a * cells[1], 0).sum())


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("overflow", "analysis"), [*KINDS[:3], ("truncate", "refined")])
def test_no_small_data_set_exceeds_a_profile(overflow: str, analysis: str, adjacency: str) -> None:
    """Also with lending, whatever shares and tilts the witness names."""
    rng = np.random.default_rng(5)
    for _ in range(12):
        n, p, sigma = int(rng.integers(3, 6)), float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.4, 2))
        cap = int(rng.integers(1, n))
        lend = {}
        if analysis == "refined" and overflow == "truncate":
            for k in range(40):
                shares = [fmpq(int(v), 4096) for v in rng.integers(0, 4097, cap - 1)]
                lend[k] = shares, fmpq(int(rng.integers(-3000, 1000)), 1000)
        one = step(n, p, cap, sigma, overflow, adjacency, analysis, lend)
        starts = [[1.0] * (n + 1), [1.0, *[-1.0] * n], [-1.0, *[1.0] * n], [1.0, *[0.0] * (n - 1), -1.0]]
        for data in [*starts, *rng.uniform(-1, 1, (4, n + 1)).round(6).tolist()]:
            P, Q = mixtures(n, p, cap, overflow, adjacency, data)
            for k in (-20, -3, 0, 1, 4, 12, 30):
                a, bound = math.exp(0.05 * k), float(one.profile(arb(k) / 20, k).upper())
                assert divergence(P, Q, sigma, a) <= bound + 1e-12, (n, p, cap, sigma, data, k)
                b = 1 / a  # H_b(Q||P) = 1 - b + b H_a(P||Q)
                assert divergence(Q, P, sigma, b) <= 1 - b + b * bound + 1e-12, (n, p, cap, sigma, data, k)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("analysis", ["note", "swap"])
def test_where_the_sign_of_a_mass_is_not_known_nothing_is_said(adjacency: str, analysis: str) -> None:
    one = step(9, 0.4, 3, 0.7, "truncate", adjacency, analysis)
    around = one.rows(arb(1))[3] / one.tau  # the m1 of rows is 0 at a = 1 - this
    loss = (1 - around).log() if adjacency == "add-remove" else arb(0)
    unsure = arb(loss.mid(), arb(2) ** -40)
    if adjacency == "replace-one":
        unsure = arb(arb(2) ** -41, arb(2) ** -40)
    assert not one.profile(unsure, 0).is_finite()
    assert not one.lent(unsure.exp(), [fmpq(1, 2)], fmpq(0)).is_finite()


def test_lending_is_taken_where_it_is_less_and_mirrored_under_replace_one() -> None:
    good, bad = ([fmpq(1, 4), fmpq(1, 8)], fmpq(-1)), ([fmpq(1)] * 50, fmpq(-1_000))
    for adjacency, nodes in (("zero-out", (500,)), ("replace-one", (500, -500))):
        with_ = step(1_000, 0.05, 52, 1.0, "truncate", adjacency, "refined", {500: good, 600: bad})
        without = step(1_000, 0.05, 52, 1.0, "truncate", adjacency, "refined")
        for node in nodes:
            assert with_.profile(arb(node) / 1_000, node) < without.profile(arb(node) / 1_000, node)
        assert not with_.lent((arb(6) / 10).exp(), *bad) < without.profile(arb(6) / 10, 600)
        assert with_.profile(arb(6) / 10, 600).overlaps(without.profile(arb(6) / 10, 600))


def test_lending_is_used_and_helps() -> None:
    """With the shares of the fixed point the bound is well below the exchange argument's."""
    phase = {"dataset_size": 60_000, "cycle_length": 1, "max_batch_size": 256, "sampling_probability": str(256 / 60_000),
             "noise_multiplier": "1"}  # fmt: skip
    (row,) = rows(phase, "zero-out", [1000], 1e-3)
    assert row is not None
    lend = {1000: ([fmpq(v, 4096) for v in row[1:]], fmpq(row[0], 2**20))}
    with_, without = (step(60_000, 256 / 60_000, 256, 1.0, "truncate", "zero-out", "refined", x) for x in (lend, None))
    assert float(with_.profile(arb(1), 1000)) < 0.3 * float(without.profile(arb(1), 1000))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("n", "p", "cap", "sigma"), [(200, 0.1, 22, 1.0), (1_000, 0.05, 52, 1.0)])
def test_lending_is_as_tight_as_the_engines(n: int, p: float, cap: int, sigma: float, adjacency: str) -> None:
    """At small caps it matters where the tangent of the theorem is taken."""
    theirs = lending_step(CappedPoisson(n, p, cap), sigma, Adjacency(adjacency), lenders(cap, sigma))
    assert theirs is not None
    nodes, shares = [50, 200, 500, 1_000, 1_800], choose_shares(theirs)
    losses = np.array(nodes) / 1_000
    values = lent_excess(theirs, losses, *shares.at(losses))
    for k, row, value in zip(nodes, lending_rows(shares, nodes, 1e-3), values, strict=True):
        assert row is not None
        lend = {k: ([fmpq(v, 4096) for v in row[1:]], fmpq(row[0], 2**20))}
        mine = step(n, p, cap, sigma, "truncate", adjacency, "refined").lent((arb(k) / 1_000).exp(), *lend[k])
        assert 0.97 * value < float(mine) < 1.002 * value, k


# --- lending, in 50 digits from the statement of the theorem ---

CASES = [(200, 0.1, 22, 1.0), (1_000, 0.05, 52, 1.0), (40, 0.5, 20, 2.0), (9, 0.4, 3, 0.7), (60, 0.8, 50, 3.0), (12, 0.3, 11, 1.5), (50, 0.3, 16, 0.76),
         (400, 0.2, 81, 6.0)]  # fmt: skip
NEAR = (CASES[0], CASES[1], CASES[3], CASES[5])  # steps where the tangents that are tried come near the best one
SHARES = [(2048, 1024, 512), (4096, 4096), (0, 0)]
TILTS = (-(2**20), 2**18)


def digits(value: arb) -> mp.mpf:
    return mp.mpf(value.mid().str(45, radius=False))


def tops(n: int, cap: int, c: mp.mpf, m: mp.mpf, theta: mp.mpf, s: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """The theorem's Top without a second mass: the least of its forms at any tangent, and that of the first tangent."""
    size = min(cap - 1, n - cap)
    reach = theta * mp.mpf(n - 1) / (n - 1 - size)
    second = reference.K(c, m, mp.mpf(0), s) + m * (reach / mp.sqrt(size) + reach**2 / size) / (
        2 * s * mp.sqrt(2 * mp.pi)
    )
    flat = max(c - m, mp.mpf(0))

    def tangent(r: mp.mpf) -> mp.mpf:
        d = mp.sqrt(r)
        rise = reference.K(c, m, mp.mpf(0), s, d) - flat
        x = reference.crossing(c, m, mp.mpf(0), s, d)
        slope = m * reference.density((x - d) / s) / (2 * s * d * rise)
        left = 1 - 2 * slope * reach**2 / size
        if left <= 0:
            return second
        lift = slope * reach**2
        return flat + rise * mp.exp((4 * lift / left + 2 * slope * lift / left**2) / size - slope * (r - 1))

    low, high = mp.mpf(1), mp.mpf(4)
    for _ in range(8):  # a finer grid around the least, to some 1e-9 of it
        grid = [low + (high - low) * k / 8 for k in range(9)]
        values = [tangent(r) for r in grid]
        at = values.index(min(values))
        low, high = grid[max(at - 1, 0)], grid[min(at + 1, 8)]
    return min(*values, second), min(tangent(mp.mpf(1)), second)


@pytest.mark.parametrize(
    ("n", "p", "cap", "sigma", "least"),
    [*((*case, 0) for case in CASES), (200, 0.1, 22, 1.0, 120), (40, 0.5, 20, 2.0, 39), (9, 0.4, 3, 0.7, 5)],
)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_lending_is_what_its_theorem_says(adjacency: str, n: int, p: float, cap: int, sigma: float, least: int) -> None:
    """With `least`, for sizes from there to n: levels of the largest, hit rate and spread of the means of the least."""
    one = Step(n, exact(p), cap, exact(sigma) ** 2, "truncate", adjacency, "refined", {}, least)
    s, weights = mp.mpf(sigma), reference_exact.weights(n, p, cap)
    if least:
        hits = weights.tau * reference_exact.weights(least, p, cap).q
        weights = replace(weights, tq=hits, c=weights.p * weights.w + hits)
    first_size = least or n
    for loss, given, tilt in itertools.product((0.4, 0.5) if sigma == 0.76 else (0.05, 0.7), SHARES, TILTS):
        given = given[: cap - 1]
        found = one.lent(arb(loss).exp(), [fmpq(v, 4096) for v in given], fmpq(tilt, 2**20))
        shares = [mp.mpf(v) / 4096 for v in given]
        masses = reference.masses(weights, mp.exp(mp.mpf(loss)), adjacency)
        levels = [reference_exact.pmf(cap - 1 - k, n - 1, weights.p) for k in range(1, len(shares) + 1)]
        lent = [share * masses.low * w for share, w in zip(shares, levels, strict=True)]
        kept = zip(shares, levels, strict=True)
        low = sum(w * reference.K(weights.p, (1 - x) * masses.low, masses.low2, s) for x, w in kept)
        low += reference_exact.lower(cap - 2 - len(shares), n - 1, weights.p) * reference.K(
            weights.p, masses.low, masses.low2, s
        )
        m, theta = uncut_cover(masses, lent, mp.mpf(tilt) / 2**20, s)
        if theta and not masses.top2:
            best, first = tops(first_size, cap, weights.c, m, theta, s)
            assert (low + best) * (1 - mp.mpf(10) ** -8) < digits(found) < (low + first) * (1 + mp.mpf(10) ** -40)
            if (n, p, cap, sigma) in NEAR and not least:
                assert digits(found) <= (low + best) * (1 + mp.mpf("0.003"))
        else:
            truth = low + reference.top(first_size, cap, weights.c, m, theta, masses.top2, s)
            assert abs(digits(found) - truth) < truth * mp.mpf(10) ** -40
        assert found.rad() < arb(10) ** -40


def uncut_cover(masses: reference.Masses, lent: list[mp.mpf], tilt: mp.mpf, s: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """M and theta of the theorem, also where M is no gain."""
    i = 1 / (2 * s * s)
    e = [mass * mp.exp(-k * tilt - k * k * i) for k, mass in enumerate(lent, 1)]
    up = sum((k * value for k, value in enumerate(e, 1)), mp.mpf(0))
    if not up:
        return masses.m0, mp.mpf(0)
    z = up + masses.m0 + sum(e)
    return z * mp.exp(up / z * (mp.log(masses.m1) - i + tilt - mp.log(up))), up / z


# --- sizes that are not public ---

LOSSES = (-3.0, -0.7, -0.2, -0.051, -0.01, -1e-4, 0.0, 1e-4, 0.01, 0.1, 0.4, 1.0, 3.0)


def several(n: int, p: float, cap: int, sigma: float, policy: str, adjacency: str, cuts, analysis="swap", lend=None):
    """The checker's bound at a loss, as a float that is rounded up."""
    bound = profile(n, exact(p), cap, exact(sigma) ** 2, policy, adjacency, analysis, lend or {}, list(cuts))
    return lambda loss, node=0: float(bound(arb(exact(loss)), node).upper())


def parts(bound, losses) -> np.ndarray:
    """The library's form: the value where the loss is not negative, else the excess over 1 - a."""
    return np.array([bound(loss) - max(0.0, -math.expm1(loss)) for loss in losses])


@pytest.mark.parametrize(
    ("n", "p", "cap", "sigma"), [(40, 0.2, 9, 0.7), (9, 0.3, 3, 1.0), (300, 0.02, 8, 0.5), (5, 0.6, 1, 2.0)]
)
def test_a_secret_size_is_the_larger_of_h_and_z_on_all_knots(n: int, p: float, cap: int, sigma: float) -> None:
    """h and z by the reference, from the law of sizes alone; fewer knots give no less."""
    law = secret_size.size_law(n, p, cap)
    above = np.array(
        [(law[j] * (1 - j / n), law[j + 1] * (j + 1) / n if j < cap else 0.0, law[j]) for j in range(cap + 1)]
    )
    up_to = secret_size.labelled_pair(n, p, cap, n)
    whole, few, none = (
        several(n, p, cap, sigma, "secret", "add-remove", cuts, "refined") for cuts in (range(cap), [cap // 2], [])
    )
    for loss in LOSSES:
        a = math.exp(loss)
        true = max(secret_size.profile(above, sigma, a), secret_size.profile(up_to, sigma, a))
        assert whole(loss) == pytest.approx(true, rel=1e-9, abs=1e-12)
        assert whole(loss) <= few(loss) * (1 + 1e-12) <= none(loss) * (1 + 2e-12)


@pytest.mark.parametrize("records", [1, 5, 8, 9, 10, 11, 20, 900])
def test_a_secret_size_bounds_every_number_of_records(records: int) -> None:
    found = several(9, 0.3, 3, 0.6, "secret", "add-remove", [1], "refined")
    pair = secret_size.labelled_pair(9, 0.3, 3, records)
    for loss in LOSSES:
        assert secret_size.profile(pair, 0.6, math.exp(loss)) <= found(loss) + 1e-12


def test_knots_keep_mass_and_mean() -> None:
    n, p, cap = 50, fmpq(1, 7), 12
    for cuts in ([], [5], range(12), [3, 3, 11, 40]):
        mix, full, stay = spread(n, p, cap, list(cuts))
        assert (sum((chance for chance, _ in mix), full) - 1).contains(0)
        hits = sum((chance * k for chance, k in mix), arb(0)) + full * stay
        assert (hits - 1).contains(0)  # P has mass one, too
        assert all(chance >= 0 for chance, _ in mix)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_under_the_other_adjacencies_a_secret_size_is_that_of_policy_reject(adjacency: str) -> None:
    secret = several(40, 0.2, 9, 0.7, "secret", adjacency, [3], "refined")
    public = several(40, 0.2, 9, 0.7, "reject", adjacency, [], "refined")
    assert [secret(loss) for loss in LOSSES] == [public(loss) for loss in LOSSES]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("n", "p", "cap", "sigma"), [(40, 0.2, 9, 0.7), (30, 0.5, 10, 1.0), (12, 0.9, 3, 1.5)])
def test_cells_bound_every_size_up_to_the_largest(n: int, p: float, cap: int, sigma: float, adjacency: str) -> None:
    """With a cell for every size the bound is the largest of theirs; with any others it is no less."""
    single = {k: step(k, p, cap, sigma, "truncate", adjacency, "swap") for k in range(1, n + 1)}
    every = several(n, p, cap, sigma, "at-most", adjacency, range(n + 1))
    others = [several(n, p, cap, sigma, "at-most", adjacency, cuts) for cuts in ([], [n // 2], [cap + 2, n - 1])]
    for loss in LOSSES:
        true = max(float(one.profile(arb(exact(loss)), 0).upper()) for one in single.values())
        assert every(loss) == pytest.approx(true, rel=1e-12)
        assert all(other(loss) >= true * (1 - 1e-12) for other in others)


def test_cells_lend_if_twice_the_cap_fits_into_their_least_size() -> None:
    """The theorem asks for least - 1 >= 2 (cap - 1); one public size lends always."""
    lend = {3: ([fmpq(1, 2)], fmpq(0))}
    for least, lends in ((0, True), (11, False), (16, False), (17, True), (30, True)):
        one = Step(40, fmpq(1, 5), 9, fmpq(1), "truncate", "zero-out", "refined", lend, least)
        assert one.lend == (lend if lends else {})


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_library_and_the_checker_agree_on_sizes_that_are_not_public(adjacency: str) -> None:
    """The library's numbers are rounded up, by little; both have the same cells and knots."""
    kind, losses = Adjacency(adjacency), np.array(LOSSES)
    most = CappedPoisson(2_000, 0.02, 48, size="at-most")
    starts = cell_starts(most)
    bound = SizesUpTo(most, 0.8, kind, 0)
    found = parts(several(2_000, 0.02, 48, 0.8, "at-most", adjacency, starts), losses)
    np.testing.assert_allclose(bound.excess(losses), found, rtol=1e-6, atol=1e-12)
    assert np.all(found <= bound.excess(losses) + 1e-13)
    lending = SizesUpTo(most, 0.8, kind, 3)
    assert any(cell.lenders for cell in lending.cells)
    shares, tilts = np.full((losses.size, 3), 0.25), np.full(losses.size, 0.5)
    lend = {k: ([fmpq(1, 4)] * 3, fmpq(1, 2)) for k in range(losses.size)}
    lent = several(2_000, 0.02, 48, 0.8, "at-most", adjacency, starts, "refined", lend)
    value = np.array([lent(loss, k) - max(0.0, -math.expm1(loss)) for k, loss in enumerate(losses)])
    usable = losses > 0.0
    assert np.all(
        value[usable] <= np.minimum(lending.excess(losses, shares, tilts), bound.excess(losses))[usable] + 1e-12
    )
    assert np.any(value < found - 1e-6)


def test_the_library_and_the_checker_agree_on_a_secret_size() -> None:
    scheme, losses = CappedPoisson(2_000, 0.02, 48, overflow="reject", size="secret"), np.array(LOSSES)
    bound = SecretSize(scheme, 0.8)
    knots = [int(knot) for knot in bound.sizes.knots]
    found = parts(several(2_000, 0.02, 48, 0.8, "secret", "add-remove", knots, "refined"), losses)
    np.testing.assert_allclose(bound.excess(losses), found, rtol=1e-6, atol=1e-12)
    assert np.all(found <= bound.excess(losses) + 1e-13)
