"""The work of every distributed engine: draw ranges of steps, pack examples, join, assemble.

An engine moves rows between these functions. `draws` lists who is in a range of steps, by block of
neighbouring indices; `Packer` makes chunks of a block's examples; `asked_rows` answers the draws of
a block; `assembled` makes the batches of a range of steps from the answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from filet import _checks, errors
from filet.errors import FiletError, InvalidArgumentError, OutputError
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson, Size

from .examples import numbered, numbered_columns
from .keys import KeyHandle, checked_handle
from .records import (
    Chunk,
    Facts,
    Fields,
    Known,
    Rows,
    StoredBatch,
    fields_of,
    pack,
    packed_columns,
    padded,
    stored_dtype,
)

ROWS_PER_KEY = 1024
_ROWS_PER_RANGE = 16_384  # by default a range of steps has about this many rows: a worker holds one range at a time
_PENDING_BYTES = 8 << 20  # examples that a worker holds back, so that neighbours travel together


@dataclass(frozen=True)
class Run:
    """Description of a job: public facts and the key's handle, so that a pipeline may carry it in the clear."""

    scheme: CappedPoisson
    steps: int
    start: int
    key: KeyHandle
    secure: bool
    steps_per_range: int
    rows_per_key: int

    @classmethod
    def checked(
        cls,
        scheme: CappedPoisson,
        steps: Any,
        key: Any,
        start: Any = 0,
        *,
        secure: Any = True,
        steps_per_range: Any = None,
        rows_per_key: Any = ROWS_PER_KEY,
    ) -> Run:
        """A run whose every argument keeps its rule; the key itself is looked at on workers only."""
        if not isinstance(scheme, CappedPoisson):
            raise _checks.fail(f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
        if not isinstance(secure, bool):
            raise _checks.fail(f"secure={_checks.show(secure)} is not a bool; pass True or False")
        steps = _checks.step_count(steps)
        start = _checks.integer("start", start, low=0, high=steps, remedy="pass the first step, at most steps")
        if steps_per_range is None:
            steps_per_range = max(1, _ROWS_PER_RANGE // scheme.max_batch_size)
        per_range = _checks.integer("steps_per_file", steps_per_range, low=1, remedy="pass the steps of one range")
        per_key = _checks.integer("rows_per_key", rows_per_key, low=1, remedy="pass the examples that travel together")
        return cls(scheme, steps, start, checked_handle(key), secure, per_range, per_key)

    @property
    def ranges(self) -> int:
        """Number of ranges of steps."""
        return -(-(self.steps - self.start) // self.steps_per_range)

    def steps_of(self, number: int) -> range:
        """The steps of one range."""
        first = self.start + number * self.steps_per_range
        return range(first, min(first + self.steps_per_range, self.steps))

    def sampler(self, records: int | None = None) -> Sampler:
        """The sampler, with the key that the handle leads to: for workers.

        The number of records is used where the scheme's size is not public; a run does not hold it.
        """
        secret = None if self.scheme.size is Size.PUBLIC else records
        return Sampler(self.scheme, self.key.read(), secure=self.secure, records=secret)


class Draw(NamedTuple):
    """Rows that a range of steps needs from one block: their places in the range, and their indices."""

    block: int
    places: bytes
    indices: bytes


class Draws(NamedTuple):
    """Examples in a range of steps: rows of each step, and the rows needed from each block."""

    sizes: bytes
    draws: Iterator[Draw]


def draws(run: Run, number: int, sampler: Sampler) -> Draws:
    """The draws of a range of steps."""
    batches = [sampler[step] for step in run.steps_of(number)]
    sizes = np.array([batch.size for batch in batches], dtype="<i8")
    return Draws(sizes.tobytes(), _by_block(run, batches, sizes))


def _by_block(run: Run, batches: list[Any], sizes: NDArray[np.int64]) -> Iterator[Draw]:
    rows = run.scheme.max_batch_size
    indices = np.concatenate([batch.indices[: batch.size] for batch in batches]).astype("<i8")
    places = np.concatenate([place * rows + np.arange(size) for place, size in enumerate(sizes)]).astype("<i8")
    blocks = indices // run.rows_per_key
    order = np.argsort(blocks, kind="stable")
    found, starts = np.unique(blocks[order], return_index=True)
    for block, part in zip(found.tolist(), np.split(order, starts[1:]), strict=False):
        yield Draw(block, places[part].tobytes(), indices[part].tobytes())


def _are_bytes(column: Any) -> bool:
    return all(isinstance(value, bytes) for value in column)


class Packer:
    """Examples into chunks of one block each, and the facts of all that were seen."""

    def __init__(self, rows_per_key: int) -> None:
        self.facts = Facts()
        self._rows_per_key = rows_per_key
        self._pending: dict[int, list[Chunk]] = {}
        self._bytes = 0

    def add(self, index: Any, example: Any) -> Iterator[tuple[int, Chunk]]:
        """Chunks that are full, once this example is among them."""
        index = _whole_number(index)
        fields = fields_of(example)
        row = pack(example, fields)
        self.facts = self.facts.seen(index, fields)
        number, length = index.to_bytes(8, "little", signed=True), len(row).to_bytes(8, "little")
        return self._held_back(index // self._rows_per_key, Chunk(number, length, row))

    def add_columns(self, indices: Any, columns: dict[str, Any]) -> Iterator[tuple[int, Chunk]]:
        """The same for many examples: an array with a row each by name, or a list of bytes or of arrays."""
        if indices.dtype.kind not in "iu":
            raise _checks.fail(f"indices are of type {indices.dtype}, not integers; number examples from 0")
        if all(isinstance(column, np.ndarray) or _are_bytes(column) for column in columns.values()):
            if indices.size:
                fields = fields_of({name: column[0] for name, column in columns.items()})
                yield from self.add_chunk(packed_columns(indices, columns, fields), fields)
            return
        for place, index in enumerate(indices.tolist()):
            yield from self.add(index, {name: column[place] for name, column in columns.items()})

    def add_file(self, path: str, form: str, offset: int) -> Iterator[tuple[int, Chunk]]:
        """The same for the records of a file, numbered from an offset on."""
        if form == "parquet":
            for indices, columns in numbered_columns(path, offset):
                yield from self.add_columns(indices, columns)
            return
        for index, example in numbered(path, form, offset):
            yield from self.add(index, example)

    def add_chunk(self, chunk: Chunk, fields: Fields) -> Iterator[tuple[int, Chunk]]:
        """The same for many examples of the same fields."""
        numbers = np.frombuffer(chunk.numbers, dtype="<i8")
        self.facts = self.facts.merged(Facts.of_all(numbers, fields))
        rows = Rows(fields, [chunk])
        blocks, starts = np.unique(rows.numbers // self._rows_per_key, return_index=True)
        ends = [*starts[1:].tolist(), numbers.size]
        for block, start, end in zip(blocks.tolist(), starts.tolist(), ends, strict=True):
            yield from self._held_back(block, rows.part(slice(start, end)))

    def _held_back(self, block: int, chunk: Chunk) -> Iterator[tuple[int, Chunk]]:
        self._pending.setdefault(block, []).append(chunk)
        self._bytes += len(chunk.rows)
        if self._bytes >= _PENDING_BYTES:
            yield from self.chunks()

    def chunks(self) -> Iterator[tuple[int, Chunk]]:
        """Examples that are held back, by block."""
        pending, self._pending, self._bytes = self._pending, {}, 0
        for block, chunks in pending.items():
            yield block, Chunk.joined(chunks)


def asked_rows(
    run: Run, block: int, chunks: Iterable[Chunk], asked: Iterable[tuple[int, bytes, bytes]], known: Known
) -> Iterator[tuple[int, Chunk, bytes]]:
    """A block's examples and what ranges ask of it, as (range, places, indices): the rows of each range."""
    rows = Rows(known.fields, chunks)
    first = block * run.rows_per_key
    wanted = range(first, min(first + run.rows_per_key, known.records))
    check_block(rows.numbers, wanted, known.dense)
    for number, places, indices in asked:
        yield number, rows.take(np.frombuffer(indices, dtype="<i8"), places), indices


def _whole_number(index: Any) -> int:
    if isinstance(index, np.integer):
        index = int(index)
    if type(index) is not int or not -_checks.MAX_INTEGER <= index <= _checks.MAX_INTEGER:
        raise _checks.fail(f"an example has the index {_checks.show(index)}, not an integer; number examples from 0")
    return index


def check_block(numbers: Any, wanted: range, dense: bool) -> None:
    """Every index of the block once, or an error that names the first that is wrong: in the data, or lost on the way."""
    expected = np.arange(wanted.start, wanted.stop)
    if np.array_equal(numbers, expected):
        return
    twice = numbers[1:][numbers[1:] == numbers[:-1]]
    missing = np.setdiff1d(expected, numbers)
    if not (twice.size or missing.size):
        raise InvalidArgumentError(
            "more examples came than were counted before; make the data deterministic, or persist them"
        )
    index = int(twice[0] if twice.size else missing[0])
    if dense:
        raise lost(f"example {index} came {'twice' if twice.size else 'not at all'} out of the shuffle")
    if twice.size:
        raise InvalidArgumentError(f"the index {index} is there twice; give every example an index of its own")
    raise InvalidArgumentError(f"the index {index} is missing; number the examples from 0 without gaps")


def lost(what: str) -> OutputError:
    """The error for what a runner has not delivered."""
    return OutputError(f"{what}, though it went in once; the runner is at fault, run the job again")


def assembled(
    run: Run, number: int, heads: list[bytes], parts: Iterable[tuple[Chunk, bytes]], fields: Fields
) -> Iterator[StoredBatch]:
    """The batches of a range of steps, in order, from the sizes of its steps and from its rows with their indices.

    A row that did not arrive is an error.
    """
    steps, rows = run.steps_of(number), run.scheme.max_batch_size
    found = list(parts)
    chunks, numbers = [part for part, _ in found], [indices for _, indices in found]
    indices = np.full(len(steps) * rows, -1, dtype=stored_dtype(run.scheme))
    for chunk, one in zip(chunks, numbers, strict=True):
        indices[np.frombuffer(chunk.numbers, dtype="<i8")] = np.frombuffer(one, dtype="<i8")
    if len(heads) != 1:
        raise lost(f"the sizes of steps {steps.start} to {steps.stop - 1} came {len(heads)} times")
    sizes = np.frombuffer(heads[0], dtype="<i8")
    data = padded(fields, len(steps) * rows, chunks)
    for place, step in enumerate(steps):
        part = slice(place * rows, (place + 1) * rows)
        mask, size = indices[part] >= 0, int(sizes[place])
        if not (mask[:size].all() and not mask[size:].any()):
            raise lost(f"a row of step {step} did not come out of the shuffle")
        yield StoredBatch(
            indices[part],
            mask,
            size,
            run.scheme.dataset_size,
            step,
            {name: array[part] for name, array in data.items()},
        )


def one_key(fingerprints: Iterable[str]) -> str:
    """The fingerprint of the key that all workers have; an error if they have several. Empty if nothing was drawn."""
    found = sorted(set(fingerprints))
    if len(found) > 1:
        raise InvalidArgumentError("workers have different keys; give all of them the same one")
    return found[0] if found else ""


def merged_facts(parts: Iterable[Facts]) -> Facts:
    """The facts of all parts."""
    result = Facts()
    for part in parts:
        result = result.merged(part)
    return result


# --- errors of workers ---------------------------------------------------------------------------------------------

_LINE = re.compile(r"filet\.(?:errors\.)?(\w+Error): ([^\n]+)")
_PLACE = re.compile(r" \[while running '.*", re.S)


def filet_error(error: BaseException) -> FiletError | None:
    """The error of filet's that made a job fail, without what the engine adds to it; None if it was another one."""
    if isinstance(error, FiletError):
        return type(error)(_PLACE.sub("", str(error)))
    found = _LINE.findall(str(error))
    kind = getattr(errors, found[-1][0], None) if found else None
    return kind(_PLACE.sub("", found[-1][1])) if kind is not None else None


def last_line(error: BaseException) -> str:
    """The last line of an error's text, or its class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
