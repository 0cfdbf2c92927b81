"""Epsilon of a run in an experiment tracker: public values only, and a stop when the budget is spent."""

from .budget import Budget, Spent
from .trackers import lightning_logger, mlflow, tensorboard, wandb

__all__ = ["Budget", "Spent", "lightning_logger", "mlflow", "tensorboard", "wandb"]
