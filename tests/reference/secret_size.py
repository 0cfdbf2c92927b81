"""Epsilons of batches whose sizes follow a planned law, at one given number of records, from the mechanism alone.

Written from the mechanism: a size by the law of policy reject at the planned number, a uniform subset of
`max(records, planned)` slots. The released label is the batch without x_1. Losses are rounded to a grid and composed by
fast Fourier transforms; nothing of filet is used.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]


@functools.cache
def size_law(planned: int, p: float, cap: int) -> tuple[float, ...]:
    """Chances of the sizes 0 .. cap: quotients of whole numbers, correctly rounded."""
    over, whole = p.as_integer_ratio()
    weights = [math.comb(planned, k) * over**k * (whole - over) ** (planned - k) for k in range(cap + 1)]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def labelled_pair(planned: int, p: float, cap: int, records: int) -> Array:
    """Rows (P without x_1, P with it, Q) for each number of other records in the batch.

    Above the planned number, the neighbour has one record and one slot less; else an empty slot takes its place.
    """
    law, slots = size_law(planned, p, cap), max(records, planned)
    rows = []
    for j in range(cap + 1):
        out = law[j] * ((slots - j) / slots)
        hit = law[j + 1] * ((j + 1) / slots) if j < cap else 0.0
        rows.append((out, hit, law[j] if records > planned else out + hit))
    return np.array(rows)


def profile(pair: Array, sigma: float, a: float) -> float:
    """H_a(P || Q), summed over the labels."""
    total = 0.0
    for out, hit, other in pair:
        rest = a * other - out
        if rest <= 0.0:
            total += out + hit - a * other
        elif hit > 0.0:
            x = sigma**2 * math.log(rest / hit) + 0.5  # where P - a Q changes its sign
            total += hit * ndtr((1 - x) / sigma) - rest * ndtr(-x / sigma)
    return total


def composed_epsilon(pair: Array, sigma: float, steps: int, delta: float, *, grid: float, down: bool) -> float:
    """Epsilon at delta in the worse direction; losses are rounded to the nearest multiple of `grid`, or down."""
    x = np.linspace(-9 * sigma, 1 + 9 * sigma, 2_001)
    middle, (low, high) = 0.5 * (x[1:] + x[:-1]), (np.append(-np.inf, x[1:-1]), np.append(x[1:-1], np.inf))
    none, one = (ndtr((high - m) / sigma) - ndtr((low - m) / sigma) for m in (0.0, 1.0))
    worst = 0.0
    ratio = np.exp((2 * middle - 1) / (2 * sigma**2))
    for backward in (False, True):
        losses, masses = [], []
        for out, hit, other in pair:
            if other <= 0.0:
                continue
            loss = np.log((out + hit * ratio) / other)
            losses.append(-loss if backward else loss)
            masses.append(other * none if backward else out * none + hit * one)
        worst = max(worst, _epsilon(np.concatenate(losses), np.concatenate(masses), steps, delta, grid, down))
    return worst


def _epsilon(loss: Array, mass: Array, steps: int, delta: float, grid: float, down: bool) -> float:
    place = np.floor(loss / grid) if down else np.rint(loss / grid)
    first = int(place.min())
    one = np.bincount((place - first).astype(int), mass)
    size = 1 << math.ceil(math.log2(one.size * steps))
    whole = np.maximum(np.fft.irfft(np.fft.rfft(one, size) ** steps, size), 0.0)
    total = (np.arange(size) + first * steps) * grid

    def delta_at(epsilon: float) -> float:
        above = total > epsilon
        return float((whole[above] * -np.expm1(epsilon - total[above])).sum())

    low, high = 0.0, 50.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high
