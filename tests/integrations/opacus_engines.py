"""Engines of the tests of Opacus, and a plain training loop."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.opacus import CappedPrivacyEngine

KEY = b"a key for the tests of opacus"
# Empty batches occur: (1 - 0.05)^40 = 0.13.
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.05, max_batch_size=4)
ROWS = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) * 0.5
DATA = TensorDataset(ROWS, torch.arange(40) % 3)


def engine_for(scheme=SCHEME, **options):
    return CappedPrivacyEngine(scheme, **{"adjacency": "zero-out", "steps": 30, "key": KEY, **options})


def private(engine, model, dataset=DATA, lr=1.0, **options):
    arguments = {
        "module": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=lr),
        "data_loader": DataLoader(dataset, batch_size=4),
        "noise_multiplier": 1.0,
        "max_grad_norm": 1.0,
        **options,
    }
    return engine.make_private(**arguments)


def train(model, optimizer, run, loss=None):
    loss = loss or (lambda x, y: nn.functional.cross_entropy(model(x), y))
    for x, y in run:
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()
