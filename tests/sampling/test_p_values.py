"""P-values of counts and sums, against exact laws."""

import math

import numpy as np
import pytest
from scipy import stats

from filet.sampling.p_values import binomial_p_value, count_p_value, law_sum_p_value, poisson_p_value

LAWS = {
    "even": np.full(6, 1 / 6),
    "coin": np.array([0.7, 0.3]),
    "skewed": np.array([0.02, 0.08, 0.2, 0.7]),
    "rare": np.array([0.97, 0.02, 0.007, 0.003]),
    "gap": np.array([0.0, 0.5, 0.0, 0.5, 0.0]),
}


@pytest.mark.parametrize("count", [5, 20, 80])
@pytest.mark.parametrize("name", ["even", "coin", "skewed", "rare"])
def test_sums_have_the_p_values_of_their_exact_law(name, count):
    """From the convolution in another order; so few values need no approximation."""
    law, exact = LAWS[name], np.array([1.0])
    for _ in range(count):
        exact = np.convolve(exact, law)
    mean = count * (law @ np.arange(law.size))
    compared = 0
    for total in range(exact.size):
        tail = exact[total:].sum() if total >= mean else exact[: total + 1].sum()
        if 2 * tail < 1.0:
            found = law_sum_p_value(7.0 * count + total, count, 7, law)
            assert found == pytest.approx(2 * tail, rel=1e-9, abs=0), total
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("count", [90, 300])
@pytest.mark.parametrize("cap", [45, 50, 60])
def test_sums_of_many_values_have_nearly_the_p_values_of_their_exact_law(cap, count):
    """A capped binomial, with a jump at its end; sums of up to 18,000, by the Fourier transform, good to 1e-13."""
    law = stats.binom.pmf(np.arange(cap + 1), 1000, 0.05)
    law[cap] = stats.binom.sf(cap - 1, 1000, 0.05)
    exact = np.fft.irfft(np.fft.rfft(law, 2**15) ** count, 2**15)[: cap * count + 1]
    mean = count * (law @ np.arange(law.size))
    ratios = []
    for total in range(0, exact.size, 7):
        tail = exact[total:].sum() if total >= mean else exact[: total + 1].sum()
        if 1e-9 < 2 * tail < 0.9:
            ratios.append(law_sum_p_value(total, count, 0, law) / (2 * tail))
    assert len(ratios) > 20
    assert 0.95 < min(ratios) <= max(ratios) < 1.08


def test_sums_at_and_beyond_their_ends():
    law = LAWS["coin"]
    assert law_sum_p_value(10, 10, 0, law) == pytest.approx(2 * 0.3**10)
    assert law_sum_p_value(0, 10, 0, law) == pytest.approx(2 * 0.7**10, rel=0.05)
    assert law_sum_p_value(11, 10, 0, law) == 0.0
    assert law_sum_p_value(-1, 10, 0, law) == 0.0
    assert law_sum_p_value(10, 10, 0, LAWS["gap"]) == pytest.approx(2 * 0.5**10)
    assert law_sum_p_value(20, 10, 0, LAWS["gap"]) > 0.9


def test_counts_have_the_p_values_of_their_laws():
    assert binomial_p_value(3, 10, 0.5) == pytest.approx(2 * stats.binom.cdf(3, 10, 0.5))
    assert binomial_p_value(10, 10, 0.5) == pytest.approx(2 * 0.5**10)
    assert binomial_p_value(0, 10, 0.5) == pytest.approx(2 * 0.5**10)
    assert poisson_p_value(9, 3.0) == pytest.approx(2 * stats.poisson.sf(8, 3.0))
    assert poisson_p_value(0, 3.0) == pytest.approx(2 * stats.poisson.cdf(0, 3.0))
    assert count_p_value(9.0, 3.0, 3.0) == poisson_p_value(9, 3.0)
    assert count_p_value(140.0, 100.0, 100.0) == pytest.approx(2 * stats.norm.sf(3.95))


@pytest.mark.parametrize("chance", [0.02, 0.3, 0.5])
def test_every_count_has_twice_its_smaller_tail_and_at_most_one(chance):
    for count in range(11):
        at_most, at_least = stats.binom.cdf(count, 10, chance), stats.binom.sf(count - 1, 10, chance)
        assert binomial_p_value(count, 10, chance) == pytest.approx(
            min(1.0, 2 * at_most, 2 * at_least), rel=1e-12, abs=0
        )
        at_most, at_least = stats.poisson.cdf(count, 10 * chance), stats.poisson.sf(count - 1, 10 * chance)
        assert poisson_p_value(count, 10 * chance) == pytest.approx(
            min(1.0, 2 * at_most, 2 * at_least), rel=1e-12, abs=0
        )


def test_a_count_at_its_mean_is_no_evidence():
    assert count_p_value(100.0, 100.0, 100.0) == 1.0
    assert count_p_value(100.4, 100.0, 100.0) == 1.0
    assert count_p_value(101.2, 100.0, 100.0) == pytest.approx(2 * stats.norm.sf(0.07))
    assert law_sum_p_value(1, 2, 0, np.array([0.5, 0.5])) == 1.0
    assert law_sum_p_value(1, 5, 0, LAWS["coin"]) == 1.0


def test_chances_of_a_part_of_the_law_count_relative_to_their_sum():
    for total in (12, 20, 26):
        assert law_sum_p_value(total, 20, 0, 0.25 * LAWS["skewed"]) == pytest.approx(
            law_sum_p_value(total, 20, 0, LAWS["skewed"]), rel=1e-9, abs=0
        )


@pytest.mark.parametrize("falling", [0.1, 0.05])
def test_sums_of_falling_chances_are_those_of_negative_binomial_counts(falling):
    """Near the mean, where a half more or less shows, and far out, where a tilt of more than e^2 is needed."""
    law = (1 - falling) * falling ** np.arange(50)
    mean = 100 * falling / (1 - falling)
    for ahead, error in ((0, 0.06), (1, 1e-3), (2, 1e-3), (20, 1e-3), (70, 1e-3), (100, 1e-3)):
        total = math.ceil(mean) + ahead
        exact = 2 * stats.nbinom.sf(total - 1, 100, 1 - falling)
        assert law_sum_p_value(total, 100, 0, law) == pytest.approx(min(1.0, exact), rel=error, abs=0), total


def test_the_largest_of_many_sums_and_what_lies_beyond():
    law = stats.binom.pmf(np.arange(46), 1000, 0.05)
    law[45] = stats.binom.sf(44, 1000, 0.05)
    assert law_sum_p_value(45 * 300, 300, 0, law) == pytest.approx(2 * law[45] ** 300, rel=1e-9, abs=0)
    assert law_sum_p_value(45 * 300 + 1, 300, 0, law) == 0.0
