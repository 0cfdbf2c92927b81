"""Answers of runs that have a closed form: a Gaussian mechanism, or one step, whose profile is known."""

from __future__ import annotations

import math

import numpy as np

from ..._rounding import CLOSED_FORM_ERROR
from ..proving.closed_form import ClosedForm, HullStep, OneStep
from ..proving.loss_law import Array
from ..proving.verdict import EpsilonBracket
from ..terms import Bounds
from .budget import Budget
from .guesses import gaussian_epsilon
from .lending_looks import Laws
from .refinement import LOWEST_LOG_DELTA, Direction, bucket

_CLOSE = 1e-11  # of epsilon: how far from a guess a closed form is read
_SPREAD = 65  # points of one look at a closed form, which cost little more than one
_NEARER = np.geomspace(1e-8, 0.1, 50)  # of a bracket: how far from where the answer should be


class Exact:
    """The same questions to a run that has a closed form."""

    def __init__(self, form: ClosedForm, shift: float = math.nan) -> None:
        """`shift` is that of a Gaussian mechanism, if it is one."""
        self.form, self._shift = form, shift

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
        bracket = EpsilonBracket(delta)
        if self._shift > 0.0:
            guess, slope = gaussian_epsilon(self._shift, delta)
            around = guess * _CLOSE - 4.0 * CLOSED_FORM_ERROR / min(slope, -1e-300)
            bracket.read_exact(self.form, np.maximum([guess - around, guess + around], 0.0))
            if bracket.upper - bracket.lower <= 1e-6 * bracket.upper:
                return bracket.bounds
        points = np.append(0.0, np.geomspace(1e-12, 1e18, 2 * _SPREAD))
        for _ in range(40):
            deltas = bracket.read_exact(self.form, points)
            low, high = bracket.lower, bracket.upper
            if not (0.0 < high < math.inf) or high - low <= 1e-9 * high:
                break
            points = _between(points, deltas, low, high, delta)
            if not points.size:
                break
        return bracket.bounds


def _between(points: Array, deltas: Array, low: float, high: float, goal: float) -> Array:
    """Where to look next: all over a bracket, and ever closer to where delta meets the goal if its logarithm is a line."""
    ratio = high / low if low > 0.0 else math.inf
    spread = np.geomspace(low, high, _SPREAD) if 2.0 < ratio < math.inf else np.linspace(low, high, _SPREAD)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.interp([low, high], points, deltas) / goal)
        about = low + (high - low) * logs[0] / (logs[0] - logs[1])
    near = about + (high - low) * np.append(-_NEARER, _NEARER) if math.isfinite(about) else spread
    found = np.unique(np.concatenate([spread, near]))
    return found[(found > low) & (found < high)]


class OneStepAnswers:
    """The same questions to a run of one step, whose profile is known: that of its law, or of lending where it is less."""

    def __init__(self, direction: Direction) -> None:
        self._direction = direction

    def exact(self, log_delta: float, highest: float | None = None) -> Exact:
        """The profile for questions about a delta, or about all deltas up to a `highest`."""
        (seen,) = self._direction.look(log_delta, highest)
        return Exact(HullStep(seen.forward)) if isinstance(seen, Laws) else self._plain

    @property
    def _plain(self) -> Exact:
        """Without lending."""
        return Exact(OneStep(self._direction.parts[0].law))

    def epsilon(self, delta: float) -> Bounds:
        plain, best = self._plain, self.exact(math.log(delta))
        found = best.epsilon(delta)
        if isinstance(best.form, HullStep) and plain.at_most(found.upper, delta):
            found = _smaller(plain.epsilon(delta), found)
        return found

    def delta(self, epsilon: float) -> Bounds:
        plain = self._plain.delta(epsilon)
        if plain.upper <= math.exp(LOWEST_LOG_DELTA) or self._direction.parts[0].step is None:
            return plain
        return _smaller(plain, self.exact(bucket(math.log(plain.upper))).delta(epsilon))

    def deltas(self, epsilons: Array) -> tuple[Array, Array]:
        """Lower and upper bounds of delta at several epsilons."""
        plain = self._plain.deltas(epsilons)
        sizes = np.log(np.maximum(plain[1], math.exp(LOWEST_LOG_DELTA)))
        if self._direction.parts[0].step is None or sizes.max() <= LOWEST_LOG_DELTA:
            return plain
        lent = self.exact(bucket(float(sizes.min())), float(sizes.max())).deltas(epsilons)
        return np.minimum(plain[0], lent[0]), np.minimum(plain[1], lent[1])

    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float:
        return self.delta(epsilon).upper

    def at_most(self, epsilon: float, delta: float) -> bool:
        return self.exact(math.log(delta)).at_most(epsilon, delta)


def _smaller(plain: Bounds, lent: Bounds) -> Bounds:
    return Bounds(min(plain.lower, lent.lower), min(plain.upper, lent.upper))
