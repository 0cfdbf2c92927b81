"""What many steps lend: one of them is looked at closely, and its shares and nodes serve all that are like it.

Nothing here can make a bound wrong: any shares, tilts and nodes are valid for any step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..proving.cells import Discrete
from ..proving.hull import dominating, reverse
from ..proving.lending import Step, part, stacked
from ..proving.loss_law import Array
from .grids import Focus
from .lending_shares import Laws, Query, Seen, Shares, rare, resolved, symmetric

_NODES = 100  # for each direction
_AROUND = 12  # near a loss that may decide alone
_AT_ONCE = 40_000  # nodes times lenders, a size that fits the processor's cache
_FEWEST = 6  # lenders; and two for every unit of noise: more gain less than a part in ten thousand
_FURTHER = np.linspace(1.03, 1.18, 6)  # neighbours with less noise have larger losses
_LEAST_GAP = 1e-13


@dataclass(frozen=True)
class Model:
    """What a step lends, and nodes that suit it."""

    shares: Shares
    loss: Array

    def laws(self, steps: Sequence[Step], query: Query) -> list[Laws | None]:
        """The laws of steps like the model's, in both directions; None where infinite losses would take much of delta."""
        made: list[Laws | None] = []
        lenders = min(self.shares.step.lenders, _FEWEST + int(2.0 * self.shares.step.sigma))
        most = max(1, _AT_ONCE // (self.loss.size * lenders))
        for first in range(0, len(steps), most):
            some = steps[first : first + most]
            nodes = [self._nodes(step) for step in some]
            loss, stack = np.concatenate(nodes), stacked(some, [one.size for one in nodes], lenders)
            found = part(stack, loss, *self.shares.at(loss, stack))
            owner = np.repeat(np.arange(len(some)), [one.size for one in nodes])
            made += _both(loss, found, owner, query, symmetric(stack))
        return made

    def _nodes(self, step: Step) -> Array:
        """The model's nodes with the same (a - 1) / p."""
        if step.p == self.shares.step.p:
            return self.loss
        moved = np.log1p(np.maximum(np.expm1(self.loss) * (step.p / self.shares.step.p), -1.0 + 1e-15))
        return np.asarray(moved[np.append(True, np.diff(moved) > _LEAST_GAP)])


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


def model(seen: Seen, query: Query, forward: Focus | None = None, back: Focus | None = None) -> Model:
    """What to lend at steps like the one that was looked at, on nodes that suit both directions."""
    fine = seen.nodes(query, forward, _NODES, _AROUND, back=False)
    loss = [fine, fine[-1] * _FURTHER]
    other = fine if symmetric(seen.shares.step) else seen.nodes(query, back, _NODES, _AROUND, back=True)
    both = np.concatenate([*loss, -other, -other[-1] * _FURTHER])
    both = np.unique(both[np.isfinite(both)])
    return Model(seen.shares, both[np.append(True, np.diff(both) > _LEAST_GAP)])
