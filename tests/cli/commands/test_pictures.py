"""Pictures: each kind has the options it reads and no others, says what it wrote, and reads run files."""

import os
import stat

import pytest
from tests.cli.invoke import SCHEME, one_line, run

from filet.cli.commands.pictures import KINDS

RATE = ["--dataset-size", "60000", "--poisson-batch-size", "256", "--max-batch-size", "300"]
RUN = [*RATE, "--noise-multiplier", "1", "--steps", "100", "--adjacency", "zero-out", "--points", "2"]
TARGET = ["--steps", "100", "--epsilon", "1", "--delta", "1e-5", "--adjacency", "zero-out", "--points", "2"]
OPTIONS = {
    "epsilon-steps": [*RUN, "--delta", "1e-5"], "epsilon-cap": [*RUN, "--delta", "1e-5"], "delta-epsilon": RUN, "trade-off": RUN, "batch-sizes": RATE,
    "utilization": ["--dataset-size", "60000", "--max-batch-size", "300", "--noise-multiplier", "1", *TARGET],
    "frontier": [*RATE, *TARGET],
}  # fmt: skip
FILE = """adjacency = "zero-out"
delta = 1e-5
max_epsilon = 1.0
dataset_size = 60_000
poisson_batch_size = 256
max_batch_size = 300
noise_multiplier = 1.0
steps = 100
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_the_command_writes_pictures_and_numbers(tmp_path, kind):
    for suffix in ("svg", "csv"):
        outcome = run("plot", kind, *OPTIONS[kind], "-o", tmp_path / f"a.{suffix}")
        assert outcome.exit_code == 0, outcome.output
        assert outcome.stdout == ""
        assert outcome.stderr.startswith(f"filet: wrote {tmp_path / 'a'}.{suffix}: ")
    header, *rows = (tmp_path / "a.csv").read_text().splitlines()
    assert len(header.split(",")) >= 2
    assert all(len([float(value) for value in row.split(",")]) == len(header.split(",")) for row in rows)
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_file_is_as_good_as_options(tmp_path, kind):
    (tmp_path / "run.toml").write_text(FILE)
    points = [] if kind == "batch-sizes" else ["--points", "2"]
    assert run("plot", kind, *OPTIONS[kind], "-o", tmp_path / "a.csv").exit_code == 0
    outcome = run("plot", kind, "--config", tmp_path / "run.toml", *points, "-o", tmp_path / "b.csv")
    assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    message = one_line(
        run("plot", kind, "--config", tmp_path / "run.toml", "--dataset-size", 9, "-o", tmp_path / "c.csv"), 2
    )
    assert "drop --dataset-size" in message


UNUSED = [
    ("batch-sizes", "--noise-multiplier"), ("batch-sizes", "--delta"), ("batch-sizes", "--points"), ("delta-epsilon", "--delta"),
    ("trade-off", "--delta"), ("trade-off", "--epsilon"), ("epsilon-steps", "--epsilon"), ("utilization", "--sampling-probability"),
    ("utilization", "--epochs"), ("utilization", "--overflow"), ("frontier", "--noise-multiplier"), ("frontier", "--analysis"),
    ("frontier", "--cycle-length"), ("epsilon-cap", "--analysis"), ("epsilon-cap", "--overflow"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "option"), UNUSED)
def test_what_a_kind_does_not_read_is_refused(tmp_path, kind, option):
    assert "No such option" in one_line(run("plot", kind, *OPTIONS[kind], option, "1", "-o", tmp_path / "a.csv"), 2)
    assert option not in run("plot", kind, "--help").stdout.replace("--delta-", "")


@pytest.mark.parametrize("kind", KINDS)
def test_the_help_of_a_kind_names_what_it_needs(kind):
    text = run("plot", kind, "--help").stdout
    for option in OPTIONS[kind][::2]:
        assert option in text
    missing = one_line(run("plot", kind), 2)
    assert "dataset_size" in missing
    assert " are missing; pass --dataset-size" in missing
    assert "--output" in missing
    assert "output is missing" in one_line(run("plot", kind, *OPTIONS[kind]), 2)
    assert kind in run("plot", "--help").stdout


def test_a_wrong_or_missing_kind_is_answered_with_the_right_ones():
    message = one_line(run("plot"), 2)
    assert all(kind in message for kind in KINDS)
    assert "did you mean frontier?" in one_line(run("plot", "fronteer"), 2)


def test_the_steps_of_several_phases_are_drawn_in_their_order(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(FILE.replace("steps = 100", "") + "[[phases]]\nsteps = 60\n[[phases]]\nsteps = 40\nnoise_multiplier = 2.0\n"
                    "[[gaussian]]\nnoise_multiplier = 30.0\n")  # fmt: skip
    options = ["plot", "epsilon-steps", "--config", path, "--points", 6]
    assert run(*options, "-o", tmp_path / "a.csv").exit_code == 0
    header, *rows = [line.split(",") for line in (tmp_path / "a.csv").read_text().splitlines()]
    assert header == ["steps", "epsilon_run"]
    assert [int(row[0]) for row in rows] == [0, 20, 40, 60, 80, 100]
    spent = [float(row[1]) for row in rows]
    assert spent == sorted(spent)
    assert spent[0] > 0.0  # the release
    assert run("epsilon", "--config", path, "--json").stdout.count(f'"epsilon": {spent[-1]!r}') == 1
    assert run(*options, "-o", tmp_path / "a.svg").exit_code == 0


@pytest.mark.parametrize(
    ("more", "file", "drawn"),
    [
        ([], "", ["refined", "swap", "note", "union"]),
        (["--analysis", "note"], "", ["note"]),
        (["--analysis", "refined"], "", ["refined"]),
        (["--overflow", "reject"], "", ["refined"]),
        (None, 'analysis = "union"\n', ["union"]),
        (None, "", ["refined", "swap", "note", "union"]),
    ],
)
def test_the_analysis_that_is_asked_for_is_drawn_alone(tmp_path, more, file, drawn):
    (tmp_path / "run.toml").write_text(FILE + file)
    options = OPTIONS["epsilon-steps"] if more is not None else ["--config", tmp_path / "run.toml", "--points", 2]
    assert run("plot", "epsilon-steps", *options, *(more or []), "-o", tmp_path / "a.csv").exit_code == 0
    header = (tmp_path / "a.csv").read_text().splitlines()[0].split(",")
    assert header == ["steps", *(f"epsilon_{name}" for name in drawn), "epsilon_attack"]


def test_without_a_cap_there_is_none_to_draw(tmp_path):
    outcome = run("plot", "batch-sizes", *RATE[:4], "--no-cap", "-o", tmp_path / "a.svg")
    assert outcome.exit_code == 0
    assert "no cap" in outcome.stderr
    assert run("plot", "batch-sizes", *RATE[:4], "--no-cap", "-o", tmp_path / "a.csv").exit_code == 0
    assert len((tmp_path / "a.csv").read_text().splitlines()) < 400


NOISELESS = [*RATE, "--noise-multiplier", "0", "--steps", "9000", "--adjacency", "zero-out", "--points", "3"]


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("epsilon-steps", [*NOISELESS, "--delta", "1e-5"], "No finite epsilon is proven"),
        ("epsilon-cap", [*NOISELESS, "--delta", "1e-5"], "No finite epsilon is proven"),
        ("delta-epsilon", NOISELESS, "Delta is 1 at every epsilon"),
        ("utilization", ["--dataset-size", "60000", "--max-batch-size", "300", "--noise-multiplier", "0", *TARGET],
         "No sampling probability meets the target"),
    ],
)  # fmt: skip
def test_a_run_without_noise_draws_a_message_in_place_of_an_empty_frame(tmp_path, kind, options, words):
    outcome = run("plot", kind, *options, "-o", tmp_path / "a.svg")
    assert outcome.exit_code == 0, outcome.output
    assert words in (tmp_path / "a.svg").read_text()


posix = pytest.mark.skipif(os.name != "posix", reason="file modes")


@posix
def test_numbers_to_draw_follow_the_umask(tmp_path):
    mask = os.umask(0o027)
    try:
        assert run("plot", "batch-sizes", *SCHEME, "-o", tmp_path / "a.csv").exit_code == 0
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a.csv").stat().st_mode) == 0o640
