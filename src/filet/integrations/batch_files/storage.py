# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""Files of batches on any storage: read whole, written whole or not at all, listed.

Local paths go through the operating system. A path with a scheme (`s3://`, `gs://`, ...) goes
through fsspec; one whose scheme fsspec does not know goes through Beam's file systems.
"""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from filet import _checks
from filet._files import whole_file
from filet.errors import FiletError, InvalidArgumentError, OutputError, StateError


def is_local(path: str) -> bool:
    """True if a path is one of this machine's, rather than of an object store."""
    return "://" not in path


def absolute(path: str) -> str:
    """A path that means the same to a worker that starts in another directory."""
    return os.path.abspath(path) if is_local(path) else path


def joined(path: str, name: str) -> str:
    """The path of a file in a directory, on any storage."""
    return os.path.join(path, name) if is_local(path) else f"{path.rstrip('/')}/{name}"


class Remote(Protocol):
    """Storage behind a path with a scheme: what filet asks of it, with full paths."""

    def open(self, path: str) -> Any:
        """The file, opened for reading."""

    def write(self, path: str, data: bytes | memoryview) -> None:
        """A new file."""

    def rename(self, path: str, target: str) -> None:
        """A file under another name, in place of whatever had that name."""

    def exists(self, path: str) -> bool:
        """True if the file is there."""

    def matching(self, pattern: str) -> list[str]:
        """The files whose paths match a pattern with `*` and `?`."""

    def delete(self, paths: list[str]) -> None:
        """Remove files."""


class _Fsspec:
    def __init__(self, files: Any) -> None:
        self._files = files

    def open(self, path: str) -> Any:
        return self._files.open(path, "rb")

    def write(self, path: str, data: bytes | memoryview) -> None:
        self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        self._files.pipe_file(path, bytes(data))

    def rename(self, path: str, target: str) -> None:
        self._files.mv(path, target)

    def exists(self, path: str) -> bool:
        self._files.invalidate_cache()
        return bool(self._files.exists(path))

    def matching(self, pattern: str) -> list[str]:
        self._files.invalidate_cache()
        return [self._files.unstrip_protocol(one) for one in self._files.glob(pattern)]

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            self._files.rm_file(path)


class _Beam:
    def __init__(self, files: Any) -> None:
        self._files = files

    def open(self, path: str) -> Any:
        return self._files.open(path, compression_type="uncompressed")

    def write(self, path: str, data: bytes | memoryview) -> None:
        with self._files.create(path, compression_type="uncompressed") as file:
            file.write(bytes(data))

    def rename(self, path: str, target: str) -> None:
        if self._files.exists(target):  # some file systems do not rename over a file
            self._files.delete([target])
        self._files.rename([path], [target])

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(path))

    def matching(self, pattern: str) -> list[str]:
        return [one.path for match in self._files.match([pattern]) for one in match.metadata_list]

    def delete(self, paths: list[str]) -> None:
        if paths:
            self._files.delete(paths)


def remote(path: str) -> Remote:
    """The storage of a path with a scheme; one that nothing installed here knows is an error."""
    scheme = path.partition("://")[0]
    with contextlib.suppress(ImportError, ValueError):  # no fsspec, no package for it, or unknown
        import fsspec.core

        return _Fsspec(fsspec.core.url_to_fs(path)[0])
    try:
        from apache_beam.io.filesystems import FileSystems
    except ImportError:
        raise _checks.fail(
            f"nothing here reads {scheme}:// paths; install fsspec and its package for them, or pass a local path"
        ) from None
    return _Beam(FileSystems)


def opened(path: str) -> BinaryIO:
    """A file, opened for reading, wherever it is."""
    if is_local(path):
        return open(path, "rb")
    file: BinaryIO = remote(path).open(path)
    return file


def content_of(path: str) -> NDArray[np.uint8]:
    """A whole file as bytes that may be written to; one that cannot be read is a `StateError`.

    A copy of its own, not a memory map: what was checked stays as it was, whatever happens to the
    file, and a file that is cut short meanwhile cannot end the process.
    """
    try:
        if is_local(path):
            return np.fromfile(path, dtype=np.uint8)
        with opened(path) as file:
            return np.frombuffer(bytearray(file.read()), dtype=np.uint8)
    except FiletError:
        raise
    except Exception as error:  # file systems have errors of their own
        is_told = isinstance(error, OSError) and error.strerror
        reason = error.strerror if is_told else type(error).__name__  # type: ignore[attr-defined]
        raise StateError(f"cannot read {path!r}: {reason}; restore it, or run the job again") from None


def exists(path: str) -> bool:
    """True if a file is there."""
    return os.path.exists(path) if is_local(path) else remote(path).exists(path)


def matching(pattern: str) -> list[str]:
    """The files of a pattern or a directory, sorted by name; hidden ones and marks such as _SUCCESS are no data."""
    is_folder = "*" not in pattern and is_local(pattern) and os.path.isdir(pattern)
    pattern = os.path.join(pattern, "*") if is_folder else pattern
    found = glob.glob(pattern) if is_local(pattern) else remote(pattern).matching(pattern)
    paths = sorted(path for path in found if not os.path.basename(path).startswith((".", "_")))
    if not paths:
        raise InvalidArgumentError(
            f"no file matches {pattern!r}; pass a directory, or a pattern such as data/*.parquet"
        )
    return paths


def write_whole(folder: str, name: str, data: bytes | memoryview) -> None:
    """A file in a directory, for its owner only, whole or not at all; an older one of that name is replaced."""
    if not is_local(folder):
        _write_remote(folder, name, data)
        return
    target = joined(folder, name)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.path.exists(target):
            os.chmod(target, 0o600)  # an existing file keeps its mode, and others may have made it
    except OSError as error:
        raise OutputError(f"cannot write {target!r}: {error.strerror}; choose a writable directory") from None
    with whole_file(target, secret=True) as temporary:
        temporary.write_bytes(data)


def _write_remote(folder: str, name: str, data: bytes | memoryview) -> None:
    target = joined(folder, name)
    temporary = joined(folder, f".{name}.{secrets.token_hex(6)}")
    try:
        storage = remote(folder)
        storage.write(temporary, data)
        storage.rename(temporary, target)
    except FiletError:
        raise
    except Exception as error:  # file systems have errors of their own
        raise OutputError(f"cannot write {target!r}: {type(error).__name__}; choose a writable directory") from None


def remove_partial(folder: str, starts: tuple[str, ...]) -> None:
    """Remove what killed attempts left behind: files of a directory whose names begin so."""
    if is_local(folder):
        for name in _listed(folder):
            if name.startswith(starts):
                with contextlib.suppress(OSError):
                    os.unlink(joined(folder, name))
        return
    storage = remote(folder)
    storage.delete([one for start in starts for one in storage.matching(joined(folder, f"{start}*"))])


def _listed(folder: str) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        yield from os.listdir(folder)
