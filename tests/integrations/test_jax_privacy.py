"""Capped batches in JAX Privacy: selection, clipped gradients of padding, banded noise."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, pld
from jax_privacy import batch_selection, clipping
from jax_privacy.experimental import accounting, execution_plan
from jax_privacy.matrix_factorization import toeplitz

import filet
from filet.integrations.dp_accounting import FiletAccountant
from filet.integrations.jax import gather
from filet.integrations.jax_privacy import (
    CappedPoissonSelection,
    CappedUserSelection,
    account_banded,
    is_padding_example,
)
from filet.integrations.jax_privacy_plans import account_plan, capped_plan

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


BANDED = {"sampling_prob": 0.02, "num_bands": 5, "largest_group_size": 2_000, "truncated_batch_size": 45}
CYCLIC = filet.CappedPoisson(10_000, 0.02, 45, cycle_length=5)


@pytest.mark.parametrize(
    ("adjacency", "relation"),
    [("zero-out", NeighboringRelation.REPLACE_SPECIAL), ("replace-one", NeighboringRelation.REPLACE_ONE)],
)
def test_banded_accounting_matches_jax_privacy_and_refined_and_reject_are_lower(adjacency, relation):
    event = accounting.truncated_amplified_bandmf_event(1.5, 502, **BANDED)
    theirs = pld.PLDAccountant(relation, value_discretization_interval=1e-3).compose(event).get_epsilon(1e-6)
    coefficients = np.array([0.8, 0.4, 0.3, 0.2, 0.1])
    coefficients /= np.linalg.norm(coefficients)

    def epsilon(scheme, analysis="refined"):
        curve = account_banded(
            scheme,
            coefficients,
            noise_multiplier=1.5,
            noise_convention="before-mixing",
            steps=502,
            adjacency=adjacency,
            analysis=analysis,
        )
        return curve.epsilon(1e-6)

    note = epsilon(CYCLIC, "note")
    if adjacency == "replace-one":  # where dp_accounting implements the note itself
        assert note == pytest.approx(theirs, rel=5e-3)
    assert note <= theirs * 1.001
    assert note == pytest.approx(FiletAccountant(relation, analysis="note").compose(event).get_epsilon(1e-6), rel=1e-3)
    assert epsilon(CYCLIC) < 0.99 * note
    reject = filet.CappedPoisson(10_000, 0.02, 45, overflow="reject", cycle_length=5)
    assert epsilon(reject) < epsilon(CYCLIC)


def test_the_strategys_column_norm_scales_the_noise_and_its_bands_must_fit():
    coefficients = np.asarray(toeplitz.optimal_max_error_strategy_coefs(5))
    norm = float(np.linalg.norm(coefficients))
    bare = {"steps": 100, "adjacency": "zero-out"}
    run = {**bare, "noise_convention": "before-mixing"}
    scaled = account_banded(CYCLIC, coefficients, noise_multiplier=2.0, **run).epsilon(1e-6)
    assert scaled == pytest.approx(filet.account(CYCLIC, noise_multiplier=2.0 / norm, **bare).epsilon(1e-6), rel=1e-3)
    matrix = np.asarray(toeplitz.materialize_lower_triangular(jnp.asarray(coefficients), n=100))
    dense = account_banded(CYCLIC, matrix, noise_multiplier=2.0, **run).epsilon(1e-6)
    assert dense == pytest.approx(scaled, rel=1e-3)
    with pytest.raises(filet.InvalidArgumentError, match="6 bands, more than the scheme's cycle_length=5"):
        account_banded(CYCLIC, np.ones(6), noise_multiplier=2.0, **run)
    with pytest.raises(filet.InvalidArgumentError, match="lower triangular"):
        account_banded(CYCLIC, matrix.T, noise_multiplier=2.0, **run)
    with pytest.raises(filet.InvalidArgumentError, match="other than zero"):
        account_banded(CYCLIC, [0.0], noise_multiplier=2.0, **run)


@pytest.mark.parametrize("truncated", [True, False])
def test_account_banded_noise_convention_is_named_and_agrees_with_the_plans_event(truncated):
    strategy = np.array([0.8, 0.4, 0.4, 0.2])
    strategy = strategy / np.linalg.norm(strategy) * 3.0  # a column norm that matters
    scheme = filet.CappedPoisson(60_000, 0.02, 320, overflow="truncate" if truncated else "reject", cycle_length=4)
    relation = NeighboringRelation.REPLACE_SPECIAL
    config = execution_plan.BandMFExecutionPlanConfig(
        strategy=strategy, iterations=2_000, epsilon=None, delta=None, noise_multiplier=1.0, sampling_prob=0.02,
        accountant=FiletAccountant(relation), noise_seed=1,
        **({"truncated_batch_size": 320, "num_examples": 60_000} if truncated else {}),
    )  # fmt: skip
    run = {"noise_multiplier": 1.0, "steps": 2_000, "adjacency": "zero-out"}
    ours = account_banded(scheme, strategy, noise_convention="jax-privacy", **run).epsilon(1e-6)
    event = FiletAccountant(relation).compose(config.plan.dp_event).get_epsilon(1e-6)
    if truncated:
        assert ours == event
    else:  # plain Poisson bounds batches that are drawn again
        assert 0.9 * event < ours < event
    theirs = pld.PLDAccountant(relation, value_discretization_interval=1e-3).compose(config.plan.dp_event)
    assert ours <= theirs.get_epsilon(1e-6) * 1.001
    plan = capped_plan(config, **({} if truncated else {"max_batch_size": 320, "dataset_size": 60_000}))
    assert account_plan(plan, adjacency="zero-out").epsilon(1e-6) == ours
    assert account_plan(config.plan, adjacency="zero-out").epsilon(1e-6) == event
    # The plan's noise really is three times as large as its multiplier says: that is the other convention.
    white = account_banded(scheme, strategy, **{**run, "noise_multiplier": 3.0}, noise_convention="before-mixing")
    assert white.epsilon(1e-6) == pytest.approx(ours, rel=1e-3)
    noise = plan.noise_addition_transform
    first, _ = noise.update(jnp.zeros(4_000), noise.init(jnp.zeros(4_000)))
    mixed = 3.0 / strategy[0]  # the first noise is the white one over the strategy's first entry
    assert float(jnp.std(first)) == pytest.approx(mixed, rel=0.06)
    for wrong in (None, "sigma"):
        with pytest.raises(filet.InvalidArgumentError, match=r"noise_convention=.*'before-mixing'.*'jax-privacy'"):
            account_banded(scheme, strategy, **run, noise_convention=wrong)


def test_plans_that_do_not_fit_are_refused():
    base = {"strategy": np.ones(2), "iterations": 10, "epsilon": None, "delta": None, "noise_multiplier": 1.0,
            "sampling_prob": 0.1}  # fmt: skip
    plain = execution_plan.BandMFExecutionPlanConfig(**base)
    independent = execution_plan.BandMFExecutionPlanConfig(
        **base, partition_type=batch_selection.PartitionType.INDEPENDENT,
        accountant=FiletAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE),
    )  # fmt: skip
    single = execution_plan.BandMFExecutionPlanConfig(
        **{**base, "strategy": np.ones(1)}, partition_type=batch_selection.PartitionType.INDEPENDENT,
        accountant=FiletAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE),
    )  # fmt: skip
    sizes = {"max_batch_size": 4, "dataset_size": 40}
    for call, match in [
        (lambda: capped_plan("config"), "BandMFExecutionPlanConfig"),
        (lambda: capped_plan(plain), "pass max_batch_size and dataset_size"),
        (lambda: capped_plan(independent, **sizes), "EQUAL_SPLIT"),
        (lambda: capped_plan(single, **sizes), "no upper bound"),
        (lambda: account_plan("plan", adjacency="zero-out"), "DPExecutionPlan"),
        (lambda: account_plan(dataclasses.replace(plain.plan, batch_selection_strategy=CappedPoissonSelection(
            SCHEME, 10)), adjacency="zero-out"), "not those of its event"),
        (lambda: account_plan(dataclasses.replace(plain.plan, batch_selection_strategy=batch_selection.BMinSepSampling(
            0.1, 10, 2)), adjacency="zero-out"), "BMinSepSampling draws no Poisson batches"),
    ]:  # fmt: skip
        with pytest.raises(filet.InvalidArgumentError, match=match):
            call()


def test_banded_noise_trains_on_cyclic_batches():
    coefficients = jnp.asarray([0.8, 0.4, 0.3, 0.2, 0.1])
    coefficients = coefficients / jnp.linalg.norm(coefficients)
    scheme = filet.CappedPoisson(40, 0.3, 4, cycle_length=5)
    noise = jax_privacy.noise_addition.matrix_factorization_privatizer(
        toeplitz.inverse_as_streaming_matrix(coefficients), stddev=0.5, prng_key=1
    )
    gradient = clipping.clipped_grad(lambda weights, batch: jnp.sum(batch @ weights), l2_clip_norm=1.0)
    rows = jnp.ones((40, 3))

    @jax.jit
    def step(weights, state, indices):
        padding = indices < 0
        total = gradient(weights, gather(rows, indices, ~padding), is_padding_example=padding)
        noisy, state = noise.update(total, state)
        return weights - 0.1 * noisy / scheme.expected_batch_size, state, noisy - total

    weights = jnp.zeros(3)
    state = noise.init(weights)
    noises = []
    for indices in CappedPoissonSelection(scheme, iterations=30).batch_iterator(40, rng=5):
        weights, state, added = step(weights, state, jnp.asarray(indices))
        noises.append(np.asarray(added))
    assert bool(jnp.all(jnp.isfinite(weights)))
    # Multiplied by the strategy again, the noise is white, with the accounted standard deviation.
    white = np.asarray(toeplitz.materialize_lower_triangular(coefficients, n=30)) @ np.array(noises) / 0.5
    assert abs(white.std() - 1) < 5 / np.sqrt(2 * white.size)
    assert abs(white.mean()) < 5 / np.sqrt(white.size)


def test_bad_input_is_refused():
    with pytest.raises(filet.InvalidArgumentError, match="num_examples=41"):
        CappedPoissonSelection(SCHEME, iterations=2).batch_iterator(41)
    with pytest.raises(filet.InvalidArgumentError, match="CappedPoisson"):
        CappedPoissonSelection("scheme", iterations=2)
    with pytest.raises(filet.InvalidArgumentError, match="iterations=-1"):
        CappedPoissonSelection(SCHEME, iterations=-1)
