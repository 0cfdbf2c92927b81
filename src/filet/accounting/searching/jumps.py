"""Rare large losses: runs that one loss decides, where their answer lies, and which losses and lines matter for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..proving.composition import Composition
from ..proving.line import LinePlan, log_peak
from ..proving.loss_law import Array
from ..proving.view import View
from .grids import Focus
from .guesses import epsilon_by_laplace, from_the_largest, moments

_TWO = 1e-4  # share of delta that two large losses may take at first
_FAR = 1e-5  # and one that is far above epsilon
_MARGIN = 12.0  # how far below delta is negligible, as a logarithm
_ENOUGH = 0.1  # share of epsilon that small losses may reach: strong tilts allow only short steps
_MOST = 0.5  # if they reach further, more than one loss may decide
_NEAR_DELTA = 5.0  # how far the delta of one loss may be from the one asked for, as a logarithm
_LITTLE = 4.0  # squared deviation of small losses, in units of the slope of log delta, beside which a large one decides
_TINY = 1e-300
_LARGEST = 10.0  # losses so large are read with the others
_LADDER = 2.0 ** np.arange(-2.0, 14.0, 0.5)  # tilts, over one by epsilon
_SHIFT = 2.0  # of those lines, over one by the tilt: its square, halved, adds to the logarithm of what they prove
_SIDES = np.array([0.8, 0.95, 1.01, 1.05, 1.25])  # tilts that bound the aliases of a negligible part, over its own
_FIRST, _WIDER = 4.0, 16.0  # where bands of large losses end, over epsilon and over the end before
_NEAR = 0.05  # share of epsilon around which cells are small, as a first guess may be off
_SMALL = np.linspace(-0.25, 1.0, 8)  # where the weight of small losses is tabulated
_BEYOND = np.array([0.0, 0.1, 1.0, 30.0])  # and that of large ones, over epsilon


@dataclass(frozen=True)
class Bands:
    """Losses up to the first cap are small, and those above the last decide: two above the first are too rare to matter,
    and so is one between them, as small losses hardly make up for what it lacks.
    """

    caps: list[float]  # one or two
    tilt: float  # at which Chernoff's bound shows that

    @property
    def negligible(self) -> list[LinePlan]:
        """Lines of a few nodes, good enough for what does not matter: no large loss, and one that is not large enough."""
        return [LinePlan(self.tilt, _SHIFT / self.tilt, 4.0, 60.0 / self.tilt, self.tilt * _SIDES) for _ in self.caps]


def bands(view: View, epsilon: float, log_delta: float, two: float = _TWO) -> Bands | None:
    """How to split the losses if one of them decides whether epsilon is exceeded; None if that is not so.

    Two large ones may take a share `two` of delta.
    """
    loss, chance, delta = from_the_largest(view)
    about = float(delta[min(int(np.searchsorted(-loss, -epsilon)), loss.size - 1)])
    if not abs(math.log(max(about, _TINY)) - log_delta) < _NEAR_DELTA:
        return None
    rare = _rare(chance, log_delta, two)
    if not 0 < rare < loss.size or not 0.0 < loss[rare] < epsilon:
        return None
    low, tilts = float(loss[rare]), _LADDER / epsilon
    small = Composition(view.blocks, view.gaussian, low).log_mgf(tilts) + log_peak(tilts)
    # What small losses add up to beside a large one, but for a negligible share of delta.
    spare = (small + max(math.log(chance[rare - 1]) - log_delta, 0.0) + _MARGIN) / tilts
    spare[small - tilts * epsilon > log_delta - _MARGIN] = math.inf  # they might do without a large one
    enough = spare <= _ENOUGH * epsilon
    best = int(np.argmax(enough) if enough.any() else np.argmin(spare))
    if not spare[best] < _MOST * epsilon:
        return None
    high = epsilon - float(spare[best])
    return Bands([low, high] if _between(loss, low, high) and loss[0] > high else [low], float(tilts[best]))


def _rare(chance: Array, log_delta: float, two: float) -> int:
    """The number of losses, from the largest on, of which two are so rare that they take at most that share of delta."""
    return int(np.searchsorted(chance, math.sqrt(2.0 * two) * math.exp(0.5 * log_delta)))


def _between(loss: Array, low: float, high: float) -> bool:
    return bool(((loss > low) & (loss <= high)).any())


def rare_loss(view: View, log_delta: float, two: float = _TWO) -> float:
    """The smallest loss such that two above it take at most a share `two` of delta; NaN if there is none, or no larger one."""
    loss, chance, _ = from_the_largest(view)
    rare = _rare(chance, log_delta, two)
    return float(loss[rare]) if 0 < rare < loss.size and loss[rare] < loss[0] else math.nan


def ends(view: View, high: float, epsilon: float, log_delta: float) -> tuple[list[float], float]:
    """Where losses above `high` are cut into bands, each with a line that suits it; and beyond what they hardly matter."""
    loss, chance, _ = from_the_largest(view)
    last = float(loss[min(int(np.searchsorted(chance, _FAR * math.exp(log_delta))), loss.size - 1)])
    far = last if high < last < 0.5 * loss[0] <= 0.5 * _LARGEST else math.inf
    found, end = [high], max(_FIRST * epsilon, 2.0 * high)
    while end < 0.5 * last:
        if _between(loss, found[-1], end):
            found.append(end)
        end *= _WIDER
    return found[1:], far


def hardly_any(view: View) -> LinePlan:
    """A line of a few nodes for losses that are too rare to matter, however large."""
    largest = max(float(block.loss.max()) for block in view.blocks)
    return LinePlan(1.0 / largest, min(1.0, largest), 4.0, 20.0 * largest, _SIDES / largest)


def guess_by_jump(view: View, log_delta: float) -> float:
    """The epsilon of one large loss and what small ones are beside it on average; NaN if there is none."""
    loss, chance, delta = from_the_largest(view)
    rare = _rare(chance, log_delta, _TWO)
    at = int(np.argmax(delta >= math.exp(log_delta)))
    if not 0 < at <= rare < loss.size or not 0.0 < loss[rare] < loss[at] < loss[at - 1] or not delta[at - 1] > 0.0:
        return math.nan
    # Between losses that belong to edges of cells log delta is nearly straight.
    slope = (math.log(delta[at - 1]) - math.log(delta[at])) / float(loss[at - 1] - loss[at])
    _, mean, variance = moments(Composition(view.blocks, view.gaussian, float(loss[rare])), 0.0)
    if not slope * slope * variance < _LITTLE:
        return math.nan
    return float(loss[at]) + (log_delta - math.log(delta[at])) / slope + mean - 0.5 * slope * variance


def guess_by_parts(view: View, log_delta: float) -> float:
    """The epsilon that either small losses or a large one among them exceed; NaN if there are no rare large ones."""
    low = rare_loss(view, log_delta)
    if not low > 0.0:
        return math.nan
    bulk = epsilon_by_laplace(Composition(view.blocks, view.gaussian, low), log_delta)
    return float(np.fmax(bulk, guess_by_jump(view, log_delta)))


def jump_focus(view: View, log_delta: float, cells: int) -> tuple[float, Focus] | None:
    """An epsilon, and where cells should be small, if one large loss decides; None otherwise.

    A small loss leaves a jump to one of the others; a large one leaves hardly anything, so only those near epsilon matter.
    """
    epsilon = guess_by_jump(view, log_delta)
    found = bands(view, epsilon, log_delta) if epsilon > 0.0 else None
    if found is None:
        return None
    low, small = found.caps[0], _SMALL * found.caps[0]
    left = np.maximum(np.log(view.separate(epsilon - small)), 2.0 * log_delta)
    near = max(min(found.caps[-1], (1.0 - _NEAR) * epsilon), 1.001 * low)
    loss = np.concatenate([small, [0.5 * (near + low), near], epsilon + _BEYOND])
    return epsilon, Focus(cells, loss, np.concatenate([left, [left[-1], 0.0], -_BEYOND]))
