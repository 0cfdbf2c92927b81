"""Closed forms: runs whose delta needs no transform, each with bounds on its rounding."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from scipy.special import erfcx, log_ndtr

from ..._rounding import CLOSED_FORM_ERROR, POINT_ERROR, SUM_ERROR, UNDERFLOW, UNIT, down, up
from .cells import Discrete
from .loss_law import Array, LossLaw

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)


class ClosedForm(Protocol):
    """A run in one direction whose delta is known in closed form."""

    def delta_bounds(self, epsilon: Array) -> tuple[Array, Array]:
        """Certified lower and upper bounds of delta at epsilons >= 0."""


class OneStep:
    """One step alone: the profile of its loss law. Proof: engine.md#one-step"""

    def __init__(self, law: LossLaw) -> None:
        self._law = law

    def delta_bounds(self, epsilon: Array) -> tuple[Array, Array]:
        value, error = self._law.profile(epsilon)
        relative = POINT_ERROR + 20 * self._law.weight_error
        upper = value * (1 + relative) + error + self._law.lost + UNDERFLOW
        lower = value * (1 - relative) - error - UNDERFLOW if self._law.whole else np.zeros_like(value)
        known = np.isfinite(upper)  # extreme noise leaves no number to speak of, and then nothing is known
        return np.where(known & (lower > 0.0), lower, 0.0), np.where(known, np.minimum(upper, 1.0), 1.0)


class HullStep:
    """One step alone whose loss is discrete, as lending gives it: a plain sum. Proof: engine.md#one-step"""

    def __init__(self, law: Discrete) -> None:
        self._law = law

    def delta_bounds(self, epsilon: Array) -> tuple[Array, Array]:
        law, mass = self._law, np.exp(self._law.log_mass)
        value = np.array([float(mass @ -np.expm1(np.minimum(e - law.loss, 0.0))) for e in epsilon]) + law.infinite
        return np.maximum(down(value, SUM_ERROR) - law.infinite, 0.0), np.minimum(up(value, SUM_ERROR) + UNDERFLOW, 1.0)


class Gaussian:
    """Gaussian releases of total squared shift in [least, most]. Proof: engine.md#gaussian-releases"""

    def __init__(self, least: float, most: float) -> None:
        self._shifts = math.sqrt(least), math.sqrt(most)

    def delta_bounds(self, epsilon: Array) -> tuple[Array, Array]:
        (low, low_error), (high, high_error) = (self._delta(mu, epsilon) for mu in self._shifts)
        return np.maximum(0.0, low * (1 - low_error)), np.minimum(1.0, high * (1 + high_error) + 5e-324)

    @staticmethod
    def _delta(mu: float, epsilon: Array) -> tuple[Array, Array]:
        """delta, and its relative error: that of the formula, and of a tail whose argument is rounded."""
        if mu == 0.0:
            return np.zeros_like(epsilon), np.zeros_like(epsilon)
        size = epsilon / mu + mu
        error = CLOSED_FORM_ERROR + 8 * UNIT * size * (np.abs(epsilon / mu - mu / 2) + 1.0)
        known = error < 0.1  # otherwise delta is between 0 and 1, and no more is known
        return np.where(known, np.exp(gaussian_log_delta(mu, epsilon)), 0.5), np.where(known, error, 1.0)


def gaussian_log_delta(mu: float, epsilon: Any) -> Any:
    """log delta(epsilon) of the Gaussian mechanism with shift mu (Balle and Wang, 2018), to nine digits.

    delta is phi(a) (R(a) - R(b)) with Mills' ratio R and a, b = epsilon / mu -+ mu / 2; where a and b are close, the
    difference is the integral of 1 - x R(x). Proof: engine.md#gaussian-releases
    """
    if mu == 0.0:
        return -math.inf
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    with np.errstate(all="ignore"):  # each formula is used where it holds
        first, second = log_ndtr(-a), epsilon + log_ndtr(-b)
        negative = first + np.log(-np.expm1(second - first))
        close = 0.5 * mu * (_mills_slope(np.add.outer(0.5 * (a + b), 0.5 * mu * _NODES)) @ _WEIGHTS)
        gap = np.where(mu < 0.01 * np.maximum(1.0, a), close, _mills(a) - _mills(b))
        other = np.log(np.maximum(gap, 0.0)) - 0.5 * a * a - 0.5 * math.log(2 * math.pi)
    return np.where(a < -5.0, negative, other)[()]


def _mills(x: Any) -> Any:
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2.0))


def _mills_slope(x: Array) -> Array:
    """1 - x R(x) > 0; its series where the two terms nearly cancel."""
    y = np.square(1.0 / np.maximum(x, 1.0))
    series = y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y * (1 - 9 * y * (1 - 11 * y)))))
    return np.asarray(np.where(x > 30.0, series, 1.0 - x * _mills(np.minimum(x, 30.0))))
