"""Batched draws are those of single steps, bit for bit, whatever the scheme."""

import itertools
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filet import CappedPoisson
from filet.sampling import batched_draws, draws
from filet.sampling.keys import Key
from filet.sampling.size_law import SizeLaw
from filet.sampling.streams import Purpose, open_source


def assert_same(sampler, start, count):
    run = sampler.batches(start + count, start=start)
    for step, batch in zip(run.steps, run, strict=True):
        alone = sampler[step]
        assert batch == alone
        assert (batch.size, batch.indices.dtype) == (alone.size, alone.indices.dtype)
        assert np.array_equal(batch.mask, alone.mask)


@settings(max_examples=60)
@given(
    size=st.one_of(st.integers(2, 3000), st.integers(2, 10**13)),
    cap=st.integers(1, 300),
    fill=st.floats(0.01, 3.0),
    cycle=st.sampled_from([1, 1, 3]),
    overflow=st.sampled_from(["truncate", "reject"]),
    secure=st.booleans(),
    start=st.one_of(st.integers(0, 10), st.integers(0, 2**62)),
    world=st.integers(1, 3),
)
def test_reading_in_order_gives_the_batches_of_single_steps(size, cap, fill, cycle, overflow, secure, start, world):
    cycle = min(cycle, size)
    p = min(0.9, fill * cap / (size // cycle))
    scheme = CappedPoisson(size, p, cap, overflow, cycle_length=cycle)
    sampler = scheme.sampler(key=size, secure=secure)
    assert_same(sampler.shard(world - 1, world) if world > 1 else sampler, start, 40)


@pytest.mark.parametrize(
    "scheme",
    [
        CappedPoisson(10**6, 4096 / 10**6, 4096),  # biased draws, repetitions and thinning in most batches
        CappedPoisson(3000, 0.3, 1200),  # so many repetitions that sets are extended, and thinned twice
        CappedPoisson(3 * 2**22, 1e-4, 2000),  # a quarter of all half words are biased
        CappedPoisson(3 * 2**61, 1e-16, 900),  # a quarter of all words are
        CappedPoisson(10**6, 1e-5, 5000),  # the cap is far above every size that is likely
        CappedPoisson(10**6, 1e-12, 64),  # empty batches
    ],
)
def test_repetitions_bias_and_thinning_are_those_of_single_steps(scheme):
    assert_same(scheme.sampler(key=3), 0, 100)
    assert_same(scheme.sampler(key=4, secure=False), 7, 60)


USUAL = CappedPoisson(60_000, 256 / 60_000, 300)


def test_sizes_beyond_the_tables_are_drawn_one_by_one(monkeypatch):
    monkeypatch.setattr(batched_draws, "_likely_size", lambda scheme: 250)
    assert_same(USUAL.sampler(key=5), 0, 100)


def test_sizes_that_a_first_word_leaves_open_are_drawn_one_by_one(monkeypatch):
    read = SizeLaw.read
    monkeypatch.setattr(
        SizeLaw, "read", lambda law, words: [None if k % 3 else size for k, size in enumerate(read(law, words))]
    )
    assert_same(USUAL.sampler(key=5), 0, 100)


def test_nearly_every_set_comes_from_the_tables_and_is_thinned_there(monkeypatch):
    refits, missing = [], []
    fitted, sets = draws.fitted, batched_draws.BatchedDraws.sets

    def counted_sets(self, steps):
        found = sets(self, steps)
        missing.extend(step for step, one in zip(steps, found, strict=True) if one is None)
        return found

    def counted_fitted(*arguments):
        refits.append(arguments)
        return fitted(*arguments)

    monkeypatch.setattr(batched_draws, "fitted", counted_fitted)
    monkeypatch.setattr(batched_draws.BatchedDraws, "sets", counted_sets)
    for _ in CappedPoisson(10**6, 4096 / 10**6, 4096).sampler(key=6).batches(400):
        pass
    assert len(missing) <= 2
    assert 0 < len(refits) < 80


def test_the_longer_somebody_reads_the_more_is_drawn_ahead(monkeypatch):
    class Counted(batched_draws.BatchedDraws):
        lengths: ClassVar[list[int]] = []

        def sets(self, steps):
            self.lengths.append(len(steps))
            return super().sets(steps)

    monkeypatch.setattr("filet.sampling.sampler.BatchedDraws", Counted)
    run = iter(CappedPoisson(10**6, 1e-5, 64).sampler(key=1).batches(10**6))
    next(run)
    assert Counted.lengths == []
    for _ in itertools.islice(run, 500):
        pass
    assert Counted.lengths == [2, 4, 8, 16, 32, 64, 128, 128, 128]


def test_what_gains_nothing_is_drawn_one_by_one():
    assert batched_draws.most_steps(60, 100) == 1
    assert batched_draws.most_steps(4096, 10**9) == 1
    assert batched_draws.most_steps(10**5, 10**6) == 1
    assert batched_draws.most_steps(2**12, 10**6) == 8


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("start", [0, 250, 2**56 - 2, 2**62])
def test_the_beginnings_of_many_streams_are_those_of_each(secure, start):
    source = open_source(Key(5), secure=secure)
    for purpose, count in itertools.product(Purpose, (1, 2, 7)):
        steps = range(start, start + 9, 2)
        read = source.first_words(purpose, count, 6).read(steps)
        assert read.tolist() == [source.at(purpose, step).words(count).tolist() for step in steps]


def test_two_readers_of_one_run_do_not_disturb_each_other():
    run = CappedPoisson(10**5, 1e-3, 128).sampler(key=9).batches(200)
    pairs = list(zip(run, run, strict=True))
    assert all(one == other for one, other in pairs)
    assert all(one == run.sampler[step] for step, (one, _) in enumerate(pairs))
