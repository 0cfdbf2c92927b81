"""Wrong uses of batches that a Spark job wrote: its files are Beam's, byte for byte, and read by the same code."""

from __future__ import annotations

import pyarrow
from tests.integrations.misuse import Answer, Documented, Refused, beam

from filet.integrations.batch_files.records import fields_of
from filet.integrations.spark import stages


def frame_changed() -> None:
    """The second pass of the job sees whole numbers where the first saw reals."""
    table = pyarrow.RecordBatch.from_pydict({"index": [0, 1], "x": [1, 2]})
    list(stages.packed(iter([table]), (stages.from_frame, "index"), 8, fields_of({"x": 1.0})))


ANSWERS: dict[str, Answer] = {
    **beam.ANSWERS,
    "loader wrapped by another library": Documented("integrations/spark.md", "a `DistributedSampler` over the steps"),
    "data set changed during the run": Refused(frame_changed, "changed between two passes"),
}
