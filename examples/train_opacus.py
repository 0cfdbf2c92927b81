"""DP-SGD with Opacus on handwritten digits: the same budget and hardware batch, spent in four ways.

Run it with `python examples/train_opacus.py [FIGURE.png]`; it takes about a minute on two cores.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import torch
from strategies import ADJACENCY, CLIP, DELTA, LEARNING_RATE, SEEDS, STEPS, Strategy, digits, report, strategies
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from filet.integrations.opacus import CappedPrivacyEngine

warnings.filterwarnings("ignore", message="Secure RNG turned off")
warnings.filterwarnings("ignore", message="Full backward hook is firing")


def train(strategy: Strategy, seed: int, dataset: TensorDataset, test_x: torch.Tensor, test_y: torch.Tensor) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    # A small integer key is for examples only; leave it out to draw a secret one.
    engine = CappedPrivacyEngine(
        strategy.scheme, adjacency=ADJACENCY, steps=STEPS, key=seed, analysis=strategy.analysis
    )
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        data_loader=DataLoader(dataset),
        noise_multiplier=strategy.noise_multiplier,
        max_grad_norm=CLIP,
    )
    begin = time.perf_counter()
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    strategy.seconds.append(time.perf_counter() - begin)
    if engine.get_epsilon(DELTA) != strategy.epsilon:
        raise RuntimeError("the engine counted another run than the one that was planned")
    with torch.no_grad():
        strategy.accuracies.append(float((model(test_x).argmax(1) == test_y).float().mean()))


def main() -> None:
    figure = Path(sys.argv[1] if len(sys.argv) > 1 else "train_opacus.png")
    train_x, train_y, test_x, test_y = (torch.from_numpy(part) for part in digits())
    dataset = TensorDataset(train_x, train_y)
    runs = strategies(len(dataset))
    for strategy in runs:
        for seed in range(SEEDS):
            train(strategy, seed, dataset, test_x, test_y)
    report("Opacus", runs, figure)


if __name__ == "__main__":
    main()
