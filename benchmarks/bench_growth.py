"""How the cost of one epsilon grows: time and memory against steps, 1/delta, 1/p, n and the cap.

    python benchmarks/bench_growth.py [--quick]

Writes results/growth.json. Every point has a process of its own. `first_ms` is its first call after the imports, `ms`
the median of later fresh calls; memory is how far the resident set rose above what the imports had left. A slope is
that of the least-squares line through the logarithms: 0 is flat, 1 in proportion.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import machine, timed, write_json

from settings import DELTAS, SETTINGS, STEPS, Point

A = SETTINGS["A"]
BASE = Point("", A.n, A.p, A.cap, A.sigma, A.steps, A.delta)


def axes() -> dict[str, list[tuple[float, Point]]]:
    """For every axis, its values and the points; everything else is as in setting A unless said otherwise."""
    sizes = [10**k for k in range(3, 13)]
    rates = [0.5, 0.1, *(10.0**-k for k in range(2, 10))]
    caps = [200, 230, 256, 280, 300, 350, 500, 2_000, 10_000, 60_000]
    return {
        "steps": [(steps, BASE._replace(steps=steps)) for steps in STEPS],
        "1/delta": [(1 / delta, BASE._replace(delta=delta)) for delta in DELTAS],
        "1/p, n = 10^10": [(1 / p, BASE._replace(n=10**10, p=p, cap=cap_above(10**10, p))) for p in rates],
        "n, same p": [(n, BASE._replace(n=n, cap=cap_above(n, A.p))) for n in sizes],
        "B": [(cap, BASE._replace(cap=cap)) for cap in caps],
    }


def cap_above(n: int, p: float) -> int:
    return round(n * p + 2.75 * math.sqrt(n * p * (1 - p)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="every third point")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a point as JSON: measure it in this process
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(Point(**json.loads(options.one)))))
        return
    found = []
    for axis, values in axes().items():
        rows = [row for value, point in values[:: 3 if options.quick else 1] if (row := in_a_process(value, point))]
        slopes = {what: slope([r["value"] for r in rows], [r[what] for r in rows]) for what in ("ms", "peak_mb")}
        found.append({"axis": axis, "rows": rows, "slopes": slopes})
        print(f"{axis:16s} time x^{slopes['ms']:+.3f}, memory x^{slopes['peak_mb']:+.3f}", flush=True)
    write_json("growth", {"machine": machine("numpy", "scipy", "filet"), "quick": options.quick, "axes": found})


def in_a_process(value: float, point: Point) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__)), "--one", json.dumps(point._asdict())]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return {"value": value, **json.loads(ran.stdout)}


def measure(point: Point) -> dict[str, float]:
    import filet

    def call() -> float:
        curve = filet.account(point.scheme, noise_multiplier=point.sigma, steps=point.steps, adjacency="add-remove")
        return float(curve.epsilon(point.delta))

    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again
    before = high_water()
    start = time.thread_time()
    epsilon = call()
    first = 1e3 * (time.thread_time() - start)
    peak = high_water() - before
    return {"epsilon": epsilon, "first_ms": first, "peak_mb": peak, "ms": timed(call, seconds=1.0, most=15)[1]}


def high_water() -> float:
    """The largest resident set so far, in megabytes."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def slope(x: list[float], y: list[float]) -> float:
    logs = [(math.log(a), math.log(max(b, 1e-3))) for a, b in zip(x, y, strict=True)]
    mean_x, mean_y = (sum(v) / len(logs) for v in zip(*logs, strict=True))
    return float(sum((a - mean_x) * (b - mean_y) for a, b in logs) / sum((a - mean_x) ** 2 for a, _ in logs))


if __name__ == "__main__":
    main()
