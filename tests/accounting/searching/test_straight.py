"""The straight way: what a sketch leads to is proven, as narrow as is promised, or left to the long way."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.accounting.laws import usual_law

from filet import Adjacency, Analysis, Bounds, CappedPoisson
from filet.accounting.proving.theorems import loss_law
from filet.accounting.proving.verdict import DeltaBracket, EpsilonBracket
from filet.accounting.searching import straight as module
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.refinement import Direction, Part, wide
from filet.accounting.searching.sketches import sketched_cells
from filet.accounting.searching.straight import Drawing, bracket_delta, bracket_epsilon, shows_at_most

DELTA = 1e-6
LOG_DELTA = math.log(DELTA)


def run(steps: int = 2000, sigma: float = 1.0) -> Direction:
    return Direction([Part(usual_law(sigma), steps)])


def drawing(direction: Direction) -> Drawing:
    return Drawing(direction, [None] * len(direction.parts), 0.0, 8.0)


def long_way(direction: Direction, monkeypatch: pytest.MonkeyPatch) -> Bounds:
    with monkeypatch.context() as patch:
        patch.setattr(Direction, "_draw", lambda *_: None)
        return direction.epsilon(DELTA)


@pytest.mark.parametrize(("steps", "sigma"), [(2000, 1.0), (10, 3.0), (10**6, 5.0), (300, 0.7)])
def test_both_ways_agree_and_one_is_straight(steps: int, sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    one, bracket, budget = run(steps, sigma), EpsilonBracket(DELTA), Budget()
    drawn = drawing(one).at_delta(LOG_DELTA, both=False)
    assert drawn is not None
    assert bracket_epsilon(one, drawn, bracket, budget)
    assert budget.left < Budget().left
    assert not wide(bracket)
    found = long_way(run(steps, sigma), monkeypatch)
    assert max(found.lower, bracket.lower) <= min(found.upper, bracket.upper)
    assert run(steps, sigma).epsilon(DELTA).upper == pytest.approx(bracket.upper, rel=1e-3)


def test_delta_is_as_narrow_as_is_promised_and_around_the_goal() -> None:
    one = run()
    epsilon = one.epsilon(DELTA)
    for at, side in ((epsilon.upper, 1.0), (epsilon.lower, -1.0)):
        bracket = DeltaBracket(at)
        guesses = drawing(one).at_epsilon(at, LOG_DELTA, both=False)
        assert guesses is not None
        assert bracket_delta(one, drawing(one), guesses, bracket) is not None
        assert bracket.upper - bracket.lower <= 1e-3 * bracket.upper
        assert side * (DELTA - (bracket.lower if side > 0 else bracket.upper)) >= 0.0
        assert one.delta(at).upper == pytest.approx(bracket.upper, rel=1e-3)


def test_a_wide_delta_is_tried_with_finer_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    honest = sketched_cells

    def count(*given: object) -> object:
        asked.append(given[-1])
        return honest(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "sketched_cells", count)
    monkeypatch.setattr(module, "_FINER", 0.2)
    one, bracket = run(), DeltaBracket(1.0)
    guesses = drawing(one).at_epsilon(1.0, -20.0, both=False)
    assert guesses is not None
    assert bracket_delta(one, drawing(one), guesses, bracket) is not None
    assert bracket.upper - bracket.lower <= 1e-3 * bracket.upper
    assert len(asked) == 2
    assert asked[1] > 1.2 * asked[0]
    monkeypatch.setattr(module, "_FINER", 0.02)
    assert bracket_delta(one, drawing(one), guesses, DeltaBracket(1.0)) is None  # which is left to the long way


def test_the_other_direction_is_shown_to_be_smaller_only_where_it_is() -> None:
    one = run()
    other = one.reversed()
    drawn = drawing(one).at_delta(LOG_DELTA, both=True)
    assert drawn is not None
    assert drawn.other is not None
    epsilon = one.epsilon(DELTA).lower
    assert shows_at_most(other, drawn, epsilon, LOG_DELTA)
    smaller = other.epsilon(DELTA)
    assert smaller.upper < epsilon
    assert not shows_at_most(other, drawn, 0.99 * smaller.lower, LOG_DELTA)
    assert not shows_at_most(other, drawn, epsilon, LOG_DELTA - 5.0)  # drawn for another delta
    assert not shows_at_most(other, replace(drawn, other=None), epsilon, LOG_DELTA)
    assert not shows_at_most(other, None, epsilon, LOG_DELTA)


def test_rare_hits_and_epsilons_near_zero_are_left_to_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = loss_law(CappedPoisson(10**9, 1e-9, 10), 1.0, Adjacency.ZERO_OUT, Analysis.SWAP)
    for law, steps in ((tiny, 10), (usual_law(100.0), 5)):
        drawn = drawing(Direction([Part(law, steps)])).at_delta(math.log(1e-3), both=False)
        assert drawn is None
    drawn = drawing(run()).at_delta(LOG_DELTA, both=False)
    assert drawn is not None
    monkeypatch.setattr(module, "settle", lambda *_: None)
    assert not bracket_epsilon(run(), drawn, EpsilonBracket(DELTA), Budget())
