# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Ghost and fast gradient clipping: padding is masked in the losses and in the clipping coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from filet.errors import StateError

from .._frameworks import needed_for

with needed_for("opacus"):
    import torch
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping, DPTensorFastGradientClipping

from .ledger import AccountedOptimizer, PhysicalBatch, StepLedger


class MaskedLoss(DPLossFastGradientClipping):
    """Opacus's loss for ghost clipping, with padding's losses set to zero."""

    def __init__(self, module: Any, ledger: StepLedger, optimizer: Any, criterion: Any, reduction: str) -> None:
        super().__init__(_MaskedClipping(module, ledger, optimizer), optimizer, criterion, reduction)
        self.ledger = ledger

    def __call__(self, *args: Any, **options: Any) -> Any:
        loss = super().__call__(*args, **options)
        loss.loss_per_sample = _masked(loss.loss_per_sample, self.ledger.current().mask)
        loss.__class__ = _ExamplesLoss
        return loss


class _ExamplesLoss(DPTensorFastGradientClipping):
    """Losses of examples, with Opacus's arithmetic, but for terms whose gradients no clipping would see."""

    def backward(self) -> None:
        self.module.check_loss(self.loss_per_sample)
        super().backward()


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
    """Opacus's module as its loss calls it: coefficients of padding are zero, and the end of the backward pass is noted."""

    def __init__(self, module: Any, ledger: StepLedger, optimizer: Any) -> None:
        self._module = module
        self._ledger = ledger
        self._optimizer = optimizer
        self._norm = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def check_loss(self, losses: torch.Tensor) -> None:
        self._ledger.monitor.same_parameters(self._optimizer.params)
        self._ledger.monitor.check_loss(losses, self._ledger.current().mask)

    def get_clipping_coef(self) -> torch.Tensor:
        mask = self._ledger.current().mask
        self._require_norms(len(mask))
        # Opacus keeps a norm in the module for clipping, and one in the optimizer for the noise; schedulers change the latter.
        self._module.max_grad_norm = self._norm = self._optimizer.max_grad_norm
        coefficients = _masked(self._module.get_clipping_coef(), mask)
        for p in self._norms():  # a parameter that the next batch does not use must not keep them
            del p._norm_sample
        return coefficients

    def _norms(self) -> list[Any]:
        return [] if self._ledger.monitor.sharded else list(self._ledger.monitor.trainable.values())

    def _require_norms(self, rows: int) -> None:
        for p in self._norms():
            self._ledger.monitor.require(p, rows, getattr(p, "_norm_sample", None), "norms")

    def enable_hooks(self) -> None:
        # The last thing that the loss's backward does: now the gradients are sums of clipped ones.
        self._module.enable_hooks()
        self._ledger.clipped = (self._ledger.current(), fingerprint(self._optimizer.params), self._norm)


class GhostOptimizer(AccountedOptimizer):
    """The optimizer of ghost clipping: it takes only gradients that the masked loss of this very batch has made."""

    _norm = 0.0

    def accumulate(self) -> None:
        """Opacus's, by a plain copy: its `deepcopy` takes a tenth of a small model's step."""
        for p in self.params:
            if p.summed_grad is None:
                p.summed_grad = p.grad.detach().clone()
            else:
                p.summed_grad.add_(p.grad.detach())

    def _require_rows(self, rows: int) -> None:
        """Require nothing here: the loss has required a norm for each row."""

    def _mask_padding(self, batch: PhysicalBatch) -> None:
        clipped, self.ledger.clipped = self.ledger.clipped, None
        if clipped is None or clipped[0] is not batch or clipped[1] != fingerprint(self.params):
            raise StateError(
                "the gradients are not as the private loss of this batch left them, and may not be clipped; call backward()"
                " of the criterion that make_private returned, and nothing else, before optimizer.step()"
            )
        self._norm = clipped[2]
        self._check_size(int(batch.mask.sum()) * self._norm)

    def _check_size(self, bound: float) -> None:
        """Raise if the sum is larger than that of clipped gradients can be, or not finite."""
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
        norms = [torch.linalg.vector_norm(p.grad.detach()) for p in self.params]
        return float(torch.linalg.vector_norm(torch.stack(norms))), bound

    def _clips_to(self) -> float:
        return self._norm


def fingerprint(params: Any) -> list[tuple[int, int]]:
    """A value that changes whenever a gradient is replaced or changed in place."""
    return [(id(p.grad), -1 if p.grad is None else p.grad._version) for p in params]


def _masked(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if values.shape != mask.shape:
        raise StateError(
            f"losses of shape {tuple(values.shape)} are not one for each of a batch's {mask.shape[0]} rows; pass whole batches"
            " of the loader that make_private returned, and shape= if an example has several losses"
        )
    return values.masked_fill(~mask.to(values.device), 0)
