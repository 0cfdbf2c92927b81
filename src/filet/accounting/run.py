"""Both directions of a composed run, and the cases that have a closed form, behind one interface."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from .proving.cells import UNDERFLOW
from .proving.closed_form import gaussian_log_delta
from .proving.loss_law import Array, LossLaw
from .proving.theorems import loss_law
from .searching.engine import Interval, Run, contradiction
from .terms import Adjacency, Phase

_FAR = 1e12
_CLOSED_FORM_ERROR = 1e-9  # relative rounding error of closed-form deltas, generously
# Extreme parameters overflow on the way to an answer or a refusal; what comes out is checked, so nobody needs warnings.
_QUIET = np.errstate(over="ignore", divide="ignore", invalid="ignore")


class Composite:
    """A run: loss laws with steps, a Gaussian part, and what makes it special.

    `symmetric`: both directions have the same losses. `exposed`: some step has no noise. `overflow`: the chance that
    any batch overflows, which the union strategy adds to delta, times 1 + e^epsilon.
    """

    def __init__(self, laws: list[tuple[LossLaw, int]], gaussian: float, *, symmetric: bool, exposed: bool,
                 overflow: float) -> None:  # fmt: skip
        self.exposed = exposed or math.isinf(gaussian)
        self.overflow = overflow * (1 + 1e-9)
        self.directions: list[_Direction] = []
        if not self.exposed and (laws or gaussian):
            forward = Run(laws, gaussian)
            runs = [forward] if symmetric or not laws else [forward, forward.reversed()]
            self.directions = [_direction(run) for run in runs]

    def epsilon(self, delta: float) -> Interval:
        if self.exposed:
            return Interval(math.inf, math.inf)
        if self.overflow == 0.0:
            return self._plain_epsilon(delta)
        return Interval(self._union(delta, upper=False), self._union(delta, upper=True))

    def delta(self, epsilon: float) -> Interval:
        if self.exposed:
            return Interval(0.0, 1.0)
        if epsilon > _FAR:  # delta falls in epsilon; sums of squares would overflow further out
            return Interval(0.0, self.delta(_FAR).upper) if not self.overflow else Interval(0.0, 1.0)
        parts = [direction.delta(epsilon) for direction in self.directions]
        extra = self.overflow * (1.0 + math.exp(min(epsilon, 700.0))) if self.overflow else 0.0
        lower = max((part.lower for part in parts), default=0.0)
        upper = max((part.upper for part in parts), default=0.0)
        if self.overflow and epsilon > 700.0:
            return Interval(lower, 1.0)
        return Interval(min(1.0, lower + extra * (1 - 1e-8)), min(1.0, upper + extra))

    def _plain_epsilon(self, delta: float) -> Interval:
        if not self.directions:
            return Interval(0.0, 0.0)
        best = self.directions[0].epsilon(delta)
        for other in self.directions[1:]:
            if best.lower > 0.0 and other.at_most(best.lower, delta):
                continue
            bracket = other.epsilon(delta)
            best = Interval(max(best.lower, bracket.lower), max(best.upper, bracket.upper))
        return best

    def _union(self, delta: float, *, upper: bool) -> float:
        """The smallest epsilon with delta_poisson(epsilon) + (1 + e^epsilon) overflow <= delta.

        The iteration climbs to it from below; from above, a last check makes the bound proven.
        """
        epsilon = 0.0
        overflow = self.overflow if upper else self.overflow * (1 - 1e-8)
        for _ in range(60):
            rest = delta - (1.0 + math.exp(min(epsilon, 700.0))) * overflow
            if rest <= 0.0:
                return math.inf
            bracket = self._plain_epsilon(rest)
            new = max(epsilon, bracket.upper if upper else bracket.lower)
            if new - epsilon <= 1e-6 * max(epsilon, 0.1):
                epsilon = new
                break
            epsilon = new
        if not upper:
            return epsilon
        for _ in range(40):
            rest = delta - (1.0 + math.exp(min(epsilon, 700.0))) * self.overflow
            if rest <= 0.0:
                return math.inf
            if self._plain_epsilon(rest).upper <= epsilon:
                return epsilon
            epsilon += 1e-5 * max(epsilon, 0.1)
        return math.inf

    def power(self, false_positive_rate: float) -> float:
        """Largest true positive rate: the smallest delta(epsilon) + e^epsilon rate over a table, for either null."""
        if self.exposed:
            return 1.0
        if not self.directions:
            return false_positive_rate
        tables = self._tables
        forward, backward = tables[0], tables[-1]
        powers = []
        for one, other in ((forward, backward), (backward, forward)):
            best = 1.0
            for epsilon, delta in one:  # e^epsilon >= 1
                best = min(best, delta + math.exp(epsilon) * false_positive_rate)
            for epsilon, delta in other:  # thresholds below 1: H_{1/b}(P||Q) = 1 - 1/b + H_b(Q||P) / b
                best = min(best, 1.0 - math.exp(-epsilon) * (1.0 - delta) + math.exp(-epsilon) * false_positive_rate)
            powers.append(best)
        return max(powers)

    @cached_property
    def _tables(self) -> list[list[tuple[float, float]]]:
        """Upper bounds of delta at thresholds that matter, for each direction."""
        top = min(self._plain_epsilon(1e-12).upper, 600.0)
        middle = self._plain_epsilon(0.3).upper
        grid = np.unique(
            np.concatenate(
                [[0.0], np.linspace(0.0, min(max(2 * middle, top / 8), 600.0), 33), np.linspace(0.0, top, 33)]
            )
        )
        extra = self.overflow
        return [
            [(float(e), min(1.0, d.quick_delta(float(e)) + extra * (1.0 + math.exp(e)))) for e in grid]
            for d in self.directions
        ]


class _Direction:
    """One direction: a function for each question."""

    def __init__(self, epsilon: Callable[[float], Interval], delta: Callable[[float], Interval],
                 quick_delta: Callable[[float], float], at_most: Callable[[float, float], bool]) -> None:  # fmt: skip
        self.epsilon, self.delta, self.quick_delta, self.at_most = (
            _QUIET(epsilon), _QUIET(delta), _QUIET(quick_delta), _QUIET(at_most)
        )  # fmt: skip


def _direction(run: Run) -> _Direction:
    if not run.laws:
        return _closed_form(partial(gaussian_log_delta, math.sqrt(run.gaussian)))
    if run.steps == 1 and not run.gaussian:
        return _one_step(run)
    return _Direction(run.epsilon, run.delta, run.quick_delta, run.at_most)


def _one_step(run: Run) -> _Direction:
    """The profile itself; the discrete laws say where to look."""
    law = run.laws[0]
    lost = law.lost + UNDERFLOW
    relative = 1e-12 + 20 * law.weight_error

    def bounds(epsilon: Array) -> tuple[Array, Array]:
        value, error = law.profile_and_error(epsilon)
        return value * (1 - relative) - error, np.minimum(value * (1 + relative) + error + lost, 1.0)

    def delta(epsilon: float) -> Interval:
        lower, upper = bounds(np.array([epsilon]))
        return Interval(max(0.0, float(lower[0])), float(upper[0]))

    def epsilon(goal: float) -> Interval:
        bracket = run.one_step(goal)
        low, high = bracket.lower * (1 - 1e-9), bracket.upper * (1 + 1e-9)
        if not math.isfinite(high) or high == 0.0:
            return Interval(low, high)
        for _ in range(4):
            grid = np.linspace(low, high, 65)
            lower, upper = bounds(grid)
            if (upper <= goal).any():
                high = min(high, float(grid[upper <= goal].min()))
            if (lower >= goal).any():
                low = max(low, float(grid[lower >= goal].max()))
            if high - low <= 1e-10 * high:
                break
        if low > high:
            raise contradiction("epsilon", low, high, f"delta={goal!r}")
        return Interval(low, high)

    return _Direction(epsilon, delta, lambda e: delta(e).upper, lambda e, d: delta(e).upper <= d)


def _closed_form(log_delta: Callable[[float], float]) -> _Direction:
    """Answers from an exact log delta(epsilon), widened by its rounding error."""
    error = _CLOSED_FORM_ERROR

    def delta(epsilon: float) -> Interval:
        value = math.exp(log_delta(epsilon))
        return Interval(value * (1 - error), min(1.0, value * (1 + error) + 5e-324))

    def solve(goal: float) -> float:
        """The epsilon >= 0 at which log delta falls to the goal, from above to a part in 1e13."""
        if log_delta(0.0) <= goal:
            return 0.0
        low, high = 0.0, 1.0
        while log_delta(high) > goal:
            low, high = high, 2.0 * high
            if high > 1e18:
                return math.inf
        for _ in range(200):
            middle = 0.5 * (low + high)
            if high - low <= 1e-13 * high or middle in (low, high):
                break
            low, high = (middle, high) if log_delta(middle) > goal else (low, middle)
        return high

    def epsilon(goal: float) -> Interval:
        lower, upper = (solve(math.log(goal) + sign * 2 * error) for sign in (1, -1))
        return Interval(lower * (1 - 1e-12), upper)

    return _Direction(epsilon, delta, lambda e: delta(e).upper, lambda e, d: delta(e).upper <= d)


BEYOND_FLOATS = (ZeroDivisionError, OverflowError, FloatingPointError)


def composed(phases: list[Phase], gaussian: float, adjacency: Adjacency) -> Composite:
    laws: list[tuple[LossLaw, int]] = []
    exposed = False
    exponent = 0.0
    for phase in phases:
        if phase.steps == 0 or phase.noise_multiplier == math.inf:
            continue
        exponent += phase.overflow_exponent
        if phase.noise_multiplier == 0.0:
            exposed = True
        elif phase.only_gaussian:
            shift = (2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0) / phase.noise_multiplier
            gaussian += phase.rounds * shift * shift  # a product, as a power raises where it overflows
        else:
            laws.append((loss_law(phase.scheme, phase.noise_multiplier, adjacency, phase.analysis), phase.rounds))
    return Composite(laws, gaussian, symmetric=adjacency is Adjacency.REPLACE_ONE, exposed=exposed,
                     overflow=-math.expm1(-exponent))  # fmt: skip
