"""Answers for a run in one direction: cells are refined and lines read until what is proven is narrow enough."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..proving.cells import Cells, discretise_above, discretise_below
from ..proving.lending import Step
from ..proving.loss_law import Array, LossLaw
from ..proving.verdict import DeltaBracket, EpsilonBracket, Evidence, proves
from ..proving.view import View
from ..terms import Bounds
from .budget import Budget
from .grids import Focus, equal_cells, fitted_cells
from .guesses import bulk_focus, focus, guess_epsilon, guess_log_delta, saddle_point
from .jumps import guess_by_parts, jump_focus
from .lending_looks import Laws, Query, Seen, Sight, worth_a_look
from .newton import ABSOLUTE, NEAR_ZERO, RELATIVE, narrow
from .straight import LEAST_STEPS, MOST_PHASES, Drawing, bracket_delta, bracket_epsilon, shows_at_most
from .tilts import propose_evidence, propose_line

_REFINEMENTS = 5
_CELLS = 800
_FEW_CELLS = 300  # a law, for runs of very many phases
_MANY_PHASES = 50
LOWEST_LOG_DELTA = -640.0
_FURTHER = 5.0  # times the log delta for which too little was drawn
_USUAL_LOG_DELTA = -24.0
DELTA_WIDTH, _DELTA_LEVELS = 1e-3, 3  # the relative width up to which a delta bracket is refined, and how often
_SIZES = 4  # guesses of a delta's size, each from what the one before has shown
_FEW = 4  # steps of which guesses know little
_LEAST = 0.99 * NEAR_ZERO  # a search that starts there may end there
_MANY_NODES = 25_000  # of a line near zero
_NEARLY = 0.8  # of the least epsilon that is worth a search: from there on it is not
_NO_GAUSSIAN = Bounds(0.0, 0.0)
_NEVER = (math.nan, math.nan, None)  # no look
_SIGHT = 40.0  # a first look serves all deltas down to the next multiple, in the logarithm
_BUCKET = 8.0  # what lending gives is made for one size of delta: logarithms are rounded down to multiples
Look = list[Cells | Laws]  # how each part of a run is seen


def wide(bounds: Bounds | EpsilonBracket | tuple[Array, Array], share: float = 1.0) -> Any:
    """Whether an epsilon bracket is wider than (a share of) what filet promises; an array for arrays."""
    lower, upper = bounds if isinstance(bounds, tuple) else (bounds.lower, bounds.upper)
    narrow = (upper < np.inf) & (upper <= lower + share * np.maximum(RELATIVE * upper, ABSOLUTE))
    return ~(narrow | np.isposinf(lower))


@dataclass(frozen=True)
class Part:
    """One phase: the loss law of a step, how many steps, and the step as lending sees it, if it applies."""

    law: LossLaw
    steps: int
    step: Step | None = None


class Direction:
    """Parts of a run, and Gaussian releases, in one order of the neighbours."""

    def __init__(self, parts: Sequence[Part], gaussian: Bounds = _NO_GAUSSIAN, mirror: Direction | None = None) -> None:
        """`gaussian` bounds the total squared shift; `mirror` is the other order, which may have looked already."""
        self.parts = [part for part in parts if part.steps > 0]
        self.gaussian = gaussian
        self.steps = sum(part.steps for part in self.parts)
        self._about = _rounded_up(self.steps)  # so that runs of nearly as many steps are seen alike
        # Sums of few discrete losses are coarse, so few steps take finer cells.
        self.cells = _CELLS * (4 if self.steps <= 4 else 2 if self.steps <= 30 else 1)
        self._width = 0.1  # of the cells of a first look, in deviations
        if len(self.parts) >= _MANY_PHASES:
            self.cells, self._width = _FEW_CELLS, 0.2
        self._mirror = mirror
        self._looked: tuple[tuple[float, float, float | None], Look] = _NEVER, []
        self._sights: dict[tuple[int, float], Sight] = mirror._sights if mirror else {}
        # What the last question led to, for the same question in the other direction: of each thread its own.
        self._drawn = threading.local()
        self._mirrored = False  # whether the other direction counts too

    def reversed(self) -> Direction:
        """The run with P and Q exchanged."""
        parts = [Part(part.law.reversed(), part.steps, part.step) for part in self.parts]
        self._mirrored = True
        return Direction(parts, self.gaussian, self)

    def see_as(self, other: Direction) -> None:
        """Take over what a run of the same laws has looked at, if it has about as many steps."""
        if self._about == other._about:
            self._looked, self._sights = other._looked, other._sights

    def look(self, log_delta: float, highest: float | None = None) -> Look:
        """Each part in equal cells, or its law by lending where that helps at such deltas; the last look is kept.

        With `highest` the deltas reach from one to the other. What is seen depends on the question alone, not on earlier
        ones; what is kept is replaced as a whole, as threads may share a run.
        """
        lends = any(part.step for part in self.parts)
        key = (self._reach(log_delta), log_delta if lends else 0.0, highest if lends else None)
        known, seen = self._looked
        if _covers(known, key):
            return seen
        if self._mirror:
            seen = [one.reversed() for one in self._mirror.look(log_delta, highest)]
        else:
            query = Query(self._about, log_delta, highest)
            seen = [self._lent(number, query) or equal_cells(part.law, key[0], self._width)
                    for number, part in enumerate(self.parts)]  # fmt: skip
        self._looked = key, seen
        return seen

    def _lent(self, number: int, query: Query) -> Laws | None:
        """What lending gives for one part."""
        first = self._first_look(number, query)
        return first.laws(query) if first else None

    def _first_look(self, number: int, query: Query) -> Seen | None:
        """What a part may lend at the delta of the query; one look serves many deltas."""
        step = self.parts[number].step
        if step is None or not worth_a_look(step, query):
            return None
        key = number, -_SIGHT * math.ceil(-query.log_delta / _SIGHT)
        if key not in self._sights:
            self._sights[key] = Sight.down_to(step, Query(query.steps, key[1]))
        return self._sights[key].seen(query)

    def size(self, epsilon: float) -> float:
        """About log delta(epsilon), by first looks: for which deltas to look closely; without lending, a usual one."""
        query = Query(self._about, -_SIGHT)
        looks = [self._first_look(number, query) for number in range(len(self.parts))]
        if not any(looks):
            return _USUAL_LOG_DELTA
        reach, back = self._reach(_USUAL_LOG_DELTA), self._mirror is not None
        laws = [(seen.coarse(back=back) if seen else discretise_above(equal_cells(part.law, reach, 0.2)), part.steps)
                for seen, part in zip(looks, self.parts, strict=True)]  # fmt: skip
        return self._log_delta(View(laws, self.gaussian.upper, True), epsilon)

    def _reach(self, log_delta: float) -> float:
        """Beyond this many standard deviations the losses of all steps weigh less than e^-10 delta."""
        return math.sqrt(2.0 * (math.log(self._about) - log_delta + 10.0))

    def view(self, look: Look, *, above: bool) -> View:
        """The run on the given cells. What lending gives is discrete as it is, and bounded from both sides as such."""
        discretise = discretise_above if above else discretise_below
        laws = [(one.forward if isinstance(one, Laws) else discretise(one), part.steps)
                for one, part in zip(look, self.parts, strict=True)]  # fmt: skip
        return View(laws, self.gaussian.upper if above else self.gaussian.lower, above)

    # --- epsilon at delta --------------------------------------------------------------------------------------------

    def epsilon(self, delta: float) -> Bounds:
        """Bracket of epsilon(delta)."""
        bracket, budget = EpsilonBracket(delta), Budget()
        drawing = self._draw(bracket.log_delta)
        drawn = drawing.at_delta(bracket.log_delta, both=self._mirrored) if drawing else None
        self._drawn.last = drawn
        led = drawn is not None and bracket_epsilon(self, drawn, bracket, budget)
        if led and not wide(bracket, 0.9):
            return bracket.bounds
        look = self.look(bracket.log_delta)
        first = self.view(look, above=True)
        bracket.crude(first, 0.5 * ABSOLUTE)
        if bracket.upper <= 0.5 * ABSOLUTE or first.infinite >= delta:  # zero, or masses too small to be resolved
            return bracket.bounds
        jump = jump_focus(first, bracket.log_delta, self.cells)
        if jump is not None:
            found, evidence = self._both_views(bracket, look, jump[1], jump[0], 1.0, budget)
            if wide(bracket, 0.9) and not math.isnan(found):
                self._refine(bracket, look, evidence, found, budget, 1)
            if not wide(bracket, 0.9):
                return bracket.bounds
        guess = drawn.guess.epsilon if drawn and led else self._guess(first, bracket.log_delta)
        nearly_gaussian = bulk_focus(first, guess, bracket.log_delta, self.cells)
        if nearly_gaussian is not None:
            self._both_views(bracket, look, nearly_gaussian, guess, 1.0, budget)
            if not wide(bracket, 0.9):
                return bracket.bounds
        found, evidence = narrow(bracket, first, guess, 1.0, budget)
        if math.isnan(found):
            guess = saddle_point(first, bracket.log_delta)
            found, evidence = narrow(bracket, first, guess, 1.0, budget)
        if bracket.upper == math.inf:
            bracket.chernoff(first)
        if bracket.upper > NEAR_ZERO:
            self._refine(bracket, look, evidence, guess if math.isnan(found) else found, budget)
        if wide(bracket, 0.9):
            self._halve(bracket, budget)
        return bracket.bounds

    def _guess(self, first: View, log_delta: float) -> float:
        """Where to look first: near zero only if that is not dear."""
        guess, parts = guess_epsilon(first, log_delta), guess_by_parts(first, log_delta)
        guess = parts if guess > 2.0 * parts else guess  # a trace of large losses misleads
        if not guess < _LEAST:
            return guess
        dear = guess > _NEARLY * _LEAST or (
            propose_line(first.whole, max(guess, 0.0), log_delta, RELATIVE).nodes > _MANY_NODES
        )
        return _LEAST if dear else guess

    def _draw(self, log_delta: float) -> Drawing | None:
        """A sketch of the run for deltas of that size, if it is short enough for one."""
        if len(self.parts) > MOST_PHASES or self.steps < LEAST_STEPS:
            return None
        lent: list[Laws | None] = [None] * len(self.parts)
        if any(part.step for part in self.parts):
            lent = [one if isinstance(one, Laws) else None for one in self.look(log_delta)]
        return Drawing(self, lent, self.gaussian.upper, self._reach(log_delta))

    def _refine(self, bracket: EpsilonBracket, look: Look, evidence: Evidence, start: float, budget: Budget,
                first: int = 0) -> None:  # fmt: skip
        """Ever finer cells, fitted to what was read last."""
        found = math.nan
        for level in range(first, _REFINEMENTS):
            if budget.spent:
                return
            where = focus(evidence, start, self.cells * 2**level)
            if level == 0 and all(
                isinstance(one, Laws) for one in look
            ):  # the same laws again: seen from above already
                narrow(bracket, self.view(look, above=False), min(start, bracket.upper), 1.0, budget)
            else:
                found, evidence = self._both_views(bracket, look, where, start, 2.0**level, budget)
            start = start if math.isnan(found) else found
            if bracket.upper == 0.0 or not wide(bracket, 0.9):
                return

    def _both_views(self, bracket: EpsilonBracket, look: Look, where: Focus, start: float,
                    fineness: float, budget: Budget) -> tuple[float, Evidence]:  # fmt: skip
        """Narrow the bracket from above and from below on fitted cells."""
        cells = _fitted(look, where)
        found, evidence = narrow(bracket, self.view(cells, above=True), start, fineness, budget)
        if bracket.upper > 0.0:
            narrow(bracket, self.view(cells, above=False), min(start, bracket.upper), fineness, budget)
        return found, evidence

    def _halve(self, bracket: EpsilonBracket, budget: Budget) -> None:
        """Narrow a bracket where Newton's method failed (delta may be flat over long stretches of epsilon)."""
        if not math.isfinite(bracket.upper) or budget.spent:
            return
        cells = [one if isinstance(one, Laws) else equal_cells(part.law, self._reach(bracket.log_delta), 0.05)
                 for one, part in zip(self.look(bracket.log_delta), self.parts, strict=True)]  # fmt: skip
        views = [self.view(cells, above=above) for above in (True, False)]
        for _ in range(30):
            middle, before = 0.5 * (bracket.lower + bracket.upper), bracket.bounds
            for view in views:
                if bracket.bounds == before and not budget.spent:
                    evidence = propose_evidence(view, middle, bracket.log_delta, 2.0)
                    budget.spend(evidence.nodes)
                    bracket.read(evidence, middle)
            if bracket.bounds == before or not wide(bracket, 0.9):
                return

    def at_most(self, epsilon: float, delta: float) -> bool:
        """Whether epsilon(delta) <= epsilon is proven by a quick look; False means "not known"."""
        log_delta = math.log(delta)
        drawn = getattr(self._mirror._drawn, "last", None) if self._mirror else None
        if shows_at_most(self, drawn, epsilon, log_delta):
            return True
        first = self.view(self.look(log_delta), above=True)
        if first.infinite <= delta and first.largest <= epsilon:
            return True
        if self.steps > _FEW and guess_log_delta(first, epsilon) > log_delta + 3.0:  # where lines may take long
            return False
        return proves(propose_evidence(first, epsilon, log_delta, 1.0), epsilon, log_delta)

    # --- delta at epsilon --------------------------------------------------------------------------------------------

    def delta(self, epsilon: float) -> Bounds:
        """Bracket of delta(epsilon)."""
        bracket, budget = DeltaBracket(epsilon), Budget()
        if self._straight_delta(bracket):
            return bracket.bounds
        # Laws by lending depend on the size of delta, and have brackets of their own.
        lends, known = any(part.step for part in self.parts), [bracket.bounds]
        bracket = DeltaBracket(epsilon) if lends else bracket
        look, log_delta = self._sized(epsilon)
        first = self.view(look, above=True)
        if self._crude(bracket, look, first, log_delta):
            return bracket.bounds
        for _ in range(_SIZES):
            evidence = propose_evidence(first, epsilon, log_delta, 1.0, of_delta=True)
            bracket.read(evidence, log_delta)
            budget.spend(evidence.nodes)
            seen = max(math.log(bracket.upper), LOWEST_LOG_DELTA)
            if seen > log_delta - 2.0 or budget.spent:
                break
            log_delta = seen  # the guess was far too large, and nothing that was fitted to it is any good
            look = self.look(bucket(log_delta))
            known.append(bracket.bounds)
            first, bracket = self.view(look, above=True), DeltaBracket(epsilon) if lends else bracket
        self._refine_delta(bracket, look, evidence, log_delta, budget)
        return min([bracket.bounds, *known], key=lambda one: (1.0 - one.lower / one.upper, one.upper))

    def _refine_delta(
        self, bracket: DeltaBracket, look: Look, evidence: Evidence, log_delta: float, budget: Budget
    ) -> None:
        """Ever finer cells, fitted to what was read last."""
        for level in range(_DELTA_LEVELS):
            if budget.spent:
                return
            where = focus(evidence, bracket.epsilon, self.cells * 2**level)
            cells = _fitted(look, where)
            for above in (True, False):
                view = self.view(cells, above=above)
                if not view.resolved:
                    continue
                found = propose_evidence(view, bracket.epsilon, log_delta, 2.0**level, of_delta=True)
                bracket.read(found, log_delta)
                if above:
                    evidence = found
                    budget.spend(3 * found.nodes)  # the view from below takes about as many, and is read next
            if bracket.upper - bracket.lower <= DELTA_WIDTH * bracket.upper:
                return

    def _sized(self, epsilon: float) -> tuple[Look, float]:
        """About the logarithm of delta(epsilon), and a look at the losses that matter to such a delta."""
        log_delta = -25.0
        for _ in range(4):
            look = self.look(bucket(log_delta))
            previous, log_delta = log_delta, self._log_delta(self.view(look, above=True), epsilon)
            if abs(log_delta - previous) < 2.0:
                break
        return look, log_delta

    def _straight_delta(self, bracket: DeltaBracket) -> bool:
        """Whether a sketch leads to a bracket as narrow as is promised."""
        log_delta = bucket(self.size(bracket.epsilon))
        for _ in range(3):
            drawing = self._draw(log_delta)
            guesses = drawing.at_epsilon(bracket.epsilon, log_delta, both=self._mirrored) if drawing else None
            if drawing is None or (guesses is None and any(drawing.lent)):
                return False
            if guesses is None:  # too far out for what was drawn
                log_delta = max(_FURTHER * log_delta, LOWEST_LOG_DELTA)
                continue
            about = bucket(guesses[0].log_delta)
            if about == log_delta or (about > log_delta and not any(drawing.lent)):
                self._drawn.last = bracket_delta(self, drawing, guesses, bracket)
                return self._drawn.last is not None
            log_delta = about
        return False

    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float:
        """An upper bound of delta(epsilon) from one coarse look; without lines once the budget is spent."""
        bracket = DeltaBracket(epsilon)
        look = self.look(-25.0)
        first = self.view(look, above=True)
        log_delta = self._log_delta(first, epsilon)
        if log_delta < -35.0 and any(part.step for part in self.parts):
            look = self.look(bucket(log_delta))
            first = self.view(look, above=True)
            log_delta = self._log_delta(first, epsilon)
        if not self._crude(bracket, look, first, log_delta) and not (budget and budget.spent):
            evidence = propose_evidence(first, epsilon, log_delta, 1.0)
            bracket.read(evidence, log_delta)
            if budget:
                budget.spend(evidence.nodes)
        return float(bracket.upper)

    def _log_delta(self, view: View, epsilon: float) -> float:
        return min(-1e-3, max(guess_log_delta(view, epsilon), LOWEST_LOG_DELTA))

    def _crude(self, bracket: DeltaBracket, look: Look, first: View, log_delta: float) -> bool:
        """What is proven without lines, and whether it suffices: where delta is nearly one, or hits are rare."""
        bracket.crude(first)
        if log_delta > -0.5:
            bracket.crude(self.view(look, above=False))
        return bool(bracket.upper - bracket.lower <= DELTA_WIDTH * bracket.upper)


def _covers(known: tuple[float, float, float | None], key: tuple[float, float, float | None]) -> bool:
    """Whether a look serves the question of another: it is the same, or for a range of deltas within its own."""
    if known[2] is None or key[2] is None:
        return known == key
    return known[1] <= key[1] and key[2] <= known[2]


def _rounded_up(steps: int) -> int:
    """By at most a part in 32."""
    rest = max(steps.bit_length() - 6, 0)
    return -(-steps >> rest) << rest


def bucket(log_delta: float) -> float:
    return _BUCKET * math.floor(log_delta / _BUCKET)


def _fitted(look: Look, where: Focus) -> Look:
    return [one if isinstance(one, Laws) else fitted_cells(one, where) for one in look]
