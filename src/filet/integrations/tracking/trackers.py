"""Experiment trackers: each function makes a `Tracker` of a user's own logger. None is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError

Tracker = Callable[[Mapping[str, float], int], object]  # takes values by name, and the step


def tensorboard(writer: Any) -> Tracker:
    """TensorBoard, by a `SummaryWriter`."""
    add = _method(writer, "add_scalar", "a SummaryWriter of torch.utils.tensorboard")

    def track(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            add(name, value, step)

    return track


def wandb(run: Any) -> Tracker:
    """Weights & Biases, by the run that `wandb.init()` returned."""
    log = _method(run, "log", "what wandb.init() returned")
    return lambda values, step: log(dict(values), step=step)


def mlflow(module: Any) -> Tracker:
    """MLflow, by the module `mlflow` (its active run) or anything else with `log_metrics`."""
    log = _method(module, "log_metrics", "the module mlflow")
    return lambda values, step: log(dict(values), step=step)


def lightning_logger(logger: Any) -> Tracker:
    """Any of Lightning's loggers."""
    log = _method(logger, "log_metrics", "a logger of Lightning")
    return lambda values, step: log(dict(values), step=step)


def _method(given: Any, name: str, wanted: str) -> Callable[..., object]:
    method = getattr(given, name, None)
    if not callable(method):
        raise InvalidArgumentError(f"{_checks.show(given)} has no method {name}; pass {wanted}")
    return method  # type: ignore[no-any-return]
