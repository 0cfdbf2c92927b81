"""Files of batches that a distributed job has written: read in order, and checked. Needs none of the job's frameworks."""

from .keys import KeyCall, KeyFile, KeyVariable
from .reading import StoredBatches, open_batches
from .records import StoredBatch
from .writing import has_manifest

__all__ = ["KeyCall", "KeyFile", "KeyVariable", "StoredBatch", "StoredBatches", "has_manifest", "open_batches"]
