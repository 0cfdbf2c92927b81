"""Examples as rows of bytes, and rows as batches: what the distributed job shuffles, and what it makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from filet import _checks
from filet.errors import InvalidArgumentError
from filet.sampling.batch import Batch
from filet.sampling.draws import index_dtype
from filet.sampling.urn import checked_records
from filet.scheme import CappedPoisson, Size

from .._records import warn_of_own_size

BYTES = "bytes"
RESERVED = "filet_"
_LENGTH = 8  # bytes before a value of any length, which say how long it is


@dataclass(frozen=True, eq=False, repr=False)
class StoredBatch(Batch):
    """A `Batch` that has its examples with it: those that `sampler[step].take(data)` gives, padded with zeros.

    >>> indices = np.array([2, 5, -1], dtype=np.int8)
    >>> batch = StoredBatch(indices, indices >= 0, 2, dataset_size=8, step=3, data={"x": np.array([20, 50, 0])})
    >>> batch, batch.data["x"], batch.mask
    (StoredBatch(step=3, <3 rows, contents hidden>), array([20, 50,  0]), array([ True,  True, False]))

    Guarantees: `indices`, `mask` and `size` are those of the sampler. Rows of padding hold zeros, or empty bytes.

    Arguments:
        step: which step of the run.
        data: arrays of `max_batch_size` rows by name; values of any length are an object array of bytes.
    """

    step: int
    data: dict[str, NDArray[Any]]

    def __repr__(self) -> str:
        return f"StoredBatch(step={self.step}, <{self.indices.size} rows, contents hidden>)"


class Field(NamedTuple):
    """One field of all examples: an array of one type and shape, or bytes of any length."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of one example's array."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))

    def __str__(self) -> str:
        return BYTES if self.dtype == BYTES else f"shape {self.shape} and type {np.dtype(self.dtype).name}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}


Fields = tuple[Field, ...]


def stored_dtype(scheme: CappedPoisson) -> np.dtype[Any]:
    """The type of indices of stored batches, which does not depend on a number of records that is secret."""
    return np.dtype(np.int64) if scheme.size is Size.SECRET else index_dtype(scheme.dataset_size)


def fields_of(example: Any) -> Fields:
    """Fields of an example, sorted by name; an error for anything but a dict of arrays or bytes.

    >>> [str(field) for field in fields_of({"x": np.zeros(3, np.float32), "name": b"ab"})]
    ['bytes', 'shape (3,) and type float32']
    """
    if not isinstance(example, Mapping) or not example:
        raise _checks.fail(
            f"an example is of type {type(example).__name__}, not a dict with fields; map it to one first"
        )
    for name in example:
        if not isinstance(name, str) or name.startswith(RESERVED):
            raise _checks.fail(
                f"an example has the field {_checks.show(name)}; name fields by text without {RESERVED!r}"
            )
    return tuple([_field(name, example[name]) for name in sorted(example)])


def _field(name: str, value: Any) -> Field:
    if isinstance(value, bytes):
        return Field(name, BYTES)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise _checks.fail(
            f"the field {name!r} is of type {type(value).__name__} ({array.dtype}); pass arrays of numbers, or bytes"
        )
    return Field(name, array.dtype.newbyteorder("<").str, array.shape)


def pack(example: Mapping[str, Any], fields: Fields) -> bytes:
    """One example as bytes: arrays as they are in memory, little-endian; bytes behind their length."""
    parts: list[bytes] = []
    for field in fields:
        value = example[field.name]
        if field.dtype == BYTES:
            parts += [len(value).to_bytes(_LENGTH, "little"), value]
        else:
            parts.append(np.asarray(value).astype(field.dtype, copy=False).tobytes())
    return b"".join(parts)


def row_size(fields: Fields) -> int | None:
    """Bytes of a packed example; None if examples differ."""
    if any(field.dtype == BYTES for field in fields):
        return None
    return sum(field.row_bytes for field in fields)


@dataclass(frozen=True)
class Chunk:
    """Packed examples, numbered: what one element of the shuffle holds."""

    numbers: bytes
    lengths: bytes
    rows: bytes

    @classmethod
    def of(cls, numbered: Sequence[tuple[int, bytes]]) -> Chunk:
        """A chunk of (number, row) pairs."""
        numbers = np.array([number for number, _ in numbered], dtype="<i8")
        lengths = np.array([len(row) for _, row in numbered], dtype="<i8")
        return cls(numbers.tobytes(), lengths.tobytes(), b"".join(row for _, row in numbered))

    @classmethod
    def joined(cls, chunks: Sequence[Chunk]) -> Chunk:
        """The rows of several chunks as one."""
        if len(chunks) == 1:
            return chunks[0]
        columns = ([getattr(chunk, name) for chunk in chunks] for name in ("numbers", "lengths", "rows"))
        return cls(*(b"".join(parts) for parts in columns))

    def __reduce__(self) -> tuple[Any, ...]:
        return Chunk, (self.numbers, self.lengths, self.rows)


def packed_columns(numbers: NDArray[Any], columns: Mapping[str, Any], fields: Fields) -> Chunk:
    """Many examples of the same fields at once: what `Chunk.of` makes of each `pack`."""
    own = numbers.astype("<i8").tobytes()
    if row_size(fields) is None:
        rows = [
            pack({field.name: columns[field.name][place] for field in fields}, fields) for place in range(numbers.size)
        ]
        return Chunk(own, np.array([*map(len, rows)], dtype="<i8").tobytes(), b"".join(rows))
    parts = [
        np.ascontiguousarray(columns[field.name], dtype=field.dtype)
        .reshape(numbers.size, -1)
        .view(np.uint8)
        .reshape(numbers.size, field.row_bytes)
        for field in fields
    ]
    return Chunk(own, b"", np.concatenate(parts, axis=1).tobytes())


class Rows:
    """Packed examples of some chunks, sorted by number, to be taken in any order."""

    def __init__(self, fields: Fields, chunks: Iterable[Chunk]) -> None:
        chunks = list(chunks)
        self._size = row_size(fields)
        numbers = np.frombuffer(b"".join(chunk.numbers for chunk in chunks), dtype="<i8")
        order = np.argsort(numbers, kind="stable")
        self.numbers = numbers[order]
        if self._size is None:
            rows = [row for chunk in chunks for row in _cut(chunk)]
            self._list = [rows[place] for place in order]
        else:
            matrices = [_matrix(chunk.rows, self._size, len(chunk.numbers) // 8) for chunk in chunks]
            self._matrix = np.concatenate(matrices)[order] if matrices else _matrix(b"", self._size, 0)

    def take(self, numbers: NDArray[np.int64], new_numbers: bytes) -> Chunk:
        """The rows of these numbers, under new ones."""
        return self._chunk(np.searchsorted(self.numbers, numbers), new_numbers)

    def part(self, places: slice) -> Chunk:
        """The rows at these places, in the order of their numbers."""
        return self._chunk(np.arange(self.numbers.size)[places], self.numbers[places].tobytes())

    def _chunk(self, places: NDArray[Any], new_numbers: bytes) -> Chunk:
        if self._size is None:
            rows = [self._list[place] for place in places]
            lengths = np.array([len(row) for row in rows], dtype="<i8")
            return Chunk(new_numbers, lengths.tobytes(), b"".join(rows))
        return Chunk(new_numbers, b"", self._matrix[places].tobytes())


def _cut(chunk: Chunk) -> list[bytes]:
    ends = np.cumsum(np.frombuffer(chunk.lengths, dtype="<i8")).tolist()
    return [chunk.rows[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _matrix(rows: bytes, size: int, count: int) -> NDArray[np.uint8]:
    return np.frombuffer(rows, dtype=np.uint8).reshape(count, size)


def padded(fields: Fields, rows: int, chunks: Iterable[Chunk]) -> dict[str, NDArray[Any]]:
    """Arrays of `rows` rows by name: each chunk's rows stand at their numbers, the others hold zeros or empty bytes."""
    size = row_size(fields)
    if size is None:
        return _padded_one_by_one(fields, rows, chunks)
    matrix = np.zeros((rows, size), dtype=np.uint8)
    for chunk in chunks:
        numbers = np.frombuffer(chunk.numbers, dtype="<i8")
        matrix[numbers] = _matrix(chunk.rows, size, numbers.size)
    arrays, start = {}, 0
    for field in fields:
        part = np.ascontiguousarray(matrix[:, start : start + field.row_bytes])
        arrays[field.name] = np.frombuffer(part, dtype=field.dtype).reshape(rows, *field.shape)
        start += field.row_bytes
    return arrays


def _padded_one_by_one(fields: Fields, rows: int, chunks: Iterable[Chunk]) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for field in fields:
        is_bytes = field.dtype == BYTES
        arrays[field.name] = np.full(rows, b"", object) if is_bytes else np.zeros((rows, *field.shape), field.dtype)
    for chunk in chunks:
        for number, row in zip(np.frombuffer(chunk.numbers, dtype="<i8").tolist(), _cut(chunk), strict=True):
            start = 0
            for field in fields:
                length = (
                    field.row_bytes if field.dtype != BYTES else int.from_bytes(row[start : start + _LENGTH], "little")
                )
                start += _LENGTH if field.dtype == BYTES else 0
                value = row[start : start + length]
                is_bytes = field.dtype == BYTES
                arrays[field.name][number] = (
                    value if is_bytes else np.frombuffer(value, field.dtype).reshape(field.shape)
                )
                start += length
    return arrays


@dataclass(frozen=True, repr=False)
class Facts:
    """Facts of all examples, and the first that differs: merged in any order, the same comes out.

    The number of examples may be a secret, and no repr shows it.
    """

    count: int = 0
    lowest: int = 0
    highest: int = -1
    total: int = 0
    squares: int = 0
    first: tuple[int, Fields] | None = None
    other: tuple[int, Fields] | None = None

    @classmethod
    def of(cls, index: int, fields: Fields) -> Facts:
        """The facts of one example."""
        return cls(1, index, index, index, index * index, (index, fields))

    @classmethod
    def of_all(cls, indices: NDArray[np.int64], fields: Fields) -> Facts:
        """The facts of many examples of the same fields."""
        if not indices.size:
            return cls()
        low, high = int(indices.min()), int(indices.max())
        plain = indices.tolist()  # whole numbers of any size: sums of squares pass 2**63 at two million examples
        return cls(len(plain), low, high, sum(plain), sum(map(int.__mul__, plain, plain)), (low, fields))

    def seen(self, index: int, fields: Fields) -> Facts:
        """These facts and one more example."""
        if self.first is None or fields != self.first[1]:
            return self.merged(Facts.of(index, fields))
        first = self.first if self.first[0] <= index else (index, fields)  # the usual case, once for every example
        low, high = min(self.lowest, index), max(self.highest, index)
        total, squares = self.total + index, self.squares + index * index
        return Facts(self.count + 1, low, high, total, squares, first, self.other)

    def merged(self, more: Facts) -> Facts:
        """The facts of both."""
        if not self.count or not more.count:
            return self if self.count else more
        known = sorted(one for one in (self.first, self.other, more.first, more.other) if one is not None)
        other = next((one for one in known if one[1] != known[0][1]), None)
        low, high = min(self.lowest, more.lowest), max(self.highest, more.highest)
        total, squares = self.total + more.total, self.squares + more.squares
        return Facts(self.count + more.count, low, high, total, squares, known[0], other)

    def checked(self, scheme: CappedPoisson) -> Known:
        """Facts that hold of all examples; an error if their number, an index or a shape is wrong.

        Where the size is not public, the number of records is that of the examples, and in no message.
        """
        if scheme.size is Size.PUBLIC:
            self._check_public(scheme.dataset_size)
        else:
            self._check_secret(scheme)
        if self.first is None:
            raise InvalidArgumentError("the data has no examples, which say what a batch holds; pass one at least")
        if self.other is not None:
            raise InvalidArgumentError(_difference(self.other, self.first))
        n = self.count
        # An index twice, and another missing, leave both sums as they are only by a rare chance; the join decides.
        dense = self.total == n * (n - 1) // 2 and self.squares == (n - 1) * n * (2 * n - 1) // 6
        return Known(self.first[1], dense, n)

    def _check_public(self, dataset_size: int) -> None:
        if self.count != dataset_size:
            raise InvalidArgumentError(
                f"the data has {self.count} examples, not dataset_size={dataset_size}; pass the data set that the scheme"
                " was made for"
            )
        for index in (self.lowest, self.highest):
            if not 0 <= index < dataset_size:
                raise InvalidArgumentError(
                    f"an example has the index {index}, not in [0, {dataset_size}); number them from 0, such as by"
                    " IndexExamples() or index_examples()"
                )

    def _check_secret(self, scheme: CappedPoisson) -> None:
        checked_records(scheme, self.count)
        if self.lowest < 0 or self.highest >= self.count:
            raise InvalidArgumentError(
                "an example has an index that is negative, or not below the number of examples; number them from 0,"
                " such as by IndexExamples() or index_examples()"
            )
        warn_of_own_size(scheme, self.count)


@dataclass(frozen=True, repr=False)
class Known:
    """Facts that hold of all examples: their fields, whether every index seems to be there once, and their number.

    The number may be a secret: it travels with the examples, and no repr shows it.
    """

    fields: Fields
    dense: bool
    records: int


def _difference(other: tuple[int, Fields], first: tuple[int, Fields]) -> str:
    has, wanted = ({field.name: field for field in fields} for _, fields in (other, first))
    name = min(name for name in {*has, *wanted} if has.get(name) != wanted.get(name))
    words = [str(one[name]) if name in one else "nothing" for one in (has, wanted)]
    return f"example {other[0]} has {words[0]} as {name!r}, where example {first[0]} has {words[1]}; give every example the same"
