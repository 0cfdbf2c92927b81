"""Lines to read: tilt, period and smoothing shift for queries near an epsilon, with a cap where no tilt would do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..proving.composition import Composition
from ..proving.line import LinePlan, log_peak
from ..proving.loss_law import Array
from ..proving.verdict import Evidence
from ..proving.view import View
from .guesses import saddle
from .jumps import bands, ends, hardly_any, rare_loss

_TINY = 1e-200
_ALIAS = 1e-6  # tolerated aliases, relative to delta
# Candidate tilts around the saddle point, finer near it: Chernoff bounds of aliases need close neighbours. Most
# runs are easy and do with the first ladder.
_LADDERS = (
    2.0 ** np.concatenate([np.arange(-5.0, -2.0), np.arange(-1.75, 1.76, 0.25), np.arange(2.5, 6.6)]),
    2.0 ** np.concatenate([np.arange(-5.0, -1.5, 0.5), np.arange(-1.5, 1.51, 1 / 12), np.arange(2.0, 6.1, 0.5)]),
)
# For many phases every tilt is dear.
_SHORT_LADDER = 2.0 ** np.array([-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5, 4.5])
_COARSE = 2.0 ** np.arange(-16.0, 13.0)  # over one by epsilon
_EASY_NODES = 4_000
_SHORT_NODES = 12_000  # beyond, caps are tried
_AFFORDABLE_NODES = 20_000
WIDEST_SHIFT = 0.1  # beyond it, smoothing costs the whole shift from below
_WIDE, _WIDE_ABOVE = 2e-4, 5e-4  # or share of epsilon, as delta may fall at once where hits are told apart
_SMOOTHING = 1e-5  # share of epsilon that smoothing may cost
_STEP_ERROR = 3e-13  # typical rounding of one step's transform
_SPARE = 3.0  # how much more rounding may be amplified where every other line is far longer, as a logarithm
_TWO, _TWO_IN_STRETCH = 1e-4, 1e-3  # share of delta that two losses above the cap may take
_WORTH = 2.5  # nodes that a cap should save, as a factor
_LOWEST = 0.05  # no lower cap is worth a try, over epsilon
_STRETCHES = (2.0, 1.3, 1.15, 1.07, 1.03)  # caps that are tried, over epsilon


class Proposal(NamedTuple):
    """A plan, how much it amplifies rounding, and about how many nodes it takes."""

    plan: LinePlan
    log_amplitude: float
    nodes: float


def propose_evidence(view: View, epsilon: float, log_delta: float, fineness: float, stretch: bool = False,
                     of_delta: bool = False) -> Evidence:  # fmt: skip
    """Lines through the transform for queries near epsilon; with caps on the losses where no tilt would do, or none cheaply.

    For queries over a whole `stretch` of epsilons there is no more than one cap. Queries `of_delta` do not bear that epsilon is moved.
    """
    ask = Ask(view, epsilon, log_delta, fineness, stretch, of_delta)
    whole = ask.line(view.whole)
    if epsilon <= 0 or ask.cost(whole) <= (ask.tolerable, ask.affordable):
        return Evidence(view, [whole.plan])
    split = None if stretch else bands(view, epsilon, log_delta, ask.two)
    if split:
        caps, jumps = ask.jumps(split.caps[0], split.caps[-1])
        if max(jump.log_amplitude for jump in jumps) <= ask.tolerable + _SPARE:
            return Evidence(view, split.negligible + [jump.plan for jump in jumps], *split.caps, *caps)
    best = ask.capped()
    if best is None or ask.cost(whole) < ask.cost(best.line) or ask.hardly_longer(whole, best.line):
        return Evidence(view, [whole.plan])
    caps, jumps = best.jumps or ask.jumps(best.cap, best.cap)
    return Evidence(view, [best.line.plan, *(jump.plan for jump in jumps)], best.cap, *caps)


Jumps = tuple[list[float], list[Proposal]]  # caps, and lines for the sums with one loss above each


@dataclass(frozen=True)
class Capped:
    """A cap, a line for the sums of losses up to it, and others if they are known already."""

    cap: float
    line: Proposal
    jumps: Jumps | None = None


@dataclass(frozen=True)
class Ask:
    """What lines are needed for: a view, near an epsilon and a log delta, or a stretch of them, and how finely."""

    view: View
    epsilon: float
    log_delta: float
    fineness: float
    stretch: bool = False
    of_delta: bool = False

    @property
    def width(self) -> float:
        """Share of epsilon that smoothing may cost."""
        return (_SMOOTHING if self.view.above else 3 * _SMOOTHING) / self.fineness**2

    @property
    def two(self) -> float:
        """Share of delta that two losses above the cap may take."""
        return _TWO_IN_STRETCH if self.stretch else _TWO / self.fineness**2

    @property
    def affordable(self) -> float:
        """Nodes up to which no cap is tried."""
        return math.inf if self.stretch else _SHORT_NODES

    @property
    def tolerable(self) -> float:
        """How much rounding may be amplified, as a logarithm."""
        return math.log(1e-4 / (self.view.steps * _STEP_ERROR))

    def line(self, part: Composition, clear: float = 0.0) -> Proposal:
        """A line for some of the sums; none of them is within `clear` of epsilon."""
        share = _WIDE_ABOVE / self.fineness**2 if self.view.above else _WIDE / self.fineness**4
        widest = WIDEST_SHIFT if self.stretch or self.of_delta else max(WIDEST_SHIFT, share * self.epsilon)
        clear = 0.0 if self.stretch else clear  # a stretch may be anywhere
        return propose_line(part, self.epsilon, self.log_delta, self.width, clear, widest)

    def cost(self, line: Proposal) -> tuple[float, float]:
        """What a line costs: first of all digits, then time."""
        return max(line.log_amplitude, self.tolerable), line.nodes

    def hardly_longer(self, whole: Proposal, capped: Proposal) -> bool:
        """Whether a line without a cap is good enough, and not worth being replaced by several."""
        return whole.log_amplitude <= self.tolerable and whole.nodes < _WORTH * capped.nodes

    def capped(self) -> Capped | None:
        """The best of some caps."""
        best, rare = None, math.nan if self.stretch else rare_loss(self.view, self.log_delta, self.two)
        for cap in [rare, *(self.epsilon * stretch for stretch in _STRETCHES)]:
            chance = self.view.chance_above(cap)
            if (
                not cap > _LOWEST * self.epsilon
                or chance == 0.0
                or 0.5 * chance**2 > self.two * math.exp(self.log_delta)
            ):
                continue
            one = Capped(cap, self.line(Composition(self.view.blocks, self.view.gaussian, cap)))
            if cap < self.epsilon:  # then what is above the cap may be far from epsilon, where its line has no digits
                jumps = self.jumps(cap, cap)
                hard = max(jump.log_amplitude for jump in jumps[1]) - _SPARE
                one = Capped(cap, one.line._replace(log_amplitude=max(one.line.log_amplitude, hard)), jumps)
            if best is None or self.cost(one.line) < self.cost(best.line):
                best = one
            if self.cost(one.line) <= (self.tolerable, self.affordable):
                break
        return best

    def jumps(self, low: float, high: float) -> Jumps:
        """Lines for sums with one loss above `high` and the others up to `low`, and further caps between them."""
        view, epsilon = self.view, self.epsilon
        caps, far = ([], math.inf) if self.stretch else ends(view, high, epsilon, self.log_delta)
        parts = [Composition(view.blocks, view.gaussian, low, True, band) for band in pairwise([high, *caps, far])]
        lines = [self.line(one, max(0.0, first - epsilon)) for one, first in zip(parts, [high, *caps], strict=True)]
        if far < math.inf:
            caps, lines = [*caps, far], [*lines, Proposal(hardly_any(view), -math.inf, 0.0)]
        return caps, lines


def propose_line(
    composition: Composition,
    epsilon: float,
    log_delta: float,
    width: float,
    clear: float = 0.0,
    widest: float = WIDEST_SHIFT,
) -> Proposal:
    """A plan for queries near `epsilon`; `width` is the admissible relative error of epsilon that smoothing may cause.

    No sum is within `clear` of epsilon, so that shifts of that size do no harm; none is to be wider than `widest`.
    """
    centre = _jump_saddle(composition, epsilon) if composition.jump else saddle(composition, epsilon)
    tolerable = _tolerable(composition.total_steps)
    for ladder in _LADDERS if composition.rows < 8 else (_SHORT_LADDER, *_LADDERS):
        tilts = np.concatenate([[0.0], centre * ladder])
        found = choose_line(
            tilts, composition.log_mgf(tilts), composition.total_steps, epsilon, log_delta, width, clear, widest
        )
        if found.log_amplitude <= tolerable and found.nodes <= _EASY_NODES * (1 if composition.rows < 8 else 4):
            break
    return found


def choose_line(tilts: Array, log_mgf: Array, steps: float, epsilon: float, log_delta: float, width: float,
                clear: float = 0.0, widest: float = WIDEST_SHIFT, tolerable: float = 0.0) -> Proposal:  # fmt: skip
    """A plan from the logarithms of a transform at some tilts, the first of which is zero; `tolerable` is how much rounding may
    be amplified, if that is more than usual, as a logarithm.
    """
    best, sides, period, amplitude = _choose(tilts, log_mgf, epsilon, log_delta, max(tolerable, _tolerable(steps)))
    beta = min(40.0, 15.0 + max(0.0, amplitude))
    c = float(tilts[best])
    unit = 1.05 * beta * period / (2.0 * math.pi)  # nodes until a smoothing of width 1 has died out
    shift = smoothing_shift(c, beta, unit, epsilon, log_delta, width, widest)
    if clear > 0.0:  # a wide shift must not spoil the bounds of aliases
        shift = max(shift, min(0.25 * clear, 0.4 / c, WIDEST_SHIFT, math.sqrt(beta) / float(tilts[sides].max())))
    return Proposal(LinePlan(c, shift, beta, period, tilts[sides]), amplitude, unit / shift)


def _tolerable(steps: float) -> float:
    """How much rounding may be amplified, as a logarithm."""
    return math.log(1e-5 / (steps * _STEP_ERROR))


def _jump_saddle(composition: Composition, epsilon: float) -> float:
    """The saddle point of a measure with a jump, on a coarse ladder."""
    ladder = _COARSE / epsilon
    value = composition.log_mgf(ladder) - ladder * epsilon - np.log(ladder) - np.log1p(ladder)
    return float(ladder[int(np.argmin(value))])


def _choose(
    tilts: Array, log_mgf: Array, epsilon: float, log_delta: float, tolerable: float
) -> tuple[int, list[int], float, float]:
    """The tilt with the shortest admissible period among those that amplify rounding little; where Chernoff's bounds of
    its aliases on either side are best; period and amplitude.
    """
    goal = log_delta + math.log(_ALIAS)
    need = np.maximum(log_mgf + log_peak(tilts) - tilts * epsilon - goal, 0.1)
    gap = tilts[:, None] - tilts  # gap[i, j] = c_i - c_j
    left, right = need / np.maximum(gap, _TINY), need / np.maximum(-gap, _TINY)
    period = np.maximum(left.min(axis=1), right.min(axis=1))
    amplitude = log_mgf - tilts * epsilon - np.log1p(tilts) - log_delta
    amplitude[0] = np.inf
    allowed = amplitude <= max(float(amplitude.min()) + 1.0, tolerable)
    best = int(np.argmin(np.where(allowed, period, np.inf)))
    outer = int(np.argmin(right[best]))
    # a law may have a little more mass far out than its sketch: then the next tilt inward does better
    sides = [int(np.argmin(left[best])), outer, *([outer - 1] if outer - 1 > best else [])]
    return best, sides, float(period[best]), float(amplitude[best])


def smoothing_shift(c: float, beta: float, unit: float, epsilon: float, log_delta: float, width: float,
                    widest: float = WIDEST_SHIFT) -> float:  # fmt: skip
    """The smoothing moves log delta by about (c s)^2 / beta, so epsilon by c s^2 / beta; aim at `width * epsilon`.

    Smaller shifts need more nodes: below 1e-4 an absolute error is fine, if that saves many. Large epsilons
    are insensitive to a shift as such.
    """
    relative, absolute = (math.sqrt(width * beta * e / c) for e in (epsilon, max(epsilon, 0.1)))
    shift = min(max(relative, min(unit / _AFFORDABLE_NODES, absolute)), widest)
    shift = min(max(shift, 0.03 * math.sqrt(width) * epsilon), 0.4 / c)
    # A wider shift would smear the bulk over epsilon, which matters unless delta is large anyway.
    return min(shift, max(epsilon / 1.5, 1e-4 / 1.5, 0.01 * math.exp(log_delta)))
