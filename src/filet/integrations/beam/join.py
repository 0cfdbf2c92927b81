# mypy: disable-error-code="import-untyped, import-not-found, type-arg", allow-subclassing-any, allow-untyped-calls
"""The distributed join on Beam: which examples each step takes, the examples by index, and the rows of each range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson, Size

from .._frameworks import needed_for

with needed_for("beam"):
    import apache_beam as beam
    from apache_beam.transforms.window import GlobalWindow
    from apache_beam.utils.windowed_value import WindowedValue

from ..batch_files.job import ROWS_PER_KEY, Packer, Run, asked_rows, assembled, draws, merged_facts, one_key
from ..batch_files.keys import KeyHandle
from ..batch_files.records import Chunk, Facts, Fields, Known, StoredBatch


class Draw(beam.DoFn):
    """A range of steps -> who is in it, asked for from each block of examples; and how many rows each step has."""

    HEADS, CHECKS = "heads", "checks"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._sampler: Sampler | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sampler": None}  # whatever pickles this gets the handle, never the key

    def process(self, number: int, known: Known | None = None) -> Iterator[Any]:
        if self._sampler is None:
            self._sampler = self._run.sampler(None if known is None else known.records)
        sampler = self._sampler
        found = draws(self._run, number, sampler)
        yield beam.pvalue.TaggedOutput(self.HEADS, (number, found.sizes))
        yield beam.pvalue.TaggedOutput(self.CHECKS, sampler.fingerprint)
        for block, places, indices in found.draws:
            yield block, (number, places, indices)


class Pack(beam.DoFn):
    """Examples -> chunks of packed examples of one block, and the facts of all that were seen."""

    FACTS = "facts"

    def __init__(self, rows_per_key: int) -> None:
        self._rows_per_key = rows_per_key

    def start_bundle(self) -> None:
        self._packer = Packer(self._rows_per_key)

    def process(self, element: Any) -> Iterator[Any]:
        if not isinstance(element, tuple) or len(element) != 2:
            raise _checks.fail(
                f"an element is of type {type(element).__name__}, not a pair of index and example; number them"
            )
        yield from self._packer.add(*element)

    def finish_bundle(self) -> Iterator[Any]:
        for one in self._packer.chunks():
            yield _whole(one)
        if self._packer.facts.count:
            yield beam.pvalue.TaggedOutput(self.FACTS, _whole(self._packer.facts))


def _whole(value: Any) -> WindowedValue:
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), (window,))


class Join(beam.DoFn):
    """A block's examples and what ranges ask of it -> the rows of each range."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def process(self, element: Any, known: Known) -> Iterator[tuple[int, tuple[Chunk, bytes]]]:
        block, grouped = element
        for number, rows, indices in asked_rows(self._run, block, grouped["examples"], grouped["draws"], known):
            yield number, (rows, indices)


def batches_of(element: Any, run: Run, fields: Fields) -> Iterator[StoredBatch]:
    """The batches of a range of steps, from what was grouped for it."""
    number, grouped = element
    return assembled(run, number, list(grouped["heads"]), grouped["rows"], fields)


def _distinct(parts: Iterable[Any]) -> set[str]:
    return {text for part in parts for text in ([part] if isinstance(part, str) else part)}


def grouped_ranges(examples: Any, run: Run) -> tuple[Any, Any, Any]:
    """Ranges of steps with their rows; the fields of all examples; and the fingerprint of the key, once checked."""
    if not examples.windowing.is_default():
        raise InvalidArgumentError("the examples are in windows, and a data set is one whole; remove beam.WindowInto")
    packed = examples | "Pack" >> beam.ParDo(Pack(run.rows_per_key)).with_outputs(Pack.FACTS, main="chunks")
    facts = packed[Pack.FACTS] | "Facts" >> beam.CombineGlobally(merged_facts)
    known = facts | "Check" >> beam.Map(Facts.checked, run.scheme)
    # A number of records that is secret is data, as the examples are: the pipeline itself never holds it.
    records = [] if run.scheme.size is Size.PUBLIC else [beam.pvalue.AsSingleton(known)]
    drawn = (
        examples.pipeline
        | "Start" >> beam.Impulse()
        | "Ranges" >> beam.FlatMap(lambda _, count: range(count), run.ranges).with_output_types(int)
        | "Spread" >> beam.Reshuffle()
        | "Draw" >> beam.ParDo(Draw(run), *records).with_outputs(Draw.HEADS, Draw.CHECKS, main="draws")
    )
    key = drawn[Draw.CHECKS] | "Keys" >> beam.CombineGlobally(_distinct) | "Check keys" >> beam.Map(one_key)
    typed = tuple[int, Any]
    blocks = {
        "examples": packed.chunks | "By block" >> beam.Map(lambda one: one).with_output_types(typed),
        "draws": drawn.draws | "Drawn by block" >> beam.Map(lambda one: one).with_output_types(typed),
    } | "Group by block" >> beam.CoGroupByKey()
    rows = blocks | "Join" >> beam.ParDo(Join(run), beam.pvalue.AsSingleton(known)).with_output_types(typed)
    heads = drawn[Draw.HEADS] | "Heads" >> beam.Map(lambda one: one).with_output_types(typed)
    fields = known | "Fields" >> beam.Map(lambda found: found.fields)
    return {"heads": heads, "rows": rows} | "Group by range" >> beam.CoGroupByKey(), fields, key


class CappedPoissonBatches(beam.PTransform):
    """A PTransform from `(index, example)` to `(step, batch)`: the in-memory sampler's batches, with their examples.

    >>> import os, tempfile
    >>> import numpy as np
    >>> from filet.integrations.beam import KeyFile
    >>> from filet.sampling.keys import write_key_file
    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "run.key")
    ...     write_key_file(path)
    ...     with beam.Pipeline(runner="apache_beam.runners.portability.fn_api_runner.FnApiRunner") as job:
    ...         examples = job | beam.Create([(i, {"x": np.int64(i * i)}) for i in range(10)])
    ...         _ = examples | CappedPoissonBatches(scheme, steps=3, key=KeyFile(path)) | beam.Map(print)
    (0, StoredBatch(step=0, <8 rows, contents hidden>))
    (1, StoredBatch(step=1, <8 rows, contents hidden>))
    (2, StoredBatch(step=2, <8 rows, contents hidden>))

    Guarantees: the batch of step `t` is `scheme.sampler(key)[t]`, row for row: exactly `max_batch_size` rows in the order of
    its indices, then zeros. It does not depend on bundles, workers, retries or shards of the input. A wrong number of
    examples, an index twice, missing or out of range, an example of another shape, and workers with different keys
    fail the job with one line. The pipeline holds the key's handle, never the key, and no number of examples that is secret.

    Arguments:
        scheme: how batches are drawn; `dataset_size` examples are expected. Where its size is not public, the job
            counts the examples and draws as `scheme.sampler(key, records=...)` does.
        steps: number of steps of the whole run, as accounted.
        key: where workers find the key: `KeyFile`, `KeyVariable` or `KeyCall`.
        start: first step to make.
        secure: draw from AES-256, the default; False draws from Philox, which is not cryptographic.
        steps_per_range: steps whose rows one worker holds at a time; about 16,384 rows by default.
        rows_per_key: examples of neighbouring indices that travel together, and are held by one worker at a time.
    """

    def __init__(
        self,
        scheme: CappedPoisson,
        steps: int,
        key: KeyHandle,
        start: int = 0,
        *,
        secure: bool = True,
        steps_per_range: int | None = None,
        rows_per_key: int = ROWS_PER_KEY,
    ) -> None:
        super().__init__()
        self.run = Run.checked(
            scheme, steps, key, start, secure=secure, steps_per_range=steps_per_range, rows_per_key=rows_per_key
        )

    def expand(self, examples: Any) -> Any:
        ranges, fields, _ = grouped_ranges(examples, self.run)
        return ranges | "Assemble" >> beam.FlatMap(_stepwise, self.run, beam.pvalue.AsSingleton(fields))


def _stepwise(element: Any, run: Run, fields: Fields) -> Iterator[tuple[int, StoredBatch]]:
    for batch in batches_of(element, run, fields):
        yield batch.step, batch
