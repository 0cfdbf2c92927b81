"""Checks of batch sizes: their law, their mean, their order, and the sizes after full batches."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr

from .._binomial import log_pmf, log_sf
from ..scheme import CappedPoisson, Overflow
from .p_values import ENOUGH, Check, binomial_p_value, law_sum_p_value

_EXPECTED = 10.0  # outcomes expected less often than this are pooled


def size_checks(sizes: NDArray[np.int64], scheme: CappedPoisson) -> list[Check]:
    steps = sizes.size
    first, law = size_law_around_mean(scheme)
    places = sizes - first
    inside = (places >= 0) & (places < law.size)
    outside = sizes[~inside]
    counts = np.bincount(places[inside], minlength=law.size)
    observed, expected = _pool(counts, steps * law)
    statistic = float((np.square(observed - expected) / expected).sum())
    p_value = float(chdtrc(observed.size - 1, statistic)) if observed.size > 1 else 1.0
    impossible = outside.size + int(counts[law * steps < 1e-12].sum())
    if impossible:
        p_value = 0.0
    mean = float(law @ (first + np.arange(law.size)))
    detail = f"mean {sizes.mean():.6g}, expected {mean:.6g}, in {observed.size} bins"
    detail += f", {impossible} of an all but impossible size" if impossible else ""
    return [Check("size law", p_value, detail), *_mean_check(sizes, first, law), _ends_check(sizes, scheme)]


def _mean_check(sizes: NDArray[np.int64], first: int, law: NDArray[np.float64]) -> list[Check]:
    """The sum of all sizes: a probability that is slightly wrong moves all of them the same way."""
    if law.max() > 1.0 - 1e-12:
        return []  # there is one size only, and the check of their law has refused others
    mean, deviation = _mean_and_deviation(first, law)
    p_value = law_sum_p_value(float(sizes.sum()), sizes.size, first, law)
    z = (float(sizes.mean()) - mean) / (deviation / math.sqrt(sizes.size))
    return [Check("mean size", p_value, f"{z:+.2f} standard deviations from the expected one")]


def _ends_check(sizes: NDArray[np.int64], scheme: CappedPoisson) -> Check:
    """Counts of empty and of full batches."""
    cap = min(scheme.max_batch_size, scheme.group_size)
    smallest, parts = 1.0, []
    for name, size in (("empty", 0), ("full", cap)):
        chance = min(1.0, math.exp(_log_chance(scheme, size)))
        count = int((sizes == size).sum())
        smallest = min(smallest, binomial_p_value(count, sizes.size, chance))
        parts.append(f"{count} {name}, expected {sizes.size * chance:.4g}")
    return Check("empty or full", min(1.0, 2.0 * smallest), "; ".join(parts))


def after_full_check(sizes: NDArray[np.int64], scheme: CappedPoisson, skipped: list[str]) -> list[Check]:
    """Sizes right after full batches: if what did not fit is carried over, they are larger.

    Whether a step counts is known before its size is drawn, so the sizes that count follow the law
    like all others.
    """
    cap = min(scheme.max_batch_size, scheme.group_size)
    followers = sizes[1:][sizes[:-1] >= cap]
    first, law = size_law_around_mean(scheme)
    if not followers.size or law.max() > 1.0 - 1e-12:
        skipped.append("sizes after full batches: not tested, there are none, or all sizes are equal")
        return []
    mean, _ = _mean_and_deviation(first, law)
    p_value = law_sum_p_value(float(followers.sum()), followers.size, first, law)
    detail = f"mean {followers.mean():.6g} of {followers.size}, expected {mean:.6g}"
    return [Check("sizes after full batches", p_value, detail)]


def _mean_and_deviation(first: int, law: NDArray[np.float64]) -> tuple[float, float]:
    sizes = first + np.arange(law.size)
    mean = float(law @ sizes)
    return mean, math.sqrt(float(law @ np.square(sizes - mean)))


def _pool(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Join neighbouring sizes until each bin expects enough; the rest joins the last bin."""
    bins: list[list[float]] = []
    count = mean = 0.0
    for one, expectation in zip(counts.tolist(), expected.tolist(), strict=True):
        count, mean = count + one, mean + expectation
        if mean >= _EXPECTED:
            bins.append([count, mean])
            count = mean = 0.0
    if not bins:
        return np.array([count]), np.array([max(mean, 1e-300)])
    bins[-1][0] += count
    bins[-1][1] += mean
    table = np.array(bins)
    return table[:, 0], table[:, 1]


def sequence_check(sizes: NDArray[np.int64], scheme: CappedPoisson, skipped: list[str]) -> list[Check]:
    """Sizes of neighbouring steps must be uncorrelated."""
    first, law = size_law_around_mean(scheme)
    k = first + np.arange(law.size)
    mean = float(law @ k)
    variance = float(law @ np.square(k - mean))
    # products of rare deviations are far from normal
    if (sizes.size - 1) * (1.0 - float(law.max())) ** 2 < ENOUGH:
        skipped.append("size sequence: not tested, too few batches differ in size")
        return []
    centred = sizes - mean
    z = float(centred[:-1] @ centred[1:]) / (variance * math.sqrt(sizes.size - 1))
    return [Check("size sequence", 2.0 * float(ndtr(-abs(z))), f"lag-one correlation {z / math.sqrt(sizes.size):.3g}")]


def _log_chance(scheme: CappedPoisson, size: int) -> float:
    n, p, cap = scheme.group_size, scheme.sampling_probability, scheme.max_batch_size
    if scheme.overflow is Overflow.REJECT and (cap >= n or log_sf(cap, n, p) < -40.0):
        return log_pmf(size, n, p)  # nothing is ever rejected
    return scheme.log_batch_size_probability(size)


def _log_size_law(scheme: CappedPoisson, low: int, high: int) -> NDArray[np.float64]:
    """log chances of the sizes low..high, from one value and the ratios of neighbours."""
    n, p, cap = scheme.group_size, scheme.sampling_probability, min(scheme.max_batch_size, scheme.group_size)
    if p == 1.0:
        return np.where(np.arange(low, high + 1) == cap, 0.0, -np.inf)
    k = np.arange(low, high + 1, dtype=np.float64)
    anchor = min(max(round(scheme.expected_batch_size), low), high)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(np.maximum(n - k[:-1], 0.0) / (k[:-1] + 1.0)) + (math.log(p) - math.log1p(-p))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    truncated = scheme.overflow is Overflow.TRUNCATE
    start = log_pmf(anchor, n, p) if truncated else _log_chance(scheme, anchor)
    logs += start - logs[anchor - low]
    if truncated and high == cap:
        logs[-1] = _log_chance(scheme, cap)
    return np.asarray(logs)


def size_law_around_mean(scheme: CappedPoisson) -> tuple[int, NDArray[np.float64]]:
    """The first size that matters, and the chances of the sizes from there on."""
    cap = min(scheme.max_batch_size, scheme.group_size)
    spread = math.sqrt(scheme.group_size * scheme.sampling_probability * (1.0 - scheme.sampling_probability))
    middle = scheme.expected_batch_size
    low = max(0, math.floor(middle - 9.0 * spread) - 30)
    high = min(cap, math.ceil(middle + 9.0 * spread) + 30)
    return low, np.exp(_log_size_law(scheme, low, high))
