"""Time and test accuracy to a given epsilon on real data: five ways to draw and account for the same budget of rows.

    python benchmarks/bench_accuracy.py [--quick]

Prints a table, writes results/accuracy.json and draws figures/accuracy.svg (and the documentation's copy).

Data that comes with scikit-learn: `digits` (1,797 images of 8 x 8, 10 classes, a fifth for testing), and `photographs`
(patches of 8 x 8 pixels of its two sample photographs, every 4 pixels: of which photograph? The right fifth of each is for
testing, so that no patch overlaps a patch of the other part; 3 colours, 192 numbers a row).

Every way trains the same softmax regression by DP-SGD (clipping norm 1, add-remove) with the same number of steps and
the same rows a step, padding included; noise is the least for which epsilon is at most EPSILON:
- "Opacus, variable": plain Poisson batches of B rows on average, by filet's bound for no cap (Opacus's own is no lower);
- "union bound", "note": batches capped at B, by the two earlier analyses of truncated batches;
- "filet, truncate", "filet, reject": the same by filet.
The capped ones each use the sampling probability that gives the least noise over the mean batch, of 12 tried. Learning
rates are tried in steps of two, and the best mean over the seeds is reported, for every way alike. Seconds are processor
time of the training alone, on one thread.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from common import HERE, machine, write_json
from sklearn.datasets import load_digits, load_sample_images

import filet

EPSILON = 1.0
BUDGETS = (0.5, 1, 2, 5, 10)  # rows computed, in data sets
FILLS = np.linspace(0.4, 1.15, 12)  # mean draw over the cap
RATES = (0.5, 1.0, 2.0, 4.0, 8.0)
SEEDS = 5
WAYS: dict[str, tuple[Any, Any]] = {
    "Opacus, variable": ("variable", "refined"),
    "union bound": ("truncate", "union"),
    "note": ("truncate", "note"),
    "filet, truncate": ("truncate", "refined"),
    "filet, reject": ("reject", "refined"),
}
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@functools.cache
def digits() -> Split:
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order] / 16.0, y[order]
    test = len(y) // 5
    return x[test:], y[test:], x[:test], y[:test]


@functools.cache
def photographs() -> Split:
    parts: list[list[np.ndarray]] = [[], []]
    labels: list[list[int]] = [[], []]
    for label, image in enumerate(load_sample_images().images):
        limit = image.shape[1] * 4 // 5
        for top in range(0, image.shape[0] - 7, 4):
            for left in range(0, image.shape[1] - 7, 4):
                if left < limit < left + 8:
                    continue
                parts[left >= limit].append(image[top : top + 8, left : left + 8].ravel() / 255.0)
                labels[left >= limit].append(label)
    return np.array(parts[0]), np.array(labels[0]), np.array(parts[1]), np.array(labels[1])


DATA = {"digits": (digits, 64, 1e-4), "photographs": (photographs, 256, 1e-5)}


def scheme_for(way: str, n: int, rows: int, steps: int, delta: float) -> tuple[filet.CappedPoisson, float] | None:
    """The scheme and its noise: of those tried, the least noise over the mean batch; None if none reaches EPSILON."""
    policy, analysis = WAYS[way]
    found = []
    for fill in (1.0,) if policy == "variable" else FILLS:
        if policy == "variable":
            scheme = filet.CappedPoisson(n, fill * rows / n, n)
        else:
            scheme = filet.CappedPoisson(n, fill * rows / n, rows, overflow=policy)
        try:
            noise = filet.calibrate_noise_multiplier(
                scheme, steps=steps, epsilon=EPSILON, delta=delta, adjacency="add-remove", analysis=analysis
            )
        except filet.FiletError:  # the overflow alone costs more than epsilon and delta allow
            continue
        found.append((noise / scheme.expected_batch_size, scheme, noise))
    if not found:
        return None
    _, scheme, noise = min(found, key=lambda one: one[0])
    return scheme, noise


def trained(data: Split, scheme: filet.CappedPoisson, noise: float, steps: int, rate: float, seed: int) -> Any:
    """Test accuracy, processor seconds, and rows computed."""
    x, y, test_x, test_y = data
    rng = np.random.default_rng(seed)
    ones = np.ones((len(x), 1))
    x = np.hstack([x, ones])
    classes = int(y.max()) + 1
    weights, targets = np.zeros((x.shape[1], classes)), np.eye(classes)[y]
    capped = scheme.max_batch_size < scheme.dataset_size
    start, rows = time.process_time(), 0
    for batch in scheme.sampler(seed + 1, secure=False).batches(steps):
        size = batch.indices.size if capped else batch.size
        chosen, mask = np.maximum(batch.indices[:size], 0), batch.mask[:size, None]
        rows += size
        some = x[chosen]
        logits = some @ weights
        shares = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
        error = shares / shares.sum(axis=1, keepdims=True) - targets[chosen]
        # The gradient of a row is an outer product: its norm is the product of two.
        norms = np.linalg.norm(some, axis=1) * np.linalg.norm(error, axis=1)
        error *= mask / np.maximum(1.0, norms)[:, None]
        total = some.T @ error + noise * rng.normal(size=weights.shape)
        weights -= rate / scheme.expected_batch_size * total
    seconds = time.process_time() - start
    shown = np.hstack([test_x, np.ones((len(test_x), 1))]) @ weights
    return float((shown.argmax(axis=1) == test_y).mean()), seconds, rows


def measure(name: str, way: str, budget: float, seeds: int) -> dict[str, Any]:
    make, rows, delta = DATA[name]
    data = make()
    n = len(data[0])
    steps = max(1, round(budget * n / rows))
    found = scheme_for(way, n, rows, steps, delta)
    start = {"data": name, "way": way, "budget": budget, "n": n, "rows": rows, "steps": steps, "delta": delta}
    if found is None:
        return {**start, "accuracy": None}
    scheme, noise = found
    by_rate = {rate: [trained(data, scheme, noise, steps, rate, seed) for seed in range(seeds)] for rate in RATES}
    rate, runs = max(by_rate.items(), key=lambda item: statistics.mean(one[0] for one in item[1]))
    epsilon = filet.account(scheme, noise_multiplier=noise, steps=steps, adjacency="add-remove").epsilon(delta)
    accuracies = [one[0] for one in runs]
    return {
        **start, "noise": noise, "mean_batch": scheme.expected_batch_size, "rate": rate,
        "accuracy": statistics.mean(accuracies), "spread": statistics.pstdev(accuracies),
        "seconds": statistics.median(one[1] for one in runs), "rows_computed": runs[0][2],
        "refined_epsilon": float(epsilon),
    }  # fmt: skip


def draw(rows: list[dict[str, Any]]) -> None:
    """Test accuracy against rows computed, at equal epsilon; grey text and no background, for dark pages too."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    grey = "#808080"
    names: tuple[Any, ...] = (
        "text.color",
        "axes.labelcolor",
        "axes.edgecolor",
        "xtick.color",
        "ytick.color",
        "grid.color",
    )
    colours = ("#2a9d8f", "#8d96a3", "#e0a030", "#d1495b", "#5b7fd1")
    with plt.rc_context({**dict.fromkeys(names, grey), "svg.hashsalt": "filet", "font.size": 9, "grid.alpha": 0.3}):
        figure, panels = plt.subplots(1, len(DATA), figsize=(8.4, 3.4), layout="constrained")
        for axes, name in zip(panels, DATA, strict=True):
            for way, colour in zip(WAYS, colours, strict=True):
                chosen = [row for row in rows if row["data"] == name and row["way"] == way and row["accuracy"]]
                x, y = [row["budget"] for row in chosen], [100 * row["accuracy"] for row in chosen]
                axes.errorbar(x, y, [100 * row["spread"] for row in chosen], label=way, color=colour, marker="o",
                              markersize=3, linewidth=1.3, elinewidth=0.6)  # fmt: skip
            axes.set_xscale("log")
            axes.set_xticks(BUDGETS, [f"{budget:g}" for budget in BUDGETS], minor=False)
            axes.minorticks_off()
            axes.grid(visible=True)
            axes.set_title(f"{name}, epsilon {EPSILON:g}, delta {DATA[name][2]:g}")
            axes.set_xlabel("rows computed, in data sets")
        panels[0].set_ylabel("test accuracy, %")
        panels[0].legend(frameon=False, fontsize=8)
        for target in (HERE / "figures" / "accuracy.svg", HERE.parent / "docs" / "_static" / "accuracy.svg"):
            part = target.with_name(target.name + ".part")
            figure.savefig(part, format="svg", transparent=True, metadata={"Date": None})
            os.replace(part, target)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one budget of digits, one seed")
    quick = parser.parse_args().quick
    rows = []
    for name in ("digits",) if quick else DATA:
        for budget in (2,) if quick else BUDGETS:
            for way in WAYS:
                rows.append(measure(name, way, budget, 1 if quick else SEEDS))
                print(rows[-1], flush=True)
    if not quick:
        about = machine("numpy", "scikit-learn", "filet")
        write_json("accuracy", {"machine": about, "epsilon": EPSILON, "seeds": SEEDS, "rows": rows})
        draw(rows)


if __name__ == "__main__":
    main()
