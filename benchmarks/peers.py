"""The peers' environments, and one worker process for each peer, with a limit on the time of an answer."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import venv
from pathlib import Path
from typing import Any

from common import HERE

SEPARATE = HERE / "peers"  # requirement files; the environments go next to them
STARTING_SECONDS = 180.0

# Which environment each peer lives in; None is the one that runs the benchmarks.
ENVIRONMENT: dict[str, str | None] = {
    "dp_accounting PLD": None,
    "dp_accounting RDP": None,
    "jax_privacy": None,
    "Opacus PRV": None,
    "Opacus RDP": None,
    "prv_accountant": "prv_autodp",
    "autodp": "prv_autodp",
    "tensorflow-privacy": "tensorflow_privacy",
}
WITHOUT_DEPENDENCIES = {"tensorflow_privacy": ["tensorflow-privacy==0.9.0"]}
CAPPED_PEERS = ("dp_accounting PLD", "jax_privacy")


def python_of(environment: str | None) -> str:
    """The interpreter of an environment, made if need be; raises RuntimeError with pip's own words if it cannot be."""
    if environment is None:
        return sys.executable
    home, wanted = SEPARATE / f".venv-{environment}", SEPARATE / f"{environment}.txt"
    python, done = home / "bin" / "python", home / "done.txt"
    if done.exists() and done.read_text() == wanted.read_text():
        return str(python)
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    steps = [["-r", str(wanted)]]
    if environment in WITHOUT_DEPENDENCIES:
        steps.append(["--no-deps", *WITHOUT_DEPENDENCIES[environment]])
    for arguments in steps:
        ran = subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", *arguments], capture_output=True, text=True, timeout=900
        )
        if ran.returncode:
            errors = [line for line in ran.stderr.splitlines() if "ERROR" in line]
            raise RuntimeError(" ".join(errors)[:300] or f"pip ended with {ran.returncode}")
    done.write_text(wanted.read_text())
    return str(python)


class Worker:
    """A peer's process; `ask` gives its answer, or an error that says why there is none."""

    def __init__(self, peer: str, *, seconds: float) -> None:
        """`seconds` of processor time for an answer; one that hangs is stopped after ten times as much of the clock."""
        self.peer, self.seconds = peer, seconds
        self.versions: dict[str, str] = {}
        self.broken = ""  # why the peer cannot run at all
        self._process: subprocess.Popen[str] | None = None
        try:
            self._python = python_of(ENVIRONMENT[peer])
            self._start()
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            self.broken = f"could not be installed: {error}"

    def _start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} if ENVIRONMENT[self.peer] else None
        self._process = subprocess.Popen(
            [self._python, str(Path(__file__).with_name("peer_worker.py")), self.peer],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, args=(self._process, self._answers), daemon=True).start()
        first = self._answer(STARTING_SECONDS)
        self.broken = first.get("error", "")
        self.versions = first.get("versions", {})

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put("")  # the process has ended

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.stop()
            return {"error": f"no answer within {seconds:.0f} s; stopped"}
        if not line:
            code = self._process.wait() if self._process else None
            self._process = None
            return {"error": f"the process ended with {code}" + (" (killed: out of memory?)" if code == -9 else "")}
        return dict(json.loads(line))

    def ask(self, setting: dict[str, Any]) -> dict[str, Any]:
        if self.broken:
            return {"error": self.broken}
        if self._process is None or self._process.poll() is not None:  # stopped, or it died of the last answer
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(setting | {"limit": self.seconds}) + "\n")
        self._process.stdin.flush()
        return self._answer(10 * self.seconds)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
