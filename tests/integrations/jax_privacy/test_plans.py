"""Execution plans of JAX Privacy on filet's batches: noise from the key, and what does not fit is refused."""

from __future__ import annotations

import dataclasses
import json
import warnings

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import pytest
from click.testing import CliRunner
from dp_accounting import NeighboringRelation
from jax_privacy import batch_selection, clipping
from jax_privacy.matrix_factorization import toeplitz
from tests.integrations.jax_privacy_configs import HEAD, banded_config, own_plan, seeded

import filet
from filet.cli.commands.answers import main
from filet.integrations.jax import gather
from filet.integrations.jax_privacy import (
    CappedConfig,
    CappedPoissonSelection,
    account_plan,
    capped_plan,
)
from filet.showing.citing import FORMATS, cited

# JAX Privacy 2.0 calls a function that optax has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.05, max_batch_size=4)


def plan_config(**options):
    return banded_config(strategy=np.array([0.8, 0.4]), truncated_batch_size=8, num_examples=40, **options)


def test_noise_of_a_plan_comes_from_its_key_and_from_nothing_else():
    def noise(reseed=False, **options):
        transform = capped_plan(plan_config(), **options).noise_addition_transform
        state, found = transform.init(jnp.zeros(50)), []
        for _ in range(3):
            if reseed:
                np.random.seed(1)  # noqa: NPY002, it is what JAX Privacy seeds its noise from
            value, state = jax.jit(transform.update)(jnp.zeros(50), state)
            found.append(np.asarray(value))
        return found

    key = b"a key for a plan of JAX Privacy"
    ours = noise(key=key)
    assert np.array_equal(ours, noise(key=key, reseed=True))
    assert not np.array_equal(ours[0], ours[1])
    assert not np.array_equal(ours, noise(key=key + b"!"))
    seeded = []
    for _ in range(2):
        np.random.seed(1)  # noqa: NPY002
        seeded.append(noise())
    assert not np.array_equal(*seeded)
    words = np.asarray(jax.random.key_data(capped_plan(plan_config()).noise_addition_transform.init(jnp.zeros(1))[0]))
    assert words.all()  # both halves, where a seed leaves the upper one empty


def test_seeds_that_can_be_found_by_trying_are_warned_of():
    in_config, beside_it = seeded(7)
    with pytest.warns(UserWarning, match=r"noise_seed is an integer of which JAX keeps 32 bits.*pass key="):
        capped_plan(plan_config(**in_config), **beside_it)
    with pytest.raises(filet.InvalidArgumentError, match="noise_seed, and key is given"):
        capped_plan(plan_config(**in_config), key=bytes(16), **beside_it)
    strategy = CappedPoissonSelection(SCHEME, iterations=1)
    for rng, match in [(7, "key is an integer"), (np.random.default_rng(7), "rng was seeded by an integer below")]:
        with pytest.warns(UserWarning, match=match):
            strategy.batch_iterator(40, rng=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rng in (np.random.default_rng(), np.random.default_rng([1, 2]), bytes(16), None):
            strategy.batch_iterator(40, rng=rng)


def test_plans_that_do_not_fit_are_refused():
    add_remove = {"relation": NeighboringRelation.ADD_OR_REMOVE_ONE}
    if not HEAD:  # whose configs are independent wherever they are of the relation add-remove
        add_remove["partition_type"] = batch_selection.PartitionType.INDEPENDENT
    plain = banded_config(strategy=np.ones(2), num_examples=40)
    independent = banded_config(strategy=np.ones(2), **add_remove)
    single = banded_config(strategy=np.ones(1), **add_remove)
    sizes = {"max_batch_size": 4, "dataset_size": 40}
    for call, match in [
        (lambda: capped_plan("config"), "is not a BandMF.*Config; pass one of jax_privacy"),
        (lambda: capped_plan(plain), "pass max_batch_size and dataset_size"),
        (lambda: capped_plan(independent, **sizes), "EQUAL_SPLIT"),
        (lambda: capped_plan(single, **sizes), "no upper bound"),
        (lambda: capped_plan(plain, max_batch_size=4, dataset_size=41), "not the config's num_examples=40"),
        (lambda: CappedConfig(independent, key=bytes(16), **sizes), "EQUAL_SPLIT"),
        (lambda: CappedConfig(plan_config(), key=7), "secrets.token_bytes"),
        (lambda: CappedConfig(plan_config(), key=bytes(16)).make(seeded(7)[1].get("performance_flags", "flags")),
         "noise_seed, and key is given" if HEAD else "performance_flags is given"),
        (lambda: account_plan("plan", adjacency="zero-out"), "DPExecutionPlan"),
        (lambda: account_plan(dataclasses.replace(own_plan(plain), batch_selection_strategy=CappedPoissonSelection(
            SCHEME, 10)), adjacency="zero-out"), "not those of its event"),
        (lambda: account_plan(dataclasses.replace(own_plan(plain), batch_selection_strategy=batch_selection.BMinSepSampling(
            0.1, 10, 2)), adjacency="zero-out"), "BMinSepSampling draws no Poisson batches"),
    ]:  # fmt: skip
        with pytest.raises(filet.InvalidArgumentError, match=match):
            call()


@pytest.mark.parametrize("padded_by_trainer", [1, 32])
def test_a_config_for_a_trainer_draws_one_shape_from_its_key_whatever_generator_it_is_given(padded_by_trainer):
    key = b"a key for a trainer's config"
    config = CappedConfig(plan_config(), key=key)
    assert "key" not in repr(config)
    drawn, shapes = [], set()
    for rng in (np.random.default_rng(), np.random.default_rng(7), None):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            batches = list(config.make().batch_selection_strategy.batch_iterator(40, rng=rng))
        drawn.append(np.array([np.asarray(indices) for indices in batches]))
        shapes |= {-(-indices.size // padded_by_trainer) * padded_by_trainer for indices in batches}
    assert len(shapes) == 1
    assert np.array_equal(drawn[0], drawn[1])
    assert np.array_equal(drawn[0], drawn[2])
    scheme = config.make().batch_selection_strategy.scheme
    assert np.array_equal(drawn[0][3], scheme.sampler(key)[3].indices)
    assert len({(row >= 0).sum() for row in drawn[0]}) > 1  # sizes vary, shapes do not
    with pytest.raises(filet.InvalidArgumentError, match="another key"):
        config.make().batch_selection_strategy.batch_iterator(40, rng=b"another key, of bytes")


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


PLAN_FIELDS = ("iterations", "noise_multiplier", "sampling_prob", "truncated_batch_size", "num_examples", "noise_seed")


def test_a_plan_is_recorded_from_the_fields_of_its_config_and_its_seed_is_in_no_record(tmp_path):
    config = plan_config(noise_seed=314159265)
    fields = {name: getattr(config, name) for name in PLAN_FIELDS}
    fields |= {"strategy": config.strategy.tolist(), "partition_type": config.partition_type.name}
    (tmp_path / "plan.json").write_text(json.dumps(fields))
    command = ["record", "--from", str(tmp_path / "plan.json"), "--adjacency", "zero-out", "--delta", "1e-3"]
    outcome = CliRunner().invoke(main, command)
    assert outcome.exit_code == 0, outcome.output
    made = json.loads(outcome.stdout)
    of_plan = account_plan(config.plan, adjacency="zero-out")  # in steps of one group, as the event is
    assert made["guarantee"]["epsilon"] == pytest.approx(of_plan.epsilon(1e-3), rel=1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a seed is a short key
        ours = account_plan(capped_plan(config), adjacency="zero-out")
    assert made == filet.record(ours, 1e-3)
    for form in FORMATS:
        assert "314159265" not in cited(made, form)
