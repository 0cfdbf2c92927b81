"""Capped Poisson batches on Apache Beam: the in-memory sampler's batches for data without random access, by a distributed join."""

from ..batch_files import KeyCall, KeyFile, KeyVariable, StoredBatch, StoredBatches, has_manifest, open_batches
from .examples import ReadExamples
from .files import WriteBatches
from .index import IndexExamples
from .job import run_job
from .join import CappedPoissonBatches

__all__ = [
    "CappedPoissonBatches",
    "IndexExamples",
    "KeyCall",
    "KeyFile",
    "KeyVariable",
    "ReadExamples",
    "StoredBatch",
    "StoredBatches",
    "WriteBatches",
    "has_manifest",
    "open_batches",
    "run_job",
]
