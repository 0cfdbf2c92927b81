"""What commands ask: the numbers are the library's, and options are checked before any work."""

import pytest

import filet
from filet.cli import questions
from filet.cli.run_file import parse_run
from filet.errors import InvalidArgumentError, NotCertifiedError

RUN = {"dataset_size": 60_000, "poisson_batch_size": 256, "max_batch_size": 300, "noise_multiplier": 1.0,
       "steps": 14_000, "delta": 1e-5}  # fmt: skip


def test_a_row_has_the_policys_utilization_and_the_analysiss_epsilon():
    asked = questions.Comparison.asked(RUN)
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300, "reject")
    assert asked.row("reject", "refined", ["zero-out"])["utilization"] == scheme.utilization
    curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    assert asked.entry("reject", "refined", "zero-out") == (curve.epsilon(1e-5), None)


def test_no_cap_has_no_rows_to_use():
    asked = questions.Comparison.asked(RUN)
    assert asked.row("no cap", "refined", ["zero-out"])["utilization"] is None
    assert asked.changed("no cap").max_batch_size == 60_000


def test_a_policy_that_has_no_batch_says_so_in_its_row_only():
    everybody = {**RUN, "sampling_probability": 1.0}
    del everybody["poisson_batch_size"]
    asked = questions.Comparison.asked(everybody)
    assert asked.row("reject", "refined", ["zero-out"])["utilization"] is None
    value, why_not = asked.entry("reject", "refined", "zero-out")
    assert value is None
    assert "no batch to accept" in why_not
    assert asked.entry("truncate", "refined", "zero-out")[0] > 0.0


def test_an_epsilon_that_is_not_certified_is_missing_with_its_reason(monkeypatch):
    def refuse(self, *_):
        raise NotCertifiedError("only known to lie in [1, 2]")

    monkeypatch.setattr(questions.Comparison, "epsilon", refuse)
    entry = questions.Comparison.asked(RUN).entry("truncate", "refined", "zero-out")
    assert entry == (None, "only known to lie in [1, 2]")


@pytest.mark.parametrize(
    ("change", "words"),
    [({"overflow": "reject"}, "overflow has no place here"), ({"delta": 2.0}, "delta=2.0"), ({"noise_multiplier": -1.0}, "negative"),
     ({"max_batch_size": None}, "max_batch_size is missing")],
)  # fmt: skip
def test_a_comparison_is_checked_before_any_work(change, words):
    with pytest.raises(InvalidArgumentError, match=words):
        questions.Comparison.asked({**RUN, **change})


def test_every_analysis_is_compared_once():
    kinds = questions.compared_kinds()
    assert len(set(kinds)) == len(kinds) == 8
    assert ("truncate", "refined") in kinds
    assert ("reject", "attack") in kinds


def test_a_target_that_is_met_is_said_to_be():
    run = parse_run({**RUN, "adjacency": "zero-out", "max_epsilon": 3.0})
    result = questions.epsilon_result(run, run.curve.epsilon_bounds(1e-5), None)
    assert result["target_met"] is True
    assert questions.known_attack(run, 1e-5) <= result["epsilon"]


def test_what_is_looked_for_must_not_be_given():
    with pytest.raises(InvalidArgumentError, match="noise_multiplier is what is looked for"):
        questions.calibrated("noise_multiplier", {**RUN, "epsilon": 3.0, "adjacency": "zero-out"})


def test_a_plan_takes_one_cap_or_several():
    target = {"dataset_size": 2_000, "steps": 10, "epsilon": 3.0, "delta": 1e-4, "adjacency": "zero-out"}
    inputs, plan = questions.planned({**target, "max_batch_size": 64}, None)
    assert inputs["max_batch_size"] == 64
    assert inputs["cycle_length"] == 1
    assert plan.best.max_batch_size == 64
