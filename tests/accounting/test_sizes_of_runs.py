"""Runs whose size is not public, as Python objects: states, composition, statements, attacks, refusals."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import filet
from filet.accounting.certificate import describes
from filet.accounting.state import checksum
from filet.checking import check
from filet.errors import InvalidArgumentError, StateError
from filet.scheme import CappedPoisson, Size
from filet.showing.statement import statement

SECRET = CappedPoisson(1_000, 0.02, 24, overflow="reject", size="secret")
AT_MOST = CappedPoisson(1_000, 0.02, 30, size="at-most")
PUBLIC = CappedPoisson(1_000, 0.02, 30)


def run(scheme: CappedPoisson, adjacency: Any = "add-remove", steps: int = 50) -> filet.PrivacyCurve:
    return filet.account(scheme, noise_multiplier=1.0, steps=steps, adjacency=adjacency)


@pytest.mark.parametrize("scheme", [SECRET, AT_MOST], ids=["secret", "at-most"])
def test_states_and_pickles_keep_the_size(scheme: CappedPoisson) -> None:
    accountant = filet.Accountant("add-remove")
    accountant.compose(scheme, 1.0, 50)
    state = json.loads(json.dumps(accountant.state_dict()))
    assert state["version"] == 3  # so that earlier versions do not read it as a public size
    again = filet.Accountant.from_state_dict(state)
    assert again == accountant
    assert again.phases[0].scheme.size is scheme.size
    assert pickle.loads(pickle.dumps(run(scheme))).epsilon(1e-5) == run(scheme).epsilon(1e-5)
    assert pickle.loads(pickle.dumps(scheme)) == scheme


def test_states_without_a_size_are_public_and_as_before() -> None:
    accountant = filet.Accountant("add-remove")
    accountant.compose(PUBLIC, 1.0, 50)
    state = accountant.state_dict()
    assert state["version"] == 2
    assert "size" not in state["phases"][0]
    assert filet.Accountant.from_state_dict(state).phases[0].scheme.size is Size.PUBLIC
    state["phases"][0]["size"] = "hidden"
    state["checksum"] = checksum(state)
    with pytest.raises(StateError, match="size='hidden' is unknown"):
        filet.Accountant.from_state_dict(state)


def test_secret_sizes_cost_the_public_pair_under_zero_out_and_replace_one() -> None:
    public = CappedPoisson(1_000, 0.02, 24, overflow="reject")
    for adjacency in ("zero-out", "replace-one"):
        assert run(SECRET, adjacency).epsilon(1e-5) == run(public, adjacency).epsilon(1e-5)
    assert run(SECRET).epsilon_bounds(1e-5).lower > run(public).epsilon(1e-5)


def test_of_several_phases_the_guarantee_is_for_what_all_of_them_hold_for() -> None:
    accountant = filet.Accountant("add-remove")
    assert accountant.curve().holds_for == "every number of records"
    accountant.compose(SECRET, 1.0, 50)
    accountant.compose_gaussian(5.0)
    assert accountant.curve().holds_for == "every number of records"
    accountant.compose(AT_MOST, 1.0, 50)
    assert accountant.curve().holds_for == "every number of records up to 1,000"
    accountant.compose(PUBLIC, 1.0, 50)
    assert accountant.curve().holds_for == "1,000 records, a public number"
    assert accountant.epsilon(1e-5) > max(run(scheme).epsilon(1e-5) for scheme in (SECRET, AT_MOST, PUBLIC))


@pytest.mark.parametrize(
    ("scheme", "words", "composes"),
    [
        (SECRET, "It holds for every number of records.", "composes with mechanisms that keep the number secret"),
        (AT_MOST, "It holds for every number of records up to 1,000.", "for data sets up to that"),
        (PUBLIC, "It holds for 1,000 records, a public number.", "do not compose it with mechanisms"),
    ],
)
def test_the_statement_says_for_which_sizes_it_holds(scheme: CappedPoisson, words: str, composes: str) -> None:
    text = " ".join(statement(run(scheme), 1e-5).split())
    assert words in text
    assert composes in text


@pytest.mark.parametrize("steps", [1, 3, 400])
@pytest.mark.parametrize("scheme", [SECRET, AT_MOST], ids=["secret", "at-most"])
def test_attacks_lose_less_than_is_certified(scheme: CappedPoisson, steps: int) -> None:
    curve = run(scheme, steps=steps)
    lower = filet.epsilon_lower_bound(scheme, noise_multiplier=1.0, steps=steps, adjacency="add-remove", delta=1e-4)
    assert 0.0 < lower <= curve.epsilon(1e-4)
    bounds = curve.epsilon_bounds(1e-4)
    assert curve.delta_bounds(bounds.upper).lower <= 1e-4 * (1 + 1e-4)
    assert bounds.upper - bounds.lower <= max(1e-3 * bounds.upper, 1e-4)


def test_steps_without_noise_show_an_example_as_often_as_it_may_be_drawn() -> None:
    curve = filet.account(AT_MOST, noise_multiplier=0.0, steps=3, adjacency="add-remove")
    assert curve.delta(1.0) >= 1 - (1 - 0.02) ** 3  # small data sets are never cut
    secret = filet.account(SECRET, noise_multiplier=0.0, steps=3, adjacency="add-remove")
    assert secret.delta(1.0) >= (1 - (1 - SECRET.inclusion_probability) ** 3) * (1 - 1e-9)


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
@pytest.mark.parametrize("scheme", [SECRET, AT_MOST], ids=["secret", "at-most"])
def test_certificates_say_and_prove_the_size(scheme: CappedPoisson, adjacency: Any) -> None:
    curve = run(scheme, adjacency)
    claim = json.loads(json.dumps(curve.certificate(1e-5)))
    assert claim["phases"][0]["size"] == scheme.size.value
    assert check(claim).ok
    assert curve.epsilon_bounds(1e-5).lower <= float(claim["epsilon"]) <= 1.001 * curve.epsilon(1e-5)
    assert describes(claim, curve, 1e-5)
    public = CappedPoisson(1_000, 0.02, scheme.max_batch_size, overflow=scheme.overflow)
    assert not describes(claim, run(public, adjacency), 1e-5)


def test_no_certificate_hides_a_phase_whose_size_is_not_public() -> None:
    accountant = filet.Accountant("add-remove")
    accountant.compose(CappedPoisson(1_000, 0.02, 24, overflow="reject"), 1.0, 5)
    accountant.compose(SECRET, 1.0, 5)
    claim = accountant.curve().certificate(1e-5)
    assert [phase["size"] for phase in claim["phases"]] == ["public", "secret"]
    assert "the larger data set has the stated public size" in check(claim).words


def test_sizes_are_those_of_the_phases_that_restrict_them() -> None:
    accountant = filet.Accountant("zero-out")
    accountant.compose(CappedPoisson(500, 0.02, 24, overflow="reject", size="secret"), 1.0, 5)
    accountant.compose(CappedPoisson(1_000, 0.02, 30, size="at-most"), 1.0, 5)
    assert accountant.curve().holds_for == "every number of records up to 1,000"


def test_what_is_not_proven_for_several_sizes_is_refused() -> None:
    for analysis in ("swap", "note"):
        with pytest.raises(InvalidArgumentError, match="one public size"):
            filet.account(AT_MOST, noise_multiplier=1.0, steps=5, adjacency="zero-out", analysis=analysis)  # type: ignore[arg-type]
    union = filet.account(AT_MOST, noise_multiplier=1.0, steps=5, adjacency="zero-out", analysis="union")
    assert union.epsilon(0.3) >= 0.0
    other = CappedPoisson(2_000, 0.02, 24, overflow="reject", size="secret")
    accountant = filet.Accountant("add-remove")
    accountant.compose(SECRET, 1.0, 5)
    with pytest.raises(InvalidArgumentError, match="use one size"):
        accountant.compose(other, 1.0, 5)


def test_the_planner_ranks_the_secret_size_beside_the_others() -> None:
    plan = filet.plan(dataset_size=5_000, max_batch_size=64, steps=500, epsilon=2.0, delta=1e-6, adjacency="add-remove")
    option = plan.option("secret")
    assert option.scheme.size is Size.SECRET
    assert option.epsilon <= 2.0
    assert plan.option("reject").run_noise <= option.run_noise <= 1.05 * plan.option("reject").run_noise
    assert "--size secret" in option.command()
    assert 'size="secret"' in option.python()
    cyclic = filet.plan(
        dataset_size=5_000, max_batch_size=64, steps=500, epsilon=2.0, delta=1e-6, adjacency="zero-out", cycle_length=5
    )
    assert "secret" not in {one.name for one in cyclic.options}


@pytest.mark.parametrize("scheme", [SECRET, AT_MOST], ids=["secret", "at-most"])
def test_releases_that_treat_the_number_as_private_compose_where_it_is_not_public(scheme: CappedPoisson) -> None:
    accountant = filet.Accountant("add-remove")
    accountant.compose(scheme, 1.0, 50)
    alone = accountant.epsilon(1e-5)
    accountant.compose_gaussian(20.0, size="secret")
    plain = filet.Accountant("add-remove")
    plain.compose(scheme, 1.0, 50)
    plain.compose_gaussian(20.0)
    assert alone < accountant.epsilon(1e-5) == plain.epsilon(1e-5)
    restored = filet.Accountant.from_state_dict(json.loads(json.dumps(accountant.state_dict())))
    assert restored == accountant != plain
    for one in (accountant, restored, pickle.loads(pickle.dumps(accountant))):
        with pytest.raises(InvalidArgumentError, match="does not compose with releases that treat it as private"):
            one.compose(PUBLIC, 1.0, 5)
        assert one.state_dict() == accountant.state_dict()


def test_releases_that_treat_the_number_as_private_are_refused_beside_a_public_one() -> None:
    accountant = filet.Accountant("add-remove")
    accountant.compose(PUBLIC, 1.0, 50)
    before = accountant.state_dict()
    with pytest.raises(InvalidArgumentError, match=r"use CappedPoisson\(..., overflow='reject', size='secret'\)"):
        accountant.compose_gaussian(20.0, size="secret")
    assert accountant.state_dict() == before
    for adjacency in ("zero-out", "replace-one"):  # neighbours have the same number of records
        other = filet.Accountant(adjacency)
        other.compose(PUBLIC, 1.0, 50)
        other.compose_gaussian(20.0, size="secret")
        assert other.epsilon(1e-5) > 0
    with pytest.raises(InvalidArgumentError, match="size"):
        accountant.compose_gaussian(20.0, size="hidden")  # type: ignore[arg-type]
