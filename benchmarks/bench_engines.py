"""The same run on each engine on one machine: time, processor time, memory, and bytes shuffled.

    python benchmarks/bench_engines.py [--quick]

Prints a table and writes results/engines.json. Examples are 1 KiB in 16 Parquet files; a batch has
at most 1,024 rows and 922 on average; every size has four times the examples and steps of the one
before. Beam is its local runner with two worker processes, Spark `local[2]`, Ray one node with two
processors, whose object store holds the examples. Each job runs in a process of its own, from files
to Arrow files; starting Spark or Ray is not part of the time. Every batch is compared with the
in-memory sampler's. Memory is the largest sum of what all processes of the job hold (shared pages
count in each), looked at four times a second. Spark tells its shuffled bytes itself (compressed).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench_beam import FILES, MEAN, OPTIONS, ROWS, children, compare, count_shuffled, examples, write_data
from common import machine, write_json

import filet
from filet.integrations.batch_files import KeyFile
from filet.sampling.keys import read_key_file, write_key_file

SIZES = ((62_500, 62), (250_000, 250), (1_000_000, 1_000))
QUICK = ((4_000, 4),)
ENGINES = ("beam", "spark", "ray")
_TICKS = os.sysconf("SC_CLK_TCK")
Job = Callable[[], float]
"""A job from files to files; returns the bytes that were shuffled, NaN if the engine does not tell."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small size")
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "N", "STEPS"), help="one job, as JSON")
    options = parser.parse_args()
    if options.one:
        engine, size, steps = options.one
        print(json.dumps(measure(engine, int(size), int(steps))))
        return
    rows = []
    for size, steps in QUICK if options.quick else SIZES:
        for engine in ENGINES:
            rows.append(in_its_own_process(engine, size, steps))
            print(rows[-1], flush=True)
    about = machine("filet", "apache-beam", "pyspark", "ray", "pyarrow", "numpy")
    write_json("engines", {"machine": about, "quick": options.quick, "rows": rows})


def in_its_own_process(engine: str, size: int, steps: int) -> dict[str, Any]:
    """One job, and what it measured."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", engine, str(size), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{engine} with {size} examples failed: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(engine: str, size: int, steps: int) -> dict[str, Any]:
    """One job, from files to files."""
    scheme = filet.CappedPoisson(size, MEAN / size, ROWS)
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder, "in"), size)
        write_key_file(Path(folder, "key"))
        key = KeyFile(str(Path(folder, "key")))
        with _ENGINES[engine](Path(folder), scheme, steps, key) as job, Watch() as watch:
            clock, used = time.perf_counter(), processor_seconds()
            shuffled = job()
            seconds, used = time.perf_counter() - clock, processor_seconds() - used
        compare(Path(folder, "out"), scheme, read_key_file(Path(folder, "key")), examples(size))
        written = sum(path.stat().st_size for path in Path(folder, "out").iterdir())
    return {
        "engine": engine, "examples": size, "steps": steps, "seconds": round(seconds, 1),
        "processor_seconds": round(used, 1), "memory_mb": round(watch.peak),
        "shuffled_bytes": None if shuffled != shuffled else round(shuffled), "written_bytes": written,
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


@contextlib.contextmanager
def _beam(folder: Path, scheme: filet.CappedPoisson, steps: int, key: KeyFile) -> Iterator[Job]:
    from apache_beam.options.pipeline_options import PipelineOptions

    from filet.integrations.beam import ReadExamples, WriteBatches, run_job

    shuffled = count_shuffled()

    def job() -> float:
        write = WriteBatches(folder / "out", scheme, steps, key)
        run_job(ReadExamples(str(folder / "in" / "*.parquet")), write, PipelineOptions([*OPTIONS]))
        return sum(shuffled)

    yield job


@contextlib.contextmanager
def _spark(folder: Path, scheme: filet.CappedPoisson, steps: int, key: KeyFile) -> Iterator[Job]:
    from filet.integrations.spark import read_examples, spark_session, write_batches

    settings = {"spark.driver.memory": "2g", "spark.driver.host": "127.0.0.1", "spark.ui.port": "0",
                "spark.local.dir": str(folder / "local")}  # fmt: skip
    with spark_session("local[2]", settings) as session:
        session.range(10).count()

        def job() -> float:
            found = read_examples(session, str(folder / "in" / "*.parquet"))
            write_batches(found, folder / "out", scheme, steps, key)
            context = session.sparkContext
            url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
            with urllib.request.urlopen(url) as answer:
                return float(sum(stage["shuffleWriteBytes"] for stage in json.load(answer)))

        yield job


@contextlib.contextmanager
def _ray(folder: Path, scheme: filet.CappedPoisson, steps: int, key: KeyFile) -> Iterator[Job]:
    import pyarrow
    import pyarrow.parquet
    import ray
    import ray.data

    from filet.integrations.ray import write_batches

    first = 0  # the files of the other engines have no column of indices
    for number in range(FILES):
        path = folder / "in" / f"part-{number:02d}.parquet"
        table = pyarrow.parquet.read_table(path)
        index = pyarrow.array(range(first, first + table.num_rows))
        pyarrow.parquet.write_table(table.append_column("index", index), path, compression="none")
        first += table.num_rows
    memory = max(200 << 20, 4 * scheme.dataset_size * 1024)
    ray.init(num_cpus=2, object_store_memory=memory, include_dashboard=False, log_to_driver=False)

    def job() -> float:
        write_batches(ray.data.read_parquet(str(folder / "in")), folder / "out", scheme, steps, key)
        return float("nan")

    try:
        yield job
    finally:
        ray.shutdown()


_ENGINES: dict[str, Any] = {"beam": _beam, "spark": _spark, "ray": _ray}


def _tree() -> list[str]:
    return ["self", *children("self")]


def processor_seconds() -> float:
    """Of this process, those that it has started, and those that they have waited for."""
    ticks = 0
    for process in _tree():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


class Watch:
    """The largest sum of the memory of this process and of those that it has started."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(0.25):
            self.peak = max(self.peak, sum(map(_resident_mb, _tree())))

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def _resident_mb(process: str) -> float:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
