"""Wrong uses of grain's data set of batches."""

from __future__ import annotations

import numpy as np
from tests.integrations.misuse import Absent, Answer, Documented, Refused, Right, Warned

import filet
from filet.integrations.grain import batches

KEY = b"a key for wrong uses of grain"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=6)


def run(data=None, key=KEY):
    return batches(np.arange(40.0) if data is None else data, SCHEME, 8, key)


def seeds_between_steps():
    for step, batch in enumerate(run()):
        np.random.seed(1)  # noqa: NPY002, on purpose
        assert batch["mask"].tolist() == SCHEME.sampler(KEY)[step].mask.tolist()


def iterated_twice():
    made = run()
    list(made)
    list(made)


def shrunk():
    data = {"x": np.arange(40.0)}
    made = run(data)
    data["x"] = data["x"][:-1]
    made[1]


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Absent("it hands out batches; gradients are the caller's"),
    "layer unfrozen later": Absent("it hands out batches; parameters are the caller's"),
    "batch without a step": Documented("guards.md", "loader alone does not see the steps"),
    "global seed set in the loop": Right(seeds_between_steps),
    "rows mixed": Documented("sharp_edges.md", "so that no row can see another"),
    "batch normalisation": Documented(
        "sharp_edges.md", "batch normalisation, and regularisers that see the whole batch"
    ),
    "loader wrapped by another library": Documented("guards.md", "`pipe`, `mix` and `concatenate`"),
    "ranks joined late": Documented("sharp_edges.md", "a process that was told another rank than its own"),
    "iterated twice": Refused(iterated_twice, "no accountant allows for a second pass"),
    "batches repeated, shuffled or sliced": Refused(lambda: run().map(lambda batch: batch)[::2], "only map them"),
    "data set changed during the run": Refused(shrunk, "has 39 rows, not dataset_size=40"),
    "another batch size": Refused(lambda: run().batch(2), "only map them"),
    "rows rearranged after batching": Documented("sharp_edges.md", "has to rearrange the mask in the same way"),
    "penalty in the loss": Documented("sharp_edges.md", "Weight decay belongs into the optimizer"),
    "short key": Warned(lambda: run(key=7), "key is an integer below 2**64"),
    "resumed at the wrong step": Documented("sharp_edges.md", "Save the number together with the weights"),
}
