"""One batch of fixed shape: indices, mask, and the rows of a data set that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks
from .._public import public
from .draws import Indices


@public
@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """One batch of fixed shape: `size` examples in ascending order, then padding.

    Made by a `Sampler`.

    >>> from filet.scheme import CappedPoisson
    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> batch = scheme.sampler(key=b"16 secret bytes!")[0]
    >>> batch.indices
    array([ 0,  1,  8,  9, -1, -1, -1, -1], dtype=int8)
    >>> batch.take(np.arange(100, 110))
    array([100, 101, 108, 109,   0,   0,   0,   0])

    Guarantees: the examples are distinct and come first. They are sorted, so their order says
    nothing that the set does not. Which examples these are, and how many, must stay secret: `repr`
    shows neither.

    Arguments:
        indices: row numbers of the data set, padded with -1; the smallest signed integer type that
            fits.
        mask: True for examples, False for padding.
        size: number of examples.
        dataset_size: the scheme's number of examples.
        records: number of rows of the data set, for `take`, where that is a secret; None:
            `dataset_size`.
    """

    indices: Indices
    mask: NDArray[np.bool_]
    size: int
    dataset_size: int
    records: int | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return f"Batch(<{self.indices.size} rows, contents hidden>, dataset_size={self.dataset_size})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        return self.dataset_size == other.dataset_size and np.array_equal(self.indices, other.indices)

    __hash__ = None  # type: ignore[assignment]

    def take(self, data: Any, fill: Any = 0) -> Any:
        """The batch's rows of an array, or of every array in nested dicts, lists and tuples.

        Padding rows hold `fill`.

        Arguments:
            data: arrays with `dataset_size` rows each (`records`, where that is a secret); their
                types and trailing shapes are kept. None stays None.
            fill: what padding rows hold; it must fit every array's type.
        """
        _check_leaves(data, fill, self, "data")
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


def _check_leaves(tree: Any, fill: Any, batch: Batch, path: str) -> None:
    children = _children(tree)
    if children is not None:
        for name, part in children:
            _check_leaves(part, fill, batch, path + name)
        return
    shape = getattr(tree, "shape", None)
    if not isinstance(shape, tuple) or not hasattr(tree, "dtype"):
        raise _checks.fail(
            f"{path} is of type {type(tree).__name__}, not an array; pass arrays, or dicts, lists and tuples of arrays"
        )
    _check_rows(shape, batch, path)
    _check_fill(fill, np.asarray(tree[:0]).dtype, path)


def _check_rows(shape: tuple[int, ...], batch: Batch, path: str) -> None:
    rows = batch.dataset_size if batch.records is None else batch.records
    if shape and shape[0] == rows:
        return
    if batch.records is not None:  # a secret number
        raise _checks.fail(f"{path} has not as many rows as the sampler's records; pass the whole data set")
    has = f"has {shape[0]} rows" if shape else "has no rows"
    raise _checks.fail(f"{path} {has}, not dataset_size={rows}; pass the whole data set, one row per example")


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


def _survives(fill: Any, dtype: np.dtype[Any]) -> bool:
    """True if the value is the same after a cast to the type."""
    one = np.full((), fill, dtype=dtype)
    floating = dtype.kind in ("f", "c")
    # A plain number is rounded to the data's own precision, whatever NumPy's version would compare it in.
    plain = floating and isinstance(fill, (int, float, complex)) and not isinstance(fill, np.generic)
    same = bool(one == (dtype.type(fill) if plain else fill)) or bool(one != one and fill != fill)
    # Too large a number has become infinite, on both sides of the comparison.
    return same and (not floating or bool(np.isfinite(one) == np.isfinite(fill)))


def _check_fill(fill: Any, dtype: np.dtype[Any], path: str) -> None:
    """Refuse a value that the type would change (0.5 in an integer array).

    Every type has a zero.
    """
    if _is_zero(fill):
        return
    try:
        with np.errstate(all="ignore"):  # a cast that changes the value is refused below
            kept = _survives(fill, dtype)
    except (TypeError, ValueError, OverflowError):
        kept = False
    if not kept:
        raise _checks.fail(f"fill={_checks.show(fill)} does not fit {path} of type {dtype}; pass a value of that type")
