"""Capped Poisson batches for JAX Privacy: batches of examples or of users, execution plans, banded noise."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .bands import account_banded
from .selection import CappedPoissonSelection, CappedUserSelection, PaddedIndices, is_padding_example

if TYPE_CHECKING:
    from .plans import CappedConfig, account_plan, capped_plan

__all__ = [
    "CappedConfig",
    "CappedPoissonSelection",
    "CappedUserSelection",
    "PaddedIndices",
    "account_banded",
    "account_plan",
    "capped_plan",
    "is_padding_example",
]

_PLANS = ("CappedConfig", "account_plan", "capped_plan")

if not TYPE_CHECKING:  # a type checker that saw this would take any name for a public one

    def __getattr__(name: str) -> Any:
        # Plans move between JAX Privacy's versions; the rest must work where filet does not find them.
        if name not in _PLANS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(".plans", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
