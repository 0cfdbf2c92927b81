"""Keys: secrets that drive every random stream of a run, and never show."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np

from .. import _checks

MIN_KEY_BYTES = 16
MAX_KEY_BYTES = 64
_REMEDY = "pass 16 to 64 random bytes such as secrets.token_bytes(32), or None for a fresh key"


class Key:
    """A secret of 256 bits, hashed from what the user gave. Its `repr` shows nothing.

    >>> Key(b"sixteen bytes ok")
    Key(hidden)
    """

    __slots__ = ("secret",)

    def __init__(self, key: Any = None) -> None:
        self.secret = hashlib.blake2b(_key_bytes(key), digest_size=32, person=b"filet key").digest()

    @classmethod
    def from_secret(cls, secret: bytes) -> Key:
        """The key whose `secret` this is: for what was saved."""
        key = cls.__new__(cls)
        key.secret = bytes(secret)
        return key

    def __repr__(self) -> str:
        return "Key(hidden)"

    def derive(self, name: str, size: int) -> bytes:
        """A sub-key for the cipher called `name`; sub-keys of different names tell nothing of each other."""
        return hashlib.blake2b(name.encode(), digest_size=size, key=self.secret, person=b"filet sub-key").digest()


def _key_bytes(key: Any) -> bytes:
    """The user's key as bytes, tagged by type. No message here may contain the key."""
    if key is None:
        return b"bytes" + secrets.token_bytes(32)
    if isinstance(key, np.integer):
        key = int(key)
    if isinstance(key, int) and not isinstance(key, bool):
        if key < 0:
            raise _checks.fail(f"key is a negative integer; {_REMEDY}")
        if key.bit_length() > 256:
            raise _checks.fail(f"key is an integer of {key.bit_length()} bits, more than 256; {_REMEDY}")
        return b"int" + key.to_bytes(32, "little")
    if isinstance(key, (bytes, bytearray, memoryview)):
        data = bytes(key)
        if not MIN_KEY_BYTES <= len(data) <= MAX_KEY_BYTES:
            raise _checks.fail(f"key has {len(data)} bytes, not {MIN_KEY_BYTES} to {MAX_KEY_BYTES}; {_REMEDY}")
        return b"bytes" + data
    raise _checks.fail(f"key is of type {type(key).__name__}, not bytes or int; {_REMEDY}")
