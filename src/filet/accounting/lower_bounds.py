"""Lower bounds: the epsilon that explicit pairs of neighbouring data sets prove to be lost.

The plane of an attack is cut into cells, and cells of about the same loss are merged into one outcome. That is
post-processing, whatever the shape of the loss, so the merged pair bounds every profile, and its compositions, from
below. What is left out (far components, far cells) is taken off P and added to Q, which lowers the bound too.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np
from scipy.special import ndtr

from .. import _checks
from .._public import public
from ..errors import NotCertifiedError
from ..scheme import CappedPoisson, Size
from .accountant import account
from .attacks import WEIGHT_ERROR, Attack, attack
from .curve import certified
from .proving.cells import Discrete
from .proving.loss_law import Array
from .proving.pmf import LossPMF
from .search.solve import epsilon_below, guess_epsilon
from .terms import Adjacency, AdjacencyName, Phase

_CELL = 0.02  # standard deviations; merging such cells costs about _CELL^2 / 12 of epsilon
_PLANE_CELL = 0.08  # the same where cells have two dimensions
_WIDEST_CELL = 15.0  # far from the cap, where the number of others tells little
_COARSE = 5.0  # factor for a first look
_MOST_CELLS = 600_000
_OUTCOMES, _BINS = 1_200, 30_000
_PROOFS, _SURE, _CLOSE = 6, 3, 0.99  # how many are proven at most, in any case, and if guessed this close to the best
_TRUSTED = 0.01  # relative error of guesses that are trusted
_SOME_NOISE = 0.5  # above, single losses rarely decide
_LEAST_NOISE = 1e-100  # below, losses overflow
_LITTLE_NOISE = 0.2  # below, losses are so large that masses of cells underflow
_RATE_ERROR = 1e-9  # relative, of an inclusion probability
_TINY = 1e-4  # epsilons below this are not worth a composition
# The family: a share of the others, and minus the cosine of their angle to x_1.
_FAMILY = (
    *((0.0, 0.0), (0.1, 1.0), (0.5, 1.0), (0.9, 1.0)),
    *((1.0, cosine) for cosine in (1.0, 0.7, 0.45, 0.3, 0.2, 0.1, 0.0)),
)


@public
@certified
def epsilon_lower_bound(
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    steps: int | None = None,
    epochs: float | None = None,
    adjacency: Adjacency | AdjacencyName,
    delta: float,
) -> float:
    """An epsilon that the run provably exceeds at `delta`: the best of a family of explicit attacks.

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject")
    >>> lower = epsilon_lower_bound(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out", delta=1e-5)
    >>> from filet._numbers import round_down
    >>> round_down(lower, 3)
    '2.7'

    Guarantees: there are two neighbouring data sets whose outputs are not (epsilon, delta)-indistinguishable for any
    epsilon below the result; numerical errors are accounted for downwards. So the true epsilon lies between this and
    `account(...).epsilon(delta)`. Where the size is not public, both sets are among those that the guarantee is for: the
    larger has `dataset_size` records. Under cyclic sampling the attacker knows the partition into groups, as the
    accounting assumes.

    Arguments:
        scheme: how batches are drawn.
        noise_multiplier: standard deviation of the Gaussian noise on the sum, divided by the clipping norm.
        steps: number of training steps. Or:
        epochs: passes over the data, by expected draws before the cap (`scheme.steps_of_epochs`).
        adjacency: "add-remove", "zero-out" or "replace-one".
        delta: one probability in (0, 1).
    """
    if not isinstance(scheme, CappedPoisson):
        raise _checks.fail(f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
    sigma = _checks.noise_multiplier(noise_multiplier)
    steps = scheme.checked_steps(steps, epochs)
    adjacency = _attacked(scheme, _checks.choice("adjacency", adjacency, Adjacency))
    deltas = _checks.delta_array(delta)
    if deltas.ndim:
        raise _checks.fail(f"delta of shape {deltas.shape} is not one number; ask for one at a time")
    goal = float(deltas)
    rounds = Phase(scheme, sigma, steps).rounds
    if rounds == 0 or sigma == math.inf:
        return 0.0
    if sigma == 0.0:
        return _noiseless(scheme.inclusion_probability, rounds, goal)
    if sigma < _LEAST_NOISE:
        raise NotCertifiedError(f"noise_multiplier={sigma!r} has losses beyond floats; use more noise, or 0 for none")
    if scheme.max_batch_size >= scheme.group_size:
        # Plain Poisson sampling: with all others zero, the neighbours are the dominating pair itself.
        curve = account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency)
        return curve.epsilon_bounds(goal).lower
    best = _best(scheme, sigma, rounds, adjacency, math.log(goal))
    return max(best, _lone(scheme, sigma, rounds, adjacency, goal)) if sigma < _LITTLE_NOISE else best


def _noiseless(rate: float, rounds: int, delta: float) -> float:
    """Without noise the sum shows whether x_1 was drawn, and it never is under the neighbour."""
    seen = -math.expm1(rounds * math.log1p(-rate)) if rate < 1.0 else 1.0
    return math.inf if seen * (1 - 1e-9) > delta else 0.0


def _attacked(scheme: CappedPoisson, adjacency: Adjacency) -> Adjacency:
    """The adjacency to attack: if a record of a planned number is removed, an empty slot is left."""
    slots = scheme.size is Size.SECRET and adjacency is Adjacency.ADD_REMOVE
    return Adjacency.ZERO_OUT if slots else adjacency


def _lone(scheme: CappedPoisson, sigma: float, rounds: int, adjacency: Adjacency, delta: float) -> float:
    """Losses of attacks whose pair is that of plain Poisson sampling at the rate of inclusion; the engine knows it, in logarithms.

    With all others zero, x_1 in the batch is all that shows. Where every batch is full (probability 1) and all others are
    -x_1, a batch without x_1, and every one of the neighbour's, sums to -cap, and one with it lies a distance of 2 away.
    """
    rate = scheme.inclusion_probability * (1.0 - _RATE_ERROR)  # a lower rate loses less: the rest is post-processing
    if not rate > 0.0:
        return 0.0
    pairs = [(sigma, Adjacency.REPLACE_ONE if adjacency is Adjacency.REPLACE_ONE else Adjacency.ZERO_OUT)]
    exact = 2.0 * (0.5 * sigma) == sigma  # the least floats have no half
    if scheme.sampling_probability == 1.0 and adjacency is not Adjacency.ZERO_OUT and exact:
        pairs.append((0.5 * sigma, Adjacency.ZERO_OUT))
    best = 0.0
    for noise, relation in pairs:
        plain = CappedPoisson.uncapped(scheme.dataset_size, rate)
        with contextlib.suppress(NotCertifiedError):
            curve = account(plain, noise_multiplier=noise, steps=rounds, adjacency=relation)
            best = max(best, curve.epsilon_bounds(delta).lower)
    return best


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # what comes out is checked
def _best(scheme: CappedPoisson, sigma: float, rounds: int, adjacency: Adjacency, log_delta: float) -> float:
    """A quick look at the whole family, then a proof for its most promising members."""
    others = scheme.group_size - 1
    # Standard deviations beyond which even all steps together weigh less than e^-20 delta; for an estimate, than e^-8.
    reach, near = (math.sqrt(2.0 * (math.log(rounds) - log_delta + spare)) for spare in (20.0, 8.0))
    ranked: list[tuple[float, int, Attack]] = []
    for count, cosine in sorted({(round(share * others), cosine) for share, cosine in _FAMILY}):
        pair = attack(scheme, sigma, adjacency, count, cosine)
        if pair is not None:
            for direction, law in enumerate(merged(pair, near, _COARSE)):
                ranked.append((_guess(law, rounds, log_delta), direction, pair))
    ranked.sort(key=lambda item: -item[0])
    best, off = 0.0, 0.0
    for place, (guess, direction, pair) in enumerate(ranked[:_PROOFS]):
        # Guesses may be far off where single large losses decide; where they are not, and were not, they are trusted.
        hopeless = place > 0 and sigma > _SOME_NOISE and off < _TRUSTED and guess * (1.0 + 2.0 * _TRUSTED) < best
        if (place < (_SURE if sigma > _SOME_NOISE else _PROOFS) and not hopeless) or guess > _CLOSE * best:
            for law in merged(pair, reach, directions=(direction,)):
                found = _epsilon(law, rounds, log_delta)
                best, off = max(best, found), max(off, abs(found - guess) / max(guess, _TINY))
    return best


def merged(pair: Attack, reach: float, coarse: float = 1.0, directions: tuple[int, ...] = (0, 1)) -> list[Discrete]:
    """The pair on cells, merged to discrete losses: P against Q (direction 0), and Q against P (1).

    Empty if that would take too many cells, which happens with almost no noise.
    """
    clouds = pair.common + pair.only_p + pair.only_q
    single = all(cloud.weights.size == 1 and cloud.along == 0.0 for cloud in clouds)
    flat = all(cloud.across == 0.0 for cloud in clouds)
    width = coarse * (_CELL if single or flat else _PLANE_CELL)
    along = across = np.array([-np.inf, np.inf])
    if not flat:
        across = _around(sorted({pair.scale * cloud.across for cloud in clouds}), reach, width)
    if not single:
        # Counted from the first number of others: from zero, the coordinates of vast batches would have no digits left.
        first = min(cloud.along for cloud in clouds)
        last = max(cloud.along + cloud.weights.size - 1 for cloud in clouds)
        along = _cuts(pair.scale * first - reach, pair.scale * last + reach, width, 2.0 * reach + 6.0)
    if along.size * across.size > _MOST_CELLS:
        return []
    # Components farther than this from a cell are left out; beyond 38 their mass is no float. Wide noise has small
    # losses, for which fewer will do, and so does a first look.
    far = 38.0 if pair.scale > 0.2 and coarse == 1.0 else max(reach, 15.0)
    masses = np.zeros((3, along.size - 1, across.size - 1))
    for total, part in zip(masses, (pair.common, pair.only_p, pair.only_q), strict=True):
        for cloud in part:
            start, spot = pair.scale * cloud.along, pair.scale * cloud.across
            one = _along(along, cloud.weights, start, pair.scale, far)
            total += np.outer(one, _interval(across[:-1] - spot, across[1:] - spot))
    shared, p, q = masses.reshape(3, -1)
    beyond = pair.missing + (3.0 * float(ndtr(-far)) if not single else 0.0)
    # Without a common part, the weights of P and of Q may be off in opposite directions.
    slack = 0.0 if pair.common else 2.0 * WEIGHT_ERROR
    negligible = float(ndtr(-reach)) / shared.size
    return [
        _by_loss(
            shared + one, shared + other + beyond, one - other - beyond, slack, negligible, int(_OUTCOMES / coarse)
        )
        for one, other in [((p, q), (q, p))[direction] for direction in directions]
    ]


def _around(spots: list[float], reach: float, width: float) -> Array:
    """Edges of fine cells within `reach` of each spot; one cell for each gap."""
    parts = []
    low = spots[0] - reach
    for spot, following in zip(spots, [*spots[1:], math.inf], strict=True):
        if following - spot > 2.0 * reach:
            parts.append(np.linspace(low, spot + reach, math.ceil((spot + reach - low) / width) + 1))
            low = following - reach
    return np.concatenate(parts)


def _cuts(low: float, high: float, width: float, fine: float) -> Array:
    """Edges from low to high: cells of one width in the upper part of length `fine`, then wider and wider ones."""
    if high - low > _WIDEST_CELL * _MOST_CELLS:
        return np.zeros(2 * _MOST_CELLS)  # too many, and refused as such
    count = math.ceil(min(high - low, fine) / width)
    edges = [high - width * i for i in range(count + 1)]
    while edges[-1] > low:
        width = min(1.1 * width, _WIDEST_CELL)
        edges.append(edges[-1] - width)
    return np.array(edges[::-1])


def _interval(low: Array, high: Array) -> Array:
    """Standard normal mass between the ends, without cancellation in either tail."""
    right = low > 0
    return np.asarray(ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low)))


def _along(edges: Array, weights: Array, start: float, spacing: float, reach: float) -> Array:
    """Cell masses of sum_i weights_i N(start + i spacing, 1), without components farther than `reach` from the cell."""
    if weights.size == 1:
        return float(weights[0]) * _interval(edges[:-1] - start, edges[1:] - start)
    first = np.clip(np.ceil((edges[:-1] - reach - start) / spacing - 1e-9), 0, weights.size).astype(np.int64)
    last = np.clip(np.floor((edges[1:] + reach - start) / spacing + 1e-9), -1, weights.size - 1).astype(np.int64)
    counts = np.maximum(last - first + 1, 0)
    cell = np.repeat(np.arange(counts.size), counts)
    near = np.arange(cell.size) - np.repeat(np.cumsum(counts) - counts - first, counts)
    centre = start + spacing * near
    mass = weights[near] * _interval(edges[cell] - centre, edges[cell + 1] - centre)
    return np.asarray(np.bincount(cell, weights=mass, minlength=counts.size), dtype=np.float64)


def _by_loss(p: Array, q: Array, d: Array, slack: float, negligible: float, outcomes: int) -> Discrete:
    """Cells of about the same loss become one outcome; cells of negligible mass are dropped, which lowers the bound."""
    keep = (p > max(negligible, 1e-300)) & (q > 1e-300)
    p, q, d = p[keep], q[keep], d[keep]
    if p.size > 2 * _BINS:  # sorting takes long: first merge what is in the same of many small bins, smaller near zero
        loss = p / q
        root = np.abs(np.log(loss, out=loss))  # in place, as fresh memory costs as much as the numbers
        root = np.copysign(np.sqrt(root, out=root), loss, out=root)
        low, high = float(root.min()), float(root.max())
        root -= low
        root *= _BINS / max(high - low, 1e-300)
        place = root.astype(np.int32)
        sums = np.array([np.bincount(place, weights=mass) for mass in (p, q, d)])
        p, q, d = sums[:, sums[0] > 0.0]
    if p.size > 3 * outcomes:
        loss = np.log(p / q)
        order = np.argsort(loss)
        loss, p, q, d = loss[order], p[order], q[order], d[order]
        cuts = [
            np.zeros(1, dtype=np.int64),
            np.searchsorted(loss, np.linspace(0.0, loss[-1], outcomes)),
        ]  # large losses
        for weight in (p, np.sqrt(np.sqrt(p))):  # for the bulk, and for the tails that decide small deltas
            share = np.cumsum(weight)
            cuts.append(np.searchsorted(share, np.linspace(0.0, share[-1], outcomes)[1:-1]))
        starts = np.unique(np.minimum(np.concatenate(cuts), p.size - 1))
        p, q, d = (np.add.reduceat(mass, starts) for mass in (p, q, d))
    ratio = d / q
    loss = np.where(np.abs(ratio) < 0.5, np.log1p(np.maximum(ratio, -0.75)), np.log(p) - np.log(q))
    return Discrete(loss - slack, np.log(p), 0.0, WEIGHT_ERROR)


def _guess(law: Discrete, rounds: int, log_delta: float) -> float:
    """An estimate of the epsilon that this law leads to; nothing is proven."""
    if rounds == 1 or _hopeless(law, rounds, log_delta):
        return _one_step(law, log_delta)
    try:
        value = guess_epsilon(LossPMF([(law, rounds)], 0.0, above=False), log_delta)
    except ArithmeticError:  # losses beyond all bounds
        return 0.0
    return 0.0 if math.isnan(value) else value


def _epsilon(law: Discrete, rounds: int, log_delta: float) -> float:
    """The largest epsilon that is refuted; 0 if none."""
    guess = _guess(law, rounds, log_delta)
    if rounds == 1 or guess <= _TINY or _hopeless(law, rounds, log_delta):
        return _one_step(law, log_delta)
    known = 0.0
    with contextlib.suppress(ArithmeticError):  # what one step proves is still true
        known = epsilon_below(LossPMF([(law, rounds)], 0.0, above=False), math.exp(log_delta))
    return _one_step(law, log_delta, known)


def _hopeless(law: Discrete, rounds: int, log_delta: float) -> bool:
    """True if even epsilon = 0 holds, as total variation distances add up."""
    distance = float((np.exp(law.log_mass) * -np.expm1(np.minimum(-law.loss, 0.0))).sum())
    return rounds * distance <= math.exp(log_delta)


def _one_step(law: Discrete, log_delta: float, known: float = 0.0) -> float:
    """The same for one step alone, where the hockey-stick divergence is a plain sum; or what is known, if that is more."""
    mass, goal = np.exp(law.log_mass), math.exp(log_delta) * (1 + 1e-9 + 20 * law.weight_error)

    def refuted(epsilon: float) -> bool:
        return float((mass * -np.expm1(np.minimum(epsilon - law.loss, 0.0))).sum()) > goal

    low, high = known, float(law.loss.max())
    if low >= high or not refuted(low):
        return known
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
