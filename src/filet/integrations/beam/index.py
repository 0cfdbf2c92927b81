# mypy: disable-error-code="import-untyped, import-not-found, type-arg", allow-subclassing-any, allow-untyped-calls
"""Dense indices 0 to n - 1 for examples that have none: by shard and position, or by a unique id in sorted order."""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError

from .._frameworks import needed_for

with needed_for("beam"):
    import apache_beam as beam
    from apache_beam.transforms import combiners

from ..batch_files.examples import offsets_of

_SAMPLE_PER_RANGE = 64  # ids that decide where ranges of ids begin; their sizes then differ by some ten per cent


class IndexExamples(beam.PTransform):
    """A PTransform to `(index, example)`, with indices 0 to n - 1 that do not depend on how the runner bundles its work.

    >>> runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    >>> with beam.Pipeline(runner=runner) as job:
    ...     placed = job | beam.Create([(("b", 0), {"x": 3}), (("a", 1), {"x": 2}), (("a", 0), {"x": 1})])
    ...     numbered = placed | IndexExamples() | beam.combiners.ToList()
    ...     _ = numbered | beam.Map(lambda pairs: print(sorted((index, row["x"]) for index, row in pairs)))
    [(0, 1), (1, 2), (2, 3)]
    >>> with beam.Pipeline(runner=runner) as job:
    ...     named = job | beam.Create([{"id": b"z", "x": 2}, {"id": b"a", "x": 1}])
    ...     numbered = named | IndexExamples("id") | beam.combiners.ToList()
    ...     _ = numbered | beam.Map(lambda pairs: print(sorted((index, row["x"]) for index, row in pairs)))
    [(0, 1), (1, 2)]

    Guarantees: without `id`, elements are `((shard, position), example)`, positions count from 0 in each shard, and the index
    is the number of examples in earlier shards, in sorted order, plus the position: cutting the same sequence into other
    shards changes nothing. With `id`, elements are examples, and the index is the place among all ids, sorted. A gap in
    the positions, and an id that is there twice, fail the job with one line.

    Arguments:
        id: the field with a unique id (an integer or bytes), or a function from an example to an integer, bytes or text.
        ranges: with `id`, into how many ranges of ids the examples are cut; one worker holds and sorts one at a time.
    """

    def __init__(self, id: str | Callable[[Any], Any] | None = None, *, ranges: int = 64) -> None:
        super().__init__()
        if id is not None and not isinstance(id, str) and not callable(id):
            raise _checks.fail(
                f"id={_checks.show(id)} names no field; pass a field's name, or a function of an example"
            )
        self._id = id
        self._ranges = _checks.integer("ranges", ranges, low=1, remedy="pass the number of ranges of ids")

    def expand(self, examples: Any) -> Any:
        return _by_position(examples) if self._id is None else _by_id(examples, self._id, self._ranges)


# --- by shard and position: count every shard, add up, number ------------------------------------------------------


def _by_position(placed: Any) -> Any:
    extents = placed | "Positions" >> beam.Map(_position) | "Count shards" >> beam.CombinePerKey(_extent)
    offsets = extents | "Shards" >> combiners.ToList() | "Add up" >> beam.Map(offsets_of)
    return placed | "Number" >> beam.Map(_number, beam.pvalue.AsSingleton(offsets))


def _position(element: Any) -> tuple[Any, tuple[int, int, int]]:
    try:
        (shard, position), _ = element
    except (TypeError, ValueError):
        raise _checks.fail(
            f"an element is of type {type(element).__name__}, not ((shard, position), example); pass id= for others"
        ) from None
    if not isinstance(shard, (int, str)) or isinstance(position, bool) or not isinstance(position, int):
        raise _checks.fail(
            f"an example is at {_checks.show((shard, position))}; pass a shard's name or number, and a position from 0"
        )
    return shard, (1, position, position)


def _extent(parts: Iterable[tuple[int, int, int]]) -> tuple[int, int, int]:
    """Count, lowest and highest position."""
    count, lowest, highest = 0, 2**63, -1
    for more, low, high in parts:
        count, lowest, highest = count + more, min(lowest, low), max(highest, high)
    return count, lowest, highest


def _number(element: Any, offsets: dict[Any, int]) -> tuple[int, Any]:
    (shard, position), example = element
    return offsets[shard] + position, example


# --- by id: cut into ranges of ids, sort each, number --------------------------------------------------------------


def _by_id(examples: Any, id: str | Callable[[Any], Any], ranges: int) -> Any:
    named = examples | "Ids" >> beam.Map(lambda example: (_id_of(example, id), example))
    ids = named | "Only ids" >> beam.Keys()
    # The ids with the smallest hashes: a sample that depends on the ids alone.
    smallest = combiners.Top.Of(_SAMPLE_PER_RANGE * ranges, key=_hash, reverse=True)
    cuts = beam.pvalue.AsSingleton(ids | "Sample" >> smallest | "Cuts" >> beam.Map(_cuts, ranges))
    counts = ids | "Range of id" >> beam.Map(lambda one, cuts: (bisect.bisect_right(cuts, one), 1), cuts)
    offsets = (
        counts
        | "Count ranges" >> beam.CombinePerKey(sum)
        | "Ranges" >> combiners.ToList()
        | "Add up" >> beam.Map(lambda found: offsets_of((name, (count, 0, count - 1)) for name, count in found))
    )
    return (
        named
        | "By range" >> beam.Map(lambda one, cuts: (bisect.bisect_right(cuts, one[0]), one), cuts)
        | "Group" >> beam.GroupByKey()
        | "Sort" >> beam.FlatMap(_sorted_range, beam.pvalue.AsSingleton(offsets))
    )


def _id_of(example: Any, id: str | Callable[[Any], Any]) -> Any:
    if callable(id):
        found = id(example)
    else:
        try:
            found = example[id]
        except (KeyError, TypeError, IndexError):
            raise _checks.fail(f"an example has no field {id!r}; pass the field that holds a unique id") from None
    found = found.item() if hasattr(found, "item") and not isinstance(found, bytes) else found
    if isinstance(found, bool) or not isinstance(found, (int, str, bytes)):
        raise _checks.fail(f"an id is of type {type(found).__name__}; pass integers, bytes or text")
    return found


def _hash(id: Any) -> bytes:
    return hashlib.blake2b(repr(id).encode(), digest_size=16).digest()


def _cuts(sample: list[Any], ranges: int) -> list[Any]:
    if len({type(one) for one in sample}) > 1:
        raise InvalidArgumentError("ids are of several types; give all examples ids of one type")
    ordered = sorted(sample)
    return [ordered[k * len(ordered) // ranges] for k in range(1, ranges)] if ordered else []


def _sorted_range(element: Any, offsets: dict[int, int]) -> Iterator[tuple[int, Any]]:
    number, grouped = element
    named = sorted(grouped, key=lambda one: one[0])
    for before, after in itertools.pairwise(named):
        if before[0] == after[0]:
            raise InvalidArgumentError(f"the id {_checks.show(after[0])} is there twice; pass a unique id")
    for place, (_, example) in enumerate(named):
        yield offsets[number] + place, example
