"""Batches read from files, a second: every format, and the PyTorch loader over them, beside memory.

    python benchmarks/bench_files.py [--quick]

Prints a table and writes results/files.json. Examples are 1 KiB (256 numbers of 32 bits); a batch
has at most 512 rows and 461 on average. The files are made from the sampler's batches by the writer
that every job uses. Each round opens the run anew, checks and reads every file (which the operating
system holds in memory) and touches one number of every batch. Rounds of all rows alternate; a figure
is the median of its rounds, by the clock and by the processor time of all threads.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, write_json

import filet
from filet.integrations.batch_files import KeyFile, StoredBatch, open_batches
from filet.integrations.batch_files.job import Run
from filet.integrations.batch_files.records import fields_of
from filet.integrations.batch_files.writing import Output
from filet.sampling.keys import read_key_file, write_key_file

ROWS, MEAN, WIDTH, SIZE = 512, 0.9 * 512, 256, 50_000
FORMATS = ("arrow", "parquet", "tfrecord", "avro")
Touched = Callable[[], Iterable[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few batches, one round")
    quick = parser.parse_args().quick
    steps, rounds = (32, 1) if quick else (512, 5)
    data = np.random.default_rng(5).random((SIZE, WIDTH), dtype=np.float32)
    scheme = filet.CappedPoisson(SIZE, MEAN / SIZE, ROWS)
    with tempfile.TemporaryDirectory() as folder:
        write_key_file(Path(folder, "key"))
        key = KeyFile(str(Path(folder, "key")))
        for form in FORMATS:
            write_run(Output.checked(Run.checked(scheme, steps, key), Path(folder, form), form), data)
        found = measure(readers(Path(folder), scheme, steps, data), steps, rounds)
    for row in found:
        print(row)
    about = machine("filet", "pyarrow", "fastavro", "torch", "numpy")
    write_json("files", {"machine": about, "quick": quick, "steps": steps, "rows": found})


def write_run(output: Output, data: np.ndarray) -> None:
    """A finished run in a directory, from data in memory."""
    sampler, fields = output.run.sampler(), fields_of({"x": data[0]})
    files = []
    for number in range(output.run.ranges):
        batches = [
            StoredBatch(one.indices, one.mask, one.size, one.dataset_size, step, {"x": one.take(data)})
            for step in output.run.steps_of(number)
            for one in [sampler[step]]
        ]
        files.append(output.write_range(number, batches, fields))
    output.write_manifest(files, fields, sampler.fingerprint)


def readers(folder: Path, scheme: filet.CappedPoisson, steps: int, data: np.ndarray) -> dict[str, Touched]:
    """What is timed: a number of every batch, by each way to read the batches."""
    from torch.utils.data import DataLoader

    def loader(form: str, workers: int) -> Touched:
        def read() -> Iterable[Any]:
            batches: Any = open_batches(folder / form).dicts()
            for batch in DataLoader(batches, batch_size=None, num_workers=workers):
                yield batch["data"]["x"][0, 0]

        return read

    def memory() -> Iterable[Any]:
        sampler = scheme.sampler(read_key_file(folder / "key"))
        return (batch.take(data)[0, 0] for batch in sampler.batches(steps))

    def files(form: str) -> Touched:
        return lambda: (batch.data["x"][0, 0] for batch in open_batches(folder / form))

    return {
        "sampler, memory": memory,
        **{f"open_batches, {form}": files(form) for form in FORMATS},
        "DataLoader, arrow": loader("arrow", 0),
        "DataLoader, arrow, 2 workers": loader("arrow", 2),
        "DataLoader, parquet": loader("parquet", 0),
    }


def measure(ways: dict[str, Touched], steps: int, rounds: int) -> list[dict[str, Any]]:
    """Batches a second of each way, by two clocks."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            clock, used = time.perf_counter(), time.process_time()
            count = sum(1 for _ in way())
            if count != steps:
                raise SystemExit(f"{name} gave {count} batches, not {steps}")
            times[name].append((time.perf_counter() - clock, time.process_time() - used))
    return [
        {
            "way": name,
            "per_second": round(steps / statistics.median(clock for clock, _ in found)),
            "per_processor_second": round(steps / statistics.median(used for _, used in found)),
        }
        for name, found in times.items()
    ]


if __name__ == "__main__":
    main()
