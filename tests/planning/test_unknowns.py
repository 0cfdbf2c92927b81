"""Calibration of a described run: the answer meets the target and names all inputs but the unknown."""

import pytest

import filet
from filet.planning.run_file import PHASE_KEYS
from filet.planning.unknowns import UNKNOWNS, calibrated

KNOWN = {"noise_multiplier": 1.0, "steps": 1_000, "sampling_probability": 256 / 60_000}
SETTINGS = {
    **dict.fromkeys(PHASE_KEYS),
    "dataset_size": 60_000,
    "max_batch_size": 300,
    "epsilon": 3.0,
    "delta": 1e-5,
    "adjacency": "zero-out",
    **KNOWN,
}


@pytest.mark.parametrize("unknown", UNKNOWNS)
def test_the_answer_is_the_librarys_and_meets_the_target(unknown):
    scheme, inputs, result = calibrated(unknown, {**SETTINGS, unknown: None})
    values = {**KNOWN, unknown: result[unknown]}
    assert scheme == filet.CappedPoisson(60_000, values["sampling_probability"], 300)
    run = {"noise_multiplier": values["noise_multiplier"], "steps": values["steps"]}
    spent = filet.account(scheme, **run, adjacency="zero-out").epsilon(1e-5)
    assert result["epsilon"] == spent <= 3.0
    assert result["utilization"] == scheme.utilization
    assert unknown not in inputs
    assert {key: inputs[key] for key in KNOWN if key != unknown} == {
        key: value for key, value in KNOWN.items() if key != unknown
    }


RISKS = [
    ({"advantage": 0.1}, "membership_advantage", lambda curve: curve.membership_advantage()),
    (
        {"true_positive_rate": 0.05, "false_positive_rate": 0.01},
        "true_positive_rate",
        lambda curve: curve.true_positive_rate(0.01),
    ),
]


@pytest.mark.parametrize("unknown", UNKNOWNS)
@pytest.mark.parametrize(("risk", "measure", "of"), RISKS, ids=["advantage", "power"])
def test_a_risk_is_met_and_reported_in_place_of_epsilon(unknown, risk, measure, of):
    settings = {**SETTINGS, "epsilon": None, "delta": None, unknown: None, **risk}
    scheme, inputs, result = calibrated(unknown, settings)
    values = {**KNOWN, unknown: result[unknown]}
    run = {"noise_multiplier": values["noise_multiplier"], "steps": values["steps"]}
    limit = next(iter(risk.values()))
    assert 0.99 * limit < result[measure] == of(filet.account(scheme, **run, adjacency="zero-out")) <= limit
    assert {key: inputs[key] for key in risk} == risk
    assert not {"epsilon", "delta"} & {*inputs, *result}


def test_two_targets_at_once_are_refused():
    with pytest.raises(filet.InvalidArgumentError, match="epsilon, delta, advantage given"):
        calibrated("steps", {**SETTINGS, "steps": None, "advantage": 0.1})
