"""What the tests of the Beam integration share: a data set, its files, a key, and jobs on Beam's runners."""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import fastavro
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from apache_beam.io.filesystem import BeamIOError, FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import PipelineOptions

import filet
from filet.integrations.batch_files.formats import example_class, write_record
from filet.integrations.batch_files.job import Run
from filet.integrations.batch_files.records import StoredBatch, fields_of
from filet.integrations.batch_files.writing import Output
from filet.integrations.beam import KeyFile, ReadExamples, WriteBatches, open_batches, run_job

LOCAL = ("--runner=FnApiRunner",)
TWO_WORKERS = ("--runner=FnApiRunner", "--direct_num_workers=2", "--direct_running_mode=multi_processing")
SIZE, STEPS = 300, 20
SCHEME = filet.CappedPoisson(SIZE, 0.03, 12)
# Sizes that are not public: planned above, at and below the 300 examples that there are.
NOT_PUBLIC = [("secret", 400), ("secret", SIZE), ("secret", 200), ("at-most", 400), ("at-most", SIZE)]


def not_public(size: str, planned: int, rate: float = 0.03, cap: int = 12) -> filet.CappedPoisson:
    """A scheme whose number of records is secret."""
    return filet.CappedPoisson(planned, rate, cap, overflow="reject" if size == "secret" else "truncate", size=size)


@contextlib.contextmanager
def warned_of(planned: int, records: int = SIZE) -> Iterator[None]:
    """A warning if the planned size is the number of records, and none if not."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    said = [one for one in found if "voids the guarantee" in str(one.message)]
    assert len(said) == (planned == records)


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
        secret = sampler.scheme.size is filet.Size.SECRET  # then no type tells the number
        assert batch.indices.dtype == (np.int64 if secret else want.indices.dtype)
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


def expected(folder: Path, scheme=SCHEME, steps: int = STEPS, form: str = "arrow", start: int = 0, **more) -> Path:
    """What every engine has to write, from data in memory."""
    steps_per_range = more.pop("steps_per_file", 6)
    run = Run.checked(scheme, steps, secret(folder), start, steps_per_range=steps_per_range, **more)
    output = Output.checked(run, folder / "expected", form)
    data, texts = arrays(), words()
    fields = fields_of({**{name: array[0] for name, array in data.items()}, "text": b""})
    sampler = run.sampler(SIZE)
    files = []
    for number in range(run.ranges):
        batches = []
        for step in run.steps_of(number):
            one = sampler[step]
            text = np.array([texts[k] if k >= 0 else b"" for k in one.indices], dtype=object)
            content = {**one.take(data), "text": text}
            batches.append(StoredBatch(one.indices, one.mask, one.size, one.dataset_size, step, content))
        files.append(output.write_range(number, batches, fields))
    output.write_manifest(files, fields, sampler.fingerprint)
    return folder / "expected"


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


# --- what is refused -----------------------------------------------------------------------------------------------


def fails(tmp_path, pairs, match, scheme=SCHEME, error=filet.InvalidArgumentError, options=LOCAL):
    with pytest.raises(error, match=match) as caught:
        write_job(created(pairs), tmp_path / "out", secret(tmp_path), options, scheme=scheme)
    assert "\n" not in str(caught.value)
    assert "while running" not in str(caught.value)
    with pytest.raises(filet.StateError, match=r"manifest\.json"):
        open_batches(tmp_path / "out")
