"""The one-step profiles of `exact.py` in double precision, for many epsilons at once (absolute error about 1e-15)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from . import exact


def K(c: Any, m1: Any, m2: Any, s: float) -> np.ndarray:
    """Integral of [c N(0) - m1 N(1) - m2 N(2)]_+."""
    c, m1, m2 = np.broadcast_arrays(*(np.maximum(np.asarray(v, float), 0.0) for v in (c, m1, m2)))
    # The quadratic in e^{(x - 1/2)/s^2}, so that only the second weight is scaled, and by e^{-1/s^2} in the open.
    bottom = m1 + np.sqrt(m1 * m1 + 4 * m2 * c * np.exp(-1 / (s * s)))
    some = (c > 0) & (bottom > 0)
    x = np.where(c > 0, np.inf, -np.inf)
    x[some] = s * s * np.log(2 * c[some] / bottom[some]) + 0.5
    far = (c > 0) & (m1 == 0) & (m2 > 0)
    x[far] = s * s * np.log(c[far] / m2[far]) / 2 + 1
    return c * ndtr(x / s) - m1 * ndtr((x - 1) / s) - m2 * ndtr((x - 2) / s)


def pair(a: np.ndarray, P: dict[int, float], Q: dict[int, float], s: float) -> np.ndarray:
    """H_a(P||Q) of mixtures {shift: weight} with increasing P/Q, by bisection."""

    def log_ratio(x: np.ndarray) -> np.ndarray:
        logs = [
            np.logaddexp.reduce([np.log(v) + (2 * m * x - m * m) / (2 * s * s) for m, v in mix.items() if v > 0])
            for mix in (P, Q)
        ]
        return logs[0] - logs[1]

    low, high = np.full(a.shape, -40 * s - 40.0), np.full(a.shape, 40 * s + 40.0)
    for _ in range(80):
        mid = (low + high) / 2
        below = log_ratio(mid) < np.log(a)
        low, high = np.where(below, mid, low), np.where(below, high, mid)
    x = (low + high) / 2
    tails = [sum(v * ndtr((m - x) / s) for m, v in mix.items()) for mix in (P, Q)]
    return tails[0] - a * tails[1]


def poisson(a: np.ndarray, p: float, s: float, adjacency: str) -> np.ndarray:
    if adjacency != "replace-one":
        return np.where(a > 1 - p, K(p, a - 1 + p, 0, s), 1 - a)
    b = 1 / a
    return np.where(a >= 1, K(p, (1 - p) * (a - 1), a * p, s), 1 - a + a * K(p, (1 - p) * (b - 1), b * p, s))


def capped_group(a: np.ndarray, W: exact.Weights, s: float, adjacency: str) -> np.ndarray:
    p, w, tau, tq, c, q = (float(v) for v in (W.p, W.w, W.tau, W.tq, W.c, W.q))
    b, rest = 1 / a, (w + tau) * (1 - a)
    if adjacency == "add-remove":
        above = K(c, (a - 1 + p) * w, (a - 1) * tau + tq, s)
        between = K(c + tau * (1 - a) - tq, (a - 1 + p) * w, 0, s)
        return np.where(a >= 1 - q, above, np.where(a > 1 - p, between, rest))
    if adjacency == "zero-out":
        above = K(c, (a - 1 + p) * w + a * tq, (tau - tq) * (a - 1), s)
        below = rest + a * K(w * (1 - b * (1 - p)) + tq, (tau - tq) * (b - 1) + b * c, 0, s)
        return np.where(a >= 1, above, below)
    above = K(c, (1 - p) * w * (a - 1), (tau - tq) * (a - 1) + a * c, s)
    below = rest + a * K(c, (1 - p) * w * (b - 1), (tau - tq) * (b - 1) + b * c, s)
    return np.where(a >= 1, above, below)


def profile(
    eps: Any, *, n: int, p: float, B: int, sigma: float,
    overflow: str = "truncate", adjacency: str = "add-remove", analysis: str = "refined", direction: str = "forward",
) -> np.ndarray:  # fmt: skip
    """As `exact.profile`, for an array of epsilons."""
    a, s = np.exp(np.asarray(eps, float)), float(sigma)
    if direction == "reverse":
        rest = {"overflow": overflow, "adjacency": adjacency, "analysis": analysis}
        return 1 - a + a * profile(-np.asarray(eps, float), n=n, p=p, B=B, sigma=s, **rest)
    if analysis == "poisson":
        return poisson(a, p, s, adjacency)
    W = exact.weights(n, p, B)
    if overflow == "reject":
        k, b, b1 = float(W.k), float(W.b), float(W.b_prime)
        if adjacency != "add-remove":
            return (1 - b) * poisson(a, p, s, adjacency) + b * np.maximum(1 - a, 0)
        return (1 - b1) * k * poisson(a / k, p, s, adjacency) + b1 * np.maximum(k * (1 - p) - a, 0)
    tau, q, w = float(W.tau), float(W.q), float(W.w)
    if analysis == "note":
        far = {"add-remove": 0, "zero-out": -1, "replace-one": -2}[adjacency]
        over = pair(a, {0: 1 - q, 2: q}, {0: 1 - q, far: q} if far else {0: 1.0}, s)
        return (1 - tau) * poisson(a, p, s, adjacency) + tau * over
    return (1 - tau - w) * poisson(a, p, s, adjacency) + capped_group(a, W, s, adjacency)
