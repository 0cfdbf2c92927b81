"""DP-SGD with PyTorch Lightning on handwritten digits: one callback, three lines of a script that stays as it was.

Run it with `python examples/train_lightning.py FOLDER [--steps N] [--devices 2] [--ghost]`. It may be killed at any moment;
started again it goes on from its last checkpoint, to the weights of an undisturbed run.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from strategies import ADJACENCY, DELTA, digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.lightning import CappedDDPStrategy, CappedPrivacy
from filet.integrations.opacus import CappedPrivacyEngine

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Digits(lightning.LightningModule):
    """An ordinary module: nothing in it knows of privacy."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 10))
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x: torch.Tensor) -> Any:
        return self.net(x)

    def training_step(self, batch: Any, number: int) -> Any:
        x, y = batch
        return self.criterion(self(x), y)  # do not log it: the loss of a batch is not private

    def validation_step(self, batch: Any, number: int) -> None:
        x, y = batch
        self.log("accuracy", (self(x).argmax(1) == y).float().mean(), prog_bar=True, sync_dist=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=2.0, momentum=0.5)


class Tells(lightning.Callback):
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.is_global_zero:
            print(f"step {trainer.global_step} of the run", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--ghost", action="store_true")
    options = parser.parse_args()
    train_x, train_y, test_x, test_y = (torch.from_numpy(part) for part in digits())
    train, test = TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)
    lightning.seed_everything(0, verbose=False)

    # The three lines: how batches are drawn, the run, and the callback. A real run keeps 32 secret random bytes as its key.
    scheme = filet.CappedPoisson(len(train), 56 / len(train), 64, overflow="reject")
    engine = CappedPrivacyEngine(scheme, adjacency=ADJACENCY, steps=options.steps, passes=2, key=b"for an example only")
    mode = {"grad_sample_mode": "ghost", "criterion": "criterion"} if options.ghost else {}
    private = CappedPrivacy(engine, clipping_norm=1.0, target_epsilon=3.0, target_delta=DELTA, **mode)

    saving = ModelCheckpoint(options.folder, "run", every_n_train_steps=4, enable_version_counter=False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=options.devices, strategy=CappedDDPStrategy() if options.devices > 1 else "auto",
        callbacks=[private, saving, Tells()], logger=False, enable_progress_bar=False, enable_model_summary=False,
        max_epochs=-1,  # the callback stops the fit when the engine's steps are taken
    )  # fmt: skip
    last = options.folder / "run.ckpt"
    if last.exists():
        step = torch.load(last, weights_only=False)["global_step"]
        print(f"resumed at step {step}", flush=True)
    model = Digits()
    trainer.fit(model, DataLoader(train), DataLoader(test, batch_size=128), ckpt_path=last if last.exists() else None)
    if trainer.is_global_zero:
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
        print(f"accuracy {float(trainer.callback_metrics['accuracy']):.3f}")
        print(f"epsilon {engine.get_epsilon(DELTA):.6f} at delta {DELTA}, weights {digest[:16]}")


if __name__ == "__main__":
    main()
