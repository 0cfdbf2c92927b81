"""Scheme, noise, adjacency and analysis -> the loss law of one step (the tables of the theory page).

Coordinates are in units of the noise's standard deviation: distance 1 of the theory is `1 / noise_multiplier` here.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..._binomial import CapWeights, cap_weights, hazard, relative_error
from ..._rounding import LIGHTEST, UNDERFLOW
from ...errors import NotCertifiedError
from ...scheme import CappedPoisson, Overflow
from ..terms import Adjacency, Analysis
from .lending import Step, lendable
from .loss_law import Atom, LossLaw, Piece

_LARGEST = 10**15


def _piece(sigma: float, weights: list[tuple[float, float, float, float]], low: float = -math.inf,
           high: float = math.inf) -> Piece:  # fmt: skip
    """A piece from rows (distance, p, q, p - q); rows without mass are dropped."""
    distance, p, q, d = zip(*(row for row in weights if row[1] + row[2] != 0.0))  # noqa: B905, each has four numbers
    return Piece(tuple(v / sigma for v in distance), p, q, d, low / sigma, high / sigma)


def _hit(sigma: float, rest: float, hit: float, whole: float, ahead: float, behind: float) -> list[Piece]:
    """Weights of a batch without x_1 and with it: in P it is `ahead`, in Q `behind` on the other side, or not there at all."""
    if behind:
        return [_piece(sigma, [(0.0, rest, rest, 0.0), (ahead, hit, 0.0, hit), (-behind, 0.0, hit, -hit)])]
    return [_piece(sigma, [(0.0, rest, whole, -hit), (ahead, hit, 0.0, hit)])]


def poisson(p: float, sigma: float, adjacency: Adjacency, weight: float = 1.0) -> list[Piece]:
    """Poisson sampling at rate p. Proof: theory.md#one-lemma"""
    behind = 1.0 if adjacency is Adjacency.REPLACE_ONE else 0.0
    return _hit(sigma, weight * (1.0 - p), weight * p, weight, 1.0, behind)


def _note_capped(v: CapWeights, sigma: float, adjacency: Adjacency) -> list[Piece]:
    """The group r = 2 of the note's Theorems 3.1, 3.3 and 3.4, with weight tau. Proof: theory.md#truncation-who-is-compared-with-whom"""
    behind = {Adjacency.ADD_REMOVE: 0.0, Adjacency.ZERO_OUT: 1.0, Adjacency.REPLACE_ONE: 2.0}[adjacency]
    return _hit(sigma, v.swap, v.tq, v.tau, 2.0, behind)


def _refined_capped(v: CapWeights, p: float, sigma: float, adjacency: Adjacency) -> tuple[list[Piece], list[Atom]]:
    """The group of at least B-1 others: one pair above the stitch, another below, an atom at it."""
    stay, swap = v.stay, v.swap
    gain = p * v.w
    if adjacency is Adjacency.ADD_REMOVE:
        # loss above log(1-q): x_1 = -v; below it: x_1 = v; they meet at x = stitch
        stitch = math.inf
        if v.w > 0.0 and v.drop > 0.0 and v.c > 0.0:  # the theory's weights always are; floats may underflow
            stitch = 0.5 + sigma**2 * (math.log(v.c) - math.log(v.drop) - math.log(v.w))
        above = [(0.0, v.c, 0.0, v.c), (1.0, stay, v.w, -gain), (2.0, swap, v.tau, -v.tq)]
        pieces = [_piece(sigma, above, high=stitch)]
        if stitch < math.inf:
            below = [(0.0, v.c + swap, v.tau, gain), (1.0, stay, v.w, -gain)]
            pieces.append(_piece(sigma, below, low=stitch))
        share = _between((stitch - 2.0) / sigma, stitch / sigma)
        loss = math.log(v.rest_rate) if v.q > 0.5 else math.log1p(-v.q)
        return pieces, [Atom(loss, swap * share, v.tau * share)]
    if adjacency is Adjacency.ZERO_OUT:
        above = [(0.0, v.c, 0.0, v.c), (1.0, stay, v.w + v.tq, -v.c), (2.0, swap, swap, 0.0)]
        below = [(0.0, stay, v.w + v.tq, -v.c), (1.0, swap + v.c, swap, v.c)]
        atom = swap * _between(-0.5 / sigma, 1.5 / sigma)
        return [_piece(sigma, above, high=0.5), _piece(sigma, below, high=0.5)], [Atom(0.0, atom, atom)]
    above = [(0.0, v.c, 0.0, v.c), (1.0, stay, stay, 0.0), (2.0, swap, swap + v.c, -v.c)]
    below = [(0.0, 0.0, v.c, -v.c), (1.0, stay, stay, 0.0), (2.0, swap + v.c, swap, v.c)]
    atom = swap * _between(-1.0 / sigma, 1.0 / sigma)
    return [_piece(sigma, above, high=1.0), _piece(sigma, below, high=1.0)], [Atom(0.0, atom, atom)]


def _between(low: float, high: float) -> float:
    """The standard normal mass of (low, high), as a difference of tails on the side where they are small."""
    low, high = (-high, -low) if low > 0.0 else (low, high)
    return 0.5 * (math.erfc(-high / math.sqrt(2.0)) - math.erfc(-low / math.sqrt(2.0)))


def _reject(n: int, p: float, cap: int, sigma: float, adjacency: Adjacency) -> tuple[list[Piece], list[Atom], float]:
    """Plain Poisson, and nothing at all where the others already fill the batch. Proof: theory.md#rejection"""
    if adjacency is Adjacency.ADD_REMOVE:
        full, not_full = hazard(cap, n - 1, p)  # b' and 1 - b'
        k = 1.0 / ((1.0 - p) + p * not_full)  # 1 / (1 - p b'), a sum of positive terms
        rest, hit, change = k * (1.0 - p), k * p, -k * p * not_full  # change = rest - 1
        loss = math.log1p(change) if change > -0.5 else math.log(rest)
        rows = [(0.0, not_full * rest, not_full, not_full * change), (1.0, not_full * hit, 0.0, not_full * hit)]
        return [_piece(sigma, rows)], [Atom(loss, full * rest, full)], _hazard_error(full, not_full)
    at_cap, below_cap = hazard(cap, n, p)
    full = at_cap * ((n - cap) / n)
    not_full = below_cap + at_cap * (cap / n)
    return poisson(p, sigma, adjacency, not_full), [Atom(0.0, full, full)], _hazard_error(at_cap, below_cap)


def _hazard_error(*chances: float) -> float:
    """Relative error of what is made of these chances: that of each, four times for the few operations."""
    logs = [math.log(max(chance, 1e-300)) for chance in chances]
    return 4.0 * max(relative_error(log) for log in logs)


def _resolved(v: CapWeights, sigma: float) -> tuple[CapWeights, float, bool]:
    """The weights without those too small for their digits, the mass of P lost so, and whether lower bounds can tell.

    A weight of e^-667 at distance 1 from the others still matters from below where losses reach hundreds.
    """
    weights = ((v.room, v.log_room), (v.w, v.log_w), (v.tau, v.log_tau))
    room, w, tau = (value < LIGHTEST and log > -math.inf for value, log in weights)  # that small, but not 0
    v = replace(v, room=0.0) if room else v
    v = replace(v, w=0.0, stay=0.0) if w else v
    v = replace(v, tau=0.0, tq=0.0, swap=0.0) if tau else v
    return v, (room + w + tau) * LIGHTEST, not ((w or tau) and 2.0 / (sigma * sigma) > 300.0)


def lending_step(scheme: CappedPoisson, sigma: float, adjacency: Adjacency, lenders: int) -> Step | None:
    """One step as the lending theorem sees it, with `lenders` levels that may lend; None where it does not apply.

    Proof: theory.md#lending
    """
    n, p, cap = scheme.group_size, scheme.sampling_probability, scheme.max_batch_size
    if scheme.overflow is Overflow.REJECT or not (1 < cap < n <= _LARGEST and lenders > 0):
        return None
    weights = cap_weights(n, p, cap)
    return Step(n, p, cap, sigma, adjacency, weights, lenders) if lendable(weights, sigma) else None


def loss_law(scheme: CappedPoisson, sigma: float, adjacency: Adjacency, analysis: Analysis) -> LossLaw:
    """The loss law of one step on one group; `analysis="union"` gives plain Poisson, the run adds the rest.

    Proof: theory.md#truncation-who-is-compared-with-whom
    """
    n, p, cap = scheme.group_size, scheme.sampling_probability, scheme.max_batch_size
    if cap >= n or analysis is Analysis.UNION:
        return LossLaw(tuple(poisson(p, sigma, adjacency)))
    if n > _LARGEST:
        raise NotCertifiedError(f"dataset_size={n} is above 10**15, where binomial tails lose their digits; use fewer")
    if scheme.overflow is Overflow.REJECT:
        pieces, atoms, error = _reject(n, p, cap, sigma, adjacency)
        return LossLaw(tuple(pieces), tuple(atoms), UNDERFLOW, error)
    v = cap_weights(n, p, cap)
    if not all(0.0 <= weight <= 1.0 for weight in (v.room, v.w, v.tau, v.tq, v.c, v.q, v.swap)):  # also refuses NaN
        raise NotCertifiedError(f"the weights of dataset_size={n} are beyond floating point; use fewer examples")
    if v.w + v.tau < LIGHTEST:
        return LossLaw(tuple(poisson(p, sigma, adjacency)), lost=LIGHTEST)
    v, lost, whole = _resolved(v, sigma)
    if analysis is Analysis.NOTE:
        fits = v.room + v.w
        free = poisson(p, sigma, adjacency, fits) if fits > 0.0 else []
        capped, atoms = (_note_capped(v, sigma, adjacency) if v.tau > 0.0 else []), []
    else:
        free = poisson(p, sigma, adjacency, v.room) if v.room > 0.0 else []
        capped, atoms = _refined_capped(v, p, sigma, adjacency)
    return LossLaw(tuple(free + capped), tuple(atoms), lost, v.error, whole)
