"""Limits of open requests: a number of each kind, and one in each slot (one view of one page)."""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import FiletError


class BusyError(FiletError):
    """Too many requests are open."""

    kind = "busy"


class SupersededError(FiletError):
    """A newer request of the same slot has taken this one's place."""

    kind = "superseded"


class RequestLimiter:
    """Open requests, a bounded number of each kind, so that no kind keeps out the others.

    >>> RequestLimiter().open
    0
    """

    def __init__(self) -> None:
        self._work: dict[object, tuple[str, asyncio.Task[Any]]] = {}

    @property
    def open(self) -> int:
        return len(self._work)

    def admit(self, kind: str, most: int, slot: str | None, work: asyncio.Task[Any]) -> None:
        """Count the work of a request until it is done, and cancel older work of its slot.

        Raises `BusyError` where `most` requests of this kind are open.
        """
        key: object = object() if slot is None else slot
        if key in self._work:
            self._work.pop(key)[1].cancel()
        if sum(other == kind for other, _ in self._work.values()) >= most:
            raise BusyError(f"{most} questions of this kind are open already; ask again in a moment")
        self._work[key] = (kind, work)
        work.add_done_callback(lambda _: self._leave(key, work))

    def _leave(self, key: object, work: asyncio.Task[Any]) -> None:
        if key in self._work and self._work[key][1] is work:
            del self._work[key]
