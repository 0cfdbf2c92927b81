"""Files that are written whole or not at all, and JSON that all programs read alike."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import FiletError, OutputError

_SHOWN, _SECRET = 0o666, 0o600  # the user's umask narrows the first; nothing widens the second


@contextlib.contextmanager
def whole_file(
    path: str | os.PathLike[str], *, secret: bool = False, error: type[FiletError] = OutputError
) -> Iterator[Path]:
    """A temporary path beside the target that replaces it at the end of the block, or vanishes on any error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder, "a.txt")) as temporary:
    ...         _ = temporary.write_text("all of it")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.txt']

    Guarantees: readers see the old file or the new one, also after a power failure. A new file is readable as the
    umask allows, a `secret` one by its owner only, at every moment; an existing file keeps its mode. A symbolic link is
    followed: what it points to is replaced, not the link.

    Arguments:
        path: the file to write.
        secret: whether a new file is for its owner only.
        error: the class to raise where the operating system refuses.
    """
    name, target, mode, temporary = _begun(path, secret, error)
    try:
        yield temporary
        _flush(temporary)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(target)
    except OSError as failure:
        raise error(f"cannot write {name!r}: {failure.strerror or failure}; nothing was changed") from None
    finally:
        temporary.unlink(missing_ok=True)
    # The file is in place; a file system that cannot flush a directory (some network shares) takes nothing back.
    with contextlib.suppress(OSError):
        _flush(target.parent)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise what `whole_file` would raise, before any work is done for the file."""
    _begun(path, False, OutputError)[3].unlink()


def _begun(path: str | os.PathLike[str], secret: bool, error: type[FiletError]) -> tuple[str, Path, int | None, Path]:
    """The file's name, the target of its links, the target's mode, and a new, empty file beside it."""
    from . import _checks

    name = _checks.path(path)
    target = Path(os.path.realpath(name))
    try:
        mode = _mode(target)
        if mode is not None and not target.is_file():  # a directory, a device, a link that leads back to itself
            raise error(f"cannot write {name!r}: it is not a regular file; choose another name")
        return name, target, mode, _created(target, _SHOWN if mode is None and not secret else _SECRET)
    except FiletError:
        raise
    except OSError as failure:
        raise error(f"cannot write {name!r}: {failure.strerror}; choose a writable directory") from None


def _mode(target: Path) -> int | None:
    """The mode of an existing file; None if there is none yet."""
    try:
        return stat.S_IMODE(target.lstat().st_mode) & 0o777
    except FileNotFoundError:
        return None


def _created(target: Path, mode: int) -> Path:
    """A new, empty file beside the target; the kernel applies the umask to its mode."""
    short = target.name[:100]  # the operating system limits names, and this one is longer than the target's
    temporary = target.with_name(f".{short}.{secrets.token_hex(6)}{target.suffix[:20]}")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    return temporary


def _flush(path: Path) -> None:
    """Ask the operating system to put a file, or the names in a directory, onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def plain_json(text: str | bytes) -> Any:
    """Read JSON in which no key appears twice in one object; anything else is a `ValueError` or `RecursionError`.

    Programs differ in which of two equal keys they read, so people could be shown another claim than was checked.

    >>> plain_json('{"epsilon": 1.0, "epsilon": 8.0}')
    Traceback (most recent call last):
    ValueError: the key 'epsilon' appears twice in one object
    """
    return json.loads(text, object_pairs_hook=_without_twins)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:40]!a} appears twice in one object")
    return found
