"""Binomial probabilities of a whole range of counts at once, or relative to another, by the same formulas as `_binomial`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ._binomial import STIRLING_TABLE, Rate, deviance, log_pmf_at, log_sf_at, stirling_error

_Array = NDArray[np.float64]


def _deviance_range(x: _Array, mean: float, gap: _Array) -> _Array:
    """`deviance` of an array of positive x."""
    near = np.abs(gap) < 0.5 * (x + mean)
    v = np.where(near, gap / (x + mean), 0.0)
    square = v * v
    most = float(square.max(initial=0.0))
    terms = 1 + int(40.0 / -math.log(most)) if most > 0.0 else 1
    series = np.zeros_like(v)
    for j in range(terms, 0, -1):
        series = (series + 1.0 / (2 * j + 1)) * square
    far = x * (np.log(x) - math.log(mean) if mean < 1e-280 else np.log(x / mean)) - gap
    return np.where(near, v * (gap + 2.0 * x * series), far)


def _stirling_range(x: _Array) -> _Array:
    m = 1.0 / (x * x)
    series = (1 / 12 - m * (1 / 360 - m * (1 / 1260 - m * (1 / 1680 - m * (1 / 1188 - m * 691 / 360360))))) / x
    table = np.array(STIRLING_TABLE)
    return np.where(x < table.size, table[np.minimum(x, table.size - 1).astype(np.int64)], series)


def log_pmf_range(first: int, last: int, n: int, p: float) -> _Array:
    """log Pr[Bin(n, p) = k] for k = first, ..., last; error: `relative_error(value)`.

    >>> np.exp(log_pmf_range(-1, 2, 2, 0.5)).round(12)
    array([0.  , 0.25, 0.5 , 0.25])
    """
    rate = Rate.of(p)
    logs = np.full(max(0, last - first + 1), -np.inf)
    for end in {0, n}:
        if first <= end <= last:
            logs[end - first] = log_pmf_at(end, n, rate)
    low, high = max(first, 1), min(last, n - 1)
    if low > high or rate.hit in (0, rate.whole):
        return logs
    j = np.arange(high - low + 1, dtype=np.float64)
    whole_mean = n * rate.hit // rate.whole
    gap = (float(low - whole_mean) + j) + rate.excess(whole_mean, n)
    k, rest = float(low) + j, float(n - low) - j
    core = stirling_error(n) - _stirling_range(k) - _stirling_range(rest)
    core -= _deviance_range(k, n * rate.hit / rate.whole, gap)
    core -= _deviance_range(rest, n * (rate.whole - rate.hit) / rate.whole, -gap)
    logs[low - first : high - first + 1] = core - 0.5 * np.log(2 * math.pi * k * (rest / n))
    return logs


def cdf_range(first: int, last: int, n: int, p: float) -> _Array:
    """Pr[Bin(n, p) <= k] for k = first, ..., last.

    The relative error is at most `relative_error(log(value)) + 1.2e-16 (last - first)`: sums of positive terms on the
    nearer side of the mean. Values below 1e-307 may be rounded to zero.

    >>> cdf_range(-1, 3, 2, 0.5)
    array([0.  , 0.25, 0.75, 1.  , 1.  ])
    """
    out = np.zeros(max(0, last - first + 1))
    out[max(0, n - first) :] = 1.0
    low, high = max(first, 0), min(last, n - 1)
    if low > high:
        return out
    rate = Rate.of(p)
    middle = min(max(n * rate.hit // rate.whole, low - 1), high)  # the last k that is not above the mean
    with np.errstate(under="ignore"):
        terms = np.exp(log_pmf_range(low, high + 1, n, p))
        inside = np.empty(high - low + 1)
        if middle >= low:
            terms[0] = math.exp(log_sf_at(n - low, n, rate.flipped()))
            inside[: middle - low + 1] = np.cumsum(terms[: middle - low + 1])
        if middle < high:
            terms[-1] = math.exp(log_sf_at(high + 1, n, rate))
            inside[middle - low + 1 :] = 1.0 - np.cumsum(terms[: middle - low + 1 : -1])[::-1]
    out[low - first : high - first + 1] = inside
    return out


def log_pmf_ratio(k: int, reference: int, n: int, p: float) -> float:
    """log(Pr[Bin = k] / Pr[Bin = reference]), accurate also where both are far below 1e-300.

    Error: `relative_error(|value| + 2 |k - reference| |t|)`, t the log of the odds of `reference / n` over those of p.

    >>> round(math.exp(log_pmf_ratio(1, 2, 4, 0.5)), 12)
    0.666666666667
    """
    rate = Rate.of(p)
    if not (0 < reference < n and 0 < k < n and 0.0 < rate.p < 1.0):
        return log_pmf_at(k, n, rate) - log_pmf_at(reference, n, rate)
    # Pr[k] / Pr[reference] at p = (the same ratio at the rate reference / n) * (odds of p / odds of reference/n)^(k - reference)
    step, rest = k - reference, n - reference
    tilt = _log_odds_ratio(reference, n, rate)
    core = stirling_error(reference) - stirling_error(k) + stirling_error(rest) - stirling_error(n - k)
    core -= deviance(k, reference, step) + deviance(n - k, rest, -step)
    return core - 0.5 * (math.log(k / reference) + math.log((n - k) / rest)) - step * tilt


def _log_odds_ratio(k: int, n: int, rate: Rate) -> float:
    """log of (k / (n - k)) / (p / (1 - p)) for 0 < k < n."""
    over, under = k * (rate.whole - rate.hit), (n - k) * rate.hit
    if rate.p < 1e-280:  # the quotient may overflow
        return math.log(k / (n - k)) - math.log(rate.p)
    return math.log(over / under) if not under < 3 * over < 9 * under else math.log1p((over - under) / under)
