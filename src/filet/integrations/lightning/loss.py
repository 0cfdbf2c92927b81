# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call", allow-subclassing-any
"""Ghost clipping's loss as an ordinary tensor, so that Lightning can scale it and call `backward`."""

from __future__ import annotations

from typing import Any

from filet.errors import StateError

from .._frameworks import needed_for

with needed_for("lightning"):
    import torch
    from torch import nn


class GhostLoss(nn.Module):
    """A criterion in the place of the user's: private while the module is trained, plain otherwise.

    Guarantees: `backward` of the loss, or of the loss times a number, makes the clipped gradients of
    the batch. What else adds to the gradients is refused by the optimizer. A second loss of the same
    batch is an error: its backward pass would drop the gradients of the first.
    """

    def __init__(self, private: Any, plain: Any) -> None:
        super().__init__()
        self.criteria = (private, plain)  # in a tuple: a criterion's parameters are not this module's
        self._done: Any = None

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """The loss of a batch, one number."""
        private, plain = self.criteria
        if not torch.is_grad_enabled():
            return plain(*arguments, **options)
        losses = private(*arguments, **options)
        anchor = torch.zeros((), device=losses.loss_per_sample.device, requires_grad=True)
        return _ClippedBackward.apply(anchor, losses, self)

    def once(self) -> None:
        """Note that the current batch has had its backward pass."""
        batch = self.criteria[0].ledger.current()
        if self._done is batch:
            raise StateError(
                "two losses of one batch were passed backward, of which the second drops the gradients of"
                " the first; add them up in one criterion"
            )
        self._done = batch


class _ClippedBackward(torch.autograd.Function):
    """Calls the private loss's own `backward`, which passes through the module twice."""

    @staticmethod
    def forward(context: Any, anchor: torch.Tensor, losses: Any, criterion: GhostLoss) -> Any:
        context.losses, context.criterion = losses, criterion
        return losses.detach()

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        context.criterion.once()
        with torch.enable_grad():
            (context.losses * gradients[0].detach()).backward()
        return None, None, None
