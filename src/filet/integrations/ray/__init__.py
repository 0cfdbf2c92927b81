"""Capped Poisson batches on Ray: streamed into training, or written, from a data set that fits the object store."""

from ..batch_files import KeyCall, KeyFile, KeyVariable, StoredBatch, StoredBatches, open_batches
from .batches import capped_poisson_batches, write_batches

__all__ = [
    "KeyCall",
    "KeyFile",
    "KeyVariable",
    "StoredBatch",
    "StoredBatches",
    "capped_poisson_batches",
    "open_batches",
    "write_batches",
]
