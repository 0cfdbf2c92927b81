# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""Stages of the job, as functions over Arrow tables: what executors run.

A row of the tables between stages has a key to be shuffled by, a kind, and columns of bytes. By
block of examples: packed examples, and what ranges of steps ask of them. By range of steps: the
rows that were found. The sizes of a range's steps pass the first shuffle under a key of their own.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from filet.errors import InvalidArgumentError

from ..batch_files.examples import column_values, extent
from ..batch_files.formats import package
from ..batch_files.job import Packer, Run, asked_rows, assembled, draws
from ..batch_files.records import BYTES, Chunk, Fields, Known, StoredBatch
from ..batch_files.writing import Output

WIRE = (
    "filet_key long, filet_kind int, filet_range long, filet_numbers binary, filet_lengths binary,"
    " filet_rows binary, filet_indices binary"
)
PICKLED = "filet_part binary"
EXAMPLES, DRAWS, HEADS = 0, 1, 2
_BYTES = 8 << 20  # of one table that an executor hands on
_FIELDS = ("numbers", "lengths", "rows", "indices")
Tables = Iterator[Any]
Row = tuple[int, int, int, bytes, bytes, bytes, bytes]


def _tables(rows: Iterable[Row]) -> Tables:
    """Rows of the wire as Arrow tables of some megabytes."""
    pending: list[Row] = []
    held = 0
    for row in rows:
        pending.append(row)
        held += sum(map(len, row[3:]))
        if held >= _BYTES:
            yield _table(pending)
            pending, held = [], 0
    if pending:
        yield _table(pending)


def _table(rows: list[Row]) -> Any:
    arrow = package("pyarrow")
    kinds = [arrow.int64(), arrow.int32(), arrow.int64(), *[arrow.binary()] * len(_FIELDS)]
    names = [part.split()[0] for part in WIRE.split(",")]
    columns = [arrow.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return arrow.RecordBatch.from_arrays(columns, names=names)


def _groups(tables: Tables) -> Iterator[tuple[int, list[Row]]]:
    """The rows of each key, of tables that are sorted by it."""
    key: int | None = None
    rows: list[Row] = []
    for table in tables:
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if row[0] != key and rows:
                yield rows[0][0], rows
                rows = []
            key = row[0]
            rows.append(row)
    if rows:
        yield rows[0][0], rows


def pickled(parts: Iterable[Any]) -> Tables:
    """Anything, for the driver."""
    arrow = package("pyarrow")
    for part in parts:
        column = arrow.array([pickle.dumps(part)], arrow.binary())
        yield arrow.RecordBatch.from_arrays([column], names=["filet_part"])


# --- examples: from a frame with an index, or from files -----------------------------------------


def from_frame(tables: Tables, index: str, packer: Packer) -> Iterator[tuple[int, Chunk]]:
    """Chunks of the examples of a frame."""
    for table in tables:
        columns = {name: column_values(table.column(name), name, "the frame") for name in table.schema.names}
        yield from packer.add_columns(np.asarray(columns.pop(index)), columns)


def from_files(tables: Tables, form: str, packer: Packer) -> Iterator[tuple[int, Chunk]]:
    """Chunks of the examples of the files that are listed, with the numbers of examples before them."""
    for table in tables:
        for path, offset in zip(*(table.column(k).to_pylist() for k in (0, 1)), strict=True):
            yield from packer.add_file(path, form, offset)


def _added(tables: Tables, source: Any, packer: Packer) -> Iterator[tuple[int, Chunk]]:
    read, argument = source
    yield from read(tables, argument, packer)
    yield from packer.chunks()


def facts(tables: Tables, source: Any, rows_per_key: int) -> Tables:
    """The facts of a partition's examples, pickled."""
    packer = Packer(rows_per_key)
    for _ in _added(tables, source, packer):
        pass
    return pickled([packer.facts])


def packed(tables: Tables, source: Any, rows_per_key: int, fields: Fields) -> Tables:
    """A partition's examples as chunks by block."""
    packer = Packer(rows_per_key)
    yield from _tables(
        (block, EXAMPLES, 0, chunk.numbers, chunk.lengths, chunk.rows, b"")
        for block, chunk in _added(tables, source, packer)
    )
    first = packer.facts.first
    if packer.facts.other is not None or (first is not None and first[1] != fields):
        raise InvalidArgumentError(
            "the examples changed between two passes over the frame; make the frame deterministic, or persist it"
        )


def extents(tables: Tables, form: str) -> Tables:
    """Paths of files and how many records each has, pickled."""
    return pickled((path, extent(path, form)) for table in tables for path in table.column(0).to_pylist())


# --- the join ------------------------------------------------------------------------------------


def fingerprint(tables: Tables, run: Run, known: Known) -> Tables:
    """The fingerprint of the key that a worker has, pickled."""
    sampler = run.sampler(known.records)
    return pickled(sampler.fingerprint for table in tables if table.num_rows)


def drawn(tables: Tables, run: Run, known: Known, expected: str) -> Tables:
    """Examples in some ranges of steps, by block; and the sizes of their steps."""
    sampler = run.sampler(known.records)
    if sampler.fingerprint != expected:
        raise InvalidArgumentError("workers have different keys; give all of them the same one")
    return _tables(
        row for table in tables for number in table.column(0).to_pylist() for row in _drawn_range(run, number, sampler)
    )


def _drawn_range(run: Run, number: int, sampler: Any) -> Iterator[Row]:
    found = draws(run, number, sampler)
    yield -1 - number, HEADS, number, found.sizes, b"", b"", b""
    for block, places, indices in found.draws:
        yield block, DRAWS, number, places, b"", b"", indices


def joined(tables: Tables, run: Run, known: Known) -> Tables:
    """Blocks with what is asked of them: the rows of each range."""
    return _tables(row for key, rows in _groups(tables) for row in _joined_block(key, rows, run, known))


def _joined_block(key: int, rows: list[Row], run: Run, known: Known) -> Iterator[Row]:
    if key < 0:  # the sizes of a range's steps
        yield from ((row[2], *row[1:]) for row in rows)
        return
    chunks = [Chunk(*row[3:6]) for row in rows if row[1] == EXAMPLES]
    asked = [(row[2], row[3], row[6]) for row in rows if row[1] == DRAWS]
    for number, part, indices in asked_rows(run, key, chunks, asked, known):
        yield number, DRAWS, number, part.numbers, part.lengths, part.rows, indices


def _ranges(tables: Tables, run: Run, fields: Fields) -> Iterator[tuple[int, Iterator[StoredBatch]]]:
    for number, rows in _groups(tables):
        heads = [row[3] for row in rows if row[1] == HEADS]
        parts = [(Chunk(*row[3:6]), row[6]) for row in rows if row[1] == DRAWS]
        yield number, assembled(run, number, heads, parts, fields)


def written(tables: Tables, output: Output, fields: Fields) -> Tables:
    """Ranges into files: what the manifest says of each, pickled."""
    return pickled(
        output.write_range(number, batches, fields) for number, batches in _ranges(tables, output.run, fields)
    )


def unrolled(tables: Tables, run: Run, fields: Fields) -> Tables:
    """Ranges as rows by step, a table a batch."""
    for _, batches in _ranges(tables, run, fields):
        yield from (_rows(batch, fields) for batch in batches)


def _rows(batch: StoredBatch, fields: Fields) -> Any:
    arrow = package("pyarrow")
    size = batch.indices.size
    own = {
        "filet_step": np.full(size, batch.step, dtype=np.int64),
        "filet_row": np.arange(size, dtype=np.int32),
        "filet_index": batch.indices.astype(np.int64),
        "filet_mask": batch.mask,
    }
    columns = [*map(arrow.array, own.values())]
    columns += [_lists(batch.data[field.name], field.dtype == BYTES) for field in fields]
    return arrow.RecordBatch.from_arrays(columns, names=[*own, *(field.name for field in fields)])


def _lists(array: Any, is_bytes: bool) -> Any:
    """Rows as numbers, bytes, or lists inside each other, as Spark has them."""
    arrow = package("pyarrow")
    if is_bytes:
        return arrow.array(array.tolist(), arrow.binary())
    result = arrow.array(array.reshape(-1))
    for size in reversed(array.shape[1:]):
        starts = np.arange(0, len(result) + 1, size, dtype=np.int32)
        result = arrow.ListArray.from_arrays(starts, result)
    return result
