"""Capped batches in JAX Privacy: selection, clipped gradients of padding, banded noise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_privacy import batch_selection, clipping

import filet
from filet.integrations.jax import gather
from filet.integrations.jax_privacy import (
    CappedPoissonSelection,
    CappedUserSelection,
    is_padding_example,
)

# JAX Privacy 2.0 calls a function that optax has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.05, max_batch_size=4)


def test_batches_have_one_shape_and_are_the_samplers():
    run = list(CappedPoissonSelection(SCHEME, iterations=60).batch_iterator(40, rng=5))
    assert {indices.shape for indices in run} == {(4,)}
    sampler = SCHEME.sampler(key=5)
    for step, indices in enumerate(run):
        np.testing.assert_array_equal(indices, sampler[step].indices)
        np.testing.assert_array_equal(is_padding_example(indices), ~sampler[step].mask)
    assert {int(is_padding_example(indices).sum()) for indices in run} == {0, 1, 2, 3, 4}


def test_a_numpy_generator_seeds_the_batches():
    strategy = CappedPoissonSelection(SCHEME, iterations=20)
    one, same, other = (list(strategy.batch_iterator(40, np.random.default_rng(seed))) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_jax_privacys_own_padding_leaves_the_batches_as_they_are():
    for indices in CappedPoissonSelection(SCHEME, iterations=20).batch_iterator(40, rng=5):
        (only,) = batch_selection.split_and_pad_global_batch(indices, minibatch_size=4)
        np.testing.assert_array_equal(only, indices)
        np.testing.assert_array_equal(batch_selection.pad_to_multiple_of(indices, 4), indices)


def test_padding_adds_exactly_nothing_to_clipped_gradients_in_one_compilation():
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    traced = []

    def loss(weights, batch):
        # The norm's gradient is not a number where the row is zero, as padding is.
        return jnp.sum(batch / jnp.linalg.norm(batch, axis=1, keepdims=True) @ weights + 3.0 * weights.sum())

    gradient = clipping.clipped_grad(loss, l2_clip_norm=1.0)

    @jax.jit
    def step(weights, indices, padding):
        traced.append(1)
        return gradient(weights, gather(jnp.asarray(rows), indices, ~padding), is_padding_example=padding)

    weights = jnp.ones(3)
    for indices in CappedPoissonSelection(SCHEME, iterations=50).batch_iterator(40, rng=5):
        total = step(weights, jnp.asarray(indices), jnp.asarray(is_padding_example(indices)))
        real = indices[indices >= 0]
        expected = np.zeros(3)
        for row in rows[real]:
            full = row / np.linalg.norm(row) + 3.0
            expected += full / max(1.0, np.linalg.norm(full))
        np.testing.assert_allclose(total, expected, atol=1e-5)
    assert len(traced) == 1


def test_in_a_cycle_an_example_takes_part_every_so_many_steps_only():
    scheme = filet.CappedPoisson(43, 0.3, 4, cycle_length=4)
    seen = {}
    for step, indices in enumerate(CappedPoissonSelection(scheme, iterations=400).batch_iterator(43, rng=5)):
        for index in indices[indices >= 0]:  # a part of a padded array is a plain one
            assert seen.setdefault(index, step % 4) == step % 4
    assert len(seen) == 40  # 43 % 4 are left out


USERS = filet.CappedPoisson(dataset_size=12, sampling_probability=0.2, max_batch_size=4)
OWNERS = np.array([5, 5, 5, 5, 5] + [number * 7 for number in range(2, 11)] * 2 + [3, 99, 99, 99])


def test_user_level_selection_with_padding_is_right_and_the_wrong_combination_an_error():
    rows = np.random.default_rng(0).normal(size=(OWNERS.size, 3)).astype(np.float32)
    names = np.unique(OWNERS)
    sampler = USERS.sampler(key=5)
    gradient = clipping.clipped_grad(
        lambda weights, user: jnp.mean(user @ weights), l2_clip_norm=0.5, keep_batch_dim=False
    )
    traced = []

    @jax.jit
    def step(indices, padding):
        traced.append(1)
        return gradient(jnp.ones(3), gather(jnp.asarray(rows), indices, indices >= 0), is_padding_example=padding)

    sizes = set()
    strategy = CappedUserSelection(USERS, iterations=60, rows_per_user=3)
    for number, indices in enumerate(strategy.batch_iterator(OWNERS, rng=5)):
        batch = sampler[number]
        assert indices.shape == (4, 3)
        np.testing.assert_array_equal(is_padding_example(indices), ~batch.mask)
        chosen = np.asarray(indices)[batch.mask]
        # The users are the sampled ones, each once, and every row holds one user's examples.
        np.testing.assert_array_equal(OWNERS[chosen], np.repeat(names[batch.indices[batch.mask], None], 3, axis=1))
        expected = np.zeros(3)
        for user in chosen:
            mean = rows[user].mean(axis=0)
            expected += mean / max(1.0, np.linalg.norm(mean) / 0.5)
        np.testing.assert_allclose(step(np.asarray(indices), is_padding_example(indices)), expected, atol=1e-5)
        sizes.add(batch.size)
    assert sizes == {0, 1, 2, 3, 4}
    assert len(traced) == 1

    # JAX Privacy's own wrapper would put the last user into every batch that is not full, unmasked.
    wrong = batch_selection.UserSelectionStrategy(CappedPoissonSelection(USERS, iterations=5), 3)
    with pytest.raises(filet.InvalidArgumentError, match=r"padded=False.*CappedUserSelection"):
        next(wrong.batch_iterator(OWNERS, np.random.default_rng(1)))


def test_unpadded_selection_serves_jax_privacys_own_user_strategy():
    base = CappedPoissonSelection(USERS, iterations=60, padded=False)
    sampler = USERS.sampler(np.random.default_rng(1).bytes(32))
    names = np.unique(OWNERS)
    wrapped = batch_selection.UserSelectionStrategy(base, 2).batch_iterator(OWNERS, np.random.default_rng(1))
    for number, users in enumerate(wrapped):
        batch = sampler[number]
        assert len(users) == batch.size
        if batch.size:
            np.testing.assert_array_equal(OWNERS[users[:, 0]], names[batch.indices[batch.mask]])
    for number, indices in enumerate(base.batch_iterator(12, rng=5)):
        np.testing.assert_array_equal(indices, USERS.sampler(5)[number].indices[: len(indices)])


def test_users_rows_go_round_and_resume_at_any_step():
    everyone = filet.CappedPoisson(dataset_size=12, sampling_probability=1.0, max_batch_size=12)
    strategy = CappedUserSelection(everyone, iterations=9, rows_per_user=2)
    run = [np.asarray(rows) for rows in strategy.batch_iterator(OWNERS, rng=5)]
    taken = np.concatenate([rows.ravel() for rows in run])
    assert set(taken.tolist()) == set(range(OWNERS.size))
    np.testing.assert_array_equal(list(map(np.asarray, strategy.batch_iterator(OWNERS, rng=5, start=4))), run[4:])
    with pytest.raises(filet.InvalidArgumentError, match=r"names 12 users, not scheme\.dataset_size=40"):
        CappedUserSelection(SCHEME, 3).batch_iterator(OWNERS)
    with pytest.raises(filet.InvalidArgumentError, match="one per example"):
        CappedUserSelection(USERS, 3).batch_iterator(OWNERS[None])
    with pytest.raises(filet.InvalidArgumentError, match="rows_per_user=0"):
        CappedUserSelection(USERS, 3, rows_per_user=0)


def test_bad_input_is_refused():
    with pytest.raises(filet.InvalidArgumentError, match="num_examples=41"):
        CappedPoissonSelection(SCHEME, iterations=2).batch_iterator(41)
    with pytest.raises(filet.InvalidArgumentError, match="CappedPoisson"):
        CappedPoissonSelection("scheme", iterations=2)
    with pytest.raises(filet.InvalidArgumentError, match="iterations=-1"):
        CappedPoissonSelection(SCHEME, iterations=-1)
