"""Time and memory of one batch: filet against jax_privacy's and Opacus's samplers, in one run.

    pip install 'opacus==1.6.*' 'jax-privacy==2.0.*'
    python benchmarks/bench_samplers.py

Prints a table and writes results/samplers.json. Expected batch and cap are both 4096. The samplers of one data set
size take turns, so that a busy machine is busy for all of them. `set-up` is everything up to and including the
first batch; `batch` is the median over turns of later ones. Memory is the peak that NumPy and Python allocate for
set-up and three batches, traced in a pass of its own; PyTorch's allocations cannot be traced, so Opacus has none.

Filet's batches are padded, masked and sorted, and any step can be drawn at once. The peers give bare indices, one
step after the other; "and padding" adds the padding and the mask. Opacus knows neither a cap nor cycles.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from filet.scheme import CappedPoisson, Overflow

CAP = 4096
CYCLE = 8
SIZES = (10**6, 10**8, 10**10, 10**12)

Maker = Callable[[int, int], Iterator[Any]]


@dataclass(frozen=True)
class Result:
    sampler: str
    dataset_size: int
    cycle_length: int
    setup_ms: float
    batch_ms: float
    peak_mb: float | None
    batches: int


def filet_maker(overflow: Overflow = Overflow.TRUNCATE, *, secure: bool = False) -> Maker:
    def make(n: int, cycle: int) -> Iterator[Any]:
        scheme = CappedPoisson(n, CAP / (n // cycle), CAP, overflow, cycle_length=cycle)
        return iter(scheme.sampler(1, secure=secure).batches(10**9))

    return make


def jax_privacy_batches(n: int, cycle: int) -> Iterator[Any]:
    strategy = import_module("jax_privacy.batch_selection").CyclicPoissonSampling(
        sampling_prob=CAP / (n // cycle), iterations=10**9, truncated_batch_size=CAP, cycle_length=cycle
    )
    return iter(strategy.batch_iterator(n, rng=1))


def padded_jax_privacy_batches(n: int, cycle: int) -> Iterator[Any]:
    """With the fixed shape that filet gives: padded by jax_privacy's own function, and a mask."""
    pad = import_module("jax_privacy.batch_selection").pad_to_multiple_of
    for indices in jax_privacy_batches(n, cycle):
        padded = pad(indices, CAP)
        yield padded, padded >= 0


def opacus_batches(n: int, cycle: int) -> Iterator[Any]:
    torch = import_module("torch")
    torch.set_num_threads(1)
    sampler = import_module("opacus.utils.uniform_sampler").UniformWithReplacementSampler(
        num_samples=n, sample_rate=CAP / n, generator=torch.Generator().manual_seed(1), steps=10**9
    )
    return iter(sampler)


def makers(n: int, cycle: int, max_peer_size: int) -> dict[str, Maker]:
    chosen: dict[str, Maker] = {"filet": filet_maker(), "filet, reject": filet_maker(Overflow.REJECT)}
    if installed("cryptography"):
        chosen["filet, secure"] = filet_maker(secure=True)
    if n <= max_peer_size and installed("jax-privacy"):
        chosen["jax_privacy"] = jax_privacy_batches
        chosen["  and padding"] = padded_jax_privacy_batches
    if n <= max_peer_size and cycle == 1 and installed("opacus"):
        chosen["Opacus"] = opacus_batches
    return chosen


def measure(chosen: dict[str, Maker], n: int, cycle: int, seconds: float) -> list[Result]:
    setups, runs = {}, {}
    for name, make in chosen.items():
        next(make(100 * CAP, 1))  # imports and first calls are not part of the set-up
        start = time.perf_counter()
        runs[name] = make(n, cycle)
        next(runs[name])
        setups[name] = time.perf_counter() - start
    # As many batches a turn as fit in a 20th of the time; one at least.
    counts = {name: max(1, int(seconds / 20 / timed(run, 2))) for name, run in runs.items()}
    turns: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(20):
        for name, run in runs.items():
            if len(turns[name]) < 4 or counts[name] > 1:
                turns[name].append(timed(run, counts[name]))
    runs.clear()
    results = []
    for name, make in chosen.items():
        peak = None if name == "Opacus" else traced_peak(make, n, cycle)
        batch, total = statistics.median(turns[name]), len(turns[name]) * counts[name]
        results.append(Result(name, n, cycle, setups[name] * 1e3, batch * 1e3, peak, total))
    return results


def timed(run: Iterator[Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        next(run)
    return (time.perf_counter() - start) / count


def traced_peak(make: Maker, n: int, cycle: int) -> float:
    tracemalloc.start()
    batches = make(n, cycle)
    for _ in range(3):
        next(batches)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def about() -> dict[str, Any]:
    packages = {name: installed(name) for name in ("numpy", "torch", "opacus", "jax-privacy", "cryptography")}
    simd = dict(np.show_config(mode="dicts") or {}).get("SIMD Extensions")
    machine = {"python": platform.python_version(), "machine": platform.machine(), "simd": simd}
    return {"max_batch_size": CAP, **machine, **packages}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row's batches (default: 1)")
    parser.add_argument("--max-peer-size", type=float, default=1e8, help="largest data set for the peers")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "samplers.json")
    options = parser.parse_args()
    results: list[Result] = []
    print(f"{'sampler':14} {'n':>8} {'cycle':>5} {'set-up ms':>10} {'batch ms':>9} {'peak MB':>8}")
    for cycle in (1, CYCLE):
        for n in SIZES:
            for row in measure(makers(n, cycle, int(options.max_peer_size)), n, cycle, options.seconds):
                results.append(row)
                peak = "-" if row.peak_mb is None else f"{row.peak_mb:.2f}"
                line = f"{row.sampler:14} {n:8.0e} {cycle:5} {row.setup_ms:10.2f} {row.batch_ms:9.3f} {peak:>8}"
                print(line, flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    record = {"about": about(), "results": [asdict(row) for row in results]}
    options.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
