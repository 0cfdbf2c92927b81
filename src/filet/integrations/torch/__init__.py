"""Capped Poisson batches for PyTorch: a loader of fixed-shape tensors with a mask, over workers and ranks, resumable."""

from .._users import Users
from .loaders import CappedPoissonBatchSampler, CappedPoissonLoader, check_dataset, loader
from .padding import PaddedCollate

__all__ = ["CappedPoissonBatchSampler", "CappedPoissonLoader", "PaddedCollate", "Users", "check_dataset", "loader"]
