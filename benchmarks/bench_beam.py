"""What a Beam job costs on the local runner with two worker processes: time, peak memory and shuffled bytes at three sizes.

    python benchmarks/bench_beam.py [--quick]

Prints a table and writes results/beam.json. Examples are 1 KiB (256 numbers of 32 bits) in 16 Parquet files; a batch has at most
1,024 rows and 922 on average; every size has four times the examples and four times the steps of the one before. Each job
runs in a process of its own, and its batches are compared with the in-memory sampler's. Shuffled bytes are counted
where the runner takes them in; the runner keeps them in memory, as runners on a cluster do not.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, write_json

import filet
from filet.sampling.keys import read_key_file, write_key_file

SIZES = ((62_500, 62), (250_000, 250), (1_000_000, 1_000))
QUICK = ((4_000, 4), (8_000, 8), (16_000, 16))
ROWS, MEAN, FILES, WIDTH = 1024, 0.9 * 1024, 16, 256
OPTIONS = ("--runner=FnApiRunner", "--direct_num_workers=2", "--direct_running_mode=multi_processing")
HAS = re.compile(r"VmHWM:\s+(\d+) kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--one", nargs=2, type=int, metavar=("N", "STEPS"), help="one job, as JSON on standard output")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    rows = []
    for size, steps in QUICK if options.quick else SIZES:
        rows.append(in_its_own_process(size, steps))
        print(rows[-1], flush=True)
    about = machine("filet", "apache-beam", "pyarrow", "numpy")
    write_json("beam", {"machine": about, "quick": options.quick, "workers": 2, "rows": rows})


def in_its_own_process(size: int, steps: int) -> dict[str, Any]:
    """One job, and what it measured."""
    command = [sys.executable, __file__, "--one", str(size), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the job of {size} examples failed: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(size: int, steps: int) -> dict[str, Any]:
    """One job, from files to files."""
    from apache_beam.options.pipeline_options import PipelineOptions

    from filet.integrations.beam import KeyFile, ReadExamples, WriteBatches, run_job

    scheme = filet.CappedPoisson(size, MEAN / size, ROWS)
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder, "in"), size)
        write_key_file(Path(folder, "key"))
        write = WriteBatches(Path(folder, "out"), scheme, steps, KeyFile(str(Path(folder, "key"))))
        shuffled = count_shuffled()
        with Watch() as watch:
            clock, used = time.perf_counter(), processor_seconds()
            run_job(ReadExamples(str(Path(folder, "in", "*.parquet"))), write, PipelineOptions([*OPTIONS]))
            seconds, used = time.perf_counter() - clock, processor_seconds() - used
        compare(Path(folder, "out"), scheme, read_key_file(Path(folder, "key")), examples(size))
        drawn = sum(batch.size for batch in scheme.sampler(read_key_file(Path(folder, "key"))).batches(steps))
        written = sum(path.stat().st_size for path in Path(folder, "out").iterdir())
    return {"examples": size, "steps": steps, "drawn": drawn, "seconds": seconds, "processor_seconds": used,
            "runner_mb": watch.peak("self"), "worker_mb": watch.peak("workers"), "shuffled_bytes": sum(shuffled),
            "written_bytes": written, "files": write.run.ranges}  # fmt: skip


def examples(size: int) -> np.ndarray:
    return np.random.default_rng(size).random((size, WIDTH), dtype=np.float32)


def write_data(folder: Path, size: int) -> None:
    import pyarrow
    from pyarrow import parquet

    folder.mkdir()
    for number, rows in enumerate(np.array_split(examples(size), FILES)):
        column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.reshape(-1)), WIDTH)
        parquet.write_table(pyarrow.table({"x": column}), folder / f"part-{number:02d}.parquet", compression="none")


def compare(folder: Path, scheme: filet.CappedPoisson, key: bytes, data: np.ndarray) -> None:
    """Every batch, byte for byte."""
    from filet.integrations.beam import open_batches

    sampler = scheme.sampler(key)
    for batch in open_batches(folder):
        wanted = sampler[batch.step]
        same = np.array_equal(batch.indices, wanted.indices)
        digests = {hashlib.sha256(rows.tobytes()).digest() for rows in (batch.data["x"], wanted.take(data))}
        if not same or len(digests) != 1:
            raise SystemExit(f"step {batch.step} differs from the in-memory sampler's")


def processor_seconds() -> float:
    """Of this process and of those that it has started and waited for."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def count_shuffled() -> list[int]:
    """Bytes that the local runner is given to group, in parts."""
    from apache_beam.runners.portability.fn_api_runner.execution import GroupingBuffer

    parts: list[int] = []
    append = GroupingBuffer.append

    def counted(self: Any, elements: bytes) -> None:
        parts.append(len(elements))
        append(self, elements)

    setattr(GroupingBuffer, "append", counted)  # noqa: B010, a method is replaced on purpose
    return parts


class Watch:
    """The largest memory of this process, and of the largest of its children, looked at four times a second."""

    def __init__(self) -> None:
        self._peaks = {"self": 0.0, "workers": 0.0}
        Path("/proc/self/clear_refs").write_text("5")  # from now on: the data set was made in this process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.25):
            self._peaks["self"] = max(self._peaks["self"], peak_mb("self"))
            for child in children("self"):
                self._peaks["workers"] = max(self._peaks["workers"], peak_mb(child))

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def peak(self, whose: str) -> float:
        return self._peaks[whose]


def children(process: str) -> list[str]:
    """Processes that a process has started, and theirs."""
    found: list[str] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended in the meantime
            found += task.read_text().split()
    return found + [later for one in found for later in children(one)]


def peak_mb(process: str) -> float:
    try:
        found = HAS.search(Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1e3 if found else 0.0


if __name__ == "__main__":
    main()
