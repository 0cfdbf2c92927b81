"""Runs of very many phases, such as one noise a step: a few phases stand for all of them in the search.

What is proven looks at every phase. Where to look (cells, nodes, shares, lines) is found for the few, and their neighbours
take it over: any such proposal is valid for any phase.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..proving.cells import Cells, cut
from ..proving.line import LinePlan
from ..proving.loss_law import Array, LossLaw
from ..proving.verdict import EpsilonBracket, Evidence, proves
from ..proving.view import View
from ..terms import Bounds
from .budget import Budget
from .grids import Focus, equal_cells, fitted_cells, piece_edges
from .guesses import focus
from .lending_crowds import model, nodes_of_one
from .lending_looks import Laws, Query, look
from .newton import narrow
from .refinement import Direction, Look, Part, wide
from .tilts import propose_evidence

MANY = 32  # phases from which it pays
_MOST_GROUPS = 24
# Phases within this are alike: in the logarithm of the noise and of the rate, in deviations of the batch size, and in the
# logarithms of the weights of up to three pieces.
_ALIKE = np.array([0.08, 0.25, 0.8, 2.0, 2.0, 2.0])
_LIGHTEST = -60.0  # of such a logarithm
_FARTHEST = 8.0  # deviations beyond which a cap is simply far away
_LEAST = 1e-3  # epsilons below it are left to the general search
_CELLS = 300  # of a law that lends nothing
_LEVELS = 2  # of finer cells
_GAP, _MOST_GAPS = 0.1, 300  # deviations between cells where a neighbour has none
_SPARE, _NEAR, _LONGER = 2e-3, 0.8, 1.25  # relative: how far the few may be off


def _features(part: Part) -> Array:
    """Where a phase stands among others, in units of what makes a difference."""
    far = max(abs(mean) for piece in part.law.pieces for mean in piece.means)
    cap = _FARTHEST
    if part.step:
        n, p = part.step.n, part.step.p
        cap = min(max((part.step.cap - n * p) / math.sqrt(n * p * (1.0 - p)), -_FARTHEST), _FARTHEST)
    weights = [max(math.log(sum(piece.p) + sum(piece.q)), _LIGHTEST) for piece in part.law.pieces]
    where = [math.log(far), math.log(max(part.law.difference, 1e-300)), cap, *weights[:3], *[0.0] * (3 - len(weights))]
    return np.asarray(np.array(where) / _ALIKE)


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
    """The phases that stand for their groups, each with all the steps of its group, and what they say of the answer."""

    def __init__(self, parts: Sequence[Part], gaussian: Bounds, seen: Look, delta: float) -> None:
        super().__init__(parts, gaussian)
        self._seen, self._goal = seen, math.log(delta)
        bounds = self.epsilon(delta)
        self.useful = not wide(bounds) and _LEAST < bounds.upper < math.inf
        self.guess = bounds.upper

    def look(self, log_delta: float, highest: float | None = None) -> Look:
        return self._seen

    def lines(self, look: Look, epsilon: float, fineness: float, *, above: bool = True) -> Evidence:
        return propose_evidence(self.view(look, above=above), epsilon, self._goal, fineness)

    @cached_property
    def focus(self) -> Focus | None:
        """Which losses matter, if that can be told."""
        return focus(self.lines(self._seen, self.guess, 1.0), self.guess, _CELLS) if self.useful else None

    def fitted(self, cells: int) -> Look:
        """Cells fitted to where the answer lies."""
        where = replace(self.focus, cells=cells) if self.focus else None
        return [fitted_cells(one, where) if where and isinstance(one, Cells) else one for one in self._seen]


class Scouts:
    """What a few phases, one of each group, find out for all of them, at one delta: both directions, and what to lend."""

    def __init__(self, parts: Sequence[Part], found: list[list[int]], gaussian: Bounds, log_delta: float, reach: float):
        self.log_delta, delta = log_delta, math.exp(log_delta)
        query = Query(sum(part.steps for part in parts), log_delta)
        first = [parts[group[0]] for group in found]
        looks = [look(part.step, query) if part.step else None for part in first]
        nodes = nodes_of_one(len(parts))
        rough = [model(seen, query, count=nodes).laws([seen.shares.step], query)[0] if seen else None for seen in looks]
        few = [Part(part.law, sum(parts[number].steps for number in group), part.step)
               for part, group in zip(first, found, strict=True)]  # fmt: skip
        seen = [lent or equal_cells(part.law, reach, 0.1) for lent, part in zip(rough, few, strict=True)]
        self.forward = Few(few, gaussian, seen, delta)
        back = [Part(part.law.reversed(), part.steps, part.step) for part in few]
        self.back = Few(back, gaussian, [one.reversed() for one in seen], delta)
        self.lent: list[Laws | None] = [None] * len(parts)
        for one, group in zip(looks, found, strict=True):
            if one:
                better = model(one, query, self.forward.focus, self.back.focus, nodes)
                steps = [step for number in group if (step := parts[number].step)]
                for number, law in zip(group, better.laws(steps, query), strict=True):
                    self.lent[number] = law


class Crowd(Direction):
    """Very many parts of a run, in one order of the neighbours."""

    def __init__(self, parts: Sequence[Part], gaussian: Bounds, mirror: Crowd | None = None) -> None:
        super().__init__(parts, gaussian, mirror)
        self._other = mirror
        self._groups: list[list[int]] = mirror._groups if mirror else groups(self.parts)
        self._scouts: Scouts | None = None
        self._cells_last: tuple[float, Look] = math.nan, []  # fitted to the answer

    def reversed(self) -> Crowd:
        """The run with P and Q exchanged."""
        parts = [Part(part.law.reversed(), part.steps, part.step) for part in self.parts]
        return Crowd(parts, self.gaussian, self)

    def _scouted(self, log_delta: float) -> Scouts:
        """What the few have found at this delta; the last is kept. (Threads may share a run: it is replaced as a whole.)"""
        if self._other:
            return self._other._scouted(log_delta)
        scouts = self._scouts
        if scouts is None or scouts.log_delta != log_delta:
            scouts = Scouts(self.parts, self._groups, self.gaussian, log_delta, self._reach(log_delta))
            self._scouts = scouts
        return scouts

    def _few(self, log_delta: float) -> Few:
        scouts = self._scouted(log_delta)
        return scouts.back if self._other else scouts.forward

    def _lent_laws(self, log_delta: float) -> list[Laws | None]:
        lent = self._scouted(log_delta).lent
        return [one and one.reversed() for one in lent] if self._other else lent

    def look(self, log_delta: float, highest: float | None = None) -> Look:
        """Each part by lending or in equal cells: what the general search starts from."""
        reach = self._reach(log_delta)
        return [lent or equal_cells(part.law, reach, 0.2)
                for lent, part in zip(self._lent_laws(log_delta), self.parts, strict=True)]  # fmt: skip

    def _all(self, few: Look, log_delta: float) -> Look:
        """Every part as the first of its group is seen."""
        seen, made = self._lent_laws(log_delta), dict[int, Cells]()
        for one, group in zip(few, self._groups, strict=True):
            for number in group:
                law = self.parts[number].law
                if seen[number] is None and isinstance(one, Cells):
                    made[number] = _alike(one, law)
                elif seen[number] is None:
                    made[number] = equal_cells(law, self._reach(log_delta), 0.05)
        return [lent or made[number] for number, lent in enumerate(seen)]

    def epsilon(self, delta: float) -> Bounds:
        """Bracket of epsilon(delta)."""
        bracket, budget = EpsilonBracket(delta), Budget()
        few = self._few(bracket.log_delta)
        if not few.useful:
            return super().epsilon(delta)
        for level in range(_LEVELS):
            cells = few.fitted(_CELLS * 2**level)
            every = self._all(cells, bracket.log_delta)
            self._cells_last = bracket.log_delta, every
            above, below = (self.view(every, above=above) for above in (True, False))
            lines = _like(few.lines(cells, few.guess, 2.0**level), above, _LONGER)
            _, lines = narrow(bracket, above, min(few.guess, bracket.upper), 2.0**level, budget, lines)
            if bracket.upper < math.inf:
                narrow(bracket, below, bracket.upper, 2.0**level, budget, _like(lines, below))
            if not wide(bracket, 0.9):
                return bracket.bounds
        general = super().epsilon(delta)
        return Bounds(max(general.lower, bracket.lower), min(general.upper, bracket.upper))

    def at_most(self, epsilon: float, delta: float) -> bool:
        """Whether epsilon(delta) <= epsilon is proven by a quick look; False means "not known"."""
        log_delta = math.log(delta)
        few = self._few(log_delta)
        if not few.useful:
            return few.guess <= _LEAST and super().at_most(epsilon, delta)
        if few.guess > epsilon * (1.0 + _SPARE):
            return False
        # far above the answer there is little to read
        at = epsilon if few.guess > _NEAR * epsilon else math.sqrt(few.guess * epsilon)
        known, cells = self._other._cells_last if self._other else (math.nan, [])
        every = [one.reversed() for one in cells]  # good enough for a quick look, if they are for this delta
        every = every if known == log_delta else self._all(few.fitted(_CELLS), log_delta)
        view = self.view(every, above=True)
        if view.infinite <= delta and view.largest <= epsilon:
            return True
        return proves(_like(few.lines(few.look(log_delta), at, 1.0), view, _LONGER), at, log_delta)


def _alike(cells: Cells, law: LossLaw) -> Cells:
    """A law in the cells of one like it, with some more where its interval ends further out."""
    edges = []
    for one, piece in zip(piece_edges(cells), law.pieces, strict=True):
        x = np.sort(cells.x[one])
        inner = x[1:-1]
        for end, own in ((x[0], piece.low), (x[-1], piece.high)):
            if math.isfinite(end) and math.isfinite(own) and abs(own - end) > _GAP:
                inner = np.append(inner, np.arange(min(end, own), max(end, own), _GAP)[:_MOST_GAPS])
        edges.append(inner)
    return cut(law, edges)


def _like(evidence: Evidence, view: View, longer: float = 1.0) -> Evidence:
    """The lines of another run, for this one, whose losses may reach a little further."""
    plans = [LinePlan(line.c, line.s, line.beta, line.period * longer, line.tilts) for line in evidence.lines]
    return Evidence(view, plans, *evidence.caps)
