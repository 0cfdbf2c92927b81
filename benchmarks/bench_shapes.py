"""What fixed shapes buy: one model and budget, three ways to shape Poisson batches, three ways to run the step.

    python benchmarks/bench_shapes.py [--quick]

Prints a table, writes results/shapes.json and draws figures/shapes.svg (and the documentation's copy). Everything runs on the processor, one thread.

Shapes: "variable" is plain Poisson sampling, a batch as large as it is drawn (Opacus's loader). "power of two" pads it to the
next power of two. "capped" is filet's, with overflow="reject": every batch has `ROWS` rows. All have the same mean batch,
noise and number of steps; epsilon is filet's for each of them, at the same delta, under zero-out.

Runs: the same DP-SGD step (per-example gradients by vmap, clipped, summed, noise) in PyTorch eagerly, under `torch.compile`
with its default backend, and under `jax.jit`. Compilations are counted by the frameworks' own hooks; `torch.compile` stops
compiling at its limit and runs the rest eagerly, which the table says. Steps are per second of processor time (of compilers
too), over the whole run and over its second half alone. Rows wasted are those that are padding.
"""

from __future__ import annotations

import argparse
import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from common import HERE, machine, write_json

import filet

DATASET, MEAN, ROWS, FEATURES, HIDDEN, CLASSES = 10_000, 52.0, 64, 64, 128, 10
SIGMA, CLIP, DELTA = 1.0, 1.0, 1e-5
SHAPES = ("variable", "power of two", "capped")
RUNS = ("torch eager", "torch.compile", "jax.jit")

Batches = Callable[[int], Iterator[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class Result:
    shape: str
    run: str
    steps: int
    epsilon: float
    compilations: int
    gave_up: bool
    shapes_seen: int
    rows_wasted: float
    steps_per_second: float
    later_steps_per_second: float


def clock() -> float:
    """Processor time of this process and of the compilers it has started: neighbours disturb it less than a clock."""
    return sum(os.times()[:4])


def scheme_of(shape: str) -> filet.CappedPoisson:
    """The scheme; a cap of the whole data set is plain Poisson sampling."""
    if shape != "capped":
        return filet.CappedPoisson(DATASET, MEAN / DATASET, DATASET)
    low, high = 0.5 * ROWS / DATASET, 2.0 * ROWS / DATASET
    for _ in range(60):  # the probability at which the mean of the batches that fit is the others' mean
        middle = 0.5 * (low + high)
        scheme = filet.CappedPoisson(DATASET, middle, ROWS, overflow=filet.Overflow.REJECT)
        low, high = (middle, high) if scheme.expected_batch_size < MEAN else (low, middle)
    return scheme


def batches(shape: str, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices and mask of every batch."""
    if shape == "capped":
        for batch in scheme_of(shape).sampler(7).batches(steps):
            yield np.where(batch.mask, batch.indices, 0).astype(np.int64), batch.mask
        return
    rng = np.random.default_rng(7)
    for _ in range(steps):
        size = int(rng.binomial(DATASET, MEAN / DATASET))
        rows = size if shape == "variable" else 1 << max(size - 1, 0).bit_length()
        indices = np.zeros(rows, dtype=np.int64)
        indices[:size] = rng.choice(DATASET, size, replace=False)
        yield indices, np.arange(rows) < size


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(DATASET, FEATURES)).astype(np.float32), rng.integers(CLASSES, size=DATASET)


def torch_run(shape: str, steps: int, *, compiled: bool) -> tuple[int, bool, list[float]]:
    """Compilations, whether the limit was hit, and the time at the end of every step."""
    import torch
    from torch.func import functional_call, grad, vmap

    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CLASSES))
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params: Any, x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(functional_call(model, params, (x[None],)), y[None])

    def clipped_sum(params: Any, x: Any, y: Any, mask: Any) -> Any:
        gradients = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        factors = torch.where(mask, (CLIP / (norms + 1e-6)).clamp(max=1.0), 0.0)
        return {name: torch.einsum("i,i...", factors, g) for name, g in gradients.items()}

    # As users do it: no hints about shapes; PyTorch may turn to dynamic ones by itself after the first change.
    step = torch.compile(clipped_sum) if compiled else clipped_sum
    pixels, labels = (torch.from_numpy(part) for part in data())
    ends = [clock()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for indices, mask in batches(shape, steps):
            chosen = torch.from_numpy(indices)
            total = step(params, pixels[chosen], labels[chosen], torch.from_numpy(mask))
            params = {n: p - 0.1 / MEAN * (total[n] + SIGMA * CLIP * torch.randn_like(p)) for n, p in params.items()}
            ends.append(clock())
    counters = torch._dynamo.utils.counters
    graphs = int(counters["stats"]["unique_graphs"])
    limit = any("recompile_limit" in str(name) or "cache_size_limit" in str(name) for name in counters["unimplemented"])
    return graphs, limit, ends


def jax_run(shape: str, steps: int) -> tuple[int, bool, list[float]]:
    import jax
    import jax.numpy as jnp

    traced = []

    def loss(params: Any, x: Any, y: Any) -> Any:
        return -jax.nn.log_softmax(jnp.tanh(x @ params[0] + params[1]) @ params[2] + params[3])[y]

    @jax.jit
    def step(params: Any, key: Any, x: Any, y: Any, mask: Any) -> Any:
        traced.append(1)
        gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x, y)
        norms = jnp.sqrt(sum(jnp.sum(g.reshape(len(g), -1) ** 2, axis=1) for g in gradients))
        factors = jnp.where(mask, jnp.minimum(1.0, CLIP / (norms + 1e-6)), 0.0)
        keys = jax.random.split(key, len(params))
        return [
            p - 0.1 / MEAN * (jnp.tensordot(factors, g, 1) + SIGMA * CLIP * jax.random.normal(k, p.shape))
            for p, g, k in zip(params, gradients, keys, strict=True)
        ]

    rng = np.random.default_rng(1)
    shapes = ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
    params = [jnp.asarray(rng.normal(size=size).astype(np.float32) * 0.1) for size in shapes]
    pixels, labels = data()
    ends = [clock()]
    for number, (indices, mask) in enumerate(batches(shape, steps)):
        key = jax.random.fold_in(jax.random.key(0), number)
        params = step(params, key, pixels[indices], labels[indices], mask)
        params[0].block_until_ready()
        ends.append(clock())
    return len(traced), False, ends


def measure(shape: str, run: str, steps: int) -> Result:
    if run == "jax.jit":
        compilations, gave_up, ends = jax_run(shape, steps)
    else:
        compilations, gave_up, ends = torch_run(shape, steps, compiled=run == "torch.compile")
    scheme = scheme_of(shape)
    epsilon = filet.account(scheme, noise_multiplier=SIGMA, steps=steps, adjacency="zero-out").epsilon(DELTA)
    masks = [mask for _, mask in batches(shape, steps)]
    rows, real = sum(mask.size for mask in masks), sum(int(mask.sum()) for mask in masks)
    half = len(ends) // 2
    return Result(
        shape, run, steps, float(epsilon), compilations, gave_up, len({mask.size for mask in masks}), 1.0 - real / rows,
        per_second(steps, ends[-1] - ends[0]), per_second(len(ends) - 1 - half, ends[-1] - ends[half]),
    )  # fmt: skip


def per_second(steps: int, seconds: float) -> float:
    return steps / seconds if seconds > 0.0 else math.inf  # a processor's clock may stand still over a few steps


def rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def report(results: list[Result]) -> str:
    """The table, in Markdown."""
    lines = [
        "| batches | run | compilations | shapes | rows wasted | steps/s | steps/s, later half | epsilon |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in results:
        compilations = "-" if r.run == "torch eager" else f"{r.compilations}{' (limit)' if r.gave_up else ''}"
        lines.append(
            f"| {r.shape} | {r.run} | {compilations} | {r.shapes_seen} | {r.rows_wasted:.1%} | {rate(r.steps_per_second)}"
            f" | {rate(r.later_steps_per_second)} | {filet.round_up(r.epsilon, 3)} |"
        )
    return "\n".join(lines)


def draw(results: list[Result]) -> None:
    """Steps per second, by kind of batch and of run; compilations above the bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    for place, shape in enumerate(SHAPES):
        chosen = [r for r in results if r.shape == shape]
        bars = axes.bar([k + 0.27 * (place - 1) for k in range(len(chosen))], [r.steps_per_second for r in chosen], 0.25,
                        label=shape)  # fmt: skip
        words = ["" if r.run == "torch eager" else f"{r.compilations}" for r in chosen]
        axes.bar_label(bars, words, padding=2, fontsize=8)
    axes.set_xticks(range(len(RUNS)), RUNS)
    axes.set_ylabel("steps per second, compilations included")
    axes.set_title(f"DP-SGD on the processor, {results[0].steps} steps; above the bars: compilations", fontsize=10)
    axes.legend(title="batches", fontsize=8)
    for target in (HERE / "figures" / "shapes.svg", HERE.parent / "docs" / "_static" / "shapes.svg"):
        part = target.with_name(target.name + ".part")
        figure.savefig(part, format="svg")
        os.replace(part, target)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    steps = 20 if parser.parse_args().quick else 300
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # also if an earlier run compiled the same
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # in this process, so that its time is counted
    results = [measure(shape, run, steps) for run in RUNS for shape in SHAPES]
    print(report(results))
    if steps >= 300:
        write_json("shapes", {"machine": machine("torch", "jax", "numpy"), "results": [asdict(r) for r in results]})
        draw(results)


if __name__ == "__main__":
    main()
