"""States: what was saved comes back, damage is noticed, and with a key so are changes and roll-backs."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import stat
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.settings import SETTINGS

import filet
from filet import Accountant, CappedPoisson, InvalidArgumentError, StateError
from filet.accounting import state as _state
from filet.accounting.terms import Phase

A = SETTINGS["A"]
KEY = bytes(range(32))


def run() -> Accountant:
    accountant = Accountant("replace-one")
    accountant.compose(A.scheme(), 1.1, 70)
    accountant.compose(SETTINGS["E"].scheme("reject"), 0.1 + 0.2, 7)
    accountant.compose_gaussian(3.3)
    return accountant


def test_a_saved_accountant_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    whole = run()
    whole.compose(A.scheme(), 1.1, 30)
    run().save(path)
    resumed = Accountant.load(path)
    resumed.compose(A.scheme(), 1.1, 30)
    assert resumed.state_dict() == whole.state_dict()
    assert resumed.epsilon(1e-6) == whole.epsilon(1e-6)
    assert os.listdir(tmp_path) == ["state.json"]


def test_any_damage_to_a_state_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    run().save(path)
    good = path.read_text()
    rng = np.random.default_rng(0)
    for _ in range(150):
        position = int(rng.integers(len(good)))
        kind = rng.integers(3)
        damaged = good[:position] + ("" if kind == 0 else "7" if kind == 1 else good[position:][::-1])
        damaged += good[position + 1 :] if kind < 2 else ""
        path.write_text(damaged)
        try:
            restored = Accountant.load(path)
        except StateError as error:
            assert "\n" not in str(error)
        else:
            assert restored.state_dict() == json.loads(good)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StateError):
        Accountant.load(path)
    with pytest.raises(StateError, match="cannot read"):
        Accountant.load(tmp_path / "absent.json")
    with pytest.raises(StateError, match="cannot write"):
        run().save(tmp_path / "no" / "such" / "folder.json")
    with pytest.raises(StateError):
        Accountant.from_state_dict([])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 3.7),  # was cut to 3
        ("steps", "10"),
        ("steps", -1),
        ("steps", 2**63),
        ("noise_multiplier", "10"),  # hexadecimal 16, which nobody who writes 10 means
        ("noise_multiplier", "nan"),
        ("sampling_probability", 0.1),
        ("dataset_size", "0x1p10"),
        ("analysis", "none"),
        ("unknown", 1),
    ],
)
def test_a_state_that_save_would_not_write_is_refused(name: str, value: object) -> None:
    """Also with a checksum that fits: a field read as something else would change the answer."""
    state = run().state_dict()
    state["phases"][0][name] = value
    with pytest.raises(StateError):
        Accountant.from_state_dict({**state, "checksum": _state.checksum(state)})


@pytest.mark.parametrize("phases", ["", {}, None, [[]]])
def test_a_state_whose_phases_are_no_list_is_refused(phases: object) -> None:
    state = {**run().state_dict(), "phases": phases}
    with pytest.raises(StateError):
        Accountant.from_state_dict({**state, "checksum": _state.checksum(state)})


def test_a_state_nested_beyond_pythons_stack_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(StateError):
        Accountant.from_state_dict({**run().state_dict(), "phases": deep})


@pytest.mark.parametrize("path", [5, None, "a\0b", b"a\0b"])
def test_paths_that_are_none_are_refused_in_words(path: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="path="):
        run().save(path)
    with pytest.raises(InvalidArgumentError, match="path="):
        Accountant.load(path)


def _save_many(path: Path, count: int) -> None:
    for _ in range(count):
        run().save(path)


@pytest.mark.long
def test_two_processes_never_leave_a_broken_state_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    run().save(path)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_save_many, args=(path, 40)) for _ in range(2)]
    for writer in writers:
        writer.start()
    expected = run().state_dict()
    while any(writer.is_alive() for writer in writers):
        assert Accountant.load(path).state_dict() == expected
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_phase_is_written_once_with_every_argument_of_its_scheme() -> None:
    scheme = CappedPoisson(1_000, 0.1, 120, "reject", cycle_length=4)  # type: ignore[arg-type]
    fields = _state.phase_fields(Phase(scheme, 1.5, 7))
    assert fields == {**scheme.to_dict(), "noise_multiplier": 1.5, "steps": 7, "analysis": "refined"}
    accountant = Accountant("zero-out")
    accountant.compose(scheme, 1.5, 7)
    [entry] = accountant.state_dict()["phases"]
    assert list(entry) == list(fields)
    assert (entry["sampling_probability"], entry["noise_multiplier"]) == ((0.1).hex(), (1.5).hex())


@pytest.mark.parametrize("key", [KEY, 12345, np.int64(7)])
def test_a_sealed_state_comes_back_with_its_key_and_no_other(tmp_path: Path, key: Any) -> None:
    path = tmp_path / "state.json"
    run().save(path, key=key)
    assert Accountant.load(path, key=key).state_dict() == run().state_dict()
    with pytest.raises(StateError, match="does not fit this key"):
        Accountant.load(path, key=bytes(32))
    with pytest.raises(StateError, match="is sealed; pass the key"):
        Accountant.load(path)


def test_the_same_number_as_bytes_is_another_key(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    run().save(path, key=7)
    with pytest.raises(StateError, match="does not fit"):
        Accountant.load(path, key=(7).to_bytes(32, "little"))


def test_a_forged_state_with_a_right_checksum_is_noticed_by_the_seal_only(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    run().save(path, key=KEY)
    state = json.loads(path.read_text())
    seal = state.pop("seal")
    state["phases"][0]["steps"] = 1
    state["checksum"] = _state.checksum(state)
    assert Accountant.from_state_dict(state).phases[0].steps == 1  # the checksum is no secret
    for forged in (
        {**state, "seal": seal},
        {**state, "seal": None},
        {**state, "seal": 5},
        {**state, "seal": "\u00e9"},
        state,
    ):
        path.write_text(json.dumps(forged))
        with pytest.raises(StateError, match="seal"):
            Accountant.load(path, key=KEY)


def test_a_seal_does_not_depend_on_the_layout_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    run().save(path, key=KEY)
    state = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(state.items()))))
    assert Accountant.load(path, key=KEY).state_dict() == run().state_dict()


def test_an_older_state_in_the_newest_ones_place_is_noticed_by_its_steps(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    run().save(path, key=KEY)  # 77 steps
    assert Accountant.load(path, key=KEY, least_steps=77).state_dict() == run().state_dict()
    with pytest.raises(StateError, match="holds 77 steps, below least_steps=78"):
        Accountant.load(path, key=KEY, least_steps=78)
    with pytest.raises(InvalidArgumentError, match="least_steps=-1 is below 0"):
        Accountant.load(path, key=KEY, least_steps=-1)


@pytest.mark.parametrize("key", [b"short", b"x" * 65, -1, 2**256, True, "text", 1.5])
def test_what_is_no_key_is_refused_without_showing_it(tmp_path: Path, key: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^key ") as caught:
        run().save(tmp_path / "state.json", key=key)
    assert "short" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_seal_tells_nothing_of_the_streams_key() -> None:
    from filet.sampling.keys import Key

    state = run().state_dict()
    assert _state.sealed(state, KEY)["seal"] != _state.sealed(state, Key(KEY).secret)["seal"]


def test_a_linked_state_is_replaced_where_it_is_and_keeps_its_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    run().save(real)
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    real.chmod(0o640)
    link.symlink_to("real.json")
    Accountant("zero-out").save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert Accountant.load(real).adjacency.value == "zero-out"


def test_what_cannot_be_written_is_said_in_the_words_of_a_state(tmp_path: Path) -> None:
    with pytest.raises(
        StateError, match=r"^cannot write '.*': No such file or directory; choose a writable directory$"
    ):
        run().save(tmp_path / "no" / "state.json")
    with pytest.raises(StateError, match="not a regular file"):
        run().save(tmp_path)


def test_releases_are_added_up_exactly_whatever_their_order() -> None:
    one, other = filet.Accountant("zero-out"), filet.Accountant("zero-out")
    one.compose_gaussian(1.0)
    for _ in range(2_000):
        one.compose_gaussian(1e8, 100)
        other.compose_gaussian(1e8, 100)
    other.compose_gaussian(1.0)
    assert one.state_dict() == other.state_dict()
    exact = 1 + Fraction(200_000, 10**16)
    assert exact <= Fraction(one.curve().gaussian) <= exact * (1 + Fraction(1, 2**48))
    # 1.2e-8 of this delta would be lost with the small ones
    assert one.delta(36.0) >= one.curve().delta_bounds(36.0).lower > 0.0
    alone = filet.Accountant("zero-out")
    alone.compose_gaussian(1.0)
    assert one.delta(36.0) > alone.delta(36.0) * (1 + 1e-9)


def test_a_state_of_version_1_is_read_with_its_sum_rounded_up() -> None:
    for total in (0.0, 1.0, 0.1, 3e-7, 2.0**-1000, math.inf):
        body: dict[str, Any] = {"format": "filet-accountant", "version": 1, "adjacency": "zero-out", "phases": [],
                                "gaussian": total.hex()}  # fmt: skip
        restored = filet.Accountant.from_state_dict({**body, "checksum": _state.checksum(body)}).curve()
        assert total <= restored.gaussian <= total * (1 + 1e-14)
        assert restored.epsilon(0.5) == math.inf if total == math.inf else math.isfinite(restored.epsilon(0.5))
