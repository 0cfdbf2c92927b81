"""The commands that write files: the library's batches and pictures, secrets for their owner, nothing overwritten unasked."""

import json
import os
import stat

import numpy as np
import pytest
from tests.cli.invoke import SCHEME, one_line, run

import filet
from filet.cli.commands.files import KINDS


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


def test_a_secret_key_is_not_repeated_in_errors():
    assert "hunter2" not in run("sample", *SCHEME, "--steps", "2", "--key", "hunter2").output


posix = pytest.mark.skipif(os.name != "posix", reason="file modes")
SAMPLE = ["sample", *SCHEME, "--steps", 2, "--key", 1]


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


@posix
def test_numbers_to_draw_follow_the_umask(tmp_path):
    mask = os.umask(0o027)
    try:
        assert run("plot", "batch-sizes", *SCHEME, "-o", tmp_path / "a.csv").exit_code == 0
    finally:
        os.umask(mask)
    assert mode(tmp_path / "a.csv") == 0o640


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
    assert f"(mode {bits:03o})" in message
    assert "chmod 600" in message
    for closed in (0o600, 0o400):
        path.chmod(closed)
        assert run(*SAMPLE[:-2], "--key-file", path).exit_code == 0


def test_what_cannot_be_written_is_code_1_and_leaves_nothing_behind(tmp_path):
    assert "cannot write" in one_line(run(*SAMPLE, "-o", tmp_path / "no" / "a.csv"), 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_writes_pictures_and_numbers(tmp_path, kind):
    options = ["--dataset-size", "60000", "--poisson-batch-size", "256", "--max-batch-size", "300",
               "--noise-multiplier", "1", "--steps", "100", "--adjacency", "zero-out", "--delta", "1e-5",
               "--points", "2"]  # fmt: skip
    if kind in ("utilization", "frontier"):
        options += ["--epsilon", "1"]
    for suffix in ("svg", "csv"):
        outcome = run("plot", kind, *options, "-o", tmp_path / f"a.{suffix}")
        assert outcome.exit_code == 0, outcome.output
        assert outcome.output == ""
    header, *rows = (tmp_path / "a.csv").read_text().splitlines()
    assert len(header.split(",")) >= 2
    assert all(len([float(value) for value in row.split(",")]) == len(header.split(",")) for row in rows)
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


def test_the_drawn_steps_are_of_runs_with_one_phase(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('adjacency = "zero-out"\ndelta = 1e-5\n[[gaussian]]\nnoise_multiplier = 3.0\n')
    message = one_line(run("plot", "epsilon-steps", "--config", path, "-o", tmp_path / "a.csv"), 2)
    assert "runs of one phase" in message
