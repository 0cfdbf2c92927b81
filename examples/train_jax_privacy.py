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

try:  # JAX Privacy's head
    from jax_privacy.execution_plan import BandMFConfig
except ImportError:  # 2.0
    from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig as BandMFConfig

from filet.integrations.dp_accounting import FiletAccountant
from filet.integrations.jax import gather
from filet.integrations.jax_privacy import account_plan, capped_plan, is_padding_example

EPSILON, DELTA, BANDS, FEATURES = 1.0, 1e-5, 4, 10
KEY = b"for an example only"  # of batches and noise; a real run draws it by secrets.token_bytes(32), and keeps it


def data(users: int) -> tuple[jax.Array, jax.Array]:
    """Features, and labels that follow a logistic model of random weights."""
    for_weights, for_features, for_labels = jax.random.split(jax.random.key(0), 3)
    features = jax.random.normal(for_features, (users, FEATURES))
    chances = jax.nn.sigmoid(features @ jax.random.normal(for_weights, (FEATURES,)))
    return features, (jax.random.uniform(for_labels, (users,)) < chances).astype(jnp.float32)


def loss(params: Any, features: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.mean(optax.sigmoid_binary_cross_entropy(features @ params["weights"] + params["bias"], labels))


def private_plan(users: int, rows: int, steps: int) -> Any:
    """JAX Privacy's plan: its clipping and noise, calibrated by filet, on filet's batches of one shape."""
    probability, target = 0.9 * rows * BANDS / users, {"epsilon": EPSILON, "delta": DELTA}
    common = {
        "num_bands": BANDS,
        "iterations": steps,
        "truncated_batch_size": rows,
        "num_examples": users,
        "normalize_by": 0.9 * rows,
        "strategy_optimization_steps": 50,
    }
    if hasattr(BandMFConfig, "calibrate"):
        config = BandMFConfig.default(**common, expected_participations=probability * steps / BANDS)
        config = config.calibrate(**target, accountant_fn=FiletAccountant)
    else:
        accountant = FiletAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
        config = BandMFConfig.default(**common, **target, sampling_prob=probability, accountant=accountant)
    return capped_plan(config, key=KEY)


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
    # The sampler gives any step at once, so resuming replays nothing.
    batches = plan.batch_selection_strategy.batch_iterator(options.users, rng=KEY, start=start)
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
