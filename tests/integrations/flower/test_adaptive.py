"""Adaptive clipping: sum and count are one accounted release, divided by a constant."""

from __future__ import annotations

import numpy as np
import pytest
from tests.integrations.flower_grid import KEY, SCHEME, cohorts, flat, grid, model, updates

import filet
from filet.integrations.flower import AdaptiveNorm

NORM = AdaptiveNorm(initial=0.5, count_noise=0.8)


@pytest.mark.parametrize("noise", [0.3, 1.0, 1.55])
def test_the_vector_of_a_client_has_norm_one_at_most_and_both_noises_are_what_is_promised(noise):
    rng = np.random.default_rng(1)
    found = NORM.rows(rng.normal(size=(500, 6)) * 10.0 ** rng.uniform(-6, 6, (500, 1)), 0.7, noise)
    assert 0.999 < np.linalg.norm(found, axis=1).max() <= 1 + 1e-12
    # What the released vector's noise, of standard deviation z, becomes in the sum and in the count.
    of_sum, shifted = NORM.read(np.array([noise, 0.0]), 0.7, noise, expected=3.0)
    assert of_sum[0] == pytest.approx(0.7 * NORM.update_noise(noise))
    assert shifted == pytest.approx(0.7)
    _, moved = NORM.read(np.array([0.0, noise]), 0.7, noise, expected=3.0)
    assert np.log(moved / 0.7) == pytest.approx(-0.2 * NORM.count_noise / 3.0)
    joint = NORM.update_noise(noise) ** -2 + (2 * NORM.count_noise) ** -2
    assert joint == pytest.approx(noise**-2)


def test_a_round_is_the_accounted_release_of_updates_and_bits():
    strategy = cohorts(clipping_norm=NORM)
    found = strategy.start(grid(), model(dtype=np.float64), num_rounds=1).arrays
    rows = np.stack([np.concatenate([part.ravel() for part in updates(client, 1).values()]) for client in range(12)])
    noisy = filet.noisy_sum(NORM.rows(rows, 0.5, 1.0), SCHEME, noise_multiplier=1.0, key=KEY, step=0)
    total, norm = NORM.read(noisy, 0.5, 1.0, SCHEME.expected_batch_size)
    np.testing.assert_allclose(flat(found), total / SCHEME.expected_batch_size, rtol=1e-6, atol=1e-8)
    assert strategy.clipping_norm == pytest.approx(norm, rel=1e-6)
    assert strategy.epsilon(1e-3) == cohorts_epsilon(1)


def cohorts_epsilon(rounds):
    return filet.account(SCHEME, noise_multiplier=1.0, steps=rounds, adjacency="zero-out").epsilon(1e-3)


def test_one_client_moves_sum_and_count_together_by_one_at_most():
    batch = SCHEME.sampler(KEY)[0]
    rows = np.stack([np.concatenate([part.ravel() for part in updates(client, 1).values()]) for client in range(12)])
    cohort = rows[batch.indices[: batch.size]]
    for value in (1e300, np.nan, np.inf, 0.0):
        attacked = cohort.copy()
        attacked[0] = value
        vectors = NORM.rows(attacked, 0.5, 1.0)
        assert np.isfinite(vectors).all()
        assert np.linalg.norm(vectors, axis=1).max() <= 1 + 1e-12


def test_the_norm_finds_the_quantile_of_the_clients_norms():
    everybody = filet.CappedPoisson(dataset_size=12, sampling_probability=1.0, max_batch_size=12)

    def moves(partition, number):  # norms 1 to 12
        return {"weight": np.zeros((3, 2)), "bias": np.array([partition + 1.0, 0.0])}

    for quantile, low, high in ((0.5, 4.0, 9.0), (0.9, 9.0, 14.0)):
        norm = AdaptiveNorm(initial=0.1, count_noise=1.2, quantile=quantile)
        strategy = cohorts(everybody, clipping_norm=norm, noise_multiplier=0.5, rounds=150)
        strategy.start(grid(moves), model())
        assert low < strategy.clipping_norm < high


def test_resumed_with_the_norm_that_it_had(tmp_path):
    whole = cohorts(clipping_norm=NORM)
    weights = flat(whole.start(grid(), model()).arrays)
    path = tmp_path / "run.npz"
    for rounds in (2, 4):
        resumed = cohorts(clipping_norm=NORM, checkpoint=path)
        found = resumed.start(grid(), model(), num_rounds=rounds)
    assert np.array_equal(flat(found.arrays), weights)
    assert resumed.clipping_norm == whole.clipping_norm != NORM.initial
    with pytest.raises(filet.StateError, match="another run: clipping_norm differs"):
        cohorts(clipping_norm=AdaptiveNorm(0.5, 0.9), checkpoint=path)
    with pytest.raises(filet.StateError, match="another run: clipping_norm differs"):
        cohorts(clipping_norm=0.5, checkpoint=path)


def test_what_would_have_no_proven_epsilon_is_refused():
    for call, match in [
        (
            lambda: cohorts(clipping_norm=NORM, noise_multiplier=1.6),
            r"count_noise=0\.8 is not above noise_multiplier / 2",
        ),
        (lambda: cohorts(clipping_norm=NORM, noise_multiplier=0.0), "leaves the count without noise"),
        (lambda: AdaptiveNorm(0.5, count_noise=0.0), r"count_noise=0\.0"),
        (lambda: AdaptiveNorm(0.5, 1.0, quantile=1.0), "quantile"),
        (lambda: AdaptiveNorm(0.5, 1.0, low=1.0), r"initial=0\.5 is not in"),
    ]:
        with pytest.raises(filet.InvalidArgumentError, match=match):
            call()
