"""Loss law -> discrete loss distributions that bracket it.

*Above*: each cell of outcomes is split onto its two end losses, keeping its P- and Q-mass ("connect the dots"). The
privacy profile of the result interpolates the true, convex profile linearly between nodes, so it lies above it and the
discrete pair dominates, under composition too. *Below*: each cell is merged into one outcome, which is
post-processing, so the discrete pair is dominated. Both errors shrink with the square of the cell width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..._rounding import DROPPED, RESOLVED, SUM_ERROR, UNDERFLOW
from ...errors import NotCertifiedError
from .loss_law import Array, LossLaw, Piece


@dataclass(frozen=True)
class Discrete:
    """A loss distribution under P: finite losses with log-masses, and the mass at infinite loss.

    `weight_error` bounds the relative error of the binomial weights behind it, `loss_error` that of a loss, and
    `difference` the total variation of P - Q, which sets how much rounding of masses can change the mean loss.
    Nothing is proven from below with a law that is not `whole`.
    """

    loss: Array
    log_mass: Array
    infinite: float
    weight_error: float
    difference: float = 1.0
    loss_error: float = 0.0
    whole: bool = True


@dataclass(frozen=True)
class Cut:
    """A piece cut into cells: the edges, in increasing x, their losses, and the cells' masses under P, Q and P - Q."""

    x: Array
    loss: Array
    p: Array
    q: Array
    d: Array
    increasing: bool  # whether the loss grows with x

    def ordered(self) -> tuple[Array, Array, Array, Array]:
        """Losses and masses with increasing losses (+-inf at open ends)."""
        loss, p, q, d = self.loss, self.p, self.q, self.d
        if not self.increasing:
            loss, p, q, d = loss[::-1], p[::-1], q[::-1], d[::-1]
        return (loss if (loss[1:] >= loss[:-1]).all() else np.maximum.accumulate(loss)), p, q, d


@dataclass(frozen=True)
class Cells:
    """A loss law cut into cells, to be discretised either way."""

    law: LossLaw
    cuts: list[Cut]

    def reversed(self) -> Cells:
        """The same cells with P and Q exchanged."""
        return Cells(self.law.reversed(), [Cut(c.x, -c.loss, c.q, c.p, -c.d, not c.increasing) for c in self.cuts])


def cut(law: LossLaw, edges: Sequence[Array]) -> Cells:
    """The law cut at the given points of each piece; any points will do, and those outside a piece are left out.

    Proof: engine.md#two-discrete-losses-around-the-true-one
    """
    return Cells(law, [_cut(piece, inner) for piece, inner in zip(law.pieces, edges, strict=True)])


def _cut(piece: Piece, inner: Array) -> Cut:
    inside = inner[(inner > piece.low) & (inner < piece.high)]
    if not (inside[1:] > inside[:-1]).all():
        inside = np.unique(inside)
    x, up = np.concatenate([[piece.low], inside, [piece.high]]), piece.increasing
    loss = np.empty_like(x)
    finite = slice(int(math.isinf(piece.low)), x.size - int(math.isinf(piece.high)))
    loss[0], loss[-1] = (-math.inf, math.inf) if up else (math.inf, -math.inf)
    loss[finite] = piece.loss(x[finite])
    return Cut(x, loss, *piece.masses(x), up)


def _joined(cells: Cells) -> tuple[Array, Array, Array, Array, list[int]]:
    """Losses and masses of all pieces in one row, with cells of no mass between pieces, and where pieces end."""
    ordered = [cut.ordered() for cut in cells.cuts]
    ends = np.cumsum([one[0].size for one in ordered]).tolist()
    if len(ordered) == 1:
        return *ordered[0], ends
    p, q, d = (np.concatenate([v for one in ordered for v in (one[kind], [0.0])][:-1]) for kind in (1, 2, 3))
    return np.concatenate([one[0] for one in ordered]), p, q, d, ends


def discretise_above(cells: Cells) -> Discrete:
    """The dominating discrete loss on the given cells. Proof: engine.md#two-discrete-losses-around-the-true-one"""
    law, infinite = cells.law, cells.law.lost + UNDERFLOW
    loss, p, q, d, ends = _joined(cells)
    low = loss[:-1]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
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
    for end in ends:
        last = end - 2
        if math.isinf(loss[end - 1]):  # losses to +inf: keep the Q-mass at the last edge; the rest of P is at +inf
            kept = min(q[last] * math.exp(min(700.0, loss[last])), p[last]) if q[last] > RESOLVED else 0.0
            upper[last], lower[last] = 0.0, kept
            infinite += float(p[last] - kept)
    at = np.append(lower, 0.0)  # P-mass at each edge loss
    at[1:] += upper
    if law.atoms:
        loss = np.append(loss, [atom.loss for atom in law.atoms])
        at = np.append(at, [atom.p for atom in law.atoms])
    _check_total(float(at.sum()) + infinite, exact=True)
    some = at > 0.0  # nothing is at an infinite edge
    # Infinite masses are sums of positive tails, good to a few parts in 1e13; round them up.
    return Discrete(loss[some], np.log(at[some]), infinite * (1 + SUM_ERROR), law.weight_error, law.difference,
                    law.loss_error, law.whole)  # fmt: skip


def discretise_below(cells: Cells) -> Discrete:
    """The dominated discrete loss on the given cells. Proof: engine.md#two-discrete-losses-around-the-true-one"""
    law = cells.law
    loss, p, q, d, _ = _joined(cells)
    # Where Q underflows, the loss at the cell's lower end is a lower bound of the merged one. Dropping the
    # lightest outcomes, and those of the open first cell, lowers every profile.
    low, seen = loss[:-1], q > RESOLVED
    keep = (p > DROPPED) & (seen | np.isfinite(low))
    if not keep.all():
        seen, low, p, q, d = seen[keep], low[keep], p[keep], q[keep], d[keep]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = d / q
        merged = np.where(np.abs(ratio) < 0.5, np.log1p(np.maximum(ratio, -0.75)), np.log(p) - np.log(q))
    loss = np.where(seen, merged, low)
    heavy = [atom for atom in law.atoms if atom.p > DROPPED]
    if heavy:
        loss, p = np.append(loss, [atom.loss for atom in heavy]), np.append(p, [atom.p for atom in heavy])
    _check_total(float(p.sum()), exact=False)
    return Discrete(loss, np.log(p), 0.0, law.weight_error, law.difference, law.loss_error, law.whole)


def _check_total(mass: float, *, exact: bool) -> None:
    """Fail closed: a NaN or a lost cell must never pass for a small loss."""
    if not (mass <= 1.0 + 1e-9 and (mass >= 1.0 - 1e-9 or not exact)):
        raise NotCertifiedError(
            f"the losses of one step have mass {mass!r} instead of 1: the noise is beyond floats; use less extreme noise"
        )
