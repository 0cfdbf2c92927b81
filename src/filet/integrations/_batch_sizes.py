"""Batch sizes of PyTorch programs: that of a `DataLoader` a user brings, and parts of a batch that fit memory."""

from __future__ import annotations

from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError
from filet.scheme import CappedPoisson


def check_batch_size(data_loader: Any, scheme: CappedPoisson) -> None:
    """Refuse a `DataLoader` that was made for batches of another size than the scheme's.

    A batch size that was given is the scheme's mean, before or after the cap, or the cap itself.
    """
    size = getattr(data_loader, "batch_size", None)
    means = (scheme.poisson_batch_size, scheme.expected_batch_size)
    if size in (None, 1, scheme.max_batch_size) or any(abs(size - mean) <= 1 for mean in means):
        return
    raise InvalidArgumentError(
        f"data_loader has batch_size={size}, where the scheme draws {scheme.poisson_batch_size:g}"
        f" examples on average and {scheme.max_batch_size} at most; leave batch_size out, or make the"
        " scheme for it"
    )


def physical_batches(rows: int, physical_batch_size: int | None, rows_each: int = 1) -> int:
    """The number of physical batches that make up a rank's rows; the rows of a user stay in one of them."""
    if physical_batch_size is None:
        return 1
    remedy = "pass the rows that memory holds, and a max_batch_size that is a multiple of them on every rank"
    size = _checks.integer("physical_batch_size", physical_batch_size, low=1, remedy=remedy)
    if rows % size:
        raise InvalidArgumentError(f"physical_batch_size={size} does not divide this rank's {rows} rows; {remedy}")
    if size % rows_each:
        raise InvalidArgumentError(
            f"physical_batch_size={size} would part the {rows_each} rows of a user; pass a multiple of examples_per_user"
        )
    return rows // size
