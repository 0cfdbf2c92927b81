"""What to lend: shares and tilts for `proving.lending`.

Nothing here can make a bound wrong; it decides how tight the bound is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from ..proving.lending import Step
from ..proving.loss_law import Array
from ..proving.tails import threshold
from ..terms import Adjacency

KNOTS = 20
_PACES = (0.9, 0.7, 0.5, 0.7, 0.5, 0.5, 0.4, 0.0)  # damping of each round: faster for few lenders, but many overshoot
_MANY, _MORE_PACES = 12, (0.9, 0.6, 0.6, 0.5, 0.5, 0.4, 0.4, 0.3, 0.3, 0.2, 0.2, 0.0)  # lenders, and their rounds
_JUDGED = 2  # last rounds that are compared
_MOST_LENDERS = 48  # beyond sigma = 7 the lowest levels add little
_LOWEST, _BELOW, _ABOVE = (
    -3.0,
    7.0,
    10.0,
)  # where knots end: never below the first, else so many deviations of the noise
_IMPROVED, _CLOSE = 3, 0.01  # steps of Newton's method at nodes, and how small is small enough
_LARGEST_LOSS = 600.0
_TINY = 1e-300


@dataclass(frozen=True)
class Shares:
    """Shares and tilts at equally spaced knots of log((a-1+p)/p), interpolated in between and constant beyond."""

    step: Step
    knots: Array
    share: Array  # (lenders, knots)
    tilt: Array

    def at(self, loss: Array) -> tuple[Array, Array]:
        """Shares (nodes, lenders) and tilts at the nodes."""
        return between(self.step, self.knots, self.share, self.tilt, loss)


def between(
    step: Step, knots: Array, share: Array, tilt: Array, loss: Array, first: Array | int = 0
) -> tuple[Array, Array]:
    """Shares (nodes, lenders) and tilts at nodes, interpolated; `first` is the column of each node's first knot."""
    where = np.abs(loss) if symmetric(step) else loss
    t = np.log(np.maximum(np.expm1(where) / step.p + 1.0, _TINY))
    place = _within((t - knots[0]) * ((knots.size - 1) / (knots[-1] - knots[0])), 0.0, knots.size - 1.0)
    left = np.minimum(place.astype(np.int64), knots.size - 2)
    right, column = place - left, left + first
    share = share[:, column] * (1.0 - right) + share[:, column + 1] * right
    tilt = tilt[column] * (1.0 - right) + tilt[column + 1] * right
    low, _, _, m1, _ = step.masses(where)
    k, i = np.arange(1.0, step.lenders + 1.0)[:, None], 0.5 / step.sigma**2
    lent, log_m1, drop = share * (low.down * step.levels), np.log(np.maximum(m1.down, _TINY)) - i, k * k * i
    powers = np.hstack([k, k * k]).T
    for _ in range(_IMPROVED):
        before, tilt = tilt, _newton(powers, log_m1, lent * _prices(k, tilt, drop), tilt)
        if np.abs(tilt - before).max(initial=0.0) < _CLOSE:
            break
    return share.T, tilt


def lenders(cap: int, sigma: float) -> int:
    """How many levels below the top may lend."""
    return min(cap - 1, int(2.5 * sigma) + 4, _MOST_LENDERS)


def _within(value: Array, low: float, high: float) -> Array:
    return np.minimum(np.maximum(value, low), high)


def _prices(k: Array, tilt: Array, drop: Array) -> Array:
    """What a unit of mass that level k lends is worth at the top."""
    return np.exp(_within(-k * tilt - drop, -700.0, 300.0))


def _newton(powers: Array, log_m1: Array, lent: Array, tilt: Array) -> Array:
    """One step towards the tilt at which M is largest, m_1 e^{l-i} = sum k mu_k e^{-kl-k^2 i}, for `lent` times its prices;
    `powers` are k and k^2.
    """
    up, bend = powers @ lent + _TINY
    return np.asarray(tilt - _within(log_m1 + tilt - np.log(up), -9.0, 9.0) / (1.0 + bend / up))


def choose(step: Step) -> Shares:
    """What to lend, at knots that suit the noise."""
    y = 1.0 / step.sigma
    low, high = max(_LOWEST, -0.5 * y * y - _BELOW * y), min(2.0 * y * y + _ABOVE * y, _LARGEST_LOSS)
    knots = np.linspace(low, high, KNOTS)
    share, tilt = np.full((step.lenders, KNOTS), 0.5), np.full(KNOTS, -min(1.0, 2.0 * y))
    return Shares(step, knots, *settle(step, knots, share, tilt, _PACES if step.lenders < _MANY else _MORE_PACES))


def settle(step: Step, knots: Array, share: Array, tilt: Array, paces: Sequence[float]) -> tuple[Array, Array]:
    """A damped fixed point of "a unit of mass is worth as much at home as lent", at each knot; the best last round is kept."""
    p, y = step.p, 1.0 / step.sigma
    k = np.arange(1.0, step.lenders + 1.0)[:, None]
    powers, loss = np.hstack([k, k * k]).T, np.log1p(p * np.expm1(knots))
    replaced = step.adjacency is Adjacency.REPLACE_ONE
    if step.adjacency is not Adjacency.ADD_REMOVE:
        loss = np.maximum(loss, 1e-3 * p)
    low, low2, m0, m1, top2 = (both.down for both in step.masses(loss))
    c, low, lendable, drop = (
        np.full_like(loss, step.weights.c),
        np.maximum(low, _TINY),
        low * step.levels,
        k * k * (0.5 * y * y),
    )
    log_m1, price = np.log(np.maximum(m1, _TINY)) - 0.5 * y * y, _prices(k, tilt, drop)
    best, kept_share, kept_tilt = np.full(loss.shape, np.inf), share, tilt
    for number, pace in enumerate(paces):
        lent = share * lendable
        tilt = _newton(powers, log_m1, lent * price, tilt)
        price = _prices(k, tilt, drop)
        mass = m0 + np.exp(np.minimum(log_m1 + tilt, 600.0)) + (lent * price).sum(axis=0)
        x = threshold(c, mass, top2, y)[0] if replaced else 0.5 * y + np.log(c / mass) / y
        paid = ndtr(x - y)
        if number >= len(paces) - _JUDGED:
            value = c * ndtr(x) - mass * paid - (top2 * ndtr(x - 2.0 * y) if replaced else 0.0)
            value = value + (step.levels * _at_home(p, (1.0 - share) * low, low2 if replaced else None, y)).sum(axis=0)
            better = value < best
            best = np.where(better, value, best)
            kept_share, kept_tilt = np.where(better, share, kept_share), np.where(better, tilt, kept_tilt)
        if pace:
            own = y + ndtri(
                _within(price * paid, _TINY, 1.0 - 1e-15)
            )  # the threshold at home that gives mass this price
            hit = p - low2 * np.exp(np.minimum(2.0 * y * own - 2.0 * y * y, 700.0)) if replaced else p
            keep = hit * np.exp(_within(0.5 * y * y - own * y, -700.0, 300.0)) / low
            share = share + pace * (_within(1.0 - keep, 0.0, 1.0) - share)
    return kept_share, kept_tilt


def _at_home(p: Array | float, own: Array, second: Array | None, y: Array | float) -> Array:
    """About what a level's hits add that its own negative mass does not hide."""
    hit, spread = np.broadcast_to(p, own.shape), None if second is None else np.broadcast_to(second, own.shape)
    x = threshold(hit, own, spread, y)[0]
    value = p * ndtr(x) - own * ndtr(x - y)
    return np.asarray(value if spread is None else value - spread * ndtr(x - 2.0 * y))


def symmetric(step: Step) -> bool:
    return step.adjacency is Adjacency.REPLACE_ONE
