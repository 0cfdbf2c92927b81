"""Loops over epochs: every batch once, in as many passes as asked for, resumable in their middle."""

from __future__ import annotations

import pytest
import torch
from tests.integrations.quiet import OPACUS
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.errors import StateError
from filet.integrations.opacus import CappedPrivacyEngine
from filet.integrations.torch import loader

pytestmark = OPACUS


KEY = b"a key for the tests of epochs"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.12, max_batch_size=8)
DATA = TensorDataset(torch.arange(120.0).reshape(40, 3) / 120, torch.arange(40) % 2)


@pytest.mark.parametrize("options", [{"epochs": 3}, {"steps": 25, "passes": 3}, {"steps": 25, "epoch_steps": 9}])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_over_epochs_sees_every_batch_once(options, workers):
    train = loader(DATA, SCHEME, key=KEY, num_workers=workers, **options)
    seen, lengths = [], []
    for _ in range(3):
        lengths.append(len(train))
        count = len(seen)
        seen += [mask.clone() for _, mask in train]
        assert len(seen) - count == lengths[-1]
    steps = options.get("steps") or SCHEME.steps_of_epochs(3)
    assert sum(lengths) == len(seen) == steps
    expected = SCHEME.sampler(KEY).batches(steps)
    assert [int(mask.sum()) for mask in seen] == [batch.size for batch in expected]
    with pytest.raises(StateError, match=r"run of steps=\d+ is over.*pass passes=E, or epochs=E"):
        iter(train)


def test_a_run_that_stopped_in_an_epoch_goes_on_to_its_end():
    first = loader(DATA, SCHEME, epochs=3, key=KEY)
    for step, _ in enumerate(first, 1):
        if step == 2:
            break
    state = first.state_dict()
    second = loader(DATA, SCHEME, epochs=3, key=KEY)
    second.load_state_dict(state)
    assert len(list(second)) == SCHEME.steps_of_epochs(1) - 2
    assert len(list(second)) == SCHEME.steps_of_epochs(2) - SCHEME.steps_of_epochs(1)


def private(**options):
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", key=KEY, **options)
    model = nn.Linear(3, 2)
    made = engine.make_private(module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=DataLoader(DATA),
                               noise_multiplier=1.0, max_grad_norm=1.0)  # fmt: skip
    return engine, *made


@pytest.mark.parametrize("options", [{"epochs": 3}, {"steps": 10, "passes": 3}])
def test_an_opacus_script_with_a_loop_over_epochs_runs_and_is_accounted(options):
    engine, model, optimizer, train = private(**options)
    for _ in range(3):
        for x, y in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    steps = options.get("steps") or SCHEME.steps_of_epochs(3)
    expected = filet.account(SCHEME, noise_multiplier=1.0, steps=steps, adjacency="zero-out")
    assert engine.get_epsilon(1e-4) == expected.epsilon(1e-4)
    with pytest.raises(StateError, match="pass passes=E, or epochs=E"):
        iter(train)


def test_epochs_of_a_target_are_the_engines():
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", key=KEY, epochs=3)
    with pytest.raises(filet.InvalidArgumentError, match="epochs=4 are not the engine's 3 passes of 9 steps"):
        engine.make_private_with_epsilon(target_epsilon=2.0, target_delta=1e-4, epochs=4)
    model = nn.Linear(3, 2)
    _, optimizer, train = engine.make_private_with_epsilon(
        target_epsilon=2.0, target_delta=1e-4, epochs=3, module=model, max_grad_norm=1.0,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=DataLoader(DATA),
    )  # fmt: skip
    assert optimizer.noise_multiplier > 0.0
    assert len(train) == 9
