"""The command that runs a Beam job: the library's batches from files to files, and one line for whatever is wrong."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tests.cli.invoke import one_line, run

import filet
from filet.integrations.batch_files import open_batches

RUN = ["--dataset-size", 40, "--sampling-probability", 0.2, "--max-batch-size", 10, "--steps", 5]
SCHEME = filet.CappedPoisson(40, 0.2, 10)
KEY = bytes(range(32))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory to work in, with a key and a data set in two files."""
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "key").chmod(0o600)
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(np.split(np.arange(40), [25])):
        pyarrow.parquet.write_table(pyarrow.table({"x": rows * 10, "id": 39 - rows}), tmp_path / f"in/{number}.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_files_hold_the_librarys_batches(folder):
    outcome = run("beam", "in/*.parquet", "out", *RUN, "--key-file", "key", "--steps-per-file", 2)
    assert (outcome.exit_code, outcome.stdout) == (0, "")
    assert "wrote 5 steps in 3 files to out" in outcome.stderr
    for batch, wanted in zip(open_batches("out"), SCHEME.sampler(KEY).batches(5), strict=True):
        assert batch.data["x"].tolist() == wanted.take(np.arange(40) * 10).tolist()


def test_every_option_is_the_librarys(folder):
    options = ["--overflow", "reject", "--cycle-length", 2, "--no-secure", "--start", 2, "--rows-per-key", 7]
    more = ["--format", "avro", "--input-format", "parquet", "--id-field", "id", "--runner=FnApiRunner"]
    outcome = run("beam", "in", "out", *RUN, *options, *more, "--key-variable", "FILET_TEST_COMMAND_KEY")
    assert "environment variable FILET_TEST_COMMAND_KEY is not set here" in one_line(outcome, 2)
    outcome = run("beam", "in", "out", *RUN, *options, *more, "--key-file", "key")
    assert outcome.exit_code == 0, outcome.stderr
    scheme = filet.CappedPoisson(40, 0.2, 10, overflow="reject", cycle_length=2)
    batches = open_batches("out", reread=True)
    assert [batch.step for batch in batches] == [2, 3, 4]
    for batch in batches:
        wanted = scheme.sampler(KEY, secure=False)[batch.step]
        assert batch.data["x"].tolist() == wanted.take(np.arange(40)[::-1] * 10).tolist()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("planned", [30, 40])
def test_a_secret_size_is_counted_and_a_plan_of_its_own_size_noted(folder, planned):
    options = ["--dataset-size", planned, "--overflow", "reject", "--size", "secret", *RUN[2:]]
    outcome = run("beam", "in/*.parquet", "out", *options, "--key-file", "key")
    assert outcome.exit_code == 0, outcome.stderr
    assert ("voids the guarantee" in outcome.stderr) == (planned == 40)
    assert len(outcome.stderr.splitlines()) == 1 + (planned == 40)
    scheme = filet.CappedPoisson(planned, 0.2, 10, overflow="reject", size="secret")
    for batch, wanted in zip(open_batches("out"), scheme.sampler(KEY, records=40).batches(5), strict=True):
        assert batch.data["x"].tolist() == wanted.take(np.arange(40) * 10).tolist()


def test_a_finished_run_is_replaced_only_when_told_to(folder):
    command = ["beam", "in/*.parquet", "out", *RUN, "--key-file", "key"]
    assert run(*command).exit_code == 0
    assert "'out' holds a finished run; pass --force" in one_line(run(*command), 2)
    assert run(*command, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (["--dataset-size", 41, *RUN[2:]], "the data has 40 examples, not dataset_size=41"),
        ([*RUN, "--overfow", "reject"], "neither filet nor Beam knows '--overfow'"),
        ([*RUN, "--max-batchsize=3"], "neither filet nor Beam knows '--max_batchsize'"),
        (["extra", *RUN], "neither filet nor Beam knows 'extra'"),
        (RUN[2:], "dataset_size is missing; pass --dataset-size"),
        (RUN[:-2], "steps is missing; pass --steps"),
        ([*RUN, "--key-variable", "K"], "several keys are given; pass one of --key-file, --key-variable or --key-call"),
        ([*RUN, "--input-format", "avro"], "cannot be read as avro"),
        ([*RUN, "--id-field", "name"], "an example has no field 'name'"),
    ],
)
def test_what_is_wrong_is_one_line(folder, changes, line):
    assert line in one_line(run("beam", "in/*.parquet", "out", *changes, "--key-file", "key"), 2)
    assert not (folder / "out").exists()


def test_misplaced_options_and_missing_keys_are_one_line(folder):
    assert "put Beam's options behind them" in one_line(run("beam", "--runner=X", "in", *RUN, "--key-file", "key"), 2)
    assert "no key is given" in one_line(run("beam", "in/*.parquet", "out", *RUN), 2)
    assert "no file matches" in one_line(run("beam", "no/*.avro", "out", *RUN, "--key-file", "key"), 2)
    assert "format='' is unknown" in one_line(run("beam", "in", "out", *RUN, "--key-file", "key"), 2)


def test_an_option_may_go_past_beams_checks(folder):
    command = ["beam", "in/*.parquet", "out", *RUN, "--key-file", "key", "--runner-option", "spark_driver=3"]
    assert run(*command).exit_code == 0
