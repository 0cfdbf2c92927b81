"""P-values: the probability, under the null hypothesis, of a statistic at least this extreme."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, ndtr, pdtr, pdtrc

ENOUGH = 25.0  # variance from which a count is tested by its normal approximation
_FEW = 4096.0  # sums of up to this many values have their law computed in full


@dataclass(frozen=True)
class Check:
    """One test: its name, its p-value, and the observed values."""

    name: str
    p_value: float
    detail: str


def two_sided(below: float, above: float) -> float:
    return min(1.0, 2.0 * min(below, above))


def binomial_p_value(count: int, steps: int, chance: float) -> float:
    below = 1.0 if count == steps else float(bdtr(count, steps, chance))
    above = 1.0 if count == 0 else float(bdtrc(count - 1, steps, chance))
    return two_sided(below, above)


def count_p_value(total: float, mean: float, variance: float) -> float:
    """The p-value of a sum of many small independent counts.

    Normal if that fits, else by Poisson's wider tails.
    """
    if variance >= ENOUGH:
        gap = abs(total - mean)
        return min(1.0, 2.0 * float(ndtr(-max(gap - 0.5, 0.0) / math.sqrt(variance))))
    return poisson_p_value(total, mean)


def poisson_p_value(count: float, mean: float) -> float:
    return two_sided(float(pdtr(count, mean)), 1.0 if count == 0 else float(pdtrc(count - 1, mean)))


def law_sum_p_value(total: float, count: int, first: int, law: NDArray[np.float64]) -> float:
    """The two-sided p-value of a sum of `count` independent values.

    The value first + i has the chance law[i].

    From the exact law of the sum where that has few values, else by the saddle-point formula of
    Lugannani and Rice for whole numbers, whose relative error is then a few percent, also for
    skewed values and far in the tails.
    """
    places = np.flatnonzero(law > 0.0)
    low, high = int(places[0]), int(places[-1])
    chances = law[low : high + 1] / law[low : high + 1].sum()
    excess = total - count * (first + low)  # of values from 0 to high - low
    mean = count * float(chances @ np.arange(chances.size))
    if excess < mean:
        return min(1.0, 2.0 * _upper_tail(count * (high - low) - excess, count, chances[::-1]))
    return min(1.0, 2.0 * _upper_tail(excess, count, chances))


def _upper_tail(total: float, count: int, chances: NDArray[np.float64]) -> float:
    """The chance that a sum of `count` values is at least `total`, which is above its mean.

    The values range from 0 to len(chances) - 1.
    """
    top = float(count * (chances.size - 1))
    if total >= top:
        return float(chances[-1]) ** count if total == top else 0.0
    if top <= _FEW:
        law = np.ones(1)
        for _ in range(count):
            law = np.convolve(law, chances)
        return float(law[math.ceil(total) :].sum())
    return _saddle_point(total, count, chances)


def _saddle_point(total: float, count: int, chances: NDArray[np.float64]) -> float:
    values = np.arange(chances.size, dtype=np.float64)
    logs = np.log(np.maximum(chances, 1e-300))

    def tilted(slope: float) -> tuple[float, float, float]:
        exponents = logs + slope * values
        largest = float(exponents.max())
        weights = np.exp(exponents - largest)
        norm = float(weights.sum())
        mean = float(weights @ values) / norm
        return largest + math.log(norm), mean, float(weights @ np.square(values - mean)) / norm

    low, high = 0.0, 1.0
    while tilted(high)[1] < total / count:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if tilted(middle)[1] < total / count else (low, middle)
    slope = 0.5 * (low + high)
    log_norm, _, variance = tilted(slope)
    depth = math.sqrt(max(2.0 * (slope * total - count * log_norm), 0.0))
    if depth < 0.3:  # near the mean, where the formula divides 0 by 0
        _, mean, variance = tilted(0.0)
        return float(ndtr(-(total - 0.5 - count * mean) / math.sqrt(count * variance)))
    width = -math.expm1(-slope) * math.sqrt(count * variance)
    density = math.exp(-0.5 * depth * depth) / math.sqrt(2.0 * math.pi)
    return float(ndtr(-depth)) + density * (1.0 / width - 1.0 / depth)
