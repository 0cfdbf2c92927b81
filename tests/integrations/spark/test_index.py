"""Indices of a frame: dense, in the order of ids, whatever the partitions."""

from __future__ import annotations

import pytest

import filet
from filet.integrations.spark import index_examples
from filet.integrations.spark.index import _bucket, _offsets

IDS = {
    "bigint": ("id long", [k * 37 % 101 - 50 for k in range(101)]),
    "binary": ("id binary", [bytes([k * 37 % 101 + 100, k % 3]) for k in range(101)]),
    "string": ("id string", [f"{k * 37 % 101}é" for k in range(101)]),
}


@pytest.mark.parametrize("kind", IDS)
def test_an_index_is_the_place_of_an_id_among_all(session, kind):
    schema, ids = IDS[kind]
    plain = session.createDataFrame([(one, number) for number, one in enumerate(ids)], f"{schema}, number int")
    found = []
    for partitions, ranges in ((1, 1), (7, 5)):
        rows = index_examples(plain.repartition(partitions), "id", index="place", ranges=ranges).collect()
        found.append({(bytes(row.id) if kind == "binary" else row.id): row.place for row in rows})
    assert found[0] == found[1] == {one: place for place, one in enumerate(sorted(ids))}


def test_a_plan_tells_no_number_of_rows(session, capfd):
    """The number of rows before a range of ids is in the data, not in the plan."""
    ids = session.range(20_000).selectExpr("3 * id + 1 as id").filter("id > 0")
    indexed = index_examples(ids, "id", ranges=2)
    assert indexed.columns == ["id", "index"]
    assert indexed.filter("id = 3 * index + 1").count() == 20_000
    before = _offsets(ids, "id", _bucket(ids, "id", 2))[1]
    indexed.explain("extended")
    plan = capfd.readouterr().out
    assert str(3 * before + 1) in plan  # an id, where the second range begins
    assert str(before) not in plan


def test_an_empty_frame_has_no_indices(session):
    assert index_examples(session.createDataFrame([], "id long"), "id").count() == 0


def test_ids_that_are_wrong_are_one_line(session):
    twice = session.createDataFrame([(1, 2), (3, 2), (3, 2)], "id long, other long")
    empty = session.createDataFrame([(1,), (None,)], "id long")
    reals = session.createDataFrame([(1.5,)], "id double")
    for wrong, name, more, words in [
        (twice, "id", {}, "the id 3 is there twice; pass a unique id"),
        (empty, "id", {}, "the column 'id' has empty values"),
        (reals, "id", {}, "the column 'id' is of type double; pass one of integers"),
        (twice, "none", {}, "the column 'none' is not there"),
        (twice, "id", {"index": "other"}, "the frame has a column 'other' already"),
        (twice, "id", {"ranges": 0}, "ranges=0 is below 1"),
    ]:
        with pytest.raises(filet.InvalidArgumentError, match=words) as caught:
            index_examples(wrong, name, **more)
        assert "\n" not in str(caught.value)
