"""A run: which directions it has, and how phases, overflows and steps without noise come together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from tests.accounting.laws import NOTHING

import filet
from filet import Adjacency, Analysis, Bounds, CappedPoisson, Phase
from filet.accounting.many import power_tables, powers
from filet.accounting.proving.closed_form import gaussian_log_delta
from filet.accounting.run import Run
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.exact import Exact, OneStepAnswers
from filet.accounting.searching.refinement import Direction

USUAL = CappedPoisson(10_000, 0.01, 120)
ALL = CappedPoisson(10, 1.0, 10)


def run(*phases: Phase, releases: Sequence[tuple[float, int]] = (), adjacency: Adjacency = Adjacency.ZERO_OUT) -> Run:
    return Run(phases, releases, adjacency)


class Known:
    """Stands for a direction with delta = e^(-epsilon) / 2, known exactly."""

    def __init__(self, shift: float = 0.0) -> None:
        self.shift, self.asked = shift, list[tuple[str, float]]()

    def epsilon(self, delta: float) -> Bounds:
        self.asked.append(("epsilon", delta))
        value = max(0.0, -math.log(2 * delta) + self.shift)
        return Bounds(value, value)

    def delta(self, epsilon: float) -> Bounds:
        value = min(1.0, 0.5 * math.exp(self.shift - epsilon))
        return Bounds(value * 0.99, value * 1.01)

    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float:
        return self.delta(epsilon).upper

    def at_most(self, epsilon: float, delta: float) -> bool:
        self.asked.append(("at most", epsilon))
        return self.epsilon(delta).upper <= epsilon


def made(*directions: Any, overflow: Bounds = NOTHING, exposure: Bounds = NOTHING) -> Run:
    one = run()
    one.directions, one.overflow, one.exposure = list(directions), overflow, exposure
    return one


def power(one: Run, rate: float) -> float:
    return float(powers(one, power_tables(one), np.array(rate)))


def test_phases_without_steps_or_with_infinite_noise_cost_nothing() -> None:
    empty = run(Phase(USUAL, 1.0, 0), Phase(USUAL, math.inf, 9), Phase(USUAL, 0.0, 0))
    assert empty.directions == []
    assert (empty.overflow, empty.exposure) == (NOTHING, NOTHING)
    assert empty.epsilon(1e-5) == Bounds(0.0, 0.0)
    assert empty.delta(0.0) == Bounds(0.0, 0.0)
    assert empty.delta_each(1.0) == [Bounds(0.0, 0.0)]
    assert empty.quick_delta(1.0) == 0.0
    assert empty.at_most(0.0, 1e-300)
    assert power(empty, 0.3) == 0.3


@pytest.mark.parametrize(("adjacency", "count"), [("add-remove", 2), ("zero-out", 2), ("replace-one", 1)])
def test_a_run_has_two_directions_unless_both_are_the_same(adjacency: str, count: int) -> None:
    several = run(Phase(USUAL, 1.0, 5), adjacency=Adjacency(adjacency))
    assert [type(one) for one in several.directions] == [Direction] * count
    single = run(Phase(USUAL, 1.0, 1), adjacency=Adjacency(adjacency))
    assert [type(one) for one in single.directions] == [OneStepAnswers] * count
    beside = run(Phase(USUAL, 1.0, 1), releases=[(3.0, 1)], adjacency=Adjacency(adjacency))
    assert [type(one) for one in beside.directions] == [Direction] * count
    alone = run(Phase(ALL, 1.0, 5), adjacency=Adjacency(adjacency))
    assert [type(one) for one in alone.directions] == [Exact]
    if count == 2:
        forward, backward = (one.parts[0] for one in several.directions)  # type: ignore[attr-defined]
        assert backward.law == forward.law.reversed()
        assert backward.step is forward.step is not None  # lending gives both directions at once


@pytest.mark.parametrize(("adjacency", "distance"), [("zero-out", 1.0), ("replace-one", 2.0)])
def test_phases_that_use_every_example_are_one_gaussian_mechanism(adjacency: str, distance: float) -> None:
    both = run(Phase(ALL, 2.0, 3), Phase(ALL, 5.0, 50), releases=[(2.0, 1), (4.0, 3)], adjacency=Adjacency(adjacency))
    mu = math.sqrt(1 / 4 + 3 / 16 + distance**2 * (3 / 4 + 50 / 25))
    found = both.delta(1.5)
    assert found.lower <= math.exp(gaussian_log_delta(mu, 1.5)) <= found.upper
    assert found.upper == pytest.approx(found.lower, rel=1e-8)
    many = run(*[Phase(ALL, 1e8, 1)] * 2000, Phase(ALL, 1.0, 1))  # rounded up, in any order
    first = run(Phase(ALL, 1.0, 1), *[Phase(ALL, 1e8, 1)] * 2000)
    exact = math.exp(gaussian_log_delta(math.sqrt(1 + 2000e-16), 36.0))
    for one in (many, first):
        assert one.delta(36.0).lower <= exact <= one.delta(36.0).upper


def test_gaussian_releases_with_too_little_noise_are_refused() -> None:
    with pytest.raises(OverflowError):
        run(Phase(ALL, 1e-200, 1))
    with pytest.raises(OverflowError):
        run(releases=[(1e-200, 1)])


def test_a_release_without_noise_shows_everything() -> None:
    for shown in (run(releases=[(0.0, 1)]), run(Phase(USUAL, 1.0, 5), releases=[(2.0, 1), (0.0, 3)])):
        assert shown.exposure == Bounds(pytest.approx(1.0), 1.0)
        assert shown.epsilon(0.5) == Bounds(math.inf, math.inf)
        assert shown.delta(9.0).lower > 1 - 1e-12
        assert power(shown, 0.0) == 1.0


def test_steps_without_noise_show_the_example_with_their_chance() -> None:
    scheme = CappedPoisson(10**6, 1e-9, 10)
    shown = run(Phase(scheme, 0.0, 100))
    assert shown.directions == []
    assert shown.exposure.lower <= 1e-7 * (1 - 49.5e-9) <= shown.exposure.upper
    assert shown.epsilon(1e-6) == Bounds(0.0, 0.0)  # hardly ever
    assert shown.epsilon(1e-8) == Bounds(math.inf, math.inf)
    assert shown.delta(50.0) == shown.delta(0.0) == pytest.approx((1e-7, 1e-7), rel=1e-6)
    assert power(shown, 0.0) == pytest.approx(1e-7, rel=1e-6)
    with_noise = made(Known(), exposure=Bounds(0.9e-3, 1.1e-3))
    found = with_noise.epsilon(0.01)
    assert found.lower == pytest.approx(-math.log(0.02))
    assert found.upper == pytest.approx(-math.log(2 * (0.01 - 1.1e-3)))
    assert with_noise.epsilon(1e-3) == Bounds(0.0, math.inf)  # between the bounds of the chance
    assert with_noise.epsilon(1e-4) == Bounds(math.inf, math.inf)
    assert with_noise.delta(0.0).upper == pytest.approx(0.505 + 1.1e-3)
    assert with_noise.quick_delta(0.0) == pytest.approx(0.505 + 1.1e-3)
    assert not with_noise.at_most(-math.log(0.02), 0.01)
    assert with_noise.at_most(-math.log(0.0175), 0.01)


def test_the_second_direction_is_searched_only_if_a_quick_look_does_not_settle_it() -> None:
    first, weak, strong = Known(), Known(-1.0), Known(1.0)
    assert made(first, weak).epsilon(0.01) == first.epsilon(0.01)
    assert [what for what, _ in weak.asked] == ["at most", "epsilon"]  # by itself
    assert made(Known(), strong).epsilon(0.01) == strong.epsilon(0.01)
    assert made(Known(-9.0), Known()).epsilon(0.01) == Known().epsilon(0.01)  # zero is never settled by a look


class Wide(Known):
    """As wide a bracket as is promised."""

    def epsilon(self, delta: float) -> Bounds:
        value = super().epsilon(delta).upper
        return Bounds(0.999 * value, value)


@pytest.mark.parametrize("shift", [-1e-3, -1e-9, 0.0])
def test_a_second_direction_within_the_bracket_of_the_first_adds_nothing(shift: float) -> None:
    """What it is at most, the upper end, is all that has to be shown; the lower end of the first holds for both."""
    first, second = Wide(), Wide(shift)
    assert made(first, second).epsilon(0.01) == first.epsilon(0.01)
    assert second.asked[0] == ("at most", first.epsilon(0.01).upper)
    assert [what for what, _ in second.asked] == ["at most", "epsilon"]  # the latter by itself


def test_each_direction_has_its_own_delta_and_the_run_the_larger() -> None:
    both = made(Known(), Known(0.5), exposure=Bounds(0.0, 1e-3))
    each = both.delta_each(2.0)
    assert len(each) == 2
    assert both.delta(2.0) == each[1]
    assert each[0].upper == pytest.approx(0.5 * math.exp(-2.0) * 1.01 + 1e-3)
    assert both.at_most(9.0, 0.01)
    assert not both.at_most(3.95, 0.01)


def test_the_union_strategy_solves_for_the_epsilon_that_pays_for_its_overflows() -> None:
    union = made(Known(), overflow=Bounds(1e-5, 1e-5))
    found = union.epsilon(0.01)
    assert found.lower <= found.upper <= found.lower * (1 + 1e-4)
    cost = 0.5 * math.exp(-found.upper) + (1 + math.exp(found.upper)) * 1e-5
    assert cost <= 0.01
    assert cost == pytest.approx(0.01, rel=1e-3)
    assert union.epsilon(1.9e-5) == Bounds(math.inf, math.inf)
    assert made(Known(), overflow=Bounds(0.0, 1e-5)).epsilon(1.9e-5).upper == math.inf
    assert union.delta(701.0) == pytest.approx((0.0, 1.0), abs=1e-300)
    assert union.delta(1e13).upper == 1.0
    assert union.delta(2.0).upper == pytest.approx(0.5 * math.exp(-2.0) * 1.01 + (1 + math.exp(2.0)) * 1e-5)


def test_the_union_strategy_counts_the_overflows_of_every_batch() -> None:
    scheme = CappedPoisson(1000, 0.1, 150)
    found = run(Phase(scheme, 1.0, 40, Analysis.UNION))
    exact = -math.expm1(40 * math.log1p(-math.exp(scheme.log_overflow_probability)))
    assert found.overflow.lower <= exact * (1 + 1e-9)
    assert found.overflow.upper >= exact * (1 - 1e-9)
    assert run(Phase(scheme, 1.0, 40)).overflow == NOTHING


def test_far_out_delta_is_that_of_the_farthest_epsilon() -> None:
    plain = run(Phase(USUAL, 1.0, 5))
    assert plain.delta(1e300).upper == plain.delta(1e12).upper < 1e-200
    assert plain.delta(1e300).lower == 0.0


@pytest.mark.parametrize("rate", [0.0, 1e-5, 0.1, 0.7])
def test_power_is_above_every_explicit_test(rate: float) -> None:
    """Reject when the outcome of a Gaussian release is above a threshold."""
    found = power(run(Phase(ALL, 1.0, 4)), rate)
    assert float(ndtr(2.0 + ndtri(rate))) <= found <= 1.0


def test_only_the_refined_analysis_of_truncated_batches_lends() -> None:
    def steps(phase: Phase, adjacency: Adjacency = Adjacency.ZERO_OUT) -> list[bool]:
        return [part.step is not None for one in run(phase, adjacency=adjacency).directions for part in one.parts]  # type: ignore[attr-defined]

    for adjacency in Adjacency:
        lends = steps(Phase(USUAL, 1.0, 5), adjacency)
        assert lends == [True] * (1 if adjacency is Adjacency.REPLACE_ONE else 2)
    for analysis in (Analysis.SWAP, Analysis.NOTE, Analysis.UNION):
        assert steps(Phase(USUAL, 1.0, 5, analysis)) == [False, False]
    for scheme in (
        CappedPoisson(10_000, 0.01, 120, "reject"),
        CappedPoisson(100, 0.2, 100),
        CappedPoisson(100, 0.2, 1),
    ):  # type: ignore[arg-type]
        assert steps(Phase(scheme, 1.0, 5)) == [False, False]


class Costly(Known):
    """Each look takes a third of what a table may cost, and says less once the budget is spent."""

    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float:
        assert budget is not None
        self.asked.append(("spent" if budget.spent else "quick", epsilon))
        budget.spend(500_000)
        return 1.0 if budget.left < 0 else self.delta(epsilon).upper


def test_a_table_of_the_power_ends_its_lines_when_its_budget_is_spent_and_stays_an_upper_bound() -> None:
    costly = Costly()
    found = power(made(costly), 1e-3)
    looks = [what for what, _ in costly.asked if what != "epsilon"]
    assert looks[:3] == ["quick"] * 3
    assert set(looks[3:]) == {"spent"}
    assert power(made(Known()), 1e-3) <= found <= 1.0


def test_of_very_many_phases_all_lend() -> None:
    accountant = filet.Accountant("zero-out")
    for number in range(60):
        accountant.compose(filet.CappedPoisson(1_000, 0.05, 50), 1.0 + number / 100, 1)
    accountant.compose(filet.CappedPoisson(1_000, 0.05, 50), 3.0, 500)
    direction: Any = accountant.curve()._run.directions[0]
    assert all(part.step is not None for part in direction.parts)
    assert [part.steps for part in direction.parts] == [1] * 60 + [500]
