"""Lending: upper bounds of the one-step profile of truncated batches that hold for any shares (the theory page's Theorem 4).

A node is a loss `e`, taken as exact, with `a = exp(e)`. Profiles are returned in *parts*: `H_a` where `e >= 0`, and the
excess `H_a - (1 - a)`, computed as such, where `e < 0`. The part of the reverse pair at `-e` is `exp(-e)` times the part at `e`.

Every number returned is an upper bound including rounding. The recipe: weights are moved to their safe side first (`_both`,
`cover`), then count as exact; integrals come with a bound of their error (`tails`).
Distances are in units of the noise's standard deviation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..._binomial import CapWeights
from ..._rounding import FEW, LEAST_LIGHT, UNIT
from ...errors import NotCertifiedError
from ..terms import Adjacency
from .loss_law import Array
from .tails import Integral, integral
from .tails import upper as _upper

LEAST_NOISE, MOST_NOISE = 0.01, 1e8  # the range that the error bounds of `tails` are for
_LARGEST_EXPONENT = 690.0
_LEAST_PSI = (0.01, 0.1)  # where it is less, a second tangent gains less than 1e-4, and so does a third


def lendable(weights: CapWeights, sigma: float) -> bool:
    """The weights have enough digits, and the noise is in the range that the error bounds are for.

    Proof: theory.md#lending
    """
    return LEAST_NOISE <= sigma <= MOST_NOISE and weights.error <= 1e-3 and min(weights.w, weights.tau) >= LEAST_LIGHT


class Enclosure(NamedTuple):
    """A weight of `a Q - P`, rounded down and rounded up; neither is negative."""

    down: Array
    up: Array


@dataclass(frozen=True)
class Step:
    """One step of policy truncate with cap < n and p < 1; the `lenders` levels below the top may lend.

    For data set sizes from `least` to n it has the levels of n and the hit rate of `least`.

    Proof: theory.md#lending, theory.md#every-size-up-to-a-largest-one
    """

    n: int
    p: float
    cap: int
    sigma: float
    adjacency: Adjacency
    weights: CapWeights
    lenders: int
    least: int | None = None  # n, if that is the only size

    def __post_init__(self) -> None:
        resolved = LEAST_NOISE <= self.sigma <= MOST_NOISE and self.weights.error <= 1e-3
        inside = resolved and self.cap < self.n and 0.0 < self.p < 1.0 and self.lenders < self.cap
        few = self.least is not None and self.least - 1 < 2 * (self.cap - 1)
        if not (inside and (self.lenders == 0 or (lendable(self.weights, self.sigma) and not few))):
            raise NotCertifiedError(
                f"lending is not computed for dataset_size={self.n}, p={self.p!r}, cap={self.cap}, noise "
                f"{self.sigma!r}; use the swap analysis"
            )

    @cached_property
    def error(self) -> float:
        """Bound of the relative error of every product of a weight, `levels` included (5 roundings a level)."""
        return self.weights.error + (5 * self.lenders + 16) * UNIT

    @cached_property
    def levels(self) -> Array:
        """Pr[B-1-k others drawn], k = 1 .. lenders, one row each; a column a node, or one for all."""
        k = np.arange(self.lenders)[:, None]
        down = (self.cap - 1.0 - k) * (1.0 - self.p) / ((self.n - self.cap + 1.0 + k) * self.p)
        return np.asarray(self.weights.w * np.cumprod(down, axis=0))

    @cached_property
    def far(self) -> Array:
        """Upper bound of Pr[fewer than B-1-lenders others drawn]."""
        lend = self.levels.sum(axis=0)
        return np.asarray(np.maximum(self.weights.room - lend, 0.0) + self.error * (self.weights.room + lend))

    @cached_property
    def draws(self) -> tuple[float, float]:
        """(m, kappa): vbar - ubar is kappa times the deviation of a mean of m draws; kappa rounded up."""
        others, inside = (self.least or self.n) - 1, self.cap - 1
        outside = others - inside
        m, rest = np.minimum(inside, outside), np.maximum(inside, outside)
        return m, others / rest * (1 + FEW)

    def excess(self, loss: Array, shares: Array, tilts: Array) -> Array:
        """The bound in parts, for any shares and tilts. Proof: theory.md#lending"""
        return profile_excess(self, loss, shares, tilts)

    def masses(self, loss: Array) -> tuple[Enclosure, Enclosure, Enclosure, Enclosure, Enclosure]:
        """low, low2, m_0, m_1, top2 of the theorem; where a < 1, negative weights are put to zero."""
        v, p, gap, a, nothing = self.weights, self.p, np.expm1(loss), np.exp(loss), np.zeros_like(loss)
        if self.adjacency is Adjacency.REPLACE_ONE:
            stay, swap = _both(v.stay * gap, 0.0, self.error), _both(v.swap * gap, 0.0, self.error)
            return _both((1 - p) * gap, 0.0, FEW), _both(a * p, 0.0, FEW), stay, swap, _both(a * v.c, 0.0, self.error)
        if self.adjacency is Adjacency.ADD_REMOVE:
            hits, m1 = nothing, _both(gap * v.tau, v.tq, self.error)
        else:
            hits, m1 = a * v.tq, _both(gap * v.swap, 0.0, self.error)
        low, off = gap + p, FEW * (np.abs(gap) + p)
        # the digits of w are fewer than those of a - 1 + p, so the two are multiplied, not w (a-1) and w p added
        down, up, few, many = low - off, low + off, v.w * (1 - self.error), v.w * (1 + self.error)
        least = np.where(down > 0.0, down * few, down * many) + hits * (1 - self.error)
        most = np.where(up > 0.0, up * many, up * few) + hits * (1 + self.error)
        own, m0 = (
            Enclosure(np.maximum(one, 0.0), np.maximum(other, 0.0)) for one, other in ((down, up), (least, most))
        )
        return own, Enclosure(nothing, nothing), m0, m1, Enclosure(nothing, nothing)


def _both(first: Array, second: Array | float, error: float) -> Enclosure:
    """first + second, where each has the given relative error; `second` is not negative."""
    total, off = first + second, error * (np.abs(first) + second)
    return Enclosure(np.maximum(total - off, 0.0), np.maximum(total + off, 0.0))


def cover(step: Step, m0: Array, m1: Array, lent: Array, tilts: Array) -> tuple[Array, Array]:
    """M and theta: the top's negative part is at least M N(Y + theta d). M is rounded down, theta up.

    Rounding e_k down is lending less, which is allowed; after that the e_k count as exact, and so does the tilt.

    Proof: theory.md#lending
    """
    last, i = float(step.lenders), 0.5 / step.sigma**2
    k = np.arange(1.0, last + 1.0)[:, None]
    safe = np.maximum(1.0 - 4 * UNIT * (last * np.abs(tilts) + last * last * i + 8.0), 0.0)
    e = lent * np.exp(np.minimum(-k * tilts - k * k * i, _LARGEST_EXPONENT)) * safe
    up, whole = k[:, 0] @ e, e.sum(axis=0)
    total = up + m0 + whole
    terms = last + 8.0  # roundings of a sum
    theta, log_1, log_up = up / total, np.log(m1), np.log(up)
    rest = log_1 - i + tilts - log_up
    logs = np.abs(log_1) + i + np.abs(tilts) + np.abs(log_up)
    off = 2 * terms * (1 + theta * (1 + np.abs(rest))) + 4 * theta * logs
    mass = total * np.exp(theta * rest) * (1.0 - 2.0 * UNIT * off)
    use = np.isfinite(mass) & (mass > m0)
    return np.where(use, mass, m0), np.where(use, theta * (1 + 2 * terms * UNIT), 0.0)


def _rise(step: Step, c: Array, mass: Array, top2: Array | None, r: Array | float) -> tuple[Integral, Array, Array]:
    """The reading at r, V_r - V_0, and a bound of its error."""
    y = np.sqrt(r) / step.sigma
    if top2 is None:  # V_0 is c - M or 0, so the rise is V's other half or V itself: no cancellation
        v = integral(c, mass, None, y, np.where(mass < c, -1.0, 1.0))
        return v, v.value, v.error
    v, start = integral(c, mass, top2, y), integral(np.maximum(c - mass, 0.0), np.zeros_like(c), top2, y)
    return v, v.value - start.value, v.error + 2.0 * start.error


def _tangent(
    step: Step, mass: Array, theta: Array, r: Array | float, reading: tuple[Integral, Array, Array]
) -> tuple[Array, Array]:
    """An upper bound of V_r - V_0 times e^{psi - slope (r-1)}, and a good next r; r >= 1, and 1 with top2."""
    (m, kappa), (v, rise, error), y = step.draws, reading, np.sqrt(r) / step.sigma
    z, far = v.x - y, np.square(kappa * theta)
    away = np.abs(z)
    slope = mass * np.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * 2 * step.sigma * np.sqrt(r))
    loose = 2.0 * (away + 1.0) * (v.off + 4 * UNIT * (away + y + 8.0))  # of the density above
    steep, flat = slope * (1 + loose) / (rise - error), slope * (1 - loose) / (rise + error)
    reach = steep * far * (1 + FEW)
    left = 1.0 - 2.0 * reach / m * (1 + FEW)
    psi = (4.0 * reach / left + 2.0 * steep * reach / left**2) / m * (1 + FEW)
    psi = psi - np.maximum(flat, 0.0) * (r - 1.0) * (1 - FEW)
    good = (rise > 2 * error) & (left > 1e-6) & (loose < 0.1) & (psi < _LARGEST_EXPONENT)
    tight = np.where(good, (rise + error) * np.exp(psi) * (1 + 4 * UNIT * (np.abs(psi) + 8.0)), np.inf)
    ahead = np.where(left > 0.2, 4.0 * (far + reach) / m / np.maximum(left, 0.2) ** 2, 2.0)
    return tight, 1.0 + np.fmin(np.fmax(ahead, 0.0), 3.0)


def top(step: Step, c: Array, mass: Array, top2: Array | None, theta: Array) -> tuple[Array, Array]:
    """Upper bounds of V_0 and of what the theorem's Top adds to it, by the tangent at 1 and (without top2) some more.

    Proof: theory.md#lending
    """
    (m, kappa), reading = step.draws, _rise(step, c, mass, top2, 1.0)
    rise, base = np.maximum(reading[1], 0.0) + reading[2], np.maximum(c - mass, 0.0) * (1 + FEW)
    tight, ahead = _tangent(step, mass, theta, 1.0, reading)
    if top2 is None:
        for psi in _LEAST_PSI:  # the tangent may be taken anywhere, and does better a little further out
            loose = (theta > 0.0) & (tight > rise * (1 + psi))
            if loose.any():
                at, r = mass[loose], ahead[loose]
                more, ahead[loose] = _tangent(step, at, theta[loose], r, _rise(step, c[loose], at, None, r))
                tight[loose] = np.minimum(tight[loose], more)
    else:
        base = _upper(base, np.zeros_like(c), top2, 1.0 / step.sigma)
        # where log(V_r - V_0) is known to be concave in r
        edge = 1.0 / step.sigma + 0.5 * step.sigma * np.log(c / top2)
        known = (mass >= c) | (edge * (1 + 1e-9) + 1e-9 <= np.minimum(math.sqrt(3.0), 1.5 * step.sigma))
        tight = np.where(known, tight, np.inf)
    away = kappa * theta / np.sqrt(m)
    sure = rise + mass * (away + away * away) / (2.0 * step.sigma * math.sqrt(2 * math.pi)) * (1 + FEW)
    return base, np.where(theta > 0.0, np.minimum(tight, sure), rise)


def lent_excess(step: Step, loss: Array, shares: Array, tilts: Array) -> Array:
    """The theorem's h_1 in parts, for shares of shape (nodes, lenders) and a tilt a node; infinite below a_0.

    Proof: theory.md#lending
    """
    if step.adjacency is Adjacency.REPLACE_ONE:  # symmetric
        return np.exp(np.minimum(loss, 0.0)) * (1 + FEW) * _lent(step, np.abs(loss), shares, tilts)
    if step.adjacency is Adjacency.ADD_REMOVE:
        return _lent(step, loss, shares, tilts)
    part, above = np.full_like(loss, np.inf), loss >= 0.0
    if above.any():
        part[above] = _lent(step, loss[above], shares[above], tilts[above])
    return part


def _lent(step: Step, loss: Array, shares: Array, tilts: Array) -> Array:
    """Above a = 1 the value: c up, negative weights down. Below, the excess: c and M down, what the rest loses up."""
    share = np.fmin(np.fmax(shares.T, 0.0), 1.0)  # NaN is replaced
    tilts = np.fmin(np.fmax(tilts, -1e3), 1e3)
    low, low2, m0, m1, top2 = step.masses(loss)
    replaced, above, sign = step.adjacency is Adjacency.REPLACE_ONE, *_sides(loss)
    level, y = step.levels, 1.0 / step.sigma
    mass, theta = cover(step, m0.down, m1.down, share * low.down * (level * (1 - step.error)), tilts)
    c = step.weights.c * (1 + sign * step.error)
    base, rise = top(step, c, mass, top2.down if replaced else None, theta)
    given = (share * low.up * level).sum(axis=0) * (1 + 2 * step.error) + m0.up + m1.up
    lost = np.maximum(given * (1 + FEW) - np.minimum(mass, c), 0.0) + FEW * given
    whole, second = np.where(above, low.down, low.up), low2.down if replaced else None
    own, hit = (1.0 - share) * whole * (1 - sign * FEW), np.full_like(loss, step.p)
    kept = _upper(np.broadcast_to(hit, own.shape), own, second, y, sign)
    far = step.far * _upper(hit, whole, second, y, sign)
    result = np.where(above, base, lost) + rise + (level * kept).sum(axis=0) * (1 + 2 * step.error) + far
    valid = above | (m1.down > 0.0)  # below a = 1 this proves a > a_0
    # Not needed for soundness: a smaller M is allowed and may give less than the theorem with exact weights. The factor
    # makes up for that wherever psi is not large.
    return np.asarray(np.where(valid & np.isfinite(result), result * (1 + 16 * step.error), np.inf))


def _sides(loss: Array) -> tuple[Any, Array]:
    """The nodes with a >= 1, and the sign that readings have there (values) and elsewhere (excesses)."""
    above = loss >= 0.0
    return above, np.where(above, 1.0, -1.0)


def swap_excess(step: Step, loss: Array) -> Array:
    """The profile of Theorem 2 in parts.

    Proof: theory.md#truncation-who-is-compared-with-whom
    """
    if step.adjacency is Adjacency.REPLACE_ONE and (loss < 0.0).any():  # symmetric
        return np.exp(np.minimum(loss, 0.0)) * (1 + FEW) * swap_excess(step, np.abs(loss))
    v, y, replaced = step.weights, 1.0 / step.sigma, step.adjacency is Adjacency.REPLACE_ONE
    low, low2, m0, m1, top2 = step.masses(loss)
    above, sign = _sides(loss)
    gap = -np.expm1(np.minimum(loss, 0.0))  # below a = 1, v has a positive weight in P - aQ where m_1 < 0 for sure
    if step.adjacency is Adjacency.ADD_REMOVE:
        surplus = np.maximum(gap * v.tau * (1 - step.error) - v.tq * (1 + step.error), 0.0)
    else:
        surplus = gap * v.swap * (1 - step.error)
    c = v.c * (1 + sign * step.error) + surplus * (1 - FEW)
    first, second, whole = (np.where(above, one.down, one.up) for one in (m0, m1, low))
    if replaced:
        second = (second + top2.down) * (1 - FEW)
    full = _upper(c * (1 + sign * FEW), first, second, y, sign)
    rest = _upper(np.full_like(loss, step.p), whole, low2.down if replaced else None, y, sign)
    return np.asarray((full + v.room * (1 + step.error) * rest) * (1 + FEW))


def profile_excess(step: Step, loss: Array, shares: Array, tilts: Array) -> Array:
    """The smaller of the two bounds, in parts.

    Proof: theory.md#lending
    """
    return np.minimum(lent_excess(step, loss, shares, tilts), swap_excess(step, loss))
