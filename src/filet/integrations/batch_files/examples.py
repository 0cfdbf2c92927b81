# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""Examples from sharded files: Parquet, TFRecord and Avro, on any storage."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from filet import _checks
from filet.errors import InvalidArgumentError

from .formats import INPUTS, example_class, package, read_records
from .storage import opened

_ROWS = 1024  # rows of a Parquet file that are decoded at once

Example = dict[str, Any]


def offsets_of(extents: Iterable[tuple[Any, tuple[int, int, int]]]) -> dict[Any, int]:
    """The number of examples before each shard, in sorted order.

    >>> offsets_of([("b", (2, 0, 1)), ("a", (3, 0, 2))])
    {'a': 0, 'b': 3}
    """
    found = dict(extents)
    if len({type(shard) for shard in found}) > 1:
        raise InvalidArgumentError("some shards have names and some have numbers; give all shards the same type")
    names = sorted(found)
    for name in names:
        count, lowest, highest = found[name]
        if lowest != 0 or highest != count - 1:
            raise InvalidArgumentError(
                f"shard {name!r} has {count} examples at positions {lowest} to {highest}; number each shard's from 0"
            )
    ends = itertools.accumulate(found[name][0] for name in names)
    return dict(zip(names, [0, *ends], strict=False))


def format_of(name: str, given: str | None) -> str:
    """The format that was asked for, or that a file's name tells."""
    form = os.path.splitext(name)[1].lstrip(".").lower() if given is None else given
    if form not in INPUTS:
        raise _checks.fail(f"format={_checks.show(form)} is unknown; pass one of {', '.join(INPUTS)}")
    return form


def extent(path: str, form: str) -> tuple[int, int, int]:
    """Number of records of a file, and their first and last position: none has gaps."""
    with opened(path) as file:
        if form == "parquet":
            count = _parquet(file, path).metadata.num_rows
        elif form == "tfrecord":
            count = sum(1 for _ in read_records(file, path))
        else:
            count = sum(block.num_records for block in _avro(file, path, "block_reader"))
    return count, 0, count - 1


def numbered(path: str, form: str, offset: int) -> Iterator[tuple[int, Example]]:
    """The records of a file, numbered from an offset on."""
    with opened(path) as file:
        for position, example in enumerate(_DECODERS[form](file, path)):
            yield offset + position, example


def _wrong(path: str, form: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{path!r} cannot be read as {form}; name the right format, or pass other files")


# --- Parquet -------------------------------------------------------------------------------------------------------


def _parquet(file: BinaryIO, path: str) -> Any:
    try:
        return package("pyarrow.parquet").ParquetFile(file)
    except (ValueError, OSError):  # Arrow's own errors are children of these
        raise _wrong(path, "parquet") from None


def numbered_columns(path: str, offset: int) -> Iterator[tuple[NDArray[np.int64], dict[str, Any]]]:
    """The rows of a Parquet file, many at once: their numbers from an offset on, and their columns."""
    with opened(path) as file:
        for columns, rows in _parquet_columns(file, path):
            yield np.arange(offset, offset + rows), columns
            offset += rows


def _parquet_columns(file: BinaryIO, path: str) -> Iterator[tuple[dict[str, Any], int]]:
    for table in _parquet(file, path).iter_batches(batch_size=_ROWS):
        names = table.schema.names
        yield {name: column_values(table.column(name), name, path) for name in names}, table.num_rows


def _parquet_rows(file: BinaryIO, path: str) -> Iterator[Example]:
    for columns, rows in _parquet_columns(file, path):
        for row in range(rows):
            yield {name: column[row] for name, column in columns.items()}


def column_values(array: Any, name: str, source: str) -> Any:
    """The rows of an Arrow column: an array with a row each, a list of arrays of several shapes, or of bytes."""
    types, kind = package("pyarrow").types, array.type
    if array.null_count:
        raise InvalidArgumentError(f"the column {name!r} of {source!r} has empty values; fill them first")
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return array.to_pylist()
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False)
    inner = column_values(array.flatten(), name, source) if _is_list(kind) else None
    if isinstance(inner, np.ndarray):
        return _rows_of(inner, array)
    raise InvalidArgumentError(
        f"the column {name!r} of {source!r} is of type {kind}; pass numbers, lists of numbers, or binary"
    )


def _is_list(kind: Any) -> bool:
    types = package("pyarrow").types
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _rows_of(inner: NDArray[Any], array: Any) -> Any:
    """The lists of an Arrow array over the numbers in them: one array if all have the same length."""
    lengths = array.value_lengths().to_numpy(zero_copy_only=False)
    if not lengths.size or (lengths == lengths[0]).all():
        return inner.reshape(len(array), int(lengths[0]) if lengths.size else 0, *inner.shape[1:])
    return np.split(inner, np.cumsum(lengths)[:-1])


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
