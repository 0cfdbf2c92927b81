# mypy: disable-error-code="import-not-found", allow-subclassing-any
"""Batches of tensors with a fixed number of rows: collate, pad with zeros, and say which rows are examples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filet.errors import InvalidArgumentError

from .._frameworks import needed_for

with needed_for("torch"):
    import torch
    from torch.utils import data as torch_data
    from torch.utils.data._utils.collate import collate, collate_tensor_fn, default_collate_fn_map

# Examples in memory at once. Python's garbage collector starts when 700 more objects were made than freed, and
# survivors make it traverse all objects again and again, a tenth of a second each time.
_AT_ONCE = 160

Room = dict[str, torch.Tensor]  # the tensors of a batch to be filled, by their path


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
    never some example's data. Mappings stay what the collate function returned: a `BatchEncoding` stays one.

    Arguments:
        dataset: its first example shows the structure; only shapes and types are kept.
        rows: number of rows of every batch.
        collate_fn: turns a list of examples into tensors, or nested mappings, lists and tuples of tensors, with one row
            per example; PyTorch's default if None.
    """

    def __init__(self, dataset: Any, rows: int, collate_fn: Callable[[list[Any]], Any] | None = None) -> None:
        self.rows = rows
        self._masks = torch.arange(2 * rows) < rows
        self._collate = torch_data.default_collate if collate_fn is None else collate_fn
        self.stacks = self._collate is torch_data.default_collate
        one = self._collate([dataset[0]])
        self.empty = map_leaves(lambda leaf, path: _rows_like(leaf, 1, path)[:0].clone(), one, "data")
        self.leaves: Room = {}
        map_leaves(self._note, self.empty, "data")

    def __call__(self, examples: Any) -> tuple[Any, torch.Tensor]:
        room = {path: leaf.new_empty((self.rows, *leaf.shape[1:])) for path, leaf in self.leaves.items()}
        return self.fill(room, examples), self.mask(len(examples))

    def _note(self, leaf: torch.Tensor, path: str) -> None:
        if path in self.leaves:
            raise InvalidArgumentError(
                f"two tensors are called {path}; pass a collate_fn whose keys differ when printed"
            )
        self.leaves[path] = leaf

    def mask(self, size: int) -> torch.Tensor:
        """True for the first `size` rows."""
        return self._masks[self.rows - size : 2 * self.rows - size].clone()

    def fill(self, room: Room, examples: Any) -> Any:
        """The batch in the tensors of `room`: examples first, then zeros."""
        size = len(examples)
        if size > self.rows:
            raise InvalidArgumentError(
                f"a batch of {size} examples does not fit rows={self.rows}; draw batches with CappedPoissonBatchSampler"
            )
        data = self._filled(room, examples) if size else map_leaves(lambda _, path: room[path], self.empty, "data")
        for tensor in room.values():
            tensor[size:].zero_()
        return data

    def _filled(self, room: Room, examples: Any) -> Any:
        if isinstance(examples, Rows) and self.gathers(examples.dataset):
            return _gathered(examples, room)
        if not (self.stacks and isinstance(examples, (list, Rows))):
            return self._put(self._collate(examples), len(examples), room, 0)
        starts = range(0, len(examples), _AT_ONCE)
        parts = [self._put_some(examples[start : start + _AT_ONCE], room, start) for start in starts]
        return parts[0]

    def gathers(self, dataset: Any) -> bool:
        """True if the data set is made of tensors whose rows the collate function only stacks."""
        tensors, own = _tensors(dataset), default_collate_fn_map
        stacks = self.stacks and own.get(torch.Tensor) is collate_tensor_fn and tuple not in own
        return stacks and len(tensors) == len(self.leaves) and all(map(_gives_rows, tensors, self.leaves.values()))

    def _put_some(self, examples: list[Any], room: Room, start: int) -> Any:
        return self._put(_stacked(examples), len(examples), room, start)

    def _put(self, given: Any, size: int, room: Room, start: int) -> Any:
        """Copy collated examples to the rows from `start` on; the answer has their structure, and all rows."""

        def copy_leaf(leaf: Any, empty: torch.Tensor, path: str) -> torch.Tensor:
            leaf = _rows_like(leaf, size, path)
            if leaf.shape[1:] != empty.shape[1:] or leaf.dtype != empty.dtype:
                raise InvalidArgumentError(
                    f"{path} has rows of {tuple(leaf.shape[1:])} {leaf.dtype}, where the first example has"
                    f" {tuple(empty.shape[1:])} {empty.dtype}; pass a collate_fn that gives every example the same shape"
                )
            room[path][start : start + size] = leaf
            return room[path]

        return map_two(copy_leaf, given, self.empty, "data")


class Rows:
    """Examples of a batch, which are read when they are collated: a list of all would be long."""

    def __init__(self, dataset: Any, places: NDArray[np.signedinteger[Any]]) -> None:
        self.dataset, self.places = dataset, places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, some: slice) -> list[Any]:
        dataset = self.dataset
        return [dataset[place] for place in self.places[some].tolist()]


def _tensors(dataset: Any) -> list[Any]:
    """The tensors whose rows a data set is made of; subclasses may read examples in ways of their own."""
    return list(dataset.tensors) if type(dataset) is torch_data.TensorDataset else [dataset]


def _gives_rows(tensor: Any, leaf: torch.Tensor) -> bool:
    plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.requires_grad
    return plain and tensor.dtype == leaf.dtype and tensor.shape[1:] == leaf.shape[1:]


def _gathered(rows: Rows, room: Room) -> Any:
    """The examples of tensors by one call for each, arranged as by the default collate function."""
    places = torch.from_numpy(rows.places.astype(np.int64))
    for tensor, out in zip(_tensors(rows.dataset), room.values(), strict=True):
        torch.index_select(tensor, 0, places.to(tensor.device), out=out[: len(places)])
    return room["data"] if "data" in room else list(room.values())


def _stacked(examples: list[Any]) -> Any:
    """PyTorch's default collate function, but never in shared memory: its answer is copied to where it stays."""
    return collate(examples, collate_fn_map={torch.Tensor: _stack_tensors, **_other_types()})


def _other_types() -> dict[Any, Any]:
    """Types with a collate function of their own, as registered now; tensors only if by the user."""
    return {kind: own for kind, own in default_collate_fn_map.items() if own is not collate_tensor_fn}


def _stack_tensors(tensors: Any, *, collate_fn_map: Any = None) -> torch.Tensor:
    if tensors[0].is_nested or tensors[0].layout is not torch.strided:
        collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)  # an error that says so
    return torch.stack(tensors)


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


def map_leaves(function: Callable[[Any, str], Any], tree: Any, path: str) -> Any:
    return map_two(lambda leaf, _, where: function(leaf, where), tree, tree, path)


def map_two(function: Callable[[Any, Any, str], Any], tree: Any, other: Any, path: str) -> Any:
    """Apply to the leaves of two trees of the same structure; the answer has the types of the first."""
    if isinstance(tree, Mapping):
        if not isinstance(other, Mapping) or set(other) != set(tree):
            raise _another_structure(path)
        return _mapping_like(tree, {k: map_two(function, tree[k], other[k], f"{path}[{k!r}]") for k in tree})
    if isinstance(tree, (list, tuple)):
        if type(other) is not type(tree) or len(other) != len(tree):
            raise _another_structure(path)
        parts = [map_two(function, a, b, f"{path}[{k}]") for k, (a, b) in enumerate(zip(tree, other, strict=True))]
        return _sequence_like(tree, parts)
    if isinstance(other, (Mapping, list, tuple)):
        raise _another_structure(path)
    return function(tree, other, path)


def _another_structure(path: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{path} has another structure than in the first example; pass a collate_fn that always returns the same"
    )


def _sequence_like(tree: Any, parts: list[Any]) -> Any:
    """The parts in a list or tuple of the same type; a named tuple takes them one by one."""
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)


def _mapping_like(tree: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """The parts in a mapping of the same type.

    A new one if the type can be made from a dict, so that nothing else that the old one knows of its examples remains.
    """
    if type(tree) is dict:
        return parts
    try:
        made = type(tree)(parts)  # type: ignore[call-arg]
        if set(made) == set(parts) and all(made[key] is part for key, part in parts.items()):
            return made
    except (TypeError, ValueError, KeyError):
        pass  # such as defaultdict, whose first argument is another one
    if not isinstance(tree, MutableMapping):
        return parts
    clone = copy.copy(tree)
    clone.update(parts)
    return clone
