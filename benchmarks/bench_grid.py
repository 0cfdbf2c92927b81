"""The stress grid: every point answered, how wide, how fast.

    python benchmarks/bench_grid.py [SHARE]     SHARE of the 15,552 points, drawn at random (default: all)

Prints percentiles and every point that is too wide, above a second, or unanswered; writes results/grid.json.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import filet

AXES: tuple[tuple[Any, ...], ...] = (
    (1e-9, 1e-6, 1e-4, 1e-2, 0.5, 1.0),  # p
    (0.1, 0.5, 1.0, 3.0, 10.0, 100.0),  # noise multiplier
    (1, 2, 10, 100, 10**4, 10**7),  # steps
    (1e-2, 1e-5, 1e-10, 1e-30),  # delta
    (0, 2, 5),  # cap: mean plus this many standard deviations
    tuple(filet.Adjacency),
    tuple(filet.Overflow),
)


def one(point: tuple[Any, ...]) -> dict[str, Any]:
    p, sigma, steps, delta, sds, adjacency, overflow = point
    n = round(1000 / p)
    cap = min(n, int(n * p + sds * math.sqrt(n * p * (1 - p))))
    scheme = filet.CappedPoisson(n, p, cap, overflow)
    names = ("p", "sigma", "steps", "delta", "sds", "adjacency", "overflow")
    row: dict[str, Any] = dict(zip(names, (*point[:5], adjacency.value, overflow.value), strict=True))
    start = time.perf_counter()
    try:
        bounds = filet.account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency).epsilon_bounds(delta)
    except filet.FiletError as error:
        return row | {"ms": 1e3 * (time.perf_counter() - start), "error": str(error)}
    return row | {"ms": 1e3 * (time.perf_counter() - start), "lower": bounds.lower, "upper": bounds.upper}


def main() -> None:
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    points = list(itertools.product(*AXES))
    if share < 1.0:
        points = random.Random(0).sample(points, round(share * len(points)))
    rows = []
    bad: dict[str, int] = {"unanswered": 0, "too wide": 0, "above 1 s": 0}
    for point in points:
        row = one(point)
        rows.append(row)
        problems = []
        if "error" in row:
            problems.append("unanswered")
        elif row["upper"] - row["lower"] > max(1e-3 * row["upper"], 1e-4):
            problems.append("too wide")
        if row["ms"] > 1000:
            problems.append("above 1 s")
        for problem in problems:
            bad[problem] += 1
            print(problem, row, flush=True)
    times = np.array([row["ms"] for row in rows])
    summary = {"points": len(rows), **bad, "ms": {str(q): float(np.percentile(times, q)) for q in (50, 90, 99, 100)}}
    print(json.dumps(summary))
    target = Path(__file__).parent / "results" / "grid.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(
        json.dumps({"summary": summary, "hard": [r for r in rows if r["ms"] > 300 or "error" in r]}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
