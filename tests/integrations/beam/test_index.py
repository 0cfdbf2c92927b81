"""Indices of examples: the same whatever the shards and ranges."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that

import filet
from filet.integrations.beam import (
    IndexExamples,
)

# --- indices -------------------------------------------------------------------------------------------------------


def indexed(pcollection_of, expected, transform):
    def check(found):
        assert sorted((index, int(example["x"])) for index, example in found) == expected

    with beam.Pipeline(runner="FnApiRunner") as job:
        assert_that(job | beam.Create(pcollection_of) | beam.Reshuffle() | transform, check)


@pytest.mark.parametrize("cuts", [[], [1, 2, 30]])
def test_indices_by_position_do_not_depend_on_shards(cuts):
    parts = np.split(np.arange(40), cuts)
    placed = [((f"shard-{s:02d}", k), {"x": int(x)}) for s, part in enumerate(parts) for k, x in enumerate(part)]
    indexed(placed[::-1], [(k, k) for k in range(40)], IndexExamples())


@pytest.mark.parametrize(
    ("ranges", "make"), [(1, int), (7, lambda k: f"user-{k:03d}"), (100, np.int64), (7, lambda k: b"%03d" % k)]
)
def test_indices_by_id_are_places_in_sorted_order(ranges, make):
    named = [{"id": make(k), "x": k} for k in range(0, 120, 3)]
    indexed(named[::-1], [(k // 3, k) for k in range(0, 120, 3)], IndexExamples("id", ranges=ranges))


def test_wrong_positions_and_ids_fail_the_job():
    for elements, transform, match in [
        ([(("a", 0), {}), (("a", 2), {})], IndexExamples(), "shard 'a' has 2 examples at positions 0 to 2"),
        ([(("a", 0), {}), ((1, 0), {})], IndexExamples(), "some shards have names and some have numbers"),
        ([{"x": 1}], IndexExamples(), r"not \(\(shard, position\), example\)"),
        ([((0.5, 0), {})], IndexExamples(), r"an example is at \(0\.5, 0\)"),
        ([{"id": 1}, {"id": 1}], IndexExamples("id"), "the id 1 is there twice"),
        ([{"id": 1}, {"id": b"1"}], IndexExamples("id"), "ids are of several types"),
        ([{"x": 1}], IndexExamples("id"), "an example has no field 'id'"),
        ([{"x": 1.5}], IndexExamples(lambda example: example["x"]), "an id is of type float"),
    ]:
        with pytest.raises(filet.InvalidArgumentError, match=match), beam.Pipeline(runner="FnApiRunner") as job:
            _ = job | beam.Create(elements) | transform
    with pytest.raises(filet.InvalidArgumentError, match="id=5 names no field"):
        IndexExamples(5)
