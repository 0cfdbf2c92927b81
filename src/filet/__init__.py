"""Poisson batches, cut to fit: differentially private training with fixed batch shapes."""

from .accountant import Accountant, Bounds, PrivacyCurve, account
from .errors import FiletError, InvalidArgumentError, MissingExtraError, NotCertifiedError, StateError
from .mechanism import noisy_sum
from .profiles import Analysis
from .sampling import Batch, Batches, Sampler
from .scheme import Adjacency, CappedPoisson, Overflow

__version__ = "0.1.0"

__all__ = [
    "Accountant",
    "Adjacency",
    "Analysis",
    "Batch",
    "Batches",
    "Bounds",
    "CappedPoisson",
    "FiletError",
    "InvalidArgumentError",
    "MissingExtraError",
    "NotCertifiedError",
    "Overflow",
    "PrivacyCurve",
    "Sampler",
    "StateError",
    "account",
    "noisy_sum",
]
