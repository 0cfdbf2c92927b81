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
    assert len(checked_passes(SCHEME, 24)) == 1
    assert lengths(checked_passes(SCHEME, 24, epoch_steps=10)) == [10, 10, 4]
    assert len(checked_passes(SCHEME, 24, epoch_steps=10)) == 3
    assert checked_passes(SCHEME, 24, epoch_steps=10).end(7) == 17  # a pass that was broken off goes on for as long
    assert checked_passes(SCHEME, 24, passes=2).end(7) == 12  # to where the epoch ends
    assert checked_passes(SCHEME, 0).end(0) == 0


BATCHES = "pass the number of batches in one pass, or None for all"
PASSES = "pass the number of passes over the loader, at most one a step"
EITHER = "exactly one of steps and epochs is needed"


@pytest.mark.parametrize(("arguments", "message"), [
    ((SCHEME, None), f"{EITHER}, neither is given; pass one of them"), ((SCHEME, 5, 2.0), f"{EITHER}, both are given; pass one of them"),
    ((SCHEME, 5, None, 2, 2), "epoch_steps and passes all say how long a pass is; pass one of them"),
    ((SCHEME, None, 2.0, 3), "epochs and epoch_steps all say how long a pass is; pass one of them"),
    ((SCHEME, 5, None, 0), f"epoch_steps=0 is below 1; {BATCHES}"), ((SCHEME, 5, None, None, 0), f"passes=0 is below 1; {PASSES}"),
    ((SCHEME, 5, None, None, 6), f"passes=6 is above 5; {PASSES}"), ((SCHEME, 0, None, None, 2), f"passes=2 is above 1; {PASSES}"),
    (("scheme", 5), "scheme='scheme' is not a CappedPoisson; pass filet.CappedPoisson(...)"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        checked_passes(*arguments)
    assert str(caught.value) == message


def test_an_empty_run_is_over_at_once() -> None:
    for ways in ({}, {"epoch_steps": 3}, {"passes": 1}):
        assert checked_passes(SCHEME, 0, **ways).end(0) == 0


def test_one_pass_too_many_is_told_the_remedies() -> None:
    words = checked_passes(SCHEME, 24).over()
    assert "one pass takes them all" in words
    assert "passes=E, or epochs=E" in words
    assert "takes up to 10 of them" in checked_passes(SCHEME, 24, epoch_steps=10).over()


@pytest.mark.parametrize("ways", [{}, {"epoch_steps": 7}, {"passes": 6}, {"passes": 40}])
def test_bounds_are_those_of_passes_that_nobody_left(ways: dict[str, int]) -> None:
    passes = checked_passes(CappedPoisson(1_000, 0.03, 60), 40, **ways)
    start = 0
    while start < 40:
        end = passes.end(start)
        assert {passes.bounds(step) for step in range(start, end)} == {(start, end)}
        start = end
    assert passes.bounds(40) == passes.bounds(39)
    whole = checked_passes(CappedPoisson(1_000, 0.03, 60), None, epochs=3.5)
    assert [whole.bounds(step) for step in (0, 33, 34, 116)] == [(0, 34), (0, 34), (34, 67), (100, 117)]
