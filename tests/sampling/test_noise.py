"""Rounded Gaussians: their exact law, against 60-digit arithmetic, and the error of SciPy's inverse that they rely on."""

import decimal
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri
from tests.sampling.laws import P_VALUE, Constant, Listed, stream

from filet.errors import NotCertifiedError
from filet.sampling import noise
from filet.sampling.noise import rounded_normals, upper_tail


def tail(x, digits=60):
    with mpmath.workdps(digits):
        return mpmath.erfc(mpmath.mpf(x.numerator) / x.denominator / mpmath.sqrt(2)) / 2


def words_of(number, sign=0):
    """The high and the low word that begin with a tail probability below 1/2."""
    with mpmath.workdps(80):
        known = int(mpmath.floor(number * mpmath.mpf(2) ** 128))
    return [known >> 63, (known & 2**63 - 1) << 1 | sign]


def test_noise_on_a_fine_grid_is_gaussian():
    values = rounded_normals(stream(71), 200_000, Fraction(2**20)) / 2**20
    assert stats.kstest(values, "norm").pvalue > P_VALUE
    assert stats.kstest(np.abs(values[:-1]) - np.abs(values[1:]), "norm").pvalue < P_VALUE  # the test can fail


@pytest.mark.parametrize("scale", [Fraction(1, 7), Fraction(1, 2), Fraction(3), Fraction(40)])
def test_noise_on_a_coarse_grid_has_its_exact_chances(scale):
    values = rounded_normals(stream(72), 50_000, scale)
    reach = 1 + int(4 * scale)
    edges = [-math.inf, *(float((Fraction(k) - Fraction(1, 2)) / scale) for k in range(-reach, reach + 2)), math.inf]
    expected = 50_000 * np.diff(stats.norm.cdf(edges))
    found = np.histogram(values, bins=[-1e9, *(k - 0.5 for k in range(-reach, reach + 2)), 1e9])[0]
    enough = expected > 10
    statistic = (np.square(found - expected)[enough] / expected[enough]).sum()
    assert stats.chi2.sf(statistic, enough.sum() - 1) > P_VALUE


@pytest.mark.parametrize(
    "x", [Fraction(1, 10**12), Fraction(1, 3), Fraction(1), Fraction(13), Fraction(155, 10), Fraction(40)]
)
@pytest.mark.parametrize("bits", [128, 192, 960])
def test_tails_are_enclosed(x, bits):
    low, high = upper_tail(x, bits)
    with mpmath.workdps(400):
        assert mpmath.mpf(str(low)) <= tail(x, 400) <= mpmath.mpf(str(high))
        assert mpmath.mpf(str(high)) - mpmath.mpf(str(low)) < mpmath.mpf(2) ** -(bits + 30)


def test_tails_do_not_depend_on_the_caller_s_decimal_context():
    expected = upper_tail(Fraction(7, 3), 128)
    with decimal.localcontext(prec=3, traps=[decimal.Inexact, decimal.Rounded]):
        assert upper_tail(Fraction(7, 3), 128) == expected


def test_the_error_of_scipy_s_inverse_is_a_sixteenth_of_what_is_allowed():
    """Tails from 2**-128 to nearly 1/2, rounded as the sampler rounds them."""
    rng = np.random.default_rng(0)
    tails = np.concatenate((2.0 ** -rng.uniform(1, 128, 400), 0.5 - 10.0 ** rng.uniform(-16, -1, 100)))
    worst = 0.0
    with mpmath.workdps(40):
        for one, found in zip(tails.tolist(), (-ndtri(tails)).tolist(), strict=True):
            exact = mpmath.mpf(one) * (1 + mpmath.mpf(2) ** -52)  # half of the roundings, in the worse direction
            true = mpmath.findroot(lambda y, t=exact: mpmath.log(mpmath.erfc(y / mpmath.sqrt(2)) / 2 / t), found)
            worst = max(worst, abs(float(true - found)) / (1 + found))
    assert worst < noise._INVERSE_ERROR / 16


@pytest.mark.parametrize("scale", [Fraction(2**30), Fraction(2**20), Fraction(1.7), Fraction(1, 3)])
def test_tails_next_to_a_boundary_are_rounded_to_the_right_side(scale):
    """One unit of 2**-128 more or less decides, which no float shows."""
    for value in sorted({0, 1, int(scale), int(3 * scale), int(9 * scale)}):
        with mpmath.workdps(60):
            edge = tail((value + Fraction(1, 2)) / scale)
            nearer, further = edge + mpmath.mpf(2) ** -127, edge - mpmath.mpf(2) ** -127
            if further > 0 and edge > mpmath.mpf(2) ** -120:
                for sign, factor in ((0, 1), (1, -1)):
                    assert rounded_normals(Listed(*words_of(nearer, sign)), 1, scale).tolist() == [factor * value]
                    assert rounded_normals(Listed(*words_of(further, sign)), 1, scale).tolist() == [
                        factor * (value + 1)
                    ]


@pytest.mark.parametrize("scale", [Fraction(1, 7), Fraction(1, 2), Fraction(3)])
@pytest.mark.parametrize("mean", [-0.5, -0.3, 0.125, 0.5])
def test_noise_around_a_mean_has_its_exact_chances(scale, mean):
    values = rounded_normals(stream(73), 50_000, scale, np.full(50_000, mean))
    reach = 2 + int(4 * scale)
    edges = np.array([-math.inf, *(k - 0.5 for k in range(-reach, reach + 2)), math.inf])
    expected = 50_000 * np.diff(stats.norm.cdf((edges - mean) / float(scale)))
    found = np.histogram(values, bins=[-1e9, *edges[1:-1], 1e9])[0]
    enough = expected > 10
    assert found[expected < 1e-12].sum() == 0
    statistic = (np.square(found - expected)[enough] / expected[enough]).sum()
    assert stats.chi2.sf(statistic, max(enough.sum() - 1, 1)) > P_VALUE


@pytest.mark.parametrize("scale", [Fraction(2**30), Fraction(1.7), Fraction(1, 3)])
@pytest.mark.parametrize("mean", [-0.5, -0.3, 0.5])
def test_tails_next_to_a_boundary_are_rounded_to_the_right_side_of_a_mean(scale, mean):
    for value in sorted({1, int(scale) + 1, int(3 * scale) + 1}):
        for sign, factor in ((0, 1), (1, -1)):
            with mpmath.workdps(60):
                edge = tail((value + Fraction(1, 2) - factor * Fraction(mean)) / scale)
                nearer, further = edge + mpmath.mpf(2) ** -127, edge - mpmath.mpf(2) ** -127
            for number, found in ((nearer, value), (further, value + 1)):
                listed = Listed(*words_of(number, sign))
                assert rounded_normals(listed, 1, scale, np.array([mean])).tolist() == [factor * found]


def test_the_smallest_noise_takes_a_mean_of_a_half_to_either_side():
    for sign, value in ((0, 1), (1, 0)):
        assert rounded_normals(Constant(2**63 + sign), 1, Fraction(5e-324), np.array([0.5])).tolist() == [value]
        assert rounded_normals(Constant(2**63 + sign), 1, Fraction(5e-324), np.array([-0.5])).tolist() == [value - 1]


def test_a_tail_that_128_bits_leave_open_is_decided_by_the_next_word():
    scale, value = Fraction(2**30), 2**30 + 5
    with mpmath.workdps(80):
        edge = tail((value + Fraction(1, 2)) / scale, 80)
        rest = int(mpmath.floor(mpmath.frac(edge * mpmath.mpf(2) ** 128) * mpmath.mpf(2) ** 64))
    first = words_of(edge)
    assert rounded_normals(Listed(*first, rest + 1), 1, scale).tolist() == [value]
    assert rounded_normals(Listed(*first, rest - 1), 1, scale).tolist() == [value + 1]


def test_there_is_no_largest_value():
    """127 zero bits, which end a sampler of 128 bits at 13.1 standard deviations, are followed by more."""
    assert rounded_normals(Listed(0, 0, 2**63), 1, Fraction(1)).tolist() == [13]
    assert rounded_normals(Listed(0, 1, 0, 1), 1, Fraction(1)).tolist() == [-19]
    with pytest.raises(NotCertifiedError, match="not random"):
        rounded_normals(Constant(0), 1, Fraction(2**30))


def test_the_smallest_noise_is_zero():
    assert rounded_normals(Constant(2**64 - 2), 3, Fraction(2**30)).tolist() == [0] * 3
    assert rounded_normals(stream(1), 5, Fraction(5e-324)).tolist() == [0] * 5
    assert rounded_normals(stream(1), 0, Fraction(1)).shape == (0,)


def test_a_size_is_certain_only_if_no_end_of_an_enclosure_leaves_a_doubt(monkeypatch):
    """Tails beyond 5.5 are known to lie in [1/32, 1/8], tails beyond 4.5 in [1/4, 3/8]: 128 to 256 of 1,024."""
    tails = {Fraction(11, 2): ("0.03125", "0.125"), Fraction(9, 2): ("0.25", "0.375")}
    monkeypatch.setattr(noise, "upper_tail", lambda x, bits: tuple(map(decimal.Decimal, tails[x])))
    known = range(1024)
    certain = [place for place in known if noise._certain(Fraction(5), place, 10, Fraction(1))]
    assert certain == list(range(128, 256))


@pytest.mark.parametrize("bits", [128, 192])
def test_the_error_of_a_tail_counts_four_roundings_of_every_term(bits):
    """Terms grow until there are as many as the square of x; sums have 31 digits for 100 bits, and 30 more."""
    x = Fraction(31, 2)
    low, high = upper_tail(x, bits)
    unit = decimal.Decimal(10) ** -(bits * 31 // 100 + 29)
    assert high - low >= 2 * 4 * int(x * x) * unit
