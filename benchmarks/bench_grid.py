"""The stress grid: every point answered, how wide, how fast.

    python benchmarks/bench_grid.py [SHARE]     SHARE of the 15,552 points, drawn at random (default: all)

Prints percentiles and every point that is too wide, above a second, or unanswered; writes results/grid.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import time
from typing import Any

import numpy as np
from common import machine, write_json

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
    start = time.thread_time()
    try:
        bounds = filet.account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency).epsilon_bounds(delta)
    except filet.FiletError as error:
        return row | {"ms": 1e3 * (time.thread_time() - start), "error": str(error)}
    return row | {"ms": 1e3 * (time.thread_time() - start), "lower": bounds.lower, "upper": bounds.upper}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("share", type=float, nargs="?", default=1.0)
    parser.add_argument("--quick", action="store_true", help="a share of 0.01")
    options = parser.parse_args()
    share = 0.01 if options.quick else options.share
    points = list(itertools.product(*AXES))
    if share < 1.0:
        points = random.Random(0).sample(points, round(share * len(points)))
    rows = []
    one(points[0])  # what the first question loads and fills does not count
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
    truncate = np.array([row["ms"] for row in rows if row["overflow"] == "truncate"])
    shares = {"ms": times, "truncate ms": truncate}
    summary = {"points": len(rows), **bad} | {
        name: {str(q): float(np.percentile(some, q)) for q in (50, 90, 99, 100)} for name, some in shares.items()
    }
    print(json.dumps(summary))
    hard = [row for row in rows if row["ms"] > 300 or "error" in row]
    record = {"machine": machine("numpy", "scipy", "filet"), "quick": options.quick, "summary": summary, "hard": hard}
    write_json("grid", record)


if __name__ == "__main__":
    main()
