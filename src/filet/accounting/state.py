"""The accountant's state as plain JSON: written whole or not at all, read back with every damage noticed.

The checksum notices damage. It is no secret, so that whoever may write the file can also forge it, or put an older one
in its place: a seal, made with the run's key, notices the first, and a least number of steps the second.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _checks
from .._checks import show
from .._files import whole_file
from ..errors import FiletError, StateError
from ..scheme import CappedPoisson, Size
from .terms import Adjacency

if TYPE_CHECKING:
    from .terms import Phase


_FORMAT = "filet-accountant"
_VERSION = 2
_SIZES_VERSION = 3  # of states with a phase whose size is not public, which earlier versions would read as public
_READABLE = (1, 2, 3)
_SCHEME_KEYS = tuple(field.name for field in fields(CappedPoisson) if field.init and field.name != "size")


def phase_fields(phase: Phase) -> dict[str, Any]:
    """A phase as plain JSON types, the scheme's arguments first: the one place that names them."""
    return {
        **phase.scheme.to_dict(),
        "noise_multiplier": phase.noise_multiplier,
        "steps": phase.steps,
        "analysis": phase.analysis.value,
    }


def as_state(
    adjacency: Adjacency, phases: Iterable[Phase], releases: Iterable[tuple[float, int]], secret_size: bool = False
) -> dict[str, Any]:
    """The state with a checksum. Floats are written exactly (as hexadecimal), so nothing is lost on the way."""
    phases = list(phases)
    public = all(phase.scheme.size is Size.PUBLIC for phase in phases) and not secret_size
    body: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION if public else _SIZES_VERSION,
        "adjacency": adjacency.value,
        "releases": [[float(sigma).hex(), count] for sigma, count in releases],
        "phases": [
            {name: value.hex() if isinstance(value, float) else value for name, value in phase_fields(phase).items()}
            for phase in phases
        ],
        **({"secret_size": True} if secret_size else {}),
    }
    return {**body, "checksum": checksum(body)}


def checksum(body: dict[str, Any]) -> str:
    """The checksum that `as_state` writes beside the body; the same for every order of its keys."""
    return hashlib.sha256(_canonical(body, "checksum")).hexdigest()


def _canonical(body: dict[str, Any], without: str) -> bytes:
    return json.dumps({k: v for k, v in body.items() if k != without}, sort_keys=True, separators=(",", ":")).encode()


def upgraded(state: dict[str, Any]) -> dict[str, Any]:
    """A state of version 1 as one of version 2: its sum of Gaussian releases becomes one release with no more noise."""
    if state.get("version") != 1:
        return state
    total = float.fromhex(state["gaussian"])
    if not total >= 0.0:
        raise StateError(f"the state's gaussian part {total!r} is not in [0, inf]; restore it from a backup")
    sigma = 0.0 if total == math.inf else (1.0 / math.sqrt(total)) * (1 - 2.0**-50) if total else math.inf
    body = {name: value for name, value in state.items() if name not in ("gaussian", "checksum")}
    body |= {"version": _VERSION, "releases": [[sigma.hex(), 1]] if total else []}
    return {**body, "checksum": checksum(body)}


def from_state(state: Any) -> tuple[Adjacency, list[tuple[CappedPoisson, float, Any, Any]], list[tuple[float, Any]]]:
    """Adjacency, phases and Gaussian releases of a state; anything odd raises `StateError`."""
    _check_whole(state)
    try:
        state = upgraded(state)
        phases = [
            (
                CappedPoisson(
                    **{key: _number(entry[key]) for key in _SCHEME_KEYS}, size=entry.get("size", Size.PUBLIC)
                ),
                float.fromhex(entry["noise_multiplier"]),
                entry["steps"],
                entry["analysis"],
            )
            for entry in state["phases"]
        ]
        releases = [(float.fromhex(sigma), count) for sigma, count in state["releases"]]
        return Adjacency(state["adjacency"]), phases, releases
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        if isinstance(error, FiletError):
            raise StateError(f"the accountant state is invalid: {error}") from None
        what = show(str(error))
        raise StateError(f"the accountant state lacks or garbles a field ({what}); restore it from a backup") from None


def _check_whole(state: Any) -> None:
    """Refuse what is no state, one of another version, and a damaged one."""
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise StateError(f"this is no accountant state (its format is not {_FORMAT!r}); pass what save() wrote")
    if state.get("version") not in _READABLE:
        raise StateError(
            f"state version {show(state.get('version'))} is unknown to this filet; install the one that wrote it"
        )
    try:
        intact = state.get("checksum") == checksum(state)
    except (TypeError, ValueError, RecursionError):
        intact = False
    if not intact:
        raise StateError("the accountant state is damaged (its checksum does not match); restore it from a backup")


def _number(value: Any) -> Any:
    return float.fromhex(value) if isinstance(value, str) and value.startswith("0x") else value


def sealed(state: dict[str, Any], key: bytes | int) -> dict[str, Any]:
    """The state with a seal: HMAC-SHA256 of all of it, by a key that is derived from the run's."""
    return {**state, "seal": _seal(state, key)}


def unsealed(state: dict[str, Any], key: bytes | int | None) -> dict[str, Any]:
    """The state without its seal, which must fit the key; without a key there must be none."""
    if key is None:
        if "seal" in state:
            raise StateError("the accountant state is sealed; pass the key that save() was given")
        return state
    seal = state.get("seal")
    if seal is None:
        raise StateError("the accountant state has no seal; it was saved without a key, or somebody took it off")
    try:
        fits = hmac.compare_digest(str(seal).encode(), _seal(state, key).encode())
    except (TypeError, ValueError, RecursionError):
        fits = False
    if not fits:
        raise StateError("the accountant state's seal does not fit this key; pass the run's key, or restore a backup")
    return {name: value for name, value in state.items() if name != "seal"}


def _seal(state: dict[str, Any], key: bytes | int) -> str:
    # Its own `person`: the seal tells nothing of the streams that are drawn with the same key.
    secret = hashlib.blake2b(_checks.key_bytes(key), digest_size=32, person=b"filet state").digest()
    return hmac.new(secret, _canonical(state, "seal"), "sha256").hexdigest()


def check_steps(phases: Iterable[Phase], least_steps: int) -> None:
    """Refuse a state of fewer steps than the caller knows of: an older one was put in its place."""
    least = _checks.integer("least_steps", least_steps, low=0, remedy="pass the number of steps taken so far")
    steps = sum(phase.steps for phase in phases)
    if steps < least:
        raise StateError(f"the accountant state holds {steps} steps, below least_steps={least}; restore the newest one")


def write_state(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the state, whole or not at all, for its owner only."""
    with (
        whole_file(path, secret=True, error=StateError) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        json.dump(state, file, indent=2)
        file.write("\n")


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    file = Path(_checks.path(path))
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
