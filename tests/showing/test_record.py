"""A record holds what its run guarantees, and whatever is changed in it is found."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

import filet
from filet import Accountant, CappedPoisson, InvalidArgumentError, NotCertifiedError, StateError
from filet.accounting.state import checksum
from filet.showing.record import read_record, record, run_of, verify, write_record

SCHEME = CappedPoisson(1_000, 0.05, 70)
CURVE = filet.account(SCHEME, noise_multiplier=2.0, steps=100, adjacency="zero-out")
MADE = record(CURVE, 1e-5, unit="one sequence of 1,024 tokens", title="a test")


def several() -> filet.PrivacyCurve:
    accountant = Accountant("add-remove")
    accountant.compose(SCHEME, 2.0, 50)
    accountant.compose(CappedPoisson(1_000, 0.01, None), math.inf, 50)
    accountant.compose(CappedPoisson(1_000, 0.01, 30, overflow="reject", cycle_length=4), 1.5, 50)
    accountant.compose_gaussian(9.0, 3)
    return accountant.curve()


def sealed(made: dict[str, Any]) -> dict[str, Any]:
    """The record with a checksum that fits: whoever changes a field can do that too."""
    return {**made, "checksum": checksum(made)}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key], (*path, key))]
    if isinstance(value, list):
        return [leaf for number in range(len(value)) for leaf in leaves(value[number], (*path, number))]
    return [path]


def changed(made: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(made)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def other(value: Any) -> list[Any]:
    """Values that somebody might put into a field's place."""
    if isinstance(value, float):
        return [value * 0.99, value * 1.01 + 0.001, str(value), None]
    if isinstance(value, int):
        return [value + 1, float(value)]
    return ["other words", None] if value is None or isinstance(value, str) else []


@pytest.mark.parametrize("curve", [CURVE, several()], ids=["one phase", "several"])
def test_a_record_survives_json_and_is_verified(curve: filet.PrivacyCurve) -> None:
    made = record(curve, 1e-5)
    read = json.loads(json.dumps(made, allow_nan=False))
    assert read == made
    assert verify(read) == []
    again, delta = run_of(read)
    assert (again.epsilon(delta), delta) == (curve.epsilon(1e-5), 1e-5)


def test_the_fields_are_the_curves_own() -> None:
    bounds = CURVE.epsilon_bounds(1e-5)
    assert MADE["guarantee"]["epsilon"] == bounds.upper
    assert MADE["guarantee"]["epsilon_lower"] == bounds.lower
    assert MADE["risk"]["membership_advantage"] == CURVE.membership_advantage()
    assert MADE["attack"]["attack_epsilon"] <= bounds.upper
    assert MADE["privacy_unit"]["unit"] == "one sequence of 1,024 tokens"


FREE = {("title",), ("privacy_unit", "unit"), ("checksum",), ("certificate",)}


@pytest.mark.parametrize("path", [p for p in leaves(MADE) if p not in FREE and p[0] != "made_with"], ids=str)
def test_a_changed_field_is_refused_even_with_a_fitting_checksum(path: tuple[Any, ...]) -> None:
    value: Any = MADE
    for key in path:
        value = value[key]
    for one in other(value):
        if one == value:
            continue
        try:
            found = verify(sealed(changed(MADE, path, one)))
        except StateError:
            continue
        assert found, one
        assert all("\n" not in line for line in found)


def test_a_checksum_notices_words_that_are_the_authors_own() -> None:
    for path in (("title",), ("privacy_unit", "unit")):
        found = verify(changed(MADE, path, "other words"))
        assert found == ["checksum does not match: the record was changed after it was written"]


def test_a_smaller_epsilon_is_refused_and_a_rounding_is_not() -> None:
    epsilon = MADE["guarantee"]["epsilon"]
    for share, ok in ((1 - 1e-6, False), (1 - 1e-12, True), (1 + 1e-5, True), (1.1, False)):
        found = verify(sealed(changed(MADE, ("guarantee", "epsilon"), epsilon * share)))
        assert (found == []) == ok, share


def test_missing_and_further_fields_are_named() -> None:
    short = {key: value for key, value in MADE.items() if key != "secret"}
    assert "secret is missing" in verify(sealed(short))
    assert "key is no field of a record" in verify(sealed({**MADE, "key": "0123"}))
    assert "guarantee.note is no field of a record" in verify(sealed(changed(MADE, ("guarantee", "note"), "x")))


def test_other_versions_of_libraries_are_no_fault() -> None:
    assert verify(sealed(changed(MADE, ("made_with", "numpy"), "9.9"))) == []
    assert verify(sealed(changed(MADE, ("made_with", "numpy"), {"key": "x"}))) != []
    assert verify(sealed({**MADE, "made_with": None})) != []


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({}, "no record"),
        ([], "no record"),
        ({**MADE, "version": 2}, "version 2 is unknown"),
        ({**MADE, "mechanism": None}, "describes no run"),
        (changed(MADE, ("mechanism", "phases", 0, "steps"), -1), "describes no run"),
        (changed(MADE, ("mechanism", "phases", 0, "key"), "x"), "has the fields"),
        (changed(MADE, ("guarantee", "delta"), 2.0), "describes no run"),
        (changed(MADE, ("privacy_unit", "adjacency"), "any"), "describes no run"),
    ],
)
def test_what_is_no_record_is_refused_in_a_line(made: Any, words: str) -> None:
    with pytest.raises(StateError, match=words) as caught:
        verify(made)
    assert "\n" not in str(caught.value)


def test_files_are_read_back_and_damage_is_named(tmp_path: Path) -> None:
    write_record(MADE, tmp_path / "record.json")
    assert read_record(tmp_path / "record.json") == MADE
    (tmp_path / "bad.json").write_text("{")
    for name, words in (("bad.json", "not plain JSON"), ("absent.json", "cannot read")):
        with pytest.raises(StateError, match=words):
            read_record(tmp_path / name)


def test_a_record_with_two_epsilons_is_refused(tmp_path: Path) -> None:
    text = json.dumps(MADE).replace('"epsilon":', '"epsilon": 0.001, "epsilon":')
    (tmp_path / "two.json").write_text(text)
    with pytest.raises(StateError, match="the key 'epsilon' appears twice"):
        read_record(tmp_path / "two.json")


def test_runs_without_a_guarantee_have_no_record() -> None:
    curve = filet.account(SCHEME, noise_multiplier=0.0, steps=10, adjacency="zero-out")
    with pytest.raises(NotCertifiedError, match="no finite epsilon"):
        record(curve, 1e-5)


@pytest.mark.parametrize("options", [{"unit": "two\nlines"}, {"title": None}, {"unit": b"x"}])
def test_an_authors_words_are_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="is not one line of text"):
        record(CURVE, 1e-5, **options)


def test_a_record_is_made_of_a_curve() -> None:
    with pytest.raises(InvalidArgumentError, match="is not a PrivacyCurve"):
        record(SCHEME, 1e-5)  # type: ignore[arg-type]


@pytest.mark.long
def test_certificates_are_checked_and_belong_to_their_run() -> None:
    pytest.importorskip("flint")
    made = record(CURVE, 1e-5, certificate=True)
    assert verify(made) == []
    assert verify(json.loads(json.dumps(made))) == []
    fewer = filet.account(SCHEME, noise_multiplier=2.0, steps=90, adjacency="zero-out")
    for wrong in (fewer.certificate(1e-5), {}, [], "x"):
        assert verify(sealed({**made, "certificate": wrong})) == ["certificate is that of another run"]
    small = {**made["certificate"], "epsilon": "0.5"}
    (found,) = verify(sealed({**made, "certificate": small}))
    assert found.startswith("certificate is refused")


@pytest.mark.parametrize(
    ("size", "overflow", "words"),
    [("secret", "reject", "every number of records"), ("at-most", "truncate", "every number of records up to 1,000")],
)
def test_a_record_says_for_which_sizes_it_holds_and_verifies(size, overflow, words):
    scheme = filet.CappedPoisson(1_000, 0.02, 30, overflow=overflow, size=size)
    curve = filet.account(scheme, noise_multiplier=1.0, steps=50, adjacency="add-remove")
    made = json.loads(json.dumps(filet.record(curve, 1e-5, certificate=True)))
    assert made["guarantee"]["holds_for"] == words
    assert made["guarantee"]["composes_with_secret_sizes"] is True
    assert "the number of records" in made["secret"]
    assert verify(made) == []
    other = json.loads(json.dumps(made))
    del other["mechanism"]["phases"][0]["size"]  # as if the size were public
    assert verify(other)
