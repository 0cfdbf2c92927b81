"""How far apart the certified upper bound and the best explicit attack are, on the settings A-E.

    python benchmarks/bench_gap.py

Prints a table and writes results/gap.json. `lower` is proven by `epsilon_lower_bound`, `upper` by `account`; the true
epsilon lies between them. `gap` is 1 - lower / upper. Times are of the processor, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from filet.accountant import account
from filet.attacks import epsilon_lower_bound
from filet.scheme import Adjacency, CappedPoisson, Overflow

# n, expected batch, cap, noise multiplier, steps, delta
SETTINGS = {
    "A": (60_000, 256, 300, 1.0, 14_000, 1e-5),
    "B": (50_000, 4096, 4200, 3.0, 2_500, 1e-5),
    "C": (1_281_167, 16_384, 16_600, 2.5, 18_000, 8e-7),
    "D": (45_000_000, 65_536, 66_000, 1.0, 3_500, 1e-8),
    "E": (60_000, 256, 256, 1.0, 14_000, 1e-5),
}


@dataclass(frozen=True)
class Gap:
    setting: str
    overflow: str
    adjacency: str
    lower: float
    upper: float
    gap: float
    lower_ms: float
    upper_ms: float


def measure(name: str, overflow: Overflow, adjacency: Adjacency) -> Gap:
    n, batch, cap, sigma, steps, delta = SETTINGS[name]
    scheme = CappedPoisson(n, batch / n, cap, overflow)
    start = time.process_time()
    upper = account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency).epsilon(delta)
    middle = time.process_time()
    lower = epsilon_lower_bound(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency, delta=delta)
    end = time.process_time()
    return Gap(
        name,
        overflow.value,
        adjacency.value,
        lower,
        upper,
        1 - lower / upper,
        1e3 * (end - middle),
        1e3 * (middle - start),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "gap.json")
    output = parser.parse_args().output
    measure("A", Overflow.TRUNCATE, Adjacency.ZERO_OUT)  # warm up
    results = []
    print("| setting | overflow | adjacency | lower | upper | gap | lower, ms | upper, ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in SETTINGS:
        for overflow in Overflow:
            for adjacency in Adjacency:
                one = measure(name, overflow, adjacency)
                results.append(one)
                # lower bounds round down, upper bounds up
                low, high = int(one.lower * 1e4) / 1e4, -int(-one.upper * 1e4 // 1) / 1e4
                print(f"| {name} | {overflow} | {adjacency} | {low:.4f} | {high:.4f} | {one.gap:.1%}"
                      f" | {one.lower_ms:.0f} | {one.upper_ms:.0f} |", flush=True)  # fmt: skip
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_suffix(".tmp")
    temporary.write_text(json.dumps([asdict(one) for one in results], indent=2) + "\n")
    temporary.replace(output)


if __name__ == "__main__":
    main()
