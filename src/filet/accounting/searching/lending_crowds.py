"""What many steps lend: one of them is looked at closely, and its shares and nodes serve all that are like it.

Nothing here can make a bound wrong: any shares, tilts and nodes are valid for any step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..proving.cells import Discrete
from ..proving.hull import dominating, reverse
from ..proving.lending import Step, part, stacked
from ..proving.loss_law import Array
from ..terms import Adjacency
from .grids import Focus
from .lending_looks import Laws, Query, Seen, rare, resolved
from .lending_shares import KNOTS, Shares, between, settle, symmetric

_LEAST_NODES, _MOST_NODES, _NODES_OF_ALL = 100, 400, 120_000  # for each direction: of one step, and of all together
_AROUND = 12  # near a loss that may decide alone
_AT_ONCE = 40_000  # nodes times lenders, a size that fits the processor's cache
_FEWEST = 6  # lenders; and two for every unit of noise: more gain less than a part in ten thousand
_PACES = (0.6, 0.6, 0.0)  # rounds in which a step makes its neighbour's shares its own
_FURTHER = np.array([1.03, 1.07, 1.13, 1.2, 1.3, 1.45, 1.65, 2.0])  # neighbours with less noise have larger losses
_LEAST_GAP = 1e-13


@dataclass(frozen=True)
class Model:
    """What a step lends, and nodes that suit it."""

    shares: Shares
    loss: Array

    def laws(self, steps: Sequence[Step], query: Query) -> list[Laws | None]:
        """The laws of steps like the model's, in both directions; None where infinite losses would take much of delta."""
        made: list[Laws | None] = []
        lenders = self._lenders
        most = max(1, _AT_ONCE // (self.loss.size * lenders))
        for first in range(0, len(steps), most):
            some = steps[first : first + most]
            nodes = [self._nodes(step) for step in some]
            sizes = [one.size for one in nodes]
            loss, stack = np.concatenate(nodes), stacked(some, sizes, lenders)
            owner = np.repeat(np.arange(len(some)), sizes)
            found = part(stack, loss, *self._shares(some, stack, loss, owner))
            made += _both(loss, found, owner, query, symmetric(stack))
        return made

    def law(self, step: Step, query: Query) -> Discrete:
        """The law of one step like the model's, in the direction of the pair."""
        step = replace(step, lenders=min(step.lenders, self._lenders))
        loss, own = self._nodes(step), self.shares
        shares, tilts = settle(step, own.knots, own.share[: step.lenders], own.tilt, _PACES)
        found = part(step, loss, *between(step, own.knots, shares, tilts, loss))
        return _dominating(loss, found, np.zeros(loss.size), query)[0]

    @property
    def _lenders(self) -> int:
        return min(self.shares.step.lenders, _FEWEST + int(2.0 * self.shares.step.sigma))

    def _shares(self, steps: Sequence[Step], stack: Step, loss: Array, owner: np.ndarray) -> tuple[Array, Array]:
        """Every step's own shares and tilts at its nodes: those of the model at its knots, after a few rounds."""
        at_knots, count = stacked(steps, [KNOTS] * len(steps), stack.lenders), len(steps)
        knots, share = np.tile(self.shares.knots, count), np.tile(self.shares.share[: stack.lenders], count)
        share, tilt = settle(at_knots, knots, share, np.tile(self.shares.tilt, count), _PACES)
        return between(stack, self.shares.knots, share, tilt, loss, owner * KNOTS)

    def _nodes(self, step: Step) -> Array:
        """The model's nodes with the same (a - 1) / p; below a = 1 losses end somewhere, so nodes keep their place up to there."""
        own = self.shares.step
        if step.p == own.p and step.weights == own.weights:
            return self.loss
        gap = np.expm1(np.abs(self.loss) if symmetric(step) else self.loss)
        moved = np.log1p(np.maximum(gap, 0.0) * (step.p / own.p))
        if symmetric(step):
            moved = np.copysign(moved, self.loss)
        else:
            below = np.log1p(-np.minimum(np.interp(-gap, _ends(own), _ends(step)), 1.0 - 1e-15))
            moved = np.where(gap < 0.0, below, moved)
        return np.asarray(moved[np.append(True, np.diff(moved) > _LEAST_GAP)])


def _ends(step: Step) -> list[float]:
    """Where 1 - a is special: losses of hits, and of full batches, end there."""
    v = step.weights
    end = v.tq / v.tau if step.adjacency is Adjacency.ADD_REMOVE else v.c / (v.w + v.tq)
    return [0.0, *sorted([step.p, end]), 1.0]


def _both(loss: Array, found: Array, owner: np.ndarray, query: Query, symmetric: bool) -> list[Laws | None]:
    """The laws of steps whose nodes stand one after the other; `owner` numbers the steps."""
    forward = _dominating(loss, found, owner, query)
    back = forward if symmetric else _dominating(*reverse(loss, found), owner[::-1], query)[::-1]
    both = [Laws(one, other) for one, other in zip(forward, back, strict=True)]
    return [one if resolved(one, query) else None for one in both]


def _dominating(loss: Array, found: Array, owner: np.ndarray, query: Query) -> list[Discrete]:
    """A law for each owner, without nodes that would not be corners of its hull (any may be left out).

    Those so far out that they do not matter go too, as a trace of a large loss spoils every tilt.
    """
    value = np.where(loss < 0.0, -np.expm1(np.minimum(loss, 0.0)), 0.0) + found
    same = np.append(False, owner[1:] == owner[:-1])
    keep = (value < 1.0) & ~(same & np.append(False, value[:-1] <= rare(query)))
    while not keep.all():
        loss, found, value, owner = loss[keep], found[keep], value[keep], owner[keep]
        same = np.append(False, owner[1:] == owner[:-1])
        before = np.roll(loss, 1)
        width = np.where(same, np.exp(before) * np.expm1(loss - before), np.exp(loss))
        slope = (value - np.where(same, np.roll(value, 1), 1.0)) / width
        following = np.append(np.where(same[1:], slope[1:], 0.0), 0.0)
        keep = slope < following
    starts = np.flatnonzero(~same)
    nodes, parts = np.split(loss, starts[1:]), np.split(found, starts[1:])
    return [dominating(*pair) for pair in zip(nodes, parts, strict=True)]


def nodes_of_one(steps: int) -> int:
    """How many nodes each of so many steps may have: fewer where there are very many, as each of them costs."""
    return min(max(_NODES_OF_ALL // steps, _LEAST_NODES), _MOST_NODES)


def one_way_model(seen: Seen, query: Query, count: int) -> Model:
    """As `model`, on `count` nodes that suit the direction of the pair."""
    fine = seen.nodes(query, None, count, _AROUND, back=False)
    return Model(seen.shares, np.concatenate([fine, fine[-1] * _FURTHER]))


def model(
    seen: Seen, query: Query, forward: Focus | None = None, back: Focus | None = None, count: int = _LEAST_NODES
) -> Model:
    """What to lend at steps like the one that was looked at, on `count` nodes for each direction that suit both."""
    fine = seen.nodes(query, forward, count, _AROUND, back=False)
    loss = [fine, fine[-1] * _FURTHER]
    other = fine if symmetric(seen.shares.step) else seen.nodes(query, back, count, _AROUND, back=True)
    both = np.concatenate([*loss, -other, -other[-1] * _FURTHER])
    both = np.unique(both[np.isfinite(both)])
    return Model(seen.shares, both[np.append(True, np.diff(both) > _LEAST_GAP)])
