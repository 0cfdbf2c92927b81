"""The budget of a run: public values, certified epsilons, and a stop before it is exceeded."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import filet
from filet.integrations.opacus import CappedPrivacyEngine
from filet.integrations.tracking import Budget

SCHEME = filet.CappedPoisson(100, 0.1, 16, overflow="reject")
DELTA = 1e-4


def cost(steps, noise=1.0):
    return filet.account(SCHEME, noise_multiplier=noise, steps=steps, adjacency="zero-out").epsilon(DELTA)


def engine(steps=40):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Secure RNG turned off")
        return CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=steps, key=b"a key for budgets")


def steps_until_spent(run, budget, noise=lambda step: 1.0):
    for step in range(run.steps):
        run.accountant.step(noise_multiplier=noise(step), sample_rate=0.1)
        if budget.update():
            return step + 1
    return None


@pytest.mark.parametrize("limit", [1.2, 1.5, 2.0, 2.5])
def test_the_run_stops_at_the_last_step_that_fits(limit):
    run = engine()
    taken = steps_until_spent(run, Budget(run, delta=DELTA, max_epsilon=limit))
    assert taken == 40 or cost(taken) <= limit < cost(taken + 1)


def test_the_run_stops_with_its_last_step_without_a_limit():
    run = engine(steps=7)
    assert steps_until_spent(run, Budget(run, delta=DELTA)) == 7


def test_a_budget_that_not_even_one_step_fits_stops_after_the_first():
    run = engine()
    budget = Budget(run, delta=DELTA, max_epsilon=cost(1) / 2)
    assert not budget.is_spent()  # nothing is known of the noise yet
    assert steps_until_spent(run, budget) == 1
    assert budget.spent().left == 0.0
    with pytest.raises(
        filet.InvalidArgumentError, match=r"one step with noise_multiplier=1\.0 costs 1\.16.* more than"
    ):
        Budget(engine(), delta=DELTA, max_epsilon=cost(1) / 2).check(1.0)
    Budget(engine(), delta=DELTA, max_epsilon=cost(1)).check(1.0)
    Budget(engine(), delta=DELTA).check(0.1)


def test_noise_that_rises_is_seen_at_once():
    run = engine()
    taken = steps_until_spent(run, Budget(run, delta=DELTA, max_epsilon=1.6), lambda step: 1.0 + step / 4)
    accountant = filet.Accountant("zero-out")
    for step in range(taken):
        accountant.compose(SCHEME, 1.0 + step / 4, 1)
    assert accountant.epsilon(DELTA) <= 1.6


def test_trackers_get_steps_and_epsilons_and_nothing_else():
    run, told = engine(steps=12), []
    budget = Budget(run, delta=DELTA, max_epsilon=5.0, every=5, trackers=[lambda *given: told.append(given)])
    steps_until_spent(run, budget)
    assert [step for _, step in told] == [5, 10, 12]
    for values, step in told:
        assert values == {"privacy/epsilon": cost(step), "privacy/epsilon_left": 5.0 - cost(step)}
    assert not budget.update() or told[-1][1] == 12  # the last is not told twice
    assert len(told) == 3


def test_two_data_sets_of_one_size_are_told_alike():
    """What is told depends on no example: another data set, other batches, the same values."""
    told = []
    for key, rows in ((b"one key of sixteen", torch.zeros(100, 3)), (b"another key of it", torch.randn(100, 3))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = nn.Linear(3, 2)
            run = CappedPrivacyEngine(SCHEME, adjacency="zero-out", steps=6, key=key)
            model, optimizer, loader = run.make_private(
                module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=1.0,
                data_loader=DataLoader(TensorDataset(rows, torch.zeros(100).long())), max_grad_norm=1.0,
            )  # fmt: skip
            mine: list = []
            budget = Budget(run, delta=DELTA, every=1, trackers=[lambda *given, mine=mine: mine.append(given)])
            for x, y in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                budget.update()
        told.append(mine)
    assert told[0] == told[1]
    assert len(told[0]) == 6


def test_wrong_arguments_are_refused():
    for options, says in (
        ({"delta": 1.5}, "delta=1.5 is not in"),
        ({"delta": DELTA, "max_epsilon": 0.0}, r"max_epsilon=0.* is not above 0"),
        ({"delta": DELTA, "every": 0}, "every=0"),
    ):
        with pytest.raises(filet.InvalidArgumentError, match=says):
            Budget(engine(), **options)
    with pytest.raises(filet.InvalidArgumentError, match="is no engine"):
        Budget(object(), delta=DELTA)
