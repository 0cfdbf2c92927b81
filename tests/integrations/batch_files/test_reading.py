"""Batches from files: in order, from any step, for PyTorch and JAX; what is missing or damaged is named."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from tests.integrations.beam_jobs import (
    SCHEME,
    STEPS,
    arrays,
    assert_is_the_samplers,
    contents,
    created,
    examples,
    from_parquet,
    sampler_of,
    secret,
    words,
    write_job,
    write_parquet,
)

import filet
from filet.integrations.batch_files.manifest import Manifest
from filet.integrations.batch_files.reading import open_batches

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run with arrays and with bytes, and its sampler."""
    folder = tmp_path_factory.mktemp("run")
    key = secret(folder)
    write_job(from_parquet(write_parquet(folder / "in", 2, texts=True)), folder / "out", key)
    return folder / "out", sampler_of(SCHEME, key)


@pytest.fixture
def own(run, tmp_path):
    """A copy of it, to be damaged."""
    return shutil.copytree(run[0], tmp_path / "copy")


def test_any_step_any_slice_and_any_start(run):
    path, sampler = run
    batches = open_batches(path, reread=True)
    assert (len(batches), batches[-1].step, batches[13].step) == (STEPS, 19, 13)
    assert [batch.step for batch in batches[5:15:3]] == [5, 8, 11, 14]
    resumed = open_batches(path, start=11)
    assert [batch.step for batch in resumed] == list(range(11, STEPS))
    assert_is_the_samplers([batches[k] for k in (19, 0, 7, 6)], sampler, arrays(), words())
    assert len(open_batches(path, start=STEPS)) == 0
    with pytest.raises(IndexError):
        batches[STEPS]
    with pytest.raises(filet.InvalidArgumentError, match="start=21 is above 20"):
        open_batches(path, start=21)


def test_what_is_printed_hides_who_was_drawn(run):
    batches = open_batches(run[0])
    assert repr(batches[3]) == "StoredBatch(step=3, <12 rows, contents hidden>)"
    assert repr(batches).startswith("StoredBatches(")


@pytest.mark.parametrize("world_size", [2, 5])
def test_shards_are_the_samplers(run, world_size):
    path, sampler = run
    for rank in range(world_size):
        mine = open_batches(path).shard(rank, world_size)
        assert_is_the_samplers(mine, sampler.shard(rank, world_size), arrays(), words())
    with pytest.raises(filet.InvalidArgumentError, match=r"world_size=5 is set already|world_size=2 is set already"):
        mine.shard(0, 2)


def test_a_pickle_reads_on_in_another_process(run):
    batches = open_batches(run[0])
    first = batches[4]
    again = pickle.loads(pickle.dumps(batches))
    assert again[4] == first
    assert len(pickle.dumps(batches)) < 10_000  # no contents travel


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_takes_the_steps_in_order(run, workers):
    path, sampler = run
    steps = open_batches(path, start=2).dicts()
    loader = torch.utils.data.DataLoader(steps, batch_size=None, num_workers=workers)
    count = 2
    for got in loader:
        rows = sampler[count].take(arrays())
        assert got["step"] == count
        assert torch.equal(got["mask"], torch.from_numpy(sampler[count].mask))
        assert torch.equal(got["data"]["image"], torch.from_numpy(rows["image"]))
        count += 1
    assert count == STEPS


def test_jax_takes_the_arrays_as_they_are(run):
    path, sampler = run
    total = jax.jit(lambda data, mask: (data["weight"].sum(1) * mask).sum())
    for batch in open_batches(path)[:3]:
        data = {name: array for name, array in batch.data.items() if name != "text"}
        expected = sampler[batch.step].take(arrays())["weight"].sum()
        assert np.isclose(float(total(data, batch.mask)), expected, atol=1e-4)


def test_steps_are_read_once_and_in_order(run):
    path, _ = run
    batches = open_batches(path)
    assert batches[0] == next(iter(batches))  # to look at the first one is not to use it
    assert [batch.step for batch in batches[:7]] == list(range(7))
    assert [batch["step"] for batch in batches.dicts()[7:]] == list(range(7, STEPS))
    for again in (lambda: list(batches), lambda: batches[0], lambda: list(batches[3:]), lambda: batches.dicts()[18]):
        with pytest.raises(filet.StateError, match=r"asked for after step 19.*reread=True"):
            again()
    ranks = [batches.shard(rank, 2) for rank in range(2)]  # each has its own share
    assert [len(list(rank)) for rank in ranks] == [STEPS, STEPS]
    whole = open_batches(path, reread=True)
    assert list(whole) == list(whole)
    whole.verify()
    backwards = open_batches(path)
    with pytest.raises(filet.StateError, match="step 4 was asked for after step 5"):
        [backwards[place] for place in (5, 4)]


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_a_data_loader_reads_a_run_once_and_whole_batches_only(run, options):
    steps = open_batches(run[0]).dicts()
    loader = torch.utils.data.DataLoader(steps, batch_size=None, **options)
    assert [got["step"] for got in loader] == list(range(STEPS))
    with pytest.raises(filet.StateError, match="once and in order"):
        list(loader)
    with pytest.raises(filet.InvalidArgumentError, match=r"4 batches were asked for as one.*batch_size=None"):
        next(iter(torch.utils.data.DataLoader(open_batches(run[0]).dicts(), batch_size=4, **options)))
    with pytest.raises(filet.StateError, match="once and in order"):
        list(torch.utils.data.DataLoader(open_batches(run[0]).dicts(), batch_size=None, shuffle=True, **options))


def test_stored_batches_pass_the_audit_of_their_scheme(run):
    found = filet.audit(open_batches(run[0]), SCHEME)
    assert found.passed


# --- damage --------------------------------------------------------------------------------------------------------


def test_a_missing_or_short_file_is_named_at_once(own):
    file = own / "batches-00002-of-00004.arrow"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(filet.StateError, match=r"batches-00002-of-00004\.arrow' has \d+ bytes, not"):
        open_batches(own)
    file.unlink()
    with pytest.raises(filet.StateError, match=r"cannot read '.*batches-00002-of-00004\.arrow': No such file"):
        open_batches(own)


def test_a_damaged_file_is_named_before_any_of_it_is_believed(own):
    file = own / "batches-00001-of-00004.arrow"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    batches = open_batches(own)
    assert batches[5].step == 5  # the file before
    for ask in (lambda: batches[6], batches.verify):
        with pytest.raises(filet.StateError, match=r"batches-00001-of-00004\.arrow' is not the file that the manifest"):
            ask()
    batches[:6].verify()


def test_a_file_of_another_run_is_not_believed(own, tmp_path):
    other = tmp_path / "other"
    write_job(created(examples()), other, secret(tmp_path), scheme=SCHEME, secure=False)
    for path in other.glob("batches-*"):
        shutil.copy(path, own / path.name)
    with pytest.raises(filet.StateError, match="batches-0000"):
        list(open_batches(own))


def test_every_damage_of_the_manifest_is_noticed(own):
    path = own / "manifest.json"
    whole = path.read_bytes()
    manifest = Manifest.from_json(whole.decode(), "m")
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        try:
            found = open_batches(own).manifest
        except filet.StateError as error:
            assert "manifest.json" in str(error)
        else:
            assert found == manifest  # white space
    for cut in (0, 1, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole[:cut])
        with pytest.raises(filet.StateError, match=r"manifest\.json' is damaged"):
            open_batches(own)


def test_a_directory_without_manifest_is_refused(own):
    (own / "manifest.json").unlink()
    with pytest.raises(filet.StateError, match=r"cannot read '.*manifest\.json': No such file"):
        open_batches(own)


def test_other_file_systems_of_beams(run, tmp_path):
    """Input, key and output on a file system without modes and without renaming over a file; twice, over its own output."""
    data = write_parquet(tmp_path / "in", 3, texts=True)
    key = secret(tmp_path)
    for _ in range(2):
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / ".batches-00000-of-00004.arrow.0a1b").write_bytes(b"left behind")
        source = from_parquet(f"vault://{data}/*")
        write_job(source, f"vault://{tmp_path}/out", type(key)(f"vault://{key.path}"))
        assert contents(tmp_path / "out") == contents(run[0])
    batches = open_batches(f"vault://{tmp_path}/out", reread=True)
    assert_is_the_samplers(batches, run[1], arrays(), words())
    (tmp_path / "out" / "batches-00003-of-00004.arrow").unlink()
    with pytest.raises(filet.StateError, match=r"cannot read 'vault://.*batches-00003-of-00004\.arrow'"):
        list(batches[18:].dicts())


# --- training ------------------------------------------------------------------------------------------------------


def test_training_from_files_gives_the_weights_of_the_in_memory_sampler(tmp_path):
    script = str(EXAMPLES / "train_from_beam.py")
    lines = []
    for source in ("memory", "files"):
        command = [sys.executable, script, "--batches", source, "--steps", "12", "--folder", str(tmp_path)]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        lines.append([line for line in found.stdout.splitlines() if ", weights " in line])
    assert len(lines[0]) == 1
    assert lines[0] == lines[1]


# --- reading ahead -------------------------------------------------------------------------------------------------


def test_the_next_file_is_read_ahead_and_its_damage_is_told_when_it_is_reached(own):
    file = own / "batches-00001-of-00004.arrow"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    batches = open_batches(own)
    assert [batches[step].step for step in range(6)] == list(range(6))
    assert batches._ahead is not None
    assert batches._ahead.number == 1
    with pytest.raises(filet.StateError, match=r"batches-00001-of-00004\.arrow' is not the file"):
        batches[6]


def test_one_look_reads_one_file(run):
    batches = open_batches(run[0])
    assert batches[7].step == 7
    assert batches._ahead is None


def test_a_forked_process_reads_for_itself_what_its_parent_was_reading_ahead(run):
    path, sampler = run
    steps = open_batches(path).dicts()
    assert [steps[place]["step"] for place in range(5)] == list(range(5))
    assert steps._ahead is not None
    context = "fork" if sys.platform.startswith("linux") else None
    loader = torch.utils.data.DataLoader(
        steps, batch_size=None, num_workers=1, sampler=range(5, STEPS), multiprocessing_context=context
    )
    for step, got in enumerate(loader, start=5):
        assert torch.equal(got["mask"], torch.from_numpy(sampler[step].mask))


def test_arrays_can_be_written_to_and_pytorch_takes_them_without_a_copy(run):
    batch = open_batches(run[0])[0]
    image = batch.data["image"]
    tensor = torch.from_numpy(image)  # warns of arrays that cannot be written to, and warnings are errors here
    tensor += 1
    assert np.array_equal(image, tensor.numpy())
    assert np.array_equal(open_batches(run[0])[0].data["image"] + 1, image)
