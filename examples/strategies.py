"""What both training examples share: the data, four ways to spend one budget, checkpoints, the report and the figure."""

from __future__ import annotations

import argparse
import hashlib
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
# What happens to a draw that does not fit, and the proof of what that costs.
KINDS = {
    "union": ("truncate", "union"),
    "note": ("truncate", "note"),
    "refined": ("truncate", "refined"),
    "reject": ("reject", "refined"),
}
CLIP = 1.0
LEARNING_RATE = 0.5  # of 0.25, 0.5, 1, 2 and 4, the best or nearly so for all four


@dataclass
class Strategy:
    """One way to sample and account; its scheme and noise are chosen for the least noise per example."""

    name: str
    scheme: filet.CappedPoisson
    noise_multiplier: float
    analysis: str
    steps: int
    accuracies: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)  # steps per second, of runs that took any here
    weights: list[bytes] = field(default_factory=list)

    @property
    def epsilon(self) -> float:
        curve = filet.account(self.scheme, noise_multiplier=self.noise_multiplier, steps=self.steps,
                              adjacency=ADJACENCY, analysis=self.analysis)  # fmt: skip
        return float(curve.epsilon(DELTA))

    @property
    def noise_per_example(self) -> float:
        return self.noise_multiplier / self.scheme.expected_batch_size


def options(title: str) -> argparse.Namespace:
    """The arguments of both examples. With a checkpoint folder a run may be killed at any moment and started again."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("figure", type=Path, nargs="?", default=Path("strategies.png"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--only", nargs="+", choices=sorted(KINDS), default=list(KINDS), metavar="STRATEGY")
    parser.add_argument("--checkpoint", type=Path, metavar="FOLDER")
    parser.add_argument("--save-every", type=int, default=50, metavar="STEPS")
    return parser.parse_args()


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """scikit-learn's handwritten digits: pixels in [0, 1], one fifth for testing."""
    pixels, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        pixels.astype(np.float32) / 16.0, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return train_x, train_y, test_x, test_y


def strategies(names: list[str], dataset_size: int, steps: int) -> list[Strategy]:
    """Same budget, rows and steps for all; each takes the sampling rate at which its noise per example is least."""
    return [_best(name, *KINDS[name], dataset_size, steps) for name in names]


def _best(name: str, overflow: str, analysis: str, dataset_size: int, steps: int) -> Strategy:
    found = []
    for share in np.arange(0.3, 1.11, 0.1):
        scheme = filet.CappedPoisson(dataset_size, float(share) * ROWS / dataset_size, ROWS, overflow=overflow)
        try:
            noise = calibrate_noise_multiplier(
                scheme, steps=steps, epsilon=EPSILON, delta=DELTA, adjacency=ADJACENCY, analysis=analysis
            )
        except filet.InvalidArgumentError:
            continue  # no noise makes up for the chance of overflow
        found.append(Strategy(name, scheme, noise, analysis, steps))
    return min(found, key=lambda strategy: strategy.noise_per_example)


def report(title: str, runs: list[Strategy], figure: Path) -> None:
    """Print one line per strategy, say whether accuracies differ beyond chance, and draw the figure."""
    steps, seeds = runs[0].steps, len(runs[0].accuracies)
    print(f"{title}: digits, delta {DELTA}, {ADJACENCY}, {steps} steps of {ROWS} rows, {seeds} seeds")
    print("strategy  epsilon  noise  mean batch  rows wasted  noise/example  steps/s  accuracy (sd over seeds)")
    for run in runs:
        print(
            f"{run.name:8s}  {filet.round_up(run.epsilon, 4):>7s}  {filet.round_up(run.noise_multiplier, 4):5s}"
            f"  {run.scheme.expected_batch_size:10.1f}  {1 - run.scheme.utilization:10.1%}  {run.noise_per_example:13.4f}"
            f"  {statistics.median(run.rates or [0]):7.0f}  {statistics.mean(run.accuracies):.3f} ({_spread(run):.3f})"
        )
    for run in runs[:-1] if seeds > 1 else ():
        gain = statistics.mean(runs[-1].accuracies) - statistics.mean(run.accuracies)
        error = ((_spread(runs[-1]) ** 2 + _spread(run) ** 2) / seeds) ** 0.5
        verdict = "beyond" if abs(gain) > 2.0 * error else "within"
        print(f"{runs[-1].name} - {run.name}: accuracy {gain:+.3f}, {verdict} two standard errors ({2.0 * error:.3f})")
    _draw(title, runs, figure)
    digest = hashlib.sha256(b"".join(b"".join(run.weights) for run in runs)).hexdigest()
    print(f"figure: {figure}, weights {digest[:16]}")


def _spread(run: Strategy) -> float:
    return statistics.stdev(run.accuracies) if len(run.accuracies) > 1 else 0.0


def _draw(title: str, runs: list[Strategy], figure: Path) -> None:
    names = [run.name for run in runs]
    panels, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    left.bar(names, [run.scheme.utilization for run in runs], color="tab:blue")
    left.set_ylabel("share of rows that hold examples")
    left.set_ylim(0, 1)
    for place, run in enumerate(runs):
        right.plot([place] * len(run.accuracies), run.accuracies, ".", color="0.6")
    means = [statistics.mean(run.accuracies) for run in runs]
    right.errorbar(names, means, [_spread(run) for run in runs], fmt="o", capsize=4)
    right.set_ylabel("test accuracy (mean, sd, seeds)")
    panels.suptitle(f"{title}: one budget, {ROWS} rows a step, {len(runs)} ways to spend it")
    part = figure.with_name(figure.name + ".part")
    panels.savefig(part, format=figure.suffix.lstrip(".") or "png", dpi=150)
    os.replace(part, figure)
