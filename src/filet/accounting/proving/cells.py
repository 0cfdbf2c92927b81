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
        return np.maximum.accumulate(loss), p, q, d


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
    inside = np.unique(inner[(inner > piece.low) & (inner < piece.high)])
    x = np.concatenate([[piece.low], inside, [piece.high]])
    finite, up = np.isfinite(x), piece.increasing
    loss = np.where((x > 0) == up, np.inf, -np.inf)
    loss[finite] = piece.loss(x[finite])
    return Cut(x, loss, *piece.masses(x), up)


def discretise_above(cells: Cells) -> Discrete:
    """The dominating discrete loss on the given cells. Proof: engine.md#two-discrete-losses-around-the-true-one"""
    law = cells.law
    losses, masses = [], []
    infinite = law.lost + UNDERFLOW
    for cut in cells.cuts:
        loss, p, q, d = cut.ordered()
        at = np.zeros_like(loss)  # P-mass at each edge loss
        low, high = loss[:-1], loss[1:]
        inner = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            # share of the cell's P-mass that goes to its upper end: (P - e^low Q) / (P (1 - e^(low-high)))
            excess = np.where(np.abs(low) < 0.5, d - q * np.expm1(low), p - q * np.exp(low))
            share = excess / (p * -np.expm1(low - high))
        share = np.clip(np.where(inner & np.isfinite(share) & (q > RESOLVED), share, 1.0), 0.0, 1.0)
        upper = np.where(inner, p * share, 0.0)
        at[1:] += upper
        at[:-1] += np.where(inner, p - upper, 0.0)
        if math.isinf(loss[0]):  # losses from -inf: round up to the first edge
            at[1] += p[0]
        if math.isinf(loss[-1]):  # losses to +inf: keep the Q-mass at the last edge; the rest of P is at +inf
            kept = min(q[-1] * math.exp(min(700.0, loss[-2])), p[-1]) if q[-1] > RESOLVED else 0.0
            at[-2] += kept
            infinite += float(p[-1] - kept)
        finite = np.isfinite(loss)
        losses.append(loss[finite])
        masses.append(at[finite])
    for atom in law.atoms:
        losses.append(np.array([atom.loss]))
        masses.append(np.array([atom.p]))
    loss, mass = np.concatenate(losses), np.concatenate(masses)
    _check_total(float(mass.sum()) + infinite, exact=True)
    loss, mass = loss[mass > 0], mass[mass > 0]
    # Infinite masses are sums of positive tails, good to a few parts in 1e13; round them up.
    return Discrete(
        loss, np.log(mass), infinite * (1 + SUM_ERROR), law.weight_error, law.difference, law.loss_error, law.whole
    )


def discretise_below(cells: Cells) -> Discrete:
    """The dominated discrete loss on the given cells. Proof: engine.md#two-discrete-losses-around-the-true-one"""
    law = cells.law
    losses, masses = [], []
    for cut in cells.cuts:
        loss, p, q, d = cut.ordered()
        # Where Q underflows, the loss at the cell's lower end is a lower bound of the merged one. Dropping the
        # lightest outcomes, and those of the open first cell, lowers every profile.
        seen = q > RESOLVED
        keep = (p > DROPPED) & (seen | np.isfinite(loss[:-1]))
        seen, low, p, q, d = seen[keep], loss[:-1][keep], p[keep], q[keep], d[keep]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = d / q
            merged = np.where(np.abs(ratio) < 0.5, np.log1p(np.maximum(ratio, -0.75)), np.log(p) - np.log(q))
        losses.append(np.where(seen, merged, low))
        masses.append(p)
    for atom in law.atoms:
        if atom.p > DROPPED:
            losses.append(np.array([atom.loss]))
            masses.append(np.array([atom.p]))
    mass = np.concatenate(masses)
    _check_total(float(mass.sum()), exact=False)
    return Discrete(
        np.concatenate(losses), np.log(mass), 0.0, law.weight_error, law.difference, law.loss_error, law.whole
    )


def _check_total(mass: float, *, exact: bool) -> None:
    """Fail closed: a NaN or a lost cell must never pass for a small loss."""
    if not (mass <= 1.0 + 1e-9 and (mass >= 1.0 - 1e-9 or not exact)):
        raise NotCertifiedError(
            f"the losses of one step have mass {mass!r} instead of 1: the noise is beyond floats; use less extreme noise"
        )
