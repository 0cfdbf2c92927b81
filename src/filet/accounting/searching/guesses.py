"""Guesses: about where epsilon(delta) and delta(epsilon) lie, and which losses matter. Nothing rests on them."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtri

from ..proving.closed_form import gaussian_log_delta
from ..proving.composition import Composition
from ..proving.line import Line
from ..proving.loss_law import Array
from ..proving.verdict import Evidence
from ..proving.view import View
from .grids import Focus

_TABLE = 16  # points at which the weight of a loss is tabulated
_KINK = 1e4  # squared deviations in units of the tilt; a smooth saddle point has twice -log delta
_NEARLY_GAUSSIAN = 0.08  # sums with a smaller absolute skewness count as such


def moments(composition: Composition, c: float) -> tuple[float, float, float]:
    """Value, slope and curvature of a composition's `log_mgf` at c (without jump)."""
    value = 0.5 * composition.gaussian * (c * c + c)
    slope, curvature = composition.gaussian * (c + 0.5), composition.gaussian
    for block in composition.small:
        v = block.log_mass + c * block.loss
        top = v.max(axis=1)
        e = np.exp(v - top[:, None])
        total = e.sum(axis=1)
        mean = np.einsum("km,km->k", e, block.loss) / total
        square = np.einsum("km,km->k", e, np.square(block.loss - mean[:, None])) / total
        value += float(block.steps @ (np.log(total) + top))
        slope += float(block.steps @ mean)
        curvature += float(block.steps @ square)
    return value, slope, curvature


def saddle(composition: Composition, epsilon: float, start: float = 1.0) -> float:
    """The tilt that minimises the Chernoff bound of delta(epsilon), to a few per cent: Newton's method in log c."""
    low, high, log_c = -40.0, 40.0, math.log(start)
    for _ in range(60):
        c = math.exp(log_c)
        _, slope, curvature = moments(composition, c)
        value = slope - 1.0 / c - 1.0 / (c + 1.0) - epsilon
        low, high = (log_c, high) if value < 0 else (low, log_c)
        step = -value / (c * (curvature + c**-2 + (c + 1.0) ** -2))
        # A trace of a large loss makes a kink in the transform: right of it slope and curvature are huge, and mislead.
        kink = value > 0.0 and c * c * curvature > _KINK
        if high - low < 0.02:
            return math.exp(low if kink else log_c)
        if abs(step) < 0.02 and not kink:
            break
        step = min(step, -0.02) if kink else step
        log_c += min(max(step, -3.0), 3.0)
        if not low < log_c < high:
            log_c = 0.5 * (low + high)
    return math.exp(log_c)


def laplace(c: float, height: float, curvature: float) -> float:
    """Laplace's approximation of log delta: `height` is log mgf(c) - c epsilon at the saddle point c."""
    curvature += c**-2 + (c + 1.0) ** -2
    return height - math.log(c * (c + 1.0)) - 0.5 * math.log(2 * math.pi * curvature)


def guess_epsilon(view: View, log_delta: float) -> float:
    """A starting point for epsilon(delta): saddle-point approximation, or one single large loss."""
    jump = single_jump(view, log_delta)
    return jump if one_jump_decides(view, jump, log_delta) else saddle_point(view, log_delta)


def one_jump_decides(view: View, epsilon: float, log_delta: float) -> bool:
    """Whether epsilon is exceeded by one large loss rather than by several or by the bulk (a rule of thumb)."""
    if not epsilon > 0.0:
        return False
    square = sum(
        float(b.steps @ np.einsum("km,km->k", np.exp(b.log_mass), np.square(np.minimum(b.loss, epsilon / 3))))
        for b in view.blocks
    )
    bulk = math.sqrt(max(0.0, -2.0 * log_delta) * (square + view.gaussian))
    return bulk < epsilon and 0.5 * view.chance_above(epsilon / 2) ** 2 < view.chance_above(epsilon)


def from_the_largest(view: View) -> tuple[Array, Array, Array]:
    """All losses from the largest on; for each the expected number of losses not below it, and the sum of the steps' own
    deltas there.
    """
    loss = np.concatenate([b.loss.ravel() for b in view.blocks])
    log_mass = np.concatenate([(b.log_mass + np.log(b.steps)[:, None]).ravel() for b in view.blocks])
    order = np.argsort(-loss, kind="stable")
    order = order[np.isfinite(log_mass[order])]
    loss, log_mass = loss[order], log_mass[order]
    p = np.cumsum(np.exp(log_mass))
    q = np.logaddexp.accumulate(log_mass - loss)
    return loss, p, p - np.exp(np.minimum(loss + q, 700.0))


def single_jump(view: View, log_delta: float) -> float:
    """The epsilon at which the sum of the steps' own deltas is delta."""
    loss, _, delta = from_the_largest(view)
    at = int(np.argmax(delta >= math.exp(log_delta)))
    return float(loss[at]) if delta[at] >= math.exp(log_delta) else -math.inf


def saddle_point(view: View, log_delta: float) -> float:
    """The epsilon at which Laplace's approximation of delta is the given one."""
    return epsilon_by_laplace(view.whole, log_delta)


def epsilon_by_laplace(composition: Composition, log_delta: float) -> float:
    """The same for some of the losses."""

    def approximate(log_c: float) -> tuple[float, float]:
        c = math.exp(log_c)
        value, slope, curvature = moments(composition, c)
        epsilon = slope - 1.0 / c - 1.0 / (c + 1.0)
        return epsilon, laplace(c, value - c * epsilon, curvature)

    low, high, middle, step = -45.0, 45.0, 0.0, 1.5
    sign = approximate(middle)[1] > log_delta
    while low < middle < high:
        following = middle + (step if sign else -step)
        new = approximate(following)[1] > log_delta
        if new != sign:
            low, high = min(middle, following), max(middle, following)
            break
        middle, step = following, step * 1.6
    for _ in range(8):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if approximate(middle)[1] > log_delta else (low, middle)
    return approximate(0.5 * (low + high))[0]


def guess_log_delta(view: View, epsilon: float, polish: int = 0, tilt: float | None = None) -> float:
    """log delta(epsilon), roughly: the larger of the saddle-point and the single-jump approximation.

    With `polish` more steps of Newton's method neighbouring guesses err alike. `tilt` is the saddle point, if it is known.
    """
    c = saddle(view.whole, epsilon) if tilt is None else tilt
    value, slope, curvature = moments(view.whole, c)
    for _ in range(polish):
        off = (slope - 1.0 / c - 1.0 / (c + 1.0) - epsilon) / (c * (curvature + c**-2 + (c + 1.0) ** -2))
        c *= math.exp(min(max(-off, -0.1), 0.1))
        value, slope, curvature = moments(view.whole, c)
    jump = float(view.separate(np.array([epsilon]))[0])
    # where the bulk cannot reach epsilon the saddle point is far too high
    if 0.0 < jump < 1.0 and one_jump_decides(view, epsilon, math.log(jump)):
        return math.log(jump)
    return laplace(c, value - c * epsilon, curvature)


def bulk_focus(view: View, epsilon: float, log_delta: float, cells: int) -> Focus | None:
    """Where cells should be small if many small losses, nearly a Gaussian sum, make up epsilon; None otherwise."""
    if not (epsilon > 0.01 and view.chance_above(epsilon / 4) < math.exp(log_delta)):
        return None
    c = saddle(view.whole, epsilon)
    variance, third = view.gaussian, 0.0
    for one in view.whole.tilted(c):
        variance += float(one.steps @ np.square(one.deviation))
        third += float(one.steps @ np.einsum("km,km->k", one.weights, one.distance**3))
    if third > _NEARLY_GAUSSIAN * variance**1.5:
        return None
    return Focus(cells, np.array([-epsilon, -log_delta / c]), np.array([log_delta - c * epsilon, 0.0]))


def log_values(line: Line, e: Array) -> Array:
    """log of the smoothed delta at several e, without error bounds; -inf where the estimate is not positive."""
    size = np.abs(line.f)
    heavy = size > 1e-7 * size.max()
    values = (np.exp((-1j) * np.outer(e - line.centre, line.u[heavy])) * line.f[heavy]).real.sum(axis=1)
    return np.asarray(np.log(np.maximum(values, 0.0)) + line.log_scale - line.c * e)


def focus(evidence: Evidence, epsilon: float, cells: int) -> Focus:
    """A step of loss l leaves about delta(epsilon - l) to the other steps: that is its weight."""
    loss = np.concatenate([np.linspace(-0.25, 1.0, _TABLE) * epsilon, epsilon + np.array([0.1, 1.0, 30.0])])
    parts = [log_values(line, epsilon - loss[:_TABLE]) for line in evidence.lines]
    log_weight = np.minimum(np.max(parts, axis=0), 0.0)
    known = np.isfinite(log_weight)
    if not known.any():
        return Focus(cells, np.array([0.0, 1.0]), np.zeros(2))
    tail = float(log_weight[known][-1]) - np.array([0.1, 1.0, 30.0])
    return Focus(
        cells,
        np.concatenate([loss[:_TABLE][known], loss[_TABLE:]]),
        np.concatenate([log_weight[known], tail]),
    )


def gaussian_epsilon(mu: float, delta: float) -> tuple[float, float]:
    """About the epsilon of the Gaussian mechanism with shift mu, and the slope of log delta there; by Newton's method."""
    log_delta, slope = math.log(delta), -1.0
    epsilon = max(mu * (0.5 * mu - float(ndtri(delta))), 0.0)  # not below the answer, and log delta is concave
    for _ in range(60):
        value = gaussian_log_delta(mu, epsilon)
        slope = -math.exp(epsilon + log_ndtr(-epsilon / mu - 0.5 * mu) - value)
        step = (log_delta - value) / slope
        epsilon = max(epsilon + float(step), 0.0)
        if not abs(step) > 1e-5 * mu or epsilon == 0.0:
            break
    return epsilon, slope
