"""Capped Poisson batches for grain: a random-access source of whole batches, so that any step is there at once."""

from .source import CappedBatchDataset, CappedBatchIterable, CappedBatchSource, batches

__all__ = ["CappedBatchDataset", "CappedBatchIterable", "CappedBatchSource", "batches"]
