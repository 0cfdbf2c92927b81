"""The constants of rounding: outward means outward, and each stands in the right place next to the others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from filet import _rounding as rounding
from filet._rounding import (
    UNIT,
    down,
    exp_or_infinite,
    exp_or_unknown,
    expm1_or_infinite,
    finite_or_unknown,
    up,
)


@pytest.mark.parametrize("value", [5e-300, 1e-12, 0.3, 1.0, 7.5e11])
def test_moving_outward_goes_beyond_the_rounding_of_any_formula(value: float) -> None:
    assert value * (1 + 1e-12) < up(value) <= value * (1 + 1e-10)
    assert value * (1 - 1e-10) <= down(value) < value * (1 - 1e-12)
    assert up(value, 0.5) == 1.5 * value
    assert down(value, 0.5) == 0.5 * value


def test_zero_stays_zero_and_infinity_stays_infinite() -> None:
    assert up(0.0) == down(0.0) == 0.0
    assert up(math.inf) == down(math.inf) == math.inf


def test_an_error_in_the_exponent_is_small_or_infinite() -> None:
    assert expm1_or_infinite(1e-20) == 1e-20
    assert expm1_or_infinite(0.0999) == pytest.approx(math.exp(0.0999) - 1, rel=1e-14)
    assert expm1_or_infinite(0.1) == expm1_or_infinite(800.0) == expm1_or_infinite(math.nan) == math.inf


def test_an_exponential_beyond_floats_is_unknown_or_infinite_and_arrays_are_as_their_numbers() -> None:
    exponents = [-800.0, -1.0, 0.0, 699.0, 700.0, 701.0, 800.0, math.inf, math.nan]
    for function, beyond in ((exp_or_unknown, math.nan), (exp_or_infinite, math.inf)):
        for one, each in zip(exponents, function(np.array(exponents)).tolist(), strict=True):
            expected = math.exp(one) if one <= 700.0 else beyond
            assert function(one) == pytest.approx(expected, rel=1e-15, nan_ok=True)
            assert each == pytest.approx(expected, rel=1e-15, nan_ok=True)


def test_what_is_not_finite_is_unknown() -> None:
    numbers = [1.5, -2.0, 0.0, math.inf, -math.inf, math.nan]
    for one, each in zip(numbers, finite_or_unknown(np.array(numbers)).tolist(), strict=True):
        expected = one if math.isfinite(one) else math.nan
        assert finite_or_unknown(one) == pytest.approx(expected, nan_ok=True)
        assert each == pytest.approx(expected, nan_ok=True)


def test_the_unit_bounds_one_rounding() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(1.0, 2.0, size=(2, 1000))
    for computed, exact in ((x * y, x.astype(np.longdouble) * y), (x + y, x.astype(np.longdouble) + y)):
        off = np.abs(computed - exact) / exact
        assert off.max() <= UNIT
        assert off.max() > 0.4 * UNIT


def test_masses_that_are_not_trusted_are_covered_by_what_stands_for_them() -> None:
    smallest = np.finfo(float).smallest_normal
    assert smallest < rounding.DROPPED  # what is kept in lower bounds has all its digits
    assert rounding.RESOLVED > rounding.UNDERFLOW > 1e4 * smallest  # all cells of a law that underflow together
    assert rounding.LIGHTEST >= rounding.RESOLVED
    assert rounding.NEGLIGIBLE * 1e4 < 0.01 * rounding.TRANSFORM_ERROR  # thousands of dropped weights
