"""The engine judged by the checker: random runs, whose exact delta is bracketed in ball arithmetic (`judging`).

The tables judged_*.csv hold what `python -m tests.checking.judging` found; the engine of today must not contradict them, at
each run's own epsilons.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from flint import fmpq
from tests.checking.checking_bracket import bracket
from tests.checking.judging import JUDGED, POINTS, curve_of, drawn, judge, table

import filet
from filet.accounting.certificate import Plan

FEWEST = {"ordinary": 500, "extreme": 200}


@pytest.mark.long
def test_the_engine_agrees_with_ball_arithmetic() -> None:
    found = [judge(drawn("ordinary", 10**6 + i, most_steps=1e3), budget=5.0) for i in range(24)]
    margins = [(row["above"], row["below"]) for row in found if row["outcome"] == JUDGED]
    assert len(margins) >= 20
    assert min(map(min, margins)) >= 0.0
    assert np.mean([max(pair) < 0.1 for pair in margins]) > 0.6  # so that the brackets could notice something


@pytest.mark.parametrize("kind", POINTS)
def test_the_stored_brackets_contradict_no_bound_that_was_judged(kind: str) -> None:
    rows = [row for row in table(kind).values() if row["outcome"] == JUDGED]
    assert len(rows) >= FEWEST[kind]
    for row in rows:
        assert row == {**row, **drawn(kind, int(row["draw"]))}
        assert Decimal(row["delta_at_upper"]) <= Decimal(row["delta"]) <= Decimal(row["delta_at_lower"]), row
        assert min(float(row["above"]), float(row["below"])) >= 0.0, row


def contradictions(kind: str, every: int) -> tuple[int, list[Any]]:
    """How many of the stored runs the engine of today answers, and those whose delta the exact one contradicts."""
    answered, wrong = 0, []
    for row in list(table(kind).values())[::every]:
        if row["outcome"] == JUDGED:
            try:
                curve = curve_of(row)
                high, low = (curve.delta_bounds(float(row[end])) for end in ("upper", "lower"))
            except filet.FiletError:
                continue
            answered += 1
            if Decimal(high.upper) < Decimal(row["delta_at_upper"]) or Decimal(low.lower) > Decimal(
                row["delta_at_lower"]
            ):
                wrong.append(row)
    return answered, wrong


@pytest.mark.parametrize("kind", POINTS)
def test_the_engine_of_today_agrees_with_the_stored_brackets(kind: str) -> None:
    answered, wrong = contradictions(kind, every=10)
    assert not wrong, wrong[0]
    assert answered >= FEWEST[kind] // 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", POINTS)
def test_the_engine_of_today_agrees_with_every_stored_bracket(kind: str) -> None:
    answered, wrong = contradictions(kind, every=1)
    assert not wrong, wrong[0]
    assert answered >= 0.9 * FEWEST[kind]


def test_an_engine_that_is_too_low_would_be_noticed() -> None:
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    curve = filet.account(scheme, noise_multiplier=1.0, steps=50, adjacency="add-remove", analysis="swap")
    epsilon = curve.epsilon_bounds(1e-5).upper
    plan = Plan.guess(curve, 1e-5, epsilon)
    claim = replace(plan, spacing=0.35 * plan.spacing, fineness=2 * plan.fineness).claim()[0]
    ((lower, upper),) = bracket(claim, 0.998 * epsilon)
    assert fmpq(1, 10**5) < lower < upper
