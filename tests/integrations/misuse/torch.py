"""Wrong uses of the PyTorch loader."""

from __future__ import annotations

import accelerate
import torch
from tests.integrations.misuse import Absent, Answer, Documented, Refused, Right, Warned
from torch import distributed
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import TensorDataset

import filet
from filet.integrations.torch import loader

KEY = b"a key for wrong uses of torch"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=6)
DATA = TensorDataset(torch.arange(1.0, 41.0))


def run(**options):
    return loader(DATA, SCHEME, **{"steps": 8, "key": KEY, **options})


def seeds_between_steps():
    for step, (_, mask) in enumerate(run()):
        torch.manual_seed(1)
        assert mask.tolist() == SCHEME.sampler(KEY)[step].mask.tolist()


def wrapped():
    next(iter(accelerate.Accelerator(cpu=True).prepare(run())))


def joined_late():
    made = run()
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())  # two ranks, of which one is here
    try:
        iter(made)
    finally:
        distributed.destroy_process_group()


def iterated_twice():
    made = run()
    list(made)
    list(made)


def skipped():
    next(iter(accelerate.skip_first_batches(run(), 2)))


def shrunk():
    rows = [torch.tensor(float(number)) for number in range(40)]
    for _ in loader(rows, SCHEME, steps=8, key=KEY):
        rows.pop()


def other_runs_state():
    run().load_state_dict(run(key=KEY + b"!").state_dict())


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Absent("it hands out batches; gradients are the caller's"),
    "layer unfrozen later": Absent("it hands out batches; parameters are the caller's"),
    "batch without a step": Documented("guards.md", "loader alone does not see the steps"),
    "global seed set in the loop": Right(seeds_between_steps),
    "rows mixed": Documented("sharp_edges.md", "so that no row can see another"),
    "batch normalisation": Documented(
        "sharp_edges.md", "batch normalisation, and regularisers that see the whole batch"
    ),
    "loader wrapped by another library": Refused(wrapped, "leave it out of prepare"),
    "ranks joined late": Refused(joined_late, "make the loader after init_process_group"),
    "iterated twice": Refused(iterated_twice, "the run of steps=8 is over"),
    "batches repeated, shuffled or sliced": Refused(skipped, "would shard or skip them again"),
    "data set changed during the run": Refused(shrunk, "dataset has 39 examples, not scheme.dataset_size=40"),
    "another batch size": Refused(lambda: run(batch_size=3), "batch_size is set by the scheme"),
    "rows rearranged after batching": Documented("integrations/torch.md", "has to permute its mask in the same way"),
    "penalty in the loss": Documented("sharp_edges.md", "Weight decay belongs into the optimizer"),
    "short key": Warned(lambda: run(key=7), "key is an integer below 2**64"),
    "resumed at the wrong step": Refused(other_runs_state, "belongs to a run with another key"),
}
