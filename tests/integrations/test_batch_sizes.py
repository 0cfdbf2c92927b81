"""Batch sizes that users bring: another than the scheme's is refused."""

from __future__ import annotations

import pytest
from tests.integrations.torch_data import DATA
from torch.utils.data import DataLoader

import filet
from filet.integrations._batch_sizes import check_batch_size


def test_a_data_loader_for_another_batch_size_than_the_schemes_is_refused():
    scheme = filet.CappedPoisson(40, 0.2, 16)
    for size in (None, 1, 7, 8, 16):  # the default, about the mean, and the cap
        options = {"batch_size": size} if size else {"batch_sampler": [[0]]}
        check_batch_size(DataLoader(DATA, **options), scheme)
    for size in (2, 4, 12, 32):
        with pytest.raises(filet.InvalidArgumentError, match=rf"batch_size={size}, where the scheme draws 8 examples"):
            check_batch_size(DataLoader(DATA, batch_size=size), scheme)
