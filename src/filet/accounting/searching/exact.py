"""Answers of runs that have a closed form: a Gaussian mechanism, or one step, whose profile is known."""

from __future__ import annotations

import math

import numpy as np

from ..._rounding import CLOSED_FORM_ERROR
from ..proving.closed_form import ClosedForm, Gaussian, OneStep
from ..proving.hull import HullStep
from ..proving.loss_law import Array
from ..proving.verdict import EpsilonBracket
from ..terms import Bounds
from .budget import Budget
from .crossings import crossings
from .guesses import gaussian_epsilon
from .lending_looks import Laws
from .refinement import LOWEST_LOG_DELTA, Direction, bucket

_CLOSE = 1e-11  # of epsilon: how far from a guess a closed form is read
_FIRST = np.geomspace(1e-12, 1e18, 121)
_AROUND = np.geomspace(1e-12, 0.3, 28)  # of a bracket: how far from where the answer should be it is looked for
_SPREAD = np.linspace(0.0, 1.0, 17)[1:-1]  # of a bracket, wherever the answer may be
_BELOW = np.append(10.0 ** -(2.0 ** np.arange(9.0)), 0.0)  # of a bracket from 0: epsilons may be as small as p
_NARROW = 1e-11  # the relative width at which a bracket is narrow enough
_ROUNDS = 40
_SAME_SIZE = 0.05  # of log delta: nodes for the one serve the other
_SIZES = 4  # looks for the size of a delta
_NEIGHBOURS = 4  # points that say where it should be


class Exact:
    """The same questions to a run that has a closed form."""

    def __init__(self, form: ClosedForm) -> None:
        self.form = form

    def deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Lower and upper bounds of delta at several epsilons."""
        return self.form.delta_bounds(epsilons)

    def delta(self, epsilon: float) -> Bounds:
        lower, upper = self.form.delta_bounds(np.array([epsilon]))
        return Bounds(float(lower[0]), float(upper[0]))

    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float:
        return self.delta(epsilon).upper

    def at_most(self, epsilon: float, delta: float) -> bool:
        return self.delta(epsilon).upper <= delta

    def epsilon(self, delta: float) -> Bounds:
        """Bracket of epsilon(delta): look at ever closer points around where delta crosses the goal."""
        if isinstance(self.form, Gaussian):
            guess, slope = gaussian_epsilon(self.form.shifts[1], delta)
            around = guess * _CLOSE - 4.0 * CLOSED_FORM_ERROR / min(slope, -1e-300)
            found = self.form.bracket(delta, max(guess - around, 0.0), guess + around)
            if found.upper - found.lower <= 1e-6 * found.upper:
                return found
        bracket, points, before = EpsilonBracket(delta), _FIRST, None
        seen = deltas = np.empty(0)
        for _ in range(_ROUNDS):
            seen, deltas = np.append(seen, points), np.append(deltas, bracket.read_exact(self.form, points))
            low, high = bracket.bounds
            settled = high - low <= _NARROW * high if high < math.inf else low > 0.0
            if settled or (before and _stuck(before, low, high)):
                break
            before = bracket.bounds
            points = _between(low, high, _meeting(seen, deltas, delta))
        return bracket.bounds


def _stuck(before: Bounds, low: float, high: float) -> bool:
    """Whether a bracket has hardly shrunk, so that rounding hides the rest; from 0 on its upper end alone can move."""
    if low == 0.0:
        return not high < before.upper * (1.0 - _NARROW)
    return before.lower > 0.0 and high - low > 0.5 * (before.upper - before.lower)


def _between(low: float, high: float, about: float) -> Array:
    """Where to look next: all over a bracket, and ever closer to where the answer should be."""
    if low == 0.0:
        spread = np.append(min(high, 1.0) * _SPREAD, min(high, _FIRST[0]) * _BELOW)
    else:
        spread = low * (high / low) ** _SPREAD if high > 2.0 * low else low + (high - low) * _SPREAD
    # no number is no proposal
    found = np.concatenate([spread, about - (high - low) * _AROUND, about + (high - low) * _AROUND])
    return found[(found >= low) & (found < high)]


def _meeting(points: Array, deltas: Array, goal: float) -> float:
    """About where delta meets the goal: by a polynomial in its logarithm through the points nearest to it."""
    logs = np.log(deltas / goal)  # no number is no proposal
    nearest = np.argsort(np.abs(logs))[:_NEIGHBOURS]
    shares = logs[nearest, None] / np.subtract.outer(logs[nearest], logs[nearest])
    np.fill_diagonal(shares, 1.0)
    return float(points[nearest] @ shares.prod(axis=0))


class OneStepAnswers:
    """The same questions to a run of one step, whose profile is known: that of its law, or of lending where it is less."""

    def __init__(self, direction: Direction) -> None:
        self._direction = direction

    def exact(self, log_delta: float, highest: float | None = None) -> Exact:
        """The profile for questions about a delta, or about all deltas up to a `highest`."""
        if self._direction.parts[0].step is None:
            return self._plain
        (seen,) = self._direction.look(log_delta, highest)
        return Exact(HullStep(seen.forward)) if isinstance(seen, Laws) else self._plain

    @property
    def _plain(self) -> Exact:
        """Without lending."""
        return Exact(OneStep(self._direction.parts[0].law, crossings))

    def epsilon(self, delta: float) -> Bounds:
        plain, best = self._plain, self.exact(math.log(delta))
        found = best.epsilon(delta)
        if isinstance(best.form, HullStep) and plain.at_most(found.upper, delta):
            found = _smaller(plain.epsilon(delta), found)
        return found

    def delta(self, epsilon: float) -> Bounds:
        lower, upper = self.deltas(np.array([epsilon]))
        return Bounds(float(lower[0]), float(upper[0]))

    def deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Lower and upper bounds of delta at several epsilons."""
        plain = found = self._plain.deltas(epsilons)
        if self._direction.parts[0].step is None:
            return plain
        seen, one = 0.0, epsilons.size == 1
        for _ in range(_SIZES):  # what lending gives is made for deltas of one size, which it may lower by far
            size, high = (
                float(np.log(max(end, math.exp(LOWEST_LOG_DELTA)))) for end in (found[1].min(), plain[1].max())
            )
            low = size if one else bucket(size)
            if abs(low - seen) < _SAME_SIZE or high <= LOWEST_LOG_DELTA:
                break
            lent = self.exact(low, None if one else high).deltas(epsilons)
            found, seen = (np.minimum(plain[0], lent[0]), np.minimum(plain[1], lent[1])), low
        return found

    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float:
        return self.delta(epsilon).upper

    def at_most(self, epsilon: float, delta: float) -> bool:
        return self.exact(math.log(delta)).at_most(epsilon, delta)


def _smaller(plain: Bounds, lent: Bounds) -> Bounds:
    return Bounds(min(plain.lower, lent.lower), min(plain.upper, lent.upper))
