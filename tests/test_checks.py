"""Argument checks: what they let through unchanged, and one line with rule, value and remedy for the rest."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from filet import _checks
from filet.errors import InvalidArgumentError
from filet.scheme import Overflow


@pytest.mark.parametrize("value", [7, 7.0, np.int32(7), np.float64(7), np.array(7), np.uint8(7)])
def test_whole_numbers_of_every_kind_are_integers(value: Any) -> None:
    found = _checks.integer("n", value, low=0, remedy="pass one")
    assert found == 7
    assert type(found) is int


@pytest.mark.parametrize(("value", "words"), [
    (7.5, "n=7.5 is not an integer; pass one"), (True, "n=True is not an integer"), ("7", "n='7' is not an integer"),
    (None, "n=None is not"), (math.nan, "n=nan is not an integer"), (math.inf, "n=inf is not"), (1e300, "n=1e+300 is not"),
    ([7], "n=[7] is not"), (np.array([7]), "n=array([7]) is not"), (-1, "n=-1 is below 0"), (2**63, "is above 2**63 - 1"),
    pytest.param(10**5000, "n=<int too long to show> is above", id="many digits"),
])  # fmt: skip
def test_other_values_are_refused_with_rule_and_remedy(value: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        _checks.integer("n", value, low=0, remedy="pass one")
    assert words in str(caught.value)
    assert str(caught.value).endswith("; pass one") or "plain number" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_limit_of_its_own_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="n=11 is above 10; pass one"):
        _checks.integer("n", 11, low=0, high=10, remedy="pass one")


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), Fraction(1, 2), np.array(0.5)])
def test_numbers_of_every_kind_are_floats(value: Any) -> None:
    found = _checks.real("x", value, rule="in R", remedy="pass one")
    assert found == 0.5
    assert type(found) is float


@pytest.mark.parametrize("value", ["0.5", b"0.5", True, None, [0.5], math.nan, 1j, object()])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^x"):
        _checks.real("x", value, rule="in R", remedy="pass one")


@pytest.mark.parametrize(("check", "good", "bad"), [
    (lambda v: _checks.probability("p", v, remedy="r"), (5e-324, 0.5, 1.0), (0.0, -0.1, 1.0000001, math.inf)),
    (_checks.noise_multiplier, (0.0, 1.0, math.inf), (-5e-324, -math.inf)),
    (_checks.step_count, (0, 5, 2**63 - 1), (-1, 2**63)),
    (lambda v: float(_checks.delta_array(v)), (5e-324, 0.999), (0.0, 1.0, -1.0, math.inf)),
    (lambda v: float(_checks.epsilon_array(v)), (0.0, 1e308), (-5e-324, math.inf)),
])  # fmt: skip
def test_ranges_are_closed_where_they_say_so(check: Any, good: tuple[float, ...], bad: tuple[float, ...]) -> None:
    for value in good:
        assert check(value) == value
    for value in bad:
        with pytest.raises(InvalidArgumentError):
            check(value)


def test_arrays_keep_their_shape_and_refuse_what_holds_no_numbers() -> None:
    assert _checks.delta_array([[0.1, 0.2]]).shape == (1, 2)
    for bad in (["0.1"], [True], [0.1, None], [math.nan], [[0.1], [0.1, 0.2]]):
        with pytest.raises(InvalidArgumentError, match=r"^delta"):
            _checks.delta_array(bad)


def test_choices_are_members_or_their_words() -> None:
    assert _checks.choice("overflow", "reject", Overflow) is Overflow.REJECT
    assert _checks.choice("overflow", Overflow.REJECT, Overflow) is Overflow.REJECT
    for bad in ("REJECT", "", None, 1, ["reject"]):
        with pytest.raises(InvalidArgumentError, match="is unknown; pass one of 'truncate', 'reject'"):
            _checks.choice("overflow", bad, Overflow)


def test_paths_are_text_bytes_or_path_objects() -> None:
    assert _checks.path("a") == _checks.path(b"a") == _checks.path(Path("a")) == "a"
    for bad in (None, 5, "a\0b", b"a\0"):
        with pytest.raises(InvalidArgumentError, match=r"^path="):
            _checks.path(bad)


def test_keys_are_told_apart_by_type_and_value_and_never_shown() -> None:
    given = [bytes(16), bytes(32), bytes(range(32)), 0, 1, 2**256 - 1, np.int64(5)]
    assert len({_checks.key_bytes(key) for key in given}) == len(given)
    assert _checks.key_bytes(bytearray(16)) == _checks.key_bytes(memoryview(bytes(16))) == _checks.key_bytes(bytes(16))
    for bad in (b"hunter2", b"h" * 65, -1, 2**256, True, None, "hunter2", 1.0):
        with pytest.raises(InvalidArgumentError, match=r"^key ") as caught:
            _checks.key_bytes(bad)
        assert "hunter2" not in str(caught.value)


def test_a_misspelt_key_is_not_ignored() -> None:
    _checks.no_unknown_keys("the run", ["a"], ["a", "b"])
    with pytest.raises(InvalidArgumentError, match="the run has the unknown key 'c'; known keys are a, b"):
        _checks.no_unknown_keys("the run", ["a", "c"], ["b", "a"])


def test_epochs_are_rounded_up_to_steps_that_can_be_counted() -> None:
    assert _checks.steps_of_epochs(1.0, 9.1) == 10
    for exact in (1e19, math.inf, math.nan):
        with pytest.raises(InvalidArgumentError, match="above 2"):
            _checks.steps_of_epochs(1.0, exact)


def test_shown_values_are_one_short_line() -> None:
    for value in ("a\nb" * 500, list(range(10**4)), 10**5000, {"a": "b\n" * 100}):
        text = _checks.show(value)
        assert "\n" not in text
        assert len(text) < 200


@pytest.mark.parametrize(("word", "found"), [
    ("--noise", "did you mean --noise-multiplier? "), ("--stesp", "did you mean --steps? "), ("--o", ""), ("--epsilon", ""), ("--wholly-other", ""), (5, ""),
])  # fmt: skip
def test_a_near_word_is_suggested_and_a_far_one_is_not(word: object, found: str) -> None:
    assert _checks.suggestion(word, ["--noise-multiplier", "--steps", "--output"]) == found
