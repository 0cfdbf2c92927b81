# mypy: disable-error-code="import-untyped, import-not-found, type-arg", allow-subclassing-any, allow-untyped-calls
"""Batches into files, one for each range of steps, whole or not at all; and the manifest, last."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms import combiners

from filet import _checks
from filet._files import whole_file
from filet.errors import OutputError
from filet.scheme import CappedPoisson

from . import beam_formats
from .beam_join import ROWS_PER_KEY, Run, assembled, grouped_ranges, lost
from .beam_keys import KeyHandle
from .beam_reading import MANIFEST, Manifest, StoredFile, absolute, is_local, joined
from .beam_records import Fields

_PARTIAL = (".batches-", f".{MANIFEST}.")  # what a killed attempt leaves behind begins so; no reader looks at it


class WriteBatches(beam.PTransform):
    """A PTransform from `(index, example)` to files of batches and their manifest; `open_batches(path)` reads them.

    >>> from filet.integrations.beam_keys import KeyVariable
    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> write = WriteBatches("gs://bucket/run-1", scheme, steps=1000, key=KeyVariable("BATCHES_KEY"), steps_per_file=10)
    >>> write.file_name(3)
    'batches-00003-of-00100.parquet'

    Guarantees: the batches are those of `CappedPoissonBatches`. A file holds the steps of one range and can be read alone. It is
    written under another name and then renamed, and its bytes depend on the data, the key and the arguments alone: an attempt
    that failed, ran twice, or was killed changes nothing. The manifest is written last, after every file, with the scheme,
    the fields and every file's SHA-256, and without the key; without it no reader accepts the directory. On file systems
    with modes, files are for their owner only, and so is the directory if it is made here.

    Arguments:
        path: a directory on any file system that Beam knows. Files of an earlier run with the same names are replaced.
        scheme, steps, key, start, secure, rows_per_key: as for `CappedPoissonBatches`.
        format: parquet, tfrecord or avro.
        steps_per_file: steps in one file, which a worker holds in memory; about 16,384 rows by default.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        scheme: CappedPoisson,
        steps: int,
        key: KeyHandle,
        start: int = 0,
        *,
        format: str = "parquet",
        steps_per_file: int | None = None,
        secure: bool = True,
        rows_per_key: int = ROWS_PER_KEY,
    ) -> None:
        super().__init__()
        self._path = absolute(_checks.path(path))
        if format not in beam_formats.FORMATS:
            raise _checks.fail(
                f"format={_checks.show(format)} is unknown; pass one of {', '.join(beam_formats.FORMATS)}"
            )
        self._form = format
        self.run = Run.checked(
            scheme, steps, key, start, secure=secure, steps_per_range=steps_per_file, rows_per_key=rows_per_key
        )

    def file_name(self, number: int) -> str:
        """The name of the file of one range of steps."""
        return _file_name(number, self.run.ranges, self._form)

    def expand(self, examples: Any) -> Any:
        ranges, fields, key = grouped_ranges(examples, self.run)
        known = beam.pvalue.AsSingleton(fields)
        files = (
            ranges
            | "Write" >> beam.Map(_write_range, self.run, self._path, self._form, known)
            | "Files" >> combiners.ToList()
        )
        names = beam.pvalue.AsSingleton(key)
        return files | "Manifest" >> beam.Map(_write_manifest, self.run, self._path, self._form, known, names)


def _file_name(number: int, ranges: int, form: str) -> str:
    return f"batches-{number:05d}-of-{ranges:05d}.{form}"


def _write_range(element: Any, run: Run, path: str, form: str, fields: Fields) -> StoredFile:
    number, grouped = element
    content = BytesIO()
    beam_formats.write(form, content, assembled(run, number, grouped, fields), fields)
    name, steps = _file_name(number, run.ranges, form), run.steps_of(number)
    data = content.getbuffer()
    write_whole(path, name, data)
    return StoredFile(name, steps.start, steps.stop, len(data), hashlib.sha256(data).hexdigest())


def _write_manifest(
    files: Iterable[StoredFile], run: Run, path: str, form: str, fields: Fields, fingerprint: str
) -> str:
    ordered = tuple(sorted(files, key=lambda file: file.first))
    if [file.first for file in ordered] != [run.steps_of(number).start for number in range(run.ranges)]:
        raise lost(f"{len(ordered)} files of {run.ranges} were written")
    manifest = Manifest(form, run.scheme, run.secure, run.start, run.steps, fingerprint, fields, ordered)
    _remove_partial(path)
    write_whole(path, MANIFEST, manifest.to_json().encode())
    return joined(path, MANIFEST)


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
        with FileSystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            file.write(bytes(data))
        if FileSystems.exists(target):  # some file systems do not rename over a file
            FileSystems.delete([target])
        FileSystems.rename([temporary], [target])
    except Exception as error:  # file systems have errors of their own
        raise OutputError(f"cannot write {target!r}: {type(error).__name__}; choose a writable directory") from None


def _remove_partial(folder: str) -> None:
    """What killed attempts left behind. All files are in place now, so that no attempt that matters is under way."""
    if is_local(folder):
        left = [joined(folder, name) for name in _listed(folder) if name.startswith(_PARTIAL)]
        for path in left:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return
    found = FileSystems.match([joined(folder, f"{start}*") for start in _PARTIAL])
    paths = [one.path for match in found for one in match.metadata_list]
    if paths:
        FileSystems.delete(paths)


def _listed(folder: str) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        yield from os.listdir(folder)


def has_manifest(path: str) -> bool:
    """Whether a finished job's output is there."""
    name = joined(path, MANIFEST)
    return os.path.exists(name) if is_local(path) else bool(FileSystems.exists(name))
