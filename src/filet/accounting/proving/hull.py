"""Values of a bound at nodes -> a discrete loss that dominates.

The supremum of all profiles is convex and nonincreasing, 1 at a = 0, and at most the bound at every node. So it lies below the
chords between any nodes, hence below the lower convex hull of the values, continued by a constant after its minimum; and that
hull is the profile of a discrete loss. Parts are explained in `lending`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._rounding import EXTENDED_UNIT, FEW, LARGEST_LOSS, LEAST_LOG_MASS, SUM_ERROR, UNDERFLOW, UNIT, down, up
from ...errors import NotCertifiedError
from .cells import Discrete
from .loss_law import Array

_LEAST_GAP = 1e-14  # between nodes, where slopes still have digits
_SPARE = 4 * UNIT  # more than the rounding of a difference of exponentials, and of a sum of two


def reverse(loss: Array, part: Array) -> tuple[Array, Array]:
    """The nodes and parts of the pair with P and Q exchanged: H_b(Q||P) is b times the excess of H at 1/b.

    Proof: theory.md#how-it-is-used
    """
    return -loss[::-1], (part * np.exp(-loss) * (1 + FEW))[::-1]


def _widths(loss: Array) -> Array:
    """Of the chords in a, the first one from 0; each with a relative error of a few roundings."""
    at = np.exp(loss)
    return np.concatenate([at[:1], at[:-1] * np.expm1(loss[1:] - loss[:-1])])


def vertices(loss: Array, part: Array) -> tuple[Array, Array, Array]:
    """Nodes and values of the lower convex hull of (e^loss, H) and (0, 1), down to its minimum, and the slopes around them.

    Proof: theory.md#how-it-is-used
    """
    spare = np.where(loss < 0.0, 1 + _SPARE, 1.0)
    value = -np.expm1(np.minimum(loss, 0.0)) * spare + part * spare
    large = np.log(value) - np.maximum(loss, 0.0) > LEAST_LOG_MASS  # any nodes may be left out
    kept = (value < 1.0) & large & (np.abs(loss) <= LARGEST_LOSS)
    while True:
        loss, value = loss[kept], value[kept]
        ends, slope = np.concatenate([[1.0], value]), np.zeros(loss.size + 1)
        slope[:-1] = (ends[1:] - ends[:-1]) / _widths(loss)  # a few roundings, as values count as exact
        kept = slope[:-1] < slope[1:]  # else it is above the chord of its neighbours, or a last one that is not below
        if kept.all():
            return loss, value, slope


@dataclass(frozen=True)
class ProfileNodes:
    """Upper bounds of one step's profile at increasing losses of the pair; with `backward`, seen with P and Q exchanged.

    Proof: theory.md#how-it-is-used
    """

    step: Any  # with `excess`: upper bounds in parts, at losses and for anything that may be chosen there
    loss: Array
    excess: Array
    backward: bool = False

    def reversed(self) -> ProfileNodes:
        """The same nodes with P and Q exchanged."""
        return replace(self, backward=not self.backward)

    def more(self, loss: Array, *choice: Any) -> ProfileNodes:
        """With the bound at more losses of the pair, for any choice that it allows there: they only lower the hull."""
        both = np.concatenate([self.loss, loss])
        excess = np.concatenate([self.excess, self.step.excess(loss, *choice)])
        order = np.argsort(both, kind="stable")
        apart = np.concatenate([[True], np.diff(both[order]) > _LEAST_GAP])
        return replace(self, loss=both[order][apart], excess=excess[order][apart])

    @property
    def directed(self) -> tuple[Array, Array]:
        """Losses and excesses in the order of the direction."""
        return reverse(self.loss, self.excess) if self.backward else (self.loss, self.excess)

    def discretised(self, negligible: float) -> Discrete:
        """The dominating loss of the nodes up to the first beyond which less than `negligible` lies.

        Any nodes may be left out; a trace of a larger loss would spoil every tilt.
        """
        loss, excess = self.directed
        far = np.flatnonzero((loss > 0.0) & (excess <= negligible))
        end = int(far[0]) + 1 if far.size else loss.size
        return dominating(loss[:end], excess[:end])


def dominating(loss: Array, part: Array) -> Discrete:
    """The discrete loss whose profile is the hull, for increasing nodes.

    Its masses are differences of slopes. Floats differ exactly but for one rounding, so the profile of the masses agrees with the
    hull to a few roundings of a mass's logarithm, relative to the value at each node; masses are raised by more than that. That
    it then lies above the values is checked, not assumed.

    Proof: theory.md#how-it-is-used
    """
    loss, value, slope = vertices(loss, part)
    if not loss.size:
        raise NotCertifiedError("a one-step profile has no finite loss that matters; use the swap analysis")
    log_mass = np.log(slope[1:] - slope[:-1]) + loss
    spare = 8 * UNIT * (float(np.abs(log_mass).max()) + 2.0 * float(np.abs(loss).max()) + 32.0)
    law = Discrete(loss, log_mass + spare, float(value[-1]) * (1 + spare), 0.0)
    check(law, loss, value)
    return law


def profile(law: Discrete) -> tuple[Array, Array, float]:
    """The profile of a discrete loss at 0 and at its losses, summed up from the last: proven lower bounds.

    H at one loss is H at the next plus the distance times the Q-mass beyond: positive terms only, so rounding is relative.

    Proof: theory.md#how-it-is-used
    """
    q = np.exp(law.log_mass - law.loss).astype(np.longdouble)
    beyond = np.cumsum(q[::-1])[::-1]
    value = np.float64(law.infinite) + np.cumsum((beyond * _widths(law.loss))[::-1])[::-1]
    size = float(np.abs(law.log_mass).max() + np.abs(law.loss).max())
    error = UNIT * (size + 16.0) + 2 * law.loss.size * EXTENDED_UNIT
    at = np.append(value, law.infinite).astype(np.float64) * (1 - error)
    return law.loss, at[1:], float(at[0])


def check(law: Discrete, loss: Array, value: Array) -> None:
    """Fail closed unless the law's profile, computed from its masses, is at least the value at each of its losses, and 1 at 0.

    Proof: theory.md#how-it-is-used
    """
    same, found, start = profile(law)
    if not (np.array_equal(same, loss) and bool(np.all(found >= value)) and start >= 1.0 and start < 1.0 + 1e-9):
        short = float(np.max(value - found)) if found.shape == value.shape else np.nan
        what = f"a one-step profile is short by {short!r}, or has mass {start!r} instead of 1"
        raise NotCertifiedError(f"{what}; please report these parameters")


class HullStep:
    """One step alone whose loss is discrete, as lending gives it. Proof: engine.md#one-step

    Between losses the profile is a chord in e^epsilon: its value at the next loss, and the rest of the way times the Q-mass
    beyond. All terms are positive, so their rounding is relative.
    """

    def __init__(self, law: Discrete) -> None:
        self._law, self._beyond = law, np.cumsum(np.exp(law.log_mass - law.loss)[::-1])[::-1]
        self._value = np.append(np.cumsum((self._beyond * _widths(law.loss))[:0:-1])[::-1], 0.0) + law.infinite

    def delta_bounds(self, epsilon: Array) -> tuple[Array, Array]:
        """Certified lower and upper bounds of delta at epsilons >= 0. Proof: engine.md#one-step"""
        loss = self._law.loss
        following = np.minimum(np.searchsorted(loss, epsilon, side="right"), loss.size - 1)
        epsilon = np.minimum(epsilon, loss[following])  # nothing is left beyond the last
        value = self._value[following] + np.exp(epsilon) * np.expm1(loss[following] - epsilon) * self._beyond[following]
        least = np.maximum(down(value, SUM_ERROR) - self._law.infinite, 0.0)
        return least, np.minimum(up(value, SUM_ERROR) + UNDERFLOW, 1.0)
