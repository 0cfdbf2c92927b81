"""Rare large losses: when one decides, where the answer lies, and which losses matter."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from tests.accounting.laws import SMALL, TICK

from filet import CappedPoisson, account
from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.view import View
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.jumps import (
    bands,
    ends,
    guess_by_jump,
    guess_by_parts,
    hardly_any,
    jump_focus,
    rare_loss,
)

# Half a millionth of the mass is large, and each larger loss is rarer than those below it.
LARGE = np.geomspace(0.01, 3.0, 200)
MASSES = 1e-7 * 2e-6 ** np.linspace(0.0, 1.0, 200)
RARE = Discrete(
    np.concatenate([[-1e-5, 1e-5], LARGE]), np.log(np.concatenate([[0.5, 0.5 - MASSES.sum()], MASSES])), 0.0, 0.0
)
STEPS = 100


def own(epsilon: float) -> float:
    """The logarithm of the sum of the steps' own deltas."""
    return math.log(float(View([(RARE, STEPS)], 0.0, True).separate(np.array([epsilon]))[0]))


@pytest.fixture
def view() -> View:
    return View([(RARE, STEPS)], 0.0, True)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0])
def test_what_is_left_out_when_one_loss_decides_is_negligible(view: View, epsilon: float) -> None:
    log_delta = own(epsilon)
    found = bands(view, epsilon, log_delta)
    assert found is not None
    assert len(found.negligible) == len(found.caps)
    low, high = found.caps[0], found.caps[-1]
    assert 0.0 < low <= high < epsilon
    assert 0.5 * view.chance_above(low) ** 2 <= 1.01e-4 * math.exp(log_delta)
    # small losses: at most 100 steps of 1e-5, or of `low`; they reach what a loss at `high` lacks with no chance worth a word
    c = found.tilt
    mgf = STEPS * math.log(float(np.exp(RARE.log_mass + c * RARE.loss)[RARE.loss <= low].sum()))
    assert mgf - c * (epsilon - high) + math.log(view.chance_above(low)) <= log_delta
    assert mgf - c * epsilon <= log_delta


def test_bands_are_for_epsilons_near_the_answer_that_no_bulk_reaches(view: View) -> None:
    assert bands(view, 0.3, own(0.3) + 6.0) is None
    assert bands(view, 0.3, own(0.3) - 6.0) is None
    assert bands(View([(SMALL, 500)], 0.0, True), 3.0, -9.0) is None
    assert bands(View([(RARE, STEPS)], 1.0, True), 0.3, own(0.3)) is None  # a Gaussian release reaches further


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0])
def test_the_guess_is_that_of_one_loss_and_the_mean_of_the_others(view: View, epsilon: float) -> None:
    guess = guess_by_jump(view, own(epsilon))
    assert guess == pytest.approx(epsilon, rel=0.02)
    drift = Discrete(np.append(RARE.loss[2:], 1e-4), np.append(RARE.log_mass[2:], math.log1p(-MASSES.sum())), 0.0, 0.0)
    moved = guess_by_jump(View([(drift, STEPS)], 0.0, True), own(epsilon))
    assert moved == pytest.approx(guess + STEPS * 1e-4, rel=0.01)
    assert guess_by_parts(view, own(epsilon)) == guess


def test_there_is_no_such_guess_where_small_losses_decide() -> None:
    assert math.isnan(guess_by_jump(View([(SMALL, 500)], 0.0, True), -9.0))
    assert math.isnan(guess_by_jump(View([(RARE, STEPS)], 1.0, True), own(0.3)))
    assert math.isnan(guess_by_parts(View([(TICK, 500)], 0.0, True), math.log(1e-9)))


def test_rare_losses_are_those_of_which_two_take_little_of_delta(view: View) -> None:
    for two in (1e-2, 1e-4):
        loss = rare_loss(view, own(0.3), two)
        goal = two * math.exp(own(0.3))
        assert 0.5 * view.chance_above(loss) ** 2 <= goal < 0.5 * view.chance_above(loss * 0.97) ** 2
    assert math.isnan(rare_loss(View([(TICK, 10)], 0.0, True), math.log(1e-9)))


def test_no_band_is_empty_and_the_last_is_too_rare_to_matter(view: View) -> None:
    for epsilon in (1e-3, 0.011, 0.1):
        log_delta = own(max(epsilon, 0.02))
        caps, far = ends(view, epsilon, epsilon, log_delta)
        edges = [epsilon, *caps, min(far, 4.0)]
        assert edges == sorted(edges)
        for low, high in pairwise(edges):
            assert ((RARE.loss > low) & (RARE.loss <= high)).any()
        if far < math.inf:
            assert view.chance_above(far) <= 1e-5 * math.exp(log_delta)
    gap = Discrete(np.array([0.0, 0.02, 8.0, 9.0]), np.log([1 - 3e-3, 1e-3, 1e-3, 1e-3]), 0.0, 0.0)
    caps, far = ends(View([(gap, 10)], 0.0, True), 0.01, 0.005, math.log(1e-3))
    assert len(caps) == 1
    assert far == math.inf
    plan = hardly_any(view)
    assert plan.c * 3.0 == pytest.approx(1.0)


def test_cells_are_to_be_small_near_epsilon_and_where_small_losses_are(view: View) -> None:
    found = jump_focus(view, own(0.3), 123)
    assert found is not None
    epsilon, focus = found
    assert focus.cells == 123
    assert (np.diff(focus.loss) > 0).all()
    weight = np.interp([0.0, 0.15, epsilon, epsilon + 1.0], focus.loss, focus.log_weight)
    assert weight[0] == pytest.approx(own(epsilon), abs=0.1)
    assert weight[1] < weight[2] == 0.0
    assert weight[3] == pytest.approx(-1.0)
    assert jump_focus(View([(SMALL, 500)], 0.0, True), -9.0, 123) is None


@pytest.mark.parametrize("steps", [600, 900, 1100, 1205, 1300, 3000])
def test_what_is_negligible_does_not_widen_a_bracket(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was smoothed so much that its lines proved a per cent of delta, which finer cells, at great cost, made no smaller."""
    lines: list[int] = []
    monkeypatch.setattr(Budget, "spend", lambda _, nodes: lines.append(nodes))
    found = account(CappedPoisson(17_071, 0.5 / 17_071, 3), noise_multiplier=0.5331, steps=steps, adjacency="zero-out",
                    analysis="swap").epsilon_bounds(5.8e-10)  # fmt: skip
    assert found.upper - found.lower <= 2e-4 * found.upper
    assert sum(lines) < 20_000
