# mypy: disable-error-code="import-untyped, import-not-found, type-arg", allow-subclassing-any, allow-untyped-calls
"""The distributed join: which examples each step takes, the examples by index, and the rows of each range of steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from filet import _checks
from filet.errors import InvalidArgumentError, OutputError
from filet.sampling.draws import index_dtype
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson

from .beam_keys import KeyHandle, checked_handle
from .beam_records import Chunk, Facts, Fields, Known, Rows, StoredBatch, fields_of, pack, padded

ROWS_PER_KEY = 1024
_ROWS_PER_RANGE = 16_384  # by default a range of steps has about so many rows: a worker holds one range at a time
_PENDING_BYTES = 8 << 20  # examples that a worker holds back, so that neighbours travel together


@dataclass(frozen=True)
class Run:
    """What a job makes: public facts and the key's handle, so that a pipeline may carry it in the clear."""

    scheme: CappedPoisson
    steps: int
    start: int
    key: KeyHandle
    secure: bool
    steps_per_range: int
    rows_per_key: int

    @classmethod
    def checked(
        cls,
        scheme: CappedPoisson,
        steps: Any,
        key: Any,
        start: Any = 0,
        *,
        secure: Any = True,
        steps_per_range: Any = None,
        rows_per_key: Any = ROWS_PER_KEY,
    ) -> Run:
        """A run whose every argument keeps its rule; the key itself is looked at on workers only."""
        if not isinstance(scheme, CappedPoisson):
            raise _checks.fail(f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
        if not isinstance(secure, bool):
            raise _checks.fail(f"secure={_checks.show(secure)} is not a bool; pass True or False")
        steps = _checks.step_count(steps)
        start = _checks.integer("start", start, low=0, high=steps, remedy="pass the first step, at most steps")
        if steps_per_range is None:
            steps_per_range = max(1, _ROWS_PER_RANGE // scheme.max_batch_size)
        per_range = _checks.integer("steps_per_file", steps_per_range, low=1, remedy="pass the steps of one range")
        per_key = _checks.integer("rows_per_key", rows_per_key, low=1, remedy="pass the examples that travel together")
        return cls(scheme, steps, start, checked_handle(key), secure, per_range, per_key)

    @property
    def ranges(self) -> int:
        """Number of ranges of steps."""
        return -(-(self.steps - self.start) // self.steps_per_range)

    def steps_of(self, number: int) -> range:
        """The steps of one range."""
        first = self.start + number * self.steps_per_range
        return range(first, min(first + self.steps_per_range, self.steps))

    def sampler(self) -> Sampler:
        """The sampler, with the key that the handle leads to: for workers."""
        return Sampler(self.scheme, self.key.read(), secure=self.secure)


class Draw(beam.DoFn):
    """A range of steps -> who is in it, asked for from each block of examples; and how many rows each step has."""

    HEADS, CHECKS = "heads", "checks"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._sampler: Sampler | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sampler": None}  # whatever pickles this gets the handle, never the key

    def setup(self) -> None:
        self._sampler = self._run.sampler()

    def process(self, number: int) -> Iterator[Any]:
        sampler = self._run.sampler() if self._sampler is None else self._sampler
        batches = [sampler[step] for step in self._run.steps_of(number)]
        sizes = np.array([batch.size for batch in batches], dtype="<i8")
        yield beam.pvalue.TaggedOutput(self.HEADS, (number, sizes.tobytes()))
        yield beam.pvalue.TaggedOutput(self.CHECKS, sampler.fingerprint)
        indices = np.concatenate([batch.indices[: batch.size] for batch in batches]).astype("<i8")
        rows = self._run.scheme.max_batch_size
        places = np.concatenate([place * rows + np.arange(size) for place, size in enumerate(sizes)]).astype("<i8")
        blocks = indices // self._run.rows_per_key
        order = np.argsort(blocks, kind="stable")
        found, starts = np.unique(blocks[order], return_index=True)
        for block, part in zip(found.tolist(), np.split(order, starts[1:]), strict=False):
            yield block, (number, places[part].tobytes(), indices[part].tobytes())


class Pack(beam.DoFn):
    """Examples -> chunks of packed examples of one block, and the facts of all that were seen."""

    FACTS = "facts"

    def __init__(self, rows_per_key: int) -> None:
        self._rows_per_key = rows_per_key

    def start_bundle(self) -> None:
        self._facts = Facts()
        self._pending: dict[int, list[tuple[int, bytes]]] = {}
        self._bytes = 0

    def process(self, element: Any) -> Iterator[Any]:
        index, example = _numbered(element)
        fields = fields_of(example)
        row = pack(example, fields)
        self._facts = self._facts.seen(index, fields)
        self._pending.setdefault(index // self._rows_per_key, []).append((index, row))
        self._bytes += len(row)
        if self._bytes >= _PENDING_BYTES:
            yield from self._chunks()

    def finish_bundle(self) -> Iterator[Any]:
        for one in self._chunks():
            yield _whole(one)
        if self._facts.count:
            yield beam.pvalue.TaggedOutput(self.FACTS, _whole(self._facts))

    def _chunks(self) -> Iterator[tuple[int, Chunk]]:
        pending, self._pending, self._bytes = self._pending, {}, 0
        for block, numbered in pending.items():
            yield block, Chunk.of(numbered)


def _whole(value: Any) -> WindowedValue:
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), (window,))


def _numbered(element: Any) -> tuple[int, Any]:
    if not isinstance(element, tuple) or len(element) != 2:
        raise _checks.fail(
            f"an element is of type {type(element).__name__}, not a pair of index and example; number them"
        )
    index, example = element
    if isinstance(index, np.integer):
        index = int(index)
    if type(index) is not int or not -_checks.MAX_INTEGER <= index <= _checks.MAX_INTEGER:
        raise _checks.fail(f"an example has the index {_checks.show(index)}, not an integer; number examples from 0")
    return index, example


class Join(beam.DoFn):
    """A block's examples and what ranges ask of it -> the rows of each range."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def process(self, element: Any, known: Known) -> Iterator[tuple[int, tuple[Chunk, bytes]]]:
        block, grouped = element
        rows = Rows(known.fields, grouped["examples"])
        first = block * self._run.rows_per_key
        wanted = range(first, min(first + self._run.rows_per_key, self._run.scheme.dataset_size))
        check_block(rows.numbers, wanted, known.dense)
        for number, places, indices in grouped["draws"]:
            yield number, (rows.take(np.frombuffer(indices, dtype="<i8"), places), indices)


def check_block(numbers: Any, wanted: range, dense: bool) -> None:
    """Every index of the block once, or an error that names the first that is wrong: in the data, or lost on the way."""
    expected = np.arange(wanted.start, wanted.stop)
    if np.array_equal(numbers, expected):
        return
    twice = numbers[1:][numbers[1:] == numbers[:-1]]
    index = int(twice[0] if twice.size else np.setdiff1d(expected, numbers)[0])
    if dense:
        raise lost(f"example {index} came {'twice' if twice.size else 'not at all'} out of the shuffle")
    if twice.size:
        raise InvalidArgumentError(f"the index {index} is there twice; give every example an index of its own")
    raise InvalidArgumentError(f"the index {index} is missing; number the examples from 0 without gaps")


def lost(what: str) -> OutputError:
    """The error for what a runner has not delivered."""
    return OutputError(f"{what}, though it went in once; the runner is at fault, run the job again")


def assembled(run: Run, number: int, grouped: Any, fields: Fields) -> Iterator[StoredBatch]:
    """The batches of a range of steps, in order, from its rows; a row that did not arrive is an error."""
    steps, rows = run.steps_of(number), run.scheme.max_batch_size
    chunks, numbers = [part for part, _ in grouped["rows"]], [indices for _, indices in grouped["rows"]]
    indices = np.full(len(steps) * rows, -1, dtype=index_dtype(run.scheme.dataset_size))
    for chunk, one in zip(chunks, numbers, strict=True):
        indices[np.frombuffer(chunk.numbers, dtype="<i8")] = np.frombuffer(one, dtype="<i8")
    if len(grouped["heads"]) != 1:
        raise lost(f"the sizes of steps {steps.start} to {steps.stop - 1} came {len(grouped['heads'])} times")
    sizes = np.frombuffer(grouped["heads"][0], dtype="<i8")
    data = padded(fields, len(steps) * rows, chunks)
    for place, step in enumerate(steps):
        part = slice(place * rows, (place + 1) * rows)
        mask, size = indices[part] >= 0, int(sizes[place])
        if not (mask[:size].all() and not mask[size:].any()):
            raise lost(f"a row of step {step} did not come out of the shuffle")
        yield StoredBatch(
            indices[part],
            mask,
            size,
            run.scheme.dataset_size,
            step,
            {name: array[part] for name, array in data.items()},
        )


def one_key(fingerprints: Iterable[str]) -> str:
    """The fingerprint of the key that all workers have; an error if they have several. Empty if nothing was drawn."""
    found = sorted(set(fingerprints))
    if len(found) > 1:
        raise InvalidArgumentError("workers have different keys; give all of them the same one")
    return found[0] if found else ""


def merged_facts(parts: Iterable[Facts]) -> Facts:
    """The facts of all parts."""
    result = Facts()
    for part in parts:
        result = result.merged(part)
    return result


def _distinct(parts: Iterable[Any]) -> set[str]:
    return {text for part in parts for text in ([part] if isinstance(part, str) else part)}


def grouped_ranges(examples: Any, run: Run) -> tuple[Any, Any, Any]:
    """Ranges of steps with their rows; the fields of all examples; and the fingerprint of the key, once checked."""
    if not examples.windowing.is_default():
        raise InvalidArgumentError("the examples are in windows, and a data set is one whole; remove beam.WindowInto")
    packed = examples | "Pack" >> beam.ParDo(Pack(run.rows_per_key)).with_outputs(Pack.FACTS, main="chunks")
    facts = packed[Pack.FACTS] | "Facts" >> beam.CombineGlobally(merged_facts)
    known = facts | "Check" >> beam.Map(Facts.checked, run.scheme.dataset_size)
    drawn = (
        examples.pipeline
        | "Start" >> beam.Impulse()
        | "Ranges" >> beam.FlatMap(lambda _, count: range(count), run.ranges).with_output_types(int)
        | "Spread" >> beam.Reshuffle()
        | "Draw" >> beam.ParDo(Draw(run)).with_outputs(Draw.HEADS, Draw.CHECKS, main="draws")
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
    >>> from filet.integrations.beam_keys import KeyFile
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
    fail the job with one line. The pipeline holds the key's handle, never the key.

    Arguments:
        scheme: how batches are drawn; `dataset_size` examples are expected.
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
    number, grouped = element
    for batch in assembled(run, number, grouped, fields):
        yield batch.step, batch
