"""Comparison: the numbers are those of the accountant, and impossible rows have a reason."""

import pytest

import filet
from filet.errors import InvalidArgumentError
from filet.planning.comparison import ATTACK, NO_CAP, Comparison, attack_epsilon, kinds
from filet.planning.run_file import parse_run

SHARED = {"adjacency": "zero-out", "dataset_size": 1_000, "max_batch_size": 60}
PHASE = {**SHARED, "poisson_batch_size": 50, "noise_multiplier": 2.0, "steps": 10}


def test_every_policy_has_its_analyses_and_an_attack():
    policies = {policy for policy, _ in kinds()}
    assert policies == {NO_CAP, "truncate", "reject"}
    assert [kind for kind in kinds() if kind[0] == "reject"] == [("reject", "refined"), ("reject", ATTACK)]
    truncate = [analysis for policy, analysis in kinds() if policy == "truncate"]
    assert truncate == ["union", "note", "swap", "refined", ATTACK]


@pytest.mark.parametrize("policy", ["truncate", "reject"])
def test_rows_hold_the_epsilons_of_the_accountant(policy):
    compared = Comparison(parse_run(PHASE), 1e-5)
    scheme = filet.CappedPoisson(1_000, 0.05, 60, policy)
    curve = filet.account(scheme, noise_multiplier=2.0, steps=10, adjacency="replace-one")
    assert compared.epsilon(policy, "refined", "replace-one") == curve.epsilon(1e-5)
    attacked = attack_epsilon(curve.phases[0], "replace-one", 1e-5)
    assert compared.epsilon(policy, ATTACK, "replace-one") == attacked
    [row] = [row for row in compared.rows(["zero-out"]) if (row["policy"], row["analysis"]) == (policy, "refined")]
    assert row["utilization"] == scheme.utilization
    assert row["epsilon"] == {"zero-out": None}


def test_a_policy_that_cannot_be_is_a_gap_with_a_reason():
    given = {**SHARED, "sampling_probability": 1.0, "noise_multiplier": 5.0, "steps": 2}
    compared = Comparison(parse_run(given), 1e-3)
    noted = []
    rows = compared.rows(["zero-out"])
    compared.fill(rows, None, noted.append)
    missing = {row["policy"] for row in rows if row["epsilon"]["zero-out"] is None}
    assert missing == {"reject"}
    assert all("no batch to accept" in reason for reason in noted)
    assert len(noted) == 2


def test_a_wrong_delta_is_not_a_gap():
    with pytest.raises(InvalidArgumentError, match="delta"):
        Comparison(parse_run(PHASE), 2.0).epsilon("truncate", "refined", "zero-out")


def test_runs_of_several_phases_have_no_attack():
    phases = [{"steps": steps, "noise_multiplier": float(steps)} for steps in (10, 20)]
    compared = Comparison(parse_run({**SHARED, "poisson_batch_size": 50, "phases": phases}), 1e-5)
    assert compared.epsilon("reject", ATTACK, "zero-out") is None
    assert [phase["steps"] for phase in compared.inputs(["zero-out"])["phases"]] == [10, 20]
    used = {row["utilization"] for row in compared.rows([]) if row["policy"] == "truncate"}
    assert used == {filet.CappedPoisson(1_000, 0.05, 60).utilization}


@pytest.mark.parametrize(("policy", "size"), [("reject", "secret"), ("truncate", "at-most")])
def test_sizes_that_fit_one_policy_are_not_compared(policy, size):
    run = parse_run({**PHASE, "overflow": policy, "size": size})
    with pytest.raises(InvalidArgumentError, match=f"size='{size}' is for one policy"):
        Comparison(run, 1e-5)
