"""The law of a capped batch's size, drawn exactly from words.

The first 64 bits of a uniform number on [0, 1) and a table of floating-point thresholds decide
nearly every draw. Each threshold has a bound of its rounding error; a word within that bound is
decided by integer arithmetic (`exact_sizes`), with further words where 64 bits do not
suffice.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from ..scheme import CappedPoisson, Overflow
from .draws import WORD
from .exact_sizes import exact_size
from .streams import Stream, Words

# Each ratio of neighbouring chances has 7 roundings, counting its inverse, and each product of
# ratios one more.
_ROUNDINGS_PER_STEP = 8


class SizeLaw:
    """The law of a capped batch's size; one word draws one size, nearly always.

    Guarantees: the law is exactly that of the scheme, whatever the floating-point table: a word is
    read off the table only where its error bounds leave no choice. Building the table costs
    O(sqrt(max_batch_size)) time and memory at most, drawing O(log) of that; the exact way costs as
    much as the table and is taken with a chance of about 1e-15 times the table's length squared.
    The same on every platform: only correctly rounded operations are used.
    """

    def __init__(self, scheme: CappedPoisson, first: int, thresholds: Words, starts: Words, ends: Words) -> None:
        self.scheme = scheme
        self.first = first
        self.thresholds = thresholds
        # Words from starts[i] to ends[i] (inclusive) give the size first + i for certain.
        self.starts = starts
        self.ends = ends

    def draw(self, stream: Stream) -> int:
        word = stream.words(1)[0]
        place = self.thresholds.searchsorted(word, side="right")
        if self.starts[place] <= word <= self.ends[place]:
            return self.first + int(place)
        return exact_size(self.scheme, int(word), stream)

    def read(self, words: Words) -> list[int | None]:
        """The size that each first word gives, or None where `draw` has to decide."""
        places = self.thresholds.searchsorted(words, side="right")
        certain = (self.starts[places] <= words) & (words <= self.ends[places])
        sizes = zip(places.tolist(), certain.tolist(), strict=True)
        return [self.first + place if sure else None for place, sure in sizes]


@functools.lru_cache(maxsize=64)
def size_law(scheme: CappedPoisson) -> SizeLaw:
    """The table for one scheme (for one group, if it is cyclic)."""
    n, p = scheme.group_size, scheme.sampling_probability
    cap = min(scheme.max_batch_size, n)
    if p == 1.0:
        return _constant(scheme, cap, 0)
    # Bernstein: |Bin - np| exceeds 37 + 11 sd with chance below 2**-79. The conditioned law falls
    # off at least as fast below its own mode, because the binomial is log-concave.
    reach = math.ceil(38 + 11 * math.sqrt(n * p * (1.0 - p)))
    mode = min(n, math.floor((n + 1) * Fraction(p)))
    top = min(n, mode + reach)
    if scheme.overflow is Overflow.REJECT and cap < mode:
        # From the cap down, each size is at most `fall` times as likely as the next: 1/2 or less
        # once cap < np / 2.
        fall = cap / (n - cap + 1) * ((1.0 - p) / p)
        mode = cap
        reach = min(reach, math.ceil(56 / -math.log(fall)) if 0.0 < fall < 1.0 else reach)
    if scheme.overflow is Overflow.REJECT:
        top = min(top, cap)
    first = max(0, mode - reach)
    if first >= cap:
        return _constant(scheme, cap, 1)  # smaller sizes share a chance below 2**-79: they need the word 0
    weights, outside = _integer_weights(n, p, first, mode, top, cap if scheme.overflow is Overflow.REJECT else n)
    # The last size needs no threshold; nor, under truncation, does anything from the cap upwards.
    nonzero = np.flatnonzero(weights)
    last = max(mode - first, int(nonzero[-1]) if nonzero.size else 0)
    thresholds = np.cumsum(weights[: min(last, cap - first)], dtype=np.uint64)
    starts, ends = _certain_words(thresholds, mode - first, max(mode - first, top - mode), outside)
    return SizeLaw(scheme, first, thresholds, starts, ends)


def _constant(scheme: CappedPoisson, size: int, start: int) -> SizeLaw:
    """Every word from `start` on gives one size."""
    words = np.array([start, WORD - 1], dtype=np.uint64)
    return SizeLaw(scheme, size, np.empty(0, dtype=np.uint64), words[:1], words[1:])


def _integer_weights(n: int, p: float, first: int, mode: int, top: int, limit: int) -> tuple[Words, float]:
    """Chances of the sizes first..top in units of 2**-64, relative to their total.

    With a bound on the chance of all others.

    They sum to 2**64 exactly (the mode takes the rounding), so the mode's own entry wraps to 0 if
    it is the only size left. Sizes go up to `limit`. Away from the mode, ratios of neighbours fall,
    so geometric series bound what is left out.
    """
    sizes = np.arange(first + 1, top + 1, dtype=np.int64)
    odds = p / (1.0 - p)
    ratios = (n - (sizes - 1)).astype(np.float64) / sizes * odds  # Pr[size] / Pr[size - 1]
    at = mode - first
    below = np.cumprod(1.0 / ratios[:at][::-1])[::-1]
    chances = np.concatenate((below, [1.0], np.cumprod(ratios[at:])))
    total = math.fsum(chances)
    scaled = np.rint(chances / total * float(WORD))
    scaled[at] = 0.0
    weights = scaled.astype(np.uint64)
    weights[at] = (WORD - sum(weights.tolist())) % WORD
    outside = 0.0
    if first > 0:
        outside += _geometric(float(chances[0]), first / (n - first + 1) / odds)
    if top < limit:
        outside += _geometric(float(chances[-1]), (n - top) / (top + 1) * odds)
    return weights, outside / total


def _geometric(chance: float, ratio: float) -> float:
    """An upper bound on what follows `chance` in a series whose ratios are `ratio` or less.

    1 if there is none.
    """
    if ratio > 1.0 - 1e-9:
        return 1.0
    return 1.001 * chance * ratio / (1.0 - ratio) + 1e-300


def _certain_words(thresholds: Words, mode: int, steps: int, outside: float) -> tuple[Words, Words]:
    """The first and the last word that give each size for certain.

    There is none if the first is above the last.

    With u = 2**-53, a chance at most `steps` ratios from the mode errs by 8 u `steps` relatively,
    their total by no more, and their quotient by both. So does the sum of all chances below a
    threshold up to the mode, and the sum of all above a later one, as the weights sum to 2**64
    exactly. To that, each weight's own rounding adds half a unit, and what the table leaves out
    adds `outside`.
    """
    relative = 2.02 * (_ROUNDINGS_PER_STEP * steps + 4) * 2.0**-53
    fixed = 0.5 * (steps + 1) + 1.01 * outside * float(WORD) + 4.0
    mass = thresholds.astype(np.float64)
    mass[mode:] = float(WORD) - mass[mode:]
    errors = np.ceil(1.01 * (relative * mass + fixed)).tolist()
    edges = [(edge, int(error)) for edge, error in zip(thresholds.tolist(), errors, strict=True)]
    end = math.ceil(1.01 * fixed)
    # The words 0 and 2**64 - 1 are never certain, so that cutting off at these ends does no harm.
    starts = np.array([end, *(min(edge + error, WORD - 1) for edge, error in edges)], dtype=np.uint64)
    ends = np.array([*(max(edge - error - 1, 0) for edge, error in edges), WORD - 1 - end], dtype=np.uint64)
    return np.maximum.accumulate(starts), np.minimum.accumulate(ends[::-1])[::-1].copy()
