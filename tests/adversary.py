"""A search for data sets that violate a bound: random mechanisms, threatening starts, hill climbing from the worst.

One *configuration* is a `Draw`: a mechanism, a dimension, an analysis. `hunt` tries data sets on it, at epsilons on both
sides of every corner of the closed forms, in both directions, and climbs from the data set that comes closest. The
bound under test is an argument: `bound(draw, eps)` gives upper bounds of H_a(P||Q) at each a = e^eps, then of H_a(Q||P).
A direction at a negative epsilon is the other direction at the positive one: `H_b(Q||P) = 1 - b + b H_{1/b}(P||Q)`.

What a data set loses is bounded from below (see `enumeration`), so a violation is one of the bound, not of an integration rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from filet import Adjacency, Analysis, CappedPoisson, PrivacyCurve, account
from filet.accounting.proving.lending import lent_excess
from filet.accounting.proving.theorems import lending_step, loss_law
from filet.accounting.search.closed_form import crossings
from filet.accounting.search.lending import choose_shares, lenders
from tests.enumeration import (
    ADJACENCIES,
    TOLERANCE,
    Config,
    Neighbours,
    aligned,
    axis_masses,
    both_ways,
    cell_profiles,
    line_profiles,
    neighbours,
    positive_cells,
)
from tests.reference import profile_float

FLOOR = 1e-9  # bounds below it are not worth an attack
ATTAINED = 1e-6  # relative slack
# Policy and analysis, the tight ones more often than those for comparison.
_KINDS = (
    *[("truncate", "refined")] * 5,
    *[("truncate", "swap")] * 5,
    *[("reject", "refined")] * 5,
    *[("truncate", "note")] * 3,
    *[("truncate", "union")] * 2,
)
_DIMENSIONS = (1, 1, 1, 1, 1, 2, 2, 3)
_ALL = slice(None)


@dataclass(frozen=True)
class Draw:
    """One configuration. With `cycle_length` > 1, `config.n` is the size of a group and `left_out` what no group gets."""

    config: Config
    dimension: int
    analysis: str
    cycle_length: int = 1
    left_out: int = 0

    @property
    def scheme(self) -> CappedPoisson:
        c = self.config
        size = c.n * self.cycle_length + self.left_out
        return CappedPoisson(size, c.p, c.B, c.overflow, self.cycle_length)  # type: ignore[arg-type]

    @property
    def kind(self) -> str:
        binds = "B < n" if self.config.n > self.config.B else "B >= n"
        return f"{self.config.overflow}, {self.config.adjacency}, {self.analysis}, {binds}"


Bound = Callable[[Draw, np.ndarray], np.ndarray]


# --- the bounds under test ---


def library_bound(draw: Draw, eps: np.ndarray) -> np.ndarray:
    """filet's one-step profile, as the accountant uses it: under replace-one, one direction stands for both.

    The refined analysis of truncated batches is the smaller of Theorem 2 and what lending proves.
    """
    scheme, sigma, adjacency = draw.scheme, draw.config.sigma, Adjacency(draw.config.adjacency)
    law = loss_law(scheme, sigma, adjacency, Analysis(draw.analysis))
    forward, _ = law.profile(eps, crossings)
    reverse = forward if draw.config.adjacency == "replace-one" else law.reversed().profile(eps, crossings)[0]
    refined = draw.analysis == "refined"
    step = lending_step(scheme, sigma, adjacency, lenders(scheme.max_batch_size, sigma)) if refined else None
    if step is not None:
        shares = choose_shares(step)
        lent, back = (lent_excess(step, at, *shares.at(at)) for at in (eps, -eps))
        forward, reverse = np.minimum(forward, lent), np.minimum(reverse, back * np.exp(eps))
    extra = scheme.overflow_probability * (1 + np.exp(eps)) if draw.analysis == "union" else 0.0
    return np.concatenate([forward + extra, reverse + extra])


def reference_bound(draw: Draw, eps: np.ndarray) -> np.ndarray:
    """The independent transcription of the theory, plus its rounding error; no union strategy."""
    c = draw.config
    kw = {"n": c.n, "p": c.p, "B": c.B, "sigma": c.sigma, "overflow": c.overflow, "adjacency": c.adjacency}
    analysis = "refined" if draw.analysis == "swap" else draw.analysis  # Theorem 2, under the name it had
    values = [profile_float.profile(eps, direction=w, analysis=analysis, **kw) for w in ("forward", "reverse")]
    return np.concatenate(values) + np.tile(1e-15 * (1 + np.exp(eps)), 2)


def library_delta(draw: Draw, eps: float, steps: int = 1) -> float:
    """The certified delta of `filet.account`, which covers both directions."""
    return float(library_curve(draw, steps).delta(eps))


def library_curve(draw: Draw, steps: int) -> PrivacyCurve:
    """`filet.account` for as many steps of one group: under cyclic sampling its turn comes every `cycle_length` steps."""
    total = (steps - 1) * draw.cycle_length + 1
    run = {"adjacency": draw.config.adjacency, "analysis": draw.analysis}
    return account(draw.scheme, noise_multiplier=draw.config.sigma, steps=total, **run)


# --- what is tried ---


def draws(rng: np.random.Generator, count: int) -> Iterator[Draw]:
    """Random configurations; the corners B = 1, B >= n, p = 1 and p near 0 and 1 are well represented."""
    made = 0
    while made < count:
        n = int(rng.integers(2, 9)) if rng.uniform() < 0.97 else 1
        B = int(rng.choice([1, n, n + 1, *rng.integers(1, max(2, n), 7)]))
        p = float(
            rng.choice([rng.uniform(), rng.uniform(), 10 ** rng.uniform(-4, -1), 1 - 10 ** rng.uniform(-6, -1), 1.0])
        )
        overflow, analysis = _KINDS[rng.integers(len(_KINDS))]
        if overflow == "reject" and p == 1 and n > B:
            continue
        sigma = float(math.exp(rng.uniform(math.log(0.2), math.log(5.0))))
        config = Config(n, p, B, sigma, overflow, ADJACENCIES[made % 3])
        cycle = int(rng.choice([1, 1, 1, 2, 5]))
        yield Draw(config, int(rng.choice(_DIMENSIONS)), analysis, cycle, int(rng.integers(cycle)))
        made += 1


def top_loss(config: Config) -> float:
    """About the loss where x_1 was drawn and the noise is three standard deviations towards it."""
    reach = 0.5 / config.sigma**2 + 3.0 / config.sigma
    return max(math.log1p(config.p * math.expm1(reach)), 1e-3)


def epsilons(config: Config, rng: np.random.Generator) -> np.ndarray:
    """Zero, near zero, up to losses that are rare, and the losses of the atoms: log(1-p) and log(1-q)."""
    top = top_loss(config) * rng.uniform(0.7, 1.3)
    points = [*(top * np.array([0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 1.0])), 1e-3]
    drawn = np.array([math.comb(config.n - 1, s) * config.p**s * (1 - config.p) ** (config.n - 1 - s)
                      for s in range(config.n)])  # fmt: skip
    over = drawn[config.B :]
    kept = config.p * over @ (config.B / np.arange(config.B + 1, config.n + 1)) if over.sum() > 1e-12 else 0.0
    rates = [config.p, kept / over.sum()] if kept else [config.p]
    marks = [-math.log1p(-rate) for rate in rates if rate < 1 - 1e-12]
    return np.unique([*points, *(m * scale for m in marks if m < 12 for scale in (1.0, 0.99, 1.01))])


def line_starts(config: Config, rng: np.random.Generator) -> np.ndarray:
    """Data sets on a line, of shape (data sets, vectors, 1): the known attacks, mixtures of them, and random ones."""
    k = config.n - 1
    place = np.arange(k)
    some = rng.permutation(k) < rng.integers(0, k + 1)
    others = [
        np.full(k, -1.0), np.full(k, 1.0), np.zeros(k),
        np.where(place % 2, 1.0, -1.0), np.where(2 * place < k, -1.0, 0.0), np.where(place == 0, -1.0, 0.0),
        np.where(some, -1.0, 0.0), np.where(some, -1.0, 1.0), np.full(k, rng.uniform(-1, 1)),
        rng.choice([-1.0, 1.0], k), rng.uniform(-1, 1, k),
    ]  # fmt: skip
    if config.adjacency == "replace-one":
        heads = [[1.0, -1.0]] * len(others) + [[1.0, 0.0], [1.0, 0.0], [rng.uniform(), rng.uniform(-1, 1)]]
        others += [others[0], others[1], others[0]]
    else:
        heads = [[1.0]] * len(others) + [[rng.uniform()]]
        others += [others[0]]
    return np.array([[*head, *other] for head, other in zip(heads, others, strict=True)])[:, :, None]


def on_sphere(rng: np.random.Generator, count: int, d: int) -> np.ndarray:
    v = rng.normal(size=(count, d))
    return v / np.linalg.norm(v, axis=1, keepdims=True)


def space_starts(config: Config, d: int, rng: np.random.Generator) -> np.ndarray:
    """The same in the plane or in space: others orthogonal, at an angle, spread over the sphere, duplicated, in the ball."""
    k = config.n - 1
    axes = np.eye(d)
    turn = rng.uniform(0.1, 3.0)
    angle = math.cos(turn) * axes[0] + math.sin(turn) * axes[1]
    place = np.arange(k)[:, None]
    others = [
        np.tile(axes[1], (k, 1)),
        np.where(place % 2, axes[1], axes[-1] if d > 2 else -axes[1]),
        np.tile(angle, (k, 1)),
        np.where(2 * place < k, -axes[0], axes[1]),
        np.where(place % 2, angle, -axes[0]),
        on_sphere(rng, k, d),
        on_sphere(rng, k, d) * rng.uniform(size=(k, 1)),
    ]
    seconds = [-axes[0], -axes[0], -axes[0], axes[1], on_sphere(rng, 1, d)[0], -axes[0], on_sphere(rng, 1, d)[0]]
    heads = [[axes[0], second] if config.adjacency == "replace-one" else [axes[0]] for second in seconds]
    return np.array([[*head, *other] for head, other in zip(heads, others, strict=True)])


# --- the search ---


class Hunt:
    """Everything tried on one configuration, and what came closest to the bound."""

    def __init__(self, draw: Draw, bound: Bound, rng: np.random.Generator) -> None:
        eps = epsilons(draw.config, rng)
        self.draw, self.rng, self.pair = draw, rng, neighbours(draw.config)
        self.mix, self.bounds = both_ways(eps), bound(draw, eps)
        self.rows = [(way, float(e)) for way in ("forward", "reverse") for e in eps]
        self.worth = self.bounds > FLOOR
        # At epsilon = 0 many bounds are attained by the simplest attack, so what comes closest there says little.
        self.away = self.worth & np.tile(eps >= 0.1 * top_loss(draw.config), 2)
        self.margin = math.inf  # the smallest (bound - truth) / size
        self.worst: tuple[Any, ...] = ()  # direction, epsilon, truth, size, bound and vectors there
        # The smallest (bound - truth) / bound away from epsilon = 0, by data on a line and by data in space.
        self.closest = {"line": math.inf, "space": math.inf}
        self.data_sets = self.divergences = 0

    @property
    def violated(self) -> bool:
        return self.margin < -TOLERANCE

    @property
    def relative(self) -> float:
        return min(self.closest.values())

    def lines(self, data: np.ndarray, only: slice = _ALL) -> np.ndarray:
        """Try data sets on a line in some rows: the relative slack of each in each."""
        means = data[:, :, 0] @ self.pair.members.T / self.draw.config.sigma
        return self._record("line", data, only, *line_profiles(means, self.pair.weights, self.mix[only]))

    def spaces(self, data: np.ndarray, only: slice = _ALL, finer: float = 1.0) -> np.ndarray:
        """The same in the plane or in space."""
        config, found = self.draw.config, []
        for vectors in data:
            means = self.pair.members @ aligned(vectors, config.adjacency) / config.sigma
            found.append(cell_profiles(means, self.pair.weights, self.mix[only], finer))
        values, sizes = (np.array(column) for column in zip(*found, strict=True))
        return self._record("space", data, only, values, sizes)

    def _record(self, place: str, data: np.ndarray, only: slice, values: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        bounds = self.bounds[only]
        gaps = bounds - values
        self.data_sets += len(data)
        self.divergences += gaps.size
        margins = gaps / np.maximum(sizes, FLOOR)
        if margins.min() < self.margin:
            i, j = np.unravel_index(np.argmin(margins), margins.shape)
            self.margin = float(margins[i, j])
            self.worst = (
                *self.rows[only][j],
                float(values[i, j]),
                float(sizes[i, j]),
                float(bounds[j]),
                data[i].tolist(),
            )
        relative = np.where(self.worth[only], gaps / np.maximum(bounds, FLOOR), np.inf)
        self.closest[place] = min(self.closest[place], float(relative[:, self.away[only]].min(initial=math.inf)))
        return relative

    def climb(self, look: Callable[..., np.ndarray], data: np.ndarray, generations: int, brood: int) -> np.ndarray:
        """Hill climbing from the most threatening of the data sets, at its epsilon: where it ends."""
        relative = look(data)
        if self.away.any() and self.rng.uniform() < 0.8:
            relative = np.where(self.away, relative, np.inf)
        i, row = np.unravel_index(np.argmin(relative), relative.shape)
        best, closest, only = data[i], relative[i, row], slice(row, row + 1)
        for _ in range(generations):
            trials = moved(best, brood, self.rng)
            slacks = look(trials, only)[:, 0]
            i = np.argmin(slacks)
            if slacks[i] < closest:
                best, closest = trials[i], slacks[i]
        return best


def hunt(draw: Draw, bound: Bound, rng: np.random.Generator) -> Hunt:
    """Try every start, climb, and measure where that ends at every epsilon; in space, on finer cells."""
    search = Hunt(draw, bound, rng)
    starts = line_starts(draw.config, rng)
    if draw.dimension == 1:
        best = search.climb(search.lines, starts, generations=3, brood=8)
        search.lines(best[None])
    else:
        search.lines(starts)
        hunt_in_space(search)
    return search


def hunt_in_space(search: Hunt) -> None:
    starts = space_starts(search.draw.config, search.draw.dimension, search.rng)
    best = search.climb(search.spaces, starts, generations=3, brood=4)
    search.spaces(best[None], finer=2.5 if search.draw.dimension == 2 else 1.6)


def moved(best: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Nearby data sets: some vectors shifted, and one turned round or made equal to another, or all stretched to norm 1."""
    reach = 10 ** rng.uniform(-2, -0.3, (count, 1, 1)) * (rng.uniform(size=(count, len(best), 1)) < 0.4)
    trials = best + reach * rng.normal(size=(count, *best.shape))
    for trial, what in zip(trials, rng.integers(4, size=count), strict=True):
        i, j = rng.integers(len(best), size=2)
        if what == 0:
            trial[i] = -trial[j]
        elif what == 1:
            trial[i] = trial[j]
        elif what == 2:
            trial /= np.maximum(np.linalg.norm(trial, axis=1, keepdims=True), 1e-3)
    return trials / np.maximum(np.linalg.norm(trials, axis=2, keepdims=True), 1.0)


# --- two steps ---


def step_cells(pair: Neighbours, data: np.ndarray, sigma: float) -> np.ndarray:
    """Masses of one step's outcomes in cells, under P and Q, for a data set on a line."""
    means = pair.members @ data[:, 0] / sigma
    edges = np.concatenate([[-np.inf], np.arange(means.min() - 4, means.max() + 4, 0.15), [np.inf]])
    return pair.weights @ axis_masses(means, edges)


def two_step_violations(draw: Draw, rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """Two independent steps, with the same data set or another, against the accountant's delta."""
    config, pair = draw.config, neighbours(draw.config)
    eps = rng.choice(epsilons(config, rng), 2) * rng.uniform(1, 2)
    bounds = np.tile([library_delta(draw, float(e), steps=2) for e in eps], 2)
    starts = line_starts(config, rng)
    cells = [step_cells(pair, data, config.sigma) for data in starts]
    same = [(i, i) for i in range(len(starts))]
    found = []
    for i, j in [*same, *rng.integers(len(starts), size=(6, 2))]:
        both = np.stack([np.outer(cells[i][which], cells[j][which]).ravel() for which in range(2)])
        values, sizes = positive_cells(both, both_ways(eps))
        if (values > bounds + TOLERANCE * sizes).any():
            found.append((draw, eps, values, bounds, starts[i].tolist(), starts[j].tolist()))
    return found


# --- many configurations ---


@dataclass
class Tally:
    """What a campaign found, by policy, adjacency and analysis."""

    slacks: dict[str, list[float]] = field(default_factory=dict)  # relative, away from epsilon = 0
    margins: dict[str, float] = field(default_factory=dict)
    data_sets: int = 0
    divergences: int = 0
    accounts: int = 0
    in_space: int = 0  # configurations in which data in the plane or in space came closer than data on a line
    violations: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def configurations(self) -> int:
        return sum(len(slacks) for slacks in self.slacks.values())

    def add(self, search: Hunt) -> None:
        kind = search.draw.kind
        self.slacks.setdefault(kind, []).append(search.relative)
        self.margins[kind] = min(self.margins.get(kind, math.inf), search.margin)
        self.data_sets += search.data_sets
        self.divergences += search.divergences
        self.in_space += search.closest["space"] < search.closest["line"]
        if search.violated:
            self.violations.append((search.draw, search.margin, *search.worst))

    def check_account(self, search: Hunt) -> None:
        """The accountant's own delta, where the search came closest."""
        _, eps, value, size, *_ = search.worst
        self.accounts += 1
        delta = library_delta(search.draw, eps)
        if value > delta + TOLERANCE * size:
            self.violations.append((search.draw, delta, *search.worst))

    def __str__(self) -> str:
        lines = [f"{self.configurations} configurations, {self.data_sets} data sets, {self.divergences} divergences, "
                 f"{self.accounts} accounts, {self.in_space} closer in space, {len(self.violations)} violations"]  # fmt: skip
        for kind, slacks in sorted(self.slacks.items()):
            attained = sum(slack < ATTAINED for slack in slacks)
            lines.append(f"{kind}: {len(slacks)} configurations, {attained} attained, median slack "
                         f"{np.median(slacks):.3e}, smallest margin {self.margins[kind]:.3e}")  # fmt: skip
        return "\n".join(lines)


def streams(seed: int) -> list[np.random.Generator]:
    """One generator for the configurations, so that they can be listed without a search, and one for the searches."""
    return np.random.default_rng(seed).spawn(2)


def campaign(seed: int, count: int) -> Tally:
    """Hunt on `count` random configurations; every tenth, and all of the union strategy, also through `account`."""
    which, rng = streams(seed)
    tally = Tally()
    for index, draw in enumerate(draws(which, count)):
        search = hunt(draw, library_bound, rng)
        tally.add(search)
        if index % 10 == 0 or draw.analysis == "union":
            tally.check_account(search)
    return tally
