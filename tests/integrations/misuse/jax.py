"""Wrong uses of batches for JAX, drawn on the device or on the host."""

from __future__ import annotations

import random

import jax
import numpy as np
from tests.integrations.misuse import Absent, Answer, Documented, Refused, Right, Warned

import filet
from filet.integrations.jax import batches, device_sampler, secret_key

KEY = b"a key for wrong uses of JAX"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=6)


def seeds_between_steps():
    draw, key = device_sampler(SCHEME), secret_key(KEY)
    found = []
    for step in range(3):
        np.random.seed(1)  # noqa: NPY002, on purpose
        random.seed(1)
        found.append(np.asarray(draw(key, step)[0]).tolist())
    assert found == [np.asarray(draw(key, step)[0]).tolist() for step in range(3)]
    assert len({str(indices) for indices in found}) == 3


def iterated_twice():
    made = batches(np.arange(40.0), SCHEME.sampler(KEY), steps=5)
    assert len(list(made)) == 5
    assert list(made) == []  # nothing comes a second time


def shrunk():
    data = {"x": np.arange(40.0)}
    for _ in batches(data, SCHEME.sampler(KEY), steps=5):
        data["x"] = data["x"][:-1]


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Absent("the gradient is that of an example's whole loss, by jax.grad"),
    "layer unfrozen later": Absent("there are no layers; what is differentiated is what is clipped"),
    "batch without a step": Documented("guards.md", "loader alone does not see the steps"),
    "global seed set in the loop": Right(seeds_between_steps),
    "rows mixed": Documented("sharp_edges.md", "so that no row can see another"),
    "batch normalisation": Documented(
        "sharp_edges.md", "batch normalisation, and regularisers that see the whole batch"
    ),
    "loader wrapped by another library": Documented("guards.md", "an iterator that another library skips or shards"),
    "ranks joined late": Documented("sharp_edges.md", "a process that was told another rank than its own"),
    "iterated twice": Right(iterated_twice),
    "batches repeated, shuffled or sliced": Documented("sharp_edges.md", "nothing knows which steps were taken"),
    "data set changed during the run": Refused(shrunk, "data['x'] has 39 rows, not dataset_size=40"),
    "another batch size": Absent("the shapes are the scheme's, and there is no other loader"),
    "rows rearranged after batching": Documented("sharp_edges.md", "has to rearrange the mask in the same way"),
    "penalty in the loss": Documented("sharp_edges.md", "the penalty is part of it: clipped with it"),
    "short key": Warned(lambda: device_sampler(SCHEME)(jax.random.key(7), 0), "made from an integer below 2**32"),
    "resumed at the wrong step": Documented("sharp_edges.md", "Save the number together with the weights"),
}
