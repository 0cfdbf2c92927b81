"""Batches by Beam: the in-memory sampler's, byte for byte, whatever the policy, format, sharding, worker or runner."""

from __future__ import annotations

import base64
import bz2
import contextlib
import json
import os
import pickle
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
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that
from apache_beam.transforms.window import FixedWindows
from tests.integrations.beam_jobs import (
    LOCAL,
    SCHEME,
    SIZE,
    STEPS,
    TWO_WORKERS,
    arrays,
    assert_is_the_samplers,
    contents,
    created,
    examples,
    from_parquet,
    sampler_of,
    secret,
    words,
    write_avro,
    write_job,
    write_parquet,
    write_tfrecord,
)

import filet
from filet.integrations.beam import (
    CappedPoissonBatches,
    IndexExamples,
    KeyCall,
    KeyFile,
    KeyVariable,
    ReadExamples,
    WriteBatches,
    open_batches,
    run_job,
)
from filet.integrations.beam_files import _write_manifest
from filet.integrations.beam_join import Draw, Pack, Run, assembled, check_block, merged_facts
from filet.integrations.beam_records import Chunk, Facts, fields_of
from filet.integrations.beam_records import pack as pack_row

RUNS = [("truncate", 1, "parquet"), ("reject", 1, "tfrecord"), ("truncate", 3, "avro"), ("reject", 4, "parquet")]


@pytest.mark.parametrize(("overflow", "cycle", "form"), RUNS)
def test_files_hold_the_samplers_batches(tmp_path, overflow, cycle, form):
    scheme = filet.CappedPoisson(SIZE, 0.03 * cycle, 12, overflow=overflow, cycle_length=cycle)
    key, data = secret(tmp_path), write_parquet(tmp_path / "in", shards=3, texts=True)
    write_job(from_parquet(data), tmp_path / "out", key, scheme=scheme, format=form)
    batches = open_batches(tmp_path / "out")
    assert len(batches) == STEPS
    assert_is_the_samplers(batches, sampler_of(scheme, key), arrays(), words())


@pytest.mark.parametrize("form", ["parquet", "tfrecord", "avro"])
def test_arrays_alone_and_steps_from_the_middle_of_a_run(tmp_path, form):
    key = secret(tmp_path)
    write_job(created(examples()), tmp_path / "out", key, start=7, secure=False, format=form)
    batches = open_batches(tmp_path / "out")
    assert [batch.step for batch in batches] == list(range(7, STEPS))
    assert_is_the_samplers(batches, sampler_of(SCHEME, key, secure=False), arrays())


def test_the_transform_yields_each_step_once_with_its_batch(tmp_path):
    key = secret(tmp_path)
    sampler, data = sampler_of(SCHEME, key), arrays()

    def check(found):
        assert sorted(step for step, _ in found) == list(range(3, STEPS))
        assert all(step == batch.step for step, batch in found)
        assert_is_the_samplers([batch for _, batch in found], sampler, data)

    with beam.Pipeline(runner="FnApiRunner") as job:
        pairs = job | beam.Create(examples())
        found = pairs | CappedPoissonBatches(SCHEME, STEPS, key, start=3, steps_per_range=4, rows_per_key=50)
        assert_that(found, check)


def test_empty_batches_are_batches_of_padding(tmp_path):
    scheme, key = filet.CappedPoisson(SIZE, 1e-4, 4), secret(tmp_path)
    write_job(created(examples()), tmp_path / "out", key, scheme=scheme, steps_per_file=3)
    batches = open_batches(tmp_path / "out")
    assert sum(batch.size == 0 for batch in batches) > STEPS // 2
    assert_is_the_samplers(batches, sampler_of(scheme, key), arrays())


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
@pytest.mark.parametrize("form", ["parquet", "tfrecord", "avro"])
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


def test_arrays_of_no_numbers_are_refused_where_the_format_has_none(tmp_path):
    pairs = [(k, {"x": np.zeros((2, 0), np.float32)}) for k in range(SIZE)]
    fails(tmp_path, pairs, r"the field 'x' has shape \(2, 0\).*write tfrecord or avro")
    write_job(created(pairs), tmp_path / "other", secret(tmp_path), format="avro")
    assert open_batches(tmp_path / "other")[0].data["x"].shape == (12, 2, 0)


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


# --- what is refused -----------------------------------------------------------------------------------------------


def fails(tmp_path, pairs, match, scheme=SCHEME, error=filet.InvalidArgumentError, options=LOCAL):
    with pytest.raises(error, match=match) as caught:
        write_job(created(pairs), tmp_path / "out", secret(tmp_path), options, scheme=scheme)
    assert "\n" not in str(caught.value)
    assert "while running" not in str(caught.value)
    with pytest.raises(filet.StateError, match=r"manifest\.json"):
        open_batches(tmp_path / "out")


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


def test_facts_are_the_same_in_any_order_and_name_the_first_that_differs():
    pairs = [(k, fields_of(example)) for k, example in examples(8)]
    pairs[5] = (5, fields_of({**examples(8)[5][1], "label": np.float32(1)}))
    pairs[6] = (6, fields_of({"label": 1}))
    parts = [Facts.of(index, fields) for index, fields in pairs]
    seen = Facts()
    for index, fields in pairs[::-1]:
        seen = seen.seen(index, fields)
    assert seen == merged_facts(parts) == merged_facts([merged_facts(parts[4:]), merged_facts(parts[:4])])
    with pytest.raises(
        filet.InvalidArgumentError, match=r"example 5 has shape \(\) and type float32 as 'label', where"
    ):
        seen.checked(8)
    with pytest.raises(filet.InvalidArgumentError, match="example 6 has nothing as 'image', where example 0 has shape"):
        merged_facts([*parts[:5], parts[6], *parts[6:]]).checked(8)
    for index in (-1, 8):
        with pytest.raises(filet.InvalidArgumentError, match=rf"an example has the index {index}, not in \[0, 8\)"):
            merged_facts([*parts[:7], Facts.of(index, parts[0].first[1])]).checked(8)
    assert merged_facts(parts[:5]).checked(5) == (pairs[0][1], True)
    assert merged_facts([*parts[:4], parts[3]]).checked(5) == (pairs[0][1], False)


def test_a_block_needs_every_index_once():
    check_block(np.arange(4, 8), range(4, 8), dense=False)
    twice, missing = np.array([4, 6, 6, 7]), np.array([4, 6, 7])
    with pytest.raises(filet.InvalidArgumentError, match="the index 6 is there twice"):
        check_block(twice, range(4, 8), dense=False)
    with pytest.raises(filet.InvalidArgumentError, match="the index 5 is missing"):
        check_block(missing, range(4, 8), dense=False)
    with pytest.raises(filet.OutputError, match="example 6 came twice out of the shuffle, though it went in once"):
        check_block(twice, range(4, 8), dense=True)
    with pytest.raises(filet.OutputError, match="example 5 came not at all out of the shuffle"):
        check_block(missing, range(4, 8), dense=True)


def test_what_is_no_example_is_refused():
    for element, match in [
        (("0", {"x": 1}), "an example has the index '0', not an integer"),
        ((True, {"x": 1}), "an example has the index True, not an integer"),
        ((2**64, {"x": 1}), "not an integer"),
        ({"x": 1}, "an element is of type dict, not a pair of index and example"),
        ((0, 5), "an example is of type int, not a dict"),
        ((0, {}), "an example is of type dict, not a dict with fields"),
        ((0, {"x": "text"}), "the field 'x' is of type str"),
        ((0, {"x": 1j}), "the field 'x' is of type complex"),
        ((0, {"filet_x": 1}), "name fields by text without 'filet_'"),
        ((0, {3: 1}), "an example has the field 3"),
    ]:
        pack = Pack(8)
        pack.start_bundle()
        with pytest.raises(filet.InvalidArgumentError, match=match):
            list(pack.process(element))


def test_rows_that_were_lost_are_noticed(tmp_path):
    run = Run.checked(SCHEME, 1, secret(tmp_path))
    fields = fields_of({"x": 1})
    part = (Chunk.of([(0, pack_row({"x": 1}, fields))]), np.array([17]).tobytes())
    head = np.array([2]).tobytes()
    with pytest.raises(filet.OutputError, match="a row of step 0 did not come out of the shuffle"):
        list(assembled(run, 0, {"heads": [head], "rows": [part]}, fields))
    with pytest.raises(filet.OutputError, match="the sizes of steps 0 to 0 came 0 times"):
        list(assembled(run, 0, {"heads": [], "rows": [part]}, fields))
    with pytest.raises(filet.OutputError, match="0 files of 1 were written"):
        _write_manifest([], run, str(tmp_path / "out"), "parquet", fields, "")


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


# --- keys ----------------------------------------------------------------------------------------------------------


def test_every_handle_leads_to_the_key(tmp_path, monkeypatch):
    key = secret(tmp_path)
    value = Path(key.path).read_bytes()
    monkeypatch.setenv("FILET_TEST_KEY", value.hex())
    (tmp_path / "vault_for_tests.py").write_text(f"def fetch():\n    return {value!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    for handle in (
        key,
        KeyVariable("FILET_TEST_KEY"),
        KeyCall("vault_for_tests:fetch"),
        KeyFile(f"vault://{key.path}"),
    ):
        assert handle.read() == value
        assert pickle.loads(pickle.dumps(handle)) == handle


def test_a_handle_that_leads_nowhere_says_so_without_the_key(tmp_path, monkeypatch):
    Path(tmp_path, "open").write_bytes(bytes(32))
    Path(tmp_path, "open").chmod(0o644)
    monkeypatch.setenv("FILET_TEST_SHORT", "00ff")
    monkeypatch.setenv("FILET_TEST_TEXT", "not hex: hunter2")
    wrong: list = [
        (KeyFile(str(tmp_path / "none")), "cannot read the key file"),
        (KeyFile("vault:///no/such/key"), "cannot read the key file"),
        (KeyFile(str(tmp_path / "open")), "others have access"),
        (KeyVariable("FILET_TEST_NONE"), "is not set here"),
        (KeyVariable("FILET_TEST_SHORT"), "holds 2 bytes, not 16 to 64"),
        (KeyVariable("FILET_TEST_TEXT"), "does not hold hex digits"),
        (KeyCall("no_such_module:fetch"), "no function 'no_such_module:fetch' here"),
        (KeyCall("os:getpid"), "os:getpid returned a int, not bytes"),
    ]
    for handle, match in wrong:
        with pytest.raises(filet.InvalidArgumentError, match=match) as caught:
            handle.read()
        assert "hunter2" not in str(caught.value)


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


def test_a_drawing_worker_pickles_without_its_key(tmp_path):
    draw = Draw(Run.checked(SCHEME, STEPS, secret(tmp_path)))
    draw.setup()
    copy = pickle.loads(pickle.dumps(draw))
    assert draw._sampler is not None
    assert copy._sampler is None


# --- indices -------------------------------------------------------------------------------------------------------


def indexed(pcollection_of, expected, transform):
    def check(found):
        assert sorted((index, int(example["x"])) for index, example in found) == expected

    with beam.Pipeline(runner="FnApiRunner") as job:
        assert_that(job | beam.Create(pcollection_of) | beam.Reshuffle() | transform, check)


@pytest.mark.parametrize("cuts", [[], [1, 2, 30]])
def test_indices_by_position_do_not_depend_on_shards(cuts):
    parts = np.split(np.arange(40), cuts)
    placed = [((f"shard-{s:02d}", k), {"x": int(x)}) for s, part in enumerate(parts) for k, x in enumerate(part)]
    indexed(placed[::-1], [(k, k) for k in range(40)], IndexExamples())


@pytest.mark.parametrize(
    ("ranges", "make"), [(1, int), (7, lambda k: f"user-{k:03d}"), (100, np.int64), (7, lambda k: b"%03d" % k)]
)
def test_indices_by_id_are_places_in_sorted_order(ranges, make):
    named = [{"id": make(k), "x": k} for k in range(0, 120, 3)]
    indexed(named[::-1], [(k // 3, k) for k in range(0, 120, 3)], IndexExamples("id", ranges=ranges))


def test_wrong_positions_and_ids_fail_the_job():
    for elements, transform, match in [
        ([(("a", 0), {}), (("a", 2), {})], IndexExamples(), "shard 'a' has 2 examples at positions 0 to 2"),
        ([(("a", 0), {}), ((1, 0), {})], IndexExamples(), "some shards have names and some have numbers"),
        ([{"x": 1}], IndexExamples(), r"not \(\(shard, position\), example\)"),
        ([((0.5, 0), {})], IndexExamples(), r"an example is at \(0\.5, 0\)"),
        ([{"id": 1}, {"id": 1}], IndexExamples("id"), "the id 1 is there twice"),
        ([{"id": 1}, {"id": b"1"}], IndexExamples("id"), "ids are of several types"),
        ([{"x": 1}], IndexExamples("id"), "an example has no field 'id'"),
        ([{"x": 1.5}], IndexExamples(lambda example: example["x"]), "an id is of type float"),
    ]:
        with pytest.raises(filet.InvalidArgumentError, match=match), beam.Pipeline(runner="FnApiRunner") as job:
            _ = job | beam.Create(elements) | transform
    with pytest.raises(filet.InvalidArgumentError, match="id=5 names no field"):
        IndexExamples(5)


def test_a_job_may_number_examples_by_their_ids(tmp_path):
    key = secret(tmp_path)
    data = {**arrays(), "label": arrays()["label"][::-1]}  # ids that fall along the files
    pairs = [(k, {name: array[k] for name, array in data.items()}) for k in range(SIZE)]
    options = PipelineOptions([*LOCAL])
    run_job(created(pairs), WriteBatches(tmp_path / "out", SCHEME, STEPS, key), options, id="label")
    turned = {name: array[::-1] for name, array in data.items()}
    assert_is_the_samplers(open_batches(tmp_path / "out"), sampler_of(SCHEME, key), turned)


# --- input files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "write"), [("tfrecord", write_tfrecord), ("avro", write_avro)])
def test_examples_of_tfrecord_and_avro(tmp_path, form, write):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / f"one.{form}", 30)
    write(tmp_path / "in" / f"two.{form}", 12)
    (tmp_path / "in" / "_SUCCESS").touch()

    def check(found):
        assert sorted(index for index, _ in found) == list(range(42))
        for index, example in found:
            k = index % 30
            assert example["a"] == k
            assert example["a"].dtype == np.int64
            assert example["b"].tolist() == [k / 2, k / 4]
            assert example["b"].dtype == np.float32
            assert example["c"] == words(30)[k]

    with beam.Pipeline(runner="FnApiRunner") as job:
        assert_that(job | ReadExamples(str(tmp_path / "in"), form), check)


def reading_fails(path, match, form=None, error=filet.InvalidArgumentError):
    with pytest.raises(error, match=match), beam.Pipeline(runner="FnApiRunner") as job:
        _ = job | ReadExamples(str(path), form)


def test_input_that_cannot_be_read_fails_the_job(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    (tmp_path / "bad.tfrecord").write_bytes(b"no TFRecord at all")
    (tmp_path / "bad.avro").write_bytes(b"no Avro")
    reading_fails(tmp_path / "bad.parquet", "bad.parquet' cannot be read as parquet")
    reading_fails(tmp_path / "bad.tfrecord", "bad.tfrecord' is damaged or no TFRecord file", error=filet.StateError)
    reading_fails(tmp_path / "bad.avro", "bad.avro' cannot be read as avro")
    reading_fails(tmp_path / "none-*.avro", "no file matches")
    reading_fails(tmp_path, "format='' is unknown; pass one of parquet, tfrecord, avro")
    for name, column, match in [("text", ["a"], "is of type string"), ("null", [1, None], "has empty values")]:
        pq.write_table(pa.table({"x": column}), tmp_path / f"{name}.parquet")
        reading_fails(tmp_path / f"{name}.parquet", f"the column 'x' of .*{match}")


def test_a_damaged_tfrecord_is_noticed_wherever_it_is(tmp_path):
    write_tfrecord(tmp_path / "whole.tfrecord", 5)
    whole = (tmp_path / "whole.tfrecord").read_bytes()
    for place in (3, 20, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        (tmp_path / "bad.tfrecord").write_bytes(damaged)
        reading_fails(tmp_path / "bad.tfrecord", "bad.tfrecord' is damaged", error=filet.StateError)


# --- without Beam --------------------------------------------------------------------------------------------------


def test_batches_are_read_where_beam_is_not_installed(tmp_path):
    key = secret(tmp_path)
    write_job(created(examples()), tmp_path / "out", key, format="avro")
    code = """
        import sys
        sys.modules["apache_beam"] = None
        from filet.integrations.beam_reading import open_batches
        print(sum(batch.size for batch in open_batches(sys.argv[1])))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "out")]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert int(found) == sum(batch.size for batch in sampler_of(SCHEME, key).batches(STEPS))


def test_the_manifest_says_what_was_run_and_not_the_key(tmp_path):
    key = secret(tmp_path)
    write_job(created(examples()), tmp_path / "out", key)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert filet.CappedPoisson(**manifest["scheme"]) == SCHEME
    assert (manifest["start"], manifest["steps"], manifest["format"]) == (0, STEPS, "parquet")
    assert manifest["fingerprint"] == sampler_of(SCHEME, key).fingerprint
    assert [one["name"] for one in manifest["fields"]] == ["image", "label", "weight"]
    assert manifest["files"][0]["name"] == "batches-00000-of-00004.parquet"
    assert Path(key.path).read_bytes().hex() not in json.dumps(manifest)
