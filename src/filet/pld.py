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

from .kernel import Array, LossLaw, Piece


@dataclass(frozen=True)
class Discrete:
    """A loss distribution under P: finite losses with log-masses, and the mass at infinite loss.

    `error` bounds the relative error of `M(z) / M(c)` that stems from rounding of masses and losses (see `compose`).
    """

    loss: Array
    log_mass: Array
    infinite: float
    weight_error: float


def _edges(piece: Piece, width: float, reach: float) -> Array:
    """Cell edges in increasing x, equally spaced where either density matters, with the interval's ends."""
    low = max(piece.low, min(piece.means) - reach)
    high = min(piece.high, max(piece.means) + reach)
    if not low < high:  # the interval lies in a far tail: one cell suffices
        return np.array([piece.low, piece.high])
    inner = np.linspace(low, high, 2 + math.ceil((high - low) / width))
    ends_low = [] if low == piece.low else [piece.low]
    ends_high = [] if high == piece.high else [piece.high]
    return np.concatenate([ends_low, inner, ends_high])


def _ordered_cells(piece: Piece, width: float, reach: float) -> tuple[Array, Array, Array, Array]:
    """Edge losses (increasing; +-inf at open ends) and the P-, Q- and (P-Q)-masses of the cells."""
    x = _edges(piece, width, reach)
    finite = np.isfinite(x)
    up = piece.increasing
    loss = np.empty_like(x)
    loss[finite] = piece.loss(x[finite])
    loss[~finite] = np.where((x[~finite] > 0) == up, np.inf, -np.inf)
    p, q, d = piece.masses(x)
    if not up:
        loss, p, q, d = loss[::-1], p[::-1], q[::-1], d[::-1]
    return np.maximum.accumulate(loss), p, q, d


def discretise_above(law: LossLaw, width: float, reach: float) -> tuple[Discrete, Discrete]:
    """Dominating discrete losses, for (P, Q) and for (Q, P)."""
    losses, masses = [], []
    infinite_p = infinite_q = law.lost
    for piece in law.pieces:
        loss, p, q, d = _ordered_cells(piece, width, reach)
        at = np.zeros_like(loss)  # P-mass at each edge loss
        low, high = loss[:-1], loss[1:]
        inner = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            # share of the cell's P-mass that goes to its upper end: (P - e^low Q) / (P (1 - e^(low-high)))
            excess = np.where(np.abs(low) < 0.5, d - q * np.expm1(low), p - q * np.exp(low))
            share = excess / (p * -np.expm1(low - high))
        share = np.clip(np.where(inner & np.isfinite(share), share, 1.0), 0.0, 1.0)
        upper = np.where(inner, p * share, 0.0)
        at[1:] += upper
        at[:-1] += np.where(inner, p - upper, 0.0)
        if math.isinf(loss[0]):  # losses from -inf: round up to the first edge; the rest of Q has loss -inf
            at[1] += p[0]
            infinite_q += max(q[0] - p[0] * math.exp(min(700.0, -loss[1])), 0.0)
        if math.isinf(loss[-1]):  # losses to +inf: keep the Q-mass at the last edge; the rest of P is at +inf
            kept = min(q[-1] * math.exp(min(700.0, loss[-2])), p[-1])
            at[-2] += kept
            infinite_p += p[-1] - kept
        finite = np.isfinite(loss)
        losses.append(loss[finite])
        masses.append(at[finite])
    for atom in law.atoms:
        losses.append(np.array([atom.loss]))
        masses.append(np.array([atom.p]))
    loss, mass = np.concatenate(losses), np.concatenate(masses)
    loss, mass = loss[mass > 0], mass[mass > 0]
    log_mass = np.log(mass)
    # Infinite masses are sums of positive tails, good to a few parts in 1e13; round them up.
    forward = Discrete(loss, log_mass, infinite_p * (1 + 1e-9), law.weight_error)
    backward = Discrete(-loss, log_mass - loss, infinite_q * (1 + 1e-9), law.weight_error)
    return forward, backward


def discretise_below(law: LossLaw, width: float, reach: float) -> tuple[Discrete, Discrete]:
    """Dominated discrete losses, for (P, Q) and for (Q, P)."""
    losses, p_masses, q_masses = [], [], []
    for piece in law.pieces:
        _, p, q, d = _ordered_cells(piece, width, reach)
        keep = (p > 1e-307) & (q > 1e-307)  # dropping outcomes lowers every profile
        p, q, d = p[keep], q[keep], d[keep]
        ratio = d / q
        losses.append(np.where(np.abs(ratio) < 0.5, np.log1p(np.maximum(ratio, -0.75)), np.log(p) - np.log(q)))
        p_masses.append(p)
        q_masses.append(q)
    for atom in law.atoms:
        if atom.p > 1e-307:
            losses.append(np.array([atom.loss]))
            p_masses.append(np.array([atom.p]))
            q_masses.append(np.array([atom.q]))
    loss = np.concatenate(losses)
    forward = Discrete(loss, np.log(np.concatenate(p_masses)), 0.0, law.weight_error)
    backward = Discrete(-loss, np.log(np.concatenate(q_masses)), 0.0, law.weight_error)
    return forward, backward
