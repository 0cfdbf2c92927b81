"""JAX Privacy's `DPTrainer` on filet's config: one shape for every draw, and resumed runs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax_privacy import execution_plan, training

from filet.integrations.dp_accounting import FiletAccountant
from filet.integrations.jax_privacy import CappedConfig, account_plan

ROWS = 500
DATA = {
    "x": np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32),
    "y": np.arange(ROWS, dtype=np.float32) % 2,
}
CONFIG = execution_plan.BandMFConfig(
    strategy=np.array([0.9, 0.4]), iterations=12, expected_participations=0.3, truncated_batch_size=24,
    num_examples=ROWS,
).calibrate(epsilon=2.0, delta=1e-5, accountant_fn=FiletAccountant)  # fmt: skip


def loss(params, batch, prng):
    return jnp.sum((batch["x"] @ params - batch["y"]) ** 2), {}


def trainer(config, **options):
    return training.DPTrainer(config=config, loss_fn=loss, optimizer=optax.sgd(0.1), **options)


def shapes(config, strategy, seed):
    """The sizes of batch for which a trainer compiles its step."""
    made = trainer(config, compilation_strategy=strategy)
    resolved, futures = made._precompile(DATA, jnp.zeros(3), rng_or_seed=seed)
    for future in futures.values():
        future.result()
    return tuple(sorted(futures)), resolved.compilation_strategy.multiple


def test_noise_calibrated_by_filets_accountant_costs_what_was_asked_for():
    plan = CappedConfig(CONFIG, key=b"one key of this test").make()
    assert 1.99 < account_plan(plan, adjacency="zero-out").epsilon(1e-5) <= 2.0


def test_a_trainer_killed_and_resumed_ends_with_the_same_weights():
    config = CappedConfig(CONFIG, key=b"one key of a trainer's run")
    states = {}

    def keep(step, state, aux):
        states[step] = jax.tree.map(jnp.copy, state)

    whole = trainer(config).fit(DATA, jnp.zeros(3), callback=keep)
    assert len(states) == CONFIG.iterations
    again = CappedConfig(CONFIG, key=b"one key of a trainer's run")  # as a new process makes it
    resumed = trainer(again).fit(DATA, states[5])
    assert np.array_equal(whole.params, resumed.params)
    other = trainer(CappedConfig(CONFIG, key=b"another key of a run")).fit(DATA, jnp.zeros(3))
    assert not np.array_equal(whole.params, other.params)
    assert np.isfinite(whole.params).all()


@pytest.mark.parametrize("strategy", [training.PadToMultiple(multiple=4), training.AutotuneMicrobatch()])
def test_what_is_compiled_depends_on_the_draw_in_jax_privacys_own_config_and_not_in_filets(strategy):
    own = {shapes(CONFIG, strategy, seed) for seed in (2, 3)}
    ours = {shapes(CappedConfig(CONFIG, key=bytes([seed]) * 16), strategy, seed) for seed in (2, 3)}
    assert len(own) > 1
    assert len(ours) == 1
    ((compiled, _),) = ours
    assert len(compiled) == 1
    assert compiled[0] >= 24


def test_the_pages_lines_train():
    page = (Path(__file__).resolve().parents[3] / "docs" / "integrations.md").read_text(encoding="utf-8")
    (lines,) = [block for block in re.findall(r"```{code-block} python\n(.*?)```", page, re.S) if "DPTrainer" in block]
    changes = {"iterations=1_000": "iterations=10", "expected_participations=8": "expected_participations=0.3"}
    for old, new in {**changes, "num_examples=30_000": "num_examples=500", "=320": "=24"}.items():
        assert lines.count(old) == 1
        lines = lines.replace(old, new)
    names = {"np": np, "key": b"the key of a page's run", "loss_fn": loss, "optimizer": optax.sgd(0.1)}
    exec(lines, {**names, "dataset": DATA, "params": jnp.zeros(3)}, names)
    assert int(names["state"].step) == 10
    assert account_plan(names["trainer"].plan, adjacency="zero-out").epsilon(1e-6) <= 3.0


def test_microbatches_keep_the_sum_of_a_batch():
    config = CappedConfig(dataclasses.replace(CONFIG, noise_multiplier=1e-9), key=b"one key of two runs")
    flags = execution_plan.PerformanceFlags(microbatch_size=8)
    whole, parts = (trainer(config, **options).fit(DATA, jnp.zeros(3)).params
                    for options in ({}, {"performance_flags": flags}))  # fmt: skip
    np.testing.assert_allclose(whole, parts, rtol=1e-4, atol=1e-6)
