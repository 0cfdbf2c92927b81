"""Guesses against independent formulas: saddle points, single jumps, and which losses matter."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from tests.accounting.laws import FEW, SKEW, SMALL, TICK

from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.composition import Composition, blocks
from filet.accounting.proving.line import Line, LinePlan
from filet.accounting.proving.view import View
from filet.accounting.searching.guesses import (
    bulk_focus,
    focus,
    guess_epsilon,
    guess_log_delta,
    log_values,
    one_jump_decides,
    saddle,
    saddle_point,
    single_jump,
)


def laplace(view: View, epsilon: float) -> tuple[float, float]:
    """The saddle point and Laplace's approximation of log delta there, by minimisation and differences."""

    def height(c: float) -> float:
        return float(view.whole.log_mgf(np.array([c]))[0]) - c * epsilon - math.log(c) - math.log1p(c)

    c = math.exp(minimize_scalar(lambda v: height(math.exp(v)), bracket=(-1.0, 1.0), tol=1e-12).x)
    h = 1e-3 * c
    curvature = (height(c + h) - 2 * height(c) + height(c - h)) / h**2
    return c, height(c) - 0.5 * math.log(2 * math.pi * curvature)


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0, 2.5, 6.0, 11.0])
@pytest.mark.parametrize("gaussian", [0.0, 0.4])
def test_saddle_point_approximations_are_those_of_laplace(epsilon: float, gaussian: float) -> None:
    view = View([(SMALL, 60), (SKEW, 25)], gaussian, True)
    c, log_delta = laplace(view, epsilon)
    assert saddle(view.whole, epsilon) == pytest.approx(c, rel=0.03)
    assert guess_log_delta(view, epsilon) == pytest.approx(
        log_delta, abs=0.03
    )  # its saddle point is good to two per cent
    assert saddle_point(view, log_delta) == pytest.approx(epsilon, rel=0.03, abs=0.01)
    assert guess_epsilon(view, log_delta) == saddle_point(view, log_delta)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 3.0])
def test_saddle_points_far_from_one_are_found(scale: float) -> None:
    law = Discrete(SMALL.loss * scale, SMALL.log_mass, 0.0, 0.0)
    view = View([(law, 400)], 0.0, True)
    epsilon = 400 * 0.01 * scale + 5 * 20 * 0.078 * scale
    c, log_delta = laplace(view, epsilon)
    assert c > 1e6 if scale == 1e-9 else c < 1e6
    assert saddle_point(view, log_delta) == pytest.approx(epsilon, rel=0.1)


def test_a_single_jump_is_the_largest_loss_at_which_the_deltas_add_up_to_the_goal() -> None:
    view = View([(SKEW, 2), (SMALL, 3)], 0.0, True)
    losses = np.sort(np.concatenate([SMALL.loss, SKEW.loss]))
    deltas = view.separate(losses)
    for goal in (1e-3, 0.02, 0.1, 0.4):
        expected = losses[deltas >= goal].max()
        assert single_jump(view, math.log(goal)) == expected
    assert single_jump(view, math.log(float(deltas.max()) * 1.01)) == -math.inf
    assert single_jump(View([(SKEW, 2)], 0.0, True), math.log(0.5)) == -math.inf


@pytest.mark.parametrize(("gaussian", "decides"), [(0.4875, True), (0.4878, False), (0.6, False)])
def test_a_jump_must_clear_the_bulk(gaussian: float, decides: bool) -> None:
    # Squares of losses up to a third of epsilon: 10 x 1e-4 x 1^2; the bulk reaches sqrt(2 log(1e4) (0.001 + gaussian)).
    law = Discrete(np.array([0.0, 4.0]), np.log([1 - 1e-4, 1e-4]), 0.0, 0.0)
    assert one_jump_decides(View([(law, 10)], gaussian, True), 3.0, math.log(1e-4)) == decides


@pytest.mark.parametrize(("large", "decides"), [(6e-4, True), (4e-4, False)])
def test_a_jump_must_be_likelier_than_two_halves_of_it(large: float, decides: bool) -> None:
    # Ten steps: 0.1 + 10 large losses above 1.5, so 0.0056 or 0.0054 pairs of them, against 10 large losses above 3.
    law = Discrete(np.array([0.0, 1.2, 2.0, 4.0]), np.log([0.97 - large, 0.02, 0.01, large]), 0.0, 0.0)
    view = View([(law, 10)], 0.0, True)
    assert one_jump_decides(view, 3.0, math.log(1e-4)) == decides
    assert not one_jump_decides(view, 0.0, math.log(1e-4))
    assert not one_jump_decides(view, -math.inf, math.log(1e-4))
    assert one_jump_decides(view, 3.0, 1.0) == decides  # a delta above one has no bulk to clear


def test_jumps_below_one_decide_too_and_then_they_are_the_guess() -> None:
    law = Discrete(np.array([-1e-7, 0.4, 0.6]), np.log([1 - 3e-6, 1e-6, 2e-6]), 0.0, 0.0)
    view = View([(law, 5)], 0.0, True)
    assert one_jump_decides(view, 0.5, math.log(1e-6))
    assert guess_epsilon(view, math.log(1e-7)) == single_jump(view, math.log(1e-7)) == 0.4
    assert guess_log_delta(view, 0.5) == pytest.approx(math.log(5 * 2e-6 * -math.expm1(-0.1)), abs=1e-8)
    assert math.isfinite(guess_log_delta(view, 0.7))  # no loss is larger: nothing to take the logarithm of


@pytest.mark.parametrize(("steps", "gaussian", "nearly"), [
    ([150], 0.0, False), ([175], 0.0, True), ([60, 90], 0.0, False), ([80, 95], 0.0, True), ([100], 0.0, False),
    ([100], 0.0075, True), ([100], 0.0010, False)])  # fmt: skip
def test_sums_of_small_skewness_count_as_nearly_gaussian(steps: list[int], gaussian: float, nearly: bool) -> None:
    """A tick of either sign has absolute skewness 1, so T of them 1 / sqrt(T), and a little more when tilted."""
    view = View([(TICK, count) for count in steps], gaussian, True)
    epsilon = 0.1
    c, log_delta = laplace(view, epsilon)
    found = bulk_focus(view, epsilon, log_delta, 123)
    assert (found is not None) == nearly
    if found is not None:
        assert found.cells == 123
        assert found.loss == pytest.approx([-epsilon, -log_delta / c], rel=0.05)
        assert found.log_weight == pytest.approx([log_delta - c * epsilon, 0.0], rel=0.05)


def test_only_bulks_of_some_size_and_without_large_losses_are_focused_on() -> None:
    view = View([(TICK, 400)], 0.0, True)
    assert bulk_focus(view, 0.039, -3.0, 9) is None  # a quarter of it is below the largest loss
    assert bulk_focus(view, 0.041, -3.0, 9) is not None
    rare = Discrete(np.append(TICK.loss, 0.2), np.log([0.5, 0.5 - 1e-6, 1e-6]), 0.0, 0.0)
    view = View([(rare, 400)], 0.0, True)
    assert bulk_focus(view, 0.5, math.log(3e-4), 9) is None
    assert bulk_focus(view, 0.5, math.log(5e-4), 9) is not None
    tiny = View([(Discrete(TICK.loss / 100, TICK.log_mass, 0.0, 0.0), 400)], 0.0, True)
    assert bulk_focus(tiny, 0.0099, -9.0, 9) is None
    assert bulk_focus(tiny, 0.0101, -9.0, 9) is not None


def test_log_values_are_those_of_readings() -> None:
    line = Line(Composition(blocks([(FEW, 3)])), LinePlan(1.5, 0.05, 20.0, 60.0, np.array([0.0, 1.0, 3.0])))
    epsilons = np.array([0.0, 0.4, 0.9, 1.6])
    for epsilon, found in zip(epsilons, log_values(line, epsilons), strict=True):
        exact = math.log(line.read(float(epsilon)).value) + line.log_unit(float(epsilon))
        assert found == pytest.approx(exact, abs=1e-3)
    assert log_values(line, np.array([9.0]))[0] < -10.0  # no sum is larger than 2.7


class Straight:
    """A line of one node: log delta(e) = high - slope e, plus log sin((e - end) / 2) and nothing to read up to an `end`."""

    def __init__(self, high: float, slope: float, end: float | None = None) -> None:
        self.log_scale, self.c, self.centre = high, slope, end or 0.0
        self.u, self.f = (np.array([0.0]), np.array([1.0])) if end is None else (np.array([0.5]), np.array([1j]))


def straight(*lines: Straight) -> Any:
    return SimpleNamespace(lines=lines)


def test_cells_are_to_be_small_where_a_step_leaves_much_to_the_others() -> None:
    found = focus(straight(Straight(-1.0, 2.0, 1.0), Straight(0.5, 3.0, 0.5)), 4.0, 77)
    assert found.cells == 77
    loss = np.linspace(-1.0, 4.0, 16)
    left = 4.0 - loss
    first, second = (np.log(np.maximum(np.sin(0.5 * (left - end)), 1e-300)) for end in (1.0, 0.5))
    weight = np.minimum(0.0, np.maximum(-1.0 - 2.0 * left + first, 0.5 - 3.0 * left + second))
    known = left > 0.5
    assert 0 < known.sum() < 16
    assert found.loss == pytest.approx(np.concatenate([loss[known], [4.1, 5.0, 34.0]]))
    last = weight[known][-1]
    assert found.log_weight == pytest.approx(np.concatenate([weight[known], [last - 0.1, last - 1.0, last - 30.0]]))
    certain = focus(straight(Straight(9.0, 0.1)), 4.0, 77)
    assert certain.log_weight[:16].max() == 0.0  # a delta is at most one


def test_where_nothing_can_be_read_cells_are_alike() -> None:
    found = focus(straight(Straight(0.0, 1.0, 5.5)), 4.0, 77)
    assert found.cells == 77
    assert found.loss.size == found.log_weight.size > 1
    assert (np.diff(found.loss) > 0).all()
    assert not found.log_weight.any()
