"""A small model with data, and a loop over a private run, for the tests of the Opacus engine."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

import filet

SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.06, max_batch_size=6)
TOKENS = torch.randint(11, (40, 5), generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(TOKENS, torch.arange(40) % 3)


class Words(nn.Module):
    """Layers with a norm sampler (embedding, linear) and without (convolution, layer norm)."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.conv = nn.Conv1d(4, 6, 3, padding=1)
        self.norm = nn.LayerNorm(6)
        self.out = nn.Linear(6, 3)

    def forward(self, tokens):
        mixed = self.conv(self.embed(tokens).transpose(1, 2)).transpose(1, 2)
        return self.out(self.norm(torch.tanh(mixed)).mean(dim=1))


def train(made, stop=None):
    _, model, optimizer, criterion, run = made
    for count, (x, y) in enumerate(run, start=1):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        if count == stop:
            break
