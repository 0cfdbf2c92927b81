"""The law of a capped batch's size, drawn from words."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from ..scheme import CappedPoisson, Overflow
from .draws import WORD
from .streams import Stream, Words


class SizeLaw:
    """The law of a capped batch's size, as a table of 64-bit thresholds; one word draws one size.

    Guarantees: sizes outside the table had a total chance below 2**-79; every other chance is right to a relative
    error of about 1e-15 per size between it and the mode, and is rounded to a multiple of 2**-64. Building it costs
    O(sqrt(max_batch_size)) time and memory at most, drawing O(log) of that. The same on every platform: only
    correctly rounded operations are used.
    """

    def __init__(self, first: int, thresholds: Words) -> None:
        self.first = first
        self.thresholds = thresholds

    def draw(self, stream: Stream) -> int:
        return self.first + int(np.searchsorted(self.thresholds, stream.words(1)[0], side="right"))


def _constant(size: int) -> SizeLaw:
    return SizeLaw(size, np.empty(0, dtype=np.uint64))


@functools.lru_cache(maxsize=64)
def size_law(scheme: CappedPoisson) -> SizeLaw:
    """The table for one scheme (for one group, if it is cyclic)."""
    n, p = scheme.group_size, scheme.sampling_probability
    cap = min(scheme.max_batch_size, n)
    if p == 1.0:
        return _constant(cap)
    # Bernstein: |Bin - np| exceeds 37 + 11 sd with chance below 2**-79. The conditioned law falls off
    # at least as fast below its own mode, because the binomial is log-concave.
    reach = math.ceil(38 + 11 * math.sqrt(n * p * (1.0 - p)))
    mode = min(n, math.floor((n + 1) * Fraction(p)))
    top = min(n, mode + reach)
    if scheme.overflow is Overflow.REJECT and cap < mode:
        # From the cap down, each size is at most `fall` times as likely as the next: 1/2 or less once cap < np / 2.
        fall = cap / (n - cap + 1) * ((1.0 - p) / p)
        mode, reach = cap, min(reach, math.ceil(56 / -math.log(fall)) if 0.0 < fall < 1.0 else reach)
    if scheme.overflow is Overflow.REJECT:
        top = min(top, cap)
    first = max(0, mode - reach)
    if first >= cap:
        return _constant(cap)
    weights = _integer_weights(n, p, first, mode, top)
    # The last size needs no threshold; nor, under truncation, does anything from the cap upwards.
    nonzero = np.flatnonzero(weights)
    last = max(mode - first, int(nonzero[-1]) if nonzero.size else 0)
    return SizeLaw(first, np.cumsum(weights[: min(last, cap - first)], dtype=np.uint64))


def _integer_weights(n: int, p: float, first: int, mode: int, top: int) -> Words:
    """Chances of the sizes first..top in units of 2**-64, relative to their total; the mode takes the rounding.

    They sum to 2**64 exactly, so the mode's own entry wraps to 0 if it is the only size left.
    """
    sizes = np.arange(first + 1, top + 1, dtype=np.int64)
    ratios = (n - (sizes - 1)).astype(np.float64) / sizes * (p / (1.0 - p))  # Pr[size] / Pr[size - 1]
    at = mode - first
    below = np.cumprod(1.0 / ratios[:at][::-1])[::-1]
    chances = np.concatenate((below, [1.0], np.cumprod(ratios[at:])))
    scaled = np.rint(chances / math.fsum(chances) * float(WORD))
    scaled[at] = 0.0
    weights = scaled.astype(np.uint64)
    weights[at] = (WORD - sum(weights.tolist())) % WORD
    return weights
