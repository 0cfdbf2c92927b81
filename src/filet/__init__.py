"""Poisson batches, cut to fit: differentially private training with fixed batch shapes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._numbers import round_up
    from .accounting.accountant import Accountant, account
    from .accounting.curve import PrivacyCurve
    from .accounting.lower_bounds import epsilon_lower_bound
    from .accounting.terms import Adjacency, Analysis, Bounds, Phase
    from .errors import (
        FiletError,
        InvalidArgumentError,
        MissingExtraError,
        NoSolutionError,
        NotCertifiedError,
        OutputError,
        StateError,
    )
    from .planning.calibration import calibrate_noise_multiplier, calibrate_sampling_probability, calibrate_steps
    from .planning.frontiers import Frontier, frontier
    from .planning.options import Option
    from .planning.planner import Plan, plan
    from .sampling.audits import AuditReport, audit
    from .sampling.batch import Batch
    from .sampling.mechanism import add_noise, noisy_sum
    from .sampling.sampler import Batches, Sampler
    from .scheme import CappedPoisson, Overflow, Size
    from .showing.record import record

__version__ = "0.3.0"

__all__ = [
    "Accountant",
    "Adjacency",
    "Analysis",
    "AuditReport",
    "Batch",
    "Batches",
    "Bounds",
    "CappedPoisson",
    "FiletError",
    "Frontier",
    "InvalidArgumentError",
    "MissingExtraError",
    "NoSolutionError",
    "NotCertifiedError",
    "Option",
    "OutputError",
    "Overflow",
    "Phase",
    "Plan",
    "PrivacyCurve",
    "Sampler",
    "Size",
    "StateError",
    "account",
    "add_noise",
    "audit",
    "calibrate_noise_multiplier",
    "calibrate_sampling_probability",
    "calibrate_steps",
    "epsilon_lower_bound",
    "frontier",
    "noisy_sum",
    "plan",
    "record",
    "round_up",
]

# Public names are loaded when first used, so that `filet --help` need not wait for NumPy and SciPy.
_MODULES = {
    "accounting.accountant": ("Accountant", "account"),
    "accounting.curve": ("PrivacyCurve",),
    "accounting.lower_bounds": ("epsilon_lower_bound",),
    "accounting.terms": ("Adjacency", "Analysis", "Bounds", "Phase"),
    "errors": (
        "FiletError",
        "InvalidArgumentError",
        "MissingExtraError",
        "NoSolutionError",
        "NotCertifiedError",
        "OutputError",
        "StateError",
    ),
    "planning.calibration": ("calibrate_noise_multiplier", "calibrate_sampling_probability", "calibrate_steps"),
    "planning.frontiers": ("Frontier", "frontier"),
    "planning.options": ("Option",),
    "planning.planner": ("Plan", "plan"),
    "sampling.audits": ("AuditReport", "audit"),
    "sampling.batch": ("Batch",),
    "sampling.mechanism": ("add_noise", "noisy_sum"),
    "sampling.sampler": ("Batches", "Sampler"),
    "scheme": ("CappedPoisson", "Overflow", "Size"),
    "showing.record": ("record",),
    "_numbers": ("round_up",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # a type checker that saw this would take any name for a public one

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
