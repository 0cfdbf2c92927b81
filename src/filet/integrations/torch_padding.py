# mypy: disable-error-code="import-not-found", allow-subclassing-any
"""Batches of tensors with a fixed number of rows: collate, pad with zeros, and say which rows are examples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from filet.errors import InvalidArgumentError, MissingExtraError

try:
    import torch
    from torch.utils import data as torch_data
except ImportError as error:
    raise MissingExtraError("PyTorch is not installed; run: pip install 'filet[torch]'") from error


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
        padded = _map2(lambda leaf, empty, path: self._pad(leaf, empty, size, path), given, self._empty, "data")
        return padded, torch.arange(self.rows) < size

    def _pad(self, leaf: Any, empty: torch.Tensor, size: int, path: str) -> torch.Tensor:
        leaf = _rows_like(leaf, size, path)
        if leaf.shape[1:] != empty.shape[1:] or leaf.dtype != empty.dtype:
            raise InvalidArgumentError(
                f"{path} has rows of {tuple(leaf.shape[1:])} {leaf.dtype}, where the first example has"
                f" {tuple(empty.shape[1:])} {empty.dtype}; pass a collate_fn that gives every example the same shape"
            )
        padded: torch.Tensor = leaf.new_zeros((self.rows, *leaf.shape[1:]))
        padded[:size] = leaf
        return padded


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
    """Apply to the leaves of two trees of the same structure; the answer has the types of the first."""
    if isinstance(tree, Mapping):
        if not isinstance(other, Mapping) or set(other) != set(tree):
            raise _another_structure(path)
        return _mapping_like(tree, {k: _map2(function, tree[k], other[k], f"{path}[{k!r}]") for k in tree})
    if isinstance(tree, (list, tuple)):
        if type(other) is not type(tree) or len(other) != len(tree):
            raise _another_structure(path)
        parts = [_map2(function, a, b, f"{path}[{k}]") for k, (a, b) in enumerate(zip(tree, other, strict=True))]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if isinstance(other, (Mapping, list, tuple)):
        raise _another_structure(path)
    return function(tree, other, path)


def _another_structure(path: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{path} has another structure than in the first example; pass a collate_fn that always returns the same"
    )


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
