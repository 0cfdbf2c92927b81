"""One batch of fixed shape: indices, mask, and the rows of a data set that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks
from .._public import public
from .draws import Indices


@public
@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """One batch of fixed shape: `size` examples in ascending order, then padding. Made by a `Sampler`.

    >>> from filet.scheme import CappedPoisson
    >>> batch = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8).sampler(key=7)[0]
    >>> batch.indices
    array([ 0,  1,  2,  4,  8,  9, -1, -1], dtype=int8)
    >>> batch.take(np.arange(100, 110))
    array([100, 101, 102, 104, 108, 109,   0,   0])

    Guarantees: the examples are distinct and come first. They are sorted, so their order says nothing that the set
    does not. Which examples these are, and how many, must stay secret: `repr` shows neither.

    Arguments:
        indices: row numbers of the data set, padded with -1; the smallest signed integer type that fits.
        mask: True for examples, False for padding.
        size: number of examples.
        dataset_size: number of rows of the data set, for `take`.
    """

    indices: Indices
    mask: NDArray[np.bool_]
    size: int
    dataset_size: int

    def __repr__(self) -> str:
        return f"Batch(<{self.indices.size} rows, contents hidden>, dataset_size={self.dataset_size})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return self.dataset_size == other.dataset_size and np.array_equal(self.indices, other.indices)

    __hash__ = None  # type: ignore[assignment]

    def take(self, data: Any, fill: Any = 0) -> Any:
        """The batch's rows of an array, or of every array in nested dicts, lists and tuples; padding rows hold `fill`.

        Arguments:
            data: arrays with `dataset_size` rows each; their types and trailing shapes are kept. None stays None.
            fill: what padding rows hold; it must fit every array's type.
        """
        _check_leaves(data, fill, self.dataset_size, "data")
        return map_leaves(lambda leaf: self._rows(leaf, fill), data)

    def _rows(self, leaf: Any, fill: Any) -> NDArray[Any]:
        array = np.asarray(leaf)
        shape = (self.indices.size, *array.shape[1:])
        rows = np.zeros(shape, array.dtype) if _is_zero(fill) else np.full(shape, fill, array.dtype)
        rows[: self.size] = array[self.indices[: self.size]]
        return rows


def _children(tree: Any) -> list[tuple[str, Any]] | None:
    """The named parts of a container; None for a leaf."""
    if isinstance(tree, Mapping):
        return [(f"[{_checks.show(name)}]", part) for name, part in tree.items()]
    if isinstance(tree, (list, tuple)):
        return [(f"[{number}]", part) for number, part in enumerate(tree)]
    return [] if tree is None else None


def _check_leaves(tree: Any, fill: Any, rows: int, path: str) -> None:
    children = _children(tree)
    if children is not None:
        for name, part in children:
            _check_leaves(part, fill, rows, path + name)
        return
    shape = getattr(tree, "shape", None)
    if not isinstance(shape, tuple) or not hasattr(tree, "dtype"):
        raise _checks.fail(
            f"{path} is of type {type(tree).__name__}, not an array; pass arrays, or dicts, lists and tuples of arrays"
        )
    if not shape or shape[0] != rows:
        has = f"has {shape[0]} rows" if shape else "has no rows"
        raise _checks.fail(f"{path} {has}, not dataset_size={rows}; pass the whole data set, one row per example")
    _check_fill(fill, np.asarray(tree[:0]).dtype, path)


def map_leaves(function: Any, tree: Any) -> Any:
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return type(tree)({name: map_leaves(function, part) for name, part in tree.items()})  # type: ignore[call-arg]
    if isinstance(tree, (list, tuple)):
        parts = [map_leaves(function, part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(tree)


def _is_zero(fill: Any) -> bool:
    return isinstance(fill, (int, float)) and fill == 0


def _check_fill(fill: Any, dtype: np.dtype[Any], path: str) -> None:
    """Refuse a value that the type would change (0.5 in an integer array); every type has a zero."""
    if _is_zero(fill):
        return
    try:
        with np.errstate(all="ignore"):  # a cast that changes the value is refused below
            one = np.full((), fill, dtype=dtype)
            # A plain number is rounded to the data's own precision, whatever NumPy's version would compare it in.
            plain = (
                dtype.kind in ("f", "c")
                and isinstance(fill, (int, float, complex))
                and not isinstance(fill, np.generic)
            )
            kept = bool(one == (dtype.type(fill) if plain else fill)) or bool(one != one and fill != fill)
            # Too large a number has become infinite, on both sides of the comparison.
            if kept and dtype.kind in ("f", "c"):
                kept = bool(np.isfinite(one) == np.isfinite(fill))
    except (TypeError, ValueError, OverflowError):
        kept = False
    if not kept:
        raise _checks.fail(f"fill={_checks.show(fill)} does not fit {path} of type {dtype}; pass a value of that type")
