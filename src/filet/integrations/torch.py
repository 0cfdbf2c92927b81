# mypy: disable-error-code="import-not-found", allow-subclassing-any
"""Capped Poisson batches for PyTorch: a loader of fixed-shape tensors with a mask, over workers and ranks, resumable."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError, MissingExtraError, StateError
from filet.sampling.passes import checked_passes
from filet.sampling.sampler import Sampler
from filet.scheme import CappedPoisson

try:
    import torch
    from torch import distributed
    from torch.utils import data as torch_data
except ImportError as error:
    raise MissingExtraError("PyTorch is not installed; run: pip install 'filet[torch]'") from error

from .torch_padding import PaddedCollate

__all__ = ["CappedPoissonBatchSampler", "CappedPoissonLoader", "PaddedCollate", "check_dataset", "loader"]

_FIXED = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


class CappedPoissonBatchSampler(torch_data.Sampler[list[int]]):
    """Index lists of a scheme's batches, for `DataLoader(batch_sampler=...)`; `loader` is the easier way.

    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> batches = CappedPoissonBatchSampler(scheme, steps=3, key=7, secure=False)
    >>> list(batches)
    [[1, 3, 7, 8], [0, 1, 2, 3, 4, 9], [1, 2, 3, 7, 8, 9]]

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
        physical_batch_size: yield every batch in parts of at most so many examples, always in the same number of
            parts; it must divide this rank's rows. None: whole batches.
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
    ) -> None:
        self.passes = checked_passes(scheme, steps, epochs, epoch_steps, passes)
        self.steps = self.passes.steps
        self._nobody_knows_the_key = key is None
        self.sampler, self._secret = _sharded(scheme, key, rank, world_size, secure)
        self.parts = physical_batches(self.sampler.rows, physical_batch_size)
        self.step = 0
        self._start = 0

    @property
    def scheme(self) -> CappedPoisson:
        return self.sampler.scheme

    @property
    def rows(self) -> int:
        """Rows of every padded batch (or part of one, with `physical_batch_size`) on this rank."""
        return self.sampler.rows // self.parts

    def __len__(self) -> int:
        return self.pass_length(self._start, self.step)

    def pass_length(self, start: int, step: int) -> int:
        """The number of lists in the pass that began at `start` if it is not over at `step`, else in the next one."""
        end = self.passes.end(start)
        return (end - start if step < end else self.passes.end(step) - step) * self.parts

    def __iter__(self) -> Iterator[list[int]]:
        self.refuse_to_repeat()
        self._start = self.step
        return self._pass(range(self.step, self.passes.end(self.step)))

    def refuse_to_repeat(self) -> None:
        """Raise if all batches of the run were drawn."""
        if self.step >= self.steps > 0:
            raise StateError(self.passes.over())

    def _pass(self, steps: range) -> Iterator[list[int]]:
        for step in steps:
            batch = self.sampler[step]
            indices = batch.indices[: batch.size].tolist()
            self.step = step + 1
            for part in range(self.parts):
                yield indices[part * self.rows : (part + 1) * self.rows]

    def state_dict(self, *, include_key: bool = False) -> dict[str, Any]:
        """Where the run is. Contains the key, a secret, only if `include_key`; else pass the same key to go on."""
        if self._nobody_knows_the_key and not include_key:
            warnings.warn(
                "this run drew its own key, so a state without the key cannot be resumed; pass key= to the run and keep"
                " it, or save the state with include_key=True",
                stacklevel=3,
            )
        state = {"step": self.step, **self._identity(self.sampler)}
        return {**state, "key": self._secret} if include_key else state

    def _identity(self, sampler: Sampler) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "scheme": repr(sampler.scheme),
            "secure": sampler.secure,
            "key_check": sampler.fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at the step where `state_dict` was called, on any number of ranks; another run's is a `StateError`."""
        sampler, secret = self.fitting(state)
        self.sampler, self._secret, self.step, self._start = sampler, secret, state["step"], state["step"]

    def fitting(self, state: Any) -> tuple[Sampler, bytes | int]:
        """The sampler and the key to go on with from a state, or `StateError` if it does not fit this run."""
        sampler, secret = self.sampler, self._secret
        if isinstance(state, Mapping) and "key" in state and self._nobody_knows_the_key:
            secret = state["key"]
            try:
                whole = _sampler(self.scheme, secret, sampler.secure)
            except InvalidArgumentError:
                raise StateError("the state's key is damaged; restore the state from a backup") from None
            sampler = whole.shard(sampler.rank, sampler.world_size)
        here = self._identity(sampler)
        if not isinstance(state, Mapping) or set(state) - {"key"} != {"step", *here}:
            raise StateError("state is not what state_dict() of a loader returned; pass that")
        for name, value in here.items():
            if state[name] != value:
                shown = "" if name == "key_check" else f" ({_checks.show(state[name])}, not {_checks.show(value)})"
                name = "key" if name == "key_check" else name
                raise StateError(
                    f"the state belongs to a run with another {name}{shown}; pass the one it was saved with"
                )
        step = state["step"]
        if type(step) is not int or not 0 <= step <= self.steps:
            raise StateError(f"step={_checks.show(step)} is not in [0, {self.steps}]; the state is damaged")
        return sampler, secret


class CappedPoissonLoader(torch_data.DataLoader[Any]):
    """A `DataLoader` of capped Poisson batches: yields `(data, mask)` of fixed shape. Made by `loader`.

    Guarantees: `state_dict` counts the batches that were handed out whole, not those that workers have prefetched, so a
    run resumes exactly. Beginning a new pass before the last one ended goes on behind the last whole batch handed out.
    Iterating draws nothing from PyTorch's global generator, so that noise and dropout do not depend on interruptions.
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
        check_dataset(dataset, batch_sampler.scheme)
        self._step = 0
        self._start = 0
        self._part = 0
        self._passes = 0
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
        """How many physical batches make up one batch of the scheme."""
        return self.batch_sampler.parts

    @property
    def ends_batch(self) -> bool:
        """True if the physical batch handed out last is the last part of its batch: time for noise and a step."""
        return self._part == 0

    def __len__(self) -> int:
        return self.batch_sampler.pass_length(self._start, self._step)

    def __iter__(self) -> Any:
        # With workers the batch sampler runs ahead; a pass begins behind the last batch that was handed out.
        self.batch_sampler.step = self._start = self._step
        self.batch_sampler.refuse_to_repeat()  # here, as DataLoader's iterator does not survive an error in its middle
        if self._own_generator:  # it seeds the workers: by the user's seed and the step
            self.generator.manual_seed((torch.initial_seed() + self._step) % 2**63)
        self._part = 0
        self._passes += 1
        return self._counted(super().__iter__(), self._passes)

    def _counted(self, batches: Iterator[Any], number: int) -> Iterator[Any]:
        for batch in batches:
            if number != self._passes:
                raise StateError("another pass over this loader has begun; use one at a time")
            self._part = (self._part + 1) % self.parts
            self._step += self._part == 0
            yield batch

    def state_dict(self, *, include_key: bool = False) -> dict[str, Any]:
        """Where the run is; see `CappedPoissonBatchSampler.state_dict`."""
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
    collate_fn: Callable[[list[Any]], Any] | None = None,
    **options: Any,
) -> CappedPoissonLoader:
    """A `DataLoader` that yields `(data, mask)`: capped Poisson batches in tensors of fixed shape.

    >>> dataset = torch_data.TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
    >>> scheme = CappedPoisson(dataset_size=10, sampling_probability=0.5, max_batch_size=8)
    >>> for (x, y), mask in loader(dataset, scheme, steps=3, key=7, secure=False):
    ...     print(tuple(x.shape), y.tolist(), int(mask.sum()))
    (8, 2) [1, 3, 7, 8, 0, 0, 0, 0] 4
    (8, 2) [0, 1, 2, 3, 4, 9, 0, 0] 6
    (8, 2) [1, 2, 3, 7, 8, 9, 0, 0] 6
    >>> train = loader(dataset, scheme, epochs=2, key=7)
    >>> [sum(1 for batch in train) for epoch in range(2)]
    [2, 2]

    Guarantees: as for `CappedPoissonBatchSampler` and `PaddedCollate`. With several ranks each gets
    `ceil(max_batch_size / world_size)` rows at every step; the cap holds for the global batch. With
    `physical_batch_size` every batch comes in `run.parts` parts of one shape, and `run.ends_batch` says when to step.

    Arguments:
        dataset: of the map style, with `scheme.dataset_size` examples.
        scheme, steps, key, epochs, epoch_steps, passes, rank, world_size, secure, physical_batch_size: see
            `CappedPoissonBatchSampler`.
        collate_fn: see `PaddedCollate`.
        options: for `DataLoader`: `num_workers`, `pin_memory`, `persistent_workers` and so on.
    """
    batch_sampler = CappedPoissonBatchSampler(
        scheme, steps, key, epochs=epochs, epoch_steps=epoch_steps, passes=passes, rank=rank, world_size=world_size,
        secure=secure, physical_batch_size=physical_batch_size,
    )  # fmt: skip
    return CappedPoissonLoader(dataset, batch_sampler, collate_fn, **options)


def check_dataset(dataset: Any, scheme: CappedPoisson) -> None:
    """Refuse a data set that the scheme does not describe."""
    if isinstance(dataset, torch_data.IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise InvalidArgumentError(
            f"dataset of type {type(dataset).__name__} gives no access by index, which random sampling needs; pass a"
            " map-style data set"
        )
    if not hasattr(dataset, "__len__"):
        raise InvalidArgumentError(f"dataset of type {type(dataset).__name__} has no length; define __len__")
    if len(dataset) != scheme.dataset_size:
        raise InvalidArgumentError(
            f"dataset has {len(dataset)} examples, not scheme.dataset_size={scheme.dataset_size}; pass the data set"
            " that the scheme was made for"
        )


def physical_batches(rows: int, physical_batch_size: int | None) -> int:
    """How many parts of so many rows make up a rank's rows."""
    if physical_batch_size is None:
        return 1
    remedy = "pass the rows that memory holds, and a max_batch_size that is a multiple of them on every rank"
    size = _checks.integer("physical_batch_size", physical_batch_size, low=1, remedy=remedy)
    if rows % size:
        raise InvalidArgumentError(f"physical_batch_size={size} does not divide this rank's {rows} rows; {remedy}")
    return rows // size


def _sampler(scheme: CappedPoisson, key: Any, secure: bool | None) -> Sampler:
    return Sampler(scheme, key) if secure is None else Sampler(scheme, key, secure=secure)


def _sharded(
    scheme: CappedPoisson, key: Any, rank: int | None, world_size: int | None, secure: bool | None
) -> tuple[Sampler, bytes | int]:
    """This rank's sampler, and the key: a fresh one is drawn here, so that a state may hold it."""
    if (rank is None) != (world_size is None):
        raise InvalidArgumentError("only one of rank and world_size was given; pass both or none")
    joined = distributed.is_available() and distributed.is_initialized()
    fresh = secrets.token_bytes(32) if key is None else key
    if rank is not None and world_size is not None:
        if key is None and world_size > 1:
            raise InvalidArgumentError("key=None draws a key for this rank alone; pass the same key on all ranks")
        return _sampler(scheme, fresh, secure).shard(rank, world_size), fresh
    if not joined or distributed.get_world_size() == 1:
        return _sampler(scheme, fresh, secure), fresh
    if key is None:
        box = [fresh]
        distributed.broadcast_object_list(box, src=0)
        fresh = box[0]
    sampler = _sampler(scheme, fresh, secure)
    mine = (repr(scheme), sampler.secure, sampler.fingerprint)
    everyone: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(everyone, mine)
    if any(other != mine for other in everyone):
        raise InvalidArgumentError("the ranks differ in scheme, key or secure; pass the same on all")
    return sampler.shard(distributed.get_rank(), distributed.get_world_size()), fresh
