"""What commands print: strict JSON, tables that are never cut, bars for terminals only."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from click.testing import CliRunner
from tests.cli.invoke import ENVIRONMENT, RUN, one_line, run

import filet
from filet.cli.commands.answers import main
from filet.cli.output import check_output, note, print_json, print_pairs, progress_bar, warn_of_delta
from filet.errors import InvalidArgumentError


def test_progress_bars_go_to_the_terminal_of_stderr_and_not_into_results():
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


def shown_on_a_terminal(columns):
    main_end, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", "filet.cli.entry", "compare", *RUN, "--delta", "1e-5", "--adjacency", "zero-out"]
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        command, stdout=terminal, stderr=subprocess.DEVNULL, env={**environment, "TERM": "xterm"}
    ) as one:
        one.wait(timeout=120)
    os.close(terminal)
    text = os.read(main_end, 100_000).decode()
    os.close(main_end)
    return text


@pytest.mark.long
def test_figures_are_not_cut_however_narrow_the_terminal():
    curve = filet.account(filet.CappedPoisson(60_000, 256 / 60_000, 300), noise_multiplier=1.0, steps=14_000,
                          adjacency="zero-out")  # fmt: skip
    figure = filet.round_up(curve.epsilon(1e-5))
    for columns in (100, 80, 60, 45):
        text = shown_on_a_terminal(columns)
        assert figure in text
        assert max(map(len, text.splitlines())) <= columns
        assert "\u2026" not in text  # an ellipsis


def test_json_has_no_numbers_that_other_languages_cannot_read(capsys):
    print_json("test", {"a": float("inf"), "b": (1.5, float("-inf"))}, {"c": [{"d": float("inf")}]})
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert answer == {"schema": "filet.test.v1", "version": filet.__version__, "inputs": {"a": "inf", "b": [1.5, "-inf"]},
                      "result": {"c": [{"d": "inf"}]}}  # fmt: skip


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("command", [
    ["epsilon", *RUN, "--delta", "1e-5", "--adjacency", "zero-out"], ["delta", *RUN, "--epsilon", "3", "--adjacency", "zero-out"],
    ["compare", *RUN, "--delta", "1e-5", "--adjacency", "all"],
    ["calibrate", "noise-multiplier", *RUN[:6], "--steps", "100", "--epsilon", "3", "--delta", "1e-5", "--adjacency", "zero-out"],
    ["plan", "--dataset-size", "1000000", "--max-batch-size", "16384", "--steps", "100", "--epsilon", "3", "--delta", "1e-5", "--adjacency",
     "zero-out"],
], ids=lambda command: command[0])  # fmt: skip
def test_answers_fit_and_say_the_same_at_every_width(command, columns):
    def words(width):
        outcome = CliRunner().invoke(main, command, env={"COLUMNS": str(width)})
        assert outcome.exit_code == 0, outcome.output
        return outcome.stdout

    narrow, wide = words(columns), words(300)
    assert max(map(len, narrow.splitlines())) <= columns
    numbers = re.compile(r"\d[\d.e+-]*")
    assert set(numbers.findall(wide)) == set(numbers.findall(narrow))  # no figure is cut
    assert "\u2026" not in narrow


def styled(variables):
    """What is written to a terminal in which variables are set."""
    main_end, terminal = pty.openpty()
    command = [sys.executable, "-m", "filet", "epsilon", *RUN, "--delta", "1e-5", "--adjacency", "zero-out"]
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "NO_COLOR"} | {
        "TERM": "xterm",
        **variables,
    }
    done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(terminal)
    text = os.read(main_end, 100_000).decode()
    os.close(main_end)
    assert (done.returncode, done.stderr) == (0, b"")
    return text


def test_no_color_means_no_attributes_at_all():
    assert "\x1b[1m" in styled({})  # bold
    assert "\x1b" not in styled({"NO_COLOR": "1"})


def test_a_delta_above_one_in_the_examples_is_warned_of(capsys):
    warn_of_delta(1e-5, 60_000)
    warn_of_delta(1e-3)
    assert capsys.readouterr().err == ""
    warn_of_delta(1e-3, 100, 60_000)
    assert "delta 0.001 is above 1 / dataset_size = 1.6e-05" in capsys.readouterr().err


def test_pairs_are_aligned_and_remarks_go_to_stderr(capsys):
    print_pairs([("epsilon", "1"), ("a longer name", "2")])
    note("a remark")
    outcome = capsys.readouterr()
    assert outcome.out == "epsilon        1\na longer name  2\n"
    assert outcome.err == "filet: a remark\n"


def test_without_a_terminal_there_is_nobody_to_report_to(capsys):
    with progress_bar("working") as progress:
        assert progress is None
    assert capsys.readouterr().err == ""


def test_an_existing_file_is_refused_before_any_work(tmp_path):
    path = tmp_path / "a.csv"
    check_output(None, force=False)
    check_output(str(path), force=False)
    path.touch()
    check_output(str(path), force=True)
    with pytest.raises(InvalidArgumentError, match="exists; pass --force"):
        check_output(str(path), force=False)


UNWRITABLE = ["plot frontier", "plot trade-off", "certify", "sample"]


@pytest.mark.parametrize("command", UNWRITABLE)
def test_an_output_that_cannot_be_written_is_noticed_before_the_work(tmp_path, monkeypatch, command):
    """The options are those of a run that does not exist: whoever begins with the work complains of them first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for name, words in (
        ("none/a.csv", "cannot write 'none/a.csv': No such file or directory; choose a writable directory"),
        ("file/a.csv", "cannot write 'file/a.csv': Not a directory; choose a writable directory"),
    ):
        assert words in one_line(run(*command.split(), "--dataset-size", 0, "-o", name), 1)
    assert "path='' is empty" in one_line(run("sample", "--dataset-size", 0, "-o", ""), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
