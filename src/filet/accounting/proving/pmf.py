"""A run seen from above or from below, in one direction: discrete losses, and what they prove without any transform."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..._rounding import LARGEST_EXPONENT, POINT_ERROR, SUM_ERROR
from .cells import Discrete
from .composition import Composition, blocks
from .contour import log_peak
from .loss_law import Array

_TILTS = 2.0 ** np.arange(-45.0, 45.0, 0.5)  # any tilt gives a bound; these are tried


def _extremes(law: Discrete) -> tuple[float, float]:
    """The largest loss, and how much a relative error of the weights changes a loss at most: e^|loss| - 1 below zero, itself above."""
    top = float(law.loss.max())
    return top, max(top, math.expm1(min(LARGEST_EXPONENT, -float(law.loss.min()))))


class LossPMF:
    """Phases of discrete losses with their steps, and Gaussian releases of total squared shift `gaussian`.

    From above every loss law dominates the true one, so that all deltas are upper bounds; from below, lower bounds.
    Proof: engine.md#crude-bounds, engine.md#rounding
    """

    def __init__(self, laws: Sequence[tuple[Discrete, int]], gaussian: float, above: bool) -> None:
        self.gaussian, self.above = gaussian, above
        self.blocks = blocks(laws)
        self.whole = Composition(self.blocks, gaussian)
        self.steps = self.whole.total_steps
        rows = [(law, steps, *_extremes(law)) for law, steps in laws]
        # Chance that some loss is infinite, by the union bound.
        self.infinite = sum(steps * law.infinite for law, steps in laws) if above else 0.0
        # How far the total loss may be off: rounded masses move its mean (they telescope, so an ulp of one a step) and,
        # step by step, at random; losses are rounded; wrong weights change every loss by twice their relative error,
        # or by that share of it where it is small. Everything that is read off allows for it.
        self.slack = sum(
            law.difference * (4e-16 * steps + 1e-12 * math.sqrt(steps))
            + steps * (law.loss_error + 2.0 * law.weight_error * min(1.0, change))
            for law, steps, _, change in rows
        )
        errors = [law.weight_error for law, _ in laws], [law.difference for law, _ in laws]
        self.weight_error, self._difference = (max(each, default=0.0) for each in errors)
        # Relative errors of the binomial weights and of masses: those of a transform at a real point.
        self.rounding = sum(steps * (POINT_ERROR + law.weight_error) for law, steps in laws)
        # Losses that are nearly all rounding prove nothing from below.
        tiny = all(top <= 1e-9 * law.difference for law, _, top, _ in rows)
        self.firm = bool(laws) and not tiny and all(law.whole for law, _ in laws)
        self.resolved = above or self.firm
        self.cells = [(law.cells, steps) for law, steps in laws if law.cells]
        # No finite total loss is larger.
        largest = sum(steps * max(top, 0.0) for _, steps, top, _ in rows)
        self.largest = math.inf if gaussian else largest * (1 + POINT_ERROR + self.weight_error) + self.slack

    def chance_above(self, loss: float) -> float:
        """The expected number of losses above the given one."""
        return sum(
            float(b.steps @ np.exp(np.where(b.loss > loss, b.log_mass, -np.inf)).sum(axis=1)) for b in self.blocks
        )

    @cached_property
    def distance(self) -> float:
        """The sum of the steps' total variation distances: where it is at most delta, epsilon is 0."""
        return float(self.separate(np.zeros(1))[0])

    def separate(self, epsilon: Array) -> Array:
        """The sum of the steps' own deltas at epsilon, an upper bound of the composed delta(steps * epsilon).

        Proof: engine.md#crude-bounds
        """
        total = np.full(epsilon.shape, self.infinite + math.erf(math.sqrt(self.gaussian / 8.0)))
        for block in self.blocks:
            mass = np.exp(block.log_mass)
            for i, one in enumerate(epsilon):
                # losses may be off by that much
                least = one * (1 - POINT_ERROR - 2 * self.weight_error) - 1e-12 * self._difference
                gain = -np.expm1(np.minimum(least - block.loss, 0.0))
                total[i] += float(block.steps @ np.einsum("km,km->k", gain, mass))
        return np.asarray(total * (1 + SUM_ERROR + 4 * self.weight_error))

    def chernoff_delta(self, epsilon: Any) -> Any:
        """A crude but certain upper bound of delta(epsilon). Proof: engine.md#crude-bounds"""
        least = epsilon * (1 - POINT_ERROR - self.weight_error) - self.slack
        log_delta = (self._log_peaks - np.multiply.outer(least, _TILTS)).min(axis=-1)
        return np.minimum(1.0, np.exp(np.minimum(0.0, log_delta + self.rounding)) + self.infinite)

    def chernoff_epsilon(self, log_delta: Any) -> Any:
        """A crude but certain upper bound of epsilon(delta). Proof: engine.md#crude-bounds"""
        spare = np.exp(log_delta) - self.infinite
        log_spare = np.log(np.where(spare > 0.0, spare, 1.0))
        bound = (np.add.outer(-log_spare, self._log_peaks + self.rounding) / _TILTS).min(axis=-1)
        bound = np.maximum(0.0, bound * (1 + POINT_ERROR + self.weight_error)) + self.slack
        return np.where(spare > 0.0, bound, np.inf)[()]

    @cached_property
    def _log_peaks(self) -> Array:
        return self.whole.log_mgf(_TILTS) + log_peak(_TILTS)

    def floor_delta(self, epsilon: Any) -> Any:
        """A crude but certain lower bound of delta(epsilon) where it is nearly one, from below: few losses are small.

        Proof: engine.md#crude-bounds
        """
        if self.above or not self.resolved or self.rounding > 1e-5:
            return 0.0 * epsilon
        spare = 7.0  # losses above epsilon + spare count with 1 - e^-spare or more
        most = (epsilon + spare) * (1 + POINT_ERROR + self.weight_error) + self.slack
        small = (self.whole.log_mgf(-_TILTS) + np.multiply.outer(most, _TILTS)).min(axis=-1) + self.rounding
        mass = self.whole.log_mgf(np.zeros(1)).item() - self.rounding
        return np.maximum(0.0, (math.exp(mass) - np.exp(np.minimum(small, 0.0))) * -math.expm1(-spare))
