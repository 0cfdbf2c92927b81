"""Closed forms: the Gaussian mechanism."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, log_ndtr

from .loss_law import Array


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """log delta(epsilon) of the Gaussian mechanism with shift mu (Balle and Wang, 2018), to nine digits everywhere.

    delta is phi(a) (R(a) - R(b)) with Mills' ratio R and a, b = epsilon / mu -+ mu / 2; where a and b are close, the
    difference is the integral of 1 - x R(x).
    """
    if mu == 0.0:
        return -math.inf
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if a < -5.0:
        first, second = float(log_ndtr(-a)), epsilon + float(log_ndtr(-b))
        return first + math.log(-math.expm1(second - first))
    if mu < 0.01 * max(1.0, a):
        nodes, weights = np.polynomial.legendre.leggauss(6)
        x = 0.5 * (a + b) + 0.5 * mu * nodes
        gap = 0.5 * mu * float(weights @ _mills_slope(x))
    else:
        gap = float(_mills(np.array([a]))[0] - _mills(np.array([b]))[0])
    return math.log(gap) - 0.5 * a * a - 0.5 * math.log(2 * math.pi) if gap > 0.0 else -math.inf


def _mills(x: Array) -> Array:
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2.0)))


def _mills_slope(x: Array) -> Array:
    """1 - x R(x) > 0; its series where the two terms nearly cancel."""
    y = np.square(1.0 / np.maximum(x, 1.0))
    series = y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y * (1 - 9 * y * (1 - 11 * y)))))
    return np.where(x > 30.0, series, 1.0 - x * _mills(np.minimum(x, 30.0)))
