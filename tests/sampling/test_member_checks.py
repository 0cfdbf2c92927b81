"""Checks of members catch shuffling, biased cuts, favourites, repetitions and wrong groups."""

import numpy as np
import pytest
from tests.sampling.laws import failed, poisson_draws

import filet
from filet.sampling.audits import audit


def test_catches_a_shuffled_loader():
    scheme = filet.CappedPoisson(1_000, 0.05, 80)
    rng = np.random.default_rng(1)
    batches = np.concatenate([rng.permutation(1_000).reshape(20, 50) for _ in range(15)])
    report = audit(batches, scheme)
    assert {"size law", "inclusion", "overlap of steps"} <= failed(report)


def test_catches_a_shuffled_loader_whose_sizes_follow_the_law():
    scheme = filet.CappedPoisson(1_000, 0.05, 80)
    rng = np.random.default_rng(2)
    order, batches = np.empty(0, dtype=np.int64), []
    for batch in scheme.sampler(4).batches(300):
        if order.size < batch.size:
            order = rng.permutation(1_000)
        batches.append(order[: batch.size])
        order = order[batch.size :]
    report = audit(batches, scheme)
    assert {"inclusion", "overlap of steps"} <= failed(report)
    assert "size law" not in failed(report)


@pytest.mark.parametrize(
    "cut", [lambda drawn, cap: drawn[:cap], lambda drawn, cap: drawn[-cap:]], ids=["last", "first"]
)
def test_catches_a_cut_of_the_last_or_first_instead_of_random_examples(cut):
    scheme = filet.CappedPoisson(1_000, 0.05, 48)
    report = audit([cut(drawn, 48) for drawn in poisson_draws(scheme, 400)], scheme)
    assert "positions in full batches" in failed(report)
    assert "size law" not in failed(report)


def test_passes_a_random_cut_by_another_implementation():
    scheme = filet.CappedPoisson(1_000, 0.05, 48)
    rng = np.random.default_rng(3)
    assert audit([rng.permutation(drawn)[:48] for drawn in poisson_draws(scheme, 400)], scheme).passed


def test_catches_batches_that_are_used_twice():
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    twice = [batch for batch in scheme.sampler(0).batches(150) for _ in range(2)]
    assert {"overlap of steps", "inclusion", "size sequence"} <= failed(audit(twice, scheme))


def test_catches_favoured_examples():
    scheme = filet.CappedPoisson(400, 0.05, 400)
    rng = np.random.default_rng(0)
    rate = np.where(np.arange(400) % 2 == 0, 0.06, 0.04)
    batches = [np.flatnonzero(rng.random(400) < rate) for _ in range(400)]
    assert failed(audit(batches, scheme)) & {"inclusion", "overlap of steps"}


def test_catches_a_cyclic_loader_with_overlapping_groups():
    scheme = filet.CappedPoisson(300, 0.1, 20, cycle_length=3)
    plain = filet.CappedPoisson(300, 10 / 300, 20)
    assert "groups" in failed(audit(plain.sampler(0), scheme, steps=300))
