"""Answers as JSON: all that was composed is described, and every number can be read back."""

import json

import pytest

import filet
from filet.showing.answers import as_answer, describe_run


def test_a_run_is_described_by_all_that_was_composed():
    accountant = filet.Accountant("replace-one")
    accountant.compose(filet.CappedPoisson(100, 0.1, 20, overflow="reject", cycle_length=2), 1.5, 7)
    assert "gaussian_noise_multiplier" not in describe_run(accountant.curve())
    accountant.compose_gaussian(2.0)
    assert describe_run(accountant.curve()) == {
        "adjacency": "replace-one",
        "phases": [{"dataset_size": 100, "sampling_probability": 0.1, "max_batch_size": 20, "overflow": "reject",
                    "cycle_length": 2, "noise_multiplier": 1.5, "steps": 7, "analysis": "refined"}],
        "guarantee": {"size": "public", "holds_for": "100 records, a public number", "composes_with_secret_sizes": False},
        "gaussian_noise_multiplier": 2.0,
    }  # fmt: skip


def test_infinities_are_strings_at_every_depth():
    answer = as_answer("test", {"a": (1.5, float("-inf"))}, {"b": [{"c": float("inf")}], "d": None})
    again = json.loads(json.dumps(answer, allow_nan=False), parse_constant=pytest.fail)
    assert again["schema"] == "filet.test.v1"
    assert again["version"] == filet.__version__
    assert again["inputs"] == {"a": [1.5, "-inf"]}
    assert again["result"] == {"b": [{"c": "inf"}], "d": None}
