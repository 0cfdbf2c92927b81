"""What to lend: shares and tilts for `proving.lending`.

Nothing here can make a bound wrong; it decides how tight the bound is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from ..proving.lending import Step, cover, top
from ..proving.loss_law import Array
from ..proving.tails import threshold, upper
from ..terms import Adjacency

KNOTS = 20
_PACES = (0.9, 0.7, 0.5, 0.7, 0.5, 0.5, 0.4, 0.0)  # damping of each round: faster for few lenders, but many overshoot
_JUDGED = 2  # last rounds that are compared
_MOST_LENDERS = 48  # beyond sigma = 7 the lowest levels add little
_LARGEST_LOSS = 600.0
_TINY = 1e-300


@dataclass(frozen=True)
class Shares:
    """Shares and tilts at knots of log((a-1+p)/p), interpolated in between and constant beyond."""

    step: Step
    knots: Array
    share: Array  # (lenders, knots)
    tilt: Array

    def at(self, loss: Array) -> tuple[Array, Array]:
        """Shares (nodes, lenders) and tilts at the nodes."""
        where, t = places(self.step, loss)
        share = np.stack([np.interp(t, self.knots, row) for row in self.share])
        return improved(self.step, where, share, np.interp(t, self.knots, self.tilt))


def places(step: Step, loss: Array) -> tuple[Array, Array]:
    """The losses that masses are for, and where nodes stand among knots."""
    where = np.abs(loss) if symmetric(step) else loss
    return where, np.log(np.maximum(np.expm1(where) / step.p + 1.0, _TINY))


def improved(step: Step, where: Array, share: Array, tilt: Array) -> tuple[Array, Array]:
    """Shares (nodes, lenders) and tilts at the nodes, the tilts improved by two steps of Newton's method."""
    low, _, _, m1, _ = step.masses(where)
    lent = share * low.down * step.levels
    for _ in range(2):
        tilt = newton(step, m1.down, lent, tilt)
    return share.T, tilt


def lenders(cap: int, sigma: float) -> int:
    """How many levels below the top may lend."""
    return min(cap - 1, int(2.5 * sigma) + 4, _MOST_LENDERS)


def _within(value: Array, low: float, high: float) -> Array:
    return np.minimum(np.maximum(value, low), high)


def newton(step: Step, m1: Array, lent: Array, tilt: Array) -> Array:
    """One step towards the tilt at which M is largest: m_1 e^{l-i} = sum k mu_k e^{-kl-k^2 i}."""
    k, i = np.arange(1.0, step.lenders + 1.0)[:, None], 0.5 / step.sigma**2
    e = lent * np.exp(_within(-k * tilt - k * k * i, -700.0, 600.0))
    up = np.maximum((k * e).sum(axis=0), _TINY)
    with np.errstate(divide="ignore"):
        off = np.log(m1) - i + tilt - np.log(up)
    return np.asarray(tilt - _within(off, -9.0, 9.0) / (1.0 + (k * k * e).sum(axis=0) / up))


def choose(step: Step) -> Shares:
    """What to lend, at knots that suit the noise."""
    knots = np.linspace(-3.0, min(2.0 / step.sigma**2 + 10.0 / step.sigma, _LARGEST_LOSS), KNOTS)
    share, tilt = np.full((step.lenders, KNOTS), 0.5), np.full(KNOTS, -1.0)
    return Shares(step, knots, *settle(step, knots, share, tilt, _PACES))


def settle(step: Step, knots: Array, share: Array, tilt: Array, paces: Sequence[float]) -> tuple[Array, Array]:
    """A damped fixed point of "a unit of mass is worth as much at home as lent", at each knot; the better last round is kept."""
    sigma, p = step.sigma, step.p
    k = np.arange(1.0, step.lenders + 1.0)[:, None]
    loss = np.log1p(p * np.expm1(knots))
    replaced = step.adjacency is Adjacency.REPLACE_ONE
    if step.adjacency is not Adjacency.ADD_REMOVE:
        loss = np.maximum(loss, 1e-3 * p)
    low, low2, m0, m1, top2 = (both.down for both in step.masses(loss))
    c, second = np.full_like(loss, step.weights.c), top2 if replaced else None
    best, kept_share, kept_tilt = np.full(loss.shape, np.inf), share, tilt
    hit, home = np.broadcast_to(p, share.shape), np.broadcast_to(low2, share.shape) if replaced else None
    for number, pace in enumerate(paces):
        lent = share * low * step.levels
        tilt = newton(step, m1, lent, newton(step, m1, lent, tilt))
        mass, theta = cover(step, m0, m1, lent, tilt)
        if number >= len(paces) - _JUDGED:
            own = upper(hit, (1.0 - share) * low, home, 1.0 / sigma)
            value = np.add(*top(step, c, mass, second, theta, 0)) + (step.levels * own).sum(axis=0)
            better = value < best
            best = np.where(better, value, best)
            kept_share, kept_tilt = np.where(better, share, kept_share), np.where(better, tilt, kept_tilt)
        if pace:
            goal = _goal(step, k, tilt, low, low2, threshold(c, mass, second, 1.0 / sigma)[0])
            share = share + pace * (goal - share)
    return kept_share, kept_tilt


def _goal(step: Step, k: Array, tilt: Array, low: Array, low2: Array, x: Array) -> Array:
    """The share at which level k's threshold at home gives its mass the price that the top pays."""
    y = 1.0 / step.sigma
    price = np.exp(_within(-k * tilt - 0.5 * (k * y) ** 2, -700.0, 50.0))
    own = y + ndtri(_within(price * ndtr(x - y), _TINY, 1.0 - 1e-15))  # in standard deviations
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        hit = step.p - low2 * np.exp(np.minimum(2.0 * y * own - 2.0 * y * y, 700.0))
        keep = hit * np.exp(_within(0.5 * y * y - own * y, -700.0, 700.0)) / low
    return _within(1.0 - np.where(np.isfinite(keep), keep, 1.0), 0.0, 1.0)


def symmetric(step: Step) -> bool:
    return step.adjacency is Adjacency.REPLACE_ONE
