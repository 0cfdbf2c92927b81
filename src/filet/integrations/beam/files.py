# mypy: disable-error-code="import-untyped, import-not-found, type-arg", allow-subclassing-any, allow-untyped-calls
"""Batches into files, one for each range of steps, whole or not at all; and the manifest, last."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from filet.scheme import CappedPoisson

from .._frameworks import needed_for

with needed_for("beam"):
    import apache_beam as beam
    from apache_beam.transforms import combiners

from ..batch_files.job import ROWS_PER_KEY, Run
from ..batch_files.keys import KeyHandle
from ..batch_files.manifest import StoredFile
from ..batch_files.records import Fields
from ..batch_files.writing import Output
from .join import batches_of, grouped_ranges


class WriteBatches(beam.PTransform):
    """A PTransform from `(index, example)` to files of batches and their manifest; `open_batches(path)` reads them.

    >>> from filet.integrations.beam import KeyVariable
    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> write = WriteBatches("gs://bucket/run-1", scheme, steps=1000, key=KeyVariable("BATCHES_KEY"), steps_per_file=10)
    >>> write.file_name(3)
    'batches-00003-of-00100.arrow'

    Guarantees: the batches are those of `CappedPoissonBatches`. A file holds the steps of one range and can be read alone. It is
    written under another name and then renamed, and its bytes depend on the data, the key and the arguments alone: an attempt
    that failed, ran twice, or was killed changes nothing. The manifest is written last, after every file, with the scheme,
    the fields and every file's SHA-256, and without the key; without it no reader accepts the directory. On file systems
    with modes, files are for their owner only, and so is the directory if it is made here.

    Arguments:
        path: a directory on any file system that Beam knows. Files of an earlier run with the same names are replaced.
        scheme, steps, key, start, secure, rows_per_key: as for `CappedPoissonBatches`.
        format: arrow (the fastest to read), parquet, tfrecord or avro.
        steps_per_file: steps in one file, which a worker holds in memory; about 16,384 rows by default.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        scheme: CappedPoisson,
        steps: int,
        key: KeyHandle,
        start: int = 0,
        *,
        format: str = "arrow",
        steps_per_file: int | None = None,
        secure: bool = True,
        rows_per_key: int = ROWS_PER_KEY,
    ) -> None:
        super().__init__()
        self.run = Run.checked(
            scheme, steps, key, start, secure=secure, steps_per_range=steps_per_file, rows_per_key=rows_per_key
        )
        self._output = Output.checked(self.run, path, format)

    def file_name(self, number: int) -> str:
        """The name of the file of one range of steps."""
        return self._output.file_name(number)

    def expand(self, examples: Any) -> Any:
        ranges, fields, key = grouped_ranges(examples, self.run)
        known = beam.pvalue.AsSingleton(fields)
        files = ranges | "Write" >> beam.Map(_write_range, self._output, known) | "Files" >> combiners.ToList()
        names = beam.pvalue.AsSingleton(key)
        return files | "Manifest" >> beam.Map(_write_manifest, self._output, known, names)


def _write_range(element: Any, output: Output, fields: Fields) -> StoredFile:
    return output.write_range(element[0], batches_of(element, output.run, fields), fields)


def _write_manifest(files: Iterable[StoredFile], output: Output, fields: Fields, fingerprint: str) -> str:
    return output.write_manifest(files, fields, fingerprint)
