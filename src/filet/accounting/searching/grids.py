"""Where to cut a loss law: equal cells for a first look, then cells fitted to where the answer lies.

Any cells give proven bounds; good ones give tight bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..proving.cells import Cells, cut
from ..proving.loss_law import Array, LossLaw, Piece


@dataclass(frozen=True)
class Focus:
    """Where cells should be small: `log_weight` says, for some losses, how much a step with that loss matters.

    Any partition into cells gives proven bounds; this only makes them tight.
    """

    cells: int  # about this many cells in all
    loss: Array  # increasing
    log_weight: Array


def any_of(parts: Sequence[Focus], units: Sequence[float], cells: int) -> Focus:
    """What matters to any of several questions: the largest of their weights, each in a (logarithmic) unit of its own."""
    loss = np.unique(np.concatenate([part.loss for part in parts]))
    weights = [np.interp(loss, part.loss, part.log_weight) - unit for part, unit in zip(parts, units, strict=True)]
    return Focus(cells, loss, np.max(weights, axis=0))


_FADING = np.cumsum(0.25 * 1.25 ** np.arange(16.0))  # distances of cells beyond those that matter, up to 35 deviations


def points_within(piece: Piece, reach: float, width: float) -> Array:
    """Points a `width` apart wherever a mean is within `reach`; far means (little noise) leave gaps in between.

    Beyond `reach` standard deviations from the outermost means there is one open cell at each end.
    """
    parts: list[tuple[float, float]] = []
    for mean in sorted(piece.means):
        low, high = max(piece.low, mean - reach), min(piece.high, mean + reach)
        if low >= high:
            continue
        if parts and low <= parts[-1][1]:
            parts[-1] = (parts[-1][0], high)
        else:
            parts.append((low, high))
    if not parts:  # the interval lies in a far tail: one cell suffices
        middle = min(max(piece.means[0], piece.low), piece.high)
        return np.array([middle, middle])
    fine = [_equal(low, high, 2 + math.ceil((high - low) / width)) for low, high in parts]
    # One cell as far as a distant end of the piece would put a trace of its mass on the loss there, and a trace of a
    # large loss spoils every tilt: lead up to that end in growing cells.
    if parts[0][0] > piece.low > -math.inf:
        fine.insert(0, parts[0][0] - _FADING)
    if parts[-1][1] < piece.high < math.inf:
        fine.append(parts[-1][1] + _FADING)
    return np.concatenate(fine)


def _equal(low: float, high: float, count: int) -> Array:
    """`np.linspace`, quicker."""
    points: Array = low + np.arange(count, dtype=np.float64) * ((high - low) / (count - 1))
    points[-1] = high
    return points


def piece_edges(cells: Cells) -> list[slice]:
    """The edges of each piece; its cells are one less."""
    return [slice(*ends) for ends in itertools.pairwise((0, *cells.ends))]


def equal_cells(law: LossLaw, reach: float, width: float) -> Cells:
    """Cells of one width, in standard deviations; good for a first look at any law."""
    return cut(law, [points_within(piece, reach, width) for piece in law.pieces])


def fitted_cells(look: Cells, focus: Focus) -> Cells:
    """Cells fitted to where the answer lies, after a look at the law with other cells.

    The error of a cell of width v grows as I v^2 per unit of x, where I is the density times the squared slope of the
    loss times the weight of that loss. For a given number of cells the sum is smallest if v is proportional to I^(-1/3).
    """
    inner, logs = [], []
    for one in piece_edges(look):
        inside = np.flatnonzero(np.isfinite(look.x[one])) + one.start
        first, last = int(inside[0]), int(inside[-1])
        x, loss = look.x[first : last + 1], look.loss[first : last + 1]
        width = np.abs(np.diff(x))
        weight = np.interp(loss[1:], focus.loss, focus.log_weight)
        # density times squared slope is p (change of loss)^2 / width^3
        logs.append(np.log(look.p[first:last]) + 2.0 * np.log(np.abs(np.diff(loss))) - 3.0 * np.log(width) + weight)
        inner.append(x)
    top = max((float(v.max()) for v in logs if v.size), default=0.0)
    top = top if top > -math.inf else 0.0
    # With little noise there are long gaps between the means, which a few cells suffice for.
    counts = [np.concatenate([[0.0], np.cumsum(np.cbrt(np.exp(v - top) + 1e-6) * np.minimum(np.abs(np.diff(x)), 1.0))])
              for v, x in zip(logs, inner, strict=True)]  # fmt: skip
    unit = max(sum(float(count[-1]) for count in counts) / focus.cells, 1e-300)
    edges = []
    for x, count in zip(inner, counts, strict=True):
        edges.append(np.interp(np.linspace(0.0, count[-1], 2 + math.ceil(count[-1] / unit)), count, x))
        edges[-1][0], edges[-1][-1] = x[0], x[-1]
    return cut(look.law, edges)
