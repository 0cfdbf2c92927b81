"""Poisson batches, cut to fit: differentially private training with fixed batch shapes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .accountant import Accountant, Bounds, PrivacyCurve, account
    from .attacks import epsilon_lower_bound
    from .auditing import AuditReport, audit
    from .calibrate import calibrate_noise_multiplier, calibrate_sampling_probability, calibrate_steps
    from .errors import FiletError, InvalidArgumentError, MissingExtraError, NotCertifiedError, StateError
    from .frontiers import Frontier, frontier
    from .mechanism import noisy_sum
    from .planning import Option, Plan, plan
    from .profiles import Analysis
    from .sampling import Batch, Batches, Sampler
    from .scheme import Adjacency, CappedPoisson, Overflow

__version__ = "0.1.0"

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
    "NotCertifiedError",
    "Option",
    "Overflow",
    "Plan",
    "PrivacyCurve",
    "Sampler",
    "StateError",
    "account",
    "audit",
    "calibrate_noise_multiplier",
    "calibrate_sampling_probability",
    "calibrate_steps",
    "epsilon_lower_bound",
    "frontier",
    "noisy_sum",
    "plan",
]

# Public names are loaded when first used, so that `filet --help` need not wait for NumPy and SciPy.
_MODULES = {
    "accountant": (
        "Accountant",
        "Bounds",
        "PrivacyCurve",
        "account",
    ),
    "attacks": ("epsilon_lower_bound",),
    "auditing": (
        "AuditReport",
        "audit",
    ),
    "calibrate": (
        "calibrate_noise_multiplier",
        "calibrate_sampling_probability",
        "calibrate_steps",
    ),
    "errors": (
        "FiletError",
        "InvalidArgumentError",
        "MissingExtraError",
        "NotCertifiedError",
        "StateError",
    ),
    "mechanism": ("noisy_sum",),
    "frontiers": (
        "Frontier",
        "frontier",
    ),
    "planning": (
        "Option",
        "Plan",
        "plan",
    ),
    "profiles": ("Analysis",),
    "sampling": (
        "Batch",
        "Batches",
        "Sampler",
    ),
    "scheme": (
        "Adjacency",
        "CappedPoisson",
        "Overflow",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
