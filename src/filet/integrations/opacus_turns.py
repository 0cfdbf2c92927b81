# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""One batch, one step: the loader hands each batch's mask to the optimizer, and both agree with the accountant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from filet.errors import InvalidArgumentError, MissingExtraError, StateError

try:
    import torch
    from torch import distributed
except ImportError as error:
    raise MissingExtraError("PyTorch is not installed; run: pip install 'filet[opacus]'") from error

from .opacus_accountant import CappedAccountant
from .torch import CappedPoissonLoader


def world_size() -> int:
    """The number of ranks; 1 without `torch.distributed`."""
    joined = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if joined else 1


class Drawn(NamedTuple):
    """A physical batch that was handed out and waits for its step."""

    step: int
    part: int
    mask: torch.Tensor


class Turn:
    """Whose turn it is: `step` counts the steps that were taken, `part` the physical batches of the next one.

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
        self.norm: float | None = None  # to which the parts of this batch that were summed up are clipped
        self.waiting: list[Drawn] = []
        self.clipped: Any = None  # ghost clipping's note of whose gradients are ready

    def agree(self) -> None:
        """Raise unless accountant and loader are at the same step."""
        counted = len(self.accountant)
        if counted != self.step:
            raise StateError(
                f"the accountant has counted {counted} steps, but the loader is at step {self.step}; restore both from one"
                " checkpoint with load_checkpoint of the engine"
            )

    def agree_with_ranks(self, params: Any) -> None:
        """Raise unless all ranks are about to take the same physical batch of the run that they began together."""
        ranks = world_size()
        if ranks != self.ranks:
            raise StateError(
                f"there are {ranks} ranks, but there were {self.ranks} at make_private, which deals the batches; call it"
                " after torch.distributed is initialised (Accelerate's Accelerator() does that)"
            )
        if ranks == 1:
            return
        count = self.step * self.parts + self.part
        ends = torch.tensor([count, -count], device=params[0].device)
        distributed.all_reduce(ends, op=distributed.ReduceOp.MAX)
        last, first = int(ends[0]) // self.parts, -int(ends[1]) // self.parts
        if int(ends.sum()):
            raise StateError(
                f"the ranks are not at one batch, but between steps {first} and {last}; load the same checkpoint on all ranks"
            )

    def clip_alike(self, norm: float, noise_norm: float) -> None:
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
        self.agree()
        self.waiting, self.part = [], 0
        return self.step

    def take(self) -> Drawn:
        """The physical batch that the optimizer is about to use, if it is the right one."""
        waiting, self.waiting = self.waiting, []
        if len(waiting) != 1:
            raise StateError(
                f"{len(waiting)} batches were drawn from filet's loader since the last step, not 1; call optimizer.step()"
                " once for every batch of the loader that make_private returned"
            )
        self.agree()
        if self.step >= self.steps:
            raise StateError(f"the run of steps={self.steps} is over; make a new engine with a new key")
        drawn = waiting[0]
        if (drawn.step, drawn.part) != (self.step, self.part):
            raise StateError(
                f"a batch before this one had no step (of step {self.step}, part {self.part + 1} of {self.parts}); begin a"
                " new pass over the loader, which goes on with that batch"
            )
        return drawn

    def peek(self) -> Drawn:
        """The physical batch that was handed out and not stepped on yet."""
        if not self.waiting:
            raise StateError("no batch is waiting for its step; ask between a batch and its step")
        return self.waiting[-1]

    def taken(self) -> None:
        """The optimizer has used its batch."""
        self.part = (self.part + 1) % self.parts
        self.step += self.part == 0


class TurnLoader(CappedPoissonLoader):
    """Yields the data alone, so that the training loop stays as it was; the optimizer gets the mask.

    Its position is that of the optimizer: a batch that was handed out but never stepped on comes again in a new pass.
    """

    turn: Turn

    def __iter__(self) -> Any:
        self._step = self.turn.begin_pass()
        return super().__iter__()

    def _counted(self, batches: Iterator[Any], number: int) -> Iterator[Any]:
        for count, (data, mask) in enumerate(super()._counted(batches, number), start=self._start * self.parts):
            self.turn.waiting.append(Drawn(*divmod(count, self.parts), mask))
            yield data

    @property
    def mask(self) -> torch.Tensor:
        """The mask of the batch that was handed out last and not stepped yet."""
        return self.turn.peek().mask

    def state_dict(self, *, include_key: bool = False) -> dict[str, Any]:
        """Where the optimizer is in the run."""
        return {**super().state_dict(include_key=include_key), "step": self.turn.step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Refused: a loader that goes on without its accountant forgets steps, and without its noise repeats noise."""
        raise StateError(
            "the loader's position alone does not resume a private run: the noise would begin again; use load_checkpoint or"
            " load_state_dict of the engine, which hold the position as well"
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on at that step, together with the accountant and the noise: for the engine."""
        super().load_state_dict(state)
        self.turn.step, self.turn.part, self.turn.waiting = self._step, 0, []


class TakesTurns:
    """What every optimizer of the engine does: steps on the batch whose turn it is, and on nothing else."""

    turn: Turn
    params: Any
    max_grad_norm: float
    _step_skip_queue: list[bool]

    def pre_step(self, closure: Any = None) -> Any:
        drawn = self.turn.take()
        self.turn.agree_with_ranks(self.params)
        if drawn.part == 0:
            self._forget_sum()
        self._mask_padding(drawn)
        self.turn.clip_alike(self._clips_to(), self.max_grad_norm)
        self._step_skip_queue = [drawn.part + 1 < self.turn.parts]  # Opacus's list: sum this one up and wait for more
        complete = super().pre_step(closure)  # type: ignore[misc]
        self.turn.taken()
        return complete

    def signal_skip_step(self, do_skip: bool = True) -> None:
        raise InvalidArgumentError(
            "BatchMemoryManager cuts filet's batches of fixed shape into pieces of any size; leave it out and pass"
            " physical_batch_size= to the engine"
        )

    def _forget_sum(self) -> None:
        """An unfinished batch, whose pass was left, must not be summed twice."""
        for p in self.params:
            p.summed_grad = None

    def _clips_to(self) -> float:
        """The norm to which Opacus clips an example's gradient."""
        each = getattr(self, "max_grad_norms", None)  # of clipping per layer, as Opacus combines them
        return self.max_grad_norm if each is None else float(torch.norm(torch.Tensor(each), p=2).item())

    def _mask_padding(self, drawn: Drawn) -> None:
        """Make the rows of per-example gradients that belong to padding exactly zero, before anything reads them."""
        mask = drawn.mask
        for p in self.params:
            rows = self._get_flat_grad_sample(p)  # type: ignore[attr-defined]
            if rows.shape[0] != mask.shape[0]:
                raise StateError(
                    f"gradients of {rows.shape[0]} rows do not belong to a batch of {mask.shape[0]}; train on whole"
                    " batches of the loader that make_private returned"
                )
            keep = mask.to(rows.device).reshape(-1, *[1] * (rows.ndim - 1))
            p.grad_sample = torch.where(keep, rows, torch.zeros((), dtype=rows.dtype, device=rows.device))
