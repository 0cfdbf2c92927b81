"""About what a run of one phase costs: guesses for planning, a millisecond each. Nothing rests on them.

A saddle-point approximation on coarse cells or a sketch, without any transform. What truncated batches lend is worked out for one noise
and rate, and taken over to those nearby.
"""

from __future__ import annotations

import math

import numpy as np

from ..errors import NotCertifiedError
from .proving.cells import Discrete, discretise_below
from .proving.closed_form import gaussian_log_delta
from .proving.combining import chance, union_cost
from .proving.lending import Step
from .proving.loss_law import Array, LossLaw
from .proving.view import View
from .run import part_of
from .searching.grids import equal_cells
from .searching.guesses import guess_log_delta, saddle
from .searching.lending_crowds import Model, model, one_way_model
from .searching.lending_looks import Laws, Query, look
from .searching.refinement import Part
from .searching.sketches import Sketch, guess_at_delta, points_of, sketch_law
from .terms import Adjacency, Phase

_WIDTH = 0.2  # of cells, in deviations
_NEAR = 0.3  # in the logarithms of noise and rate: as far as one step's lending serves another
_NODES, _FINE = 300, 0.06  # of a close look: nodes of what is lent, or the distance of points
_SMOOTHING = 1e-5  # of epsilon, of lines that are only looked at
_POLISH = 2  # steps of Newton's method
_QUIET = np.errstate(all="ignore")


class Rough:
    """Guesses of log delta at an epsilon, for runs at about one delta; one object for the questions of one search."""

    def __init__(self, adjacency: Adjacency, log_delta: float, *, quick: bool = False) -> None:
        """`quick` guesses leave out what is lent, and take a sketch of the losses in place of cells: good enough where
        certified epsilons follow. Compared with each other, such guesses were seen to mislead a plan by half a per cent.
        """
        self._adjacency, self._log_delta, self._quick = adjacency, log_delta, quick
        self._models: list[tuple[tuple[float, ...], Model]] = []
        self._close: list[tuple[tuple[float, ...], Model]] = []  # on more nodes, one way
        self._seen: tuple[Phase, list[View]] | None = None
        self._last: tuple[Step, Discrete | None] | None = None
        self._tilts = [1.0, 1.0]

    @_QUIET
    def log_delta(self, phase: Phase, epsilon: float) -> float:
        """About log delta(epsilon); infinite where nothing is known."""
        overflow = union_cost(chance(phase.overflow_exponent, 0.0), epsilon).upper
        if phase.only_gaussian:
            apart = 2.0 if self._adjacency is Adjacency.REPLACE_ONE else 1.0
            log_delta = gaussian_log_delta(apart * math.sqrt(phase.rounds) / phase.noise_multiplier, epsilon)
        else:
            try:
                log_delta = max(self._guess(way, view, epsilon) for way, view in enumerate(self._views(phase)))
            except (ArithmeticError, ValueError, IndexError, NotCertifiedError):
                return math.inf
        return float(np.logaddexp(log_delta, math.log(overflow))) if overflow > 0.0 else log_delta

    @_QUIET
    def epsilon(self, phase: Phase) -> float:
        """About epsilon at the delta of this object, by a sketch of the direction that decides, as a rule, with a close look at what
        is lent; NaN if it does not say. Ten times as good as `log_delta`, and three times as slow.
        """
        if phase.only_gaussian or phase.overflow_exponent:
            return math.nan
        try:
            part = part_of(phase, self._adjacency)
            law = self._lent_law(part.step, Query(part.steps, self._log_delta)) if part.step else None
            row = (law.loss, law.log_mass) if law else _sketch(part.law, self._reach(part), _FINE)
            sketch = Sketch.of([row], np.array([float(part.steps)]), 0.0)
            guess = guess_at_delta(sketch, sketch.tables(self._log_delta)[0], self._log_delta, _SMOOTHING, 0.0)
        except (ArithmeticError, ValueError, IndexError, NotCertifiedError):
            return math.nan
        return guess.epsilon if guess else math.nan

    def _lent_law(self, step: Step, query: Query) -> Discrete | None:
        """What lending gives in the direction of the pair; the last is kept, and serves any number of steps."""
        if self._last is None or self._last[0] != step:
            found = self._model(step, query, one_way=True)
            self._last = step, found.law(step, query) if found else None
        return self._last[1]

    def _guess(self, way: int, view: View, epsilon: float) -> float:
        """One direction's log delta; the search for its saddle point starts where the last one has ended."""
        self._tilts[way] = saddle(view.whole, epsilon, self._tilts[way])
        return guess_log_delta(view, epsilon, _POLISH, self._tilts[way])

    def _views(self, phase: Phase) -> list[View]:
        """Both directions, or the one that there is; the last are kept."""
        if self._seen is None or self._seen[0] != phase:
            self._seen = phase, self._made(part_of(phase, self._adjacency))
        return self._seen[1]

    def _made(self, part: Part) -> list[View]:
        lent = self._lent(part)
        if lent:
            laws = [lent.forward, lent.reverse]
        else:
            reach = self._reach(part)
            laws = _sketched(part.law, reach) if self._quick else _in_cells(part.law, reach)
        both = laws[:1] if self._adjacency is Adjacency.REPLACE_ONE else laws
        return [View([(law, part.steps)], 0.0, True) for law in both]

    def _reach(self, part: Part) -> float:
        """Beyond this many standard deviations no loss matters."""
        return math.sqrt(2.0 * (math.log(part.steps) - self._log_delta + 10.0))

    def _lent(self, part: Part) -> Laws | None:
        """What lending gives, by the nearest step that was looked at."""
        if part.step is None or self._quick:
            return None
        query = Query(part.steps, self._log_delta)
        found = self._model(part.step, query, one_way=False)
        return found.laws([part.step], query)[0] if found else None

    def _model(self, step: Step, query: Query, *, one_way: bool) -> Model | None:
        """That of the nearest step that was looked at."""
        at, known = (step.n, step.cap, math.log(step.sigma), math.log(step.p)), self._close if one_way else self._models
        for where, found in known:
            if where[:2] == at[:2] and max(abs(where[2] - at[2]), abs(where[3] - at[3])) < _NEAR:
                return found
        seen = look(step, query)
        made = one_way_model(seen, query, _NODES) if seen and one_way else model(seen, query) if seen else None
        if made:  # nothing is lent at one rate, and much at another that is nearer to the cap
            known.insert(0, (at, made))
        return made


def _in_cells(law: LossLaw, reach: float) -> list[Discrete]:
    cells = equal_cells(law, reach, _WIDTH)
    return [discretise_below(cells), discretise_below(cells.reversed())]


def _sketch(law: LossLaw, reach: float, *width: float) -> tuple[Array, Array]:
    return sketch_law(law, points_of(law, reach, *width))


def _sketched(law: LossLaw, reach: float) -> list[Discrete]:
    loss, log_mass = _sketch(law, reach)
    return [Discrete(loss, log_mass, 0.0, 0.0), Discrete(-loss, log_mass - loss, 0.0, 0.0)]
