"""Lending: shares, tilts and nodes for the bound of `proving.lending`.

Nothing here can make that bound wrong: it holds for any shares and tilts, at any nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from ..._rounding import FEW, LARGEST_EXPONENT, LARGEST_LOSS, UNDERFLOW
from ..proving.hull import ProfileNodes, reverse
from ..proving.lending import Step, lent_excess, swap_excess
from ..proving.loss_law import Array
from ..proving.sizes import Bound, SizesUpTo
from ..proving.tails import threshold
from ..terms import Adjacency
from .effort import EFFORT, TOLERANCE
from .grid import CellWeights, equidistributed

_KNOTS = 20  # at which shares are chosen, and between which they are interpolated
_ROUNDS = 7  # of the fixed point, and one more for every two lenders, as many of them overshoot
_PACES = (0.7, 0.2)  # of the way, in the first and in the last round: many lenders overshoot
_SHIFTS = np.array([0.15, 0.5, 1.0, 2.0])  # of tilts above the best
_FIRST_NODES = 160  # of a coarse profile


def lenders(cap: int, sigma: float) -> int:
    """The number of levels below the top that may lend: lower ones, farther than the noise, add little."""
    return min(cap - 1, int(2.5 * sigma) + 4, 48)


def can_help(step: Bound, steps: int, log_delta: float) -> bool:
    """A quick answer to whether lending might lower epsilon: noise that hides something, full batches that matter."""
    if not isinstance(step, Step):
        return True
    v = step.weights
    if not 0.1 <= step.sigma <= 1e6 or v.error > 1e-6 or log_delta < -0.8 * LARGEST_LOSS:
        return False
    return math.log(steps) + math.log(v.c) > log_delta - TOLERANCE.nats


def negligible(steps: int, log_delta: float) -> float:
    """A chance that does not matter even if every step has it."""
    return math.exp(max(log_delta, -640.0) - TOLERANCE.nats - math.log(steps))


# --- shares -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shares:
    """Shares and tilts at equidistant knots of log((a-1+p)/p), interpolated between and constant beyond."""

    step: Step
    knots: Array
    share: Array  # (lenders, knots)
    tilt: Array  # at which M is largest
    shift: Array  # of the tilt, for the sake of psi

    def at(self, loss: Array) -> tuple[Array, Array]:
        """Shares (nodes, lenders) and tilts at losses."""
        step = self.step
        where = np.abs(loss) if step.adjacency is Adjacency.REPLACE_ONE else loss
        t = np.log(np.maximum(np.expm1(where) / step.p + 1.0, UNDERFLOW))
        scale = (self.knots.size - 1) / (self.knots[-1] - self.knots[0])
        place = np.clip((t - self.knots[0]) * scale, 0.0, self.knots.size - 1.0)
        left = np.minimum(place.astype(np.int64), self.knots.size - 2)
        right = place - left
        share = self.share[:, left] * (1.0 - right) + self.share[:, left + 1] * right
        tilt = self.tilt[left] * (1.0 - right) + self.tilt[left + 1] * right
        shift = self.shift[left] * (1.0 - right) + self.shift[left + 1] * right
        return share.T, _Prices(step, where).best_tilt(share, tilt) + shift


def _within(values: Array, low: float, high: float) -> Array:
    """`np.clip`, in a third of its time."""
    return np.asarray(np.minimum(np.maximum(values, low), high))


class _Prices:
    """The trade between the levels and the top at several losses: what a unit of mass is worth where."""

    def __init__(self, step: Step, loss: Array) -> None:
        self.step, self.y = step, 1.0 / step.sigma
        self.low, self.low2, self.m0, m1, self.top2 = (both.down for both in step.masses(loss))
        self.k = np.arange(1.0, step.lenders + 1.0)[:, None]
        self.drop = self.k * self.k * (0.5 * self.y * self.y)
        self.log_m1 = np.log(np.maximum(m1, UNDERFLOW)) - 0.5 * self.y * self.y
        self.lendable = self.low * step.levels

    def of(self, tilt: Array) -> Array:
        """Units of the top's negative mass that one unit lent by level k becomes."""
        return np.exp(np.minimum(-self.k * tilt - self.drop, 0.5 * LARGEST_LOSS))

    def best_tilt(self, share: Array, tilt: Array, rounds: int = 3) -> Array:
        """Newton's method for the tilt at which M is largest, m_1 e^{l-i} = sum k mu_k e^{-kl-k^2 i}."""
        lent = share * self.lendable
        for _ in range(rounds):
            worth = lent * self.of(tilt)
            rise, bend = self.k[:, 0] @ worth + UNDERFLOW, np.square(self.k[:, 0]) @ worth + UNDERFLOW
            tilt = tilt - _within(self.log_m1 + tilt - np.log(rise), -9.0, 9.0) / (1.0 + bend / rise)
        return np.asarray(tilt)

    def balanced(self, share: Array, tilt: Array) -> Array:
        """Shares at which a unit of mass is worth as much at home as when it is lent."""
        y, replaced = self.y, self.step.adjacency is Adjacency.REPLACE_ONE
        price, k = self.of(tilt), self.k
        lent = share * self.lendable * price
        rise = k[:, 0] @ lent + UNDERFLOW
        total = rise + self.m0 + lent.sum(axis=0)
        theta, rest = rise / total, _within(self.log_m1 + tilt - np.log(rise), -9.0, 9.0)
        shrunk = np.exp(theta * rest)  # M over `total`, which a unit of e_k changes by 1 + rest (k - theta (k + 1))
        price = price * shrunk * np.maximum(1.0 + rest * (k - theta * (k + 1.0)), 0.0)
        x = threshold(np.full_like(total, self.step.weights.c), total * shrunk, self.top2 if replaced else None, y)[0]
        home = y + ndtri(_within(price * ndtr(x - y), UNDERFLOW, 1.0 - FEW))
        hit = np.full_like(home, self.step.p)
        if replaced:
            hit = hit - self.low2 * np.exp(np.minimum(2.0 * y * home - 2.0 * y * y, LARGEST_EXPONENT))
        keep = hit * np.exp(np.minimum(0.5 * y * y - home * y, 0.5 * LARGEST_LOSS)) / np.maximum(self.low, UNDERFLOW)
        return _within(1.0 - keep, 0.0, 1.0)


def similar(step: Step) -> tuple[float, ...]:
    """A key that steps share whose noise is within 10 % and whose rate is within 20 %: one choice serves them all."""
    return step.n, step.cap, round(10.0 * math.log(step.sigma)), round(5.0 * math.log(step.p))


def choose(step: Bound, known: dict[tuple[float, ...], Shares]) -> Shares | None:
    """Shares for a bound that lends; None for one that leaves nothing to choose."""
    lender = step if isinstance(step, Step) else step.lender
    return shares_for(lender, known) if lender else None


def shares_for(step: Step, known: dict[tuple[float, ...], Shares]) -> Shares:
    """The shares of a similar step that was looked at, or those of this one."""
    key = similar(step)
    if key not in known:
        known[key] = choose_shares(step)
    share = known[key].share[: step.lenders]
    share = np.concatenate([share, np.zeros((step.lenders - len(share), _KNOTS))])
    return replace(known[key], step=step, share=share)


def choose_shares(step: Step) -> Shares:
    """Shares that minimise the bound at knots that suit the noise.

    Without the theorem's correction psi the minimum is at the tilt that makes M largest, where a unit
    of mass is worth as much at home as lent. Psi grows with theta, which a larger tilt lowers: where
    that helps, a balance is found for each of some larger tilts, and the bound itself decides.
    """
    y = 1.0 / step.sigma
    low, high = max(-3.0, -0.5 * y * y - 7.0 * y), min(2.0 * y * y + 10.0 * y, LARGEST_LOSS)
    knots = np.linspace(low, high, _KNOTS)
    loss = np.log1p(step.p * np.expm1(knots))
    if step.adjacency is not Adjacency.ADD_REMOVE:
        loss = np.maximum(loss, 1e-3 * step.p)
    share, tilt = np.full((step.lenders, _KNOTS), 0.5), np.full(_KNOTS, -min(1.0, 2.0 * y))
    rounds = _ROUNDS + step.lenders // 2
    best, best_tilt = _balanced(_Prices(step, loss), share, tilt, 0.0, rounds)
    count, shift = _SHIFTS.size, np.repeat(_SHIFTS, _KNOTS)
    prices = _Prices(step, np.tile(loss, count))
    share, tilt = _balanced(prices, np.tile(best, count), np.tile(best_tilt, count), shift, rounds // 3)
    share, tilt = np.concatenate([best, share], axis=1), np.concatenate([best_tilt, tilt])
    shift, loss = np.concatenate([np.zeros(_KNOTS), shift]), np.tile(loss, count + 1)
    bound = lent_excess(step, loss, share.T, tilt + shift).reshape(count + 1, _KNOTS)
    least = np.argmin(np.where(np.isnan(bound), np.inf, bound), axis=0) * _KNOTS + np.arange(_KNOTS)
    return Shares(step, knots, share[:, least], tilt[least], shift[least])


def _balanced(prices: _Prices, share: Array, tilt: Array, shift: Array | float, rounds: int) -> tuple[Array, Array]:
    """Balanced shares at tilts that far above the best, and those; a fixed point that is damped more and more."""
    for pace in np.linspace(*_PACES, rounds):
        tilt = prices.best_tilt(share, tilt, 1)
        share = share + pace * (prices.balanced(share, tilt + shift) - share)
    return share, prices.best_tilt(share, tilt)


# --- nodes ------------------------------------------------------------------------------------------------------------


def coarse_nodes(step: Bound, shares: Shares | None, steps: int, log_delta: float) -> ProfileNodes:
    """The profile at nodes that suit any run, in both directions, as far as any step of it matters."""
    loss = _first_nodes(step, math.sqrt(2.0 * (math.log(steps) - log_delta + TOLERANCE.nats)))
    return ProfileNodes(step, np.empty(0), np.empty(0)).more(loss, *(shares.at(loss) if shares else ()))


def _first_nodes(step: Bound, reach: float) -> Array:
    """Equal steps of log((a-1+p)/p), that is of the output where nothing is cut, up to `reach` deviations."""
    step = step.cells[-1] if isinstance(step, SizesUpTo) and step.cells else step
    y = 1.0 / step.sigma
    high = min(2.0 * y * y + 2.0 * reach * y, LARGEST_LOSS)
    if step.adjacency is Adjacency.REPLACE_ONE:
        above = np.log1p(step.p * np.expm1(np.linspace(0.0, high, _FIRST_NODES // 2)))
        return np.concatenate([-above[:0:-1], above])
    low = -0.5 * y * y - reach * y
    rise = step.p * np.expm1(np.append(np.linspace(low, high, _FIRST_NODES), 0.0))
    ends = _last_swaps(step, low, y) if isinstance(step, Step) else step.ends(rise)
    return np.unique(np.log1p(np.maximum(np.append(rise, ends), -1.0 + 1e-15)))


def _last_swaps(step: Step, low: float, y: float) -> Array:
    """Points a - 1 where the smallest losses end."""
    v, end, far = step.weights, step.weights.q, 2.0  # swaps at a distance of 2 end at 1 - q, close to 1 - p
    if step.adjacency is Adjacency.ZERO_OUT:
        end, far = v.c / (v.w + v.tq), 1.0  # a full batch hides x_1 well: (1-p) w against w + tq
    return end * np.expm1(np.linspace(far * (low - 0.5 * far * y * y) - 5.0, 0.0, _FIRST_NODES // 4))


def gain(nodes: ProfileNodes, steps: int, tilt: float, weights: CellWeights) -> float:
    """An estimate of how much lending lowers epsilon below that of Theorem 2, by Chernoff's bound at a tilt c.

    log E[e^{cL}] of a step falls by c (c + 1) times the integral of e^{c loss}, as far as losses
    matter, over what the profile falls by.
    """
    loss, excess = nodes.directed
    swap = swap_excess(nodes.step, nodes.loss)
    fall = np.maximum((reverse(nodes.loss, swap)[1] if nodes.backward else swap) - excess, 0.0)
    worth = fall * np.exp(np.minimum(weights.at(loss), LARGEST_LOSS))
    return steps * (tilt + 1.0) * float(np.sum(0.5 * (worth[1:] + worth[:-1]) * np.diff(loss)))


def most_nodes(phases: int) -> int:
    """Nodes of each phase: fewer where there are very many phases, as each of them costs."""
    return max(EFFORT.cells * EFFORT.phases // max(phases, EFFORT.phases), _FIRST_NODES // 2)


def refined_nodes(
    nodes: ProfileNodes,
    shares: Shares | None,
    weights: CellWeights,
    *,
    worth: float,
    most: int,
    rare: float,
    around: Sequence[float],
) -> ProfileNodes:
    """More nodes, fitted to the answer by the law of those that are there.

    A chord over a width v of losses adds about v^2/12 of the mass between. With a mass I per unit of
    loss, times its weight, the sum over a given number of nodes is smallest if v is proportional to
    I^(-1/3); it is then S^3 / 12 over their square, S the integral of I^(1/3). `worth` is epsilon's
    relative change for a unit of it; there are at most `most`. Losses of `around` may decide alone: 40 nodes within 5 % each.
    """
    law = nodes.discretised(rare)
    loss, count = law.loss, most
    if loss.size < 3:
        fine = np.linspace(loss[0], loss[-1], count)
    else:
        width = np.diff(loss)
        mass = np.logaddexp(law.log_mass[1:], law.log_mass[:-1]) - math.log(2.0)
        log_need = mass + weights.at(0.5 * (loss[1:] + loss[:-1]))
        log_need -= log_need.max()
        need = np.cbrt(np.exp(np.maximum(log_need, -100.0)) * width * width)
        enough = math.sqrt(min(worth / TOLERANCE.part * need.sum() ** 3 / np.exp(log_need).sum() / 12.0, 1e12))
        count = min(max(math.ceil(enough), _FIRST_NODES // 2), most)
        need += 0.1 * need.mean()  # a tenth of all nodes goes wherever nothing seems to matter
        fine = equidistributed(loss, need, count)
    close = [at * np.linspace(0.95, 1.05, 40) for at in around if 0.0 < at < loss[-1]]
    fine = np.unique(np.concatenate([fine, *close, [0.0]]))
    fine = -fine[::-1] if nodes.backward else fine
    return nodes.more(fine, *(shares.at(fine) if shares else ()))
