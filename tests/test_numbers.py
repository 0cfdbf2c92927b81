"""Rounding: to the safe side, always, and not further than the digits ask."""

import math
from decimal import Decimal

import numpy as np
import pytest

from filet._numbers import round_down, round_up
from filet.errors import InvalidArgumentError


def test_rounding_never_crosses_the_number():
    random = np.random.default_rng(5)
    for value in [*np.exp(random.uniform(-700, 30, 2000)), 0.1, 1.0, 9.9999999, 0.99995, 123456.7, 5e-324, 1e15, 1e300]:
        value = float(value)
        up, down = Decimal(round_up(value)), Decimal(round_down(value))
        assert down <= Decimal(value) <= up, value
        assert up - down <= Decimal(value) * Decimal("0.0011") + Decimal("1e-323"), value
    assert (round_up(math.inf), round_up(0.0), round_up(2.0)) == ("inf", "0", "2")


def test_an_ulp_beside_a_short_number_is_not_lost():
    """Scaling in floats and back fell below the value for one in sixteen of these."""
    for short in np.random.default_rng(6).integers(100_000, 1_000_000, 2_000):
        value = math.nextafter(float(short) * 1e-6, 1.0)
        assert Decimal(round_up(value, 6)) >= Decimal(value)
        assert Decimal(round_down(value, 6)) <= Decimal(value)


def test_negative_numbers_are_rounded_to_the_same_sides():
    assert (round_up(-1.23456), round_down(-1.23456)) == ("-1.234", "-1.235")


@pytest.mark.parametrize("digits", [1, 2, 6, 17])
def test_digits_are_counted_from_the_first(digits):
    for value in (1 / 3, 2 / 3e7, 1e-300 / 7):
        up, down = Decimal(round_up(value, digits)), Decimal(round_down(value, digits))
        assert up - down == Decimal(10) ** (Decimal(value).adjusted() - digits + 1)


@pytest.mark.parametrize(("value", "digits", "words"), [
    ("1", 4, "value='1'"), (math.nan, 4, "nan"), ([1.0], 4, "is not a number"), (1.0, 0, "digits=0 is below 1"), (1.0, 18, "above 17"),
])  # fmt: skip
def test_what_is_no_number_is_refused(value, digits, words):
    with pytest.raises(InvalidArgumentError, match=words):
        round_up(value, digits)


@pytest.mark.parametrize(("value", "digits", "text"), [
    (0.5, 4, "0.5000"), (2.9995, 3, "3.00"), (1.0, 6, "1.00000"), (2.0**-14, 12, "6.10351562500e-05"), (2.0**-20, 2, "9.6e-07"), (0.0, 4, "0"),
    (math.inf, 4, "inf"), (14000.0, 4, "14000.0"),
])  # fmt: skip
def test_trailing_zeros_are_kept_where_columns_must_line_up(value, digits, text):
    assert round_up(value, digits, zeros=True) == text
    assert Decimal(round_up(value, digits, zeros=True)) == Decimal(round_up(value, digits))
    assert Decimal(round_down(value, digits, zeros=True)) == Decimal(round_down(value, digits))
