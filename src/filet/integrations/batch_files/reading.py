"""Batches from files: in order, from any step on, each file checked before it is believed. Needs no Beam for local files."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from filet import _checks
from filet.errors import StateError
from filet.scheme import CappedPoisson

from . import formats
from .manifest import MANIFEST, Manifest, StoredFile
from .records import StoredBatch, stored_dtype
from .storage import content_of, is_local, joined


class ReadOnce:
    """The last step that was read, for each share of the batches; no earlier one is read again."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], int] = {}

    def check(self, step: int, share: tuple[int, int]) -> None:
        """Raise if a later step of this share was read already."""
        last = self._last.get(share, step)
        if step < last:
            raise StateError(
                f"step {step} was asked for after step {last}, but a run takes its steps once and in"
                " order; slice the run for epochs (batches[a:b]), or open it with reread=True to look"
                " at it without training"
            )
        self._last[share] = step


class ReadAhead:
    """A file that a thread reads, checks and decodes while the one before it is in use."""

    def __init__(self, number: int, read: Callable[[int], list[StoredBatch]]) -> None:
        self.number = number
        self._read = read
        self._process = os.getpid()
        self._found: list[StoredBatch] | BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._read(self.number)
        except BaseException as error:  # raised again by whoever asks for the file
            self._found = error

    def result(self) -> list[StoredBatch]:
        """The batches of the file, or the error that they end in."""
        if os.getpid() != self._process:  # a forked process has no copy of the thread
            return self._read(self.number)
        self._thread.join()
        if not isinstance(self._found, list):
            raise self._found or StateError("a file was not read; open the run again")
        return self._found


class StoredBatches(Sequence[StoredBatch]):
    """The batches of a finished job, in order; made by `open_batches`."""

    def __init__(
        self,
        path: str,
        manifest: Manifest,
        steps: range,
        *,
        rank: int = 0,
        world_size: int = 1,
        as_dicts: bool = False,
        once: ReadOnce | None = None,
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.steps = steps
        self.rank, self.world_size = rank, world_size
        self._as_dicts = as_dicts
        self._once = once
        self._open: tuple[int, list[StoredBatch]] | None = None
        self._ahead: ReadAhead | None = None
        self._last: int | None = None

    @property
    def scheme(self) -> CappedPoisson:
        """The scheme by which the batches were drawn."""
        return self.manifest.scheme

    def __repr__(self) -> str:
        return f"StoredBatches({self.path!r}, {self.scheme!r}, {self.steps!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_open": None, "_ahead": None}  # a worker process opens files itself

    def _like(self, **changes: Any) -> StoredBatches:
        now = {
            "steps": self.steps,
            "rank": self.rank,
            "world_size": self.world_size,
            "as_dicts": self._as_dicts,
            "once": self._once,
        }
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
        step = self.steps[place]
        if self._once is not None:
            self._once.check(step, (self.rank, self.world_size))
        batch = self._batch(step)
        if self.world_size > 1:
            batch = _share(batch, self.rank, self.world_size)
        return {"step": batch.step, "data": batch.data, "mask": batch.mask} if self._as_dicts else batch

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __getitems__(self, places: Sequence[int]) -> NoReturn:
        """Refuse a `DataLoader` with a batch size, which asks for several batches at once."""
        raise _checks.fail(
            f"{len(places)} batches were asked for as one, and each is a whole step already; pass"
            " batch_size=None to the DataLoader"
        )

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
        number = (step - self.manifest.start) // width
        if self._open is None or self._open[0] != number:
            self._open = number, self._opened(number)
        goes_on = self._last is not None and step > self._last  # a first look reads one file only
        if goes_on and self._ahead is None and number + 1 < len(files) and files[number + 1].first < self.steps.stop:
            self._ahead = ReadAhead(number + 1, self._decoded)
        self._last = step
        return self._open[1][step - files[number].first]

    def _opened(self, number: int) -> list[StoredBatch]:
        self._open = None  # so that two files at most are in memory
        ahead, self._ahead = self._ahead, None
        return ahead.result() if ahead is not None and ahead.number == number else self._decoded(number)

    def _checked(self, file: StoredFile) -> NDArray[np.uint8]:
        path = joined(self.path, file.name)
        content = content_of(path)
        if content.size != file.size or hashlib.sha256(content.data).hexdigest() != file.sha256:
            raise StateError(f"{path!r} is not the file that the manifest names; restore it, or run the job again")
        return content

    def _decoded(self, number: int) -> list[StoredBatch]:
        content = self._checked(self.manifest.files[number])
        size = self.scheme.dataset_size
        dtype = stored_dtype(self.scheme)
        return [
            StoredBatch(indices.astype(dtype), mask, int(np.count_nonzero(mask)), size, step, data)
            for step, indices, mask, data in formats.read(self.manifest.form, content, self.manifest.fields)
        ]


def open_batches(
    path: str | os.PathLike[str],
    start: int | None = None,
    *,
    reread: bool = False,
) -> StoredBatches:
    """The batches that a job wrote, in order: a sequence with `len`, indexing and slices, which pickles.

    >>> open_batches("no/such/run")
    Traceback (most recent call last):
        ...
    filet.StateError: cannot read 'no/such/run/manifest.json': No such file or directory; restore it, or run the job again

    Guarantees: batch `k` is that of step `start + k`, equal to the in-memory sampler's. A file is believed only if its SHA-256
    is the manifest's; a missing or damaged one is a `StateError` that names it, missing ones already here. A directory
    without a manifest, such as that of a job that was killed, is refused.

    Steps are read once and in order, by loops, indices and slices alike: an earlier step than the
    last one is a `StateError`, as no accountant allows for a second pass. (The worker processes of
    a `DataLoader` count each for themselves, and only as long as they live.)

    Arguments:
        path: the directory that the job wrote.
        start: the step to go on at; None for the first one there is.
        reread: allow steps to be read in any order and again: to look at a run, not to train on it.
    """
    folder = _checks.path(path)
    name = joined(folder, MANIFEST)
    manifest = Manifest.from_json(_text(content_of(name).tobytes(), name), name)
    _check_files(folder, manifest)
    first = manifest.start if start is None else _checks.integer(
        "start", start, low=manifest.start, high=manifest.steps, remedy="pass a step that the job has written"
    )  # fmt: skip
    once = None if reread else ReadOnce()
    return StoredBatches(folder, manifest, range(first, manifest.steps), once=once)


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
