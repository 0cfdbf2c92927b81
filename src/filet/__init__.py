"""Poisson batches, cut to fit: differentially private training with fixed batch shapes."""

from .accountant import Accountant, Bounds, PrivacyCurve, account
from .attacks import epsilon_lower_bound
from .auditing import AuditReport, audit
from .calibrate import calibrate_noise_multiplier, calibrate_sampling_probability, calibrate_steps
from .errors import FiletError, InvalidArgumentError, MissingExtraError, NotCertifiedError, StateError
from .mechanism import noisy_sum
from .planning import Frontier, Option, Plan, frontier, plan
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
