"""The straight way to an answer: a sketch says where it lies, one set of cells and one line from each side prove it.

Whoever finds the result too wide, or gets none, takes the long way (`refinement`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ParamSpec, Protocol, TypeVar

import numpy as np

from ..proving.cells import Cells
from ..proving.line import LinePlan
from ..proving.loss_law import LossLaw
from ..proving.verdict import DeltaBracket, EpsilonBracket, Evidence, proves
from ..proving.view import View
from .budget import Budget
from .lending_looks import Laws
from .newton import settle
from .sketches import (
    Guess,
    Points,
    Sketch,
    guess_at_delta,
    guess_at_epsilon,
    guess_near_epsilon,
    log_needs,
    points_of,
    sketch_discrete,
    sketch_law,
    sketched_cells,
)
from .tilts import WIDEST_SHIFT

_P = ParamSpec("_P")
_T = TypeVar("_T")
MOST_PHASES = 8
LEAST_STEPS = 5
_LEAST_EPSILON = 1e-4  # below it lines are long, and crude bounds may do
_SMOOTHING = 5e-6  # share of epsilon that smoothing may cost from above
_AMPLITUDE, _NODES = 12.0, 3e4  # of lines that are read without a second thought
_INFINITE = 1e-3  # of delta: the most that infinite losses may take
_BELOW = math.sqrt(3.0)  # over the shift from above: what smoothing costs is taken off where it is bounded
_FINER = 2.0  # cells of a delta, over those of an epsilon, which is less sensitive
_USUAL = -25.0  # log delta: where it is less, a delta is more sensitive still
_NO_TILTS = np.zeros(0)
_DELTA = 1e-3  # the promised relative width of a delta bracket
_NARROW = 0.1  # gap between the log deltas of the two directions: a sketch is off by some of it
_WIDE = 2.0  # shift of a line that needs few digits, times its tilt
_SHORTER, _FEWER = 0.7, 6.0  # share of the period, and what is taken off beta, of such a line
_CHORDS = 4e-4  # of epsilon: what cells may have added, for one line to be read from both sides


class Part(Protocol):
    """One phase."""

    @property
    def law(self) -> LossLaw: ...
    @property
    def steps(self) -> int: ...


class Run(Protocol):
    """A run in one direction, as the long way has it."""

    @property
    def parts(self) -> Sequence[Part]: ...
    @property
    def cells(self) -> int: ...

    def view(self, look: list[Cells | Laws], *, above: bool) -> View: ...


Guesses = tuple[Guess, Guess | None]


@dataclass(frozen=True)
class Drawn:
    """What a sketch led to: the answer that it suggests, the same for the other direction, and cells."""

    log_delta: float
    guess: Guess
    other: Guess | None
    cells: list[Cells | Laws]


def _sketchy(method: Callable[_P, _T | None]) -> Callable[_P, _T | None]:
    """What is beyond floats in a sketch is left to the long way."""

    @functools.wraps(method)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        try:
            return method(*args, **kwargs)
        except (ArithmeticError, IndexError, ValueError):
            return None

    return wrapped


class Drawing:
    """A sketch of a run; `lent` holds what lending gives for each part, where it helps."""

    def __init__(self, run: Run, lent: Sequence[Laws | None], gaussian: float, reach: float) -> None:
        self.run, self.lent, self._gaussian, self._reach = run, lent, gaussian, reach

    @cached_property
    def points(self) -> list[Points | None]:
        parts = zip(self.run.parts, self.lent, strict=True)
        return [None if law else points_of(part.law, self._reach) for part, law in parts]

    @cached_property
    def sketch(self) -> Sketch:
        rows = []
        for part, law, points in zip(self.run.parts, self.lent, self.points, strict=True):
            if law:
                rows.append(sketch_discrete(law.forward))
            elif points:
                rows.append(sketch_law(part.law, points))
        return Sketch.of(rows, np.array([float(part.steps) for part in self.run.parts]), self._gaussian)

    @_sketchy
    def at_delta(self, log_delta: float, *, both: bool) -> Drawn | None:
        """For epsilon(delta); `both` if the other direction is asked for, too."""
        table, back = self.sketch.tables(log_delta)
        guess = guess_at_delta(self.sketch, table, log_delta, _SMOOTHING)
        if guess is None or guess.epsilon < _LEAST_EPSILON or not _easy(guess):
            return None
        other = guess_at_epsilon(back, guess.epsilon, log_delta, 10 * _SMOOTHING, guess.line) if both else None
        return Drawn(log_delta, guess, other, self._cells(guess, other, self.run.cells))

    @_sketchy
    def at_epsilon(self, epsilon: float, log_delta: float, *, both: bool) -> Guesses | None:
        """For delta(epsilon), which is about the given one, or as far as anybody knows."""
        table, back = self.sketch.tables(log_delta)
        guess = guess_near_epsilon(self.sketch, table, epsilon, _SMOOTHING / _FINER**2)
        if guess is None or not _easy(guess):
            return None
        return guess, guess_at_epsilon(back, epsilon, guess.log_delta, 10 * _SMOOTHING, guess.line) if both else None

    @_sketchy
    def cells(self, guesses: Guesses, finer: float) -> Drawn | None:
        """Cells that are fitted to what was guessed, so many times those of an epsilon."""
        guess, other = guesses
        return Drawn(guess.log_delta, guess, other, self._cells(guess, other, int(self.run.cells * finer)))

    def _cells(self, guess: Guess, other: Guess | None, count: int) -> list[Cells | Laws]:
        made: list[Cells | Laws] = []
        for part, law, points in zip(self.run.parts, self.lent, self.points, strict=True):
            if law is None and points is not None:
                made.append(sketched_cells(part.law, points, log_needs(points, guess, other), count))
            elif law is not None:
                made.append(law)
        return made


def _easy(guess: Guess) -> bool:
    return guess.line.log_amplitude <= _AMPLITUDE and guess.line.nodes <= _NODES


def bracket_epsilon(run: Run, drawn: Drawn, bracket: EpsilonBracket, budget: Budget) -> bool:
    """Narrow a bracket of epsilon from above and from below, if possible by the same line; False if that led nowhere."""
    view = run.view(drawn.cells, above=True)
    if view.infinite > _INFINITE * bracket.delta:
        return False
    evidence = Evidence(view, [_plan(drawn.guess)])
    budget.spend(evidence.nodes)
    found = settle(bracket, evidence, drawn.guess.epsilon)
    if found is None:
        return False
    (epsilon, seen), below = found, evidence.from_below()
    if not below.resolved or _added(evidence, epsilon, bracket.log_delta) > _CHORDS * evidence.c * max(epsilon, 0.1):
        below = _lines_below(run, drawn)
        budget.spend(below.nodes)
    else:
        # about where all of that is taken off
        epsilon += 1.01 * (seen.added + 2.0 * seen.error) / seen.slope - evidence.lines[0].drift - 2.0 * view.slack
    return settle(bracket, below, epsilon) is not None


def _added(evidence: Evidence, epsilon: float, log_delta: float) -> float:
    """About how much of delta cells may have added, as far as the lines tell."""
    return sum(line.excess_error * math.exp(min(line.log_unit(epsilon) - log_delta, 700.0)) for line in evidence.lines)


def bracket_delta(run: Run, drawing: Drawing, guesses: Guesses, bracket: DeltaBracket) -> Drawn | None:
    """Narrow a bracket of delta from above and from below to what is promised; None if that led nowhere."""
    log_delta = guesses[0].log_delta
    finer = _FINER * max(1.0, math.sqrt(log_delta / _USUAL))
    for _ in range(2):
        drawn = drawing.cells(guesses, finer)
        if drawn is None:
            return None
        view, sharper = run.view(drawn.cells, above=True), finer / _FINER
        if view.infinite > 0.1 * _DELTA * math.exp(log_delta):
            return None
        evidence = Evidence(view, [_plan(drawn.guess, sharper=sharper)])
        for one in (evidence, evidence.from_below()):
            bracket.read(one, log_delta)
        if bracket.upper - bracket.lower > _DELTA * bracket.upper:
            bracket.read(_lines_below(run, drawn, sharper), log_delta)
        width = (bracket.upper - bracket.lower) / bracket.upper
        if width <= _DELTA:
            return drawn
        if evidence.delta_bound(bracket.epsilon, log_delta).error > 0.4 * _DELTA:  # finer cells do not help
            return None
        finer *= min(1.3 * math.sqrt(width / _DELTA), 4.0)
    return None


def _plan(guess: Guess, *, sharper: float = 1.0) -> LinePlan:
    return guess.line.plan._replace(shift=guess.line.plan.shift / sharper, both_ways=True)


def _lines_below(run: Run, drawn: Drawn, sharper: float = 1.0) -> Evidence:
    """Lines of the other discretisation: dearer, and tighter where few losses decide."""
    plan = _plan(drawn.guess, sharper=sharper)
    plan = plan._replace(shift=max(plan.shift, min(_BELOW * plan.shift, WIDEST_SHIFT)))
    return Evidence(run.view(drawn.cells, above=False), [plan])


def shows_at_most(run: Run, drawn: Drawn | None, epsilon: float, log_delta: float) -> bool:
    """Whether what was drawn for the other direction proves that epsilon(delta) <= epsilon in this one."""
    if drawn is None or drawn.other is None:
        return False
    if abs(drawn.log_delta - log_delta) > 0.1 or drawn.other.log_delta >= log_delta:
        return False
    view = run.view([one.reversed() for one in drawn.cells], above=True)
    plan, gap = drawn.other.line.plan, log_delta - drawn.other.log_delta
    # smoothing moves log delta by (c s)^2 / beta: some of a wide gap, which saves nodes; aliases do no harm
    shift, short = min(_WIDE, math.sqrt(0.3 * plan.beta * max(gap - _NARROW, 0.0))) / plan.c, plan
    if shift > plan.shift:  # then a per cent more does not matter
        short = plan._replace(shift=shift, period=_SHORTER * plan.period, beta=plan.beta - _FEWER)
    return proves(Evidence(view, [short._replace(tilts=_NO_TILTS, both_ways=False)]), epsilon, log_delta)
