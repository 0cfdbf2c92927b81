"""A rule that is broken is a reason, and so is time that is up; who asks for neither has all the time there is."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from flint import fmpq

from filet.checking import theorems as limits
from filet.checking.theorems import DEADLINE, need, spend, tail

LATE = "it takes longer than max_seconds allows"


@pytest.fixture
def at_ten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It is ten o'clock, and there is time until noon."""
    monkeypatch.setattr(limits, "monotonic", lambda: 10.0)
    limit = DEADLINE.set(12.0)
    yield
    DEADLINE.reset(limit)


def test_a_broken_rule_is_a_value_error_with_its_reason() -> None:
    need(True, "never said")
    need([0], "never said")
    for broken in (False, None, [], 0):
        with pytest.raises(ValueError, match=r"^the reason$"):
            need(broken, "the reason")


def test_work_that_would_end_after_the_deadline_does_not_start(at_ten: None) -> None:
    spend()
    spend(2)
    with pytest.raises(ValueError, match=f"^{LATE}$"):
        spend(2.001)
    with pytest.raises(ValueError, match=LATE):
        spend(math.nan)


def test_work_of_no_length_goes_on_until_the_deadline(at_ten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "monotonic", lambda: 12.0)
    spend()
    monkeypatch.setattr(limits, "monotonic", lambda: 12.001)
    with pytest.raises(ValueError, match=LATE):
        spend()


@pytest.mark.parametrize("n", [100, 10**9])
def test_every_binomial_tail_asks_for_the_time(at_ten: None, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """Sums of few terms, and the incomplete beta function: half a second each, and a claim may ask for thousands."""
    monkeypatch.setattr(limits, "monotonic", lambda: 12.001)
    for j in (n // 2 - 5, n // 2 + 5):
        with pytest.raises(ValueError, match=LATE):
            tail(j, n, fmpq(1, 2))


def test_without_a_deadline_nothing_is_late() -> None:
    assert math.inf == DEADLINE.get()
    spend(1e300)
