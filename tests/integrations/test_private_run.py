"""A private run inside a trainer: its noise is given in one of two ways, and its module stays as it was."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations._private_run import make_private, noise_options, several_ranks
from filet.integrations.opacus import CappedPrivacyEngine


def test_noise_is_given_in_one_way():
    assert noise_options(1.0, None, None) == {"noise_multiplier": 1.0}
    assert noise_options(None, 3.0, 1e-5) == {"target_epsilon": 3.0, "target_delta": 1e-5}
    for given in ((None, None, None), (1.0, 3.0, 1e-5), (None, 3.0, None), (1.0, None, 1e-5)):
        with pytest.raises(filet.InvalidArgumentError, match="pass either noise_multiplier"):
            noise_options(*given)


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_the_module_keeps_its_names_and_the_parts_are_the_engines(mode):
    assert not several_ranks()
    model = nn.Linear(3, 2)
    names = list(model.state_dict())
    scheme = filet.CappedPoisson(20, 0.2, 8)
    engine = CappedPrivacyEngine(scheme, adjacency="zero-out", steps=2, key=b"a key of a private run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = make_private(
            engine, model, noise_options(1.0, None, None), optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(torch.randn(20, 3))), max_grad_norm=1.0, grad_sample_mode=mode,
        )  # fmt: skip
    assert list(model.state_dict()) == names
    assert (made.criterion is None) == (mode == "hooks")
    assert made.loader.dataset is engine.dataset
    assert made.optimizer.expected_batch_size == scheme.expected_batch_size
