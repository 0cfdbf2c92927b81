"""Spark jobs that go wrong: an executor and a whole driver that are killed. The same bytes, or nothing to read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from tests.integrations.beam_jobs import contents, expected, write_parquet
from tests.integrations.spark_cluster import many_files

import filet
from filet.integrations.spark import open_batches

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds executors by /proc"),
]
FILES = 400


def written(folder: Path) -> int:
    return len(list(folder.glob("batches-*"))) if folder.exists() else 0


def kill_an_executor(cluster, folder: Path, killed: list[int], over: threading.Event) -> None:
    """Wait for the third file, then kill one executor."""
    while not over.wait(0.01):
        if written(folder) >= 3:
            os.kill(cluster.executors()[-1], signal.SIGKILL)
            killed.append(written(folder))
            return


def test_an_executor_that_is_killed_part_way_changes_nothing(cluster, session, tmp_path):
    write_parquet(tmp_path / "in", 2, texts=True)
    killed: list[int] = []
    over = threading.Event()
    watcher = threading.Thread(target=kill_an_executor, args=(cluster, tmp_path / "out", killed, over))
    watcher.start()
    try:
        many_files(tmp_path, session)
    finally:
        over.set()
        watcher.join()
    assert killed
    assert killed[0] < FILES
    wanted = expected(tmp_path, steps=FILES, steps_per_file=1, rows_per_key=32)
    assert contents(tmp_path / "out") == contents(wanted)


def test_a_driver_that_is_killed_and_run_again_over_its_own_output(cluster, session, tmp_path):
    write_parquet(tmp_path / "in", 2, texts=True)
    code = f"""
        from pathlib import Path
        from pyspark.sql import SparkSession
        from tests.integrations.spark_cluster import many_files
        builder = SparkSession.builder.master({cluster.master!r}).config("spark.cores.max", "2")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.executor.memory", "512m")
        builder = builder.config("spark.executor.cores", "1").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "4").config("spark.log.level", "OFF")
        many_files(Path({str(tmp_path)!r}), builder.getOrCreate())
    """
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL) as driver:
        while driver.poll() is None and written(tmp_path / "out") < 3:
            time.sleep(0.01)
        os.killpg(driver.pid, signal.SIGKILL)  # Python and the Java process behind it
    assert driver.returncode == -signal.SIGKILL
    assert written(tmp_path / "out") < FILES
    with pytest.raises(filet.StateError, match=r"manifest\.json"):
        open_batches(tmp_path / "out")
    many_files(tmp_path, session)
    wanted = expected(tmp_path, steps=FILES, steps_per_file=1, rows_per_key=32)
    assert contents(tmp_path / "out") == contents(wanted)
