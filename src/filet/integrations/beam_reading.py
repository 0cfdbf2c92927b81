"""Batches from files: in order, from any step on, each file checked before it is believed. Needs no Beam for local files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from filet import _checks
from filet.errors import FiletError, StateError
from filet.sampling.draws import index_dtype
from filet.scheme import CappedPoisson

from . import beam_formats
from .beam_records import Field, Fields, StoredBatch

MANIFEST = "manifest.json"
SCHEMA = "filet.batches.v1"
_KEYS = {
    "schema",
    "version",
    "format",
    "scheme",
    "secure",
    "start",
    "steps",
    "fingerprint",
    "fields",
    "files",
    "checksum",
}


@dataclass(frozen=True)
class StoredFile:
    """One file of a run: its name, the steps in it, its size and its SHA-256."""

    name: str
    first: int
    stop: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a directory of batches holds: public facts, not the key."""

    form: str
    scheme: CappedPoisson
    secure: bool
    start: int
    steps: int
    fingerprint: str
    fields: Fields
    files: tuple[StoredFile, ...]

    def to_json(self) -> str:
        """The manifest as text, with a checksum of itself."""
        from filet import __version__

        content = {
            "schema": SCHEMA,
            "version": __version__,
            "format": self.form,
            "scheme": self.scheme.to_dict(),
            "secure": self.secure,
            "start": self.start,
            "steps": self.steps,
            "fingerprint": self.fingerprint,
            "fields": [field.to_dict() for field in self.fields],
            "files": [vars(file) for file in self.files],
        }
        return json.dumps({**content, "checksum": _checksum(content)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, path: str) -> Manifest:
        """The manifest of a text; whatever is wrong with it is a `StateError` that names the path."""
        try:
            content = json.loads(text)
            claimed = content.pop("checksum")
            if {*content, "checksum"} != _KEYS or content["schema"] != SCHEMA or _checksum(content) != claimed:
                raise ValueError("not a manifest, or not as it was written")
            fields = tuple(Field(one["name"], one["dtype"], tuple(one["shape"])) for one in content["fields"])
            files = tuple(StoredFile(**one) for one in content["files"])
            scheme = CappedPoisson(**content["scheme"])
            plain = {name: content[name] for name in ("secure", "start", "steps", "fingerprint")}
            return cls(form=content["format"], scheme=scheme, fields=fields, files=files, **plain)
        except (ValueError, TypeError, KeyError, AttributeError, FiletError):
            raise StateError(
                f"{path!r} is damaged or no manifest of batches; restore it, or run the job again"
            ) from None


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def is_local(path: str) -> bool:
    """Whether a path is one of this machine's, rather than of another of Beam's file systems."""
    return "://" not in path


def absolute(path: str) -> str:
    """A path that means the same to a worker that starts in another directory."""
    return os.path.abspath(path) if is_local(path) else path


def joined(path: str, name: str) -> str:
    """The path of a file in a directory, on any file system."""
    return os.path.join(path, name) if is_local(path) else f"{path.rstrip('/')}/{name}"


def content_of(path: str) -> bytes:
    """A whole file; one that cannot be read is a `StateError` that names it."""
    try:
        if is_local(path):
            with open(path, "rb") as file:
                return file.read()
        systems = beam_formats.package("apache_beam.io.filesystems")
        with systems.FileSystems.open(path, compression_type="uncompressed") as remote:
            return bytes(remote.read())
    except FiletError:
        raise
    except Exception as error:  # file systems have errors of their own
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise StateError(f"cannot read {path!r}: {reason}; restore it, or run the job again") from None


class StoredBatches(Sequence[StoredBatch]):
    """The batches of a finished job, in order; made by `open_batches`."""

    def __init__(
        self, path: str, manifest: Manifest, steps: range, *, rank: int = 0, world_size: int = 1, as_dicts: bool = False
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.steps = steps
        self.rank, self.world_size = rank, world_size
        self._as_dicts = as_dicts
        self._open: tuple[str, list[StoredBatch]] | None = None

    @property
    def scheme(self) -> CappedPoisson:
        """How the batches were drawn."""
        return self.manifest.scheme

    def __repr__(self) -> str:
        return f"StoredBatches({self.path!r}, {self.scheme!r}, {self.steps!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": None}  # a worker process opens files itself

    def _like(self, **changes: Any) -> StoredBatches:
        now = {"steps": self.steps, "rank": self.rank, "world_size": self.world_size, "as_dicts": self._as_dicts}
        return StoredBatches(self.path, self.manifest, **{**now, **changes})

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> StoredBatches: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return self._like(steps=self.steps[place])
        batch = self._batch(self.steps[place])
        if self.world_size > 1:
            batch = _share(batch, self.rank, self.world_size)
        return {"step": batch.step, "data": batch.data, "mask": batch.mask} if self._as_dicts else batch

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def dicts(self) -> StoredBatches:
        """The same batches as `{"step", "data", "mask"}`: what `DataLoader(..., batch_size=None)` makes tensors of."""
        return self._like(as_dicts=True)

    def shard(self, rank: int, world_size: int) -> StoredBatches:
        """One rank's part of every batch: the rows that `sampler.shard(rank, world_size)` has."""
        if self.world_size > 1:
            raise _checks.fail(f"world_size={self.world_size} is set already; call shard on the whole run")
        world_size = _checks.integer("world_size", world_size, low=1, remedy="pass the number of ranks")
        rank = _checks.integer("rank", rank, low=0, high=world_size - 1, remedy="pass this rank, from 0 on")
        return self._like(rank=rank, world_size=world_size)

    def verify(self) -> None:
        """Read every file of these steps and compare its checksum; the first that is damaged is a `StateError`."""
        for file in self.manifest.files:
            if file.first < self.steps.stop and file.stop > self.steps.start:
                self._checked(file)

    def _batch(self, step: int) -> StoredBatch:
        files = self.manifest.files
        width = files[0].stop - files[0].first  # of all but the last
        file = files[(step - self.manifest.start) // width]
        if self._open is None or self._open[0] != file.name:
            self._open = file.name, self._decoded(file)  # one file at a time is in memory
        return self._open[1][step - file.first]

    def _checked(self, file: StoredFile) -> bytes:
        path = joined(self.path, file.name)
        content = content_of(path)
        if len(content) != file.size or hashlib.sha256(content).hexdigest() != file.sha256:
            raise StateError(f"{path!r} is not the file that the manifest names; restore it, or run the job again")
        return content

    def _decoded(self, file: StoredFile) -> list[StoredBatch]:
        scheme = self.scheme
        dtype = index_dtype(scheme.dataset_size)
        batches = []
        for step, indices, mask, data in beam_formats.read(
            self.manifest.form, self._checked(file), self.manifest.fields
        ):
            small = indices.astype(dtype)
            batches.append(StoredBatch(small, mask, int(mask.sum()), scheme.dataset_size, step, data))
        return batches


def open_batches(path: str | os.PathLike[str], start: int | None = None) -> StoredBatches:
    """The batches that a job wrote, in order: a sequence with `len`, indexing and slices, which pickles.

    >>> open_batches("no/such/run")
    Traceback (most recent call last):
        ...
    filet.StateError: cannot read 'no/such/run/manifest.json': No such file or directory; restore it, or run the job again

    Guarantees: batch `k` is that of step `start + k`, equal to the in-memory sampler's. A file is believed only if its SHA-256
    is the manifest's; a missing or damaged one is a `StateError` that names it, missing ones already here. A directory
    without a manifest, such as that of a job that was killed, is refused.

    Arguments:
        path: the directory that the job wrote.
        start: the step to go on at; None for the first one there is.
    """
    folder = _checks.path(path)
    name = joined(folder, MANIFEST)
    manifest = Manifest.from_json(_text(content_of(name), name), name)
    _check_files(folder, manifest)
    first = manifest.start if start is None else _checks.integer(
        "start", start, low=manifest.start, high=manifest.steps, remedy="pass a step that the job has written"
    )  # fmt: skip
    return StoredBatches(folder, manifest, range(first, manifest.steps))


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise StateError(f"{name!r} is damaged or no manifest of batches; restore it, or run the job again") from None


def _check_files(folder: str, manifest: Manifest) -> None:
    """Every file is there and has its size: what is missing is known before the first step, not in the middle of a run."""
    if not is_local(folder):
        return  # a question for every file is slow on object stores; their files are checked as they are opened
    for file in manifest.files:
        path = joined(folder, file.name)
        try:
            size = os.stat(path).st_size
        except OSError as error:
            raise StateError(f"cannot read {path!r}: {error.strerror}; restore it, or run the job again") from None
        if size != file.size:
            raise StateError(f"{path!r} has {size} bytes, not {file.size}; restore it, or run the job again")


def _share(batch: StoredBatch, rank: int, world_size: int) -> StoredBatch:
    rows = -(-batch.indices.size // world_size)

    def part(array: NDArray[Any], fill: Any) -> NDArray[Any]:
        mine = array[rank::world_size]
        if mine.shape[0] == rows:
            return mine
        end = np.full((rows - mine.shape[0], *mine.shape[1:]), fill, dtype=mine.dtype)
        return np.concatenate([mine, end])

    indices = part(batch.indices, -1)
    data = {name: part(array, b"" if array.dtype == object else 0) for name, array in batch.data.items()}
    size = int((indices >= 0).sum())
    return replace(batch, indices=indices, mask=indices >= 0, size=size, data=data)
