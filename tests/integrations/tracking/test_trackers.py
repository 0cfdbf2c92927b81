"""Trackers: each passes values and step on by the documented call of its library."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from lightning.pytorch.loggers import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

import filet
from filet.integrations.tracking import lightning_logger, mlflow, tensorboard, wandb

VALUES = {"privacy/epsilon": 1.5, "privacy/epsilon_left": 0.25}


class Recorder:
    """A run that takes what the documentation of W&B and MLflow says: a dict, and the step by its name."""

    def __init__(self):
        self.calls = []

    def log(self, data, step=None):
        assert type(data) is dict
        self.calls.append((data, step))

    def log_metrics(self, metrics, step=None):
        assert type(metrics) is dict
        self.calls.append((metrics, step))


def test_tensorboard_shows_the_values(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        tensorboard(writer)(VALUES, 7)
    seen = EventAccumulator(str(tmp_path))
    seen.Reload()
    assert {name: [(e.step, e.value) for e in seen.Scalars(name)] for name in seen.Tags()["scalars"]} == {
        "privacy/epsilon": [(7, 1.5)],
        "privacy/epsilon_left": [(7, 0.25)],
    }


def test_lightnings_loggers_write_the_values(tmp_path):
    logger = CSVLogger(tmp_path, name="run", version=0)
    lightning_logger(logger)(VALUES, 7)
    logger.save()
    (row,) = csv.DictReader((Path(logger.log_dir) / "metrics.csv").read_text().splitlines())
    assert row == {"step": "7", "privacy/epsilon": "1.5", "privacy/epsilon_left": "0.25"}


@pytest.mark.parametrize("adapter", [wandb, mlflow])
def test_others_get_a_dictionary_and_the_step(adapter):
    run = Recorder()
    adapter(run)(VALUES, 7)
    assert run.calls == [(VALUES, 7)]


@pytest.mark.parametrize("adapter", [tensorboard, wandb, mlflow, lightning_logger])
def test_what_is_no_tracker_is_refused_with_what_to_pass(adapter):
    with pytest.raises(filet.InvalidArgumentError, match=r"has no method .*; pass "):
        adapter(object())
