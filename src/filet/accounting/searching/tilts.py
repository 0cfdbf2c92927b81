"""Lines to read: tilt, period and smoothing shift for queries near an epsilon, with a cap where no tilt would do."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..proving.composition import Composition
from ..proving.line import LinePlan, log_peak
from ..proving.loss_law import Array
from ..proving.verdict import Evidence
from ..proving.view import View
from .guesses import saddle

_TINY = 1e-200
_ALIAS = 1e-6  # tolerated aliases, relative to delta
# Candidate tilts around the saddle point, finer near it: Chernoff bounds of aliases need close neighbours. Most
# runs are easy and do with the first ladder.
_LADDERS = (
    2.0 ** np.concatenate([np.arange(-5.0, -2.0), np.arange(-1.75, 1.76, 0.25), np.arange(2.5, 6.6)]),
    2.0 ** np.concatenate([np.arange(-5.0, -1.5, 0.5), np.arange(-1.5, 1.51, 1 / 12), np.arange(2.0, 6.1, 0.5)]),
)
# For many phases every tilt is dear.
_SHORT_LADDER = 2.0 ** np.array([-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5, 4.5])
_EASY_NODES = 4_000
_AFFORDABLE_NODES = 20_000
WIDEST_SHIFT = 0.1  # beyond it, smoothing costs the whole shift from below
_SMOOTHING = 1e-5  # share of epsilon that smoothing may cost
_STEP_ERROR = 3e-13  # typical rounding of one step's transform
_STRETCHES = (2.0, 1.3, 1.15, 1.07, 1.03)  # caps that are tried, over epsilon


@dataclass(frozen=True)
class Proposal:
    """A plan, how much it amplifies rounding, and about how many nodes it takes."""

    plan: LinePlan
    log_amplitude: float
    nodes: float


def propose_evidence(view: View, epsilon: float, log_delta: float, fineness: float) -> Evidence:
    """Lines through the transform for queries near epsilon; with a cap on the losses where no tilt would do."""
    tolerable = math.log(1e-4 / (view.steps * _STEP_ERROR))
    width = (_SMOOTHING if view.above else 3 * _SMOOTHING) / fineness**2
    whole = propose_line(view.whole, epsilon, log_delta, width)
    if whole.log_amplitude <= tolerable or epsilon <= 0:
        return Evidence(view, [whole.plan])
    best, best_cap = whole, math.inf
    for stretch in _STRETCHES:
        cap = epsilon * stretch
        chance = view.chance_above(cap)
        if chance == 0.0 or 0.5 * chance**2 > 1e-3 * math.exp(log_delta):
            continue
        capped = propose_line(Composition(view.blocks, view.gaussian, cap), epsilon, log_delta, width)
        if capped.log_amplitude < best.log_amplitude or (
            best_cap == math.inf and capped.log_amplitude == best.log_amplitude
        ):
            best, best_cap = capped, cap
        if capped.log_amplitude <= tolerable:
            break
    if best_cap == math.inf:
        return Evidence(view, [whole.plan])
    jump = propose_line(Composition(view.blocks, view.gaussian, best_cap, jump=True), epsilon, log_delta, width)
    return Evidence(view, [best.plan, jump.plan], best_cap)


def propose_line(composition: Composition, epsilon: float, log_delta: float, width: float) -> Proposal:
    """A plan for queries near `epsilon`; `width` is the admissible relative error of epsilon that smoothing may cause."""
    centre = _jump_saddle(composition, epsilon) if composition.jump else saddle(composition, epsilon)
    tolerable = _tolerable(composition.total_steps)
    for ladder in _LADDERS if composition.rows < 8 else (_SHORT_LADDER, *_LADDERS):
        tilts = np.concatenate([[0.0], centre * ladder])
        found = choose_line(tilts, composition.log_mgf(tilts), composition.total_steps, epsilon, log_delta, width)
        if found.log_amplitude <= tolerable and found.nodes <= _EASY_NODES * (1 if composition.rows < 8 else 4):
            break
    return found


def choose_line(tilts: Array, log_mgf: Array, steps: float, epsilon: float, log_delta: float, width: float) -> Proposal:
    """A plan from the logarithms of a transform at some tilts, the first of which is zero."""
    best, sides, period, amplitude = _choose(tilts, log_mgf, epsilon, log_delta, _tolerable(steps))
    beta = min(40.0, 15.0 + max(0.0, amplitude))
    c = float(tilts[best])
    unit = 1.05 * beta * period / (2.0 * math.pi)  # nodes until a smoothing of width 1 has died out
    shift = smoothing_shift(c, beta, unit, epsilon, log_delta, width)
    return Proposal(LinePlan(c, shift, beta, period, tilts[sides]), amplitude, unit / shift)


def _tolerable(steps: float) -> float:
    """How much rounding may be amplified, as a logarithm."""
    return math.log(1e-5 / (steps * _STEP_ERROR))


def _jump_saddle(composition: Composition, epsilon: float) -> float:
    """The saddle point of a measure with a jump, on a coarse ladder."""
    ladder = 2.0 ** np.arange(-40.0, 41.0)
    value = composition.log_mgf(ladder) - ladder * epsilon - np.log(ladder) - np.log1p(ladder)
    return float(ladder[int(np.argmin(value))])


def _choose(
    tilts: Array, log_mgf: Array, epsilon: float, log_delta: float, tolerable: float
) -> tuple[int, list[int], float, float]:
    """The tilt with the shortest admissible period among those that amplify rounding little; where Chernoff's bounds of
    its aliases on either side are best; period and amplitude.
    """
    goal = log_delta + math.log(_ALIAS)
    need = np.maximum(log_mgf + log_peak(tilts) - tilts * epsilon - goal, 0.1)
    gap = tilts[:, None] - tilts  # gap[i, j] = c_i - c_j
    left, right = need / np.maximum(gap, _TINY), need / np.maximum(-gap, _TINY)
    period = np.maximum(left.min(axis=1), right.min(axis=1))
    amplitude = log_mgf - tilts * epsilon - np.log1p(tilts) - log_delta
    amplitude[0] = np.inf
    allowed = amplitude <= max(float(amplitude.min()) + 1.0, tolerable)
    best = int(np.argmin(np.where(allowed, period, np.inf)))
    outer = int(np.argmin(right[best]))
    # a law may have a little more mass far out than its sketch: then the next tilt inward does better
    sides = [int(np.argmin(left[best])), outer, *([outer - 1] if outer - 1 > best else [])]
    return best, sides, float(period[best]), float(amplitude[best])


def smoothing_shift(c: float, beta: float, unit: float, epsilon: float, log_delta: float, width: float) -> float:
    """The smoothing moves log delta by about (c s)^2 / beta, so epsilon by c s^2 / beta; aim at `width * epsilon`.

    Smaller shifts need more nodes: below 1e-4 an absolute error is fine, if that saves many. Large epsilons
    are insensitive to a shift as such.
    """
    relative, absolute = (math.sqrt(width * beta * e / c) for e in (epsilon, max(epsilon, 0.1)))
    shift = min(max(relative, min(unit / _AFFORDABLE_NODES, absolute)), WIDEST_SHIFT)
    shift = min(max(shift, 0.03 * math.sqrt(width) * epsilon), 0.4 / c)
    # A wider shift would smear the bulk over epsilon, which matters unless delta is large anyway.
    return min(shift, max(epsilon / 1.5, 1e-4 / 1.5, 0.01 * math.exp(log_delta)))
