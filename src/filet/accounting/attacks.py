"""Explicit pairs of neighbouring data sets, as mixtures of Gaussians in a plane.

All examples lie in a plane: `x_1` is a unit vector, some of the others are all equal to one unit vector at an angle to
it (opposite, orthogonal, ...), and the rest are zero. With `k` such others in the batch, the noisy sum has the
coordinates `k - c [x_1 drawn]` along the others and `s [x_1 drawn]` across, `c` and `s` being minus the cosine and the
sine of the angle. So both neighbours give explicit mixtures of Gaussians.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from .._binomial import log_cdf, log_pmf, log_sf
from .._binomial_ranges import cdf_range, log_pmf_range
from ..scheme import CappedPoisson, Overflow
from .proving.loss_law import Array
from .terms import Adjacency

_MOST_COMPONENTS = 5_000  # wider mixtures hide x_1 in any case
# Chance that the number of equal others leaves its window (Bernstein: below 1e-36, over a chance of 1e-3 to fit).
_OUTSIDE = 1e-33
_RAREST_FIT = 1e-3
# Relative error of a weight: a product of four binomial probabilities above e^-140 or so, each as good as
# 1e-13 + 3e-15 |log|. Lighter ones are left out; together they are far below _OUTSIDE.
WEIGHT_ERROR = 4e-12
_LIGHTEST = 1e-60


@dataclass(frozen=True)
class Cloud:
    """One value of x_1 in the sum: chances of k = first, first + 1, ... equal others, and where x_1 puts the sum."""

    weights: Array
    along: float  # added to k
    across: float


@dataclass(frozen=True)
class Attack:
    """One step under both neighbours, as mixtures of unit Gaussians in the plane at (scale (k + along), scale across).

    P = common + only_p and Q = common + only_q. `missing` bounds the mass that is not listed.
    """

    scale: float
    first: int
    common: tuple[Cloud, ...]
    only_p: tuple[Cloud, ...]
    only_q: tuple[Cloud, ...]
    missing: float


def attack(scheme: CappedPoisson, sigma: float, adjacency: Adjacency, count: int, cosine: float) -> Attack | None:
    """The pair in which `count` others are equal, at minus this cosine to x_1; None if it has too many parts."""
    drawn = _batch_law(scheme, count, scheme.group_size)
    if drawn is None:
        return None
    first, inside, outside = drawn
    sine = math.sqrt(1.0 - cosine * cosine)
    stay, hit = Cloud(outside, 0.0, 0.0), Cloud(inside, -cosine, sine)
    complete = first == 0 and inside.size == 1 + min(count, scheme.max_batch_size)
    missing = 0.0 if complete or (scheme.sampling_probability == 1.0 and count == scheme.group_size - 1) else _OUTSIDE
    if adjacency is Adjacency.REPLACE_ONE:
        opposite = Cloud(inside, cosine, -sine)
        return Attack(1.0 / sigma, first, (stay,), (hit,), (opposite,), missing)
    if adjacency is Adjacency.ZERO_OUT or count == 0:  # without the others, a missing x_1 is a zero one
        return Attack(1.0 / sigma, first, (stay,), (hit,), (Cloud(inside, 0.0, 0.0),), missing)
    smaller = _batch_law(scheme, count, scheme.group_size - 1)
    if smaller is None:
        return None
    return Attack(1.0 / sigma, first, (), (stay, hit), (Cloud(smaller[2], 0.0, 0.0),), missing)


@functools.lru_cache(maxsize=8)
def _batch_law(scheme: CappedPoisson, count: int, n: int) -> tuple[int, Array, Array] | None:
    """Chances that a batch holds k of the equal others and x_1, or k and not x_1: the first k, and both arrays.

    `n = group_size - 1` is the smaller neighbour of add-remove, which has no x_1.
    """
    p, cap, others = scheme.sampling_probability, scheme.max_batch_size, scheme.group_size - 1
    present = n > others
    if count == 0:
        rate = scheme.inclusion_probability
        return 0, np.array([rate]), np.array([1.0 - rate])
    share = cap * (count / others)
    spread = max(math.sqrt(count * p * (1.0 - p)), math.sqrt(share * (1.0 - count / others)))
    low = max(0, math.floor(min(count * p, share) - 13.0 * spread) - 60)
    if p == 1.0 and count == others:
        low = cap - 1  # every batch is full
    high = min(count, cap, math.ceil(max(min(count * p, cap), share) + 13.0 * spread) + 60)
    if high - low > _MOST_COMPONENTS:
        return None
    size = high - low + 1
    reject = scheme.overflow is Overflow.REJECT
    log_fit = log_cdf(cap, n, p) if reject else 0.0
    if reject and count < others and log_fit < math.log(_RAREST_FIT):
        return None
    log_k = log_pmf_range(low, high, count, p) - log_fit
    zeros = others - count
    # Batches with fewer than `cap` examples: nothing was cut, so equal and zero others are independent.
    with np.errstate(divide="ignore"):
        free = np.exp(log_k + np.log(cdf_range(cap - 1 - high, cap - 1 - low, zeros, p)[::-1]))
        free_with = np.exp(log_k + np.log(cdf_range(cap - 2 - high, cap - 2 - low, zeros, p)[::-1]))
    # Batches of exactly `cap`: a uniform subset.
    log_full = (log_pmf(cap, n, p) if reject else log_sf(cap, n, p)) - log_fit
    full = math.exp(min(log_full, 0.0))
    if not present:
        inside, outside = np.zeros(size), free + full * _hypergeometric(low, high, others, count, cap)
    else:
        inside = p * free_with + full * (cap / n) * _hypergeometric(low, high, others, count, cap - 1)
        outside = (1.0 - p) * free + full * ((n - cap) / n) * _hypergeometric(low, high, others, count, cap)
    total = float(inside.sum() + outside.sum())
    if not abs(total - 1.0) < WEIGHT_ERROR:  # underflow: this attack is not worth a special case
        return None
    if size < count + 1 < cap:  # not all of them, and what is left out is allowed for
        inside, outside = (np.where(one < _LIGHTEST, 0.0, one) for one in (inside, outside))
    return low, inside / total, outside / total


def _hypergeometric(first: int, last: int, total: int, marked: int, drawn: int) -> Array:
    """Chance of k marked ones among `drawn` of `total`, for k = first, ..., last.

    That of k among the marked and drawn - k among the others, given drawn in all, for coins of any one rate.
    """
    if not 0 < drawn < total:
        k = np.arange(first, last + 1)
        return np.where(k == (marked if drawn else 0), 1.0, 0.0)
    rate = drawn / total
    logs = log_pmf_range(first, last, marked, rate)
    logs = logs + log_pmf_range(drawn - last, drawn - first, total - marked, rate)[::-1]
    return np.asarray(np.exp(logs - log_pmf(drawn, total, rate)))
