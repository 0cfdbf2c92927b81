"""Guesses that planning starts from: about what a run costs, and what meets a target according to that. Nothing rests on them."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..accounting.rough import Rough
from ..accounting.terms import Analysis, Phase
from ..scheme import CappedPoisson, Overflow
from .target import Target

Run = tuple[CappedPoisson, float, int]  # scheme, noise multiplier, steps

_TURNS = 12
_CLOSE = 3e-6
_HARDLY = 1e-3
_SLOPE = 1.2  # of the scale below, in units of its value, before anything is known
_LONGEST = 1.0  # of one step of the secant method
# Guesses err alike at runs whose probability and noise differ by less, in the logarithm; quick looks at what is lent are dear.
_ALIKE, _ALIKE_LENT = 0.02, 0.3


class Looks:
    """Guesses for one search at one target: neighbouring questions start from each other's answers."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._goal = math.log(target.delta)
        self._rough = Rough(target.adjacency, self._goal)
        self._offset, self._corrected_at = 0.0, (math.inf, math.inf)
        self._slope = _SLOPE * math.sqrt(-self._goal)

    def log_delta(self, run: Run, epsilon: float) -> float:
        """About log delta(epsilon) of a run."""
        return self._rough.log_delta(Phase(*run, self.target.analysis), epsilon) + self._offset

    def correct(self, run: Run) -> float:
        """Allow for how far guesses are off at runs like this one, by a quick look; how much that has changed."""
        scheme, noise, _ = run
        place = math.log(scheme.sampling_probability), math.log(noise)
        away = [abs(here - there) for here, there in zip(place, self._corrected_at, strict=True)]
        lent = self.target.analysis is Analysis.REFINED and scheme.overflow is Overflow.TRUNCATE
        if away[0] < _ALIKE_LENT if lent else max(away) < _ALIKE:
            return 0.0
        quick = self.target.curve(*run).quick_delta(self.target.epsilon)
        if not 0.0 < quick < 1.0:
            return math.inf
        change = math.log(quick) - self.log_delta(run, self.target.epsilon)
        self._offset, self._corrected_at = self._offset + change, place
        return abs(change)

    def root(self, at: Callable[[float], Run], start: float, limits: tuple[float, float], goal: float | None = None,
             close: float = _CLOSE) -> float | None:  # fmt: skip
        """The x at which delta is about e^goal (the target's, if not given), by the secant method on a nearly linear scale.

        Every root starts with the slope that the one before has ended with. None if that fails.
        """
        wanted = math.sqrt(max(-(self._goal if goal is None else goal), 0.0))
        x, before = min(max(start, limits[0]), limits[1]), None
        for _ in range(_TURNS):
            log_delta = self.log_delta(at(x), self.target.epsilon)
            if not log_delta > -math.inf:
                return None
            if log_delta >= -_HARDLY:  # hardly anything is hidden, or nothing is known
                x, before = max(x - 0.5 * _LONGEST, limits[0]), None
                continue
            off = wanted - math.sqrt(-log_delta)  # above 0 where delta is too large
            if before is not None and x != before[0] and off != before[1]:
                self._slope = max((off - before[1]) / (x - before[0]), 0.1)
            before = x, off
            following = min(max(x - min(max(off / self._slope, -_LONGEST), _LONGEST), limits[0]), limits[1])
            if abs(following - x) <= close:
                return following
            x = following
        return None
