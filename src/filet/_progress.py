"""Progress reports of long work: one protocol for all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Progress = Callable[[float, str], None]
"""Called with the share of the work that is done, in [0, 1], and with what comes next; "done" at the end."""

_Item = TypeVar("_Item")


def reported(
    items: Sequence[_Item], progress: Progress | None, label: Callable[[_Item], str] = lambda item: ""
) -> Iterator[_Item]:
    """The items one by one, each announced with the share of them that is done.

    >>> for letter in reported("ab", lambda share, label: print(share, label), str.upper):
    ...     print(letter)
    0.0 A
    a
    0.5 B
    b
    1.0 done
    """
    if progress is None:
        yield from items
        return
    total = len(items)
    for number, item in enumerate(items):
        progress(number / total, label(item))
        yield item
    progress(1.0, "done")
