"""Options that commands share: what they accept, what goes together, and what is missing."""

import click
import pytest
from click.testing import CliRunner

from filet.cli.options import (
    INTEGER,
    RUN_NAMES,
    FilePath,
    output_options,
    required,
    run_from,
    run_options,
    settings_from,
)
from filet.errors import InvalidArgumentError

GIVEN = {"dataset_size": 100, "sampling_probability": 0.1, "max_batch_size": 20, "noise_multiplier": 1.0, "steps": 5,
         "adjacency": "zero-out"}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "number"), [("60000", 60_000), ("60_000", 60_000), ("6e4", 60_000), ("-3", -3), (7, 7)]
)
def test_whole_numbers_are_read_in_every_usual_form(text, number):
    assert INTEGER.convert(text, None, None) == number


@pytest.mark.parametrize("text", ["12.5", "", "abc", "nan", "inf", "1e400", "1e17", "0x10"])
def test_what_is_not_a_whole_number_is_refused(text):
    with pytest.raises(click.BadParameter, match="is not a whole number"):
        INTEGER.convert(text, None, None)


def test_a_name_that_the_file_system_cannot_encode_is_refused():
    with pytest.raises(click.BadParameter, match=r"'\\ud800.toml' has characters that file names cannot have here"):
        FilePath().convert("\ud800.toml", None, None)


def test_the_options_of_a_run_are_those_that_run_from_reads():
    @click.command()
    @run_options
    def command(**options):
        pass

    assert {parameter.name for parameter in command.params} | {"analysis", "adjacency"} == set(RUN_NAMES)


def test_a_run_and_its_question_come_from_the_options():
    run = run_from({**GIVEN, "delta": 1e-3, "max_epsilon": 2.0, "epochs": None, "config": None})
    assert (run.delta, run.max_epsilon) == (1e-3, 2.0)
    [phase] = run.accountant.phases
    assert (phase.steps, phase.noise_multiplier, phase.scheme.dataset_size) == (5, 1.0, 100)
    assert run.only_phase is phase


def test_the_question_of_the_command_line_wins_over_the_files(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('adjacency = "zero-out"\ndelta = 1e-5\nmax_epsilon = 3.0\n[[gaussian]]\nnoise_multiplier = 2.0\n')
    assert run_from({"config": str(path)}).delta == 1e-5
    run = run_from({"config": str(path), "delta": 1e-7})
    assert (run.delta, run.max_epsilon) == (1e-7, 3.0)
    with pytest.raises(InvalidArgumentError, match="drop --steps"):
        run_from({"config": str(path), "steps": 3})


@pytest.mark.parametrize("name", ["adjacency", "dataset_size", "max_batch_size", "noise_multiplier"])
def test_what_has_no_default_is_named(name):
    option = "--" + name.replace("_", "-")
    with pytest.raises(InvalidArgumentError, match=f"{name} is missing; pass {option}( or --no-cap)? "):
        run_from({key: value for key, value in GIVEN.items() if key != name})
    with pytest.raises(InvalidArgumentError, match="is missing"):
        required({name: None}, name)


@pytest.mark.parametrize(
    ("question", "words"), [({"delta": 2.0}, "not in \\(0, 1\\)"), ({"max_epsilon": -1.0}, "not in")]
)
def test_the_question_is_checked_as_in_a_file(question, words):
    with pytest.raises(InvalidArgumentError, match=words):
        run_from({**GIVEN, **question})


def test_a_missing_delta_is_asked_for():
    with pytest.raises(InvalidArgumentError, match="delta is missing; pass --delta"):
        run_from(GIVEN, "delta")


def test_a_delta_missing_in_a_file_is_asked_for(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('adjacency = "zero-out"\n[[gaussian]]\nnoise_multiplier = 2.0\n')
    with pytest.raises(InvalidArgumentError, match="delta is missing in the file; pass --delta"):
        run_from({"config": str(path)}, "delta")
    assert run_from({"config": str(path), "delta": 1e-3}, "delta").delta == 1e-3
    assert run_from({"config": str(path)}).only_phase is None


def test_missing_options_are_listed_with_both_ways_to_give_them():
    with pytest.raises(InvalidArgumentError) as caught:
        required({"a": 1, "b": None}, "a", "b", ("c", "d_e"), ("f", "a"))
    assert str(caught.value) == "b and c are missing; pass --b and --c or --d-e (they have no default)"
    required({"a": 0}, "a")


def test_settings_come_from_options_or_from_a_file_of_one_phase(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('adjacency = "zero-out"\nmax_epsilon = 3.0\ndelta = 1e-5\nsteps = 7\noverflow = "reject"\n')
    names = ("steps", "epsilon", "delta", "dataset_size")
    assert settings_from({"steps": 3, "epsilon": None, "config": None}, names) == (
        {"steps": 3, "epsilon": None, "delta": None, "dataset_size": None}, [])  # fmt: skip
    found = {"steps": 7, "epsilon": 3.0, "delta": 1e-5, "dataset_size": None}
    assert settings_from({"config": str(path), "steps": None}, names) == (found, ["overflow"])
    assert settings_from({"config": str(path), "epsilon": 2.0, "delta": 1e-6}, names)[0] == {
        **found,
        "epsilon": 2.0,
        "delta": 1e-6,
    }
    with pytest.raises(InvalidArgumentError, match="drop --steps"):
        settings_from({"config": str(path), "steps": 3}, names)


def test_output_comes_with_force():
    @click.command()
    @output_options("A file.")
    def command(output, force):
        click.echo(f"{output} {force}")

    assert CliRunner().invoke(command, ["-o", "a.csv"]).output == "a.csv False\n"
    assert CliRunner().invoke(command, ["--output", "a.csv", "--force"]).output == "a.csv True\n"
    assert CliRunner().invoke(command, []).output == "None False\n"
