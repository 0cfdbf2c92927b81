"""Examples from columns and files: their values, and the number of records before each file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.integrations.beam_jobs import SIZE, arrays, words, write_avro, write_parquet, write_tfrecord

import filet
from filet.integrations.batch_files.examples import column_values, extent, format_of, numbered, offsets_of


def test_lists_of_one_length_are_an_array_and_others_a_list_of_arrays():
    nested = pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], pa.list_(pa.list_(pa.int16())))
    found = column_values(nested, "x", "here")
    assert (found.dtype, found.tolist()) == (np.int16, nested.to_pylist())
    several = column_values(pa.array([[1.0], [], [2.0, 3.0]]), "x", "here")
    assert [one.tolist() for one in several] == [[1.0], [], [2.0, 3.0]]
    assert column_values(pa.array([], pa.list_(pa.int8())), "x", "here").shape == (0, 0)
    part = pa.array([[9, 9], [1, 2], [3, 4]]).slice(1)
    assert column_values(part, "x", "here").tolist() == [[1, 2], [3, 4]]
    assert column_values(pa.array([b"a", b""]), "x", "here") == [b"a", b""]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1, None]), "the column 'x' of 'here' has empty values; fill them first"),
        (pa.array([[1, None]]), "has empty values"),
        (pa.array(["a"]), "is of type string; pass numbers"),
        (pa.array([["a"]]), "is of type string; pass numbers"),
        (pa.array([[[1], [2, 3]]]), "is of type list"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(column, words):
    with pytest.raises(filet.InvalidArgumentError, match=words):
        column_values(column, "x", "here")


def test_files_are_counted_and_their_records_numbered(tmp_path):
    folder = write_parquet(tmp_path / "in", 3, texts=True)
    write_tfrecord(tmp_path / "a.tfrecord")
    write_avro(tmp_path / "a.avro")
    paths = sorted(map(str, folder.iterdir()))
    extents = {path: extent(path, "parquet") for path in paths}
    offsets = offsets_of(extents.items())
    rows = [pair for path in paths for pair in numbered(path, "parquet", offsets[path])]
    assert [index for index, _ in rows] == list(range(SIZE))
    assert all(np.array_equal(row["image"], arrays()["image"][index]) for index, row in rows)
    for form in ("tfrecord", "avro"):
        path = str(tmp_path / f"a.{form}")
        assert format_of(path, None) == form
        assert extent(path, form) == (SIZE, 0, SIZE - 1)
        assert [row["c"] for _, row in numbered(path, form, 0)] == words()
    with pytest.raises(filet.InvalidArgumentError, match="format='arrow' is unknown; pass one of parquet"):
        format_of("x.arrow", None)
