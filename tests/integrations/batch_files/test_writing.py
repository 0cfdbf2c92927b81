"""Files of ranges and their manifest: named, whole, and refused where something is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from tests.integrations.beam_jobs import SCHEME, contents, not_public, secret

import filet
from filet.integrations.batch_files import StoredBatch, has_manifest, open_batches
from filet.integrations.batch_files.job import Run
from filet.integrations.batch_files.records import fields_of
from filet.integrations.batch_files.writing import Output

DATA = {
    "number": np.arange(300.0),
    "flags": np.arange(900).reshape(300, 3) % 2 == 0,
    "image": np.arange(300 * 6, dtype=np.int16).reshape(300, 2, 3),
}
FORMATS = ("arrow", "parquet", "tfrecord", "avro")


def written(output: Output, records: int = 300) -> Output:
    """A finished run from data in memory: so many of their records."""
    sampler = output.run.sampler(records)
    data = {name: array[:records] for name, array in DATA.items()}
    fields = fields_of({name: array[0] for name, array in DATA.items()})
    files = []
    for number in range(output.run.ranges):
        batches = [
            StoredBatch(one.indices, one.mask, one.size, one.dataset_size, step, one.take(data))
            for step in output.run.steps_of(number)
            for one in [sampler[step]]
        ]
        files.append(output.write_range(number, batches, fields))
    output.write_manifest(files, fields, sampler.fingerprint)
    return output


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_gives_back_what_was_written(tmp_path, form):
    output = written(Output.checked(Run.checked(SCHEME, 7, secret(tmp_path), steps_per_range=3), tmp_path / "a", form))
    batches = list(open_batches(tmp_path / "a"))
    for step, batch in enumerate(batches):
        wanted = output.run.sampler()[step].take(DATA)
        for name, array in wanted.items():
            found = batch.data[name]
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert np.array_equal(found, array)
            found += found.dtype.type(1)  # writable, and nobody else's
    assert np.array_equal(open_batches(tmp_path / "a", 6)[0].data["number"], wanted["number"])


@pytest.mark.parametrize("form", FORMATS)
def test_two_writings_have_the_same_bytes(tmp_path, form):
    run = Run.checked(SCHEME, 7, secret(tmp_path), steps_per_range=3)
    for name in ("a", "b"):
        written(Output.checked(run, tmp_path / name, form))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("form", FORMATS)
def test_a_secret_number_changes_neither_names_nor_the_scheme_nor_arrow_files_sizes(tmp_path, form):
    scheme = not_public("secret", 100, rate=0.1)
    found = []
    for records in (1, 60, 100, 300):
        run = Run.checked(scheme, 7, secret(tmp_path), steps_per_range=3)
        written(Output.checked(run, tmp_path / str(records), form), records)
        batches = open_batches(tmp_path / str(records), reread=True)
        sampler = run.sampler(records)
        assert list(batches) == list(sampler.batches(7))
        assert [batch.indices.dtype for batch in batches] == [np.int64] * 7
        assert batches.scheme == scheme
        sizes = [file.size for file in batches.manifest.files] if form == "arrow" else []
        facts = [(file.name, file.first, file.stop) for file in batches.manifest.files]
        found.append((facts, sizes, batches.manifest.fields, [batch.mask.shape for batch in batches]))
    assert max(int(batch.indices.max()) for batch in batches) > 127  # more than a type for 100 records holds
    assert found[0] == found[1] == found[2] == found[3]


def test_arguments_are_checked_before_anything_is_written(tmp_path):
    run = Run.checked(SCHEME, 7, secret(tmp_path))
    with pytest.raises(filet.InvalidArgumentError, match="format='csv' is unknown; pass one of arrow, parquet"):
        Output.checked(run, tmp_path / "a", "csv")
    with pytest.raises(filet.OutputError, match="0 files of 1 were written"):
        Output.checked(run, tmp_path / "a", "arrow").write_manifest([], (), "")
    assert not has_manifest(str(tmp_path / "a"))
