"""Two processes of one process group, and what each of them answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import multiprocessing


def two_ranks(work: Callable[..., None], *arguments: Any) -> list[Any]:
    """What `work(rank, *arguments, queue)` puts into the queue, once on each rank; an error of a rank is raised here."""
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    group = multiprocessing.spawn(work, (*arguments, queue), nprocs=2, join=False)  # type: ignore[attr-defined]
    found: list[Any] = []
    while len(found) < 2:
        if queue.empty():
            group.join(timeout=0.1)
        else:
            found.append(queue.get())
    while not group.join():
        pass
    return found
