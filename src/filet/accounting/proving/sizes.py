"""Sizes that are not public: bounds of the one-step profile that hold for several data set sizes at once.

Bounds come in parts, as in `lending`: the value where the loss is not negative, the excess over `1 - a` below.
Every number returned is an upper bound including rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..._binomial import CapWeights, cap_weights, hazard, relative_error
from ..._rounding import EXTENDED_UNIT, FEW, LEAST_LIGHT, LIGHTEST, UNDERFLOW
from ...errors import NotCertifiedError
from ...scheme import CappedPoisson
from ..terms import Adjacency
from .lending import LEAST_NOISE, MOST_NOISE, Step, lendable, profile_excess, swap_excess
from .loss_law import Array
from .tails import upper

_LARGEST = 10**15  # data set size, as for every binomial weight
_MOST_SIZES = 2_000_000  # that are summed up: 0.1 s
_DEVIATIONS = 37.0  # of a size, beyond which its chance is below 1e-290; 460 more for Poisson's tails
_BULK, _TAIL = np.linspace(-3.5, 3.5, 11), np.array([5.5, 9.0, 16.0])
_PLACES = np.concatenate([-_TAIL, _BULK, _TAIL])  # of knots, in deviations: they move epsilon by 1e-4 of itself
_CELLS = 8  # of data set sizes up to a largest one, on either side


def _resolved_noise(n: int, sigma: float) -> float:
    """The noise that is computed with: no more than there is, which costs no less. Proof: theory.md#one-lemma"""
    if n > _LARGEST or sigma < LEAST_NOISE:
        raise NotCertifiedError(
            f"noise_multiplier={sigma!r} and dataset_size={n} are not computed for sizes that are not public; use more"
            " noise and fewer examples, or size='public'"
        )
    return min(sigma, MOST_NOISE)


# --- every size: policy reject ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SpreadSizes:
    """The law of planned sizes below the cap, spread onto few knots with the same mass and mean; and that of the cap.

    `left` bounds the chance of all sizes that were left out, `error` the relative error of each weight.
    Proof: theory.md#a-secret-size
    """

    knots: Array
    weights: Array
    at_cap: float
    left: float
    error: float


@lru_cache(maxsize=64)
def spread_sizes(n: int, p: float, cap: int) -> SpreadSizes:
    """The binomial law of n and p, given at most cap < n, on few knots.

    Chances are products of ratios of neighbours, relative to one near the mode, in extended precision; what lies beyond
    them is bounded by geometric series, as ratios fall. Only positive numbers are added.

    Proof: theory.md#a-secret-size
    """
    rate = np.longdouble(p)
    reach = math.ceil(_DEVIATIONS * math.sqrt(n * p * (1.0 - p))) + 460
    centre = min(cap, int((n + 1) * p))
    first, last = max(0, centre - reach), min(cap, centre + reach)
    if last - first > _MOST_SIZES:
        raise NotCertifiedError(
            f"a secret size with batches of about {centre} examples has too many sizes to add up; use smaller batches"
        )
    size = np.arange(first, last + 1, dtype=np.longdouble)
    ratio = (n - size[:-1]) / size[1:] * (rate / (1 - rate))  # of a chance to the one before
    at = centre - first
    chance = np.concatenate([np.cumprod(1 / ratio[:at][::-1])[::-1], [1], np.cumprod(ratio[at:])])
    total = chance.sum()
    left = _beyond(chance[0], first / (n - first + 1) * (1.0 - p) / p) if first else 0.0
    left += _beyond(chance[-1], (n - last) / (last + 1) * p / (1.0 - p)) if last < cap else 0.0
    chance = chance / total
    at_cap = float(chance[-1]) if last == cap else 0.0
    knots, weights = _spread(size[: cap - first], chance[: cap - first])
    error = (8 * size.size + 32) * EXTENDED_UNIT + FEW
    return SpreadSizes(knots, weights, at_cap, left / float(total) * (1 + 1e-6) + UNDERFLOW, error)


def _beyond(chance: np.longdouble, ratio: float) -> float:
    """An upper bound of what follows a chance, if the ratios are at most this one."""
    if not ratio < 0.999999:
        raise NotCertifiedError("the law of planned sizes does not fall off; please report these parameters")
    return float(chance) * ratio / (1.0 - ratio) * (1 + 1e-6)


def _spread(size: Any, chance: Any) -> tuple[Array, Array]:
    """Knots and weights: each size's chance goes to the knots around it, such that the mean is kept."""
    mean = float((size * chance).sum() / chance.sum())
    deviation = math.sqrt(float((np.square(size - mean) * chance).sum() / chance.sum()))
    inner = np.rint(np.clip(mean + deviation * _PLACES, float(size[0]), float(size[-1])))
    knots = np.unique(np.concatenate([[float(size[0]), float(size[-1])], inner]))
    if knots.size == 1:
        return knots, np.array([float(chance.sum())])
    starts = np.searchsorted(size, knots[:-1]).astype(
        np.int64
    )  # each part ends with the next knot, the last one included
    number = np.repeat(np.arange(starts.size), np.diff(np.append(starts, size.size)))
    low, width = knots[:-1].astype(np.longdouble)[number], np.diff(knots).astype(np.longdouble)[number]
    up = np.add.reduceat(chance * ((size - low) / width), starts)
    down = np.add.reduceat(chance * ((low + width - size) / width), starts)
    weights = np.zeros(knots.size, np.longdouble)
    weights[1:] += up
    weights[:-1] += down
    return knots, weights.astype(np.float64)


class SecretSize:
    """One step of policy reject under add-remove, for every data set size: the larger of h and z.

    Proof: theory.md#a-secret-size
    """

    adjacency, lender = Adjacency.ADD_REMOVE, None

    def __init__(self, scheme: CappedPoisson, sigma: float) -> None:
        n, p, cap = scheme.dataset_size, scheme.sampling_probability, scheme.max_batch_size
        self.p, self.sigma, self.sizes = p, _resolved_noise(n, sigma), spread_sizes(n, p, cap)
        self.out = self.sizes.knots / n  # j / n_0
        self.hits = (n - self.sizes.knots) / n * p / (1.0 - p)  # r_j p
        self.full = cap / n
        at_cap, below_cap = hazard(cap, n, p)
        logs = [math.log(max(chance, 1e-300)) for chance in (at_cap, below_cap)]
        self.room = (below_cap + at_cap * self.full) * (1.0 + 4.0 * max(map(relative_error, logs)))

    def ends(self, rise: Array) -> Array:
        """Points a - 1 where losses of single sizes end, given those of plain Poisson sampling, to look at."""
        highest = self.hits / self.p * (1.0 + rise.max()) - 1.0
        lowest = [-self.full, -self.full * (1 + 1e-9)]  # nothing is left beyond the second, rounding included
        return np.concatenate([-self.out, lowest, np.linspace(rise.max(), highest.max(), 16)])

    def excess(self, loss: Array) -> Array:
        """The bound in parts; none is so small that a hull leaves it out. Proof: theory.md#a-secret-size"""
        return np.asarray(np.maximum(self._above(loss), self._up_to(loss)) * (1 + FEW) + LEAST_LIGHT)

    def _above(self, loss: Array) -> Array:
        """h: sizes above the planned one."""
        gap, sign, sizes = np.expm1(loss)[:, None], np.where(loss >= 0.0, 1.0, -1.0)[:, None], self.sizes
        weight, full = (_rounded(gap, out, sign) for out in (self.out, self.full))
        parts = upper(self.hits * (1 + sign * FEW), weight, None, 1.0 / self.sigma, sign)
        whole = parts @ sizes.weights + np.where(sign < 0.0, full, 0.0)[:, 0] * sizes.at_cap
        return np.asarray(whole * (1 + sizes.error) + sizes.left / (1.0 - self.p))

    def _up_to(self, loss: Array) -> Array:
        """z: sizes up to the planned one."""
        return self.room * poisson_excess(loss, self.p, self.sigma, Adjacency.ADD_REMOVE)


def _rounded(gap: Array, share: Array | float, sign: Array) -> Array:
    """a - 1 + share: rounded down where it makes a value smaller, up where it makes an excess larger."""
    total, off = gap + share, FEW * (np.abs(gap) + share)
    return np.asarray(np.maximum(total - sign * off, 0.0))


def poisson_excess(loss: Array, p: float, sigma: float, adjacency: Adjacency) -> Array:
    """Plain Poisson's profile in parts. Proof: theory.md#one-lemma"""
    if adjacency is Adjacency.REPLACE_ONE:  # symmetric
        gap = np.expm1(np.abs(loss))
        low, second = (1.0 - p) * gap * (1 - FEW), (gap + 1.0) * p * (1 - FEW)
        part = upper(np.full_like(loss, p), low, second, 1.0 / sigma)
        return np.asarray(np.exp(np.minimum(loss, 0.0)) * (1 + FEW) * part)
    sign = np.where(loss >= 0.0, 1.0, -1.0)
    return upper(np.full_like(loss, p), _rounded(np.expm1(loss), p, sign), None, 1.0 / sigma, sign)


# --- every size up to a largest one: policy truncate ------------------------------------------------------------------


class SizesUpTo:
    """One step of policy truncate, for every data set size up to `dataset_size`: the largest bound of several cells.

    Proof: theory.md#every-size-up-to-a-largest-one
    """

    def __init__(
        self,
        scheme: CappedPoisson,
        sigma: float,
        adjacency: Adjacency,
        lenders: int,
        starts: Sequence[int] | None = None,
    ) -> None:
        """Cells begin at `starts`, and end before the next one; any will do."""
        n, p, cap = scheme.dataset_size, scheme.sampling_probability, scheme.max_batch_size
        sigma = _resolved_noise(n, sigma)
        edges = _cell_edges(n, cap, cell_starts(scheme) if starts is None else starts)
        cells = [_cell(least, most, p, cap, sigma, adjacency, lenders) for least, most in edges]
        self.cells = [cell for cell in cells if cell]
        # plain Poisson's profile bounds those left out, but for their full batches
        self.light = UNDERFLOW if len(self.cells) == len(cells) else LIGHTEST
        self.p, self.sigma, self.adjacency = p, sigma, adjacency

    def ends(self, rise: Array) -> Array:
        """No points to look at beyond those of plain Poisson sampling."""
        return np.empty(0)

    @property
    def lender(self) -> Step | None:
        """The last cell that lends."""
        return next((cell for cell in reversed(self.cells) if cell.lenders), None)

    def excess(self, loss: Array, *choice: Array) -> Array:
        """The bound in parts; cells that lend do so with the same shares and tilts, any of them.

        Proof: theory.md#every-size-up-to-a-largest-one
        """
        most = poisson_excess(loss, self.p, self.sigma, self.adjacency) + self.light
        for step in self.cells:
            bound = profile_excess(step, loss, *choice) if step.lenders else swap_excess(step, loss)
            most = np.maximum(most, bound + UNDERFLOW)
        return np.asarray(most * (1 + FEW))


def _cell_edges(n: int, cap: int, starts: Sequence[int]) -> list[tuple[int, int]]:
    """First and last size of each cell: together all sizes from cap + 1 to n."""
    first = [cap + 1, *(start for start in sorted(starts) if cap + 1 < start <= n)]
    return list(zip(first, [*(start - 1 for start in first[1:]), n], strict=True))


def cell_starts(scheme: CappedPoisson) -> list[int]:
    """First sizes of the cells: narrow where cuts become frequent, each twice as wide as the one before.

    The first is a thirtieth of a deviation of the batch size wide. Proof: theory.md#every-size-up-to-a-largest-one
    """
    n, p, cap = scheme.dataset_size, scheme.sampling_probability, scheme.max_batch_size
    middle, width = min(n, int(cap / p)), 0.03 * math.sqrt(n * p * (1.0 - p)) / p
    away = [int(width * (2**k - 1)) for k in range(1, _CELLS)]
    return sorted({*(middle - gap for gap in away), middle, *(middle + 1 + gap for gap in [0, *away]), 2 * cap})


def _cell(least: int, most: int, p: float, cap: int, sigma: float, adjacency: Adjacency, lenders: int) -> Step | None:
    """The sizes from `least` to `most` as one step; None if full batches are too rare to be resolved."""
    weights = _cell_weights(cap_weights(least, p, cap), cap_weights(most, p, cap), p)
    if weights.w + weights.tau < LIGHTEST:
        return None
    few = lenders if lendable(weights, sigma) and least - 1 >= 2 * (cap - 1) else 0
    return Step(most, p, cap, sigma, adjacency, weights, few, least)


def _cell_weights(least: CapWeights, most: CapWeights, p: float) -> CapWeights:
    """The levels of the largest size with the hit rate of the least one.

    Proof: theory.md#every-size-up-to-a-largest-one
    """
    hits = most.tau * least.q
    return replace(
        most,
        tq=hits,
        c=p * most.w + hits,
        q=least.q,
        swap=most.tau * least.rest_rate,
        rest_rate=least.rest_rate,
        drop=least.drop,
        error=2.0 * (least.error + most.error) + FEW,
    )


Bound = Step | SecretSize | SizesUpTo  # what bounds one step's profile at nodes
