"""A run that stops and goes on is the run that never stopped: batches, noise, weights and epsilon."""

from __future__ import annotations

import io

import pytest
import torch
from tests.integrations.quiet import OPACUS
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.opacus import CappedPrivacyEngine

pytestmark = OPACUS


KEY = b"a key for the tests of resuming"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.05, max_batch_size=4)
DATA = TensorDataset(torch.randn(40, 6, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3)


def start(*, noise_seed=None, key=KEY, model_seed=3, **options):
    """A new process's view of the run: everything made from scratch."""
    torch.manual_seed(model_seed)
    engine = CappedPrivacyEngine(SCHEME, **{"adjacency": "zero-out", "steps": 12, "key": key, **options})
    # Dropout draws from the global generator, as the noise does without a generator of its own.
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.3), nn.Linear(5, 3))
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.1),
        data_loader=DataLoader(DATA),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        noise_generator=None if noise_seed is None else torch.Generator().manual_seed(noise_seed),
    )
    return engine, *made


def train(model, optimizer, run, stop=None):
    for taken, (x, y) in enumerate(run, start=1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if taken == stop:
            break


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def assert_same(one, two):
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("noise_seed", [None, 5])
@pytest.mark.parametrize("options", [{}, {"physical_batch_size": 2}, {"epoch_steps": 3}])
def test_resume_goes_on_with_the_same_batches_noise_and_epsilon(tmp_path, noise_seed, options):
    engine, model, optimizer, run = start(noise_seed=noise_seed, **options)
    for _ in range(12 // options.get("epoch_steps", 12)):
        train(model, optimizer, run)
    expected, epsilon = weights(model), engine.get_epsilon(1e-3)

    engine, model, optimizer, run = start(noise_seed=noise_seed, **options)
    train(model, optimizer, run, stop=2 * run.parts)
    train(model, optimizer, run, stop=3 * run.parts)
    next(iter(run))  # a batch that is looked at and not used is not lost
    path = tmp_path / "run.pt"
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer, checkpoint_dict={"note": "mine"})

    engine, model, optimizer, run = start(noise_seed=noise_seed, model_seed=77, **options)
    saved = engine.load_checkpoint(path=path, module=model, optimizer=optimizer)
    assert saved["note"] == "mine"
    assert len(engine.accountant) == run.state_dict()["step"] == 5
    while len(engine.accountant) < 12:
        train(model, optimizer, run)
    assert_same(weights(model), expected)
    assert engine.get_epsilon(1e-3) == epsilon


def test_resume_under_accounts_no_more():
    engine, model, optimizer, run = start()
    train(model, optimizer, run, stop=10)
    file = io.BytesIO()
    engine.save_checkpoint(path=file, module=model)
    accountant, position = engine.accountant.state_dict(), run.state_dict()

    # The accountant alone: the loader would replay its batches with fresh noise, past the number of steps.
    engine, model, optimizer, run = start()
    batches = iter(run)
    x, y = next(batches)
    engine.accountant.load_state_dict(accountant)
    nn.functional.cross_entropy(model(x), y).backward()
    before = weights(model)
    with pytest.raises(filet.StateError, match=r"counted 10 steps, but the loader is at step 0.*load_checkpoint"):
        optimizer.step()
    with pytest.raises(filet.StateError, match="at step 0"):
        iter(run)
    assert_same(weights(model), before)

    # The loader alone: the accountant would forget ten steps, and the noise would begin again.
    engine, model, optimizer, run = start()
    with pytest.raises(filet.StateError, match="position alone does not resume a private run"):
        run.load_state_dict(position)
    assert run.state_dict()["step"] == 0

    # Both: the two steps that are left, and no more.
    file.seek(0)
    engine, model, optimizer, run = start()
    engine.load_checkpoint(path=file, module=model)
    train(model, optimizer, run)
    cost = filet.account(SCHEME, noise_multiplier=1.0, steps=12, adjacency="zero-out").epsilon(1e-3)
    assert engine.get_epsilon(1e-3) == cost
    with pytest.raises(filet.StateError, match="steps=12 is over"):
        iter(run)


def test_resume_never_exceeds_the_steps_of_the_run():
    engine, model, optimizer, run = start()
    train(model, optimizer, run)
    # Even a loader that would go on does not get a step past the end.
    run.ledger.waiting = [(12, 0, torch.ones(4, dtype=torch.bool))]
    optimizer.zero_grad()
    model(DATA.tensors[0][:4]).sum().backward()
    with pytest.raises(filet.StateError, match="steps=12 is over"):
        optimizer.step()
    assert len(engine.accountant) == 12


def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(tmp_path):
    engine, model, optimizer, run = start(noise_seed=5)
    train(model, optimizer, run, stop=4)
    path = tmp_path / "run.pt"
    engine.save_checkpoint(path=path, module=model)
    whole = torch.load(path, weights_only=False)

    def refused(change, match, **options):
        checkpoint = torch.load(path, weights_only=False)
        change(checkpoint)
        file = io.BytesIO()
        torch.save(checkpoint, file)
        file.seek(0)
        engine, model, _, run = start(**{"noise_seed": 5, "model_seed": 1, **options})
        before = weights(model)
        with pytest.raises(filet.StateError, match=match):
            engine.load_checkpoint(path=file, module=model)
        assert_same(weights(model), before)
        assert len(engine.accountant) == run.state_dict()["step"] == 0

    refused(lambda c: c.pop("filet"), "where the loader is")
    refused(lambda c: c["filet"]["loader"].update(step=3), "counted 4 steps, but its loader is at step 3")
    refused(lambda c: c["filet"]["loader"].update(step=13), "not in")
    refused(lambda c: c.pop("privacy_accountant_state_dict"), "damaged or not filet's")
    refused(lambda c: None, "another key", key=b"another key, also of 16 bytes")
    refused(lambda c: None, "another steps", steps=13)
    refused(lambda c: None, "without a noise_generator|with a noise_generator", noise_seed=None)
    train(model, optimizer, run, stop=2)
    with pytest.raises(filet.StateError, match=r"taken 6 steps.*forget all but 4"):
        engine.load_checkpoint(path=path, module=model)
    assert whole["filet"]["loader"]["step"] == 4
    fresh = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=12, key=KEY)
    with pytest.raises(filet.StateError, match="call make_private first"):
        fresh.load_checkpoint(path=path, module=model)


def test_a_checkpoint_in_the_middle_of_a_virtual_batch_is_refused(tmp_path):
    engine, model, optimizer, run = start(physical_batch_size=1)
    train(model, optimizer, run, stop=6)
    with pytest.raises(filet.StateError, match="2 of 4 physical batches"):
        engine.save_checkpoint(path=tmp_path / "run.pt", module=model)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:key=None draws a key")
def test_a_run_that_drew_its_own_key_resumes_from_a_checkpoint_that_holds_it(tmp_path):
    engine, model, optimizer, run = start(key=None)
    train(model, optimizer, run, stop=5)
    path = tmp_path / "run.pt"
    with pytest.warns(UserWarning, match="cannot be resumed"):
        engine.save_checkpoint(path=path, module=model)
    assert "key" not in torch.load(path, weights_only=False)["filet"]["loader"]
    resumed = start(key=None)
    with pytest.raises(filet.StateError, match="another key"):
        resumed[0].load_checkpoint(path=path, module=resumed[1])

    engine.save_checkpoint(path=path, module=model, include_key=True)
    assert path.stat().st_mode & 0o777 == 0o600
    train(model, optimizer, run)
    engine, other, optimizer, run = resumed
    engine.load_checkpoint(path=path, module=other)
    train(other, optimizer, run)
    assert_same(weights(other), weights(model))
