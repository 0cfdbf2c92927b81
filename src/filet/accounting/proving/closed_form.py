"""Closed forms: runs whose delta needs no transform, each with bounds on its rounding."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from scipy.special import erfcx

from ..._rounding import CLOSED_FORM_ERROR, POINT_ERROR, UNDERFLOW, UNIT
from ..terms import Bounds
from .loss_law import Array, LossLaw, Propose

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_HALF_LOG, _ROOT_HALF_PI, _ROOT_HALF = 0.5 * math.log(2 * math.pi), math.sqrt(math.pi / 2), math.sqrt(0.5)
_VAGUE = 0.1  # with a larger relative error delta is between 0 and 1, and no more is known


class ClosedForm(Protocol):
    """A run in one direction whose delta is known in closed form."""

    def delta_bounds(self, epsilon: Array) -> tuple[Array, Array]:
        """Certified lower and upper bounds of delta at epsilons >= 0."""


class OneStep:
    """One step alone: the profile of its loss law. Proof: engine.md#one-step"""

    def __init__(self, law: LossLaw, propose: Propose) -> None:
        self._law, self._propose = law, propose

    def delta_bounds(self, epsilon: Array) -> tuple[Array, Array]:
        value, error = self._law.profile(epsilon, self._propose)
        relative = POINT_ERROR + 20 * self._law.weight_error
        upper = value * (1 + relative) + error + self._law.lost + UNDERFLOW
        lower = value * (1 - relative) - error - UNDERFLOW if self._law.whole else np.zeros_like(value)
        known = np.isfinite(upper)  # extreme noise leaves no number to speak of, and then nothing is known
        return np.where(known & (lower > 0.0), lower, 0.0), np.where(known, np.minimum(upper, 1.0), 1.0)


class Gaussian:
    """Gaussian releases of total squared shift in [least, most]. Proof: engine.md#gaussian-releases"""

    def __init__(self, least: float, most: float) -> None:
        self.shifts = math.sqrt(least), math.sqrt(most)

    def delta_bounds(self, epsilon: Array) -> tuple[Array, Array]:
        (low, low_error), (high, high_error) = (
            (np.exp(gaussian_log_delta(mu, epsilon)), _relative_error(mu, epsilon)) for mu in self.shifts
        )
        lower = np.where(low_error < _VAGUE, np.maximum(low * (1 - low_error) - UNDERFLOW, 0.0), 0.0)
        return lower, np.where(high_error < _VAGUE, np.minimum(high * (1 + high_error) + UNDERFLOW, 1.0), 1.0)

    def bracket(self, delta: float, below: float, above: float) -> Bounds:
        """The bracket of epsilon(delta) that two epsilons prove, one from below and one from above. Proof: engine.md#what-is-proven"""
        (low, low_error), (high, high_error) = ((math.exp(gaussian_log_delta(mu, at)), _relative_error(mu, at))
                                                for mu, at in zip(self.shifts, (below, above), strict=True))  # fmt: skip
        at_least = low_error < _VAGUE and low * (1 - low_error) - UNDERFLOW >= delta
        at_most = high_error < _VAGUE and high * (1 + high_error) + UNDERFLOW <= delta
        return Bounds(below if at_least else 0.0, above if at_most else math.inf)


def _relative_error(mu: float, epsilon: Any) -> Any:
    """That of delta by the formula, and by a tail whose argument is rounded."""
    if mu == 0.0:
        return 0.0
    return CLOSED_FORM_ERROR + 8 * UNIT * (epsilon / mu + mu) * (abs(epsilon / mu - mu / 2) + 1.0)


def gaussian_log_delta(mu: float, epsilon: Any) -> Any:
    """log delta(epsilon) of the Gaussian mechanism with shift mu (Balle and Wang, 2018), to nine digits.

    delta is phi(a) (R(a) - R(b)) with Mills' ratio R and a, b = epsilon / mu -+ mu / 2; where a and b are close, the
    difference is the integral of 1 - x R(x). Proof: engine.md#gaussian-releases
    """
    if mu == 0.0:
        return -math.inf
    middle, larger = epsilon / mu, np.maximum if isinstance(epsilon, np.ndarray) else max
    a = larger(middle - mu / 2, -30.0)  # further out delta is 1, to 190 digits
    gap, close = _mills(a) - _mills(middle + mu / 2), mu < 0.01 * larger(1.0, a)
    if close is not False and np.any(close):
        integral = 0.5 * mu * (_mills_slope(np.add.outer(middle, 0.5 * mu * _NODES)) @ _WEIGHTS)
        gap = np.where(close, integral, gap)
    return np.log(larger(gap, 5e-324)) - 0.5 * a * a - _HALF_LOG


def _mills(x: Any) -> Any:
    return _ROOT_HALF_PI * erfcx(x * _ROOT_HALF)


def _mills_slope(x: Array) -> Array:
    """1 - x R(x) > 0 for x > -1; its series where the two terms nearly cancel."""
    y = np.square(1.0 / np.maximum(x, 1.0))
    series = y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y * (1 - 9 * y * (1 - 11 * y)))))
    return np.asarray(np.where(x > 30.0, series, 1.0 - x * _mills(np.clip(x, -1.0, 30.0))))
