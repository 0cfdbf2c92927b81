"""Batches a second of PyTorch loaders, and training steps a second: filet, a plain DataLoader, Opacus; in one run.

    python benchmarks/bench_loaders.py [--quick] [--only KIND] [--batch B ...] [--workers W ...]

Prints tables and stores every point in results/loaders.json, in the place of the one measured before. Every loader gives the same number B of examples a batch: the plain
one always, Opacus's and filet's on average, and filet pads to a cap (300 rows for B = 256). The loaders take turns,
with `gc.collect()` before each turn, and a ratio is the median over the turns of one round's quotient. Two ratios: by
the clock, and by the processor time of the main process and the workers over the same batches. On a busy machine the
second is the one to read. Peak memory is what the main process holds above what it held before. Training steps have no
workers, and are by processor time alone.

Data sets: `tensors` is a TensorDataset; `dictionaries` gives three tensors a row; `memory map` copies a row of a file;
`decode` computes for 1 ms a row.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, machine, write_json
from torch.utils import data as torch_data

import filet
from filet.integrations.torch import loader

COLUMNS = 16
KEY = bytes(range(32))
SIZES = (60_000, 10**7)
BATCHES = (64, 256, 4096)
WORKERS = (0, 2, 4)
NAMES = ("filet", "plain", "Opacus")
ROUNDS = 5
STEPS = ("hooks", "ghost")


class Dictionaries(torch_data.Dataset[Any]):
    """Rows of three tensors, as tokenised text has them."""

    def __init__(self, n: int) -> None:
        self.x, self.seen, self.label = torch.rand(n, COLUMNS), torch.ones(n, COLUMNS), torch.arange(n)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[place], "seen": self.seen[place], "label": self.label[place]}


class MemoryMap(torch_data.Dataset[Any]):
    """Rows of a file, which every process maps for itself."""

    def __init__(self, n: int, path: Path) -> None:
        self.n = n
        self.path = path
        np.lib.format.open_memmap(path, "w+", np.float32, (n, COLUMNS))[:] = 1.0
        self.rows: Any = None

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        if self.rows is None:
            self.rows = np.load(self.path, mmap_mode="r")
        return torch.from_numpy(self.rows[place].copy()), place


class Decoded(Dictionaries):
    """A millisecond of work for every row."""

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        end = time.thread_time() + 1e-3
        while time.thread_time() < end:
            pass
        return super().__getitem__(place)


def data_set(kind: str, n: int, folder: Path) -> Any:
    if kind == "tensors":
        return torch_data.TensorDataset(torch.rand(n, COLUMNS), torch.arange(n))
    if kind == "memory map":
        return MemoryMap(n, folder / "rows.npy")
    return Dictionaries(n) if kind == "dictionaries" else Decoded(n)


def scheme_for(n: int, batch: int) -> filet.CappedPoisson:
    """Expected batch size B, and a cap that one batch in 200 or so meets."""
    return filet.CappedPoisson(n, batch / n, batch + round(2.75 * math.sqrt(batch)))


def plain_loader(data: Any, batch: int, count: int, options: Any) -> Any:
    order: Any = torch_data.RandomSampler(data, num_samples=batch * count)
    return torch_data.DataLoader(data, batch, sampler=order, **options)


def opacus_loader(data: Any, batch: int, count: int, options: Any) -> Any:
    """What DPDataLoader makes, for a given number of batches."""
    draws = import_module("opacus.utils.uniform_sampler").UniformWithReplacementSampler(
        num_samples=len(data), sample_rate=batch / len(data), generator=None, steps=count
    )
    wrap = import_module("opacus.data_loader").wrap_collate_with_empty
    collate = wrap(collate_fn=torch_data.default_collate)
    return torch_data.DataLoader(data, batch_sampler=draws, collate_fn=collate, **options)


def filet_loader(data: Any, batch: int, count: int, options: Any) -> Any:
    return loader(data, scheme_for(len(data), batch), count, KEY, **options)


LOADERS: dict[str, Callable[..., Any]] = {"filet": filet_loader, "plain": plain_loader, "Opacus": opacus_loader}


def one_turn(name: str, data: Any, batch: int, workers: int, count: int) -> dict[str, float]:
    """Batches a second behind a few that come first, and what they took of all processes."""
    warm = 2 * workers + 3
    gc.collect()
    held = reset_peak()
    batches = iter(LOADERS[name](data, batch, warm + count, {"num_workers": workers}))
    for _ in range(warm):
        next(batches)
    before, start = processor_seconds(), time.perf_counter()
    for _ in range(count):
        next(batches)
    seconds, used = time.perf_counter() - start, processor_seconds() - before
    assert next(batches, None) is None, name
    return {"rate": count / seconds, "processor_ms": 1e3 * used / count, "peak_mb": peak() - held}


def processor_seconds() -> float:
    """Seconds that this process and its workers have had of the processors; those of workers as Linux counts them."""
    stats = [Path(f"/proc/{child.pid}/schedstat") for child in multiprocessing.active_children()]
    return time.process_time() + sum(int(one.read_text().split()[0]) for one in stats) / 1e9


def reset_peak() -> float:
    """Forget the peak of resident memory; what is held now, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))


def measured(names: tuple[str, ...], turn: Callable[[str], dict[str, float]], rounds: int) -> dict[str, Any]:
    """Medians over rounds in which all take turns, and filet's rate over each other's."""
    turns = [{name: turn(name) for name in rotated(names, number)} for number in range(rounds)]
    found: dict[str, Any] = {
        name: {key: statistics.median(one[name][key] for one in turns) for key in turns[0][name]} for name in names
    }
    for name in names[1:]:
        found[name]["ratio"] = statistics.median(one["filet"]["rate"] / one[name]["rate"] for one in turns)
        if "processor_ms" in found[name]:
            quotients = [one[name]["processor_ms"] / one["filet"]["processor_ms"] for one in turns]
            found[name]["processor_ratio"] = statistics.median(quotients)
    return found


def rotated(names: tuple[str, ...], by: int) -> tuple[str, ...]:
    by %= len(names)
    return names[by:] + names[:by]


def points(quick: bool) -> Iterator[tuple[str, int, int, int]]:
    """Kind of data, examples, batch size and workers; a large data set and slow rows at fewer points."""
    if quick:
        yield from itertools.product(("tensors", "dictionaries"), SIZES[:1], (256,), (0, 2))
        return
    yield from itertools.product(("tensors", "dictionaries", "memory map"), SIZES[:1], BATCHES, WORKERS)
    yield from itertools.product(("tensors",), SIZES[1:], BATCHES, (0,))  # Opacus draws n numbers a batch
    yield from itertools.product(("decode",), SIZES[:1], (64,), (0, 2))


def loader_rows(options: argparse.Namespace) -> None:
    chosen = [point for point in points(options.quick) if wanted(point, options)]
    with tempfile.TemporaryDirectory() as folder:
        for (kind, n), some in itertools.groupby(chosen, key=lambda point: point[:2]):
            data = data_set(kind, n, Path(folder))
            for _, _, batch, workers in some:
                store("rows", loader_row(kind, data, batch, workers, options.quick), options)


def wanted(point: tuple[str, int, int, int], options: argparse.Namespace) -> bool:
    kind, _, batch, workers = point
    return (
        options.only in (None, kind)
        and (options.batch is None or batch in options.batch)
        and (options.workers is None or workers in options.workers)
    )


def loader_row(kind: str, data: Any, batch: int, workers: int, quick: bool) -> dict[str, Any]:
    count = 20 if quick else max(50, 16_384 // batch)  # a process of workers takes a tenth of a second to start
    found = measured(NAMES, lambda name: one_turn(name, data, batch, workers, count), 1 if quick else ROUNDS)
    row = {"data": kind, "n": len(data), "batch": batch, "workers": workers, **found}
    print(line_of(row), flush=True)
    return row


def line_of(row: dict[str, Any]) -> str:
    rates = "  ".join(f"{name} {row[name]['rate']:9.1f}" for name in NAMES if name in row)
    keys = ("ratio", "processor_ratio")
    ratios = "  ".join(f"{row[name][key]:6.2f}" for key in keys for name in NAMES[1:] if key in row.get(name, ()))
    head = " ".join(f"{value:>12}" for value in list(row.values())[:4] if not isinstance(value, dict))
    return f"{head}  {rates}  ratios {ratios}"


# --- training steps ----------------------------------------------------------------------------------------------


def training(name: str, mode: str, batch: int, count: int, parts: int) -> dict[str, float]:
    """Steps a second of a small model under DP-SGD, loader included."""
    n = 60_000
    torch.manual_seed(0)
    data = torch_data.TensorDataset(torch.rand(n, 64), torch.randint(10, (n,)))
    layers = torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.nn.CrossEntropyLoss()
    gc.collect()
    make = filet_steps if name == "filet" else opacus_steps
    steps = make(model, optimizer, loss, data, mode, batch, count + 3, parts)
    for _ in range(3):
        next(steps)
    start = time.process_time()  # one thread and no workers: what others do beside it does not count
    done = sum(1 for _ in steps)
    return {"rate": done / (time.process_time() - start)}


def filet_steps(
    model: Any, optimizer: Any, loss: Any, data: Any, mode: str, batch: int, count: int, parts: int
) -> Iterator[None]:
    rows = -(-scheme_for(len(data), batch).max_batch_size // parts)
    scheme = filet.CappedPoisson(len(data), batch / len(data), rows * parts)
    engine = import_module("filet.integrations.opacus").CappedPrivacyEngine(
        scheme, adjacency="add-remove", steps=count, key=KEY, physical_batch_size=rows if parts > 1 else None
    )
    batches, _, train = steps_of(engine, model, optimizer, loss, torch_data.DataLoader(data, batch), mode)
    for x, y in batches:
        train(x, y)
        if batches.ends_batch:
            yield


def opacus_steps(
    model: Any, optimizer: Any, loss: Any, data: Any, mode: str, batch: int, count: int, parts: int
) -> Iterator[None]:
    engine = import_module("opacus").PrivacyEngine()
    batches, stepper, train = steps_of(engine, model, optimizer, loss, torch_data.DataLoader(data, batch), mode)
    memory = import_module("opacus.utils.batch_memory_manager").BatchMemoryManager
    while count > 0:
        rows = batch // parts if parts > 1 else 10**9
        with memory(data_loader=batches, max_physical_batch_size=rows, optimizer=stepper) as some:
            for x, y in some if parts > 1 else batches:
                train(x, y)
                count -= not stepper._is_last_step_skipped
                if not stepper._is_last_step_skipped:
                    yield
                if count == 0:
                    return


def steps_of(engine: Any, model: Any, optimizer: Any, loss: Any, plain: Any, mode: str) -> Any:
    """The private loader, and a function that trains on one of its batches."""
    private, stepper, *criterion, batches = engine.make_private(
        module=model, optimizer=optimizer, data_loader=plain, criterion=loss, noise_multiplier=1.0,
        max_grad_norm=1.0, grad_sample_mode=mode,
    )  # fmt: skip
    loss = criterion[0] if criterion else loss

    def train(x: Any, y: Any) -> None:
        stepper.zero_grad()
        loss(private(x), y).backward()
        stepper.step()

    return batches, stepper, train


def training_rows(options: argparse.Namespace) -> None:
    chosen = itertools.product(STEPS, (64,) if options.quick else (64, 256, 1024), (1, 4))
    for mode, batch, parts in chosen:
        if options.batch is None or batch in options.batch:
            store("steps", training_row(mode, batch, parts, options.quick), options)


def training_row(mode: str, batch: int, parts: int, quick: bool) -> dict[str, Any]:
    rounds, count = (1, 10) if quick else (ROUNDS, min(400, 102_400 // batch))
    found = measured(("filet", "Opacus"), lambda name: training(name, mode, batch, count, parts), rounds)
    row = {"mode": mode, "batch": batch, "parts": parts, **found}
    print(line_of(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four points and short runs")
    parser.add_argument("--only", help="one kind of data, or steps")
    parser.add_argument("--batch", type=int, nargs="+", help="only these batch sizes")
    parser.add_argument("--workers", type=int, nargs="+", help="only these numbers of workers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    loader_rows(options)
    if options.only in (None, "steps"):
        training_rows(options)


def store(part: str, row: dict[str, Any], options: argparse.Namespace) -> None:
    """Put a row in the place of the stored one of the same point; a short run stores nothing."""
    if options.quick:
        return
    about = machine("torch", "opacus", "numpy", "filet")
    path = RESULTS / "loaders.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": [], "steps": []}
    names = [name for name, value in row.items() if not isinstance(value, dict)]
    others = [one for one in found[part] if [one[name] for name in names] != [row[name] for name in names]]
    rows = sorted([*others, row], key=lambda one: [one[name] for name in names])
    write_json("loaders", {**found, "machine": about, part: rows})


if __name__ == "__main__":
    main()
