# mypy: disable-error-code="import-untyped, import-not-found", allow-untyped-calls
"""A session of Spark for the command: found or started, with one line if Java is missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from filet.errors import MissingExtraError

from .._frameworks import needed_for
from ..batch_files.storage import absolute
from .join import one_line

with needed_for("spark"):
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def spark_session(master: str | None = None, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """The session there is, or a new one that ends with the block.

    Guarantees: where Spark has to start Java and there is none, the error is one line that says how
    to get it.

    Arguments:
        master: the cluster, as in Spark's own options; None for that of spark-submit, or this machine.
        settings: settings of Spark's by name.
    """
    found = SparkSession.getActiveSession()
    if found is not None:
        yield found
        return
    if not (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
        check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers have filet where this process has
    builder = SparkSession.builder.appName("filet")
    if master is not None:
        builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    quiet = {} if sys.stderr.isatty() else {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    for name, value in {**quiet, **(settings or {})}.items():
        builder = builder.config(name, value)
    with one_line():
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def check_java() -> None:
    """Raise if no Java is found."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if shutil.which(java) is None:
        where = f"JAVA_HOME={home!r} has no bin/java" if home else "there is no java on the path"
        raise MissingExtraError(
            f"{where}, and Spark runs on Java; install version 17 or later (Debian: apt-get install"
            " openjdk-17-jre-headless), or set JAVA_HOME"
        )


def read_parquet(session: Any, path: str) -> Any:
    """A DataFrame of Parquet files, read by Spark itself."""
    with one_line():  # Spark would look for a relative path where its Java process was started
        return session.read.parquet(absolute(path))
