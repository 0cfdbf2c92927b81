"""Tolerances and effort: how narrow a bracket is promised, and how hard the search tries before it refuses.

Each number says why it is what it is. `benchmarks/bench_accountant.py` and `bench_grid.py` judge a
change of one: no run slower, no point wider or refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..proving.loss_law import Array


@dataclass(frozen=True)
class Tolerance:
    """The widths that are promised."""

    relative: float = 1e-3  # of epsilon, and of delta
    absolute: float = 1e-4  # of epsilon, where that is more
    share: float = 0.01  # of the promised width that one source of error may take
    negligible: float = 1e-6  # of delta: what happens this rarely changes no digit that is printed

    @property
    def part(self) -> float:
        """Share of epsilon that one source of error may take."""
        return self.relative * self.share

    @property
    def tiny(self) -> float:
        """Epsilon that is narrow enough with a lower end of zero; searches start no lower."""
        return 0.5 * self.absolute

    @property
    def nats(self) -> float:
        """Distance in log delta beyond which something is negligible."""
        return -math.log(self.negligible)

    def promised(self, epsilon: Any) -> Any:
        """The width that is promised near an epsilon."""
        return np.maximum(self.relative * epsilon, self.absolute)

    def least(self, epsilon: Any) -> Any:
        """Part of it that is not worth a reading."""
        return self.share * self.promised(epsilon)

    def wide(self, lower: Any, upper: Any, share: float = 1.0) -> Any:
        """The epsilon brackets that are wider than (a share of) what is promised."""
        narrow = (upper < np.inf) & (upper <= lower + share * self.promised(upper))
        return np.logical_not(narrow | np.isposinf(lower))

    def wide_delta(self, lower: Any, upper: Any) -> Any:
        """The delta brackets that are wider than what is promised."""
        return np.logical_not(upper - lower <= self.relative * upper)


@dataclass(frozen=True)
class Effort:
    """Limits of the search. All of them cost time or width, never truth."""

    levels: int = 6  # of ever finer grids and contours; one run in a hundred needs a third
    contours: int = 6  # at one level, while Newton's method leaves the range of the last
    readings: int = 8  # of one contour by Newton's method; two or three suffice from a good start
    cells: int = 800  # of a refined grid at the first level; the bracket's width falls as its square
    spacing: float = 0.1  # of a uniform grid, in standard deviations of the noise
    nodes: int = 1_500_000  # of all contours of a question together: about half a second
    group: float = 30.0  # nats of log delta that share a grid and a contour
    short: int = 12_000  # nodes of a contour, some milliseconds: for longer ones, caps on losses are tried
    phases: int = 50  # from which on each phase has fewer cells and nodes


TOLERANCE, EFFORT = Tolerance(), Effort()


def least_step(epsilon: Array) -> Array:
    """The change of epsilon below which Newton's method has converged."""
    return np.asarray(4e-7 * np.maximum(epsilon, 0.1))
