"""A keyed random partition: the groups of a cyclic scheme."""

from __future__ import annotations

import functools

import numpy as np

from .draws import MOST_ROUNDS, Indices, index_dtype, not_random
from .streams import Purpose, Source, Words

TABLE_SIZE = 2**20
ROUNDS = 4


class Partition:
    """A keyed split of [0, size) into `groups` groups of `size // groups`, without the remainder.

    Up to 2**20 examples: a table, every partition equally likely. Above: a keyed Feistel network,
    which is pseudo-random (not cryptographic) and costs O(members asked for) time and memory. Both
    are bijections for every key, so the groups never overlap.
    """

    def __init__(self, source: Source, size: int, groups: int) -> None:
        self._source = source
        self._size = size
        self._groups = groups

    def members(self, group: int, places: Indices) -> Indices:
        """The examples of one group at the given places, ascending.

        The places are distinct and ascending.
        """
        if self._size <= TABLE_SIZE:
            found: Indices = self._table[group].take(places)
            return found
        first = group * (self._size // self._groups)
        return np.sort(feistel(self._round_keys, self._size, places + places.dtype.type(first)))

    @functools.cached_property
    def _table(self) -> Indices:
        members = self._size // self._groups
        order = shuffled(self._source, self._size)[: members * self._groups]
        return np.sort(order.reshape(self._groups, members), axis=1)

    @functools.cached_property
    def _round_keys(self) -> Words:
        return self._source.at(Purpose.PARTITION, 1).words(2 * ROUNDS)


def shuffled(source: Source, size: int) -> Indices:
    """All of [0, size) in an order drawn uniformly: the ranks of distinct random words."""
    stream = source.at(Purpose.PARTITION, 0)
    words = stream.words(size)
    # Two equal words (chance below 2**-25) would favour the lower index. Redrawing everything stays
    # exact.
    for _ in range(MOST_ROUNDS):
        ordered = np.sort(words)
        if not (ordered[1:] == ordered[:-1]).any():
            return np.argsort(words).astype(index_dtype(size))
        words = stream.words(size)
    raise not_random()


def feistel(round_keys: Words, size: int, positions: Indices) -> Indices:
    """Images of positions under a Feistel network on [0, size).

    The network works on the smallest grid of 2**bits columns that holds them.

    An image outside [0, size) is sent on until it comes back in. It follows a cycle of a
    permutation, so it does come back; and as less than one row of about sqrt(size) is outside, it
    seldom has to.
    """
    bits = (size - 1).bit_length() // 2
    rows = np.uint64(-(-size >> bits))
    images = _network(round_keys, bits, rows, positions.astype(np.uint64))
    bound = np.uint64(size)
    outside = np.flatnonzero(images >= bound)
    while outside.size:
        again = _network(round_keys, bits, rows, images[outside])
        images[outside] = again
        outside = outside[again >= bound]
    return images.astype(positions.dtype)


def _network(round_keys: Words, bits: int, rows: np.uint64, cells: Words) -> Words:
    """Four rounds in the manner of Naor and Reingold (1999).

    The outer two are universal, the inner two pseudo-random.
    """
    shift, mask = np.uint64(bits), np.uint64((1 << bits) - 1)
    row, column = cells >> shift, cells & mask
    for number, (multiplier, summand) in enumerate(round_keys.reshape(ROUNDS, 2)):
        inner = 0 < number < ROUNDS - 1
        if number % 2:
            row += _scramble(column, multiplier, summand, again=inner)
            row -= row // rows * rows
        else:
            column += _scramble(row, multiplier, summand, again=inner)
            column &= mask
    row <<= shift
    row |= column
    return row


def _scramble(values: Words, multiplier: np.uint64, summand: np.uint64, *, again: bool) -> Words:
    """A keyed universal function of values below 2**32 to 40 bits.

    `again` mixes it into a pseudo-random one.
    """
    mixed: Words = values * multiplier
    mixed += summand
    if again:
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed >>= np.uint64(24)
    return mixed
