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


@pytest.mark.parametrize(
    "odd", [{"seal": "\ud800"}, {"seal": "x", 3: 1}, {"seal": "x", "steps": {7}}], ids=["text", "keys", "value"]
)
def test_a_seal_that_cannot_even_be_compared_does_not_fit(odd: dict[Any, Any]) -> None:
    with pytest.raises(StateError, match="seal does not fit this key"):
        _state.unsealed({"format": "filet-accountant", **odd}, KEY)


def test_what_a_seal_means_never_changes() -> None:
    """As first released: another would refuse every state that was sealed before."""
    state = {"format": "filet-accountant", "steps": 7}
    for key, seal in (
        (KEY, "383bff29803e92e683456fe4177357833363381ab9f0e815b8ce0e7af8b7b521"),
        (2**200 + 1, "0c1d9fa68cfb11e7fe5391930834ad33a26cedf0f61caea921c5f913fb3e9d52"),
    ):
        assert _state.sealed(state, key)["seal"] == seal
        assert _state.unsealed({**state, "seal": seal}, key) == state


def test_the_sum_of_an_old_state_becomes_a_release_of_no_more_noise() -> None:
    for total in (*np.random.default_rng(0).uniform(1e-3, 1e3, 400).tolist(), 1e-300, 1.0, 3.0, 1e300):
        state = _state.upgraded({"version": 1, "gaussian": total.hex()})
        ((sigma, count),) = state["releases"]
        exact = Fraction(float.fromhex(sigma)) ** 2 * Fraction(total)
        assert count == 1
        assert 1 - Fraction(1, 10**14) < exact <= 1
    assert _state.upgraded({"version": 1, "gaussian": math.inf.hex()})["releases"] == [[(0.0).hex(), 1]]
    for wrong in ("-0x1p0", "nan"):
        with pytest.raises(StateError) as caught:
            _state.upgraded({"version": 1, "gaussian": wrong})
        gaussian = float.fromhex(wrong)
        words = f"the state's gaussian part {gaussian!r} is not in [0, inf]; restore it from a backup"
        assert str(caught.value) == words


def test_what_cannot_be_read_as_a_state_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for text, message in (
        (None, f"cannot read {str(path)!r}: No such file or directory; pass the path given to save()"),
        ("{", f"{str(path)!r} is not valid JSON: it is damaged or no accountant state"),
        ("[1]", f"{str(path)!r} holds no accountant state; pass the path given to save()"),
    ):
        if text is not None:
            path.write_text(text)
        with pytest.raises(StateError) as caught:
            Accountant.load(path)
        assert str(caught.value) == message
    run().save(path)
    with pytest.raises(InvalidArgumentError) as refused:
        Accountant.load(path, least_steps=-1)
    assert str(refused.value) == "least_steps=-1 is below 0; pass the number of steps taken so far"


PUBLIC = CappedPoisson(100, 0.1, 20)
OTHERS = [
    CappedPoisson(100, 0.1, 20, size="at-most"),
    CappedPoisson(100, 0.1, 20, overflow="reject", size="secret"),
]


@pytest.mark.parametrize("scheme", OTHERS, ids=str)
def test_a_size_that_is_not_public_comes_back_and_has_a_version_that_older_readers_refuse(
    scheme: CappedPoisson,
) -> None:
    adjacency = Accountant("zero-out").adjacency
    for phases in ([Phase(scheme, 1.0, 5)], [Phase(PUBLIC, 1.0, 5), Phase(scheme, 1.0, 5)]):
        state = _state.as_state(adjacency, phases, [])
        assert state["version"] == 3
        assert [found[0] for found in _state.from_state(state)[1]] == [phase.scheme for phase in phases]
    public = _state.as_state(adjacency, [Phase(PUBLIC, 1.0, 5)], [])
    assert public["version"] == 2
    assert "secret_size" not in public
    told = _state.as_state(adjacency, [Phase(PUBLIC, 1.0, 5)], [], secret_size=True)
    assert (told["version"], told["secret_size"]) == (3, True)


def test_what_a_checksum_means_never_changes() -> None:
    body = {"steps": [7, 8], "format": "filet-accountant", "checksum": "old"}
    assert _state.checksum(body) == "3554ded2d9e180b3a6758e6bbc9f2f139503bbca98a5a06cbf06bbad0f516ab3"


DAMAGED = "the accountant state is damaged (its checksum does not match); restore it from a backup"


@pytest.mark.parametrize(("change", "message"), [
    ({"format": "x"}, "this is no accountant state (its format is not 'filet-accountant'); pass what save() wrote"),
    ({"version": 9}, "state version 9 is unknown to this filet; install the one that wrote it"),
    ({"checksum": ""}, DAMAGED), ({"phases": {3}}, DAMAGED), ({3: 1}, DAMAGED),
])  # fmt: skip
def test_what_is_no_whole_state_is_refused(change: dict[Any, Any], message: str) -> None:
    with pytest.raises(StateError) as caught:
        Accountant.from_state_dict({**run().state_dict(), **change})
    assert str(caught.value) == message


def test_a_field_that_lacks_or_is_wrong_is_named() -> None:
    for change, message in (
        ({"steps": None}, "the accountant state lacks or garbles a field (\"'phases'\"); restore it from a backup"),
        ({"phases": [{**run().state_dict()["phases"][0], "max_batch_size": 0}]},
         "the accountant state is invalid: max_batch_size=0 is below 1; pass the number of rows the hardware takes"),
    ):  # fmt: skip
        state = {**run().state_dict(), **change}
        if "steps" in change:
            del state["phases"]
        with pytest.raises(StateError) as caught:
            Accountant.from_state_dict({**state, "checksum": _state.checksum(state)})
        assert str(caught.value) == message
