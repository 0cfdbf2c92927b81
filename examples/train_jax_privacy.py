"""Logistic regression with JAX Privacy: BandMF noise, filet's batches and accountant in its execution plan.

Run it with `python examples/train_jax_privacy.py [--users N] [--steps N] [--checkpoint FILE.npz]`. With a checkpoint it may
be killed at any moment; started again it goes on, to the same weights.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path
from typing import Any

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy.experimental import execution_plan

from filet.integrations.dp_accounting import FiletAccountant
from filet.integrations.jax import gather
from filet.integrations.jax_privacy import is_padding_example
from filet.integrations.jax_privacy_plans import account_plan, capped_plan

EPSILON, DELTA, BANDS, FEATURES = 1.0, 1e-5, 4, 10


def data(users: int) -> tuple[jax.Array, jax.Array]:
    """Features, and labels that follow a logistic model of random weights."""
    for_weights, for_features, for_labels = jax.random.split(jax.random.key(0), 3)
    features = jax.random.normal(for_features, (users, FEATURES))
    chances = jax.nn.sigmoid(features @ jax.random.normal(for_weights, (FEATURES,)))
    return features, (jax.random.uniform(for_labels, (users,)) < chances).astype(jnp.float32)


def loss(params: Any, features: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.mean(optax.sigmoid_binary_cross_entropy(features @ params["weights"] + params["bias"], labels))


def private_plan(users: int, rows: int, steps: int) -> execution_plan.DPExecutionPlan:
    """JAX Privacy's plan: its clipping and noise, calibrated by filet, on filet's batches of one shape."""
    config = execution_plan.BandMFExecutionPlanConfig.default(
        num_bands=BANDS,
        iterations=steps,
        epsilon=EPSILON,
        delta=DELTA,
        sampling_prob=0.9 * rows * BANDS / users,
        truncated_batch_size=rows,
        num_examples=users,
        normalize_by=0.9 * rows,
        accountant=FiletAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL),
        noise_seed=7,  # a real run draws it from `secrets`
        strategy_optimization_steps=50,
    )
    return capped_plan(config)


def is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def save(path: Path, step: int, state: Any) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        leaves = (jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in jax.tree.leaves(state))
        np.savez(file, *leaves, step=step)
    os.replace(part, path)


def load(path: Path, state: Any) -> tuple[int, Any]:
    with np.load(path) as saved:
        leaves, tree = jax.tree.flatten(state)
        found = [jnp.asarray(saved[f"arr_{number}"]) for number in range(len(leaves))]
        found = [jax.random.wrap_key_data(new) if is_key(old) else new for new, old in zip(found, leaves, strict=True)]
        return int(saved["step"]), jax.tree.unflatten(tree, found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint", type=Path)
    options = parser.parse_args()
    features, labels = data(options.users)
    plan = private_plan(options.users, options.rows, options.steps)
    gradient = plan.clipped_grad(loss, batch_argnums=(1, 2))
    optimizer = optax.sgd(1.0)
    noise = plan.noise_addition_transform
    compilations = []

    @jax.jit
    def update(state: Any, indices: jax.Array, padding: jax.Array) -> Any:
        compilations.append(1)
        params, noise_state, moments = state
        batch = gather((features, labels), indices, ~padding)
        total = gradient(params, *batch, is_padding_example=padding)
        noisy, noise_state = noise.update(total, noise_state)
        updates, moments = optimizer.update(noisy, moments)
        return optax.apply_updates(params, updates), noise_state, moments

    params = {"weights": jnp.zeros(FEATURES), "bias": jnp.zeros(())}
    state = (params, noise.init(params), optimizer.init(params))
    start = 0
    if options.checkpoint is not None and options.checkpoint.exists():
        start, state = load(options.checkpoint, state)
        print(f"resumed at step {start}", flush=True)
    print(f"loss before: {loss(state[0], features, labels):.4f}")
    # A small integer key is for examples only. The sampler gives any step at once, so resuming replays nothing.
    batches = plan.batch_selection_strategy.batch_iterator(options.users, rng=2026, start=start)
    for step, indices in enumerate(batches, start=start + 1):
        state = update(state, np.asarray(indices), is_padding_example(indices))
        print(f"step {step} of {options.steps}", flush=True)
        if options.checkpoint is not None and step % 10 == 0:
            save(options.checkpoint, step, state)
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state[0]))).hexdigest()
    epsilon = account_plan(plan, adjacency="zero-out").epsilon(DELTA)
    print(f"loss {loss(state[0], features, labels):.4f}, epsilon {epsilon:.4f}, weights {digest[:16]}")
    print(f"compilations {len(compilations)}")


if __name__ == "__main__":
    main()
