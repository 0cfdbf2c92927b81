# mypy: disable-error-code="import-untyped, import-not-found"
"""A private run inside a trainer of another library: its parts, on one rank or several."""

from __future__ import annotations

from typing import Any, NamedTuple

from filet.errors import InvalidArgumentError

from ._frameworks import needed_for

with needed_for("opacus"):
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
    from torch import distributed


class PrivateRun(NamedTuple):
    """Module, optimizer, criterion and loader for a trainer to use in place of its own; `criterion` is None without ghost clipping."""

    optimizer: Any
    loader: Any
    criterion: Any


def noise_options(
    noise_multiplier: float | None, target_epsilon: float | None, target_delta: float | None
) -> dict[str, Any]:
    """The arguments of the engine's `make_private` or `make_private_with_epsilon` that say how much noise."""
    chosen = (noise_multiplier is None) != (target_epsilon is None)
    if not chosen or (target_epsilon is None) != (target_delta is None):
        raise InvalidArgumentError("pass either noise_multiplier, or both target_epsilon and target_delta")
    if target_epsilon is None:
        return {"noise_multiplier": noise_multiplier}
    return {"target_epsilon": target_epsilon, "target_delta": target_delta}


def several_ranks() -> bool:
    """True if this process is one of several that train together."""
    joined = distributed.is_available() and distributed.is_initialized()
    return joined and distributed.get_world_size() > 1


def make_private(engine: Any, module: Any, noise: dict[str, Any], **options: Any) -> PrivateRun:
    """The parts of the engine's run for a module that stays as it is, with hooks on its layers.

    With several ranks the module must not be in PyTorch's `DistributedDataParallel`, which averages
    gradients behind the optimizer's back. The private optimizer adds up what the ranks have clipped.
    """
    if several_ranks():
        module = DifferentiallyPrivateDistributedDataParallel(module)  # begins with the weights of rank 0
    make = engine.make_private if "noise_multiplier" in noise else engine.make_private_with_epsilon
    _, optimizer, *criterion, loader = make(module=module, wrap_model=False, **options, **noise)
    return PrivateRun(optimizer, loader, criterion[0] if criterion else None)
