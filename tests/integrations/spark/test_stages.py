"""Stages as executors run them: groups across tables, keys that differ, and the handle alone in what is pickled."""

from __future__ import annotations

import functools
import pickle
from pathlib import Path

import pyarrow
import pytest
from tests.integrations.beam_jobs import SCHEME, SIZE, STEPS, secret

import filet
from filet.integrations.batch_files.job import Run
from filet.integrations.batch_files.records import Known, fields_of
from filet.integrations.spark import stages

KNOWN = Known(fields_of({"x": 1.0}), True, SIZE)


def test_groups_are_whole_across_tables():
    rows = [(key, 0, number, b"", b"", b"", b"") for number, key in enumerate([1, 1, 2, 3, 3, 3])]
    for cut in range(len(rows) + 1):
        tables = [stages._table(part) for part in (rows[:cut], rows[cut:]) if part]
        found = [(key, [row[2] for row in group]) for key, group in stages._groups(iter(tables))]
        assert found == [(1, [0, 1]), (2, [2]), (3, [3, 4, 5])]
    assert list(stages._groups(iter([]))) == []


def test_tables_stay_small(monkeypatch):
    monkeypatch.setattr(stages, "_BYTES", 100)
    rows = [(number, 0, 0, bytes(60), b"", b"", b"") for number in range(5)]
    assert [table.num_rows for table in stages._tables(rows)] == [2, 2, 1]


def test_a_worker_with_another_key_is_refused(tmp_path):
    run = Run.checked(SCHEME, STEPS, secret(tmp_path))
    with pytest.raises(filet.InvalidArgumentError, match="workers have different keys"):
        stages.drawn(iter([]), run, KNOWN, "another")


def test_what_is_sent_to_executors_holds_the_handle_and_not_the_key(tmp_path):
    key = secret(tmp_path)
    run = Run.checked(SCHEME, STEPS, key)
    content = pickle.dumps(functools.partial(stages.drawn, run=run, known=KNOWN, expected=run.sampler().fingerprint))
    assert Path(key.path).read_bytes() not in content
    assert key.path.encode() in content


def test_a_frame_that_changes_between_two_passes_is_refused():
    table = pyarrow.RecordBatch.from_pydict({"index": [0, 1], "x": [1.0, 2.0]})
    source = (stages.from_frame, "index")
    (same,) = stages.packed(iter([table]), source, 8, fields_of({"x": 1.0}))
    assert same.num_rows == 1
    with pytest.raises(filet.InvalidArgumentError, match="changed between two passes"):
        list(stages.packed(iter([table]), source, 8, fields_of({"x": 1})))
