"""Contours to read: tilt, period and smoothing for questions near an epsilon, with caps where no tilt would do.

A tilt near the saddle point keeps the integrand as small as the answer. The period must be so long
that aliases are negligible, by Chernoff's bounds at other tilts; smoothing ends the contour. Where
rare large losses decide, no tilt reaches them, and the losses are split at caps: sums without a
large loss, and sums with exactly one in each band, have contours of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..._rounding import TRANSFORM_ERROR, UNDERFLOW
from ..proving.composition import Composition
from ..proving.contour import LARGEST_CURVED_SHIFT, ContourParameters, log_peak
from ..proving.inversion import Inversion
from ..proving.loss_law import Array
from ..proving.pmf import LossPMF
from .effort import EFFORT, TOLERANCE
from .grid import CellWeights
from .saddle_point import LossTail

_ROUNDING = TRANSFORM_ERROR / TOLERANCE.part  # of one step's transform, over the share of delta that it may take
# Tilts over that of the saddle point, up to 2^6, finer near it: bounds of aliases need close neighbours.
_LADDERS = tuple(np.exp2(np.sinh(np.linspace(-2.5, 2.5, count))) for count in (28, 84))
_OCTAVES = 2.0 ** np.arange(-16.0, 13.0)  # tilts over one by epsilon, where no saddle point is known


class Proposal(NamedTuple):
    """Parameters of a contour, how much it amplifies rounding, as a logarithm, and about its number of nodes."""

    parameters: ContourParameters
    log_amplitude: float
    nodes: float


@dataclass(frozen=True)
class Query:
    """Questions that a contour is for: epsilons and log deltas from one end to the other, and how finely.

    Where `exact`, epsilon itself is given, so that no smoothing may move it.
    """

    pmf: LossPMF
    epsilon: Array
    log_delta: Array
    fineness: float
    exact: bool = False
    both_sides: bool = True

    @property
    def middle(self) -> tuple[float, float]:
        return float(self.epsilon.mean()), float(self.log_delta.mean())

    @property
    def tolerable(self) -> float:
        """The logarithm of how much rounding may be amplified."""
        return -math.log(self.pmf.steps * _ROUNDING)

    @property
    def two_jumps(self) -> float:
        return TOLERANCE.part / self.fineness**2

    def cost(self, contour: Proposal) -> tuple[float, float]:
        """Digits first, then time."""
        return max(contour.log_amplitude, self.tolerable + math.log(10.0)), contour.nodes

    def good(self, contour: Proposal) -> bool:
        return contour.log_amplitude <= self.tolerable + math.log(10.0) and contour.nodes <= EFFORT.short


def choose_inversion(query: Query, tilt: float) -> Inversion:
    """Contours through the transform for the questions; `tilt` is about the saddle point.

    Several epsilons share one contour of all losses. For a single one, losses are split where no
    tilt would do, or none cheaply.
    """
    pmf = query.pmf
    whole = _contour(query, pmf.whole, tilt)
    plan = whole.parameters._replace(both_ways=query.both_sides)
    if query.epsilon.size > 1 or not query.epsilon[0] > 0.0 or query.good(whole):
        return Inversion(pmf, [plan])
    tail = LossTail.of(pmf)
    split = _split_at_jump(query, tail)
    if split:
        return split
    capped = _best_cap(query, tail)
    if capped is None or query.cost(whole) <= query.cost(capped.slowest):
        return Inversion(pmf, [plan])
    return capped.inversion(pmf)


# --- one contour ------------------------------------------------------------------------------------------------------


def _contour(query: Query, losses: Composition, tilt: float | None = None, clear: float = 0.0) -> Proposal:
    """A contour for some of the sums, none of which is within `clear` of epsilon."""
    centre = _saddle_tilt(losses, *query.middle) if tilt is None else tilt
    found = []
    for ladder in _LADDERS:
        tilts = np.concatenate([[0.0], centre * ladder])
        found.append(_chosen(query, tilts, losses.log_mgf(tilts), clear))
        if query.good(found[-1]):
            break
    return min(found, key=query.cost)


def _saddle_tilt(losses: Composition, epsilon: float, log_delta: float) -> float:
    """The saddle point to an octave, or the weakest tilt at which these sums are negligible."""
    tilts = _OCTAVES / epsilon
    value = losses.log_mgf(tilts) - tilts * epsilon - np.log(tilts) - np.log1p(tilts)
    return float(tilts[int(np.argmin(np.maximum(value, log_delta - 2.0 * TOLERANCE.nats)))])


def _chosen(query: Query, tilts: Array, log_mgf: Array, clear: float) -> Proposal:
    """The tilt with the shortest period among those that amplify rounding little; the first tilt is zero."""
    away = np.multiply.outer(tilts, query.epsilon) + query.log_delta
    most = log_mgf - away.min(axis=1)
    need = np.maximum(most + log_peak(tilts) + TOLERANCE.nats, 0.1)
    gap = tilts[:, None] - tilts  # gap[i, j] = c_i - c_j
    left, right = need / np.maximum(gap, 1e-200), need / np.maximum(-gap, 1e-200)
    periods = np.maximum(left.min(axis=1), right.min(axis=1))
    amplitude = most - np.log1p(tilts)
    amplitude[0] = np.inf
    allowed = amplitude <= max(float(amplitude.min()) + 1.0, query.tolerable)
    best = max(int(np.argmin(np.where(allowed, periods, np.inf))), 1)
    outer = int(np.argmin(right[best]))
    # a law may have a little more mass far out than the coarse one: then the next tilt inward does better
    sides = [int(np.argmin(left[best])), outer, *([outer - 1] if outer - 1 > best else [])]
    c, period = float(tilts[best]), float(periods[best])
    beta = min(40.0, 15.0 + max(0.0, float(amplitude[best])))
    unit = 1.05 * beta * period / (2.0 * math.pi)  # nodes until a smoothing of width 1 has died out
    shift = _shift(query, c, beta, unit)
    if clear > 0.0:  # a wide shift must not spoil the bounds of aliases
        widest = min(0.25 * clear, 0.4 / c, LARGEST_CURVED_SHIFT, math.sqrt(beta) / float(tilts[sides].max()))
        shift = max(shift, widest)
    return Proposal(ContourParameters(c, shift, beta, period, tilts[sides]), float(amplitude[best]), unit / shift)


def _shift(query: Query, c: float, beta: float, unit: float) -> float:
    """The width of the smoothing.

    It moves log delta by about (c s)^2 / beta, so epsilon by c s^2 / beta, which is to be a small
    share of epsilon. Smaller shifts need more nodes: below an epsilon of 0.1 an absolute error is
    fine, if that saves many. Large epsilons are insensitive to a shift as such.
    """
    epsilon, log_delta = float(query.epsilon.min()), float(query.log_delta.max())
    share = (TOLERANCE.part if query.pmf.above else 3.0 * TOLERANCE.part) / query.fineness**2
    relative, absolute = (math.sqrt(share * beta * e / c) for e in (epsilon, max(epsilon, 0.1)))
    # From below a wide shift is taken off as a whole, so large epsilons bear less of it.
    bearable = (50.0 if query.pmf.above else 20.0 / query.fineness**2) * TOLERANCE.part / query.fineness**2
    widest = LARGEST_CURVED_SHIFT if query.exact else max(LARGEST_CURVED_SHIFT, bearable * epsilon)
    shift = min(max(relative, min(unit / (2 * EFFORT.short), absolute)), widest)
    shift = min(max(shift, 0.03 * math.sqrt(share) * epsilon), 0.4 / c)
    # A wider shift would smear the bulk over epsilon, which matters unless delta is large anyway.
    return min(shift, max(epsilon / 1.5, 7e-5, 0.01 * math.exp(log_delta)))


# --- rare large losses ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Capped:
    """A cap on the losses, a contour for the sums without a larger one, and one for those with exactly one."""

    cap: float
    below: Proposal
    above: Proposal

    @property
    def slowest(self) -> Proposal:
        amplitude = max(self.below.log_amplitude, self.above.log_amplitude)
        return Proposal(self.below.parameters, amplitude, max(self.below.nodes, self.above.nodes))

    def inversion(self, pmf: LossPMF) -> Inversion:
        return Inversion(pmf, [self.below.parameters, self.above.parameters], self.cap)


def _jump(query: Query, low: float, high: float) -> Proposal:
    """A contour for the sums of one loss above `high` and others up to `low`."""
    losses = Composition(query.pmf.blocks, query.pmf.gaussian, low, True, (high, math.inf))
    return _contour(query, losses, clear=max(0.0, high - query.middle[0]))


def _split_at_jump(query: Query, tail: LossTail) -> Inversion | None:
    """Contours where one loss alone decides whether epsilon is exceeded; None where that is not so.

    Losses up to a low cap are small: without a larger one they hardly reach epsilon, and they hardly
    make up for what a loss below the high cap lacks. Both parts get contours of a few nodes.
    """
    pmf, (epsilon, log_delta) = query.pmf, query.middle
    low, tilts = tail.rare(log_delta, query.two_jumps), _OCTAVES * 16.0 / epsilon
    if not 0.0 < low < epsilon:
        return None
    small = Composition(pmf.blocks, pmf.gaussian, low).log_mgf(tilts) + log_peak(tilts)
    # what small losses add up to beside a large one, but for a negligible share of delta
    large = np.log(tail.chance_above(low) + UNDERFLOW)
    spare = (small + max(large - log_delta, 0.0) + TOLERANCE.nats) / tilts
    spare[small - tilts * epsilon > log_delta - TOLERANCE.nats] = math.inf  # they might do without a large one
    enough = spare <= 0.1 * epsilon  # weaker tilts allow longer steps
    best = int(np.argmax(enough) if enough.any() else np.argmin(spare))
    if not spare[best] < 0.5 * epsilon:
        return None
    high, tilt = epsilon - float(spare[best]), float(tilts[best])
    between = tail.chance_above(low) > tail.chance_above(high) > 0.0
    caps = [low, high] if between else [low]
    jump = _jump(query, low, caps[-1])
    if jump.log_amplitude > query.tolerable + math.log(10.0):
        return None
    hardly = ContourParameters(tilt, 2.0 / tilt, 4.0, 60.0 / tilt, tilt * np.array([0.9, 1.1]))
    return Inversion(pmf, [hardly] * len(caps) + [jump.parameters], *caps)


def _best_cap(query: Query, tail: LossTail) -> _Capped | None:
    """The cap with the cheapest contours, of those above which two losses are too rare to matter."""
    best, (epsilon, log_delta) = None, query.middle
    for cap in (tail.rare(log_delta, query.two_jumps), 2.0 * epsilon, 1.1 * epsilon):
        chance = float(tail.chance_above(cap))
        if not cap > 0.05 * epsilon or chance == 0.0 or 0.5 * chance**2 > query.two_jumps * math.exp(log_delta):
            continue
        below = _contour(query, Composition(query.pmf.blocks, query.pmf.gaussian, cap))
        one = _Capped(cap, below, _jump(query, cap, cap))
        if best is None or query.cost(one.slowest) < query.cost(best.slowest):
            best = one
        if query.good(one.slowest):
            break
    return best


# --- weights of cells -------------------------------------------------------------------------------------------------


def read_weights(inversion: Inversion, epsilon: float) -> CellWeights:
    """Weights of losses by a contour that was read: a step of loss l leaves delta(epsilon - l) to the others."""
    inner = np.linspace(-0.25, 1.0, 16) * epsilon
    beyond = np.array([0.1, 1.0, 30.0])  # a loss above epsilon leaves nearly 1, a little less the larger it is
    log_weight = np.minimum(
        np.max([contour.log_values(epsilon - inner) for contour in inversion.contours], axis=0), 0.0
    )
    known = np.isfinite(log_weight)
    if not known.any():
        return CellWeights(np.array([0.0, 1.0]), np.zeros(2))
    loss = np.concatenate([inner[known], epsilon + beyond])
    return CellWeights(loss, np.concatenate([log_weight[known], log_weight[known][-1] - beyond]))
