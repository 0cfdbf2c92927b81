"""filet against dp_accounting on the five settings, all adjacencies: time and epsilon of one fresh call, side by side.

    python benchmarks/bench_accountant.py [--quick]

Prints a table and writes results/accountant.json.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from typing import Any

import dp_accounting
from common import machine, timed, write_json

import filet
from settings import SETTINGS, Setting

RELATIONS = {
    "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "zero-out": dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    "replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
}
ROUNDS = 5  # of all in turn, as neighbours on the machine come and go; medians count
OURS = (("truncate", "refined"), ("truncate", "swap"), ("reject", "refined"), ("truncate", "note"))


def peer(s: Setting, adjacency: str) -> float:
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(s.n, s.p, s.cap, s.sigma)
    accountant = dp_accounting.pld.PLDAccountant(RELATIONS[adjacency])
    return float(accountant.compose(event, s.steps).get_epsilon(s.delta))


def ours(s: Setting, adjacency: str, overflow: str, analysis: str) -> filet.Bounds:
    curve = filet.account(
        s.scheme(overflow),
        noise_multiplier=s.sigma,
        steps=s.steps,
        adjacency=filet.Adjacency(adjacency),
        analysis=filet.Analysis(analysis),
    )
    return curve.epsilon_bounds(s.delta)


def compare(name: str, adjacency: str) -> dict[str, Any]:
    setting = SETTINGS[name]
    row: dict[str, Any] = {"setting": name, "adjacency": adjacency}
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        row["dp_accounting"], ms = timed(lambda: peer(setting, adjacency))
        times["dp_accounting_ms"].append(ms)
        for overflow, analysis in OURS:
            bounds, ms = timed(lambda o=overflow, a=analysis: ours(setting, adjacency, o, a), most=20)  # type: ignore[misc]
            key = f"{overflow} {analysis}"
            row |= {key: bounds.upper, f"{key} lower": bounds.lower}
            times[f"{key} ms"].append(ms)
    row |= {key: statistics.median(found) for key, found in times.items()}
    peer_ms = row["dp_accounting_ms"]
    return row | {"speed-up": peer_ms / row["truncate refined ms"], "swap speed-up": peer_ms / row["truncate swap ms"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="setting A only")
    quick = parser.parse_args().quick
    ours(SETTINGS["A"], "zero-out", "truncate", "refined")  # imports and first calls, of both
    peer(Setting(1000, 20, 40, 2.0, 10, 1e-3), "add-remove")
    rows = []
    print(
        f"{'':14s}{'dp_accounting':>24s}{'refined':>20s}{'swap':>20s}{'reject':>20s}{'the note':>20s}   speed-up, of swap"
    )
    for name in ["A"] if quick else SETTINGS:
        for adjacency in RELATIONS:
            row = compare(name, adjacency)
            rows.append(row)
            cells = [f"{row[f'{o} {a}']:10.5f} {row[f'{o} {a} ms']:6.1f} ms" for o, a in OURS]
            print(f"{name} {adjacency:12s}{row['dp_accounting']:12.5f} {row['dp_accounting_ms']:8.0f} ms"
                  + "".join(f"{c:>20s}" for c in cells) + f"   {row['speed-up']:.0f}x {row['swap speed-up']:.0f}x", flush=True)  # fmt: skip
    larger = [row for row in rows if row["truncate refined"] > row["dp_accounting"]]
    median = statistics.median(row["truncate refined ms"] for row in rows)
    print(f"smallest speed-up {min(row['speed-up'] for row in rows):.0f}x; median time {median:.1f} ms; "
          f"settings with a larger epsilon: {len(larger)}")  # fmt: skip
    record = {"machine": machine("numpy", "scipy", "dp-accounting", "filet"), "quick": quick, "rows": rows}
    write_json("accountant", record)


if __name__ == "__main__":
    main()
