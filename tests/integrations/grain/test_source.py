"""Batches for grain: random access, resuming at any step, shards."""

from __future__ import annotations

import pickle

import grain
import numpy as np
import pytest
from absl import flags

import filet
from filet.integrations.grain import CappedBatchSource, batches

KEY = b"a key for the tests of grain"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=5)
# No row is zero, so that a zero row can only be padding.
DATA = {"x": np.arange(1.0, 81.0).reshape(40, 2), "more": (np.arange(1, 41),)}


class Records:
    """One record at a time, as from a file."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": DATA["x"][index], "more": (DATA["more"][0][index],)}


class Ragged(Records):
    def __getitem__(self, index):
        return np.zeros(1 + index % 2)


def assert_same(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a["mask"], b["mask"])
        np.testing.assert_array_equal(a["data"]["x"], b["data"]["x"])
        np.testing.assert_array_equal(a["data"]["more"][0], b["data"]["more"][0])


@pytest.mark.parametrize("data", [DATA, Records()], ids=["arrays", "records"])
def test_grain_batches_are_the_samplers_and_any_step_is_there_at_once(data):
    run = batches(data, SCHEME, 300, KEY)
    assert len(run) == 300
    sampler = SCHEME.sampler(KEY)
    sizes = set()
    for step in (299, 3, 0, *range(300)):
        found, batch = run[step], sampler[step]
        np.testing.assert_array_equal(found["mask"], batch.mask)
        np.testing.assert_array_equal(found["data"]["x"], batch.take(DATA["x"]))
        np.testing.assert_array_equal(found["data"]["more"][0], batch.take(DATA["more"][0]))
        assert found["data"]["x"].dtype == DATA["x"].dtype  # type: ignore[attr-defined]
        sizes.add(batch.size)
    assert sizes == {0, 1, 2, 3, 4, 5}


def test_grain_iterators_resume_at_any_step_without_a_replay():
    whole = list(batches(DATA, SCHEME, 30, KEY))
    iterator = iter(batches(DATA, SCHEME, 30, KEY).to_iter_dataset())
    seen = [next(iterator) for _ in range(11)]
    state = pickle.loads(pickle.dumps(iterator.get_state()))
    assert KEY.hex() not in repr(state)

    class Counting(CappedBatchSource):
        asked = ()

        def __getitem__(self, step):
            self.asked = (*self.asked, int(step))  # type: ignore[assignment]
            return super().__getitem__(step)

    source = Counting(DATA, SCHEME.sampler(KEY), 30)
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    again = iter(grain.MapDataset.source(source).to_iter_dataset(options))
    again.set_state(state)
    assert_same(seen + list(again), whole)
    assert min(source.asked) == 11  # no earlier step was drawn


def test_grain_shards_share_each_batch_evenly():
    shards = [batches(DATA, SCHEME, 40, KEY, shard_index=k, shard_count=2) for k in range(2)]
    for step, (one, two) in enumerate(zip(*shards, strict=True)):
        assert one["mask"].shape == two["mask"].shape == (3,)
        assert abs(int(one["mask"].sum()) - int(two["mask"].sum())) <= 1
        union = sorted([*one["data"]["more"][0][one["mask"]], *two["data"]["more"][0][two["mask"]]])
        batch = SCHEME.sampler(KEY)[step]
        assert union == (batch.indices[batch.mask] + 1).tolist()


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_grain_loader_reads_the_source(workers):
    flags.FLAGS.mark_as_parsed()  # grain's workers read absl's flags, which only an absl program parses
    source = CappedBatchSource(DATA if workers else Records(), SCHEME.sampler(KEY), 12)
    order = grain.samplers.SequentialSampler(num_records=12, shard_options=grain.sharding.NoSharding())
    loader = grain.DataLoader(data_source=source, sampler=order, worker_count=workers)
    assert_same(list(loader), list(batches(DATA, SCHEME, 12, KEY)))


@pytest.mark.parametrize(
    "rearrange",
    [
        lambda run: run[::2],
        lambda run: run.slice(slice(0, 3)),
        lambda run: run.shuffle(seed=1),
        lambda run: run.repeat(2),
        lambda run: run.batch(2),
        lambda run: run.filter(lambda batch: True),
        lambda run: run.to_iter_dataset().batch(2),
        lambda run: run.to_iter_dataset().filter(lambda batch: True),
    ],
)
def test_steps_are_not_rearranged_also_behind_a_map(rearrange):
    run = batches(DATA, SCHEME, 6, KEY)
    for whole in (run, run.map(lambda batch: batch), run.seed(3).random_map(lambda batch, rng: batch)):
        with pytest.raises(filet.InvalidArgumentError, match="only map them"):
            rearrange(whole)


def test_batches_are_mapped_and_iterated_over_once():
    def mapped(run):
        return run.map(lambda batch: batch["mask"]).map_with_index(lambda step, mask: (step, int(mask.sum())))

    sizes = [(step, batch.size) for step, batch in enumerate(SCHEME.sampler(KEY).batches(6))]
    run = batches(DATA, SCHEME, 6, KEY)
    each = mapped(run)
    assert [each[step] for step in range(6)] == sizes  # an index is not a pass
    assert list(each) == sizes
    for again in (run, each, mapped(run.to_iter_dataset())):
        with pytest.raises(filet.StateError, match=r"second pass.*get_state.*reread=True"):
            iter(again)
    looked_at = batches(DATA, SCHEME, 6, KEY, reread=True)
    assert list(mapped(looked_at)) == list(mapped(looked_at.to_iter_dataset())) == sizes
    for beyond in (6, -1):
        with pytest.raises(IndexError, match="no more steps"):
            run[beyond]
    repeated = grain.MapDataset.concatenate([batches(DATA, SCHEME, 6, KEY)]).repeat(2)
    with pytest.raises(IndexError, match="no more steps"):
        list(repeated)


@pytest.mark.long
def test_worker_processes_read_the_batches_once():
    flags.FLAGS.mark_as_parsed()
    run = batches(DATA, SCHEME, 6, KEY).to_iter_dataset().mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    assert_same(list(run), list(batches(DATA, SCHEME, 6, KEY)))
    with pytest.raises(filet.StateError, match="second pass"):
        iter(run)


def test_records_that_come_or_go_during_the_run_are_noticed():
    rows = list(DATA["x"])

    class Growing(Records):
        def __len__(self):
            return len(rows)

    run = batches(Growing(), SCHEME, 6, KEY)
    assert run[0]["mask"].shape == (5,)
    for change in (lambda: rows.pop(), lambda: rows.extend(rows[:2])):
        change()
        with pytest.raises(filet.InvalidArgumentError, match=r"records, not scheme\.dataset_size=40"):
            run[1]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: batches({"x": np.zeros(39)}, SCHEME, 1), "39 rows"),
        (lambda: batches(DATA, SCHEME, -1), "steps=-1"),
        (lambda: batches(DATA, "scheme", 1), "CappedPoisson"),
        (lambda: batches(DATA, SCHEME, 1, shard_count=2), "same key"),
        (lambda: batches(iter(DATA), SCHEME, 1), "access by index"),
        (lambda: batches(Records(), filet.CappedPoisson(41, 0.1, 5), 1), "40 records"),
        (lambda: CappedBatchSource(DATA, SCHEME, 1), "scheme.sampler"),
        (lambda: list(batches(Ragged(), SCHEME, 30, KEY)), "give every record the same"),
    ],
)
def test_bad_input_is_refused_with_the_remedy(make, match):
    with pytest.raises(filet.InvalidArgumentError, match=match):
        make()


def test_there_is_no_step_beyond_the_run():
    source = CappedBatchSource(DATA, SCHEME.sampler(KEY), 3)
    for step in (3, -1):
        with pytest.raises(IndexError, match="no more steps"):
            source[step]
