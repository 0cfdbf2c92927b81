"""The command line: answers, formats, exit codes, one-line errors, files written whole or not at all."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import filet
from filet._files import whole_file
from filet._numbers import round_down, round_up
from filet.cli.commands.answers import main
from filet.errors import OutputError
from filet.showing.statement import statement

SCHEME = ["--dataset-size", "60000", "--expected-batch-size", "256", "--max-batch-size", "300"]
RUN = [*SCHEME, "--noise-multiplier", "1", "--steps", "14000"]
ZERO_OUT = [*RUN, "--adjacency", "zero-out"]
UTILIZATION = [*ZERO_OUT, "--delta", "1e-5", "--epsilon", "1"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(filet.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


def process(*arguments, **options):
    command = [sys.executable, "-m", "filet.cli.entry", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT, **options, check=False)


def curve(adjacency="zero-out", analysis="refined", **changes):
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300, **changes)
    return filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency=adjacency, analysis=analysis)


# --- answers ---------------------------------------------------------------------------------------------------------


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
    assert len(text) == 8
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


def test_explain_states_guarantee_neighbours_assumptions_and_theorem():
    text = run("explain", *RUN, "--adjacency", "add-remove", "--delta", "1e-5").stdout
    for words in ("epsilon = 2.866", "size of the larger", "n and n + 1", "Theorem 2", "divided by a", "14000 steps"):
        assert words in " ".join(text.split())
    several = filet.Accountant("zero-out")
    several.compose(filet.CappedPoisson(1000, 0.01, 20, cycle_length=4), 1.0, 10)
    several.compose(filet.CappedPoisson(1000, 0.01, 20, overflow="reject"), 2.0, 10)
    several.compose_gaussian(5.0)
    words = " ".join(statement(several.curve(), 1e-5).split())
    for part in ("4 groups of 250", "Theorem 3", "Gaussian releases", "BandMF", "2. 10 steps"):
        assert part in words


# --- exit codes and errors -------------------------------------------------------------------------------------------


def one_line(outcome, code):
    assert outcome.exit_code == code, outcome.output
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("filet: ")
    assert outcome.stderr.count("\n") == 1
    return outcome.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["epsilon", *RUN, "--delta", "1e-5"], "adjacency is missing"),
        (["epsilon", *ZERO_OUT], "delta is missing"),
        (["epsilon", *ZERO_OUT, "--delta", "2"], "delta=2.0 is not in (0, 1)"),
        (["epsilon", *ZERO_OUT, "--delta", "1e-5", "--max-epsilon", "-1"], "not in [0, inf)"),
        (["epsilon", *ZERO_OUT, "--sampling-probability", ".1", "--delta", "1e-5"], "pass one of them"),
        (["epsilon", *ZERO_OUT, "--epochs", "2", "--delta", "1e-5"], "steps and epochs are both given"),
        (["epsilon", *ZERO_OUT, "--delta", "1e-5", "--dataset-size", "12.5"], "not a whole number"),
        (["epsilon", *ZERO_OUT, "--delta", "1e-5", "--config", "run.toml"], "drop --dataset-size"),
        (["epsilon", *ZERO_OUT, "--delta", "1e-5", "--overflow", "reject", "--analysis", "note"], "analysis='note'"),
        (["epsilon", "--adjacency", "swap"], "'swap' is not one of"),
        (["compare", *RUN, "--delta", "1e-5"], "adjacency is missing"),
        (["delta", *ZERO_OUT], "epsilon is missing"),
        (["sample", *SCHEME, "--steps", "2", "--key", "secret"], "key is not an integer"),
        (["sample", *SCHEME, "--steps", "2", "--key", "1", "--rank", "0"], "rank and world_size go together"),
        (["sample", *SCHEME, "--steps", "2", "--key", "1", "--format", "npy"], "needs a file"),
        (["sample", *SCHEME, "--steps", "2", "--key", "1", "-o", "batches.xyz"], "names no format"),
        (["sample", "--dataset-size", "100", "--sampling-probability", ".1", "--max-batch-size", str(2**63 - 1), "--steps", "0",
          "--key", "1", "--format", "csv"], "more than memory holds"),
        (["plot", "batch-sizes", *SCHEME, "-o", "a.bmp"], "names no format"),
        (["plot", "trade-off", *ZERO_OUT, "--points", "0", "-o", "a.csv"], "points=0 is below 2"),
        (["plot", "utilization", *UTILIZATION, "--dataset-size", "0", "-o", "a.csv"], "dataset_size=0 is below 1"),
        (["plot", "utilization", *UTILIZATION, "--points", str(10**15), "-o", "a.csv"], "is above 100000"),
        (["fillet"], "No such command"),
        (["epsilon", "--nonsense"], "No such option"),
    ],
)  # fmt: skip
def test_usage_errors_are_one_line_and_code_2(arguments, words):
    assert words in one_line(run(*arguments), 2)


def test_a_secret_key_is_not_repeated_in_errors():
    assert "hunter2" not in run("sample", *SCHEME, "--steps", "2", "--key", "hunter2").output


def half_written(path, error):
    with whole_file(path) as temporary:
        temporary.write_text("half")
        raise error


def test_what_cannot_be_written_is_code_1_and_leaves_nothing_behind(tmp_path):
    message = one_line(run("sample", *SCHEME, "--steps", 2, "--key", 1, "-o", tmp_path / "no" / "a.csv"), 1)
    assert "cannot write" in message
    with pytest.raises(ZeroDivisionError):
        half_written(tmp_path / "a.txt", ZeroDivisionError())
    with pytest.raises(OutputError, match="No space left on device; nothing was changed"):
        half_written(tmp_path / "a.txt", OSError(28, "No space left on device"))
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupt_is_code_130_and_leaves_no_file(tmp_path):
    # A shell's background jobs are born deaf to interrupts, and so would be what these tests start.
    heedful = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("filet.cli.entry", run_name="__main__")
"""
    command = [sys.executable, "-c", heedful, "sample", *SCHEME, "--steps", "10000000", "--key", "1",
               "-o", str(tmp_path / "batches.jsonl")]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as running:
        limit = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < limit:
            time.sleep(0.05)
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        try:
            _, errors = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130
    assert errors.strip() == "filet: interrupted"
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_ends_quietly():
    command = [sys.executable, "-m", "filet.cli.entry", "sample", *SCHEME, "--steps", "100000", "--key", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as running:
        assert json.loads(running.stdout.readline())["step"] == 0
        running.stdout.close()
        errors = running.stderr.read()
        running.wait(timeout=60)
    assert errors == ""
    assert running.returncode == 1


# --- streams, start-up, completion -----------------------------------------------------------------------------------


def test_stdout_of_a_pipe_is_plain_text_and_stderr_is_empty():
    outcome = process("compare", *RUN, "--delta", "1e-5", "--adjacency", "zero-out")
    assert outcome.returncode == 0
    assert outcome.stderr == ""
    assert "\x1b" not in outcome.stdout
    assert outcome.stdout.isascii()


def test_help_and_version_work_and_every_command_has_help():
    assert run("--version").stdout == f"filet {filet.__version__}\n"
    assert run().exit_code == 0
    assert run("-h").stdout == run("--help").stdout == run().stdout
    for name, command in main.commands.items():
        outcome = run(name, "--help")
        assert outcome.exit_code == 0
        assert outcome.stdout.startswith(f"Usage: filet {name} ")
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help, f"{name} {parameter.name} has no help"


def test_the_command_line_loads_nothing_heavy_for_help():
    script = (
        "import sys, types, importlib.util\n"
        "package = types.ModuleType('filet')\n"
        "package.__path__ = [sys.argv[1]]; package.__version__ = '0'\n"
        "sys.modules['filet'] = package\n"
        "import filet.cli.commands.answers\n"
        "heavy = {'numpy', 'scipy', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "sys.exit(' '.join(heavy) or 0)\n"
    )
    outcome = subprocess.run([sys.executable, "-c", script, str(Path(filet.__file__).parent)], capture_output=True,
                             text=True, timeout=60, check=False)  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr


def test_without_click_the_extra_to_install_is_named():
    script = "import sys; sys.modules['click'] = None; from filet.cli.entry import main; main()"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
                             env=ENVIRONMENT, check=False)  # fmt: skip
    assert outcome.returncode == 1
    assert outcome.stderr == "filet: the command line needs click; install it with: pip install 'filet[cli]'\n"


@pytest.mark.parametrize("words", ["filet eps", "filet epsilon --adj", "filet epsilon --adjacency z"])
def test_shells_complete_commands_options_and_choices(words):
    environment = {"_FILET_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    outcome = CliRunner().invoke(main, [], env=environment, prog_name="filet")
    assert outcome.stdout.strip().split(",")[-1] in ("epsilon", "--adjacency", "zero-out")


# --- sample ----------------------------------------------------------------------------------------------------------


def test_samples_are_the_librarys_batches_in_every_format(tmp_path):
    scheme = filet.CappedPoisson(1000, 0.005, 8)
    expected = [batch.indices.tolist() for batch in scheme.sampler(key=7).batches(6)]
    options = ["--dataset-size", 1000, "--sampling-probability", 0.005, "--max-batch-size", 8, "--steps", 6, "--key", 7]
    lines = [json.loads(line) for line in run("sample", *options).stdout.splitlines()]
    assert lines == [{"step": step, "indices": indices} for step, indices in enumerate(expected)]
    csv = [line.split(",") for line in run("sample", *options, "--format", "csv").stdout.splitlines()]
    assert csv[0] == ["step", *map(str, range(8))]
    assert [list(map(int, row)) for row in csv[1:]] == [[i, *row] for i, row in enumerate(expected)]
    for name in ("a.jsonl", "a.csv", "a.npy"):
        assert run("sample", *options, "-o", tmp_path / name).exit_code == 0
    assert np.load(tmp_path / "a.npy").tolist() == expected
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 7
    resumed = run("sample", *options, "--start", 4).stdout.splitlines()
    assert [json.loads(line) for line in resumed] == lines[4:]
    assert run("sample", *options, "--start", 6, "-o", tmp_path / "none.npy").exit_code == 0
    assert np.load(tmp_path / "none.npy").shape == (0, 8)


def test_samples_of_ranks_join_to_the_batch_and_key_files_work(tmp_path):
    key = bytes(range(32))
    (tmp_path / "key").write_bytes(key)
    options = ["sample", "--dataset-size", 100, "--sampling-probability", 0.2, "--max-batch-size", 30, "--steps", 3,
               "--key-file", tmp_path / "key", "--overflow", "reject", "--cycle-length", 2]  # fmt: skip
    sampler = filet.CappedPoisson(100, 0.2, 30, overflow="reject", cycle_length=2).sampler(key)
    parts = [run(*options, "--rank", rank, "--world-size", 2).stdout.splitlines() for rank in range(2)]
    for step in range(3):
        rows = [i for part in parts for i in json.loads(part[step])["indices"] if i >= 0]
        assert sorted(rows) == sampler[step].indices[: sampler[step].size].tolist()
    assert "cannot read the key file" in one_line(run(*options[:-6], "--key-file", tmp_path / "none"), 2)


def test_a_fresh_key_is_announced_on_stderr_only():
    outcome = run("sample", *SCHEME, "--steps", 1)
    assert outcome.stdout.count("\n") == 1
    assert "fresh key" in outcome.stderr


# --- rounding --------------------------------------------------------------------------------------------------------


def test_rounding_never_crosses_the_number():
    random = np.random.default_rng(5)
    for value in [*np.exp(random.uniform(-700, 30, 2000)), 0.1, 1.0, 9.9999999, 0.99995, 123456.7, 5e-324, 1e15, 1e300]:
        value = float(value)
        up, down = Decimal(round_up(value)), Decimal(round_down(value))
        assert down <= Decimal(value) <= up, value
        assert up - down <= Decimal(value) * Decimal("0.0011") + Decimal("1e-323"), value
    assert (round_up(math.inf), round_up(0.0), round_up(2.0)) == ("inf", "0", "2")


# --- searches --------------------------------------------------------------------------------------------------------

TARGET = ["--epsilon", 3, "--delta", "1e-5", "--adjacency", "zero-out"]


@pytest.mark.parametrize("unknown", ["noise-multiplier", "steps", "sampling-probability"])
def test_calibrated_runs_meet_the_target(unknown):
    given = {"noise-multiplier": ["--noise-multiplier", 1], "steps": ["--steps", 1000],
             "sampling-probability": ["--expected-batch-size", 256]}  # fmt: skip
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


def test_printed_noise_is_rounded_up_so_that_it_still_meets_the_target():
    options = ["noise-multiplier", *SCHEME, "--steps", 1000, *TARGET]
    exact = json.loads(run("calibrate", *options, "--json").stdout)["result"]["noise_multiplier"]
    shown = re.search(r"^noise-multiplier +(\S+)$", run("calibrate", *options).stdout, re.M)[1]
    assert exact <= float(shown) <= exact * 1.00001


def test_what_is_looked_for_cannot_be_given_and_the_impossible_is_code_1():
    assert "drop --steps" in one_line(run("calibrate", "steps", *RUN, *TARGET), 2)
    assert "drop --epochs" in one_line(run("calibrate", "steps", *SCHEME, "--epochs", 1, *TARGET), 2)
    assert "pass --steps" in one_line(
        run("calibrate", "sampling-probability", "--dataset-size", 10, "--max-batch-size", 5, "--epochs", 1,
            "--noise-multiplier", 1, *TARGET), 2)  # fmt: skip
    assert "cannot be met" in one_line(
        run("calibrate", "sampling-probability", "--dataset-size", 60_000, "--max-batch-size", 300, "--steps", 10,
            "--noise-multiplier", 0, *TARGET), 1)  # fmt: skip


def test_plan_ranks_options_that_meet_the_target():
    options = ["plan", "--dataset-size", 60_000, "--max-batch-size", 256, "--steps", 1000, *TARGET]
    answer = json.loads(run(*options, "--json").stdout)["result"]
    noise = [option["run_noise"] for option in answer["options"]]
    assert noise == sorted(noise)
    assert all(option["epsilon"] <= 3.0 for option in answer["options"])
    assert answer["options"][answer["best"]]["name"] == "reject"
    lines = run(*options).stdout.splitlines()
    assert len(lines) == 1 + len(answer["options"])
    assert [line.split()[0] for line in lines if " * " in line] == ["reject"]
    assert "steps is missing" in one_line(run(*options[:5], *TARGET), 2)


# --- terminals and nonsense ------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals")
def test_progress_bars_go_to_the_terminal_of_stderr_and_not_into_results():
    import pty

    main_end, terminal = pty.openpty()
    command = [sys.executable, "-m", "filet.cli.entry", "compare", *RUN, "--delta", "1e-5", "--adjacency", "zero-out"]
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env=environment) as running:
        text = running.stdout.read().decode()
    os.close(terminal)
    bar = os.read(main_end, 100_000).decode()
    os.close(main_end)
    assert "100%" in bar
    assert "%]" not in text
    assert "\x1b" not in text


NONSENSE = [
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1",
    "0.5",
    "1e400",
    "1e-400",
    "9" * 30,
    "abc",
    "\N{SNOWMAN}",
    "--json",
]


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("calibrate", "plan")]


@pytest.mark.parametrize("command", ["epsilon", "delta", "explain", "compare", "sample", "plot", *SLOW])
def test_nonsense_gives_an_answer_or_one_line_never_a_traceback(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base = {"--dataset-size": 100, "--sampling-probability": 0.1, "--max-batch-size": 12, "--noise-multiplier": 1,
            "--steps": 3, "--delta": 1e-3, "--epsilon": 1, "--adjacency": "zero-out", "--overflow": "truncate",
            "--analysis": "refined", "--cycle-length": 1, "--key": 5, "--start": 0, "--points": 2,
            "--output": "out.csv", "--max-epsilon": 5, "--expected-batch-size": None, "--epochs": None, "--config": None,
            "--rank": None, "--world-size": None, "--key-file": None}  # fmt: skip
    known = {flag for parameter in main.commands[command].params for flag in parameter.opts}
    base = {flag: value for flag, value in base.items() if flag in known}
    first = {"calibrate": ["steps"], "plot": ["batch-sizes"]}.get(command, [])
    if command == "compare":
        del base["--overflow"]
    if command == "calibrate":
        del base["--steps"]
    for flag in base:
        for value in NONSENSE:
            arguments = [command, *first]
            for other, standard in base.items():
                chosen = value if other == flag else standard
                arguments += [] if chosen is None else [other, str(chosen)]
            outcome = run(*arguments)
            assert isinstance(outcome.exception, (SystemExit, type(None))), (arguments, outcome.exception)
            assert outcome.exit_code in (0, 1, 2, 3), arguments
            if outcome.exit_code in (1, 2):
                assert outcome.stderr.count("\n") == 1, (arguments, outcome.stderr)
                assert outcome.stdout == "", arguments
