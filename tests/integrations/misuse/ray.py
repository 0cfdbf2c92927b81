"""Wrong uses of batches by Ray: files are read as Beam's; a stream is a data set of Ray's own."""

from __future__ import annotations

from tests.integrations.misuse import Absent, Answer, Documented, beam

PAGE = "integrations/ray.md"

ANSWERS: dict[str, Answer] = {
    **beam.ANSWERS,
    "loader wrapped by another library": Documented(PAGE, "`streaming_split` deals out whole blocks"),
    "iterated twice": Documented(PAGE, "A second loop over the stream gives the same steps again"),
    "batches repeated, shuffled or sliced": Documented(
        PAGE, "Transforms of the stream that reorder, repeat or drop rows"
    ),
    "data set changed during the run": Absent("the examples are copied into the object store before the first step"),
    "another batch size": Documented(PAGE, "Any other `batch_size` cuts steps apart"),
}
