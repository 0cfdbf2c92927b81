"""Finished runs are read from what they left behind, to the last field."""

import json

import pytest

import filet
from filet import InvalidArgumentError, StateError
from filet.cli.sources import of_event_tree, of_plan_fields, read_source

STEP = {
    "class_name": "TruncatedSubsampledGaussianDpEvent",
    "module_name": "dp_accounting.dp_event",
    "dataset_size": 1000,
    "sampling_probability": 0.05,
    "truncated_batch_size": 80,
    "noise_multiplier": 2.0,
}
GAUSSIAN = {"class_name": "GaussianDpEvent", "noise_multiplier": 5.0}
POISSON = {"class_name": "PoissonSampledDpEvent", "sampling_probability": 0.01, "event": GAUSSIAN}


def composed(*events):
    return {"class_name": "ComposedDpEvent", "events": list(events)}


def repeated(event, count):
    return {"class_name": "SelfComposedDpEvent", "event": event, "count": count}


def test_trees_are_composed_as_their_events_are():
    tree = repeated(composed(repeated(STEP, 50), GAUSSIAN, {"class_name": "NoOpDpEvent"}, POISSON), 2)
    expected = filet.Accountant("zero-out")
    expected.compose(filet.CappedPoisson(1000, 0.05, 80), 2.0, 100)
    expected.compose_gaussian(5.0, 2)
    expected.compose(filet.CappedPoisson(1000, 0.01, None), 5.0, 2)
    assert of_event_tree(tree, "zero-out", 1000) == expected


def test_dp_accountings_own_tuples_are_read(tmp_path):
    dp_event = pytest.importorskip("dp_accounting").dp_event
    step = dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.05, 80, 2.0)
    event = dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(step, 100), dp_event.GaussianDpEvent(5.0)])

    def plain(value):
        if hasattr(value, "_asdict"):
            return {key: plain(one) for key, one in value._asdict().items()}
        return [plain(one) for one in value] if isinstance(value, list | tuple) else value

    (tmp_path / "event.json").write_text(json.dumps(plain(event.to_named_tuple())))
    found = read_source(str(tmp_path / "event.json"), {"adjacency": "zero-out"})
    expected = filet.Accountant("zero-out")
    expected.compose(filet.CappedPoisson(1000, 0.05, 80), 2.0, 100)
    expected.compose_gaussian(5.0)
    assert found == expected


@pytest.mark.parametrize(
    ("tree", "size", "words"),
    [
        ({"class_name": "LaplaceDpEvent", "noise_multiplier": 1.0}, None, "is none that filet accounts for"),
        (repeated(None, 2), None, "is none that filet accounts for"),
        (composed("x"), None, "is none that filet accounts for"),
        ({"class_name": "ComposedDpEvent", "events": "x"}, None, "is none that filet accounts for"),
        ({**STEP, "key": "x"}, None, "has the fields"),
        (STEP, 999, "differs from the event's 1000"),
        (POISSON, None, "dataset_size is missing"),
        ({**POISSON, "event": STEP}, 1000, "something else than one Gaussian"),
        (repeated(STEP, 1.5), None, "count=1.5 is not an integer"),
        ({**STEP, "sampling_probability": 2.0}, None, "sampling_probability=2.0"),
    ],
)
def test_trees_that_are_not_understood_are_refused_in_a_line(tree, size, words):
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        of_event_tree(tree, "zero-out", size)
    assert "\n" not in str(caught.value)


def test_states_are_read_and_name_their_adjacency(tmp_path):
    accountant = filet.Accountant("replace-one")
    accountant.compose(filet.CappedPoisson(1000, 0.05, 80), 2.0, 100)
    for key in (None, b"16 secret bytes!"):
        accountant.save(tmp_path / "state.json", key=key)
        if key is None:
            assert read_source(str(tmp_path / "state.json"), {}) == accountant
    with pytest.raises(InvalidArgumentError, match="--adjacency has no place here"):
        read_source(str(tmp_path / "state.json"), {"adjacency": "zero-out"})


def test_what_is_neither_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("[]")
    with pytest.raises(StateError, match="no accountant state"):
        read_source(str(path), {})
    path.write_text("no JSON")
    with pytest.raises(InvalidArgumentError, match="neither a checkpoint nor plain JSON"):
        read_source(str(path), {})
    path.write_text('{"class_name": "GaussianDpEvent", "noise_multiplier": 9.0, "noise_multiplier": 1.0}')
    with pytest.raises(InvalidArgumentError, match="the key 'noise_multiplier' appears twice"):
        read_source(str(path), {"adjacency": "zero-out", "dataset_size": 100})
    with pytest.raises(InvalidArgumentError, match="cannot read"):
        read_source(str(tmp_path / "absent"), {})
    with pytest.raises(InvalidArgumentError, match="adjacency is missing"):
        of_event_tree(STEP, None, None)


PLAN = {
    "iterations": 100,
    "strategy": [1.0, 0.5, 0.2, 0.1],
    "noise_multiplier": 2.0,
    "sampling_prob": 0.05,
    "truncated_batch_size": 30,
    "num_examples": 1000,
    "partition_type": "EQUAL_SPLIT",
}


def test_a_plans_fields_are_its_scheme_noise_and_steps(tmp_path):
    expected = filet.Accountant("zero-out")
    expected.compose(filet.CappedPoisson(1000, 0.05, 30, cycle_length=4), 2.0, 100)
    assert of_plan_fields(PLAN, "zero-out", None) == of_plan_fields(PLAN, "zero-out", 1000) == expected
    (tmp_path / "plan.json").write_text(json.dumps({**PLAN, "noise_seed": 31415, "l2_clip_norm": 0.5}))
    found = read_source(str(tmp_path / "plan.json"), {"adjacency": "zero-out"})
    assert found == expected
    assert "31415" not in repr(found)
    with pytest.raises(InvalidArgumentError, match="--max-batch-size has no place here"):
        read_source(str(tmp_path / "plan.json"), {"adjacency": "zero-out", "max_batch_size": 30})


def test_a_plan_without_a_cap_is_plain_poisson_sampling():
    expected = filet.Accountant("add-remove")
    expected.compose(filet.CappedPoisson(1000, 0.05, None), 2.0, 100)
    plain = {"iterations": 100, "strategy": [1.0], "noise_multiplier": 2.0, "sampling_prob": 0.05}
    assert of_plan_fields({**plain, "partition_type": "INDEPENDENT"}, "add-remove", 1000) == expected


@pytest.mark.parametrize(
    ("changes", "adjacency", "size", "words"),
    [
        ({"noise_multiplier": None}, "zero-out", None, "it was calibrated"),
        ({"num_examples": None}, "zero-out", None, "dataset_size is missing"),
        ({}, "zero-out", 999, "differs from the plan's 1000"),
        ({}, None, None, "adjacency missing"),
        ({"iterations": None, "sampling_prob": None}, "zero-out", None, "iterations, sampling_prob missing"),
        ({"strategy": []}, "zero-out", None, "no list of coefficients"),
        ({"strategy": "1"}, "zero-out", None, "no list of coefficients"),
        ({"partition_type": "INDEPENDENT"}, "zero-out", None, "only EQUAL_SPLIT"),
        ({"partition_type": 2}, "zero-out", None, "only EQUAL_SPLIT"),
        ({"column_normalize": True}, "zero-out", None, "column_normalize=true is not accounted for"),
        ({"sampling_probability": 0.1}, "zero-out", None, "sampling_probability"),
        ({"truncated_batch_size": 0}, "zero-out", None, "max_batch_size=0"),
        ({"iterations": 1.5}, "zero-out", None, "steps=1.5"),
        ({"noise_multiplier": "1"}, "zero-out", None, "noise_multiplier='1'"),
    ],
)
def test_plans_that_are_not_understood_are_refused_in_a_line(changes, adjacency, size, words):
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        of_plan_fields({**PLAN, **changes}, adjacency, size)
    assert "\n" not in str(caught.value)
