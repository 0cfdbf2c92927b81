"""What a plan must meet: epsilon and delta under an adjacency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .. import _checks
from ..accounting.accountant import account
from ..accounting.curve import PrivacyCurve
from ..accounting.proving.closed_form import gaussian_log_delta
from ..accounting.terms import Adjacency, Analysis
from ..errors import NotCertifiedError
from ..scheme import CappedPoisson
from .roots import lowest

_LEAST_LOOK = 1e-17  # coarse looks do not resolve smaller deltas, they only compare


@dataclass(frozen=True)
class Target:
    """A privacy budget, and the words under which it is spent."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    analysis: Analysis = Analysis.REFINED

    @classmethod
    def checked(cls, epsilon: Any, delta: Any, adjacency: Any, analysis: Any) -> Target:
        remedy = "pass one finite number above 0"
        budget = _checks.real("epsilon", epsilon, rule="in (0, inf)", remedy=remedy)
        if not 0.0 < budget < math.inf:
            raise _checks.fail(f"epsilon={_checks.show(budget)} is not in (0, inf); {remedy}")
        deltas = _checks.delta_array(delta)
        if deltas.ndim:
            raise _checks.fail(f"delta of shape {deltas.shape} is not one number; calibrate for one at a time")
        return cls(budget, float(deltas), _checks.choice("adjacency", adjacency, Adjacency),
                   _checks.choice("analysis", analysis, Analysis))  # fmt: skip

    def curve(self, scheme: CappedPoisson, noise: float, steps: int) -> PrivacyCurve:
        return account(scheme, noise_multiplier=noise, steps=steps, adjacency=self.adjacency, analysis=self.analysis)

    def spent(self, scheme: CappedPoisson, noise: float, steps: int) -> float:
        """Certified epsilon of the run; infinite where none can be certified."""
        return _spent(self, scheme, noise, steps)

    def cost(self, scheme: CappedPoisson, noise: float, steps: int) -> float:
        """log of the certified epsilon over the target: at most 0 exactly if the run meets the target."""
        return self._cost(self.spent(scheme, noise, steps))

    def cost_of(self, curve: PrivacyCurve) -> float:
        """As `cost`, of a curve."""
        return self._cost(self._spent_on(curve))

    def _cost(self, spent: float) -> float:
        if spent in (0.0, math.inf):
            return math.copysign(math.inf, spent - 1.0)
        value = math.log(spent / self.epsilon)
        return max(value, 1e-16) if spent > self.epsilon else min(value, 0.0)  # rounding must not change the verdict

    def _spent_on(self, curve: PrivacyCurve) -> float:
        try:
            return float(curve.epsilon(self.delta))
        except NotCertifiedError:
            return math.inf

    def search_cost(self, scheme: CappedPoisson, noise: float, steps: int) -> float:
        """As `cost`; but where overflows weigh on the union strategy's delta, log of that delta over the target's.

        There the certified epsilon jumps to infinity, and takes seconds. The caller must prove what it found by `cost`.
        """
        curve = self.curve(scheme, noise, steps)
        if not self.overflow_matters(curve, 0.02):
            return self.cost(scheme, noise, steps)
        delta = float(curve.delta(self.epsilon))
        if self.overflow_matters(curve):
            delta = min(delta, float(curve.delta(lowest(curve.quick_delta, 0.0, self.epsilon)[0])))
        return math.log(delta / self.delta)

    def overflow_matters(self, curve: PrivacyCurve, share: float = 0.5) -> bool:
        """Whether overflows take more than a share of delta under the union strategy."""
        return curve.overflow * math.exp(min(self.epsilon, 700.0)) > share * self.delta

    def look(self, scheme: CappedPoisson, noise: float, steps: int, thorough: bool = True) -> float:
        """A quick cost, on another scale and slightly too high: above 0 where the target is missed.

        sqrt(-log delta) is close to linear in the noise, so that chords find the root fast. Where overflows weigh on
        the union strategy, a smaller epsilon may have a smaller delta; `thorough` looks for it.
        """
        curve = self.curve(scheme, noise, steps)
        if curve.exposed or 2.0 * curve.overflow >= self.delta:
            return math.inf
        if self.delta < _LEAST_LOOK:
            return -math.inf if curve.quickly_at_most(self.epsilon, self.delta) else math.inf
        delta = curve.quick_delta(self.epsilon)
        if thorough and self.overflow_matters(curve):
            delta = min(delta, lowest(curve.quick_delta, 0.0, self.epsilon)[1])
        if delta >= 1.0:
            return math.inf
        return math.sqrt(-math.log(self.delta)) - math.sqrt(-math.log(max(delta, 1e-290)))

    def gaussian_shift(self) -> float:
        """The shift mu of the Gaussian mechanism that spends exactly this target."""
        low, high = math.log(1e-12), math.log(1e12)
        for _ in range(40):
            middle = 0.5 * (low + high)
            if gaussian_log_delta(math.exp(middle), self.epsilon) > math.log(self.delta):
                high = middle
            else:
                low = middle
        return math.exp(low)

    def describe(self) -> str:
        return f"epsilon={self.epsilon:.6g} at delta={self.delta:.3g}"


@lru_cache(maxsize=256)  # the search and the proof of its result ask for the same points
def _spent(target: Target, scheme: CappedPoisson, noise: float, steps: int) -> float:
    return target._spent_on(target.curve(scheme, noise, steps))
