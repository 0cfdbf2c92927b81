"""The page's Python runs as it stands, with a key, a model and clients in place of the reader's own."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integrations.flower_grid import KEY, grid, model

import filet

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "integrations" / "flower.md").read_text(encoding="utf-8")


def test_the_page_trains_and_accounts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run, accounting = re.findall(r"```{code-block} python\n(.*?)```", PAGE, re.S)
    names = {"key": KEY, "initial_arrays": model()}
    exec(run, names)
    names["main"](grid(clients=100), None)
    assert (tmp_path / "run.npz").exists()
    assert 7.9 < float(capsys.readouterr().out) <= 8.0
    exec(accounting, names)
    spent = names["accountant"].get_privacy_spent()
    scheme, noise = names["scheme"], names["noise"]
    whole = filet.account(scheme, noise_multiplier=noise, steps=20, adjacency="add-remove")
    assert spent.epsilon == whole.epsilon(1e-3)


def test_the_figures_of_the_page_are_those_that_filet_gives():
    scheme = filet.CappedPoisson(dataset_size=100, sampling_probability=0.2, max_batch_size=24)
    run = {"steps": 20, "adjacency": "zero-out"}
    noise = filet.calibrate_noise_multiplier(scheme, epsilon=8.0, delta=1e-3, **run)
    assert f"multiplier {noise:.3f}," in PAGE
    plain = filet.Accountant("zero-out")
    plain.compose_gaussian(noise, 20)
    uncapped = filet.CappedPoisson.uncapped(100, 0.2)
    found = (
        filet.account(scheme, noise_multiplier=noise, **run).epsilon(1e-3),
        filet.account(uncapped, noise_multiplier=noise, **run).epsilon(1e-3),
        plain.epsilon(1e-3),
    )
    assert re.findall(r"^\| .* \| ([\d.]+) \|$", PAGE, re.M) == [filet.round_up(value, 3) for value in found]
