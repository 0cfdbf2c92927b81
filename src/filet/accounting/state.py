"""The accountant's state as plain JSON: written whole or not at all, read back with every damage noticed."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._checks import path as checked_path
from .._checks import show
from ..errors import FiletError, StateError
from ..scheme import CappedPoisson
from .terms import Adjacency

if TYPE_CHECKING:
    from .terms import Phase


_FORMAT = "filet-accountant"
_VERSION = 1
_SCHEME_KEYS = ("dataset_size", "sampling_probability", "max_batch_size", "overflow", "cycle_length")


def as_state(adjacency: Adjacency, phases: Iterable[Phase], gaussian: float) -> dict[str, Any]:
    """The state with a checksum. Floats are written exactly (as hexadecimal), so nothing is lost on the way."""
    body: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "adjacency": adjacency.value,
        "gaussian": float(gaussian).hex(),
        "phases": [
            {
                "dataset_size": phase.scheme.dataset_size,
                "sampling_probability": phase.scheme.sampling_probability.hex(),
                "max_batch_size": phase.scheme.max_batch_size,
                "overflow": phase.scheme.overflow.value,
                "cycle_length": phase.scheme.cycle_length,
                "noise_multiplier": phase.noise_multiplier.hex(),
                "steps": phase.steps,
                "analysis": phase.analysis.value,
            }
            for phase in phases
        ],
    }
    return {**body, "checksum": _checksum(body)}


def _checksum(body: dict[str, Any]) -> str:
    text = json.dumps({k: v for k, v in body.items() if k != "checksum"}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def from_state(state: Any) -> tuple[Adjacency, list[tuple[CappedPoisson, float, Any, Any]], float]:
    """Adjacency, phases and Gaussian part of a state; anything odd raises `StateError`."""
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise StateError(f"this is no accountant state (its format is not {_FORMAT!r}); pass what save() wrote")
    if state.get("version") != _VERSION:
        raise StateError(
            f"state version {show(state.get('version'))} is unknown to this filet; install the one that wrote it"
        )
    try:
        intact = state.get("checksum") == _checksum(state)
    except (TypeError, ValueError, RecursionError):
        intact = False
    if not intact:
        raise StateError("the accountant state is damaged (its checksum does not match); restore it from a backup")
    try:
        phases = [
            (
                CappedPoisson(**{key: _number(entry[key]) for key in _SCHEME_KEYS}),
                float.fromhex(entry["noise_multiplier"]),
                entry["steps"],
                entry["analysis"],
            )
            for entry in state["phases"]
        ]
        gaussian = float.fromhex(state["gaussian"])
        if not (gaussian >= 0.0 and not math.isnan(gaussian)):
            raise StateError(f"the state's gaussian part {gaussian!r} is not in [0, inf]; restore it from a backup")
        return Adjacency(state["adjacency"]), phases, gaussian
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        if isinstance(error, FiletError):
            raise StateError(f"the accountant state is invalid: {error}") from None
        what = show(str(error))
        raise StateError(f"the accountant state lacks or garbles a field ({what}); restore it from a backup") from None


def _number(value: Any) -> Any:
    return float.fromhex(value) if isinstance(value, str) and value.startswith("0x") else value


def write_state(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write to a temporary file beside the target, flush it to disk, then rename: readers see the old or the new one."""
    target = Path(checked_path(path))
    try:
        handle, name = tempfile.mkstemp(prefix=target.name + ".", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise StateError(f"cannot write {str(target)!r}: {error.strerror}; choose a writable directory") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(state, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StateError(f"cannot write {str(target)!r}: {error.strerror}; nothing was changed") from None
        raise


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    file = Path(checked_path(path))
    try:
        text = file.read_text(encoding="utf-8")
        state = json.loads(text)
    except OSError as error:
        raise StateError(f"cannot read {str(file)!r}: {error.strerror}; pass the path given to save()") from None
    except (ValueError, RecursionError):
        raise StateError(f"{str(file)!r} is not valid JSON: it is damaged or no accountant state") from None
    if not isinstance(state, dict):
        raise StateError(f"{str(file)!r} holds no accountant state; pass the path given to save()")
    return state
