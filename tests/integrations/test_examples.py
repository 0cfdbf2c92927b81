"""Every training example, killed with SIGKILL and started again, ends with the weights of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(script, *arguments, kill_at=None):
    """Start an example; kill it when it says that it has taken so many steps."""
    command = [sys.executable, str(EXAMPLES / script), *map(str, arguments)]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            lines.append(line.strip())
            if kill_at is not None and line.startswith(f"step {kill_at} "):
                os.kill(process.pid, signal.SIGKILL)
    return process.returncode, lines


def survives(script, tmp_path, *arguments, kills, flag=()):
    """The last lines of an undisturbed run and of one that was killed twice; the first says epsilon and a digest."""
    code, whole = run(script, *flag, tmp_path / "whole", *arguments)
    assert code == 0
    for number, kill_at in enumerate(kills):
        code, lines = run(script, *flag, tmp_path / "killed", *arguments, kill_at=kill_at)
        assert code == -signal.SIGKILL
        assert number == 0 or lines[0].startswith("resumed at step ")
    code, lines = run(script, *flag, tmp_path / "killed", *arguments)
    assert code == 0
    return ([line for line in found if ", weights " in line] for found in (whole, lines))


def test_opacus_killed_and_resumed(tmp_path):
    whole, killed = survives("resume_opacus.py", tmp_path, "--steps", 30, kills=(10, 20))
    assert len(whole) == 1
    assert killed == whole


@pytest.mark.parametrize("script", ["train_opacus.py", "train_jax.py"])
def test_ways_to_spend_a_budget_killed_and_resumed(tmp_path, script):
    # two runs of 20 steps: killed in the middle of the second
    options = ("--only", "note", "reject", "--steps", 20, "--seeds", 1, "--save-every", 10)
    figure = tmp_path / "figure.png"
    whole, killed = survives(script, tmp_path, figure, *options, kills=(30,), flag=("--checkpoint",))
    assert len(whole) == 1
    assert killed == whole
    assert figure.stat().st_size > 10_000


def test_jax_privacy_config_with_filets_batches_and_accountant_killed_and_resumed(tmp_path):
    options = ("--steps", 60, "--users", 4_000, "--rows", 64)
    whole, killed = survives("train_jax_privacy.py", tmp_path, *options, kills=(25,), flag=("--checkpoint",))
    assert len(whole) == 1
    assert killed == whole


@pytest.mark.slow
def test_jax_privacy_config_learns_at_the_size_of_jax_privacys_own_example(tmp_path):
    code, lines = run("train_jax_privacy.py", "--steps", 500, "--users", 100_000, "--rows", 1_152)
    assert code == 0
    assert lines[-1] == "compilations 1"
    before, after = (float(line.split()[1 if "," in line else 2].strip(",")) for line in (lines[0], lines[-2]))
    assert after < 0.5 * before
    assert "epsilon 1.0000" in lines[-2] or "epsilon 0.999" in lines[-2]


@pytest.mark.parametrize("mode", [(), ("--ghost",)])
def test_lightning_killed_and_resumed(tmp_path, mode):
    whole, killed = survives("train_lightning.py", tmp_path, "--steps", 20, *mode, kills=(7, 14))
    assert len(whole) == 1
    assert killed == whole


def test_hugging_face_killed_and_resumed(tmp_path):
    whole, killed = survives("train_huggingface.py", tmp_path, "--steps", 16, kills=(14, 25))
    assert len(whole) == 1
    assert killed == whole


def test_a_lora_fine_tune_killed_and_resumed(tmp_path):
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.key").write_bytes(b"one key of 32 bytes for both now")
        (tmp_path / folder / "run.key").chmod(0o600)
    whole, killed = survives("finetune_lora.py", tmp_path, "--steps", 24, kills=(14, 22))
    assert len(whole) == 1
    assert killed == whole
    assert "one line of the texts" in (tmp_path / "killed" / "PRIVACY.md").read_text()
    assert (tmp_path / "killed" / "adapter" / "adapter_model.safetensors").exists()


def test_training_from_beam_killed_and_resumed(tmp_path):
    for folder in ("whole", "killed"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.key").write_bytes(b"one key for both of them")
        (tmp_path / folder / "run.key").chmod(0o600)
    options = ("--batches", "files", "--steps", 30)
    whole, killed = survives("train_from_beam.py", tmp_path, *options, kills=(10, 20), flag=("--folder",))
    assert len(whole) == 1
    assert killed == whole
