# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-call", allow-subclassing-any
"""Fully sharded models (FSDP2) with ghost clipping: every rank holds a part of each parameter, and adds noise to it."""

from __future__ import annotations

from typing import Any

from filet.errors import InvalidArgumentError

from .._frameworks import needed_for

with needed_for("opacus"):
    import torch
    from torch import distributed
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

from .ghost import GhostOptimizer
from .ledger import world_size

GHOST_FSDP = "ghost_fsdp"  # Opacus's name for it


class ShardedOptimizer(GhostOptimizer):
    """The optimizer of ghost clipping where gradients are shards of the mean over the ranks."""

    grad_state: dict[Any, dict[str, Any]]

    def accumulate(self) -> None:
        """Opacus's own, which keeps the sums of shards elsewhere."""
        super(GhostOptimizer, self).accumulate()  # type: ignore[misc]

    def _forget_sum(self) -> None:
        for state in self.grad_state.values():
            state["summed_grad"] = None

    def _size_and_bound(self, bound: float) -> tuple[float, float]:
        squares = sum(p.grad.to_local().detach().double().square().sum() for p in self.params)
        both = torch.stack([torch.as_tensor(squares), torch.as_tensor(bound).to(squares)])
        distributed.all_reduce(both)
        return float(both[0].sqrt()) * world_size(), float(both[1])


def check_sharding(module: Any, grad_sample_mode: str, loss_reduction: str) -> bool:
    """True if the module is sharded; raises unless mode and shards are such that the noise fits."""
    sharded = isinstance(module, FSDPModule)
    if sharded != (grad_sample_mode == GHOST_FSDP):
        kind = "" if sharded else "not "
        raise InvalidArgumentError(
            f"grad_sample_mode={grad_sample_mode!r} is not for a module that is {kind}fully sharded; use {GHOST_FSDP!r} for modules"
            " of opacus.utils.fsdp_utils.FSDP2Wrapper, and only for them"
        )
    if not sharded:
        return False
    if loss_reduction != "mean":
        raise InvalidArgumentError(
            f"loss_reduction={loss_reduction!r} does not fit a sharded module, whose gradients are means; use 'mean'"
        )
    for name, p in module.named_parameters():
        if p.requires_grad and not (isinstance(p, DTensor) and p.device_mesh.shape == (world_size(),)):
            raise InvalidArgumentError(
                f"parameter {name!r} is not sharded over all {world_size()} ranks, and its copies would get different noise;"
                " use FSDP2Wrapper without a mesh, and no replicas"
            )
    return True
