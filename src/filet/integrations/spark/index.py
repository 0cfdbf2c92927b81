# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""Dense indices 0 to n - 1 for a DataFrame with a unique id: the place of each id among all, sorted."""

from __future__ import annotations

import itertools
from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError

from .._frameworks import needed_for

with needed_for("spark"):
    from pyspark.sql import Window, functions

from .join import one_line

_SAMPLE_PER_RANGE = 64  # ids that decide where ranges of ids begin; their sizes then differ by some ten per cent
_TYPES = ("tinyint", "smallint", "int", "bigint", "binary", "string")


def index_examples(frame: Any, id: str, *, index: str = "index", ranges: int = 64) -> Any:
    """The frame with a column of indices: the place of each row's id among all ids, sorted.

    ```py
    indexed = index_examples(spark.read.parquet("data"), id="user_id")
    ```

    Guarantees: indices are 0 to n - 1, each once, and depend on the ids alone: not on partitions,
    executors or the order of rows. An id that is there twice or empty is an error, here already.

    Arguments:
        frame: a DataFrame.
        id: the column with a unique id: integers, binary or text.
        index: the name of the new column.
        ranges: into how many ranges of ids the rows are cut; one task sorts one at a time.
    """
    ranges = _checks.integer("ranges", ranges, low=1, remedy="pass the number of ranges of ids")
    kinds = dict(getattr(frame, "dtypes", ()))
    if kinds.get(id) not in _TYPES:
        has = f"of type {kinds[id]}" if id in kinds else "not there"
        raise _checks.fail(f"the column {id!r} is {has}; pass one of integers, binary or text")
    if index in kinds:
        raise _checks.fail(f"the frame has a column {index!r} already; pass index= with another name")
    with one_line():
        bucket = _bucket(frame, id, ranges)
        offsets = _offsets(frame, id, bucket)
    # As data and not as literals, which plans show: the number of rows may be a secret.
    first = frame.sparkSession.createDataFrame(list(offsets.items()), "filet_bucket int, filet_first long")
    with_first = frame.withColumn("filet_bucket", bucket).join(functions.broadcast(first), "filet_bucket")
    place = functions.row_number().over(Window.partitionBy("filet_bucket").orderBy(id))
    number = functions.col("filet_first") + place.cast("long") - 1
    return with_first.withColumn(index, number).drop("filet_bucket", "filet_first")


def _bucket(frame: Any, id: str, ranges: int) -> Any:
    """The number of cuts at or below an id. The ids with the smallest hashes are a sample that depends on ids alone."""
    ids = frame.select(functions.col(id).alias("id"))
    hashed = ids.orderBy(functions.xxhash64("id"), "id").limit(_SAMPLE_PER_RANGE * ranges)
    sample = sorted(row[0] for row in hashed.collect() if row[0] is not None)
    cuts = [sample[k * len(sample) // ranges] for k in range(1, ranges)] if sample else []
    cuts = [bytes(cut) if isinstance(cut, bytearray) else cut for cut in cuts]
    found = functions.lit(0)
    for cut in cuts:
        found = found + (functions.col(id) >= functions.lit(cut)).cast("int")
    return found


def _offsets(frame: Any, id: str, bucket: Any) -> dict[int, int]:
    """The number of rows before each range; an error if an id is empty or there twice."""
    named = frame.select(bucket.alias("bucket"), functions.col(id).alias("id"))
    counts = named.groupBy("bucket").agg(
        functions.count(functions.lit(1)), functions.count("id"), functions.countDistinct("id")
    )
    found = {row[0]: row[1:] for row in counts.collect()}
    if any(rows != filled for rows, filled, _ in found.values()):
        raise InvalidArgumentError(f"the column {id!r} has empty values; give every row an id")
    if any(rows != distinct for rows, _, distinct in found.values()):
        twice = named.groupBy("id").count().filter("count > 1").orderBy("id").first()[0]
        shown = _checks.show(bytes(twice) if isinstance(twice, bytearray) else twice)
        raise InvalidArgumentError(f"the id {shown} is there twice; pass a unique id")
    names = sorted(found)
    ends = itertools.accumulate(found[name][0] for name in names)
    return dict(zip(names, [0, *ends], strict=False)) or {0: 0}
