# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""One batch, one step: the loader hands each batch's mask to the optimizer, and both agree with the accountant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from filet.errors import InvalidArgumentError, MissingExtraError, StateError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("PyTorch is not installed; run: pip install 'filet[opacus]'") from error

from .opacus_accountant import CappedAccountant
from .torch import CappedPoissonLoader


class Drawn(NamedTuple):
    """A physical batch that was handed out and waits for its step."""

    step: int
    part: int
    mask: torch.Tensor


class Turn:
    """Whose turn it is: `step` counts the steps that were taken, `part` the physical batches of the next one.

    Guarantees: a batch is stepped on once, in order, and only while the accountant has counted exactly the steps before
    it; never more than `steps`.
    """

    def __init__(self, accountant: CappedAccountant, steps: int, parts: int) -> None:
        self.accountant = accountant
        self.steps = steps
        self.parts = parts
        self.step = 0
        self.part = 0
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
        """Go on at that step; the engine's accountant must be at the same one, so use the engine's `load_checkpoint`."""
        super().load_state_dict(state)
        self.turn.step, self.turn.part, self.turn.waiting = self._step, 0, []


class TakesTurns:
    """What every optimizer of the engine does: steps on the batch whose turn it is, and on nothing else."""

    turn: Turn
    params: Any
    _step_skip_queue: list[bool]

    def pre_step(self, closure: Any = None) -> Any:
        drawn = self.turn.take()
        if drawn.part == 0:
            for p in self.params:  # an unfinished batch, whose pass was left, must not be summed twice
                p.summed_grad = None
        self._mask_padding(drawn)
        self._step_skip_queue = [drawn.part + 1 < self.turn.parts]  # Opacus's list: sum this one up and wait for more
        complete = super().pre_step(closure)  # type: ignore[misc]
        self.turn.taken()
        return complete

    def signal_skip_step(self, do_skip: bool = True) -> None:
        raise InvalidArgumentError(
            "BatchMemoryManager cuts filet's batches of fixed shape into pieces of any size; leave it out and pass"
            " physical_batch_size= to the engine"
        )

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
