"""DP-SGD with Opacus that survives kill -9: run it again with the same arguments and it goes on exactly.

Run it with `python examples/resume_opacus.py CHECKPOINT.pt [--steps N]`. Interrupt it as you like: batches, noise,
weights and epsilon end up as in a run that was never interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import warnings
from pathlib import Path

import torch
from strategies import ADJACENCY, DELTA, digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.opacus import CappedPrivacyEngine

warnings.filterwarnings("ignore", message="Secure RNG turned off")
warnings.filterwarnings("ignore", message="Full backward hook is firing")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    train_x, train_y = (torch.from_numpy(part) for part in digits()[:2])
    scheme = filet.CappedPoisson(len(train_x), 56 / len(train_x), 64, overflow="reject")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    # A real run keeps 32 secret random bytes in a file of its own, or saves checkpoints with include_key=True.
    engine = CappedPrivacyEngine(scheme, adjacency=ADJACENCY, steps=options.steps, key=b"for an example only")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        data_loader=DataLoader(TensorDataset(train_x, train_y)),
        noise_multiplier=1.5,
        max_grad_norm=1.0,
    )
    if options.checkpoint.exists():
        engine.load_checkpoint(path=options.checkpoint, module=model)
        print(f"resumed at step {len(engine.accountant)}", flush=True)
    if len(engine.accountant) < options.steps:
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(f"step {len(engine.accountant)} of {options.steps}", flush=True)
            if len(engine.accountant) % 4 == 0:
                engine.save_checkpoint(path=options.checkpoint, module=model)
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    print(f"epsilon {engine.get_epsilon(DELTA):.6f} at delta {DELTA}, weights {digest[:16]}")


if __name__ == "__main__":
    main()
