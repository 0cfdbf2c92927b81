# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Capped Poisson batches for grain: a random-access source of whole batches, so that any step is there at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from filet import _checks
from filet.errors import InvalidArgumentError, MissingExtraError
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson

try:
    import grain
except ImportError as error:
    raise MissingExtraError("grain is not installed; run: pip install 'filet[grain]'") from error


class CappedBatchSource:
    """A grain data source whose record number `t` is the batch of step `t`: `{"data": ..., "mask": ...}` of fixed shape.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> source = CappedBatchSource({"x": np.arange(10)}, scheme.sampler(7, secure=False), steps=3)
    >>> len(source), source[1]["data"]["x"], int(source[1]["mask"].sum())
    (3, array([0, 1, 2, 3, 4, 9, 0, 0]), 6)

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
            _check_records(data, sampler.scheme)
            self._empty = _map(lambda leaf: np.zeros_like(np.asarray(leaf)), data[0])
        else:
            sampler[0].take(data)  # what does not fit is refused here, not at the first step

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
        rows = [self._data[int(index)] for index in batch.indices[: batch.size]]
        rows += [self._empty] * (batch.indices.size - batch.size)
        return {"data": _stacked(rows, self._empty, "record"), "mask": batch.mask}


def batches(
    data: Any,
    scheme: CappedPoisson,
    steps: int,
    key: bytes | int | None = None,
    *,
    shard_index: int = 0,
    shard_count: int = 1,
    secure: bool | None = None,
) -> Any:
    """A `grain.MapDataset` of whole batches: index it by step, or iterate and checkpoint it as any grain data set.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> run = batches({"x": np.arange(10)}, scheme, steps=3, key=7, secure=False)
    >>> [int(batch["mask"].sum()) for batch in run], run[2]["data"]["x"]
    ([4, 6, 6], array([1, 2, 3, 7, 8, 9, 0, 0]))

    Guarantees: as for `CappedBatchSource`. Iterators resume at any step from `get_state()`, without replaying any. With
    several shards every one gets `ceil(max_batch_size / shard_count)` rows at every step, examples dealt in turn so that
    their numbers differ by one at most. Only map the data set: shuffling, repeating, filtering, slicing or sharding its
    steps makes another mechanism of it, which no accountant here knows.

    Arguments:
        data: see `CappedBatchSource`.
        scheme: how batches are drawn.
        steps: number of steps of the whole run, as accounted.
        key: secret bytes, as for `filet.Sampler`; the same in all processes. None draws a fresh key: for one shard only.
        shard_index, shard_count: this process's part of every batch, such as `jax.process_index()` and
            `jax.process_count()`.
        secure: draw from AES-256. None: as `filet.Sampler` does.
    """
    if key is None and shard_count != 1:
        raise InvalidArgumentError("key=None draws a key for this process alone; pass the same key in all processes")
    sampler = Sampler(scheme, key) if secure is None else Sampler(scheme, key, secure=secure)
    if shard_count != 1:
        sampler = sampler.shard(shard_index, shard_count)
    return grain.MapDataset.source(CappedBatchSource(data, sampler, steps))


def _check_records(data: Any, scheme: CappedPoisson) -> None:
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise InvalidArgumentError(
            f"data of type {type(data).__name__} gives no access by index; pass arrays or a random-access source"
        )
    if len(data) != scheme.dataset_size:
        raise InvalidArgumentError(
            f"data has {len(data)} records, not scheme.dataset_size={scheme.dataset_size}; pass the data set that the"
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
    arrays = [np.asarray(row) for row in rows]
    for array in arrays:
        if array.shape != like.shape or array.dtype != like.dtype:
            raise InvalidArgumentError(
                f"{path} has shape {array.shape} and type {array.dtype}, where the first record has {like.shape} and"
                f" {like.dtype}; give every record the same"
            )
    return np.stack(arrays)
