"""A clipping norm that follows a quantile of the clients' norms, by a noisy count in every round.

Andrew, Thakkar, McMahan and Ramaswamy (2021): in each round the number of clients whose update is
within the norm is released, too, with noise of its own, and the norm moves by it. Sum and count are
one Gaussian release of the same cohort, so that the round costs what a round of the strategy's
`noise_multiplier` costs: the count takes a part of it, and the updates get more noise in exchange.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from filet import _checks
from filet.errors import InvalidArgumentError


@dataclass(frozen=True)
class AdaptiveNorm:
    """A clipping norm that moves towards a quantile of the norms of clients' updates.

    Guarantees: with a strategy's `noise_multiplier` z, a round is one Gaussian release of noise
    multiplier z: a client's clipped update, times z / z_updates, and its centred bit (plus or minus
    a half), times z / count_noise, form one vector of norm 1 at most, where
    1 / z^2 = 1 / z_updates^2 + 1 / (2 count_noise)^2. The count is divided by a constant.

    Arguments:
        initial: the norm of the first round.
        count_noise: standard deviation of the count's noise, in clients; above half of the strategy's
            `noise_multiplier`. About a twentieth of the cohort is usual.
        quantile: the share of clients whose updates should be within the norm.
        learning_rate: how fast the norm moves: by the factor exp(-learning_rate * (share - quantile)).
        low, high: bounds of the norm.
    """

    initial: float
    count_noise: float
    quantile: float = 0.5
    learning_rate: float = 0.2
    low: float = 1e-6
    high: float = 1e6

    def __post_init__(self) -> None:
        for name in ("initial", "count_noise", "learning_rate", "low", "high"):
            remedy = "pass a positive number"
            value = _checks.real(name, getattr(self, name), rule="in (0, inf)", remedy=remedy)
            if not 0.0 < value < math.inf:
                raise InvalidArgumentError(f"{name}={value!r} is not in (0, inf); {remedy}")
        _checks.open_probability("quantile", self.quantile, remedy="pass 0.5 for the median")
        if not self.low <= self.initial <= self.high:
            raise InvalidArgumentError(
                f"initial={self.initial} is not in [low, high]=[{self.low}, {self.high}]; move it"
            )

    def update_noise(self, noise_multiplier: float) -> float:
        """The noise multiplier of the updates alone; above the round's, as the count has a part."""
        rest = (2.0 * self.count_noise) ** 2 - noise_multiplier**2
        if not rest > 0.0:
            raise InvalidArgumentError(
                f"count_noise={self.count_noise} is not above noise_multiplier / 2 = {noise_multiplier / 2}; pass more, such"
                " as a twentieth of the expected cohort, or a smaller noise_multiplier"
            )
        return noise_multiplier * 2.0 * self.count_noise / math.sqrt(rest)

    def rows(self, updates: Any, norm: float, noise_multiplier: float) -> Any:
        """Each client's vector: its clipped update and its centred bit, in units in which all noise is z."""
        finite = np.isfinite(updates).all(axis=1, keepdims=True)
        scaled = np.where(finite, updates, 0.0) / norm
        with np.errstate(over="ignore"):  # an infinite norm is above 1, and clips to zero
            norms = np.linalg.norm(scaled, axis=1, keepdims=True)
        within = finite & (norms <= 1.0)
        of_updates, of_count = self._units(noise_multiplier)
        clipped = scaled / np.maximum(norms, 1.0) * of_updates
        return np.hstack([clipped, np.where(within, 0.5, -0.5) * of_count])

    def _units(self, noise_multiplier: float) -> tuple[float, float]:
        if noise_multiplier == 0.0:
            raise InvalidArgumentError("noise_multiplier=0 leaves the count without noise; pass a positive one")
        return noise_multiplier / self.update_noise(noise_multiplier), noise_multiplier / self.count_noise

    def read(self, noisy: Any, norm: float, noise_multiplier: float, expected: float) -> tuple[Any, float]:
        """The noisy sum of updates, and the next norm."""
        of_updates, of_count = self._units(noise_multiplier)
        share = 0.5 + float(noisy[-1]) / of_count / expected
        # Noise may be large; a factor that no float holds would only meet the bounds.
        change = min(max(-self.learning_rate * (share - self.quantile), -50.0), 50.0)
        return noisy[:-1] / of_updates * norm, min(max(norm * math.exp(change), self.low), self.high)
