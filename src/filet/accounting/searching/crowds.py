"""Runs of very many phases, such as one noise a step: a few phases stand for all of them in the search.

What is proven looks at every phase. Where to look (cells, nodes, shares, lines) is found for the few, and their neighbours
take it over: any such proposal is valid for any phase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..proving.cells import Cells, cut
from ..proving.line import LinePlan
from ..proving.loss_law import Array, LossLaw
from ..proving.verdict import EpsilonBracket, Evidence, proves
from ..proving.view import View
from ..terms import Bounds
from .budget import Budget
from .grids import equal_cells, fitted_cells
from .guesses import focus
from .lending_crowds import model
from .lending_shares import Laws, Query
from .newton import narrow
from .refinement import Direction, Look, Part, wide
from .tilts import propose_evidence

MANY = 32  # phases from which it pays
_MOST_GROUPS = 40
# Phases within this are alike: in the logarithm of the noise, in that of the rate, in deviations of the batch size.
_ALIKE = np.array([0.06, 0.2, 0.25])
_FARTHEST = 8.0  # deviations beyond which a cap is simply far away
_LEAST = 1e-3  # epsilons below it are left to the general search
_CELLS = 300  # of a law that lends nothing
_LEVELS = 2  # of finer cells
_SPARE = 2e-3  # relative: how far the few may be off


def _features(part: Part) -> Array:
    """Where a phase stands among others, in units of what makes a difference."""
    far = max(abs(mean) for piece in part.law.pieces for mean in piece.means)
    cap = _FARTHEST
    if part.step:
        n, p = part.step.n, part.step.p
        cap = min(max((part.step.cap - n * p) / math.sqrt(n * p * (1.0 - p)), -_FARTHEST), _FARTHEST)
    return np.array([math.log(far), math.log(max(part.law.difference, 1e-300)), cap]) / _ALIKE


def groups(parts: Sequence[Part]) -> list[list[int]]:
    """Phases that are alike, by their numbers, each group with its middle one first: the widest is split again and again."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for number, part in enumerate(parts):
        shape = tuple((len(piece.means), piece.low == -math.inf, piece.high == math.inf) for piece in part.law.pieces)
        kinds.setdefault((part.step is None, len(part.law.atoms), shape), []).append(number)
    at = np.array([_features(part) for part in parts])
    found = [np.array(kind) for kind in kinds.values()]
    while len(found) < _MOST_GROUPS:
        widths = [float(np.ptp(at[one], axis=0).max()) for one in found]
        widest = int(np.argmax(widths))
        if widths[widest] <= 1.0:
            break
        one = found.pop(widest)
        by = at[one, int(np.argmax(np.ptp(at[one], axis=0)))]
        low = by <= 0.5 * (by.min() + by.max())
        found += [one[low], one[~low]]
    return [_middle_first(one, at[one]) for one in found]


def _middle_first(numbers: Array, at: Array) -> list[int]:
    away = np.abs(at - 0.5 * (at.min(axis=0) + at.max(axis=0))).max(axis=1)
    return [int(number) for number in numbers[np.argsort(away, kind="stable")]]


class Few(Direction):
    """The phases that stand for their groups, each with all the steps of its group, seen as somebody else has decided."""

    def __init__(self, parts: Sequence[Part], gaussian: Bounds, seen: Look) -> None:
        super().__init__(parts, gaussian)
        self._seen = seen

    def look(self, log_delta: float, highest: float | None = None) -> Look:
        return self._seen

    def fitted(self, epsilon: float, log_delta: float, cells: int) -> Look:
        """Cells fitted to where the answer lies."""
        evidence = propose_evidence(self.view(self._seen, above=True), epsilon, log_delta, 1.0)
        where = focus(evidence, epsilon, cells)
        return [one if isinstance(one, Laws) else fitted_cells(one, where) for one in self._seen]


class Crowd(Direction):
    """Very many parts of a run, in one order of the neighbours."""

    def __init__(self, parts: Sequence[Part], gaussian: Bounds, mirror: Crowd | None = None) -> None:
        super().__init__(parts, gaussian, mirror)
        self._other = mirror
        self._groups = mirror._groups if mirror else groups(self.parts)
        self._lent_last: tuple[float, list[Laws | None]] = math.nan, []

    def reversed(self) -> Crowd:
        """The run with P and Q exchanged."""
        parts = [Part(part.law.reversed(), part.steps, part.step) for part in self.parts]
        return Crowd(parts, self.gaussian, self)

    def look(self, log_delta: float, highest: float | None = None) -> Look:
        """Each part by lending or in equal cells: what the general search starts from."""
        reach = self._reach(log_delta)
        return [lent or equal_cells(part.law, reach, 0.2)
                for lent, part in zip(self._lend(log_delta), self.parts, strict=True)]  # fmt: skip

    def _lend(self, log_delta: float) -> list[Laws | None]:
        """What lending gives for each part, None where it does not help; the last answer is kept."""
        known, made = self._lent_last
        if known == log_delta:
            return made
        known, made = self._other._lent_last if self._other else (math.nan, made)
        if known == log_delta:
            made = [one and one.reversed() for one in made]
        else:
            made = [None] * len(self.parts)
            for group in self._groups:
                self._lend_group(group, Query(self.steps, log_delta), made)
        self._lent_last = log_delta, made
        return made

    def _lend_group(self, group: list[int], query: Query, made: list[Laws | None]) -> None:
        steps = [step for number in group if (step := self.parts[number].step)]
        found = model(steps[0], query) if steps else None
        if found:
            for number, law in zip(group, found.laws(steps, query), strict=True):
                made[number] = law.reversed() if law and self._other else law

    def _few(self, log_delta: float) -> Few:
        """The first of each group, with the group's steps."""
        lent, reach = self._lend(log_delta), self._reach(log_delta)
        parts, seen = [], Look()
        for group in self._groups:
            first = self.parts[group[0]]
            parts.append(Part(first.law, sum(self.parts[number].steps for number in group)))
            seen.append(lent[group[0]] or equal_cells(first.law, reach, 0.1))
        return Few(parts, self.gaussian, seen)

    def _all(self, few: Look, log_delta: float) -> Look:
        """Every part as the first of its group is seen."""
        lent = self._lend(log_delta)
        seen = Look(lent)
        for one, group in zip(few, self._groups, strict=True):
            for number in group:
                law = self.parts[number].law
                if lent[number] is None:
                    alike = isinstance(one, Cells)
                    seen[number] = _alike(one, law) if alike else equal_cells(law, self._reach(log_delta), 0.05)
        return seen

    def epsilon(self, delta: float) -> Bounds:
        """Bracket of epsilon(delta)."""
        bracket, budget = EpsilonBracket(delta), Budget()
        few = self._few(bracket.log_delta)
        guess = few.epsilon(delta)
        if wide(guess) or not _LEAST < guess.upper < math.inf:
            return super().epsilon(delta)
        for level in range(_LEVELS):
            cells = few.fitted(guess.upper, bracket.log_delta, _CELLS * 2**level)
            every = self._all(cells, bracket.log_delta)
            for above in (True, False):
                view = self.view(every, above=above)
                first = propose_evidence(few.view(cells, above=above), guess.upper, bracket.log_delta, 2.0**level)
                narrow(bracket, view, min(guess.upper, bracket.upper), 2.0**level, budget, _like(first, view))
            if not wide(bracket, 0.9):
                return bracket.bounds
        general = super().epsilon(delta)
        return Bounds(max(general.lower, bracket.lower), min(general.upper, bracket.upper))

    def at_most(self, epsilon: float, delta: float) -> bool:
        """Whether epsilon(delta) <= epsilon is proven by a quick look; False means "not known"."""
        log_delta = math.log(delta)
        few = self._few(log_delta)
        if not few.at_most(epsilon * (1.0 + _SPARE), delta):
            return False
        cells = few.fitted(epsilon, log_delta, _CELLS)
        view = self.view(self._all(cells, log_delta), above=True)
        first = propose_evidence(few.view(cells, above=True), epsilon, log_delta, 1.0)
        return proves(_like(first, view), epsilon, log_delta)


def _alike(cells: Cells, law: LossLaw) -> Cells:
    """A law in the cells of one like it: those of an interval with an end move with that end."""
    edges = []
    for one, piece in zip(cells.cuts, law.pieces, strict=True):
        inner, move = one.x[1:-1], 0.0
        if math.isfinite(one.x[0]) != math.isfinite(one.x[-1]):
            move = piece.low - one.x[0] if math.isfinite(one.x[0]) else piece.high - one.x[-1]
        edges.append(inner + move)
    return cut(law, edges)


def _like(evidence: Evidence, view: View) -> Evidence:
    """The lines of another run, for this one."""
    plans = [LinePlan(line.c, line.s, line.beta, line.period, line.tilts) for line in evidence.lines]
    return Evidence(view, plans, evidence.lines[0].composition.cap)
