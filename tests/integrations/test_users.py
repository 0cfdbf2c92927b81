"""Users as what is sampled, capped, clipped and accounted for: in loaders, the Opacus engine and Hugging Face's Trainer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from tests.integrations.quiet import TRANSFORMERS
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.huggingface import CappedTrainer
from filet.integrations.opacus import CappedPrivacyEngine, read_checkpoint
from filet.integrations.torch import Users, loader
from filet.showing.record import verify

pytestmark = TRANSFORMERS
KEY = b"a key for the tests of users"
OWNERS = np.random.default_rng(0).choice(["ann", "bob", "cy", "dot", "eve", "flo", "gus", "hal", "ida"], 60)
COUNT = len(set(OWNERS))
SCHEME = filet.CappedPoisson(COUNT, 0.4, 5)  # of users
ROWS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
DATA = TensorDataset(ROWS, torch.arange(60) % 3)
STEPS, CLIP, RATE, EACH = 6, 0.8, 0.5, 3


def users(each=EACH):
    return Users(OWNERS, examples_per_user=each)


def started(*, noise=0.0, steps=STEPS, mode="hooks", **options):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    options = {"users": users(), **options}
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=steps, key=KEY, **options)
    made, optimizer, *_, run = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=RATE), data_loader=DataLoader(DATA),
        noise_multiplier=noise, max_grad_norm=CLIP, grad_sample_mode=mode,
    )  # fmt: skip
    return engine, made, optimizer, run


def train(made, steps=None):
    _, model, optimizer, run = made
    for number, (x, y) in enumerate(run, start=1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if number == steps:
            break
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def rows_of(user, step, each=EACH):
    """A user's examples at a step, by hand: in order, round and round."""
    own = np.flatnonzero(np.sort(np.unique(OWNERS))[user] == OWNERS)
    return [int(own[(step * each + turn) % len(own)]) for turn in range(each)]


def by_hand(reduction):
    """DP-SGD on users without noise, by plain autograd: each user's gradient is clipped once."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    sampler = SCHEME.sampler(KEY)
    for step in range(STEPS):
        total = [torch.zeros_like(p) for p in model.parameters()]
        for user in (index for index in sampler[step].indices if index >= 0):
            rows = rows_of(user, step)
            loss = nn.functional.cross_entropy(model(ROWS[rows]), DATA.tensors[1][rows], reduction=reduction)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            norm = torch.sqrt(sum(g.square().sum() for g in gradients))
            for one, gradient in zip(total, gradients, strict=True):
                one += gradient * min(1.0, CLIP / (float(norm) + 1e-6))
        with torch.no_grad():
            for p, gradient in zip(model.parameters(), total, strict=True):
                p -= RATE * gradient / SCHEME.expected_batch_size
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_users_gradient_is_clipped_once_as_in_a_hand_made_loop(reduction):
    made = started(user_gradient=reduction)
    assert torch.allclose(train(made), by_hand(reduction), atol=1e-6)
    other = by_hand("sum" if reduction == "mean" else "mean")
    assert not torch.allclose(by_hand(reduction), other, atol=1e-3)  # the two are not one
    assert made[-1].mask.shape == (SCHEME.max_batch_size * EACH,)


@pytest.mark.parametrize("options", [{"physical_batch_size": EACH}, {"physical_batch_size": 5 * EACH}])
def test_parts_of_batches_keep_users_together(options):
    assert torch.allclose(train(started(**options)), by_hand("mean"), atol=1e-6)


def test_one_user_moves_the_sum_by_at_most_the_clipping_norm():
    """All of a user's examples changed at once, to something extreme: the sum moves by twice the norm at most."""
    plain = train(started(steps=1))
    user = int(SCHEME.sampler(KEY)[0].indices[0])
    own = np.flatnonzero(np.sort(np.unique(OWNERS))[user] == OWNERS)
    before = ROWS[own].clone()
    try:
        ROWS[own] = 1_000.0
        moved = float((train(started(steps=1)) - plain).norm()) / RATE * SCHEME.expected_batch_size
    finally:
        ROWS[own] = before
    assert 0 < moved <= 2 * CLIP * (1 + 1e-4)


def test_epsilon_is_that_of_the_scheme_of_users():
    made = started(noise=1.0)
    train(made)
    curve = filet.account(SCHEME, noise_multiplier=1.0, steps=STEPS, adjacency="zero-out")
    assert made[0].get_epsilon(1e-4) == curve.epsilon(1e-4)


def test_statement_and_record_say_user():
    made = started(noise=1.0)
    train(made)
    words = " ".join(made[0].statement(1e-4).split())
    assert f"every one of the {COUNT} users independently" in words
    assert "neighbours if one user of one is a zero vector" in words
    assert "one user at a time" in words
    found = made[0].record(1e-4)
    assert found["privacy_unit"]["unit"] == "all examples of one user"
    assert "users" in found["mechanism"]["words"][0]
    assert "example" not in found["privacy_unit"]["neighbours"]
    assert verify(found) == []
    lied = {**found, "privacy_unit": {**found["privacy_unit"], "unit": "one example of the training data"}}
    assert any("neighbours" in line for line in verify(lied))


def test_a_resumed_run_ends_with_the_same_weights_and_another_assignment_is_refused(tmp_path):
    whole = train(started(noise=1.0))
    part = started(noise=1.0)
    train(part, 3)
    part[0].save_checkpoint(path=tmp_path / "run.pt", module=part[1])
    rest = started(noise=1.0)
    rest[0].load_checkpoint(path=tmp_path / "run.pt", module=rest[1])
    assert torch.equal(train(rest), whole)
    other = started(noise=1.0, users=users(2))
    with pytest.raises(filet.StateError, match="another users"):
        other[0].load_checkpoint(path=tmp_path / "run.pt", module=other[1])
    with pytest.raises(filet.StateError, match=r"use record\(\) of the engine"):
        read_checkpoint(tmp_path / "run.pt")


def test_loaders_hand_out_each_users_rows_one_after_the_other():
    sampler = SCHEME.sampler(KEY)
    numbered = TensorDataset(torch.arange(1, 61))  # padding is 0
    for step, ((x,), mask) in enumerate(loader(numbered, SCHEME, steps=STEPS, key=KEY, users=users())):
        wanted = [row + 1 for user in sampler[step].indices if user >= 0 for row in rows_of(user, step)]
        assert x.tolist() == wanted + [0] * (len(x) - len(wanted))
        assert len(x) == SCHEME.max_batch_size * EACH
        assert int(mask.sum()) == len(wanted)


def test_ranks_share_users_and_part_none():
    whole = [set(batch.indices.tolist()) - {-1} for batch in (SCHEME.sampler(KEY)[step] for step in range(STEPS))]
    numbered = TensorDataset(torch.arange(60))
    seen = [set() for _ in range(STEPS)]
    ids = np.unique(OWNERS, return_inverse=True)[1]
    for rank in range(2):
        run = loader(numbered, SCHEME, steps=STEPS, key=KEY, users=users(), rank=rank, world_size=2)
        for step, ((x,), mask) in enumerate(run):
            assert len(x) == 3 * EACH
            found = ids[x[mask].numpy()].reshape(-1, EACH)
            assert (found == found[:, :1]).all()
            assert not seen[step] & set(found[:, 0].tolist())
            seen[step] |= set(found[:, 0].tolist())
    assert seen == whole


def test_hugging_faces_trainer_clips_users(tmp_path):
    """Words and labels by hand: a user's mean gradient over his rows, clipped once; without noise, by SGD."""

    class Scores(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 3)

        def forward(self, features):
            return transformers.modeling_outputs.SequenceClassifierOutput(logits=self.out(features))

    torch.manual_seed(0)
    model = nn.Linear(4, 3)  # the weights of the hand-made loop
    scores = Scores()
    scores.out.load_state_dict(model.state_dict())
    engine = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=STEPS, key=KEY, users=users())
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, learning_rate=RATE,
        lr_scheduler_type="constant", remove_unused_columns=False, logging_strategy="no", optim="sgd",
    )  # fmt: skip
    rows = [{"features": x, "labels": y} for x, y in (DATA[i] for i in range(len(DATA)))]
    run = CappedTrainer(
        model=scores, args=args, train_dataset=rows, engine=engine, clipping_norm=CLIP, noise_multiplier=0.0,
        grad_sample_mode="hooks", data_collator=transformers.default_data_collator,
    )  # fmt: skip
    run.train()
    found = torch.cat([p.detach().flatten() for p in scores.parameters()])
    assert torch.allclose(found, by_hand("mean"), atol=1e-6)
    assert len(engine.accountant) == STEPS


def test_wrong_users_are_refused():
    with pytest.raises(filet.InvalidArgumentError, match=r"user_ids names 2 users, not scheme\.dataset_size="):
        started(users=Users([0, 1, 1], 2))
    with pytest.raises(filet.InvalidArgumentError, match="user_ids names the users of 59; pass one id"):
        started(users=Users(OWNERS[:59], 2))
    with pytest.raises(filet.InvalidArgumentError, match="a user's gradient is of several; use 'hooks'"):
        started(mode="ghost")
    with pytest.raises(filet.InvalidArgumentError, match="would part the 3 rows of a user"):
        started(physical_batch_size=5)
    with pytest.raises(filet.InvalidArgumentError, match="user_gradient='max'"):
        started(user_gradient="max")
    with pytest.raises(filet.InvalidArgumentError, match="examples_per_user=0"):
        Users(OWNERS, 0)
    with pytest.raises(filet.InvalidArgumentError, match="is not one per example"):
        Users([[1, 2]], 2)


def test_a_data_set_that_grows_is_refused_with_users_too():
    data = TensorDataset(torch.arange(60))
    run = iter(loader(data, SCHEME, steps=STEPS, key=KEY, users=users()))
    next(run)
    data.tensors = (torch.arange(61),)
    with pytest.raises(filet.InvalidArgumentError, match="dataset has 61 examples"):
        next(run)
