# mypy: disable-error-code="import-not-found", allow-subclassing-any
"""Loaders of fixed-shape tensors with a mask: over workers and ranks, resumable at any step."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from filet import _checks
from filet.errors import InvalidArgumentError, StateError
from filet.sampling.passes import checked_passes
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson

from .._batch_sizes import physical_batches
from .._frameworks import needed_for
from .._records import records_of, warn_of_own_size
from .._users import Users

with needed_for("torch"):
    import torch
    from torch import distributed
    from torch.utils import data as torch_data

from .padding import PaddedCollate
from .reading import read, reader_of

_FIXED = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


class CappedPoissonBatchSampler(torch_data.Sampler[list[int]]):
    """Index lists of a scheme's batches, for `DataLoader(batch_sampler=...)`; `loader` is the easier way.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> batches = CappedPoissonBatchSampler(scheme, steps=3, key=b"16 secret bytes!", secure=False)
    >>> list(batches)
    [[0, 2, 6, 7, 8], [1, 3, 5, 9], [0, 1, 2, 4, 6, 8]]

    Guarantees: the batches are those of `scheme.sampler(key)`. The lists hold examples only and may be empty: `-1`
    would be the last example to a data set. `PaddedCollate` adds the padding. A pass goes on where the last one
    stopped; after `steps` batches another pass is an error: no accountant allows for drawing them again. `len` is the
    exact number of lists of the pass that is under way, or that comes next.

    Arguments:
        scheme: how batches are drawn.
        steps: the number of steps of the whole run, as accounted. Or:
        epochs: passes over the data, by expected draws before the cap; each is then one pass over the loader.
        key: secret bytes, as for `filet.Sampler`; with several ranks the same on all. None draws a fresh key, which
            rank 0 hands to the others.
        epoch_steps, passes: with `steps`, the steps in one pass, or the number of passes, equal up to one step. Without
            either, and without `epochs`, one pass takes all steps.
        rank, world_size: this process's part of every batch; taken from `torch.distributed` if None and initialised.
        secure: draw from AES-256, the default; False draws from Philox, which is not cryptographic.
        physical_batch_size: yield every batch in parts of at most this many examples, always in the same number of
            parts; it must divide this rank's rows. None: whole batches.
        records: the true number of records, a secret, where the scheme's size is not public. It is in no state, and
            neither `len` nor the steps of an epoch depend on it.
        users: the users of the examples, if the scheme samples users: each chosen one brings `examples_per_user` rows,
            one after the other.
    """

    def __init__(
        self,
        scheme: CappedPoisson,
        steps: int | None = None,
        key: bytes | int | None = None,
        *,
        epochs: float | None = None,
        epoch_steps: int | None = None,
        passes: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        secure: bool | None = None,
        physical_batch_size: int | None = None,
        records: int | None = None,
        users: Users | None = None,
    ) -> None:
        self.passes = checked_passes(scheme, steps, epochs, epoch_steps, passes)
        self.steps = self.passes.steps
        self._nobody_knows_the_key = key is None
        self._takes_ranks_from_group = rank is None
        self._records = records
        self.sampler, self._secret = _sharded(scheme, key, rank, world_size, secure, records)
        warn_of_own_size(scheme, records)
        self.handed_over = False  # to a CappedPoissonLoader, then the only one to read from here
        self.users = users
        if users is not None:
            users.check_scheme(scheme)
        self.parts = physical_batches(self.sampler.rows * self.rows_each, physical_batch_size, self.rows_each)
        self.step = 0
        self._start = 0

    @property
    def scheme(self) -> CappedPoisson:
        return self.sampler.scheme

    @property
    def rows(self) -> int:
        """Rows of every padded batch (or part of one, with `physical_batch_size`) on this rank."""
        return self.sampler.rows * self.rows_each // self.parts

    @property
    def rows_each(self) -> int:
        """Rows of one sampled unit: 1 for an example, more for a user."""
        return 1 if self.users is None else self.users.examples_per_user

    def __len__(self) -> int:
        return self.pass_length(self._start, self.step)

    def pass_length(self, start: int, step: int) -> int:
        """The number of lists in the pass that began at `start` if it is not over at `step`, else in the next one."""
        end = self.passes.end(start)
        return (end - start if step < end else self.passes.end(step) - step) * self.parts

    def __iter__(self) -> Iterator[list[int]]:
        if self.handed_over:
            raise StateError(
                "another loader reads the batches of filet's loader, as accelerator.prepare makes one,"
                " and would shard or skip them again; iterate over filet's loader itself, leave it out of"
                " prepare, and pass physical_batch_size= in place of Opacus's BatchMemoryManager"
            )
        return (places.tolist() for places in self.begin_pass())

    def begin_pass(self) -> Iterator[NDArray[np.signedinteger[Any]]]:
        """The lists of the next pass, as arrays."""
        self.check_pass()
        self._start = self.step
        return self._pass(range(self.step, self.passes.end(self.step)))

    def check_pass(self) -> None:
        """Raise if all batches of the run were drawn, or if they were dealt to other ranks."""
        if self.step >= self.steps > 0:
            raise StateError(self.passes.over())
        made_for = (self.sampler.rank, self.sampler.world_size)
        if self._takes_ranks_from_group and _ranks() != made_for:
            rank, world_size = _ranks()
            raise StateError(
                f"the batches were dealt to world_size={made_for[1]} when this loader was made, and"
                f" this process is rank {rank} of {world_size} now; make the loader after"
                " init_process_group, or pass rank= and world_size="
            )

    def _pass(self, steps: range) -> Iterator[NDArray[np.signedinteger[Any]]]:
        for step, batch in zip(steps, self.sampler[steps.start : steps.stop], strict=True):
            indices = batch.indices[: batch.size]
            if self.users is not None:
                indices = self.users.rows(self.scheme, step, indices).reshape(-1)
            self.step = step + 1
            for part in range(self.parts):
                yield indices[part * self.rows : (part + 1) * self.rows]

    def state_dict(self, *, include_key: bool = False) -> dict[str, Any]:
        """The position in the run. Contains the key, a secret, only if `include_key`; else pass the same key to go on."""
        if self._nobody_knows_the_key and not include_key:
            warnings.warn(
                "this run drew its own key, so a state without the key cannot be resumed; pass key= to the run and keep"
                " it, or save the state with include_key=True",
                stacklevel=3,
            )
        state = {"step": self.step, **self._identity(self.sampler)}
        return {**state, "key": self._secret} if include_key else state

    def _identity(self, sampler: Sampler) -> dict[str, Any]:
        users = self.users
        owned = {} if users is None else {"users": str(users)}
        return {
            **owned,
            "steps": self.steps,
            "scheme": repr(sampler.scheme),
            "secure": sampler.secure,
            "key_check": sampler.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at the step where `state_dict` was called, on any number of ranks; another run's is a `StateError`."""
        sampler, secret = self.fitting(state)
        self.sampler = sampler
        self._secret = secret
        self.step = state["step"]
        self._start = state["step"]

    def fitting(self, state: Any) -> tuple[Sampler, bytes | int]:
        """The sampler and the key to go on with from a state, or `StateError` if it does not fit this run."""
        sampler, secret = self.sampler, self._secret
        if isinstance(state, Mapping) and "key" in state and self._nobody_knows_the_key:
            secret = state["key"]
            sampler = self._with_key(secret)
        here = self._identity(sampler)
        if not isinstance(state, Mapping) or set(state) - {"key"} != {"step", *here}:
            raise StateError("state is not what state_dict() of a loader returned; pass that")
        for name, value in here.items():
            if state[name] != value:
                raise _of_another_run(name, state[name], value)
        step = state["step"]
        if type(step) is not int or not 0 <= step <= self.steps:
            raise StateError(f"step={_checks.show(step)} is not in [0, {self.steps}]; the state is damaged")
        return sampler, secret

    def _with_key(self, secret: bytes | int) -> Sampler:
        """This rank's sampler, with the key of a state."""
        try:
            whole = _sampler(self.scheme, secret, self.sampler.secure, self._records)
        except InvalidArgumentError:
            raise StateError("the state's key is damaged; restore the state from a backup") from None
        return whole.shard(self.sampler.rank, self.sampler.world_size)


def _of_another_run(name: str, saved: Any, value: Any) -> StateError:
    """The error for a state of another run; keys are not shown."""
    shown = f"{name} ({_checks.show(saved)}, not {_checks.show(value)})" if name != "key_check" else "key"
    return StateError(f"the state belongs to a run with another {shown}; pass the one it was saved with")


class CappedPoissonLoader(torch_data.DataLoader[Any]):
    """A `DataLoader` of capped Poisson batches: yields `(data, mask)` of fixed shape. Made by `loader`.

    Guarantees: `state_dict` counts the batches that were handed out whole, not those that workers have prefetched, so a
    run resumes exactly. Beginning a new pass before the last one ended goes on behind the last whole batch handed out.
    Iterating draws nothing from PyTorch's global generator, so that noise and dropout do not depend on interruptions.
    A `TensorDataset` (or a tensor) is gathered in this process, without workers, unless there is a `collate_fn` or
    `worker_init_fn`: that takes less time than a worker's message. Other examples are read one by one, or by the
    data set's `__getitems__`. Workers leave batches in memory that is shared from the start; the tensors of a
    batch that is handed out share one piece of memory, which is a copy.
    A loader that another one reads (`accelerator.prepare`), a process group that was joined or left
    after the loader was made, and a data set whose length has changed are errors.
    """

    batch_sampler: CappedPoissonBatchSampler

    def __init__(
        self,
        dataset: Any,
        batch_sampler: CappedPoissonBatchSampler,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        **options: Any,
    ) -> None:
        for name in _FIXED:
            if name in options:
                raise InvalidArgumentError(f"{name} is set by the scheme; leave it out")
        if not options.get("in_order", True):
            raise InvalidArgumentError(
                "in_order=False hands batches out before earlier ones, so that parts of two would be mixed and a"
                " resumed run would repeat some; leave it True"
            )
        check_dataset(dataset, batch_sampler.scheme, batch_sampler.users, batch_sampler._records)
        batch_sampler.handed_over = True
        self._step = 0
        self._start = 0
        self._part = 0
        self._passes = 0
        self._reader: Any = None
        self._own_generator = options.get("generator") is None
        if self._own_generator:
            options["generator"] = torch.Generator()
        collate = PaddedCollate(dataset, batch_sampler.rows, collate_fn)
        super().__init__(dataset, batch_sampler=batch_sampler, collate_fn=collate, **options)

    @property
    def scheme(self) -> CappedPoisson:
        return self.batch_sampler.scheme

    @property
    def parts(self) -> int:
        """The number of physical batches that make up one batch of the scheme."""
        return self.batch_sampler.parts

    @property
    def ends_batch(self) -> bool:
        """True if the physical batch handed out last is the last part of its batch: time for noise and a step."""
        return self._part == 0

    def __len__(self) -> int:
        return self.batch_sampler.pass_length(self._start, self._step)

    def _check_dataset(self) -> None:
        check_dataset(self.dataset, self.scheme, self.batch_sampler.users, self.batch_sampler._records)

    def __iter__(self) -> Any:
        # With workers the batch sampler runs ahead; a pass begins behind the last batch that was handed out.
        self.batch_sampler.step = self._start = self._step
        self._check_dataset()
        self.batch_sampler.check_pass()  # here, as DataLoader's iterator does not survive an error in its middle
        if self._own_generator:  # it seeds the workers: by the user's seed and the step
            self.generator.manual_seed((torch.initial_seed() + self._step) % 2**63)
        self._part = 0
        self._passes += 1
        if self._reader is None or not self._reader.persistent_workers:
            self._reader = reader_of(self)
        return self._counted(read(self._reader), self._passes)

    def _counted(self, batches: Iterator[Any], number: int) -> Iterator[Any]:
        for batch in batches:
            if number != self._passes:
                raise StateError("another pass over this loader has begun; use one at a time")
            self._check_dataset()  # its length may have changed
            self._part = (self._part + 1) % self.parts
            self._step += self._part == 0
            yield batch

    def state_dict(self, *, include_key: bool = False) -> dict[str, Any]:
        """The position in the run; see `CappedPoissonBatchSampler.state_dict`."""
        return {**self.batch_sampler.state_dict(include_key=include_key), "step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind the last whole batch that was handed out before `state_dict` was called."""
        self.batch_sampler.load_state_dict(state)
        self._step = self._start = self.batch_sampler.step
        self._part = 0
        self._passes += 1


def loader(
    dataset: Any,
    scheme: CappedPoisson,
    steps: int | None = None,
    key: bytes | int | None = None,
    *,
    epochs: float | None = None,
    epoch_steps: int | None = None,
    passes: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    secure: bool | None = None,
    physical_batch_size: int | None = None,
    users: Users | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    **options: Any,
) -> CappedPoissonLoader:
    """A `DataLoader` that yields `(data, mask)`: capped Poisson batches in tensors of fixed shape.

    >>> dataset = torch_data.TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> for (x, y), mask in loader(dataset, scheme, steps=3, key=b"16 secret bytes!", secure=False):
    ...     print(tuple(x.shape), y.tolist(), int(mask.sum()))
    (8, 2) [0, 2, 6, 7, 8, 0, 0, 0] 5
    (8, 2) [1, 3, 5, 9, 0, 0, 0, 0] 4
    (8, 2) [0, 1, 2, 4, 6, 8, 0, 0] 6
    >>> train = loader(dataset, scheme, epochs=2, key=b"16 secret bytes!")
    >>> [sum(1 for batch in train) for epoch in range(2)]
    [2, 2]

    Guarantees: as for `CappedPoissonBatchSampler` and `PaddedCollate`. With several ranks each gets
    `ceil(max_batch_size / world_size)` rows at every step; the cap holds for the global batch. With
    `physical_batch_size` every batch comes in `run.parts` parts of one shape, and `run.ends_batch` says when to step.

    Arguments:
        dataset: of the map style, with `scheme.dataset_size` examples; with any number of them, a secret, where the
            scheme's size is not public.
        scheme, steps, key, epochs, epoch_steps, passes, rank, world_size, secure, physical_batch_size, users: see
            `CappedPoissonBatchSampler`.
        collate_fn: see `PaddedCollate`.
        options: for `DataLoader`: `num_workers`, `pin_memory`, `persistent_workers` and so on.
    """
    batch_sampler = CappedPoissonBatchSampler(
        scheme,
        steps,
        key,
        epochs=epochs,
        epoch_steps=epoch_steps,
        passes=passes,
        rank=rank,
        world_size=world_size,
        secure=secure,
        physical_batch_size=physical_batch_size,
        users=users,
        records=records_of(scheme, dataset),
    )
    return CappedPoissonLoader(dataset, batch_sampler, collate_fn, **options)


def check_dataset(dataset: Any, scheme: CappedPoisson, users: Users | None = None, records: int | None = None) -> None:
    """Refuse a data set that does not fit the scheme, its users or the secret number of records."""
    if isinstance(dataset, torch_data.IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise InvalidArgumentError(
            f"dataset of type {type(dataset).__name__} gives no access by index, which random sampling needs; pass a"
            " map-style data set"
        )
    if not hasattr(dataset, "__len__"):
        raise InvalidArgumentError(f"dataset of type {type(dataset).__name__} has no length; define __len__")
    _check_length(len(dataset), scheme, users, records)


def _check_length(examples: int, scheme: CappedPoisson, users: Users | None, records: int | None) -> None:
    if users is not None:
        if examples != users.examples:
            raise InvalidArgumentError(
                f"dataset has {examples} examples, and user_ids names the users of {users.examples}; pass one id for"
                " every example"
            )
    elif records is not None:
        if examples != records:
            raise InvalidArgumentError(
                "dataset has another number of examples than the sampler's records; pass the data set it was made for"
            )
    elif examples != scheme.dataset_size:
        raise InvalidArgumentError(
            f"dataset has {examples} examples, not scheme.dataset_size={scheme.dataset_size}; pass the data set"
            " that the scheme was made for"
        )


def _sampler(scheme: CappedPoisson, key: Any, secure: bool | None, records: int | None) -> Sampler:
    return Sampler(scheme, key, records=records, **({} if secure is None else {"secure": secure}))


def _sharded(
    scheme: CappedPoisson,
    key: Any,
    rank: int | None,
    world_size: int | None,
    secure: bool | None,
    records: int | None,
) -> tuple[Sampler, bytes | int]:
    """This rank's sampler, and the key: a fresh one is drawn here, so that a state may hold it."""
    if (rank is None) != (world_size is None):
        raise InvalidArgumentError("only one of rank and world_size was given; pass both or none")
    fresh = secrets.token_bytes(32) if key is None else key
    if rank is not None and world_size is not None:
        if key is None and world_size > 1:
            raise InvalidArgumentError("key=None draws a key for this rank alone; pass the same key on all ranks")
        return _sampler(scheme, fresh, secure, records).shard(rank, world_size), fresh
    here, ranks = _ranks()
    if ranks == 1:
        return _sampler(scheme, fresh, secure, records), fresh
    if key is None:
        box = [fresh]
        distributed.broadcast_object_list(box, src=0)
        fresh = box[0]
    sampler = _sampler(scheme, fresh, secure, records)
    _check_others((repr(scheme), sampler.secure, sampler.fingerprint, records), ranks)
    return sampler.shard(here, ranks), fresh


def _check_others(mine: tuple[Any, ...], ranks: int) -> None:
    """Raise unless all ranks have the same."""
    everyone: list[Any] = [None] * ranks
    distributed.all_gather_object(everyone, mine)
    if any(other != mine for other in everyone):
        raise InvalidArgumentError("the ranks differ in scheme, key, secure or data set; pass the same on all")


def _ranks() -> tuple[int, int]:
    """This process's rank and the number of ranks; one alone without a process group."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
