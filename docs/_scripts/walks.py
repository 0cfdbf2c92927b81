"""Print the walks of docs/architecture.md: python docs/_scripts/walks.py

A walk is one call of a user. Counted by a profiler: calls of filet's functions, the modules that they are in, crossings (calls
from one module into another) and depth (frames of filet on top of each other). Imports and caches are warm: every walk was
taken before, with another data set.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filet

SOURCE = str(Path(filet.__file__).parent)
COMPREHENSIONS = (
    "<listcomp>",
    "<dictcomp>",
    "<setcomp>",
    "<genexpr>",
)  # frames of their own in some versions of Python


class Walk:
    """A profiler of one call: calls, modules, crossings and depth."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.calls = self.crossings = self.depth = 0
        self._path: list[str] = []

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        module, name = frame.f_code.co_filename, frame.f_code.co_name
        if not module.startswith(SOURCE) or name in COMPREHENSIONS or event not in ("call", "return"):
            return
        if event == "return":
            if self._path:  # not that of the profiler's own caller
                self._path.pop()
            return
        self.calls += 1
        self.crossings += bool(self._path) and self._path[-1] != module
        self._path.append(module)
        self.depth = max(self.depth, len(self._path))
        self.modules.add(module)


def walked(call: Callable[[], Any]) -> Walk:
    walk = Walk()
    sys.setprofile(walk)
    try:
        call()
    finally:
        sys.setprofile(None)
    return walk


def scheme(dataset_size: int) -> filet.CappedPoisson:
    return filet.CappedPoisson(dataset_size, 256 / dataset_size, 300)


def epsilon(dataset_size: int) -> Callable[[], Any]:
    made = scheme(dataset_size)
    return lambda: filet.account(made, noise_multiplier=1.0, steps=14_000, adjacency="zero-out").epsilon(1e-5)


def one_batch(dataset_size: int) -> Callable[[], Any]:
    sampler = scheme(dataset_size).sampler(key=b"a key for a walk")
    return lambda: sampler[5]


def plan(dataset_size: int) -> Callable[[], Any]:
    from filet.cli.entry import main

    line = f"filet plan --dataset-size {dataset_size} --max-batch-size 256 --steps 14000 --epsilon 3 --delta 1e-5"

    def call() -> None:
        sys.argv = [*line.split(), "--adjacency", "zero-out"]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main()

    return call


def opacus_step(dataset_size: int) -> Callable[[], Any]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from filet.integrations.opacus import CappedPrivacyEngine

    data = TensorDataset(torch.randn(dataset_size, 3), torch.randint(2, (dataset_size,)))
    engine = CappedPrivacyEngine(scheme(dataset_size), adjacency="zero-out", steps=20, key=2**100)
    plain = torch.nn.Linear(3, 2)
    module, optimizer, loader = engine.make_private(
        module=plain,
        optimizer=torch.optim.SGD(plain.parameters(), lr=0.1),
        data_loader=DataLoader(data),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    batches = iter(loader)

    def call() -> None:
        x, y = next(batches)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    for _ in range(3):
        call()  # steps 0 to 2 check gradients; the next one does not
    return call


WALKS = {
    "`account(...).epsilon`": epsilon,
    "`sampler[5]`": one_batch,
    "`filet plan`": plan,
    "one step with Opacus": opacus_step,
}


def main() -> None:
    warnings.simplefilter("ignore")
    print("| call | calls | modules | crossings | depth |\n| --- | --- | --- | --- | --- |")
    for name, walk in WALKS.items():
        walk(50_000)()
        found = walked(walk(60_000))
        print(f"| {name} | {found.calls:,} | {len(found.modules)} | {found.crossings:,} | {found.depth} |")


if __name__ == "__main__":
    main()
