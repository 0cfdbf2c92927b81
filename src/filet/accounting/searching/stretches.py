"""Many questions to one run in one direction: few lines, on cells shared by a stretch of epsilons, answer them all.

A line whose period is long enough serves epsilons far from the one it was made for. A chart holds such lines on coarse
cells; it says which line suits which question, and where to look. Cells are then fitted to each line's stretch, and all
its questions are read at once, from above and from below. Nothing rests on the chart: each answer is what its own
readings prove, and questions that stay wide are asked one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..proving.line import LinePlan
from ..proving.loss_law import Array
from ..proving.verdict import DeltaBracket, EpsilonBracket, Evidence
from ..proving.view import View
from ..terms import Bounds
from .budget import Budget
from .grids import Focus, any_of, fitted_cells
from .guesses import focus, guess_epsilon, guess_log_delta
from .lending_looks import Laws
from .refinement import DELTA_WIDTH, Direction, Look, wide
from .tilts import propose_evidence

_LONGER = 1.75  # times the period that one epsilon would need
_FINER = 0.7  # times the shift that one epsilon would need: smoothing matters more further out
_LADDER = 2.0 ** np.array([-5.0, -3.0, -2.0, -1.5, -1.0, -0.7, -0.5, -0.3, -0.2, -0.1, -0.05,
                           0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0])  # of tilts around a line  # fmt: skip
_MOST_LINES = 8  # of one chart
_SHARE = 2e-4  # of a reading that may be error where a line is used
_POINTS = 33  # of a chart, if epsilons are not given
_MARGIN = 0.03  # of epsilon, beyond the guesses at both ends of a chart
_WIDER = 4  # times a chart may be made wider
_MORE = 4  # times the cells of one question, where delta is asked for
_LEVELS = 4  # of ever shorter stretches, before questions are asked one by one
_READINGS = 6
_LOWEST_LOG_DELTA = -640.0
_TOLERANCE = 1e-6  # steps of Newton's method that are not worth taking, as a share of epsilon
_NARROW_DELTA = 1e-3  # the relative width up to which a delta bracket is refined
_LENT = 30.0  # how far the logarithms of deltas may be apart that one law by lending serves
_NEGLIGIBLE = 5e-5  # epsilons that need no line
Answers = tuple[Array, Array]  # lower and upper bounds


class Chart:
    """Lines on one view, each good for a stretch of epsilons, and what they read there."""

    def __init__(self, view: View) -> None:
        self.view, self.lines = view, list[Evidence]()

    def cover(self, epsilons: Array) -> tuple[Array, Array]:
        """Add lines until every epsilon (in increasing order) has one; log delta, and which line, or -1."""
        log_delta, share, best = (
            np.full(epsilons.shape, np.nan),
            np.full(epsilons.shape, np.inf),
            np.full(epsilons.shape, -1),
        )
        for number in range(len(self.lines)):
            self._read(number, epsilons, log_delta, share, best)
        failed, reach = np.zeros(epsilons.shape, bool), math.inf
        while len(self.lines) < _MOST_LINES:
            unread = (share > _SHARE) & ~failed
            if not unread.any():
                break
            first = int(np.argmax(unread))
            run = np.flatnonzero(~unread[first:])
            low, high = float(epsilons[first]), float(epsilons[first + int(run[0]) - 1 if run.size else -1])
            at = int(np.argmin(np.abs(epsilons - min(low + reach, 0.5 * (low + high)))))
            guess = _log_delta(self.view, float(epsilons[at]))
            if guess <= _LOWEST_LOG_DELTA:  # nothing is left out there that a line could read
                failed[at:] = True
                continue
            evidence = propose_evidence(self.view, float(epsilons[at]), guess, 1.0, stretch=True)
            self.lines.append(longer(evidence, self.view, _LONGER))
            good = self._read(len(self.lines) - 1, epsilons, log_delta, share, best)
            failed[at] = not good[at]
            reach = 0.5 * float(np.ptp(epsilons[good])) if good.any() else 0.0
        return log_delta, np.where(share <= _SHARE, best, -1)

    def _read(self, number: int, epsilons: Array, log_delta: Array, share: Array, best: Array) -> Any:
        """Read a line at all epsilons and note where it is better than those before; where it is good."""
        evidence = self.lines[number]
        unit = np.max([line.log_unit(epsilons) for line in evidence.lines], axis=0)
        verdict = evidence.delta_bound(epsilons, unit)
        own = np.where(verdict.bound > 0.0, verdict.error / verdict.bound, np.inf)
        better = own < share
        log_delta[better] = (np.log(verdict.bound) + unit)[better]
        share[better], best[better] = own[better], number
        return own <= _SHARE


def longer(evidence: Evidence, view: View, times: float = 1.0) -> Evidence:
    """The lines of some evidence on another view, with a longer period, and tilts for any alias."""
    finer = 1.0 if times == 1.0 else _FINER
    plans = [LinePlan(line.c, line.s * finer, line.beta, line.period * times, np.append(0.0, line.c * _LADDER))
             for line in evidence.lines]  # fmt: skip
    return Evidence(view, plans, *evidence.caps)


# --- epsilon at delta -------------------------------------------------------------------------------------------------


def epsilons(direction: Direction, deltas: Array) -> Answers:
    """Brackets of epsilon at deltas in increasing order."""
    parts = [_epsilons(direction, deltas[part]) for part in _alike(direction, np.log(deltas))]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _alike(direction: Direction, log_delta: Array) -> list[Any]:
    """Questions that one look serves: what lending gives is made for deltas that are not too far apart."""
    if not any(part.step for part in direction.parts):
        return [np.arange(log_delta.size)]
    kind = np.floor(log_delta / _LENT)
    return [np.flatnonzero(kind == one) for one in np.unique(kind)]


def _epsilons(direction: Direction, deltas: Array) -> Answers:
    """Brackets of epsilon at deltas that one look serves."""
    log_delta = np.log(deltas)
    look = direction.look(*_span(log_delta))
    first = direction.view(look, above=True)
    crude = EpsilonBracket(deltas)
    crude.crude(first, _NEGLIGIBLE)
    lower, upper = crude.lower, crude.upper
    asked = np.flatnonzero((upper > _NEGLIGIBLE) & (first.infinite < deltas))
    chart = Chart(first)
    start, best = _charted(chart, log_delta[asked])
    for number, evidence in enumerate(chart.lines):
        mine = best == number
        if mine.any():
            found = _solve(direction, look, evidence, deltas[asked[mine]], start[mine])
            lower[asked[mine]], upper[asked[mine]] = _both((lower[asked[mine]], upper[asked[mine]]), found)
    for one in asked[wide((lower[asked], upper[asked]), 0.9)]:
        lower[one], upper[one] = _asked_alone(
            direction, (lower[one], upper[one]), direction.epsilon(float(deltas[one]))
        )
    return lower, upper


def _span(log_delta: Array) -> tuple[float, float]:
    """Whence and whither a look reaches: rounded, so that other questions about such deltas find the same."""
    return 8.0 * math.floor(float(log_delta.min()) / 8.0), min(2.0 * math.ceil(float(log_delta.max()) / 2.0), -0.5)


def at_most(direction: Direction, epsilons: Array, deltas: Array) -> Array:
    """Upper bounds of epsilon at deltas from one coarse look, mostly the epsilons given: infinite means "not known"."""
    log_delta = np.log(deltas)
    first = direction.view(direction.look(*_span(log_delta)), above=True)
    crude = EpsilonBracket(deltas)
    crude.crude(first, _NEGLIGIBLE)
    upper = np.where(crude.upper <= epsilons, crude.upper, np.inf)
    for _ in range(_MOST_LINES):
        left = np.flatnonzero(upper == np.inf)
        if not left.size:
            break
        at = left[left.size // 2]
        if guess_log_delta(first, float(epsilons[at])) > log_delta[at] + 3.0:  # far from it, where lines may take long
            break
        evidence = propose_evidence(first, float(epsilons[at]), float(log_delta[at]), 1.0, stretch=True)
        bracket = EpsilonBracket(deltas[left])
        bracket.read(longer(evidence, first, _LONGER), epsilons[left])
        upper[left] = bracket.upper
        if upper[at] == np.inf:  # not even there
            break
    return upper


def _both(one: Answers | Bounds, other: Answers | Bounds) -> Answers:
    return np.maximum(one[0], other[0]), np.minimum(one[1], other[1])


def _asked_alone(direction: Direction, known: Any, alone: Bounds) -> Any:
    """What is known once a question was asked alone: where lending helps, that one's law has a bracket of its own."""
    return alone if any(part.step for part in direction.parts) else _both(known, alone)


def _charted(chart: Chart, log_delta: Array) -> Answers:
    """About where epsilon lies at each delta (increasing), and the chart's line for it, or -1."""
    if not log_delta.size:
        return log_delta, log_delta
    low, high = (max(0.0, guess_epsilon(chart.view, float(log_delta[i]))) for i in (-1, 0))
    low, high = low * (1 - _MARGIN), max(high, low) * (1 + _MARGIN) + _NEGLIGIBLE
    for _ in range(_WIDER):
        grid = np.linspace(low, high, _POINTS)
        values, best = chart.cover(grid)
        known = best >= 0
        if not known.any():
            break
        missing_low, missing_high = (
            values[known].max() < log_delta[-1] and low > 0.0,
            values[known].min() > log_delta[0],
        )
        if not (missing_low or missing_high):
            break
        low, high = max(0.0, low - missing_low * 0.5 * (high - low)), high + missing_high * 0.5 * (high - low)
    if not known.any():
        return np.zeros(log_delta.shape), np.full(log_delta.shape, -1)
    falling = np.minimum.accumulate(values[known])
    start = np.interp(-log_delta, -falling, grid[known])
    nearest = best[known][np.clip(np.searchsorted(-falling, -log_delta), 0, falling.size - 1)]
    return start, nearest


def _solve(
    direction: Direction, look: Look, evidence: Evidence, deltas: Array, start: Array, level: int = 0
) -> Answers:
    """Brackets of epsilon for deltas that one line serves, on cells fitted to their stretch."""
    bracket = EpsilonBracket(deltas)
    cells = _fitted(look, _stretch_focus(evidence, start, direction.cells * 2 ** min(level, 2)))
    for above in (True, False):
        view = direction.view(cells, above=above)
        for lines in _lines(evidence, view, start, bracket.log_delta, level) if view.resolved else ():
            start = np.minimum(_newton(bracket, lines, start), bracket.upper)
            if above and (below := lines.from_below()).resolved:  # of laws by lending
                _newton(bracket, below, start)
        if not wide((bracket.lower, bracket.upper), 0.9).any():
            break
    lower, upper = bracket.lower, bracket.upper
    for part in _halves(start, wide((lower, upper), 0.9), level):
        near = _made_for(evidence.view, start[part], bracket.log_delta[part])
        finer = _solve(direction, look, near, deltas[part], start[part], level + 1)
        lower[part], upper[part] = _both((lower[part], upper[part]), finer)
    return lower, upper


def _newton(bracket: EpsilonBracket, evidence: Evidence, start: Array) -> Array:
    """Newton's method for all deltas at once, in the logarithm of delta; where it ended."""
    epsilon, side = start, 1.0 if evidence.above else -1.0
    for _ in range(_READINGS):
        verdict = bracket.read(evidence, epsilon)
        tolerance = _TOLERANCE * np.maximum(epsilon, 0.1)
        known = (verdict.bound > 0.0) & (verdict.slope < 0.0)
        step = np.where(known, -np.log(verdict.bound) * verdict.bound / verdict.slope, 0.0)
        good = (verdict.bound <= 1.0) if evidence.above else (verdict.bound >= 1.0)
        if ((good & (np.abs(step) <= tolerance)) | ~known | (good & (epsilon == 0.0))).all():
            break
        step = np.clip(step + 0.5 * side * tolerance, -4.0 / evidence.c, 4.0 / evidence.c)
        epsilon = np.maximum(epsilon + np.where(known, step, 0.0), 0.0)
    return epsilon


def _lines(evidence: Evidence, view: View, epsilons: Array, log_delta: Array, level: int) -> Iterator[Evidence]:
    """Lines for a stretch of epsilons: the chart's own, and where these were not enough, finer ones made for this view."""
    yield longer(evidence, view)
    if level:
        yield _made_for(view, epsilons, log_delta, 2.0**level)


def _made_for(view: View, epsilons: Array, log_delta: Array, fineness: float = 1.0) -> Evidence:
    """Lines for the middle of some epsilons."""
    at = int(np.argmin(np.abs(epsilons - 0.5 * (epsilons.min() + epsilons.max()))))
    return longer(
        propose_evidence(view, float(epsilons[at]), float(log_delta[at]), fineness, stretch=True), view, _LONGER
    )


def _halves(epsilons: Array, left: Array, level: int) -> list[Any]:
    """The questions that are left, in two shorter stretches; none once they have been cut often enough."""
    if level + 1 >= _LEVELS or not left.any():
        return []
    some = epsilons[left]
    low = left & (epsilons <= 0.5 * (some.min() + some.max()))
    return [part for part in (low, left & ~low) if part.any()]


def _fitted(look: Look, where: Focus) -> Look:
    return [one if isinstance(one, Laws) else fitted_cells(one, where) for one in look]


def _stretch_focus(evidence: Evidence, epsilons: Array, cells: int) -> Focus:
    """Which losses matter to any of several epsilons: the largest of their weights, each relative to its own delta."""
    some = np.unique(np.maximum(np.quantile(epsilons, [0.0, 0.5, 1.0]), 1e-3 * epsilons.max() + 1e-9))
    parts = [focus(evidence, float(one), cells) for one in some]
    return any_of(parts, [float(np.interp(0.0, part.loss, part.log_weight)) for part in parts], cells)


# --- delta at epsilon -------------------------------------------------------------------------------------------------


def deltas(direction: Direction, epsilons: Array) -> Answers:
    """Brackets of delta at epsilons in increasing order."""
    look, first = _look(direction, epsilons)
    chart = Chart(first)
    log_delta, best = chart.cover(epsilons)
    parts = _alike(direction, np.nan_to_num(log_delta, nan=_LOWEST_LOG_DELTA))
    if len(parts) == 1:
        return _deltas(direction, epsilons, look, chart, log_delta, best)
    lower, upper = np.zeros(epsilons.shape), np.ones(epsilons.shape)
    for part in parts:
        look, first = _look(direction, epsilons[part])
        chart = Chart(first)
        log_delta, best = chart.cover(epsilons[part])
        lower[part], upper[part] = _deltas(direction, epsilons[part], look, chart, log_delta, best)
    return lower, upper


def _deltas(direction: Direction, epsilons: Array, look: Look, chart: Chart, log_delta: Array, best: Array) -> Answers:
    """Brackets of delta at epsilons that one look serves."""
    lower, upper = np.zeros(epsilons.shape), np.ones(epsilons.shape)
    for number, evidence in enumerate(chart.lines):
        mine = np.flatnonzero(best == number)
        if mine.size:
            lower[mine], upper[mine] = _read(direction, look, evidence, epsilons[mine], log_delta[mine])
    crude = np.flatnonzero(best < 0)
    if crude.size:
        bracket = DeltaBracket(epsilons[crude])
        bracket.crude(chart.view)
        lower[crude], upper[crude] = bracket.lower, bracket.upper
    beyond = upper <= math.exp(_LOWEST_LOG_DELTA)  # so small that nothing more is proven
    for one in np.flatnonzero((upper - lower > max(_NARROW_DELTA, DELTA_WIDTH) * upper) & ~beyond):
        lower[one], upper[one] = _asked_alone(
            direction, (lower[one], upper[one]), direction.delta(float(epsilons[one]))
        )
    return lower, upper


def upper_deltas(direction: Direction, epsilons: Array, budget: Budget) -> Array:
    """Upper bounds of delta at epsilons in increasing order, as near as one look gives them."""
    look, first = _look(direction, epsilons)
    chart, upper = Chart(first), np.ones(epsilons.shape)
    log_delta, best = chart.cover(epsilons)
    for number, evidence in enumerate(chart.lines):
        mine = np.flatnonzero(best == number)
        if mine.size:
            cells = _fitted(look, _stretch_focus(evidence, epsilons[mine], direction.cells))
            bracket = DeltaBracket(epsilons[mine])
            bracket.read(longer(evidence, direction.view(cells, above=True)), log_delta[mine])
            upper[mine] = bracket.upper
    for one in np.flatnonzero((best < 0) | (upper == 1.0)):
        upper[one] = direction.quick_delta(float(epsilons[one]), budget)
    return upper


def _look(direction: Direction, epsilons: Array) -> tuple[Look, View]:
    """Cells that reach as far out as the smallest delta takes."""
    asked = np.array([direction.size(float(epsilons[-1])), direction.size(float(epsilons[0]))])
    for _ in range(4):
        look = direction.look(*_span(asked))
        first = direction.view(look, above=True)
        before, asked = asked, np.array([_log_delta(first, float(epsilons[i])) for i in (-1, 0)])
        if np.abs(asked - before).max() < 2.0:
            break
    return look, first


def _log_delta(view: View, epsilon: float) -> float:
    return min(-1e-3, max(guess_log_delta(view, epsilon), _LOWEST_LOG_DELTA))


def _read(direction: Direction, look: Look, evidence: Evidence, epsilons: Array, log_delta: Array,
          level: int = 0) -> Answers:  # fmt: skip
    """Brackets of delta for epsilons that one line serves, on cells fitted to their stretch."""
    bracket = DeltaBracket(epsilons)
    cells = _fitted(look, _stretch_focus(evidence, epsilons, _MORE * direction.cells))
    for above in (True, False):
        view = direction.view(cells, above=above)
        for lines in _lines(evidence, view, epsilons, log_delta, level) if view.resolved else ():
            bracket.read(lines, log_delta)
            if above and (below := lines.from_below()).resolved:
                bracket.read(below, log_delta)
        if (bracket.upper - bracket.lower <= _NARROW_DELTA * bracket.upper).all():
            break
    lower, upper = bracket.lower, bracket.upper
    for part in _halves(epsilons, upper - lower > _NARROW_DELTA * upper, level):
        near = _made_for(evidence.view, epsilons[part], log_delta[part])
        finer = _read(direction, look, near, epsilons[part], log_delta[part], level + 1)
        lower[part], upper[part] = _both((lower[part], upper[part]), finer)
    return lower, upper
