# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Ghost and fast gradient clipping: padding is masked in the losses and in the clipping coefficients."""

from __future__ import annotations

from typing import Any

from filet.errors import MissingExtraError, StateError

try:
    import torch
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
except ImportError as error:
    raise MissingExtraError("Opacus is not installed; run: pip install 'filet[opacus]'") from error

from .opacus_turns import Drawn, TakesTurns, Turn


class MaskedLoss(DPLossFastGradientClipping):
    """Opacus's loss for ghost clipping, with padding's losses set to zero."""

    def __init__(self, module: Any, turn: Turn, params: Any, optimizer: Any, criterion: Any, reduction: str) -> None:
        super().__init__(_MaskedClipping(module, turn, params), optimizer, criterion, reduction)
        self.turn = turn

    def __call__(self, *args: Any, **options: Any) -> Any:
        loss = super().__call__(*args, **options)
        loss.loss_per_sample = _masked(loss.loss_per_sample, self.turn.peek().mask)
        return loss


class _MaskedClipping:
    """Opacus's module as its loss sees it: coefficients of padding are zero, and the end of the work is noted."""

    def __init__(self, module: Any, turn: Turn, params: Any) -> None:
        self._module, self._turn, self._params = module, turn, params

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def get_clipping_coef(self) -> torch.Tensor:
        return _masked(self._module.get_clipping_coef(), self._turn.peek().mask)

    def enable_hooks(self) -> None:
        # The last thing that the loss's backward does: now the gradients are sums of clipped ones.
        self._module.enable_hooks()
        self._turn.clipped = (self._turn.peek(), fingerprint(self._params))


class GhostTakesTurns(TakesTurns):
    """The optimizer's part: it takes only gradients that the masked loss of this very batch has made."""

    def _mask_padding(self, drawn: Drawn) -> None:
        clipped, self.turn.clipped = self.turn.clipped, None
        if clipped is None or clipped[0] is not drawn or clipped[1] != fingerprint(self.params):
            raise StateError(
                "the gradients are not as the private loss of this batch left them, and may not be clipped; call backward()"
                " of the criterion that make_private returned, and nothing else, before optimizer.step()"
            )
        if not all(bool(p.grad.isfinite().all()) for p in self.params):
            raise StateError(
                "the gradients are not finite, perhaps because the model divides by zero on rows of zeros, the padding; use"
                " grad_sample_mode='hooks', where padding cannot matter"
            )


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
