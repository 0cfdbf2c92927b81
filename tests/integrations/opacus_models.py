"""Models of the tests of per-example gradients, and how they are trained."""

from __future__ import annotations

import pytest
import torch
from tests.integrations import opacus_runs
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.opacus import CappedPrivacyEngine

KEY = b"a key for the tests of gradients"
MODES = ["hooks", "ghost"]
SCHEME = filet.CappedPoisson(dataset_size=8, sampling_probability=1.0, max_batch_size=8)
ROWS = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(8) % 5


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.last = nn.Linear(5, 5)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def start(
    model, mode, *, rows=ROWS, labels=LABELS, criterion=None, steps=4, scheme=SCHEME, lr=0.1, noise=0.0, **options
):
    torch.manual_seed(0)
    model = model() if isinstance(model, type) else model
    engine = CappedPrivacyEngine(scheme, adjacency="replace-one", steps=steps, key=KEY, **options)
    criterion = criterion or nn.CrossEntropyLoss()
    made, optimizer, *ghost, run = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=lr),
        criterion=criterion,
        data_loader=DataLoader(TensorDataset(rows, labels)),
        noise_multiplier=noise,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
    )
    return engine, made, optimizer, ghost[0] if ghost else criterion, run


def train(started, stop=None):
    opacus_runs.train(started, stop)
    return torch.cat([p.summed_grad.flatten() for p in started[2].params])


def refusal(call, *arguments, **options):
    with pytest.raises(filet.FiletError) as raised:
        call(*arguments, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)
