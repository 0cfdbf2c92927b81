"""Batches by Beam: the in-memory sampler's, byte for byte, whatever the policy, format, sharding, worker or runner."""

from __future__ import annotations

import base64
import bz2
import contextlib
import os
import re
import socket
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows
from tests.integrations.beam_jobs import (
    LOCAL,
    NOT_PUBLIC,
    SCHEME,
    SIZE,
    STEPS,
    TWO_WORKERS,
    arrays,
    assert_is_the_samplers,
    contents,
    created,
    examples,
    expected,
    fails,
    from_parquet,
    not_public,
    sampler_of,
    secret,
    warned_of,
    words,
    write_job,
    write_parquet,
)
from tests.integrations.planted import PLANTED, folder_tells, tells

import filet
from filet.integrations.beam import (
    CappedPoissonBatches,
    KeyCall,
    ReadExamples,
    WriteBatches,
    open_batches,
    run_job,
)

RUNS = [("truncate", 1, "arrow"), ("reject", 1, "tfrecord"), ("truncate", 3, "avro"), ("reject", 4, "parquet")]


@pytest.mark.parametrize(("overflow", "cycle", "form"), RUNS)
def test_files_hold_the_samplers_batches(tmp_path, overflow, cycle, form):
    scheme = filet.CappedPoisson(SIZE, 0.03 * cycle, 12, overflow=overflow, cycle_length=cycle)
    key, data = secret(tmp_path), write_parquet(tmp_path / "in", shards=3, texts=True)
    write_job(from_parquet(data), tmp_path / "out", key, scheme=scheme, format=form)
    batches = open_batches(tmp_path / "out")
    assert len(batches) == STEPS
    assert_is_the_samplers(batches, sampler_of(scheme, key), arrays(), words())


@pytest.mark.parametrize(("size", "planned"), NOT_PUBLIC)
def test_files_of_a_secret_size_hold_the_batches_of_the_true_number(tmp_path, size, planned):
    scheme, key = not_public(size, planned), secret(tmp_path)
    data = write_parquet(tmp_path / "in", shards=3, texts=True)
    with warned_of(planned):
        write_job(from_parquet(data), tmp_path / "out", key, scheme=scheme)
    assert contents(tmp_path / "out") == contents(expected(tmp_path, scheme))
    batches = open_batches(tmp_path / "out")
    assert batches.scheme == scheme
    assert_is_the_samplers(batches, sampler_of(scheme, key, records=SIZE), arrays(), words())


@pytest.mark.parametrize("form", ["arrow", "parquet", "tfrecord", "avro"])
def test_arrays_alone_and_steps_from_the_middle_of_a_run(tmp_path, form):
    key = secret(tmp_path)
    write_job(created(examples()), tmp_path / "out", key, start=7, secure=False, format=form)
    batches = open_batches(tmp_path / "out", reread=True)
    assert [batch.step for batch in batches] == list(range(7, STEPS))
    assert_is_the_samplers(batches, sampler_of(SCHEME, key, secure=False), arrays())


def test_no_steps_are_a_run_too(tmp_path):
    write_job(created(examples()), tmp_path / "out", secret(tmp_path), steps=0)
    assert len(open_batches(tmp_path / "out")) == 0
    assert os.listdir(tmp_path / "out") == ["manifest.json"]


def test_every_example_in_every_step(tmp_path):
    scheme, key = filet.CappedPoisson(SIZE, 1.0, SIZE), secret(tmp_path)
    write_job(created(examples()), tmp_path / "out", key, scheme=scheme, steps=4)
    assert_is_the_samplers(open_batches(tmp_path / "out"), sampler_of(scheme, key), arrays())


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The files of one run, made in one process from one shard."""
    folder = tmp_path_factory.mktemp("reference")
    write_job(from_parquet(write_parquet(folder / "in", 1)), folder / "out", secret(folder))
    return contents(folder / "out")


@pytest.mark.parametrize(("shards", "rows_per_key"), [(2, 1000), (7, 1)])
def test_files_do_not_depend_on_shards_or_blocks(tmp_path, reference, shards, rows_per_key):
    data = write_parquet(tmp_path / "in", shards)
    write_job(from_parquet(data), tmp_path / "out", secret(tmp_path), rows_per_key=rows_per_key)
    assert contents(tmp_path / "out") == reference


def test_files_do_not_depend_on_the_number_of_workers(tmp_path, reference):
    write_job(from_parquet(write_parquet(tmp_path / "in", 3)), tmp_path / "out", secret(tmp_path), TWO_WORKERS)
    assert contents(tmp_path / "out") == reference


@pytest.mark.slow
@pytest.mark.parametrize("form", ["arrow", "parquet", "tfrecord", "avro"])
@pytest.mark.parametrize("cycle", [1, 3])
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_every_policy_cycle_and_format_on_one_and_two_workers_from_any_shards(tmp_path, overflow, cycle, form):
    scheme = filet.CappedPoisson(SIZE, 0.03 * cycle, 12, overflow=overflow, cycle_length=cycle)
    key, shards = secret(tmp_path), np.random.default_rng([*map(ord, overflow + form), cycle]).integers(2, 30, size=2)
    found = []
    for options, count in ((LOCAL, 1), (LOCAL, shards[0]), (TWO_WORKERS, shards[1])):
        data = write_parquet(tmp_path / f"in-{len(found)}", count, texts=True)
        output = tmp_path / f"out-{len(found)}"
        write_job(from_parquet(data), output, key, options, scheme=scheme, format=form)
        found.append(contents(output))
    assert found[0] == found[1] == found[2]
    assert_is_the_samplers(open_batches(tmp_path / "out-0"), sampler_of(scheme, key), arrays(), words())


# --- other runners -------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def wait_for(port, process):
    for _ in range(600):
        assert process.poll() is None
        with socket.socket() as one:
            if one.connect_ex(("localhost", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nobody answers on port {port}")


@pytest.fixture
def cluster(tmp_path):
    """A job server and a pool of workers, each a process of its own, as a cluster of Flink's or Spark's would have."""
    ports, processes = (free_port(), free_port()), []
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # the pool starts `python`
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(filet.__file__).parents[1])}
    modules = ("runners.portability.local_job_service_main", "runners.worker.worker_pool_main")
    with (tmp_path / "cluster.log").open("wb") as log:
        for module, option, port in zip(modules, ("--port", "--service_port"), ports, strict=True):
            command = [sys.executable, "-m", f"apache_beam.{module}", f"{option}={port}"]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        try:
            for port, process in zip(ports, processes, strict=True):
                wait_for(port, process)
            yield (
                "--runner=PortableRunner",
                f"--job_endpoint=localhost:{ports[0]}",
                "--environment_type=EXTERNAL",
                f"--environment_config=localhost:{ports[1]}",
            )
        finally:
            for process in processes:
                process.terminate()
                process.wait(20)


def test_a_job_server_with_a_pool_of_workers_writes_the_same_bytes(tmp_path, cluster, reference):
    write_job(from_parquet(write_parquet(tmp_path / "in", 3)), tmp_path / "out", secret(tmp_path), cluster)
    assert contents(tmp_path / "out") == reference


def test_another_number_of_examples_fails_the_job(tmp_path):
    fails(tmp_path, [], "the data has 0 examples, not dataset_size=300")


def test_an_index_twice_or_missing_fails_the_job(tmp_path):
    pairs = examples()
    twice = [*pairs[:40], (250, pairs[40][1]), *pairs[41:]]
    fails(tmp_path, twice, "the index 250 is there twice|the index 40 is missing")


def test_an_index_out_of_range_fails_the_job(tmp_path):
    pairs = examples()
    fails(tmp_path, [*pairs[:-1], (300, pairs[-1][1])], r"an example has the index 300, not in \[0, 300\)")


def test_an_example_of_another_shape_fails_the_job(tmp_path):
    pairs = examples()
    other = {**pairs[9][1], "weight": np.zeros(5)}
    line = r"example 9 has shape \(5,\) and type float64 as 'weight', where example 0 has shape \(4,\) and type float64"
    fails(tmp_path, [*pairs[:9], (9, other), *pairs[10:]], line)


def test_the_line_survives_worker_processes(tmp_path):
    fails(tmp_path, examples()[:-1], "the data has 299 examples, not dataset_size=300", options=TWO_WORKERS)


def test_wrong_arguments_are_refused_before_anything_runs(tmp_path):
    key = secret(tmp_path)
    for wrong, match in [
        ({"key": b"sixteen bytes ok"}, "key is of type bytes, and a pipeline would carry it in the clear"),
        ({"key": 7}, "key is of type int, and a pipeline"),
        ({"key": None}, "key is of type NoneType"),
        ({"scheme": 3}, "scheme=3 is not a CappedPoisson"),
        ({"steps": -1}, "steps=-1 is below 0"),
        ({"start": 21}, "start=21 is above 20"),
        ({"rows_per_key": 0}, "rows_per_key=0 is below 1"),
        ({"secure": "no"}, "secure='no' is not a bool"),
    ]:
        with pytest.raises(filet.InvalidArgumentError, match=match):
            CappedPoissonBatches(**{"scheme": SCHEME, "steps": 20, "key": key, **wrong})
    with pytest.raises(filet.InvalidArgumentError, match="format='csv' is unknown"):
        WriteBatches(tmp_path, SCHEME, 20, key, format="csv")
    job = beam.Pipeline(runner="FnApiRunner")
    windows = job | beam.Create(examples()) | beam.WindowInto(FixedWindows(1))
    with pytest.raises(filet.InvalidArgumentError, match="the examples are in windows"):
        _ = windows | CappedPoissonBatches(SCHEME, 20, key)


def test_workers_with_different_keys_fail_the_job(tmp_path, monkeypatch):
    (tmp_path / "confused_vault.py").write_text("import os\ndef fetch():\n    return os.urandom(32)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(filet.__file__).parents[1])]))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(filet.InvalidArgumentError, match="workers have different keys"):
        write_job(created(examples()), tmp_path / "out", KeyCall("confused_vault:fetch"), TWO_WORKERS, steps_per_file=1)


def test_the_key_is_nowhere_but_in_its_file(tmp_path, capfd, monkeypatch, caplog):
    """Not in the pipeline that is sent, its display data and options, in logs, nor in what the job leaves on disk."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    key = secret(tmp_path)
    value = Path(key.path).read_bytes()
    derived = filet.CappedPoisson(10, 0.5, 8).sampler(value).__getstate__()["key"]
    forms = [form for one in (value, derived) for form in (one, one.hex().encode(), one.hex().upper().encode(),
             base64.b64encode(one), repr(one).encode())]  # fmt: skip
    with caplog.at_level("DEBUG"):
        job = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
        _ = job | created(examples()) | WriteBatches(tmp_path / "shown", SCHEME, STEPS, key)
        proto = job.to_runner_api().SerializeToString()
        job.run().wait_until_finish()
        write_job(created(examples()), tmp_path / "out", key, TWO_WORKERS)
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and str(path) != key.path]
    seen = [proto, caplog.text.encode(), *(text.encode() for text in capfd.readouterr()), *written]
    seen += unpacked(proto)
    assert any(key.path.encode() in one for one in seen)  # the search finds what is there
    assert len(written) >= 6  # two manifests and the files of both jobs
    for form in forms:
        assert not any(form in one for one in seen)


@pytest.mark.parametrize(("size", "planned"), [("secret", 1_000), ("at-most", 100_000)])
def test_a_secret_number_is_in_nothing_that_a_job_leaves_behind(tmp_path, capfd, monkeypatch, caplog, size, planned):
    """Not in the pipeline, its display data and options, in logs, in names of files, nor in the manifest and the batches."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    table = pyarrow.table({"x": np.arange(PLANTED) % 11})
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    scheme, key = not_public(size, planned, rate=10 / planned, cap=16), secret(tmp_path)
    write = WriteBatches(tmp_path / "out", scheme, STEPS, key, steps_per_file=6)
    with caplog.at_level("INFO"):
        job = beam.Pipeline(options=PipelineOptions([*LOCAL]))
        _ = job | ReadExamples(str(tmp_path / "data.parquet")) | write
        proto = job.to_runner_api().SerializeToString()
        job.run().wait_until_finish()
    batches = open_batches(tmp_path / "out")
    assert_is_the_samplers(batches, sampler_of(scheme, key, records=PLANTED), {"x": np.arange(PLANTED) % 11})
    shown = [*capfd.readouterr(), caplog.text, repr(write), repr(batches), repr(write.run), *unpacked(proto)]
    assert not [one for one in (proto, *shown) if tells(one)]
    assert not folder_tells(tmp_path / "out")
    assert not [one for one in (tmp_path / "tmp").rglob("*") if one.is_file() and tells(one.read_bytes())]


def test_what_is_wrong_with_a_secret_number_is_one_line_without_it(tmp_path):
    fails(tmp_path, examples(), "records is above dataset_size=200", scheme=not_public("at-most", 200))
    shifted = [(index + 1, example) for index, example in examples()]
    fails(tmp_path, shifted, "not below the number of examples", scheme=not_public("secret", 200))
    fails(tmp_path, [], "the data has no examples", scheme=not_public("secret", 200))


def unpacked(proto):
    """Beam compresses what it pickles: every compressed part of a pipeline, as it was before."""
    found = []
    for text in re.findall(rb"[A-Za-z0-9+/]{24,}={0,2}", proto):
        for cut in range(4):  # the length that protobuf writes before a text may look like its first letters
            for expand in (zlib.decompress, bz2.decompress):
                with contextlib.suppress(Exception):
                    found.append(expand(base64.b64decode(text[cut:])))
    assert len(found) > 10
    return found


def test_a_job_may_number_examples_by_their_ids(tmp_path):
    key = secret(tmp_path)
    data = {**arrays(), "label": arrays()["label"][::-1]}  # ids that fall along the files
    pairs = [(k, {name: array[k] for name, array in data.items()}) for k in range(SIZE)]
    options = PipelineOptions([*LOCAL])
    run_job(created(pairs), WriteBatches(tmp_path / "out", SCHEME, STEPS, key), options, id="label")
    turned = {name: array[::-1] for name, array in data.items()}
    assert_is_the_samplers(open_batches(tmp_path / "out"), sampler_of(SCHEME, key), turned)


# --- without Beam --------------------------------------------------------------------------------------------------


def test_batches_are_read_where_beam_is_not_installed(tmp_path):
    key = secret(tmp_path)
    write_job(created(examples()), tmp_path / "out", key, format="avro")
    code = """
        import sys
        sys.modules["apache_beam"] = None
        from filet.integrations.batch_files import open_batches
        print(sum(batch.size for batch in open_batches(sys.argv[1])))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "out")]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert int(found) == sum(batch.size for batch in sampler_of(SCHEME, key).batches(STEPS))
