"""Saddle points: about where epsilon(delta) and delta(epsilon) lie. Nothing rests on these estimates.

Sums of many losses follow Laplace's approximation at the saddle point of their transform. Where
rare large losses decide, the sum is exceeded by one big jump, and the steps' own deltas add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._rounding import UNDERFLOW, UNIT
from ..proving.composition import BLOCK, Composition
from ..proving.loss_law import Array
from ..proving.pmf import LossPMF
from .effort import TOLERANCE

_PER_OCTAVE = 3  # tilts of a table: interpolation between them is good to 1e-3 of epsilon
_WIDER = 4.0  # factor by which a table grows that does not cover the question


def cumulants(losses: Composition, tilts: Array) -> tuple[Array, Array, Array]:
    """log E[e^{cL}] of the composed loss at each tilt c, with its first and second derivative."""
    value = 0.5 * losses.gaussian * (tilts * tilts + tilts)
    slope, curvature = losses.gaussian * (tilts + 0.5), np.full(tilts.shape, losses.gaussian)
    for block in losses.small:
        at_once = max(1, BLOCK // block.loss.size)
        square = block.loss * block.loss
        for first in range(0, tilts.size, at_once):
            some = slice(first, first + at_once)
            exponent = tilts[some, None, None] * block.loss + block.log_mass
            top = exponent.max(axis=2)
            weight = np.exp(exponent - top[:, :, None])
            total = weight.sum(axis=2)
            mean = np.einsum("tkm,km->tk", weight, block.loss) / total
            spread = np.einsum("tkm,km->tk", weight, square) / total - mean * mean
            value[some] += (np.log(total) + top) @ block.steps
            slope[some] += mean @ block.steps
            curvature[some] += np.maximum(spread, 0.0) @ block.steps
    return value, slope, curvature


def moments(losses: Composition) -> tuple[float, float]:
    """Mean and variance of the composed loss; no variance is below what rounding the losses would give them."""
    mean, variance = 0.5 * losses.gaussian, losses.gaussian
    for block in losses.small:
        mass = np.exp(block.log_mass)
        own = np.einsum("km,km->k", mass, block.loss)
        mean += float(block.steps @ own)
        variance += float(block.steps @ np.einsum("km,km->k", mass, np.square(block.loss - own[:, None])))
    least = (UNIT * mean) ** 2 + UNDERFLOW
    return mean, variance if not variance < least else least


@dataclass(frozen=True)
class SaddlePoints:
    """Laplace's approximation of delta(epsilon) at increasing tilts: epsilon rises and log delta falls."""

    tilt: Array
    epsilon: Array
    log_delta: Array

    def at_delta(self, log_delta: Array) -> tuple[Array, Array]:
        """Epsilons and tilts at deltas; the root of -log delta is nearly linear in both.

        A trace of large losses makes a kink in the transform, beyond which epsilon is theirs. Up to
        there log delta follows the tangent, of which the tilt is the slope.
        """
        root, known = np.sqrt(np.maximum(-log_delta, 0.0)), np.sqrt(np.maximum(-self.log_delta, 0.0))
        epsilon, tilt = np.interp(root, known, self.epsilon), np.exp(np.interp(root, known, np.log(self.tilt)))
        left = np.maximum(np.searchsorted(-self.log_delta, -log_delta) - 1, 0)
        tangent = self.epsilon[left] + (self.log_delta[left] - log_delta) / self.tilt[left]
        return np.where(tangent < epsilon, tangent, epsilon), np.where(tangent < epsilon, self.tilt[left], tilt)

    def at_epsilon(self, epsilon: Array) -> tuple[Array, Array]:
        """Logarithms of delta and tilts at epsilons, likewise."""
        root = np.interp(epsilon, self.epsilon, np.sqrt(np.maximum(-self.log_delta, 0.0)))
        tilt = np.exp(np.interp(epsilon, self.epsilon, np.log(self.tilt)))
        left = np.maximum(np.searchsorted(self.epsilon, epsilon) - 1, 0)
        tangent = self.log_delta[left] - self.tilt[left] * np.maximum(epsilon - self.epsilon[left], 0.0)
        kinked = tangent < -root * root
        return np.where(kinked, tangent, -root * root), np.where(kinked, self.tilt[left], tilt)

    def kinked(self, log_delta: Array) -> bool:
        """A trace of large losses makes a kink in the transform: beyond it, epsilon is theirs, and far too large."""
        place = np.clip(np.searchsorted(-self.log_delta, -log_delta), 1, self.tilt.size - 1)
        return bool((self.epsilon[place] > 2.0 * np.maximum(self.epsilon[place - 1], 1e-9)).any())


def _tabulated(losses: Composition, low: float, high: float) -> SaddlePoints:
    """The approximation at tilts from `low` to `high`."""
    count = 2 + math.ceil(_PER_OCTAVE * math.log2(high / low))
    c = np.exp(np.linspace(math.log(low), math.log(high), count))
    value, slope, curvature = cumulants(losses, c)
    # of e^{log mgf(z) - z epsilon} / (z (z + 1))
    epsilon = slope - 1.0 / c - 1.0 / (c + 1.0)
    bend = curvature + c**-2 + (c + 1.0) ** -2
    log_delta = value - c * epsilon - np.log(c * (c + 1.0)) - 0.5 * np.log(2.0 * math.pi * bend)
    known = np.isfinite(epsilon) & np.isfinite(log_delta)
    epsilon, log_delta = np.maximum.accumulate(epsilon[known]), np.minimum.accumulate(log_delta[known])
    return SaddlePoints(c[known], epsilon, log_delta)


def saddle_points_at_delta(losses: Composition, log_delta: Array) -> SaddlePoints:
    """A table that covers the given deltas, as far as there is such a tilt."""
    guesses = np.sqrt(2.0 * np.maximum(-log_delta, 0.1) / moments(losses)[1])  # of a Gaussian sum
    guesses = np.fmin(guesses, np.exp(-log_delta))  # log delta is nowhere steeper than 1 / delta
    return _covering(losses, guesses, lambda table: (-table.log_delta, -log_delta))


def saddle_points_at_epsilon(losses: Composition, epsilon: Array) -> SaddlePoints:
    """A table that covers the given epsilons, as far as there is such a tilt."""
    mean, variance = moments(losses)
    beyond, deviation = epsilon - mean, math.sqrt(variance)
    guesses = np.where(beyond > 0.0, np.maximum(beyond / variance, 1.0 / deviation), 1.0 / (np.abs(beyond) + deviation))
    return _covering(losses, guesses, lambda table: (table.epsilon, epsilon))


def _covering(
    losses: Composition, guesses: Array, covers: Callable[[SaddlePoints], tuple[Array, Array]]
) -> SaddlePoints:
    """A table around guesses of the tilts, made wider until its first array reaches from end to end of the second."""
    guesses = np.clip(guesses, math.sqrt(UNDERFLOW), 1.0 / math.sqrt(UNDERFLOW))
    low, high = float(guesses.min()) / _WIDER, float(guesses.max()) * _WIDER
    for _ in range(8):
        table = _tabulated(losses, low, high)
        if not table.tilt.size:  # no saddle point is a float: any tilt is as good as another
            return SaddlePoints(np.array([high]), np.zeros(1), np.zeros(1))
        known, asked = covers(table)
        short, far = known[0] > asked.min(), known[-1] < asked.max()
        if not (short or far):
            break
        low, high = low / _WIDER**2 if short else low, high * _WIDER if far else high
    return table


@dataclass(frozen=True)
class LossTail:
    """All losses from the largest on, with sums over the losses that are not below each of them."""

    loss: Array  # decreasing
    chance: Array  # the expected number of such losses
    delta: Array  # the sum of the steps' own deltas at that loss
    above: Array  # the sum over those losses of e^{this loss - loss}
    square: Array  # the sum of the squares of the losses that are smaller

    @classmethod
    def of(cls, pmf: LossPMF) -> LossTail:
        loss = np.concatenate([block.loss.ravel() for block in pmf.blocks])
        log_mass = np.concatenate([(b.log_mass + np.log(b.steps)[:, None]).ravel() for b in pmf.blocks])
        order = np.argsort(-loss, kind="stable")
        order = order[np.isfinite(log_mass[order])]
        loss, log_mass = loss[order], log_mass[order]
        mass = np.exp(log_mass)
        chance = np.cumsum(mass)
        above = np.exp(np.minimum(loss + np.logaddexp.accumulate(log_mass - loss), 700.0))
        square = mass * loss * loss
        return cls(loss, chance, chance - above, above, np.append(np.cumsum(square[::-1])[::-1][1:], 0.0))

    def _place(self, loss: Any) -> Any:
        """The number of losses that are larger."""
        return np.searchsorted(-self.loss, -np.asarray(loss), side="left")

    def chance_above(self, loss: Any) -> Any:
        """The expected number of larger losses."""
        return np.append(0.0, self.chance)[self._place(loss)]

    def own_delta(self, epsilon: Array) -> Any:
        """The sum of the steps' own deltas at epsilon: the losses above it, less what is due to the others."""
        place = self._place(epsilon)
        chance, above = np.append(0.0, self.chance), np.append(0.0, self.above)
        # sum of mass (1 - e^{epsilon - loss}) over the larger losses; `above` has e^{loss - l} of each summed up
        last = np.append(self.loss[:1], self.loss)[place]
        return np.maximum(chance[place] - above[place] * np.exp(np.minimum(epsilon - last, 0.0)), 0.0)

    def one_jump(self, log_delta: Array) -> Array:
        """The epsilon at which the steps' own deltas add up to delta; -inf where they never do.

        Between losses of neighbouring cells log delta is nearly straight.
        """
        at = np.searchsorted(np.maximum.accumulate(self.delta), np.exp(log_delta))
        inside = np.clip(at, 1, self.loss.size - 1)
        before, after = (np.log(np.maximum(self.delta[i], UNDERFLOW)) for i in (inside - 1, inside))
        share = np.clip((log_delta - before) / np.maximum(after - before, UNDERFLOW), 0.0, 1.0)
        between = self.loss[inside - 1] + share * (self.loss[inside] - self.loss[inside - 1])
        return np.where(at < self.loss.size, np.where(at > 0, between, self.loss[0]), -np.inf)

    def rare(self, log_delta: float, share: float = TOLERANCE.part) -> float:
        """The loss above which two are so rare that they take a small share of delta; infinite if there is none."""
        place = int(np.searchsorted(self.chance, math.sqrt(2.0 * share) * math.exp(0.5 * log_delta)))
        return float(self.loss[place]) if 0 < place < self.loss.size else math.inf

    def one_jump_decides(self, epsilon: Array, log_delta: Array, gaussian: float) -> Any:
        """A rule of thumb: epsilon is exceeded by one large loss rather than by several or by the bulk."""
        small = np.maximum(epsilon, 0.0) / 3.0
        square = np.append(self.square, 0.0)[np.maximum(self._place(small) - 1, 0)]
        square = square + small * small * self.chance_above(small)
        bulk = np.sqrt(np.maximum(-2.0 * log_delta, 0.0) * (square + gaussian))
        two = 0.5 * np.square(self.chance_above(epsilon / 2.0)) < self.chance_above(epsilon)
        return (epsilon > 0.0) & (bulk < epsilon) & two
