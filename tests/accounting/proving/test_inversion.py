"""What is proven: evidence counts every error on the safe side, and brackets only narrow."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.accounting.laws import FEW, Counted, coarse_and_fine, own_deltas

from filet import Adjacency, Analysis, Bounds, CappedPoisson
from filet.accounting.proving.cells import Cells, Discrete, cut, discretise_above
from filet.accounting.proving.contour import ContourParameters
from filet.accounting.proving.inversion import DeltaBound, DeltaBracket, EpsilonBracket, Inversion, proves
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.proving.theorems import loss_law
from filet.errors import NotCertifiedError

TILTS = np.concatenate([[0.0], 2.0 ** np.arange(-4.0, 4.1, 0.25)])
PLAN = ContourParameters(1.5, 0.01, 20.0, 60.0, TILTS)


class Reader:
    """Stands for a line whose transform reads 3 / (1 + epsilon), in units of e^-1, with all its errors."""

    c, s, drift, u = 1.0, 0.25, 0.125, np.zeros(1)

    def __init__(self, curved: bool, log_unit: float = -1.0, alias: float = 0.02) -> None:
        self.curved, self._log_unit, self._alias = curved, log_unit, alias

    def log_unit(self, _: float) -> float:
        return self._log_unit

    def read(self, epsilon: float) -> SimpleNamespace:
        return SimpleNamespace(value=3.0 / (1.0 + epsilon), slope=-1.0, error=0.1, alias=self._alias, excess=0.003)


def evidence(above: bool, lines: list[Any], uncovered: float = 0.0) -> Inversion:
    made = object.__new__(Inversion)
    made.pmf = SimpleNamespace(above=above, infinite=0.01 if above else 0.0, slack=0.05)  # type: ignore[assignment]
    made.contours, made.uncovered, made.above, made.moved = lines, uncovered, above, 0.0
    return made


def test_a_verdict_counts_every_error_on_the_safe_side() -> None:
    lines, log_delta, unit = [Reader(True), Reader(False)], -5.0, math.exp(4.0)
    rest = (0.01 + 0.02) * math.exp(5.0)
    above = evidence(True, lines, 0.02).delta_bound(2.0, log_delta)
    assert above.bound == pytest.approx(rest + 2 * unit * (3.0 / 2.825 + 0.1))
    assert above.slope == pytest.approx(-2 * unit)
    assert above.error == pytest.approx(rest + 2 * unit * 0.12)
    # from below: the uncovered part does not count, and where no curvature is known the whole shift is taken off
    below = evidence(False, lines, 0.02).delta_bound(2.0, log_delta)
    assert below.bound == pytest.approx(unit * (3.0 / 3.05 + 3.0 / 3.30 - 2 * 0.123))
    assert below.error == pytest.approx(2 * unit * 0.12)


@pytest.mark.parametrize("log_unit", [710.0, math.inf, math.nan])
def test_what_is_beyond_floats_proves_nothing(log_unit: float) -> None:
    beyond = evidence(True, [Reader(True, log_unit)]).delta_bound(2.0, -5.0)
    assert math.isnan(beyond.bound)
    assert not math.isfinite(beyond.error)
    assert math.isfinite(evidence(True, [Reader(True, 695.0)]).delta_bound(2.0, -5.0).bound)
    assert math.isnan(evidence(True, [Reader(True, 695.001)]).delta_bound(2.0, -5.0).bound)
    unknown = evidence(False, [Reader(True, -1e4, alias=math.inf)]).delta_bound(2.0, -5.0)
    assert math.isnan(unknown.bound)


def test_without_a_cap_there_is_one_line_and_with_one_there_are_two_and_a_rest() -> None:
    view = LossPMF([(FEW, 4)], 0.0, True)
    whole = Inversion(view, [PLAN])
    assert whole.uncovered == 0.0
    assert [line.composition for line in whole.contours] == [view.whole]
    other = ContourParameters(2.5, 0.1, 20.0, 60.0, TILTS)
    split = Inversion(view, [PLAN, other], 0.5)
    assert [(line.composition.cap, line.composition.jump, line.c) for line in split.contours] == [
        (0.5, False, 1.5),
        (0.5, True, 2.5),
    ]
    chance = 4 * 0.1  # the chance of two jumps is at most half its square
    assert chance**2 / 2 * (1 + 1e-10) < split.uncovered <= chance**2 / 2 * (1 + 2e-9)
    assert split.c == 2.5
    assert split.nodes == split.contours[0].u.size > split.contours[1].u.size
    for plans, caps in (([PLAN, other], []), ([PLAN], [0.5]), ([PLAN, other], [-0.05, 0.5])):
        with pytest.raises(ValueError, match="zip"), np.errstate(all="ignore"):
            Inversion(view, plans, *caps)


def test_jumps_are_cut_into_bands_in_any_order_and_every_loss_is_in_one_of_them() -> None:
    view = LossPMF([(FEW, 4)], 0.0, True)
    with np.errstate(all="ignore"):
        split = Inversion(view, [PLAN] * 4, 0.5, -0.05, 0.2)
    assert split.caps == [-0.05, 0.2, 0.5]
    assert split.uncovered == pytest.approx(0.5 * view.chance_above(-0.05) ** 2)
    first, *bands = [line.composition for line in split.contours]
    assert [part.cap for part in (first, *bands)] == [-0.05] * 4
    assert [part.jump for part in (first, *bands)] == [False, True, True, True]
    losses = [part.big[0].loss[np.isfinite(part.big[0].log_mass)] for part in bands]
    assert np.sort(np.concatenate(losses)).tolist() == np.sort(FEW.loss[FEW.loss > -0.05]).tolist()
    for low, high, band in zip((-0.05, 0.2, 0.5), (0.2, 0.5, math.inf), losses, strict=True):
        assert ((band > low) & (band <= high)).all()


@pytest.mark.parametrize("cap", [math.inf, 0.95, 0.5, 0.05, -0.1])
def test_the_exact_delta_lies_between_the_verdicts(cap: float) -> None:
    laws = [(FEW, 3), (Discrete(FEW.loss * 0.7, FEW.log_mass, 0.0, 0.0), 1)]
    exact = Counted(laws)
    with np.errstate(all="ignore"):
        above, below = (
            Inversion(LossPMF(laws, 0.0, above), [PLAN] * (1 if cap == math.inf else 2), cap) for above in (True, False)
        )
        for epsilon in (0.0, 0.3, 1.1, 2.2):
            delta = float(exact.delta(epsilon))
            upper, lower = (one.delta_bound(epsilon, math.log(delta)).bound for one in (above, below))
            assert not upper < 1.0  # NaN where no loss is above the cap
            assert not lower > 1.0 - 0.5 * float(exact.infinite) / delta  # infinite losses do not count from below
            if cap == math.inf:
                assert upper < 1.2
                assert lower > 0.4 or epsilon > 2.0


def test_a_scale_that_is_lost_to_rounding_is_refused() -> None:
    near = Discrete(np.array([-4e-15, 6e-15, 1.2e-14]), np.log([0.5, 0.3, 0.2]), 0.0, 0.0)
    far = Discrete(np.array([-5.0, 891.38874672, 1015.12963881]), np.array([-30.0, -2e-6, -13.0]), 0.0, 0.0)
    laws, epsilon = [(near, 1), (far, 1)], 1015.12963881
    log_delta = float(np.log(Counted(laws).delta(epsilon)))
    with np.errstate(all="ignore"):
        for above in (True, False):
            for c in (1e3, 1e12, 1e13, 1e14):
                plan = ContourParameters(c, 0.1 / c, 20.0, 60.0 / c, c * TILTS)
                found = Inversion(LossPMF(laws, 0.0, above), [plan]).delta_bound(epsilon, log_delta)
                assert math.isnan(found.bound) or c * epsilon * 2.0**-53 < 0.5


class Says:
    """Stands for evidence that says the same everywhere."""

    def __init__(self, above: bool, bound: float, resolved: bool = True) -> None:
        self.above, self.resolved, self.bound = above, resolved, bound

    def delta_bound(self, *_: float) -> DeltaBound:
        return DeltaBound(self.bound, -1.0, 0.0)


@pytest.mark.parametrize(("above", "bound", "proven"), [
    (True, 1.0, True), (True, 0.3, True), (True, 1.0 + 1e-9, False), (True, 0.0, False), (True, -1.0, False),
    (True, math.nan, False), (False, 1.0, True), (False, 7.0, True), (False, 1.0 - 1e-9, False), (False, math.nan, False)])  # fmt: skip
def test_only_a_bound_on_the_right_side_of_the_goal_proves(above: bool, bound: float, proven: bool) -> None:
    says: Any = Says(above, bound)
    assert proves(says, 0.5, -5.0) is proven
    bracket = EpsilonBracket(math.exp(-5.0))
    assert bracket.read(says, 2.0).bound == pytest.approx(bound, nan_ok=True)
    expected = (0.0, math.inf) if not proven else (0.0, 2.0) if above else (2.0, math.inf)
    assert bracket.bounds == pytest.approx(expected, rel=2e-11)
    assert bracket.upper > 2.0  # outward
    assert bracket.lower < 2.0


@pytest.mark.parametrize("above", [True, False])
def test_what_is_asked_of_lines_is_proven_where_it_is_true_and_nowhere_else(above: bool) -> None:
    law = Discrete(FEW.loss, FEW.log_mass, 0.0, 0.0)
    found, exact = Inversion(LossPMF([(law, 4)], 0.0, above), [PLAN]), Counted([(law, 4)])
    for epsilon in (0.3, 1.0, 1.7):
        log_delta = float(np.log(exact.delta(epsilon)))
        assert proves(found, epsilon, log_delta + 0.1) is above
        assert proves(found, epsilon, log_delta - 0.1) is not above


def test_what_is_not_resolved_or_negative_proves_nothing() -> None:
    bracket = EpsilonBracket(1e-3)
    bracket.read(Says(False, 5.0, resolved=False), 2.0)  # type: ignore[arg-type]
    bracket.read(Says(True, 0.5), -1.0)  # type: ignore[arg-type]
    assert bracket.bounds == Bounds(0.0, math.inf)
    assert not proves(Says(False, 5.0, resolved=False), 2.0, -5.0)  # type: ignore[arg-type]
    delta = DeltaBracket(2.0)
    delta.read(Says(False, 5.0, resolved=False), -7.0)  # type: ignore[arg-type]
    assert delta.bounds == Bounds(0.0, 1.0)


def test_a_bracket_of_epsilon_only_narrows() -> None:
    bracket = EpsilonBracket(1e-3)
    for above, epsilon in (
        (True, 3.0),
        (True, 5.0),
        (False, 1.0),
        (False, 0.5),
        (True, 2.0),
        (False, 1.5),
        (True, 9.0),
    ):
        bracket.read(Says(above, 1.0), epsilon)  # type: ignore[arg-type]
    assert bracket.bounds == pytest.approx((1.5, 2.0), rel=2e-11)
    assert (bracket.delta, bracket.log_delta) == (1e-3, math.log(1e-3))


def test_bounds_of_epsilon_that_cross_are_refused() -> None:
    bracket = EpsilonBracket(1e-3)
    bracket.read(Says(True, 1.0), 1.5)  # type: ignore[arg-type]
    message = r"^the bounds 1\.9+\d* and 1\.50\d* of epsilon at delta=0\.001 contradict each other; please report these"
    with pytest.raises(NotCertifiedError, match=message):
        bracket.read(Says(False, 1.0), 2.0)  # type: ignore[arg-type]
    bracket = EpsilonBracket(1e-3)
    bracket.read(Says(False, 1.0), 2.0)  # type: ignore[arg-type]
    with pytest.raises(NotCertifiedError, match=message):
        bracket.read(Says(True, 1.0), 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("above", "below", "expected"), [
    ([0.8, 0.6, 0.5], [0.3, 0.4], (0.4, 0.5)),
    ([0.8, 0.6, 0.7], [0.3, 0.2], (0.3, 0.6)),  # nothing is forgotten
    ([math.nan, math.nan, 0.5], [math.nan, 0.4], (0.4, 0.5)),
    ([0.0, -1.0, 0.5], [-1.0, 0.4], (0.4, 0.5)),
    ([math.nan], [math.nan], (0.0, math.inf)),
])  # fmt: skip
def test_a_bracket_of_delta_counts_only_what_was_read(
    above: list[float], below: list[float], expected: tuple[float, float]
) -> None:
    bracket, scale = DeltaBracket(0.3), math.exp(-7.0)
    for bound in above:
        bracket.read(Says(True, bound), -7.0)  # type: ignore[arg-type]
    for bound in below:
        bracket.read(Says(False, bound), -7.0)  # type: ignore[arg-type]
    lower, upper = expected[0] * scale, min(expected[1] * scale, 1.0)
    assert bracket.bounds == pytest.approx((lower, upper), rel=2e-11)
    assert bracket.lower <= lower  # outward
    assert bracket.upper >= upper


def test_deltas_that_cross_are_refused() -> None:
    bracket = DeltaBracket(0.3)
    bracket.read(Says(True, 0.5), math.log(1e-3))  # type: ignore[arg-type]
    message = r"^the bounds 0\.0007\d* and 0\.0005\d* of delta at epsilon=0\.3 contradict each other"
    with pytest.raises(NotCertifiedError, match=message):
        bracket.read(Says(False, 0.75), math.log(1e-3))  # type: ignore[arg-type]


def test_crude_bounds_of_epsilon_are_those_of_the_view() -> None:
    view = LossPMF([(FEW, 3)], 0.0, True)
    bracket = EpsilonBracket(view.distance)
    bracket.crude(view, 5e-5)
    assert bracket.bounds == Bounds(0.0, 0.0)  # total variation distances add up
    bracket = EpsilonBracket(1e-2)
    bracket.crude(view, 5e-5)
    assert bracket.upper == view.largest * (1 + 1e-11)
    bracket.chernoff(view)
    assert bracket.upper == view.chernoff_epsilon(math.log(1e-2)) < view.largest
    equal = EpsilonBracket(view.infinite)
    equal.crude(view, 5e-5)
    assert equal.upper == view.largest * (1 + 1e-11)  # beyond the largest loss only infinite ones count
    rare = EpsilonBracket(0.9 * view.infinite)
    rare.crude(view, 5e-5)
    assert rare.upper == math.inf  # infinite losses weigh more than delta
    below = EpsilonBracket(1e-2)
    below.crude(LossPMF([(FEW, 3)], 0.0, False), 5e-5)
    below.chernoff(LossPMF([(FEW, 3)], 0.0, False))
    assert below.bounds == Bounds(0.0, math.inf)


def test_basic_composition_proves_the_smallest_of_its_goals_and_none_beside_a_gaussian() -> None:
    tiny = Discrete(np.array([-1e-6, 3e-6]), np.log([0.75, 0.25]), 1e-12, 0.0)
    goals = [5e-5 / 2**k for k in range(14)]

    def upper(delta: float, gaussian: float = 0.0, most: float = 5e-5) -> float:
        bracket, view = EpsilonBracket(delta), LossPMF([(tiny, 10)], gaussian, True)
        view.__dict__["_log_peaks"] = np.full(180, math.inf)  # no other bound
        view.largest = math.inf
        bracket.crude(view, most)
        return float(bracket.upper)

    best = min(goal for goal in goals if own_deltas(goal / 10, [(tiny, 10)]) <= 3e-6)
    assert upper(3e-6) == best == 2.5e-5
    assert upper(1e-10) == 5e-5
    assert upper(1e-12) == math.inf
    several = EpsilonBracket(np.array([3e-6, 1e-10, 1e-12]))
    several.crude(LossPMF([(tiny, 10)], 0.0, True), 5e-5)
    assert several.upper.tolist() == [upper(3e-6), pytest.approx(3e-5), math.inf]  # the largest sum, where it is less
    assert upper(3e-6, gaussian=1e-12) == math.inf
    assert upper(3e-6, most=0.0) == math.inf
    own = float(LossPMF([(tiny, 10)], 0.0, True).separate(np.array([5e-6]))[0])
    assert upper(own) <= 5e-5
    assert upper(math.nextafter(own, 0.0)) == math.inf


def test_crude_bounds_of_delta_come_from_the_steps_themselves_and_from_few_small_losses() -> None:
    view = LossPMF([(FEW, 50)], 0.0, True)
    for epsilon in (0.0, 4.0, 30.0):
        bracket = DeltaBracket(epsilon)
        bracket.crude(view)
        own = float(view.separate(np.array([epsilon / 50]))[0])
        assert bracket.bounds == Bounds(0.0, min(own, view.chernoff_delta(epsilon), 1.0))
    loud = LossPMF([(Discrete(FEW.loss * 30, FEW.log_mass, 0.0, 0.0), 500)], 0.0, False)
    bracket = DeltaBracket(3.0)
    bracket.crude(loud)
    assert bracket.bounds == Bounds(loud.floor_delta(3.0), 1.0)


def test_a_closed_form_proves_at_the_points_where_it_is_looked_at() -> None:
    class Form:
        def delta_bounds(self, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.exp(-epsilon) * 0.99, np.exp(-epsilon) * 1.01

    bracket = EpsilonBracket(math.exp(-2.0))
    bracket.read_exact(Form(), np.array([0.5, 3.0, 1.5, 2.005, 2.5]))
    assert bracket.bounds == Bounds(1.5, 2.5)
    for point, bounds in ((3.0, Bounds(0.0, 3.0)), (1.0, Bounds(1.0, math.inf)), (2.0, Bounds(0.0, math.inf))):
        one = EpsilonBracket(math.exp(-2.0))
        one.read_exact(Form(), np.array([point]))
        assert one.bounds == bounds
    bracket.read_exact(Form(), np.array([1.0, 4.0]))
    assert bracket.bounds == Bounds(1.5, 2.5)
    exact = EpsilonBracket(0.25)
    exact.read_exact(SimpleNamespace(delta_bounds=lambda epsilon: (0.5 / epsilon, 0.5 / epsilon)), np.array([2.0]))  # type: ignore[arg-type]
    assert exact.bounds == Bounds(2.0, 2.0)


def test_only_verdicts_and_crude_bounds_narrow_a_bracket() -> None:
    """Searching can call nothing else: what stores a bound is private, and bounds are values."""
    public = {name for name in vars(EpsilonBracket) if not name.startswith("_")}
    assert public == {"read", "crude", "chernoff", "read_exact"}
    assert {name for name in vars(DeltaBracket) if not name.startswith("_")} == {"read", "crude"}
    shared = {name for base in EpsilonBracket.__bases__ for name in vars(base) if name[0] != "_"}
    assert shared == {"bounds", "keep_part"}
    assert isinstance(EpsilonBracket(0.1).bounds, Bounds)


def test_a_bracket_keeps_what_another_holds_of_the_same_numbers_only() -> None:
    whole, part = EpsilonBracket(np.array([1e-3, 1e-4, 1e-5])), EpsilonBracket(np.array([1e-3, 1e-5]))
    part.read(Says(True, 1.0), np.array([2.0, 4.0]))  # type: ignore[arg-type]
    where = np.array([True, False, True])
    whole.keep_part(where, part)
    assert whole.upper == pytest.approx([2.0, math.inf, 4.0], rel=2e-11)
    assert whole.lower.tolist() == [0.0] * 3
    with pytest.raises(AssertionError, match="other numbers"):
        whole.keep_part(~where, EpsilonBracket(np.array([2e-4])))
    below = EpsilonBracket(np.array([1e-3, 1e-5]))
    below.read(Says(False, 1.0), np.array([3.0, 3.0]))  # type: ignore[arg-type]
    with pytest.raises(NotCertifiedError, match="contradict"):  # above the upper end of the first
        whole.keep_part(where, below)


def test_brackets_of_several_questions_know_nothing_at_first() -> None:
    epsilons, deltas = EpsilonBracket(np.array([1e-3, 1e-5])), DeltaBracket(np.array([1.0, 2.0]))
    assert (epsilons.lower.tolist(), epsilons.upper.tolist()) == ([0.0, 0.0], [math.inf, math.inf])
    assert (deltas.lower.tolist(), deltas.upper.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_bounds_that_cross_are_named_and_never_returned() -> None:
    brackets: list[Any] = [DeltaBracket(np.array([1.0, 3.0])), EpsilonBracket(np.array([0.1, 0.3]))]
    for bracket, words in zip(brackets, (r"delta at epsilon=3\.0", r"epsilon at delta=0\.3"), strict=True):
        with pytest.raises(NotCertifiedError, match=rf"bounds 0\.5 and 0\.25 of {words} .* report these parameters$"):
            bracket._keep(lower=np.array([0.0, 0.5]), upper=np.array([0.0, 0.25]))


@pytest.mark.parametrize("above", [True, False])
def test_several_questions_are_answered_as_each_alone(above: bool) -> None:
    view = LossPMF([(FEW, 6)], 0.3, above)
    found = Inversion(view, [ContourParameters(1.5, 0.05, 20.0, 40.0, TILTS), PLAN], 0.5)
    epsilons, log_deltas = np.array([0.2, 1.0, 2.0, 900.0, -1.0]), np.array([-1.0, -2.0, -4.0, -5.0, -0.5])
    many = found.delta_bound(epsilons, log_deltas)
    deltas, asked = EpsilonBracket(np.exp(log_deltas)), DeltaBracket(np.abs(epsilons))
    deltas.crude(view, 1e-4)
    deltas.read(found, epsilons)
    asked.crude(view)
    asked.read(found, log_deltas)
    for i, (epsilon, log_delta) in enumerate(zip(epsilons.tolist(), log_deltas.tolist(), strict=True)):
        one = found.delta_bound(epsilon, log_delta)
        seen = (many.bound[i], many.slope[i], many.error[i])
        assert seen == pytest.approx((one.bound, one.slope, one.error), rel=1e-9, abs=0, nan_ok=True)
        alone, own = EpsilonBracket(math.exp(log_delta)), DeltaBracket(abs(epsilon))
        alone.crude(view, 1e-4)
        alone.read(found, epsilon)
        own.crude(view)
        own.read(found, log_delta)
        assert (deltas.lower[i], deltas.upper[i]) == pytest.approx(alone.bounds, rel=1e-12, abs=0)
        assert (asked.lower[i], asked.upper[i]) == pytest.approx(own.bounds, rel=1e-9, abs=0)
    assert (asked.upper[:3] < 1.0).all() == above


def test_each_delta_may_have_points_of_its_own_in_a_closed_form() -> None:
    class Form:
        def delta_bounds(self, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.exp(-epsilon) * 0.99, np.exp(-epsilon) * 1.01

    bracket = EpsilonBracket(np.exp([-2.0, -3.0]))
    bracket.read_exact(Form(), np.array([0.5, 2.5, 3.5]))
    bracket.read_exact(Form(), np.array([[1.5, 2.2], [2.9, 3.4]]))
    assert (bracket.lower.tolist(), bracket.upper.tolist()) == ([1.5, 2.9], [2.2, 3.4])


# --- from below, by lines through a view from above ---


BOTH = PLAN._replace(shift=0.05, both_ways=True)
EPSILONS = np.array([0.3, 1.0, 2.0, 4.0])


def lower_over_true(coarse: Discrete, fine: Discrete, steps: int, plan: ContourParameters) -> np.ndarray:
    """What lines through coarse cells prove from below, over upper bounds of the truth by fine cells."""
    unit, below = np.full(EPSILONS.shape, -5.0), Inversion(LossPMF([(coarse, steps)], 0.0, True), [plan]).from_below()
    true = Inversion(LossPMF([(fine, steps)], 0.0, True), [PLAN]).delta_bound(EPSILONS, unit)
    proven = below.delta_bound(EPSILONS, unit).bound if below.resolved else np.full(EPSILONS.shape, np.nan)
    return np.asarray(proven / true.bound)


@pytest.mark.parametrize("plan", [BOTH, BOTH._replace(shift=0.3), BOTH._replace(c=0.4), BOTH._replace(beta=5.0)])
@pytest.mark.parametrize("reach", [9.0, 3.5])
@pytest.mark.parametrize("width", [0.5, 0.1, 0.05, 0.02])
def test_a_view_from_above_is_read_from_below(width: float, reach: float, plan: ContourParameters) -> None:
    for sigma, steps in ((1.0, 20), (3.0, 200)):
        assert not (lower_over_true(*coarse_and_fine(sigma, width, reach), steps, plan) > 1.0).any()


def test_what_is_read_from_below_is_close() -> None:
    assert (lower_over_true(*coarse_and_fine(3.0, 0.02), 200, BOTH) > 0.995).all()
    assert (
        lower_over_true(*coarse_and_fine(1.0, 0.02), 20, BOTH._replace(shift=0.3)) > 0.7
    ).all()  # a whole shift less


def test_what_cells_added_has_to_be_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = coarse_and_fine(3.0, 0.1)
    monkeypatch.setattr(Cells, "chord", lambda *_: 0.0)
    assert (lower_over_true(*coarse, 200, BOTH) > 1.0).any()


@pytest.mark.parametrize("forgotten", [True, False])
def test_what_cells_moved_has_to_be_taken_off(monkeypatch: pytest.MonkeyPatch, forgotten: bool) -> None:
    """All below the first edge is rounded up to it, which may add more than the rest of the bound can hide."""
    law = loss_law(CappedPoisson(100, 0.3, 100), 3.0, Adjacency.ADD_REMOVE, Analysis.SWAP)
    made = [discretise_above(cut(law, [np.arange(low, 9.0, 0.02)])) for low in (-1.0, -9.0)]
    if forgotten:
        monkeypatch.setattr(Cells, "moved", property(lambda _: 0.0))
    assert (lower_over_true(made[0], made[1], 40, BOTH) > 1.0).any() == forgotten


def test_a_view_is_read_from_below_only_if_all_that_was_added_is_known() -> None:
    above, _ = coarse_and_fine(3.0, 0.05)
    made = [(above, 200)]
    assert Inversion(LossPMF(made, 0.0, True), [BOTH]).from_below().resolved
    unknown = [
        Inversion(LossPMF(made, 0.0, True), [PLAN]),  # chords
        Inversion(LossPMF(made, 0.2, True), [BOTH]),  # of a Gaussian release only bounds are known
        Inversion(LossPMF(made, 0.0, True), [BOTH, BOTH], 0.5),  # sums with two jumps
        Inversion(LossPMF([(replace(above, whole=False), 200)], 0.0, True), [BOTH]),
        Inversion(LossPMF([(replace(above, difference=1e12), 200)], 0.0, True), [BOTH]),  # losses that are all rounding
        Inversion(LossPMF([(coarse_and_fine(1.0, 0.3)[0], 20)], 0.0, True), [BOTH]),  # whether the transform dies out
    ]
    for evidence in unknown:
        bracket, deltas = EpsilonBracket(1e-3), DeltaBracket(0.01)
        below = evidence.from_below()
        bracket.read(below, 0.01)
        deltas.read(below, -1.0)
        assert not below.resolved
        assert bracket.lower == deltas.lower == 0.0
        assert not proves(below, 0.01, -7.0)
    assert evidence.above  # what it was made from stays as it was


def test_a_line_is_no_longer_for_being_read_from_both_sides() -> None:
    """Where what splitting may do hides the decay of the transform, it is the line that is read from above only."""
    coarse, _ = coarse_and_fine(3.0, 0.1)
    view = LossPMF([(coarse, 200)], 0.0, True)
    both, plain = Inversion(view, [BOTH]), Inversion(view, [BOTH._replace(both_ways=False)])
    assert both.nodes == plain.nodes < 300
    assert not both.contours[0].both_ways
    assert both.delta_bound(1.0, -5.0) == plain.delta_bound(1.0, -5.0)


def test_of_laws_that_are_what_is_bounded_one_line_tells_both_sides() -> None:
    """Nothing was split, so the lower bound is that of the same law from below."""
    law, at = Discrete(FEW.loss, FEW.log_mass, 0.0, 0.0), (0.8, -3.0)
    one = Inversion(LossPMF([(law, 6)], 0.0, True), [PLAN]).from_below().delta_bound(*at)
    assert one == Inversion(LossPMF([(law, 6)], 0.0, False), [PLAN]).delta_bound(*at)


def test_what_was_added_is_what_is_taken_off_from_below() -> None:
    """Nothing but errors besides: a search starts from below where the difference has led it."""
    above, _ = coarse_and_fine(1.0, 0.1)
    evidence = Inversion(LossPMF([(above, 200)], 0.0, True), [BOTH])
    below = evidence.from_below()
    for epsilon in (0.5, 1.0):
        e = epsilon + evidence.contours[0].drift + evidence.pmf.slack  # so that both read the line at the same point
        upper, lower = evidence.delta_bound(e, -5.0), below.delta_bound(epsilon - evidence.pmf.slack, -5.0)
        assert upper.added == pytest.approx(lower.added, rel=1e-6)
        assert upper.added > 0.0
        off = upper.bound - lower.bound
        rest = below.moved / math.exp(-5.0)
        assert upper.added <= off <= upper.added + 2.0 * upper.error + rest + 1e-12
    several = evidence.delta_bound(np.array([0.5, 1.0]), -5.0)
    assert several.added.tolist() == pytest.approx([evidence.delta_bound(x, -5.0).added for x in (0.5, 1.0)], rel=1e-9)
