"""What is proven: the only place where a bound becomes a fact.

A search proposes views (cells), lines (tilts, shifts, periods, caps) and epsilons. `Evidence.delta_bound` turns a
proposal into a certified bound of delta, and the two brackets keep the best that was proven. Whatever is proposed, what
they hold is true: a poor proposal leaves them wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..._rounding import SUM_ERROR, down, up
from ...errors import NotCertifiedError
from ..terms import Bounds
from .closed_form import ClosedForm
from .composition import Composition
from .line import Line, LinePlan
from .loss_law import Array
from .view import View


@dataclass(frozen=True)
class Verdict:
    """A certified bound of delta(epsilon) over a given delta; its slope in epsilon; the share of it that is error.

    From above, `bound` is an upper bound, from below a lower one; NaN if nothing is proven.
    """

    bound: float
    slope: float
    error: float


class Evidence:
    """Lines through the transform of a view that add up to its delta, and a bound of the part that no line covers.

    Without a cap there is one line. With one, the sums without a loss above it and those with exactly one have a line
    each, and those with more are covered by their chance. Proof: engine.md#rare-large-losses
    """

    def __init__(self, view: View, plans: Sequence[LinePlan], cap: float = math.inf) -> None:
        self.view = view
        if cap == math.inf:
            (plan,) = plans
            self.lines, self.uncovered = [Line(view.whole, plan)], 0.0
        else:
            parts = [Composition(view.blocks, view.gaussian, cap, jump) for jump in (False, True)]
            self.lines = [Line(part, plan) for part, plan in zip(parts, plans, strict=True)]
            self.uncovered = 0.5 * view.chance_above(cap) ** 2 * (1 + SUM_ERROR)
        self.c = max(line.c for line in self.lines)
        self.nodes = max(line.u.size for line in self.lines)

    def delta_bound(self, epsilon: float, log_delta: float) -> Verdict:
        """Certified bound of delta(epsilon) over e^log_delta. Proof: engine.md#what-is-proven"""
        above = self.view.above
        rest = (self.view.infinite + self.uncovered if above else 0.0) / math.exp(log_delta)
        bound, slope, error = rest, 0.0, rest
        for line in self.lines:
            # Above: the profile is convex in e^epsilon, so a random shift with mean factor 1 can only raise it.
            # Below: what smoothing added is bounded and taken off (`excess`), or the whole shift is.
            e = epsilon - line.drift if above else epsilon if line.curved else epsilon + line.s
            e += -self.view.slack if above else self.view.slack
            reading = line.read(e)
            log_scale = line.log_unit(e) - log_delta
            if not log_scale <= 700.0:
                return Verdict(math.nan, math.nan, math.inf)
            scale = math.exp(log_scale)
            off = reading.error if above else -reading.error - reading.alias - reading.excess
            bound += scale * (reading.value + off)
            slope += scale * reading.slope
            error += scale * (reading.error + reading.alias)
        if not math.isfinite(bound):
            return Verdict(math.nan, math.nan, math.inf)
        return Verdict(bound, slope, error)


def proves(evidence: Evidence, epsilon: float, log_delta: float) -> bool:
    """Whether delta(epsilon) is proven to be at most e^log_delta (evidence from above), or at least that (from below).

    Proof: engine.md#what-is-proven
    """
    bound = evidence.delta_bound(epsilon, log_delta).bound
    return _settles(evidence.view, bound)


def _settles(view: View, bound: float) -> bool:
    if view.above:
        return 0.0 < bound <= 1.0  # a bound that is not positive has lost all its digits
    return view.resolved and bound >= 1.0


def contradiction(what: str, lower: float, upper: float, at: str) -> NotCertifiedError:
    """Bounds that cross prove a defect: nothing may be returned."""
    return NotCertifiedError(
        f"the bounds {lower!r} and {upper!r} of {what} at {at} contradict each other; please report these parameters"
    )


class EpsilonBracket:
    """What is proven of epsilon(delta) in one direction. Only its own methods narrow it.

    Proof: engine.md#what-is-proven
    """

    def __init__(self, delta: float) -> None:
        self.delta, self.log_delta = delta, math.log(delta)
        self.lower, self.upper = 0.0, math.inf

    def read(self, evidence: Evidence, epsilon: float) -> Verdict:
        """Look at one epsilon, keep what that proves, and say what was seen."""
        verdict = evidence.delta_bound(epsilon, self.log_delta)
        if epsilon >= 0.0 and _settles(evidence.view, verdict.bound):
            if evidence.view.above:
                self._at_most(up(epsilon))
            else:
                self._at_least(down(epsilon))
        return verdict

    def crude(self, view: View, tiny: float) -> None:
        """Keep what is proven without any transform; epsilons up to `tiny` are looked for by basic composition.

        Proof: engine.md#crude-bounds
        """
        if not view.above:
            return
        if view.distance <= self.delta:
            self._at_most(0.0)
        if view.infinite <= self.delta:
            self._at_most(up(view.largest))
        if not view.gaussian and tiny > 0.0:
            goal = tiny
            while goal > tiny * 1e-4 and float(view.separate(np.array([goal / view.steps]))[0]) <= self.delta:
                self._at_most(goal)
                goal *= 0.5

    def chernoff(self, view: View) -> None:
        """Keep Chernoff's bound, far from tight but always finite. Proof: engine.md#crude-bounds"""
        if view.above:
            self._at_most(view.chernoff_epsilon(self.log_delta))

    def read_exact(self, form: ClosedForm, epsilons: Array) -> None:
        """Look at several epsilons of a closed form, and keep what they prove."""
        lower, upper = form.delta_bounds(epsilons)
        if (upper <= self.delta).any():
            self._at_most(float(epsilons[upper <= self.delta].min()))
        if (lower >= self.delta).any():
            self._at_least(float(epsilons[lower >= self.delta].max()))

    def _at_most(self, epsilon: float) -> None:
        if epsilon < self.upper:
            self.upper = epsilon
            self._check()

    def _at_least(self, epsilon: float) -> None:
        if epsilon > self.lower:
            self.lower = epsilon
            self._check()

    def _check(self) -> None:
        if self.lower > self.upper:
            raise contradiction("epsilon", self.lower, self.upper, f"delta={self.delta!r}")

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.lower, self.upper)


class DeltaBracket:
    """What is proven of delta(epsilon) in one direction. Only its own methods narrow it.

    Proof: engine.md#what-is-proven
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon
        self.lower, self.upper = 0.0, 1.0

    def read(self, evidence: Evidence, log_delta: float) -> None:
        """Keep what the evidence proves; `log_delta` is about the answer, and only sets the scale."""
        value = evidence.delta_bound(self.epsilon, log_delta).bound * math.exp(log_delta)
        if value > 0.0:  # a bound that is not positive, or NaN, says nothing
            if evidence.view.above:
                self.upper = min(self.upper, up(value))
            elif evidence.view.resolved:
                self.lower = max(self.lower, down(value))
        self._check()

    def crude(self, view: View) -> None:
        """Keep what is proven without any transform. Proof: engine.md#crude-bounds"""
        if view.above:
            own = float(view.separate(np.array([self.epsilon / view.steps]))[0])
            self.upper = min(self.upper, view.chernoff_delta(self.epsilon), own)
        else:
            self.lower = max(self.lower, view.floor_delta(self.epsilon))
        self._check()

    def _check(self) -> None:
        if self.lower > self.upper:
            raise contradiction("delta", self.lower, self.upper, f"epsilon={self.epsilon!r}")

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.lower, self.upper)
