"""Batched draws: the sets of several steps at once, bit for bit those of single steps.

A small batch costs mostly calls, not arithmetic. The words of many steps are one table; sizes,
remainders, sorting and thinning are done for all its rows. Rare steps (a size that its first word
leaves open, an unlikely large one) are drawn one by one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..scheme import CappedPoisson
from .draws import Indices, draw_width, first_biased, fitted, halves, remainders, rough_count
from .streams import Purpose, Source, Stream, Words
from .urn import Urn

# Rows of all batches in one table: it stays in the second-level cache, and a reader who stops early
# has wasted half a millisecond at most.
_MOST_ROWS = 2**15
_MOST_STEPS = 128
# Whole words take tables of twice the size, and more time in sorting: nothing is gained beyond
# this number of rows a batch.
_MOST_WHOLE_WORDS = 2**10
# Words below this are fair remainders of every bound up to the rows of a table.
_SELDOM_BIASED = np.uint64(2**64 - 2**32)


def most_steps(rows: int, population: int) -> int:
    """Number of steps to draw at once; 1 if there is nothing to gain."""
    if 2 * min(rows, population) > population or (draw_width(population) == 64 and rows > _MOST_WHOLE_WORDS):
        return 1
    return max(1, min(_MOST_STEPS, _MOST_ROWS // rows))


class BatchedDraws:
    """Draws of several steps from an urn at once, in tables of its own: for one thread."""

    def __init__(self, source: Source, urn: Urn, dtype: np.dtype[Any]) -> None:
        self._source = source
        self._population = urn.slots
        self._dtype = dtype
        self._law = urn.law
        scheme = urn.law.scheme
        self._likely = _likely_size(scheme)
        most = rough_count(self._population, self._likely)
        self._per_word = 64 // draw_width(self._population)
        self._room = -(-most // self._per_word)
        # Words for the draws, and for thinning sets that are too large.
        words = 1 + self._room + (most - self._likely)
        steps = most_steps(scheme.max_batch_size, self._population)
        self._first_words = source.first_words(Purpose.BATCH, words, steps)
        shape = (steps, self._room * self._per_word)
        self._values = np.empty(shape, dtype=np.uint64 if self._per_word == 1 else np.uint32)
        self._new = np.empty(shape, dtype=np.bool_)

    def sets(self, steps: range) -> list[Indices | None]:
        """Each step's random set within its group, ascending, as `subset` draws it.

        None: the step has to be drawn by itself.
        """
        words = self._first_words.read(steps)
        sizes = self._likely_sizes(words[:, 0])
        counts = [0 if size is None else rough_count(self._population, size) for size in sizes]
        draws: NDArray[np.unsignedinteger[Any]] = words[:, 1 : 1 + self._room]
        if self._per_word == 2:
            draws = halves(words[:, 1 : 1 + self._room])
        distinct = self._distinct(draws, counts)
        read = [1 + -(-count // self._per_word) for count in counts]
        thinned = _thinned(distinct, sizes, words, read)
        chosen: list[Indices | None] = []
        for row, size in enumerate(sizes):
            values = thinned[row]
            if size is not None and values.size != size:
                rest = _Rest(self._source, steps[row], words[row], read[row])
                values = fitted(rest, self._population, size, distinct[row])
            chosen.append(None if size is None else values)
        return chosen

    def _likely_sizes(self, words: NDArray[np.uint64]) -> list[int | None]:
        """The size that each first word gives, or None where it decides nothing or is larger than the tables."""
        return [size if size is not None and size <= self._likely else None for size in self._law.read(words)]

    def _distinct(self, draws: NDArray[np.unsignedinteger[Any]], counts: list[int]) -> list[Indices]:
        """The distinct unbiased values among the first draws of each row, ascending."""
        values = remainders(draws, self._population, out=self._values[: len(counts)])
        top, limit = np.iinfo(values.dtype).max, first_biased(self._population)
        found = list(counts)
        if limit is not None and draws.max() >= limit:
            for cell in np.flatnonzero(np.greater_equal(draws, limit, out=self._new[: len(counts)])).tolist():
                row, place = divmod(cell, values.shape[1])
                found[row] -= place < counts[row]
                values[row, place] = top
        for row, count in enumerate(counts):
            values[row, count:] = top
        values.sort(axis=1)
        new = self._new[: len(counts)]
        new[:, 0] = True
        np.not_equal(values[:, 1:], values[:, :-1], out=new[:, 1:])
        return [self._first(values[row, :count], new[row, :count]) for row, count in enumerate(found)]

    def _first(self, values: NDArray[np.unsignedinteger[Any]], new: NDArray[np.bool_]) -> Indices:
        """A row's values without repetitions, outside of the table."""
        return (values if new.all() else values[new]).astype(self._dtype)


def _likely_size(scheme: CappedPoisson) -> int:
    """A size that is seldom exceeded: the width of tables where the cap is far above the mean."""
    n, p = scheme.group_size, scheme.sampling_probability
    return min(scheme.max_batch_size, math.ceil(n * p + 6.0 * math.sqrt(n * p) + 6.0))


def _thinned(distinct: list[Indices], sizes: list[int | None], words: Words, read: list[int]) -> list[Indices]:
    """The sets without random members, as many as they are too large.

    A place that is drawn twice leaves a set too large; `fitted` then starts again with the same
    words, and goes on.
    """
    surplus = [0 if size is None else max(values.size - size, 0) for values, size in zip(distinct, sizes, strict=True)]
    if not any(surplus):
        return distinct
    drawn = [words[row, read[row] : read[row] + count] for row, count in enumerate(surplus)]
    ranks = np.concatenate(drawn)
    if ranks.max() >= _SELDOM_BIASED:
        return distinct
    ranks %= np.repeat(np.array([values.size for values in distinct], dtype=np.uint64), [part.size for part in drawn])
    places = ranks.astype(np.intp)
    end = 0
    thinned = []
    for values, part in zip(distinct, drawn, strict=True):
        kept = np.ones(values.size, dtype=np.bool_)
        kept[places[end : end + part.size]] = False
        end += part.size
        thinned.append(values[kept])
    return thinned


class _Rest:
    """A step's stream from some word on, whose beginning has been read already."""

    def __init__(self, source: Source, step: int, beginning: Words, position: int) -> None:
        self._source = source
        self._step = step
        self._beginning = beginning
        self._position = position
        self._stream: Stream | None = None

    def words(self, count: int) -> Words:
        first, self._position = self._position, self._position + count
        if self._stream is None and self._position <= self._beginning.size:
            return self._beginning[first : self._position].copy()
        if self._stream is None:
            self._stream = self._source.at(Purpose.BATCH, self._step)
            self._stream.words(first)
        return self._stream.words(count)
