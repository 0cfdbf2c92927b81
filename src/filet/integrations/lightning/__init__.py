"""PyTorch Lightning on capped Poisson batches: one callback for batches, steps, checkpoints and epsilon."""

from .callback import CappedPrivacy
from .strategy import CappedDDPStrategy

__all__ = ["CappedDDPStrategy", "CappedPrivacy"]
