"""What is proven: the only place where a bound becomes a fact.

A search proposes views (cells), lines (tilts, shifts, periods, caps) and epsilons. `Evidence.delta_bound` turns a
proposal into a certified bound of delta, and the two brackets keep the best that was proven. Whatever is proposed, what
they hold is true: a poor proposal leaves them wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..._rounding import SUM_ERROR, down, exp_or_unknown, finite_or_unknown, up, where
from ...errors import NotCertifiedError
from ..terms import Bounds
from .closed_form import ClosedForm
from .composition import Composition
from .line import Line, LinePlan
from .loss_law import Array
from .view import View


class Verdict(NamedTuple):
    """A certified bound of delta(epsilon) over a given delta; its slope in epsilon; how much of it is error; how much smoothing
    and splitting have added, at most.

    From above, `bound` is an upper bound, from below a lower one; NaN if nothing is proven. Numbers, or arrays of them.
    """

    bound: Any
    slope: Any
    error: Any
    added: Any = 0.0


class Evidence:
    """Lines through the transform of a view that add up to its delta, and a bound of the part that no line covers.

    Without caps there is one line. With some, the sums without a loss above the first have a line,
    and for each cap those with exactly one above the first, which lies above that cap and not above the next; those with
    more are covered by their chance. Proof: engine.md#rare-large-losses
    """

    def __init__(self, view: View, plans: Sequence[LinePlan], *caps: float) -> None:
        self.view, self.caps = view, sorted(cap for cap in caps if cap < math.inf)
        self.above, self.resolved, self.moved = view.above, view.resolved, 0.0
        parts, self.uncovered = [view.whole], 0.0
        if self.caps:
            first, ends = self.caps[0], [*self.caps, math.inf]
            jumps = [Composition(view.blocks, view.gaussian, first, True, band) for band in pairwise(ends)]
            parts = [Composition(view.blocks, view.gaussian, first), *jumps]
            self.uncovered = 0.5 * view.chance_above(first) ** 2 * (1 + SUM_ERROR)
        self.lines = [Line(part, plan) for part, plan in zip(parts, plans, strict=True)]
        self.c = max(line.c for line in self.lines)
        self.nodes = max(line.u.size for line in self.lines)

    def from_below(self) -> Evidence:
        """What lines through a view from above prove from below: what its cells added is taken off.

        Proof: engine.md#what-splitting-adds
        """
        below = copy(self)
        known = not self.view.cells or all(line.both_ways for line in self.lines)
        below.resolved = known and self.view.firm and not (self.view.gaussian or self.caps)
        below.above, below.moved = False, sum(steps * cells.moved for cells, steps in self.view.cells)
        return below

    def delta_bound(self, epsilon: Any, log_delta: Any) -> Verdict:
        """Certified bound of delta(epsilon) over e^log_delta, point by point. Proof: engine.md#what-is-proven"""
        above = self.above
        rest = (self.view.infinite + self.uncovered if above else self.moved) / np.exp(log_delta)
        bound: Any = rest if above else -rest
        slope, error, added = 0.0 * rest, rest, 0.0 * rest
        for line in self.lines:
            # Above: the profile is convex in e^epsilon, so a random shift with mean factor 1 can only raise it.
            # Below: what smoothing added is bounded and taken off (`excess`), or the whole shift is.
            e = epsilon - line.drift if above else epsilon if line.curved else epsilon + line.s
            e = e - self.view.slack if above else e + self.view.slack
            reading = line.read(e)
            scale = exp_or_unknown(line.log_unit(e) - log_delta)
            off = reading.error if above else -reading.error - reading.alias - reading.excess
            bound = bound + scale * (reading.value + off)
            slope, added = slope + scale * reading.slope, added + scale * reading.excess
            error = error + scale * (reading.error + reading.alias)
        # where aliases are not bounded, nothing is proven
        return Verdict(finite_or_unknown(bound), slope, error, added)


def proves(evidence: Evidence, epsilon: float, log_delta: float) -> bool:
    """Whether delta(epsilon) is proven to be at most e^log_delta (evidence from above), or at least that (from below).

    Proof: engine.md#what-is-proven
    """
    return bool(_settles(evidence, evidence.delta_bound(epsilon, log_delta).bound))


def _settles(evidence: Evidence, bound: Any) -> Any:
    if evidence.above:
        return (bound > 0.0) & (bound <= 1.0)  # a bound that is not positive has lost all its digits
    return (bound >= 1.0) & evidence.resolved


class _Bracket:
    """What is proven of one number or several, asked for at others. Only its own methods narrow it."""

    def __init__(self, what: str, most: float, at: str, where: Any) -> None:
        self._words = what, at, where
        self.lower: Any = np.zeros(np.shape(where))[()]
        self.upper: Any = np.full(np.shape(where), most)[()]

    def _keep(self, lower: Any = -np.inf, upper: Any = np.inf) -> None:
        self.lower, self.upper = np.fmax(self.lower, lower), np.fmin(self.upper, upper)  # a NaN says nothing
        if (crossed := self.lower > self.upper).any():  # that proves a defect: nothing may be returned
            (what, at, where), first = self._words, np.argmax(crossed)
            one, low, high = (float(np.ravel(each)[first]) for each in (where, self.lower, self.upper))
            raise NotCertifiedError(f"the bounds {low!r} and {high!r} of {what} at {at}={one!r} contradict each other; "
                                    "please report these parameters")  # fmt: skip

    @property
    def bounds(self) -> Bounds:
        return Bounds(float(self.lower), float(self.upper))


class EpsilonBracket(_Bracket):
    """What is proven of epsilon(delta) in one direction, for one delta or several. Proof: engine.md#what-is-proven"""

    def __init__(self, delta: Any) -> None:
        super().__init__("epsilon", np.inf, "delta", delta)
        self.delta, self.log_delta = delta, np.log(delta)

    def read(self, evidence: Evidence, epsilon: Any) -> Verdict:
        """Look at one epsilon (for each delta), keep what that proves, and say what was seen."""
        verdict = evidence.delta_bound(epsilon, self.log_delta)
        proven = (epsilon >= 0.0) & _settles(evidence, verdict.bound)
        if evidence.above:
            self._keep(upper=where(proven, up(epsilon), np.inf))
        else:
            self._keep(lower=where(proven, down(epsilon), 0.0))
        return verdict

    def crude(self, view: View, tiny: float) -> None:
        """Keep what is proven without any transform; epsilons up to `tiny` are looked for by basic composition.

        Proof: engine.md#crude-bounds
        """
        if not view.above:
            return
        self._keep(upper=np.where(view.distance <= self.delta, 0.0, np.inf)[()])
        self._keep(upper=np.where(view.infinite <= self.delta, up(view.largest), np.inf)[()])
        if not view.gaussian:
            goal = tiny
            while goal > tiny * 1e-4 and np.any(own := view.separate(np.array([goal / view.steps]))[0] <= self.delta):
                self._keep(upper=np.where(own, goal, np.inf)[()])
                goal *= 0.5

    def chernoff(self, view: View) -> None:
        """Keep Chernoff's bound, far from tight but always finite. Proof: engine.md#crude-bounds"""
        if view.above:
            self._keep(upper=view.chernoff_epsilon(self.log_delta))

    def read_exact(self, form: ClosedForm, epsilons: Array) -> Array:
        """Look at several epsilons of a closed form (one row, or one for each delta), and keep what they prove; upper bounds there."""
        goal = np.asarray(self.delta)[..., None]
        lower, upper = (one.reshape(epsilons.shape) for one in form.delta_bounds(epsilons.ravel()))
        self._keep(upper=np.where(upper <= goal, epsilons, np.inf).min(axis=-1))
        self._keep(lower=np.where(lower >= goal, epsilons, 0.0).max(axis=-1))
        return upper


class DeltaBracket(_Bracket):
    """What is proven of delta(epsilon) in one direction, for one epsilon or several. Proof: engine.md#what-is-proven"""

    def __init__(self, epsilon: Any) -> None:
        super().__init__("delta", 1.0, "epsilon", epsilon)
        self.epsilon = epsilon

    def read(self, evidence: Evidence, log_delta: Any) -> None:
        """Keep what the evidence proves; `log_delta` is about the answer, and only sets the scale."""
        value = evidence.delta_bound(self.epsilon, log_delta).bound * np.exp(log_delta)
        value = np.where(value > 0.0, value, np.nan)[()]  # a bound that is not positive, or NaN, says nothing
        if evidence.above:
            self._keep(upper=up(value))
        elif evidence.resolved:
            self._keep(lower=down(value))

    def crude(self, view: View) -> None:
        """Keep what is proven without any transform. Proof: engine.md#crude-bounds"""
        if view.above:
            own = view.separate(np.ravel(self.epsilon) / view.steps).reshape(np.shape(self.epsilon))
            self._keep(upper=np.fmin(view.chernoff_delta(self.epsilon), own))
        else:
            self._keep(lower=view.floor_delta(self.epsilon))
