"""Passes: they cover a run exactly once, in the number that was asked for, and what is one too many is told why."""

from __future__ import annotations

from typing import Any

import pytest

from filet.errors import InvalidArgumentError
from filet.sampling.passes import Passes, checked_passes
from filet.scheme import CappedPoisson

SCHEME = CappedPoisson(1_000, 0.03, 40)


def lengths(passes: Passes) -> list[int]:
    found, step = [], 0
    while step < passes.steps:
        found.append(passes.end(step) - step)
        step = passes.end(step)
    return found


@pytest.mark.parametrize("probability", [1.0, 0.9, 0.3, 0.03, 256 / 60_000, 1e-4])
@pytest.mark.parametrize("epochs", [1, 7, 60, 1000])
def test_whole_epochs_are_as_many_passes(probability: float, epochs: int) -> None:
    scheme = CappedPoisson(60_000, probability, 300)
    passes = checked_passes(scheme, None, epochs)
    found = lengths(passes)
    assert len(found) == len(passes) == epochs
    assert sum(found) == passes.steps == scheme.steps_of_epochs(epochs)
    assert max(found) - min(found) <= 1
    assert max(found) == passes.most_steps == scheme.steps_of_epochs(1)


def test_parts_of_epochs_and_cycles_end_with_the_run() -> None:
    scheme = CappedPoisson(1_000, 0.1, 50, cycle_length=4)
    assert lengths(checked_passes(scheme, None, 2.5)) == [40, 40, 20]
    assert len(checked_passes(scheme, None, 2.5)) == 3


@pytest.mark.parametrize(
    ("steps", "count"), [(5, 4), (10, 4), (14_000, 60), (7, 7), (7, 1), (999_999, 1_000), (10**15, 3)]
)
def test_so_many_passes_are_equal_up_to_one_step(steps: int, count: int) -> None:
    passes = checked_passes(SCHEME, steps, passes=count)
    found = lengths(passes)
    assert (len(found), sum(found)) == (len(passes), steps) == (count, steps)
    assert max(found) - min(found) <= 1
    assert max(found) == passes.most_steps == -(-steps // count)


def test_a_pass_is_all_steps_or_as_told() -> None:
    assert lengths(checked_passes(SCHEME, 24)) == [24]
    assert lengths(checked_passes(SCHEME, 24, epoch_steps=10)) == [10, 10, 4]
    assert len(checked_passes(SCHEME, 24, epoch_steps=10)) == 3
    assert checked_passes(SCHEME, 24, epoch_steps=10).end(7) == 17  # a pass that was broken off goes on for as long
    assert checked_passes(SCHEME, 24, passes=2).end(7) == 12  # to where the epoch ends
    assert checked_passes(SCHEME, 0).end(0) == 0


@pytest.mark.parametrize(("arguments", "words"), [
    ((SCHEME, None), "neither is given"), ((SCHEME, 5, 2.0), "both are given"), ((SCHEME, 5, None, 2, 2), "epoch_steps and passes all say"),
    ((SCHEME, None, 2.0, 3), "epochs and epoch_steps all say"), ((SCHEME, 5, None, 0), "epoch_steps=0 is below 1"),
    ((SCHEME, 5, None, None, 6), "passes=6 is above 5"), (("scheme", 5), "is not a CappedPoisson"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        checked_passes(*arguments)


def test_one_pass_too_many_is_told_the_remedies() -> None:
    words = checked_passes(SCHEME, 24).over()
    assert "one pass takes them all" in words
    assert "passes=E, or epochs=E" in words
    assert "takes up to 10 of them" in checked_passes(SCHEME, 24, epoch_steps=10).over()
