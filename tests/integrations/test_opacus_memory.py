"""Less memory, the same private training: virtual batches, ghost clipping, and both together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tests.integrations.opacus_runs import DATA, SCHEME, Words
from torch import distributed, multiprocessing, nn
from torch.utils.data import DataLoader

import filet
from filet.integrations.opacus import CappedPrivacyEngine

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore:In CPU autocast"),  # of Opacus, in functorch mode
]

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


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize("physical", [1, 2, 3])
def test_virtual_batches_add_one_noise_and_count_one_step(mode, physical):
    whole, engine = trained(mode=mode)
    parts, virtual = trained(mode=mode, physical=physical)
    assert_close(parts, whole)
    assert len(virtual.accountant) == len(engine.accountant) == 15
    assert virtual.get_epsilon(1e-3) == engine.get_epsilon(1e-3)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ghost_clipping_equals_hooks_to_rounding(reduction):
    hooks, engine = trained(reduction=reduction)
    ghost, other = trained(mode="ghost", reduction=reduction)
    assert_close(ghost, hooks)
    assert other.get_epsilon(1e-3) == engine.get_epsilon(1e-3)


def made(mode, physical=None, model=None):
    model = model or Words()
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=30, key=KEY, physical_batch_size=physical)
    return engine, *engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), data_loader=DataLoader(DATA),
        noise_multiplier=0.0, max_grad_norm=0.3, grad_sample_mode=mode,
    )  # fmt: skip


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
    engine, model, optimizer, run = made("hooks")
    manager = BatchMemoryManager(data_loader=run, max_physical_batch_size=2, optimizer=optimizer)
    with (
        manager as smaller,
        pytest.raises(filet.InvalidArgumentError, match=r"BatchMemoryManager.*physical_batch_size="),
    ):
        next(iter(smaller))
    with pytest.raises(filet.InvalidArgumentError, match="does not divide"):
        made("hooks", physical=4)
    # A part without its step is noticed, as a batch is.
    engine, model, optimizer, run = made("hooks", physical=2)
    batches = iter(run)
    next(batches)
    x, y = next(batches)
    nn.functional.cross_entropy(model(x), y).backward()
    with pytest.raises(filet.StateError, match="2 batches were drawn"):
        optimizer.step()
    assert len(engine.accountant) == 0


def test_ghost_clipping_masks_padding_exactly():
    class Far(nn.Module):
        """Padding's rows of zeros have large outputs and gradients."""

        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, tokens):
            return self.layer(torch.where(tokens.any(dim=1, keepdim=True), tokens.float(), 1e4))

    torch.manual_seed(0)
    _, model, optimizer, criterion, run = made("ghost", model=Far())
    sizes = set()
    for x, y in run:
        mask = run.mask
        sizes.add(int(mask.sum()))
        expected = [torch.zeros_like(p) for p in optimizer.params]
        plain = Far()
        plain.load_state_dict({name.removeprefix("_module."): value for name, value in model.state_dict().items()})
        for one, label in zip(x[mask], y[mask], strict=True):
            loss = nn.functional.cross_entropy(plain(one[None]), label[None])
            gradients = torch.autograd.grad(loss, list(plain.parameters()))
            norm = float(torch.cat([g.flatten() for g in gradients]).norm())
            for total, gradient in zip(expected, gradients, strict=True):
                total += gradient * min(1.0, 0.3 / (norm + 1e-6))
        criterion(model(x), y).backward()
        optimizer.step()
        for p, total in zip(optimizer.params, expected, strict=True):
            torch.testing.assert_close(p.grad * SCHEME.expected_batch_size, total, rtol=1e-4, atol=1e-5)
    assert {0, 1, 2, 3, 4} <= sizes


def _plainly(model, optimizer, criterion, x, y):
    nn.functional.cross_entropy(model(x), y).backward()


def _added(model, optimizer, criterion, x, y):
    criterion(model(x), y).backward()
    with torch.no_grad():
        optimizer.params[0].grad.add_(1.0)


def _forgotten(model, optimizer, criterion, x, y):
    criterion(model(x), y).backward()
    optimizer.zero_grad()


def _part(model, optimizer, criterion, x, y):
    criterion(model(x[:4]), y[:4]).backward()


@pytest.mark.parametrize(
    ("spoil", "match"),
    [(_plainly, "may not be clipped"), (_added, "may not be clipped"), (_forgotten, "may not be clipped"),
     (_part, r"losses of shape \(4,\) are not one for each of a batch's 6 rows")],
)  # fmt: skip
def test_ghost_clipping_takes_only_the_gradients_of_its_own_loss(spoil, match):
    engine, model, optimizer, criterion, run = made("ghost")
    before = [p.detach().clone() for p in model.parameters()]

    def attempt():
        spoil(model, optimizer, criterion, *next(iter(run)))
        optimizer.step()

    with pytest.raises(filet.StateError, match=match):
        attempt()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert len(engine.accountant) == 0


def test_ghost_clipping_allows_arithmetic_on_the_loss():
    engine, model, optimizer, criterion, run = made("ghost")
    for x, y in run:
        optimizer.zero_grad()
        (0.5 * criterion(model(x), y) + 1.0).backward()
        optimizer.step()
    assert len(engine.accountant) == 30


def test_ghost_clipping_refuses_a_model_that_makes_padding_infinite():
    class Hostile(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, tokens):
            return self.layer(tokens / tokens.float().norm(dim=1, keepdim=True))

    engine, model, optimizer, criterion, run = made("ghost", model=Hostile())

    def attempt():
        for x, y in run:
            before[:] = [p.detach().clone() for p in model.parameters()]
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()

    before = []
    with pytest.raises(filet.StateError, match="rows of zeros, the padding; use grad_sample_mode='hooks'"):
        attempt()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert len(engine.accountant) == run.state_dict()["step"] < 30


def _rank(rank, world_size, path, queue):
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world_size)
    try:
        torch.manual_seed(3)
        model = DifferentiallyPrivateDistributedDataParallel(Words())
        weights, engine = trained(mode="ghost", physical=1, model=model, noise=0.0, steps=8)
        queue.put((rank, [p.numpy().tolist() for p in weights], len(engine.accountant)))
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def test_ghost_clipping_on_two_ranks_trains_as_one(tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    group = multiprocessing.spawn(_rank, (2, tmp_path / "store", queue), nprocs=2, join=False)  # type: ignore[attr-defined]
    parts = sorted(queue.get() for _ in range(2))
    while not group.join():
        pass
    whole, _ = trained(noise=0.0, steps=8)
    for _, weights, steps in parts:
        assert steps == 8
        for p, q in zip(whole, weights, strict=True):
            np.testing.assert_allclose(p.numpy(), q, rtol=1e-4, atol=1e-5)
