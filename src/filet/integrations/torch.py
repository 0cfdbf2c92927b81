# mypy: disable-error-code="import-not-found", allow-subclassing-any
"""Capped Poisson batches for PyTorch: fixed-shape tensors with a mask, over workers and ranks, resumable."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError, MissingExtraError, StateError
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson

try:
    import torch
    from torch import distributed
    from torch.utils import data as torch_data
except ImportError as error:
    raise MissingExtraError("PyTorch is not installed; run: pip install 'filet[torch]'") from error

_FIXED = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


class CappedPoissonBatchSampler(torch_data.Sampler[list[int]]):
    """Index lists of a scheme's batches, for `DataLoader(batch_sampler=...)`; `loader` is the easier way.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> batches = CappedPoissonBatchSampler(scheme, steps=3, key=7)
    >>> list(batches)
    [[0, 1, 2, 4, 8, 9], [0, 3, 4, 7], [1, 6, 8]]

    Guarantees: the batches are those of `scheme.sampler(key)`. The lists hold examples only and may be empty: `-1`
    would be the last example to a data set. `PaddedCollate` adds the padding. A pass goes on where the last one
    stopped; after `steps` batches another pass is an error: no accountant allows for drawing them again.

    Arguments:
        scheme: how batches are drawn.
        steps: the number of steps of the whole run, as accounted.
        key: secret bytes, as for `filet.Sampler`; with several ranks the same on all. None draws a fresh key, which
            rank 0 hands to the others.
        epoch_steps: batches in one pass; all of them if None.
        rank, world_size: this process's part of every batch; taken from `torch.distributed` if None and initialised.
        secure: draw from AES-256; False draws from Philox, which is not cryptographic.
    """

    def __init__(
        self,
        scheme: CappedPoisson,
        steps: int,
        key: bytes | int | None = None,
        *,
        epoch_steps: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        secure: bool = True,
    ) -> None:
        self.steps = _checks.step_count(steps)
        self.epoch_steps = self.steps if epoch_steps is None else _checks.integer(
            "epoch_steps", epoch_steps, low=1, remedy="pass the number of batches in one pass, or None for all"
        )  # fmt: skip
        self.sampler = _sharded(scheme, key, rank, world_size, secure)
        self.step = 0

    @property
    def scheme(self) -> CappedPoisson:
        return self.sampler.scheme

    @property
    def rows(self) -> int:
        """Rows of every padded batch on this rank."""
        return self.sampler.rows

    def __len__(self) -> int:
        return min(self.epoch_steps, self.steps)

    def __iter__(self) -> Iterator[list[int]]:
        if self.step >= self.steps > 0:
            raise StateError(
                f"the run of steps={self.steps} is over; make a new one with a new key, and account for it"
            )
        return self._pass(range(self.step, min(self.step + self.epoch_steps, self.steps)))

    def _pass(self, steps: range) -> Iterator[list[int]]:
        for step in steps:
            batch = self.sampler[step]
            self.step = step + 1
            yield batch.indices[: batch.size].tolist()

    def state_dict(self) -> dict[str, Any]:
        """Where the run is. Contains no key: to go on with the same batches, pass the same key."""
        return {
            "step": self.step,
            "steps": self.steps,
            "scheme": repr(self.scheme),
            "secure": self.sampler.secure,
            "world_size": self.sampler.world_size,
            "key_check": self.sampler.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at the step where `state_dict` was called; a state of another run raises `StateError`."""
        here = self.state_dict()
        if not isinstance(state, Mapping) or set(state) != set(here):
            raise StateError("state is not what state_dict() of a loader returned; pass that")
        for name, value in here.items():
            if name != "step" and state[name] != value:
                shown = "" if name == "key_check" else f" ({_checks.show(state[name])}, not {_checks.show(value)})"
                name = "key" if name == "key_check" else name
                raise StateError(
                    f"the state belongs to a run with another {name}{shown}; pass the one it was saved with"
                )
        step = state["step"]
        if type(step) is not int or not 0 <= step <= self.steps:
            raise StateError(f"step={_checks.show(step)} is not in [0, {self.steps}]; the state is damaged")
        self.step = step


class PaddedCollate:
    """Collates examples and pads them with rows of zeros to a fixed number; returns the data and a mask.

    >>> dataset = torch_data.TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    >>> collate = PaddedCollate(dataset, rows=3)
    >>> collate([dataset[4]])
    ([tensor([[8., 9.],
            [0., 0.],
            [0., 0.]]), tensor([4, 0, 0])], tensor([ True, False, False]))
    >>> collate([])[1]
    tensor([False, False, False])

    Guarantees: shapes, types and structure are the same for every batch, also for an empty one. Padding is zeros,
    never some example's data.

    Arguments:
        dataset: its first example shows the structure; only shapes and types are kept.
        rows: number of rows of every batch.
        collate_fn: turns a list of examples into tensors, or nested dicts, lists and tuples of tensors, with one row
            per example; PyTorch's default if None.
    """

    def __init__(self, dataset: Any, rows: int, collate_fn: Callable[[list[Any]], Any] | None = None) -> None:
        self.rows = rows
        self._collate = torch_data.default_collate if collate_fn is None else collate_fn
        one = self._collate([dataset[0]])
        self._empty = _map(lambda leaf, path: _rows_like(leaf, 1, path)[:0].clone(), one, "data")

    def __call__(self, examples: list[Any]) -> tuple[Any, torch.Tensor]:
        size = len(examples)
        if size > self.rows:
            raise InvalidArgumentError(
                f"a batch of {size} examples does not fit rows={self.rows}; draw batches with CappedPoissonBatchSampler"
            )
        given = self._collate(examples) if size else self._empty
        padded = _map2(lambda empty, leaf, path: self._pad(empty, leaf, size, path), self._empty, given, "data")
        return padded, torch.arange(self.rows) < size

    def _pad(self, empty: torch.Tensor, leaf: Any, size: int, path: str) -> torch.Tensor:
        leaf = _rows_like(leaf, size, path)
        if leaf.shape[1:] != empty.shape[1:] or leaf.dtype != empty.dtype:
            raise InvalidArgumentError(
                f"{path} has rows of {tuple(leaf.shape[1:])} {leaf.dtype}, where the first example has"
                f" {tuple(empty.shape[1:])} {empty.dtype}; pass a collate_fn that gives every example the same shape"
            )
        padded: torch.Tensor = leaf.new_zeros((self.rows, *leaf.shape[1:]))
        padded[:size] = leaf
        return padded


class CappedPoissonLoader(torch_data.DataLoader[Any]):
    """A `DataLoader` of capped Poisson batches: yields `(data, mask)` of fixed shape. Made by `loader`.

    Guarantees: `state_dict` counts the batches that were handed out, not those that workers have prefetched, so a run
    resumes exactly. Beginning a new pass before the last one ended goes on behind the last batch handed out.
    """

    batch_sampler: CappedPoissonBatchSampler

    def __init__(
        self,
        dataset: Any,
        batch_sampler: CappedPoissonBatchSampler,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **options: Any,
    ) -> None:
        for name in _FIXED:
            if name in options:
                raise InvalidArgumentError(f"{name} is set by the scheme; leave it out")
        check_dataset(dataset, batch_sampler.scheme)
        self._step = 0
        self._passes = 0
        collate = PaddedCollate(dataset, batch_sampler.rows, collate_fn)
        super().__init__(dataset, batch_sampler=batch_sampler, collate_fn=collate, **options)

    @property
    def scheme(self) -> CappedPoisson:
        return self.batch_sampler.scheme

    def __iter__(self) -> Any:
        # With workers the batch sampler runs ahead; a pass begins behind the last batch that was handed out.
        self.batch_sampler.step = self._step
        self._passes += 1
        return self._counted(super().__iter__(), self._passes)

    def _counted(self, batches: Iterator[Any], number: int) -> Iterator[Any]:
        for batch in batches:
            if number != self._passes:
                raise StateError("another pass over this loader has begun; use one at a time")
            self._step += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Where the run is; see `CappedPoissonBatchSampler.state_dict`."""
        return {**self.batch_sampler.state_dict(), "step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind the last batch that was handed out before `state_dict` was called."""
        self.batch_sampler.load_state_dict(state)
        self._step = self.batch_sampler.step
        self._passes += 1


def loader(
    dataset: Any,
    scheme: CappedPoisson,
    steps: int,
    key: bytes | int | None = None,
    *,
    epoch_steps: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    secure: bool = True,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    **options: Any,
) -> CappedPoissonLoader:
    """A `DataLoader` that yields `(data, mask)`: capped Poisson batches in tensors of fixed shape.

    >>> dataset = torch_data.TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> for (x, y), mask in loader(dataset, scheme, steps=3, key=7):
    ...     print(tuple(x.shape), y.tolist(), int(mask.sum()))
    (8, 2) [0, 1, 2, 4, 8, 9, 0, 0] 6
    (8, 2) [0, 3, 4, 7, 0, 0, 0, 0] 4
    (8, 2) [1, 6, 8, 0, 0, 0, 0, 0] 3

    Guarantees: as for `CappedPoissonBatchSampler` and `PaddedCollate`. With several ranks each gets
    `ceil(max_batch_size / world_size)` rows at every step; the cap holds for the global batch.

    Arguments:
        dataset: of the map style, with `scheme.dataset_size` examples.
        scheme, steps, key, epoch_steps, rank, world_size, secure: see `CappedPoissonBatchSampler`.
        collate_fn: see `PaddedCollate`.
        options: for `DataLoader`: `num_workers`, `pin_memory`, `persistent_workers` and so on.
    """
    batch_sampler = CappedPoissonBatchSampler(
        scheme, steps, key, epoch_steps=epoch_steps, rank=rank, world_size=world_size, secure=secure
    )
    return CappedPoissonLoader(dataset, batch_sampler, collate_fn, **options)


def check_dataset(dataset: Any, scheme: CappedPoisson) -> None:
    """Refuse a data set that the scheme does not describe."""
    if isinstance(dataset, torch_data.IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise InvalidArgumentError(
            f"dataset of type {type(dataset).__name__} gives no access by index, which random sampling needs; pass a"
            " map-style data set"
        )
    if not hasattr(dataset, "__len__"):
        raise InvalidArgumentError(f"dataset of type {type(dataset).__name__} has no length; define __len__")
    if len(dataset) != scheme.dataset_size:
        raise InvalidArgumentError(
            f"dataset has {len(dataset)} examples, not scheme.dataset_size={scheme.dataset_size}; pass the data set"
            " that the scheme was made for"
        )


def _sharded(scheme: CappedPoisson, key: Any, rank: int | None, world_size: int | None, secure: bool) -> Sampler:
    if (rank is None) != (world_size is None):
        raise InvalidArgumentError("only one of rank and world_size was given; pass both or none")
    joined = distributed.is_available() and distributed.is_initialized()
    if rank is not None and world_size is not None:
        if key is None and world_size > 1:
            raise InvalidArgumentError("key=None draws a key for this rank alone; pass the same key on all ranks")
        return Sampler(scheme, key, secure=secure).shard(rank, world_size)
    if not joined or distributed.get_world_size() == 1:
        return Sampler(scheme, key, secure=secure)
    if key is None:
        box = [secrets.token_bytes(32)]
        distributed.broadcast_object_list(box, src=0)
        key = box[0]
    sampler = Sampler(scheme, key, secure=secure)
    mine = (repr(scheme), bool(secure), sampler.fingerprint)
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, mine)
    if any(other != mine for other in everyone):
        raise InvalidArgumentError("the ranks differ in scheme, key or secure; pass the same on all")
    return sampler.shard(distributed.get_rank(), distributed.get_world_size())


def _rows_like(leaf: Any, rows: int, path: str) -> torch.Tensor:
    if not isinstance(leaf, torch.Tensor):
        raise InvalidArgumentError(
            f"{path} is of type {type(leaf).__name__}, not a tensor; pass a collate_fn that returns tensors"
        )
    if leaf.ndim == 0 or leaf.shape[0] != rows:
        raise InvalidArgumentError(
            f"{path} of shape {tuple(leaf.shape)} has not one row per example; pass a collate_fn that stacks examples"
        )
    return leaf


def _map(function: Callable[[Any, str], Any], tree: Any, path: str) -> Any:
    return _map2(lambda leaf, _, where: function(leaf, where), tree, tree, path)


def _map2(function: Callable[[Any, Any, str], Any], tree: Any, other: Any, path: str) -> Any:
    """Apply to the leaves of two trees of the same structure."""
    if not isinstance(tree, (Mapping, list, tuple)):
        return function(tree, other, path)
    keys = list(tree) if isinstance(tree, Mapping) else range(len(tree))
    if (
        type(other) is not type(tree)
        or len(other) != len(tree)
        or (isinstance(tree, Mapping) and set(other) != set(tree))
    ):
        raise InvalidArgumentError(
            f"{path} has another structure than in the first example; pass a collate_fn that always returns the same"
        )
    parts = [_map2(function, tree[key], other[key], f"{path}[{key!r}]") for key in keys]
    if isinstance(tree, Mapping):
        return dict(zip(keys, parts, strict=True))
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
