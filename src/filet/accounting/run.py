"""A run: phases and Gaussian releases under one adjacency. Its answers are proven, for many questions at once.

Trusted: this module puts proven brackets together (both orders of the neighbours, overflows, steps
without noise); what it says is as true as what it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from .proving.closed_form import Gaussian
from .proving.combining import added, chance, larger, power, squared_shift, union_cost, with_noiseless
from .proving.loss_law import Array
from .proving.pair import Pair, phase_law
from .search import closed_form, solve
from .search.lending import lenders
from .terms import Adjacency, Bounds, Brackets, Phase

_FAR = 1e12  # epsilons beyond it are answered by it, as delta falls in epsilon
_CHANCE_ERROR = 1e-11  # relative, of the logarithm of a chance that is multiplied by numbers of steps
_AT_ONCE = 4_000  # questions, so that memory is bounded
_TURNS = 100  # of the union strategy's search
_LARGEST_EPSILON = 600.0  # of a table for the power of tests
_NEVER = Bounds(0.0, 0.0)
# Extreme parameters overflow on the way to an answer or a refusal; what comes out is checked, so nobody needs warnings.
_QUIET = np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore")


class Run:
    """Phases and Gaussian releases under one adjacency, and what they cost together.

    `overflow` bounds the chance that any batch overflows (union strategy), `noiseless` the chance
    that some step without noise shows the example.
    """

    def __init__(self, phases: Sequence[Phase], releases: Sequence[tuple[float, int]], adjacency: Adjacency) -> None:
        """`releases` are Gaussian releases: noise multiplier and number."""
        gaussian = [release for release in releases if release[0] > 0.0]
        laws = []
        overflow, noiseless = 0.0, math.inf if len(gaussian) < len(releases) else 0.0
        for phase in phases:
            if phase.steps == 0 or phase.noise_multiplier == math.inf:
                continue
            overflow += phase.overflow_exponent
            if phase.noise_multiplier == 0.0:
                noiseless += phase.noiseless_exponent
            elif phase.only_gaussian:
                # every example at every step: a Gaussian mechanism, of sensitivity 2 under replace-one
                apart = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
                gaussian.append((phase.noise_multiplier / apart, phase.rounds))
            else:
                laws.append(phase_law(phase, adjacency, lenders(phase.scheme.max_batch_size, phase.noise_multiplier)))
        self.overflow, self.noiseless = (chance(one, _CHANCE_ERROR) if one else _NEVER for one in (overflow, noiseless))
        shift = squared_shift(gaussian)
        self._pair = Pair(tuple(laws), shift, adjacency is Adjacency.REPLACE_ONE) if laws else None
        self._gaussian = Gaussian(*shift) if shift.upper and not laws else None

    @property
    def silent(self) -> bool:
        """No step with noise releases anything."""
        return self._pair is None and self._gaussian is None

    # --- epsilon at delta ---------------------------------------------------------------------------------------------

    @_QUIET
    def epsilons(self, deltas: Array) -> Brackets:
        """Brackets of epsilon at deltas in any order."""
        found = Brackets(np.zeros(deltas.shape), np.full(deltas.shape, np.inf))
        found.lower[self.noiseless.lower > deltas] = np.inf
        if self.silent:
            found.upper[self.noiseless.upper <= deltas] = 0.0
            if self.overflow.upper == 0.0:
                return found
        spare = np.flatnonzero(deltas > self.noiseless.upper)
        if spare.size:
            rest = deltas[spare] - self.noiseless.upper
            if self.overflow.upper:
                upper, lower = self._union(rest, upper=True), self._union(deltas[spare], upper=False)
            else:
                both = self.plain_epsilons(rest)
                lower, upper = both
                if self.noiseless.upper:
                    lower = np.minimum(self.plain_epsilons(deltas[spare]).lower, upper)
            found.lower[spare], found.upper[spare] = lower, upper
        return found

    def plain_epsilons(self, deltas: Array) -> Brackets:
        """Brackets of epsilon without overflows and steps without noise."""
        return _in_order(deltas, self._plain_epsilons)

    def _plain_epsilons(self, deltas: Array) -> Brackets:
        if self._pair is None:
            nothing = np.zeros(deltas.shape)
            return closed_form.epsilons(self._gaussian, deltas) if self._gaussian else Brackets(nothing, nothing)
        if self._one_step:
            return self._both_orders(closed_form.one_step_epsilons, deltas)
        return solve.epsilons(self._pair, deltas)

    @property
    def _one_step(self) -> bool:
        return self._pair is not None and self._pair.steps == 1 and not self._pair.gaussian.upper

    def _both_orders(self, ask: Callable[[Pair, Array], Brackets], values: Array) -> Brackets:
        assert self._pair is not None
        found = ask(self._pair, values)
        return found if self._pair.symmetric else larger(found, ask(self._pair.reversed(), values))

    def _union(self, deltas: Array, *, upper: bool) -> Array:
        """The smallest epsilon with delta_poisson(epsilon) + (1 + e^epsilon) overflow <= delta.

        The iteration climbs to it from below; from above, it ends only where an epsilon is proven.
        """
        epsilon, found, left = np.zeros(deltas.shape), np.full(deltas.shape, np.nan), np.arange(deltas.size)
        for turn in range(_TURNS):
            costs = [union_cost(self.overflow, float(e)) for e in epsilon[left]]
            rest = deltas[left] - np.array([cost.upper if upper else cost.lower for cost in costs])
            found[left[~(rest > 0.0)]] = np.inf
            left, rest = left[rest > 0.0], rest[rest > 0.0]
            if not left.size:
                break
            bounds = self.plain_epsilons(rest)
            new, old = bounds.upper if upper else bounds.lower, epsilon[left]
            small = new - old <= 1e-6 * np.maximum(old, 0.1)
            done = (new <= old) | (small & (not upper))
            found[left[done]] = np.maximum(new, old)[done]
            epsilon[left] = new + np.where(small | (turn > 60), 1e-5 * np.maximum(old, 0.1), 0.0)
            left = left[~done]
        found[left] = np.inf if upper else epsilon[left]
        return found

    # --- delta at epsilon ---------------------------------------------------------------------------------------------

    @_QUIET
    def deltas(self, epsilons: Array) -> Brackets:
        """Brackets of delta at epsilons in any order."""
        return self._whole(epsilons, self._plain_deltas)

    @_QUIET
    def deltas_each_order(self, epsilons: Array) -> list[Brackets]:
        """Brackets of delta for each order of the neighbours; one entry if both have the same."""
        if self._pair is None or self._pair.symmetric:
            return [self.deltas(epsilons)]
        orders = (self._pair, self._pair.reversed())
        return [self._whole(epsilons, partial(self._one_order, order)) for order in orders]

    def _plain_deltas(self, epsilons: Array) -> Brackets:
        if self._pair is None:
            nothing = np.zeros(epsilons.shape)
            return Brackets(*self._gaussian.delta_bounds(epsilons)) if self._gaussian else Brackets(nothing, nothing)
        if self._one_step:
            return self._both_orders(closed_form.one_step_deltas, epsilons)
        return solve.deltas(self._pair, epsilons)

    def _one_order(self, pair: Pair, epsilons: Array) -> Brackets:
        if self._one_step:
            return closed_form.one_step_deltas(pair, epsilons)
        return solve.deltas(pair, epsilons, both=False)

    def _whole(self, epsilons: Array, ask: Callable[[Array], Brackets]) -> Brackets:
        """With what overflows and steps without noise add."""
        near = np.minimum(epsilons, _FAR)
        found = _in_order(near, ask)
        bounds = zip(epsilons.tolist(), found.lower.tolist(), found.upper.tolist(), strict=True)
        whole = [
            with_noiseless(added(Bounds(low if e <= _FAR else 0.0, high), union_cost(self.overflow, e)), self.noiseless)
            for e, low, high in bounds
        ]
        return Brackets(np.array([one.lower for one in whole]), np.array([one.upper for one in whole]))

    # --- powers of tests ----------------------------------------------------------------------------------------------

    @_QUIET
    def power_tables(self) -> list[Array]:
        """Upper bounds of delta at epsilons that matter to the power of tests, for each order of the neighbours."""
        if self.silent:
            return []
        top, middle = np.minimum(self.plain_epsilons(np.array([1e-12, 0.3])).upper, _LARGEST_EPSILON)
        bulk = np.linspace(0.0, min(max(2 * middle, top / 8), _LARGEST_EPSILON), 65)
        grid = np.unique(np.concatenate([bulk, np.linspace(0.0, top, 65)]))
        extra = [union_cost(self.overflow, e).upper for e in grid.tolist()]
        if self._pair is None:
            found = [self._plain_deltas(grid)]
        else:
            orders = [self._pair] if self._pair.symmetric else [self._pair, self._pair.reversed()]
            found = [self._one_order(order, grid) for order in orders]
        return [np.stack([grid, np.minimum(1.0, one.upper + extra)], axis=1) for one in found]

    @_QUIET
    def powers(self, tables: list[Array], rates: Array) -> Array:
        """Upper bounds of the true positive rate of any test, at false positive rates, for either null."""
        best = power(rates, tables[0], tables[-1]) if tables else rates
        return np.asarray(np.minimum(1.0, best + self.noiseless.upper))


def _in_order(values: Array, ask: Callable[[Array], Brackets]) -> Brackets:
    """Each different value once, in increasing order, as many at a time as memory allows."""
    asked, place = np.unique(values, return_inverse=True)
    found = Brackets(np.empty(asked.shape), np.empty(asked.shape))
    for start in range(0, asked.size, _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        found.lower[some], found.upper[some] = ask(asked[some])
    return Brackets(found.lower[place], found.upper[place])
