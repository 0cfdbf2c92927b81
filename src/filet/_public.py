"""Public names belong to `filet` itself, wherever the code that defines them lives."""

from __future__ import annotations

from typing import Any, TypeVar

_T = TypeVar("_T", bound=Any)


def public(thing: _T) -> _T:
    """Say that a class or function is `filet.<name>`: in messages, in documentation, and in pickles.

    A pickle names the place of everything in it, so one written today can be read after the code has moved.
    """
    thing.__module__ = "filet"
    return thing
