"""Opacus with capped batches: padding is nothing, the divisor a constant, the accountant filet's."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import torch
from opacus.accountants import RDPAccountant
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from tests.integrations.opacus_engines import DATA, KEY, ROWS, SCHEME, engine_for, private, train
from tests.integrations.quiet import OPACUS
from tests.integrations.torch_ranks import two_ranks
from torch import distributed, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import filet
from filet.integrations.opacus import CappedAccountant
from filet.integrations.torch import loader as capped_loader

pytestmark = OPACUS


class Dot(nn.Module):
    """Its loss is the inner product with the example, so that the example is the gradient."""

    def __init__(self, width=6):
        super().__init__()
        self.layer = nn.Linear(width, 1, bias=False)

    def forward(self, x):
        return self.layer(x)


def test_the_noiseless_gradient_is_the_accounted_sum_over_a_constant():
    model, optimizer, run = private(engine_for(), Dot(), noise_multiplier=0.0)
    sizes = set()
    for step, (x, _) in enumerate(run):
        assert x.shape == (4, 6)
        sizes.add(int(run.mask.sum()))
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
        total = filet.noisy_sum(ROWS.numpy(), SCHEME, noise_multiplier=0.0, key=KEY, step=step)
        gradient = next(model.parameters()).grad.numpy().ravel()
        np.testing.assert_allclose(gradient * SCHEME.expected_batch_size, total, atol=5e-6)
    assert sizes == {0, 1, 2, 3, 4}


def test_the_noise_has_the_accounted_standard_deviation():
    scheme = filet.CappedPoisson(dataset_size=40, sampling_probability=1e-9, max_batch_size=4)
    rows = TensorDataset(torch.ones(40, 500), torch.zeros(40))
    engine = engine_for(scheme, steps=40)
    model, optimizer, run = private(
        engine,
        Dot(500),
        rows,
        noise_multiplier=1.7,
        max_grad_norm=0.3,
        noise_generator=torch.Generator().manual_seed(1),
    )
    noise = []
    for x, _ in run:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
        noise.append(next(model.parameters()).grad.numpy().ravel() * scheme.expected_batch_size)
    values = np.concatenate(noise) / (1.7 * 0.3)
    # 20 000 standard normals: mean and variance within five standard errors.
    assert abs(values.mean()) < 5 / math.sqrt(values.size)
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / values.size)


class Hostile(nn.Module):
    """Gives padding (rows of zeros) gradients of NaN, and others that are far from zero."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(x / x.norm(dim=1, keepdim=True) + 3.0)


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_padding_contributes_exactly_nothing_to_per_example_gradients(clipping, mode):
    torch.manual_seed(0)
    model = Hostile()
    norm = [0.3, 0.3] if clipping == "per_layer" else 0.5
    model, optimizer, run = private(
        engine_for(), model, noise_multiplier=0.0, clipping=clipping, grad_sample_mode=mode, max_grad_norm=norm, lr=0.1
    )
    for x, y in run:
        mask = run.mask
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        per_example = [p.grad_sample.clone() for p in optimizer.params]
        optimizer.step()
        if not mask.all():
            assert per_example[0][~mask].isnan().any()
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in per_example], dim=1)
        for number, (p, g) in enumerate(zip(optimizer.params, per_example, strict=True)):
            assert torch.all(p.grad_sample[~mask] == 0)
            length = norms[:, number] if clipping == "per_layer" else norms.norm(dim=1)
            bound = norm[number] if clipping == "per_layer" else norm
            factor = (bound / (length[mask] + 1e-6)).clamp(max=1.0)
            expected = torch.einsum("i,i...", factor, g[mask]) / SCHEME.expected_batch_size
            torch.testing.assert_close(p.grad, expected.reshape(p.shape), rtol=1e-5, atol=1e-6)


def test_make_private_with_epsilon_meets_the_target_with_little_to_spare():
    engine = engine_for(steps=20, epoch_steps=10)
    model = nn.Linear(6, 3)
    model, optimizer, run = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(DATA),
        target_epsilon=2.0,
        target_delta=1e-4,
        epochs=2,
        max_grad_norm=1.0,
    )
    for _ in range(2):
        train(model, optimizer, run)
    assert 1.99 < engine.get_epsilon(1e-4) <= 2.0


def test_other_batches_are_refused_before_the_model_changes():
    model, optimizer, run = private(engine_for(), nn.Linear(6, 3))
    before = [p.detach().clone() for p in model.parameters()]

    def backward(x, y):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()

    backward(*next(iter(DataLoader(DATA, batch_size=4))))
    with pytest.raises(filet.StateError, match="0 batches were drawn"):
        optimizer.step()
    batches = iter(run)
    next(batches)
    with pytest.raises(filet.StateError, match=r"of step 0\) had no accounted step"):
        next(batches)
    batches = iter(run)
    x, y = next(batches)
    backward(x[:3], y[:3])
    with pytest.raises(filet.StateError, match="gradients of 3 rows"):
        optimizer.step()
    backward(*next(batches))
    with pytest.raises(filet.StateError, match="a batch before this one had no step"):
        optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    backward(*next(iter(run)))
    optimizer.step()
    with pytest.raises(filet.StateError, match="0 batches were drawn"):
        optimizer.step()


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DATA)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"data_loader": DataLoader(TensorDataset(ROWS[:39]))}, "39 examples"),
        ({"data_loader": DataLoader(Stream())}, "map-style"),
        ({"data_loader": capped_loader(DATA, SCHEME, 3)}, "plain DataLoader"),
        ({"poisson_sampling": False}, "poisson_sampling=False"),
        ({"clipping": "adaptive"}, "clipping='adaptive'"),
        ({"grad_sample_mode": "ghost_fsdp"}, "grad_sample_mode='ghost_fsdp'"),
        ({"grad_sample_mode": "ghost", "clipping": "per_layer"}, "ghost clipping='per_layer'"),
        ({"batch_first": False}, "batch_first=False"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(options, match):
    with pytest.raises(filet.InvalidArgumentError, match=match):
        private(engine_for(), nn.Linear(6, 3), **options)


def test_another_accountant_another_rate_and_contradicting_epochs_are_refused():
    engine = engine_for()
    engine.accountant = RDPAccountant()
    with pytest.raises(filet.InvalidArgumentError, match="accountant"):
        private(engine, nn.Linear(6, 3))
    with pytest.raises(filet.InvalidArgumentError, match="sample_rate="):
        CappedAccountant(SCHEME, adjacency="zero-out").step(noise_multiplier=1.0, sample_rate=0.1)
    with pytest.raises(filet.InvalidArgumentError, match="epochs=2"):
        engine_for().make_private_with_epsilon(target_epsilon=1.0, target_delta=1e-4, epochs=2)
    with pytest.raises(filet.InvalidArgumentError, match="analysis='note'"):
        engine_for(filet.CappedPoisson(40, 0.05, 4, overflow="reject"), analysis="note")


def test_an_engine_has_one_loader_only():
    for key in (KEY, None):
        with pytest.warns(UserWarning, match="include_key=True") if key is None else contextlib.nullcontext():
            engine = engine_for(key=key)
        private(engine, nn.Linear(6, 3))
        with pytest.raises(filet.InvalidArgumentError, match="new key"):
            private(engine, nn.Linear(6, 3))
    with pytest.raises(filet.StateError, match="no batch was handed out yet"):
        private(engine_for(), nn.Linear(6, 3))[2].mask  # noqa: B018


def test_a_refused_call_may_be_repeated():
    engine = engine_for()
    with pytest.raises(ValueError, match="loss_reduction"):
        private(engine, nn.Linear(6, 3), loss_reduction="median")
    train(*private(engine, nn.Linear(6, 3)))


def test_small_a_run_of_no_steps_is_refused():
    with pytest.raises(filet.InvalidArgumentError, match=r"steps=0 is below 1.*whole run"):
        engine_for(steps=0)


def _rank(rank, world_size, path, queue):
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=world_size)
    try:
        try:
            private(engine_for(steps=10), nn.Linear(6, 3))
        except filet.InvalidArgumentError as error:
            refusal = str(error)
        torch.manual_seed(0)
        model = DifferentiallyPrivateDistributedDataParallel(nn.Linear(6, 3))
        engine = engine_for(steps=10)
        model, optimizer, run = private(engine, model, noise_multiplier=0.0, lr=0.1)
        train(model, optimizer, run)
        queue.put((rank, [p.detach().numpy().tolist() for p in model.parameters()], len(engine.accountant), refusal))
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def test_two_ranks_train_as_one_and_ranks_without_ddp_are_refused(tmp_path):
    parts = sorted(two_ranks(_rank, 2, tmp_path / "store"))
    torch.manual_seed(0)
    model, optimizer, run = private(engine_for(steps=10), nn.Linear(6, 3), noise_multiplier=0.0, lr=0.1)
    train(model, optimizer, run)
    for _, weights, steps, refusal in parts:
        assert steps == 10
        assert "module of type Linear is not distributed, but there are 2 ranks; wrap it in" in refusal
        for p, q in zip(model.parameters(), weights, strict=True):
            np.testing.assert_allclose(p.detach().numpy(), q, rtol=1e-5, atol=1e-6)
