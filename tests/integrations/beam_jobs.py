"""What the tests of the Beam integration share: a data set, its files, a key, and jobs on Beam's runners."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import apache_beam as beam
import fastavro
import numpy as np
import pyarrow
import pyarrow.parquet
from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import PipelineOptions

import filet
from filet.integrations.beam import KeyFile, ReadExamples, WriteBatches, run_job
from filet.integrations.beam_formats import example_class, write_record

LOCAL = ("--runner=FnApiRunner",)
TWO_WORKERS = ("--runner=FnApiRunner", "--direct_num_workers=2", "--direct_running_mode=multi_processing")
SIZE, STEPS = 300, 20
SCHEME = filet.CappedPoisson(SIZE, 0.03, 12)


def secret(folder: Path) -> KeyFile:
    path = folder / "run.key"
    if not path.exists():
        path.write_bytes(hashlib.sha256(b"a key for tests").digest())
        path.chmod(0o600)
    return KeyFile(str(path))


def arrays(size: int = SIZE) -> dict[str, np.ndarray]:
    random = np.random.default_rng(18)
    return {
        "image": random.normal(size=(size, 2, 3)).astype(np.float32),
        "label": np.arange(size, dtype=np.int64) * 7 - 5,
        "weight": random.normal(size=(size, 4)),
    }


def words(size: int = SIZE) -> list[bytes]:
    """Bytes of many lengths, empty ones among them."""
    return [bytes([k % 251]) * (k % 5) for k in range(size)]


def examples(size: int = SIZE) -> list[tuple[int, dict]]:
    data = arrays(size)
    return [(k, {name: array[k] for name, array in data.items()}) for k in range(size)]


def write_parquet(folder: Path, shards: int, size: int = SIZE, texts: bool = False) -> Path:
    folder.mkdir()
    data = arrays(size)
    image = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(data["image"].reshape(-1)), 3)
    columns = {
        "image": pyarrow.FixedSizeListArray.from_arrays(image, 2),
        "label": data["label"],
        "weight": pyarrow.array(data["weight"].tolist(), pyarrow.list_(pyarrow.float64())),
        **({"text": words(size)} if texts else {}),
    }
    table = pyarrow.table(columns)
    for number, part in enumerate(np.array_split(np.arange(size), shards)):
        pyarrow.parquet.write_table(table.slice(part[0], part.size), folder / f"part-{number:03d}.parquet")
    return folder


def write_tfrecord(path: Path, size: int = SIZE) -> None:
    with path.open("wb") as file:
        for k in range(size):
            example = example_class()()
            feature = example.features.feature
            feature["a"].int64_list.value.append(k)
            feature["b"].float_list.value.extend([k / 2, k / 4])
            feature["c"].bytes_list.value.append(words(size)[k])
            write_record(file, example.SerializeToString())


def write_avro(path: Path, size: int = SIZE) -> None:
    pairs = [("a", "long"), ("b", {"type": "array", "items": "float"}), ("c", "bytes")]
    schema = {"type": "record", "name": "One", "fields": [{"name": name, "type": kind} for name, kind in pairs]}
    records = [{"a": k, "b": [k / 2, k / 4], "c": words(size)[k]} for k in range(size)]
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), records)


def write_job(source, output: Path, key: KeyFile, options=LOCAL, scheme=SCHEME, steps=STEPS, **more) -> None:
    more = {"steps_per_file": 6, "rows_per_key": 32, **more}
    run_job(source, WriteBatches(output, scheme, steps, key, **more), PipelineOptions([*options]))


def created(pairs) -> beam.PTransform:
    return beam.Create(list(pairs))


def from_parquet(folder: Path) -> ReadExamples:
    return ReadExamples(str(folder), "parquet")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def assert_is_the_samplers(batches, sampler, data, texts=None) -> None:
    """Every batch, byte for byte."""
    for batch in batches:
        want = sampler[batch.step]
        assert np.array_equal(batch.indices, want.indices)
        assert batch.indices.dtype == want.indices.dtype
        assert np.array_equal(batch.mask, want.mask)
        assert (batch.size, batch.dataset_size) == (want.size, want.dataset_size)
        rows = want.take(data)
        assert set(batch.data) == {*rows, *(["text"] if texts else [])}
        for name, array in rows.items():
            found = batch.data[name]
            assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes()), name
        if texts:
            assert batch.data["text"].tolist() == [texts[k] if k >= 0 else b"" for k in want.indices]


def sampler_of(scheme, key: KeyFile, **more):
    return scheme.sampler(Path(os.fspath(key.path)).read_bytes(), **more)


class VaultFileSystem(LocalFileSystem):
    """This machine's files under another scheme, so that they are reached as those of an object store are."""

    @classmethod
    def scheme(cls):
        return "vault"

    def join(self, basepath, *paths):
        return "/".join([basepath.rstrip("/"), *paths])

    def _list(self, dir_or_prefix):
        for one in super()._list(_bare(dir_or_prefix)):
            yield FileMetadata(f"vault://{_bare(one.path)}", one.size_in_bytes, one.last_updated_in_seconds)

    def _path_open(self, path, *more, **others):
        return super()._path_open(_bare(path), *more, **others)

    def create(self, path, *more, **others):
        return super().create(_bare(path), *more, **others)

    def rename(self, sources, targets):
        for target in targets:
            if os.path.exists(_bare(target)):  # as on some file systems
                raise BeamIOError("Rename operation failed", {target: FileExistsError(target)})
        super().rename([*map(_bare, sources)], [*map(_bare, targets)])

    def exists(self, path):
        return super().exists(_bare(path))

    def delete(self, paths):
        super().delete([*map(_bare, paths)])


def _bare(path: str) -> str:
    return path.removeprefix("vault://")
