"""Loss law -> discrete loss distributions that bracket it.

*Above*: each cell of outcomes is split onto its two end losses, keeping its P- and Q-mass ("connect the dots"). The
privacy profile of the result interpolates the true, convex profile linearly between nodes, so it lies above it and the
discrete pair dominates, under composition too. *Below*: each cell is merged into one outcome, which is
post-processing, so the discrete pair is dominated. Both errors shrink with the square of the cell width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..._rounding import DROPPED, RESOLVED, SUM_ERROR, UNDERFLOW
from ...errors import NotCertifiedError
from .loss_law import Array, LossLaw, Piece, cell_masses, losses


@dataclass(frozen=True)
class Discrete:
    """A loss distribution under P: finite losses with log-masses, and the mass at infinite loss.

    `weight_error` bounds the relative error of the binomial weights behind it, `loss_error` that of a loss, and
    `difference` the total variation of P - Q, which sets how much rounding of masses can change the mean loss.
    Nothing is proven from below with a law that is not `whole`. `cells` are those that were split onto their ends: what that
    added is bounded by them; None if the law itself is what is bounded.
    """

    loss: Array
    log_mass: Array
    infinite: float
    weight_error: float
    difference: float = 1.0
    loss_error: float = 0.0
    whole: bool = True
    cells: Cells | None = None


@dataclass(frozen=True)
class Cells:
    """A loss law cut into cells, to be discretised either way: all pieces in one row, each in the order of its losses.

    Edges and their losses (+-inf at open ends), and the cells' masses under P, Q and P - Q; pieces end at `ends`, and
    between two of them is a cell of no mass.
    """

    law: LossLaw
    x: Array
    loss: Array
    p: Array
    q: Array
    d: Array
    ends: tuple[int, ...]

    def reversed(self) -> Cells:
        """The same cells with P and Q exchanged."""
        ends = tuple(self.x.size - start for start in (*self.ends[-2::-1], 0))
        x, loss, q, p, d = (v[::-1] for v in (self.x, self.loss, self.q, self.p, self.d))
        return Cells(self.law.reversed(), x, -loss, q, p, -d, ends)

    @cached_property
    def _split(self) -> NDArray[np.bool_]:
        """The cells that keep both masses when they are split onto their ends."""
        return np.asarray((self.q > RESOLVED) & np.isfinite(self.loss[1:] - self.loss[:-1]))

    def chord(self, c: float, log_unit: float) -> float:
        """Splitting changes E[e^{zL}], Re z = c, by at most |z (z + 1)| e^log_unit times this. Proof: engine.md#what-splitting-adds"""
        high, width = self.loss[1:], self.loss[1:] - self.loss[:-1]
        terms = self.p * width * width * np.exp(c * high - log_unit)  # NaN proves nothing
        return float(terms[self._split].sum()) * (0.125 * (1 + SUM_ERROR))

    @property
    def moved(self) -> float:
        """The mass of P that is otherwise moved up to a finite loss. Proof: engine.md#what-splitting-adds"""
        return float(self.p[~self._split & np.isfinite(self.loss[1:])].sum()) * (1 + SUM_ERROR)


def cut(law: LossLaw, edges: Sequence[Array]) -> Cells:
    """The law cut at the given points of each piece; any points will do, and those outside a piece are left out.

    Proof: engine.md#two-discrete-losses-around-the-true-one
    """
    parts = [_inside(piece, inner) for piece, inner in zip(law.pieces, edges, strict=True)]
    x, counts = np.concatenate(parts), [part.size for part in parts]
    columns, ends = law.columns(counts), tuple(itertools.accumulate(counts))
    loss = losses(*columns, np.where(np.isinf(x), 0.0, x))
    p, q, d = cell_masses(*columns, x)
    for first, last in zip((0, *ends[:-1]), ends, strict=True):
        loss[first] = loss[first] if math.isfinite(x[first]) else -math.inf
        loss[last - 1] = loss[last - 1] if math.isfinite(x[last - 1]) else math.inf
        if (loss[first : last - 1] > loss[first + 1 : last]).any():  # by rounding
            loss[first:last] = np.maximum.accumulate(loss[first:last])
        p[last - 1 : last] = q[last - 1 : last] = d[last - 1 : last] = 0.0  # up to the next piece
    return Cells(law, x, loss, p, q, d, ends)


def _inside(piece: Piece, inner: Array) -> Array:
    """The ends of a piece and the points between, in the order of their losses."""
    if not (inner[1:] > inner[:-1]).all():
        inner = np.unique(inner[~np.isnan(inner)])
    inside = inner[inner.searchsorted(piece.low, side="right") : inner.searchsorted(piece.high)]
    x = np.concatenate([[piece.low], inside, [piece.high]])
    return x if piece.increasing else x[::-1]


def discretise_above(cells: Cells) -> Discrete:
    """The dominating discrete loss on the given cells. Proof: engine.md#two-discrete-losses-around-the-true-one"""
    law, infinite = cells.law, cells.law.lost + UNDERFLOW
    loss, p, q, d, low = cells.loss, cells.p, cells.q, cells.d, cells.loss[:-1]
    # share of the cell's P-mass that goes to its upper end: (P - e^low Q) / (P (1 - e^(low-high))); all of it from -inf
    excess, cancels = d - q * np.expm1(low), low < -0.5
    if cancels.any():
        excess[cancels] = (p - q * np.exp(low))[cancels]
    share = excess / (p * -np.expm1(low - loss[1:]))
    unknown = (q <= RESOLVED) | ~(np.abs(share) < 1e9)  # also if not a number
    if unknown.any():
        share[unknown] = 1.0
    upper = p * np.minimum(np.maximum(share, 0.0), 1.0)
    lower = p - upper
    for end in cells.ends:
        last = end - 2
        if math.isinf(loss[end - 1]):  # losses to +inf: keep the Q-mass at the last edge; the rest of P is at +inf
            kept = min(q[last] * math.exp(min(700.0, loss[last])), p[last]) if q[last] > RESOLVED else 0.0
            upper[last], lower[last] = 0.0, kept
            infinite += float(p[last] - kept)
    loss = np.concatenate([loss, [atom.loss for atom in law.atoms]])
    at = np.concatenate([lower, [0.0], [atom.p for atom in law.atoms]])  # P-mass at each edge loss, and of the atoms
    at[1 : upper.size + 1] += upper
    _check_total(float(at.sum()) + infinite, exact=True)
    some = at > 0.0  # nothing is at an infinite edge
    # Infinite masses are sums of positive tails, good to a few parts in 1e13; round them up.
    return Discrete(loss[some], np.log(at[some]), infinite * (1 + SUM_ERROR), law.weight_error, law.difference,
                    law.loss_error, law.whole, cells)  # fmt: skip


def discretise_below(cells: Cells) -> Discrete:
    """The dominated discrete loss on the given cells. Proof: engine.md#two-discrete-losses-around-the-true-one"""
    law = cells.law
    loss, p, q, d = cells.loss, cells.p, cells.q, cells.d
    # Where Q underflows, the loss at the cell's lower end is a lower bound of the merged one. Dropping the
    # lightest outcomes, and those of the open first cell, lowers every profile.
    low, seen = loss[:-1], q > RESOLVED
    keep = (p > DROPPED) & (seen | np.isfinite(low))
    if not keep.all():
        seen, low, p, q, d = seen[keep], low[keep], p[keep], q[keep], d[keep]
    ratio = d / q
    merged = np.where(np.abs(ratio) < 0.5, np.log1p(np.maximum(ratio, -0.75)), np.log(p) - np.log(q))
    loss = np.where(seen, merged, low)
    heavy = [atom for atom in law.atoms if atom.p > DROPPED]
    loss, p = (np.append(one, more) for one, more in ((loss, [a.loss for a in heavy]), (p, [a.p for a in heavy])))
    _check_total(float(p.sum()), exact=False)
    return Discrete(loss, np.log(p), 0.0, law.weight_error, law.difference, law.loss_error, law.whole)


def _check_total(mass: float, *, exact: bool) -> None:
    """Fail closed: a NaN or a lost cell must never pass for a small loss."""
    if not (mass <= 1.0 + 1e-9 and (mass >= 1.0 - 1e-9 or not exact)):
        raise NotCertifiedError(
            f"the losses of one step have mass {mass!r} instead of 1: the noise is beyond floats; use less extreme noise"
        )
