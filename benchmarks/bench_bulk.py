"""Many questions to one run: curves of 1 to 1,000 points, against one point and against dp_accounting, and their memory.

    python benchmarks/bench_bulk.py [--quick]

Writes results/bulk.json. Every time includes everything from the scheme to the answers, of a fresh curve. dp_accounting
composes once and then reads its points: deltas all at once, by the array form of its loss distribution, and epsilons one
by one, the only way it has; of those ten are timed, and their time is multiplied. Memory is the peak of what Python and
NumPy allocated during a call, by tracemalloc, in calls of their own.
"""

from __future__ import annotations

import argparse
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import dp_accounting
import numpy as np
from common import machine, timed, write_json

import filet
from filet.planning import target
from settings import SETTINGS, TARGET_EPSILON, Setting

SIZES = (1, 10, 100, 1000)
LOWEST, HIGHEST = 1e-12, 1e-2  # deltas of a curve
KINDS = (("truncate", "refined"), ("reject", "refined"), ("truncate", "swap"))
TIMED_EPSILONS = 10  # of dp_accounting
ADJACENCY = "add-remove"


def curve(s: Setting, overflow: str, analysis: str) -> filet.PrivacyCurve:
    given = {"noise_multiplier": s.sigma, "steps": s.steps}
    return filet.account(s.scheme(overflow), **given, adjacency=ADJACENCY, analysis=filet.Analysis(analysis))  # type: ignore[arg-type]


def questions(s: Setting, size: int, top: float) -> tuple[Any, Any, Any]:
    """Deltas, epsilons and false positive rates of a curve; one point is the setting's own."""
    if size == 1:
        return s.delta, 0.5 * top, 0.01
    return np.geomspace(LOWEST, HIGHEST, size), np.linspace(0.0, top, size), np.geomspace(1e-6, 1.0, size)


def ours(name: str, overflow: str, analysis: str) -> dict[str, Any]:
    s = SETTINGS[name]
    row: dict[str, Any] = {"setting": name, "policy": overflow, "analysis": analysis}
    top = curve(s, overflow, analysis).epsilon(LOWEST)
    for size in SIZES:
        asked = dict(zip(("epsilon", "delta", "power"), questions(s, size, top), strict=True))
        for kind, values in asked.items():
            method = {"epsilon": "epsilon_bounds", "delta": "delta_bounds", "power": "true_positive_rate"}[kind]
            ask = partial(answer, s, overflow, analysis, method, values)
            found, row[f"{kind} {size} ms"] = timed(ask, seconds=1.0)
            if kind != "power" and size == SIZES[-1]:
                least = np.maximum(found.upper, 0.1 if kind == "epsilon" else 0.0)
                row[f"{kind} widest"] = float(np.max((found.upper - found.lower) / least))
    for kind in ("epsilon", "delta", "power"):
        row[f"{kind} ratio"] = row[f"{kind} {SIZES[-1]} ms"] / row[f"{kind} 1 ms"]
    return row


def answer(s: Setting, overflow: str, analysis: str, method: str, values: Any) -> Any:
    return getattr(curve(s, overflow, analysis), method)(values)


def peer(name: str, top: float) -> dict[str, float]:
    """Milliseconds of dp_accounting's curves of 1,000 points."""
    s = SETTINGS[name]
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(s.n, s.p, s.cap, s.sigma)

    def composed() -> Any:
        return dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(
            event, s.steps
        )

    accountant, compose_ms = timed(composed)
    some = np.geomspace(LOWEST, HIGHEST, TIMED_EPSILONS)
    _, ten = timed(lambda: [accountant.get_epsilon(float(delta)) for delta in some], most=1)
    grid = np.linspace(0.0, top, SIZES[-1])
    _, array = timed(lambda: accountant._pld.get_delta_for_epsilon(grid), most=1)
    return {
        "dp_accounting compose ms": compose_ms,
        "dp_accounting epsilon ms": compose_ms + ten * SIZES[-1] / TIMED_EPSILONS,
        "dp_accounting delta ms": compose_ms + array,
    }


def peak(function: Callable[[], Any]) -> float:
    """The largest number of megabytes that a call held at once."""
    function()
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def memory(name: str) -> dict[str, Any]:
    s = SETTINGS[name]
    deltas, epsilons, _ = questions(s, SIZES[-1], curve(s, *KINDS[0]).epsilon(LOWEST))
    plan: dict[str, Any] = {"dataset_size": s.n, "max_batch_size": s.cap, "steps": s.steps, "delta": s.delta,
                            "epsilon": TARGET_EPSILON[name], "adjacency": ADJACENCY}  # fmt: skip
    return {
        "setting": name,
        "epsilon MB": peak(lambda: curve(s, *KINDS[0]).epsilon(s.delta)),
        "1000 epsilons MB": peak(lambda: curve(s, *KINDS[0]).epsilon(deltas)),
        "1000 deltas MB": peak(lambda: curve(s, *KINDS[0]).delta(epsilons)),
        "plan MB": peak(lambda: fresh_plan(**plan)),
    }


def fresh_plan(**options: Any) -> filet.Plan:
    """A plan that keeps nothing of the one before."""
    target._spent.cache_clear()
    return filet.plan(**options)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="setting A only")
    quick = parser.parse_args().quick
    names = ["A"] if quick else list(SETTINGS)
    rows, held = [], []
    for name in names:
        theirs = peer(name, curve(SETTINGS[name], *KINDS[0]).epsilon(LOWEST))
        for overflow, analysis in KINDS:
            row = ours(name, overflow, analysis) | theirs
            for kind in ("epsilon", "delta"):
                row[f"{kind} speed-up"] = row[f"dp_accounting {kind} ms"] / row[f"{kind} {SIZES[-1]} ms"]
            rows.append(row)
            print(f"{name} {overflow} {analysis}: " + "; ".join(
                f"{kind} {row[f'{kind} 1 ms']:.1f} -> {row[f'{kind} {SIZES[-1]} ms']:.1f} ms ({row[f'{kind} ratio']:.1f}x)"
                for kind in ("epsilon", "delta", "power"))
                + f"; dp_accounting {row['epsilon speed-up']:.0f}x, {row['delta speed-up']:.0f}x", flush=True)  # fmt: skip
        held.append(memory(name))
        print(
            f"{name} peak MB: " + ", ".join(f"{k} {v:.1f}" for k, v in held[-1].items() if k != "setting"), flush=True
        )
    record = {
        "machine": machine("numpy", "scipy", "dp-accounting", "filet"),
        "quick": quick,
        "rows": rows,
        "memory": held,
    }
    write_json("bulk", record)


if __name__ == "__main__":
    main()
