"""Gaussian mixtures on a line: losses, cell masses and hockey-stick integrals.

Every dominating pair in filet is glued from *pieces*: two mixtures of unit-variance Gaussians with the same means,
seen on an interval on which their log-ratio (the privacy loss) is monotone, and from *atoms* of constant loss.
A `LossLaw` is such a collection; it is a distribution of losses under P and under Q at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from ..._rounding import LEAST_LIGHT, UNIT

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Atom:
    """An outcome of constant loss: masses under P and under Q."""

    loss: float
    p: float
    q: float


@dataclass(frozen=True)
class Piece:
    """P = sum_j p_j N(m_j, 1) and Q = sum_j q_j N(m_j, 1) on the interval (low, high), with monotone loss.

    `d_j = p_j - q_j` is given separately, computed without cancellation, so that losses of 1e-12 keep their digits.
    Proof: engine.md#loss-laws
    """

    means: tuple[float, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    d: tuple[float, ...]
    low: float = -math.inf
    high: float = math.inf

    @cached_property
    def increasing(self) -> bool:
        """Whether the loss grows with x: what P has more of than Q lies to the right."""
        return self.d[int(np.argmax(self.means))] > self.d[int(np.argmin(self.means))]

    def _log_terms(self, weights: tuple[float, ...], x: Array) -> Array:
        """log sum_j w_j e^{m_j x - m_j^2 / 2}, the density relative to N(0, 1)."""
        terms = [math.log(w) + m * x - 0.5 * m * m for m, w in zip(self.means, weights, strict=True) if w > 0.0]
        total: Array = np.logaddexp.reduce(terms)
        return total

    @cached_property
    def _arrays(self) -> tuple[Array, Array]:
        return np.array(self.means), np.array([self.p, self.q, self.d])

    def loss(self, x: Array) -> Array:
        """log(P/Q) at x, to full relative accuracy also where it is tiny."""
        means, weights = self._arrays
        exponent = means[:, None] * x - (0.5 * np.square(means))[:, None]
        p, q, d = weights @ np.exp(exponent - exponent.max(axis=0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = d / q
            loss = np.where(np.abs(ratio) < 0.5, np.log1p(ratio), np.log(p / q))
        far = (p < LEAST_LIGHT) | (q < LEAST_LIGHT)
        if far.any():
            loss[far] = self._log_terms(self.p, x[far]) - self._log_terms(self.q, x[far])
        return np.asarray(loss)

    def component_masses(self, x: Array) -> Array:
        """Mass of every component between neighbouring points of increasing x; one row a component."""
        t = x - self._arrays[0][:, None]
        tail = ndtr(-np.abs(t))  # of the side that t is on
        low, high, right = tail[:, :-1], tail[:, 1:], t > 0
        mass = np.abs(low - high)
        across = right[:, 1:] > right[:, :-1]
        mass[across] = 1.0 - low[across] - high[across]
        return np.asarray(mass)

    def masses(self, x: Array) -> tuple[Array, Array, Array]:
        """P, Q and P - Q of the cells between neighbouring points of increasing x."""
        p, q, d = self._arrays[1] @ self.component_masses(x)
        return p, q, d

    def loss_error(self, x: Array, loss: Array) -> Array:
        """Bound on the rounding error of `loss` at x: exponents are rounded, and small losses have cancelling parts.

        Proof: engine.md#rounding
        """
        means, weights = self._arrays
        rounded = 2 * UNIT * np.max(np.abs(means[:, None] * x) + np.square(means)[:, None], axis=0) + 8 * UNIT
        exponent = means[:, None] * x - (0.5 * np.square(means))[:, None]
        p, q, d = np.abs(weights) @ np.exp(exponent - exponent.max(axis=0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = np.fmin(2.0, 2.0 * d / np.minimum(p, q))
        return np.asarray(rounded * share + 4 * UNIT * np.abs(loss))

    def threshold(self, loss: Array) -> tuple[Array, Array]:
        """Points between which the loss passes the given one, for certain, clipped to the interval; bisection."""
        # Beyond half of this, P and e^loss Q are both too small for a float.
        spread = 80.0 + 4.0 * math.sqrt(float(np.max(np.abs(loss))))
        ends = np.clip([min(self.means) - spread, max(self.means) + spread], self.low, self.high)
        low, high = np.full(loss.shape, ends[0]), np.full(loss.shape, ends[1])
        up = self.increasing
        gap = np.full(loss.shape, np.inf)  # about the difference of the losses at both ends
        for _ in range(200):
            middle = 0.5 * (low + high)
            unit = 1.0 + np.abs(middle)
            if np.all((high - low <= 4 * UNIT * unit) | ((high - low <= 1e-9 * unit) & (gap <= 1e-7))):
                break
            seen = self.loss(middle)
            gap = np.where(np.isfinite(seen), 2.0 * np.abs(seen - loss), np.inf)
            go_up = (seen < loss) == up
            low, high = np.where(go_up, middle, low), np.where(go_up, high, middle)
        # Rounded losses may have misled it: step outward until the losses at both ends leave no doubt.
        stride = 8 * UNIT * (1.0 + np.abs(low))
        for _ in range(60):
            doubt = []
            for x, sign in ((low, -1.0 if up else 1.0), (high, 1.0 if up else -1.0)):
                seen = self.loss(x)
                doubt.append(~(sign * (seen - loss) > self.loss_error(x, seen)))
            unsure_low, unsure_high = doubt[0] & (low > ends[0]), doubt[1] & (high < ends[1])
            if not (unsure_low | unsure_high).any():
                break
            low = np.where(unsure_low, np.maximum(low - stride, ends[0]), low)
            high = np.where(unsure_high, np.minimum(high + stride, ends[1]), high)
            stride = 2.0 * stride
        # A loss that is for certain beyond that of an end is reached nowhere: the threshold is that end.
        at, sign = self.loss(ends), 1.0 if up else -1.0
        off = self.loss_error(ends, at)
        low = np.where(sign * (loss - at[1]) > off[1], ends[1], low)
        high = np.where(sign * (at[0] - loss) > off[0], ends[0], high)
        return low, high

    def profile(self, epsilon: Array) -> tuple[Array, Array]:
        """This piece's part of H_{e^epsilon}(P || Q), from its outcomes with a loss above epsilon, and its error.

        The integral is stationary in its threshold: moving that within (left, right) changes it by at most the P-mass
        in between times e^(difference of the losses) - 1. Proof: engine.md#one-step
        """
        left, right = self.threshold(epsilon)
        # a loss that the piece never reaches belongs to the very end of its interval
        x = np.where(left <= self.low, self.low, np.where(right >= self.high, self.high, 0.5 * (left + right)))
        low, high = (x, self.high) if self.increasing else (self.low, x)
        near, far, error = np.zeros_like(epsilon), np.zeros_like(epsilon), np.zeros_like(epsilon)
        factor = np.expm1(np.minimum(epsilon, 1.0))
        at_ends = self.loss(left), self.loss(right)
        gap = np.expm1(np.minimum(np.abs(at_ends[1] - at_ends[0]) + sum(self.loss_error(v, s) for v, s in
                                  zip((left, right), at_ends, strict=True)), 1.0))  # fmt: skip
        for m, p, q, d in zip(self.means, self.p, self.q, self.d, strict=True):
            log_cell = log_interval(low - m, high - m)
            cell = np.exp(log_cell)
            near += d * cell - factor * q * cell  # P - a Q = (P - Q) - (a - 1) Q, where the two nearly cancel
            above = p * cell
            # e^epsilon Q may need an e^epsilon beyond floats; the product never does
            below = np.exp(np.minimum(epsilon + math.log(q) + log_cell, 700.0)) if q > 0.0 else 0.0
            far += above - below
            size = np.where(epsilon < 0.5, (abs(d) + factor * q) * cell, above + below)
            error += size * self._tail_error(x - m, x, m, log_cell) + p * gap * np.exp(
                log_interval(left - m, right - m)
            )
        value = np.maximum(np.where(epsilon < 0.5, near, far), 0.0)
        error += 4 * UNIT * np.abs(epsilon) * (value + error)
        return value, error

    @staticmethod
    def _tail_error(t: Array, x: Array, m: float, log_cell: Array) -> Array:
        """Relative error of a normal tail at t = x - m: of its logarithm, and of its rounded argument."""
        finite = np.where(np.isfinite(t), np.abs(t), 0.0)
        argument = 2 * UNIT * (np.where(np.isfinite(x), np.abs(x), 0.0) + abs(m))
        size = np.where(np.isfinite(log_cell), np.abs(log_cell), 0.0)
        return np.asarray(64 * UNIT + 8 * UNIT * size + 2.0 * (finite + 1.0) * argument)


def log_interval(low: Array | float, high: Array | float) -> Array:
    """log of the standard normal mass of (low, high), without cancellation or underflow in either tail.

    Proof: engine.md#one-step
    """
    low, high = np.broadcast_arrays(low, high)
    right = low > 0
    near, far = np.where(right, -low, high), np.where(right, -high, low)  # both as upper ends of left tails
    larger, smaller = log_ndtr(near), log_ndtr(far)
    with np.errstate(divide="ignore", invalid="ignore"):
        result = larger + np.log1p(-np.exp(np.minimum(smaller - larger, 0.0)))
    return np.asarray(np.where(np.isneginf(smaller), larger, result))


@dataclass(frozen=True)
class LossLaw:
    """A dominating pair, up to relabelling of outcomes: pieces, atoms, and the mass too small for a float.

    `lost` is put on an infinite loss in upper bounds. `weight_error` bounds the relative error of the weights. A law
    that is not `whole` has lost weights that could lower its losses: nothing is proven with it from below. Proof: engine.md#loss-laws
    """

    pieces: tuple[Piece, ...]
    atoms: tuple[Atom, ...] = ()
    lost: float = 0.0
    weight_error: float = 0.0
    whole: bool = True

    @cached_property
    def difference(self) -> float:
        """The sum of |p_j - q_j|: twice the total variation of P - Q at most."""
        return sum(abs(v) for piece in self.pieces for v in piece.d)

    @cached_property
    def loss_error(self) -> float:
        """Bound on the rounding error of any loss within 40 deviations of the means. Proof: engine.md#rounding"""
        m = max(abs(v) for piece in self.pieces for v in piece.means)
        reach = m * m + 40.0 * m
        # the error is relative to the parts of P - Q, over a density that is at most e^reach times smaller
        return 8 * UNIT * reach * min(1.0, 2.0 * self.difference * math.exp(min(reach, 700.0)))

    def reversed(self) -> LossLaw:
        """The pair with P and Q exchanged."""
        pieces = tuple(Piece(s.means, s.q, s.p, tuple(-v for v in s.d), s.low, s.high) for s in self.pieces)
        atoms = tuple(Atom(-a.loss, a.q, a.p) for a in self.atoms)
        return LossLaw(pieces, atoms, self.lost, self.weight_error, self.whole)

    def profile(self, epsilon: Array) -> tuple[Array, Array]:
        """H_{e^epsilon}(P || Q) for epsilon >= 0 (no cancellation against 1 - e^epsilon), and a bound on its rounding error.

        Proof: engine.md#one-step
        """
        total, error = np.zeros_like(epsilon), np.zeros_like(epsilon)
        for piece in self.pieces:
            value, rounding = piece.profile(epsilon)
            total += value
            error += rounding
        for atom in self.atoms:
            total += -np.expm1(np.minimum(epsilon - atom.loss, 0.0)) * atom.p
            # its loss may be off by the error of the weights
            doubt = 2.0 * self.weight_error + 4 * UNIT * abs(atom.loss)
            error += np.where(atom.loss > epsilon - doubt, doubt * atom.p, 0.0)
        return total, error + 64 * UNIT * total
