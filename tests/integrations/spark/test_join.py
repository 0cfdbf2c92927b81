"""The frame of batches: rows of the in-memory sampler by step, whatever the partitions."""

from __future__ import annotations

import numpy as np
import pytest
from tests.integrations.beam_jobs import SCHEME, SIZE, STEPS, arrays, sampler_of, secret
from tests.integrations.spark_cluster import frame

import filet
from filet.integrations.spark import capped_poisson_batches, read_examples
from filet.integrations.spark.join import one_line


def test_every_step_has_the_samplers_rows_in_their_order(session, tmp_path):
    key = secret(tmp_path)
    batches = capped_poisson_batches(
        frame(session).drop("text"), SCHEME, STEPS, key, start=17, steps_per_range=2, rows_per_key=50
    )
    assert batches.columns == ["filet_step", "filet_row", "filet_index", "filet_mask", "image", "label", "weight"]
    rows = batches.sort("filet_step", "filet_row").collect()
    assert [(row.filet_step, row.filet_row) for row in rows] == [(t, k) for t in range(17, STEPS) for k in range(12)]
    sampler = sampler_of(SCHEME, key)
    for step in range(17, STEPS):
        mine = [row for row in rows if row.filet_step == step]
        wanted = sampler[step]
        assert [row.filet_index for row in mine] == wanted.indices.tolist()
        assert [row.filet_mask for row in mine] == wanted.mask.tolist()
        for name, array in wanted.take(arrays()).items():
            assert np.array_equal(np.array([row[name] for row in mine], dtype=array.dtype), array), name


def test_types_that_spark_does_not_have_are_refused(session, tmp_path):
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "in").mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"x": np.arange(SIZE).astype(np.uint16)}), tmp_path / "in/a.parquet")
    examples = read_examples(session, str(tmp_path / "in"), "parquet")
    with pytest.raises(filet.InvalidArgumentError, match="'x' is of type uint16, which Spark does not have"):
        capped_poisson_batches(examples, SCHEME, STEPS, secret(tmp_path))


def test_errors_of_other_libraries_become_one_line():
    with pytest.raises(filet.OutputError, match="the job failed: first; see Spark's log") as caught, one_line():
        raise RuntimeError("first\n second")
    assert "second" not in str(caught.value)
    with pytest.raises(filet.OutputError, match="RuntimeError"), one_line():
        raise RuntimeError
