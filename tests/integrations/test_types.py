"""Type checkers and a user's script: right calls pass mypy --strict and pyright's strict mode, wrong ones are caught by both."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

RIGHT = """
import numpy as np
import numpy.typing as npt

import filet

scheme = filet.CappedPoisson(
    dataset_size=60_000, sampling_probability=256 / 60_000, max_batch_size=256, overflow="reject")
member = filet.CappedPoisson.from_batch_size(60_000, 256, 256, overflow=filet.Overflow.REJECT)
plain = filet.CappedPoisson(60_000, 256 / 60_000, None)
curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
other = filet.account(member, noise_multiplier=1, epochs=60, adjacency=filet.Adjacency.ZERO_OUT, analysis="swap")
one: float = curve.epsilon(delta=1e-5)
several: npt.NDArray[np.float64] = curve.epsilon([1e-5, 1e-6])
array: npt.NDArray[np.float64] = curve.delta(np.array([1.0, 2.0]))
scalar: float = curve.delta(np.float32(2.0))
power: float = curve.true_positive_rate(0.01)
accountant = filet.Accountant("add-remove")
accountant.compose(scheme, 1.0, 100, analysis="refined")
spent: float = accountant.epsilon(1e-5)
spents: npt.NDArray[np.float64] = accountant.delta([[1.0, 2.0], [3.0, 4.0]])
sampler = scheme.sampler(key=bytes(16), secure=True)
rows: int = sampler[0].size
noise: float = filet.calibrate_noise_multiplier(scheme, steps=9, epsilon=3.0, delta=1e-5, adjacency="replace-one")
best: filet.Option = filet.plan(
    dataset_size=60_000, max_batch_size=[256, 512], hardware_epochs=60, epsilon=3.0, delta=1e-5, adjacency="zero-out").best
least: float = filet.epsilon_lower_bound(scheme, noise_multiplier=1.0, steps=9, adjacency="zero-out", delta=1e-5)
"""

WRONG = """
filet.CappedPoisson(60_000, 0.01, 256, overflow="drop")
filet.CappedPoisson(60_000, 0.01)
filet.CappedPoisson.from_batch_size(60_000, 256, 256, "shuffle")
scheme.sampler(secur=True)
scheme.sampler(key="secret")
filet.account(scheme, noise_multiplier=1.0, steps=9, adjacency="addremove")
filet.account(scheme, noise_multiplier=1.0, steps=9)
filet.account(scheme, noise_multiplier=1.0, steps=9, adjacency="zero-out", analysis="renyi")
filet.account(scheme, noise=1.0, steps=9, adjacency="zero-out")
filet.Accountant("zeroout")
accountant.compose(scheme, 1.0, 100, analysis="rdp")
filet.calibrate_steps(scheme, noise_multiplier=1.0, epsilon=3.0, delta=1e-5, adjacency="add")
filet.plan(dataset_size=9, max_batch_size=4, epochs=3, epsilon=3.0, delta=1e-5, adjacency="zero-out")
filet.frontier(over="delta", values=[1.0], dataset_size=9, delta=1e-5, adjacency="zero-out")
filet.epsilon_lower_bound(scheme, noise_multiplier=1.0, steps=9, adjacency="swap", delta=1e-5)
words: str = curve.epsilon(1e-5)
single: float = curve.epsilon([1e-5, 1e-6])
reached: str = accountant.delta(1.0)
curve.epsilon("1e-5")
curve.epsilon(1e-5).shape
filet.acount(scheme, noise_multiplier=1.0, steps=9, adjacency="zero-out")
""".strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("user")
    (made / "right.py").write_text(RIGHT)
    (made / "wrong.py").write_text(RIGHT + WRONG + "\n")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")], "include": ["."]}
    (made / "pyrightconfig.json").write_text(json.dumps(settings))
    return made


def mypy(folder: Path) -> set[tuple[str, int]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "right.py", "wrong.py"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "MYPYPATH": str(ROOT / "src")}, capture_output=True, text=True
    )
    found = re.findall(r"^(\S+):(\d+): error:", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return {(name, int(line)) for name, line in found}


def pyright(folder: Path) -> set[tuple[str, int]]:
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        "--project",
        str(folder),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    entries = json.loads(done.stdout)["generalDiagnostics"]
    assert entries, done.stdout + done.stderr
    return {
        (Path(entry["file"]).name, entry["range"]["start"]["line"] + 1)
        for entry in entries
        if entry["severity"] == "error"
    }


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_scripts_pass_and_every_wrong_line_is_caught(checker, folder):
    found = checker(folder)
    first = RIGHT.count("\n") + 1
    wrong = {("wrong.py", first + number): line for number, line in enumerate(WRONG.splitlines())}
    assert {place for place in found if place not in wrong} == set()
    assert [line for place, line in wrong.items() if place not in found] == []
