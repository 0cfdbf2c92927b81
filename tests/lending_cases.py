"""Steps for the tests of lending: random mechanisms, and the library's weights with a bound of their errors."""

from __future__ import annotations

import math

import numpy as np

from filet import Adjacency
from filet._binomial import cap_weights
from filet.accounting.proving.lending import Step
from filet.accounting.search.lending import lenders
from tests.enumeration import ADJACENCIES


def make(n: int, p: float, B: int, sigma: float, adjacency: str, count: int | None = None) -> Step:
    count = lenders(B, sigma) if count is None else min(count, B - 1)
    return Step(n, p, B, sigma, Adjacency(adjacency), cap_weights(n, p, B), count)


def some(rng: np.random.Generator, largest: int = 2_000) -> Step:
    """A random step; n small and large, caps near the mean and far from it, b > N - b and B = n - 1 included."""
    while True:
        n = int(math.exp(rng.uniform(math.log(3), math.log(largest))))
        p = float(rng.choice([rng.uniform(0.02, 0.98), 10 ** rng.uniform(-3, -1)]))
        mean, spread = n * p, math.sqrt(n * p * (1 - p))
        B = int(rng.choice([round(mean + rng.normal() * 2 * spread), n - 1, 2, rng.integers(2, n)]))
        sigma = float(math.exp(rng.uniform(math.log(0.3), math.log(5.0))))
        if 1 < B < n:
            v = cap_weights(n, p, B)
            if min(v.w, v.tau) > 1e-200:
                return make(n, p, B, sigma, str(rng.choice(ADJACENCIES)))


def losses(step: Step, rng: np.random.Generator, count: int) -> np.ndarray:
    """Nodes on both sides of 0, where profiles have digits: equal steps of the output, more or less."""
    y = 1.0 / step.sigma
    t = rng.uniform(-0.5 * y * y - 5.0 * y, 2.0 * y * y + 7.0 * y, count)
    loss = np.log1p(step.p * np.expm1(np.minimum(t, 300.0)))
    if step.adjacency is Adjacency.REPLACE_ONE:
        loss = np.where(rng.uniform(size=count) < 0.5, -np.abs(loss), np.abs(loss))
    return np.sort(np.append(loss, 0.0))
