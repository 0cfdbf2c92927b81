"""Training loops that would cost more than is reported, each refused before the model changes, or done right."""

from __future__ import annotations

import pytest
import torch
from opacus.accountants import RDPAccountant
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.schedulers import ExponentialGradClip
from tests.integrations.opacus_runs import train
from tests.integrations.quiet import OPACUS
from tests.integrations.torch_ranks import two_ranks
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.opacus import CappedPrivacyEngine

pytestmark = OPACUS


KEY = b"a key for the tests of attacks"
SCHEME = filet.CappedPoisson(dataset_size=40, sampling_probability=0.3, max_batch_size=20)
ROWS = 100 * torch.randn(40, 6, generator=torch.Generator().manual_seed(0))  # gradients far above any norm
DATA = TensorDataset(ROWS, torch.arange(40) % 3)


def start(mode="hooks", *, wrap=lambda model: model, noise=1.0, physical=None, **options):
    torch.manual_seed(3)
    model = wrap(nn.Linear(6, 3))
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=12, key=KEY, physical_batch_size=physical)
    defaults = {"noise_multiplier": noise, "max_grad_norm": 1.0, "grad_sample_mode": mode}
    model, optimizer, *criterion, run = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data_loader=DataLoader(DATA),
        **{**defaults, **options},
    )  # fmt: skip
    return engine, model, optimizer, criterion[0] if criterion else nn.CrossEntropyLoss(), run


def noise_of(optimizer):
    (p, *_) = optimizer.params
    return p.grad * SCHEME.expected_batch_size - p.summed_grad


def total(optimizer):
    return float(torch.cat([p.summed_grad.flatten() for p in optimizer.params]).norm())


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_scheduled_norm_clips_as_it_scales_the_noise(mode):
    made = start(mode, noise=0.0)
    optimizer = made[2]
    schedule = ExponentialGradClip(optimizer, gamma=0.001)
    train(made, 1)
    assert total(optimizer) > 0.5
    schedule.step()
    train(made, 1)
    assert total(optimizer) <= 0.001 * SCHEME.max_batch_size


def test_a_scheduled_norm_is_refused_where_clipping_does_not_follow():
    made = start(clipping="per_layer", max_grad_norm=[1.0, 1.0])
    train(made, 1)
    ExponentialGradClip(made[2], gamma=0.5).step()
    with pytest.raises(filet.StateError, match=r"clipped to 1\.41.*noise is for max_grad_norm=0\.70"):
        train(made, 1)
    assert len(made[0].accountant) == 1


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_norm_that_changes_between_the_parts_of_a_batch_is_refused(mode):
    made = start(mode, physical=10)
    batches = iter(made[-1])
    engine, model, optimizer, criterion, run = made
    for _ in range(2):
        x, y = next(batches)
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        if run.ends_batch:
            with pytest.raises(filet.StateError, match=r"max_grad_norm=0\.001 is not the 1\.0"):
                optimizer.step()
        else:
            optimizer.step()
            optimizer.max_grad_norm = 0.001
    assert len(engine.accountant) == 0


def penalty(model):
    return 1e3 * sum((p**2).sum() for p in model.parameters())


def scaled(loss, term):
    return 0.5 * loss + term


@pytest.mark.parametrize(
    "combine",
    [lambda loss, term: loss + term, lambda loss, term: term + loss, lambda loss, term: loss - term,
     lambda loss, term: term - loss, lambda loss, term: loss * term, lambda loss, term: loss / term,
     lambda loss, term: -loss + term, scaled],
)  # fmt: skip
def test_ghost_clipping_refuses_terms_that_it_cannot_clip(combine):
    _, model, _, criterion, run = start("ghost")
    x, y = next(iter(run))
    with pytest.raises((filet.StateError, TypeError), match=r"would not be clipped|unsupported operand"):
        combine(criterion(model(x), y), penalty(model))


def test_ghost_clipping_refuses_a_sum_larger_than_clipped_gradients_have():
    class Penalised(nn.CrossEntropyLoss):
        def forward(self, logits, labels):
            return super().forward(logits, labels) + penalty(model)

    engine, model, _, criterion, run = start("ghost", criterion=Penalised())
    x, y = next(iter(run))
    loss = criterion(model(x), y)
    with pytest.raises(filet.StateError, match=r"'bias' is in the loss past .* bypasses the clipping.*weight_decay"):
        loss.backward()
    assert len(engine.accountant) == 0


def test_an_accountant_that_missed_steps_reports_no_epsilon():
    made = start()
    made[2].attach_step_hook(None)
    train(made, 1)
    with pytest.raises(filet.StateError, match="counted 0 steps, but the loader is at step 1"):
        made[0].get_epsilon(1e-3)
    made = start()
    train(made, 3)
    made[0].accountant = RDPAccountant()
    with pytest.raises(filet.StateError, match="accountant was replaced"):
        made[0].get_epsilon(1e-3)


def test_pieces_restored_one_by_one_would_repeat_the_noise_and_are_refused():
    made = start()
    engine, model, optimizer, _, run = made
    train(made, 1)
    first = noise_of(optimizer)
    train(made, 9)
    pieces = engine.accountant.state_dict(), run.state_dict(), model.state_dict()
    whole = engine.state_dict()

    # The same seed as the run had at its beginning, as most scripts set one.
    made = start()
    engine, model, optimizer, _, run = made
    engine.accountant.load_state_dict(pieces[0])
    model.load_state_dict(pieces[2])
    with pytest.raises(filet.StateError, match="noise would begin again"):
        run.load_state_dict(pieces[1])
    with pytest.raises(filet.StateError, match="at step 0"):
        train(made, 1)

    made = start()
    made[0].load_state_dict(whole)
    train(made, 1)
    assert not torch.allclose(noise_of(made[2]), first, atol=1e-3)


def refusal(call, *arguments):
    with pytest.raises(filet.StateError) as raised:
        call(*arguments)
    return str(raised.value)


def _ranks_apart(rank, path, queue):
    alone = start()
    distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    try:
        # Every rank would train its own model on whole batches.
        late = refusal(train, alone, 1)

        made = start(wrap=DifferentiallyPrivateDistributedDataParallel)
        train(made, 4)
        everyone = [None, None]
        distributed.all_gather_object(everyone, made[0].state_dict())

        # Rank 1 forgets to load what rank 0 loads: its examples would be drawn twice with one step's probability.
        made = start(wrap=DifferentiallyPrivateDistributedDataParallel)
        if rank == 0:
            made[0].load_state_dict(everyone[0])
        apart = refusal(train, made, 1)

        # Rank 1 saved, rank 0 loads: only rank 0 adds noise of the given generator, and would begin it again.
        made = start(wrap=DifferentiallyPrivateDistributedDataParallel, noise_generator=torch.Generator())
        distributed.all_gather_object(everyone, made[0].state_dict())
        silent = refusal(made[0].load_state_dict, everyone[1])
        queue.put((rank, late, apart, silent))
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def test_ranks_that_join_late_are_at_different_steps_or_load_a_silent_ranks_checkpoint_are_refused(tmp_path):
    found = sorted(two_ranks(_ranks_apart, tmp_path / "store"))
    for _, late, apart, silent in found:
        assert "dealt to world_size=1 when this loader was made" in late
        assert "between steps 0 and 4; load the same checkpoint on all ranks" in apart
        assert "saved by rank 1, which does not have this noise" in silent
