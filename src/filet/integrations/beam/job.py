# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""The whole job: from files of examples to files of batches, and a failure as one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from filet.errors import OutputError

from .._frameworks import needed_for

with needed_for("beam"):
    import apache_beam

from ..batch_files.job import filet_error, last_line
from .files import WriteBatches
from .index import IndexExamples


def run_job(examples: Any, write: WriteBatches, options: Any = None, *, id: str | None = None) -> None:
    """Run the whole job, from files of examples to files of batches, and wait for its end.

    >>> import numpy as np, os, tempfile
    >>> from filet.integrations.beam import KeyFile, ReadExamples, open_batches
    >>> from filet.scheme import CappedPoisson
    >>> from filet.sampling.keys import write_key_file
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> options = apache_beam.options.pipeline_options.PipelineOptions(
    ...     runner="apache_beam.runners.portability.fn_api_runner.FnApiRunner")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"x": np.arange(10) ** 2}), os.path.join(folder, "data.parquet"))
    ...     write_key_file(os.path.join(folder, "key"))
    ...     key = KeyFile(os.path.join(folder, "key"))
    ...     out = os.path.join(folder, "out")
    ...     run_job(ReadExamples(os.path.join(folder, "data.parquet")), WriteBatches(out, scheme, 3, key), options)
    ...     [batch.data["x"].shape for batch in open_batches(out)]
    [(8,), (8,), (8,)]

    Guarantees: an error of filet's on a worker is raised here again, with its own class and one line.

    Arguments:
        examples: where `(index, example)` pairs come from, such as `ReadExamples(...)`.
        write: what to write, and where.
        options: Beam's `PipelineOptions`; the runner is one of them.
        id: number the examples by this field, a unique id, rather than by their places in the files.
    """
    try:
        with _whole_messages(), apache_beam.Pipeline(options=options) as job:
            indexed = job | "Read examples" >> examples
            if id is not None:
                indexed = indexed | apache_beam.Values() | "Index by id" >> IndexExamples(id)
            _ = indexed | "Write batches" >> write
    except Exception as error:
        raise filet_error(error) or OutputError(f"the job failed: {last_line(error)}; see its log") from error


@contextlib.contextmanager
def _whole_messages() -> Iterator[None]:
    """Keep Beam's local runner from losing what it sends to worker processes.

    Once a second it empties each buffer that it is filling, from another thread, and clears it after a copy: what was written
    in between is gone (2.77). With a limit of 0 it sends a buffer when it is full of what belongs together, and only then.
    """
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    name = "DATA_BUFFER_TIME_LIMIT_MS"
    before = getattr(worker_handlers, name, None)
    if before is not None:
        setattr(worker_handlers, name, 0)
    try:
        yield
    finally:
        if before is not None:
            setattr(worker_handlers, name, before)
