"""From one direction to the run: both orders, overflows, exposures and the power of tests."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from filet import Bounds
from filet._rounding import UNIT
from filet.accounting.proving.closed_form import gaussian_log_delta
from filet.accounting.proving.combining import (
    added,
    chance,
    larger,
    power,
    smaller,
    squared_shift,
    union_cost,
    with_noiseless,
)
from filet.accounting.terms import Brackets


def test_the_guarantee_is_the_worse_of_both_orders_number_by_number() -> None:
    one = Brackets(np.array([1.0, 0.5, 0.0]), np.array([2.0, 3.0, math.inf]))
    other = Brackets(np.array([0.5, 0.7, 0.1]), np.array([3.0, 0.9, 1.0]))
    worse, better = larger(one, other), smaller(one, other)
    assert (worse.lower.tolist(), worse.upper.tolist()) == ([1.0, 0.7, 0.1], [3.0, 3.0, math.inf])
    assert (better.lower.tolist(), better.upper.tolist()) == ([1.0, 0.7, 0.1], [2.0, 0.9, 1.0])  # of the smaller


def test_an_overflow_costs_its_chance_times_one_plus_the_factor() -> None:
    cost = union_cost(Bounds(1e-6, 2e-6), 1.5)
    factor = 1 + math.exp(1.5)
    assert 1e-6 * factor * (1 - 3e-9) < cost.lower < 1e-6 * factor * (1 - 1e-10)
    assert 2e-6 * factor * (1 + 1e-10) < cost.upper < 2e-6 * factor * (1 + 3e-9)
    assert union_cost(Bounds(0.0, 0.0), 1e9) == Bounds(0.0, 0.0)
    assert union_cost(Bounds(1e-9, 1e-9), 701.0) == Bounds(0.0, math.inf)
    assert math.isfinite(union_cost(Bounds(1e-9, 1e-9), 700.0).upper)


@pytest.mark.parametrize("exponent", [0.0, 1e-300, 1e-20, 1e-6, 0.3, 40.0, 1e9, math.inf])
def test_a_chance_contains_every_exponent_within_its_error(exponent: float) -> None:
    found = chance(exponent, 1e-11)
    with mp.workdps(60):
        for sign in (-1, 0, 1):
            exact = -mp.expm1(-mp.mpf(exponent) * (1 + sign * mp.mpf(1e-11))) if exponent else mp.mpf(0)
            assert found.lower <= exact <= found.upper
    assert 0.0 <= found.lower <= found.upper <= 1.0
    if 0.0 < exponent < 1.0:
        assert found.upper - found.lower < 3e-11 * found.upper


@pytest.mark.parametrize("releases", [[(0.3, 7)], [(1.7, 1000), (1e-3, 1), (0.1, 3)], [(1e9, 1)] * 50])
def test_squared_shifts_are_added_and_rounded_outward(releases: list[tuple[float, int]]) -> None:
    found = squared_shift(iter(releases))
    exact = sum(count / Fraction(sigma) ** 2 for sigma, count in releases)
    assert exact * (1 - Fraction(2e-15)) < Fraction(found.lower) < exact * (1 - Fraction(2e-16))
    assert exact * (1 + Fraction(2e-16)) < Fraction(found.upper) < exact * (1 + Fraction(2e-15))
    assert squared_shift([]) == Bounds(0.0, 0.0)
    assert squared_shift([(0.5, 1)]) == Bounds(4 * (1 - 8 * UNIT), 4 * (1 + 8 * UNIT))  # nothing but the margin
    with pytest.raises(OverflowError, match=r"^a sum of squared shifts is no float$"):
        squared_shift([(1e-200, 1)])


def test_outcomes_that_count_fully_add_to_the_upper_bound_and_raise_the_lower() -> None:
    part = Bounds(0.1, 0.2)
    assert with_noiseless(part, Bounds(0.0, 0.0)) == part
    found = with_noiseless(part, Bounds(0.15, 0.4))
    assert found.lower == 0.15  # either alone is a lower bound; their sum need not be
    assert 0.6 * (1 + 1e-12) < found.upper < 0.6 * (1 + 1e-10)
    assert with_noiseless(part, Bounds(0.0, 0.9)).upper == 1.0


def test_what_the_union_strategy_adds_is_added_on_both_sides() -> None:
    part = Bounds(0.1, 0.2)
    assert added(part, Bounds(0.0, 0.0)) == part
    found = added(part, Bounds(0.15, 0.4))
    assert found.lower == 0.25
    assert 0.6 * (1 + 1e-12) < found.upper < 0.6 * (1 + 1e-10)
    assert added(part, Bounds(3.0, math.inf)) == Bounds(1.0, 1.0)  # a delta is at most one


def table(mu: float, top: float = 12.0) -> list[tuple[float, float]]:
    return [(k * top / 2000, math.exp(gaussian_log_delta(mu, k * top / 2000))) for k in range(2001)]


@pytest.mark.parametrize("rate", [0.0, 1e-6, 0.01, 0.2, 0.5, 0.9, 1.0])
def test_no_test_of_two_gaussians_beats_the_power(rate: float) -> None:
    exact = float(ndtr(1.0 + ndtri(rate)))
    found = power(rate, table(1.0), table(1.0))
    assert exact <= found <= exact + 1e-4
    assert found >= rate
    crude = power(rate, [(0.0, 0.4)], [(0.0, 0.4)])  # any table is valid
    assert crude == pytest.approx(min(1.0, 0.4 + rate))
    assert power(rate, [(0.0, 1.0)], [(0.0, 1.0)]) == 1.0  # never above one, though rounded up


def test_either_neighbour_may_be_the_null() -> None:
    weak, strong = [(0.0, 0.1)], [(0.0, 0.3)]
    assert power(0.2, weak, strong) == power(0.2, strong, weak)
    one_sided = power(0.01, table(0.5), table(2.0))
    assert one_sided == power(0.01, table(2.0), table(0.5))
    assert one_sided >= power(0.01, table(0.5), table(0.5))


@pytest.mark.parametrize("rate", [1e-300, 1e-20, 1e-17])
def test_tiny_rates_do_not_cancel(rate: float) -> None:
    """A table with thresholds near 1: 1 - e^-epsilon (1 - delta) must keep its digits."""
    points = [(0.0, 3e-18), (1e-18, 2e-18), (800.0, 0.0)]
    with mp.workdps(60):
        exact = min(
            min(mp.mpf(d) + mp.exp(mp.mpf(e)) * mp.mpf(rate) for e, d in points if e <= 700),
            min(1 - mp.exp(-mp.mpf(e)) + mp.exp(-mp.mpf(e)) * (mp.mpf(d) + mp.mpf(rate)) for e, d in points),
        )
    found = power(rate, points, points)
    assert exact <= found <= exact * (1 + mp.mpf(10) ** -14)


def test_several_rates_are_answered_as_each_alone_and_far_points_say_nothing() -> None:
    rates = np.array([1e-9, 0.01, 0.3, 0.9])
    together = power(rates, table(1.0), table(2.0))
    assert together.tolist() == [power(rate, table(1.0), table(2.0)) for rate in rates.tolist()]
    far, last = [(701.0, 0.0)], [(700.0, 0.25)]
    assert power(rates, far, far).tolist() == [1.0] * 4
    assert power(0.0, last, last) == pytest.approx(0.25, rel=1e-14)
