"""Fully sharded models (FSDP2, as Opacus 1.6 has it) on two gloo ranks: the private training of one rank."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.utils.fsdp_utils import FSDP2Wrapper
from tests.integrations.opacus_runs import DATA, SCHEME, Words, train
from tests.integrations.quiet import OPACUS
from tests.integrations.torch_ranks import two_ranks
from torch import distributed, nn
from torch.utils.data import DataLoader

import filet
from filet.integrations.opacus import CappedPrivacyEngine

pytestmark = OPACUS


KEY = b"a key for the tests of shards"


def start(wrap=lambda model: model, mode="hooks", *, noise=1.0, physical=None, seed=3, **options):
    torch.manual_seed(3)
    model = wrap(Words())
    torch.manual_seed(seed)
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=8, key=KEY, physical_batch_size=physical)
    model, optimizer, *criterion, run = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9),
        data_loader=DataLoader(DATA), noise_multiplier=noise, max_grad_norm=0.3, grad_sample_mode=mode, **options,
    )  # fmt: skip
    return engine, model, optimizer, criterion[0] if criterion else nn.CrossEntropyLoss(), run


def weights(made):
    found = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in made[1].parameters()]
    return [p.detach().numpy().copy() for p in found]


def refusal(kind, call, *arguments, **options):
    with pytest.raises(kind) as raised:
        call(*arguments, **options)
    return str(raised.value)


def sharded(**options):
    return start(FSDP2Wrapper, "ghost_fsdp", **options)


def equal_to_one_rank(rank):
    """Without noise: whole batches, and batches in parts."""
    found = []
    for physical in (None, 1):
        made = sharded(noise=0.0, physical=physical)
        train(made)
        found.append(weights(made))
        assert len(made[0].accountant) == 8
    return found


def resumed(rank):
    """Weights of a run, and of one that was saved after three steps and went on from the other rank's state."""
    whole = sharded(seed=rank)
    train(whole)
    part = sharded(seed=rank)
    train(part, 3)
    state, model = part[0].state_dict(), {name: p.detach().clone() for name, p in part[1].state_dict().items()}
    momentum = part[2].state_dict()
    rest = sharded(seed=rank)
    rest[1].load_state_dict(model)
    rest[2].load_state_dict(momentum)
    everyone = [None, None]
    distributed.all_gather_object(everyone, state)
    rest[0].load_state_dict(everyone[1 - rank])
    train(rest)
    own = torch.Generator()
    distributed.all_gather_object(everyone, sharded(noise_generator=own)[0].state_dict())
    other = refusal(filet.StateError, sharded(noise_generator=own)[0].load_state_dict, everyone[1 - rank])
    ddp = start(DifferentiallyPrivateDistributedDataParallel, "ghost", noise_generator=own)
    return weights(whole), weights(rest), other, refusal(filet.StateError, ddp[0].load_state_dict, everyone[0])


def noise_of(made):
    """The noise of steps without any gradient, in all entries of all parameters, over its standard deviation."""
    _, model, optimizer, criterion, run = made
    found = []
    for x, y in run:
        optimizer.zero_grad()
        (0.0 * criterion(model(x), y)).backward()
        optimizer.step()
        whole = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in optimizer.params]
        gradients = torch.cat([gradient.flatten() for gradient in whole])
        found.append(gradients.numpy() * SCHEME.expected_batch_size / (2.0 * 0.3))
    return np.concatenate(found)


def noise(rank):
    return noise_of(sharded(noise=2.0, seed=rank))


def refusals(rank):
    return [
        refusal(filet.InvalidArgumentError, start, FSDP2Wrapper, "ghost"),
        refusal(filet.InvalidArgumentError, start, DifferentiallyPrivateDistributedDataParallel, "ghost_fsdp"),
        refusal(filet.InvalidArgumentError, sharded, loss_reduction="sum"),
    ]


WORK = (equal_to_one_rank, resumed, noise, refusals)


def _rank(rank, path, queue):
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    try:
        queue.put((rank, {work.__name__: work(rank) for work in WORK}))
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What both ranks answer; starting them takes longer than their work."""
    store = tmp_path_factory.mktemp("ranks") / "store"
    found = dict(two_ranks(_rank, store))
    return [found[0], found[1]]


def test_fsdp_trains_as_one_rank(ranks):
    whole = start(noise=0.0)
    train(whole)
    for ways in (rank["equal_to_one_rank"] for rank in ranks):
        for found in ways:
            for one, other in zip(found, weights(whole), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_fsdp_resumes_to_identical_weights_from_any_ranks_state(ranks):
    for whole, rest, other, ddp in (rank["resumed"] for rank in ranks):
        for one, two in zip(whole, rest, strict=True):
            np.testing.assert_array_equal(one, two)
        assert "which does not have this noise" in other
        assert "a model in 2 shards, each with noise of its own, not 0" in ddp


def test_fsdp_adds_the_noise_of_one_rank_which_has_the_accounted_size(ranks):
    one, other = (rank["noise"] for rank in ranks)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(one, noise_of(start(mode="ghost", noise=2.0)), rtol=1e-5, atol=1e-6)
    assert abs(one.mean()) < 5 / np.sqrt(one.size)
    assert abs(one.std() - 1) < 5 / np.sqrt(2 * one.size)


def test_fsdp_refuses_what_does_not_fit(ranks):
    for found in (rank["refusals"] for rank in ranks):
        assert found[0] == (
            "grad_sample_mode='ghost' is not for a module that is fully sharded; use 'ghost_fsdp' for modules of"
            " opacus.utils.fsdp_utils.FSDP2Wrapper, and only for them"
        )
        assert "'ghost_fsdp' is not for a module that is not fully sharded" in found[1]
        assert "loss_reduction='sum' does not fit a sharded module" in found[2]
