"""Formats of batches: what each can hold."""

from __future__ import annotations

import numpy as np
from tests.integrations.beam_jobs import (
    SIZE,
    created,
    fails,
    secret,
    write_job,
)

from filet.integrations.beam import (
    open_batches,
)


def test_arrays_of_no_numbers_are_refused_where_the_format_has_none(tmp_path):
    pairs = [(k, {"x": np.zeros((2, 0), np.float32)}) for k in range(SIZE)]
    fails(tmp_path, pairs, r"the field 'x' has shape \(2, 0\).*write tfrecord or avro")
    write_job(created(pairs), tmp_path / "other", secret(tmp_path), format="avro")
    assert open_batches(tmp_path / "other")[0].data["x"].shape == (12, 2, 0)
