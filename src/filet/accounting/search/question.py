"""Questions: epsilons at deltas, or deltas at epsilons, with what is proven of them and where they are looked for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._rounding import RESOLVED, UNDERFLOW
from ..proving.composition import Composition
from ..proving.inversion import DeltaBound, DeltaBracket, EpsilonBracket, Inversion
from ..proving.loss_law import Array
from ..proving.pair import Grid, Pair
from ..proving.pmf import LossPMF
from .effort import EFFORT, TOLERANCE, least_step
from .saddle_point import LossTail, SaddlePoints, moments, saddle_points_at_delta, saddle_points_at_epsilon

Mask = NDArray[np.bool_]
_LONGEST = 0.5 * EFFORT.group  # nats: the longest step of Newton's method
LOWEST_LOG_DELTA = math.log(RESOLVED)  # smaller deltas are not floats after some arithmetic


class EpsilonQuestion:
    """Epsilons at several deltas: what is proven of them, and where they are looked for."""

    exact = False
    levels = EFFORT.levels

    def __init__(self, deltas: Array) -> None:
        self.bracket = EpsilonBracket(deltas)
        self.log_delta: Array = self.bracket.log_delta
        self.epsilon = np.full(deltas.shape, np.nan)
        self.seen: DeltaBound | None = None
        self.follow()

    @property
    def wide(self) -> Mask:
        """The answers that are not narrow enough yet."""
        return np.asarray(TOLERANCE.wide(self.bracket.lower, self.bracket.upper, 0.9))

    @property
    def steepest(self) -> Array:
        """The tilt of a cliff: within a share of the promised width delta becomes negligible."""
        return np.asarray(TOLERANCE.nats / TOLERANCE.least(self.epsilon))

    def part(self, where: Any) -> EpsilonQuestion:
        """Some of the questions."""
        part = EpsilonQuestion(self.bracket.delta[where])
        part.epsilon = self.epsilon[where]
        return part

    def settled_without_contour(self, pair: Pair, grids: list[Grid], pmf: LossPMF) -> Mask:
        """The questions that crude bounds answer, or that no contour can: masses too small to be resolved."""
        self.bracket.crude(pmf, TOLERANCE.tiny)
        return np.asarray((self.bracket.upper <= TOLERANCE.tiny) | (pmf.infinite >= self.bracket.delta))

    def start(self, pmf: LossPMF) -> SaddlePoints:
        """Guesses: Laplace's approximation, or one big jump beside small losses where that is larger."""
        table = saddle_points_at_delta(pmf.whole, self.log_delta)
        guess = table.at_delta(self.log_delta)[0]
        if table.kinked(self.log_delta):
            tail = LossTail.of(pmf)
            rare = tail.rare(float(self.log_delta.min()))
            small = Composition(pmf.blocks, pmf.gaussian, rare)
            table = saddle_points_at_delta(small, self.log_delta)
            jump = tail.one_jump(self.log_delta) + moments(small)[0]
            guess = np.fmax(table.at_delta(self.log_delta)[0], jump)
        self.epsilon = np.maximum(guess, TOLERANCE.tiny)
        return table

    def again(self, upper: Array) -> EpsilonQuestion:
        """The same questions, looked for at epsilons that were proven of the other order."""
        again = EpsilonQuestion(self.bracket.delta)
        again.epsilon = upper
        return again

    def shown(self, inversion: Inversion, enough: Array) -> Mask:
        """The questions whose answer is proven to be at most `enough`, by one reading there."""
        self.bracket.read(inversion, enough)
        return np.asarray(self.bracket.upper <= enough * (1.0 + 1e-10))

    def below_the_cliff(self) -> EpsilonQuestion:
        """The same questions, as far below what is proven as is promised: delta may fall as from a cliff."""
        below, upper = EpsilonQuestion(self.bracket.delta), self.bracket.upper
        below.epsilon = np.maximum(upper - 0.8 * TOLERANCE.promised(upper), 0.0)
        return below

    def follow(self) -> None:
        """Begin to follow the answer from contour to contour: nothing is known of its range yet."""
        self._low, self._high = np.full(self.epsilon.shape, -np.inf), np.full(self.epsilon.shape, np.inf)

    def read(self, inversion: Inversion) -> float:
        """Newton's method within what readings have shown; returned is the longest way, in units of the tilt."""
        start = self.epsilon
        for _ in range(EFFORT.readings):
            seen = self.bracket.read(inversion, self.epsilon)
            known = (seen.bound > 0.0) & ((seen.error <= 0.01 * seen.bound) | (self.epsilon == start))
            ratio = np.where(known, seen.bound, 1.0)
            self._low = np.where(known & (ratio > 1.0), np.maximum(self._low, self.epsilon), self._low)
            self._high = np.where(known & (ratio <= 1.0), np.minimum(self._high, self.epsilon), self._high)
            step = self._newton(ratio, seen.slope, _LONGEST / min(one.c for one in inversion.contours))
            done = ~known | self._settled(inversion, ratio, step)
            if done.all():
                break
            self.epsilon = np.where(done, self.epsilon, self._stepped(step, 1.0 if inversion.above else -1.0))
        if inversion.above:
            self.seen = seen
        return float(np.max(np.abs(self.epsilon - start))) * inversion.c

    def read_below(self, inversion: Inversion) -> None:
        """Read a contour, which was read from above, from below as well: about where what is taken off leaves delta.

        Where more is taken off than the promised width, that would prove too little.
        """
        assert self.seen is not None
        start, seen = self.epsilon, self.seen
        off = 1.0 - seen.bound + seen.added + 2.0 * seen.error
        below = start - off / np.maximum(-seen.slope, UNDERFLOW) - TOLERANCE.least(start)
        if not TOLERANCE.wide(below, start).all():
            self.epsilon = np.where((below > 0.0) & (below < start), below, start)
            self.follow()
            self.read(inversion)
            self.epsilon = start

    def _newton(self, ratio: Array, slope: Array, longest: float) -> Array:
        """The way to the answer, from delta over its goal and the slope: the root of -log delta is nearly linear."""
        goal, flat = -self.log_delta, ~(slope < 0.0)
        here = goal - np.log(ratio)
        straight = 2.0 * (here - np.sqrt(goal * np.maximum(here, 0.0)))
        step = np.where(here > 0.0, straight, -np.log(ratio)) * ratio / np.where(flat, -1.0, slope)
        step = np.where(flat, np.copysign(longest, ratio - 1.0), step)
        return np.asarray(np.clip(step, -longest, longest))

    def _settled(self, inversion: Inversion, ratio: Array, step: Array) -> Mask:
        """The questions of which this contour proves nearly all that it can."""
        close = np.abs(step) <= 5.0 * least_step(self.epsilon)
        if inversion.above:
            return np.asarray((ratio <= 1.0) & (close | (self.epsilon == 0.0)))
        return np.asarray((ratio >= 1.0) & (np.abs(step) <= 2.0 * TOLERANCE.least(self.epsilon)))

    def _stepped(self, step: Array, side: float) -> Array:
        """The next epsilons: halfway where a step leaves what is known."""
        after = self.epsilon + step + side * least_step(self.epsilon)
        left = (after <= self._low) | (after >= self._high)
        after = np.where(left, 0.5 * (self._low + self._high), after)
        return np.asarray(np.where(np.isfinite(after), np.maximum(after, 0.0), self.epsilon))


class DeltaQuestion:
    """Deltas at several epsilons: what is proven of them, and about how large they are."""

    exact = True
    levels = EFFORT.levels // 2  # a wide delta is not refused
    steepest = math.inf

    def __init__(self, epsilons: Array) -> None:
        self.bracket = DeltaBracket(epsilons)
        self.epsilon = epsilons
        self.log_delta = np.full(epsilons.shape, -EFFORT.group)

    @property
    def wide(self) -> Mask:
        far = self.bracket.upper <= math.exp(LOWEST_LOG_DELTA)
        return np.asarray(TOLERANCE.wide_delta(self.bracket.lower, self.bracket.upper) & ~far)

    def part(self, where: Any) -> DeltaQuestion:
        part = DeltaQuestion(self.epsilon[where])
        part.log_delta = self.log_delta[where]
        return part

    def settled_without_contour(self, pair: Pair, grids: list[Grid], pmf: LossPMF) -> Mask:
        self.bracket.crude(pmf)
        if float(self.log_delta.max()) > -0.5:
            self.bracket.crude(pair.pmf(grids, above=False, negligible=0.0))
        return ~self.wide

    def start(self, pmf: LossPMF) -> SaddlePoints:
        table, tail = saddle_points_at_epsilon(pmf.whole, self.epsilon), LossTail.of(pmf)
        guess = table.at_epsilon(self.epsilon)[0]
        jump = np.log(np.maximum(tail.own_delta(self.epsilon), UNDERFLOW))
        decides = (jump < 0.0) & tail.one_jump_decides(self.epsilon, jump, pmf.gaussian)
        self.log_delta = np.clip(np.where(decides, jump, guess), LOWEST_LOG_DELTA, -1e-3)
        return table

    def again(self, upper: Array) -> DeltaQuestion:
        again = DeltaQuestion(self.epsilon)
        again.log_delta = np.clip(np.log(np.maximum(upper, UNDERFLOW)), LOWEST_LOG_DELTA, -1e-3)
        return again

    def shown(self, inversion: Inversion, enough: Array) -> Mask:
        self.bracket.read(inversion, self.log_delta)
        return np.asarray(self.bracket.upper <= enough)

    def below_the_cliff(self) -> DeltaQuestion:
        return self

    def follow(self) -> None:
        """Nothing to keep: epsilon is given."""

    def read_below(self, inversion: Inversion) -> None:
        self.read(inversion)

    def read(self, inversion: Inversion) -> float:
        """One reading; returned is how far the size of delta was off, in nats."""
        before = self.log_delta
        self.bracket.read(inversion, self.log_delta)
        if inversion.above:
            upper = np.log(np.maximum(self.bracket.upper, UNDERFLOW))
            self.log_delta = np.clip(np.minimum(before, upper), LOWEST_LOG_DELTA, -1e-3)
        return float(np.max(np.abs(self.log_delta - before)))


Question = EpsilonQuestion | DeltaQuestion
