"""The loop: epsilon at delta and delta at epsilon, for one question or thousands.

A coarse grid gives the saddle point, cells are fitted to it, one contour is read from both sides by
Newton's method. Where what is proven is too wide: finer cells, a finer contour, again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..proving.cells import Cells
from ..proving.combining import larger
from ..proving.hull import ProfileNodes
from ..proving.inversion import Inversion
from ..proving.loss_law import Array
from ..proving.pair import Grid, Pair, PhaseLaw
from ..proving.pmf import LossPMF
from ..terms import Brackets
from .contour import Query, choose_inversion, read_weights
from .effort import EFFORT, TOLERANCE
from .grid import refined_grid, tilted_weights, uniform_grid
from .lending import Shares, can_help, choose, coarse_nodes, gain, most_nodes, negligible, refined_nodes
from .question import LOWEST_LOG_DELTA, DeltaQuestion, EpsilonQuestion, Question
from .saddle_point import SaddlePoints

_ROUGHLY = 0.05  # fineness of a contour that only has to show that the other order costs no more
Known = dict[tuple[float, ...], Shares]  # shares by the kind of step


# --- where to start ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """A coarse look at a pair for questions down to one delta: grids, shares of what lends, and the saddle points."""

    pair: Pair
    grids: list[Grid]
    shares: list[Shares | None]
    negligible: float  # a chance that does not matter even if every step has it
    table: SaddlePoints | None = None

    @cached_property
    def coarse(self) -> LossPMF:
        return self.pair.pmf(self.grids, above=True, negligible=self.negligible)

    def pmf(self, grids: list[Grid], *, above: bool = True) -> LossPMF:
        if above and grids is self.grids:
            return self.coarse
        return self.pair.pmf(grids, above=above, negligible=self.negligible)

    def tilt(self, question: Question) -> Array:
        assert self.table is not None
        return np.minimum(self.table.at_epsilon(question.epsilon)[1], question.steepest)

    def fitted(self, question: Question, level: int, inversion: Inversion | None = None) -> list[Grid]:
        """Grids fitted to the questions: by Chernoff's weights, or by those of a contour that was read."""
        if not any(isinstance(grid, Cells) for grid in self.grids):
            return self.grids
        if inversion is None:
            weights = tilted_weights(self.tilt(question), question.epsilon, question.log_delta)
        else:
            weights = read_weights(inversion, max(float(question.epsilon[0]), 1e-9))
        cells = EFFORT.cells // 2 if len(self.pair.phases) >= EFFORT.phases else EFFORT.cells
        cells *= 2 ** (level + (self.pair.steps <= 30 or question.exact))  # sums of few discrete losses are coarse
        return [refined_grid(grid, weights, cells) if isinstance(grid, Cells) else grid for grid in self.grids]


def _reach(pair: Pair, log_delta: float) -> float:
    """Standard deviations beyond which the losses of all steps weigh a small share of delta."""
    return math.sqrt(2.0 * (math.log(pair.steps) - log_delta + TOLERANCE.nats))


def _first_grid(pair: Pair, phase: PhaseLaw, log_delta: float, known: Known | None) -> tuple[Grid, Shares | None]:
    """Nodes of the lending bound where that might help, or a uniform grid; without known shares nothing is lent."""
    step = phase.step if known is not None or phase.law is None else None
    if step is not None and can_help(step, pair.steps, log_delta):
        shares = choose(step, {} if known is None else known)
        nodes = coarse_nodes(step, shares, pair.steps, log_delta)
        return nodes.reversed() if pair.backward else nodes, shares
    assert phase.law is not None
    spacing = EFFORT.spacing * (2.0 if len(pair.phases) >= EFFORT.phases else 1.0)
    return uniform_grid(phase.law, _reach(pair, log_delta), spacing), None


def _coarse(pair: Pair, log_delta: float, known: Known) -> Start:
    """First grids of all phases. Shares depend on the steps alone: those that are known serve any delta and similar steps."""
    for lent in (known, None):
        found = [_first_grid(pair, phase, log_delta, lent) for phase in pair.phases]
        rare = negligible(pair.steps, log_delta)
        start = Start(pair, [grid for grid, _ in found], [shares for _, shares in found], rare)
        # the nodes of bounded losses may end, floats apart, before what is left out is negligible
        if not any(start.shares) or start.coarse.infinite <= TOLERANCE.relative * math.exp(log_delta):
            break
    return start


def _with_lending(start: Start, question: Question) -> Start:
    """Nodes fitted to the answer for the phases whose lending helps; the others on a uniform grid after all."""
    pair, reach = start.pair, _reach(start.pair, float(question.log_delta.min()))
    for _ in range(3):
        before, tilt, grids, shares = question.epsilon, start.tilt(question), list(start.grids), list(start.shares)
        weights = tilted_weights(tilt, question.epsilon, question.log_delta)
        least = float(np.maximum(question.epsilon, 1.0 / tilt).min())
        worth = pair.steps * (float(tilt.max()) + 1.0) / least
        around = question.epsilon[[0, -1]].tolist() if len(grids) < EFFORT.phases else ()
        for number, (grid, own, phase) in enumerate(zip(grids, shares, pair.phases, strict=True)):
            if not isinstance(grid, ProfileNodes):
                continue
            if phase.law is not None and gain(grid, pair.steps, float(tilt.max()), weights) < TOLERANCE.part * least:
                grids[number], shares[number] = uniform_grid(phase.law, reach, EFFORT.spacing), None
            else:
                grids[number] = refined_nodes(
                    grid, own, weights, worth=worth, most=most_nodes(len(grids)), rare=start.negligible, around=around
                )
        start = replace(start, grids=grids, shares=shares)
        start = replace(start, table=question.start(start.coarse))
        if not (np.abs(question.epsilon - before) > 0.03 * before).any():  # else the first nodes were misled
            break
    return start


# --- the loop ---------------------------------------------------------------------------------------------------------


def _solve(pair: Pair, question: Question, known: Known) -> Start:
    """Narrow what is proven of questions of about one size; returned are the coarse grids, for the other order."""
    lowest = float(question.log_delta.min())
    start = _coarse(pair, lowest, known)
    pmf = start.coarse
    settled = question.settled_without_contour(pair, start.grids, pmf)
    if settled.all():
        return start
    open_ = question.part(~settled) if settled.any() else question
    start = replace(start, table=open_.start(pmf))
    if any(isinstance(grid, ProfileNodes) for grid in start.grids):
        start = _with_lending(start, open_)
    smaller = float(open_.log_delta.min()) < lowest - 0.5 * TOLERANCE.nats  # than the grids were made for
    if smaller and lowest > LOWEST_LOG_DELTA:
        start = _solve(pair, open_, known)
    else:
        _refine(start, open_, start.fitted(open_, 0), 0)
    if open_ is not question:
        question.bracket.keep_part(~settled, open_.bracket)
    if isinstance(question, EpsilonQuestion) and np.isinf(question.bracket.upper).any():
        question.bracket.chernoff(pmf)
    return start


def _refine(start: Start, question: Question, grids: list[Grid], level: int) -> None:
    """Ever finer grids and contours; several questions are split where one contour does not settle them all."""
    nodes = 0
    while True:
        inversion = _follow(question, start, start.pmf(grids), level)
        same = inversion.from_below()
        if same.resolved:
            question.read_below(same)
        if question.wide.any():
            _from_below(start, question, grids, level)
        nodes, level = nodes + inversion.nodes, level + 1
        wide = np.flatnonzero(question.wide)
        if not wide.size or nodes > EFFORT.nodes or level >= question.levels:
            return
        if question.epsilon.size > 1:
            _split(start, question, wide, level)
            return
        grids = start.fitted(question, level - 1, inversion)


def _from_below(start: Start, question: Question, grids: list[Grid], level: int) -> None:
    """Lower ends by the dominated discrete loss."""
    pmf = start.pmf(grids, above=False)
    if not pmf.resolved:
        return
    answer = question.epsilon
    _follow(question, start, pmf, level)
    if question.wide.all() and np.isfinite(question.bracket.upper).all():
        below = question.below_the_cliff()
        _follow(below, start, pmf, level)
        question.bracket.keep_part(slice(None), below.bracket)
    question.epsilon = answer  # where upper ends lie; a lower end that was missed says nothing of them


def _split(start: Start, question: Question, wide: Any, level: int) -> None:
    """The open questions in two halves, each with grids of its own."""
    for half in np.array_split(wide, 2):
        if half.size:
            part = question.part(half)
            _refine(start, part, start.fitted(part, level), level)
            question.bracket.keep_part(half, part.bracket)


def _follow(question: Question, start: Start, pmf: LossPMF, level: int) -> Inversion:
    """Read contours near the answer, and others where that has moved too far for the last."""
    ends = [0, -1] if question.epsilon.size > 1 else [0]
    question.follow()
    for _ in range(EFFORT.contours):
        tilts = start.tilt(question)
        query = Query(pmf, question.epsilon[ends], question.log_delta[ends], 2.0**level, question.exact, pmf.above)
        inversion = choose_inversion(query, float(np.sqrt(tilts.min() * tilts.max())))
        if question.read(inversion) <= 2.0:
            break
    return inversion


def lending_used(pair: Pair, delta: float) -> list[Shares | None]:
    """Shares of each phase whose lending lowers epsilon at delta; None for the others."""
    question = EpsilonQuestion(np.array([delta]))
    start = _coarse(pair, math.log(delta), {})
    return _with_lending(replace(start, table=question.start(start.coarse)), question).shares


def epsilon_below(pmf: LossPMF, delta: float) -> float:
    """A proven lower end of epsilon(delta) for a composed loss from below, on finer contours while they help."""
    question = EpsilonQuestion(np.array([delta]))
    start = Start(Pair(()), [], [], 0.0, question.start(pmf))
    for level in range(question.levels // 2):
        before = float(question.bracket.lower[0])
        _follow(question, start, pmf, level)
        if question.bracket.lower[0] <= (1.0 + TOLERANCE.relative) * before:
            break
    return float(question.bracket.lower[0])


def guess_epsilon(pmf: LossPMF, log_delta: float) -> float:
    """An estimate of the epsilon of a composed loss."""
    question = EpsilonQuestion(np.exp(np.array([log_delta])))
    question.start(pmf)
    return float(question.epsilon[0])


# --- both orders of the neighbours ------------------------------------------------------------------------------------


def epsilons(pair: Pair, deltas: Array) -> Brackets:
    """Brackets of epsilon at deltas in increasing order, for both orders of the neighbours."""
    found, known = Brackets(np.zeros(deltas.shape), np.full(deltas.shape, np.inf)), Known()
    for some in _groups(np.log(deltas)):
        found.lower[some], found.upper[some] = _both_orders(pair, EpsilonQuestion(deltas[some]), known)
    return found


def deltas(pair: Pair, epsilons: Array, *, both: bool = True) -> Brackets:
    """Brackets of delta at epsilons in increasing order, for both orders of the neighbours or for this one alone."""
    found = Brackets(np.zeros(epsilons.shape), np.ones(epsilons.shape))
    log_delta, known = _sizes(pair, epsilons)
    for some in _groups(log_delta):
        question = DeltaQuestion(epsilons[some])
        question.log_delta = log_delta[some]
        if both:
            found.lower[some], found.upper[some] = _both_orders(pair, question, known)
        else:
            _solve(pair, question, known)
            found.lower[some], found.upper[some] = question.bracket.lower, question.bracket.upper
    return found


def _groups(log_delta: Array) -> list[slice]:
    """Runs of questions, in order, whose log deltas are within the range that one contour serves."""
    starts = [0]
    for place in range(1, log_delta.size):
        if abs(log_delta[place] - log_delta[starts[-1]]) > EFFORT.group:
            starts.append(place)
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], log_delta.size], strict=True)]


def _sizes(pair: Pair, epsilons: Array) -> tuple[Array, Known]:
    """Estimates of log delta, by coarse grids that reach further until they cover them; and what lends."""
    lowest, known, question = -EFFORT.group, Known(), DeltaQuestion(epsilons)
    for _ in range(6):
        question.start(_coarse(pair, lowest, known).coarse)
        further = float(question.log_delta.min())
        if further >= lowest or lowest <= LOWEST_LOG_DELTA:
            break
        lowest = max(1.2 * further, LOWEST_LOG_DELTA)
    return question.log_delta, known


def _both_orders(pair: Pair, question: Question, known: Known) -> Brackets:
    """Solve the questions for a pair, then show that the other order costs no more, as it rarely does, or solve it too."""
    start = _solve(pair, question, known)
    found = Brackets(question.bracket.lower, question.bracket.upper)
    if pair.symmetric:
        return found
    other = question.again(found.upper)
    unsure = np.ones(found.upper.shape, bool)
    if start.table is not None and np.isfinite(other.epsilon).all():
        back = replace(start, pair=pair.reversed())
        pmf = back.pmf([grid.reversed() for grid in start.grids])
        ends = [0, -1] if other.epsilon.size > 1 else [0]
        query = Query(pmf, other.epsilon[ends], other.log_delta[ends], _ROUGHLY, other.exact, False)
        tilts = back.tilt(other)
        unsure = ~other.shown(choose_inversion(query, float(np.sqrt(tilts.min() * tilts.max()))), found.upper)
    if unsure.any():
        part = question.part(unsure)
        _solve(pair.reversed(), part, known)
        other.bracket.keep_part(unsure, part.bracket)
    return larger(found, Brackets(other.bracket.lower, other.bracket.upper))
