"""The noisy sum: its exact law, its noise, and an audit that what it leaks stays below what is accounted."""

import functools
import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from filet.errors import InvalidArgumentError
from filet.sampling.keys import Key
from filet.sampling.mechanism import _clipped, clipped_sum, exact_sum, noisy_sum
from filet.sampling.noise import rounded_normals
from filet.sampling.streams import Purpose, open_source
from filet.scheme import CappedPoisson

KEY = b"a key of 16 byte"
GOLDEN_NOISE = {
    False: [-0.35114898370733755, 2.384796699075156, -0.6441785955327818],
    True: [-0.7344305456348116, -1.2138917212427325, 0.022376717352020643],
}
ONE = CappedPoisson(4, 1.0, 4)
P_VALUE = 1e-4
GRID = 2.0**-30  # for small batches and a noise multiplier up to 1


def test_clip_is_a_bool():
    with pytest.raises(InvalidArgumentError, match=r"clip=array\(\[1, 0\]\) is not a bool"):
        noisy_sum(np.zeros((4, 1)), ONE, noise_multiplier=1, key=KEY, step=0, clip=np.array([1, 0]))


# --- one call --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("cycle", [1, 3])
def test_without_noise_it_sums_the_sampled_rows(cycle, secure):
    scheme = CappedPoisson(100, 0.3, 20, cycle_length=cycle)
    vectors = np.random.default_rng(0).uniform(-0.3, 0.3, (100, 5))
    for step in range(6):
        total = noisy_sum(vectors, scheme, noise_multiplier=0, key=KEY, step=step, secure=secure)
        expected = scheme.sampler(KEY, secure=secure)[step].take(vectors).sum(axis=0)
        assert total == pytest.approx(expected, abs=20 * GRID)  # each of 20 rows is rounded once


def test_the_noise_is_added_and_scaled_and_repeats_with_key_and_step():
    def run(sigma, step=0, key=KEY):
        return noisy_sum(np.full((4, 3), 0.1), ONE, noise_multiplier=sigma, key=key, step=step)

    noise = run(1) - run(0)
    assert run(3) - run(0) == pytest.approx(3 * noise, abs=16 * GRID)  # a coarser grid, of 2**-28
    assert np.array_equal(run(1), run(1))
    assert not np.isclose(run(1), run(1, step=1)).any()
    assert not np.isclose(run(1), run(1, key=5)).any()
    assert not np.isclose(run(1, key=None), run(1, key=None)).any()
    stream = open_source(Key(KEY), secure=True).at(Purpose.NOISE, 0)
    assert (noise / GRID).tolist() == rounded_normals(stream, 3, Fraction(2**30)).tolist()


def test_golden_noise():
    """The Gaussians that these keys have always given, now rounded to the grid, and so the same to the last bit."""
    for secure, golden in GOLDEN_NOISE.items():
        result = noisy_sum(np.zeros((4, 3)), ONE, noise_multiplier=1, key=KEY, step=9, secure=secure)
        assert result.tolist() == [round(value / GRID) * GRID for value in golden]


def test_long_rows_are_scaled_to_norm_one_and_short_ones_left_alone():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-1e300, 1e300]])
    total = [0.6 + 0.3 - math.sqrt(0.5), 0.8 + 0.4 + math.sqrt(0.5)]
    assert noisy_sum(rows, ONE, noise_multiplier=0, key=1, step=0) == pytest.approx(total, abs=4 * GRID)
    assert np.array_equal(rows[0], [3.0, 4.0])  # the input is not changed


@pytest.mark.parametrize("scale", [1.0, 1 + 1e-15, 1e-300, 1e-320, 7.0, 1e155, 1e200, 1.7e308])
@pytest.mark.parametrize("columns", [1, 2, 1000])
def test_clipped_rows_have_an_exact_norm_of_at_most_one(scale, columns):
    rows = np.random.default_rng(3).uniform(-1, 1, (20, columns)) * scale
    clipped = _clipped(rows)
    for before, after in zip(rows, clipped, strict=True):
        square = sum(Fraction(x) ** 2 for x in after.tolist())
        assert square <= 1
        if sum(Fraction(x) ** 2 for x in before.tolist()) > 1:
            assert square > 1 - 1e-10


def test_without_clipping_long_rows_are_an_error_even_when_not_drawn():
    rows = np.zeros((4, 2))
    rows[3] = [1.0, 0.1]
    scheme = CappedPoisson(4, 1e-9, 4)
    assert 3 not in scheme.sampler(KEY)[0].indices
    with pytest.raises(
        InvalidArgumentError,
        match=r"^vectors has a row of norm 1\.00499, above 1; divide by the clipping norm, or pass clip=True$",
    ):
        noisy_sum(rows, scheme, noise_multiplier=1, key=KEY, step=0, clip=False)
    rows[3] = [0.6, 0.8]
    noisy_sum(rows, scheme, noise_multiplier=1, key=KEY, step=0, clip=False)


MATRIX = "pass a matrix with one row per example"
DEVIATION = "pass the noise's standard deviation divided by the clipping norm"
STEP = "pass a step from 0 to 2**63 - 1"


@pytest.mark.parametrize(("change", "message"), [
    ({"vectors": np.zeros((3, 2))}, f"vectors has 3 rows, not dataset_size=4; {MATRIX}"),
    ({"vectors": np.zeros((5, 2))}, f"vectors has 5 rows, not dataset_size=4; {MATRIX}"),
    ({"vectors": np.zeros(4)}, f"vectors has 1 dimensions, not 2; {MATRIX}"),
    ({"vectors": [[1.0], [2.0], [3.0], [math.nan]]}, f"vectors holds nan, which is not finite; {MATRIX}"),
    ({"vectors": [[1.0], [2.0], [3.0], [-math.inf]]},
     "vectors holds inf, which has no norm; pass finite numbers, clipped before they overflow"),
    ({"vectors": [["a"]] * 4}, f"vectors=[['a'], ['a'], ['a'], ['a']] is not a number (or array of numbers) finite; {MATRIX}"),
    ({"vectors": [[1.0], [2.0, 3.0], [3.0], [4.0]]},
     f"vectors=[[1.0], [2.0, 3.0], [3.0], [4.0]] is not a number (or array of numbers) finite; {MATRIX}"),
    ({"noise_multiplier": -1.0}, f"noise_multiplier=-1.0 is negative; {DEVIATION}"),
    ({"noise_multiplier": math.nan}, f"noise_multiplier=nan is not in [0, inf]; {DEVIATION}"),
    ({"noise_multiplier": math.inf}, "noise_multiplier=inf leaves nothing to return; pass a finite number"),
    ({"step": -1}, f"step=-1 is below 0; {STEP}"),
    ({"step": 2**63}, f"step=9223372036854775808 is above 2**63 - 1; {STEP}"),
    ({"clip": "no"}, "clip='no' is not a bool; pass True or False"),
    ({"key": b"short"}, "key has 5 bytes, not 16 to 64; pass 16 to 64 random bytes such as secrets.token_bytes(32), or None for a fresh key"),
    ({"scheme": None}, "scheme=None is not a CappedPoisson; pass filet.CappedPoisson(...)"),
])  # fmt: skip
def test_bad_input_is_refused_in_one_line(change, message):
    arguments = {"vectors": np.zeros((4, 2)), "scheme": ONE, "noise_multiplier": 1.0, "key": KEY, "step": 0} | change
    vectors, scheme = arguments.pop("vectors"), arguments.pop("scheme")
    with pytest.raises(InvalidArgumentError) as error:
        noisy_sum(vectors, scheme, **arguments)
    assert str(error.value) == message


# --- the grid --------------------------------------------------------------------------------------------------------


def norm_squared(units, bits):
    return sum(int(unit) ** 2 for unit in units.tolist()) / Fraction(4) ** bits


def test_removing_a_row_of_2_to_the_20_moves_the_sum_by_at_most_one():
    """In floating point, this row of norm below 1 moved the sum by 1.0000305: summing crossed a power of two."""
    n = 2**20
    rows = np.full((n, 1), 1.0 - 2.0**-40)
    whole = noisy_sum(rows, CappedPoisson(n, 1.0, n), noise_multiplier=0, key=KEY, step=0)[0]
    for left_out in (0, n // 2, n - 1):
        fewer = np.delete(rows, left_out, axis=0)
        rest = noisy_sum(fewer, CappedPoisson(n - 1, 1.0, n), noise_multiplier=0, key=KEY, step=0)[0]
        assert 0 < Fraction(whole) - Fraction(rest) <= 1


@pytest.mark.parametrize("bits", [30, 12, 0, -3])
def test_removing_any_row_moves_the_exact_sum_by_norm_one_at_most(bits):
    rows = _clipped(np.random.default_rng(4).standard_normal((60, 7)) * 3.0)
    total = exact_sum(rows, bits)
    for place in range(60):
        moved = total - exact_sum(np.delete(rows, place, axis=0), bits)
        assert norm_squared(moved, bits) <= 1
        if bits == 30:
            assert norm_squared(moved, bits) > 1 - 1e-7  # and not by much less: all these rows were long


def test_the_sum_does_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(8)
    rows = _clipped(rng.standard_normal((5000, 3)) * 10.0 ** rng.uniform(-6, 1, (5000, 1)))
    expected = exact_sum(rows, 30)
    exact = [sum(int(Fraction(x) * 2**30) for x in column) for column in rows.T.tolist()]  # int() rounds towards zero
    assert expected.tolist() == exact
    for _ in range(5):
        assert np.array_equal(exact_sum(rng.permutation(rows), 30), expected)
        assert np.array_equal(exact_sum(np.asfortranarray(rng.permutation(rows)), 30), expected)


@pytest.mark.parametrize(
    ("cap", "sigma", "bits"),
    [(4, 0.5, 30), (4, 1.0, 30), (4, 1e-9, 30), (4, 1000.0, 20), (2**24, 1.0, 26), (4, 1e300, -967)],
)
def test_results_lie_on_a_grid_that_public_numbers_fix(cap, sigma, bits):
    scheme = CappedPoisson(4, 1.0, cap)
    rows = np.random.default_rng(1).uniform(-1, 1, (4, 50))
    results = noisy_sum(rows, scheme, noise_multiplier=sigma, key=KEY, step=0)
    units = [Fraction(value) * Fraction(2) ** bits for value in results.tolist()]
    assert all(unit.denominator == 1 for unit in units)
    assert any(unit % 2 for unit in units) or sigma < 1e-8  # no coarser grid would do
    others = noisy_sum(rows * 1e-3, scheme, noise_multiplier=sigma, key=KEY, step=0)
    assert all((Fraction(value) * Fraction(2) ** bits).denominator == 1 for value in others.tolist())


def test_a_zero_has_no_sign():
    """The sign of a zero would tell of a tiny negative row."""
    rows = np.full((4, 3), -1e-300)
    for sigma in (0.0, 1e-12):
        result = noisy_sum(rows, ONE, noise_multiplier=sigma, key=KEY, step=0)
        assert result.tolist() == [0.0] * 3
        assert not np.signbit(result).any()


def test_noise_too_small_for_the_grid_still_rounds_exactly():
    """Standard deviation 2**-31 on a grid of 2**-30: half a unit is one deviation away, and exceeded with chance 0.317."""
    rows = np.zeros((4, 20_000))
    units = noisy_sum(rows, ONE, noise_multiplier=2.0**-31, key=KEY, step=0) * 2.0**30
    assert stats.binomtest(int((units != 0).sum()), units.size, 2 * stats.norm.sf(1)).pvalue > P_VALUE


# --- many calls ------------------------------------------------------------------------------------------------------

DRAWS = 8_000
SIGMA = 0.5


def exact_mixture(values, scheme):
    """Chances of the noiseless sums, by enumerating every Poisson draw of the step's group."""
    p, cap, law, rest = scheme.sampling_probability, scheme.max_batch_size, Counter(), 0.0
    for size in range(len(values) + 1):
        for drawn in itertools.combinations(values, size):
            chance = p**size * (1 - p) ** (len(values) - size)
            if size <= cap:
                law[sum(drawn)] += chance
            elif scheme.overflow == "truncate":
                kept = list(itertools.combinations(drawn, cap))
                for batch in kept:
                    law[sum(batch)] += chance / len(kept)
            else:
                rest += chance
    return {total: chance / (1 - rest) for total, chance in law.items()}


def cdf(law):
    return lambda t: sum(chance * stats.norm.cdf((t - total) / SIGMA) for total, chance in law.items())


@functools.cache
def sums(values, scheme, key):
    rows = np.array(values)[:, None]
    return np.array([noisy_sum(rows, scheme, noise_multiplier=SIGMA, key=key, step=step)[0] for step in range(DRAWS)])


SCHEMES = [
    CappedPoisson(4, 0.5, 2, "truncate"),
    CappedPoisson(4, 0.5, 2, "reject"),
    CappedPoisson(3, 0.75, 1, "truncate"),
]


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.overflow.value)
def test_the_noisy_sum_has_its_exact_law(scheme):
    """Kolmogorov-Smirnov against the exact mixture of Gaussians, on antipodal data, p-value 1e-4."""
    values = (1.0,) + (-1.0,) * (scheme.dataset_size - 1)
    found = sums(values, scheme, key=2)
    assert stats.kstest(found, cdf(exact_mixture(values, scheme))).pvalue > P_VALUE
    other = "truncate" if scheme.overflow == "reject" else "reject"
    wrong = CappedPoisson(scheme.dataset_size, scheme.sampling_probability, scheme.max_batch_size, other)
    assert stats.kstest(found, cdf(exact_mixture(values, wrong))).pvalue < P_VALUE  # the test can tell the policies


@pytest.mark.long
def test_the_noisy_sum_of_a_cycle_has_its_exact_law():
    """Over keys, both groups: each is a uniform pair of the five examples, one of which is left out."""
    values, scheme = [1.0, -1.0, 0.5, -0.5, 0.25], CappedPoisson(5, 0.5, 1, cycle_length=2)
    rows = np.array(values)[:, None]
    found = [noisy_sum(rows, scheme, noise_multiplier=SIGMA, key=key, step=key % 2)[0] for key in range(6000)]
    law = Counter()
    for pair in itertools.combinations(values, 2):
        for total, chance in exact_mixture(pair, scheme).items():
            law[total] += chance / 10
    assert stats.kstest(found, cdf(law)).pvalue > P_VALUE
    assert stats.kstest(found, cdf(exact_mixture(values, scheme))).pvalue < P_VALUE


# --- audit -----------------------------------------------------------------------------------------------------------


def kernel(c, m1, m2):
    """Integral of [c N(0) - m1 N(1) - m2 N(2)]_+ with standard deviation SIGMA, on a fine grid."""
    x = np.linspace(-8, 10, 200_001)
    density = [stats.norm.pdf(x, mean, SIGMA) for mean in (0, 1, 2)]
    return np.maximum(c * density[0] - m1 * density[1] - m2 * density[2], 0).sum() * (x[1] - x[0])


def one_step_delta(scheme, adjacency, a):
    """The proven profile of one step at a = e^epsilon >= 1: refined analysis for truncate, exact one for reject."""
    n, p, cap = scheme.dataset_size, scheme.sampling_probability, scheme.max_batch_size
    others = stats.binom(n - 1, p)
    plain = kernel(p, a - 1 + p, 0) if adjacency != "replace-one" else kernel(p, (1 - p) * (a - 1), a * p)
    if scheme.overflow == "reject":
        accepted, accepted_less = stats.binom.cdf(cap, n, p), others.cdf(cap)
        if adjacency != "add-remove":
            return (1 - (1 - p) * others.pmf(cap) / accepted) * plain
        k, full = accepted_less / accepted, others.pmf(cap) / accepted_less
        if a / k < 1 - p:
            return (1 - full) * k * (1 - a / k) + full * max(0.0, k * (1 - p) - a)
        return (1 - full) * k * kernel(p, a / k - 1 + p, 0) + full * max(0.0, k * (1 - p) - a)
    w, tau = others.pmf(cap - 1), others.sf(cap - 1)
    tq = cap / n * stats.binom.sf(cap, n, p)
    c = p * w + tq
    capped = {
        "add-remove": lambda: kernel(c, (a - 1 + p) * w, (a - 1) * tau + tq),
        "zero-out": lambda: kernel(c, (a - 1 + p) * w + a * tq, (tau - tq) * (a - 1)),
        "replace-one": lambda: kernel(c, (1 - p) * w * (a - 1), (tau - tq) * (a - 1) + a * c),
    }[adjacency]()
    return (1 - w - tau) * plain + capped


def audited_delta(one, two, epsilon):
    """A lower confidence bound (error 1e-4 in all) on Pr[one in A] - e^epsilon Pr[two in A], best over half-lines A."""
    cuts = np.linspace(-3.5, 2.5, 25)
    level = P_VALUE / (2 * 2 * cuts.size)
    best = 0.0
    for cut in cuts:
        for hits, misses in [((one > cut).sum(), (two > cut).sum()), ((one <= cut).sum(), (two <= cut).sum())]:
            low = stats.beta.ppf(level, hits, one.size - hits + 1) if hits else 0.0
            high = stats.beta.ppf(1 - level, misses + 1, two.size - misses) if misses < two.size else 1.0
            best = max(best, low - math.exp(epsilon) * high)
    return best


NEIGHBOURS = {"zero-out": (0.0, -1.0, -1.0, -1.0), "replace-one": (-1.0, -1.0, -1.0, -1.0), "add-remove": (-1.0,) * 3}


def antipodal_data(scheme, adjacency):
    """x_1 = 1 among three times -1, and a neighbour, each with its scheme."""
    fewer = CappedPoisson(3, scheme.sampling_probability, scheme.max_batch_size, scheme.overflow)
    neighbour = NEIGHBOURS[adjacency], fewer if adjacency == "add-remove" else scheme
    return ((1.0, -1.0, -1.0, -1.0), scheme), neighbour


def antipodal_pair(scheme, adjacency):
    """Outputs for both, on different keys."""
    one, two = antipodal_data(scheme, adjacency)
    return sums(*one, 2), sums(*two, 3)


@pytest.mark.parametrize("adjacency", NEIGHBOURS)
@pytest.mark.parametrize("scheme", SCHEMES[:2], ids=lambda s: s.overflow.value)
@pytest.mark.long
def test_an_audit_never_finds_more_than_is_proven(scheme, adjacency):
    """Antipodal data, one step: the measured delta is below the proven one, and close to the true one."""
    one, two = antipodal_pair(scheme, adjacency)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        proven = one_step_delta(scheme, adjacency, math.exp(epsilon))
        assert audited_delta(one, two, epsilon) <= proven
        if adjacency == "replace-one":  # symmetric, unlike the others
            assert audited_delta(two, one, epsilon) <= proven
    # The audit has teeth: it comes close to the true value for these data, which is itself a good part of the bound.
    p, q = (cdf(exact_mixture(values, s)) for values, s in antipodal_data(scheme, adjacency))
    true = max(q(cut) * math.exp(0.5) - p(cut) + 1 - math.exp(0.5) for cut in np.linspace(-3.5, 2.5, 25))
    assert audited_delta(one, two, 0.5) >= true - 0.08
    assert one_step_delta(scheme, adjacency, math.exp(0.5)) >= true >= 0.1


@pytest.mark.long
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
@pytest.mark.parametrize("scheme", SCHEMES[:2], ids=lambda s: s.overflow.value)
def test_an_audit_never_finds_more_than_the_accountant_reports(scheme, adjacency):
    from filet.accounting import accountant

    one, two = antipodal_pair(scheme, adjacency)
    refined, swap = (
        accountant.account(scheme, noise_multiplier=SIGMA, steps=1, adjacency=adjacency, analysis=analysis)
        for analysis in ("refined", "swap" if scheme.overflow == "truncate" else "refined")
    )
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        reported, by_swap = float(refined.delta(epsilon)), float(swap.delta(epsilon))
        assert audited_delta(one, two, epsilon) <= reported
        assert audited_delta(two, one, epsilon) <= reported
        assert 0.9 * by_swap <= reported <= by_swap  # lending takes a little off
        assert by_swap >= one_step_delta(scheme, adjacency, math.exp(epsilon)) * (1 - 1e-6)


def test_one_row_moves_a_clipped_sum_by_one_at_most_in_exact_arithmetic_and_no_order_matters():
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((40, 6)) * 10.0 ** rng.uniform(-8, 8, (40, 1))
    total = clipped_sum(rows, 64)
    assert np.array_equal(total, clipped_sum(rows[rng.permutation(40)], 64))
    for without in range(0, 40, 7):
        moved = [Fraction(one) - Fraction(two) for one, two in zip(
            total.tolist(), clipped_sum(np.delete(rows, without, axis=0), 64).tolist(), strict=True)]  # fmt: skip
        assert sum(part**2 for part in moved) <= 1
    broken = rows.copy()
    broken[3, 2], broken[4, 0] = np.nan, np.inf
    assert np.array_equal(clipped_sum(broken, 64), clipped_sum(np.delete(rows, [3, 4], axis=0), 64))
    assert np.array_equal(clipped_sum(np.zeros((0, 3)), 64), np.zeros(3))
