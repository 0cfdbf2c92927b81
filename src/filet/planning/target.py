"""A target that a run must meet under an adjacency: epsilon and delta, or a limit on what any attack reaches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scipy.special import erfinv, ndtri

from .. import _checks
from ..accounting.accountant import account
from ..accounting.curve import PrivacyCurve
from ..accounting.proving.closed_form import gaussian_log_delta
from ..accounting.terms import Adjacency, Analysis
from ..errors import NotCertifiedError
from ..scheme import CappedPoisson


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
        return cls(
            budget,
            float(deltas),
            _checks.choice("adjacency", adjacency, Adjacency),
            _checks.choice("analysis", analysis, Analysis),
        )

    words = "epsilon or delta"  # fields that a caller may change
    measure = "epsilon"  # the name of the quantity that `spent` returns

    @property
    def most_overflow(self) -> float:
        """Twice the chance of overflows that the union strategy can never spend."""
        return self.delta

    def curve(self, scheme: CappedPoisson, noise: float, steps: int) -> PrivacyCurve:
        return account(scheme, noise_multiplier=noise, steps=steps, adjacency=self.adjacency, analysis=self.analysis)

    def spent(self, scheme: CappedPoisson, noise: float, steps: int) -> float:
        """Certified epsilon of the run; infinite where none can be certified."""
        return _spent(self, scheme, noise, steps)

    def cost(self, scheme: CappedPoisson, noise: float, steps: int) -> float:
        """log of the certified epsilon over the target: at most 0 exactly if the run meets the target."""
        return self._cost(self.spent(scheme, noise, steps))

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

    def costs(self, spent: float) -> str:
        """The cost of a run under the target, in words."""
        return f"costs epsilon {spent:.4g}"


@dataclass(frozen=True)
class RiskTarget(Target):
    """A limit on the true positive rate of any attack at a false positive rate; at None, on the advantage.

    `epsilon` and `delta` are not used: the limit stands in their place.
    """

    limit: float = 1.0
    false_positive_rate: float | None = None

    @property
    def words(self) -> str:  # type: ignore[override]
        return "advantage" if self.false_positive_rate is None else "true_positive_rate"

    @property
    def measure(self) -> str:  # type: ignore[override]
        return "membership_advantage" if self.false_positive_rate is None else "true_positive_rate"

    @property
    def most_overflow(self) -> float:
        return self.limit if self.false_positive_rate is None else math.inf

    def _cost(self, spent: float) -> float:
        """log of the Gaussian shift of the same risk over that of the limit, which is nearly linear in log noise."""
        shift = self._shift(spent)
        if not 0.0 < shift < math.inf:
            return math.copysign(math.inf, shift - 1.0)
        value = math.log(shift / self._shift(self.limit))
        return max(value, 1e-16) if spent > self.limit else min(value, 0.0)

    def _shift(self, risk: float) -> float:
        """The shift mu of the Gaussian mechanism with this risk."""
        if self.false_positive_rate is None:
            return float(math.sqrt(8.0) * erfinv(risk))
        return float(ndtri(risk) - ndtri(self.false_positive_rate))

    def gaussian_shift(self) -> float:
        return self._shift(self.limit)

    def _spent_on(self, curve: PrivacyCurve) -> float:
        try:
            if self.false_positive_rate is None:
                return curve.membership_advantage()
            return curve.true_positive_rate(self.false_positive_rate)
        except NotCertifiedError:
            return 1.0

    def describe(self) -> str:
        at = f" at false_positive_rate={self.false_positive_rate:.6g}" if self.false_positive_rate is not None else ""
        return f"{self.words}={self.limit:.6g}{at}"

    def costs(self, spent: float) -> str:
        return f"allows {self.words} {spent:.4g}"


# The arguments of a whole target, in three ways.
_WHOLE = (("epsilon", "delta"), ("advantage",), ("true_positive_rate", "false_positive_rate"))


def _check_whole(given: list[str]) -> None:
    """Raise unless the arguments that are given make up one target."""
    if set(given) not in map(set, _WHOLE):
        ways = "; ".join(" and ".join(names) for names in _WHOLE)
        told = ", ".join(given) or "nothing"
        raise _checks.fail(f"the target is not whole or not one ({told} given); pass one of: {ways}")


def chosen_target(
    epsilon: Any,
    delta: Any,
    advantage: Any,
    true_positive_rate: Any,
    false_positive_rate: Any,
    adjacency: Any,
    analysis: Any,
) -> Target:
    """The one target that is given: epsilon and delta, or advantage, or a true and a false positive rate."""
    values = {
        "epsilon": epsilon,
        "delta": delta,
        "advantage": advantage,
        "true_positive_rate": true_positive_rate,
        "false_positive_rate": false_positive_rate,
    }
    _check_whole([name for name, value in values.items() if value is not None])
    if epsilon is not None:
        return Target.checked(epsilon, delta, adjacency, analysis)
    words = _checks.choice("adjacency", adjacency, Adjacency), _checks.choice("analysis", analysis, Analysis)
    if advantage is not None:
        limit = _checks.open_probability("advantage", advantage, remedy="pass the largest TPR - FPR of an attack")
        return RiskTarget(0.0, 1.0, *words, limit)
    remedy = "pass rates of an attack, the true one above the false one"
    rates = ("true_positive_rate", true_positive_rate), ("false_positive_rate", false_positive_rate)
    reached, accused = (_checks.open_probability(name, rate, remedy=remedy) for name, rate in rates)
    if reached <= accused:
        raise _checks.fail(f"true_positive_rate={reached!r} is not above false_positive_rate={accused!r}; {remedy}")
    return RiskTarget(0.0, 1.0, *words, reached, accused)


@lru_cache(maxsize=256)  # the search and the proof of its result ask for the same points
def _spent(target: Target, scheme: CappedPoisson, noise: float, steps: int) -> float:
    return target._spent_on(target.curve(scheme, noise, steps))
