"""Exact outputs of one truncated step on populations of one or two types, and a search among them for a violated bound.

If the others are `counts[i]` copies of the vector `vectors[i]`, a batch is described by how many of each type it holds, given
the number of others a hypergeometric law. So data sets of hundreds of examples have explicit mixtures, where
`enumeration` stops at 8. As there, divergences are those of explicit sets (unions of cells, intervals between roots),
hence lower bounds whatever the grid; a finer one is only tighter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import binom

from tests.enumeration import ADJACENCIES, axis_masses, both_ways, line_profiles, positive_cells

ROUNDING = 1e-12  # of binomial and hypergeometric weights, relative to P(A) + a Q(A)
_NEGLIGIBLE = 1e-22


@dataclass(frozen=True)
class Mechanism:
    """One truncated step."""

    n: int
    p: float
    B: int
    sigma: float
    adjacency: str


@dataclass(frozen=True)
class Population:
    """x_1, the x_1' that replaces it, and types of others, in the plane."""

    x: tuple[float, float]
    other: tuple[float, float]
    counts: tuple[int, ...]
    vectors: tuple[tuple[float, float], ...]


def sizes(m: Mechanism) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chances of 0 .. B others in the batch: with x_1 beside them, without it, and for the data set without x_1."""
    drawn = binom.pmf(np.arange(m.n), m.n - 1, m.p)
    over = drawn[m.B :]
    survives = m.p * m.B / (np.arange(m.B, m.n) + 1.0)
    hit = np.append(m.p * drawn[: m.B], 0.0)
    hit[m.B - 1] += over @ survives
    miss = np.append((1 - m.p) * drawn[: m.B], over @ (1 - survives))
    return hit, miss, np.append(drawn[: m.B], over.sum())


def mixtures(m: Mechanism, people: Population) -> tuple[np.ndarray, np.ndarray]:
    """Means of shape (components, 2), in units of sigma, and weights under P and Q."""
    hit, miss, alone = sizes(m)
    vectors = np.array(people.vectors)
    rows, chance, size = [], [], []
    for j in range(m.B + 1):
        ways = math.comb(m.n - 1, j)
        if len(people.counts) == 1:
            options = [(j,)]
        else:
            first, second = people.counts
            options = [(k, j - k) for k in range(max(0, j - second), min(first, j) + 1)]
        for taken in options:
            number = math.prod(math.comb(c, k) for c, k in zip(people.counts, taken, strict=True))
            rows.append(taken)
            chance.append(number / ways)
            size.append(j)
    base, chance, size = np.array(rows, float) @ vectors, np.array(chance), np.array(size)  # type: ignore[assignment]
    x, other = np.array(people.x), np.array(people.other)
    hits, misses, zero = chance * hit[size], chance * miss[size], np.zeros(len(base))
    if m.adjacency == "add-remove":
        means, P, Q = [base + x, base], [hits, misses], [zero, chance * alone[size]]
    elif m.adjacency == "zero-out":
        means, P, Q = [base + x, base], [hits, misses], [zero, misses + hits]
    else:
        means, P, Q = [base + x, base, base + other], [hits, misses, zero], [zero, misses, hits]
    weights = np.stack([np.concatenate(P), np.concatenate(Q)])
    some = weights.max(axis=0) > _NEGLIGIBLE
    return np.concatenate(means)[some] / m.sigma, weights[:, some]


def _edges(means: np.ndarray, weights: np.ndarray, spacing: float) -> np.ndarray:
    near = means[weights.max(axis=0) > 1e-9]
    if near.max() - near.min() < 1e-9:
        return np.array([-np.inf, np.inf])
    inner = np.arange(near.min() - 5.0, near.max() + 5.0 + spacing, spacing)
    return np.concatenate([[-np.inf], inner[: 1 + 2_000], [np.inf]])


def divergences(m: Mechanism, people: Population, eps: np.ndarray, finer: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Lower bounds of H_a(P||Q) at a = e^eps, then of H_a(Q||P), and the sizes P(A) + a Q(A) that rounding goes with."""
    means, weights = mixtures(m, people)
    change = np.subtract(people.x, people.other) if m.adjacency == "replace-one" else np.array(people.x)
    axis = change / max(float(np.linalg.norm(change)), 1e-12)
    along, across = means @ axis, means @ np.array([-axis[1], axis[0]])
    mix = both_ways(eps)
    if np.ptp(across) < 1e-9:
        value, size = line_profiles(along[None], weights, mix)
        return value[0], size[0]
    first = axis_masses(along, _edges(along, weights, 0.2 / finer))
    second = axis_masses(across, _edges(across, weights, 0.5 / finer))
    cells = np.stack([((weight[:, None] * first).T @ second).ravel() for weight in weights])
    return positive_cells(cells, mix)


# --- the search ---


def some_mechanism(rng: np.random.Generator) -> Mechanism:
    """Sizes where lending is active: cuts from rare to the rule."""
    n, B = int(rng.integers(60, 401)), int(rng.integers(20, 61))
    n = max(n, B + 2)
    p = min(0.95, B / n * float(rng.uniform(0.6, 1.25)))
    sigma = float(math.exp(rng.uniform(math.log(0.3), math.log(3.0))))
    return Mechanism(n, p, B, sigma, ADJACENCIES[int(rng.integers(3))])


def some_epsilons(m: Mechanism, rng: np.random.Generator, count: int = 6) -> np.ndarray:
    y = 1 / m.sigma
    t = rng.uniform(0.0, 0.5 * y * y + 3.0 * y, count)
    back = -math.log1p(-m.p * rng.uniform())  # losses of the reverse direction are bounded
    return np.unique(np.append(np.log1p(m.p * np.expm1(t)), [0.0, back]))


def turned(angle: float, norm: float = 1.0) -> tuple[float, float]:
    return norm * math.cos(angle), norm * math.sin(angle)


def some_population(m: Mechanism, rng: np.random.Generator) -> Population:
    """x_1 along the first axis; all others equal at an angle, antipodal halves, or two types of any norms."""
    others = m.n - 1
    norm = float(rng.choice([1.0, 1.0, rng.uniform(0.3, 1)]))
    second = turned(float(rng.choice([math.pi, rng.uniform(0, math.pi)])), float(rng.choice([1.0, rng.uniform()])))
    angle = float(rng.choice([math.pi / 2, math.pi, rng.uniform(0, math.pi)]))
    kind = rng.integers(4)
    if kind == 0:
        return Population((norm, 0.0), second, (others,), (turned(angle),))
    if kind == 1:
        return Population((norm, 0.0), second, (others,), (turned(angle, float(rng.uniform(0.2, 1))),))
    half = others // 2 if kind == 2 else int(rng.integers(1, others))
    opposite = turned(angle + math.pi) if kind == 2 else turned(rng.uniform(0, 2 * math.pi), float(rng.uniform()))
    return Population((norm, 0.0), second, (half, others - half), (turned(angle), opposite))


def nearby(people: Population, rng: np.random.Generator) -> Population:
    """Vectors moved a little, never beyond norm 1, and some others changed from one type to the other."""

    def moved(v: tuple[float, float]) -> tuple[float, float]:
        w = np.array(v) + 10 ** rng.uniform(-2, -0.5) * rng.normal(size=2)
        w /= max(1.0, float(np.linalg.norm(w)))
        return float(w[0]), float(w[1])

    counts = people.counts
    if len(counts) == 2:
        shift = int(rng.integers(-counts[0] // 4, counts[1] // 4 + 1))
        counts = (min(max(counts[0] + shift, 0), sum(counts)), 0)
        counts = (counts[0], sum(people.counts) - counts[0])
    return replace(people, counts=counts, vectors=tuple(moved(v) for v in people.vectors), other=moved(people.other))


@dataclass
class Found:
    """What a search came across: the largest (truth - bound) / size and truth / bound where lending is active."""

    margin: float = -math.inf
    closest: float = 0.0
    worst: object = None
    divergences: int = 0
    active: int = 0


Bounds = Callable[[Mechanism, np.ndarray], tuple[np.ndarray, np.ndarray]]  # lending's and Theorem 2's, both ways


def search(bounds: Bounds, rng: np.random.Generator, mechanisms: int, starts: int, climbs: int) -> Found:
    """Random mechanisms and populations; from the worst population of each a climb towards the bound."""
    found = Found()
    for _ in range(mechanisms):
        m = some_mechanism(rng)
        eps = some_epsilons(m, rng)
        bound, swap = bounds(m, eps)
        active = (bound < 0.98 * swap) & (bound > 1e-12)
        best, closest = some_population(m, rng), -math.inf
        for trial in range(starts + climbs):
            people = some_population(m, rng) if trial < starts else nearby(best, rng)
            value, size = divergences(m, people, eps)
            margin = (value - bound) / np.maximum(size, 1e-12)
            ratio = np.where(active, value / np.maximum(bound, 1e-300), 0.0)
            found.divergences += value.size
            found.active += int(active.sum())
            if margin.max() > found.margin:
                found.margin, found.worst = float(margin.max()), (m, people, eps[int(margin.argmax()) % eps.size])
            if ratio.max() > closest:
                best, closest = people, float(ratio.max())
        found.closest = max(found.closest, closest)
    return found
