"""Scheme, noise, adjacency and analysis -> the loss law of one step (the tables of the theory page).

Coordinates are in units of the noise's standard deviation: distance 1 of the theory is `1 / noise_multiplier` here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..._binomial import hazard, log_cdf, log_pmf, log_sf
from ...errors import NotCertifiedError
from ...scheme import CappedPoisson, Overflow
from ..terms import Adjacency, Analysis
from .loss_law import Atom, LossLaw, Piece, log_interval
from .rounding import LIGHTEST

_LARGEST = 10**15


@dataclass(frozen=True)
class CapWeights:
    """How the others fill the batch, for policy truncate; the names follow the theory page.

    room: Pr[at most B-2 others drawn]; w: exactly B-1; tau: at least B; tq = tau q; c = p w + tq.
    """

    room: float
    w: float
    tau: float
    tq: float
    c: float
    q: float


def cap_weights(n: int, p: float, cap: int) -> CapWeights:
    """The weights of THEORY section 1, for cap < n; the heaviest of the three groups is the complement of the others."""
    w = math.exp(log_pmf(cap - 1, n - 1, p))
    log_tau = log_sf(cap, n - 1, p)
    tau = math.exp(log_tau)
    room = math.exp(log_cdf(cap - 2, n - 1, p))
    if room >= max(w, tau):
        room = 1.0 - w - tau
    elif tau >= w:
        tau = 1.0 - w - room
    else:
        w = 1.0 - room - tau
    log_tq = math.log(cap / n) + log_sf(cap + 1, n, p)
    q = min(p, math.exp(log_tq - log_tau))
    tq = tau * q
    weights = CapWeights(room, w, tau, tq, p * w + tq, q)
    if not all(0.0 <= v <= 1.0 for v in (room, w, tau, tq, weights.c, q)):  # also refuses NaN
        raise NotCertifiedError(
            f"the weights of dataset_size={n} are beyond floating point; use at most 10**15 examples"
        )
    return weights


def _piece(sigma: float, weights: list[tuple[float, float, float, float]], low: float = -math.inf,
           high: float = math.inf) -> Piece:  # fmt: skip
    """A piece from rows (distance, p, q, p - q); rows without mass are dropped."""
    rows = [row for row in weights if row[1] != 0.0 or row[2] != 0.0]
    distance, p, q, d = zip(*rows, strict=True)
    return Piece(tuple(v / sigma for v in distance), p, q, d, low / sigma, high / sigma)


def poisson(p: float, sigma: float, adjacency: Adjacency, *, weight: float = 1.0, distance: float = 1.0) -> list[Piece]:
    """Poisson sampling at rate p."""
    rest, hit = weight * (1.0 - p), weight * p
    if adjacency is Adjacency.REPLACE_ONE:
        return [_piece(sigma, [(0.0, rest, rest, 0.0), (distance, hit, 0.0, hit), (-distance, 0.0, hit, -hit)])]
    return [_piece(sigma, [(0.0, rest, weight, -hit), (distance, hit, 0.0, hit)])]


def _note_capped(v: CapWeights, sigma: float, adjacency: Adjacency) -> list[Piece]:
    """The group r = 2 of the note's Theorems 3.1, 3.3 and 3.4, with weight tau."""
    rest, hit = v.tau - v.tq, v.tq
    if adjacency is Adjacency.ZERO_OUT:
        return [_piece(sigma, [(0.0, rest, rest, 0.0), (2.0, hit, 0.0, hit), (-1.0, 0.0, hit, -hit)])]
    return poisson(v.q, sigma, adjacency, weight=v.tau, distance=2.0)


def _refined_capped(v: CapWeights, p: float, sigma: float, adjacency: Adjacency) -> tuple[list[Piece], list[Atom]]:
    """The group of at least B-1 others (THEORY section 4): one pair above the stitch, another below, an atom at it."""
    stay, swap = (1.0 - p) * v.w, v.tau - v.tq
    gain = p * v.w
    if adjacency is Adjacency.ADD_REMOVE:
        # loss above log(1-q): x_1 = -v; below it: x_1 = v; they meet at x = stitch
        stitch = math.inf
        if v.w > 0.0 and v.q < p and v.c > 0.0:  # the theory's weights always are; floats may be rounded or underflow
            stitch = 0.5 + sigma**2 * (math.log(v.c) - math.log(p - v.q) - math.log(v.w))
        above = [(0.0, v.c, 0.0, v.c), (1.0, stay, v.w, -gain), (2.0, swap, v.tau, -v.tq)]
        pieces = [_piece(sigma, above, high=stitch)]
        if stitch < math.inf:
            below = [(0.0, v.c + swap, v.tau, gain), (1.0, stay, v.w, -gain)]
            pieces.append(_piece(sigma, below, low=stitch))
        share = _between((stitch - 2.0) / sigma, stitch / sigma)
        return pieces, [Atom(math.log1p(-v.q), swap * share, v.tau * share)]
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
    """The standard normal mass of (low, high)."""
    return math.exp(log_interval(low, high))


def _reject(n: int, p: float, cap: int, sigma: float, adjacency: Adjacency) -> tuple[list[Piece], list[Atom]]:
    """THEORY section 5: plain Poisson, and nothing at all where the others already fill the batch."""
    if adjacency is Adjacency.ADD_REMOVE:
        full, not_full = hazard(cap, n - 1, p)  # b' and 1 - b'
        k = 1.0 / ((1.0 - p) + p * not_full)  # 1 / (1 - p b'), a sum of positive terms
        rest, hit, change = k * (1.0 - p), k * p, -k * p * not_full  # change = rest - 1
        loss = math.log1p(change) if change > -0.5 else math.log(rest)
        rows = [(0.0, not_full * rest, not_full, not_full * change), (1.0, not_full * hit, 0.0, not_full * hit)]
        return [_piece(sigma, rows)], [Atom(loss, full * rest, full)]
    at_cap, below_cap = hazard(cap, n, p)
    full = at_cap * ((n - cap) / n)
    not_full = below_cap + at_cap * (cap / n)
    return poisson(p, sigma, adjacency, weight=not_full), [Atom(0.0, full, full)]


def loss_law(scheme: CappedPoisson, sigma: float, adjacency: Adjacency, analysis: Analysis) -> LossLaw:
    """The loss law of one step on one group; `analysis="union"` gives plain Poisson, the accountant adds the rest."""
    n, p, cap = scheme.group_size, scheme.sampling_probability, scheme.max_batch_size
    if cap < n and n > _LARGEST and analysis is not Analysis.UNION:
        raise NotCertifiedError(f"dataset_size={n} is above 10**15, where binomial tails lose their digits; use fewer")
    weight_error = 1e-12 + 1e-15 * math.sqrt(n)
    if cap >= n or analysis is Analysis.UNION:
        return LossLaw(tuple(poisson(p, sigma, adjacency)))
    if scheme.overflow is Overflow.REJECT:
        pieces, atoms = _reject(n, p, cap, sigma, adjacency)
        return LossLaw(tuple(pieces), tuple(atoms), weight_error=weight_error)
    v = cap_weights(n, p, cap)
    weight_error += 4e-15 / (1.0 - v.q)  # tau - tq cancels where q is almost one
    if v.w + v.tau < LIGHTEST:
        return LossLaw(tuple(poisson(p, sigma, adjacency)), lost=LIGHTEST)
    if analysis is Analysis.NOTE:
        fits = v.room + v.w
        free = poisson(p, sigma, adjacency, weight=fits) if fits > 0.0 else []
        capped, atoms = (_note_capped(v, sigma, adjacency) if v.tau > 0.0 else []), []
    else:
        free = poisson(p, sigma, adjacency, weight=v.room) if v.room > 0.0 else []
        capped, atoms = _refined_capped(v, p, sigma, adjacency)
    return LossLaw(tuple(free + capped), tuple(atoms), weight_error=weight_error)
