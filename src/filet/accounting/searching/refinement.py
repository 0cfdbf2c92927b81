"""Answers for a run in one direction: cells are refined and lines read until what is proven is narrow enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._rounding import CLOSED_FORM_ERROR
from ..proving.cells import Cells, discretise_above, discretise_below
from ..proving.closed_form import ClosedForm, HullStep, OneStep
from ..proving.lending import Step
from ..proving.loss_law import Array, LossLaw
from ..proving.verdict import DeltaBracket, EpsilonBracket, Evidence, proves
from ..proving.view import View
from ..terms import Bounds
from .budget import Budget
from .grids import Focus, equal_cells, fitted_cells
from .guesses import bulk_focus, focus, gaussian_epsilon, guess_epsilon, guess_log_delta, saddle_point
from .lending_shares import Laws, Query
from .lending_shares import laws as lending_laws
from .newton import NEAR_ZERO, narrow
from .straight import LEAST_STEPS, MOST_PHASES, Drawing, Drawn, bracket_delta, bracket_epsilon, shows_at_most
from .tilts import propose_evidence

_REFINEMENTS = 5
_CELLS = 800
_FEW_CELLS = 300  # a law, for runs of very many phases
_MANY_PHASES = 50
_LOWEST_LOG_DELTA = -640.0
_USUAL_LOG_DELTA = -24.0
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4  # the promised width of an epsilon bracket
DELTA_WIDTH, _DELTA_LEVELS = 1e-3, 3  # the relative width up to which a delta bracket is refined, and how often
_NO_GAUSSIAN = Bounds(0.0, 0.0)
_NEVER = (math.nan, math.nan, None)  # no look
Look = list[Cells | Laws]  # how each part of a run is seen
_CLOSE = 1e-11  # of epsilon: how far from a guess a closed form is read
_SPREAD = 65  # points of one look at a closed form


def wide(bounds: Bounds | EpsilonBracket | tuple[Array, Array], share: float = 1.0) -> Any:
    """Whether an epsilon bracket is wider than (a share of) what filet promises; an array for arrays."""
    lower, upper = bounds if isinstance(bounds, tuple) else (bounds.lower, bounds.upper)
    with np.errstate(invalid="ignore"):
        narrow = (upper < np.inf) & (upper - lower <= share * np.maximum(_RELATIVE * upper, _ABSOLUTE))
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
        # Sums of few discrete losses are coarse, so few steps take finer cells.
        self.cells = _CELLS * (4 if self.steps <= 4 else 2 if self.steps <= 30 else 1)
        self._width = 0.1  # of the cells of a first look, in deviations
        if len(self.parts) >= _MANY_PHASES:
            self.cells, self._width = _FEW_CELLS, 0.2
        self._mirror = mirror
        self._looked: tuple[tuple[float, float, float | None], Look] = _NEVER, []
        self._drawn: Drawn | None = None
        self._mirrored = False  # whether the other direction counts too

    def reversed(self) -> Direction:
        """The run with P and Q exchanged."""
        parts = [Part(part.law.reversed(), part.steps, part.step) for part in self.parts]
        self._mirrored = True
        return Direction(parts, self.gaussian, self)

    def look(self, log_delta: float, highest: float | None = None) -> Look:
        """Each part in equal cells, or its law by lending where that helps at such deltas; the last look is kept.

        With `highest` the deltas reach from one to the other. (It is replaced as a whole, as threads may share a run.)
        """
        lends = any(part.step for part in self.parts)
        key = (self._reach(log_delta), log_delta if lends else 0.0, highest if lends else None)
        known, seen = self._looked
        if known == key:
            return seen
        known, seen = self._mirror._looked if self._mirror else (_NEVER, [])
        if known == key:
            seen = [one.reversed() for one in seen]
        else:
            query = Query(self.steps, log_delta, highest)
            seen = [(part.step and self._lent(part, query)) or equal_cells(part.law, key[0], self._width)
                    for part in self.parts]  # fmt: skip
        self._looked = key, seen
        return seen

    def _lent(self, part: Part, query: Query) -> Laws | None:
        found = lending_laws(part.step, query) if part.step else None
        return found.reversed() if found and self._mirror else found

    def _reach(self, log_delta: float) -> float:
        """Beyond this many standard deviations the losses of all steps weigh less than e^-10 delta."""
        return math.sqrt(2.0 * (math.log(self.steps) - log_delta + 10.0))

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
        self._drawn = drawing.at_delta(bracket.log_delta, both=self._mirrored) if drawing else None
        if self._drawn and bracket_epsilon(self, self._drawn, bracket, budget) and not wide(bracket, 0.9):
            return bracket.bounds
        look = self.look(bracket.log_delta)
        first = self.view(look, above=True)
        bracket.crude(first, 0.5 * _ABSOLUTE)
        if bracket.upper <= 0.5 * _ABSOLUTE or first.infinite >= delta:  # zero, or masses too small to be resolved
            return bracket.bounds
        guess = guess_epsilon(first, bracket.log_delta)
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

    def _draw(self, log_delta: float) -> Drawing | None:
        """A sketch of the run for deltas of that size, if it is short enough for one."""
        if len(self.parts) > MOST_PHASES or self.steps < LEAST_STEPS:
            return None
        lent: list[Laws | None] = [None] * len(self.parts)
        if any(part.step for part in self.parts):
            lent = [one if isinstance(one, Laws) else None for one in self.look(log_delta)]
        return Drawing(self, lent, self.gaussian.upper, self._reach(log_delta))

    def _refine(self, bracket: EpsilonBracket, look: Look, evidence: Evidence, start: float, budget: Budget) -> None:
        """Ever finer cells, fitted to what was read last."""
        for level in range(_REFINEMENTS):
            if budget.spent:
                return
            where = focus(evidence, start, self.cells * 2**level)
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
        if shows_at_most(self, self._mirror._drawn if self._mirror else None, epsilon, log_delta):
            return True
        first = self.view(self.look(log_delta), above=True)
        if first.infinite <= delta and first.largest <= epsilon:
            return True
        if guess_log_delta(first, epsilon) > log_delta + 3.0:  # far from it, where lines may take long
            return False
        return proves(propose_evidence(first, epsilon, log_delta, 1.0), epsilon, log_delta)

    # --- delta at epsilon --------------------------------------------------------------------------------------------

    def delta(self, epsilon: float) -> Bounds:
        """Bracket of delta(epsilon)."""
        bracket, budget = DeltaBracket(epsilon), Budget()
        if self._straight_delta(bracket):
            return bracket.bounds
        log_delta = -25.0
        for _ in range(4):  # find the size of the answer, and how far out the losses matter
            look = self.look(8.0 * math.floor(log_delta / 8.0))
            first = self.view(look, above=True)
            previous, log_delta = log_delta, self._log_delta(first, epsilon)
            if abs(log_delta - previous) < 2.0:
                break
        if self._crude(bracket, look, first, log_delta):
            return bracket.bounds
        evidence = propose_evidence(first, epsilon, log_delta, 1.0)
        bracket.read(evidence, log_delta)
        budget.spend(evidence.nodes)
        for level in range(_DELTA_LEVELS):
            if budget.spent:
                break
            where = focus(evidence, epsilon, self.cells * 2**level)
            cells = _fitted(look, where)
            evidence = propose_evidence(self.view(cells, above=True), epsilon, log_delta, 2.0**level)
            bracket.read(evidence, log_delta)
            budget.spend(3 * evidence.nodes)  # the view from below takes about as many, and is read next
            below = self.view(cells, above=False)
            if below.resolved:
                bracket.read(propose_evidence(below, epsilon, log_delta, 2.0**level), log_delta)
            if bracket.upper - bracket.lower <= DELTA_WIDTH * bracket.upper:
                break
        return bracket.bounds

    def _straight_delta(self, bracket: DeltaBracket) -> bool:
        """Whether a sketch leads to a bracket as narrow as is promised."""
        log_delta = _USUAL_LOG_DELTA
        for _ in range(3):
            drawing = self._draw(log_delta)
            guesses = drawing.at_epsilon(bracket.epsilon, log_delta, both=self._mirrored) if drawing else None
            if drawing is None or guesses is None:
                return False
            about = 8.0 * math.floor(guesses[0].log_delta / 8.0)
            if about == log_delta or (about > log_delta and not any(drawing.lent)):
                self._drawn = bracket_delta(self, drawing, guesses, bracket)
                return self._drawn is not None
            log_delta = about
        return False

    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float:
        """An upper bound of delta(epsilon) from one coarse look; without lines once the budget is spent."""
        bracket = DeltaBracket(epsilon)
        look = self.look(-25.0)
        first = self.view(look, above=True)
        log_delta = self._log_delta(first, epsilon)
        if log_delta < -35.0 and any(
            part.step for part in self.parts
        ):  # what lending gives is made for one size of delta
            look = self.look(8.0 * math.floor(log_delta / 8.0))
            first = self.view(look, above=True)
            log_delta = self._log_delta(first, epsilon)
        if not self._crude(bracket, look, first, log_delta) and not (budget and budget.spent):
            evidence = propose_evidence(first, epsilon, log_delta, 1.0)
            bracket.read(evidence, log_delta)
            if budget:
                budget.spend(evidence.nodes)
        return float(bracket.upper)

    def _log_delta(self, view: View, epsilon: float) -> float:
        return min(-1e-3, max(guess_log_delta(view, epsilon), _LOWEST_LOG_DELTA))

    def _crude(self, bracket: DeltaBracket, look: Look, first: View, log_delta: float) -> bool:
        """What is proven without lines, and whether it suffices: where delta is nearly one, or hits are rare."""
        bracket.crude(first)
        if log_delta > -0.5:
            bracket.crude(self.view(look, above=False))
        return bool(bracket.upper - bracket.lower <= DELTA_WIDTH * bracket.upper)


def _fitted(look: Look, where: Focus) -> Look:
    return [one if isinstance(one, Laws) else fitted_cells(one, where) for one in look]


class Exact:
    """The same questions to a run that has a closed form."""

    def __init__(self, form: ClosedForm, shift: float = math.nan) -> None:
        """`shift` is that of a Gaussian mechanism, if it is one."""
        self.form, self._shift = form, shift

    def deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Lower and upper bounds of delta at several epsilons."""
        return self.form.delta_bounds(epsilons)

    def delta(self, epsilon: float) -> Bounds:
        lower, upper = self.form.delta_bounds(np.array([epsilon]))
        return Bounds(float(lower[0]), float(upper[0]))

    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float:
        return self.delta(epsilon).upper

    def at_most(self, epsilon: float, delta: float) -> bool:
        return self.delta(epsilon).upper <= delta

    def epsilon(self, delta: float) -> Bounds:
        """Bracket of epsilon(delta): look at ever closer points around where delta crosses the goal."""
        bracket = EpsilonBracket(delta)
        if self._shift > 0.0:
            guess, slope = gaussian_epsilon(self._shift, delta)
            around = guess * _CLOSE - 4.0 * CLOSED_FORM_ERROR / min(slope, -1e-300)
            bracket.read_exact(self.form, np.maximum([guess - around, guess + around], 0.0))
            if bracket.upper - bracket.lower <= 1e-6 * bracket.upper:
                return bracket.bounds
        bracket.read_exact(self.form, np.zeros(1))
        if bracket.upper == 0.0:
            return bracket.bounds
        bracket.read_exact(self.form, np.geomspace(1e-12, 1e18, 2 * _SPREAD))
        for _ in range(40):
            low, high = bracket.lower, bracket.upper
            if not (0.0 < high < math.inf) or high - low <= 1e-9 * high:
                break
            ratio = high / low if low > 0.0 else math.inf
            points = np.geomspace(low, high, _SPREAD) if 2.0 < ratio < math.inf else np.linspace(low, high, _SPREAD)
            bracket.read_exact(self.form, points)
            if (bracket.lower, bracket.upper) == (low, high):
                break
        return bracket.bounds


class OneStepAnswers:
    """The same questions to a run of one step, whose profile is known: that of its law, or of lending where it is less."""

    def __init__(self, direction: Direction) -> None:
        self._direction = direction

    def exact(self, log_delta: float, highest: float | None = None) -> Exact:
        """The profile for questions about a delta, or about all deltas up to a `highest`."""
        (seen,) = self._direction.look(log_delta, highest)
        law = self._direction.parts[0].law
        return Exact(HullStep(seen.forward) if isinstance(seen, Laws) else OneStep(law))

    def epsilon(self, delta: float) -> Bounds:
        return self.exact(math.log(delta)).epsilon(delta)

    def delta(self, epsilon: float) -> Bounds:
        plain = Exact(OneStep(self._direction.parts[0].law)).delta(epsilon)
        if plain.upper <= math.exp(_LOWEST_LOG_DELTA) or self._direction.parts[0].step is None:
            return plain
        lent = self.exact(8.0 * math.floor(math.log(plain.upper) / 8.0)).delta(epsilon)
        return Bounds(min(plain.lower, lent.lower), min(plain.upper, lent.upper))

    def deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Lower and upper bounds of delta at several epsilons."""
        plain = Exact(OneStep(self._direction.parts[0].law)).deltas(epsilons)
        sizes = np.log(np.maximum(plain[1], math.exp(_LOWEST_LOG_DELTA)))
        if self._direction.parts[0].step is None or sizes.max() <= _LOWEST_LOG_DELTA:
            return plain
        lent = self.exact(8.0 * math.floor(float(sizes.min()) / 8.0), float(sizes.max())).deltas(epsilons)
        return np.minimum(plain[0], lent[0]), np.minimum(plain[1], lent[1])

    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float:
        return self.delta(epsilon).upper

    def at_most(self, epsilon: float, delta: float) -> bool:
        return self.exact(math.log(delta)).at_most(epsilon, delta)
