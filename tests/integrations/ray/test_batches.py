"""Batches by Ray on two nodes: the bytes of every other engine, streamed in order; one node killed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
import ray
import ray.data
from ray.cluster_utils import Cluster
from ray.data._internal.metadata_exporter import sanitize_for_struct
from tests.integrations.beam_jobs import (
    NOT_PUBLIC,
    SCHEME,
    SIZE,
    STEPS,
    arrays,
    assert_is_the_samplers,
    contents,
    expected,
    not_public,
    sampler_of,
    secret,
    warned_of,
    words,
)
from tests.integrations.planted import PLANTED, folder_tells, tells

import filet
from filet.integrations.ray import KeyVariable, capped_poisson_batches, open_batches, write_batches

SMALL = {"steps_per_file": 6, "rows_per_key": 64}
ROOT = Path(__file__).resolve().parents[3]
NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
# Of Ray's own: files and processes that its cluster leaves to the end of the test.
pytestmark = [pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster():
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "RAY_DATA_DISABLE_PROGRESS_BARS")}
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    found = Cluster(initialize_head=True, head_node_args=NODE)
    found.add_node(**NODE)
    ray.init(address=found.address, logging_level="ERROR", log_to_driver=False)
    yield found
    ray.shutdown()
    found.shutdown()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def dataset(change=lambda row: row):
    """The examples of `beam_jobs` in four blocks, out of order."""
    data = arrays()
    rows = [{"index": k, **{name: data[name][k] for name in data}, "text": words()[k]} for k in range(SIZE)]
    return ray.data.from_items([change(row) for row in rows[::-1]], override_num_blocks=4)


@pytest.mark.parametrize(("overflow", "cycle", "form"), [("truncate", 1, "arrow"), ("reject", 4, "parquet")])
def test_both_policies_and_cycles_have_the_bytes_of_the_in_memory_sampler(cluster, tmp_path, overflow, cycle, form):
    scheme = filet.CappedPoisson(SIZE, 0.03 * cycle, 12, overflow=overflow, cycle_length=cycle)
    write_batches(dataset(), tmp_path / "out", scheme, STEPS, secret(tmp_path), format=form, **SMALL)
    assert contents(tmp_path / "out") == contents(expected(tmp_path, scheme, form=form))


@pytest.mark.parametrize(("size", "planned"), NOT_PUBLIC)
def test_files_of_a_secret_size_hold_the_batches_of_the_true_number(cluster, tmp_path, size, planned):
    scheme = not_public(size, planned)
    with warned_of(planned):
        write_batches(dataset(), tmp_path / "out", scheme, STEPS, secret(tmp_path), **SMALL)
    assert contents(tmp_path / "out") == contents(expected(tmp_path, scheme))


@pytest.mark.parametrize(("size", "planned"), [("secret", 1_000), ("at-most", 100_000)])
def test_a_secret_number_is_in_no_argument_and_in_nothing_that_is_written(cluster, tmp_path, capfd, size, planned):
    many = ray.data.range(PLANTED).map_batches(lambda rows: {"index": rows["id"], "x": rows["id"] % 11})
    data = {"x": np.arange(PLANTED) % 11}
    scheme, key = not_public(size, planned, rate=10 / planned, cap=16), secret(tmp_path)
    path = write_batches(many, tmp_path / "out", scheme, STEPS, key, steps_per_file=6)
    batches, sampler = open_batches(tmp_path / "out"), sampler_of(scheme, key, records=PLANTED)
    assert_is_the_samplers(batches, sampler, data)
    stream = capped_poisson_batches(many, scheme, STEPS, key, start=17)
    for step, batch in zip(range(17, STEPS), stream.iter_batches(batch_size=16), strict=True):
        assert batch["x"].tolist() == sampler[step].take(data)["x"].tolist()
    arguments = [operator._get_args() for operator in stream._logical_plan.dag.post_order_iter()]
    assert any("_fn_kwargs" in one for one in arguments)
    shown = [*capfd.readouterr(), path, repr(batches), repr(stream), *map(sanitize_for_struct, arguments)]
    assert not [one for one in shown if tells(one)]
    assert not folder_tells(tmp_path / "out")


def test_batches_stream_in_order_from_any_step(cluster, tmp_path):
    key = secret(tmp_path)
    batches = capped_poisson_batches(
        dataset().drop_columns(["text"]), SCHEME, STEPS, key, start=3, steps_per_range=2, rows_per_key=64
    )
    sampler, steps = sampler_of(SCHEME, key), []
    for batch in batches.iter_torch_batches(batch_size=SCHEME.max_batch_size):
        (step,) = set(batch["filet_step"].tolist())
        wanted = sampler[step]
        assert np.array_equal(batch["filet_mask"].numpy(), wanted.mask)
        assert np.array_equal(batch["filet_index"].numpy(), wanted.indices)
        for name, array in wanted.take(arrays()).items():
            assert np.array_equal(batch[name].numpy(), array), name
        steps.append(step)
    assert steps == list(range(3, STEPS))


def without(row, index):
    return {**row, "index": index} if row["index"] == 5 else row


@pytest.mark.parametrize(
    ("change", "words_of_it"),
    [
        (lambda row: without(row, 6), "the index 6 is there twice"),
        (lambda row: without(row, 300), r"index 300, not in \[0, 300\)"),
        (lambda row: without(row, -1), r"index -1, not in \[0, 300\)"),
        (lambda row: {**row, "index": str(row["index"])}, "the column 'index' .* is of type"),
        (lambda row: {**row, "text": "a"}, "the column 'text' of 'the data set' is of type"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_to_read(cluster, tmp_path, change, words_of_it):
    refused(tmp_path, words_of_it, dataset(change), secret(tmp_path))


def refused(tmp_path, match, examples, key, **more):
    with pytest.raises(filet.InvalidArgumentError, match=match) as caught:
        write_batches(examples, tmp_path / "out", more.pop("scheme", SCHEME), STEPS, key, **{**SMALL, **more})
    assert "\n" not in str(caught.value)
    with pytest.raises(filet.StateError, match=r"manifest\.json"):
        open_batches(tmp_path / "out")


def test_arguments_and_keys_that_are_wrong_are_one_line(cluster, tmp_path):
    examples, key = dataset(), secret(tmp_path)
    refused(tmp_path, "the data has 200 examples, not dataset_size=300", examples.limit(200), key)
    refused(tmp_path, "pass KeyFile", examples, Path(key.path).read_bytes())
    refused(tmp_path, "FILET_TEST_NONE is not set here", examples, KeyVariable("FILET_TEST_NONE"))
    refused(tmp_path, "has no column 'place'", examples, key, index="place")
    refused(tmp_path, "dataset is of type list", [1], key)
    refused(tmp_path, "records is above dataset_size=200", examples, key, scheme=not_public("at-most", 200))
    shifted = dataset(lambda row: {**row, "index": row["index"] + 1})
    refused(tmp_path, "not below the number of examples", shifted, key, scheme=not_public("secret", 200))


@pytest.mark.long
def test_a_node_that_is_killed_part_way_changes_nothing(cluster, tmp_path):
    """Its blocks and its tasks are made again on the others."""
    lost = cluster.add_node(**NODE)
    killed, over = [], threading.Event()
    output = tmp_path / "out"

    def kill_it() -> None:
        while not over.wait(0.005):
            files = len(list(output.glob("batches-*"))) if output.exists() else 0
            if files >= 3:
                cluster.remove_node(lost, allow_graceful=False)
                killed.append(files)
                return

    watcher = threading.Thread(target=kill_it)
    watcher.start()
    try:
        write_batches(dataset(), output, SCHEME, 400, secret(tmp_path), steps_per_file=1, rows_per_key=16)
    finally:
        over.set()
        watcher.join()
    assert killed
    assert killed[0] < 400
    assert contents(output) == contents(expected(tmp_path, steps=400, steps_per_file=1))
