"""Exact outputs of small data sets, by enumerating every batch, and certified lower bounds of their divergences.

One step on explicit vectors `x_1 .. x_n` (n up to 8) releases a finite Gaussian mixture. `neighbours` gives the mixtures of
two neighbouring data sets on the same components: component `k` sits at `members[k] @ vectors`, with weights `P[k]` and
`Q[k]`, for *any* vectors. So the enumeration is done once for a mechanism, and a data set costs a matrix product.

`H_a(P||Q) = integral [P - aQ]_+` is the largest `P(A) - aQ(A)` over all sets A, so any set that is measured exactly bounds it
from below. Enclosure routines below choose a good set and measure it by normal distribution functions:

- `line_profiles`, for data on a line: the intervals between the roots of `P - aQ`. A root that is off by r costs
  about r^2, so three steps of Newton's method are plenty; a pair of roots between two grid points is missed, and so is what
  happens beyond 7 standard deviations (1e-11). All of these only lower the value.
- `cell_profiles`, in two and three dimensions: the cells of a grid with `P > aQ`. Noise has the same law in every rotated
  frame and is independent along its axes, so all cell masses together are one matrix product of masses along the axes.
  Cells that the boundary crosses are lost in part, in proportion to the square of their width: below 2e-3 in the plane and
  1e-2 in space with the widths used for screening, a sixth of that in the plane where a search ends.

Hence no integration error can feign a violation, only rounding, which is in proportion to `P(A) + aQ(A)`. That sum is
returned as `size`, and `TOLERANCE` times it is what the tests allow.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

TOLERANCE = 1e-13
POLICIES = ("truncate", "reject")
ADJACENCIES = ("add-remove", "zero-out", "replace-one")
_SPACING = 0.3  # of the grid on which roots are looked for, in standard deviations
_REACH = 7.0  # how far beyond the outermost means
_MOST_EDGES = {2: (128, 48), 3: (96, 24)}  # along the first axis, and along each other one, by dimension


@dataclass(frozen=True)
class Config:
    """One mechanism: everything but the data."""

    n: int
    p: float
    B: int
    sigma: float
    overflow: str
    adjacency: str


@functools.cache
def subsets(n: int, most: int) -> np.ndarray:
    """Every subset of range(n) with at most `most` elements, as rows of zeros and ones."""
    rows = np.array(list(itertools.product((0, 1), repeat=n)), dtype=np.int64).reshape(2**n, n)
    return rows[rows.sum(axis=1) <= most]


def batch_law(n: int, p: float, B: int, overflow: str) -> tuple[np.ndarray, np.ndarray]:
    """Every batch that the policy can release, with its probability: given its size, all subsets are alike."""
    drawn = np.array([math.comb(n, s) * p**s * (1 - p) ** (n - s) for s in range(n + 1)])
    kept = drawn[: B + 1].copy()
    if overflow == "truncate":
        kept[-1] += drawn[B + 1 :].sum()
    if kept.sum() <= 0:
        raise ValueError("policy reject accepts no batch")
    kept /= kept.sum()  # reject: condition on acceptance
    members = subsets(n, B)
    size = members.sum(axis=1)
    return members, kept[size] / np.array([math.comb(n, s) for s in range(len(kept))])[size]


@dataclass(frozen=True)
class Neighbours:
    """The outputs of one step on two neighbouring data sets; the rows of `weights` are P and Q."""

    members: np.ndarray
    weights: np.ndarray

    @property
    def vectors(self) -> int:
        """How many free vectors: x_1, then x_1' under replace-one, then the others."""
        return self.members.shape[1]


def neighbours(config: Config) -> Neighbours:
    """The two mixtures for D = [x_1, *others] and its neighbour under the configured adjacency."""
    law = (config.p, config.B, config.overflow)
    with_x, P = batch_law(config.n, *law)
    if config.adjacency == "add-remove":
        others, Q = batch_law(config.n - 1, *law)
        without = np.pad(others, ((0, 0), (1, 0)))
    elif config.adjacency == "zero-out":
        without, Q = with_x * (np.arange(config.n) > 0), P
    else:
        without, Q = np.insert(with_x, 0, 0, axis=1), P
        with_x = np.insert(with_x, 1, 0, axis=1)
    every = np.concatenate([with_x, without])
    code = every @ (1 << np.arange(every.shape[1]))
    _, first, where = np.unique(code, return_index=True, return_inverse=True)
    weights = np.zeros((2, len(first)))
    np.add.at(weights[0], where[: len(P)], P)
    np.add.at(weights[1], where[len(P) :], Q)
    some = weights.any(axis=0)
    return Neighbours(every[first][some].astype(float), weights[:, some])


def both_ways(eps: np.ndarray) -> np.ndarray:
    """Rows (u, v) for which `integral [uP + vQ]_+` is H_a(P||Q) at each a = e^eps, then H_a(Q||P)."""
    a, one = np.exp(eps), np.ones(len(eps))
    return np.concatenate([np.stack([one, -a], axis=1), np.stack([-a, one], axis=1)])


def interval_mass(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Standard normal mass between the ends, without cancellation in the right tail."""
    right = low > 0
    return ndtr(np.where(right, -low, high)) - ndtr(np.where(right, -high, low))


def line_profiles(means: np.ndarray, weights: np.ndarray, mix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and sizes, of shape (data sets, rows of mix), for `means` of shape (data sets, components), in sigmas."""
    factors = mix @ weights
    low, high = means.min(axis=1) - _REACH, means.max(axis=1) + _REACH
    count = int((high - low).max() / _SPACING) + 2
    x = np.linspace(low, high, count, axis=1)
    f = np.exp(-0.5 * (x[:, :, None] - means[:, None, :]) ** 2) @ factors.T
    f = np.moveaxis(f, 2, 1)  # data set, row of mix, grid
    noise = 1e-15 * np.abs(factors).sum(axis=1)
    positive = np.zeros((*f.shape[:2], count + 2), dtype=np.int8)
    positive[:, :, 1:-1] = f > noise[:, None]
    change = np.diff(positive, axis=2)
    # The i-th rise and the i-th fall belong together, as both are listed row by row.
    rises, falls = np.nonzero(change == 1), np.nonzero(change == -1)
    data, row = rises[:2]
    starts, ends = (_roots(at, x, f, means, factors) for at in (rises, falls))
    centres = means[data]
    cells = interval_mass(starts[:, None] - centres, ends[:, None] - centres)
    sizes = np.abs(mix) @ weights  # not |factors|, in which rounding errors of cancelling weights would not show
    parts = [np.einsum("ik,ik->i", cells, each[row]) for each in (sizes, factors)]
    where = data * len(mix) + row
    size, value = (np.bincount(where, part, len(means) * len(mix)).reshape(len(means), len(mix)) for part in parts)
    return value, size


def _roots(
    at: tuple[np.ndarray, ...], x: np.ndarray, f: np.ndarray, means: np.ndarray, factors: np.ndarray
) -> np.ndarray:
    """The ends of intervals that begin or end just before the grid points `at`; infinite at the ends of the grid."""
    data, row, point = at
    last = x.shape[1]
    inside = (point > 0) & (point < last)
    found = np.where(point == 0, -np.inf, np.inf)
    d, r, g = data[inside], row[inside], point[inside]
    left, right = x[d, g - 1], x[d, g]
    f_left, f_right = f[d, r, g - 1], f[d, r, g]
    root = left + (right - left) * np.clip(f_left / (f_left - f_right), 0, 1)
    weights, centres = factors[r], means[d]
    for _ in range(3):
        gap = root[:, None] - centres
        terms = weights * np.exp(-0.5 * gap * gap)
        value, slope = terms.sum(axis=1), -(terms * gap).sum(axis=1)
        step = np.divide(value, slope, out=np.zeros_like(value), where=slope != 0)
        root = np.clip(root - step, left, right)
    found[inside] = root
    return found


def _edges(means: np.ndarray, spacing: float, most: int) -> np.ndarray:
    """Edges of cells along one axis; one cell where nothing moves."""
    low, high = means.min(), means.max()
    if high - low < 1e-9:
        return np.array([-np.inf, np.inf])
    count = min(int((high - low + 8.0) / spacing) + 1, most)
    return np.concatenate([[-np.inf], np.linspace(low - 4.0, high + 4.0, count), [np.inf]])


def axis_masses(means: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mass of every component (row) in every cell (column) along one axis, from one normal tail for each edge."""
    t = edges - means[:, None]
    tail = ndtr(-np.abs(t))
    below, above = np.diff(tail, axis=1), t[:, :-1] > 0
    cells = np.where(above, -below, below)
    across = ~above & (t[:, 1:] > 0)
    cells[across] = 1.0 - tail[:, :-1][across] - tail[:, 1:][across]
    return cells


def aligned(vectors: np.ndarray, adjacency: str) -> np.ndarray:
    """The data in a frame whose first axis is the direction in which x_1 changes, where the loss changes fastest."""
    change = vectors[0] - vectors[1] if adjacency == "replace-one" else vectors[0]
    frame, _ = np.linalg.qr(np.column_stack([change, vectors.T, np.eye(vectors.shape[1])]))
    return vectors @ frame


def cell_profiles(
    means: np.ndarray, weights: np.ndarray, mix: np.ndarray, finer: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Values and sizes, one for each row of mix, for `means` of shape (components, dimension), in sigmas."""
    dimension = means.shape[1]
    spacings = {2: (0.15, 0.4), 3: (0.25, 0.7)}[dimension]
    masses = [
        axis_masses(means[:, axis], _edges(means[:, axis], spacings[axis > 0] / finer,
                                           int(_MOST_EDGES[dimension][axis > 0] * finer)))
        for axis in range(dimension)
    ]  # fmt: skip
    across = masses[1]
    for more in masses[2:]:
        across = np.einsum("ka,kb->kab", across, more).reshape(len(means), -1)
    cells = np.stack([((weight[:, None] * masses[0]).T @ across).ravel() for weight in weights])
    return positive_cells(cells, mix)


def positive_cells(cells: np.ndarray, mix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and sizes of the best unions of cells; the rows of `cells` are their masses under P and Q."""
    chosen = (mix @ cells > 0).astype(float)
    masses = chosen @ cells.T
    return (mix * masses).sum(axis=1), (np.abs(mix) * masses).sum(axis=1)


def profiles(config: Config, vectors: Iterable[Iterable[float]], eps: np.ndarray) -> np.ndarray:
    """H_a(P||Q) and H_a(Q||P), in two rows, for one data set of vectors [x_1, x_1' under replace-one, *others]."""
    pair, data = neighbours(config), np.array(vectors, float)
    if len(data) != pair.vectors or np.linalg.norm(data, axis=1).max() > 1 + 1e-9:
        raise ValueError(f"pass {pair.vectors} vectors of norm at most 1")
    if data.shape[1] == 1:
        means = (pair.members @ data[:, 0] / config.sigma)[None]
        values = line_profiles(means, pair.weights, both_ways(eps))[0]
    else:
        means = pair.members @ aligned(data, config.adjacency) / config.sigma
        values = cell_profiles(means, pair.weights, both_ways(eps), finer=3.0)[0]
    return values.reshape(2, len(eps))
