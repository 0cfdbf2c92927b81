"""The commands that answer: the library's numbers, rounded to the safe side in print, exact in JSON."""

import json
import math
import re
from decimal import Decimal

import pytest
from click.testing import CliRunner
from tests.cli.invoke import RUN, RUN_FILE, SCHEME, ZERO_OUT, curve, run

import filet
from filet.cli.commands.answers import main


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
        "guarantee": {"size": "public", "holds_for": "60,000 records, a public number", "composes_with_secret_sizes": False},
    }  # fmt: skip


@pytest.mark.parametrize(("size", "overflow", "words"), [
    ("secret", "reject", "every number of records"), ("at-most", "truncate", "every number of records up to 60,000"),
    ("public", "reject", "60,000 records, a public number"),
])  # fmt: skip
def test_every_answer_says_for_which_data_set_sizes_it_holds(size, overflow, words, tmp_path):
    scheme = ["--dataset-size", "60000", "--poisson-batch-size", "256", "--max-batch-size", "300"]
    rest = [
        "--noise-multiplier",
        "1",
        "--steps",
        "100",
        "--adjacency",
        "add-remove",
        "--overflow",
        overflow,
        "--size",
        size,
    ]
    asked = ["epsilon", *scheme, *rest, "--delta", "1e-5"]
    answer = json.loads(run(*asked, "--json").stdout)
    found = {"size": size, "holds_for": words, "composes_with_secret_sizes": size != "public"}
    assert answer["inputs"]["guarantee"] == found
    assert words in " ".join(run(*asked).stdout.split())
    assert f"It holds for {words}." in " ".join(run("explain", *asked[1:]).stdout.split())
    file = tmp_path / "run.toml"
    file.write_text(
        f'adjacency = "add-remove"\ndelta = 1e-5\ndataset_size = 60000\npoisson_batch_size = 256\nmax_batch_size = 300\n'
        f'overflow = "{overflow}"\nsize = "{size}"\nnoise_multiplier = 1.0\nsteps = 100\n'
    )
    again = json.loads(run("epsilon", "--config", str(file), "--json").stdout)
    assert again["result"] == answer["result"]


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


@pytest.mark.parametrize("command", ["epsilon", "explain", "delta"])
def test_a_run_file_comes_from_standard_input_too(command):
    question = {"epsilon": ["--delta", "1e-5"], "explain": ["--delta", "1e-5"], "delta": ["--epsilon", "3"]}[command]
    piped = CliRunner().invoke(
        main, [command, "--config", "-", *(question if command == "delta" else [])], input=RUN_FILE
    )
    assert piped.exit_code == 0, piped.output
    assert piped.stdout == run(command, *ZERO_OUT, *question).stdout


def test_the_line_of_the_attack_says_why_it_is_missing(tmp_path):
    def line(*arguments):
        return next(
            one for one in run("epsilon", *arguments).stdout.splitlines() if one.startswith("best known attack")
        )

    path = tmp_path / "run.toml"
    path.write_text(RUN_FILE + "[[gaussian]]\nnoise_multiplier = 20.0\n")
    assert "not computed: only for runs of one phase" in line("--config", path)
    hidden = ["--dataset-size", 1000, "--sampling-probability", 1e-6, "--max-batch-size", 5, "--noise-multiplier", 50, "--steps", 1,
              "--delta", 1e-4, "--adjacency", "zero-out"]  # fmt: skip
    assert line(*hidden).split("  ")[-1] == "none found"
    assert json.loads(run("epsilon", *hidden, "--json").stdout)["result"]["attack_epsilon"] == 0.0


def test_plain_poisson_is_an_answer_of_its_own():
    options = [
        *SCHEME[:4],
        "--no-cap",
        "--noise-multiplier",
        1,
        "--steps",
        14000,
        "--delta",
        "1e-5",
        "--adjacency",
        "zero-out",
    ]
    free = filet.account(
        filet.CappedPoisson.uncapped(60_000, 256 / 60_000), noise_multiplier=1.0, steps=14_000, adjacency="zero-out"
    )
    assert json.loads(run("epsilon", *options, "--json").stdout)["result"]["epsilon"] == free.epsilon(1e-5)
    assert "no cap, batches of 256.0 examples" in " ".join(run("epsilon", *options).stdout.split())
    assert "there is no cap on the batch" in " ".join(run("explain", *options).stdout.split())


@pytest.mark.parametrize("arguments", [
    ["epsilon", *ZERO_OUT], ["explain", *ZERO_OUT], ["compare", *ZERO_OUT],
    ["calibrate", "noise-multiplier", *SCHEME, "--steps", 10, "--epsilon", 1, "--adjacency", "zero-out"],
    ["plan", "--dataset-size", 1000, "--max-batch-size", 20, "--steps", 10, "--epsilon", 1, "--adjacency", "zero-out"],
], ids=lambda arguments: arguments[0])  # fmt: skip
def test_a_large_delta_is_warned_of_wherever_it_is_asked_about(arguments):
    outcome = run(*arguments, "--delta", "1e-2")
    assert outcome.exit_code == 0
    assert "delta 0.01 is above 1 / dataset_size" in outcome.stderr
    assert "is above 1" not in run(*arguments, "--delta", "1e-5").stderr
