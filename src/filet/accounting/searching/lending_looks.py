"""Where to look at what is lent: nodes for `proving.lending`, whether it is worth its time, and the laws that it gives.

Nothing here can make a bound wrong; it decides how tight the bound is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..proving.cells import Discrete
from ..proving.hull import dominating, reverse, vertices
from ..proving.lending import Step, lent_part, part, swap_part
from ..proving.line import log_peak
from ..proving.loss_law import Array
from ..proving.tails import upper
from ..terms import Adjacency
from .grids import Focus, any_of
from .lending_shares import Shares, choose, symmetric

_LEAST_LIGHT = 1e-250  # w and tau below it: cuts never happen, and products lose their digits
_NOISE = (0.1, 1e6)  # with less noise every hit shows; with more nothing does
_RARE = 1e-6  # of delta: what happens this rarely does not matter
_GAIN = 1e-4  # of epsilon: a smaller gain is lost in the width of a bracket
_LOOK = 160  # nodes of the first look
_NODES = 800
_BACK = 0.6  # share of the nodes for the other direction, which rarely decides
_AROUND = 40  # nodes near a loss that may decide alone
_UNRESOLVED = 1e-3  # of delta: the most that infinite losses may take
_STEEPER = 2.0 ** np.arange(0.0, 1.1, 0.25)  # tilts of a second look
_MISLED, _MISLED_FAR = 0.85, 0.97  # over what a first look has said: what is worth another, and in far tails
_FEW = 4  # steps of which one decides
_FAR = -46.0  # log delta that is so small that tails matter
_CLOSE = 1e-7  # nodes, as a share of the smallest loss
_OCTAVES, _QUARTERS = 2.0 ** np.arange(-10.0, 14.0), 2.0 ** np.arange(-0.75, 0.8, 0.25)  # tilts that are tried
_LARGEST_LOSS = 600.0
_TINY = 1e-300


@dataclass(frozen=True)
class Query:
    """A run of `steps` such steps, asked for epsilon at delta, or at all deltas from that to a `highest`."""

    steps: int
    log_delta: float
    highest: float | None = None


def worth_a_look(step: Step, query: Query) -> bool:
    """Whether lending might lower epsilon: there is noise that hides something, and full batches that matter."""
    if not _NOISE[0] <= step.sigma <= _NOISE[1]:
        return False
    if min(step.weights.w, step.weights.tau) < _LEAST_LIGHT or step.weights.error > 1e-6:
        return False
    return math.log(query.steps) + math.log(step.weights.c) > query.log_delta + math.log(_RARE)


def first_nodes(step: Step, query: Query, count: int = _LOOK) -> Array:
    """Equal steps of log((a-1+p)/p), that is of the output where nothing is cut, as far as any step of the run matters."""
    y = 1.0 / step.sigma
    reach = math.sqrt(2.0 * (math.log(query.steps) - query.log_delta + 10.0))
    high = min(2.0 * y * y + 2.0 * reach * y, _LARGEST_LOSS)
    if step.adjacency is Adjacency.REPLACE_ONE:
        above = np.log1p(step.p * np.expm1(np.linspace(0.0, high, count // 2)))
        return np.concatenate([-above[:0:-1], above])
    low, v = -0.5 * y * y - reach * y, step.weights
    t = np.unique(np.concatenate([np.linspace(low, high, count), [0.0]]))
    loss = np.log1p(np.maximum(step.p * np.expm1(t), -1.0 + 1e-15))
    if step.adjacency is Adjacency.ADD_REMOVE:  # swaps at a distance of 2 end at 1 - q, close to 1 - p
        end, far = v.tq / v.tau, 2.0
    else:  # a full batch hides x_1 so well that losses down to that of (1-p) w against w + tq occur
        end, far = v.c / (v.w + v.tq), 1.0
    t = np.linspace(far * (low - 0.5 * far * y * y) - 5.0, 0.0, count // 4)
    loss = np.unique(np.append(loss, np.log1p(np.maximum(end * np.expm1(t), -1.0 + 1e-15))))
    return np.asarray(loss[np.append(True, np.diff(loss) > 1e-15)])


def rare(query: Query) -> float:
    """A chance that does not matter even if every step has it."""
    return math.exp(max(query.log_delta, -640.0) + math.log(_RARE) - math.log(query.steps))


def _enough(loss: Array, value: Array, query: Query) -> tuple[float, float]:
    """The range of losses that matters: up to where no step of the run is likely to be, with room to spare."""
    far = np.flatnonzero(value <= rare(query))
    return float(loss[0]), float(loss[far[0]] if far.size else loss[-1])


def _bounds(law: Discrete, query: Query, tilts: Array) -> Array:
    """Chernoff's bounds of epsilon at several tilts, roughly."""
    v = tilts[:, None] * law.loss + law.log_mass
    peak = v.max(axis=1)
    log_mgf = peak + np.log(np.exp(np.maximum(v - peak[:, None], -600.0)).sum(axis=1))
    return np.asarray((query.steps * log_mgf + log_peak(tilts) - query.log_delta) / tilts)


def _chernoff(law: Discrete, query: Query) -> tuple[float, float]:
    """The tilt of Chernoff's bound, and the epsilon that it proves, roughly; steps of an octave, then of a quarter."""
    tilts = _OCTAVES[int(np.argmin(_bounds(law, query, _OCTAVES)))] * _QUARTERS
    bound = _bounds(law, query, tilts)
    best = int(np.argmin(bound))
    return float(tilts[best]), max(float(bound[best]), 1e-12)


def tilt_focus(law: Discrete, query: Query, cells: int) -> tuple[Focus, float]:
    """Where nodes should be dense if all that is known is Chernoff's tilt, and the epsilon that it proves, roughly."""
    tilt, epsilon = _chernoff(law, query)
    loss = np.array([-epsilon, -query.log_delta / tilt])
    return Focus(cells, loss, np.array([query.log_delta - tilt * epsilon, 0.0])), epsilon


def _coarse(loss: Array, part: Array) -> Discrete:
    """About the law whose profile, nearly convex, has these parts."""
    value = np.where(loss < 0.0, part - np.expm1(np.minimum(loss, 0.0)), part)
    # nodes crowd where losses of the other direction end: between the closest of them slopes would be rounding errors
    known = np.isfinite(value) & np.append(True, np.diff(loss) > _CLOSE * -min(loss[0], 0.0))
    return _law(loss, value) if known.all() else _law(loss[known], value[known])


def _law(loss: Array, value: Array) -> Discrete:
    """The law whose profile has these values, if they are convex; where they are not, it has no mass."""
    width = np.append(np.exp(loss[0]), np.exp(loss[:-1]) * np.expm1(loss[1:] - loss[:-1]))
    slope = np.append(np.diff(value, prepend=1.0) / width, 0.0)
    return Discrete(loss, np.log(np.maximum(slope[1:] - slope[:-1], _TINY)) + loss, 0.0, 0.0)


def fitted_nodes(law: Discrete, focus: Focus, low: float, high: float) -> Array:
    """Nodes fitted to where the answer lies, after a look at the law with other nodes.

    A chord over a width v of losses adds about v^2/8 of the mass between: with a mass I per unit of loss, times its weight,
    the sum over a given number of nodes is smallest if v is proportional to I^(-1/3).
    """
    inside = (law.loss >= low) & (law.loss <= high)
    loss = law.loss[inside]
    if loss.size < 3:
        return np.linspace(low, high, focus.cells)
    width = np.diff(loss)
    middle = 0.5 * (loss[1:] + loss[:-1])
    mass = np.logaddexp(law.log_mass[inside][1:], law.log_mass[inside][:-1])
    log_need = mass - np.log(width) + np.interp(middle, focus.loss, focus.log_weight)
    need = np.cbrt(np.exp(np.maximum(log_need - log_need.max(), -100.0))) * width
    need += 0.1 * need.sum() / need.size  # a tenth of all nodes goes wherever nothing seems to matter
    count = np.concatenate([[0.0], np.cumsum(need)])
    fine = np.interp(np.linspace(0.0, count[-1], focus.cells), count, loss)
    return np.unique(np.concatenate([[low], fine, [0.0], [high]]))


@dataclass(frozen=True)
class Laws:
    """Dominating losses of one step, both ways; under replace-one they are the same."""

    forward: Discrete
    reverse: Discrete

    def reversed(self) -> Laws:
        """The laws with P and Q exchanged."""
        return Laws(self.reverse, self.forward)


def _plain(step: Step, loss: Array) -> Array:
    """Poisson sampling at the rate at which x_1 is used: less than that no pairing of batches can prove."""
    rate = step.p * (1.0 - step.weights.tau) + step.weights.tq
    hit, y, gap = np.full_like(loss, rate), 1.0 / step.sigma, np.expm1(loss)
    if step.adjacency is Adjacency.REPLACE_ONE:
        gap = np.expm1(np.abs(loss))
        return np.exp(np.minimum(loss, 0.0)) * upper(hit, (1.0 - rate) * gap, (1.0 + gap) * rate, y)
    low = np.maximum(gap + rate, 0.0)
    return np.where(loss >= 0.0, upper(hit, low, None, y), upper(hit, low, None, y, -1.0))


@dataclass(frozen=True)
class Seen:
    """A first look at a step whose lending is worth its time: what it lends, and the profile at nodes that suit any run."""

    shares: Shares
    loss: Array
    part: Array

    @cached_property
    def _forward(self) -> tuple[Array, Array]:
        return vertices(self.loss, self.part)

    @cached_property
    def _back(self) -> tuple[Array, Array]:
        return vertices(*reverse(self.loss, self.part))

    def nodes(self, query: Query, focus: Focus | None, nodes: int, around: int = _AROUND, *, back: bool) -> Array:
        """Nodes fitted to the query, in one direction and in the order of that direction."""
        return self.fitted(self.coarse(back=back), query, focus, nodes, around, back=back)

    def fitted(
        self, coarse: Discrete, query: Query, focus: Focus | None, nodes: int, around: int, *, back: bool
    ) -> Array:
        """The same, by another look at the law."""
        corners = self._back if back else self._forward
        focus = replace(focus, cells=nodes) if focus else tilt_focus(coarse, query, nodes)[0]
        if query.highest is not None:
            both = focus, tilt_focus(coarse, Query(query.steps, query.highest), nodes)[0]
            focus = any_of(both, [_log_total(coarse, one) for one in both], nodes + nodes // 2)
        fine = fitted_nodes(coarse, focus, *_enough(*corners, query))
        return np.unique(np.concatenate([fine, _single(*corners, query, around)]))

    def coarse(self, *, back: bool) -> Discrete:
        """About the law in one direction: the hull's, as the smaller of two profiles need not be convex."""
        return _law(*(self._back if back else self._forward))

    def laws(self, query: Query, focus: Focus | None = None, nodes: int = _NODES) -> Laws | None:
        """Dominating losses for a query whose delta is about that of the look, or larger; None if they reach too little."""
        forward = _fitted(self, query, focus, nodes, back=False)
        symmetrical = symmetric(self.shares.step)
        back = forward if symmetrical else _fitted(self, query, focus, int(_BACK * nodes), back=True)
        found = Laws(forward, back)
        return found if resolved(found, query) else None


def _log_total(law: Discrete, focus: Focus) -> float:
    """What a step weighs in all."""
    return float(np.logaddexp.reduce(law.log_mass + np.interp(law.loss, focus.loss, focus.log_weight)))


@dataclass(frozen=True)
class Sight:
    """A step at nodes that suit all deltas down to one, and Theorem 2 there."""

    step: Step
    loss: Array
    swap: Array

    @classmethod
    def down_to(cls, step: Step, query: Query) -> Sight:
        """For the delta of the query and larger ones."""
        loss = first_nodes(step, query)
        return cls(step, loss, swap_part(step, loss))

    @cached_property
    def _lent(self) -> Seen:
        shares = choose(self.step)
        return Seen(shares, self.loss, np.minimum(lent_part(self.step, self.loss, *shares.at(self.loss)), self.swap))

    @cached_property
    def _least(self) -> Array:
        return _plain(self.step, self.loss)

    def seen(self, query: Query) -> Seen | None:
        """What lending gives; None if that is next to nothing over Theorem 2 at the delta of the query."""
        both = not symmetric(self.step)
        before = _epsilon(query, _coarse(self.loss, self.swap))
        if before <= (1.0 + _GAIN) * _epsilon(query, _coarse(self.loss, self._least)):
            return None  # no lending could help
        lent = self._lent
        after = _epsilon(query, lent.coarse(back=False))
        if both:
            before = max(before, _epsilon(query, _coarse(*reverse(self.loss, self.swap))))
            after = max(after, _epsilon(query, lent.coarse(back=True)))
        return lent if before > (1.0 + _GAIN) * after else None


def _epsilon(query: Query, law: Discrete) -> float:
    """Chernoff's, roughly."""
    return _chernoff(law, query)[1]


def look(step: Step, query: Query) -> Seen | None:
    """A first look; None if lending gains next to nothing over Theorem 2."""
    return Sight.down_to(step, query).seen(query) if worth_a_look(step, query) else None


def laws(step: Step, query: Query, focus: Focus | None = None, nodes: int = _NODES) -> Laws | None:
    """Dominating losses of one step by lending, for the query; None if that gains next to nothing over Theorem 2.

    `focus` says which losses matter, if somebody knows; each direction has about `nodes` nodes of its own.
    """
    seen = look(step, query)
    return seen.laws(query, focus, nodes) if seen else None


def resolved(found: Laws, query: Query) -> bool:
    """Whether infinite losses take next to nothing of delta."""
    most = _UNRESOLVED * math.exp(query.log_delta)
    return all(query.steps * law.infinite <= most for law in (found.forward, found.reverse))


def _fitted(seen: Seen, query: Query, focus: Focus | None, nodes: int, *, back: bool) -> Discrete:
    """The law on nodes that are fitted to the query, after a look at others, in the direction of that look."""
    few = query.steps <= _FEW
    coarse, around = seen.coarse(back=back), 4 * _AROUND if few else _AROUND
    fine = seen.fitted(coarse, query, focus, nodes, around, back=back)
    law = _on(seen, fine, back=back)
    if focus is None and query.highest is None and not few:
        tilt, epsilon = _chernoff(coarse, query)
        misled, turns = (_MISLED, 1) if query.log_delta > _FAR else (_MISLED_FAR, 2)
        if _bounds(law, query, tilt * _STEEPER).min() < misled * epsilon:  # the first look was too coarse to be a guide
            for _ in range(turns):  # more nodes only lower the hull
                fine = np.union1d(fine, seen.fitted(law, query, None, nodes, around, back=back))
                law = _on(seen, fine, back=back)
    return law


def _on(seen: Seen, nodes: Array, *, back: bool) -> Discrete:
    at = -nodes[::-1] if back else nodes
    found = part(seen.shares.step, at, *seen.shares.at(at))
    return dominating(*reverse(at, found)) if back else dominating(at, found)


def _single(loss: Array, value: Array, query: Query, around: int) -> Array:
    """Nodes around the loss that one step exceeds with a chance of delta over all steps: it may decide alone."""
    goal = query.log_delta - math.log(query.steps)
    at = float(np.interp(-goal, -np.log(value), loss))
    return at * np.linspace(0.95, 1.05, around) if 0.0 < at < loss[-1] else np.zeros(0)
