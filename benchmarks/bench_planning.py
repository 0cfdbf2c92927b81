"""What planning gains: the effective noise of `plan.best` against the union strategy's and the note's best.

    python benchmarks/bench_planning.py [--quick]

Prints tables and writes results/planning.json. All options of a row meet the same (epsilon, delta) with the same steps
and the same hardware batch; a ratio of 1.10 means 10 % more noise on the mean gradient than `plan.best` has. Also: the
utilization that each analysis affords at a fixed noise, and the time of calibrations and of a full plan.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from common import machine, write_json

from filet.accounting.terms import Adjacency, Analysis
from filet.planning.calibration import calibrate_noise_multiplier, calibrate_sampling_probability, calibrate_steps
from filet.planning.planner import plan
from filet.planning.target import _spent
from filet.scheme import CappedPoisson, Overflow
from settings import SETTINGS, TARGET_EPSILON

BATCHES = (64, 256, 1024, 4096, 16384)
BUDGETS = ((3.0, 5_000), (0.5, 5_000))
DATASET_SIZE, DELTA = 1_000_000, 1e-6
TURNS = 5
OTHERS = ("union", "note", "truncate", "microbatches", "fixed-size")


def gains(epsilon: float, steps: int, batches: tuple[int, ...]) -> list[dict[str, Any]]:
    rows = []
    for adjacency in Adjacency:
        for batch in batches:
            start, busy = time.perf_counter(), time.process_time()
            found = plan(dataset_size=DATASET_SIZE, max_batch_size=batch, steps=steps, epsilon=epsilon, delta=DELTA,
                         adjacency=adjacency)  # fmt: skip
            seconds, busy = time.perf_counter() - start, time.process_time() - busy
            best = found.best
            found = plan(dataset_size=DATASET_SIZE, max_batch_size=batch, steps=steps, epsilon=epsilon, delta=DELTA,
                         adjacency=adjacency, comparisons=True)  # fmt: skip
            row: dict[str, Any] = {
                "adjacency": adjacency.value,
                "max_batch_size": batch,
                "best": best.name,
                "utilization": best.utilization,
                "noise_multiplier": best.noise_multiplier,
                "effective_noise": best.effective_noise,
                "ratio_to_ideal": best.ratio_to_ideal,
                "seconds": seconds,
                "processor_seconds": busy,
            }
            for name in OTHERS:
                row[f"{name}_over_best"] = found.option(name).run_noise / best.run_noise
            rows.append(row)
            ratios = "  ".join(f"{row[f'{name}_over_best']:>12.3f}" for name in OTHERS)
            print(f"{adjacency.value:<12} {batch:>6}  {best.name:<9} {100 * best.utilization:>6.1f} %"
                  f" {best.ratio_to_ideal:>8.3f}  {ratios}  {seconds:>6.1f} s ({busy:.1f} s busy)", flush=True)  # fmt: skip
    return rows


def affordable() -> dict[str, float]:
    """Utilization at noise 1, 14,000 steps, epsilon 3, delta 1e-5, add-remove, 60,000 examples, batches of 256."""
    result = {}
    for name, overflow, analysis in (
        ("union", Overflow.TRUNCATE, Analysis.UNION),
        ("note", Overflow.TRUNCATE, Analysis.NOTE),
        ("refined", Overflow.TRUNCATE, Analysis.REFINED),
        ("reject", Overflow.REJECT, Analysis.REFINED),
    ):
        p = calibrate_sampling_probability(
            CappedPoisson(60_000, 256 / 60_000, 256, overflow), noise_multiplier=1.0, steps=14_000, epsilon=3.0,
            delta=1e-5, adjacency="add-remove", analysis=analysis)  # fmt: skip
        result[name] = CappedPoisson(60_000, p, 256, overflow).utilization
        print(f"utilization, {name:<8} {100 * result[name]:.1f} %", flush=True)
    return result


def calibrations() -> dict[str, dict[str, dict[str, float]]]:
    """Slowest calibration of each unknown over adjacencies and policies, medians of `TURNS`: clock and processor, in seconds."""
    result: dict[str, dict[str, dict[str, float]]] = {}
    for name, s in SETTINGS.items():
        noise, steps = {"noise_multiplier": s.sigma}, {"steps": s.steps}
        for unknown, calibrate, known in (
            ("noise", calibrate_noise_multiplier, steps),
            ("steps", calibrate_steps, noise),
            ("probability", calibrate_sampling_probability, noise | steps),
        ):
            times = [
                median_seconds(calibrate, s.scheme(overflow), epsilon=TARGET_EPSILON[name], delta=s.delta,
                               adjacency=adjacency, **known)
                for adjacency in Adjacency
                for overflow in Overflow
            ]  # fmt: skip
            clock, busy = (max(one) for one in zip(*times, strict=True))
            result.setdefault(unknown, {})[name] = {"seconds": clock, "processor_seconds": busy}
            print(
                f"calibration, {name}, {unknown}: at most {1e3 * clock:.0f} ms ({1e3 * busy:.0f} ms busy)", flush=True
            )
    return result


def median_seconds(calibrate: Callable[..., float], *args: Any, **words: Any) -> tuple[float, float]:
    """Of the clock and of the processor; nothing that is certified is remembered from one turn to the next."""
    times, busy = [], []
    for _ in range(TURNS):
        _spent.cache_clear()
        start, begin = time.perf_counter(), time.process_time()
        calibrate(*args, **words)
        times.append(time.perf_counter() - start)
        busy.append(time.process_time() - begin)
    return statistics.median(times), statistics.median(busy)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one budget and one batch size")
    quick = parser.parse_args().quick
    result: dict[str, Any] = {
        "machine": machine("numpy", "scipy", "filet"),
        "quick": quick,
        "dataset_size": DATASET_SIZE,
        "delta": DELTA,
        "affordable_utilization": affordable(),
        "calibration_seconds": calibrations(),
        "gains": [],
    }
    for epsilon, steps in BUDGETS[:1] if quick else BUDGETS:
        print(f"\nepsilon {epsilon}, {steps} steps: noise over that of plan.best")
        print(f"{'adjacency':<12} {'batch':>6}  {'best':<9} {'used':>8} {'x ideal':>8}  "
              + "  ".join(f"{name:>12}" for name in OTHERS))  # fmt: skip
        result["gains"].append(
            {"epsilon": epsilon, "steps": steps, "rows": gains(epsilon, steps, BATCHES[1:2] if quick else BATCHES)}
        )
    write_json("planning", result)


if __name__ == "__main__":
    main()
