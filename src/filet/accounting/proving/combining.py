"""From one direction to the whole run: both orders of the neighbours, overflows, steps without noise, power of tests."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..._rounding import FEW, LARGEST_EXPONENT, SUM_ERROR, UNIT, up
from ..terms import Bounds

_SPARE = 8 * UNIT  # more than the rounding of an exponential or of a sum of rounded terms, and of what moves them


def worse(parts: Iterable[Bounds]) -> Bounds:
    """The guarantee is the larger of the directions' own. Proof: theory.md#profiles-and-dominating-pairs"""
    parts = list(parts)
    return Bounds(max((p.lower for p in parts), default=0.0), max((p.upper for p in parts), default=0.0))


def union_cost(overflow: Bounds, epsilon: float) -> Bounds:
    """What the union strategy adds to delta: (1 + e^epsilon) times the chance of any overflow.

    Proof: theory.md#the-union-strategy
    """
    if overflow.upper == 0.0:
        return Bounds(0.0, 0.0)
    if epsilon > LARGEST_EXPONENT:
        return Bounds(0.0, math.inf)
    factor = 1.0 + math.exp(epsilon)
    return Bounds(factor * overflow.lower * (1 - SUM_ERROR), factor * overflow.upper * (1 + SUM_ERROR))


def chance(exponent: float, error: float) -> Bounds:
    """1 - e^-exponent for an exponent with a relative error: a chance from the logarithm of its complement.

    Proof: engine.md#steps-without-noise
    """
    lower, upper = (-math.expm1(-exponent * (1 + sign * error)) for sign in (-1.0, 1.0))
    return Bounds(max(0.0, lower * (1 - _SPARE)), min(1.0, upper * (1 + _SPARE)))


def squared_shift(releases: Iterable[tuple[float, int]]) -> Bounds:
    """The sum of count / sigma^2 of Gaussian releases (sigma, count): a term has three roundings, the sum one.

    Proof: engine.md#gaussian-releases
    """
    total = math.fsum(float(count) / sigma / sigma for sigma, count in releases)
    if total == math.inf:
        raise OverflowError("a sum of squared shifts is no float")
    return Bounds(total * (1 - _SPARE), total * (1 + _SPARE))


def added(part: Bounds, cost: Bounds) -> Bounds:
    """A delta and what is added to it, at most 1. Proof: theory.md#the-union-strategy"""
    upper = up(part.upper + cost.upper) if cost.upper else part.upper
    return Bounds(min(1.0, part.lower + cost.lower), min(1.0, upper))


def exposed(part: Bounds, exposure: Bounds) -> Bounds:
    """delta of a run some of whose outcomes, of the given chance, count fully. Proof: engine.md#steps-without-noise"""
    if exposure.upper == 0.0:
        return part
    return Bounds(max(part.lower, exposure.lower), min(1.0, up(part.upper + exposure.upper)))


def power(rate: Any, forward: Any, backward: Any) -> Any:
    """Upper bound of the power of any test at a false positive rate, or at several, whichever neighbour is the null.

    The tables hold (epsilon, upper bound of delta) of either order. Sums of positive terms, so nothing cancels.
    Proof: engine.md#trade-off-curves
    """
    powers = np.asarray(rate)
    for one, other in ((forward, backward), (backward, forward)):
        (epsilon, delta), (back, backs) = np.asarray(one).T, np.asarray(other).T
        near = epsilon <= LARGEST_EXPONENT
        # thresholds a = e^epsilon >= 1: H_a + a f; and below 1: H_{1/b}(P||Q) + f / b = 1 - 1/b + (H_b(Q||P) + f) / b
        ahead = delta[near] + np.multiply.outer(rate, np.exp(epsilon[near]))
        behind = -np.expm1(-back) + np.exp(-back) * np.add.outer(rate, backs)
        best = np.minimum(ahead.min(axis=-1, initial=np.inf), behind.min(axis=-1))
        powers = np.maximum(powers, up(best, FEW))
    return np.minimum(1.0, powers)[()]
