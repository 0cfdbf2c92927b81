"""Keys: secrets that drive every random stream of a run, and the files that hold them."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import sys
import warnings
from typing import Any

import numpy as np

from .. import _checks
from ..errors import OutputError

MIN_KEY_BYTES = 16
MAX_KEY_BYTES = 64
SAFE_INTEGERS = 2**64  # smaller ones may be found by trying them all
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
        """The key with this `secret`, which was saved."""
        key = cls.__new__(cls)
        key.secret = bytes(secret)
        return key

    def __repr__(self) -> str:
        return "Key(hidden)"

    def derive(self, name: str, size: int) -> bytes:
        """A sub-key for the cipher called `name`.

        Sub-keys of different names tell nothing of each other.
        """
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
        if key < SAFE_INTEGERS:
            warn_of_short_key("key is an integer below 2**64", _REMEDY)
        return b"int" + key.to_bytes(32, "little")
    if isinstance(key, (bytes, bytearray, memoryview)):
        data = bytes(key)
        if not MIN_KEY_BYTES <= len(data) <= MAX_KEY_BYTES:
            raise _checks.fail(f"key has {len(data)} bytes, not {MIN_KEY_BYTES} to {MAX_KEY_BYTES}; {_REMEDY}")
        return b"bytes" + data
    raise _checks.fail(f"key is of type {type(key).__name__}, not bytes or int; {_REMEDY}")


def warn_of_short_key(fact: str, remedy: str) -> None:
    """Warn that a secret can be found by trying, at the first caller's line that is not filet's."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "filet":
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    consequence = "which can be found by trying: batches and noise would not be secret"
    warnings.warn(f"{fact}, {consequence}; {remedy}", stacklevel=level)


def read_key_file(path: str | os.PathLike[str]) -> bytes:
    """The key in a file of 16 to 64 bytes; on POSIX, one that others can read or write is refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_key_file(os.path.join(folder, "run.key"))
    ...     len(read_key_file(os.path.join(folder, "run.key")))
    32
    """
    name = _checks.path(path)
    try:
        with open(name, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_KEY_BYTES + 1)
    except OSError as error:
        raise _checks.fail(f"cannot read the key file {name!r}: {error.strerror}; pass a readable file") from None
    if os.name == "posix" and mode & 0o077:
        raise _checks.fail(
            f"the key file {name!r} has mode {stat.S_IMODE(mode):04o}, so that others have access; run chmod 600 {name}"
        )
    if not MIN_KEY_BYTES <= len(data) <= MAX_KEY_BYTES:
        has = f"{len(data)} bytes" if len(data) <= MAX_KEY_BYTES else f"more than {MAX_KEY_BYTES} bytes"
        raise _checks.fail(
            f"the key file {name!r} holds {has}, not {MIN_KEY_BYTES} to {MAX_KEY_BYTES}; make one with write_key_file"
        )
    return data


def write_key_file(path: str | os.PathLike[str]) -> None:
    """A new file of 32 fresh random bytes that only its owner can read.

    An existing file is never replaced.
    """
    name = _checks.path(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(name, flags, 0o600)
    except FileExistsError:
        raise OutputError(f"cannot write {name!r}: it exists, and a key is not replaced; choose another name") from None
    except OSError as error:
        raise OutputError(f"cannot write {name!r}: {error.strerror}; choose a writable directory") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        os.unlink(name)
        raise OutputError(f"cannot write {name!r}: {error.strerror}; nothing was changed") from None
