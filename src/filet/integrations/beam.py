# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""Capped Poisson batches on Apache Beam: the in-memory sampler's batches for data without random access, by a distributed join."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from filet import errors
from filet.errors import FiletError, MissingExtraError, OutputError

try:
    import apache_beam
except ImportError as error:
    raise MissingExtraError("Apache Beam is not installed; run: pip install 'filet[beam]'") from error

from .beam_examples import ReadExamples
from .beam_files import WriteBatches, has_manifest
from .beam_index import IndexExamples
from .beam_join import CappedPoissonBatches
from .beam_keys import KeyCall, KeyFile, KeyVariable
from .beam_reading import StoredBatches, open_batches
from .beam_records import StoredBatch

__all__ = [
    "CappedPoissonBatches",
    "IndexExamples",
    "KeyCall",
    "KeyFile",
    "KeyVariable",
    "ReadExamples",
    "StoredBatch",
    "StoredBatches",
    "WriteBatches",
    "has_manifest",
    "open_batches",
    "run_job",
]

_LINE = re.compile(r"filet\.(\w+Error): ([^\n]+)")
_PLACE = re.compile(r" \[while running '.*", re.S)


def run_job(examples: Any, write: WriteBatches, options: Any = None, *, id: str | None = None) -> None:
    """Run the whole job, from files of examples to files of batches, and wait for its end.

    >>> import numpy as np, os, tempfile
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
        raise filet_error(error) or OutputError(f"the job failed: {_last_line(error)}; see its log") from error


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


def filet_error(error: BaseException) -> FiletError | None:
    """The error of filet's that made a job fail, without what Beam adds to it; None if it was another one."""
    if isinstance(error, FiletError):
        return type(error)(_PLACE.sub("", str(error)))
    found = _LINE.findall(str(error))
    kind = getattr(errors, found[-1][0], None) if found else None
    return kind(_PLACE.sub("", found[-1][1])) if kind is not None else None


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
