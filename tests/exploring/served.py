"""How the tests of the explorer start it: `filet explore` in a process of its own, and what they ask about."""

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
RUN = {"dataset_size": 60_000, "poisson_batch_size": 256, "max_batch_size": 300, "noise_multiplier": 1.0,
       "steps": 14_000, "delta": 1e-5, "adjacency": "zero-out"}  # fmt: skip


class Served:
    """`filet explore` in a process of its own."""

    def __init__(self, *options: object) -> None:
        command = [sys.executable, "-m", "filet.cli.entry", "explore", "--no-browser", *map(str, options)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
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

    def idle(self, seconds=0.5):
        """Whether no child has computed anything for a while."""
        before = {pid: processor_time(pid) for pid in self.workers()}
        time.sleep(seconds)
        return {pid: processor_time(pid) for pid in self.workers()} == before

    def becomes_idle(self, within=60.0):
        end = time.monotonic() + within
        while time.monotonic() < end:
            if self.idle():
                return True
        return False

    def stop(self, number: int = signal.SIGINT) -> tuple[float, str]:
        """Send a signal; the seconds until the process was gone, and what it said."""
        begun = time.monotonic()
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=20)
        return time.monotonic() - begun, said


def processor_time(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
