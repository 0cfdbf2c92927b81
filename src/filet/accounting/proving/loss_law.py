"""Gaussian mixtures on a line: losses, cell masses and hockey-stick integrals.

Every dominating pair in filet is glued from *pieces*: two mixtures of unit-variance Gaussians with the same means,
seen on an interval on which their log-ratio (the privacy loss) is monotone, and from *atoms* of constant loss.
A `LossLaw` is such a collection; it is a distribution of losses under P and under Q at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from ..._rounding import LEAST_LIGHT, UNIT

Array = NDArray[np.float64]
_REACH = 40.0  # deviations from all means beyond which masses underflow


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
        """True if the loss grows with x: what P has more of than Q lies to the right."""
        ends = list(zip(self.means, self.d, strict=True))
        return max(ends)[1] > min(ends)[1]

    @cached_property
    def columns(self) -> tuple[Array, Array]:
        """Means, and the weights of P, Q and P - Q, to stand beside any number of points."""
        return np.array(self.means)[:, None], np.array([self.p, self.q, self.d])[:, :, None]

    def loss(self, x: Array) -> Array:
        """log(P/Q) at x, to full relative accuracy also where it is tiny."""
        return losses(*self.columns, x)

    def loss_error(self, x: Array, loss: Array) -> Array:
        """Bound on the rounding error of `loss` at x: exponents are rounded, and small losses have cancelling parts.

        Proof: engine.md#rounding
        """
        means, weights = self.columns
        exponent = means * x
        rounded = 2 * UNIT * np.max(np.abs(exponent) + np.square(means), axis=0) + 8 * UNIT
        exponent -= 0.5 * np.square(means)
        p, q, d = (np.abs(weights) * np.exp(exponent - exponent.max(axis=0))).sum(axis=1)
        share = np.minimum(2.0, 2.0 * d / np.maximum(np.minimum(p, q), 1e-300))
        return np.asarray(rounded * share + 4 * UNIT * np.abs(loss))

    @cached_property
    def top(self) -> float:
        """An upper bound of all losses: that at the end where they are largest."""
        end = np.array([self.high if self.increasing else self.low])
        if np.isinf(end[0]):
            return math.inf
        loss = self.loss(end)
        return float((loss + self.loss_error(end, loss))[0])

    def threshold(self, epsilon: Array, proposals: Iterable[Array]) -> tuple[Array, Array]:
        """A point beyond which lies every loss above epsilon, for certain, and a bound of what its own loss lacks to epsilon.

        The first proposal whose rounding leaves no doubt; without one, that beyond which everything lies. Proof: engine.md#one-step
        """
        least, most = (min(max(v, self.low), self.high) for v in (min(self.means) - _REACH, max(self.means) + _REACH))
        whole = least if self.increasing else most
        x, sure = np.full(epsilon.shape, whole), np.zeros(epsilon.shape, bool)
        for proposed in itertools.chain(proposals, [x]):
            x = np.where(sure, x, np.minimum(np.maximum(proposed, least), most))
            seen = self.loss(x)
            off = self.loss_error(x, seen)
            sure = (epsilon - seen > off) | (x == whole)
            if sure.all():
                break
        return x, np.maximum((epsilon - seen + off) * (1 + 8 * UNIT), 0.0)

    def profile(self, epsilon: Array, proposals: Iterable[Array]) -> tuple[Array, Array]:
        """This piece's part of H_{e^epsilon}(P || Q), from its outcomes with a loss above epsilon, and its error.

        Proof: engine.md#one-step
        """
        x, lack = self.threshold(epsilon, proposals)
        m, (p, q, d) = self.columns[0], self.columns[1][:, :, 0]
        ends = (x, self.high) if self.increasing else (self.low, x)
        log_cell, log_tail = log_interval(ends[0] - m, ends[1] - m)
        # H = (P - Q) - (e^epsilon - 1) Q, as P and Q may nearly cancel; e^epsilon may be beyond floats, the product is not
        log_rest, log_q = np.log(np.abs(np.expm1(-epsilon))), np.log(q)[:, None]
        more, most = (np.exp(np.minimum(epsilon + log_rest + log_q + v, 700.0)) for v in (log_cell, log_tail))
        # of a tail and its logarithm; of its argument at either end, times density over tail; of an exponent
        loose = 64 * UNIT + 8 * UNIT * np.abs(log_tail)
        for end in ends:
            if np.ndim(end) or math.isfinite(end):
                t = np.abs(end - m)
                ratio = np.exp(np.minimum((16 * UNIT - 0.5) * t * t - (1 + 16 * UNIT) * log_tail, 700.0))
                loose = loose + 2 * UNIT * (np.abs(end) + np.abs(m)) * np.minimum(ratio, 1.0 + t)
        loose = np.where(ends[0] < ends[1], loose, 0.0)
        rounded = 4 * UNIT * np.fmin(np.abs(epsilon) + np.abs(log_rest) + np.abs(log_q), 1e300)
        cell, slack, doubt = np.exp(log_cell), np.exp(log_tail) * loose, most * loose + more * rounded
        rest = np.sign(epsilon) * more.sum(axis=0)  # (e^epsilon - 1) Q
        missed = -np.expm1(-lack) * (q @ (cell + slack) + rest + doubt.sum(axis=0))
        error = np.abs(d) @ slack + doubt.sum(axis=0) + missed
        largest = -np.expm1(np.minimum(epsilon - self.top, 0.0)) * (p @ (cell + slack))
        return np.minimum(np.maximum(d @ cell - rest, 0.0), largest), np.minimum(error, largest)


def losses(means: Array, weights: Array, x: Array) -> Array:
    """log(P/Q) at each x, for columns of means and of weights that belong to it, or one for all. Proof: engine.md#loss-laws"""
    exponent = means * x - 0.5 * np.square(means)  # of each component's density relative to N(0, 1)
    p, q, d = (weights * np.exp(exponent - exponent.max(axis=0))).sum(axis=1)
    ratio = d / q
    loss = np.where(np.abs(ratio) < 0.5, np.log1p(ratio), np.log(p / q))
    far = (p < LEAST_LIGHT) | (q < LEAST_LIGHT)
    if far.any():
        logs = np.log(np.broadcast_to(weights[:2], (2, *exponent.shape))[:, :, far]) + exponent[:, far]
        loss[far] = np.subtract(*np.logaddexp.reduce(logs, axis=1))
    return np.asarray(loss)


def cell_masses(means: Array, weights: Array, x: Array) -> tuple[Array, Array, Array]:
    """P, Q and P - Q between neighbouring points, for columns of means and of weights; what belongs to the first of two
    points counts. Proof: engine.md#loss-laws
    """
    t = x - means
    tail = ndtr(-np.abs(t))  # of the side that t is on
    low, high, right = tail[:, :-1], tail[:, 1:], t > 0
    mass = np.abs(low - high)
    across = right[:, 1:] != right[:, :-1]
    mass[across] = 1.0 - low[across] - high[across]
    p, q, d = (weights[:, :, : mass.shape[1]] * mass).sum(axis=1)
    return p, q, d


def log_interval(low: Any, high: Any) -> tuple[Array, Array]:
    """log of the standard normal mass of (low, high), without cancellation or underflow in either tail.

    And that of the larger of the two tails whose difference it is. Proof: engine.md#one-step
    """
    right = low > 0
    near, far = np.where(right, -low, high), np.where(right, -high, low)  # both as upper ends of left tails
    larger, smaller = log_ndtr(near), log_ndtr(far)
    result = larger + np.log1p(-np.exp(np.minimum(smaller - larger, 0.0)))
    return np.asarray(np.where(np.isneginf(smaller), larger, result)), larger


Propose = Callable[[Piece, Array], Iterable[Array]]  # thresholds of a piece at epsilons, to be tried in turn


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

    def columns(self, counts: list[int]) -> tuple[Array, Array]:
        """Means and weights for `counts` points of the pieces in turn."""
        if len(counts) == 1:
            return self.pieces[0].columns
        table = np.repeat(self._table, counts, axis=2)
        return table[0], table[1:]

    @cached_property
    def _table(self) -> Array:
        """Means, and the weights of P, Q and P - Q, of each component and piece; what is missing has no weight."""
        most = max(len(piece.means) for piece in self.pieces)
        rows = [[(*v, *(0.0,) * (most - len(v))) for v in (s.means, s.p, s.q, s.d)] for s in self.pieces]
        return np.array(rows).transpose(1, 2, 0)

    def reversed(self) -> LossLaw:
        """The pair with P and Q exchanged."""
        pieces = [Piece(s.means, s.q, s.p, tuple(-v for v in s.d), s.low, s.high) for s in reversed(self.pieces)]
        atoms = tuple(Atom(-a.loss, a.q, a.p) for a in self.atoms)
        return LossLaw(tuple(pieces), atoms, self.lost, self.weight_error, self.whole)

    def profile(self, epsilon: Array, propose: Propose) -> tuple[Array, Array]:
        """H_{e^epsilon}(P || Q) for epsilon >= 0 (no cancellation against 1 - e^epsilon), and a bound on its rounding error.

        Any proposals of thresholds will do; poor ones make the error large. Proof: engine.md#one-step
        """
        total, error = np.zeros_like(epsilon), np.zeros_like(epsilon)
        for piece in self.pieces:
            if not piece.top <= np.min(epsilon):
                value, rounding = piece.profile(epsilon, propose(piece, epsilon))
                total += value
                error += rounding
        for atom in self.atoms:
            total += -np.expm1(np.minimum(epsilon - atom.loss, 0.0)) * atom.p
            # its loss may be off by the error of the weights
            doubt = 2.0 * self.weight_error + 4 * UNIT * abs(atom.loss)
            error += np.where(atom.loss > epsilon - doubt, doubt * atom.p, 0.0)
        return total, error + 64 * UNIT * total
