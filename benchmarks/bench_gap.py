"""How far apart the certified upper bound and the best explicit attack are, on the settings A-E.

    python benchmarks/bench_gap.py [--quick]

Prints a table and writes results/gap.json. `lower` is proven by `epsilon_lower_bound`, `upper` by `account`; the true
epsilon lies between them. `gap` is 1 - lower / upper. Times are of the processor, in milliseconds.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from common import machine, write_json

from filet.accounting.accountant import account
from filet.accounting.lower_bounds import epsilon_lower_bound
from filet.accounting.terms import Adjacency
from filet.scheme import Overflow
from settings import SETTINGS


def measure(name: str, overflow: Overflow, adjacency: Adjacency) -> dict[str, Any]:
    s = SETTINGS[name]
    scheme = s.scheme(overflow)
    start = time.process_time()
    upper = account(scheme, noise_multiplier=s.sigma, steps=s.steps, adjacency=adjacency).epsilon(s.delta)
    middle = time.process_time()
    lower = epsilon_lower_bound(scheme, noise_multiplier=s.sigma, steps=s.steps, adjacency=adjacency, delta=s.delta)
    end = time.process_time()
    return {
        "setting": name,
        "overflow": overflow.value,
        "adjacency": adjacency.value,
        "lower": lower,
        "upper": upper,
        "gap": 1 - lower / upper,
        "lower_ms": 1e3 * (end - middle),
        "upper_ms": 1e3 * (middle - start),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="setting A only")
    quick = parser.parse_args().quick
    measure("A", Overflow.TRUNCATE, Adjacency.ZERO_OUT)  # warm up
    rows = []
    print("| setting | overflow | adjacency | lower | upper | gap | lower, ms | upper, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in ["A"] if quick else SETTINGS:
        for overflow in Overflow:
            for adjacency in Adjacency:
                row = measure(name, overflow, adjacency)
                rows.append(row)
                # lower bounds round down, upper bounds up
                low, high = int(row["lower"] * 1e4) / 1e4, -int(-row["upper"] * 1e4 // 1) / 1e4
                print(f"| {name} | {overflow} | {adjacency} | {low:.4f} | {high:.4f} | {row['gap']:.1%}"
                      f" | {row['lower_ms']:.0f} | {row['upper_ms']:.0f} |", flush=True)  # fmt: skip
    write_json("gap", {"machine": machine("numpy", "scipy", "filet"), "quick": quick, "rows": rows})


if __name__ == "__main__":
    main()
