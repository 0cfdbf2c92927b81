"""Grids: where a loss law is cut into cells. Any grid gives proven bounds; a good one gives tight bounds."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from ..proving.cells import Cells, cut
from ..proving.loss_law import Array, LossLaw, Piece

# Distances of cells beyond those that matter, growing up to 35 deviations: one cell that long would
# put a trace of its mass on a large loss, and that spoils every tilt.
_FADING = np.cumsum(0.25 * 1.25 ** np.arange(16.0))


@dataclass(frozen=True)
class CellWeights:
    """Weights of a step with a given loss in the answer, as logarithms, between and beyond some losses."""

    loss: Array  # increasing
    log_weight: Array

    def at(self, loss: Array) -> Array:
        return np.interp(loss, self.loss, self.log_weight)


def tilted_weights(tilt: Array, epsilon: Array, log_delta: Array) -> CellWeights:
    """Weights e^{c loss} of Chernoff's bound, for the smallest and the largest tilt of several questions.

    A step of loss l leaves delta(epsilon - l) to the others: e^{c l} times delta, and at most 1.
    """
    low, high = float(tilt.min()), float(tilt.max())
    least, most = -float(epsilon.max()), float((-log_delta / tilt).max())
    loss = np.array([min(least, -1e-300), 0.0, max(most, 1e-300)])
    return CellWeights(loss, loss * np.array([low, 1.0, high]))


def uniform_grid(law: LossLaw, reach: float, spacing: float) -> Cells:
    """Cells of one width, in standard deviations, as far as `reach` of them from the means."""
    return cut(law, [_points_within(piece, reach, spacing) for piece in law.pieces])


def _points_within(piece: Piece, reach: float, spacing: float) -> Array:
    """Points a `spacing` apart wherever a mean is within `reach`; far means (little noise) leave gaps between."""
    ranges: list[tuple[float, float]] = []
    for mean in sorted(piece.means):
        low, high = max(piece.low, mean - reach), min(piece.high, mean + reach)
        if low >= high:
            continue
        if ranges and low <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], high)
        else:
            ranges.append((low, high))
    if not ranges:  # the interval lies in a far tail: one cell suffices
        middle = min(max(piece.means[0], piece.low), piece.high)
        return np.array([middle, middle])
    points = [_equidistant(low, high, 2 + math.ceil((high - low) / spacing)) for low, high in ranges]
    if ranges[0][0] > piece.low > -math.inf:
        points.insert(0, ranges[0][0] - _FADING)
    if ranges[-1][1] < piece.high < math.inf:
        points.append(ranges[-1][1] + _FADING)
    return np.concatenate(points)


def _equidistant(low: float, high: float, count: int) -> Array:
    """`np.linspace`, in a third of its time."""
    points: Array = low + np.arange(count, dtype=np.float64) * ((high - low) / (count - 1))
    points[-1] = high
    return points


def equidistributed(points: Array, need: Array, count: int) -> Array:
    """Points, `count` in all, between which the need of the intervals between given points is shared equally."""
    place = np.append(0.0, np.cumsum(need))
    fitted = np.interp(_equidistant(0.0, place[-1], count), place, points)
    fitted[0], fitted[-1] = points[0], points[-1]
    return fitted


def refined_grid(coarse: Cells, weights: CellWeights, count: int) -> Cells:
    """Cells, `count` or a few more, fitted to the answer, by the masses and losses of a coarse grid.

    The error of a cell of width v grows as I v^2 per unit of x, where I is the density times the
    squared slope of the loss times the weight of that loss. For a given number of cells the sum is
    smallest if v is proportional to I^(-1/3).
    """
    inner, logs = [], []
    for start, end in itertools.pairwise((0, *coarse.ends)):
        inside = np.flatnonzero(np.isfinite(coarse.x[start:end])) + start
        first, last = int(inside[0]), int(inside[-1])
        x, loss = coarse.x[first : last + 1], coarse.loss[first : last + 1]
        change, width = np.abs(np.diff(loss)), np.abs(np.diff(x))
        # density times squared slope is p (change of loss)^2 / width^3
        log_need = np.log(coarse.p[first:last]) + 2.0 * np.log(change) - 3.0 * np.log(width)
        logs.append(log_need + weights.at(loss[1:]))
        inner.append(x)
    top = max((float(v.max()) for v in logs if v.size), default=0.0)
    top = top if top > -math.inf else 0.0
    # With little noise there are long gaps between the means, which a few cells suffice for.
    needs = [
        np.cbrt(np.exp(v - top) + 1e-6) * np.minimum(np.abs(np.diff(x)), 1.0) for x, v in zip(inner, logs, strict=True)
    ]
    unit = sum(float(need.sum()) for need in needs) / count
    if not 0.0 < unit < math.inf:  # beyond floats: no cell is better than another
        return coarse
    edges = [equidistributed(x, need, 2 + math.ceil(need.sum() / unit)) for x, need in zip(inner, needs, strict=True)]
    return cut(coarse.law, edges)
