"""filet against dp_accounting on the five settings: time and epsilon of one fresh call, side by side in one run.

python benchmarks/bench_accountant.py          prints a table, writes benchmarks/results/accountant.json
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import numpy
import scipy

import filet

SETTINGS = {
    "A": (60_000, 256, 300, 1.0, 14_000, 1e-5),
    "B": (50_000, 4096, 4200, 3.0, 2_500, 1e-5),
    "C": (1_281_167, 16_384, 16_600, 2.5, 18_000, 8e-7),
    "D": (45_000_000, 65_536, 66_000, 1.0, 3_500, 1e-8),
    "E": (60_000, 256, 256, 1.0, 14_000, 1e-5),
}
RELATIONS = {
    "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "zero-out": dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    "replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
}


def timed(function: Callable[[], Any], repeat: int) -> tuple[Any, float]:
    """The result and the median time in milliseconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = function()
        times.append(1e3 * (time.perf_counter() - start))
    return result, statistics.median(times)


def peer(name: str, adjacency: str) -> float:
    n, batch, cap, sigma, steps, delta = SETTINGS[name]
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(n, batch / n, cap, sigma)
    accountant = dp_accounting.pld.PLDAccountant(RELATIONS[adjacency])
    return float(accountant.compose(event, steps).get_epsilon(delta))


def ours(name: str, adjacency: str, overflow: str, analysis: str) -> filet.Bounds:
    n, batch, cap, sigma, steps, delta = SETTINGS[name]
    scheme = filet.CappedPoisson(n, batch / n, cap, filet.Overflow(overflow))
    curve = filet.account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency, analysis=analysis)
    return curve.epsilon_bounds(delta)


def main() -> None:
    rows = []
    ours("A", "zero-out", "truncate", "refined")  # imports and caches
    print(f"{'':14s}{'dp_accounting':>24s}{'refined':>20s}{'reject':>20s}{'the note':>20s}   speed-up")
    for name in SETTINGS:
        for adjacency in RELATIONS:
            epsilon, peer_ms = timed(lambda name=name, adjacency=adjacency: peer(name, adjacency), 1)  # type: ignore[misc]
            row: dict[str, Any] = {
                "setting": name,
                "adjacency": adjacency,
                "dp_accounting": epsilon,
                "dp_accounting_ms": peer_ms,
            }
            cells = []
            for overflow, analysis in (("truncate", "refined"), ("reject", "refined"), ("truncate", "note")):
                bounds, ms = timed(lambda o=overflow, a=analysis, n=name, d=adjacency: ours(n, d, o, a), 9)  # type: ignore[misc]
                key = f"{overflow} {analysis}"
                row |= {key: bounds.upper, f"{key} lower": bounds.lower, f"{key} ms": ms}
                cells.append(f"{bounds.upper:10.5f} {ms:6.1f} ms")
            row["speed-up"] = peer_ms / row["truncate refined ms"]
            rows.append(row)
            print(f"{name} {adjacency:12s}{epsilon:12.5f} {peer_ms:8.0f} ms" + "".join(f"{c:>20s}" for c in cells)
                  + f"   {row['speed-up']:.0f}x", flush=True)  # fmt: skip
    worst = min(row["speed-up"] for row in rows)
    median = statistics.median(row["truncate refined ms"] for row in rows)
    larger = [row for row in rows if row["truncate refined"] > row["dp_accounting"]]
    print(f"smallest speed-up {worst:.0f}x; median time {median:.1f} ms; settings with a larger epsilon: {len(larger)}")
    versions = {"python": platform.python_version(), "numpy": numpy.__version__, "scipy": scipy.__version__}
    target = Path(__file__).parent / "results" / "accountant.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
