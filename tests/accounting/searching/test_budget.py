"""A budget of nodes: it counts down, the same on every machine, and searches end with what is proven by then."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom
from tests.accounting.laws import usual_law

from filet import Adjacency, Analysis, Bounds, CappedPoisson
from filet.accounting.proving.theorems import loss_law
from filet.accounting.searching import budget as module
from filet.accounting.searching import refinement
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.refinement import Direction, Part


def test_a_budget_is_spent_once_nothing_is_left() -> None:
    budget = Budget(100)
    assert not budget.spent
    budget.spend(99)
    assert (budget.left, budget.spent) == (1, False)
    budget.spend(1)
    assert (budget.left, budget.spent) == (0, True)
    budget.spend(50)
    assert (budget.left, budget.spent) == (-50, True)
    assert Budget().left == module._NODES


@pytest.mark.long
@pytest.mark.parametrize("nodes", [0, 1, 3_000, 10_000, 3 * 10**6])
def test_an_answer_is_true_whatever_the_budget_and_narrow_if_it_suffices(
    monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    """Two outcomes a step, so that delta is a binomial sum."""
    law = loss_law(CappedPoisson(10**6, 0.01, 10**6), 0.01, Adjacency.ZERO_OUT, Analysis.REFINED)  # a hit shows
    monkeypatch.setattr(refinement, "Budget", lambda: Budget(nodes))
    with np.errstate(all="ignore"):
        run = Direction([Part(usual_law(), 300)])
        found, delta = run.epsilon(1e-6), run.delta(1.0)
        shown = Direction([Part(law, 100)]).delta(50.0)
    full = _unlimited()
    assert found.lower <= full[0].upper * (1 + 1e-9)
    assert found.upper >= full[0].lower * (1 - 1e-9)
    assert delta.lower <= full[1].upper * (1 + 1e-9)
    assert delta.upper >= full[1].lower * (1 - 1e-9)
    if nodes == 3 * 10**6:
        assert not refinement.wide(found)
    hit = float(binom.sf(0, 100, 0.01))
    assert shown.lower <= hit <= shown.upper * (1 + 1e-9)


def _unlimited() -> tuple[Bounds, Bounds]:
    run = Direction([Part(usual_law(), 300)])
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(refinement, "Budget", lambda: Budget(10**9))
        return run.epsilon(1e-6), run.delta(1.0)


def test_the_budget_of_a_question_is_its_own() -> None:
    run = Direction([Part(usual_law(), 300)])
    with np.errstate(all="ignore"):
        first = run.epsilon(1e-6)
        for _ in range(3):
            assert run.epsilon(1e-6) == first
    assert math.isfinite(first.upper)


def test_a_quick_delta_without_budget_is_the_crude_bound() -> None:
    run = Direction([Part(usual_law(), 300)])
    spent, fresh = Budget(0), Budget(10**6)
    with np.errstate(all="ignore"):
        crude, read = run.quick_delta(1.0, spent), run.quick_delta(1.0, fresh)
        exact = run.delta(1.0)
    assert spent.left == 0
    assert fresh.left < 10**6
    assert exact.lower <= read < crude <= 1.0
