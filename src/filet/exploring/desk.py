"""Who may ask: a bounded number of open questions, and in each slot (one view of one page) only the newest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from ..errors import FiletError


class BusyError(FiletError):
    """Too many questions are open."""


class SupersededError(FiletError):
    """A newer question of the same slot has taken this one's place."""


class Desk:
    """Open questions, at most `most` of them.

    >>> desk = Desk(most=1)
    >>> desk.open
    0
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._slots: dict[str, asyncio.Future[None]] = {}
        self.open = 0

    @contextlib.contextmanager
    def question(self, slot: str | None) -> Iterator[asyncio.Future[None]]:
        """A place for one question; the future is done when a newer one of the same slot has come."""
        superseded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if slot is not None:
            older = self._slots.pop(slot, None)
            if older is not None and not older.done():
                older.set_result(None)
                self.open -= 1  # it ends by itself; its place is free now
        if self.open >= self._most:
            raise BusyError(f"{self._most} questions are open already; ask again in a moment")
        if slot is not None:
            self._slots[slot] = superseded
        self.open += 1
        try:
            yield superseded
        finally:
            if not superseded.done():
                self.open -= 1
            if slot is not None and self._slots.get(slot) is superseded:
                del self._slots[slot]
