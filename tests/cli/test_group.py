"""The group: documented exit codes by the class of the error, one line each, and nothing left behind."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time

import click
import pytest
from click.testing import CliRunner
from tests.cli.invoke import ENVIRONMENT, RUN, SCHEME, ZERO_OUT, one_line, process, run

import filet
from filet import errors
from filet.cli.commands.answers import main
from filet.cli.commands.pictures import plot
from filet.cli.group import CANNOT_ANSWER, EXIT_CODES, USAGE, exit_code

UTILIZATION = ["--dataset-size", "60000", "--max-batch-size", "300", "--noise-multiplier", "1", "--steps", "100", "--adjacency", "zero-out",
               "--delta", "1e-5", "--epsilon", "1"]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["epsilon", *RUN, "--delta", "1e-5"], "adjacency is missing"),
        (["epsilon", *ZERO_OUT], "delta is missing"),
        (["epsilon", *ZERO_OUT, "--delta", "2"], "delta=2.0 is not in (0, 1)"),
        (["epsilon", *ZERO_OUT, "--delta", "1e-5", "--max-epsilon", "-1"], "not in [0, inf)"),
        (["epsilon", *ZERO_OUT, "--sampling-probability", ".1", "--delta", "1e-5"], "pass one of them"),
        (["epsilon", *ZERO_OUT, "--epochs", "2", "--delta", "1e-5"], "steps and epochs are both given"),
        (["epsilon", "--dataset-size", "12.5"], "not a whole number"),
        (["epsilon", *ZERO_OUT, "--delta", "1e-5", "--config", "run.toml"], "drop --dataset-size"),
        (["epsilon", *ZERO_OUT, "--delta", "1e-5", "--overflow", "reject", "--analysis", "note"], "analysis='note'"),
        (["epsilon", "--adjacency", "swap"], "'swap' is not one of"),
        (["compare", *RUN, "--delta", "1e-5"], "adjacency is missing"),
        (["delta", *ZERO_OUT], "epsilon is missing"),
        (["sample", *SCHEME, "--steps", "2", "--key", "secret"], "key is not an integer"),
        (["sample", *SCHEME, "--steps", "2", "--key", "1", "--rank", "0"], "rank and world_size go together"),
        (["sample", *SCHEME, "--steps", "2", "--key", "1", "--format", "npy"], "needs a file"),
        (["sample", *SCHEME, "--steps", "2", "--key", "1", "-o", "batches.xyz"], "names no format"),
        (["sample", "--dataset-size", "100", "--sampling-probability", ".1", "--max-batch-size", str(2**63 - 1), "--steps", "1",
          "--key", "1", "--format", "csv"], "more than memory holds"),
        (["sample", *SCHEME, "--steps", "0", "--key", "1"], "steps=0 is below 1 in the run; pass at least one step"),
        (["epsilon", *SCHEME, "--noise-multiplier", "1", "--epochs", "0", "--delta", "1e-5", "--adjacency", "zero-out"],
         "steps=0 is below 1 in the run; pass at least one step"),
        (["epsilon", *SCHEME[:4], "--no-cap", "--overflow", "reject", "--noise-multiplier", "1", "--steps", "9",
          "--delta", "1e-5", "--adjacency", "zero-out"], "overflow and no_cap are both given in the run; nothing overflows"),
        (["epsilon", *ZERO_OUT, "--delta", "1e-5", "--config", ""], "config='' is empty; pass the path of a run file, or drop"),
        (["epsilon", "--config", ""], "config='' is empty; pass the path of a run file, or drop --config"),
        (["plot", "batch-sizes", *SCHEME, "-o", "a.bmp"], "names no format"),
        (["plot", "trade-off", *ZERO_OUT, "--points", "0", "-o", "a.csv"], "points=0 is below 2"),
        (["plot", "utilization", "--dataset-size", "0", *UTILIZATION[2:], "-o", "a.csv"], "dataset_size=0 is below 1"),
        (["plot", "utilization", *UTILIZATION, "--points", str(10**15), "-o", "a.csv"], "is above 100000"),
        (["fillet"], "No such command"),
        (["epsilon", "--nonsense"], "No such option"),
    ],
)  # fmt: skip
def test_usage_errors_are_one_line_and_code_2(arguments, words):
    assert words in one_line(run(*arguments), 2)


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


WRITERS = [["epsilon", *ZERO_OUT, "--delta", "1e-5"], ["epsilon", *ZERO_OUT, "--delta", "1e-5", "--json"], ["--help"], ["--version"],
           ["plan", "--help"], ["sample", *SCHEME, "--steps", "1", "--key", "1"]]  # fmt: skip


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
def test_a_full_or_closed_standard_output_is_one_line_and_code_1(arguments):
    command = [sys.executable, "-m", "filet", *arguments]
    with open("/dev/full", "w") as full:
        outcome = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, timeout=120, check=False
        )
    assert (
        outcome.stderr
        == "filet: cannot write to standard output: No space left on device; the answer is not complete\n"
    )
    assert outcome.returncode == 1
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    outcome = subprocess.run(closed, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, timeout=120, check=False)
    assert outcome.stderr == "filet: cannot write to standard output: Bad file descriptor; the answer is not complete\n"
    assert outcome.returncode == 1


@pytest.mark.skipif(os.name != "posix", reason="a shell")
def test_a_command_that_prints_nothing_needs_no_standard_output(tmp_path):
    command = [sys.executable, "-m", "filet", "plot", "batch-sizes", *SCHEME, "-o", str(tmp_path / "a.csv")]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    outcome = subprocess.run(closed, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, timeout=120, check=False)
    assert (outcome.returncode, outcome.stderr.count("\n")) == (0, 1)
    assert (tmp_path / "a.csv").exists()


def test_an_error_of_a_file_is_not_taken_for_one_of_standard_output():
    @click.command(cls=type(main))
    def group():
        pass

    @group.command()
    def fail():
        os.stat("/no/such/file")

    with pytest.raises(FileNotFoundError):
        CliRunner().invoke(group, ["fail"], catch_exceptions=False)


REPEATED = [
    (["epsilon", *ZERO_OUT, "--delta", "1e-5", "--steps", "3"], "--steps is given 2 times"),
    (["epsilon", *SCHEME, "--epochs", "1", "--epochs", "2"], "--epochs is given 2 times"),
    (["plan", "--epsilon", "1", "--epsilon=1", "--epsilon", "2"], "--epsilon is given 3 times"),
    (["plot", "batch-sizes", *SCHEME, "-o", "a.csv", "--output", "b.csv"], "--output is given 2 times"),
    (["sample", *SCHEME, "--secure", "--no-secure"], "--secure is given 2 times"),
    (["certify", "--config", "a", "--config", "b", "-o", "c"], "--config is given 2 times"),
]


@pytest.mark.parametrize(("arguments", "words"), REPEATED)
def test_an_option_given_twice_is_refused(arguments, words):
    assert words in one_line(run(*arguments), 2)


def test_what_may_be_repeated_still_may_and_help_is_always_shown():
    assert (
        run("compare", *RUN, "--delta", "1e-5", "--adjacency", "zero-out", "--adjacency", "replace-one").exit_code == 0
    )
    assert run("epsilon", "--steps", 1, "--steps", 2, "--help").exit_code == 0


@pytest.mark.parametrize(("arguments", "words"), [
    (["epsilon", "--noise", "1"], "did you mean --noise-multiplier?"),
    (["epsilon", "--expected-batch-size", "1"], "--poisson-batch-size"),
    (["plan", "--epochs", "1"], "did you mean --hardware-epochs"),
    (["epsilon", "--adjancency", "zero-out"], "did you mean --adjacency?"),
    (["epsilom"], "did you mean epsilon?"),
    (["cal"], "did you mean calibrate?"),
])  # fmt: skip
def test_a_near_miss_gets_a_suggestion(arguments, words):
    assert words in one_line(run(*arguments), 2)


def test_all_missing_options_are_named_at_once():
    message = one_line(run("epsilon", "--dataset-size", 10, "--steps", 3), 2)
    for option in ("--sampling-probability or --poisson-batch-size", "--max-batch-size or --no-cap", "--noise-multiplier", "--adjacency",
                   "--delta"):  # fmt: skip
        assert option in message
    message = one_line(run("plan"), 2)
    for option in (
        "--dataset-size",
        "--max-batch-size",
        "--steps or --hardware-epochs",
        "--epsilon",
        "--delta",
        "--adjacency",
    ):
        assert option in message
    assert "--epsilon" in one_line(run("calibrate", "steps", *SCHEME), 2)
    assert "epsilon" in one_line(run("delta", *ZERO_OUT), 2)


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
    plots = {f"plot {kind}": command for kind, command in plot.commands.items()}
    for name, command in {**main.commands, **plots}.items():
        outcome = run(*name.split(), "--help")
        assert outcome.exit_code == 0
        assert outcome.stdout.startswith(f"Usage: filet {name} ")
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help, f"{name} {parameter.name} has no help"


@pytest.mark.parametrize("words", ["filet eps", "filet epsilon --adj", "filet epsilon --adjacency z"])
def test_shells_complete_commands_options_and_choices(words):
    environment = {"_FILET_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    outcome = CliRunner().invoke(main, [], env=environment, prog_name="filet")
    assert outcome.stdout.strip().split(",")[-1] in ("epsilon", "--adjacency", "zero-out")


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
            "--output": "out.csv", "--max-epsilon": 5, "--poisson-batch-size": None, "--epochs": None, "--config": None,
            "--rank": None, "--world-size": None, "--key-file": None}  # fmt: skip
    chosen_one = plot.commands["batch-sizes"] if command == "plot" else main.commands[command]
    known = {flag for parameter in chosen_one.params for flag in parameter.opts}
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
            outcome = run(*arguments, *(["--force"] if "--force" in known else []))
            assert isinstance(outcome.exception, (SystemExit, type(None))), (arguments, outcome.exception)
            assert outcome.exit_code in (0, 1, 2, 3), arguments
            if outcome.exit_code in (1, 2):
                assert outcome.stderr.count("\n") == 1, (arguments, outcome.stderr)
                assert outcome.stdout == "", arguments


EXPECTED = {
    "FiletError": CANNOT_ANSWER,
    "InvalidArgumentError": USAGE,
    "MissingExtraError": CANNOT_ANSWER,
    "NoSolutionError": CANNOT_ANSWER,
    "NotCertifiedError": CANNOT_ANSWER,
    "OutputError": CANNOT_ANSWER,
    "StateError": CANNOT_ANSWER,
}


def test_every_error_of_filet_has_the_documented_code():
    classes = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}
    assert {name: exit_code(kind("words")) for name, kind in classes.items()} == EXPECTED  # type: ignore[call-arg]


def test_no_class_is_hidden_behind_its_parent():
    kinds = [kind for kind, _ in EXIT_CODES]
    for place, kind in enumerate(kinds):
        assert not any(issubclass(kind, earlier) for earlier in kinds[:place]), kind


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (errors.NoSolutionError("nothing  will\ndo"), 1, "filet: nothing will do\n"),
        (errors.InvalidArgumentError("cannot be met"), 2, "filet: cannot be met\n"),
        (errors.OutputError("cannot write"), 1, "filet: cannot write\n"),
        (MemoryError(), 1, "filet: not enough memory for this question; ask for less at a time\n"),
        (ZeroDivisionError("by zero"), 1, "filet: these numbers are out of range (by zero); please report them\n"),
        (KeyboardInterrupt(), 130, "filet: interrupted\n"),
        (click.Abort(), 130, "filet: interrupted\n"),
    ],
)
def test_the_class_decides_the_code_and_the_words_do_not(error, code, line):
    @click.command(cls=type(main))
    def group():
        pass

    @group.command()
    def fail():
        raise error

    outcome = CliRunner().invoke(group, ["fail"])
    assert (outcome.exit_code, outcome.stderr.lstrip("\n")) == (code, line)  # Click ends the line of an interrupt


def test_a_bug_is_not_hidden():
    @click.command(cls=type(main))
    def group():
        pass

    @group.command()
    def fail():
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        CliRunner().invoke(group, ["fail"], catch_exceptions=False)
