"""The commands that search: what they find meets the target; no solution is not a wrong argument."""

import json
import re
import shlex

import pytest
from tests.cli.invoke import RUN, SCHEME, TARGET, one_line, run

import filet


@pytest.mark.parametrize("unknown", ["noise-multiplier", "steps", "sampling-probability"])
def test_calibrated_runs_meet_the_target(unknown):
    given = {"noise-multiplier": ["--noise-multiplier", 1], "steps": ["--steps", 1000],
             "sampling-probability": ["--poisson-batch-size", 256]}  # fmt: skip
    options = [part for name, parts in given.items() if name != unknown for part in parts]
    sizes = ["--dataset-size", 60_000, "--max-batch-size", 300]
    answer = json.loads(run("calibrate", unknown, *sizes, *options, *TARGET, "--json").stdout)
    found = answer["result"][unknown.replace("-", "_")]
    values = {"noise_multiplier": 1.0, "steps": 1000, "sampling_probability": 256 / 60_000} | {
        unknown.replace("-", "_"): found
    }
    scheme = filet.CappedPoisson(60_000, values["sampling_probability"], 300)
    spent = filet.account(
        scheme, noise_multiplier=values["noise_multiplier"], steps=values["steps"], adjacency="zero-out"
    ).epsilon(1e-5)
    assert spent == answer["result"]["epsilon"]
    assert 2.9 < spent <= 3.0
    asked = {"epsilon": 3.0, "delta": 1e-5, "adjacency": "zero-out", "analysis": "refined"}
    known = {"dataset_size": 60_000, "max_batch_size": 300, "overflow": "truncate", "cycle_length": 1, **asked}
    del values[unknown.replace("-", "_")]
    assert answer["inputs"] == {**known, **values}  # all that was asked, and not the unknown


def test_printed_noise_is_rounded_up_so_that_it_still_meets_the_target():
    options = ["noise-multiplier", *SCHEME, "--steps", 1000, *TARGET]
    exact = json.loads(run("calibrate", *options, "--json").stdout)["result"]["noise_multiplier"]
    shown = re.search(r"^noise-multiplier +(\S+)$", run("calibrate", *options).stdout, re.M)[1]
    assert exact <= float(shown) <= exact * 1.00001


def test_what_is_looked_for_cannot_be_given():
    assert "drop --steps" in one_line(run("calibrate", "steps", *RUN, *TARGET), 2)
    assert "drop --epochs" in one_line(run("calibrate", "steps", *SCHEME, "--epochs", 1, *TARGET), 2)
    assert "pass --steps" in one_line(
        run("calibrate", "sampling-probability", "--dataset-size", 10, "--max-batch-size", 5, "--epochs", 1,
            "--noise-multiplier", 1, *TARGET), 2)  # fmt: skip


RISKS = {
    "advantage": (["--advantage", 0.1], "membership_advantage", "membership advantage"),
    "power": (
        ["--true-positive-rate", 0.05, "--false-positive-rate", 0.01],
        "true_positive_rate",
        "true positive rate",
    ),
}


@pytest.mark.parametrize("kind", RISKS)
def test_a_risk_is_a_target_too(kind):
    given, measure, words = RISKS[kind]
    options = ["calibrate", "noise-multiplier", *SCHEME, "--steps", 1000, *given, "--adjacency", "zero-out"]
    answer = json.loads(run(*options, "--json").stdout)
    noise = answer["result"]["noise_multiplier"]
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    curve = filet.account(scheme, noise_multiplier=noise, steps=1000, adjacency="zero-out")
    spent = curve.membership_advantage() if kind == "advantage" else curve.true_positive_rate(0.01)
    assert answer["result"][measure] == spent <= given[1]
    assert re.search(rf"^{words} +\S+ \(target {given[1]}\)$", run(*options).stdout, re.M)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (["--advantage", 0.1, "--delta", "1e-5"], "(delta, advantage given)"),
        (["--advantage", 0.1, "--epsilon", 3], "(epsilon, advantage given)"),
        (["--true-positive-rate", 0.1], "(true_positive_rate given)"),
        (["--advantage", 0.1, "--false-positive-rate", 0.1], "(advantage, false_positive_rate given)"),
        (["--true-positive-rate", 0.1, "--false-positive-rate", 0.1], "is not above false_positive_rate"),
        (["--advantage", 1], "advantage=1.0 is not in (0, 1)"),
        ([], "epsilon and delta are missing"),
    ],
)
def test_targets_that_are_not_one_are_refused(target, words):
    options = ["calibrate", "noise-multiplier", *SCHEME, "--steps", 10, "--adjacency", "zero-out"]
    assert words in one_line(run(*options, *target), 2)


IMPOSSIBLE = {
    "nothing meets it, probability": (
        ["calibrate", "sampling-probability", "--dataset-size", 60_000, "--max-batch-size", 300, "--steps", 10,
         "--noise-multiplier", 0, *TARGET], "cannot be met"),
    "nothing meets it, steps": (
        ["calibrate", "steps", *SCHEME, "--noise-multiplier", 0.3, "--epsilon", 0.1, "--delta", "1e-9", "--adjacency", "zero-out"],
        "even one step"),
    "everything meets it": (["calibrate", "steps", *SCHEME, "--noise-multiplier", "inf", *TARGET], "any number of steps"),
    "no plan": (
        ["plan", "--dataset-size", 1000, "--max-batch-size", 900, "--steps", 10**7, "--epsilon", 1e-9, "--delta", 1e-30,
         "--adjacency", "add-remove"], "cannot be met by any strategy"),
}  # fmt: skip


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_target_without_a_solution_is_code_1(case):
    arguments, words = IMPOSSIBLE[case]
    assert words in one_line(run(*arguments), 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["calibrate", "steps", *SCHEME, "--noise-multiplier", -1, *TARGET], "noise_multiplier=-1.0 is negative"),
        (["calibrate", "noise-multiplier", *SCHEME, "--steps", 0, *TARGET], "steps=0 is below 1"),
        (["calibrate", "noise-multiplier", *SCHEME, "--steps", 9, "--overflow", "reject", "--analysis", "note", *TARGET],
         "analysis='note' is for overflow='truncate'"),
        (["plan", "--dataset-size", 10, "--max-batch-size", 5, "--steps", 0, *TARGET], "steps=0 is below 1"),
    ],
)  # fmt: skip
def test_a_wrong_argument_of_a_search_is_code_2(arguments, words):
    assert words in one_line(run(*arguments), 2)


def test_plan_ranks_options_that_meet_the_target_and_prints_the_librarys_table():
    options = ["plan", "--dataset-size", 60_000, "--max-batch-size", 256, "--steps", 1000, *TARGET]
    answer = json.loads(run(*options, "--json").stdout)["result"]
    noise = [option["run_noise"] for option in answer["options"]]
    assert noise == sorted(noise)
    assert all(option["epsilon"] <= 3.0 for option in answer["options"])
    assert answer["options"][answer["best"]]["name"] == "reject"
    plan = filet.plan(
        dataset_size=60_000, max_batch_size=256, steps=1000, epsilon=3.0, delta=1e-5, adjacency="zero-out"
    )
    assert run(*options).stdout == f"{plan.table()}\n\n{plan.recipe()}\n"
    assert "steps is missing" in one_line(run(*options[:5], *TARGET), 2)


@pytest.fixture(scope="module", params=["zero-out", "add-remove"])
def planned(request):
    options = ["--dataset-size", 3_000, "--max-batch-size", 48, "--steps", 400, "--epsilon", 4, "--delta", "1e-5"]
    return ["plan", *options, "--adjacency", request.param, "--comparisons"]


def test_every_command_of_a_plan_gives_its_epsilon_again(planned):
    answer = json.loads(run(*planned, "--json").stdout)["result"]
    assert len(answer["options"]) == 8
    for option in answer["options"]:
        name, *arguments = shlex.split(option["command"])
        assert name == "filet"
        again = json.loads(run(*arguments, "--json").stdout)["result"]
        assert again["epsilon"] == option["epsilon"], option["name"]


def test_the_printed_command_gives_the_printed_epsilon(planned):
    text = run(*planned).stdout
    printed = re.search(r"^filet (epsilon.*?[^\\])$", text, re.M | re.S)[1]
    assert "--overflow reject" in printed
    again = json.loads(run(*shlex.split(printed.replace("\\\n", "")), "--json").stdout)["result"]["epsilon"]
    assert f"epsilon {filet.round_up(again, 6, zeros=True)} at delta" in text


def test_the_printed_run_file_and_python_lines_give_the_same_epsilon(planned, tmp_path, capsys):
    answer = json.loads(run(*planned, "--json").stdout)["result"]
    for option in answer["options"]:
        (tmp_path / "run.toml").write_text(option["run_file"])
        again = json.loads(run("epsilon", "--config", tmp_path / "run.toml", "--json").stdout)["result"]
        assert again["epsilon"] == option["epsilon"]
        assert again["target_met"] is True
        exec(option["python"], {})
        assert float(capsys.readouterr().out) == option["epsilon"]
    best = answer["options"][answer["best"]]
    text = run(*planned).stdout
    assert best["python"] in text
    assert best["run_file"] in text


FILE = """adjacency = "zero-out"
delta = 1e-5
max_epsilon = 3.0
dataset_size = 60_000
poisson_batch_size = 256
max_batch_size = 300
noise_multiplier = 1.0
steps = 1_000
"""


@pytest.mark.parametrize("unknown", ["noise-multiplier", "steps", "sampling-probability"])
def test_a_run_file_is_calibrated_in_one_of_its_numbers(tmp_path, unknown):
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    given = {
        "noise-multiplier": ["--noise-multiplier", 1],
        "steps": ["--steps", 1000],
        "sampling-probability": ["--poisson-batch-size", 256],
    }
    options = [part for name, parts in given.items() if name != unknown for part in parts]
    outcome = run("calibrate", unknown, "--config", path, "--json")
    assert outcome.exit_code == 0, outcome.output
    asked = run("calibrate", unknown, "--dataset-size", 60_000, "--max-batch-size", 300, *options, *TARGET, "--json")
    assert json.loads(outcome.stdout) == json.loads(asked.stdout)
    assert "of the file is the unknown, and was not used" in outcome.stderr
    tighter = json.loads(run("calibrate", unknown, "--config", path, "--epsilon", 1, "--json").stdout)
    assert tighter["inputs"]["epsilon"] == 1.0


def test_a_risk_takes_the_place_of_a_files_target(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    outcome = run("calibrate", "steps", "--config", path, "--advantage", 0.1, "--json")
    answer = json.loads(outcome.stdout)
    assert answer["result"]["membership_advantage"] <= 0.1 == answer["inputs"]["advantage"]
    assert not {"epsilon", "delta"} & set(answer["inputs"])
    assert "epsilon and delta of the file are replaced by the risk" in outcome.stderr


@pytest.mark.long
def test_a_plan_takes_the_hardware_and_the_target_of_a_run_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    outcome = run("plan", "--config", path)
    assert outcome.exit_code == 0, outcome.output
    assert (
        outcome.stdout
        == run("plan", "--dataset-size", 60_000, "--max-batch-size", 300, "--steps", 1_000, *TARGET).stdout
    )
    assert "poisson_batch_size and noise_multiplier of the file are chosen by the plan" in outcome.stderr
    path.write_text(FILE.replace("steps = 1_000", "epochs = 4.2666"))
    assert json.loads(run("plan", "--config", path, "--json").stdout)["inputs"]["steps"] == 1_000
    assert "drop --steps" in one_line(run("plan", "--config", path, "--steps", 3), 2)
    path.write_text(FILE.replace("max_batch_size = 300", "no_cap = true"))
    assert "nothing to plan for" in one_line(run("plan", "--config", path), 2)


def test_noise_is_calibrated_without_a_cap():
    options = ["calibrate", "noise-multiplier", *SCHEME[:4], "--no-cap", "--steps", 100, *TARGET]
    assert "no cap" in run(*options).stdout
    scheme = filet.CappedPoisson.uncapped(60_000, 256 / 60_000)
    found = json.loads(run(*options, "--json").stdout)["result"]["noise_multiplier"]
    assert found == filet.calibrate_noise_multiplier(scheme, steps=100, epsilon=3.0, delta=1e-5, adjacency="zero-out")
