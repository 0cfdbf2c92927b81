# mypy: disable-error-code="import-untyped, import-not-found, type-arg", allow-subclassing-any, allow-untyped-calls
"""Examples from sharded files, numbered 0 to n - 1: Parquet, TFRecord and Avro, on any of Beam's file systems."""

from __future__ import annotations

from typing import Any

from filet import _checks

from .._frameworks import needed_for

with needed_for("beam"):
    import apache_beam as beam
    from apache_beam.transforms import combiners

from ..batch_files.examples import extent, format_of, numbered, offsets_of
from ..batch_files.storage import absolute, matching


class ReadExamples(beam.PTransform):
    """A PTransform from nothing to `(index, example)`: the records of all files that match, in the order of their names.

    >>> ReadExamples("gs://bucket/train-*.parquet")
    ReadExamples('gs://bucket/train-*.parquet', format='parquet')

    Guarantees: files are counted first (Parquet by their footers), the counts added up, then the records numbered, so that
    an index depends on the files alone. Cutting the same records into other files, in the same order, changes nothing.

    - Parquet: a row is an example. Numbers and booleans are scalars, lists of numbers are arrays, binary is bytes.
    - TFRecord: a record is a `tf.train.Example`. One number is a scalar, several are an array (int64 or float32), one value
      of bytes is bytes.
    - Avro: a record is an example. int and long are int64, float is float32, double is float64; arrays of these; bytes.

    Arguments:
        pattern: files, with `*` and `?`, on any file system that Beam knows; or a directory.
        format: parquet, tfrecord or avro; None tells by the pattern's end.
    """

    def __init__(self, pattern: str, format: str | None = None) -> None:
        super().__init__()
        self._pattern = absolute(_checks.path(pattern))
        self._format = format_of(self._pattern, format)

    def __repr__(self) -> str:
        return f"ReadExamples({self._pattern!r}, format={self._format!r})"

    def expand(self, begin: Any) -> Any:
        files = (
            begin.pipeline
            | "Start" >> beam.Impulse()
            | "Files" >> beam.FlatMap(lambda _, pattern: matching(pattern), self._pattern)
            | "Spread" >> beam.Reshuffle()
        )
        counts = files | "Count" >> beam.Map(lambda path, form: (path, extent(path, form)), self._format)
        offsets = counts | "Counts" >> combiners.ToList() | "Add up" >> beam.Map(offsets_of)
        return files | "Read" >> beam.FlatMap(
            lambda path, form, offsets: numbered(path, form, offsets[path]),
            self._format,
            beam.pvalue.AsSingleton(offsets),
        )
