"""Batches into files, one for each range of steps, whole or not at all; and the manifest, last."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from filet import _checks

from . import formats
from .job import Run, lost
from .manifest import MANIFEST, Manifest, StoredFile
from .records import Fields, StoredBatch
from .storage import absolute, exists, joined, remove_partial, write_whole

# What a killed attempt leaves behind begins so; no reader looks at it.
_PARTIAL = (".batches-", f".{MANIFEST}.")


@dataclass(frozen=True)
class Output:
    """A directory that a run is written to, and the format of its files."""

    run: Run
    path: str
    form: str

    @classmethod
    def checked(cls, run: Run, path: str | os.PathLike[str], form: Any) -> Output:
        """An output whose path and format keep their rules."""
        if form not in formats.FORMATS:
            raise _checks.fail(f"format={_checks.show(form)} is unknown; pass one of {', '.join(formats.FORMATS)}")
        return cls(run, absolute(_checks.path(path)), form)

    def file_name(self, number: int) -> str:
        """The name of the file of one range of steps."""
        return f"batches-{number:05d}-of-{self.run.ranges:05d}.{self.form}"

    def write_range(self, number: int, batches: Iterable[StoredBatch], fields: Fields) -> StoredFile:
        """Write the file of one range of steps."""
        content = BytesIO()
        formats.write(self.form, content, batches, fields)
        name, steps = self.file_name(number), self.run.steps_of(number)
        data = content.getbuffer()
        write_whole(self.path, name, data)
        digest = hashlib.sha256(data).hexdigest()
        return StoredFile(name, steps.start, steps.stop, len(data), digest)

    def write_manifest(self, files: Iterable[StoredFile], fields: Fields, fingerprint: str) -> str:
        """Write the manifest behind all files; an error if one of them is missing. Its path."""
        run = self.run
        ordered = tuple(sorted(files, key=lambda file: file.first))
        starts = [run.steps_of(number).start for number in range(run.ranges)]
        if [file.first for file in ordered] != starts:
            raise lost(f"{len(ordered)} files of {run.ranges} were written")
        facts = (run.scheme, run.secure, run.start, run.steps)
        manifest = Manifest(self.form, *facts, fingerprint, fields, ordered)
        # All files are in place now, so that no attempt that matters is under way.
        remove_partial(self.path, _PARTIAL)
        write_whole(self.path, MANIFEST, manifest.to_json().encode())
        return joined(self.path, MANIFEST)


def has_manifest(path: str) -> bool:
    """True if a finished job's output is there."""
    return exists(joined(path, MANIFEST))
