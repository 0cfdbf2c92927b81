"""Secret numbers of records in every integration: right batches, and an unmistakable number that nothing tells."""

from __future__ import annotations

import itertools
import json
import logging
import pickle
import warnings
from collections import Counter

import grain
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from jax_privacy.experimental import execution_plan
from tests.integrations.planted import PLANTED, folder_tells, tells
from tests.integrations.quiet import TRANSFORMERS
from tests.sampling.laws import assert_law
from tests.sampling.test_urn import secret_law
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.errors import InvalidArgumentError
from filet.integrations import grain as filet_grain
from filet.integrations import jax as filet_jax
from filet.integrations.dp_accounting import FiletAccountant
from filet.integrations.huggingface import CappedTrainer
from filet.integrations.jax_privacy import CappedPoissonSelection, CappedUserSelection, account_plan, capped_plan
from filet.integrations.keras import CappedKerasTraining
from filet.integrations.opacus import CappedPrivacyEngine, read_checkpoint
from filet.integrations.torch import CappedPoissonBatchSampler, loader

pytestmark = TRANSFORMERS

KEY = b"a key for the tests of records"
SECRET = filet.CappedPoisson(1_000, 0.01, 16, overflow="reject", size="secret")
AT_MOST = filet.CappedPoisson(100_000, 1e-4, 16, size="at-most")
SCHEMES = pytest.mark.parametrize("scheme", [SECRET, AT_MOST], ids=["secret", "at-most"])


def rows(count: int = PLANTED) -> TensorDataset:
    return TensorDataset(torch.arange(float(count)).reshape(-1, 1).repeat(1, 3) / count, torch.arange(count) % 2)


def expected(scheme, steps: int, count: int = PLANTED) -> list[list[int]]:
    return [batch.indices[: batch.size].tolist() for batch in scheme.sampler(KEY, records=count).batches(steps)]


def test_the_search_finds_what_it_looks_for() -> None:
    assert tells(f"n = {PLANTED}")
    assert tells(f"Num examples = {PLANTED:,}")
    assert tells(pickle.dumps(SECRET.sampler(KEY, records=PLANTED)))  # a secret: it holds the key, too
    assert not tells(repr(SECRET))


# --- PyTorch ----------------------------------------------------------------------------------------------------------


@SCHEMES
def test_torch_batches_are_those_of_the_true_number_and_lengths_those_of_the_planned_one(scheme) -> None:
    run = loader(rows(), scheme, epochs=0.3, key=KEY)
    small = loader(rows(400), scheme, epochs=0.3, key=KEY)
    steps = scheme.steps_of_epochs(0.3)
    assert len(run) == len(small) == steps == run.batch_sampler.steps
    found = [torch.round(x[mask][:, 0] * PLANTED).long().tolist() for (x, _), mask in run]
    assert found[:30] == expected(scheme, steps)[:30]
    for thing in (run, run.batch_sampler, run.scheme, vars(run.batch_sampler)["passes"], run.state_dict()):
        assert not tells(repr(thing))
    assert not tells(pickle.dumps(run.state_dict()))


@SCHEMES
def test_torch_resumes_and_refuses_changed_data_without_a_word_of_their_number(scheme) -> None:
    run = loader(rows(), scheme, steps=6, key=KEY)
    for _ in itertools.islice(run, 2):
        pass
    again = loader(rows(), scheme, steps=6, key=KEY)
    again.load_state_dict(json.loads(json.dumps(run.state_dict())))
    found = [torch.round(x[mask][:, 0] * PLANTED).long().tolist() for (x, _), mask in again]
    assert found == expected(scheme, 6)[2:]
    other = loader(rows(), scheme, steps=6, key=KEY)
    vars(other.dataset)["tensors"] = rows(PLANTED - 1).tensors
    with pytest.raises(InvalidArgumentError, match="another number of examples") as caught:
        next(iter(other))
    assert not tells(caught.value)
    own = CappedPoissonBatchSampler(scheme, 6, KEY, records=PLANTED)
    assert list(own) == expected(scheme, 6)
    with pytest.raises(InvalidArgumentError, match="needs the true number of records"):
        CappedPoissonBatchSampler(scheme, 6, KEY)
    with pytest.raises(InvalidArgumentError, match="leave it out"):
        CappedPoissonBatchSampler(filet.CappedPoisson(10, 0.1, 4), 6, KEY, records=10)


@SCHEMES
def test_a_planned_size_that_is_the_number_of_records_is_warned_of(scheme) -> None:
    data = torch.zeros(scheme.dataset_size, 1)
    with pytest.warns(UserWarning, match="computed from the data, it voids the guarantee"):
        loader(TensorDataset(data), scheme, steps=2, key=KEY)
    with pytest.warns(UserWarning, match="voids the guarantee"):
        filet_grain.batches(data.numpy(), scheme, 2, KEY)
    with pytest.warns(UserWarning, match="voids the guarantee"):
        next(CappedPoissonSelection(scheme, 2).batch_iterator(scheme.dataset_size, rng=KEY))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader(TensorDataset(data[1:]), scheme, steps=2, key=KEY)


def test_at_most_says_no_to_more_records_without_their_number() -> None:
    scheme = filet.CappedPoisson(1_000, 0.01, 16, size="at-most")
    with pytest.raises(InvalidArgumentError, match="above dataset_size=1000") as caught:
        loader(rows(), scheme, steps=2, key=KEY)
    assert not tells(caught.value)


# --- Opacus and Transformers ------------------------------------------------------------------------------------------


def engine(scheme, **options) -> CappedPrivacyEngine:
    return CappedPrivacyEngine(scheme, **{"adjacency": "add-remove", "steps": 6, "key": KEY, **options})


def private(made: CappedPrivacyEngine, data: TensorDataset):
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2)
    return made.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        data_loader=DataLoader(data, num_workers=0), noise_multiplier=1.0, max_grad_norm=1.0,
    )  # fmt: skip


@SCHEMES
def test_opacus_trains_on_a_secret_number_and_no_checkpoint_tells_it(scheme, tmp_path) -> None:
    made = engine(scheme)
    model, optimizer, run = private(made, rows())
    assert optimizer.expected_batch_size == scheme.expected_batch_size
    assert len(run) == 6
    for count, (x, y) in enumerate(run, 1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if count == 3:
            made.save_checkpoint(path=tmp_path / "run.pt", module=model)
    curve = filet.account(scheme, noise_multiplier=1.0, steps=6, adjacency="add-remove")
    assert made.get_epsilon(1e-5) == curve.epsilon(1e-5)
    assert not folder_tells(tmp_path)
    for thing in (made.state_dict(), made.record(1e-5), made.accountant.state_dict(), repr(made), repr(optimizer)):
        assert not tells(thing)
    assert read_checkpoint(tmp_path / "run.pt").size is scheme.size
    last = [p.detach().clone() for p in model.parameters()]
    other = engine(scheme)
    model, optimizer, run = private(other, rows())
    other.load_checkpoint(path=tmp_path / "run.pt", module=model)
    for x, y in run:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    for one, two in zip(last, model.parameters(), strict=True):
        assert torch.equal(one, two.detach())


class Texts(torch.utils.data.Dataset):
    """As many short texts as were planted."""

    def __len__(self) -> int:
        return PLANTED

    def __getitem__(self, index):
        return {"input_ids": [2 + index % 17, 3, 4, 5], "labels": [2 + index % 17, 3, 4, 5]}


@pytest.mark.long
@SCHEMES
def test_transformers_logs_and_saves_the_planned_number(scheme, tmp_path, capsys, caplog) -> None:
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        vocab_size=20, n_embd=16, n_layer=1, n_head=2, n_positions=8, bos_token_id=1, eos_token_id=1,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to=[], save_strategy="steps", save_steps=2, logging_steps=1,
        remove_unused_columns=False, log_level="info", seed=3,
    )  # fmt: skip
    logger = logging.getLogger("transformers")
    before = logger.level
    try:
        trainer = CappedTrainer(
            model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=Texts(),
            data_collator=transformers.default_data_collator, engine=engine(scheme, steps=4), clipping_norm=1.0,
            noise_multiplier=1.0, grad_sample_mode="hooks",
        )  # fmt: skip
        result = trainer.train()
    finally:
        transformers.utils.logging.set_verbosity(before or logging.WARNING)
    shown = "".join(capsys.readouterr()) + caplog.text
    assert f"Num examples = {scheme.dataset_size:,}" in shown
    assert not tells(shown)
    assert not tells(result)
    assert not tells(trainer.state)
    assert not folder_tells(tmp_path)
    assert trainer.num_examples(DataLoader(Texts())) == PLANTED  # of other data, such as an evaluation's


# --- JAX --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 4, 6, 7, 9])
def test_jax_draws_the_exact_law_of_a_secret_number_on_the_device(count) -> None:
    scheme = filet.CappedPoisson(6, 0.3, 3, overflow="reject", size="secret")
    draw = jax.jit(jax.vmap(filet_jax.device_sampler(scheme), in_axes=(None, 0, None)))
    indices, mask = draw(jax.random.key(11), jnp.arange(20_000), jnp.int32(count))
    assert jnp.array_equal(mask, indices >= 0)
    sets = Counter(tuple(i for i in row if i >= 0) for row in np.asarray(indices).tolist())
    assert_law(sets, secret_law(6, 0.3, 3, count))


def test_jax_compiles_no_number_of_records_and_draws_policy_rejects_batches_at_the_planned_one() -> None:
    draw = jax.jit(filet_jax.device_sampler(SECRET))
    key = filet_jax.secret_key(KEY, "batches")
    assert not tells(draw.lower(key, 3, PLANTED).compile().as_text())
    public = filet_jax.device_sampler(filet.CappedPoisson(1_000, 0.01, 16, overflow="reject"))
    for step in range(20):
        for one, two in zip(draw(key, step, 1_000), public(key, step), strict=True):
            assert jnp.array_equal(one, two)
        sizes = [int(draw(key, step, count)[1].sum()) for count in (1_000, PLANTED, 2**31 - 1)]
        assert len(set(sizes)) == 1  # no slot is empty, and the size is not the data's
    indices = np.concatenate([np.asarray(draw(key, step, 2**31 - 1)[0]) for step in range(60)])
    assert indices.max() > 2**30


def test_jax_refuses_what_would_tell_the_number() -> None:
    draw = filet_jax.device_sampler(SECRET)
    key = filet_jax.secret_key(KEY)
    with pytest.raises(InvalidArgumentError, match="needs the true number of records"):
        draw(key, 0)
    with pytest.raises(InvalidArgumentError, match="2\\*\\*31 - 1"):
        draw(key, 0, 2**31)
    with pytest.raises(InvalidArgumentError, match="leave it out"):
        filet_jax.device_sampler(filet.CappedPoisson(10, 0.1, 4))(key, 0, 10)
    with pytest.raises(InvalidArgumentError, match="compiled into the draw"):
        filet_jax.device_sampler(AT_MOST)
    with pytest.raises(InvalidArgumentError, match="below twice max_batch_size"):
        filet_jax.device_sampler(filet.CappedPoisson(20, 0.1, 16, overflow="reject", size="secret"))


@SCHEMES
def test_jax_reads_host_batches_of_a_secret_number(scheme) -> None:
    sampler = scheme.sampler(KEY, records=PLANTED)
    found = [np.asarray(x)[np.asarray(mask)].tolist() for x, mask in filet_jax.batches(np.arange(PLANTED), sampler, 5)]
    assert found == expected(scheme, 5)
    with pytest.raises(InvalidArgumentError, match="not as many rows") as caught:
        filet_jax.batches(np.arange(PLANTED - 1), sampler, 5)
    assert not tells(caught.value)


@SCHEMES
def test_jax_privacy_selects_examples_and_users_of_a_secret_number(scheme) -> None:
    selection = CappedPoissonSelection(scheme, 5)
    found = [row[row >= 0].tolist() for row in map(np.asarray, selection.batch_iterator(PLANTED, rng=KEY))]
    assert found == expected(scheme, 5)
    users = CappedUserSelection(scheme, 5)
    picked = [row[row >= 0].tolist() for row in map(np.asarray, users.batch_iterator(np.arange(PLANTED), rng=KEY))]
    assert picked == found
    assert not tells(repr(selection) + repr(users))
    small = list(selection.batch_iterator(3, rng=KEY))
    assert [len(row) for row in small] == [16] * 5


def test_jax_privacy_plans_with_a_secret_number_cost_what_filet_says() -> None:
    from dp_accounting import NeighboringRelation

    config = execution_plan.BandMFExecutionPlanConfig(
        strategy=np.ones(1), iterations=50, epsilon=2.0, delta=1e-6, sampling_prob=0.01,
        accountant=FiletAccountant(NeighboringRelation.REPLACE_SPECIAL),
    )  # fmt: skip
    plan = capped_plan(config, max_batch_size=16, dataset_size=1_000, size="secret", key=KEY)
    assert plan.batch_selection_strategy.scheme == SECRET
    assert account_plan(plan, adjacency="zero-out").epsilon(1e-6) <= 2.0
    curve = account_plan(plan, adjacency="add-remove")
    assert curve.size is filet.Size.SECRET
    assert curve.epsilon(1e-6) > 0


@SCHEMES
def test_grain_reads_batches_of_a_secret_number(scheme) -> None:
    for data in ({"x": np.arange(PLANTED), "y": [np.zeros(PLANTED)]}, grain.MapDataset.range(PLANTED).map(np.int64)):
        run = filet_grain.batches(data, scheme, 5, KEY)
        assert len(run) == 5
        read = iter(run.to_iter_dataset())
        found = []
        for batch in read:
            values = batch["data"]["x"] if isinstance(data, dict) else batch["data"]
            found.append(values[batch["mask"]].tolist())
        assert found == expected(scheme, 5)
        assert not tells(read.get_state())
        assert not tells(repr(run))
    sampler = scheme.sampler(KEY, records=PLANTED)
    with pytest.raises(InvalidArgumentError, match="another number of records") as caught:
        filet_grain.CappedBatchSource(grain.MapDataset.range(PLANTED - 1), sampler, 5)
    assert not tells(caught.value)


@pytest.mark.long
@SCHEMES
@pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")
def test_keras_trains_on_a_secret_number_and_saves_the_planned_one(scheme, tmp_path, capsys) -> None:
    import keras

    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=keras.losses.BinaryCrossentropy(from_logits=True))
    options = {"adjacency": "add-remove", "steps": 4, "clipping_norm": 1.0, "noise_multiplier": 1.0, "key": KEY}
    with pytest.raises(InvalidArgumentError, match="needs the true number of records"):
        CappedKerasTraining(model, scheme, **options)
    run = CappedKerasTraining(model, scheme, **options, records=PLANTED)
    x, y = (part.numpy() for part in rows().tensors)
    with pytest.raises(InvalidArgumentError, match="not as many rows") as caught:
        run.fit(x[1:], y[1:, None].astype(np.float32))
    assert not tells(caught.value)
    run.fit(x, y[:, None].astype(np.float32), epochs=2)
    model.save_weights(tmp_path / "run.weights.h5")
    assert not folder_tells(tmp_path)
    assert not tells("".join(capsys.readouterr()))
    assert not tells(run.record(1e-5))
    assert run.epsilon(1e-5) == filet.account(scheme, noise_multiplier=1.0, steps=4, adjacency="add-remove").epsilon(
        1e-5
    )
