"""Wrong uses of filet's batches and plans in JAX Privacy."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy import batch_selection, clipping
from tests.integrations.jax_privacy_configs import banded_config, seeded
from tests.integrations.misuse import Absent, Answer, Documented, Refused, Right, Warned

import filet
from filet.integrations.jax_privacy import CappedPoissonSelection, capped_plan

KEY = b"a key for wrong uses of JAX Privacy"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=6)
ROWS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def influence(loss, clip=0.5):
    """How far replacing one row of a batch by a huge one moves the sum of clipped gradients, in clipping norms."""
    gradient = clipping.clipped_grad(loss, l2_clip_norm=clip, keep_batch_dim=True)
    outlier = ROWS.copy()
    outlier[2] = 1_000.0
    padding = np.zeros(6, bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optax, about a name that JAX Privacy uses
        one, two = (gradient(jnp.ones(3), jnp.asarray(rows), is_padding_example=padding) for rows in (ROWS, outlier))
    return float(jnp.linalg.norm(one - two)) / clip


def one_row_stays_bounded(loss):
    assert influence(loss) <= 2.0 + 1e-5


def twice_used(weights, rows):
    return jnp.sum((rows @ weights) ** 2 + jnp.sin(rows * 3.0) @ weights)


def mixing(weights, rows):
    return jnp.sum(((rows - rows.mean(axis=0)) @ weights) ** 2 + (rows @ rows.T).sum())


def penalised(weights, rows):
    return jnp.sum(rows @ weights) + 100.0 * jnp.sum(weights**2)


def config(**options):
    return banded_config(truncated_batch_size=6, num_examples=40, **options)


def short_seed():
    in_config, beside_it = seeded(7)
    capped_plan(config(**in_config), **beside_it)


def seeds_between_steps():
    def noise(seed):
        transform = capped_plan(config(), key=KEY).noise_addition_transform
        state, found = transform.init(jnp.zeros(3)), []
        for _ in range(3):
            np.random.seed(seed)  # noqa: NPY002, on purpose
            value, state = transform.update(jnp.zeros(3), state)
            found.append(np.asarray(value).tolist())
        return found

    assert noise(1) == noise(2)
    assert len({str(value) for value in noise(1)}) == 3
    assert jax.random.key_data(capped_plan(config(), key=KEY).noise_addition_transform.init(jnp.zeros(3))[0]).all()


def wrapped():
    users = np.arange(40)
    strategy = batch_selection.UserSelectionStrategy(CappedPoissonSelection(SCHEME, iterations=3))
    list(strategy.batch_iterator(users, rng=np.random.default_rng()))


def another_data_set():
    CappedPoissonSelection(SCHEME, iterations=3).batch_iterator(39, rng=KEY)


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Right(lambda: one_row_stays_bounded(twice_used)),
    "layer unfrozen later": Absent("there are no layers; what is differentiated is what is clipped"),
    "batch without a step": Documented("guards.md", "loader alone does not see the steps"),
    "global seed set in the loop": Right(seeds_between_steps),
    "rows mixed": Right(lambda: one_row_stays_bounded(mixing)),
    "batch normalisation": Documented(
        "sharp_edges.md", "batch normalisation, and regularisers that see the whole batch"
    ),
    "loader wrapped by another library": Refused(wrapped, "padded with -1"),
    "ranks joined late": Documented("sharp_edges.md", "a process that was told another rank than its own"),
    "iterated twice": Documented("guards.md", "another call of `batch_iterator` with the same key"),
    "batches repeated, shuffled or sliced": Documented("sharp_edges.md", "nothing knows which steps were taken"),
    "data set changed during the run": Refused(another_data_set, "num_examples=39 is not scheme.dataset_size=40"),
    "another batch size": Refused(
        lambda: capped_plan(config(), max_batch_size=12), "leave max_batch_size and dataset_size"
    ),
    "rows rearranged after batching": Documented("sharp_edges.md", "has to rearrange the mask in the same way"),
    "penalty in the loss": Right(lambda: one_row_stays_bounded(penalised)),
    "short key": Warned(short_seed, "noise_seed is an integer of which JAX keeps 32 bits"),
    "resumed at the wrong step": Documented("sharp_edges.md", "Save the number together with the weights"),
}
