"""Closed forms: Gaussian mechanisms, and runs of one step, whose profile is known."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import log_ndtr, ndtri

from ..._rounding import CLOSED_FORM_ERROR, UNIT
from ..proving.closed_form import ClosedForm, Gaussian, OneStep, gaussian_log_delta
from ..proving.combining import smaller
from ..proving.hull import HullStep
from ..proving.inversion import EpsilonBracket
from ..proving.loss_law import Array, Piece
from ..proving.pair import Pair
from ..terms import Brackets
from .effort import EFFORT
from .lending import can_help, choose, coarse_nodes

_FIRST = np.concatenate([[0.0], np.geomspace(1e-12, 1e18, 260)])
_NARROW = math.sqrt(UNIT)  # the relative width at which a bracket is narrow enough: half of all digits


# --- epsilon at delta of any closed form ------------------------------------------------------------------------------


def epsilons(form: ClosedForm, deltas: Array) -> Brackets:
    """Brackets of epsilon at deltas in increasing order."""
    if isinstance(form, Gaussian):
        return Brackets(*np.array([_gaussian_epsilon(form, float(delta)) for delta in deltas]).reshape(-1, 2).T)
    bracket = EpsilonBracket(deltas)
    bracket.read_exact(form, _FIRST)
    left = np.flatnonzero(_open(bracket))
    if left.size:
        part = EpsilonBracket(deltas[left])
        _by_sections(form, part, bracket.lower[left], bracket.upper[left])
        bracket.keep_part(left, part)
    return Brackets(bracket.lower, bracket.upper)


def _open(bracket: EpsilonBracket) -> Array:
    lower, upper = bracket.lower, bracket.upper
    return np.asarray((upper > 0.0) & (upper < np.inf) & (upper - lower > _NARROW * upper))


def _by_sections(form: ClosedForm, bracket: EpsilonBracket, lower: Array, upper: Array) -> None:
    """Ever closer points around where delta crosses its goals, until they no longer help."""
    shares = np.linspace(0.0, 1.0, 2 * EFFORT.readings + 1)
    for _ in range(40):
        ratio = np.where(lower > 0.0, upper / np.maximum(lower, 1e-300), np.inf)[:, None]
        apart = np.where((ratio > 2.0) & (ratio < np.inf), lower[:, None] * ratio**shares, np.nan)
        points = np.where(np.isfinite(apart), apart, lower[:, None] + (upper - lower)[:, None] * shares)
        bracket.read_exact(form, points)
        before = math.fsum(upper - lower)
        lower, upper = np.maximum(lower, bracket.lower), np.minimum(upper, bracket.upper)
        if not ((upper - lower) > _NARROW * upper).any() or math.fsum(upper - lower) == before:
            break


def _gaussian_epsilon(form: Gaussian, delta: float) -> tuple[float, float]:
    """Epsilon of the Gaussian mechanism by Newton's method, and the bracket as close to it as rounding allows."""
    mu, log_delta, slope = form.shifts[1], math.log(delta), -1.0
    epsilon = max(mu * (0.5 * mu - float(ndtri(delta))), 0.0)  # not below the answer, and log delta is concave
    for _ in range(60):
        value = gaussian_log_delta(mu, epsilon)
        slope = -math.exp(epsilon + log_ndtr(-epsilon / mu - 0.5 * mu) - value)
        step = (log_delta - value) / slope
        epsilon = max(epsilon + float(step), 0.0)
        if not abs(step) > 1e-5 * mu or epsilon == 0.0:
            break
    around = epsilon * 1e-11 - 4.0 * CLOSED_FORM_ERROR / min(slope, -1e-300)
    found = form.bracket(delta, max(epsilon - around, 0.0), epsilon + around)
    if found.upper - found.lower <= 1e-6 * found.upper:
        return found
    bracket = EpsilonBracket(np.array([delta]))
    bracket.read_exact(form, _FIRST)
    _by_sections(form, bracket, bracket.lower, np.minimum(bracket.upper, _FIRST[-1]))
    return float(bracket.lower[0]), float(bracket.upper[0])


# --- one step ---------------------------------------------------------------------------------------------------------


def one_step_epsilons(pair: Pair, deltas: Array) -> Brackets:
    """Brackets of epsilon at deltas in increasing order, of a pair with one step and no other release."""
    (phase,), lowest = pair.phases, math.log(float(deltas[0]))
    plain = None if phase.law is None else epsilons(OneStep(phase.law, crossings), deltas)
    if plain and (phase.step is None or not can_help(phase.step, 1, lowest)):
        return plain
    nodes = _HullNodes(pair, lowest)
    found = plain or epsilons(nodes.near(np.empty(0)), deltas)
    for width in (0.3, 0.3, 0.3, 0.05, 3e-3):  # the hull is tight at its nodes, so they close in on the answer
        near = np.outer(found.upper, 1.0 + np.linspace(-width, width, 41))
        found = epsilons(nodes.near(near.ravel()), deltas)
    return smaller(found, plain) if plain else found


def one_step_deltas(pair: Pair, epsilons: Array) -> Brackets:
    """Brackets of delta at epsilons, of a pair with one step and no other release."""
    (phase,) = pair.phases
    plain = None if phase.law is None else Brackets(*OneStep(phase.law, crossings).delta_bounds(epsilons))
    lowest = math.log(max(float(plain.upper.min()) if plain else 0.0, 1e-290))
    if plain and (phase.step is None or not can_help(phase.step, 1, lowest)):
        return plain
    found = Brackets(*_HullNodes(pair, lowest - 50.0).near(epsilons).delta_bounds(epsilons))
    return smaller(found, plain) if plain else found


class _HullNodes:
    """One step by bounds of its profile: at coarse nodes, and at more of them near the answers."""

    def __init__(self, pair: Pair, log_delta: float) -> None:
        step = pair.phases[0].step
        assert step is not None
        self._shares, self._backward = choose(step, {}), pair.backward
        self._nodes = coarse_nodes(step, self._shares, 1, log_delta)

    def near(self, epsilons: Array) -> HullStep:
        nodes = np.unique(epsilons[(epsilons > 0.0) & (epsilons < 600.0)])
        nodes = -nodes[::-1] if self._backward else nodes
        self._nodes = self._nodes.more(nodes, *(self._shares.at(nodes) if self._shares else ()))
        return HullStep((self._nodes.reversed() if self._backward else self._nodes).discretised(0.0))


def crossings(piece: Piece, epsilon: Array) -> Iterator[Array]:
    """Points where the loss of a piece passes epsilon, on the side that can be proven; each next one is farther out."""
    way, farthest = 1.0 if piece.increasing else -1.0, max(abs(v) for v in piece.means)
    change = max(abs(v) for v in piece.d) / max(*piece.q, *piece.p)
    x, slope = _crossing(piece, epsilon)
    rounded = 16 * UNIT * (farthest * (np.abs(x) + farthest) + epsilon + 4.0)
    x = x - way * np.where(np.isfinite(x), rounded / slope, 0.0)
    yield x
    for turn in range(12):
        off = piece.loss_error(np.clip(x, piece.low, piece.high), epsilon)
        margin = 16.0**turn * (4.0 * np.where(np.isfinite(off), off, 0.0) + UNIT * change)
        yield _crossing(piece, epsilon - margin)[0]


def _crossing(piece: Piece, epsilon: Array) -> tuple[Array, Array]:
    """An estimate of the point where the loss passes epsilon, and a slope there.

    P / e^epsilon - Q is a sum of at most three exponentials of x. Where two of them cancel is the
    first guess; from there the logarithm of its positive over its negative terms, which is convex or
    concave, takes Newton's method.
    """
    way = 1.0 if piece.increasing else -1.0
    rows = sorted((way * m, q, d) for m, q, d in zip(piece.means, piece.q, piece.d, strict=True))
    m, shrunk, gone = np.array([row[0] for row in rows]), np.exp(-epsilon), np.expm1(-epsilon)
    parts = [d * shrunk + q * gone if q else d + 0.0 * epsilon for _, q, d in rows]
    above = np.array(parts) > 0.0
    size = np.array(
        [
            np.log(np.abs(part)) - 0.5 * v * v - (0.0 if q else epsilon)
            for part, (v, q, _) in zip(parts, rows, strict=True)
        ]
    )
    pairs = [
        np.where(above[j] & ~above[i], (size[i] - size[j]) / (m[j] - m[i]), np.nan)
        for i, j in ((0, 1), (0, 2), (1, 2))
        if j < m.size
    ]
    x, slope = pairs[0] if pairs else np.nan * epsilon, m[-1] - m[0] or 1.0
    if m.size > 2:
        x = np.where(above[1], np.fmin(x, pairs[1]), np.fmax(pairs[1], pairs[2]))
        size -= (size + m[:, None] * x).max(axis=0)
        for _ in range(5):
            terms = np.exp(size + m[:, None] * x)
            gain = terms * above
            more, less = gain.sum(axis=0), (terms - gain).sum(axis=0)
            slope = m @ gain / more - m @ (terms - gain) / less
            x = np.where(slope > 0.0, x - np.log(more / less) / slope, np.nan)  # past the top: it is nowhere
    nowhere = np.isnan(x)
    return way * np.where(nowhere, np.where(above[-1], -np.inf, np.inf), x), np.where(nowhere, 1.0, np.abs(slope))
