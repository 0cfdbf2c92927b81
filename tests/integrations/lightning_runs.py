"""A small Lightning module and its private runs, for tests; as a script, one run on several ranks."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.lightning import CappedDDPStrategy, CappedPrivacy
from filet.integrations.opacus import CappedPrivacyEngine

KEY = b"a key for the tests of lightning"
SCHEME = filet.CappedPoisson(200, 0.1, 32, overflow="reject")
ROWS = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(ROWS, (ROWS[:, 0] > 0).long())
# Of Lightning and Opacus themselves; `Trainer` also warns of few workers and of progress bars that are off.
HARMLESS = ("Secure RNG turned off", "Full backward hook is firing", "The '.*' does not have many workers", "GPU available",
            "Checkpoint directory", "`isinstance.treespec, LeafSpec", "Experiment logs directory", "The number of training batches",
            "You defined a `validation_step`", "Starting from v1.9.0", "Be aware that when using `ckpt_path`")  # fmt: skip


class Small(lightning.LightningModule):
    def __init__(self, *, dropout=0.3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(dropout), nn.ReLU(), nn.Linear(16, 2))
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, number):
        x, y = batch
        return self.criterion(self(x), y)

    def validation_step(self, batch, number):
        x, y = batch
        self.log("validation", self.criterion(self(x), y))

    def configure_optimizers(self):
        plain = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [plain], [torch.optim.lr_scheduler.StepLR(plain, 1, 0.9)]


def callback(engine=(), **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Secure RNG turned off")
        made = CappedPrivacyEngine(
            SCHEME, **{"adjacency": "zero-out", "steps": 20, "passes": 3, "key": KEY, **dict(engine)}
        )
    options = {"clipping_norm": 1.0, "noise_multiplier": 1.0, **options}
    if options.get("grad_sample_mode") == "ghost":
        options = {"criterion": "criterion", **options}
    return CappedPrivacy(made, **options)


def trainer(*callbacks, **options):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return lightning.Trainer(**{
        "accelerator": "cpu", "devices": 1, "max_epochs": 50, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "callbacks": list(callbacks), **options,
    })  # fmt: skip


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        for message in HARMLESS:
            warnings.filterwarnings("ignore", message)
        yield


def fit(private, model=None, *callbacks, data=DATA, validation=False, ckpt_path=None, **options):
    """The module after its fit."""
    torch.manual_seed(1)
    model = Small() if model is None else model
    with quiet():
        made = trainer(private, *callbacks, **options)
        held = DataLoader(DATA, batch_size=50) if validation else None
        loader = data if isinstance(data, DataLoader) else DataLoader(data)
        made.fit(model, loader, held, ckpt_path=ckpt_path)
    return model


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()]).float()


def main():
    """Two ranks, as Lightning starts them: `python -m tests.integrations.lightning_runs MODE FOLDER STOP [CHECKPOINT]`."""
    mode, folder, stop, *checkpoint = sys.argv[1:]
    private = callback(grad_sample_mode=mode, delta=1e-4)
    saving = lightning.pytorch.callbacks.ModelCheckpoint(folder, every_n_train_steps=3, save_top_k=-1)

    class Stops(lightning.Callback):
        def on_train_batch_end(self, trainer, *_):
            trainer.should_stop = trainer.should_stop or trainer.global_step == int(stop)

    dropout = 0.0 if mode == "ghost" else 0.3  # ghost: to compare with one rank
    torch.manual_seed(1)
    strategy = CappedDDPStrategy(process_group_backend="gloo")
    model = fit(private, Small(dropout=dropout), saving, Stops(), devices=2, strategy=strategy,
                enable_checkpointing=True, ckpt_path=checkpoint[0] if checkpoint else None)  # fmt: skip
    if torch.distributed.get_rank() == 0:
        print(json.dumps([len(private.engine.accountant), weights(model).tolist()]))


if __name__ == "__main__":
    main()
