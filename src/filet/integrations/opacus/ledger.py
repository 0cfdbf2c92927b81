# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""One batch, one step: the loader hands each batch's mask to the optimizer, and both agree with the accountant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from filet.errors import FiletError, InvalidArgumentError, StateError

from .._frameworks import needed_for

with needed_for("opacus"):
    import torch
    from torch import distributed

from ..torch import CappedPoissonLoader
from .accountant import CappedAccountant

_FRESH_ROWS = ("hooks", "functorch")


def world_size() -> int:
    """The number of ranks; 1 without `torch.distributed`."""
    joined = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if joined else 1


class PhysicalBatch(NamedTuple):
    """A physical batch that was handed out and waits for its step."""

    step: int
    part: int
    mask: torch.Tensor


class StepLedger:
    """The state of a run's steps: `step` counts the steps that were taken, `part` the physical batches of the next one.

    Guarantees: a batch is stepped on once, in order, by all ranks together, and only while the accountant has counted
    exactly the steps before it; never more than `steps`. All parts of a batch are clipped to one norm, that of its noise.
    """

    def __init__(self, accountant: CappedAccountant, steps: int, parts: int) -> None:
        self.accountant = accountant
        self.steps = steps
        self.parts = parts
        self.step = 0
        self.part = 0
        self.ranks = world_size()
        self.norm: float | None = None  # the clipping norm of the parts of this batch that were summed up
        self.waiting: list[PhysicalBatch] = []
        self.last: PhysicalBatch | None = None  # the last that was handed out, also if it was stepped on
        self.monitor: Any = None
        self._version_then = 0  # of the parameters, when the last batch was handed out
        self.clipped: Any = None  # of ghost clipping: the batch whose clipped gradients are ready
        self.rows_each = 1  # rows of a unit of sampling and clipping: more than one if that is a user
        self.averages = True  # a user's gradient is the mean over its rows, and else their sum

    def by_unit(self, rows: torch.Tensor) -> torch.Tensor:
        """Gradients of single rows -> gradients of the units that are sampled and clipped: the rows themselves, or users."""
        if self.rows_each == 1:
            return rows
        users = rows.reshape(-1, self.rows_each, *rows.shape[1:])
        return users.mean(dim=1) if self.averages else users.sum(dim=1)

    def check_accountant(self) -> None:
        """Raise unless accountant and loader are at the same step."""
        counted = len(self.accountant)
        if counted != self.step:
            raise StateError(
                f"the accountant has counted {counted} steps, but the loader is at step {self.step}; restore both from one"
                " checkpoint with load_checkpoint of the engine"
            )

    def hand_out(self, batch: PhysicalBatch) -> None:
        """Note a physical batch that is handed out; the one before must have had its step."""
        if self.waiting:
            raise StateError(
                f"the batch before this one (of step {self.waiting[-1].step}) had no accounted step; call"
                " step() of the optimizer that make_private returned once for every batch, also for an"
                " empty one"
            )
        self.waiting, self.last = [batch], batch
        self._version_then = self.monitor.version()
        self.monitor.forget_calls()

    def check_unaccounted(self) -> None:
        """Raise if the model was trained on a batch whose step nobody has counted."""
        if self.waiting and self._version_then != self.monitor.version() and self.monitor.has_gradients():
            raise StateError(
                f"the model changed on the batch of step {self.waiting[-1].step} without an accounted step,"
                " so that no epsilon holds; train with the optimizer that make_private returned, from the"
                " start or from a checkpoint"
            )

    def check_ranks(self, params: Any, refusal: Exception | None = None) -> None:
        """Raise unless all ranks are about to take the same physical batch of the run that they began together.

        A `refusal` of one rank is raised here, when the others know of it.
        """
        ranks = world_size()
        if ranks != self.ranks:
            raise StateError(
                f"there are {ranks} ranks, but there were {self.ranks} at make_private, which deals the batches; call it"
                " after torch.distributed is initialised (Accelerate's Accelerator() does that)"
            )
        if ranks == 1:
            if refusal is not None:
                raise refusal
            return
        count = self.step * self.parts + self.part
        ends = torch.tensor([count, -count, refusal is not None], device=params[0].device)
        distributed.all_reduce(ends, op=distributed.ReduceOp.MAX)
        last, first = int(ends[0]) // self.parts, -int(ends[1]) // self.parts
        if refusal is not None:
            raise refusal
        if int(ends[2]):
            raise StateError("another rank refused its gradients; its error says why")
        if int(ends[:2].sum()):
            raise StateError(
                f"the ranks are not at one batch, but between steps {first} and {last}; load the same checkpoint on all ranks"
            )

    def check_norm(self, norm: float, noise_norm: float) -> None:
        """Raise unless a part that was clipped to `norm` may be summed up with those before, for noise of `noise_norm`."""
        if norm != noise_norm:
            raise StateError(
                f"gradients are clipped to {norm}, but the noise is for max_grad_norm={noise_norm}; change max_grad_norm only"
                " between batches, and never with clipping='per_layer', whose norms do not follow it"
            )
        if self.part and norm != self.norm:
            raise StateError(
                f"max_grad_norm={norm} is not the {self.norm} of the batch's first part; change it after a whole batch, when"
                " ends_batch of the loader is True"
            )
        self.norm = norm

    def begin_pass(self) -> int:
        """The step at which a new pass begins: the first that was not taken."""
        self.check_accountant()
        self.check_unaccounted()
        self.waiting, self.part = [], 0
        return self.step

    def take(self) -> PhysicalBatch:
        """The physical batch that the optimizer is about to use, if it is the right one."""
        waiting, self.waiting = self.waiting, []
        if len(waiting) != 1:
            raise StateError(
                f"{len(waiting)} batches were drawn from filet's loader since the last step, not 1; call optimizer.step()"
                " once for every batch of the loader that make_private returned"
            )
        self.check_accountant()
        if self.step >= self.steps:
            raise StateError(f"the run of steps={self.steps} is over; make a new engine with a new key")
        batch = waiting[0]
        if (batch.step, batch.part) != (self.step, self.part):
            raise StateError(
                f"a batch before this one had no step (of step {self.step}, part {self.part + 1} of {self.parts}); begin a"
                " new pass over the loader, which goes on with that batch"
            )
        return batch

    def current(self) -> PhysicalBatch:
        """The physical batch that was handed out and not stepped on yet."""
        if not self.waiting:
            raise StateError("no batch is waiting for its step; ask between a batch and its step")
        return self.waiting[-1]

    def advance(self) -> None:
        """Count the physical batch that the optimizer has used."""
        self.part = (self.part + 1) % self.parts
        self.step += self.part == 0


class AccountedLoader(CappedPoissonLoader):
    """A loader that yields the data alone, so that the training loop stays as it was; the optimizer gets the mask.

    Its position is that of the optimizer: a batch that was handed out but never stepped on comes again in a new pass.
    """

    ledger: StepLedger

    def __iter__(self) -> Any:
        self._step = self.ledger.begin_pass()
        return super().__iter__()

    def _counted(self, batches: Iterator[Any], number: int) -> Iterator[Any]:
        for count, (data, mask) in enumerate(super()._counted(batches, number), start=self._start * self.parts):
            self.ledger.hand_out(PhysicalBatch(*divmod(count, self.parts), mask))
            yield data

    @property
    def mask(self) -> torch.Tensor:
        """The mask of the batch that was handed out last, before and after its step."""
        if self.ledger.last is None:
            raise StateError("no batch was handed out yet, so there is no mask; ask inside the training loop")
        return self.ledger.last.mask

    def state_dict(self, *, include_key: bool = False) -> dict[str, Any]:
        """The position of the optimizer in the run."""
        return {**super().state_dict(include_key=include_key), "step": self.ledger.step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refused: a loader that goes on without its accountant forgets steps, and without its noise repeats noise."""
        raise StateError(
            "the loader's position alone does not resume a private run: the noise would begin again; use load_checkpoint or"
            " load_state_dict of the engine, which hold the position as well"
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on at that step, together with the accountant and the noise: for the engine."""
        super().load_state_dict(state)
        self.ledger.step = self._step
        self.ledger.part = 0
        self.ledger.waiting = []


class AccountedOptimizer:
    """Mixin for Opacus's optimizers: steps on the next batch of the ledger, and on nothing else."""

    ledger: StepLedger
    noise: Any = None  # gives the generator for a step and device; None if it is not the key's
    generator: Any
    max_grad_norm: float
    _step_skip_queue: list[bool]
    _device: Any = None
    stepping = False

    @property
    def params(self) -> Any:
        """Opacus's; only those on one device while noise is drawn for it."""
        found = super().params  # type: ignore[misc]
        return found if self._device is None else [p for p in found if p.device == self._device]

    def step(self, closure: Any = None) -> Any:
        self.stepping = True
        try:
            return super().step(closure)  # type: ignore[misc]
        finally:
            self.stepping = False

    def add_noise(self) -> None:
        """Opacus's, from a generator of this step's own."""
        if self.noise is None:
            super().add_noise()  # type: ignore[misc]
            return
        try:
            for device in {p.device: None for p in self.params}:
                self._device = device
                self.generator = self.noise(self.ledger.step, device)
                super().add_noise()  # type: ignore[misc]
        finally:
            self._device = self.generator = None

    def pre_step(self, closure: Any = None) -> Any:
        batch = self.ledger.take()
        self.ledger.check_ranks(self.params, self._refusal(batch))
        if batch.part == 0:
            self._forget_sum()
        self._mask_padding(batch)
        self.ledger.check_norm(self._clips_to(), self.max_grad_norm)
        self._step_skip_queue = [batch.part + 1 < self.ledger.parts]  # Opacus's list: sum this one up and wait for more
        complete = super().pre_step(closure)  # type: ignore[misc]
        self.ledger.advance()
        return complete

    def _refusal(self, batch: PhysicalBatch) -> FiletError | None:
        """The error of gradients that are not those of clipped examples, if they are not."""
        try:
            self.ledger.monitor.same_parameters(self.params)
            self._require_rows(len(batch.mask))
            self.ledger.monitor.check(batch)
        except FiletError as error:
            return error
        return None

    def _require_rows(self, rows: int) -> None:
        for p in self.params:
            found = getattr(p, "grad_sample", None)
            if found is not None:
                found = self._get_flat_grad_sample(p)  # type: ignore[attr-defined]
            self.ledger.monitor.require(p, rows, found, "gradients")

    def signal_skip_step(self, do_skip: bool = True) -> None:
        raise InvalidArgumentError(
            "BatchMemoryManager cuts filet's batches of fixed shape into pieces of any size; leave it out and pass"
            " physical_batch_size= to the engine"
        )

    def _forget_sum(self) -> None:
        """Drop the sum of an unfinished batch, whose pass was left: it must not be summed twice."""
        for p in self.params:
            p.summed_grad = None

    def _clips_to(self) -> float:
        """The norm to which Opacus clips an example's gradient."""
        each = getattr(self, "max_grad_norms", None)  # of clipping per layer, as Opacus combines them
        return self.max_grad_norm if each is None else float(torch.norm(torch.Tensor(each), p=2).item())

    def _mask_padding(self, batch: PhysicalBatch) -> None:
        """Make the rows of per-example gradients that belong to padding exactly zero, before anything reads them."""
        size = int(batch.mask.sum())  # padding comes last
        for p in self.params:
            rows = self._get_flat_grad_sample(p)  # type: ignore[attr-defined]
            # Opacus's hooks make a tensor for each batch; other modes' biases may be the user's own gradients.
            fresh = self.ledger.monitor.mode in _FRESH_ROWS and rows.is_contiguous() and not rows.requires_grad
            p.grad_sample = rows if fresh else rows.detach().clone()
            p.grad_sample[size:].zero_()
            p.grad_sample = self.ledger.by_unit(p.grad_sample)


def guard_optimizer(private: Any) -> None:
    """Let the wrapped optimizer step for the private one only: alone it would add no noise."""

    def refuse(plain: Any, *_: Any) -> None:
        if not private.stepping:
            raise StateError(
                "the optimizer that was given to make_private steps by itself, without noise and uncounted;"
                " call step() of the one that make_private returned"
            )

    plain = private.original_optimizer
    before = getattr(plain, "filet_guard", None)
    if before is not None:  # of an earlier run with the same optimizer
        before.remove()
    plain.filet_guard = plain.register_step_pre_hook(refuse)
