"""The manifest of a directory of batches: what a job wrote, with the SHA-256 of every file and of itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from filet.errors import FiletError, StateError
from filet.scheme import CappedPoisson

from .records import Field, Fields

MANIFEST = "manifest.json"
# Version 2 has one more format; versions of filet that know only the first refuse it.
SCHEMAS = {"filet.batches.v1": ("parquet", "tfrecord", "avro"), "filet.batches.v2": ("arrow",)}
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
    """Contents of a directory of batches: the scheme, with the sizes it is for, and its files; not the key.

    A number of records that is secret is not in it. But sizes of files depend on how many rows were drawn, except for
    Arrow files of fixed-size fields: keep it with the batches.
    """

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
            "schema": next(name for name, forms in SCHEMAS.items() if self.form in forms),
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
            if {*content, "checksum"} != _KEYS or _checksum(content) != claimed:
                raise ValueError("not a manifest, or not as it was written")
            if content["format"] not in SCHEMAS.get(content["schema"], ()):
                raise StateError(
                    f"{path!r} is of the kind {content['schema']!r}, format {content['format']!r}, which this version"
                    " of filet does not know; read it with a newer one"
                )
            fields = tuple(Field(one["name"], one["dtype"], tuple(one["shape"])) for one in content["fields"])
            files = tuple(StoredFile(**one) for one in content["files"])
            scheme = CappedPoisson(**content["scheme"])
            plain = {name: content[name] for name in ("secure", "start", "steps", "fingerprint")}
            return cls(form=content["format"], scheme=scheme, fields=fields, files=files, **plain)
        except StateError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, FiletError):
            raise StateError(
                f"{path!r} is damaged or no manifest of batches; restore it, or run the job again"
            ) from None


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
