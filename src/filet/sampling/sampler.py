"""Keyed, random-access samplers: fixed-shape batches of a `CappedPoisson`, at any data set size."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, overload

import numpy as np

from .. import _checks
from .._public import public
from ..scheme import CappedPoisson
from .batch import Batch
from .batched_draws import BatchedDraws, most_steps
from .draws import Indices, index_dtype, subset
from .keys import Key
from .partition import Partition
from .streams import Purpose, Stream, open_source
from .urn import checked_records, urn


@public
class Sampler:
    """Batches of a scheme: `sampler[step]` depends on the key and the step alone.

    Processes and order make no difference.

    >>> from filet.scheme import CappedPoisson
    >>> scheme = CappedPoisson(dataset_size=10**12, sampling_probability=3e-12, max_batch_size=4)
    >>> sampler = scheme.sampler(key=b"16 secret bytes!")
    >>> sampler[5].indices
    array([  3029323663,  58422254015, 339173287273, 663920112754])
    >>> [batch.size for batch in sampler.batches(steps=7, start=5)]
    [4, 4]

    Guarantees: batches of different steps are independent, and each follows the scheme's law
    exactly: the size is that of the capped (or conditioned) binomial, and given its size every set
    of examples is equally likely. An empty batch is a batch of padding, never skipped. With
    `cycle_length = b > 1`, the key also fixes a random partition into `b` groups of `dataset_size
    // b` examples, the remainder being left out; step `t` draws from group `t mod b`. A draw costs
    time and memory in proportion to the batch, not to the data set.

    Use one key for one run: two runs that share a key share their batches, and no accountant allows
    for that. A pickled sampler contains its key (and the number of records), so that worker
    processes can draw; treat it as a secret.

    With `size="secret"` the size is drawn by the scheme's law, whatever the number of records is,
    and the set among `max(records, dataset_size)` slots, of which the records fill the first: the
    batch holds those of its slots that are filled. With as many records as `dataset_size` these are
    the batches of a public size. With `size="at-most"` the batches are those of a scheme with
    `records` examples. The number of records is in no repr and in no error.

    >>> secret = CappedPoisson(1_000, 0.005, 8, overflow="reject", size="secret")
    >>> secret.sampler(key=b"16 secret bytes!", records=700)[0].indices
    array([190, 221, 360,  -1,  -1,  -1,  -1,  -1], dtype=int16)

    Arguments:
        scheme: what to sample.
        key: 16 to 64 secret bytes, or an integer below 2**256 (one below 2**64 can be found by
            trying, and is warned of). None draws a fresh key from the operating system.
        secure: draw from AES-256 in counter mode, whose batches nobody can predict from others.
            False draws from Philox, which is not cryptographic; the law is the same, the batches
            differ.
        records: the true number of records, where the scheme's size is not public; else None.
    """

    def __init__(
        self, scheme: CappedPoisson, key: bytes | int | None = None, *, secure: bool = True, records: int | None = None
    ) -> None:
        if not isinstance(scheme, CappedPoisson):
            raise _checks.fail(f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
        if not isinstance(secure, (bool, np.bool_)):
            raise _checks.fail(f"secure={_checks.show(secure)} is not a bool; pass True or False")
        self.scheme = scheme
        self.secure = bool(secure)
        self.rank = 0
        self.world_size = 1
        self._key = Key(key)
        self._records = checked_records(scheme, records)
        self._open()

    def _open(self) -> None:
        self._source = open_source(self._key, secure=self.secure)
        self._partition = Partition(self._source, self.scheme.dataset_size, self.scheme.cycle_length)
        self._urn = urn(self.scheme, self._records)
        self._dtype = index_dtype(max(self.scheme.dataset_size, self._urn.slots))

    def __getstate__(self) -> dict[str, Any]:
        # Plain values: tables are rebuilt rather than sent to every worker, and no place in the
        # code is named.
        public = {name: getattr(self, name) for name in ("scheme", "secure", "rank", "world_size")}
        known = {} if self._records is None else {"records": self._records}
        return {**public, **known, "key": self._key.secret}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._key = Key.from_secret(state["key"])
        self._records = state.get("records")
        vars(self).update({name: value for name, value in state.items() if name not in ("key", "records")})
        self._open()

    def __repr__(self) -> str:
        part = f", rank={self.rank}, world_size={self.world_size}" if self.world_size > 1 else ""
        return f"Sampler({self.scheme!r}, secure={self.secure}{part})"

    @property
    def rows(self) -> int:
        """Rows of every batch: `max_batch_size`, or this rank's equal share of it, rounded up."""
        return -(-self.scheme.max_batch_size // self.world_size)

    @overload
    def __getitem__(self, step: slice) -> Batches: ...
    @overload
    def __getitem__(self, step: int) -> Batch: ...
    def __getitem__(self, step: int | slice) -> Batch | Batches:
        """The batch of one step, or a lazy sequence for a slice with an explicit stop."""
        if isinstance(step, slice):
            return Batches(self, _step_range(step))
        return self._batch(_step(step))

    def __iter__(self) -> NoReturn:
        # Without this, Python would iterate through __getitem__, for ever.
        raise TypeError("a Sampler has no end; iterate over sampler.batches(steps)")

    def batches(self, steps: int, start: int = 0) -> Batches:
        """The batches of a run of `steps` steps, from step `start` on, as a lazy sequence.

        `steps` is the number that is accounted, also when resuming: the batches are those of steps
        `start` to `steps - 1`. Resuming costs nothing, since no earlier batch is drawn.
        """
        steps = _checks.step_count(steps)
        start = _checks.integer(
            "start", start, low=0, high=steps, remedy="pass the first step to draw, at most the run's number of steps"
        )
        return Batches(self, range(start, steps))

    def shard(self, rank: int, world_size: int) -> Sampler:
        """The part of every batch that one of `world_size` ranks processes.

        The cap holds for the global batch, as accounted: its examples are dealt to the ranks in
        turn, so that their numbers differ by one at most, and the union over ranks is the batch.
        All ranks must use the same key. Every rank gets `ceil(max_batch_size / world_size)` rows at
        every step, also when none is an example.
        """
        if self.world_size > 1:
            raise _checks.fail(f"world_size={self.world_size} is set already; call shard on the whole sampler")
        world_size = _checks.integer("world_size", world_size, low=1, remedy="pass the number of ranks")
        rank = _checks.integer(
            "rank", rank, low=0, high=world_size - 1, remedy="pass this rank, from 0 to world_size - 1"
        )
        part = copy.copy(self)
        part.rank, part.world_size = rank, world_size
        return part

    @property
    def fingerprint(self) -> str:
        """32 hex digits that two samplers share exactly if they have the same key.

        They tell nothing else about it.

        For checkpoints, and for ranks to compare: not a secret, unlike the key.
        """
        return self._key.derive("check", 16).hex()

    def stream(self, purpose: Purpose, step: int) -> Stream:
        """Random words of the run's key for a purpose other than batches, from the beginning.

        Streams of different purposes or steps share no block, so noise drawn from here is
        independent of the batches.
        """
        return self._source.at(purpose, _step(step))

    def _padding(self) -> Indices:
        try:
            return np.full(self.rows, -1, dtype=self._dtype)
        except (MemoryError, ValueError):  # ValueError: more bytes than there are addresses
            raise _checks.fail(
                f"max_batch_size={self.scheme.max_batch_size} gives batches of {self.rows} rows, more than memory holds;"
                " pass the number of rows the hardware takes"
            ) from None

    def _batch(self, step: int) -> Batch:
        stream = self._source.at(Purpose.BATCH, step)
        size = self._urn.law.draw(stream)
        return self._padded(step, subset(stream, self._urn.slots, size, self._dtype))

    def _padded(self, step: int, chosen: Indices) -> Batch:
        """This rank's share of the members of the step's group at the chosen places.

        Slots without a record are padding.
        """
        if self._records is not None:
            chosen = chosen[: chosen.searchsorted(self._records)]
        if self.scheme.cycle_length > 1:
            chosen = self._partition.members(step % self.scheme.cycle_length, chosen)
        if self.world_size > 1:
            chosen = chosen[self.rank :: self.world_size]
        indices = self._padding()
        indices[: chosen.size] = chosen
        return Batch(indices, indices >= 0, chosen.size, self.scheme.dataset_size, records=self._records)

    def _in_order(self, steps: range) -> Iterator[Batch]:
        """The batches of many steps, drawn together: more at a time the longer somebody reads."""
        most, count = most_steps(self.scheme.max_batch_size, self._urn.slots), 1
        draws = BatchedDraws(self._source, self._urn, self._dtype) if most > 1 else None
        while steps:
            now, steps = steps[:count], steps[count:]
            sets = [None] if draws is None or count == 1 else draws.sets(now)
            for step, chosen in zip(now, sets, strict=True):
                yield self._batch(step) if chosen is None else self._padded(step, chosen)
            count = min(2 * count, most)


@public
class Batches(Sequence[Batch]):
    """A finite run of batches, drawn when asked for; it can be indexed, sliced, repeated, pickled.

    >>> from filet.scheme import CappedPoisson
    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> run = scheme.sampler(key=b"16 secret bytes!").batches(100)
    >>> len(run), run[-1] == run[90:][9], [batch.size for batch in run[:3]]
    (100, True, [4, 3, 6])

    Arguments:
        sampler: where the batches come from.
        steps: which steps, as a range.
    """

    def __init__(self, sampler: Sampler, steps: range) -> None:
        self.sampler = sampler
        self.steps = steps

    def __repr__(self) -> str:
        return f"Batches({self.sampler!r}, {self.steps!r})"

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> Batches: ...
    def __getitem__(self, index: int | slice) -> Batch | Batches:
        if isinstance(index, slice):
            return Batches(self.sampler, self.steps[index])
        return self.sampler[self.steps[index]]

    def __iter__(self) -> Iterator[Batch]:
        return self.sampler._in_order(self.steps)


def _step(step: Any, name: str = "step") -> int:
    return _checks.integer(name, step, low=0, remedy="pass a step from 0 to 2**63 - 1")


def _step_range(steps: slice) -> range:
    if steps.stop is None:
        raise _checks.fail("the slice has no stop, and a sampler has no end; pass sampler[start:stop]")
    start = 0 if steps.start is None else _step(steps.start, "start")
    stride = 1 if steps.step is None else steps.step
    stride = _checks.integer(
        "stride", stride, low=1, remedy="pass sampler[start:stop:stride] with a stride of 1 or more"
    )
    return range(start, _step(steps.stop, "stop"), stride)
