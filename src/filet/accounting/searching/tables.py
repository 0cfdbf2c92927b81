"""Many questions to a run whose delta has a closed form: one table of it says where to look for every epsilon."""

from __future__ import annotations

import math

import numpy as np

from ..proving.closed_form import ClosedForm
from ..proving.loss_law import Array
from ..proving.verdict import EpsilonBracket

_FIRST = np.concatenate([[0.0], np.geomspace(1e-12, 1e18, 260)])
_DENSE = 1024  # points of the second table
_ROUNDS = 3  # of Newton's method
_AROUND = 1.0 + np.array([-1e-6, -1e-9, -2e-10, 2e-10, 1e-9, 1e-6])  # where the last readings are taken
_NARROW = 1e-8  # the relative width up to which a bracket is refined
_SPREAD = 17  # points of a search by sections
_SECTIONS = 40


def epsilons(form: ClosedForm, deltas: Array) -> tuple[Array, Array]:
    """Brackets of epsilon at deltas in increasing order."""
    bracket = EpsilonBracket(deltas)
    bracket.read_exact(form, _FIRST)
    some = (bracket.upper > 0.0) & (bracket.upper < np.inf)
    if some.any():
        grid = np.linspace(float(bracket.lower[some].min()), float(bracket.upper[some].max()), _DENSE)
        bracket.read_exact(form, np.maximum(_near(form, grid, np.log(deltas)), 0.0)[:, None] * _AROUND)
    lower, upper = bracket.lower, bracket.upper
    left = np.flatnonzero(_open(lower, upper))
    if left.size:
        lower[left], upper[left] = _by_sections(form, deltas[left], lower[left], upper[left])
    return lower, upper


def _open(lower: Array, upper: Array) -> Array:
    return np.asarray((upper > 0.0) & (upper < np.inf) & (upper - lower > _NARROW * upper))


def _log_delta(form: ClosedForm, epsilon: Array) -> Array:
    lower, upper = form.delta_bounds(epsilon)
    return np.asarray(np.log(0.5 * (lower + upper)))


def _near(form: ClosedForm, grid: Array, goal: Array) -> Array:
    """About where delta reaches each goal: the table's own answer, moved by Newton's method with the table's slopes."""
    value = np.minimum.accumulate(_log_delta(form, grid))
    known = np.isfinite(value)
    grid, value = grid[known], value[known]
    if grid.size < 2:
        return np.zeros(goal.shape)
    slope = np.gradient(value, grid)
    epsilon = np.interp(-goal, -value, grid)
    for _ in range(_ROUNDS):
        steep = np.minimum(np.interp(epsilon, grid, slope), -1e-300)
        step = (goal - _log_delta(form, epsilon)) / steep
        epsilon = np.clip(epsilon + np.where(np.isfinite(step), step, 0.0), grid[0], grid[-1])
    return np.asarray(epsilon)


def _by_sections(form: ClosedForm, deltas: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Ever closer points around where delta crosses its goals: for profiles with kinks and flat parts."""
    shares = np.linspace(0.0, 1.0, _SPREAD)
    for _ in range(_SECTIONS):
        bracket = EpsilonBracket(deltas)
        ratio = np.where(lower > 0.0, upper / np.maximum(lower, 1e-300), np.inf)[:, None]
        apart = np.where((ratio > 2.0) & (ratio < np.inf), lower[:, None] * ratio**shares, np.nan)
        points = np.where(np.isfinite(apart), apart, lower[:, None] + (upper - lower)[:, None] * shares)
        bracket.read_exact(form, points)
        before = math.fsum(upper - lower)
        lower, upper = np.maximum(lower, bracket.lower), np.minimum(upper, bracket.upper)
        if not _open(lower, upper).any() or math.fsum(upper - lower) == before:
            break
    return lower, upper
