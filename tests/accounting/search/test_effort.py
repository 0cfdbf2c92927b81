"""Tolerance and effort: widths as promised, and limits that cost time or width, never truth."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from tests.accounting.laws import pair_of, usual_law

from filet.accounting.search import solve
from filet.accounting.search.effort import EFFORT, TOLERANCE, least_step


def test_epsilons_are_promised_to_a_part_in_a_thousand_or_an_absolute_width() -> None:
    upper = np.array([1.0, 1.0, 0.05, 0.05, 30.0, np.inf, np.inf, 0.0])
    lower = np.array([0.9995, 0.998, 0.04995, 0.0498, 29.96, 1.0, np.inf, 0.0])
    assert TOLERANCE.wide(lower, upper).tolist() == [False, True, False, True, True, True, False, False]
    assert TOLERANCE.wide(1.0 - 0.95e-3, 1.0, 0.9)
    assert not TOLERANCE.wide(1.0 - 0.85e-3, 1.0, 0.9)


def test_deltas_are_promised_to_a_part_in_a_thousand() -> None:
    assert TOLERANCE.wide_delta(np.array([0.9995, 0.998, 0.0]), np.array([1.0, 1.0, 0.0])).tolist() == [
        False,
        True,
        False,
    ]
    assert TOLERANCE.wide_delta(0.0, math.nan)


def test_newtons_method_ends_far_below_the_promise() -> None:
    epsilon = np.array([0.0, 1e-3, 1.0, 50.0])
    assert (least_step(epsilon) < 0.01 * np.maximum(TOLERANCE.relative * epsilon, TOLERANCE.absolute)).all()
    assert (least_step(epsilon) > 0.0).all()


@pytest.mark.parametrize(
    "change",
    [{"cells": 60}, {"spacing": 0.6}, {"contours": 1, "readings": 1}, {"nodes": 1}, {"levels": 1}, {"group": 0.5}],
)
def test_any_effort_gives_true_brackets(monkeypatch: pytest.MonkeyPatch, change: dict[str, float]) -> None:
    pair, deltas = pair_of((usual_law(), 40)), np.array([1e-9, 1e-5, 1e-3])
    truth = solve.epsilons(pair, deltas)
    assert not TOLERANCE.wide(*truth).any()
    less = dataclasses.replace(EFFORT, **change)  # type: ignore[arg-type]
    for module in ("solve", "question"):
        monkeypatch.setattr(f"filet.accounting.search.{module}.EFFORT", less)
    found = solve.epsilons(pair, deltas)
    assert (found.lower <= truth.upper).all()
    assert (truth.lower <= found.upper).all()
