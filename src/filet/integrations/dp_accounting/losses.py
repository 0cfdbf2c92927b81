# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""Laws of losses: releases of which only epsilon and delta are known, and filet's curves for dp_accounting to compose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from filet import _checks
from filet.accounting.curve import PrivacyCurve
from filet.errors import InvalidArgumentError

from .._frameworks import needed_for

with needed_for("dp-accounting"):
    from dp_accounting.pld import privacy_loss_distribution

_MOST_LOSSES = 2_000
_SLACK = 1e-12  # relative, far above the rounding of the few operations that each weight takes
_Array = NDArray[np.float64]


class EpsilonDeltaReleases:
    """Releases of which no more is known than their (epsilon, delta), as a discrete law of their worst losses.

    An (epsilon, delta)-private release is dominated by one whose loss is infinite with chance delta, and else plus or minus
    epsilon, the former e^epsilon times as likely (Kairouz, Oh and Viswanath, 2015). So is an adaptive composition by the
    product of these.
    """

    def __init__(self) -> None:
        self.counts: dict[tuple[float, float], int] = {}

    def add(self, epsilon: float, delta: float, count: int) -> None:
        self.counts[epsilon, delta] = self.counts.get((epsilon, delta), 0) + count

    def check(self, epsilon: float = 0.0, delta: float = 0.0, count: int = 0) -> None:
        """Refuse releases with too many different losses."""
        counts = dict(self.counts)
        counts[epsilon, delta] = counts.get((epsilon, delta), 0) + count
        if math.prod(many + 1 for (size, _), many in counts.items() if size) > _MOST_LOSSES:
            raise InvalidArgumentError(
                f"these releases of a given epsilon have more than {_MOST_LOSSES} different losses together; compose them"
                " in dp_accounting, with to_privacy_loss_distribution"
            )

    def law(self) -> tuple[_Array, _Array, float]:
        """Finite losses, their weights, and the weight of an infinite loss; all weights rounded up."""
        self.check()
        losses, weights, kept = np.zeros(1), np.ones(1), 1.0
        for (epsilon, delta), count in self.counts.items():
            kept *= (1.0 - delta) ** count * (1.0 - _SLACK)
            if epsilon:
                ups = np.arange(count + 1)
                up, down = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
                ways = special.gammaln(count + 1) - special.gammaln(ups + 1) - special.gammaln(count - ups + 1)
                chances = np.exp(ways + ups * up + (count - ups) * down) * (1.0 + 1e-9)
                losses = np.add.outer(losses, (2 * ups - count) * epsilon).ravel()
                weights = np.multiply.outer(weights, chances).ravel()
        lost = 1.0 - kept if self.counts else 0.0
        return losses, weights, lost if any(delta for _, delta in self.counts) else 0.0

    def delta(self, rest: Callable[[float], float], epsilon: float) -> float:
        """Upper bound of delta for these releases and the rest of a run, whose deltas (of both directions) are given."""
        losses, weights, lost = self.law()
        total = lost
        for loss, weight in zip(losses, weights, strict=True):
            total += weight * _of_both(rest, epsilon - float(loss))
        return min(1.0, total * (1.0 + _SLACK))

    def pure_epsilon(self) -> float:
        """Epsilon at delta 0 of these releases alone: their sum, or infinite if one of them has a delta."""
        if any(delta for _, delta in self.counts):
            return math.inf
        return sum(epsilon * count for (epsilon, _), count in self.counts.items()) * (1.0 + _SLACK)

    def epsilon(self, rest: Callable[[float], float], delta: float) -> float:
        """Upper bound of epsilon."""
        if self.law()[2] >= delta:
            return math.inf
        start = sum(epsilon * count for (epsilon, _), count in self.counts.items())
        low, high = 0.0, max(start, 1e-3)
        if self.delta(rest, 0.0) <= delta:
            return 0.0
        while self.delta(rest, high) > delta:
            low, high = high, 2.0 * high
            if high > 1e6:
                return math.inf
        while high - low > 1e-4 * high:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.delta(rest, middle) <= delta else (middle, high)
        return high


def _of_both(rest: Callable[[float], float], epsilon: float) -> float:
    """Delta also below epsilon 0, where it follows from the other direction's."""
    if epsilon >= 0.0:
        return rest(epsilon)
    return min(1.0, (-math.expm1(epsilon) + math.exp(epsilon) * rest(-epsilon)) * (1.0 + _SLACK))


def to_privacy_loss_distribution(
    curve: PrivacyCurve, *, value_discretization_interval: float = 1e-4, points: int = 120
) -> privacy_loss_distribution.PrivacyLossDistribution:
    """A run's privacy as a `PrivacyLossDistribution`, to be composed in dp_accounting with the rest of a pipeline.

    >>> import filet
    >>> scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    >>> curve = filet.account(scheme, noise_multiplier=1.0, steps=1_000, adjacency="zero-out")
    >>> training = to_privacy_loss_distribution(curve)
    >>> counting = privacy_loss_distribution.from_laplace_mechanism(10.0)
    >>> [filet.round_up(one.get_epsilon_for_delta(1e-6), 3) for one in (training, training.compose(counting))]
    ['0.876', '0.937']

    Guarantees: pessimistic in both directions. Its delta is at least the curve's certified upper bound at every epsilon:
    delta is convex in e^epsilon, so that lines between the bounds at `points` thresholds lie above it, and there is a
    distribution of losses at these thresholds whose deltas are these lines (connect the dots: Doroshenko et al., 2022).

    Arguments:
        curve: from `filet.account`, `filet.Accountant.curve` or `FiletAccountant.curve`; its adjacency must be that of
            everything it is composed with.
        value_discretization_interval: the grid of losses; dp_accounting composes distributions of the same grid only.
        points: how many thresholds; more are tighter and take longer.
    """
    if not isinstance(curve, PrivacyCurve):
        raise InvalidArgumentError(f"curve={_checks.show(curve)} is not a PrivacyCurve; pass filet.account(...)")
    remedy = "pass dp_accounting's grid, such as 1e-4"
    interval = _checks.real(
        "value_discretization_interval", value_discretization_interval, rule="in (0, 1]", remedy=remedy
    )
    if not 0.0 < interval <= 1.0:
        raise InvalidArgumentError(f"value_discretization_interval={interval} is not in (0, 1]; {remedy}")
    points = _checks.integer("points", points, low=2, high=10_000, remedy="pass how many thresholds to use")
    top = curve.epsilon(1e-14)
    if not math.isfinite(top):
        raise InvalidArgumentError(
            "the run has no finite epsilon, hence no distribution of losses; add noise to all steps"
        )
    cells = np.unique(np.ceil(np.linspace(0.0, top, points) / interval).astype(np.int64))
    deltas = np.asarray(curve.delta(cells * interval))
    losses, weights, infinite = _connected(cells, np.minimum.accumulate(deltas), interval)
    return privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability(
        dict(zip(losses.tolist(), weights.tolist(), strict=True)), infinite, interval, pessimistic_estimate=True
    )


def _connected(cells: NDArray[np.int64], deltas: _Array, interval: float) -> tuple[Any, _Array, float]:
    """Losses (in cells of the grid), weights, and the infinite loss's weight, whose deltas bound the given ones."""
    deltas = np.minimum(deltas * (1.0 + _SLACK), 1.0)
    mirrored = -np.expm1(-cells * interval) + np.exp(-cells * interval) * deltas  # of -epsilon, in the other direction
    every = np.concatenate([-cells[:0:-1], cells])
    bounds = np.minimum(np.concatenate([mirrored[:0:-1] + 1e-15, deltas]), 1.0)
    # The lower convex hull of upper bounds of a convex function is an upper bound of it, and convex. (0, 1) is on it.
    x = np.concatenate([[0.0], np.exp(every * interval)])
    y = np.concatenate([[1.0], bounds])
    hull = _lower_hull(x, y)
    slopes = np.append(np.diff(y[hull]) / np.diff(x[hull]), 0.0)
    inner = np.asarray(hull[1:])
    weights = np.maximum(x[inner] * np.diff(slopes), 0.0)
    # The rounding of the lines is made good by infinite loss.
    made = y[inner[-1]] + (weights[None, :] * np.maximum(0.0, 1.0 - x[1:, None] / x[None, inner])).sum(axis=1)
    short = max(0.0, float((bounds - made).max()))
    infinite = float(y[inner[-1]]) + short + 1e-15
    return every[inner - 1], weights, min(1.0, infinite)


def _lower_hull(x: _Array, y: _Array) -> list[int]:
    hull: list[int] = []
    for k in range(x.size):
        while len(hull) > 1:
            i, j = hull[-2], hull[-1]
            if (y[j] - y[i]) * (x[k] - x[j]) < (y[k] - y[j]) * (x[j] - x[i]):
                break
            hull.pop()
        hull.append(k)
    return hull
