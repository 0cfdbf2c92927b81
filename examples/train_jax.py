"""DP-SGD with JAX on handwritten digits: batches drawn on the device, the whole run in one compiled loop.

Run it with `python examples/train_jax.py [FIGURE.png]`; it takes less than a minute on two cores. With `--checkpoint FOLDER` the
loop returns every `--save-every` steps to save its parameters, and may be killed at any moment: started again, it goes on to the
weights of a run that was never disturbed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from strategies import CLIP, LEARNING_RATE, Strategy, digits, options, report, strategies

from filet.integrations.jax import device_sampler, gather, secret_key


def key_of(seed: int) -> jax.Array:
    """The key of an example's run. A real run derives it from secrets.token_bytes(32), which it keeps."""
    return secret_key(f"the example's seed {seed}".encode())


def logits(params: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return -jax.nn.log_softmax(logits(params, x))[y]


def clipped_sum(params: Any, x: jax.Array, y: jax.Array, mask: jax.Array) -> Any:
    """The sum of the batch's gradients, each clipped; padding counts as zero."""
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x, y)
    norms = jnp.sqrt(sum(jnp.sum(g.reshape(len(g), -1) ** 2, axis=1) for g in jax.tree.leaves(gradients)))
    factors = jnp.where(mask, jnp.minimum(1.0, CLIP / (norms + 1e-6)), 0.0)
    return jax.tree.map(lambda g: jnp.tensordot(factors, g, 1), gradients)


def start(key: jax.Array) -> Any:
    """The parameters before the first step."""
    one, two = jax.random.split(jax.random.split(key, 3)[2])
    return {
        "w1": jax.random.uniform(one, (64, 32), minval=-1.0, maxval=1.0) / 8.0,
        "b1": jnp.zeros(32),
        "w2": jax.random.uniform(two, (32, 10), minval=-1.0, maxval=1.0) / 32**0.5,
        "b2": jnp.zeros(10),
    }


def trainer(strategy: Strategy, data: tuple[np.ndarray, np.ndarray]) -> Callable[..., Any]:
    """A compiled function: parameters, a random key, the number of the first step, how many -> parameters."""
    draw = device_sampler(strategy.scheme)
    data = (jnp.asarray(data[0]), jnp.asarray(data[1]))
    scale = LEARNING_RATE / strategy.scheme.expected_batch_size  # a constant, never the realised batch size
    deviation = strategy.noise_multiplier * CLIP

    @partial(jax.jit, static_argnums=3)
    def run(params: Any, key: jax.Array, first: int, count: int) -> Any:
        for_batches, for_noise, _ = jax.random.split(key, 3)

        def step(params: Any, number: jax.Array) -> tuple[Any, None]:
            indices, mask = draw(for_batches, number)
            total = clipped_sum(params, *gather(data, indices, mask), mask)
            leaves, tree = jax.tree.flatten(total)
            keys = jax.random.split(jax.random.fold_in(for_noise, number), len(leaves))
            noisy = [g + deviation * jax.random.normal(k, g.shape) for g, k in zip(leaves, keys, strict=True)]
            return jax.tree.map(lambda p, g: p - scale * g, params, jax.tree.unflatten(tree, noisy)), None

        return jax.lax.scan(step, params, first + jnp.arange(count))[0]

    return run


def save(path: Path, step: int, params: Any) -> None:
    """Write the whole checkpoint, or leave the old one."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        np.savez(file, step=step, **params)
    os.replace(part, path)


def resumable(train: Callable[..., Any], seed: int, steps: int, path: Path, every: int, before: int) -> Any:
    """One run in parts, from its checkpoint if there is one; `before` steps were taken in earlier runs."""
    key = key_of(seed)
    step, params = 0, start(key)
    if path.exists():
        with np.load(path) as saved:
            step, params = int(saved["step"]), {name: jnp.asarray(saved[name]) for name in params}
        print(f"resumed at step {before + step}", flush=True)
    while step < steps:
        count = min(every, steps - step)
        params = train(params, key, step, count)
        step += count
        save(path, step, params)
        print(f"step {before + step} saved", flush=True)
    return params


def train_all(strategy: Strategy, data: tuple[np.ndarray, np.ndarray], chosen: argparse.Namespace, before: int) -> Any:
    """The trained parameters of every seed."""
    train = trainer(strategy, data)
    if chosen.checkpoint is None:
        key = key_of(1000)
        jax.block_until_ready(train(start(key), key, 0, chosen.steps))  # compile, outside the time that is reported
    for seed in range(chosen.seeds):
        if chosen.checkpoint is not None:
            path = chosen.checkpoint / f"{strategy.name}-{seed}.npz"
            yield resumable(train, seed, chosen.steps, path, chosen.save_every, before + seed * chosen.steps)
            continue
        begin, key = time.perf_counter(), key_of(seed)
        yield jax.block_until_ready(train(start(key), key, 0, chosen.steps))
        strategy.rates.append(chosen.steps / (time.perf_counter() - begin))


def main() -> None:
    chosen = options("DP-SGD with JAX on handwritten digits")
    if chosen.checkpoint is not None:
        chosen.checkpoint.mkdir(parents=True, exist_ok=True)
    train_x, train_y, test_x, test_y = digits()
    runs = strategies(chosen.only, len(train_x), chosen.steps)
    for number, strategy in enumerate(runs):
        for params in train_all(strategy, (train_x, train_y), chosen, number * chosen.seeds * chosen.steps):
            strategy.weights += [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params)]
            strategy.accuracies.append(float(jnp.mean(logits(params, test_x).argmax(1) == test_y)))
    report("JAX", runs, chosen.figure)


if __name__ == "__main__":
    main()
