"""Sizes of batches by integer arithmetic, for words that a table of thresholds leaves open.

A uniform number U on [0, 1), of which the first words are known, gives the smallest size `k` with U
< Pr[size <= k]. Chances are enclosed between integers, relative to the chance of the mode: ratios
of neighbours are rational numbers (a float `p` is one), products are rounded down for the lower end
and up for the upper one, and what lies beyond the enclosed sizes is bounded by geometric series. If
the words leave a choice, one more is drawn.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ..scheme import CappedPoisson, Overflow
from .draws import not_random
from .streams import Stream

_MOST_WORDS = 64


def exact_size(scheme: CappedPoisson, word: int, stream: Stream) -> int:
    """The size for a uniform number that begins with `word` and goes on in `stream`.

    It follows the scheme's law exactly.

    Guarantees: each further word is needed with a chance of about 2**-64. After 64 words (a chance
    below 2**-3000 for random words) it raises, rather than guess.
    """
    known = word
    for count in range(1, _MOST_WORDS + 1):
        size = _decided(scheme, known, 64 * count)
        if size is not None:
            return size
        known = known << 64 | int(stream.words(1)[0])
    raise not_random()


def _decided(scheme: CappedPoisson, known: int, bits: int) -> int | None:
    """The size that all U in [known, known + 1) / 2**bits have in common, if they have."""
    halvings = _halvings_below_cap(scheme)
    if halvings and known >> max(bits - halvings, 0):
        return scheme.max_batch_size
    if halvings >= bits:
        return None  # all words are 0 so far, and a size below the cap would need more of them
    law = _enclosed(scheme, bits)
    if known * law.total_low < law.below << bits:
        return None  # U may belong to a size below those that are enclosed
    cap = min(scheme.max_batch_size, scheme.group_size)
    # The first size that some U may have, and the first that no U exceeds.
    least = bisect.bisect_right(law.high, known * law.total_low >> bits)
    most = bisect.bisect_left(law.low, -(-(known + 1) * law.total_high >> bits))
    smallest = min(law.first + least, cap)
    largest = min(law.first + most, cap) if most < len(law.low) else cap
    return smallest if smallest == largest else None


def _halvings_below_cap(scheme: CappedPoisson) -> int:
    """Some h for which a size below the cap has a chance of at most 2**-h.

    By Chernoff's bound exp(-(np - k)**2 / 2np).

    Spares the sum over all sizes where the cap is far below the mean; 0 where it tells nothing.
    """
    mean = scheme.group_size * Fraction(scheme.sampling_probability)
    gap = mean - (scheme.max_batch_size - 1)
    if scheme.overflow is Overflow.REJECT or gap <= 0:
        return 0
    return int(Fraction(144, 100) * gap * gap / (2 * mean))  # 1 / log 2 is above 1.44


@dataclass(frozen=True)
class _Enclosed:
    """Integers around the cumulative chances of the sizes from `first` on, and around their total.

    `below` is at least the sum for all sizes below `first`.
    """

    first: int
    low: list[int]
    high: list[int]
    total_low: int
    total_high: int
    below: int


def _enclosed(scheme: CappedPoisson, bits: int) -> _Enclosed:
    """Chances that matter at 2**-bits, relative to the mode's, in units fine enough to add."""
    n, p = scheme.group_size, Fraction(scheme.sampling_probability)
    over, under = p.numerator, p.denominator - p.numerator
    limit = min(n, scheme.max_batch_size) if scheme.overflow is Overflow.REJECT else n
    mode = min((n + 1) * p.numerator // p.denominator, limit)
    unit = 1 << bits + 64 + n.bit_length()
    up, above = _products(unit, (((n - k) * over, (k + 1) * under) for k in range(mode, limit)))
    down, below = _products(unit, ((k * under, (n - k + 1) * over) for k in range(mode, 0, -1)))
    chances = [*reversed(down), (unit, unit), *up]
    low = list(itertools.accumulate(one for one, _ in chances))
    high = list(itertools.accumulate((other for _, other in chances), initial=below))[1:]
    return _Enclosed(mode - len(down), low, high, low[-1], high[-1] + above, below)


def _products(unit: int, ratios: Iterator[tuple[int, int]]) -> tuple[list[tuple[int, int]], int]:
    """Enclosures of the products of falling ratios until they vanish.

    The second value is an upper bound on the sum of all later ones.
    """
    low = high = unit
    found: list[tuple[int, int]] = []
    for over, under in ratios:
        if low == 0:
            return found, -(-high * over // (under - over))
        low, high = low * over // under, -(-high * over // under)
        found.append((low, high))
    return found, 0
