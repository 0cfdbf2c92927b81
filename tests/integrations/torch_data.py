"""Data sets of the tests of PyTorch's loaders."""

from __future__ import annotations

import collections
import collections.abc

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset

import filet

KEY = b"a key for the tests of torch"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.1, max_batch_size=5)
# No row is zero, so that a zero row can only be padding.
ROWS = torch.arange(1.0, 81.0).reshape(40, 2)
DATA = TensorDataset(ROWS, torch.arange(1, 41))
Pair = collections.namedtuple("Pair", "left right")


class Nested(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return {"x": ROWS[index], "more": (torch.tensor(index + 1), Pair(float(index + 1), np.int64(index + 1)))}
