"""The command that runs a Spark job: the library's batches from files to files, and one line for whatever is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pyspark
import pytest
from tests.cli.invoke import one_line, run

import filet
from filet.integrations.batch_files import open_batches

RUN = ["--dataset-size", 40, "--sampling-probability", 0.2, "--max-batch-size", 10, "--steps", 5]
SCHEME = filet.CappedPoisson(40, 0.2, 10)
KEY = bytes(range(32))
ROOT = Path(__file__).resolve().parents[3]


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


def check(path, sampler, order):
    batches = list(open_batches(path))
    assert batches
    for batch in batches:
        assert batch.data["x"].tolist() == sampler[batch.step].take(order * 10).tolist()
    return [batch.step for batch in batches]


def test_the_files_hold_the_librarys_batches(session, folder):
    command = ["spark", "in/*.parquet", "out", *RUN, "--key-file", "key", "--steps-per-file", 2]
    outcome = run(*command)
    assert (outcome.exit_code, outcome.stdout) == (0, ""), outcome.stderr
    assert "wrote 5 steps to out" in outcome.stderr
    assert check("out", SCHEME.sampler(KEY), np.arange(40)) == [0, 1, 2, 3, 4]
    assert "'out' holds a finished run; pass --force" in one_line(run(*command), 2)
    assert run(*command, "--force").exit_code == 0


def test_every_option_is_the_librarys(session, folder):
    options = ["--overflow", "reject", "--cycle-length", 2, "--no-secure", "--start", 2, "--rows-per-key", 7]
    more = ["--format", "avro", "--input-format", "parquet", "--id-field", "id", "--key-file", "key"]
    outcome = run("spark", "in", "out", *RUN, *options, *more)
    assert outcome.exit_code == 0, outcome.stderr
    scheme = filet.CappedPoisson(40, 0.2, 10, overflow="reject", cycle_length=2)
    assert check("out", scheme.sampler(KEY, secure=False), np.arange(40)[::-1]) == [2, 3, 4]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("id_field", [[], ["--id-field", "id"]])
def test_a_size_that_is_not_public_is_counted_and_a_plan_of_its_own_size_noted(session, folder, id_field):
    options = [*RUN, "--size", "at-most", *id_field, "--input-format", "parquet", "--key-file", "key"]
    outcome = run("spark", "in", "out", *options)
    assert outcome.exit_code == 0, outcome.stderr
    assert "voids the guarantee" in outcome.stderr
    sampler = filet.CappedPoisson(40, 0.2, 10, size="at-most").sampler(KEY, records=40)
    assert check("out", sampler, np.arange(40)[::-1] if id_field else np.arange(40)) == [0, 1, 2, 3, 4]
    assert "records is above dataset_size=39" in one_line(
        run("spark", "in", "b", "--dataset-size", 39, *options[2:]), 2
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "no key is given; pass one of --key-file"),
        (["--key-file", "key", "--key-variable", "A"], "several keys are given"),
        (["--key-file", "key", "--conf", "nothing"], "--conf 'nothing' is no setting; pass --conf name=value"),
        (["--key-file", "key", "--id-field", "id", "--input-format", "avro"], "--id-field with avro files"),
        (["--key-file", "key", "--start", 9], "start=9 is above 5"),
        (["--key-file", "none"], "cannot read the key file"),
    ],
)
def test_what_is_wrong_is_one_line(session, folder, more, words):
    assert words in one_line(run("spark", "in/*.parquet", "out", *RUN, *more), 2)
    assert not Path("out").exists()


@pytest.mark.long
def test_spark_submit_runs_the_same_job(folder):
    """A driver of its own, as spark-submit starts it."""
    home = os.path.dirname(pyspark.__file__)
    environment = {
        **os.environ,
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "src"),
    }
    script = str(ROOT / "src" / "filet" / "__main__.py")
    command = [os.path.join(home, "bin", "spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    command += [script, "spark", "in/*.parquet", "out", *map(str, RUN), "--key-file", "key"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert check("out", SCHEME.sampler(KEY), np.arange(40)) == [0, 1, 2, 3, 4]
