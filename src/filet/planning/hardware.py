"""Hardware of a plan: the rows of its batches, and its steps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .. import _checks
from ..scheme import CappedPoisson


def several(name: str, value: Any) -> list[Any]:
    """One number or several; at least one."""
    values = list(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else [value]
    if not values:
        raise _checks.fail(f"{name} is empty; pass one number or several")
    return values


def checked_settings(
    dataset_size: Any, max_batch_size: Any, steps: Any, hardware_epochs: Any, cycle_length: Any
) -> list[tuple[CappedPoisson, int]]:
    """The hardware batches (as schemes of probability 1) and the steps of each."""
    _check_one(steps, hardware_epochs)
    sizes = several("max_batch_size", max_batch_size)
    if any(size is None for size in sizes):
        raise _checks.fail("max_batch_size=None is not an integer; pass the number of rows the hardware takes")
    hardware = [CappedPoisson(dataset_size, 1.0, size, cycle_length=cycle_length) for size in sizes]
    if steps is None:
        return [(scheme, _steps_of_budget(scheme, hardware_epochs)) for scheme in hardware]
    remedy = "pass the whole number of training steps, at least 1"
    counts = [_checks.integer("steps", count, low=1, remedy=remedy) for count in several("steps", steps)]
    return [(scheme, count) for scheme in hardware for count in counts]


def _check_one(steps: Any, hardware_epochs: Any) -> None:
    if (steps is None) == (hardware_epochs is None):
        both = "neither is" if steps is None else "both are"
        raise _checks.fail(f"exactly one of steps and hardware_epochs is needed, {both} given; pass one of them")


def _steps_of_budget(scheme: CappedPoisson, hardware_epochs: Any) -> int:
    """The steps of a compute budget in rows, padding included, that is given in multiples of the data set."""
    name = "hardware_epochs"
    remedy = "pass the rows to compute, padding included, as a multiple of dataset_size"
    passes = _checks.real(name, hardware_epochs, rule="in (0, inf)", remedy=remedy)
    if not 0.0 < passes < math.inf:
        raise _checks.fail(f"{name}={_checks.show(passes)} is not in (0, inf); {remedy}")
    exact = passes * scheme.dataset_size / scheme.max_batch_size
    return max(1, _checks.steps_of_epochs(passes, exact, name))
