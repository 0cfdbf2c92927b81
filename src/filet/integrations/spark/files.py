# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""From files of examples to files of batches on Spark, with the bytes of every other engine."""

from __future__ import annotations

import functools
import os
from typing import Any

from filet import _checks
from filet.scheme import CappedPoisson

from ..batch_files.examples import format_of, offsets_of
from ..batch_files.job import ROWS_PER_KEY, Run
from ..batch_files.keys import KeyHandle
from ..batch_files.storage import absolute, matching
from ..batch_files.writing import Output
from . import stages
from .join import Examples, one_line, parts, ranges

_MOST_PARTITIONS = 10_000  # of a list of files


def read_examples(session: Any, pattern: str, format: str | None = None) -> Examples:
    """The records of all files that match, numbered in the order of the files' names.

    ```py
    write_batches(read_examples(spark, "s3://bucket/train-*.parquet"), output, scheme, steps, key)
    ```

    Guarantees: executors decode the files as other engines do, types that Spark does not have
    included; an index depends on the files alone.

    Arguments:
        session: the `SparkSession`.
        pattern: files, with `*` and `?`, or a directory, that the driver and every executor reach.
        format: parquet, tfrecord or avro; None tells by the pattern's end.
    """
    path = absolute(_checks.path(pattern))
    form = format_of(path, format)
    paths = matching(path)
    count = min(len(paths), _MOST_PARTITIONS)
    with one_line():
        listed = _spread(session.createDataFrame([(one,) for one in paths], "path string"), count)
        extents = functools.partial(stages.extents, form=form)
        offsets = offsets_of(parts(listed.mapInArrow(extents, stages.PICKLED)))
    rows = session.createDataFrame(list(offsets.items()), "path string, first long")
    return Examples(_spread(rows, count), (stages.from_files, form))


def _spread(frame: Any, count: int) -> Any:
    return frame.repartition(count, "path")


def check_job(
    path: Any, scheme: Any, steps: Any, key: Any, start: Any = 0, *,
    format: Any = "arrow", steps_per_file: Any = None, secure: Any = True, rows_per_key: Any = ROWS_PER_KEY,
) -> Output:  # fmt: skip
    """Output that `write_batches` would write; an error for a wrong argument, before Spark is started."""
    run = Run.checked(
        scheme, steps, key, start, secure=secure, steps_per_range=steps_per_file, rows_per_key=rows_per_key
    )  # fmt: skip
    return Output.checked(run, path, format)


def write_batches(
    frame: Any,
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
    rows_per_key: int = ROWS_PER_KEY,
) -> str:
    """Files of batches and their manifest, whose path is returned; `open_batches(path)` reads them.

    ```py
    write_batches(frame, "s3://bucket/run-1", scheme, steps=1000, key=KeyVariable("BATCHES_KEY"))
    ```

    Guarantees: the batches are those of `capped_poisson_batches`, the files and the manifest those of
    every other engine, byte for byte. A file is written under another name and then renamed, and the
    driver writes the manifest last: an attempt that failed, ran twice or was killed changes nothing,
    and without a manifest no reader accepts the directory. Whatever is wrong is one line, from here.

    Arguments:
        frame: as for `capped_poisson_batches`, or what `read_examples` returns.
        path: a directory that the driver and every executor reach.
        scheme, steps, key, start, index, secure, rows_per_key: as for `capped_poisson_batches`.
        format: arrow (the fastest to read), parquet, tfrecord or avro.
        steps_per_file: steps in one file, which a task holds in memory; about 16,384 rows by default.
    """
    output = check_job(
        path, scheme, steps, key, start,
        format=format, steps_per_file=steps_per_file, secure=secure, rows_per_key=rows_per_key,
    )  # fmt: skip
    with one_line():
        rows, fields, fingerprint = ranges(Examples.checked(frame, index), output.run)
        write = functools.partial(stages.written, output=output, fields=fields)
        files = parts(rows.mapInArrow(write, stages.PICKLED))
        return output.write_manifest(files, fields, fingerprint)
