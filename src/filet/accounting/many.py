"""Many questions to one run: arrays of deltas, of epsilons or of rates, each answered as if it were asked alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from .proving.combining import added, exposed, power, union_cost, worse
from .proving.loss_law import Array
from .run import Answers, Run
from .searching import stretches, tables
from .searching.budget import Budget
from .searching.exact import Exact, OneStepAnswers
from .searching.refinement import Direction
from .terms import Bounds, Brackets

_FEW = 3  # questions that are quicker one by one
_MOST = 4_000  # questions at once, so that memory is bounded
_FAR = 1e9  # epsilons beyond it are asked one by one
_LEAST_DELTA = 1e-250  # smaller ones are not compared between directions
_TURNS = 100  # of the union strategy's search
_BULK, _REACH = 65, 65  # points of a table for powers: where most of the loss is, and as far as it reaches
_LARGEST_EPSILON = 600.0
_QUIET = np.errstate(over="ignore", divide="ignore", invalid="ignore")  # as for single questions


def _listed(bounds: Sequence[Bounds]) -> Brackets:
    return Brackets(np.array([one.lower for one in bounds]), np.array([one.upper for one in bounds]))


def _in_order(values: Array, many: Callable[[Array], Brackets], one: Callable[[float], Bounds]) -> Brackets:
    """Each different value once, in increasing order, as many at a time as memory allows."""
    asked, place = np.unique(values, return_inverse=True)
    found = Brackets(np.empty(asked.shape), np.empty(asked.shape))
    for start in range(0, asked.size, _MOST):
        some = asked[start : start + _MOST]
        part = many(some) if some.size > _FEW else _listed([one(float(value)) for value in some])
        found.lower[start : start + _MOST], found.upper[start : start + _MOST] = part
    return Brackets(found.lower[place], found.upper[place])


# --- epsilon at delta -------------------------------------------------------------------------------------------------


@_QUIET
def epsilons(run: Run, deltas: Array) -> Brackets:
    """What `run.epsilon` proves at each of several deltas."""
    if run.exposure.upper == 0.0 and run.overflow.upper == 0.0:
        return _in_order(deltas, partial(_plain, run), run.epsilon)
    found = Brackets(np.zeros(deltas.shape), np.full(deltas.shape, np.inf))
    spare = np.flatnonzero(deltas > run.exposure.upper)
    for i in np.flatnonzero(deltas <= run.exposure.upper):
        found.lower[i], found.upper[i] = run.epsilon(float(deltas[i]))
    if spare.size:
        rest = deltas[spare] - run.exposure.upper
        if run.overflow.upper == 0.0:
            found.upper[spare] = _sorted_plain(run, rest).upper
            found.lower[spare] = np.minimum(_sorted_plain(run, deltas[spare]).lower, found.upper[spare])
        else:
            found.upper[spare], found.lower[spare] = (
                _union(run, rest, upper=True),
                _union(run, deltas[spare], upper=False),
            )
    return found


def _sorted_plain(run: Run, deltas: Array) -> Brackets:
    return _in_order(deltas, partial(_plain, run), run.plain_epsilon)


def _plain(run: Run, deltas: Array) -> Brackets:
    """The larger of both directions at deltas in increasing order, without overflows and exposure."""
    if not run.directions:
        return Brackets(np.zeros(deltas.shape), np.zeros(deltas.shape))
    best = _epsilons(run.directions[0], deltas)
    for other in run.directions[1:]:
        lower, upper = np.zeros(deltas.shape), np.full(deltas.shape, np.inf)
        if isinstance(other, Direction):  # mostly the first direction decides, which a coarse look shows
            upper = stretches.at_most(other, best.lower, deltas)
        unsure = ~(upper <= best.upper)
        if unsure.any():
            lower[unsure], upper[unsure] = _epsilons(other, deltas[unsure])
        best = Brackets(np.maximum(best.lower, lower), np.maximum(best.upper, upper))
    return best


def _epsilons(answers: Answers, deltas: Array) -> Brackets:
    if isinstance(answers, Direction):
        return Brackets(*stretches.epsilons(answers, deltas))
    if isinstance(answers, OneStepAnswers):
        answers = answers.exact(math.log(deltas[0]), math.log(deltas[-1]))
    if isinstance(answers, Exact):
        return Brackets(*tables.epsilons(answers.form, deltas))
    return _listed([answers.epsilon(float(delta)) for delta in deltas])


def _union(run: Run, deltas: Array, *, upper: bool) -> Array:
    """As `Run` does it for one delta: the smallest epsilon that leaves delta enough for what overflows cost there."""
    epsilon, found, left = np.zeros(deltas.shape), np.full(deltas.shape, np.nan), np.arange(deltas.size)
    for turn in range(_TURNS):
        costs = _listed([union_cost(run.overflow, float(e)) for e in epsilon[left]])
        rest = deltas[left] - (costs.upper if upper else costs.lower)
        found[left[~(rest > 0.0)]] = np.inf
        left, rest = left[rest > 0.0], rest[rest > 0.0]
        if not left.size:
            break
        bounds = _sorted_plain(run, rest)
        new, old = bounds.upper if upper else bounds.lower, epsilon[left]
        small = new - old <= 1e-6 * np.maximum(old, 0.1)
        done = (new <= old) | (small & (not upper))
        found[left[done]] = np.maximum(new, old)[done]
        epsilon[left] = new + np.where(small | (turn > 60), 1e-5 * np.maximum(old, 0.1), 0.0)
        left = left[~done]
    found[left] = np.inf if upper else epsilon[left]
    return found


# --- delta at epsilon -------------------------------------------------------------------------------------------------


@_QUIET
def deltas(run: Run, epsilons: Array) -> Brackets:
    """What `run.delta` proves at each of several epsilons."""
    if not run.directions or epsilons.max() > _FAR:
        each = deltas_each(run, epsilons)
        return Brackets(np.max([one.lower for one in each], axis=0), np.max([one.upper for one in each], axis=0))
    return _whole(run, epsilons, _in_order(epsilons, partial(_larger, run), lambda one: worse(
        direction.delta(one) for direction in run.directions)))  # fmt: skip


def _larger(run: Run, epsilons: Array) -> Brackets:
    """The larger of both directions at epsilons in increasing order, without overflows and exposure."""
    best = _deltas(run.directions[0], epsilons)
    for other in run.directions[1:]:
        unsure = np.ones(epsilons.shape, bool)
        if isinstance(other, Direction):  # mostly the first direction decides, which a coarse look shows
            known = best.lower > _LEAST_DELTA
            if known.any():
                unsure[known] = stretches.at_most(other, epsilons[known], best.lower[known]) == np.inf
        if unsure.any():
            lower, upper = _deltas(other, epsilons[unsure])
            best.lower[unsure], best.upper[unsure] = (
                np.maximum(best.lower[unsure], lower),
                np.maximum(best.upper[unsure], upper),
            )
    return best


@_QUIET
def deltas_each(run: Run, epsilons: Array) -> list[Brackets]:
    """`deltas` in each direction; one entry if both are the same."""
    if not run.directions:
        return [_listed([run.delta(float(e)) for e in epsilons])]
    near = epsilons <= _FAR
    each = [Brackets(np.zeros(epsilons.shape), np.ones(epsilons.shape)) for _ in run.directions]
    for i in np.flatnonzero(~near):
        for found, one in zip(each, run.delta_each(float(epsilons[i])), strict=True):
            found.lower[i], found.upper[i] = one
    for found, direction in zip(each, run.directions, strict=True):
        if near.any():
            part = _in_order(epsilons[near], partial(_deltas, direction), direction.delta)
            found.lower[near], found.upper[near] = _whole(run, epsilons[near], part)
    return each


def _deltas(answers: Answers, epsilons: Array) -> Brackets:
    if isinstance(answers, Direction):
        return Brackets(*stretches.deltas(answers, epsilons))
    if isinstance(answers, Exact | OneStepAnswers):
        return Brackets(*answers.deltas(epsilons))
    return _listed([answers.delta(float(epsilon)) for epsilon in epsilons])


def _upper_deltas(answers: Answers, epsilons: Array, budget: Budget) -> Array:
    if isinstance(answers, Direction):
        return stretches.upper_deltas(answers, epsilons, budget)
    if isinstance(answers, Exact | OneStepAnswers):
        return answers.deltas(epsilons)[1]
    return np.array([answers.quick_delta(float(epsilon), budget) for epsilon in epsilons])


def _whole(run: Run, epsilons: Array, part: Brackets) -> Brackets:
    """With what overflows and steps without noise add."""
    if run.overflow.upper == 0.0 and run.exposure.upper == 0.0:
        return part
    bounds = zip(epsilons.tolist(), part.lower.tolist(), part.upper.tolist(), strict=True)
    return _listed(
        [exposed(added(Bounds(low, high), union_cost(run.overflow, e)), run.exposure) for e, low, high in bounds]
    )


# --- powers -----------------------------------------------------------------------------------------------------------


@_QUIET
def power_tables(run: Run) -> list[Array]:
    """Upper bounds of delta at epsilons that matter to the power of tests, for each direction."""
    top, middle = np.minimum(_plain(run, np.array([1e-12, 0.3])).upper, _LARGEST_EPSILON)
    bulk = np.linspace(0.0, min(max(2 * middle, top / 8), _LARGEST_EPSILON), _BULK)
    grid = np.unique(np.concatenate([bulk, np.linspace(0.0, top, _REACH)]))
    extra, budget, made = [union_cost(run.overflow, e).upper for e in grid.tolist()], Budget(), []
    for direction in run.directions:
        made.append(np.stack([grid, np.minimum(1.0, _upper_deltas(direction, grid, budget) + extra)], axis=1))
    return made


@_QUIET
def powers(run: Run, known: list[Array], rates: Array) -> Array:
    """Upper bounds of the true positive rate of any test, at false positive rates, for either null."""
    best = power(rates, known[0], known[-1]) if run.directions else rates
    return np.asarray(np.minimum(1.0, best + run.exposure.upper))
