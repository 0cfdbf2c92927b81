"""The largest argument that meets a target: few certified epsilons, led there by guesses, or by brackets where those fail.

Only an argument whose certified epsilon is at or below the target's is ever returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .looks import Looks, Run
from .roots import Bracket, Cost, climb
from .target import Target

_TOLERANCE = 2e-5  # relative, of noise and probability; the bounds' own slack comes on top
LOOK_TOLERANCE = 3e-4
_MARGIN = 5e-6  # by which a guess stays on the safe side of the target
_FAR_ENOUGH = 5e-5  # certified epsilons are off by a part in 100,000, this way and that
_NEAR = 4e-5  # relative: as close to the target's epsilon as is good enough
_TURNS = 7
_CHORD = 0.05  # of log epsilon: how close to the target the chord of two points does better than guesses
_GAIN = 0.7  # a step that leaves more of the way to the target is not worth another
_SLOPES = (0.05, 1e4)  # of log epsilon in x; the sampling probability has steep ones, where batches begin to overflow
_SLOPE = 1.3  # of log epsilon, roughly, before two points are known


def solve(target: Target, at: Callable[[float], Run], guess: float, limits: tuple[float, float], *,
          close: bool = False, probability: bool = False) -> float | None:  # fmt: skip
    """The largest x that meets the target: from guesses, or by brackets where they fail or overflows weigh on delta.

    `close` says that the guess is good, `probability` that x is the logarithm of the sampling probability.
    """
    if not target.overflow_matters(target.curve(*at(guess)), 0.02):
        looks = Looks(target, quick=True)
        full = looks.probable_root(at, guess, limits) if probability else None
        start, slope = full or ((guess, math.nan) if close else first_look(looks, at, guess, limits))
        found = _solved(looks, at, start, limits, slope)
        if found is not None:
            return found
    return _largest(lambda x: target.look(*at(x)), lambda x: target.search_cost(*at(x)), lambda x: target.cost(*at(x)),
                   guess, limits)  # fmt: skip


def first_look(looks: Looks, at: Callable[[float], Run], guess: float,
               limits: tuple[float, float]) -> tuple[float | None, float]:  # fmt: skip
    """About the x that meets the target, by close looks, or by guesses without what is lent; None if they do not lead there.
    And the slope of log epsilon, or NaN.
    """
    start = looks.lent_start(at, guess)
    found = looks.close_root(at, guess if start is None else start, limits)
    if found is not None:
        return found
    rough = looks.root(at, guess, limits, close=LOOK_TOLERANCE)
    return looks.enclosed(at, guess, limits, LOOK_TOLERANCE) if rough is None else rough, math.nan


def bracketed(look: Cost, cost: Cost, guess: float, limits: tuple[float, float]) -> Bracket:
    """Coarse looks first, then costs around what they found."""
    rough = climb(look, guess, 0.25, limits, tolerance=LOOK_TOLERANCE)
    start = rough.good if rough.good is not None else limits[0]
    return climb(cost, start, 0.01, limits, tolerance=_TOLERANCE, slope=_SLOPE)


def _largest(look: Cost, cost: Cost, proof: Cost, guess: float, limits: tuple[float, float]) -> float | None:
    """The largest `x` with proof(x) <= 0, found by the cheaper `look` and `cost`; None if there is none."""
    found = bracketed(look, cost, guess, limits).good
    if found is None:
        return None
    retreat = _TOLERANCE
    while proof(found) > 0.0:
        if found <= limits[0]:
            return None
        found, retreat = max(limits[0], found - retreat), 2.0 * retreat
    return found


def _solved(looks: Looks, at: Callable[[float], Run], x: float | None, limits: tuple[float, float],
            slope: float) -> float | None:  # fmt: skip
    """The largest x whose certified epsilon meets the target, by few of them, from a first x and the slope of log epsilon, if that
    is known; None where guesses do not lead there.

    Guesses err, but much alike at neighbouring x: where epsilon is certified at one x, the guess of its delta says how far
    off guesses are there, and the next x allows for that. Close to the target the chord through two certified points does.
    """
    target, margin, before, wanted = looks.target, _MARGIN, (math.nan, math.nan), (math.nan, math.nan)
    for _ in range(_TURNS):
        spent = math.inf if x is None else target.spent(*at(x))
        if x is not None and x >= limits[1] and spent <= target.epsilon:
            return x
        if x is None or not 0.0 < spent < math.inf or not limits[0] < x < limits[1]:
            return None
        here = x, math.log(spent / target.epsilon)
        if abs(here[1]) > _CHORD and abs(here[1]) > _GAIN * abs(before[1]):  # guesses lead nowhere
            return None
        slope = _slope(before, here, slope)
        if here[1] <= 0.0 and (here[1] >= -_NEAR or -here[1] / slope <= _TOLERANCE + margin):
            return x
        step = -here[1] / slope
        if not max(abs(here[1]), abs(before[1])) < _CHORD or math.isnan(slope):
            step, wanted = _corrected(looks, at, here, wanted, limits)
        margin = margin if abs(here[1]) > LOOK_TOLERANCE else 2.0 * margin
        x, before = x + step - margin, here
    return None


def _corrected(looks: Looks, at: Callable[[float], Run], here: tuple[float, float], before: tuple[float, float],
               limits: tuple[float, float]) -> tuple[float, tuple[float, float]]:  # fmt: skip
    """The step to where guesses meet the target, if they err as they do here, and further on as much more as since the
    point before; and what guesses say of log delta here, where it is the target's.
    """
    x, off = here
    goal = looks.log_delta(at(x), looks.target.epsilon * math.exp(off))
    root = looks.root(at, x, limits, goal)
    drift = (goal - before[1]) / (x - before[0]) if abs(goal - before[1]) > _FAR_ENOUGH else 0.0
    if root is not None and drift:
        root = looks.root(at, root, limits, goal + drift * (root - x))
    return -off / _SLOPE if root is None else root - x, (x, goal)


def _slope(before: tuple[float, float], here: tuple[float, float], known: float) -> float:
    """Of the chord through two points; what is known so far if they are too close to tell, or odd."""
    width, rise = here[0] - before[0], here[1] - before[1]
    return rise / width if abs(rise) > _FAR_ENOUGH and _SLOPES[0] < rise / width < _SLOPES[1] else known
