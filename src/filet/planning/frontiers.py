"""Frontiers: epsilon or noise of each strategy, over a range of caps, probabilities or steps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import _checks
from .._progress import Progress, reported
from .._public import public
from ..accounting.terms import Adjacency, AdjacencyName, Analysis
from ..scheme import CappedPoisson, Overflow
from .calibration import noise_for
from .hardware import checked_settings, several
from .strategies import STRATEGIES, Strategy, at_probability, best_option
from .target import Target

AxisName = Literal["max_batch_size", "sampling_probability", "steps"]


@public
@dataclass(frozen=True)
class Frontier:
    """Lines to draw: `series[name][i]` belongs to `x[i]`; nan where the target cannot be met.

    Made by `frontier`.
    """

    x_label: str
    y_label: str
    x: NDArray[np.float64]
    series: dict[str, NDArray[np.float64]]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; nan and infinity become None."""
        series = {
            name: [float(v) if math.isfinite(v) else None for v in values] for name, values in self.series.items()
        }
        return {"x_label": self.x_label, "y_label": self.y_label, "x": self.x.tolist(), "series": series}


_AXES = {
    "max_batch_size": "max_batch_size (rows)",
    "sampling_probability": "sampling_probability",
    "steps": "steps",
}


@public
def frontier(
    *,
    over: AxisName,
    values: Iterable[float],
    dataset_size: int,
    delta: float,
    adjacency: Adjacency | AdjacencyName,
    max_batch_size: int | None = None,
    sampling_probability: float | None = None,
    steps: int | None = None,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    progress: Progress | None = None,
) -> Frontier:
    """Epsilon, or the effective noise at an epsilon, against cap, probability or steps.

    >>> found = frontier(over="steps", values=[1_000, 10_000], dataset_size=60_000, max_batch_size=300,
    ...                  sampling_probability=256 / 60_000, noise_multiplier=1.0, delta=1e-5, adjacency="zero-out")
    >>> found.y_label, sorted(found.series)
    ('epsilon at delta=1e-05', ['note', 'reject', 'truncate', 'union'])
    >>> [round(float(v), 2) for v in found.series["reject"]]
    [0.73, 2.34]

    Guarantees: epsilons are certified upper bounds; effective noise belongs to a noise multiplier
    that meets the target.

    Arguments:
        over: the argument on the x axis: "max_batch_size", "sampling_probability" or "steps".
        values: its values.
        dataset_size, delta, adjacency, max_batch_size, steps: the setting; the one named by `over`
            is left out.
        sampling_probability: None finds the best one for each point (with `epsilon` only).
        noise_multiplier: draw epsilon at this noise. Or:
        epsilon: draw the effective noise, `noise_multiplier / expected_batch_size`, that this
            budget takes.
        progress: called with the share of the work done and a label.
    """
    given = {"max_batch_size": max_batch_size, "sampling_probability": sampling_probability, "steps": steps}
    _check_axes(over, given, noise_multiplier, epsilon)
    noise = None if noise_multiplier is None else _checks.noise_multiplier(noise_multiplier)
    target = Target.checked(1.0 if epsilon is None else epsilon, delta, adjacency, Analysis.REFINED)
    points = [given | {over: value} for value in several("values", values)]
    tries = _tries(dataset_size, points)
    series: dict[str, list[float]] = {strategy.name: [] for strategy in STRATEGIES}
    for strategy, point, hardware, count in reported(
        tries, progress, lambda one: f"{one[0].name}, {over} {one[1][over]:g}"
    ):
        series[strategy.name].append(_height(target, strategy, hardware, count, point["sampling_probability"], noise))
    y_label = f"epsilon at delta={target.delta:g}"
    if noise is None:
        y_label = f"noise_multiplier / expected_batch_size at epsilon={target.epsilon:g}, delta={target.delta:g}"
    x = np.array([point[over] for point in points], dtype=np.float64)
    return Frontier(_AXES[over], y_label, x, {name: np.array(heights) for name, heights in series.items()})


def _check_axes(over: str, given: dict[str, Any], noise_multiplier: Any, epsilon: Any) -> None:
    """Refuse axes that are unknown, given twice or missing."""
    if over not in _AXES:
        raise _checks.fail(f"over={_checks.show(over)} is unknown; pass one of {', '.join(map(repr, _AXES))}")
    if given[over] is not None:
        raise _checks.fail(f"{over}={_checks.show(given[over])} is also the x axis; pass it in values only")
    if (noise_multiplier is None) == (epsilon is None):
        raise _checks.fail(
            "exactly one of noise_multiplier (draws epsilon) and epsilon (draws noise) is needed; pass one"
        )
    free = {"sampling_probability"} if epsilon is not None else set()
    missing = [name for name in given if given[name] is None and name != over and name not in free]
    if missing:
        raise _checks.fail(f"{missing[0]} is missing; pass a number")


def _tries(
    dataset_size: Any, points: list[dict[str, Any]]
) -> list[tuple[Strategy, dict[str, Any], CappedPoisson, int]]:
    """Every strategy at every point, with the point's hardware and steps; all points are checked before any work."""
    checked = [_point(dataset_size, point) for point in points]
    return [(strategy, point, *at) for point, at in zip(points, checked, strict=True) for strategy in STRATEGIES]


def _point(dataset_size: Any, point: dict[str, Any]) -> tuple[CappedPoisson, int]:
    [(hardware, count)] = checked_settings(dataset_size, point["max_batch_size"], point["steps"], None, 1)
    if point["sampling_probability"] is not None:
        replace(hardware, sampling_probability=point["sampling_probability"])
    return hardware, count


def _height(
    target: Target,
    strategy: Strategy,
    hardware: CappedPoisson,
    steps: int,
    p: float | None,
    noise: float | None,
) -> float:
    """Epsilon at the noise, or else the effective noise at the target."""
    if p is None:
        option = best_option(target, strategy, hardware, steps)
        return math.nan if option is None else option.effective_noise
    if strategy.overflow is Overflow.REJECT and p == 1.0 and hardware.max_batch_size < hardware.group_size:
        return math.nan
    target = replace(target, analysis=strategy.analysis)
    scheme, count, _ = at_probability(strategy, hardware, steps, p)
    if noise is not None:
        return target.spent(scheme, noise, count)
    found = noise_for(target, scheme, count)
    return math.nan if found is None else found / scheme.expected_batch_size
