"""Where the loss of a piece passes an epsilon: thresholds for `proving.loss_law`, on the side that it can prove."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._rounding import UNIT
from ..proving.loss_law import Array, Piece

_NEWTON = 5  # rounds of Newton's method
_TURNS = 12  # of moving a threshold outward


def crossings(piece: Piece, epsilon: Array) -> Iterator[Array]:
    """Thresholds to be tried in turn: the first by its own rounding on the safe side, others ever further."""
    way, farthest = 1.0 if piece.increasing else -1.0, max(abs(v) for v in piece.means)
    change = max(abs(v) for v in piece.d) / max(*piece.q, *piece.p)
    x, slope = _crossing(piece, epsilon)
    rounded = 16 * UNIT * (farthest * (np.abs(x) + farthest) + epsilon + 4.0)
    x = x - way * np.where(np.isfinite(x), rounded / slope, 0.0)
    yield x
    for turn in range(_TURNS):
        off = piece.loss_error(np.clip(x, piece.low, piece.high), epsilon)
        margin = 16.0**turn * (4.0 * np.where(np.isfinite(off), off, 0.0) + UNIT * change)
        further = _crossing(piece, epsilon - margin)[0]
        yield further


def _crossing(piece: Piece, epsilon: Array) -> tuple[Array, Array]:
    """About where the loss passes epsilon, and a slope there.

    P / e^epsilon - Q is a sum of at most three exponentials of x. Where two of them cancel is the first guess; from there
    the logarithm of its positive over its negative terms, which is convex or concave, takes Newton's method.
    """
    way = 1.0 if piece.increasing else -1.0
    rows = sorted((way * m, q, d) for m, q, d in zip(piece.means, piece.q, piece.d, strict=True))
    m, shrunk, gone = np.array([row[0] for row in rows]), np.exp(-epsilon), np.expm1(-epsilon)
    parts = [d * shrunk + q * gone if q else d + 0.0 * epsilon for _, q, d in rows]
    above = np.array(parts) > 0.0
    size = np.array([np.log(np.abs(part)) - 0.5 * v * v - (0.0 if q else epsilon)
                     for part, (v, q, _) in zip(parts, rows, strict=True)])  # fmt: skip
    pairs = [np.where(above[j] & ~above[i], (size[i] - size[j]) / (m[j] - m[i]), np.nan)
             for i, j in ((0, 1), (0, 2), (1, 2)) if j < m.size]  # fmt: skip
    x, slope = pairs[0] if pairs else np.nan * epsilon, m[-1] - m[0] or 1.0
    if m.size > 2:
        x = np.where(above[1], np.fmin(x, pairs[1]), np.fmax(pairs[1], pairs[2]))
        size -= (size + m[:, None] * x).max(axis=0)
        for _ in range(_NEWTON):
            terms = np.exp(size + m[:, None] * x)
            gain = terms * above
            more, less = gain.sum(axis=0), (terms - gain).sum(axis=0)
            slope = m @ gain / more - m @ (terms - gain) / less
            x = np.where(slope > 0.0, x - np.log(more / less) / slope, np.nan)  # past the top: it is nowhere
    nowhere = np.isnan(x)
    return way * np.where(nowhere, np.where(above[-1], -np.inf, np.inf), x), np.where(nowhere, 1.0, np.abs(slope))
