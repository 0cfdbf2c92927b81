"""Server for the tests of the explorer, in a process of its own, and the runs that they ask about."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

import filet

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(filet.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if os.path.exists(path)), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
HANGS = 600  # seconds: nothing here takes so long, however busy the machine is
RUN = {"dataset_size": 60_000, "poisson_batch_size": 256, "max_batch_size": 300, "noise_multiplier": 1.0,
       "steps": 14_000, "delta": 1e-5, "adjacency": "zero-out"}  # fmt: skip
LONG = {"dataset_size": 60_000, "steps": 14_000, "delta": 1e-5, "adjacency": "zero-out", "epsilon": 3.0,
        "max_batch_size": list(range(200, 400))}  # fmt: skip


class Served:
    """`filet explore` in a process of its own."""

    def __init__(self, *options: object, start_new_session: bool = False) -> None:
        command = [sys.executable, "-m", "filet.cli.entry", "explore", "--no-browser", *map(str, options)]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            start_new_session=start_new_session,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise AssertionError(self.process.communicate()[1])

    def ask(self, view, given, **options):
        return httpx.post(f"{self.url}api/{view}", json=given, timeout=180, **options)

    def workers(self):
        """The process numbers of the server's children."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(number) for number in Path(path).read_text().split()]

    def replaces(self, before):
        """Wait until one of the given workers has been replaced."""
        end = time.monotonic() + HANGS
        while set(before) <= set(self.workers()) and time.monotonic() < end:
            time.sleep(0.02)
        return not set(before) <= set(self.workers())

    def stop(self, number: int = signal.SIGINT) -> str:
        """Send a signal, wait for the end, and return the remarks on standard error."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=HANGS)[1]


def gone(pid, within=HANGS):
    """Wait until a process has ended; a parent may still have to collect its exit code."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False
