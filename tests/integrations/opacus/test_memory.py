"""Less memory, the same private training: virtual batches, ghost clipping, and both together."""

from __future__ import annotations

import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tests.integrations.opacus_memory import assert_close, made, trained
from tests.integrations.opacus_runs import Words
from tests.integrations.quiet import OPACUS
from torch import nn

import filet

pytestmark = [
    *OPACUS,
    pytest.mark.filterwarnings("ignore:In CPU autocast"),  # of Opacus, in functorch mode
]


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize("physical", [1, 2, 3])
def test_virtual_batches_add_one_noise_and_count_one_step(mode, physical):
    whole, engine = trained(mode=mode)
    parts, virtual = trained(mode=mode, physical=physical)
    assert_close(parts, whole)
    assert len(virtual.accountant) == len(engine.accountant) == 15
    assert virtual.get_epsilon(1e-3) == engine.get_epsilon(1e-3)


def test_virtual_batches_of_an_abandoned_pass_are_not_summed_twice():
    _, model, optimizer, run = made("hooks", physical=2)
    start = [p.detach().clone() for p in model.parameters()]
    sums = []
    for abandon in (True, False):
        for count, (x, y) in enumerate(run, start=1):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if count == (2 if abandon else 3):
                break
        assert (abandon, run.ends_batch) in [(True, False), (False, True)]
    sums = [p.detach() - q for p, q in zip(model.parameters(), start, strict=True)]
    _, model, optimizer, run = made("hooks", model=_copy(start))
    x, y = next(iter(run))
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    assert_close([p.detach() - q for p, q in zip(model.parameters(), start, strict=True)], sums)


def _copy(weights):
    model = Words()
    with torch.no_grad():
        for p, q in zip(model.parameters(), weights, strict=True):
            p.copy_(q)
    return model


def test_virtual_batches_replace_batch_memory_manager_which_is_refused():
    engine, _, optimizer, run = made("hooks")
    manager = BatchMemoryManager(data_loader=run, max_physical_batch_size=2, optimizer=optimizer)
    with manager as smaller, pytest.raises(filet.StateError, match=r"physical_batch_size=.*BatchMemoryManager"):
        next(iter(smaller))
    with pytest.raises(filet.InvalidArgumentError, match=r"BatchMemoryManager.*physical_batch_size="):
        optimizer.signal_skip_step()
    with pytest.raises(filet.InvalidArgumentError, match="does not divide"):
        made("hooks", physical=4)
    # A part without its step is noticed, as a batch is.
    engine, _, optimizer, run = made("hooks", physical=2)
    batches = iter(run)
    next(batches)
    with pytest.raises(filet.StateError, match="had no accounted step"):
        next(batches)
    assert len(engine.accountant) == 0
