"""Positive parts of one Gaussian minus two others on a line, with proven errors.

The theorems' kernel for weights given as arrays, for thousands of readings at once. Distances are in units of the noise's
standard deviation. The weights count as exact; whoever calls has moved them to their safe side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from ..._rounding import UNDERFLOW, UNIT
from .loss_law import Array

_FAR = 1e4  # thresholds beyond it are at infinity: all tails there are 0 or 1


def threshold(c: Array, m1: Array, m2: Array | None, y: Array | float) -> tuple[Array, Array]:
    """Where c N(0) = m1 N(y) + m2 N(2y), and a bound of its error; ends of the line where there is no such point.

    Proof: theory.md#lending
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        log_c, log_1 = np.log(c), np.log(m1) - 0.5 * y * y
        if m2 is None:
            t = log_c - log_1
        else:  # a quadratic equation in e^{xy}
            root = 0.5 * np.logaddexp(2.0 * log_1, math.log(4.0) + np.log(m2) - 2.0 * y * y + log_c)
            t = math.log(2.0) + log_c - np.logaddexp(log_1, root)
        x = np.fmin(np.fmax(t / y, -_FAR), _FAR)  # no number counts as -_FAR
        # two roundings of each logarithm, none larger than these (or too small a term to matter), and of y
        off = 2.0 * UNIT * (4.0 * (np.abs(log_c) + np.abs(t) + 2.0) / y + 8.0 * y)
    return x, np.where(np.abs(x) < _FAR, off, 0.0)


def _tail(x: Array, y: Array | float) -> tuple[Array, Array]:
    """Phi(x) for a difference x of a threshold and y, and its relative error.

    scipy's ndtr is good to (8 + 2 x^2) units (measured, and what squaring in its exponent explains); x itself is
    off by |x| + y units, which Mills' ratio, at least 1 / (1 + |x|), turns into a relative error.
    """
    n = np.minimum(np.maximum(-x, 0.0), 40.0)  # beyond 38 the tail underflows
    return ndtr(x), UNIT * (16.0 + 4.0 * (1.0 + n) * (1.0 + n + y))


@dataclass(frozen=True)
class Integral:
    """An integral, a bound of its error, the threshold that it was read at, and a bound of the threshold's error."""

    value: Array
    error: Array
    x: Array
    off: Array


def integral(c: Array, m1: Array, m2: Array | None, y: Array | float, sign: Array | float = 1.0) -> Integral:
    """Integral of [c N(0) - m1 N(y) - m2 N(2y)]_+ where `sign` is 1, and of its negative part where `sign` is -1.

    Any threshold x gives a lower bound. One that is off by d misses at most d times the largest integrand in between, c phi(x)
    times the change of the likelihood ratio, e^{2yd} - 1: less than 8 c phi(x) y d^2.

    Proof: theory.md#lending
    """
    x, off = threshold(c, m1, m2, y)
    at, loose = _tail(sign * x, 0.0)
    value = c * at
    error = value * loose + 8.0 * c * np.exp(-0.5 * x * x) * y * off * off
    for mass, distance in ((m1, y), (m2, 2.0 * y)):
        if mass is not None:
            at, loose = _tail(sign * (x - distance), distance)
            at = mass * at
            value = value - at
            error = error + at * loose
    return Integral(np.maximum(sign * value, 0.0), error + UNDERFLOW, x, off)


def upper(c: Array, m1: Array, m2: Array | None, y: Array | float, sign: float = 1.0) -> Array:
    """An upper bound of `integral`.

    Proof: theory.md#lending
    """
    reading = integral(c, m1, m2, y, sign)
    return reading.value + reading.error
