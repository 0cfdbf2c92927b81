"""Hugging Face's `Trainer` on capped Poisson batches: DP-SGD by Opacus, padding masked, one accounted step a batch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .trainer import CappedTrainer

if TYPE_CHECKING:
    from .sft import CappedSFTTrainer

__all__ = ["CappedSFTTrainer", "CappedTrainer"]

if not TYPE_CHECKING:  # a type checker that saw this would take any name for a public one

    def __getattr__(name: str) -> Any:
        # TRL is needed for this one only.
        if name != "CappedSFTTrainer":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(".sft", __name__).CappedSFTTrainer


def __dir__() -> list[str]:
    return sorted(__all__)
