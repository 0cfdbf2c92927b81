"""Tasks: the numbers are the library's, in plain JSON."""

import json

import numpy as np
import pytest

import filet
from filet.errors import InvalidArgumentError
from filet.exploring import tasks
from filet.planning.calibration import calibrate_noise_multiplier

RUN = {"dataset_size": 60_000, "poisson_batch_size": 256, "max_batch_size": 300, "noise_multiplier": 1.0,
       "steps": 14_000, "delta": 1e-5, "adjacency": "zero-out"}  # fmt: skip
TARGET = {**{key: value for key, value in RUN.items() if key != "noise_multiplier"}, "epsilon": 3.0}
SCHEME = filet.CappedPoisson(60_000, 256 / 60_000, 300)
CURVE = filet.account(SCHEME, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")


def test_the_point_is_the_librarys_to_the_last_bit():
    assert tasks.epsilon(RUN)["result"]["epsilon"] == CURVE.epsilon(1e-5)


def test_a_run_of_several_phases_is_answered_but_not_drawn():
    shared = {"adjacency": "zero-out", "delta": 1e-5, "dataset_size": 60_000, "max_batch_size": 300}
    each = {"steps": 10, "noise_multiplier": 1.0}
    phases = {**shared, "phases": [{**each, "poisson_batch_size": mean} for mean in (128, 256)]}
    assert tasks.epsilon(phases)["result"]["epsilon"] > 0.0
    assert tasks.attack(phases) is None
    with pytest.raises(InvalidArgumentError, match="one phase"):
        tasks.profile(phases, 1e-5)


def test_delta_must_be_given():
    with pytest.raises(InvalidArgumentError, match="delta is missing"):
        tasks.epsilon({key: value for key, value in RUN.items() if key != "delta"})


def test_the_profile_encloses_the_attack():
    point = tasks.profile(RUN, 1e-6)
    assert point["epsilon_attack"] <= point["epsilon_upper"] == CURVE.epsilon(1e-6)
    assert point["epsilon_attack"] > 0.95 * point["epsilon_upper"]


def test_the_power_of_attacks_is_the_columns_own():
    from filet.showing.columns import trade_off

    assert tasks.power(RUN, 5) == {name: array.tolist() for name, array in trade_off(CURVE, points=5).arrays.items()}


@pytest.mark.parametrize("cap", [1, 200, 256, 300, 5_000, 60_000])
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_every_size_is_listed_and_the_cap_where_it_shows(cap, overflow):
    found = tasks.sizes({**RUN, "max_batch_size": cap, "overflow": overflow})
    sizes = found["columns"]["size"]
    assert sizes == list(range(int(sizes[0]), int(sizes[0]) + len(sizes)))
    assert set(found["columns"]["sizes"]) == {1.0}
    for name in ("probability", "probability_without_cap"):
        assert sum(found["columns"][name]) == pytest.approx(1.0, abs=1e-6)
    if cap < 320:
        assert cap in sizes
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, cap, overflow)
    at = min(range(len(sizes)), key=lambda i: abs(sizes[i] - min(cap, 256)))
    exact = np.exp(scheme.log_batch_size_probability(int(sizes[at])))
    assert found["columns"]["probability"][at] == pytest.approx(exact, rel=1e-14)
    assert found["marks"]["utilization"] == scheme.utilization


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_rows_of_a_huge_data_set_stand_for_several_sizes_and_add_up(overflow):
    run = {**RUN, "dataset_size": 10**12, "poisson_batch_size": 10**8, "max_batch_size": 10**8 + 12_345}
    columns = tasks.sizes({**run, "overflow": overflow})["columns"]
    assert len(columns["size"]) <= 2_003
    assert 10**8 + 12_345 in columns["size"]
    for name in ("probability", "probability_without_cap"):
        assert np.dot(columns[name], columns["sizes"]) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    "given",
    [{"sampling_probability": 1.0, "max_batch_size": 60_000}, {"sampling_probability": 1e-9, "max_batch_size": 1}],
)
def test_pictures_of_extreme_schemes_have_points(given):
    run = {key: value for key, value in RUN.items() if key != "poisson_batch_size"} | given
    assert tasks.sizes(run)["columns"]["size"]
    assert tasks.caps(run, 25)["caps"]


def test_caps_surround_the_batches_and_hold_the_given_one():
    caps = tasks.caps({**RUN, "max_batch_size": 1_000}, 25)["caps"]
    assert caps[0] == 240
    assert 1_000 in caps
    assert caps == sorted(set(caps))


def test_noise_at_a_cap_is_the_calibrations():
    found = tasks.noise(TARGET, 280, "reject")
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 280, "reject")
    noise = calibrate_noise_multiplier(scheme, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="zero-out")
    assert found == {"noise_multiplier": noise, "effective_noise": noise / scheme.expected_batch_size}


@pytest.mark.long
def test_an_option_is_the_plans():
    plan = filet.plan(
        dataset_size=60_000, max_batch_size=300, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="zero-out"
    )
    option = plan.option("reject").to_dict()
    found = tasks.option(TARGET, "reject")
    assert {**found, "ratio_to_ideal": 0.0} == {**option, "ratio_to_ideal": 0.0}


@pytest.mark.parametrize(("size", "overflow"), [("secret", "reject"), ("at-most", "truncate")])
def test_an_option_has_the_size_that_was_asked_for_or_there_is_none(size, overflow):
    """The planner tries a secret size, and no largest one; a size that is not public has one policy."""
    given = {**TARGET, "size": size, "overflow": overflow}
    found = tasks.option(given, overflow)
    assert (found and found["size"]) == ("secret" if size == "secret" else None)
    other = "truncate" if overflow == "reject" else "reject"
    assert tasks.option(given, other) is None
    assert {row[other] for row in tasks.hardware(given, 3)["used"]} == {None}
    assert all(row[overflow] > 0.0 for row in tasks.hardware(given, 3)["used"])


def test_no_steps_are_no_run():
    with pytest.raises(InvalidArgumentError, match="steps=0 is below 1"):
        tasks.hardware({**TARGET, "steps": 0}, 5)


def test_what_is_looked_for_must_be_known():
    with pytest.raises(InvalidArgumentError, match="unknown='delta'"):
        tasks.calibrated({**TARGET, "unknown": "delta"})


@pytest.mark.parametrize("name", ["epsilon", "comparison", "sizes", "described", "calibrated", "hardware"])
def test_answers_are_plain_json(name):
    given = TARGET if name in ("calibrated", "hardware") else RUN
    points = [5] if name == "hardware" else []
    answer = getattr(tasks, name)(given, *points)
    assert json.loads(json.dumps(answer)) == answer
