"""Answers in one direction: which looks follow which, and brackets against sums that are known."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr
from tests.accounting.laws import usual_law

from filet import Adjacency, Analysis, Bounds, CappedPoisson
from filet.accounting.proving.cells import Cells
from filet.accounting.proving.loss_law import LossLaw
from filet.accounting.proving.theorems import loss_law
from filet.accounting.proving.verdict import EpsilonBracket, Verdict
from filet.accounting.proving.view import View
from filet.accounting.searching import refinement as module
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.grids import equal_cells
from filet.accounting.searching.refinement import Direction, Part, wide

LOG = math.log(1e-6)
OPEN = Bounds(0.0, math.inf)


def outward(bounds: tuple[float, float]) -> Any:
    return pytest.approx(bounds, rel=1e-10)


def test_what_is_wide_is_wider_than_the_promise() -> None:
    assert not wide(Bounds(2.0, 2.0019))
    assert wide(Bounds(2.0, 2.0021))
    assert not wide(Bounds(0.0, 0.99e-4))
    assert wide(Bounds(0.0, 1.01e-4))
    assert wide(Bounds(2.0, 2.0019), 0.9)
    assert wide(Bounds(2.0, math.inf))
    assert not wide(Bounds(math.inf, math.inf))
    assert wide(Bounds(math.nan, 1.0))


# --- looks ------------------------------------------------------------------------------------------------------------


def test_few_steps_take_finer_cells_and_many_phases_take_fewer() -> None:
    law = usual_law()
    assert [Direction([Part(law, steps)]).cells for steps in (1, 4, 5, 30, 31, 10**6)] == [
        3200,
        3200,
        1600,
        1600,
        800,
        800,
    ]
    assert [Direction([Part(law, 1)] * count).cells for count in (49, 50, 1000)] == [800, 300, 300]


def test_both_directions_share_one_look_at_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    law, looks = usual_law(), []

    def cells(law: LossLaw, reach: float, width: float) -> Any:
        looks.append(reach)
        return equal_cells(law, reach, width)

    monkeypatch.setattr(module, "equal_cells", cells)
    run = Direction([Part(law, 50), Part(law, 9), Part(law, 0)], Bounds(0.1, 0.2))
    mirror = run.reversed()
    assert ([part.steps for part in mirror.parts], mirror.gaussian, mirror.steps) == ([50, 9], Bounds(0.1, 0.2), 59)
    first, reach = run.look(LOG), run._reach(LOG)
    assert run.look(LOG) is first
    assert looks == [reach] * 2
    second = mirror.look(LOG)
    assert looks == [reach] * 2
    assert len(second) == 2
    for one, other in zip(first, second, strict=True):
        assert isinstance(one, Cells)
        assert isinstance(other, Cells)
        assert (other.p == one.q[::-1]).all()
        assert (other.q == one.p[::-1]).all()
        assert (other.loss == -one.loss[::-1]).all()
    mirror.look(-50.0)
    assert looks == [reach] * 2 + [mirror._reach(-50.0)] * 2
    above, below = (run.view(first, above=above) for above in (True, False))
    assert (above.above, above.gaussian, above.steps) == (True, 0.2, 59)
    assert (below.above, below.gaussian, below.steps) == (False, 0.1, 59)


def test_losses_matter_as_far_as_their_chance_is_not_far_below_delta() -> None:
    run = Direction([Part(usual_law(), 50)])
    for log_delta in (-3.0, -50.0):  # the chance of a normal deviate beyond r is below e^(-r^2 / 2)
        reach = run._reach(log_delta)
        assert 50 * math.exp(-(reach**2) / 2) == pytest.approx(math.exp(log_delta - 10.0))


# --- epsilon ----------------------------------------------------------------------------------------------------------


def settle(bracket: EpsilonBracket, lower: float, upper: float) -> None:
    """Have a bracket proven, through evidence that says so."""
    for above, epsilon in ((True, upper), (False, lower)):
        if 0.0 < epsilon < math.inf or (above and epsilon == 0.0):
            says: Any = SimpleNamespace(above=above, resolved=True, delta_bound=lambda *_: Verdict(1.0, -1.0, 0.0))
            bracket.read(says, epsilon)


class Script:
    """Stands for the searches within `Direction.epsilon`: answers from lists, and notes what it was asked."""

    nodes = 1  # that a search takes

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: list[tuple[float, float]],
                 both: list[tuple[float, float, float]], bulk: bool = False, crude: float = math.inf) -> None:  # fmt: skip
        """`first`: where a search ends and its upper bound; `both`: where it ends, lower, upper."""
        self.first, self.both, self.asked = [*first], [*both], list[tuple[Any, ...]]()
        monkeypatch.setattr(Direction, "_draw", lambda *_: None)  # the long way
        monkeypatch.setattr(module, "narrow", self.narrow)
        monkeypatch.setattr(Direction, "_both_views", lambda _, *asked: self.both_views(*asked))
        monkeypatch.setattr(
            Direction, "_halve", lambda _, bracket, budget: self.asked.append(("halve", bracket.bounds))
        )
        monkeypatch.setattr(EpsilonBracket, "crude", lambda self, *_: settle(self, 0.0, crude))
        monkeypatch.setattr(module, "guess_epsilon", lambda *_: 1.75)
        monkeypatch.setattr(module, "guess_by_parts", lambda *_: math.nan)
        monkeypatch.setattr(module, "jump_focus", lambda *_: None)
        monkeypatch.setattr(module, "saddle_point", lambda *_: 2.25)
        monkeypatch.setattr(module, "bulk_focus", lambda _, *asked: ("bulk", *asked) if bulk else None)
        monkeypatch.setattr(module, "focus", lambda evidence, *asked: ("fitted", *asked) if evidence is self else None)

    def narrow(
        self, bracket: EpsilonBracket, view: View, start: float, fineness: float, budget: Budget
    ) -> tuple[float, Script]:
        self.asked.append(("narrow", view.above, start, fineness))
        budget.spend(self.nodes)
        found, upper = self.first.pop(0)
        settle(bracket, 0.0, upper)
        return found, self

    def both_views(self, bracket: EpsilonBracket, look: Any, where: Any, start: float,
                   fineness: float, budget: Budget) -> tuple[float, Script]:  # fmt: skip
        budget.spend(self.nodes)
        self.asked.append(("both", outward(bracket.bounds), where, start, fineness))
        found, lower, upper = self.both.pop(0)
        settle(bracket, lower, upper)
        return found, self


def test_a_narrow_bracket_from_the_bulk_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, [], [(2.0, 1.999, 2.0)], bulk=True)
    assert Direction([Part(usual_law(), 50)]).epsilon(1e-6) == outward((1.999, 2.0))
    assert script.asked == [("both", OPEN, ("bulk", 1.75, LOG, 800), 1.75, 1.0)]


@pytest.mark.parametrize(("led", "start"), [(True, 5.0), (False, 1.75)])
def test_a_sketch_that_led_nowhere_does_not_say_where_to_look(
    led: bool, start: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, [(2.0, 2.5)], [(2.0, 1.9999, 2.0001)])
    drawn = SimpleNamespace(guess=SimpleNamespace(epsilon=5.0))
    monkeypatch.setattr(Direction, "_draw", lambda *_: SimpleNamespace(at_delta=lambda *_, **__: drawn))
    monkeypatch.setattr(module, "bracket_epsilon", lambda *_: led)
    Direction([Part(usual_law(), 50)]).epsilon(1e-6)
    assert script.asked[0] == ("narrow", True, start, 1.0)


def test_a_wide_bracket_from_the_bulk_is_refined_and_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    almost = (1.99, 1.99, 1.99185)  # more than 0.9 of what is promised
    script = Script(monkeypatch, [(2.5, 2.5)], [almost] * 6, bulk=True)
    assert Direction([Part(usual_law(), 50)]).epsilon(1e-6) == outward(almost[1:])
    assert script.asked[1] == ("narrow", True, 1.75, 1.0)
    assert script.asked[2] == ("both", almost[1:], ("fitted", 2.5, 800), 2.5, 1.0)
    assert [what for what, *_ in script.asked] == ["both", "narrow", *["both"] * 5, "halve"]


def test_refinements_double_and_halving_is_the_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [(3.0 - k / 10, 1.0 + k / 10, 3.0 - k / 10) for k in range(5)]
    script = Script(monkeypatch, [(math.nan, math.inf), (3.5, 3.5)], steps)
    assert Direction([Part(usual_law(), 50)]).epsilon(1e-6) == outward(steps[4][1:])
    assert (
        script.asked
        == [
            ("narrow", True, 1.75, 1.0),
            ("narrow", True, 2.25, 1.0),  # once more, from elsewhere
            ("both", (0.0, 3.5), ("fitted", 3.5, 800), 3.5, 1.0),
            ("both", steps[0][1:], ("fitted", 3.0, 1600), 3.0, 2.0),
            ("both", steps[1][1:], ("fitted", 2.9, 3200), 2.9, 4.0),
            ("both", steps[2][1:], ("fitted", 2.8, 6400), 2.8, 8.0),
            ("both", steps[3][1:], ("fitted", 2.7, 12800), 2.7, 16.0),
            ("halve", outward(steps[4][1:])),
        ]
    )


@pytest.mark.parametrize(("nodes", "levels"), [(100, 5), (199, 5), (200, 4), (333, 3), (999, 1), (1000, 0)])
def test_refinement_ends_when_the_budget_is_spent_with_what_is_proven_by_then(
    monkeypatch: pytest.MonkeyPatch, nodes: int, levels: int
) -> None:
    levels_in_full = [(3.0, 1.0 + k / 10, 3.0) for k in range(5)]
    script = Script(monkeypatch, [(3.5, 3.5)], levels_in_full)
    script.nodes = nodes
    monkeypatch.setattr(module, "Budget", lambda: Budget(1000))
    found = Direction([Part(usual_law(), 50)]).epsilon(1e-6)
    assert [what for what, *_ in script.asked] == ["narrow", *["both"] * levels, "halve"]
    assert found == outward(levels_in_full[levels - 1][1:] if levels else (0.0, 3.5))


def test_refinement_ends_with_the_promise_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, [(3.5, 3.5)], [(3.0, 1.0, 3.0), (2.0, 1.9983, 2.0), (8.0, 7.0, 8.0)])
    assert Direction([Part(usual_law(), 50)]).epsilon(1e-6) == outward((1.9983, 2.0))
    assert len(script.asked) == 3


@pytest.mark.parametrize("crude", [9.5, math.inf])
def test_without_any_reading_the_crude_bound_stands_and_the_last_guess_is_refined(
    monkeypatch: pytest.MonkeyPatch, crude: float
) -> None:
    """Chernoff's bound is asked for only if nothing else is finite: it is dear and far from tight."""
    script = Script(monkeypatch, [(math.nan, math.inf)] * 2, [(2.0, 1.999, 2.0)], crude=crude)
    run = Direction([Part(usual_law(), 50)])
    run.epsilon(1e-6)
    chernoff = run.view(run.look(LOG), above=True).chernoff_epsilon(LOG)
    assert chernoff < 9.0
    upper = chernoff if crude == math.inf else crude
    assert script.asked[2] == ("both", (0.0, pytest.approx(upper, rel=1e-9)), ("fitted", 2.25, 800), 2.25, 1.0)


@pytest.mark.parametrize(("solved", "expected"), [
    (0.0, (0.0, 0.0)), (8.9e-5, (0.0, 8.9e-5)), (9.1e-5, (9e-5, 9e-5)), (1.0, (1.0, 1.0))])  # fmt: skip
def test_an_answer_as_near_to_zero_as_is_promised_is_not_refined(
    monkeypatch: pytest.MonkeyPatch, solved: float, expected: tuple[float, float]
) -> None:
    level = min(solved, expected[1])
    Script(monkeypatch, [(solved, solved)], [(level, level * (1 - 1e-9), level)])
    assert Direction([Part(usual_law(), 50)]).epsilon(1e-6) == pytest.approx(expected, rel=2e-9)


def test_answers_that_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    crude = EpsilonBracket.crude
    Script(monkeypatch, [], [])
    monkeypatch.setattr(EpsilonBracket, "crude", crude)
    assert Direction([Part(usual_law(1e9), 50)]).epsilon(0.5) == Bounds(0.0, 0.0)
    assert Direction([Part(usual_law(), 50)]).epsilon(1e-300) == OPEN  # masses this small are not resolved
    tiny = Direction([Part(usual_law(1e6), 50)]).epsilon(1e-12)
    assert tiny.lower == 0.0 < tiny.upper <= 5e-5


@pytest.mark.parametrize(("upper", "lower", "expected"), [
    (2.0, 1.5, (1.5, 2.0)), (math.inf, 1.5, (1.5, 3.0)), (2.0, 0.0, (0.7, 2.0)), (4.0, 0.5, (0.7, 3.0)),
    (0.0, 5.0, (0.0, 0.0))])  # fmt: skip
def test_both_views_narrow_one_bracket_and_nothing_found_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, upper: float, lower: float, expected: tuple[float, float]
) -> None:
    asked = []

    def narrow(
        bracket: EpsilonBracket, view: View, start: float, fineness: float, budget: object
    ) -> tuple[float, None]:
        asked.append((view.above, start, fineness))
        settle(bracket, 0.0 if view.above else lower, upper if view.above else math.inf)
        return start, None

    monkeypatch.setattr(module, "narrow", narrow)
    monkeypatch.setattr(module, "fitted_cells", lambda one, _: one)
    bracket, run = EpsilonBracket(1e-6), Direction([Part(usual_law(), 50)])
    if upper > 0.0:
        settle(bracket, 0.7, 3.0)
    run._both_views(bracket, run.look(LOG), None, 2.5, 1.5, Budget())  # type: ignore[arg-type]
    assert bracket.bounds == outward(expected)
    assert asked[0] == (True, 2.5, 1.5)
    # the upper bound is the better start for the lower one, if it is nearer
    assert asked[1:] == ([] if upper == 0.0 else [(False, outward(2.0 if upper == 2.0 else 2.5), 1.5)])


def known_lines(monkeypatch: pytest.MonkeyPatch, root: float, dull: float = 0.0) -> list[tuple[float, ...]]:
    """Evidence with delta = e^(root - epsilon) of the goal; `dull` readings prove less."""
    asked: list[tuple[float, ...]] = []

    def propose(view: View, *where: float) -> Any:
        asked.append(where)

        def bound(epsilon: float, _: float) -> Verdict:
            value = math.exp(root - epsilon) * (1 + dull if view.above else 1 - dull)
            return Verdict(value, -value, 0.0)

        return SimpleNamespace(above=view.above, resolved=view.resolved, delta_bound=bound, nodes=100)

    monkeypatch.setattr(module, "propose_evidence", propose)
    return asked


def halved(lower: float, upper: float, nodes: int = 10**6) -> EpsilonBracket:
    bracket = EpsilonBracket(math.exp(-9.0))
    settle(bracket, lower, upper)
    Direction([Part(usual_law(), 50)])._halve(bracket, Budget(nodes))
    return bracket


@pytest.mark.parametrize("root", [0.011, 1.3, 6.99])
def test_halving_narrows_a_bracket_to_the_promise(monkeypatch: pytest.MonkeyPatch, root: float) -> None:
    asked = known_lines(monkeypatch, root)
    found = halved(0.01, 7.0)
    assert found.lower <= root <= found.upper
    assert not wide(found, 0.9)
    assert all(where[1:] == pytest.approx((-9.0, 2.0)) for where in asked)
    assert len(asked) <= 2 * 14  # 2^-14 of 7 is below the promise


def test_halving_stops_where_nothing_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    known_lines(monkeypatch, 1.3, dull=0.5)
    assert halved(0.0, 8.0).bounds == outward((0.0, 2.0))  # at 1 neither reading is sure
    known_lines(monkeypatch, 1.3, dull=0.2)
    assert halved(0.0, 8.0).bounds == outward((1.0, 1.5))
    asked = known_lines(monkeypatch, 1.3)
    assert halved(0.5, math.inf).bounds == outward((0.5, math.inf))
    assert asked == []


def test_halving_ends_when_the_budget_is_spent_with_what_is_proven_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = known_lines(monkeypatch, 1.3)
    assert halved(0.0, 8.0, nodes=0).bounds == outward((0.0, 8.0))
    assert asked == []
    assert halved(0.0, 8.0, nodes=200).bounds == outward((0.0, 2.0))  # at 4, at 2, and no more
    assert [where[0] for where in asked] == pytest.approx([4.0, 2.0])
    assert halved(0.0, 8.0, nodes=201).bounds == outward((0.0, 2.0))  # at 1 the reading from above proves nothing
    assert len(asked) == 5


# --- a quick look -----------------------------------------------------------------------------------------------------


def test_a_quick_look_proves_only_what_holds() -> None:
    run = Direction([Part(usual_law(), 50), Part(usual_law(), 0)])
    assert ([part.steps for part in run.parts], run.steps) == ([50], 50)
    truth = run.epsilon(1e-6)
    assert run.at_most(truth.upper * 1.01, 1e-6)
    assert not run.at_most(truth.lower * 0.99, 1e-6)
    assert run.delta(truth.lower * 0.9).lower > 1e-6
    assert truth.lower == pytest.approx(truth.upper, rel=1e-3)
    assert run.quick_delta(truth.upper) >= run.delta(truth.upper).lower


@pytest.mark.parametrize(("ratio", "guess", "proven"), [
    (1.0, LOG, True), (1.0 + 1e-9, LOG, False), (math.nan, LOG, False), (0.5, LOG + 2.9, True), (0.5, LOG + 3.1, False)])  # fmt: skip
def test_what_is_not_read_or_too_far_away_is_not_known(
    monkeypatch: pytest.MonkeyPatch, ratio: float, guess: float, proven: bool
) -> None:
    asked = []

    def propose(view: View, *where: float) -> Any:
        asked.append((view.above, *where))
        return SimpleNamespace(
            above=view.above, resolved=view.resolved, delta_bound=lambda *_: Verdict(ratio, -1.0, 0.0)
        )

    monkeypatch.setattr(module, "propose_evidence", propose)
    monkeypatch.setattr(module, "guess_log_delta", lambda *_: guess)
    assert Direction([Part(usual_law(), 50)]).at_most(0.3, 1e-6) is proven
    assert asked == ([] if guess > LOG + 3.0 else [(True, 0.3, LOG, 1.0)])


def test_no_loss_above_the_largest_is_proof_enough_unless_some_are_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "guess_log_delta", lambda *_: math.inf)
    run = Direction([Part(usual_law(), 50)])
    first = run.view(run.look(LOG), above=True)
    assert run.at_most(first.largest, 1e-6)
    assert not run.at_most(first.largest * (1 - 1e-9), 1e-6)
    assert not run.at_most(first.largest, first.infinite * 0.99)


# --- little noise -----------------------------------------------------------------------------------------------------


def told_apart(p: float, sigma: float, steps: int, epsilon: float) -> float:
    """delta of plain Poisson sampling with so little noise that every hit can be told from a miss.

    Given k hits the loss is a_k + N(k m, 2 k m) under P and a_k - N(k m, 2 k m) under Q, with m = 1 / (2 sigma^2) and a_k
    the log-chance of these hits. Errors are of the order e^(-m / 4).
    """
    k = np.arange(1, min(steps, 60) + 1)
    log_chance = k * math.log(p) + (steps - k) * math.log1p(-p)
    log_ways = gammaln(steps + 1) - gammaln(k + 1) - gammaln(steps - k + 1)
    mean, deviation = k / (2 * sigma**2), np.sqrt(k) / sigma
    hits = np.exp(log_ways + log_chance + log_ndtr((log_chance + mean - epsilon) / deviation))
    misses = np.exp(log_ways + epsilon + log_ndtr((log_chance - mean - epsilon) / deviation))
    return math.fsum(hits - misses)


@pytest.mark.long
@pytest.mark.parametrize("sigma", [0.03, 0.01, 0.001])
@pytest.mark.parametrize(("p", "steps", "delta"), [
    (0.01, 2, 1e-3), (1e-4, 3, 1e-6), (1e-4, 10, 1e-6), (1e-4, 100, 1e-6), (1e-4, 1000, 1e-2), (0.01, 10, 1e-2)])  # fmt: skip
def test_little_noise_gives_the_epsilon_of_hits_that_can_be_told_apart(
    sigma: float, p: float, steps: int, delta: float
) -> None:
    """delta is flat between one hit and two, over most of the way: the search must not stop there."""
    law = loss_law(CappedPoisson(10**6, p, 10**6), sigma, Adjacency.ZERO_OUT, Analysis.REFINED)
    with np.errstate(all="ignore"):
        bracket = Direction([Part(law, steps)]).epsilon(delta)
    exact = brentq(lambda epsilon: told_apart(p, sigma, steps, epsilon) - delta, 1.0, 60 / sigma**2, xtol=1e-9)
    assert bracket.lower <= exact * (1 + 1e-12)
    assert bracket.upper >= exact * (1 - 1e-12)
    assert not wide(bracket)
