"""Who may ask: a bounded number of open questions, and in each slot (one view of one page) only the newest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import FiletError


class BusyError(FiletError):
    """Too many questions are open."""


class SupersededError(FiletError):
    """A newer question of the same slot has taken this one's place."""


@dataclass(frozen=True)
class _Place:
    kind: str
    superseded: asyncio.Future[None]


class Desk:
    """Open questions, a bounded number of each kind, so that many of one kind cannot keep out the others.

    >>> Desk().open
    0
    """

    def __init__(self) -> None:
        self._slots: dict[str, _Place] = {}
        self._kinds: dict[str, int] = {}

    @property
    def open(self) -> int:
        """Questions that somebody waits for."""
        return sum(self._kinds.values())

    @contextlib.contextmanager
    def question(self, kind: str, most: int, slot: str | None = None) -> Iterator[asyncio.Future[None]]:
        """A place for one of at most `most` questions of a kind; the future is done when a newer one of the same slot has come."""
        if slot is not None and slot in self._slots:
            self._leave(self._slots.pop(slot))
        if self._kinds.get(kind, 0) >= most:
            raise BusyError(f"{most} questions of this kind are open already; ask again in a moment")
        place = _Place(kind, asyncio.get_running_loop().create_future())
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        if slot is not None:
            self._slots[slot] = place
        try:
            yield place.superseded
        finally:
            if slot is not None and self._slots.get(slot) is place:
                del self._slots[slot]
            self._leave(place)

    def _leave(self, place: _Place) -> None:
        """Free a place, once; whoever still works there hears of it."""
        if not place.superseded.done():
            place.superseded.set_result(None)
            self._kinds[place.kind] -= 1
