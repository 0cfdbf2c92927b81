"""Exact privacy profiles of small data sets, by enumerating every batch.

For explicit vectors `x_1 .. x_n` (n up to 6 or so) a step's output is a finite Gaussian mixture under each of two
neighbouring data sets. `pair` builds the two, `Pair.profile` integrates `[P - aQ]_+`:

- one dimension (or collinear vectors, which reduce to it): the roots of `P - aQ`, refined to machine precision, and
  normal distribution functions between them. Error about 1e-13; `TOLERANCE[1]` is what the tests allow.
- two dimensions: the same along the principal axis of the means, and the trapezoid rule across it. The inner integral
  has kinks of order 3/2 where roots merge, so the rule converges like h^2.5; `TOLERANCE[2]` holds at the spacing used.

No bound may fall below these values. Slack is bound minus truth, divided by `1 + a`, the mass of `P` and `aQ` that
rounding and integration errors scale with. `smallest_slack` and `climb` take the bound under test as an argument,
`bound(config, direction)` returning a callable `profile(eps)` (an array of epsilons in, an array out).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

TOLERANCE = {1: 1e-12, 2: 2e-6}
ADJACENCIES = ("add-remove", "zero-out", "replace-one")
Profile = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Config:
    """One mechanism: everything but the data."""

    n: int
    p: float
    B: int
    sigma: float
    overflow: str
    adjacency: str


Bound = Callable[[Config, str], Profile]


def batches(n: int, p: float, B: int, overflow: str) -> dict[tuple[int, ...], float]:
    """The law of the batch: every subset of range(n) that the policy can release, with its probability."""
    law: dict[tuple[int, ...], float] = {}
    for size in range(n + 1):
        chance = p**size * (1 - p) ** (n - size)
        for drawn in itertools.combinations(range(n), size):
            if size <= B:
                law[drawn] = law.get(drawn, 0.0) + chance
            elif overflow == "truncate":
                for kept in itertools.combinations(drawn, B):
                    law[kept] = law.get(kept, 0.0) + chance / math.comb(size, B)
    total = sum(law.values())  # below 1 for reject: condition on acceptance
    if total <= 0:
        raise ValueError("policy reject accepts no batch")
    return {kept: chance / total for kept, chance in law.items() if chance > 0}


@dataclass(frozen=True)
class Mixture:
    """Gaussian mixture: `means` of shape (k, d), `weights` of shape (k,)."""

    means: np.ndarray
    weights: np.ndarray


def outputs(X: np.ndarray, p: float, B: int, overflow: str) -> Mixture:
    """The noiseless output of one step on the data set `X` of shape (n, d), equal sums merged."""
    law = batches(len(X), p, B, overflow)
    sums = np.array([X[list(kept)].sum(axis=0) if kept else np.zeros(X.shape[1]) for kept in law])
    keys, where = np.unique(np.round(sums, 13), axis=0, return_inverse=True)
    weights = np.bincount(where.ravel(), weights=list(law.values()), minlength=len(keys))
    return Mixture(keys, weights)


@dataclass(frozen=True)
class Pair:
    P: Mixture
    Q: Mixture
    sigma: float

    @property
    def dimension(self) -> int:
        return self._aligned()[0].means.shape[1]

    def _aligned(self) -> tuple[Mixture, Mixture]:
        """Both mixtures in the principal axes of their means; axes along which nothing moves integrate out."""
        both = np.concatenate([self.P.means, self.Q.means])
        centre = both.mean(axis=0)
        _, size, axes = np.linalg.svd(both - centre, full_matrices=False)
        keep = axes[: max(1, int((size > 1e-9).sum()))]
        return (
            Mixture((self.P.means - centre) @ keep.T, self.P.weights),
            Mixture((self.Q.means - centre) @ keep.T, self.Q.weights),
        )

    def profile(self, eps: Any, direction: str = "forward", spacing: float = 1 / 24) -> np.ndarray:
        """H_{e^eps}(P||Q) for each eps, or H_{e^eps}(Q||P) for `direction="reverse"`."""
        P, Q = self._aligned()
        if direction == "reverse":
            P, Q = Q, P
        eps = np.atleast_1d(np.asarray(eps, float))
        return np.array([hockey_stick(P, Q, math.exp(e), self.sigma, spacing) for e in eps])


def hockey_stick(P: Mixture, Q: Mixture, a: float, sigma: float, spacing: float = 1 / 24) -> float:
    """Integral of [P - aQ]_+ in one or two dimensions: exact along the first axis, trapezoid along the second."""
    # Components shared by P and Q are merged first: where they cancel, only the sign of rounding errors would be left.
    means, where = np.unique(np.round(np.concatenate([P.means, Q.means]), 12), axis=0, return_inverse=True)
    weights = np.bincount(where.ravel(), weights=np.concatenate([P.weights, -a * Q.weights]), minlength=len(means))
    some = np.abs(weights) > 1e-15 * (1 + a)
    if not some.any():
        return 0.0
    means, weights = means[some] / sigma, weights[some]
    along = means[:, 0]
    if means.shape[1] == 1:
        rows = weights[None, :]
        step = 1.0
    else:
        across = means[:, 1]
        y = np.arange(across.min() - 8.5, across.max() + 8.5, spacing)
        rows = weights * np.exp(-0.5 * (y[:, None] - across) ** 2) / math.sqrt(2 * math.pi)
        step = spacing
    low, high = along.min() - 9.0, along.max() + 9.0
    count = int((high - low) * (24 if means.shape[1] == 1 else 10)) + 1
    x = np.linspace(low, high, count)

    def value(at: np.ndarray, r: np.ndarray) -> np.ndarray:  # P - aQ at points `at` of rows `r`
        return np.einsum("ij,ij->i", rows[r], np.exp(-0.5 * (at[:, None] - along) ** 2))

    def integral(at: np.ndarray, r: np.ndarray) -> np.ndarray:  # of P - aQ up to `at`
        return np.einsum("ij,ij->i", rows[r], ndtr(at[:, None] - along))

    f = rows @ np.exp(-0.5 * (x - along[:, None]) ** 2)
    positive = f > 0
    r, i = np.nonzero(positive[:, :-1] != positive[:, 1:])
    left, right, rising = x[i], x[i + 1], ~positive[r, i]
    # A pair of roots between two grid points hides from the signs: look closer where |f| has a small local minimum.
    size = np.abs(f)
    dips = (size[:, 1:-1] < size[:, :-2]) & (size[:, 1:-1] <= size[:, 2:]) & (positive[:, :-2] == positive[:, 2:])
    dips &= positive[:, :-2] == positive[:, 1:-1]
    dips &= size[:, 1:-1] < 0.2 * (size[:, :-2] + size[:, 2:]) / 2
    rd, jd = np.nonzero(dips)
    for row, j in zip(rd, jd, strict=True):
        fine = np.linspace(x[j], x[j + 2], 401)
        sign = value(fine, np.full(401, row)) > 0
        sign[0], sign[-1] = positive[row, j], positive[row, j + 2]
        (k,) = np.nonzero(sign[:-1] != sign[1:])
        r = np.append(r, np.full(len(k), row))
        left, right, rising = np.append(left, fine[k]), np.append(right, fine[k + 1]), np.append(rising, ~sign[k])
    for _ in range(50):
        mid = (left + right) / 2
        before = (value(mid, r) > 0) != rising
        left, right = np.where(before, mid, left), np.where(before, right, mid)
    root = (left + right) / 2
    total = rows[positive[:, -1]].sum() - (np.where(rising, 1.0, -1.0) * integral(root, r)).sum()
    # The part below `low`, where the sign of the first column holds, is counted by the telescoping sum already.
    return float(total * step)


def pair(config: Config, others: np.ndarray, example: np.ndarray, replacement: np.ndarray | None = None) -> Pair:
    """The two mixtures for `D = [example, *others]` and its neighbour under the configured adjacency."""
    others = np.asarray(others, float)
    example = np.asarray(example, float)
    if len(others) != config.n - 1 or np.linalg.norm(np.vstack([others, example[None]]), axis=1).max() > 1 + 1e-9:
        raise ValueError("pass n - 1 other examples, and vectors of norm at most 1")
    if config.adjacency == "add-remove":
        neighbour = others
    elif config.adjacency == "zero-out":
        neighbour = np.vstack([0 * example[None], others])
    else:
        neighbour = np.vstack([np.asarray(-example if replacement is None else replacement)[None], others])
    args = (config.p, config.B, config.overflow)
    return Pair(outputs(np.vstack([example[None], others]), *args), outputs(neighbour, *args), config.sigma)


def data_sets(config: Config, rng: np.random.Generator, d: int, count: int) -> Iterator[tuple[np.ndarray, ...]]:
    """(others, example, replacement): all equal, antipodal and zero ones first, then random ones, `count` in all."""
    e = np.zeros(d)
    e[0] = 1.0
    k = config.n - 1
    corners = [(np.tile(v, (k, 1)), e, r) for v in (-e, e, 0 * e) for r in (-e, 0 * e)]
    yield from corners[:count]

    def ball(m: int) -> np.ndarray:
        v = rng.normal(size=(m, d))
        v /= np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12)
        return v * (1.0 if rng.uniform() < 0.6 else rng.uniform(size=(m, 1)))

    for _ in range(count - len(corners)):
        others, example = ball(k), ball(1)[0]
        if k and rng.uniform() < 0.4:
            example = others[0] * rng.choice([-1, 1])
        yield others, example, -example if rng.uniform() < 0.5 else ball(1)[0]


def interesting_epsilons(config: Config, extra: int = 12) -> np.ndarray:
    """Both sides of 0, and the ends of the ranges of the closed forms: a = 1-q, 1-p and their neighbourhoods."""
    law = batches(config.n, config.p, config.B, "truncate")
    full = sum(chance for kept, chance in law.items() if 0 in kept and len(kept) == config.B)
    over = sum(
        config.p**s * (1 - config.p) ** (config.n - 1 - s) * math.comb(config.n - 1, s)
        for s in range(config.B, config.n)
    )
    just = math.comb(config.n - 1, config.B - 1) * config.p**config.B * (1 - config.p) ** (config.n - config.B) \
        if config.n >= config.B else 0.0  # fmt: skip
    rates = [config.p] + ([(full - just) / over] if over > 0 else [])
    marks = [math.log1p(-rate) for rate in rates if rate < 1 - 1e-12]
    points = [*np.linspace(-2.5, 2.5, extra), -0.1, -1e-3, 0.0, 1e-3, 0.1]
    for m in marks:
        points += [m - 1e-3, m, m + 1e-3, -m]
    return np.unique(points)


def slack(profile: Profile, exact: Pair, eps: np.ndarray, direction: str) -> np.ndarray:
    """Bound minus exact value over 1 + a, at each eps. Negative beyond `TOLERANCE` refutes the bound."""
    return (np.asarray(profile(eps), float) - exact.profile(eps, direction)) / (1 + np.exp(eps))


def smallest_slack(
    bound: Bound, config: Config, data: Iterator[tuple[np.ndarray, ...]], eps: np.ndarray | None = None
) -> tuple[float, tuple[Any, ...]]:
    """The smallest slack over data sets, directions and epsilons, and where it was found."""
    eps = interesting_epsilons(config) if eps is None else eps
    forward = np.asarray(bound(config, "forward")(eps), float)
    reverse = np.asarray(bound(config, "reverse")(-eps), float)
    worst: tuple[float, tuple[Any, ...]] = (math.inf, ())
    for others, example, replacement in data:
        truth = pair(config, others, example, replacement).profile(eps)
        back = 1 - np.exp(-eps) + np.exp(-eps) * truth  # H_b(Q||P) at b = e^-eps, so that one integral serves both
        for direction, at, gaps in (("forward", eps, forward - truth), ("reverse", -eps, reverse - back)):
            gaps = gaps / (1 + np.exp(at))
            j = int(np.argmin(gaps))
            if gaps[j] < worst[0]:
                vectors = others.tolist(), example.tolist(), replacement.tolist()
                worst = float(gaps[j]), (config, direction, float(at[j]), *vectors)
    return worst


def climb(
    bound: Bound, config: Config, direction: str, eps: float, rng: np.random.Generator, *, steps: int, d: int = 1
) -> tuple[float, np.ndarray]:
    """Hill climbing over the data for the smallest slack at one epsilon: (slack, vectors [x_1, x_1', others])."""
    value = float(np.asarray(bound(config, direction)(np.array([eps])))[0])

    def project(v: np.ndarray) -> np.ndarray:
        return v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1.0)

    def objective(v: np.ndarray) -> float:
        return (value - float(pair(config, v[2:], v[0], v[1]).profile(eps, direction)[0])) / (1 + math.exp(eps))

    best = project(rng.choice([-1.0, 1.0], size=(config.n + 1, d)) * rng.choice([1.0, 0.9], size=(config.n + 1, d)))
    low, reach = objective(best), 0.5
    for _ in range(steps):
        moved = best + reach * rng.normal(size=best.shape) * (rng.uniform(size=(len(best), 1)) < 0.5)
        if rng.uniform() < 0.2:
            moved[rng.integers(len(best))] *= -1
        trial = project(moved)
        found = objective(trial)
        if found < low:
            best, low = trial, found
        else:
            reach = max(0.02, 0.97 * reach)
    return low, best
