"""Secrets that tests plant in a run, and the ways in which they may stand in a record."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

from filet.showing.citing import FORMATS, cited

PLANTED = 76_543  # a number of records that is secret, and that no file has by chance


def tells(thing: object) -> bool:
    """Whether text or bytes have the planted number, or one nearby, in one of the forms that files have."""
    raw = thing if isinstance(thing, bytes) else str(thing).encode()
    for number in (PLANTED - 1, PLANTED, PLANTED + 1):
        words = [str(number), f"{number:,}", f"{number:_}", f"{number:x}"]
        forms = [word.encode() for word in words] + [struct.pack(form, number) for form in ("<I", ">I", "<d", ">d")]
        if any(form in raw for form in forms):
            return True
    return False


def folder_tells(folder: Path) -> list[str]:
    """Files of a folder that have the planted number in their name or content."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert found
    return [path.name for path in found if tells(path.read_bytes()) or tells(path.name)]


def spellings(key: bytes | int) -> list[str]:
    """The ways in which a key may stand in a text."""
    raw = key if isinstance(key, bytes) else key.to_bytes(32, "little")
    ways = [raw.hex(), base64.b64encode(raw).decode().rstrip("="), str(int.from_bytes(raw, "little")), repr(raw)[2:-1]]
    return [*ways, str(int.from_bytes(raw, "big"))]


def leaked(made: dict[str, Any], key: bytes | int, *others: str) -> list[str]:
    """What of a key, and of other secrets, stands in a record, whatever its form."""
    texts = [cited(made, form) for form in FORMATS]
    return [secret for secret in (*spellings(key), *others) if any(secret in text for text in texts)]
