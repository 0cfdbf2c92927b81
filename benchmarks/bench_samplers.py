"""Time and memory of one batch: filet against jax_privacy's and Opacus's samplers, in one run.

    python benchmarks/bench_samplers.py [--quick]

Prints a table and writes results/samplers.json. Expected batch and cap are both 4096. The samplers of one data set
size take turns, so that a busy machine is busy for all of them. `set-up` is everything up to and including the
first batch; `batch` is the median over turns of later ones; both are processor time, on one thread. Memory is the peak
that NumPy and Python allocate for set-up and three batches, traced in a pass of its own; PyTorch's allocations cannot
be traced, so Opacus has none.

Filet's batches are padded, masked and sorted, and any step can be drawn at once. The peers give bare indices, one
step after the other; "and padding" adds the padding and the mask (its cost does not depend on n, so it stops at 10^6).
Opacus knows neither a cap nor cycles. The peers stop at n = 10^8 (with cycles at 10^7): both hold or draw n numbers, and
at 10^9 jax_privacy would shuffle 8 GB of indices and Opacus draw 4 GB of random numbers for every batch.

A second table has filet's two streams, AES-256 (the default) and Philox (`secure=False`), at three batch sizes, in turns too.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
from common import machine, write_json

from filet.scheme import CappedPoisson, Overflow

CAP = 4096
CYCLE = 8
SIZES = (10**4, 10**5, 10**6, 10**7, 10**8, 10**9, 10**12)
MOST_FOR_PEERS = {1: 10**8, CYCLE: 10**7}  # by cycle length
MOST_FOR_PADDING = 10**6
STREAM_SIZES = (10**6, 10**8)
STREAM_BATCHES = (64, 4096, 65536)

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


def filet_maker(overflow: Overflow = Overflow.TRUNCATE, *, secure: bool = True) -> Maker:
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


def makers(n: int, cycle: int) -> dict[str, Maker]:
    chosen: dict[str, Maker] = {
        "filet": filet_maker(),
        "filet, reject": filet_maker(Overflow.REJECT),
        "filet, Philox": filet_maker(secure=False),
    }
    if n <= MOST_FOR_PEERS[cycle]:
        chosen["jax_privacy"] = jax_privacy_batches
        if n <= MOST_FOR_PADDING:
            chosen["jax_privacy and padding"] = padded_jax_privacy_batches
        if cycle == 1:
            chosen["Opacus"] = opacus_batches
    return chosen


def measure(chosen: dict[str, Maker], n: int, cycle: int, seconds: float) -> list[Result]:
    setups, runs = {}, {}
    for name, make in chosen.items():
        next(make(100 * CAP, 1))  # imports and first calls are not part of the set-up
        start = time.thread_time()
        runs[name] = make(n, cycle)
        next(runs[name])
        setups[name] = time.thread_time() - start
    # As many batches a turn as fit in a 20th of the time; one at least.
    counts = {name: max(1, int(seconds / 20 / drawn(run, 2))) for name, run in runs.items()}
    turns: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(20):
        for name, run in runs.items():
            if len(turns[name]) < 4 or counts[name] > 1:
                turns[name].append(drawn(run, counts[name]))
    runs.clear()
    results = []
    for name, make in chosen.items():
        peak = None if name == "Opacus" else traced_peak(make, n, cycle)
        batch, total = statistics.median(turns[name]), len(turns[name]) * counts[name]
        results.append(Result(name, n, cycle, setups[name] * 1e3, batch * 1e3, peak, total))
    return results


def drawn(run: Iterator[Any], count: int) -> float:
    """Seconds for each of the next `count` batches."""
    start = time.thread_time()
    for _ in range(count):
        next(run)
    return (time.thread_time() - start) / count


def stream_rows(seconds: float) -> list[dict[str, Any]]:
    """Milliseconds of a batch for both streams: the median over 20 turns that they take."""
    rows = []
    for n in STREAM_SIZES:
        for batch in STREAM_BATCHES:
            scheme = CappedPoisson(n, batch / n, batch)
            runs = {
                name: iter(scheme.sampler(1, secure=name == "AES-256").batches(10**9)) for name in ("AES-256", "Philox")
            }
            counts = {name: max(1, int(seconds / 20 / drawn(run, 3))) for name, run in runs.items()}
            turns: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(20):
                for name, run in runs.items():
                    turns[name].append(drawn(run, counts[name]))
            times = {name: statistics.median(values) * 1e3 for name, values in turns.items()}
            rows.append({"dataset_size": n, "max_batch_size": batch, "batch_ms": times})
            print(f"{n:8.0e} {batch:8} {times['AES-256']:12.4f} {times['Philox']:12.4f}", flush=True)
    return rows


def traced_peak(make: Maker, n: int, cycle: int) -> float:
    tracemalloc.start()
    batches = make(n, cycle)
    for _ in range(3):
        next(batches)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each row's batches (default: 1)")
    parser.add_argument("--quick", action="store_true", help="up to n = 10^6 and 10^12, 0.2 seconds for a row")
    options = parser.parse_args()
    sizes = [n for n in SIZES if n <= 10**6 or n == 10**12] if options.quick else SIZES
    seconds = 0.2 if options.quick else options.seconds
    results: list[Result] = []
    print(f"{'sampler':24} {'n':>8} {'cycle':>5} {'set-up ms':>10} {'batch ms':>9} {'peak MB':>8}")
    for cycle in (1, CYCLE):
        for n in sizes:
            if n // cycle < 2 * CAP:  # a group must be larger than a batch
                continue
            for row in measure(makers(n, cycle), n, cycle, seconds):
                results.append(row)
                peak = "-" if row.peak_mb is None else f"{row.peak_mb:.2f}"
                line = f"{row.sampler:24} {n:8.0e} {cycle:5} {row.setup_ms:10.2f} {row.batch_ms:9.3f} {peak:>8}"
                print(line, flush=True)
    print(f"\n{'n':>8} {'batch':>8} {'AES-256 ms':>12} {'Philox ms':>12}")
    streams = stream_rows(seconds)
    simd = dict(np.show_config(mode="dicts") or {}).get("SIMD Extensions")
    about = machine("numpy", "torch", "opacus", "jax-privacy", "cryptography", "filet") | {"simd": simd}
    limits = {"max_batch_size": CAP, "most_for_peers": MOST_FOR_PEERS}
    rows = [asdict(row) for row in results]
    write_json("samplers", {"machine": about, "quick": options.quick, **limits, "rows": rows, "streams": streams})


if __name__ == "__main__":
    main()
