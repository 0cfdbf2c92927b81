# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""The distributed join on Spark: DataFrames and `mapInArrow` only, so that Spark Connect runs it too."""

from __future__ import annotations

import contextlib
import functools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

from filet import _checks
from filet.errors import FiletError, OutputError
from filet.scheme import CappedPoisson

from .._frameworks import needed_for

with needed_for("spark"):
    import pandas  # noqa: F401, mapInArrow does not start without
    import pyarrow  # noqa: F401
    from pyspark.sql import functions

from ..batch_files.job import ROWS_PER_KEY, Run, filet_error, merged_facts, one_key
from ..batch_files.keys import KeyHandle
from ..batch_files.records import BYTES, Fields, Known
from . import stages

_TYPES = {
    "|b1": "boolean", "|i1": "byte", "<i2": "short", "<i4": "int", "<i8": "long",
    "<f4": "float", "<f8": "double",
}  # fmt: skip


class Examples:
    """A frame, and how an executor gets examples with their indices from it."""

    def __init__(self, frame: Any, source: tuple[Any, str]) -> None:
        self.frame = frame
        self.source = source

    @classmethod
    def checked(cls, frame: Any, index: str) -> Examples:
        """Examples of a frame with an index column; a frame of `read_examples` is as it is."""
        if isinstance(frame, Examples):
            return frame
        if not hasattr(frame, "mapInArrow"):
            raise _checks.fail(f"frame is of type {type(frame).__name__}, not a DataFrame; pass a Spark DataFrame")
        if index not in frame.columns:
            raise _checks.fail(
                f"the frame has no column {index!r}; name the column with indices from 0, or make one by index_examples"
            )
        return cls(frame, (stages.from_frame, index))

    def mapped(self, function: Any, schema: str, **arguments: Any) -> Any:
        """The frame through a stage that reads examples."""
        stage = functools.partial(function, source=self.source, **arguments)
        return self.frame.mapInArrow(stage, schema)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """An error of an executor as filet's own, in one line."""
    try:
        yield
    except FiletError:
        raise
    except Exception as error:
        found = filet_error(error)
        if found is None:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            words = lines[0] if lines else type(error).__name__
            found = OutputError(f"the job failed: {words}; see Spark's log")
        raise found from error


def parts(frame: Any) -> list[Any]:
    """Results that a stage has pickled for the driver."""
    return [pickle.loads(row[0]) for row in frame.collect()]


def ranges(examples: Examples, run: Run) -> tuple[Any, Fields, str]:
    """A frame of rows sorted by range of steps, the fields of all examples, and the key's fingerprint.

    Two small jobs run first: one looks at every example, one at a worker's key.
    """
    session = examples.frame.sparkSession
    found = parts(examples.mapped(stages.facts, stages.PICKLED, rows_per_key=run.rows_per_key))
    known: Known = merged_facts(found).checked(run.scheme)
    check = functools.partial(stages.fingerprint, run=run, known=known)
    asked = session.range(0, min(1, run.ranges), 1, 1)  # of nobody if there is nothing to draw
    key = one_key(parts(asked.mapInArrow(check, stages.PICKLED)))
    numbers = session.range(0, run.ranges, 1, max(1, min(run.ranges, _shuffle_partitions(session))))
    draw = functools.partial(stages.drawn, run=run, known=known, expected=key)
    packed = examples.mapped(stages.packed, stages.WIRE, rows_per_key=run.rows_per_key, fields=known.fields)
    both = packed.unionAll(numbers.mapInArrow(draw, stages.WIRE))
    join = functools.partial(stages.joined, run=run, known=known)
    rows = _by_key(_by_key(both).mapInArrow(join, stages.WIRE))
    return rows, known.fields, key


def _by_key(frame: Any) -> Any:
    """The rows of a key in one place, examples before what is asked of them."""
    return frame.repartition("filet_key").sortWithinPartitions("filet_key", "filet_kind")


def _shuffle_partitions(session: Any) -> int:
    return int(session.conf.get("spark.sql.shuffle.partitions"))


def capped_poisson_batches(
    frame: Any,
    scheme: CappedPoisson,
    steps: int,
    key: KeyHandle,
    start: int = 0,
    *,
    index: str = "index",
    secure: bool = True,
    steps_per_range: int | None = None,
    rows_per_key: int = ROWS_PER_KEY,
) -> Any:
    """A DataFrame of rows by step: the in-memory sampler's batches, with their examples.

    ```py
    batches = capped_poisson_batches(frame, scheme, steps=1000, key=KeyFile("/run/secrets/key"))
    batches.filter("filet_step = 7").sort("filet_row")
    ```

    Guarantees: step `t` has exactly `max_batch_size` rows, `filet_row` 0 and up: those of
    `scheme.sampler(key)[t]` in its order, then zeros where `filet_mask` is false. They do not depend
    on partitions, executors or retries. A wrong number of examples and an example of another shape
    fail here, with one line; an index twice or missing and workers with different keys fail the job.
    The plan holds the key's handle, never the key.

    Arguments:
        frame: a DataFrame of numbers, booleans, arrays of these, and binary; deterministic, as it is
            read twice.
        scheme: how batches are drawn; `dataset_size` examples are expected. Where its size is not
            public, the job counts them and draws as `scheme.sampler(key, records=...)` does.
        steps: number of steps of the whole run, as accounted.
        key: where executors find the key: `KeyFile`, `KeyVariable` or `KeyCall`.
        start: first step to make.
        index: the column with indices 0 to n - 1, such as `index_examples` makes.
        secure: draw from AES-256, the default; False draws from Philox, which is not cryptographic.
        steps_per_range: steps whose rows one task holds at a time; about 16,384 rows by default.
        rows_per_key: examples of neighbouring indices that travel together.
    """
    run = Run.checked(
        scheme, steps, key, start, secure=secure, steps_per_range=steps_per_range, rows_per_key=rows_per_key
    )  # fmt: skip
    with one_line():
        rows, fields, _ = ranges(Examples.checked(frame, index), run)
    own = "filet_step long, filet_row int, filet_index long, filet_mask boolean"
    schema = ", ".join([own, *(f"`{field.name}` {_spark_type(field)}" for field in fields)])
    unrolled = rows.mapInArrow(functools.partial(stages.unrolled, run=run, fields=fields), schema)
    return unrolled.select(*map(functions.col, [name.split()[0] for name in schema.split(", ")]))


def _spark_type(field: Any) -> str:
    if field.dtype == BYTES:
        return "binary"
    if field.dtype not in _TYPES:
        raise _checks.fail(
            f"the column {field.name!r} is of type {np.dtype(field.dtype).name}, which Spark does not"
            " have; use write_batches"
        )
    kind = _TYPES[field.dtype]
    for _ in field.shape:
        kind = f"array<{kind}>"
    return kind
