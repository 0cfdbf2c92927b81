"""DP-SGD with JAX on handwritten digits: batches drawn on the device, the whole run in one compiled loop.

Run it with `python examples/train_jax.py [FIGURE.png]`; it takes less than a minute on two cores.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from strategies import CLIP, LEARNING_RATE, SEEDS, STEPS, Strategy, digits, report, strategies

from filet.integrations.jax import device_sampler, gather


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


def trainer(strategy: Strategy, data: tuple[np.ndarray, np.ndarray]) -> Callable[[jax.Array], Any]:
    """A compiled function from a random key to trained parameters."""
    draw = device_sampler(strategy.scheme)
    data = (jnp.asarray(data[0]), jnp.asarray(data[1]))
    scale = LEARNING_RATE / strategy.scheme.expected_batch_size  # a constant, never the realised batch size

    def run(key: jax.Array) -> Any:
        for_batches, for_noise, for_start = jax.random.split(key, 3)

        def step(params: Any, number: jax.Array) -> tuple[Any, None]:
            indices, mask = draw(for_batches, number)
            total = clipped_sum(params, *gather(data, indices, mask), mask)
            leaves, tree = jax.tree.flatten(total)
            keys = jax.random.split(jax.random.fold_in(for_noise, number), len(leaves))
            deviation = strategy.noise_multiplier * CLIP
            noisy = [g + deviation * jax.random.normal(k, g.shape) for g, k in zip(leaves, keys, strict=True)]
            return jax.tree.map(lambda p, g: p - scale * g, params, jax.tree.unflatten(tree, noisy)), None

        one, two = jax.random.split(for_start)
        params = {
            "w1": jax.random.uniform(one, (64, 32), minval=-1.0, maxval=1.0) / 8.0,
            "b1": jnp.zeros(32),
            "w2": jax.random.uniform(two, (32, 10), minval=-1.0, maxval=1.0) / 32**0.5,
            "b2": jnp.zeros(10),
        }
        return jax.lax.scan(step, params, jnp.arange(STEPS))[0]

    return jax.jit(run)


def main() -> None:
    figure = Path(sys.argv[1] if len(sys.argv) > 1 else "train_jax.png")
    train_x, train_y, test_x, test_y = digits()
    runs = strategies(len(train_x))
    for strategy in runs:
        train = trainer(strategy, (train_x, train_y))
        jax.block_until_ready(train(jax.random.key(1000)))  # compile, outside the time that is reported
        for seed in range(SEEDS):
            begin = time.perf_counter()
            params = jax.block_until_ready(train(jax.random.key(seed)))  # a real run draws the seed from `secrets`
            strategy.seconds.append(time.perf_counter() - begin)
            strategy.accuracies.append(float(jnp.mean(logits(params, test_x).argmax(1) == test_y)))
    report("JAX", runs, figure)


if __name__ == "__main__":
    main()
