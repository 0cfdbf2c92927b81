"""Wrong uses, and what each integration does about them: one table that a new integration has to fill.

A wrong use must not end well: it is refused with one line (`Refused`), or it comes out right (`Right`). What has its place
in tests is warned of (`Warned`). Where an integration has no such use, or cannot notice it, the table says why
(`Absent`, `Documented`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MISUSES = {
    "weight used outside its layer": "a layer's weight also enters the loss through `F.linear` or another module",
    "layer unfrozen later": "parameters that were frozen when the run began are trained later",
    "batch without a step": "batches are taken, and the model changed, without an accounted step",
    "global seed set in the loop": "the framework's global generator is seeded again between steps",
    "rows mixed": "the model mixes examples: batch statistics, attention over the batch, contrastive losses",
    "batch normalisation": "the model has a batch normalisation layer",
    "loader wrapped by another library": "another library shards, skips or prefetches the loader's batches",
    "ranks joined late": "the loader is made before the process group",
    "iterated twice": "the batches of one run are read a second time",
    "batches repeated, shuffled or sliced": "the stream of batches is rearranged",
    "data set changed during the run": "the data set shrinks or grows after the run began",
    "another batch size": "the given loader has another batch size than the scheme",
    "rows rearranged after batching": "rows of a batch are permuted, so that the mask no longer fits",
    "penalty in the loss": "the loss has a term that does not come from the examples",
    "short key": "the secret key has so few bits that it can be searched",
    "resumed at the wrong step": "a run goes on from a state of another run, or from its first step",
}
INTEGRATIONS = (
    "torch", "opacus", "huggingface", "lightning", "jax", "jax_privacy", "keras", "grain", "dp_accounting", "beam", "spark",
    "ray", "flower",
)  # fmt: skip


@dataclass(frozen=True)
class Refused:
    """`use` raises a `FiletError` (or the framework's own error, `raises`) whose one line contains `says`."""

    use: Callable[[], object]
    says: str
    raises: type[Exception] | None = None


@dataclass(frozen=True)
class Warned:
    """`use` goes on after a warning whose one line contains `says`."""

    use: Callable[[], object]
    says: str


@dataclass(frozen=True)
class Right:
    """`use` asserts that the guarantee holds although the use is wrong."""

    use: Callable[[], object]


@dataclass(frozen=True)
class Absent:
    """The integration has no such use."""

    why: str


@dataclass(frozen=True)
class Documented:
    """The integration cannot notice the use; `page` of the documentation says so, in words that contain `says`."""

    page: str
    says: str


Answer = Refused | Warned | Right | Absent | Documented
