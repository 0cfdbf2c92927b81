"""Binomial tails against exact sums in 60-digit arithmetic, and where only logarithms are left."""

from __future__ import annotations

import math

import mpmath
import pytest

from filet._binomial import hazard, log_cdf, log_pmf, log_pmf_ratio, log_sf

mpmath.mp.dps = 60


def terms(n: int, p: float, first: int, last: int) -> list[mpmath.mpf]:
    """Pr[Bin(n, p) = j] for j = first .. last."""
    exact = mpmath.mpf(p)
    log = mpmath.loggamma(n + 1) - mpmath.loggamma(first + 1) - mpmath.loggamma(n - first + 1)
    value = mpmath.exp(log + first * mpmath.log(exact) + (n - first) * mpmath.log1p(-exact))
    found = []
    for j in range(first, last + 1):
        found.append(value)
        value = value * (n - j) / (j + 1) * exact / (1 - exact)
    return found


SMALL = [(5, 0.3), (50, 0.02), (300, 0.01), (1000, 0.5), (1000, 0.999), (10**6, 1e-3), (91081504, 3.6e-8),
         (10**9, 1e-7), (10**12, 1e-12), (10**12, 4e-10)]  # fmt: skip


@pytest.mark.parametrize(("n", "p"), SMALL)
@pytest.mark.parametrize("z", [-1.9, -1.0, 0.0, 0.5, 1.9, 2.5, 8.0])
def test_both_tails_have_twelve_digits(n: int, p: float, z: float) -> None:
    k = int(n * p + z * math.sqrt(n * p * (1 - p)))
    if not 0 < k <= n:
        k = 1
    below = mpmath.fsum(terms(n, p, 0, k - 1))
    assert abs(mpmath.expm1(log_cdf(k - 1, n, p) - mpmath.log(below))) < 1e-12
    if z < 5:
        assert abs(mpmath.expm1(log_sf(k, n, p) - mpmath.log(1 - below))) < 1e-12


@pytest.mark.parametrize(("n", "p", "k"), [(60_000, 0.004, 30_000), (10**12, 1e-9, 50_000), (10**7, 0.3, 3_200_000)])
def test_tails_below_the_smallest_float_stay_exact_in_log_space(n: int, p: float, k: int) -> None:
    value = log_sf(k, n, p)
    assert value < math.log(5e-324)
    several = mpmath.fsum(terms(n, p, k, k + 3000))
    assert abs(value - mpmath.log(several)) < 1e-9 * abs(value) ** 0.5


def test_cdf_and_survival_add_up_to_one() -> None:
    for n, p in [*SMALL, (10**12, 0.3), (10**12, 0.999), (2**62, 1e-6)]:
        for z in (-3.0, 0.0, 3.0):
            k = min(max(1, int(n * p + z * math.sqrt(n * p * (1 - p)))), n)
            assert math.exp(log_sf(k, n, p)) + math.exp(log_cdf(k - 1, n, p)) == pytest.approx(1.0, abs=2e-9)


def test_impossible_and_certain_events() -> None:
    assert log_sf(0, 5, 0.5) == 0.0
    assert log_sf(6, 5, 0.5) == -math.inf
    assert log_sf(5, 5, 1.0) == 0.0
    assert log_cdf(4, 5, 1.0) == -math.inf
    assert log_cdf(5, 5, 0.5) == 0.0
    assert log_pmf(6, 5, 0.5) == -math.inf


def test_hazard_is_a_ratio_that_survives_underflow() -> None:
    at, below = hazard(1000, 10**12, 0.5)  # both probabilities are below 1e-10^11
    odds = mpmath.mpf(0)
    term = mpmath.mpf(1)
    for j in range(1000, 990, -1):
        term = term * j / (10**12 - j + 1)
        odds += term
    assert below == pytest.approx(float(odds / (1 + odds)), rel=1e-12)
    assert at == pytest.approx(float(1 / (1 + odds)), rel=1e-15)


@pytest.mark.parametrize(("k", "n", "p"), [(0, 4, 0.5), (3, 4, 0.5), (4, 4, 0.5), (7, 4, 0.5), (20, 1000, 0.02)])
def test_hazard_is_the_conditional_probability_of_the_cap(k: int, n: int, p: float) -> None:
    law = terms(n, p, 0, min(k, n))
    expected = float(law[-1] / mpmath.fsum(law)) if k <= n else 0.0
    assert hazard(k, n, p) == pytest.approx((expected, 1 - expected), rel=1e-12, abs=1e-15)


def test_pmf_ratio_survives_underflow() -> None:
    exact = mpmath.log(mpmath.mpf(4096) * 4095 / ((mpmath.mpf(10) ** 12 - 4095) * (mpmath.mpf(10) ** 12 - 4094)))
    assert log_pmf_ratio(4094, 4096, 10**12, 0.5) == pytest.approx(float(exact), rel=1e-14)
