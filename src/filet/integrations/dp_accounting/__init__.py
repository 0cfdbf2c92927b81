"""filet's accounting behind dp_accounting's interface, and its schemes as dp_accounting's events."""

from .accountant import FiletAccountant
from .events import Run, from_dp_event, to_dp_event
from .losses import to_privacy_loss_distribution

__all__ = ["FiletAccountant", "Run", "from_dp_event", "to_dp_event", "to_privacy_loss_distribution"]
