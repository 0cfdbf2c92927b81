"""What the hardware takes: every batch with every number of steps, or with the steps that cost the same."""

from __future__ import annotations

from typing import Any

import pytest

from filet.errors import InvalidArgumentError
from filet.planning.hardware import checked_settings, several


def test_one_number_or_several() -> None:
    assert several("steps", 5) == [5]
    assert several("steps", (5, 6)) == [5, 6]
    assert several("steps", "56") == ["56"]  # text is one thing, and refused later
    with pytest.raises(InvalidArgumentError, match="steps is empty"):
        several("steps", [])


def test_every_batch_goes_with_every_number_of_steps() -> None:
    found = checked_settings(1_000, [10, 20], [3, 4], None, 2)
    assert [(scheme.max_batch_size, steps) for scheme, steps in found] == [(10, 3), (10, 4), (20, 3), (20, 4)]
    assert {scheme.cycle_length for scheme, _ in found} == {2}


def test_hardware_epochs_give_every_batch_the_same_rows_rounded_up() -> None:
    found = checked_settings(1_000, [10, 30, 2_000], None, 1.5, 1)
    assert [(scheme.max_batch_size, steps) for scheme, steps in found] == [(10, 150), (30, 50), (2_000, 1)]


@pytest.mark.parametrize(("arguments", "words"), [
    ((1_000, 10, None, None, 1), "neither is given"),
    ((1_000, 10, 5, 1.0, 1), "both are given"),
    ((1_000, 10, 0, None, 1), "steps=0 is below 1"),
    ((1_000, 10, None, 0.0, 1), "hardware_epochs=0.0 is not in"),
    ((1_000, 10, None, 1e308, 1), r"hardware_epochs=1e\+308 take inf steps"),
    ((1_000, 0, 5, None, 1), "max_batch_size=0 is below 1"),
    ((1_000, [10, None], 5, None, 1), "max_batch_size=None is not an integer"),
    ((1_000, 10, 5, None, 1_001), "cycle_length=1001 is above 1000"),
])  # fmt: skip
def test_what_no_hardware_takes_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        checked_settings(*arguments)
