# mypy: disable-error-code="import-not-found", allow-subclassing-any
"""Reading of batches behind a loader: whole batches at once, and workers that leave them in memory shared from the start."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._frameworks import needed_for

with needed_for("torch"):
    import torch
    from torch.utils import data as torch_data

from .padding import PaddedCollate, Room, Rows, map_leaves

_ALIGNMENT = 64  # bytes, of tensors that share memory
# Batches of a worker beyond those that it has prefetched: one that the main process copies, and one that is filled.
_IN_HAND = 2


def reader_of(loader: Any) -> Any:
    """A copy of a `CappedPoissonLoader` that reads whole batches, and packs them if workers ship them."""
    padded = loader.collate_fn
    inside: dict[str, Any] = {
        "_reader": None,
        "dataset": _Examples(loader.dataset, later=padded.stacks),
        "batch_sampler": _Batches(loader.batch_sampler),
    }
    if loader.worker_init_fn is None and padded.gathers(loader.dataset):
        inside |= {"num_workers": 0, "persistent_workers": False, "timeout": 0}
    elif loader.num_workers:
        shared = SharedCollate(padded)
        if not loader.pin_memory:  # pinning copies a worker's tensor itself
            shared.make_slots(loader.num_workers, loader.prefetch_factor + _IN_HAND)
        inside |= {"collate_fn": shared, "worker_init_fn": _WorkerStart(loader.worker_init_fn)}
    reader = copy.copy(loader)
    vars(reader).update(inside)  # a DataLoader refuses to change these once it is made
    return reader


def read(reader: Any) -> Iterator[Any]:
    """The data and mask of each batch of the next pass."""
    batches: Iterator[Any] = torch_data.DataLoader.__iter__(reader)
    return map(reader.collate_fn.received, batches) if reader.num_workers else batches


class _Batches:
    """The batch sampler, as a loader reads it: arrays of row numbers."""

    def __init__(self, batch_sampler: Any) -> None:
        self._batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[Any]:
        yield from self._batch_sampler.begin_pass()

    def __len__(self) -> int:
        return len(self._batch_sampler)


class _Examples(torch_data.Dataset[Any]):
    """A data set as a loader reads it: a whole batch at once, by the data set's own way if it has one."""

    def __init__(self, dataset: Any, *, later: bool) -> None:
        self.dataset = dataset
        self._later = later  # the collate function reads examples, some at a time

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, places: NDArray[np.signedinteger[Any]]) -> Any:
        if getattr(self.dataset, "__getitems__", None) and len(places):
            return self.dataset.__getitems__(places.tolist())
        rows = Rows(self.dataset, places)
        return rows if self._later else rows[:]


class _WorkerStart:
    """Shows workers the user's data set, and calls the user's function."""

    def __init__(self, worker_init_fn: Callable[[int], None] | None) -> None:
        self._init = worker_init_fn

    def __call__(self, worker: int) -> None:
        info: Any = torch_data.get_worker_info()
        object.__setattr__(info, "dataset", info.dataset.dataset)  # PyTorch's own assignment is refused
        if self._init is not None:
            self._init(worker)


class SharedCollate:
    """Collates in a worker into one tensor of bytes: each tensor that a process ships costs a handshake.

    With slots there is no handshake at all. A worker fills its slots in turn and ships a slot's number; `received`
    copies the batch. A `DataLoader` gives a worker its next batch only when it hands out the one that is
    `prefetch_factor` before, so that a slot is copied long before its turn comes again.

    `received` makes the data and the mask from what arrived. Structures other than plain ones, and tensors other
    than plain ones on the CPU, are shipped as they are.
    """

    def __init__(self, padded: PaddedCollate) -> None:
        self._padded = padded
        self._places: dict[str, tuple[int, int, torch.dtype, tuple[int, ...]]] = {}
        self._bytes = 0
        for path, leaf in padded.leaves.items():
            shape = (padded.rows, *leaf.shape[1:])
            end = self._bytes + leaf.element_size() * math.prod(shape)
            self._places[path] = self._bytes, end, leaf.dtype, shape
            self._bytes = -(-end // _ALIGNMENT) * _ALIGNMENT
        self._packs = bool(self._bytes) and _is_plain(padded.empty)
        self._slots: torch.Tensor | None = None
        self._count = 0  # batches that this worker has shipped

    def make_slots(self, workers: int, each: int) -> None:
        """Share memory for `each` batches of every worker, before workers begin."""
        if self._packs:
            self._slots = torch.empty((workers, each, self._bytes), dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]

    def __call__(self, examples: Any) -> Any:
        if not self._packs:
            return self._padded(examples)
        memory, shipped = self._next_memory()
        data = self._padded.fill(self._room(memory), examples)
        return map_leaves(lambda *_: None, data, "data"), shipped, len(examples)

    def _next_memory(self) -> tuple[torch.Tensor, Any]:
        """Memory for a batch, and a message that names its place to the main process."""
        if self._slots is None:
            storage: Any = torch.UntypedStorage
            memory = torch.empty(0, dtype=torch.uint8).set_(storage._new_shared(self._bytes))
            return memory, memory
        info: Any = torch_data.get_worker_info()
        slot = (info.id, self._count % self._slots.shape[1])
        self._count += 1
        return self._slots[slot], slot

    def received(self, answer: Any) -> Any:
        """The data and the mask of a worker's answer, pinned or not."""
        if not self._packs:
            return answer
        structure, shipped, size = answer
        memory = shipped if self._slots is None else self._slots[shipped].clone()
        room = self._room(memory)
        data = map_leaves(lambda _, path: room[path], structure, "data")
        mask = self._padded.mask(size)
        return type(answer)((data, mask.pin_memory() if memory.is_pinned() else mask))

    def _room(self, memory: torch.Tensor) -> Room:
        places = self._places.items()
        return {path: memory[start:end].view(kind).view(shape) for path, (start, end, kind, shape) in places}


def _is_plain(tree: Any) -> bool:
    """True for nested dicts, lists and tuples of ordinary tensors on the CPU."""
    if type(tree) is dict:
        return all(map(_is_plain, tree.values()))
    if type(tree) is list or isinstance(tree, tuple):
        return all(map(_is_plain, tree))
    ordinary = type(tree) is torch.Tensor and tree.layout is torch.strided and not tree.is_quantized
    return ordinary and tree.device.type == "cpu" and not tree.requires_grad
