"""Runs that the tests of memory and ghost clipping compare."""

from __future__ import annotations

import torch
from tests.integrations.opacus_runs import DATA, SCHEME, Words
from torch import nn
from torch.utils.data import DataLoader

from filet.integrations.opacus import CappedPrivacyEngine

KEY = b"a key for the tests of memory"


def trained(*, mode="hooks", physical=None, steps=15, noise=1.0, model=None, scheme=SCHEME, reduction="mean"):
    """Weights after a run, the number of optimizer steps, and the engine."""
    torch.manual_seed(3)
    model = model or Words()
    engine = CappedPrivacyEngine(scheme, adjacency="zero-out", steps=steps, key=KEY, physical_batch_size=physical)
    criterion = nn.CrossEntropyLoss(reduction=reduction)
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5 if reduction == "mean" else 0.1, momentum=0.9),
        criterion=criterion,
        data_loader=DataLoader(DATA),
        noise_multiplier=noise,
        max_grad_norm=0.3,
        loss_reduction=reduction,
        grad_sample_mode=mode,
        noise_generator=torch.Generator().manual_seed(5),
    )
    model, optimizer, *more, run = made
    criterion = more[0] if more else criterion
    count = 0
    for x, y in run:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        count += 1
        assert x.shape[0] == (physical or run.batch_sampler.sampler.rows)
    assert count == steps * run.parts
    return [p.detach().clone() for p in model.parameters()], engine


def assert_close(one, two):
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)


def made(mode, physical=None, model=None):
    model = model or Words()
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=30, key=KEY, physical_batch_size=physical)
    return engine, *engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), data_loader=DataLoader(DATA),
        noise_multiplier=0.0, max_grad_norm=0.3, grad_sample_mode=mode,
    )  # fmt: skip
