"""Loss law -> discrete loss distributions that bracket it.

*Above*: each cell of outcomes is split onto its two end losses, keeping its P- and Q-mass ("connect the dots"). The
privacy profile of the result interpolates the true, convex profile linearly between nodes, so it lies above it and the
discrete pair dominates, under composition too. *Below*: each cell is merged into one outcome, which is
post-processing, so the discrete pair is dominated. Both errors shrink with the square of the cell width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...errors import NotCertifiedError
from .loss_law import Array, LossLaw, Piece

# More than all masses that underflow to zero together, per step; put on an infinite loss in upper bounds.
UNDERFLOW = 1e-300
_RESOLVED = 1e-290  # smaller masses are denormal or nearly so, and their digits are not trusted


@dataclass(frozen=True)
class Discrete:
    """A loss distribution under P: finite losses with log-masses, and the mass at infinite loss.

    `weight_error` bounds the relative error of the binomial weights behind it, and `difference` the total variation
    of P - Q, which sets how much rounding of masses can change the mean loss.
    """

    loss: Array
    log_mass: Array
    infinite: float
    weight_error: float
    difference: float = 1.0


@dataclass(frozen=True)
class Focus:
    """Where cells should be small: `log_weight` says, for some losses, how much a step with that loss matters.

    Any partition into cells gives proven bounds; this only makes them tight.
    """

    cells: int  # about this many cells in all
    loss: Array  # increasing
    log_weight: Array


def _grid(piece: Piece, reach: float, width: float) -> Array:
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
    return np.concatenate([np.linspace(low, high, 2 + math.ceil((high - low) / width)) for low, high in parts])


def _with_ends(piece: Piece, inner: Array) -> Array:
    ends = np.concatenate([[piece.low], inner, [piece.high]])
    return np.asarray(ends[np.concatenate([[True], np.diff(ends) > 0])])


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


def _cut(piece: Piece, x: Array) -> Cut:
    finite = np.isfinite(x)
    up = piece.increasing
    loss = np.where((x > 0) == up, np.inf, -np.inf)
    loss[finite] = piece.loss(x[finite])
    return Cut(x, loss, *piece.masses(x), up)


def equal_cells(law: LossLaw, reach: float, width: float) -> Cells:
    """Cells of one width, in standard deviations; good for a first look at any law."""
    return Cells(law, [_cut(piece, _with_ends(piece, _grid(piece, reach, width))) for piece in law.pieces])


def fitted_cells(look: Cells, focus: Focus) -> Cells:
    """Cells fitted to where the answer lies, after a look at the law with other cells.

    The error of a cell of width v grows as I v^2 per unit of x, where I is the density times the squared slope of the
    loss times the weight of that loss. For a given number of cells the sum is smallest if v is proportional to I^(-1/3).
    """
    inner, logs = [], []
    for cut in look.cuts:
        first, last = (int(v) for v in np.flatnonzero(np.isfinite(cut.x))[[0, -1]])
        x, loss = cut.x[first : last + 1], cut.loss[first : last + 1]
        width = np.diff(x)
        weight = np.interp(loss[1:], focus.loss, focus.log_weight)
        with np.errstate(divide="ignore"):  # density times squared slope is p (change of loss)^2 / width^3
            logs.append(np.log(cut.p[first:last]) + 2.0 * np.log(np.abs(np.diff(loss))) - 3.0 * np.log(width) + weight)
        inner.append(x)
    top = max((float(v.max()) for v in logs if v.size), default=0.0)
    top = top if top > -math.inf else 0.0
    # With little noise there are long gaps between the means, which a few cells suffice for.
    counts = [np.concatenate([[0.0], np.cumsum(np.cbrt(np.exp(v - top) + 1e-6) * np.minimum(np.diff(x), 1.0))])
              for v, x in zip(logs, inner, strict=True)]  # fmt: skip
    unit = max(sum(float(count[-1]) for count in counts) / focus.cells, 1e-300)
    cuts = []
    for piece, x, count in zip(look.law.pieces, inner, counts, strict=True):
        edges = np.interp(np.linspace(0.0, count[-1], 2 + math.ceil(count[-1] / unit)), count, x)
        edges[0], edges[-1] = x[0], x[-1]
        cuts.append(_cut(piece, _with_ends(piece, edges)))
    return Cells(look.law, cuts)


def discretise_above(cells: Cells) -> Discrete:
    """The dominating discrete loss on the given cells."""
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
        share = np.clip(np.where(inner & np.isfinite(share) & (q > _RESOLVED), share, 1.0), 0.0, 1.0)
        upper = np.where(inner, p * share, 0.0)
        at[1:] += upper
        at[:-1] += np.where(inner, p - upper, 0.0)
        if math.isinf(loss[0]):  # losses from -inf: round up to the first edge
            at[1] += p[0]
        if math.isinf(loss[-1]):  # losses to +inf: keep the Q-mass at the last edge; the rest of P is at +inf
            kept = min(q[-1] * math.exp(min(700.0, loss[-2])), p[-1]) if q[-1] > _RESOLVED else 0.0
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
    return Discrete(loss, np.log(mass), infinite * (1 + 1e-9), law.weight_error, _difference(law))


def discretise_below(cells: Cells) -> Discrete:
    """The dominated discrete loss on the given cells."""
    law = cells.law
    losses, masses = [], []
    for cut in cells.cuts:
        loss, p, q, d = cut.ordered()
        # Where Q underflows, the loss at the cell's lower end is a lower bound of the merged one. Dropping the
        # lightest outcomes, and those of the open first cell, lowers every profile.
        seen = q > _RESOLVED
        keep = (p > 1e-307) & (seen | np.isfinite(loss[:-1]))
        seen, low, p, q, d = seen[keep], loss[:-1][keep], p[keep], q[keep], d[keep]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = d / q
            merged = np.where(np.abs(ratio) < 0.5, np.log1p(np.maximum(ratio, -0.75)), np.log(p) - np.log(q))
        losses.append(np.where(seen, merged, low))
        masses.append(p)
    for atom in law.atoms:
        if atom.p > 1e-307:
            losses.append(np.array([atom.loss]))
            masses.append(np.array([atom.p]))
    mass = np.concatenate(masses)
    _check_total(float(mass.sum()), exact=False)
    return Discrete(np.concatenate(losses), np.log(mass), 0.0, law.weight_error, _difference(law))


def _difference(law: LossLaw) -> float:
    return sum(abs(v) for piece in law.pieces for v in piece.d)


def _check_total(mass: float, *, exact: bool) -> None:
    """Fail closed: a NaN or a lost cell must never pass for a small loss."""
    if not (mass <= 1.0 + 1e-9 and (mass >= 1.0 - 1e-9 or not exact)):
        raise NotCertifiedError(
            f"the losses of one step have mass {mass!r} instead of 1; please report these parameters"
        )
