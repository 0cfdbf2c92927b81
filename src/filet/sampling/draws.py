"""Exact draws from a stream of words: bounded integers and uniform subsets."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NotCertifiedError
from .streams import Stream, Words

Indices = NDArray[np.signedinteger[Any]]

WORD = 2**64
MOST_ROUNDS = 512


def not_random() -> NotCertifiedError:
    """The error for a stream whose words are refused again and again: random words are not."""
    return NotCertifiedError("the words of this stream are not random, so nothing is drawn from them; use another key")


def index_dtype(dataset_size: int) -> np.dtype[np.signedinteger[Any]]:
    """The smallest signed integer type that holds both -1 and `dataset_size - 1`.

    >>> index_dtype(128), index_dtype(129)
    (dtype('int8'), dtype('int16'))
    """
    kinds: tuple[type[np.signedinteger[Any]], ...] = (np.int8, np.int16, np.int32, np.int64)
    return np.dtype(next(kind for kind in kinds if dataset_size - 1 <= np.iinfo(kind).max))


def integers_below(stream: Stream, bound: int, count: int) -> Words:
    """`count` independent integers, each exactly uniform on [0, bound).

    Words beyond the last multiple of `bound` are drawn again, which happens with chance 1/2 or
    less. After 512 rounds (chance below 2**-400 for random words) it raises, so that the loop has
    an end and no value is biased.
    """
    words = stream.words(count)
    excess = WORD % bound
    if excess:
        last = np.uint64(WORD - excess - 1)
        for _ in range(MOST_ROUNDS):
            over = np.flatnonzero(words > last)
            if not over.size:
                break
            words[over] = stream.words(over.size)
        else:
            raise not_random()
    return remainders(words, bound)


def subset(stream: Stream, population: int, size: int, dtype: np.dtype[Any]) -> Indices:
    """A uniformly random `size`-subset of [0, population), ascending, in O(size) time and memory.

    The distinct values among uniform draws are, given how many they are, equally likely to be any
    set of that many: the draws treat all elements alike. So too many may be thinned at random
    places, and too few may be extended by random ranks within the complement, until the size is
    right: every round removes or adds at least one.
    """
    if 2 * size > population:
        inside = np.ones(population, dtype=np.bool_)
        inside[subset(stream, population, population - size, dtype)] = False
        return np.flatnonzero(inside).astype(dtype)
    chosen = _distinct(_rough_draws(stream, population, size).astype(dtype))
    return fitted(stream, population, size, chosen)


def fitted(stream: Stream, population: int, size: int, chosen: Indices) -> Indices:
    """The set `chosen`, ascending, thinned or extended at random to `size` elements.

    This is the second half of `subset`.
    """
    while chosen.size > size:
        kept = np.ones(chosen.size, dtype=np.bool_)
        kept[integers_below(stream, chosen.size, chosen.size - size)] = False
        chosen = chosen[kept]
    dtype = chosen.dtype
    while chosen.size < size:
        ranks = _distinct(integers_below(stream, population - chosen.size, size - chosen.size).astype(dtype))
        # The r-th absent element is r plus the number of chosen elements before it.
        before = np.searchsorted(chosen - np.arange(chosen.size, dtype=dtype), ranks, side="right")
        chosen = np.sort(np.concatenate((chosen, ranks + before.astype(dtype))))
    return chosen


def draw_width(population: int) -> int:
    """Bits of one rough draw: small populations take half a word each."""
    return 32 if population <= 2**24 else 64


@functools.lru_cache(maxsize=2**12)
def rough_count(population: int, size: int) -> int:
    """Number of draws that are likely to hold `size` distinct unbiased ones.

    It is computed in integers, so that no platform rounds differently.
    """
    width = draw_width(population)
    # Expected losses: size**2 / 2n + size**3 / 2n**2, and the biased ones.
    loss = size * size // (2 * population)
    loss += loss * size // population + (size * (2**width % population) >> width)
    return size + (loss + 4 * math.isqrt(loss) + 4 if loss else 0)


def _rough_draws(stream: Stream, population: int, size: int) -> NDArray[np.unsignedinteger[Any]]:
    """Independent uniform integers below `population`, likely to hold `size` distinct ones.

    Draws that would be biased are dropped, not repeated.
    """
    count, limit = rough_count(population, size), first_biased(population)
    draws: NDArray[np.unsignedinteger[Any]]
    draws = stream.words(count) if draw_width(population) == 64 else halves(stream.words((count + 1) // 2))[:count]
    if limit is not None and count and draws.max() >= limit:
        draws = draws[draws < limit]
    return remainders(draws, population)


def halves(words: Words) -> NDArray[np.uint32]:
    """Each word as two half words, the lower one first, on every platform."""
    return words.astype("<u8", copy=False).view("<u4").astype(np.uint32, copy=False)


def first_biased(population: int) -> int | None:
    """The first draw beyond the last multiple of `population`, if there is one."""
    width = draw_width(population)
    excess = 2**width % population
    return 2**width - excess if excess else None


def remainders(
    draws: NDArray[np.unsignedinteger[Any]], population: int, out: NDArray[np.unsignedinteger[Any]] | None = None
) -> NDArray[np.unsignedinteger[Any]]:
    """`draws % population`, by a division.

    NumPy divides by a constant several times as fast as it takes a remainder.
    """
    divisor = draws.dtype.type(population)
    rest: NDArray[np.unsignedinteger[Any]] = np.floor_divide(draws, divisor, out=out)
    rest *= divisor
    np.subtract(draws, rest, out=rest)
    return rest


def _distinct(values: Indices) -> Indices:
    """The distinct values in ascending order."""
    values = np.sort(values)
    new = np.empty(values.size, dtype=np.bool_)
    new[:1] = True
    np.not_equal(values[1:], values[:-1], out=new[1:])
    return values[new]
