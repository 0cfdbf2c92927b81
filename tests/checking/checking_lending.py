"""A witness for the lending theorem, in floating point: shares and tilts by the fixed point of the theory's section 9.

The checker accepts any values; these are near the best.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

TINY = 1e-300


def rows(phase: dict[str, Any], adjacency: str, nodes: list[int], spacing: float) -> list[list[int] | None]:
    """For each node [tilt * 2^20, shares * 4096 ...], or None where nothing is lent."""
    n, cap = phase["dataset_size"] // phase["cycle_length"], phase["max_batch_size"]
    p, sigma = float(phase["sampling_probability"]), float(phase["noise_multiplier"])
    levels = min(cap - 1, int(6 * sigma + 6))
    w, tau = binom.pmf(cap - 1, n - 1, p), binom.sf(cap - 1, n - 1, p)
    if levels < 1 or w < 1e-250 or tau < 1e-250:
        return [None] * len(nodes)
    tq = cap / n * binom.sf(cap, n, p)
    first = 1 - tq / tau if adjacency == "add-remove" else 1.0
    found: list[list[int] | None] = []
    usable = [k for k in nodes if np.exp(k * spacing) > first + 1e-6 * p]
    table = dict(zip(usable, _fixed_point(n, p, cap, sigma, adjacency, np.exp(np.array(usable) * spacing), levels, w, tau, tq),
                     strict=True))  # fmt: skip
    for k in nodes:
        found.append(table.get(k))
    return found


def _fixed_point(n, p, cap, sigma, adjacency, a, levels, w, tau, tq):
    k = np.arange(1, levels + 1)[:, None]
    wk = binom.pmf(cap - 1 - k, n - 1, p)
    i, c = 0.5 / sigma**2, p * w + tq
    low2, top2 = np.zeros_like(a), np.zeros_like(a)
    low, m0, m1 = a - 1 + p, (a - 1 + p) * w, (a - 1) * tau + tq
    if adjacency == "zero-out":
        m0, m1 = m0 + a * tq, (a - 1) * (tau - tq)
    elif adjacency == "replace-one":
        low = (1 - p) * (a - 1)
        low2, m0, m1, top2 = a * p, low * w, (a - 1) * (tau - tq), a * c
    share, tilt = np.full((levels, a.size), 0.5), np.full(a.size, -1.0)
    with np.errstate(all="ignore"):
        for turn in range(40):
            lent = np.maximum(share, 1e-12) * low * wk
            for _ in range(30 if turn == 0 else 3):
                e = np.exp(np.clip(np.log(lent) - k * tilt - k * k * i, -700, 700))
                up = (k * e).sum(0) + TINY
                step = (np.log(m1) - i + tilt - np.log(up)) / (1 + (k * k * e).sum(0) / up)
                tilt = np.clip(tilt - np.clip(step, -3, 3), -500, 500)
            e = np.exp(np.clip(np.log(lent) - k * tilt - k * k * i, -700, 700))
            up = (k * e).sum(0) + TINY
            total = up + m0 + e.sum(0)
            cover = total * np.exp(up / total * (np.log(m1) - i + tilt - np.log(up)))
            one, two = np.log(cover) - i, np.log(top2) - 4 * i
            root = np.log(2 * c) - np.logaddexp(one, 0.5 * np.logaddexp(2 * one, np.log(4 * c) + two))
            top = ndtr((root * sigma**2 - 1) / sigma)
            price = np.exp(np.clip(-k * tilt - k * k * i, -700, 50))
            x = 1 + sigma * ndtri(np.clip(price * top, TINY, 1 - 1e-15))
            keep = (p - low2 * np.exp(np.minimum((2 * x - 2) / sigma**2, 700))) * np.exp(
                np.clip((0.5 - x) / sigma**2, -700, 700)
            )
            goal = np.clip(np.nan_to_num(1 - keep / low, nan=0.0, posinf=0.0, neginf=0.0), 0, 1)
            share = 0.5 * (share + goal)
    good = np.isfinite(tilt) & np.isfinite(share).all(0)
    shares = np.rint(4096 * np.nan_to_num(share)).astype(int)
    tilts = np.rint(2**20 * np.nan_to_num(tilt)).astype(int)
    return [[int(tilts[j]), *map(int, shares[:, j])] if good[j] else None for j in range(a.size)]
