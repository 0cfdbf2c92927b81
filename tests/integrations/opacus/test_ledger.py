"""Batches and steps: none of them without the other, and the mask stays where metrics are computed."""

from __future__ import annotations

import inspect

import pytest
import torch
from tests.integrations.opacus_engines import engine_for, private
from tests.integrations.opacus_runs import DATA, SCHEME, Words, train
from tests.integrations.quiet import OPACUS
from torch import nn
from torch.utils.data import DataLoader

import filet
from filet.integrations.opacus import CappedPrivacyEngine

pytestmark = OPACUS


def start(mode="hooks", **options):
    model = Words()
    plain = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = CappedPrivacyEngine(SCHEME, **{"adjacency": "zero-out", "steps": 6, "key": 2**100, **options})
    made, optimizer, *criterion, run = engine.make_private(
        module=model,
        optimizer=plain,
        data_loader=DataLoader(DATA),
        noise_multiplier=1.0,
        max_grad_norm=0.3,
        grad_sample_mode=mode,
    )
    return plain, (engine, made, optimizer, criterion[0] if criterion else nn.CrossEntropyLoss(), run)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_the_optimizer_that_was_wrapped_takes_no_step_by_itself(mode):
    plain, started = start(mode)
    before = [p.detach().clone() for p in started[1].parameters()]
    with pytest.raises(filet.StateError, match="given to make_private steps by itself"):
        train((*started[:2], plain, *started[3:]))
    assert all(torch.equal(p, q) for p, q in zip(started[1].parameters(), before, strict=True))
    train(started)
    assert len(started[0].accountant) == 6


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_another_optimizer_trains_on_one_batch_at_most_and_there_is_no_epsilon(mode):
    _, started = start(mode)
    engine, model, _, _, run = started
    other = torch.optim.SGD(model.parameters(), lr=0.5)
    with pytest.raises(filet.StateError, match=r"of step 0\) had no accounted step"):
        train((engine, model, other, *started[3:]))
    with pytest.raises(filet.StateError, match="no epsilon holds"):
        engine.get_epsilon(1e-3)
    with pytest.raises(filet.StateError, match="the model changed on the batch of step 0"):
        iter(run)


def test_a_batch_that_is_looked_at_does_no_harm():
    _, (engine, model, *rest, run) = start()
    next(iter(run))
    assert engine.get_epsilon(1e-3) == 0
    model.load_state_dict(model.state_dict())
    train((engine, model, *rest, run))
    assert len(engine.accountant) == 6


def test_a_wrapped_optimizer_may_serve_a_second_engine():
    plain, started = start()
    train(started)
    model = started[1].to_standard_module()
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=2, key=2**101)
    made, optimizer, run = engine.make_private(
        module=model, optimizer=plain, data_loader=DataLoader(DATA), noise_multiplier=1.0, max_grad_norm=0.3
    )
    train((engine, made, optimizer, nn.CrossEntropyLoss(), run))
    assert len(engine.accountant) == 2


def test_the_mask_is_there_after_the_step():
    _, (_, model, optimizer, criterion, run) = start()
    for x, y in run:
        before = run.mask
        criterion(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        assert run.mask is before


def test_help_on_the_engine_shows_its_own_arguments():
    shown = inspect.getdoc(CappedPrivacyEngine.__init__)
    assert "accountant:" not in shown
    assert "check_gradients" in inspect.signature(CappedPrivacyEngine.__init__).parameters


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew"])
def test_padding_is_masked_where_it_is_unless_the_tensor_may_be_the_users(mode):
    """Gradients of the model's outputs that a user keeps stay as they are; Opacus's own tensors are not copied."""
    model, optimizer, run = private(engine_for(), nn.Linear(6, 3), grad_sample_mode=mode)
    padded = 0
    for x, y in run:
        optimizer.zero_grad()
        output = model(x)
        output.retain_grad()
        nn.functional.cross_entropy(output, y).backward()
        kept = output.grad.clone()
        before = [p.grad_sample.data_ptr() for p in model.parameters()]
        optimizer.step()
        assert torch.equal(output.grad, kept)
        rows = [p.grad_sample for p in model.parameters()]
        assert all(not row[~run.mask].any() for row in rows)
        assert ([row.data_ptr() for row in rows] == before) == (mode != "ew")
        padded += int((~run.mask).sum())
    assert padded
