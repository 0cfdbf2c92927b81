# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""Batches as Arrow files, Parquet, TFRecord and Avro, byte for byte the same at every writing; and back. Needs no Beam."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from filet.errors import InvalidArgumentError, StateError

from .._frameworks import needed_for
from .records import BYTES, Field, Fields, StoredBatch

FORMATS = ("arrow", "parquet", "tfrecord", "avro")
INPUTS = ("parquet", "tfrecord", "avro")
Content = NDArray[np.uint8]
Stored = tuple[int, NDArray[Any], NDArray[np.bool_], dict[str, NDArray[Any]]]
"""Step, indices, mask and data of one batch."""


def package(name: str) -> Any:
    """A package that a format needs."""
    with needed_for("batch-files"):
        return importlib.import_module(name)


def write(form: str, file: BinaryIO, batches: Iterable[StoredBatch], fields: Fields) -> None:
    """Write a range of batches to an open file."""
    _WRITERS[form](file, batches, fields)


def read(form: str, content: Content, fields: Fields) -> Iterator[Stored]:
    """The batches of one file's content, in order."""
    return _READERS[form](content, fields)


# --- Parquet: a row of the table is a row of a batch, a row group is a batch ---------------------------------------


def arrow_type(field: Field) -> Any:
    """The Arrow type of one row: numbers, or lists of fixed size inside each other."""
    arrow = package("pyarrow")
    if field.dtype == BYTES:
        return arrow.binary()
    if 0 in field.shape:
        raise InvalidArgumentError(
            f"the field {field.name!r} has shape {field.shape}, and Arrow has no lists of fixed size 0; leave the field out, or"
            " write tfrecord or avro"
        )
    result = arrow.from_numpy_dtype(np.dtype(field.dtype))
    for size in reversed(field.shape):
        result = arrow.list_(result, size)
    return result


def to_arrow(array: NDArray[Any], field: Field) -> Any:
    """An array of rows as an Arrow array of `arrow_type`."""
    arrow = package("pyarrow")
    if field.dtype == BYTES:
        return arrow.array(array.tolist(), arrow.binary())
    result = arrow.array(array.reshape(-1))
    for size in reversed(field.shape):
        result = arrow.FixedSizeListArray.from_arrays(result, size)
    return result


def from_arrow(array: Any, field: Field) -> NDArray[Any]:
    """Back again: the rows as one NumPy array."""
    if field.dtype == BYTES:
        values = np.empty(len(array), dtype=object)
        values[:] = array.to_pylist()
        return values
    rows = len(array)
    for _ in field.shape:
        array = array.flatten()
    return np.array(array.to_numpy(zero_copy_only=False), dtype=field.dtype).reshape(rows, *field.shape)


def _table_schema(fields: Fields) -> Any:
    arrow = package("pyarrow")
    columns = [("filet_step", arrow.int64()), ("filet_index", arrow.int64()), ("filet_mask", arrow.bool_())]
    note = {"filet": json.dumps([field.to_dict() for field in fields])}
    return arrow.schema([*columns, *((field.name, arrow_type(field)) for field in fields)], metadata=note)


def _columns(batch: StoredBatch, fields: Fields) -> list[Any]:
    rows = batch.indices.size
    own = [np.full(rows, batch.step), batch.indices.astype(np.int64), batch.mask]
    arrays = map(package("pyarrow").array, own)
    return [*arrays, *(to_arrow(batch.data[field.name], field) for field in fields)]


def _write_parquet(file: BinaryIO, batches: Iterable[StoredBatch], fields: Fields) -> None:
    arrow, parquet = package("pyarrow"), package("pyarrow.parquet")
    schema = _table_schema(fields)
    # No statistics: the footer of a file would tell how many rows are padding before anybody has opened the rows.
    with parquet.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=False, write_statistics=False
    ) as writer:
        for batch in batches:
            table = arrow.Table.from_arrays(_columns(batch, fields), schema=schema)
            writer.write_table(table, row_group_size=batch.indices.size)


def _read_parquet(content: Content, fields: Fields) -> Iterator[Stored]:
    file = package("pyarrow.parquet").ParquetFile(BytesIO(content.data))
    for group in range(file.num_row_groups):
        table = file.read_row_group(group).combine_chunks()
        column = {name: _one_chunk(table.column(name)) for name in table.column_names}
        data = {field.name: from_arrow(column[field.name], field) for field in fields}
        step, index, mask = (column[f"filet_{name}"] for name in ("step", "index", "mask"))
        yield int(step[0].as_py()), index.to_numpy(), mask.to_numpy(zero_copy_only=False), data


def _one_chunk(column: Any) -> Any:
    arrow = package("pyarrow")
    return column.chunk(0) if column.num_chunks == 1 else arrow.concat_arrays(column.chunks)


# --- Arrow: the same table, uncompressed, a record batch is a batch; its arrays are views of the file's content -----


def _write_arrow(file: BinaryIO, batches: Iterable[StoredBatch], fields: Fields) -> None:
    arrow, schema = package("pyarrow"), _table_schema(fields)
    with arrow.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(arrow.RecordBatch.from_arrays(_columns(batch, fields), schema=schema))


def _read_arrow(content: Content, fields: Fields) -> Iterator[Stored]:
    arrow = package("pyarrow")
    with arrow.ipc.open_file(arrow.py_buffer(content)) as file:
        for number in range(file.num_record_batches):
            table = file.get_batch(number)
            step, index, mask, *columns = table.columns
            data = {field.name: _view(column, field, content) for field, column in zip(fields, columns, strict=True)}
            yield int(step[0].as_py()), index.to_numpy(), mask.to_numpy(zero_copy_only=False), data


def _view(column: Any, field: Field, content: Content) -> NDArray[Any]:
    """The rows of a column where they lie in the content. Arrow would hand them out as read-only."""
    if field.dtype == BYTES or np.dtype(field.dtype).kind == "b":  # Arrow packs eight booleans into a byte
        return from_arrow(column, field)
    start = column.buffers()[-1].address - content.ctypes.data
    rows = content[start : start + len(column) * field.row_bytes]
    return rows.view(field.dtype).reshape(len(column), *field.shape)


# --- TFRecord: a record is a batch, as a tf.train.Example of raw tensors -------------------------------------------


@functools.cache
def example_class() -> Any:
    """The message `tensorflow.Example`, made here so that TensorFlow need not be installed."""
    package("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="filet/example.proto", package="filet.tensorflow", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, str, bool]) -> Any:
        added = file.message_type.add(name=name)
        for field, number, kind, type_name, repeated in fields:
            one = added.field.add(name=field, number=number, type=kind, label=3 if repeated else 1)
            if type_name:
                one.type_name = f".filet.tensorflow.{type_name}"
        return added

    number, real, text, raw, part = 3, 2, 9, 12, 11  # int64, float, string, bytes, message: protobuf's own numbers
    message("BytesList", ("value", 1, raw, "", True))
    message("FloatList", ("value", 1, real, "", True))
    message("Int64List", ("value", 1, number, "", True))
    kinds = [("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")]
    feature = message("Feature", *((name, 1 + k, part, kind, False) for k, (name, kind) in enumerate(kinds)))
    feature.oneof_decl.add(name="kind")
    for one in feature.field:
        one.oneof_index = 0
    features = message("Features", ("feature", 1, part, "Features.FeatureEntry", True))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.field.add(name="key", number=1, type=text, label=1)
    entry.field.add(name="value", number=2, type=part, label=1, type_name=".filet.tensorflow.Feature")
    entry.options.map_entry = True
    message("Example", ("features", 1, part, "Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("filet.tensorflow.Example"))


def write_record(file: BinaryIO, record: bytes) -> None:
    """One TFRecord: its length and its content, each with a checksum."""
    length = struct.pack("<Q", len(record))
    file.write(length + _masked_crc(length) + record + _masked_crc(record))


def read_records(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The records of a TFRecord file; damage is an error that names the file."""
    while head := file.read(12):
        length = head[:8]
        size = struct.unpack("<Q", length)[0] if len(head) == 12 and _masked_crc(length) == head[8:] else None
        record = file.read(size) if size is not None else b""
        if size is None or len(record) < size or _masked_crc(record) != file.read(4):
            raise StateError(f"{name!r} is damaged or no TFRecord file; restore it, or make it again")
        yield record


def _masked_crc(content: bytes) -> bytes:
    crc = package("google_crc32c").value(content)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _write_tfrecord(file: BinaryIO, batches: Iterable[StoredBatch], fields: Fields) -> None:
    for batch in batches:
        example = example_class()()
        feature = example.features.feature
        feature["filet_step"].int64_list.value.append(batch.step)
        feature["filet_indices"].int64_list.value.extend(batch.indices.tolist())
        feature["filet_mask"].int64_list.value.extend(batch.mask.astype(int).tolist())
        for field in fields:
            array = batch.data[field.name]
            values = array.tolist() if field.dtype == BYTES else [array.tobytes()]
            feature[f"data/{field.name}"].bytes_list.value.extend(values)
            feature[f"dtype/{field.name}"].bytes_list.value.append(field.dtype.encode())
            feature[f"shape/{field.name}"].int64_list.value.extend(array.shape)
        write_record(file, example.SerializeToString(deterministic=True))


def _read_tfrecord(content: Content, fields: Fields) -> Iterator[Stored]:
    for record in read_records(BytesIO(content.data), "a file of batches"):
        feature = example_class().FromString(record).features.feature
        indices = np.array(feature["filet_indices"].int64_list.value, dtype=np.int64)
        mask = np.array(feature["filet_mask"].int64_list.value, dtype=bool)
        data = {}
        for field in fields:
            values = feature[f"data/{field.name}"].bytes_list.value
            data[field.name] = _from_raw(list(values) if field.dtype == BYTES else values[0], field, indices.size)
        yield feature["filet_step"].int64_list.value[0], indices, mask, data


def _from_raw(raw: Any, field: Field, rows: int) -> NDArray[Any]:
    if field.dtype == BYTES:
        values = np.empty(rows, dtype=object)
        values[:] = raw
        return values
    return np.frombuffer(raw, dtype=field.dtype).reshape(rows, *field.shape).copy()  # writable, as `take` gives them


# --- Avro: a record is a batch, with every array's type and shape beside its bytes ---------------------------------

_TENSOR = {
    "type": "record",
    "name": "Tensor",
    "fields": [
        {"name": "dtype", "type": "string"},
        {"name": "shape", "type": {"type": "array", "items": "long"}},
        {"name": "data", "type": "bytes"},
    ],
}
_AVRO = {
    "type": "record",
    "name": "Batch",
    "namespace": "filet",
    "fields": [
        {"name": "step", "type": "long"},
        {"name": "indices", "type": {"type": "array", "items": "long"}},
        {"name": "mask", "type": {"type": "array", "items": "boolean"}},
        {"name": "tensors", "type": {"type": "map", "values": _TENSOR}},
        {"name": "values", "type": {"type": "map", "values": {"type": "array", "items": "bytes"}}},
    ],
}


def _write_avro(file: BinaryIO, batches: Iterable[StoredBatch], fields: Fields) -> None:
    fastavro = package("fastavro")
    # The marker between blocks is random by default; the bytes of a file must not depend on the attempt that wrote it.
    marker = hashlib.sha256(repr(fields).encode()).digest()[:16]
    records = (_avro_record(batch, fields) for batch in batches)
    fastavro.writer(file, fastavro.parse_schema(_AVRO), records, sync_interval=1, sync_marker=marker)


def _avro_record(batch: StoredBatch, fields: Fields) -> dict[str, Any]:
    tensors = {
        field.name: {
            "dtype": field.dtype,
            "shape": list(batch.data[field.name].shape),
            "data": batch.data[field.name].tobytes(),
        }
        for field in fields
        if field.dtype != BYTES
    }
    values = {field.name: batch.data[field.name].tolist() for field in fields if field.dtype == BYTES}
    own = {"step": batch.step, "indices": batch.indices.tolist(), "mask": batch.mask.tolist()}
    return {**own, "tensors": tensors, "values": values}


def _read_avro(content: Content, fields: Fields) -> Iterator[Stored]:
    for record in package("fastavro").reader(BytesIO(content.data)):
        indices = np.array(record["indices"], dtype=np.int64)
        data = {}
        for field in fields:
            is_bytes = field.dtype == BYTES
            raw = record["values"][field.name] if is_bytes else record["tensors"][field.name]["data"]
            data[field.name] = _from_raw(raw, field, indices.size)
        yield record["step"], indices, np.array(record["mask"], dtype=bool), data


_WRITERS: dict[str, Callable[[BinaryIO, Iterable[StoredBatch], Fields], None]] = {
    "arrow": _write_arrow,
    "parquet": _write_parquet,
    "tfrecord": _write_tfrecord,
    "avro": _write_avro,
}
_READERS: dict[str, Callable[[Content, Fields], Iterator[Stored]]] = {
    "arrow": _read_arrow,
    "parquet": _read_parquet,
    "tfrecord": _read_tfrecord,
    "avro": _read_avro,
}
