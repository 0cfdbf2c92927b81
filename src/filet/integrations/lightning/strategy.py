# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Lightning's strategy for several ranks, without the wrapper that averages gradients."""

from __future__ import annotations

from .._frameworks import needed_for

with needed_for("lightning"):
    from lightning.pytorch.strategies import DDPStrategy


class CappedDDPStrategy(DDPStrategy):
    """Lightning's `DDPStrategy` for a private run: every rank has a part of each capped batch.

    The module is not wrapped in `DistributedDataParallel`: that would average gradients before they
    are clipped and noisy. The private optimizer adds up clipped gradients of all ranks, once a step.
    Its arguments are those of `DDPStrategy` for processes: `process_group_backend`, `start_method`
    and so on.
    """

    def configure_ddp(self) -> None:
        """Leave the module as it is."""
