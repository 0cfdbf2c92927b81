"""A real standalone cluster of Spark for tests: a master and two workers, as processes on loopback."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from tests.integrations.beam_jobs import SCHEME, SIZE, arrays, secret, words

from filet.integrations.spark import read_examples, write_batches

ROOT = Path(__file__).resolve().parents[2]
SHAPE = "index long, image array<array<float>>, label long, weight array<double>, text binary"
SMALL = {"steps_per_file": 6, "rows_per_key": 32}
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)|Successfully registered with master")


class Cluster:
    """The cluster's address, and where its processes keep their files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen] = []
        self.master = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0")
        for number in range(2):
            work = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"), "--webui-port", "0"]
            self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *work, self.master)

    def _start(self, name: str, kind: str, *arguments: str) -> str:
        home = os.path.dirname(pyspark.__file__)
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self.folder / f"local-{name}"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        }
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            command = [os.path.join(home, "bin", "spark-class"), kind, "--host", "127.0.0.1", *arguments]
            process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
        self._processes.append(process)
        return self._address(process, log)

    def _address(self, process: subprocess.Popen, log: Path) -> str:
        for _ in range(6000):  # ten minutes: a busy machine is no failure
            found = _STARTED.search(log.read_text())
            if found:
                return found[1] or ""
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        raise AssertionError(log.read_text())

    def executors(self) -> list[int]:
        """Processes of executors, those that started last at the end."""
        found = [later for process in self._processes[1:] for later in children(process.pid)]
        return [one for one in sorted(found) if b"CoarseGrainedExecutorBackend" in command_of(one)]

    def stop(self) -> None:
        """End every process that was started here, and wait for it."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def session(self) -> SparkSession:
        """A session whose shuffle and logs are not compressed, so that a test can search them."""
        (self.folder / "events").mkdir(exist_ok=True)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.sql.shuffle.partitions": "4",
            "spark.task.maxFailures": "3",
            "spark.sql.adaptive.enabled": "false",
            "spark.shuffle.compress": "false",
            "spark.shuffle.spill.compress": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": str(self.folder / "events"),
            "spark.ui.showConsoleProgress": "false",
            "spark.ui.port": "0",
            "spark.log.level": "OFF",
        }
        builder = SparkSession.builder.master(self.master).appName("tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


@contextlib.contextmanager
def running() -> Iterator[tuple[Cluster, SparkSession]]:
    """A cluster and a session on it, both ended with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder))
        try:
            session = cluster.session()
            try:
                yield cluster, session
            finally:
                session.stop()
        finally:
            cluster.stop()


def children(parent: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(one) for one in task.read_text().split()]
    return found + [later for one in found for later in children(one)]


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def frame(session, size: int = SIZE):
    """The examples of `beam_jobs` as a DataFrame in five partitions, out of order."""
    data = arrays(size)
    rows = [
        (k, data["image"][k].tolist(), int(data["label"][k]), data["weight"][k].tolist(), words(size)[k])
        for k in range(size)
    ]
    return session.createDataFrame(rows[::-1], SHAPE).repartition(5)


def many_files(folder: Path, session) -> None:
    """A job with a middle to be killed in: its input is in `folder / "in"`."""
    examples = read_examples(session, str(folder / "in"), "parquet")
    write_batches(examples, folder / "out", SCHEME, 400, secret(folder), steps_per_file=1, rows_per_key=32)
