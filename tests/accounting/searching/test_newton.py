"""The search for epsilon: steps from readings, and brackets around roots that are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.verdict import EpsilonBracket, Verdict
from filet.accounting.proving.view import View
from filet.accounting.searching import newton
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.newton import Known, narrow, settle

Search = Callable[..., float]


class Exponential:
    """Stands for evidence of a view with delta = e^(root - epsilon) of the goal."""

    c, nodes, resolved = 1.0, 1, True

    def __init__(self, above: bool, root: float) -> None:
        self.above, self.root, self.view = above, root, self
        self.visited: list[float] = []

    def delta_bound(self, epsilon: float, _: float) -> Verdict:
        self.visited.append(epsilon)
        return Verdict(*self.ratio(epsilon), 0.0)

    def ratio(self, epsilon: float) -> tuple[float, float]:
        return math.exp(self.root - epsilon), -math.exp(self.root - epsilon)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Search:
    """What a search proves on the safe side: the upper bound from above, the lower from below."""

    def run(view: Any, start: float) -> float:
        monkeypatch.setattr(newton, "propose_evidence", lambda *_: view)
        bracket = EpsilonBracket(math.exp(-5.0))
        narrow(bracket, view, start, 1.0, Budget())
        return bracket.upper if view.above else bracket.lower

    return run


# --- the next epsilon to try ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "slope", "step"), [
    (math.e, -math.e, 1.0), (math.e, -2 * math.e, 0.5), (math.exp(-1.0), -math.exp(-1.0), -1.0),
    (math.e, -0.1, 3.0), (0.1, -0.001, -3.0), (2.0, 0.0, 3.0), (1.5, 1.0, 3.0), (0.5, 0.0, -3.0), (0.5, 1.0, -3.0)])  # fmt: skip
def test_the_first_step_is_newtons_in_log_delta_and_no_longer_than_allowed(
    ratio: float, slope: float, step: float
) -> None:
    assert Known().step(5.0, ratio, slope, 3.0) == pytest.approx(step)


def test_steps_stay_within_what_is_known() -> None:
    known = Known()
    known.step(5.0, 0.5, -0.5, 9.0)  # not above the goal at 5
    assert (known.low, known.high) == (-math.inf, 5.0)
    assert known.step(1.0, 3.0, -0.7, 9.0) == pytest.approx((3.0 - 1.0) / 0.7)  # Newton's 4.7 is too far: the tangent's
    assert (known.low, known.high) == (1.0, 5.0)
    assert known.step(2.0, 3.0, -0.1, 9.0) == pytest.approx(0.5 * (2.0 + 5.0) - 2.0)  # so is the tangent: halfway
    assert known.step(1.5, 3.0, 0.0, 9.0) == pytest.approx(0.5 * (2.0 + 5.0) - 1.5)  # a flat delta has no tangent
    assert (known.low, known.high) == (2.0, 5.0)  # what is known stays known
    assert known.step(4.0, 0.9, -0.9, 9.0) == pytest.approx(math.log(0.9))  # Newton's, as it stays inside
    assert known.high == 4.0
    crossed = Known(low=3.0, high=2.0)  # rounding: nothing is known
    assert crossed.step(2.5, math.e, -math.e, 9.0) == pytest.approx(1.0)


def test_a_search_that_gains_little_is_halved() -> None:
    def steps(known: Known, count: int) -> list[float]:
        return [known.step(2.0, 1.5, -15.0, 9.0) for _ in range(count)]

    first = math.log(1.5) / 10
    known = Known(low=1.0, high=8.0)
    assert steps(known, 11) == pytest.approx([first] * 11)  # at the sixth reading the width is noted
    assert steps(known, 1) == pytest.approx([0.5 * (2.0 + 8.0) - 2.0])  # and has not become a tenth at the twelfth
    known.high = 2.5
    assert steps(known, 6) == pytest.approx([first] * 6)  # now it has
    known = Known(low=1.0)
    assert steps(known, 12) == pytest.approx([first] * 12)  # nothing to halve


def test_a_step_within_the_tolerance_is_left_alone() -> None:
    known = Known(low=1.0, high=3.0)
    assert known.step(2.0, 1 + 1e-8, -1.0, 9.0) == pytest.approx(1e-8)
    assert known.step(2.0, 1 + 1.9e-7, -1.0, 9.0) == pytest.approx(1.9e-7)
    assert known.step(3.0, 1 - 1e-7, -1.0, 9.0) == pytest.approx(-1e-7)


# --- searches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0.0, 1.0, 5.0])
def test_answers_are_on_the_safe_side_of_the_root(search: Search, start: float) -> None:
    for root in (0.5, 2.0):
        for above in (True, False):
            found = search(Exponential(above, root), start)
            assert found == pytest.approx(root, abs=1e-6)
            assert (found > root) == above
    assert search(Exponential(True, -1.0), start) == 0.0


@pytest.mark.parametrize(("ratio", "above"), [(0.5, True), (2.0, True), (2.0, False), (0.5, False), (math.nan, True)])
def test_without_a_slope_the_search_walks_on_as_far_as_it_is_proven(search: Search, ratio: float, above: bool) -> None:
    flat = Exponential(above, 0.0)
    flat.ratio = lambda epsilon: (ratio, 0.0)  # type: ignore[method-assign]
    found = search(flat, 1.0)
    if ratio == 0.5:  # below the goal everywhere
        assert found == 0.0
    elif ratio == 2.0 and not above:
        assert found > 10.0
    else:
        assert found == math.inf


class Plateaus(Exponential):
    """Stands for few hits of large losses: delta falls from one level to the next, and is flat between."""

    c = 0.01

    def ratio(self, epsilon: float) -> tuple[float, float]:
        value, slope = 1e-4, 0.0
        for level, edge in ((300.0, 4_800.0), (3.0, 9_750.0 - 100.0 * math.log(2.0))):
            falls = 1.0 / (1.0 + math.exp(min((epsilon - edge) / 100.0, 50.0)))
            value += level * falls
            slope -= level * falls * (1.0 - falls) / 100.0
        return value, slope if abs(slope) > 1e-9 else 1e-12  # rounding


@pytest.mark.parametrize("start", [4_000.0, 5_500.0, 7_300.0, 9_000.0, 13_000.0])
@pytest.mark.parametrize("above", [True, False])
def test_the_edge_of_a_plateau_is_found_by_halving(search: Search, start: float, above: bool) -> None:
    view = Plateaus(above, 9_750.0)
    found = search(view, start)
    assert found == pytest.approx(9_750.0, abs=0.1)
    assert len(view.visited) <= 40
    assert (view.ratio(found)[0] < 1.0) == above


@pytest.mark.parametrize(("nodes", "rounds"), [(1, 20), (300, 4), (999, 2), (1000, 1), (9_000_000, 1)])
def test_a_search_ends_when_its_budget_is_spent(monkeypatch: pytest.MonkeyPatch, nodes: int, rounds: int) -> None:
    view, built, budget = Exponential(True, 600.0), [], Budget(1000)
    view.nodes = nodes
    monkeypatch.setattr(newton, "propose_evidence", lambda *where: built.append(where) or view)  # type: ignore[func-returns-value]
    bracket = EpsilonBracket(math.exp(-5.0))
    narrow(bracket, view, 1.0, 3.0, budget)  # type: ignore[arg-type]
    assert bracket.upper == math.inf
    assert len(built) == rounds
    assert budget.left == 1000 - rounds * nodes
    assert built[0] == (view, 1.0, -5.0, 3.0)


class Kinked(Exponential):
    """Stands for a view where one loss of 2 decides: delta is flat, and falls off a cliff just before it."""

    c = 5.0

    def ratio(self, epsilon: float) -> tuple[float, float]:
        parts = [(1e3, 2.0), (0.5, 10.0)]
        value = sum(-mass * math.expm1(min(0.0, epsilon - loss)) for mass, loss in parts)
        return value, -sum(mass * math.exp(epsilon - loss) for mass, loss in parts if epsilon < loss)


@pytest.mark.parametrize("start", [0.0, 1.5, 1.9999, 2.5, 4.0])
@pytest.mark.parametrize("above", [True, False])
def test_a_cliff_of_delta_is_found_between_what_is_known(search: Search, start: float, above: bool) -> None:
    view = Kinked(above, 2.0 - 5.08e-4)
    found = search(view, start)
    exact = brentq(lambda epsilon: Kinked(True, 0.0).ratio(epsilon)[0] - 1.0, 1.9, 2.0, xtol=1e-14)
    assert found == pytest.approx(exact, abs=1e-6)
    assert (found > exact) == above
    assert len(view.visited) <= 40


@pytest.mark.parametrize(("above", "start"), [(True, 3.0), (False, 0.2)])
def test_of_all_that_is_proven_the_best_is_kept(search: Search, above: bool, start: float) -> None:
    """Where nothing more can be read the search ends, with the last point, which is nearer than the first."""
    view = Exponential(above, 1.0)

    def ratio(epsilon: float) -> tuple[float, float]:
        value = math.exp(0.9 * (1.0 - epsilon))
        if epsilon == start:
            return value, -value
        return (0.8 if above else 1.2) if epsilon == view.visited[1] else math.nan, -1.0

    view.ratio = ratio  # type: ignore[method-assign]
    found = search(view, start)
    best = view.visited[1]
    assert (start > best) == above
    assert found == pytest.approx(best, rel=2e-11)
    assert (found > best) == above


@pytest.mark.parametrize(("root", "start", "expected"), [(5e-5, 6e-5, 6e-5), (1.2e-4, 1.5e-4, 1.2e-4), (2.0, 5.0, 2.0)])
def test_costly_lines_are_left_where_the_promise_is_kept_and_only_there(
    search: Search, root: float, start: float, expected: float
) -> None:
    view = Exponential(True, root)
    view.nodes = newton._COSTLY_NODES + 1
    assert search(view, start) == pytest.approx(expected, rel=1e-6)
    if root == 5e-5:
        view.nodes = newton._COSTLY_NODES
        assert search(view, start) == pytest.approx(root, rel=1e-3)


def test_losses_that_are_all_rounding_prove_nothing_from_below() -> None:
    noise = Discrete(np.array([-1e-17, 1e-17]), np.log([0.5, 0.5]), 0.0, 0.0, difference=0.2)
    bracket = EpsilonBracket(math.exp(-40.0))
    found, evidence = narrow(bracket, View([(noise, 4)], 0.0, False), 1e-17, 1.0, Budget())
    assert math.isnan(found)
    assert evidence.lines
    assert bracket.lower == 0.0
    narrow(bracket, View([(noise, 4)], 0.0, True), 1e-17, 1.0, Budget())
    assert bracket.upper != 0.0  # a small one, or none


def test_the_search_says_where_it_ended() -> None:
    view = View([(Discrete(np.array([-0.09, 0.01, 0.11]), np.log([0.3, 0.4, 0.3]), 0.0, 0.0), 60)], 0.0, True)
    bracket = EpsilonBracket(1e-4)
    found, evidence = narrow(bracket, view, 1.0, 1.0, Budget())
    assert found == pytest.approx(bracket.upper, rel=1e-9)
    assert evidence.delta_bound(found, math.log(1e-4)).bound == pytest.approx(1.0, rel=1e-5)


# --- from a good guess ------------------------------------------------------------------------------------------------


class Normal(Exponential):
    """Evidence of a view whose root of -log delta is linear in epsilon: delta is the goal e^-5 at the root."""

    c = 2.0

    def ratio(self, epsilon: float) -> tuple[float, float]:
        value = math.exp(5.0 - 5.0 * (epsilon / self.root) ** 2)
        return value, -10.0 * epsilon / self.root**2 * value


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("off", [1e-2, 1e-4, -1e-2])
def test_few_readings_settle_what_is_nearly_linear(above: bool, off: float) -> None:
    evidence, bracket = Normal(above, 2.0), EpsilonBracket(math.exp(-5.0))
    found = settle(bracket, evidence, 2.0 + off)  # type: ignore[arg-type]
    assert found is not None
    assert len(evidence.visited) == (2 if above or abs(off) < 1e-3 else 3)
    assert found[0] == evidence.visited[-1] == pytest.approx(2.0, abs=2e-6)
    assert bracket.upper >= 2.0 >= bracket.lower
    assert (bracket.upper if above else bracket.lower) == pytest.approx(found[0], rel=1e-10)
    assert found[1].bound == evidence.ratio(found[0])[0]


def test_a_small_part_of_a_wide_bracket_is_not_worth_a_reading() -> None:
    evidence, bracket = Normal(False, 2.0), EpsilonBracket(math.exp(-5.0))
    bracket.read(Normal(True, 3.0), 3.1)  # type: ignore[arg-type]
    found = settle(bracket, evidence, 1.98)  # type: ignore[arg-type]
    assert found is not None
    assert evidence.visited == [found[0]] == [1.98]


def test_what_is_flat_far_away_or_no_number_settles_nothing() -> None:
    for start, ratio in (
        (0.1, None),
        (2.0, (math.nan, -1.0)),
        (2.0, (1.5, 0.0)),
        (2.0, (0.0, -1.0)),
        (2.0, (1e3, -1.0)),
    ):
        evidence, bracket = Normal(True, 2.0), EpsilonBracket(math.exp(-5.0))
        if ratio:
            evidence.ratio = lambda _, it=ratio: it  # type: ignore[method-assign, misc]
        assert settle(bracket, evidence, start) is None  # type: ignore[arg-type]
        assert bracket.upper == math.inf


class Cliff(Exponential):
    """From below nothing is proven at the root itself, and everything a little below it."""

    def ratio(self, epsilon: float) -> tuple[float, float]:
        return (-30.0, -1e6) if epsilon > self.root - 1e-5 else (1e9, -1e6)


@pytest.mark.parametrize("root", [3e-4, 0.02, 5.0])
def test_below_a_cliff_what_is_promised_is_tried(root: float, monkeypatch: pytest.MonkeyPatch) -> None:
    above: Any = Exponential(True, root)
    below: Any = Cliff(False, root)
    monkeypatch.setattr(newton, "propose_evidence", lambda view, *_: view)
    bracket = EpsilonBracket(math.exp(-5.0))
    narrow(bracket, above, root, 1.0, Budget())
    narrow(bracket, below, bracket.upper, 1.0, Budget())
    assert bracket.upper - max(1e-3 * root, 1e-4) <= bracket.lower < bracket.upper
    assert len(below.visited) <= 4


def test_a_cliff_without_an_upper_end_proves_nothing(search: Search) -> None:
    assert search(Cliff(False, 1.0), 1.0) == 0.0
