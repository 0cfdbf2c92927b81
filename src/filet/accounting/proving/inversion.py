"""Proven bounds: the only place where a bound becomes a fact.

A search proposes discrete losses (cells), contours (tilts, shifts, periods, caps) and epsilons. `Inversion.delta_bound` turns a
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

from ..._rounding import SUM_ERROR, down, exp_or_unknown, finite_or_unknown, up
from ...errors import NotCertifiedError
from ..terms import Bounds
from .closed_form import ClosedForm
from .composition import Composition
from .contour import Contour, ContourParameters
from .loss_law import Array
from .pmf import LossPMF


class DeltaBound(NamedTuple):
    """A certified bound of delta(epsilon) over a given delta; its slope in epsilon; how much of it is error; how much smoothing
    and splitting have added, at most.

    From above, `bound` is an upper bound, from below a lower one; NaN if nothing is proven. Numbers, or arrays of them.
    """

    bound: Any
    slope: Any
    error: Any
    added: Any = 0.0


class Inversion:
    """Contours through the transform of a composed loss that add up to its delta, and a bound of the part that no contour covers.

    Without caps there is one contour. With some, the sums without a loss above the first have a contour,
    and for each cap those with exactly one above the first, which lies above that cap and not above the next; those with
    more are covered by their chance. Proof: engine.md#rare-large-losses
    """

    def __init__(self, pmf: LossPMF, plans: Sequence[ContourParameters], *caps: float) -> None:
        self.pmf, self.caps = pmf, sorted(cap for cap in caps if cap < math.inf)
        self.above, self.resolved, self.moved = pmf.above, pmf.resolved, 0.0
        parts, self.uncovered = [pmf.whole], 0.0
        if self.caps:
            first, ends = self.caps[0], [*self.caps, math.inf]
            jumps = [Composition(pmf.blocks, pmf.gaussian, first, True, band) for band in pairwise(ends)]
            parts = [Composition(pmf.blocks, pmf.gaussian, first), *jumps]
            self.uncovered = 0.5 * pmf.chance_above(first) ** 2 * (1 + SUM_ERROR)
        self.contours = [Contour(part, plan) for part, plan in zip(parts, plans, strict=True)]
        self.c = max(contour.c for contour in self.contours)
        self.nodes = max(contour.u.size for contour in self.contours)

    def from_below(self) -> Inversion:
        """The same contours, read from below: what the cells of the dominating loss added is taken off.

        Proof: engine.md#what-splitting-adds
        """
        below = copy(self)
        known = not self.pmf.cells or all(contour.both_ways for contour in self.contours)
        below.resolved = known and self.pmf.firm and not (self.pmf.gaussian or self.caps)
        below.above, below.moved = False, sum(steps * cells.moved for cells, steps in self.pmf.cells)
        return below

    def delta_bound(self, epsilon: Any, log_delta: Any) -> DeltaBound:
        """Certified bound of delta(epsilon) over e^log_delta, point by point. Proof: engine.md#what-is-proven"""
        above = self.above
        rest = (self.pmf.infinite + self.uncovered if above else self.moved) / np.exp(log_delta)
        bound: Any = rest if above else -rest
        slope, error, added = 0.0 * rest, rest, 0.0 * rest
        for contour in self.contours:
            # Above: the profile is convex in e^epsilon, so a random shift with mean factor 1 can only raise it.
            # Below: what smoothing added is bounded and taken off (`excess`), or the whole shift is.
            e = epsilon - contour.drift if above else epsilon if contour.curved else epsilon + contour.s
            e = e - self.pmf.slack if above else e + self.pmf.slack
            reading = contour.read(e)
            scale = exp_or_unknown(contour.log_unit(e) - log_delta)
            off = reading.error if above else -reading.error - reading.alias - reading.excess
            bound = bound + scale * (reading.value + off)
            slope, added = slope + scale * reading.slope, added + scale * reading.excess
            error = error + scale * (reading.error + reading.alias)
        # where aliases are not bounded, nothing is proven
        return DeltaBound(finite_or_unknown(bound), slope, error, added)


def proves(evidence: Inversion, epsilon: float, log_delta: float) -> bool:
    """True if delta(epsilon) is proven to be at most e^log_delta (evidence from above), or at least that (from below).

    Proof: engine.md#what-is-proven
    """
    return bool(_settles(evidence, evidence.delta_bound(epsilon, log_delta).bound))


def _settles(evidence: Inversion, bound: Any) -> Any:
    if evidence.above:
        return (bound > 0.0) & (bound <= 1.0)  # a bound that is not positive has lost all its digits
    return (bound >= 1.0) & evidence.resolved


class _Bracket:
    """Proven bounds of one number or several, asked for at others. Only its own methods narrow it."""

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

    def keep_part(self, where: Any, part: _Bracket) -> None:
        """Keep what another bracket holds of some of these numbers. Proof: engine.md#what-is-proven"""
        if not np.array_equal(np.asarray(self._words[2])[where], part._words[2]):
            raise AssertionError("a bracket of other numbers")
        lower, upper = np.full(self.lower.shape, -np.inf), np.full(self.upper.shape, np.inf)
        lower[where], upper[where] = part.lower, part.upper
        self._keep(lower, upper)

    @property
    def bounds(self) -> Bounds:
        return Bounds(float(self.lower), float(self.upper))


class EpsilonBracket(_Bracket):
    """Proven bounds of epsilon(delta) in one direction, for one delta or several. Proof: engine.md#what-is-proven"""

    def __init__(self, delta: Any) -> None:
        super().__init__("epsilon", np.inf, "delta", delta)
        self.delta, self.log_delta = delta, np.log(delta)

    def read(self, evidence: Inversion, epsilon: Any) -> DeltaBound:
        """Look at one epsilon (for each delta), keep what that proves, and say what was seen."""
        verdict = evidence.delta_bound(epsilon, self.log_delta)
        proven = (epsilon >= 0.0) & _settles(evidence, verdict.bound)
        if evidence.above:
            self._keep(upper=np.where(proven, up(epsilon), np.inf))
        else:
            self._keep(lower=np.where(proven, down(epsilon), 0.0))
        return verdict

    def crude(self, pmf: LossPMF, tiny: float) -> None:
        """Keep what is proven without any transform; epsilons up to `tiny` are looked for by basic composition.

        Proof: engine.md#crude-bounds
        """
        if not pmf.above:
            return
        self._keep(upper=np.where(pmf.distance <= self.delta, 0.0, np.inf)[()])
        self._keep(upper=np.where(pmf.infinite <= self.delta, up(pmf.largest), np.inf)[()])
        if not pmf.gaussian:
            goal = tiny
            while goal > tiny * 1e-4 and np.any(own := pmf.separate(np.array([goal / pmf.steps]))[0] <= self.delta):
                self._keep(upper=np.where(own, goal, np.inf)[()])
                goal *= 0.5

    def chernoff(self, pmf: LossPMF) -> None:
        """Keep Chernoff's bound, far from tight but always finite. Proof: engine.md#crude-bounds"""
        if pmf.above:
            self._keep(upper=pmf.chernoff_epsilon(self.log_delta))

    def read_exact(self, form: ClosedForm, epsilons: Array) -> Array:
        """Look at several epsilons of a closed form (one row, or one for each delta), and keep what they prove; upper bounds there."""
        goal = np.asarray(self.delta)[..., None]
        lower, upper = (one.reshape(epsilons.shape) for one in form.delta_bounds(epsilons.ravel()))
        self._keep(upper=np.where(upper <= goal, epsilons, np.inf).min(axis=-1))
        self._keep(lower=np.where(lower >= goal, epsilons, 0.0).max(axis=-1))
        return upper


class DeltaBracket(_Bracket):
    """Proven bounds of delta(epsilon) in one direction, for one epsilon or several. Proof: engine.md#what-is-proven"""

    def __init__(self, epsilon: Any) -> None:
        super().__init__("delta", 1.0, "epsilon", epsilon)
        self.epsilon = epsilon

    def read(self, evidence: Inversion, log_delta: Any) -> None:
        """Keep what the evidence proves; `log_delta` is about the answer, and only sets the scale."""
        value = evidence.delta_bound(self.epsilon, log_delta).bound * np.exp(log_delta)
        value = np.where(value > 0.0, value, np.nan)[()]  # a bound that is not positive, or NaN, says nothing
        if evidence.above:
            self._keep(upper=up(value))
        elif evidence.resolved:
            self._keep(lower=down(value))

    def crude(self, pmf: LossPMF) -> None:
        """Keep what is proven without any transform. Proof: engine.md#crude-bounds"""
        if pmf.above:
            own = pmf.separate(np.ravel(self.epsilon) / pmf.steps).reshape(np.shape(self.epsilon))
            self._keep(upper=np.fmin(pmf.chernoff_delta(self.epsilon), own))
        else:
            self._keep(lower=pmf.floor_delta(self.epsilon))
