"""Wrong uses of batches that a Beam job wrote."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch
from tests.integrations.beam_jobs import created, examples, secret, write_job
from tests.integrations.misuse import Absent, Answer, Documented, Refused

import filet
from filet.integrations.batch_files import open_batches
from filet.sampling.keys import read_key_file

SCHEME = filet.CappedPoisson(dataset_size=300, sampling_probability=0.03, max_batch_size=12)


@functools.cache
def written() -> Path:
    folder = Path(tempfile.mkdtemp())
    write_job(created(examples()), folder / "out", secret(folder), scheme=SCHEME, steps=4, steps_per_file=2)
    return folder / "out"


def iterated_twice():
    steps = open_batches(written()).dicts()
    loader = torch.utils.data.DataLoader(steps, batch_size=None)
    list(loader)
    list(loader)


def shuffled():
    torch.manual_seed(0)
    list(torch.utils.data.DataLoader(open_batches(written()).dicts(), batch_size=None, shuffle=True))


def another_batch_size():
    list(torch.utils.data.DataLoader(open_batches(written()).dicts(), batch_size=2))


def changed():
    batches = open_batches(written())
    (file,) = written().glob("batches-00001-*")
    whole = file.read_bytes()
    try:
        file.write_bytes(whole[:-1] + b"!")
        list(batches)
    finally:
        file.write_bytes(whole)


def short_key():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.key"
        path.write_bytes(b"short")
        path.chmod(0o600)
        read_key_file(path)


ANSWERS: dict[str, Answer] = {
    "weight used outside its layer": Absent("it hands out batches; gradients are the caller's"),
    "layer unfrozen later": Absent("it hands out batches; parameters are the caller's"),
    "batch without a step": Documented("guards.md", "loader alone does not see the steps"),
    "global seed set in the loop": Absent("the batches are in files, and nothing is drawn"),
    "rows mixed": Documented("sharp_edges.md", "so that no row can see another"),
    "batch normalisation": Documented(
        "sharp_edges.md", "batch normalisation, and regularisers that see the whole batch"
    ),
    "loader wrapped by another library": Documented("integrations/beam.md", "a `DistributedSampler` over the steps"),
    "ranks joined late": Documented("sharp_edges.md", "a process that was told another rank than its own"),
    "iterated twice": Refused(iterated_twice, "takes its steps once and in order"),
    "batches repeated, shuffled or sliced": Refused(shuffled, "takes its steps once and in order"),
    "data set changed during the run": Refused(changed, "is not the file that the manifest names"),
    "another batch size": Refused(another_batch_size, "pass batch_size=None"),
    "rows rearranged after batching": Documented("sharp_edges.md", "has to rearrange the mask in the same way"),
    "penalty in the loss": Documented("sharp_edges.md", "Weight decay belongs into the optimizer"),
    "short key": Refused(short_key, "holds 5 bytes, not 16 to 64"),
    "resumed at the wrong step": Documented("sharp_edges.md", "Save the number together with the weights"),
}
