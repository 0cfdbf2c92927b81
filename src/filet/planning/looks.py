"""Guesses that planning starts from: about what a run costs, and what meets a target according to that. Nothing rests on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from ..accounting.rough import Rough
from ..accounting.terms import Analysis, Phase
from ..scheme import CappedPoisson, Overflow
from .roots import climb
from .target import Target

Run = tuple[CappedPoisson, float, int]  # scheme, noise multiplier, steps

_TURNS = 12
_CLOSE = 3e-6
_HARDLY = 1e-3
_NEARLY = 4e-3  # of log epsilon: from there on a chord does the rest
_MUCH = 0.4  # in log delta: what may be lent that is worth guesses of its own
_LENT = 0.45  # about the share of it that is lent
_LOG_SLOPE, _UNSURE = 2.0, 0.15  # of log epsilon before anything is known, and the longest step by it
_SLOPE = 1.2  # of the scale below, in units of its value, before anything is known
_LONGEST = 1.0  # of one step of the secant method
_BELOW = 2.0  # deviations of the draw by which its mean is below the cap at first
_FURTHER = 2.5  # deviations: the longest step later
_PAST = 6.0  # deviations above the cap at which every batch is full
_FALL, _LEAST_FALL = -0.9, -0.2  # of the logarithm of what a cap adds to epsilon, a deviation: at first, and the least
_ROOM = 0.97  # of the target: if draws cost more without a cap, it does not decide
_TRACE = 1e-6  # of the target: the least that a cap may add
# Guesses err alike at runs whose probability and noise differ by less, in the logarithm; quick looks at what is lent are dear.
_ALIKE, _ALIKE_LENT = 0.1, 0.3


class Looks:
    """Guesses for one search at one target: neighbouring questions start from each other's answers."""

    def __init__(self, target: Target, *, quick: bool = False) -> None:
        """`quick` looks, for searches that certify what they find, guess truncated batches by Theorem 2 alone."""
        self.target = target
        self._goal = math.log(target.delta)
        self._rough = Rough(target.adjacency, self._goal, quick=quick)
        self._offset, self._corrected_at = 0.0, (math.inf, math.inf)
        self._slope = _SLOPE * math.sqrt(-self._goal)

    def log_delta(self, run: Run, epsilon: float) -> float:
        """About log delta(epsilon) of a run."""
        return self._rough.log_delta(Phase(*run, self.target.analysis), epsilon) + self._offset

    def lent_start(self, at: Callable[[float], Run], x: float) -> float | None:
        """From an x towards one that meets the target if much is lent; None if it is not.

        Lending lowers log delta to that of the same draws without a cap, at most.
        """
        scheme, noise, steps = run = at(x)
        if self.target.analysis is not Analysis.REFINED or scheme.overflow is Overflow.REJECT or not scheme.capped:
            return None
        rate = scheme.inclusion_probability
        free = replace(scheme, sampling_probability=rate, max_batch_size=scheme.group_size)
        plain, least = (self.log_delta(one, self.target.epsilon) for one in (run, (free, noise, steps)))
        about = plain - _LENT * (plain - least)
        if not plain - least > _MUCH or not about < 0.0:
            return None
        return x - (math.sqrt(-self._goal) - math.sqrt(-about)) / self._slope

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
        goal = self._goal if goal is None else goal
        x, before = min(max(start, limits[0]), limits[1]), None
        for _ in range(_TURNS):
            off = self._off(at(x), goal)
            if off == -math.inf:
                return None
            if off == math.inf:
                x, before = max(x - 0.5 * _LONGEST, limits[0]), None
                continue
            if before is not None and x != before[0] and off != before[1]:
                self._slope = max((off - before[1]) / (x - before[0]), 0.1)
            before = x, off
            following = min(max(x - min(max(off / self._slope, -_LONGEST), _LONGEST), limits[0]), limits[1])
            if abs(following - x) <= close:
                return following
            x = following
        return None

    def close_root(
        self, at: Callable[[float], Run], start: float, limits: tuple[float, float]
    ) -> tuple[float, float] | None:
        """The x that meets the target, to about a part in a thousand, and the slope of log epsilon there, by close looks.

        None where they do not lead there.
        """
        slope, before = _LOG_SLOPE, None
        x = min(max(start, limits[0]), limits[1])
        for _ in range(_TURNS):
            spent = self._rough.epsilon(Phase(*at(x), self.target.analysis))
            if not 0.0 < spent < math.inf:
                return None
            off = math.log(spent / self.target.epsilon)
            if before is not None and x != before[0]:
                slope = (off - before[1]) / (x - before[0])
            if not slope > 0.0:
                return None
            longest = _UNSURE if before is None else _LONGEST
            following = min(max(x - min(max(off / slope, -longest), longest), limits[0]), limits[1])
            if before is not None and abs(off) < _NEARLY:
                return following, slope
            before, x = (x, off), following
        return None

    def probable_root(
        self, at: Callable[[float], Run], guess: float, limits: tuple[float, float]
    ) -> tuple[float, float] | None:
        """As `close_root`, for x the logarithm of the sampling probability of truncated batches.

        What truncation adds to epsilon grows nearly exponentially as the mean draw approaches the cap, in deviations of the draw.
        """
        scheme, noise, steps = at(guess)
        if scheme.overflow is Overflow.REJECT or not scheme.capped:
            return None
        start = _mean_below(scheme, _BELOW)
        free = replace(at(start)[0], max_batch_size=scheme.group_size)
        least = self._rough.epsilon(Phase(free, noise, steps, self.target.analysis)) / self.target.epsilon
        least = least if least > 0.0 else 0.0  # too little to be seen
        if least > _ROOM:
            return self.close_root(at, start - max(math.log(least), 0.0), limits)
        below, slope, before = _BELOW, _FALL, None
        good, bad, most = math.inf, -math.inf, _mean_below(scheme, 0.0)
        for _ in range(_TURNS):
            x = _mean_below(scheme, below)
            if below < -_PAST or (before and x == before[0]):  # more are drawn, and no more are used
                return limits[1], math.nan
            spent = self._rough.epsilon(Phase(*at(x), self.target.analysis)) / self.target.epsilon
            plain = least * math.exp(min(x, most) - start)
            if not (0.0 < spent < math.inf and plain < 1.0):
                return None
            good, bad = (below, bad) if spent <= 1.0 else (good, below)
            here = x, math.log(spent), below, math.log(max(spent - plain, _TRACE) / (1.0 - plain))
            if before is not None:
                slope = min((here[3] - before[3]) / (below - before[2]), _LEAST_FALL)
            longest = _LONGEST if before is None else _FURTHER
            following = below - min(max(here[3] / slope, -longest), longest)
            below = following if bad < following < good else 0.5 * (good + bad)
            if before is not None and abs(here[1]) < _NEARLY:
                return _mean_below(scheme, below), (here[1] - before[1]) / (here[0] - before[0])
            before = here
        return None

    def enclosed(
        self, at: Callable[[float], Run], start: float, limits: tuple[float, float], close: float
    ) -> float | None:
        """The root for the target's delta where the secant method fails: by enclosing it. None if no x meets the target."""
        found = climb(lambda x: self._off(at(x), self._goal), start, 0.25, limits, tolerance=close)
        return found.good if found.root is None else found.root

    def _off(self, run: Run, goal: float) -> float:
        """Above 0 where delta is too large, on a scale that is nearly linear; infinite where hardly anything is hidden."""
        log_delta = self.log_delta(run, self.target.epsilon)
        if log_delta >= -_HARDLY or math.isnan(log_delta):
            return math.inf
        return math.sqrt(max(-goal, 0.0)) - math.sqrt(-log_delta)


def _mean_below(scheme: CappedPoisson, deviations: float) -> float:
    """The logarithm of the sampling probability at which the mean draw is so many of its deviations below the cap, about."""
    cap, half = float(scheme.max_batch_size), 0.5 * deviations
    root = math.sqrt(cap + half * half) - half
    return math.log(min(root * root / scheme.group_size, 1.0))
