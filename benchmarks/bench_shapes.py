"""What fixed shapes buy: two models, one budget, four ways to shape Poisson batches, three ways to run the step.

    python benchmarks/bench_shapes.py [--quick] [--models ...] [--runs ...] [--shapes ...]

Prints a table, stores every row in results/shapes.json and draws figures/shapes.svg (and the documentation's copy). Everything runs on the processor, one thread.

Shapes: "variable" is plain Poisson sampling, a batch as large as it is drawn (Opacus's loader). "power of two" pads it to the
next power of two. "own largest" pads every batch to the largest of the run's own draw, which has to be made before the
first step: that is what JAX Privacy's `AutotuneMicrobatch` does, simulated here. Its shape depends on who was drawn, and no
epsilon covers that: the one in the table is that of the batches alone. "capped" is filet's, with overflow="reject": every batch has `ROWS` rows. All have the same mean batch,
noise and number of steps; epsilon is filet's for each of them, at the same delta, under zero-out.

Models: a perceptron (64, 128, 10), and a transformer of one layer (8 tokens of 8 numbers, 2 heads, width 32).

Runs: the same DP-SGD step (per-example gradients by vmap, clipped, summed, noise) in PyTorch eagerly, under `torch.compile`
with its default backend, and under `jax.jit`. Compilations are counted by the frameworks' own hooks; `torch.compile` stops
compiling at its limit and runs the rest eagerly, which the table says. Steps are per second of processor time (of compilers
too), over the whole run and over its second half alone. Rows wasted are those that are padding.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from common import HERE, RESULTS, machine, write_json

import filet

DATASET, MEAN, ROWS, FEATURES, HIDDEN, CLASSES = 10_000, 52.0, 64, 64, 128, 10
SIGMA, CLIP, DELTA = 1.0, 1.0, 1e-5
TOKENS, WIDTH, HEADS = 8, 32, 2
MODELS = ("perceptron", "transformer")
SHAPES = ("variable", "power of two", "own largest", "capped")
RUNS = ("torch eager", "torch.compile", "jax.jit")

Batches = Callable[[int], Iterator[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class Result:
    model: str
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
    drawn = list(poisson_batches(steps))
    largest = max(map(len, drawn))
    for chosen in drawn:
        size = len(chosen)
        rows = {"variable": size, "power of two": 1 << max(size - 1, 0).bit_length(), "own largest": largest}[shape]
        indices = np.zeros(rows, dtype=np.int64)
        indices[:size] = chosen
        yield indices, np.arange(rows) < size


def poisson_batches(steps: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(7)
    for _ in range(steps):
        yield rng.choice(DATASET, int(rng.binomial(DATASET, MEAN / DATASET)), replace=False)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(DATASET, FEATURES)).astype(np.float32), rng.integers(CLASSES, size=DATASET)


def torch_model(name: str) -> Any:
    from torch import nn

    if name == "perceptron":
        return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Linear(FEATURES // TOKENS, WIDTH)
            self.attend = nn.Linear(WIDTH, 3 * WIDTH)
            self.join = nn.Linear(WIDTH, WIDTH)
            self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
            self.leave = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Any) -> Any:
            tokens = self.enter(x.view(len(x), TOKENS, -1))
            q, k, v = self.attend(tokens).view(len(x), TOKENS, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
            shares = (q @ k.transpose(-1, -2) / (WIDTH / HEADS) ** 0.5).softmax(-1)
            tokens = tokens + self.join((shares @ v).transpose(1, 2).flatten(2))
            tokens = tokens + self.narrow(nn.functional.gelu(self.wide(tokens)))
            return self.leave(tokens.mean(1))

    return Transformer()


def torch_run(name: str, shape: str, steps: int, *, compiled: bool) -> tuple[int, bool, list[float]]:
    """Compilations, whether the limit was hit, and the time at the end of every step."""
    import torch
    from torch.func import functional_call, grad, vmap

    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = torch_model(name)
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


JAX_SHAPES = {
    "perceptron": ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)),
    "transformer": (
        (FEATURES // TOKENS, WIDTH), (WIDTH,), (WIDTH, 3 * WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,),
        (WIDTH, 2 * WIDTH), (2 * WIDTH,), (2 * WIDTH, WIDTH), (WIDTH,), (WIDTH, CLASSES), (CLASSES,),
    ),
}  # fmt: skip


def jax_logits(name: str, params: Any, x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    if name == "perceptron":
        return jnp.tanh(x @ params[0] + params[1]) @ params[2] + params[3]
    tokens = x.reshape(TOKENS, -1) @ params[0] + params[1]
    q, k, v = jnp.transpose((tokens @ params[2] + params[3]).reshape(TOKENS, 3, HEADS, -1), (1, 2, 0, 3))
    shares = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / (WIDTH / HEADS) ** 0.5)
    tokens = tokens + jnp.swapaxes(shares @ v, 0, 1).reshape(TOKENS, -1) @ params[4] + params[5]
    tokens = tokens + jax.nn.gelu(tokens @ params[6] + params[7]) @ params[8] + params[9]
    return tokens.mean(0) @ params[10] + params[11]


def jax_run(name: str, shape: str, steps: int) -> tuple[int, bool, list[float]]:
    import jax
    import jax.numpy as jnp

    traced = []

    def loss(params: Any, x: Any, y: Any) -> Any:
        return -jax.nn.log_softmax(jax_logits(name, params, x))[y]

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
    params = [jnp.asarray(rng.normal(size=size).astype(np.float32) * 0.1) for size in JAX_SHAPES[name]]
    pixels, labels = data()
    ends = [clock()]
    for number, (indices, mask) in enumerate(batches(shape, steps)):
        key = jax.random.fold_in(jax.random.key(0), number)
        params = step(params, key, pixels[indices], labels[indices], mask)
        params[0].block_until_ready()
        ends.append(clock())
    return len(traced), False, ends


def measure(name: str, shape: str, run: str, steps: int) -> Result:
    if run == "jax.jit":
        compilations, gave_up, ends = jax_run(name, shape, steps)
    else:
        compilations, gave_up, ends = torch_run(name, shape, steps, compiled=run == "torch.compile")
    scheme = scheme_of(shape)
    epsilon = filet.account(scheme, noise_multiplier=SIGMA, steps=steps, adjacency="zero-out").epsilon(DELTA)
    masks = [mask for _, mask in batches(shape, steps)]
    rows, real = sum(mask.size for mask in masks), sum(int(mask.sum()) for mask in masks)
    half = len(ends) // 2
    return Result(
        name, shape, run, steps, float(epsilon), compilations, gave_up, len({mask.size for mask in masks}), 1.0 - real / rows,
        per_second(steps, ends[-1] - ends[0]), per_second(len(ends) - 1 - half, ends[-1] - ends[half]),
    )  # fmt: skip


def per_second(steps: int, seconds: float) -> float:
    return steps / seconds if seconds > 0.0 else math.inf  # a processor's clock may stand still over a few steps


def rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def report(results: list[Result]) -> str:
    """The table, in Markdown."""
    lines = [
        "| model | batches | run | compilations | shapes | rows wasted | steps/s | steps/s, later half | epsilon |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in results:
        compilations = "-" if r.run == "torch eager" else f"{r.compilations}{' (limit)' if r.gave_up else ''}"
        lines.append(
            f"| {r.model} | {r.shape} | {r.run} | {compilations} | {r.shapes_seen} | {r.rows_wasted:.1%} | {rate(r.steps_per_second)}"
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
        chosen = [r for r in results if r.shape == shape and r.model == MODELS[0]]
        bars = axes.bar([RUNS.index(r.run) + 0.21 * (place - 1.5) for r in chosen], [r.steps_per_second for r in chosen], 0.2,
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


def stored() -> list[Result]:
    path = RESULTS / "shapes.json"
    found = json.loads(path.read_text(encoding="utf-8"))["results"] if path.exists() else []
    return [Result(**row) for row in found]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="20 steps of each, nothing stored")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--runs", nargs="+", default=RUNS, choices=RUNS)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, choices=SHAPES)
    options = parser.parse_args()
    steps = 20 if options.quick else 300
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # also if an earlier run compiled the same
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # in this process, so that its time is counted
    for name, run, shape in itertools.product(options.models, options.runs, options.shapes):
        result = measure(name, shape, run, steps)
        print(report([result]).splitlines()[-1], flush=True)
        if not options.quick:
            store(result)


def store(result: Result) -> None:
    """Put a result in the place of the stored one of the same model, run and batches, and draw them."""
    others = [one for one in stored() if (one.model, one.run, one.shape) != (result.model, result.run, result.shape)]
    order = list(itertools.product(MODELS, RUNS, SHAPES))
    results = sorted([*others, result], key=lambda one: order.index((one.model, one.run, one.shape)))
    write_json("shapes", {"machine": machine("torch", "jax", "numpy"), "results": [asdict(r) for r in results]})
    draw(results)


if __name__ == "__main__":
    main()
