# mypy: disable-error-code="import-untyped, import-not-found, untyped-decorator", allow-untyped-calls
"""Batches by Ray: the examples stand in the object store by block, and a task makes a range of steps.

No join: `sampler[step]` is a function of key and step, so a task draws its steps and takes their rows
from the blocks where they lie. What a node loses with its blocks, Ray makes again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from filet import _checks
from filet.errors import FiletError, OutputError
from filet.scheme import CappedPoisson

from .._frameworks import needed_for

with needed_for("ray"):
    import pyarrow  # noqa: F401, Ray Data does not start without
    import ray
    import ray.data

from ..batch_files.examples import column_values
from ..batch_files.job import Packer, Run, assembled, check_block, draws, filet_error, merged_facts, one_key
from ..batch_files.keys import KeyHandle
from ..batch_files.manifest import StoredFile
from ..batch_files.records import Chunk, Fields, Known, Rows, StoredBatch
from ..batch_files.writing import Output

ROWS_PER_BLOCK = 65_536


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """An error of a task as filet's own, in one line."""
    try:
        yield
    except Exception as error:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, FiletError):
            raise type(cause)(*cause.args) from error
        found = filet_error(RuntimeError(str(error)))
        words = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        raise found or OutputError(f"the job failed: {words}; see Ray's log") from error


# --- examples into the object store --------------------------------------------------------------


@ray.remote
def _packed(table: Any, index: str, run: Run, blocks: int) -> list[Any]:
    """A part of the data set as chunks by block, and its facts."""
    packer = Packer(run.rows_per_key)
    table = table if hasattr(table, "schema") and hasattr(table, "combine_chunks") else _arrow(table)
    found: list[list[Chunk]] = [[] for _ in range(blocks)]
    for batch in table.combine_chunks().to_batches():
        columns = {name: _values(batch.column(name), name) for name in batch.schema.names}
        added = packer.add_columns(np.asarray(columns.pop(index)), columns)
        _place(added, found)
    _place(packer.chunks(), found)
    return [packer.facts, *found]


def _place(chunks: Any, found: list[list[Chunk]]) -> None:
    for block, chunk in chunks:
        if 0 <= block < len(found):  # the facts tell of an index that is out of range
            found[block].append(chunk)


def _arrow(table: Any) -> Any:
    from ray.data.block import BlockAccessor

    return BlockAccessor.for_block(table).to_arrow()


def _values(column: Any, name: str) -> Any:
    if hasattr(column, "to_numpy") and hasattr(column.type, "shape"):  # Ray's own type of tensors
        return column.to_numpy(zero_copy_only=False)
    return column_values(column, name, "the data set")


@ray.remote
def _block(number: int, run: Run, known: Known, *parts: list[Chunk]) -> Rows:
    """The examples of one block, every index once."""
    rows = Rows(known.fields, [chunk for part in parts for chunk in part])
    first = number * run.rows_per_key
    check_block(rows.numbers, range(first, min(first + run.rows_per_key, known.records)), known.dense)
    return rows


@ray.remote
def _fingerprint(run: Run, known: Known) -> str:
    return run.sampler(known.records).fingerprint


class _Stored(NamedTuple):
    """References of blocks and of what is known of all examples, for tasks; and public facts.

    Ray may log a task's arguments, but not what is in the object store: so the number of records is there only.
    """

    blocks: list[Any]
    known: Any
    fields: Fields
    fingerprint: str


def _stored(dataset: Any, index: str, run: Run) -> _Stored:
    """The examples in the object store, checked; and the fingerprint of the key."""
    if not isinstance(dataset, ray.data.Dataset):
        raise _checks.fail(f"dataset is of type {type(dataset).__name__}, not a ray.data.Dataset; pass one")
    if index not in (dataset.columns() or ()):
        raise _checks.fail(f"the data set has no column {index!r}; name the column with indices from 0")
    examples = dataset.materialize()
    blocks = -(-examples.count() // run.rows_per_key)
    pack = _packed.options(num_returns=1 + blocks)
    parts: list[Any] = [pack.remote(ref, index, run, blocks) for ref in examples.to_arrow_refs()]
    found = merged_facts(ray.get([part[0] for part in parts])).checked(run.scheme)
    known = ray.put(found)
    key = one_key(ray.get([_fingerprint.remote(run, known)] if run.ranges else []))
    stored = [_block.remote(number, run, known, *(part[1 + number] for part in parts)) for number in range(blocks)]
    ray.wait(stored, num_returns=len(stored), fetch_local=False)
    return _Stored(stored, known, found.fields, key)


# --- ranges of steps -----------------------------------------------------------------------------


def _range(number: int, run: Run, stored: _Stored) -> Iterator[StoredBatch]:
    """The batches of a range of steps, from the blocks in the object store."""
    sampler = run.sampler(ray.get(stored.known).records)
    one_key([stored.fingerprint, sampler.fingerprint])
    found = draws(run, number, sampler)
    rows = (
        (ray.get(stored.blocks[block]).take(np.frombuffer(indices, dtype="<i8"), places), indices)
        for block, places, indices in found.draws
    )
    return assembled(run, number, [found.sizes], rows, stored.fields)


@ray.remote
def _written(number: int, output: Output, stored: _Stored) -> StoredFile:
    return output.write_range(number, _range(number, output.run, stored), stored.fields)


def _columns(batch: dict[str, Any], **job: Any) -> Iterator[dict[str, Any]]:
    for number in batch["id"].tolist():
        for one in _range(number, **job):
            size = one.indices.size
            own = {"filet_step": np.full(size, one.step), "filet_mask": one.mask}
            yield {**own, "filet_index": one.indices.astype(np.int64), **one.data}


def capped_poisson_batches(
    dataset: Any,
    scheme: CappedPoisson,
    steps: int,
    key: KeyHandle,
    start: int = 0,
    *,
    index: str = "index",
    secure: bool = True,
    steps_per_range: int | None = None,
    rows_per_key: int = ROWS_PER_BLOCK,
) -> Any:
    """A Ray data set of rows in the order of steps: read it with `batch_size=scheme.max_batch_size`.

    ```py
    batches = capped_poisson_batches(dataset, scheme, steps=1000, key=KeyFile("/run/secrets/key"))
    for batch in batches.iter_torch_batches(batch_size=scheme.max_batch_size):
        batch["x"], batch["filet_mask"]
    ```

    Guarantees: every step has exactly `max_batch_size` rows, in order: those of
    `scheme.sampler(key)[step]`, then zeros where `filet_mask` is false. They do not depend on nodes,
    tasks or retries. What is wrong with the examples or the key is one line, from here. Tasks hold the
    key's handle, never the key.

    Arguments:
        dataset: a `ray.data.Dataset` of numbers, arrays of numbers, and bytes, that fits the object store.
        scheme: how batches are drawn; `dataset_size` examples are expected. Where its size is not
            public, the job counts them and draws as `scheme.sampler(key, records=...)` does.
        steps: number of steps of the whole run, as accounted.
        key: where workers find the key: `KeyFile`, `KeyVariable` or `KeyCall`.
        start: first step to make: the one to go on at.
        index: the column with indices 0 to n - 1.
        secure: draw from AES-256, the default; False draws from Philox, which is not cryptographic.
        steps_per_range: steps that one task makes; about 16,384 rows by default.
        rows_per_key: examples of one block in the object store.
    """
    run = Run.checked(
        scheme, steps, key, start, secure=secure, steps_per_range=steps_per_range, rows_per_key=rows_per_key
    )  # fmt: skip
    with _one_line():
        stored = _stored(dataset, index, run)
    numbers = ray.data.range(run.ranges, override_num_blocks=max(1, run.ranges))
    batches = numbers.map_batches(_columns, batch_size=1, fn_kwargs={"run": run, "stored": stored})
    batches.context.execution_options.preserve_order = True
    return batches


def write_batches(
    dataset: Any,
    path: str | os.PathLike[str],
    scheme: CappedPoisson,
    steps: int,
    key: KeyHandle,
    start: int = 0,
    *,
    index: str = "index",
    format: str = "arrow",
    steps_per_file: int | None = None,
    secure: bool = True,
    rows_per_key: int = ROWS_PER_BLOCK,
) -> str:
    """Files of batches and their manifest, whose path is returned; `open_batches(path)` reads them.

    ```py
    write_batches(dataset, "/shared/run-1", scheme, steps=1000, key=KeyVariable("BATCHES_KEY"))
    ```

    Guarantees: the files and the manifest are those of every other engine, byte for byte, whole or not
    at all, the manifest last. Whatever is wrong is one line, from here.

    Arguments:
        dataset, scheme, steps, key, start, index, secure, rows_per_key: as for `capped_poisson_batches`.
        path: a directory that every node reaches.
        format: arrow (the fastest to read), parquet, tfrecord or avro.
        steps_per_file: steps in one file; about 16,384 rows by default.
    """
    run = Run.checked(
        scheme, steps, key, start, secure=secure, steps_per_range=steps_per_file, rows_per_key=rows_per_key
    )  # fmt: skip
    output = Output.checked(run, path, format)
    with _one_line():
        stored = _stored(dataset, index, run)
        tasks = [_written.remote(number, output, stored) for number in range(run.ranges)]
        return output.write_manifest(ray.get(tasks), stored.fields, stored.fingerprint)
