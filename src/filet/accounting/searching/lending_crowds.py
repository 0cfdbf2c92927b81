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
from .lending_shares import Laws, Query, Shares, enough, look, resolved, symmetric

_NODES = 120  # for each direction
_AT_ONCE = 40_000  # nodes times lenders, a size that fits the processor's cache
_FURTHER = np.linspace(1.03, 1.3, 10)  # neighbours with less noise have larger losses
_LEAST_GAP = 1e-13


@dataclass(frozen=True)
class Model:
    """What a step lends, and nodes that suit it."""

    shares: Shares
    loss: Array

    def laws(self, steps: Sequence[Step], query: Query) -> list[Laws | None]:
        """The laws of steps like the model's, in both directions; None where infinite losses would take much of delta."""
        made: list[Laws | None] = []
        most = max(1, _AT_ONCE // (self.loss.size * self.shares.step.lenders))
        for first in range(0, len(steps), most):
            some = steps[first : first + most]
            nodes = [self._nodes(step) for step in some]
            loss, stack = np.concatenate(nodes), stacked(some, [one.size for one in nodes], self.shares.step.lenders)
            found = part(stack, loss, *self.shares.at(loss, stack))
            parts = np.split(found, np.cumsum([one.size for one in nodes])[:-1])
            made += [_both(*one, query, symmetric(stack)) for one in zip(nodes, parts, strict=True)]
        return made

    def _nodes(self, step: Step) -> Array:
        """The model's nodes with the same (a - 1) / p."""
        if step.p == self.shares.step.p:
            return self.loss
        moved = np.log1p(np.maximum(np.expm1(self.loss) * (step.p / self.shares.step.p), -1.0 + 1e-15))
        return moved[np.append(True, np.diff(moved) > _LEAST_GAP)]


def _both(loss: Array, found: Array, query: Query, symmetric: bool) -> Laws | None:
    forward = _dominating(loss, found, query)
    laws = Laws(forward, forward if symmetric else _dominating(*reverse(loss, found), query))
    return laws if resolved(laws, query) else None


def _dominating(loss: Array, found: Array, query: Query) -> Discrete:
    """Without nodes so far out that they do not matter, as a trace of a large loss spoils every tilt."""
    near = loss <= enough(loss, found, query)[1]
    return dominating(loss[near], found[near])


def model(step: Step, query: Query, focus: Focus | None = None) -> Model | None:
    """What to lend at such steps, and where to look; None if that gains next to nothing over Theorem 2."""
    seen = look(step, query)
    if seen is None:
        return None
    fine = seen.nodes(query, focus, _NODES, back=False)
    back = fine if symmetric(step) else seen.nodes(query, focus, _NODES, back=True)
    loss = np.concatenate([fine, fine[-1] * _FURTHER, -back, -back[-1] * _FURTHER])
    loss = np.unique(loss[np.isfinite(loss)])
    return Model(seen.shares, loss[np.append(True, np.diff(loss) > _LEAST_GAP)])
