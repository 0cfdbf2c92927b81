"""From one direction to the whole run: both orders of the neighbours, overflows, steps without noise, power of tests."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..._rounding import FEW, LARGEST_EXPONENT, POINT_ERROR, SUM_ERROR, UNIT, down, up
from ..terms import Bounds, Brackets

_SPARE = 8 * UNIT  # more than the rounding of an exponential or of a sum of rounded terms, and of what moves them


def larger(one: Brackets, other: Brackets) -> Brackets:
    """The guarantee of both orders of the neighbours, number by number. Proof: theory.md#profiles-and-dominating-pairs"""
    return Brackets(np.maximum(one.lower, other.lower), np.maximum(one.upper, other.upper))


def smaller(one: Brackets, other: Brackets) -> Brackets:
    """Brackets of two bounds of one profile: that of the smaller one, number by number. Proof: theory.md#how-it-is-used"""
    first = one.upper <= other.upper
    return Brackets(np.where(first, one.lower, other.lower), np.where(first, one.upper, other.upper))


def union_cost(overflow: Bounds, epsilon: float) -> Bounds:
    """The union strategy's addition to delta: (1 + e^epsilon) times the chance of any overflow.

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


def with_noiseless(part: Bounds, noiseless: Bounds) -> Bounds:
    """delta of a run some of whose outcomes, of the given chance, count fully. Proof: engine.md#steps-without-noise"""
    if noiseless.upper == 0.0:
        return part
    return Bounds(max(part.lower, noiseless.lower), min(1.0, up(part.upper + noiseless.upper)))


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


def bayes_error(prior: float, delta: float) -> float:
    """Lower bound of the error of any guess, at a prior up to 1/2 and delta at the prior's log odds.

    Proof: engine.md#risk-measures
    """
    return float(max(0.0, down(prior * (1.0 - delta), FEW)))


def loss_quantile(epsilon: Any, shares: Any) -> float:
    """A loss exceeded with chance delta at most, from upper bounds of epsilon at delta * shares.

    Proof: engine.md#risk-measures
    """
    return float(np.min(up(epsilon) - np.log1p(-up(shares, FEW))))


def posterior(prior: float, loss: float) -> float:
    """Upper bound of the belief in a hypothesis of this prior, after a loss. Proof: engine.md#risk-measures"""
    against = down((1.0 - prior) * math.exp(-loss), POINT_ERROR)
    return float(min(1.0, up(prior / (prior + against), FEW)))
