"""The commands that answer: the library's numbers, rounded to the safe side in print, exact in JSON."""

import json
import math
import re
from decimal import Decimal

import pytest
from tests.cli.invoke import RUN, SCHEME, ZERO_OUT, curve, run

import filet


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
@pytest.mark.parametrize(
    ("overflow", "analysis"), [("truncate", "refined"), ("truncate", "note"), ("reject", "refined")]
)
def test_epsilon_in_json_is_the_librarys_to_the_last_bit(adjacency, overflow, analysis):
    options = ["--delta", "1e-5", "--adjacency", adjacency, "--overflow", overflow, "--analysis", analysis, "--json"]
    answer = json.loads(run("epsilon", *RUN, *options).stdout)
    assert answer["result"]["epsilon"] == curve(adjacency, analysis, overflow=overflow).epsilon(1e-5)
    assert answer["result"]["attack_epsilon"] <= answer["result"]["epsilon"]


def test_json_carries_schema_version_and_the_inputs_as_understood():
    answer = json.loads(run("epsilon", *ZERO_OUT, "--delta", "1e-5", "--json").stdout)
    assert answer["schema"] == "filet.epsilon.v1"
    assert answer["version"] == filet.__version__
    assert answer["inputs"] == {
        "adjacency": "zero-out", "delta": 1e-5, "max_epsilon": None,
        "phases": [{"dataset_size": 60_000, "sampling_probability": 256 / 60_000, "max_batch_size": 300,
                    "overflow": "truncate", "cycle_length": 1, "noise_multiplier": 1.0, "steps": 14_000,
                    "analysis": "refined"}],
    }  # fmt: skip


def test_printed_epsilon_is_rounded_up_and_its_lower_bound_down():
    bounds = curve().epsilon_bounds(1e-5)
    text = run("epsilon", *ZERO_OUT, "--delta", "1e-5").stdout
    shown = Decimal(re.search(r"^epsilon +(\S+)$", text, re.M)[1])
    low, high = re.search(r"\[(\S+), (\S+)\]", text).groups()
    assert Decimal(bounds.upper) <= shown <= Decimal(bounds.upper) + Decimal("0.001")
    assert Decimal(low) <= Decimal(bounds.lower) <= Decimal(bounds.upper) <= Decimal(high)


def test_delta_answers_the_reverse_question():
    answer = json.loads(run("delta", *ZERO_OUT, "--epsilon", "3", "--json").stdout)
    assert answer["result"]["delta"] == curve().delta(3.0)
    text = run("delta", *ZERO_OUT, "--epsilon", "3").stdout
    assert float(re.search(r"^delta +(\S+)$", text, re.M)[1]) >= curve().delta(3.0)


def test_infinite_epsilons_are_valid_json_and_an_answer():
    options = [*SCHEME, "--noise-multiplier", "0", "--steps", "1", "--adjacency", "zero-out", "--delta", "1e-5"]
    outcome = run("epsilon", *options, "--json")
    assert outcome.exit_code == 0
    assert json.loads(outcome.stdout, parse_constant=pytest.fail)["result"]["epsilon"] == "inf"
    assert "None: no finite epsilon" in run("explain", *options).stdout


def test_epochs_and_probabilities_mean_what_the_reference_says():
    by_epochs = json.loads(run("epsilon", "--dataset-size", "6e4", "--sampling-probability", 256 / 60_000,
                               "--max-batch-size", 300, "--noise-multiplier", 1, "--epochs", 3, "--delta", "1e-5",
                               "--adjacency", "zero-out", "--json").stdout)  # fmt: skip
    phase = by_epochs["inputs"]["phases"][0]
    assert (phase["dataset_size"], phase["steps"]) == (60_000, math.ceil(3 * 60_000 / 256))


def test_compare_shows_every_policy_and_analysis():
    rows = json.loads(run("compare", *RUN, "--delta", "1e-5", "--adjacency", "all", "--json").stdout)["result"]
    table = {(row["policy"], row["analysis"]): row["epsilon"] for row in rows}
    assert table["truncate", "refined"]["replace-one"] == curve("replace-one").epsilon(1e-5)
    assert table["reject", "refined"]["zero-out"] <= table["no cap", "refined"]["zero-out"] * 1.001
    assert table["truncate", "union"]["add-remove"] == "inf"
    text = run("compare", *RUN, "--delta", "1e-5", "--adjacency", "zero-out").stdout.splitlines()
    assert text[0].split() == ["policy", "analysis", "utilization", "zero-out"]
    assert len(text) == 9
    assert table["truncate", "refined"]["zero-out"] < table["truncate", "swap"]["zero-out"]
    for policy in ("truncate", "reject"):  # lower bounds stay below, and reject's are close
        for adjacency in ("add-remove", "zero-out", "replace-one"):
            assert 0.0 < table[policy, "attack"][adjacency] <= table[policy, "refined"][adjacency]
    assert table["reject", "attack"]["zero-out"] > 0.98 * table["reject", "refined"]["zero-out"]


def test_compare_leaves_impossible_policies_out_instead_of_failing():
    outcome = run("compare", "--dataset-size", 100, "--sampling-probability", 1, "--max-batch-size", 10,
                  "--noise-multiplier", 5, "--steps", 2, "--delta", 1e-3, "--adjacency", "zero-out")  # fmt: skip
    assert outcome.exit_code == 0
    assert outcome.stdout.splitlines()[-1].split()[-1] == "-"
    assert "no batch to accept" in outcome.stderr


def test_a_missed_target_is_code_3_and_the_answer_still_printed():
    outcome = run("epsilon", *ZERO_OUT, "--delta", "1e-5", "--max-epsilon", "2.8")
    assert outcome.exit_code == 3
    assert outcome.stdout.startswith("epsilon")
    assert "above max_epsilon 2.8" in outcome.stderr
    assert run("epsilon", *ZERO_OUT, "--delta", "1e-5", "--max-epsilon", "2.9").exit_code == 0


def test_a_target_is_compared_with_the_number_not_its_rounding():
    exact = curve().epsilon(1e-5)
    assert run("epsilon", *ZERO_OUT, "--delta", "1e-5", "--max-epsilon", repr(exact)).exit_code == 0
    below = repr(math.nextafter(exact, 0))
    assert run("epsilon", *ZERO_OUT, "--delta", "1e-5", "--max-epsilon", below).exit_code == 3


def test_explain_prints_the_statement_and_puts_it_into_json():
    from filet.showing.statement import statement

    options = [*RUN, "--adjacency", "add-remove", "--delta", "1e-5"]
    words = statement(curve("add-remove"), 1e-5)
    assert run("explain", *options).stdout == words + "\n"
    assert json.loads(run("explain", *options, "--json").stdout)["result"]["statement"] == words
