"""Positive parts of one Gaussian minus two others on a line, with proven errors.

The theorems' kernel for weights given as arrays, for thousands of readings at once. Distances are in units of the noise's
standard deviation. The weights count as exact; whoever calls has moved them to their safe side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from ..._rounding import UNDERFLOW, UNIT
from .loss_law import Array

_FAR = 1e4  # thresholds beyond it are at infinity: all tails there are 0 or 1


def threshold(c: Array, m1: Array, m2: Array | None, y: Array | float) -> tuple[Array, Array]:
    """The point where c N(0) = m1 N(y) + m2 N(2y), and a bound of its error; ends of the line where there is no such point.

    Proof: theory.md#lending
    """
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


class Integral(NamedTuple):
    """An integral, a bound of its error, the threshold that it was read at, and a bound of the threshold's error."""

    value: Array
    error: Array
    x: Array
    off: Array


def integral(c: Array, m1: Array, m2: Array | None, y: Array | float, sign: Array | float = 1.0) -> Integral:
    """Integral of [c N(0) - m1 N(y) - m2 N(2y)]_+ where `sign` is 1, and of its negative part where `sign` is -1.

    Any threshold x gives a lower bound. One that is off by d misses at most d times the largest integrand in between, c phi(x)
    times the change of the likelihood ratio, e^{2yd} - 1: less than 8 c phi(x) y d^2.

    scipy's ndtr is good to (8 + 2 t^2) units at -t (measured, and what squaring in its exponent explains); t is itself off by
    t + far units, which Mills' ratio, at least 1 / (1 + t), turns into a relative error. One bound serves all tails, `most`
    being at least any t.

    Proof: theory.md#lending
    """
    x, off = threshold(c, m1, m2, y)
    plus, minus, far = c * ndtr(sign * x), m1 * ndtr(sign * (x - y)), y
    if m2 is not None:
        far = 2.0 * y
        minus = minus + m2 * ndtr(sign * (x - far))
    most = np.minimum(np.maximum(-sign * x, 0.0) + far, 40.0) + 1.0  # beyond 38 the tail underflows
    error = (plus + minus) * (UNIT * (16.0 + 4.0 * most * (most + far)))
    error = error + 8.0 * c * np.exp(-0.5 * x * x) * y * off * off + UNDERFLOW
    return Integral(np.maximum(sign * (plus - minus), 0.0), error, x, off)


def upper(c: Array, m1: Array, m2: Array | None, y: Array | float, sign: Array | float = 1.0) -> Array:
    """An upper bound of `integral`.

    Proof: theory.md#lending
    """
    reading = integral(c, m1, m2, y, sign)
    return reading.value + reading.error
