"""A federation of Flower's simulation: 100 clients, 20 rounds, killed with SIGKILL and resumed to the same weights."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "federate_flower.py"


def run(checkpoint, kill_at=None):
    """The example's lines; its process is killed when it says that so many rounds are released."""
    command = [sys.executable, str(EXAMPLE), "--checkpoint", str(checkpoint)]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for line in process.stdout:
            lines.append(line.strip())
            if kill_at is not None and line.startswith(f"step {kill_at} "):
                os.kill(process.pid, signal.SIGKILL)
                break  # Ray's processes share the pipe, and end some seconds later
        process.stdout.close()
        code = process.wait()
    return code, lines


@pytest.mark.long
def test_flower_killed_and_resumed(tmp_path):
    code, whole = run(tmp_path / "whole.npz")
    assert code == 0
    assert [line for line in whole if line.startswith("step ")] == [f"step {step} of 20" for step in range(21)]
    for kill_at in (4, 11):
        code, lines = run(tmp_path / "killed.npz", kill_at)
        assert code == -signal.SIGKILL
        assert kill_at == 4 or lines[0] == "resumed at step 4"
    code, lines = run(tmp_path / "killed.npz")
    assert code == 0
    assert lines[0] == "resumed at step 11"
    assert lines[-1] == whole[-1]
    accuracy, epsilon = map(float, re.match(r"accuracy (\S+), epsilon (\S+), weights ", whole[-1]).groups())
    assert accuracy > 0.7
    assert 7.9 < epsilon <= 8.0
