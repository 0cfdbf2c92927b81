"""Capped Poisson batches on Apache Spark: the in-memory sampler's batches for data on a cluster, by DataFrames."""

from ..batch_files import KeyCall, KeyFile, KeyVariable, StoredBatch, StoredBatches, open_batches
from .files import check_job, read_examples, write_batches
from .index import index_examples
from .join import capped_poisson_batches
from .session import read_parquet, spark_session

__all__ = [
    "KeyCall",
    "KeyFile",
    "KeyVariable",
    "StoredBatch",
    "StoredBatches",
    "capped_poisson_batches",
    "check_job",
    "index_examples",
    "open_batches",
    "read_examples",
    "read_parquet",
    "spark_session",
    "write_batches",
]
