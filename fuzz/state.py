"""Saved states: any bytes restore an accountant exactly as it was composed, or raise `StateError`, and change no file.

Every input is read twice: as it is, and with its checksum made right, so that mutations reach the fields behind it. Asked
for with a key, nothing is restored that was not sealed with it.
"""

from __future__ import annotations

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from filet.accounting import state as _state
from filet.accounting.accountant import Accountant
from filet.errors import FiletError, NotCertifiedError, StateError
from filet.scheme import CappedPoisson

from .common import NUMBERS, WORDS, check_accountant, check_message, edited, epsilon_of, is_quick

HEX = ("0x1.0000000000000p+0", "0x1.999999999999ap-4", "-0x1p0", "0x1p5", "0x0.0p+0", "0x0.0000000000001p-1022", "10")
OTHERS: tuple[Any, ...] = (None, True, False, 0, 1, -1, 3.7, 12.0, 2**63 - 1, 2**63, 1e308, [], {})
VALUES: tuple[Any, ...] = (*HEX, *NUMBERS, *WORDS, *OTHERS, "filet-accountant")
DELTA = 1e-5
KEY = bytes(range(32))


@lru_cache(maxsize=1)
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="filet-fuzz-"))


def check(data: bytes) -> None:
    _check_file(data)
    forged = _with_right_checksum(data)
    if forged is not None:
        _check_file(forged)
    for unsealed in (data, forged or b""):
        _check_no_seal(unsealed)


def _with_right_checksum(data: bytes) -> bytes | None:
    try:
        state = json.loads(data)
        return json.dumps({**state, "checksum": _state.checksum(state)}).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _check_file(data: bytes) -> None:
    path = _folder() / "state.json"
    path.write_bytes(data)
    try:
        restored = Accountant.load(path)
    except FiletError as error:
        check_message(error)
        assert isinstance(error, StateError), f"a bad state raises {type(error).__name__}: {error}"
        return
    finally:
        assert path.read_bytes() == data
    _check_restored(restored, json.loads(data))
    restored.save(path)
    assert Accountant.load(path).state_dict() == restored.state_dict()
    restored.save(path, key=KEY)
    assert Accountant.load(path, key=KEY).state_dict() == restored.state_dict()
    assert [file.name for file in path.parent.iterdir()] == ["state.json"], "a file is left behind"


def _check_no_seal(data: bytes) -> None:
    """Nobody without the key makes a state that passes for one of the key's."""
    path = _folder() / "state.json"
    path.write_bytes(data)
    try:
        Accountant.load(path, key=KEY)
    except StateError as error:
        check_message(error)
    else:
        raise AssertionError("a state that was never sealed passes for a sealed one")


def _check_restored(restored: Accountant, state: dict[str, Any]) -> None:
    """What was restored costs the same as the file's phases, composed one by one from its text."""
    by_hand = Accountant(state["adjacency"])
    for phase in state["phases"]:
        rate, noise = (float.fromhex(phase[name]) for name in ("sampling_probability", "noise_multiplier"))
        scheme = CappedPoisson(
            phase["dataset_size"], rate, phase["max_batch_size"], phase["overflow"], phase["cycle_length"]
        )
        by_hand.compose(scheme, noise, phase["steps"], analysis=phase["analysis"])
    for sigma, count in _state.upgraded(state)["releases"]:
        by_hand.compose_gaussian(float.fromhex(sigma), count)
    assert restored.phases == by_hand.phases
    assert restored.curve().releases == by_hand.curve().releases
    if "gaussian" in state:  # version 1 kept their sum only, which may be rounded up but not down
        assert restored.curve().gaussian >= float.fromhex(state["gaussian"])
    check_accountant(restored, DELTA)
    if is_quick(by_hand):
        expected = epsilon_of(json.dumps(restored.state_dict()), DELTA)
        assert expected == _epsilon(by_hand), "the restored accountant has another epsilon"


def _epsilon(accountant: Accountant) -> float | None:
    try:
        return float(accountant.curve().epsilon(DELTA))
    except NotCertifiedError:
        return None


def mutate(data: bytes, random: Random) -> bytes:
    """A change of one field, one phase or one name, so that the file stays JSON."""
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return bytes(edited(list(data), random))
    nodes = list(_containers(state))
    if not nodes:
        return json.dumps(random.choice(VALUES)).encode()
    node = random.choice(nodes)
    if isinstance(node, list):
        node[:] = edited(node, random) if node and random.random() < 0.7 else [*node, random.choice(VALUES)]
    elif random.random() < 0.15 or not node:
        node[random.choice(("unknown", "steps", "phases", "version", "seal"))] = random.choice(VALUES)
    else:
        name = random.choice(list(node))
        if random.random() < 0.15:
            del node[name]
        else:
            node[name] = random.choice((random.choice(VALUES), *node.values()))
    return json.dumps(state).encode()


def _containers(value: Any) -> list[Any]:
    """Every list and dictionary of a JSON value, without recursion (inputs may be deep)."""
    found, left = [], [value]
    while left:
        node = left.pop()
        if isinstance(node, (list, dict)):
            found.append(node)
            left += node.values() if isinstance(node, dict) else node
    return found
