"""Where to look at what is lent: nodes for `proving.lending`, whether it is worth its time, and the laws that it gives.

Nothing here can make a bound wrong; it decides how tight the bound is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

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
_NODES = 800  # of one direction, at most
_BACK = 0.4  # share of them for the other direction, which rarely decides
_FEWEST = 60
_EXCESS, _EXCESS_BACK = 1e-5, 1e-3  # of epsilon: what chords may add, and in the other direction
_LUMPS = 0.2  # the fourth moment of all steps over the squared second: if more, few steps decide
_AROUND = 40  # nodes near a loss that may decide alone
_UNRESOLVED = 1e-3  # of delta: the most that infinite losses may take
_STEEPER = 2.0 ** np.arange(0.0, 1.1, 0.25)  # tilts of a second look
_MISLED, _MISLED_FAR = 0.85, 0.97  # over what a first look has said: what is worth another, and in far tails
_SMALL = 0.5  # of the epsilon of one direction: the other's that is less is not looked at again
_FEW = 4  # steps of which one decides
_FAR = -46.0  # log delta that is so small that tails matter
_LEAST_GAP = 1e-14  # between nodes of one law
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


class Guide(NamedTuple):
    """About the law of a step, the tilt of Chernoff's bound for the query, and the epsilon that it proves, roughly."""

    law: Discrete
    tilt: float
    epsilon: float


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
    t = np.sort(np.append(np.linspace(low, high, count), 0.0))
    loss = np.log1p(np.maximum(step.p * np.expm1(t), -1.0 + 1e-15))
    if step.adjacency is Adjacency.ADD_REMOVE:  # swaps at a distance of 2 end at 1 - q, close to 1 - p
        end, far = v.tq / v.tau, 2.0
    else:  # a full batch hides x_1 so well that losses down to that of (1-p) w against w + tq occur
        end, far = v.c / (v.w + v.tq), 1.0
    t = np.linspace(far * (low - 0.5 * far * y * y) - 5.0, 0.0, count // 4)
    loss = np.sort(np.append(loss, np.log1p(np.maximum(end * np.expm1(t), -1.0 + 1e-15))))
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
    log_mgf = peak + np.log(np.exp(v - peak[:, None]).sum(axis=1))
    return np.asarray((query.steps * log_mgf + log_peak(tilts) - query.log_delta) / tilts)


def _chernoff(law: Discrete, query: Query, start: float | None = None) -> Guide:
    """What Chernoff's bound proves, roughly; steps of an octave, then of a quarter, or of a quarter from the start."""
    for tilt in (start, None):
        tilt = tilt or float(_OCTAVES[int(np.argmin(_bounds(law, query, _OCTAVES)))])
        bound = _bounds(law, query, tilt * _QUARTERS)
        best = int(np.argmin(bound))
        if start is None or 0 < best < _QUARTERS.size - 1:
            break
    return Guide(law, float(tilt * _QUARTERS[best]), max(float(bound[best]), 1e-12))


def _alike(query: Query, guide: Guide) -> bool:
    """Whether the total loss, at Chernoff's tilt, is a sum of many that are alike: else the bound is no guide."""
    if query.log_delta <= _FAR or query.steps <= _FEW:
        return False
    law, tilt, _ = guide
    exponent, square = law.log_mass + tilt * law.loss, law.loss * law.loss
    weight = np.exp(exponent - exponent.max())
    fourth = (weight * square * square).sum() * weight.sum()
    return bool(fourth < _LUMPS * query.steps * (weight * square).sum() ** 2)


def tilt_focus(guide: Guide, query: Query, cells: int) -> Focus:
    """Where nodes should be dense if all that is known is Chernoff's tilt, and the epsilon that it proves, roughly."""
    _, tilt, epsilon = guide
    loss = np.array([-epsilon, -query.log_delta / tilt])
    return Focus(cells, loss, np.array([query.log_delta - tilt * epsilon, 0.0]))


def _coarse(loss: Array, part: Array, query: Query) -> Discrete:
    """About the law whose profile, nearly convex, has these parts; where it is not convex, there is no mass."""
    value = np.where(loss < 0.0, part - np.expm1(np.minimum(loss, 0.0)), part)
    # nodes crowd where losses of the other direction end: between the closest of them slopes would be rounding errors
    known = np.isfinite(value) & _apart(loss, _CLOSE * -min(float(loss[0]), 0.0))
    if not known.all():
        loss, value = loss[known], value[known]
    width = np.concatenate([np.exp(loss[:1]), np.exp(loss[:-1]) * np.expm1(loss[1:] - loss[:-1])])
    ends = np.concatenate([[1.0], value])
    return _likely(loss, value, np.append((ends[1:] - ends[:-1]) / width, 0.0), query)


def _likely(loss: Array, value: Array, slope: Array, query: Query) -> Discrete:
    """The law of a profile with these values and slopes, as far as it is made in the end (`_near`): far losses mislead."""
    end = int(np.searchsorted(loss, _enough(loss, value, query)[1], side="right"))
    return _law(loss[:end], slope[: end + 1])


def _apart(loss: Array, gap: float) -> Any:
    """Which nodes are further than that from the one before."""
    return np.concatenate([[True], loss[1:] - loss[:-1] > gap])


def _law(loss: Array, slope: Array) -> Discrete:
    """The law whose profile has these slopes."""
    return Discrete(loss, np.log(np.maximum(slope[1:] - slope[:-1], _TINY)) + loss, 0.0, 0.0)


def fitted_nodes(law: Discrete, focus: Focus, low: float, high: float, worth: float = math.inf) -> Array:
    """Nodes fitted to where the answer lies, after a look at the law with other nodes.

    A chord over a width v of losses adds about v^2/12 of the mass between: with a mass I per unit of loss, times its weight,
    the sum over a given number of nodes is smallest if v is proportional to I^(-1/3), and then S^3 / 12 over their square, S
    the integral of I^(1/3). `worth` is one over the share of all mass, times its weight, that this may be.
    """
    inside = (law.loss >= low) & (law.loss <= high)
    loss, log_mass = law.loss[inside], law.log_mass[inside]
    if loss.size < 3:
        return np.linspace(low, high, focus.cells)
    width = loss[1:] - loss[:-1]
    mass = np.logaddexp(log_mass[1:], log_mass[:-1]) - math.log(2.0)
    log_need = mass + np.interp(0.5 * (loss[1:] + loss[:-1]), focus.loss, focus.log_weight)
    log_need -= float(log_need.max())
    need = np.cbrt(np.exp(np.maximum(log_need, -100.0)) * width * width)
    total = np.exp(log_need).sum()
    cells = min(focus.cells, max(_FEWEST, math.ceil(math.sqrt(min(worth * need.sum() ** 3 / total, 1e12) / 12.0))))
    need += 0.1 * need.sum() / need.size  # a tenth of all nodes goes wherever nothing seems to matter
    count = np.concatenate([[0.0], np.cumsum(need)])
    fine = np.interp(np.linspace(0.0, count[-1], cells), count, loss)
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
    hit, y = np.full_like(loss, rate), 1.0 / step.sigma
    if step.adjacency is Adjacency.REPLACE_ONE:
        gap = np.expm1(np.abs(loss))
        return np.exp(np.minimum(loss, 0.0)) * upper(hit, (1.0 - rate) * gap, (1.0 + gap) * rate, y)
    return upper(hit, np.maximum(np.expm1(loss) + rate, 0.0), None, y, np.where(loss >= 0.0, 1.0, -1.0))


@dataclass(frozen=True)
class Seen:
    """A first look at a step whose lending is worth its time: what it lends, and the profile at nodes that suit any run."""

    shares: Shares
    loss: Array
    part: Array
    _guides: dict[tuple[Query, bool], Guide] = field(default_factory=dict, compare=False, repr=False)

    def guide(self, query: Query, start: float | None = None, *, back: bool = False) -> Guide:
        """What Chernoff's bound says in one direction, searched for from a tilt; what it says is kept."""
        if (query, back) not in self._guides:
            self._guides[query, back] = _chernoff(_likely(*self._hulls[back], query), query, start)
        return self._guides[query, back]

    @cached_property
    def _hulls(self) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
        return vertices(self.loss, self.part), vertices(*reverse(self.loss, self.part))

    def coarse(self, *, back: bool) -> Discrete:
        """About the law in one direction: the hull's, as the smaller of two profiles need not be convex."""
        loss, _, slope = self._hulls[back]
        return _law(loss, slope)

    def nodes(self, query: Query, focus: Focus | None, nodes: int, around: int = _AROUND, *, back: bool) -> Array:
        """So many nodes fitted to the query, in one direction and in the order of that direction."""
        law = self.coarse(back=back)
        focus = replace(focus, cells=nodes) if focus else tilt_focus(self.guide(query, back=back), query, nodes)
        return np.unique(self._fitted(law, query, focus, around, back=back))

    def _fitted(
        self, law: Discrete, query: Query, focus: Focus, around: int, worth: float = math.inf, *, back: bool
    ) -> Array:
        """Nodes fitted to a look at the law."""
        loss, value, _ = self._hulls[back]
        fine = fitted_nodes(law, focus, *_enough(loss, value, query), worth)
        return np.concatenate([fine, _single(loss, value, query, around)])

    def _wanted(self, guide: Guide, query: Query, fixed: int | None, *, back: bool) -> Array:
        """As many nodes as the query is worth, of the pair (not of its reverse), by a look at the law."""
        worth, around = math.inf, 4 * _AROUND if query.steps <= _FEW else _AROUND
        nodes = fixed or int((_BACK if back and query.steps > _FEW else 1.0) * _NODES)
        asked = [(query, guide)]
        if query.highest is not None:
            highest = Query(query.steps, query.highest)
            asked.append((highest, _chernoff(guide.law, highest)))
            nodes += nodes // 2
        if fixed is None and all(_alike(one, by) for one, by in asked):
            worth = max(query.steps * (by.tilt + 1.0) / max(by.epsilon, 1.0 / by.tilt) for _, by in asked)
            worth /= _EXCESS_BACK if back else _EXCESS
            around = 0  # no loss decides alone
        focuses = [tilt_focus(by, one, nodes) for one, by in asked]
        focus = any_of(focuses, [_log_total(guide.law, one) for one in focuses], nodes)
        fine = self._fitted(guide.law, query, focus, around, worth, back=back)
        return -fine if back else fine

    def laws(self, query: Query, nodes: int | None = None) -> Laws | None:
        """Dominating losses for a query whose delta is about that of the look, or larger; None if they reach too little."""
        guides = [self.guide(query)]
        if not symmetric(self.shares.step):
            guides.append(self.guide(query, guides[0].tilt, back=True))
        known, misled = (self.loss, self.part), list(enumerate(guides))
        if nodes is None and _alike(query, guides[0]) and guides[-1].epsilon < guides[0].epsilon:
            del misled[1:]  # nodes of the one direction suffice for the other, which does not decide
        for turn in range(3):
            wanted = [self._wanted(guide, query, nodes, back=back > 0) for back, guide in misled]
            known = self._more(*known, np.concatenate(wanted))
            found = [_near(*(reverse(*known) if back else known), query) for back in range(len(guides))]
            if query.highest is not None or query.steps <= _FEW:
                break
            if turn == 0:  # a first look may have been too coarse to be a guide
                close = _SMALL * guides[0].epsilon  # what is far below does not decide, however coarse
                misled = [(back, guide) for back, guide in misled
                          if guide.epsilon > close and _misled(guide, found[back], query)]  # fmt: skip
            if not misled or (turn and query.log_delta > _FAR):
                break
            misled = [(back, _chernoff(found[back], query)) for back, _ in misled]
        laws = Laws(found[0], found[-1])
        return laws if resolved(laws, query) else None

    def _more(self, loss: Array, known: Array, nodes: Array) -> tuple[Array, Array]:
        """The profile at more nodes: they only lower the hull."""
        both = np.concatenate([loss, nodes])
        parts = np.concatenate([known, part(self.shares.step, nodes, *self.shares.at(nodes))])
        order = np.argsort(both)
        order = order[_apart(both[order], _LEAST_GAP)]
        return both[order], parts[order]


def _near(loss: Array, part: Array, query: Query) -> Discrete:
    """The law up to the loss that matters: a trace of a larger one would spoil every tilt."""
    far = np.flatnonzero((loss > 0.0) & (part <= rare(query)))
    end = int(far[0]) + 1 if far.size else loss.size
    return dominating(loss[:end], part[:end])


def _misled(guide: Guide, law: Discrete, query: Query) -> bool:
    """Whether a law is so much better than the look that guided it that its nodes are not where they should be."""
    misled = _MISLED if query.log_delta > _FAR else _MISLED_FAR
    return bool(_bounds(law, query, guide.tilt * _STEEPER).min() < misled * guide.epsilon)


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
        before = _chernoff(_coarse(self.loss, self.swap, query), query)
        least = _chernoff(_coarse(self.loss, self._least, query), query, before.tilt)
        if not self._gains(before, least, self._least, query):
            return None  # no lending could help
        lent = self._lent  # read once: another thread may put an equal one, without its guides, in its place
        after = lent.guide(query, before.tilt)
        if self._gains(before, after, lent.part, query):
            return lent
        if symmetric(self.step):
            return None
        other = _chernoff(_coarse(*reverse(self.loss, self.swap), query), query)
        back = max(after.epsilon, lent.guide(query, other.tilt, back=True).epsilon)
        return lent if other.epsilon > (1.0 + _GAIN) * back else None

    def _gains(self, before: Guide, after: Guide, part: Array, query: Query) -> bool:
        """Whether parts are worth more than those of Theorem 2: by Chernoff's bound, or where few losses decide by the single one."""
        if before.epsilon > (1.0 + _GAIN) * after.epsilon:
            return True
        above = self.loss >= 0.0  # where parts are values
        one, other = (_one_loss(self.loss[above], each[above], query) for each in (self.swap, part))
        return not _alike(query, before) and one > (1.0 + _GAIN) * other


def look(step: Step, query: Query) -> Seen | None:
    """A first look; None if lending gains next to nothing over Theorem 2."""
    return Sight.down_to(step, query).seen(query) if worth_a_look(step, query) else None


def laws(step: Step, query: Query, nodes: int | None = None) -> Laws | None:
    """Dominating losses of one step by lending, for the query; None if that gains next to nothing over Theorem 2.

    Each direction has about `nodes` nodes of its own, or as many as the query is worth.
    """
    seen = look(step, query)
    return seen.laws(query, nodes) if seen else None


def resolved(found: Laws, query: Query) -> bool:
    """Whether infinite losses take next to nothing of delta."""
    most = _UNRESOLVED * math.exp(query.log_delta)
    return all(query.steps * law.infinite <= most for law in (found.forward, found.reverse))


def _one_loss(loss: Array, value: Array, query: Query) -> float:
    """The loss that one step exceeds with a chance of delta over all steps."""
    return float(np.interp(math.log(query.steps) - query.log_delta, -np.log(value), loss))


def _single(loss: Array, value: Array, query: Query, around: int) -> Array:
    """Nodes around the loss that one step exceeds with a chance of delta over all steps: it may decide alone."""
    at = _one_loss(loss, value, query)
    return at * np.linspace(0.95, 1.05, around) if 0.0 < at < loss[-1] else np.zeros(0)
