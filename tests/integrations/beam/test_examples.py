"""Examples from sharded files: every format, and input that cannot be read."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that
from tests.integrations.beam_jobs import (
    words,
    write_avro,
    write_tfrecord,
)

import filet
from filet.integrations.beam import (
    ReadExamples,
)

# --- input files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "write"), [("tfrecord", write_tfrecord), ("avro", write_avro)])
def test_examples_of_tfrecord_and_avro(tmp_path, form, write):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / f"one.{form}", 30)
    write(tmp_path / "in" / f"two.{form}", 12)
    (tmp_path / "in" / "_SUCCESS").touch()

    def check(found):
        assert sorted(index for index, _ in found) == list(range(42))
        for index, example in found:
            k = index % 30
            assert example["a"] == k
            assert example["a"].dtype == np.int64
            assert example["b"].tolist() == [k / 2, k / 4]
            assert example["b"].dtype == np.float32
            assert example["c"] == words(30)[k]

    with beam.Pipeline(runner="FnApiRunner") as job:
        assert_that(job | ReadExamples(str(tmp_path / "in"), form), check)


def reading_fails(path, match, form=None, error=filet.InvalidArgumentError):
    with pytest.raises(error, match=match), beam.Pipeline(runner="FnApiRunner") as job:
        _ = job | ReadExamples(str(path), form)


def test_input_that_cannot_be_read_fails_the_job(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    (tmp_path / "bad.tfrecord").write_bytes(b"no TFRecord at all")
    (tmp_path / "bad.avro").write_bytes(b"no Avro")
    reading_fails(tmp_path / "bad.parquet", "bad.parquet' cannot be read as parquet")
    reading_fails(tmp_path / "bad.tfrecord", "bad.tfrecord' is damaged or no TFRecord file", error=filet.StateError)
    reading_fails(tmp_path / "bad.avro", "bad.avro' cannot be read as avro")
    reading_fails(tmp_path / "none-*.avro", "no file matches")
    reading_fails(tmp_path, "format='' is unknown; pass one of parquet, tfrecord, avro")
    for name, column, match in [("text", ["a"], "is of type string"), ("null", [1, None], "has empty values")]:
        pq.write_table(pa.table({"x": column}), tmp_path / f"{name}.parquet")
        reading_fails(tmp_path / f"{name}.parquet", f"the column 'x' of .*{match}")


def test_a_damaged_tfrecord_is_noticed_wherever_it_is(tmp_path):
    write_tfrecord(tmp_path / "whole.tfrecord", 5)
    whole = (tmp_path / "whole.tfrecord").read_bytes()
    for place in (3, 20, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (tmp_path / "bad.tfrecord").write_bytes(damaged)
        reading_fails(tmp_path / "bad.tfrecord", "bad.tfrecord' is damaged", error=filet.StateError)
