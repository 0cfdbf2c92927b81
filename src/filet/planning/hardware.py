"""What the hardware takes: batches of so many rows, so many steps."""

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


def checked_settings(dataset_size: Any, max_batch_size: Any, steps: Any, hardware_epochs: Any,
              cycle_length: Any) -> list[tuple[CappedPoisson, int]]:  # fmt: skip
    """The hardware batches (as schemes of probability 1) and the steps of each."""
    if (steps is None) == (hardware_epochs is None):
        both = "neither is" if steps is None else "both are"
        raise _checks.fail(f"exactly one of steps and hardware_epochs is needed, {both} given; pass one of them")
    sizes = several("max_batch_size", max_batch_size)
    if any(size is None for size in sizes):
        raise _checks.fail("max_batch_size=None is not an integer; pass the number of rows the hardware takes")
    hardware = [CappedPoisson(dataset_size, 1.0, size, cycle_length=cycle_length)
                for size in sizes]  # fmt: skip
    remedy = "pass the whole number of training steps, at least 1"
    if steps is not None:
        counts = [_checks.integer("steps", count, low=1, remedy=remedy) for count in several("steps", steps)]
        return [(scheme, count) for scheme in hardware for count in counts]
    name, remedy = "hardware_epochs", "pass the rows of all batches, padding included, divided by dataset_size"
    passes = _checks.real(name, hardware_epochs, rule="in (0, inf)", remedy=remedy)
    if not 0.0 < passes < math.inf:
        raise _checks.fail(f"{name}={_checks.show(passes)} is not in (0, inf); {remedy}")
    exact = [passes * scheme.dataset_size / scheme.max_batch_size for scheme in hardware]
    counts = [max(1, _checks.steps_of_epochs(passes, count, name)) for count in exact]
    return list(zip(hardware, counts, strict=True))
