"""Batches and keys: the library's, in every format, secrets for their owner, nothing overwritten unasked."""

import json
import os
import stat

import numpy as np
import pytest
from tests.cli.invoke import SCHEME, one_line, run

import filet


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
    (tmp_path / "key").chmod(0o600)
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


def test_a_short_key_is_remarked_on_in_one_line_on_stderr():
    options = ["sample", *SCHEME, "--steps", "2", "--key"]
    outcome = run(*options, "7")
    assert outcome.exit_code == 0
    assert outcome.stderr.startswith("filet: key is an integer below 2**64, which can be found by trying")
    assert outcome.stderr.count("\n") == 1
    assert "2**64" not in run(*options, hex(2**64)).stderr


def test_a_secret_key_is_not_repeated_in_errors():
    assert "hunter2" not in run("sample", *SCHEME, "--steps", "2", "--key", "hunter2").output


posix = pytest.mark.skipif(os.name != "posix", reason="file modes")
SAMPLE = ["sample", *SCHEME, "--steps", 2, "--key", 2**64]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@posix
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.npy"])
def test_batches_are_for_their_owner_only(tmp_path, name):
    mask = os.umask(0)
    try:
        assert run(*SAMPLE, "-o", tmp_path / name).exit_code == 0
    finally:
        os.umask(mask)
    assert mode(tmp_path / name) == 0o600


@pytest.mark.parametrize("arguments", [SAMPLE, ["plot", "batch-sizes", *SCHEME]])
def test_a_file_is_overwritten_only_by_force_and_keeps_its_mode(tmp_path, arguments):
    path = tmp_path / "a.csv"
    path.write_text("precious")
    path.chmod(0o640)
    assert "exists; pass --force" in one_line(run(*arguments, "-o", path), 2)
    assert path.read_text() == "precious"
    assert run(*arguments, "-o", path, "--force").exit_code == 0
    assert path.read_text() != "precious"
    assert os.name != "posix" or mode(path) == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]


@posix
@pytest.mark.parametrize("bits", [0o644, 0o640, 0o604, 0o620, 0o660])
def test_a_key_file_that_is_open_to_others_is_refused_with_the_remedy(tmp_path, bits):
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    path.chmod(bits)
    message = one_line(run(*SAMPLE[:-2], "--key-file", path), 2)
    assert f"has mode {bits:04o}" in message
    assert "chmod 600" in message
    for closed in (0o600, 0o400):
        path.chmod(closed)
        assert run(*SAMPLE[:-2], "--key-file", path).exit_code == 0


def test_what_cannot_be_written_is_code_1_and_leaves_nothing_behind(tmp_path):
    assert "cannot write" in one_line(run(*SAMPLE, "-o", tmp_path / "no" / "a.csv"), 1)
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_new_key_is_for_its_owner_and_draws_batches(tmp_path):
    path = tmp_path / "run.key"
    mask = os.umask(0)
    try:
        outcome = run("keygen", path)
    finally:
        os.umask(mask)
    assert (outcome.exit_code, outcome.stdout) == (0, "")
    assert f"wrote {path}" in outcome.stderr
    assert mode(path) == 0o600
    key = path.read_bytes()
    assert len(key) == 32
    assert key.hex() not in outcome.output
    drawn = [json.loads(line)["indices"] for line in run(*SAMPLE[:-2], "--key-file", path).stdout.splitlines()]
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    assert drawn == [batch.indices.tolist() for batch in scheme.sampler(key).batches(2)]


def test_a_key_is_never_replaced_and_two_are_never_the_same(tmp_path):
    assert run("keygen", tmp_path / "a").exit_code == run("keygen", tmp_path / "b").exit_code == 0
    before = (tmp_path / "a").read_bytes()
    assert before != (tmp_path / "b").read_bytes()
    assert "it exists" in one_line(run("keygen", tmp_path / "a"), 1)
    assert (tmp_path / "a").read_bytes() == before
    assert "cannot write" in one_line(run("keygen", tmp_path / "no" / "key"), 1)


def test_a_file_of_no_key_is_refused(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(bytes(15))
    path.chmod(0o600)
    assert "holds 15 bytes, not 16 to 64" in one_line(run(*SAMPLE[:-2], "--key-file", path), 2)


def test_batches_of_a_run_file_are_those_of_its_options(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("dataset_size = 60_000\npoisson_batch_size = 256\nmax_batch_size = 300\nsteps = 2\n")
    assert run("sample", "--config", path, "--key", 2**64).stdout == run(*SAMPLE).stdout
    assert "drop --steps" in one_line(run("sample", "--config", path, "--key", 1, "--steps", 3), 2)
    path.write_text("dataset_size = 9\nsampling_probability = 0.5\n[[phases]]\nepochs = 1\nno_cap = true\n")
    assert len(json.loads(run("sample", "--config", path, "--key", 1).stdout.splitlines()[1])["indices"]) == 9
    path.write_text("dataset_size = 9\n[[phases]]\nsteps = 1\n[[phases]]\nsteps = 2\n")
    assert "about one phase alone" in one_line(run("sample", "--config", path, "--key", 1), 2)
