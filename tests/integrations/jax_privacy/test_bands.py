"""Banded noise (BandMF): its cost next to JAX Privacy's own accounting."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, pld
from jax_privacy.matrix_factorization import toeplitz
from tests.integrations.jax_privacy_configs import HEAD, banded_config, own_plan

import filet
from filet.integrations.dp_accounting import FiletAccountant
from filet.integrations.jax_privacy import (
    account_banded,
    account_plan,
    capped_plan,
)

if HEAD:
    from jax_privacy import accounting
else:
    from jax_privacy.experimental import accounting

# JAX Privacy 2.0 calls a function that optax has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")
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
    config = banded_config(
        strategy=strategy,
        iterations=2_000,
        sampling_prob=0.02,
        num_examples=60_000,
        truncated_batch_size=320 if truncated else None,
    )
    run = {"noise_multiplier": 1.0, "steps": 2_000, "adjacency": "zero-out"}
    ours = account_banded(scheme, strategy, noise_convention="jax-privacy", **run).epsilon(1e-6)
    event = FiletAccountant(relation).compose(own_plan(config).dp_event).get_epsilon(1e-6)
    if truncated:
        assert ours == event
    else:  # plain Poisson bounds batches that are drawn again
        assert 0.9 * event < ours < event
    theirs = pld.PLDAccountant(relation, value_discretization_interval=1e-3).compose(own_plan(config).dp_event)
    assert ours <= theirs.get_epsilon(1e-6) * 1.001
    plan = capped_plan(config, **({} if truncated else {"max_batch_size": 320}))
    assert account_plan(plan, adjacency="zero-out").epsilon(1e-6) == ours
    assert account_plan(own_plan(config), adjacency="zero-out").epsilon(1e-6) == event
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
