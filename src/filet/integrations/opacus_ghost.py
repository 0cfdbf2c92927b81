# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Ghost and fast gradient clipping: padding is masked in the losses and in the clipping coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from filet.errors import MissingExtraError, StateError

try:
    import torch
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping, DPTensorFastGradientClipping
except ImportError as error:
    raise MissingExtraError("Opacus is not installed; run: pip install 'filet[opacus]'") from error

from .opacus_turns import Drawn, TakesTurns, Turn


class MaskedLoss(DPLossFastGradientClipping):
    """Opacus's loss for ghost clipping, with padding's losses set to zero."""

    def __init__(self, module: Any, turn: Turn, optimizer: Any, criterion: Any, reduction: str) -> None:
        super().__init__(_MaskedClipping(module, turn, optimizer), optimizer, criterion, reduction)
        self.turn = turn

    def __call__(self, *args: Any, **options: Any) -> Any:
        loss = super().__call__(*args, **options)
        loss.loss_per_sample = _masked(loss.loss_per_sample, self.turn.peek().mask)
        loss.__class__ = _ExamplesLoss
        return loss


class _ExamplesLoss(DPTensorFastGradientClipping):
    """Losses of examples, with Opacus's arithmetic, but for terms whose gradients no clipping would see."""


def _guarded(name: str) -> Callable[..., Any]:
    plain = getattr(DPTensorFastGradientClipping, name)

    def operation(loss: Any, *terms: Any) -> Any:
        if any(isinstance(term, torch.Tensor) and term.requires_grad for term in terms):
            raise StateError(
                "a term with gradients of its own was combined with the private loss, and would not be clipped; leave it out,"
                " or use the optimizer's weight_decay"
            )
        made = plain(loss, *terms)
        made.__class__ = _ExamplesLoss
        return made

    return operation


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "neg"):
    setattr(_ExamplesLoss, f"__{_name}__", _guarded(f"__{_name}__"))


class _MaskedClipping:
    """Opacus's module as its loss sees it: coefficients of padding are zero, and the end of the work is noted."""

    def __init__(self, module: Any, turn: Turn, optimizer: Any) -> None:
        self._module, self._turn, self._optimizer = module, turn, optimizer
        self._norm = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def get_clipping_coef(self) -> torch.Tensor:
        # Opacus keeps a norm here for clipping and one there for the noise; schedulers know the optimizer's alone.
        self._module.max_grad_norm = self._norm = self._optimizer.max_grad_norm
        return _masked(self._module.get_clipping_coef(), self._turn.peek().mask)

    def enable_hooks(self) -> None:
        # The last thing that the loss's backward does: now the gradients are sums of clipped ones.
        self._module.enable_hooks()
        self._turn.clipped = (self._turn.peek(), fingerprint(self._optimizer.params), self._norm)


class GhostTakesTurns(TakesTurns):
    """The optimizer's part: it takes only gradients that the masked loss of this very batch has made."""

    _norm = 0.0

    def _mask_padding(self, drawn: Drawn) -> None:
        clipped, self.turn.clipped = self.turn.clipped, None
        if clipped is None or clipped[0] is not drawn or clipped[1] != fingerprint(self.params):
            raise StateError(
                "the gradients are not as the private loss of this batch left them, and may not be clipped; call backward()"
                " of the criterion that make_private returned, and nothing else, before optimizer.step()"
            )
        self._norm = clipped[2]
        self._check_size(int(drawn.mask.sum()) * self._norm)

    def _check_size(self, bound: float) -> None:
        """Raise if the sum is larger than that of clipped gradients can be, or not a number."""
        size, bound = self._size_and_bound(bound)
        if not math.isfinite(size):
            raise StateError(
                "the gradients are not finite, perhaps because the model divides by zero on rows of zeros, the padding; use"
                " grad_sample_mode='hooks', where padding cannot matter"
            )
        if size > 1.01 * bound:  # the last bits of half precision, added up
            raise StateError(
                f"the gradients have norm {size:.4g}, and clipped ones of this batch at most {bound:.4g}: something of the loss"
                " bypasses the clipping, such as a penalty on the weights; use the optimizer's weight_decay"
            )

    def _size_and_bound(self, bound: float) -> tuple[float, float]:
        return float(torch.stack([p.grad.detach().norm() for p in self.params]).norm()), bound

    def _clips_to(self) -> float:
        return self._norm


def fingerprint(params: Any) -> list[tuple[int, int]]:
    """Changes whenever a gradient is replaced or changed in place."""
    return [(id(p.grad), -1 if p.grad is None else p.grad._version) for p in params]


def _masked(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if values.shape != mask.shape:
        raise StateError(
            f"losses of shape {tuple(values.shape)} are not one for each of a batch's {mask.shape[0]} rows; pass whole batches"
            " of the loader that make_private returned, and shape= if an example has several losses"
        )
    return torch.where(mask.to(values.device), values, torch.zeros((), dtype=values.dtype, device=values.device))
