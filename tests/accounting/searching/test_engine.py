"""Where the engine looks: guesses against independent formulas, searches against sides whose answer is known."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from filet import Adjacency, Analysis, CappedPoisson
from filet.accounting.proving.cells import Cells, Discrete, equal_cells
from filet.accounting.proving.composition import STEP_ERROR
from filet.accounting.proving.loss_law import LossLaw
from filet.accounting.proving.theorems import loss_law
from filet.accounting.searching import engine
from filet.accounting.searching.engine import Interval, Run, Sampled, Side, _Known, wide
from filet.errors import NotCertifiedError

SMALL = Discrete(np.array([-0.09, 0.01, 0.11]), np.log([0.3, 0.4, 0.3]), 0.0, 0.0)
SKEW = Discrete(np.array([-0.02, 0.2]), np.log([0.9, 0.1]), 0.0, 0.0)


def usual_law(sigma: float = 1.0) -> LossLaw:
    return loss_law(CappedPoisson(10**4, 0.01, 100), sigma, Adjacency.ZERO_OUT, Analysis.REFINED)


# --- guesses ----------------------------------------------------------------------------------------------------------


def laplace(side: Side, epsilon: float) -> tuple[float, float]:
    """The saddle point and Laplace's approximation of log delta there, by minimisation and differences."""

    def height(c: float) -> float:
        return float(side.whole.log_mgf(np.array([c]))[0]) - c * epsilon - math.log(c) - math.log1p(c)

    c = math.exp(minimize_scalar(lambda v: height(math.exp(v)), bracket=(-1.0, 1.0), tol=1e-12).x)
    h = 1e-3 * c
    curvature = (height(c + h) - 2 * height(c) + height(c - h)) / h**2
    return c, height(c) - 0.5 * math.log(2 * math.pi * curvature)


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0, 2.5, 6.0, 11.0])
@pytest.mark.parametrize("gaussian", [0.0, 0.4])
def test_saddle_point_approximations_are_those_of_laplace(epsilon: float, gaussian: float) -> None:
    side = Side([(SMALL, 60), (SKEW, 25)], gaussian, True)
    _, log_delta = laplace(side, epsilon)
    assert side.estimate(epsilon) == pytest.approx(log_delta, abs=0.03)  # its saddle point is good to two per cent
    assert side.saddle_point(log_delta) == pytest.approx(epsilon, rel=0.03, abs=0.01)
    assert side.guess(log_delta) == side.saddle_point(log_delta)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 3.0])
def test_saddle_points_far_from_one_are_found(scale: float) -> None:
    law = Discrete(SMALL.loss * scale, SMALL.log_mass, 0.0, 0.0)
    side = Side([(law, 400)], 0.0, True)
    epsilon = 400 * 0.01 * scale + 5 * 20 * 0.078 * scale
    c, log_delta = laplace(side, epsilon)
    assert c > 1e6 if scale == 1e-9 else c < 1e6
    assert side.saddle_point(log_delta) == pytest.approx(epsilon, rel=0.1)


def test_the_expected_number_of_large_losses_is_counted() -> None:
    side = Side([(SMALL, 3), (SKEW, 2)], 0.0, True)
    assert side._chance_above(0.05) == pytest.approx(3 * 0.3 + 2 * 0.1)
    assert side._chance_above(0.11) == pytest.approx(2 * 0.1)
    assert side._chance_above(0.2) == 0.0


def test_a_single_jump_is_the_largest_loss_at_which_the_deltas_add_up_to_the_goal() -> None:
    side = Side([(SKEW, 2), (SMALL, 3)], 0.0, True)
    losses = np.sort(np.concatenate([SMALL.loss, SKEW.loss]))
    deltas = side.separate(losses)
    for goal in (1e-3, 0.02, 0.1, 0.4):
        expected = losses[deltas >= goal].max()
        assert side._single_jump(math.log(goal)) == expected
    assert side._single_jump(math.log(float(deltas.max()) * 1.01)) == -math.inf
    assert Side([(SKEW, 2)], 0.0, True)._single_jump(math.log(0.5)) == -math.inf


@pytest.mark.parametrize(("gaussian", "decides"), [(0.4875, True), (0.4878, False), (0.6, False)])
def test_a_jump_must_clear_the_bulk(gaussian: float, decides: bool) -> None:
    # Squares of losses up to a third of epsilon: 10 x 1e-4 x 1^2; the bulk reaches sqrt(2 log(1e4) (0.001 + gaussian)).
    law = Discrete(np.array([0.0, 4.0]), np.log([1 - 1e-4, 1e-4]), 0.0, 0.0)
    assert Side([(law, 10)], gaussian, True)._one_jump_decides(3.0, math.log(1e-4)) == decides


@pytest.mark.parametrize(("large", "decides"), [(6e-4, True), (4e-4, False)])
def test_a_jump_must_be_likelier_than_two_halves_of_it(large: float, decides: bool) -> None:
    # Ten steps: 0.1 + 10 large losses above 1.5, so 0.0056 or 0.0054 pairs of them, against 10 large losses above 3.
    law = Discrete(np.array([0.0, 1.2, 2.0, 4.0]), np.log([0.97 - large, 0.02, 0.01, large]), 0.0, 0.0)
    side = Side([(law, 10)], 0.0, True)
    assert side._one_jump_decides(3.0, math.log(1e-4)) == decides
    assert not side._one_jump_decides(0.0, math.log(1e-4))
    assert not side._one_jump_decides(-math.inf, math.log(1e-4))
    assert side._one_jump_decides(3.0, 1.0) == decides  # a delta above one has no bulk to clear


def test_jumps_below_one_decide_too_and_then_they_are_the_guess_and_the_estimate() -> None:
    law = Discrete(np.array([-1e-7, 0.4, 0.6]), np.log([1 - 3e-6, 1e-6, 2e-6]), 0.0, 0.0)
    side = Side([(law, 5)], 0.0, True)
    assert side._one_jump_decides(0.5, math.log(1e-6))
    assert side.guess(math.log(1e-7)) == side._single_jump(math.log(1e-7)) == 0.4
    assert side.estimate(0.5) == pytest.approx(math.log(5 * 2e-6 * -math.expm1(-0.1)), abs=1e-8)
    assert math.isfinite(side.estimate(0.7))  # no loss is larger: nothing to take the logarithm of


TICK = Discrete(np.array([-0.01, 0.01]), np.log([0.5, 0.5]), 0.0, 0.0)


@pytest.mark.parametrize(("steps", "gaussian", "nearly"), [
    ([150], 0.0, False), ([175], 0.0, True), ([60, 90], 0.0, False), ([80, 95], 0.0, True), ([100], 0.0, False),
    ([100], 0.0075, True), ([100], 0.0010, False)])  # fmt: skip
def test_sums_of_small_skewness_count_as_nearly_gaussian(steps: list[int], gaussian: float, nearly: bool) -> None:
    """A tick of either sign has absolute skewness 1, so T of them 1 / sqrt(T), and a little more when tilted."""
    side = Side([(TICK, count) for count in steps], gaussian, True)
    epsilon = 0.1
    c, log_delta = laplace(side, epsilon)
    focus = side.bulk_focus(epsilon, log_delta, 123)
    assert (focus is not None) == nearly
    if focus is not None:
        assert focus.cells == 123
        assert focus.loss == pytest.approx([-epsilon, -log_delta / c], rel=0.05)
        assert focus.log_weight == pytest.approx([log_delta - c * epsilon, 0.0], rel=0.05)


def test_only_bulks_of_some_size_and_without_large_losses_are_focused_on() -> None:
    side = Side([(TICK, 400)], 0.0, True)
    assert side.bulk_focus(0.039, -3.0, 9) is None  # a quarter of it is below the largest loss
    assert side.bulk_focus(0.041, -3.0, 9) is not None
    rare = Discrete(np.append(TICK.loss, 0.2), np.log([0.5, 0.5 - 1e-6, 1e-6]), 0.0, 0.0)
    side = Side([(rare, 400)], 0.0, True)
    assert side.bulk_focus(0.5, math.log(3e-4), 9) is None
    assert side.bulk_focus(0.5, math.log(5e-4), 9) is not None
    tiny = Side([(Discrete(TICK.loss / 100, TICK.log_mass, 0.0, 0.0), 400)], 0.0, True)
    assert tiny.bulk_focus(0.0099, -9.0, 9) is None
    assert tiny.bulk_focus(0.0101, -9.0, 9) is not None


# --- lines ------------------------------------------------------------------------------------------------------------


class Planned:
    """Stands for a line that amplifies rounding as the test says, depending on the cap."""

    amplitude: ClassVar[dict[float, float]]

    def __init__(self, composition: Any, epsilon: float, log_delta: float, shift: float) -> None:
        self.composition, self.asked = composition, (epsilon, log_delta, shift)
        self.log_amplitude = self.amplitude[getattr(composition, "cap", math.inf)]
        self.c, self.u, self.sampled = 2.0, np.zeros(1), False

    def sample(self) -> Planned:
        self.sampled = True
        return self


HITS = Discrete(np.array([0.0, 2.2, 2.4, 5.0]), np.log([1 - 3e-4, 1e-4, 1e-4, 1e-4]), 0.0, 0.0)
TOLERABLE = math.log(1e-4 / (10 * STEP_ERROR))
CAPS = (math.inf, 4.0, 2.6, 2.3, 2.14, 2.06)


def planned(monkeypatch: pytest.MonkeyPatch, side: Side, epsilon: float, log_delta: float, fineness: float,
            amplitudes: tuple[float, ...]) -> Sampled:  # fmt: skip
    def composition(phases: Any, gaussian: float, cap: float, jump: bool = False) -> SimpleNamespace:
        return SimpleNamespace(phases=phases, gaussian=gaussian, cap=round(cap, 9), jump=jump)

    monkeypatch.setattr(engine, "Composition", composition)
    monkeypatch.setattr(engine, "Line", Planned)
    monkeypatch.setattr(Planned, "amplitude", dict(zip(CAPS, amplitudes, strict=False)), raising=False)
    return side.lines(epsilon, log_delta, fineness)


@pytest.mark.parametrize(("amplitudes", "delta", "cap"), [
    ((TOLERABLE, 0, 0, 0, 0, 0), 0.01, None),  # no cap is needed
    ((TOLERABLE + 0.1, 9), 0.01, 4.0),  # the first that is tolerable; the rest is not looked at
    ((50, 40, TOLERABLE), 0.01, 2.6),
    ((50, 40, 30, TOLERABLE + 2, 45, 49), 0.01, 2.3),  # the best of all
    ((50, 40, 40, 40, 40, 40), 0.01, 4.0),  # the first of equals
    ((50, 50, 51, 51, 51, 51), 0.01, 4.0),
    ((50, 51, 51, 51, 51, 51), 0.01, None),  # none helps
    ((50, 40, 35, 1, 1, 1), 1.9e-3, 2.6),  # at the lower caps two jumps would weigh too much: 0.5 (10 x 2e-4)^2
    ((50, 40, 35, 1, 1, 1), 2.1e-3, 2.3),
    ((50, 1, 1, 1, 1, 1), 4.9e-4, None),
])  # fmt: skip
def test_the_cap_is_the_one_that_amplifies_rounding_least(
    monkeypatch: pytest.MonkeyPatch, amplitudes: tuple[float, ...], delta: float, cap: float | None
) -> None:
    side = Side([(HITS, 10)], 0.25, True)
    sampled = planned(monkeypatch, side, 2.0, math.log(delta), 3.0, amplitudes)
    lines: list[Any] = sampled._lines
    assert sampled.side is side
    assert all(line.asked == (2.0, math.log(delta), pytest.approx(1e-5 / 9)) for line in lines)
    assert all(line.sampled for line in lines)
    if cap is None:
        assert [line.composition for line in lines] == [side.whole]
        assert sampled.uncovered == 0.0
        return
    assert [vars(line.composition) for line in lines] == [
        {"phases": side.phases, "gaussian": 0.25, "cap": cap, "jump": jump} for jump in (False, True)
    ]
    chance = 10 * 1e-4 * int((HITS.loss > cap).sum())  # the chance of two jumps is at most half its square
    assert chance**2 / 2 * (1 + 1e-10) < sampled.uncovered <= chance**2 / 2 * (1 + 2e-9)


def test_caps_that_no_loss_exceeds_are_left_out_and_so_are_caps_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    law = Discrete(HITS.loss[:3], np.log([1 - 2e-4, 1e-4, 1e-4]), 0.0, 0.0)
    side = Side([(law, 10)], 0.0, False)
    sampled = planned(monkeypatch, side, 2.0, math.log(0.01), 1.0, (50, 1, 1, 40, 40, 40))
    lines: list[Any] = sampled._lines
    assert [line.composition.cap for line in lines] == [2.3, 2.3]
    assert lines[0].asked[2] == pytest.approx(3e-5)  # from below, smoothing costs less and may be wider
    sampled = planned(monkeypatch, side, 0.0, math.log(0.01), 1.0, (50,))
    assert [line.composition for line in sampled._lines] == [side.whole]


def test_lines_know_their_largest_tilt_and_their_cost() -> None:
    lines: list[Any] = [SimpleNamespace(c=c, u=np.zeros(size)) for c, size in ((2.0, 50_001), (3.0, 1))]
    assert Sampled(None, lines, 0.0).c == 3.0  # type: ignore[arg-type]
    assert Sampled(None, lines, 0.0).nodes == 50_001  # type: ignore[arg-type]
    assert Sampled(None, lines, 0.0).costly  # type: ignore[arg-type]
    lines[0].u = np.zeros(50_000)
    assert not Sampled(None, lines, 0.0).costly  # type: ignore[arg-type]


class Straight:
    """Stands for a line with log delta(e) = high - slope e, and nothing to read below `end`."""

    c, u = 1.0, np.zeros(1)

    def __init__(self, high: float, slope: float, end: float = -math.inf) -> None:
        self.high, self.slope, self.end = high, slope, end

    def log_values(self, e: np.ndarray) -> np.ndarray:
        return np.where(e >= self.end, self.high - self.slope * e, -math.inf)


def test_cells_are_to_be_small_where_a_step_leaves_much_to_the_others() -> None:
    lines: list[Any] = [Straight(-1.0, 2.0, 1.0), Straight(0.5, 3.0, 0.5)]
    focus = Sampled(None, lines, 0.0).focus(4.0, 77)  # type: ignore[arg-type]
    assert focus.cells == 77
    loss = np.linspace(-1.0, 4.0, 16)
    left = 4.0 - loss
    weight = np.minimum(0.0, np.where(left >= 1.0, np.maximum(-1.0 - 2.0 * left, 0.5 - 3.0 * left), 0.5 - 3.0 * left))
    known = left >= 0.5
    assert 0 < known.sum() < 16
    assert focus.loss == pytest.approx(np.concatenate([loss[known], [4.1, 5.0, 34.0]]))
    last = weight[known][-1]
    assert focus.log_weight == pytest.approx(np.concatenate([weight[known], [last - 0.1, last - 1.0, last - 30.0]]))
    certain = Sampled(None, [Straight(9.0, 0.1)], 0.0).focus(4.0, 77)  # type: ignore[arg-type,list-item]
    assert certain.log_weight[:16].max() == 0.0  # a delta is at most one


def test_where_nothing_can_be_read_cells_are_alike() -> None:
    focus = Sampled(None, [Straight(0.0, 1.0, 99.0)], 0.0).focus(4.0, 77)  # type: ignore[arg-type,list-item]
    assert focus.cells == 77
    assert focus.loss.size == focus.log_weight.size > 1
    assert (np.diff(focus.loss) > 0).all()
    assert not focus.log_weight.any()


# --- the next epsilon to try ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "slope", "step"), [
    (math.e, -math.e, 1.0), (math.e, -2 * math.e, 0.5), (math.exp(-1.0), -math.exp(-1.0), -1.0),
    (math.e, -0.1, 3.0), (0.1, -0.001, -3.0), (2.0, 0.0, 3.0), (1.5, 1.0, 3.0), (0.5, 0.0, -3.0), (0.5, 1.0, -3.0)])  # fmt: skip
def test_the_first_step_is_newtons_in_log_delta_and_no_longer_than_allowed(
    ratio: float, slope: float, step: float
) -> None:
    assert _Known().step(5.0, ratio, slope, 3.0) == pytest.approx(step)


def test_steps_stay_within_what_is_known() -> None:
    known = _Known()
    known.step(5.0, 0.5, -0.5, 9.0)  # not above the goal at 5
    assert (known.low, known.high) == (-math.inf, 5.0)
    assert known.step(1.0, 3.0, -0.7, 9.0) == pytest.approx((3.0 - 1.0) / 0.7)  # Newton's 4.7 is too far: the tangent's
    assert (known.low, known.high) == (1.0, 5.0)
    assert known.step(2.0, 3.0, -0.1, 9.0) == pytest.approx(0.5 * (2.0 + 5.0) - 2.0)  # so is the tangent: halfway
    assert known.step(1.5, 3.0, 0.0, 9.0) == pytest.approx(0.5 * (2.0 + 5.0) - 1.5)  # a flat delta has no tangent
    assert (known.low, known.high) == (2.0, 5.0)  # what is known stays known
    assert known.step(4.0, 0.9, -0.9, 9.0) == pytest.approx(math.log(0.9))  # Newton's, as it stays inside
    assert known.high == 4.0
    crossed = _Known(low=3.0, high=2.0)  # rounding: nothing is known
    assert crossed.step(2.5, math.e, -math.e, 9.0) == pytest.approx(1.0)


def test_a_search_that_gains_little_is_halved() -> None:
    def steps(known: _Known, count: int) -> list[float]:
        return [known.step(2.0, 1.5, -15.0, 9.0) for _ in range(count)]

    newton = math.log(1.5) / 10
    known = _Known(low=1.0, high=8.0)
    assert steps(known, 11) == pytest.approx([newton] * 11)  # at the sixth reading the width is noted
    assert steps(known, 1) == pytest.approx([0.5 * (2.0 + 8.0) - 2.0])  # and has not become a tenth at the twelfth
    known.high = 2.5
    assert steps(known, 6) == pytest.approx([newton] * 6)  # now it has
    known = _Known(low=1.0)
    assert steps(known, 12) == pytest.approx([newton] * 12)  # nothing to halve


def test_a_step_within_the_tolerance_is_left_alone() -> None:
    known = _Known(low=1.0, high=3.0)
    assert known.step(2.0, 1 + 1e-8, -1.0, 9.0) == pytest.approx(1e-8)
    assert known.step(2.0, 1 + 1.9e-7, -1.0, 9.0) == pytest.approx(1.9e-7)
    assert known.step(3.0, 1 - 1e-7, -1.0, 9.0) == pytest.approx(-1e-7)


# --- runs -------------------------------------------------------------------------------------------------------------


def test_few_steps_take_finer_cells() -> None:
    law = usual_law()
    assert [Run([(law, steps)]).cells for steps in (1, 4, 5, 30, 31, 10**6)] == [3200, 3200, 1600, 1600, 800, 800]


def test_both_directions_share_one_look_at_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    law, looks = usual_law(), []

    def cells(law: LossLaw, reach: float, width: float) -> Any:
        looks.append(reach)
        return equal_cells(law, reach, width)

    monkeypatch.setattr(engine, "equal_cells", cells)
    run = Run([(law, 50), (law, 9)])
    mirror = run.reversed()
    assert (mirror.counts, mirror.gaussian, mirror.steps) == ([50, 9], 0.0, 59)
    first = run._look(6.0)
    assert run._look(6.0) is first
    assert looks == [6.0, 6.0]
    second = mirror._look(6.0)
    assert looks == [6.0, 6.0]
    assert len(second) == 2
    for one, other in zip(first, second, strict=True):
        for cut, back in zip(one.cuts, other.cuts, strict=True):
            assert (back.p == cut.q).all()
            assert (back.q == cut.p).all()
            assert (back.loss == -cut.loss).all()
    mirror._look(7.0)
    assert looks == [6.0, 6.0, 7.0, 7.0]


def test_losses_matter_as_far_as_their_chance_is_not_far_below_delta() -> None:
    run = Run([(usual_law(), 50)])
    for log_delta in (-3.0, -50.0):  # the chance of a normal deviate beyond r is below e^(-r^2 / 2)
        reach = run._reach(log_delta)
        assert 50 * math.exp(-(reach**2) / 2) == pytest.approx(math.exp(log_delta - 10.0))


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9])
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_one_step_brackets_the_inverse_of_the_profile(sigma: float, delta: float) -> None:
    law = loss_law(CappedPoisson(100, 0.5, 60), sigma, Adjacency.ZERO_OUT, Analysis.REFINED)
    for one in (law, law.reversed()):
        bracket = Run([(one, 1)]).one_step(delta)

        def excess(epsilon: float, one: LossLaw = one) -> float:
            return float(one.profile(np.array([epsilon]))[0]) / delta - 1.0

        exact = brentq(excess, 0.0, 99.0, xtol=1e-13, rtol=1e-13) if excess(0.0) > 0 else 0.0
        assert bracket.lower <= exact * (1 + 1e-10)
        assert bracket.upper >= exact * (1 - 1e-10)
        assert bracket.upper - bracket.lower <= 0.01 * bracket.upper  # a place to look; the profile itself decides


class Known:
    """Stands for lines of a side with delta = e^(root - epsilon) of the goal; `dull` readings prove nothing."""

    c, nodes, costly, resolved = 1.0, 1, False, True

    def __init__(self, side: Any, root: float, dull: float = 0.0) -> None:
        self.side, self.root, self.dull = side, root, dull

    def ratio(self, epsilon: float, _: float) -> tuple[float, float, float]:
        value = math.exp(self.root - epsilon)
        value *= 1 + self.dull if self.side.above else 1 - self.dull
        return value, -value, 0.0


def known_lines(monkeypatch: pytest.MonkeyPatch, root: float, dull: float = 0.0) -> list[tuple[float, float, float]]:
    asked: list[tuple[float, float, float]] = []

    def lines(self: Side, *where: float) -> Known:
        asked.append(where)  # type: ignore[arg-type]
        return Known(self, root, dull)

    monkeypatch.setattr(Side, "lines", lines)
    return asked


@pytest.mark.parametrize("root", [0.011, 1.3, 6.99])
def test_bisection_narrows_a_bracket_to_the_promise(monkeypatch: pytest.MonkeyPatch, root: float) -> None:
    asked = known_lines(monkeypatch, root)
    found = Run([(usual_law(), 50)])._bisect(Interval(0.01, 7.0), -9.0, 6.0)
    assert found.lower <= root <= found.upper
    assert not wide(found, 0.9)
    assert all(where[1:] == (-9.0, 2.0) for where in asked)
    assert len(asked) <= 2 * 14  # 2^-14 of 7 is below the promise


def test_bisection_stops_where_nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run([(usual_law(), 50)])
    known_lines(monkeypatch, 1.3, dull=0.5)
    assert run._bisect(Interval(0.0, 8.0), -9.0, 6.0) == Interval(0.0, 2.0)  # at 1 neither reading is sure
    known_lines(monkeypatch, 1.3, dull=0.2)
    assert run._bisect(Interval(0.0, 8.0), -9.0, 6.0) == Interval(1.0, 1.5)
    asked = known_lines(monkeypatch, 1.3)
    assert run._bisect(Interval(1.2999, 1.3001), -9.0, 6.0) == Interval(1.2999, 1.3001)
    assert run._bisect(Interval(0.5, math.inf), -9.0, 6.0) == Interval(0.5, math.inf)
    assert asked == []


class Script:
    """Stands for the searches within `Run.epsilon`: answers from lists, and notes what it was asked."""

    nodes = 250_000

    def __init__(self, monkeypatch: pytest.MonkeyPatch, solved: list[float], narrowed: list[Interval],
                 bulk: bool = False) -> None:  # fmt: skip
        self.solved, self.narrowed, self.asked = [*solved], [*narrowed], list[tuple[Any, ...]]()
        monkeypatch.setattr(engine, "solve", self.solve)
        monkeypatch.setattr(engine, "fitted_cells", lambda one, focus: focus)
        monkeypatch.setattr(Run, "_narrow", lambda _, *asked: self.narrow(*asked))
        monkeypatch.setattr(
            Run, "_bisect", lambda _, *asked: self.asked.append(("bisect", *asked)) or Interval(5.0, 6.0)
        )
        monkeypatch.setattr(Side, "guess", lambda *_: 1.75)
        monkeypatch.setattr(Side, "saddle_point", lambda *_: 2.25)
        monkeypatch.setattr(Side, "bulk_focus", lambda _, *asked: ("bulk", *asked) if bulk else None)

    def solve(self, side: Side, log_delta: float, start: float, fineness: float) -> tuple[float, Script]:
        self.asked.append(("solve", log_delta, start, fineness))
        return self.solved.pop(0), self

    def narrow(self, best: Interval, cells: list[Any], log_delta: float, start: float,
               fineness: float) -> tuple[Interval, Script]:  # fmt: skip
        self.asked.append(("narrow", best, *cells, log_delta, start, fineness))
        return self.narrowed.pop(0), self

    def focus(self, epsilon: float, cells: int) -> tuple[str, float, int]:
        return "fitted", epsilon, cells


LOG = math.log(1e-6)
OPEN = Interval(0.0, math.inf)


def test_a_narrow_bracket_from_the_bulk_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, [], [Interval(1.999, 2.0)], bulk=True)
    assert Run([(usual_law(), 50)]).epsilon(1e-6) == Interval(1.999, 2.0)
    assert script.asked == [("narrow", OPEN, ("bulk", 1.75, LOG, 800), LOG, 1.75, 1.0)]


def test_a_wide_bracket_from_the_bulk_is_refined_and_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    almost = Interval(1.99, 1.99185)  # more than 0.9 of what is promised
    script = Script(monkeypatch, [2.5], [almost] * 6, bulk=True)
    assert Run([(usual_law(), 50)]).epsilon(1e-6) == Interval(5.0, 6.0)
    assert script.asked[1] == ("solve", LOG, 1.75, 1.0)
    assert script.asked[2] == ("narrow", almost, ("fitted", almost.upper, 800), LOG, almost.upper, 1.0)
    assert [what for what, *_ in script.asked] == ["narrow", "solve", *["narrow"] * 5, "bisect"]


def test_refinements_double_and_bisection_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [Interval(1.0 + k / 10, 3.0 - k / 10) for k in range(5)]
    script = Script(monkeypatch, [math.nan, 3.5], steps)
    run = Run([(usual_law(), 50)])
    assert run.epsilon(1e-6) == Interval(5.0, 6.0)
    assert script.asked == [
        ("solve", LOG, 1.75, 1.0),
        ("solve", LOG, 2.25, 1.0),  # once more, from elsewhere
        ("narrow", Interval(0.0, 3.5), ("fitted", 3.5, 800), LOG, 3.5, 1.0),
        ("narrow", steps[0], ("fitted", 3.0, 1600), LOG, 3.0, 2.0),
        ("narrow", steps[1], ("fitted", 2.9, 3200), LOG, 2.9, 4.0),
        ("narrow", steps[2], ("fitted", 2.8, 6400), LOG, 2.8, 8.0),
        ("narrow", steps[3], ("fitted", 2.7, 12800), LOG, 2.7, 16.0),
        ("bisect", steps[4], LOG, run._reach(LOG)),
    ]


@pytest.mark.parametrize(("width", "nodes", "levels"), [(1.79, 250_001, 5), (1.81, 250_001, 2), (1.81, 250_000, 5)])
def test_costly_refinement_ends_where_it_helps_little(
    monkeypatch: pytest.MonkeyPatch, width: float, nodes: int, levels: int
) -> None:
    widths = [2.0, width, *(width * 0.5**k for k in range(1, 4))]
    script = Script(monkeypatch, [3.5], [Interval(3.0 - width, 3.0) for width in widths])
    script.nodes = nodes
    assert Run([(usual_law(), 50)]).epsilon(1e-6) == Interval(5.0, 6.0)
    assert [what for what, *_ in script.asked] == ["solve", *["narrow"] * levels, "bisect"]


def test_refinement_ends_with_the_promise_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, [3.5], [Interval(1.0, 3.0), Interval(1.9983, 2.0), Interval(7.0, 8.0)])
    assert Run([(usual_law(), 50)]).epsilon(1e-6) == Interval(1.9983, 2.0)
    assert len(script.asked) == 3


def test_without_any_solution_the_chernoff_bound_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, [math.nan, math.nan], [Interval(1.999, 2.0)])
    monkeypatch.setattr(Side, "chernoff", lambda *_: 9.5)
    Run([(usual_law(), 50)]).epsilon(1e-6)
    assert script.asked[2][:3] == ("narrow", Interval(0.0, 9.5), ("fitted", 9.5, 800))
    script = Script(monkeypatch, [math.nan, math.nan], [Interval(1.999, 2.0)])
    monkeypatch.setattr(Side, "chernoff", lambda *_: math.inf)
    Run([(usual_law(), 50)]).epsilon(1e-6)
    assert script.asked[2][:3] == ("narrow", OPEN, ("fitted", 2.25, 800))


@pytest.mark.parametrize(("solved", "expected"), [
    (0.0, (0.0, 0.0)), (8.9e-5, (0.0, 8.9e-5)), (9e-5, (0.0, 9e-5)), (9.1e-5, (1.0, 1.0)), (1.0, (1.0, 1.0))])  # fmt: skip
def test_an_answer_as_near_to_zero_as_is_promised_is_not_refined(
    monkeypatch: pytest.MonkeyPatch, solved: float, expected: tuple[float, float]
) -> None:
    Script(monkeypatch, [solved], [Interval(1.0, 1.0)])
    assert Run([(usual_law(), 50)]).epsilon(1e-6) == Interval(*expected)


def test_answers_that_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    Script(monkeypatch, [], [])
    assert Run([(usual_law(1e9), 50)]).epsilon(0.5) == Interval(0.0, 0.0)
    assert Run([(usual_law(), 50)]).epsilon(1e-300) == OPEN  # masses this small are not resolved
    tiny = Run([(usual_law(1e6), 50)]).epsilon(1e-12)
    assert tiny.lower == 0.0 < tiny.upper <= 5e-5
    monkeypatch.setattr(Side, "basic", lambda *_: 5.1e-5)
    Script(monkeypatch, [2.0], [Interval(2.0, 2.0)])
    assert Run([(usual_law(), 50)]).epsilon(1e-6) == Interval(2.0, 2.0)


# --- delta ------------------------------------------------------------------------------------------------------------


def scripted_ratios(monkeypatch: pytest.MonkeyPatch, above: list[float], below: list[float]) -> list[tuple[Any, ...]]:
    """Readings from lists, and what was asked: whether from above, epsilon, log delta, fineness."""
    asked: list[tuple[Any, ...]] = []
    left = {True: [*above], False: [*below]}

    def lines(self: Side, *where: float) -> SimpleNamespace:
        asked.append((self.above, *where))
        value = left[self.above].pop(0)

        def focus(epsilon: float, cells: int) -> tuple[float, int]:
            asked.append((epsilon, cells))
            return epsilon, cells

        return SimpleNamespace(ratio=lambda *_: (value, 0.25, 0.0), focus=focus)

    monkeypatch.setattr(Side, "lines", lines)
    monkeypatch.setattr(engine, "fitted_cells", lambda one, _: one)
    monkeypatch.setattr(Side, "estimate", lambda *_: -7.0)
    monkeypatch.setattr(Run, "_crude_delta", lambda *_: Interval(0.0, 0.9))
    return asked


@pytest.mark.parametrize(("above", "below", "expected"), [
    ([0.8, 0.6, 0.5], [0.3, 0.4], (0.4, 0.5)),  # refined once, since wide
    ([0.8, 0.6], [0.5941], (0.5941, 0.6)),  # within a hundredth
    ([0.8, 0.6, 0.7], [0.3, 0.2], (0.3, 0.6)),  # nothing is forgotten
    ([0.4, 0.6, 0.7], [0.3, 0.2], (0.3, 0.4)),
    ([math.nan, math.nan, 0.5], [math.nan, 0.4], (0.4, 0.5)),
    ([0.0, -1.0, 0.5], [-1.0, 0.4], (0.4, 0.5)),
])  # fmt: skip
def test_delta_is_refined_once_if_it_is_wide(
    monkeypatch: pytest.MonkeyPatch, above: list[float], below: list[float], expected: tuple[float, float]
) -> None:
    looks = len(below)
    asked = scripted_ratios(monkeypatch, above, below)
    found, scale = Run([(usual_law(), 50)]).delta(0.3), math.exp(-7.0)
    assert (found.lower, found.upper) == pytest.approx((expected[0] * scale, expected[1] * scale))
    levels = [((0.3, 800 * 2**k), (True, 0.3, -7.0, 2.0**k), (False, 0.3, -7.0, 2.0**k)) for k in range(looks)]
    assert asked == [(True, 0.3, -7.0, 1.0), *(one for level in levels for one in level)]


def test_without_a_reading_delta_is_the_crude_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted_ratios(monkeypatch, [math.nan] * 3, [math.nan] * 2)
    assert Run([(usual_law(), 50)]).delta(0.3) == Interval(0.0, 0.9)


@pytest.mark.parametrize(("estimates", "reaches"), [
    ([-7.0, -7.5], [-25.0, -7.0, -7.5]), ([-24.0], [-25.0, -24.0]), ([-23.5, 99.0], [-25.0, -23.5]),
    ([-22.5, -23.5], [-25.0, -22.5, -23.5]), ([5.0, 5.0], [-25.0, -1e-3, -1e-3]), ([-9e9, -9e9], [-25.0, -640.0, -640.0]),
    ([-100.0, -50.0, -90.0, -40.0, -80.0], [-25.0, -100.0, -50.0, -90.0, -40.0])])  # fmt: skip
def test_the_size_of_delta_is_looked_for_until_it_settles(
    monkeypatch: pytest.MonkeyPatch, estimates: list[float], reaches: list[float]
) -> None:
    asked = scripted_ratios(monkeypatch, [0.5, 0.5], [0.5])
    left = [*estimates]
    monkeypatch.setattr(Side, "estimate", lambda *_: left.pop(0))
    looked, look = [], Run._look
    monkeypatch.setattr(Run, "_look", lambda self, reach: looked.append(reach) or look(self, reach))
    run = Run([(usual_law(), 50)])
    run.delta(0.3)
    assert looked == [run._reach(log_delta) for log_delta in reaches]
    assert asked[0] == (True, 0.3, reaches[-1], 1.0)


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 0.5), (math.nan, None), (0.0, None), (-1.0, None), (9e9, None)])
def test_a_quick_delta_is_the_reading_or_the_crude_bound(
    monkeypatch: pytest.MonkeyPatch, ratio: float, expected: float | None
) -> None:
    asked = scripted_ratios(monkeypatch, [ratio], [])
    found = Run([(usual_law(), 50)]).quick_delta(0.3)
    assert found == pytest.approx(0.9 if expected is None else expected * math.exp(-7.0))
    assert asked == [(True, 0.3, -7.0, 1.0)]
    for estimate, used in ((5.0, -1e-3), (-9e9, -640.0)):
        asked = scripted_ratios(monkeypatch, [ratio], [])
        monkeypatch.setattr(Side, "estimate", lambda *_, estimate=estimate: estimate)
        Run([(usual_law(), 50)]).quick_delta(0.3)
        assert asked == [(True, 0.3, used, 1.0)]


def test_a_narrow_crude_bracket_is_the_answer_and_needs_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    run, asked = Run([(usual_law(), 50)]), scripted_ratios(monkeypatch, [], [])
    for lower in (0.9991, 1.0):
        monkeypatch.setattr(Run, "_crude_delta", lambda *_, lower=lower: Interval(lower, 1.0))
        assert run.delta(0.3) == Interval(lower, 1.0)
        assert run.quick_delta(0.3) == 1.0
    assert asked == []
    scripted_ratios(monkeypatch, [0.5, 0.4, 0.41], [0.397])
    asked = []

    def crude(self: Run, epsilon: float, log_delta: float, look: list[Cells], first: Side) -> Interval:
        asked.append((epsilon, log_delta, look is self._looked[1], first.above))
        return Interval(0.417 * math.exp(-7.0), 0.42 * math.exp(-7.0))

    monkeypatch.setattr(Run, "_crude_delta", crude)
    with pytest.raises(NotCertifiedError):  # the lines were asked, and say less than the crude lower bound
        run.delta(0.3)
    assert run.quick_delta(0.3) == pytest.approx(0.41 * math.exp(-7.0))
    assert asked == [(0.3, -7.0, True, True)] * 2


def test_crude_deltas_come_from_the_steps_themselves_and_from_few_small_losses() -> None:
    run = Run([(usual_law(), 50)])
    look = run._look(8.0)
    first, below = run.above(look), run.below(look)
    for epsilon in (0.0, 0.4):
        crude = run._crude_delta(epsilon, -3.0, look, first)
        own = float(first.separate(np.array([epsilon / 50]))[0])
        assert crude == Interval(0.0, min(own, first.chernoff_delta(epsilon)))
    loud = Run([(usual_law(0.1), 5000)])
    look = loud._look(8.0)
    first, below = loud.above(look), loud.below(look)
    assert loud._crude_delta(3.0, -0.4, look, first) == Interval(below.floor_delta(3.0), 1.0)
    assert below.floor_delta(3.0) > 0.999
    assert loud._crude_delta(3.0, -0.6, look, first).lower == 0.0  # not worth the look


@pytest.mark.parametrize(("ratio", "estimate", "proven"), [
    (1.0, LOG, True), (1.0 + 1e-9, LOG, False), (math.nan, LOG, False), (0.5, LOG + 2.9, True), (0.5, LOG + 3.1, False)])  # fmt: skip
def test_what_is_not_read_or_too_far_away_is_not_known(
    monkeypatch: pytest.MonkeyPatch, ratio: float, estimate: float, proven: bool
) -> None:
    asked = scripted_ratios(monkeypatch, [ratio], [])
    monkeypatch.setattr(Side, "estimate", lambda *_: estimate)
    assert Run([(usual_law(), 50)]).at_most(0.3, 1e-6) is proven
    assert asked == ([] if estimate > LOG + 3.0 else [(True, 0.3, LOG, 1.0)])


def test_no_loss_above_the_largest_is_proof_enough_unless_some_are_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Side, "estimate", lambda *_: math.inf)
    run = Run([(usual_law(), 50)])
    first = run.above(run._look(run._reach(LOG)))
    assert run.at_most(first.largest, 1e-6)
    assert not run.at_most(first.largest * (1 - 1e-9), 1e-6)
    assert not run.at_most(first.largest, first.infinite * 0.99)
