"""Opacus with capped Poisson batches: an engine whose loader, optimizer and accountant read one scheme."""

from .accountant import CappedAccountant
from .checkpoint import read_checkpoint
from .engine import CappedPrivacyEngine

__all__ = ["CappedAccountant", "CappedPrivacyEngine", "read_checkpoint"]
