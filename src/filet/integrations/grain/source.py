# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""A random-access source of whole batches, so that any step is there at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from filet import _checks
from filet.errors import InvalidArgumentError, StateError
from filet.sampling.batch import Batch
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson

from .._frameworks import needed_for
from .._records import records_of, sampler_of

with needed_for("grain"):
    import grain


class CappedBatchSource:
    """A grain data source whose record number `t` is the batch of step `t`: `{"data": ..., "mask": ...}` of fixed shape.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> sampler = scheme.sampler(b"16 secret bytes!", secure=False)
    >>> source = CappedBatchSource({"x": np.arange(10)}, sampler, steps=3)
    >>> len(source), source[1]["data"]["x"], int(source[1]["mask"].sum())
    (3, array([1, 3, 5, 9, 0, 0, 0, 0]), 4)

    Guarantees: the batches are those of the sampler, padded with zeros. There are `steps` of them, as accounted; a step
    beyond is an `IndexError`. A pickled source contains the sampler's key, so that workers can draw.

    Arguments:
        data: arrays with `dataset_size` rows each, in nested dicts, lists and tuples; or any source of single records, with
            `len` and access by index, whose records are such structures of arrays of one shape.
        sampler: `scheme.sampler(key)`, or a shard of it.
        steps: number of steps of the whole run.
    """

    def __init__(self, data: Any, sampler: Sampler, steps: int) -> None:
        if not isinstance(sampler, Sampler):
            raise InvalidArgumentError(f"sampler={_checks.show(sampler)} is not a Sampler; pass scheme.sampler(key)")
        self.sampler = sampler
        self.steps = _checks.step_count(steps)
        self._data = data
        self._records = not (isinstance(data, (Mapping, list, tuple)) or hasattr(data, "dtype"))
        if self._records:
            _check_records(data, sampler[0])
            self._empty = _map(lambda leaf: np.zeros_like(np.asarray(leaf)), data[0])
        else:
            sampler[0].take(data)  # wrong data are refused here, not at the first step

    def __repr__(self) -> str:
        return f"CappedBatchSource({self.sampler!r}, steps={self.steps})"

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: Any) -> dict[str, Any]:
        step = int(step)
        if not 0 <= step < self.steps:
            raise IndexError(f"step={step} is not in [0, {self.steps}); the run has no more steps")
        batch = self.sampler[step]
        if not self._records:
            return {"data": batch.take(self._data), "mask": batch.mask}
        _check_records(self._data, batch)  # their number may have changed
        rows = [self._data[int(index)] for index in batch.indices[: batch.size]]
        rows += [self._empty] * (batch.indices.size - batch.size)
        return {"data": _stacked(rows, self._empty, "record"), "mask": batch.mask}


class _OnePass:
    """Counts the passes over a run, together with all data sets that were made from it by `map`."""

    def __init__(self) -> None:
        self._begun = False

    def begin(self) -> None:
        if self._begun:
            raise StateError(
                "these batches were iterated over before, and no accountant allows for a second pass;"
                " go on from get_state() of an iterator, or pass reread=True to look at them without"
                " training"
            )
        self._begun = True


class _InOrder:
    """Transformations of single batches; those that would rearrange steps are refused."""

    _parent: Any

    def __init__(self, parent: Any, once: _OnePass | None) -> None:
        super().__init__(parent)  # type: ignore[call-arg]
        self._once = once

    def map(self, transform: Any) -> Any:
        return type(self)(self._parent.map(transform), self._once)

    def map_with_index(self, transform: Any) -> Any:
        return type(self)(self._parent.map_with_index(transform), self._once)

    def random_map(self, transform: Any, *, seed: int | None = None) -> Any:
        return type(self)(self._parent.random_map(transform, seed=seed), self._once)

    def seed(self, seed: int) -> Any:
        return type(self)(self._parent.seed(seed), self._once)

    def batch(self, *_: Any, **__: Any) -> NoReturn:
        raise _rearranged("batch")

    def filter(self, *_: Any, **__: Any) -> NoReturn:
        raise _rearranged("filter")


class CappedBatchIterable(_InOrder, grain.IterDataset):
    """The batches of a run as a `grain.IterDataset`, read once; made by `to_iter_dataset`."""

    def mp_prefetch(self, *arguments: Any, **options: Any) -> Any:
        return type(self)(self._parent.mp_prefetch(*arguments, **options), self._once)

    def __iter__(self) -> Any:
        if self._once is not None:
            self._once.begin()
        return self._parent.__iter__()


class CappedBatchDataset(_InOrder, grain.MapDataset):
    """The batches of a run as a `grain.MapDataset`, iterated over once; made by `batches`."""

    def __len__(self) -> int:
        return len(self._parent)

    def __getitem__(self, step: Any) -> Any:
        if isinstance(step, slice):
            raise _rearranged("slice")
        if not 0 <= step < len(self):  # grain would begin again at the first step
            raise IndexError(f"step={step} is not in [0, {len(self)}); the run has no more steps")
        return self._parent[step]

    def shuffle(self, *_: Any, **__: Any) -> NoReturn:
        raise _rearranged("shuffle")

    def repeat(self, *_: Any, **__: Any) -> NoReturn:
        raise _rearranged("repeat")

    def slice(self, *_: Any, **__: Any) -> NoReturn:
        raise _rearranged("slice")

    def to_iter_dataset(self, *arguments: Any, **options: Any) -> CappedBatchIterable:
        return CappedBatchIterable(self._parent.to_iter_dataset(*arguments, **options), self._once)


def _rearranged(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{name} would make other batches of these than were accounted for; only map them, and pass"
        " steps, shard_index and shard_count to batches"
    )


def batches(
    data: Any,
    scheme: CappedPoisson,
    steps: int,
    key: bytes | int | None = None,
    *,
    shard_index: int = 0,
    shard_count: int = 1,
    secure: bool | None = None,
    reread: bool = False,
) -> CappedBatchDataset:
    """A `grain.MapDataset` of whole batches: index it by step, or iterate and checkpoint it as any grain data set.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> run = batches({"x": np.arange(10)}, scheme, steps=3, key=b"16 secret bytes!", secure=False)
    >>> [int(batch["mask"].sum()) for batch in run], run[2]["data"]["x"]
    ([5, 4, 6], array([0, 1, 2, 4, 6, 8, 0, 0]))

    Guarantees: as for `CappedBatchSource`. Iterators resume at any step from `get_state()`, without replaying any. With
    several shards every one gets `ceil(max_batch_size / shard_count)` rows at every step, examples dealt in turn so that
    their numbers differ by one at most.

    Only map the data set. Shuffling, repeating, filtering, batching or slicing it is an error: it
    makes another mechanism, which no accountant here knows. So is a second pass over it.

    Arguments:
        data: see `CappedBatchSource`. Where the scheme's size is not public, they may have any number of rows.
        scheme: how batches are drawn.
        steps: number of steps of the whole run, as accounted.
        key: secret bytes, as for `filet.Sampler`; the same in all processes. None draws a fresh key: for one shard only.
        shard_index, shard_count: this process's part of every batch, such as `jax.process_index()` and
            `jax.process_count()`.
        secure: draw from AES-256. None: as `filet.Sampler` does.
        reread: allow several passes: to look at the batches, not to train on them.
    """
    if key is None and shard_count != 1:
        raise InvalidArgumentError("key=None draws a key for this process alone; pass the same key in all processes")
    sampler = sampler_of(scheme, key, secure, records_of(scheme, _column(data)))
    if shard_count != 1:
        sampler = sampler.shard(shard_index, shard_count)
    source = grain.MapDataset.source(CappedBatchSource(data, sampler, steps))
    return CappedBatchDataset(source, None if reread else _OnePass())


def _column(data: Any) -> Any:
    """A sequence of the data's length: the first of nested arrays, or the source of records itself."""
    while isinstance(data, (Mapping, list, tuple)) and data:
        data = next(iter(data.values() if isinstance(data, Mapping) else data))
    return data


def _check_records(data: Any, batch: Batch) -> None:
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise InvalidArgumentError(
            f"data of type {type(data).__name__} gives no access by index; pass arrays or a random-access source"
        )
    if batch.records is not None and len(data) != batch.records:
        raise InvalidArgumentError(
            "data has another number of records than the sampler; pass the data set that it was made for"
        )
    if batch.records is None and len(data) != batch.dataset_size:
        raise InvalidArgumentError(
            f"data has {len(data)} records, not scheme.dataset_size={batch.dataset_size}; pass the data set that the"
            " scheme was made for"
        )


def _map(function: Any, tree: Any) -> Any:
    """Apply to the leaves of nested dicts, lists and tuples."""
    if isinstance(tree, Mapping):
        return {name: _map(function, part) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return tuple(_map(function, part) for part in tree)
    return function(tree)


def _stacked(rows: list[Any], like: Any, path: str) -> Any:
    if isinstance(like, Mapping):
        return {name: _stacked([row[name] for row in rows], part, f"{path}[{name!r}]") for name, part in like.items()}
    if isinstance(like, tuple):
        return tuple(_stacked([row[k] for row in rows], part, f"{path}[{k}]") for k, part in enumerate(like))
    return np.stack([_shaped(row, like, path) for row in rows])


def _shaped(row: Any, like: Any, path: str) -> Any:
    """The row as an array; one of another shape or type than the first record's is refused."""
    array = np.asarray(row)
    if array.shape != like.shape or array.dtype != like.dtype:
        raise InvalidArgumentError(
            f"{path} has shape {array.shape} and type {array.dtype}, where the first record has {like.shape} and"
            f" {like.dtype}; give every record the same"
        )
    return array
