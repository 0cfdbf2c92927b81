"""The checkpoint of a federation: the model after a number of rounds, and the settings of its run."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from filet import _checks
from filet._files import whole_file
from filet.errors import StateError

_FORMAT = "filet-cohorts 1"


def write_state(path: Path, rounds_done: int, norm: float, settings: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write the file, whole or not at all."""
    about = {"format": _FORMAT, "rounds_done": rounds_done, "norm": norm, "settings": settings, "names": list(arrays)}
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez(
            file, about=json.dumps(about), **{f"array{number}": value for number, value in enumerate(arrays.values())}
        )


def read_state(path: Path, settings: dict[str, Any]) -> tuple[int, float, dict[str, Any]]:
    """The number of rounds, the clipping norm and the arrays; a file of another run is refused."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
            about = json.loads(str(saved["about"]))
            arrays = {name: saved[f"array{number}"] for number, name in enumerate(about["names"])}
            known, found = about["format"], about["settings"]
            rounds_done, norm = int(about["rounds_done"]), float(about["norm"])
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise StateError(f"cannot read the checkpoint {str(path)!r}: {error}; restore it from a backup") from None
    if known != _FORMAT:
        raise StateError(
            f"the checkpoint's format {_checks.show(known)} is not {_FORMAT!r}; use the version that wrote it"
        )
    other = sorted(name for name in settings if found.get(name) != settings[name])
    if other or not 0 <= rounds_done <= settings["rounds"]:
        raise StateError(
            f"the checkpoint {str(path)!r} is of another run: {', '.join(other) or 'rounds_done'} differs; pass what the run"
            " began with, or another file"
        )
    return rounds_done, norm, arrays
