"""Keyed random streams: 64-bit words that depend only on the key, the purpose and the step.

Every stream is read as raw words and converted by filet itself (`_draws`), so that a key gives the
same batches on every platform and under every NumPy version. One key drives disjoint counters for
each purpose and step: two streams never share a block.
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from ..errors import MissingExtraError
from .keys import Key

Words = NDArray[np.uint64]


class Purpose(enum.IntEnum):
    """Purpose of a stream. The number is part of the counter: never reuse or renumber one."""

    BATCH = 1
    PARTITION = 2
    NOISE = 3
    GENERATOR = 4


class Stream(Protocol):
    """Endless random words, read in order."""

    def words(self, count: int) -> Words:
        """The next `count` words, as a fresh writable array."""


class Source(Protocol):
    """All streams of one key."""

    def at(self, purpose: Purpose, step: int) -> Stream:
        """The stream for one purpose and step, always from its beginning."""

    def first_words(self, purpose: Purpose, count: int, most_steps: int) -> FirstWords:
        """A reader of the first `count` words of up to `most_steps` steps at once."""


class FirstWords(Protocol):
    """Reader of the first words of several steps' streams: the words of `Source.at`, in fewer calls.

    For one thread.
    """

    def read(self, steps: range) -> Words:
        """One row of words a step.

        The table is overwritten by the next call: fresh memory would cost more than AES.
        """


def open_source(key: Key, *, secure: bool) -> Source:
    return _AesSource(key) if secure else _PhiloxSource(key)


class _PhiloxKey(ISeedSequence):
    """A key as the seed of NumPy's Philox, which spares a call for entropy."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Words:
        return self._words


class _PhiloxStream:
    def __init__(self, key: Any, counter: Words) -> None:  # a _PhiloxKey, which NumPy's type hints do not foresee
        # A new generator per stream, never a shared one: samplers may be used from several threads.
        self._generator = np.random.Philox(key, counter=counter)

    def words(self, count: int) -> Words:
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)


class _PhiloxSource:
    """Philox4x64-10 with a 128-bit key; the 256-bit counter holds (block, 0, step, purpose)."""

    def __init__(self, key: Key) -> None:
        self._key = _PhiloxKey(_words(key.derive("philox", 16)))

    def at(self, purpose: Purpose, step: int) -> Stream:
        return _PhiloxStream(self._key, np.array([0, 0, step, purpose], dtype=np.uint64))

    def first_words(self, purpose: Purpose, count: int, most_steps: int) -> FirstWords:
        return _PhiloxFirstWords(self, purpose, count, most_steps)


class _PhiloxFirstWords:
    def __init__(self, source: _PhiloxSource, purpose: Purpose, count: int, most_steps: int) -> None:
        self._source, self._purpose = source, purpose
        self._words = np.empty((most_steps, count), dtype=np.uint64)

    def read(self, steps: range) -> Words:
        for row, step in zip(self._words, steps, strict=False):
            row[:] = self._source.at(self._purpose, step).words(row.size)
        return self._words[: len(steps)]


class _AesStream:
    def __init__(self, encryptor: Any) -> None:
        self._encryptor = encryptor

    def words(self, count: int) -> Words:
        # Zeros are encrypted in place, so that nothing is copied. Older versions of cryptography
        # want room for one more block, also in counter mode, which needs none.
        words = np.zeros(count + 2, dtype="<u8")
        data = words.data.cast("B")
        self._encryptor.update_into(data[: 8 * count], data)
        return words[:count].astype(np.uint64, copy=False)


class _AesSource:
    """AES-256 in counter mode.

    The 128-bit counter block holds (purpose: 1 byte, step: 8 bytes, block: 7 bytes).
    """

    def __init__(self, key: Key) -> None:
        # Here, so that importing filet stays quick, and asking for the other stream needs no such
        # package.
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        except ImportError:
            raise MissingExtraError(
                "secure=True needs the package cryptography, which filet's own installation brings along;"
                " install it with pip install cryptography, or pass secure=False"
            ) from None
        self._cipher = Cipher
        self._counting = modes.CTR
        self._single = modes.ECB
        self._algorithm = algorithms.AES(key.derive("aes-ctr", 32))

    def at(self, purpose: Purpose, step: int) -> Stream:
        # A new encryptor per stream, never a shared one: samplers may be used from several threads.
        block = bytes([purpose]) + step.to_bytes(8, "big") + bytes(7)
        return _AesStream(self._cipher(self._algorithm, self._counting(block)).encryptor())

    def first_words(self, purpose: Purpose, count: int, most_steps: int) -> FirstWords:
        encryptor = self._cipher(self._algorithm, self._single()).encryptor()
        return _AesFirstWords(encryptor, purpose, count, most_steps)


class _AesFirstWords:
    """The first words of many counter-mode streams in one call.

    Counter mode is the encryption of consecutive counters, which are written out here.
    """

    def __init__(self, encryptor: Any, purpose: Purpose, count: int, most_steps: int) -> None:
        self._encryptor, self._count = encryptor, count
        self._purpose = np.uint64(purpose << 56)
        self._blocks = np.empty((most_steps, (count + 1) // 2, 2), dtype=">u8")
        self._numbers = np.arange((count + 1) // 2, dtype=np.uint64)
        self._words = np.empty(self._blocks.size + 2, dtype="<u8")  # room for one more block, as above

    def read(self, steps: range) -> Words:
        blocks = self._blocks[: len(steps)]
        numbers = np.fromiter(steps, dtype=np.uint64, count=len(steps))[:, None]
        blocks[:, :, 0] = numbers >> np.uint64(8) | self._purpose
        blocks[:, :, 1] = self._numbers | numbers << np.uint64(56)
        self._encryptor.update_into(blocks.data.cast("B"), self._words.data.cast("B"))
        rows = self._words[: blocks.size].reshape(len(steps), -1)
        return rows[:, : self._count].astype(np.uint64, copy=False)


def _words(data: bytes) -> Words:
    """Bytes as words, little-endian on every platform."""
    return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)
