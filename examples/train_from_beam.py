"""DP-SGD on batches that a Beam job wrote to disk: the weights are those of a run that draws its batches in memory.

    python examples/train_from_beam.py --folder /tmp/digits --batches files
    python examples/train_from_beam.py --folder /tmp/digits --batches memory

Both print the same digest of the weights. The first writes the data as four Parquet files and runs the job on Beam's local
runner; on a cluster, only the options of the pipeline differ. Either may be killed at any moment, the job as well as the
training: started again, it goes on to the same weights.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from strategies import CLIP, LEARNING_RATE, digits
from train_jax import clipped_sum, logits, save

import filet
from filet.integrations.jax import secret_key
from filet.sampling.keys import read_key_file, write_key_file

NOISE_MULTIPLIER = 1.0
DATA_FILES = 4
SAVE_EVERY = 10


def write_data(folder: Path, data: dict[str, np.ndarray]) -> None:
    """The data set in several files, in the order of its rows."""
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    x = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(data["x"].reshape(-1)), data["x"].shape[1])
    table = pyarrow.table({"x": x, "y": data["y"]})
    for number, rows in enumerate(np.array_split(np.arange(len(data["y"])), DATA_FILES)):
        parquet.write_table(table.slice(rows[0], rows.size), folder / f"data-{number}.parquet")


Source = Callable[[int], Iterator[Any]]  # from a first step to batches


def from_files(folder: Path, data: dict[str, np.ndarray], scheme: filet.CappedPoisson, steps: int) -> Source:
    """Batches by a Beam job, read back from what it wrote; a finished job is not run again."""
    from apache_beam.options.pipeline_options import PipelineOptions

    from filet.integrations.beam import KeyFile, ReadExamples, WriteBatches, open_batches, run_job

    if not (folder / "batches" / "manifest.json").exists():
        write_data(folder / "data", data)
        key = KeyFile(str(folder / "run.key"))
        write = WriteBatches(folder / "batches", scheme, steps, key, steps_per_file=5)
        run_job(ReadExamples(str(folder / "data" / "*.parquet")), write, PipelineOptions(runner="FnApiRunner"))
    return lambda start: ((batch.data, batch.mask) for batch in open_batches(folder / "batches", start=start))


def from_memory(folder: Path, data: dict[str, np.ndarray], scheme: filet.CappedPoisson, steps: int) -> Source:
    """The same batches, drawn as they are needed."""
    sampler = scheme.sampler(read_key_file(folder / "run.key"))
    return lambda start: ((batch.take(data), batch.mask) for batch in sampler.batches(steps, start))


def train(source: Source, scheme: filet.CappedPoisson, checkpoint: Path, noise_key: jax.Array) -> dict[str, jax.Array]:
    """DP-SGD: clip, sum, add noise, divide by a constant. Goes on from the checkpoint, if there is one."""
    params: dict[str, jax.Array] = {
        "w1": jax.random.uniform(jax.random.key(1), (64, 32), minval=-1.0, maxval=1.0) / 8.0,
        "b1": jnp.zeros(32),
        "w2": jax.random.uniform(jax.random.key(2), (32, 10), minval=-1.0, maxval=1.0) / 32**0.5,
        "b2": jnp.zeros(10),
    }
    start = 0
    if checkpoint.exists():
        with np.load(checkpoint) as saved:
            start, params = int(saved["step"]), {name: jnp.asarray(saved[name]) for name in params}
        print(f"resumed at step {start}", flush=True)
    scale = LEARNING_RATE / scheme.expected_batch_size
    total = jax.jit(clipped_sum)
    for step, (rows, mask) in enumerate(source(start), start):
        summed = total(params, rows["x"], rows["y"], mask)
        key = jax.random.fold_in(noise_key, step)
        for name, one in zip(sorted(params), jax.random.split(key, len(params)), strict=True):
            noise = NOISE_MULTIPLIER * CLIP * jax.random.normal(one, params[name].shape)
            params[name] = params[name] - scale * (summed[name] + noise)
        if (step + 1) % SAVE_EVERY == 0:
            save(checkpoint, step + 1, params)
            print(f"step {step + 1} saved", flush=True)
    return params


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the key, the data and the batches are")
    parser.add_argument("--batches", choices=["files", "memory"], required=True)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if not (options.folder / "run.key").exists():
        write_key_file(options.folder / "run.key")
    train_x, train_y, test_x, test_y = digits()
    data = {"x": np.asarray(train_x, np.float32), "y": np.asarray(train_y, np.int32)}
    scheme = filet.CappedPoisson(len(train_y), 128 / len(train_y), 160, overflow="reject")
    make = from_files if options.batches == "files" else from_memory
    source = make(options.folder, data, scheme, options.steps)
    noise_key = secret_key(read_key_file(options.folder / "run.key"), "noise")  # of the same secret as the batches
    params = train(source, scheme, options.folder / f"trained-from-{options.batches}.npz", noise_key)
    digest = hashlib.sha256(b"".join(np.asarray(params[name]).tobytes() for name in sorted(params))).hexdigest()
    print(f"accuracy {float(jnp.mean(logits(params, test_x).argmax(1) == test_y)):.3f}, weights {digest}")


if __name__ == "__main__":
    main()
