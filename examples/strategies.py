"""What both training examples share: the data, four ways to spend one budget, the report and the figure."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import filet
from filet.planning.calibration import calibrate_noise_multiplier

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # after the choice of a backend that needs no display

EPSILON, DELTA, ADJACENCY = 3.0, 1e-5, "zero-out"
ROWS = 64  # the hardware batch: every step processes this many rows, whatever the strategy
STEPS = 300
SEEDS = 6
CLIP = 1.0
LEARNING_RATE = 0.5  # of 0.25, 0.5, 1, 2 and 4, the best or nearly so for all four


@dataclass
class Strategy:
    """One way to sample and account; its scheme and noise are chosen for the least noise per example."""

    name: str
    scheme: filet.CappedPoisson
    noise_multiplier: float
    analysis: str
    accuracies: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def epsilon(self) -> float:
        curve = filet.account(self.scheme, noise_multiplier=self.noise_multiplier, steps=STEPS, adjacency=ADJACENCY,
                              analysis=self.analysis)  # fmt: skip
        return float(curve.epsilon(DELTA))

    @property
    def noise_per_example(self) -> float:
        return self.noise_multiplier / self.scheme.expected_batch_size


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's handwritten digits: pixels in [0, 1], one fifth for testing."""
    pixels, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        pixels.astype(np.float32) / 16.0, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return train_x, train_y, test_x, test_y


def strategies(dataset_size: int) -> list[Strategy]:
    """Same budget, rows and steps for all; each takes the sampling rate at which its noise per example is least."""
    kinds = [
        ("union", "truncate", "union"),
        ("note", "truncate", "note"),
        ("refined", "truncate", "refined"),
        ("reject", "reject", "refined"),
    ]
    return [_best(name, overflow, analysis, dataset_size) for name, overflow, analysis in kinds]


def _best(name: str, overflow: str, analysis: str, dataset_size: int) -> Strategy:
    found = []
    for share in np.arange(0.3, 1.11, 0.1):
        scheme = filet.CappedPoisson(dataset_size, float(share) * ROWS / dataset_size, ROWS, overflow=overflow)
        try:
            noise = calibrate_noise_multiplier(
                scheme, steps=STEPS, epsilon=EPSILON, delta=DELTA, adjacency=ADJACENCY, analysis=analysis
            )
        except filet.InvalidArgumentError:
            continue  # no noise makes up for the chance of overflow
        found.append(Strategy(name, scheme, noise, analysis))
    return min(found, key=lambda strategy: strategy.noise_per_example)


def report(title: str, runs: list[Strategy], figure: Path) -> None:
    """Print one line per strategy, say whether accuracies differ beyond chance, and draw the figure."""
    print(
        f"{title}: digits, epsilon {EPSILON}, delta {DELTA}, {ADJACENCY}, {STEPS} steps of {ROWS} rows, {SEEDS} seeds"
    )
    print("strategy  epsilon  noise  mean batch  rows wasted  noise/example  steps/s  accuracy (sd over seeds)")
    for run in runs:
        mean, spread = statistics.mean(run.accuracies), statistics.stdev(run.accuracies)
        print(
            f"{run.name:8s}  {run.epsilon:7.3f}  {run.noise_multiplier:5.3f}  {run.scheme.expected_batch_size:10.1f}"
            f"  {1 - run.scheme.utilization:10.1%}  {run.noise_per_example:13.4f}"
            f"  {STEPS / statistics.median(run.seconds):7.0f}  {mean:.3f} ({spread:.3f})"
        )
    for run in runs[:-1]:
        gain = statistics.mean(runs[-1].accuracies) - statistics.mean(run.accuracies)
        error = (sum(statistics.variance(r.accuracies) for r in (runs[-1], run)) / SEEDS) ** 0.5
        verdict = "beyond" if abs(gain) > 2.0 * error else "within"
        print(f"reject - {run.name}: accuracy {gain:+.3f}, {verdict} two standard errors ({2.0 * error:.3f})")
    _draw(title, runs, figure)
    print(f"figure: {figure}")


def _draw(title: str, runs: list[Strategy], figure: Path) -> None:
    names = [run.name for run in runs]
    panels, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    left.bar(names, [run.scheme.utilization for run in runs], color="tab:blue")
    left.set_ylabel("share of rows that hold examples")
    left.set_ylim(0, 1)
    for place, run in enumerate(runs):
        right.plot([place] * len(run.accuracies), run.accuracies, ".", color="0.6")
    means = [statistics.mean(run.accuracies) for run in runs]
    right.errorbar(names, means, [statistics.stdev(run.accuracies) for run in runs], fmt="o", capsize=4)
    right.set_ylabel("test accuracy (mean, sd, seeds)")
    panels.suptitle(f"{title}: one budget, {ROWS} rows a step, four ways to spend it")
    part = figure.with_name(figure.name + ".part")
    panels.savefig(part, format=figure.suffix.lstrip(".") or "png", dpi=150)
    os.replace(part, figure)
