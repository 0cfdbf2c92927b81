# mypy: disable-error-code="import-untyped, import-not-found, type-arg", allow-subclassing-any, allow-untyped-calls
"""Examples from sharded files, numbered 0 to n - 1: Parquet, TFRecord and Avro, on any of Beam's file systems."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms import combiners

from filet import _checks
from filet.errors import InvalidArgumentError

from .beam_formats import FORMATS, example_class, package, read_records
from .beam_index import offsets_of
from .beam_reading import absolute

_ROWS = 1024  # rows of a Parquet file that are decoded at once

Example = dict[str, Any]


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
        counts = files | "Count" >> beam.Map(lambda path, form: (path, _extent(path, form)), self._format)
        offsets = counts | "Counts" >> combiners.ToList() | "Add up" >> beam.Map(offsets_of)
        return files | "Read" >> beam.FlatMap(_numbered, self._format, beam.pvalue.AsSingleton(offsets))


def format_of(name: str, given: str | None) -> str:
    """The format that was asked for, or that a file's name tells."""
    form = os.path.splitext(name)[1].lstrip(".").lower() if given is None else given
    if form not in FORMATS:
        raise _checks.fail(f"format={_checks.show(form)} is unknown; pass one of {', '.join(FORMATS)}")
    return form


def matching(pattern: str) -> list[str]:
    """The files of a pattern or a directory, sorted by name; hidden ones and marks such as _SUCCESS are no data."""
    is_folder = "*" not in pattern and "://" not in pattern and os.path.isdir(pattern)
    pattern = os.path.join(pattern, "*") if is_folder else pattern
    found = [one.path for match in FileSystems.match([pattern]) for one in match.metadata_list]
    paths = sorted(path for path in found if not os.path.basename(path).startswith((".", "_")))
    if not paths:
        raise InvalidArgumentError(
            f"no file matches {pattern!r}; pass a directory, or a pattern such as data/*.parquet"
        )
    return paths


def _opened(path: str) -> Any:
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def _extent(path: str, form: str) -> tuple[int, int, int]:
    """Number of records, and their first and last position: none has gaps."""
    with _opened(path) as file:
        if form == "parquet":
            count = _parquet(file, path).metadata.num_rows
        elif form == "tfrecord":
            count = sum(1 for _ in read_records(file, path))
        else:
            count = sum(block.num_records for block in _avro(file, path, "block_reader"))
    return count, 0, count - 1


def _numbered(path: str, form: str, offsets: dict[str, int]) -> Iterator[tuple[int, Example]]:
    with _opened(path) as file:
        for position, example in enumerate(_DECODERS[form](file, path)):
            yield offsets[path] + position, example


def _wrong(path: str, form: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{path!r} cannot be read as {form}; name the right format, or pass other files")


# --- Parquet -------------------------------------------------------------------------------------------------------


def _parquet(file: BinaryIO, path: str) -> Any:
    try:
        return package("pyarrow.parquet").ParquetFile(file)
    except (ValueError, OSError):  # Arrow's own errors are children of these
        raise _wrong(path, "parquet") from None


def _parquet_rows(file: BinaryIO, path: str) -> Iterator[Example]:
    for table in _parquet(file, path).iter_batches(batch_size=_ROWS):
        columns = {name: _column(table.column(name), name, path) for name in table.schema.names}
        for row in range(table.num_rows):
            yield {name: column[row] for name, column in columns.items()}


def _column(array: Any, name: str, path: str) -> Any:
    types = package("pyarrow").types
    kind = array.type
    if array.null_count:
        raise InvalidArgumentError(f"the column {name!r} of {path!r} has empty values; fill them first")
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return array.to_pylist()
    if types.is_fixed_size_list(kind):
        inner = _column(array.flatten(), name, path)
        if isinstance(inner, np.ndarray):
            return inner.reshape(len(array), kind.list_size, *inner.shape[1:])
    elif types.is_list(kind) or types.is_large_list(kind):
        inner = _column(array.flatten(), name, path)
        if isinstance(inner, np.ndarray):
            return np.split(inner, np.cumsum(array.value_lengths().to_numpy())[:-1]) if len(array) else []
    elif types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False)
    raise InvalidArgumentError(
        f"the column {name!r} of {path!r} is of type {kind}; pass numbers, lists of numbers, or binary"
    )


# --- TFRecord ------------------------------------------------------------------------------------------------------


def _tfrecord_rows(file: BinaryIO, path: str) -> Iterator[Example]:
    kinds = {"int64_list": np.int64, "float_list": np.float32}
    for record in read_records(file, path):
        try:
            features = example_class().FromString(record).features.feature
        except Exception:  # protobuf's error has no public parent of its own
            raise _wrong(path, "tf.train.Example") from None
        example: Example = {}
        for name in features:
            kind = features[name].WhichOneof("kind")
            values = getattr(features[name], kind).value if kind else []
            if kind == "bytes_list" and len(values) == 1:
                example[name] = values[0]
            elif kind in kinds and values:
                example[name] = np.array(values, dtype=kinds[kind])[() if len(values) > 1 else 0]
            else:
                raise InvalidArgumentError(
                    f"the feature {name!r} of {path!r} has no value, or several of bytes; pass one"
                )
        yield example


# --- Avro ----------------------------------------------------------------------------------------------------------

_AVRO_TYPES = {"int": np.int64, "long": np.int64, "float": np.float32, "double": np.float64, "boolean": np.bool_}


def _avro(file: BinaryIO, path: str, reader: str) -> Any:
    try:
        return getattr(package("fastavro"), reader)(file)
    except (ValueError, EOFError, StopIteration):
        raise _wrong(path, "avro") from None


def _avro_rows(file: BinaryIO, path: str) -> Iterator[Example]:
    reader = _avro(file, path, "reader")
    converters = {one["name"]: _converter(one, path) for one in reader.writer_schema["fields"]}
    for record in reader:
        yield {name: convert(record[name]) for name, convert in converters.items()}


def _converter(field: dict[str, Any], path: str) -> Callable[[Any], Any]:
    kind = field["type"]
    is_array = isinstance(kind, dict) and kind.get("type") == "array"
    inner = kind["items"] if is_array else kind
    inner = inner.get("type") if isinstance(inner, dict) else inner
    if inner in ("bytes", "fixed") and not is_array:
        return lambda value: value
    if not isinstance(inner, str) or inner not in _AVRO_TYPES:
        raise InvalidArgumentError(
            f"the field {field['name']!r} of {path!r} is of type {kind}; pass numbers, arrays of numbers, or bytes"
        )
    dtype = _AVRO_TYPES[inner]
    return lambda value: np.asarray(value, dtype=dtype)


_DECODERS: dict[str, Callable[[BinaryIO, str], Iterator[Example]]] = {
    "parquet": _parquet_rows,
    "tfrecord": _tfrecord_rows,
    "avro": _avro_rows,
}
