"""Ghost clipping: padding is masked, and only the gradients of its own loss are taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from tests.integrations.opacus_memory import assert_close, made, trained
from tests.integrations.opacus_runs import SCHEME, Words
from tests.integrations.quiet import OPACUS
from tests.integrations.torch_ranks import two_ranks
from torch import distributed, nn

import filet

pytestmark = [
    *OPACUS,
    pytest.mark.filterwarnings("ignore:In CPU autocast"),  # of Opacus, in functorch mode
]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_ghost_clipping_equals_hooks_to_rounding(reduction):
    hooks, engine = trained(reduction=reduction)
    ghost, other = trained(mode="ghost", reduction=reduction)
    assert_close(ghost, hooks)
    assert other.get_epsilon(1e-3) == engine.get_epsilon(1e-3)


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
    parts = sorted(two_ranks(_rank, 2, tmp_path / "store"))
    whole, _ = trained(noise=0.0, steps=8)
    for _, weights, steps in parts:
        assert steps == 8
        for p, q in zip(whole, weights, strict=True):
            np.testing.assert_allclose(p.numpy(), q, rtol=1e-4, atol=1e-5)
