"""DP-SGD with Opacus on handwritten digits: the same budget and hardware batch, spent in four ways.

Run it with `python examples/train_opacus.py [FIGURE.png]`; it takes about a minute on two cores. With `--checkpoint FOLDER` it
may be killed at any moment: started again, it goes on to the weights of a run that was never disturbed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import torch
from strategies import ADJACENCY, CLIP, DELTA, LEARNING_RATE, Strategy, digits, options, report, strategies
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from filet.integrations.opacus import CappedPrivacyEngine

warnings.filterwarnings("ignore", message="Secure RNG turned off")
warnings.filterwarnings("ignore", message="Full backward hook is firing")


def train(strategy: Strategy, seed: int, dataset: TensorDataset, chosen: argparse.Namespace, before: int) -> nn.Module:
    """One run, from its checkpoint if there is one; `before` steps were taken in earlier runs."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    key = f"the example's seed {seed}".encode()  # a real run draws it by secrets.token_bytes(32), and keeps it
    engine = CappedPrivacyEngine(
        strategy.scheme, adjacency=ADJACENCY, steps=strategy.steps, key=key, analysis=strategy.analysis
    )
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
        data_loader=DataLoader(dataset),
        noise_multiplier=strategy.noise_multiplier,
        max_grad_norm=CLIP,
    )
    path: Path | None = chosen.checkpoint and chosen.checkpoint / f"{strategy.name}-{seed}.pt"
    if path is not None and path.exists():
        engine.load_checkpoint(path=path, module=model)
        print(f"resumed at step {before + len(engine.accountant)}", flush=True)
    first, begin = len(engine.accountant), time.perf_counter()
    for x, y in loader if first < strategy.steps else ():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        step = len(engine.accountant)
        if path is not None and (step % chosen.save_every == 0 or step == strategy.steps):
            engine.save_checkpoint(path=path, module=model)
            print(f"step {before + step} saved", flush=True)
    if first < strategy.steps:
        strategy.rates.append((strategy.steps - first) / (time.perf_counter() - begin))
    if engine.get_epsilon(DELTA) != strategy.epsilon:
        raise RuntimeError("the engine counted another run than the one that was planned")
    return model


def main() -> None:
    chosen = options("DP-SGD with Opacus on handwritten digits")
    if chosen.checkpoint is not None:
        chosen.checkpoint.mkdir(parents=True, exist_ok=True)
    train_x, train_y, test_x, test_y = (torch.from_numpy(part) for part in digits())
    dataset = TensorDataset(train_x, train_y)
    runs = strategies(chosen.only, len(dataset), chosen.steps)
    before = 0
    for strategy in runs:
        for seed in range(chosen.seeds):
            model = train(strategy, seed, dataset, chosen, before)
            before += chosen.steps
            strategy.weights += [p.detach().numpy().tobytes() for p in model.parameters()]
            with torch.no_grad():
                strategy.accuracies.append(float((model(test_x).argmax(1) == test_y).float().mean()))
    report("Opacus", runs, chosen.figure)


if __name__ == "__main__":
    main()
