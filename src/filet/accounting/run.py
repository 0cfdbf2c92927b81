"""A run: phases and Gaussian releases under one adjacency, in both directions, behind one interface."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from .proving.closed_form import Gaussian
from .proving.combining import added, chance, exposed, squared_shift, union_cost, worse
from .proving.theorems import lending_step, loss_law
from .searching.budget import Budget
from .searching.crowds import MANY, Crowd
from .searching.exact import Exact, OneStepAnswers
from .searching.lending_shares import lenders
from .searching.refinement import Direction, Part
from .terms import Adjacency, Analysis, Bounds, Phase

_FAR = 1e12
_CHANCE_ERROR = 1e-11  # relative, of the logarithm of a chance that is multiplied by numbers of steps
_NEVER = Bounds(0.0, 0.0)
# Extreme parameters overflow on the way to an answer or a refusal; what comes out is checked, so nobody needs warnings.
_QUIET = np.errstate(over="ignore", divide="ignore", invalid="ignore")


class Answers(Protocol):
    """One direction of a run."""

    def epsilon(self, delta: float) -> Bounds: ...
    def delta(self, epsilon: float) -> Bounds: ...
    def quick_delta(self, epsilon: float, budget: Budget | None = None) -> float: ...
    def at_most(self, epsilon: float, delta: float) -> bool: ...


class Run:
    """What phases and Gaussian releases cost together, under one adjacency.

    `overflow` bounds the chance that any batch overflows (union strategy), `exposure` the chance that some step without
    noise shows the example.
    """

    def __init__(self, phases: Sequence[Phase], releases: Sequence[tuple[float, int]], adjacency: Adjacency) -> None:
        """`releases` are Gaussian releases: noise multiplier and number."""
        gaussian = [release for release in releases if release[0] > 0.0]
        parts: list[Part] = []
        overflow, exposure = 0.0, math.inf if len(gaussian) < len(releases) else 0.0
        for phase in phases:
            if phase.steps == 0 or phase.noise_multiplier == math.inf:
                continue
            overflow += phase.overflow_exponent
            if phase.noise_multiplier == 0.0:
                exposure += phase.exposure_exponent
            elif phase.only_gaussian:
                # every example at every step: a Gaussian mechanism, of sensitivity 2 under replace-one
                apart = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
                gaussian.append((phase.noise_multiplier / apart, phase.rounds))
            else:
                parts.append(part_of(phase, adjacency))
        self.overflow, self.exposure = (chance(one, _CHANCE_ERROR) if one else _NEVER for one in (overflow, exposure))
        self.directions = _directions(parts, squared_shift(gaussian), symmetric=adjacency is Adjacency.REPLACE_ONE)

    def see_as(self, other: Run) -> None:
        """Take over what a run of the same phases, with other numbers of steps, has looked at, where that serves."""
        for one, same in zip(self.directions, other.directions, strict=False):
            if isinstance(one, Direction) and isinstance(same, Direction):
                one.see_as(same)

    @_QUIET
    def epsilon(self, delta: float) -> Bounds:
        """Bounds of epsilon(delta)."""
        if self.exposure.lower > delta:
            return Bounds(math.inf, math.inf)
        if self.exposure.upper >= delta:
            return Bounds(0.0, 0.0) if self.exposure.upper == delta and not self.directions else Bounds(0.0, math.inf)
        if self.overflow.upper == 0.0 and self.exposure.upper == 0.0:
            return self._worst_epsilon(delta)
        if self.overflow.upper == 0.0:
            upper = self.plain_epsilon(delta - self.exposure.upper).upper
            return Bounds(min(self.plain_epsilon(delta).lower, upper), upper)
        return Bounds(self._union(delta, upper=False), self._union(delta - self.exposure.upper, upper=True))

    @_QUIET
    def delta(self, epsilon: float) -> Bounds:
        """Bounds of delta(epsilon)."""
        if epsilon > _FAR:  # delta falls in epsilon; sums of squares would overflow further out
            return Bounds(self.exposure.lower, self.delta(_FAR).upper if not self.overflow.upper else 1.0)
        if not self.directions:
            return self._whole(Bounds(0.0, 0.0), epsilon)
        best = self.directions[0].delta(epsilon)
        for other in self.directions[1:]:
            if not (best.upper > 0.0 and other.at_most(epsilon, best.upper)):
                best = worse([best, other.delta(epsilon)])
        return self._whole(best, epsilon)

    @_QUIET
    def delta_each(self, epsilon: float) -> list[Bounds]:
        """Bounds of delta(epsilon) in each direction; one if both have the same."""
        if not self.directions:
            return [self.delta(epsilon)]
        return [self._whole(direction.delta(epsilon), epsilon) for direction in self.directions]

    def _whole(self, part: Bounds, epsilon: float) -> Bounds:
        return exposed(added(part, union_cost(self.overflow, epsilon)), self.exposure)

    @_QUIET
    def quick_delta(self, epsilon: float) -> float:
        """An upper bound of delta(epsilon), within a few percent, some ten times faster than the certified bounds."""
        delta = max((direction.quick_delta(epsilon) for direction in self.directions), default=0.0)
        return self._whole(Bounds(0.0, delta), epsilon).upper

    @_QUIET
    def at_most(self, epsilon: float, delta: float) -> bool:
        """Whether epsilon(delta) <= epsilon is proven by a quick look; False means "not known"."""
        spare = delta - self.exposure.upper - union_cost(self.overflow, epsilon).upper
        return spare > 0.0 and all(direction.at_most(epsilon, spare) for direction in self.directions)

    @_QUIET
    def plain_epsilon(self, delta: float) -> Bounds:
        """Bounds of epsilon(delta) without overflows and exposure."""
        return self._worst_epsilon(delta)

    def _worst_epsilon(self, delta: float) -> Bounds:
        if not self.directions:
            return Bounds(0.0, 0.0)
        best = self.directions[0].epsilon(delta)
        for other in self.directions[1:]:
            if not (0.0 < best.upper < math.inf and other.at_most(best.upper, delta)):
                best = worse([best, other.epsilon(delta)])
        return best

    def _union(self, delta: float, *, upper: bool) -> float:
        """The smallest epsilon with delta_poisson(epsilon) + (1 + e^epsilon) overflow <= delta.

        The iteration climbs to it from below; from above, a last check makes the bound proven.
        """
        epsilon = 0.0
        for turn in range(100):
            cost = union_cost(self.overflow, epsilon)
            rest = delta - (cost.upper if upper else cost.lower)
            if not rest > 0.0:
                return math.inf
            bounds = self.plain_epsilon(rest)
            new = bounds.upper if upper else bounds.lower
            if new <= epsilon or (not upper and new - epsilon <= 1e-6 * max(epsilon, 0.1)):
                return max(epsilon, new)
            small = turn > 60 or new - epsilon <= 1e-6 * max(epsilon, 0.1)
            epsilon = new + (1e-5 * max(epsilon, 0.1) if small else 0.0)
        return math.inf if upper else epsilon


def part_of(phase: Phase, adjacency: Adjacency) -> Part:
    """One step of a phase by the theorems of its analysis; the refined one adds what lending proves."""
    scheme, sigma = phase.scheme, phase.noise_multiplier
    law = loss_law(scheme, sigma, adjacency, phase.analysis)
    refined = phase.analysis is Analysis.REFINED
    step = lending_step(scheme, sigma, adjacency, lenders(scheme.max_batch_size, sigma)) if refined else None
    return Part(law, phase.rounds, step)


def _directions(parts: list[Part], gaussian: Bounds, *, symmetric: bool) -> list[Answers]:
    """Both orders of the neighbours, or one if the other is the same; the closed form where there is one."""
    if not parts:
        return [Exact(Gaussian(*gaussian))] if gaussian.upper else []
    forward = Crowd(parts, gaussian) if len(parts) >= MANY else Direction(parts, gaussian)
    both = [forward] if symmetric else [forward, forward.reversed()]
    if forward.steps == 1 and not gaussian.upper:
        return [OneStepAnswers(one) for one in both]
    return list(both)
