"""filet behind Flower's protocol: certified epsilons for its strategies' events, and states that survive."""

from __future__ import annotations

import inspect
import json

import pytest
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyAccountant, PrivacyConfig, SamplingMethod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

import filet
from filet.integrations.flower import CohortAccountant

SCHEME = filet.CappedPoisson(dataset_size=1_000, sampling_probability=0.05, max_batch_size=64)
RELATION = {
    SamplingMethod.POISSON: NeighboringRelation.ADD_OR_REMOVE_ONE,
    SamplingMethod.WITHOUT_REPLACEMENT: NeighboringRelation.REPLACE_ONE,
    SamplingMethod.NO_AMPLIFICATION: NeighboringRelation.ADD_OR_REMOVE_ONE,
}


def config(method, **options):
    return PrivacyConfig(1e-5, 1_000, RELATION[method], method, **options)


def event(noise=1.0, sample=64, population=1_000):
    return GaussianPrivacyEvent(noise, sample, population)


@pytest.mark.parametrize("method", list(SamplingMethod))
@pytest.mark.parametrize("capped", [True, False])
def test_epsilon_is_that_of_the_cohorts_that_the_method_means(method, capped):
    if capped and method is not SamplingMethod.POISSON:
        with pytest.raises(filet.InvalidArgumentError, match="capped cohorts are Poisson cohorts"):
            CohortAccountant(config(method), SCHEME)
        return
    accountant = CohortAccountant(config(method), SCHEME if capped else None)
    accountant.compose(event(), 30)
    accountant.compose(event(), 20)
    accountant.compose(event(noise=2.0), 10)
    adjacency = "replace-one" if method is SamplingMethod.WITHOUT_REPLACEMENT else "add-remove"
    reference = filet.Accountant(adjacency)
    for noise, count in ((1.0, 50), (2.0, 10)):
        if method is SamplingMethod.NO_AMPLIFICATION:
            reference.compose_gaussian(noise, count)
        elif method is SamplingMethod.WITHOUT_REPLACEMENT:
            reference.compose(filet.CappedPoisson(1_000, 1.0, 64), noise, count)
        else:
            reference.compose(SCHEME if capped else filet.CappedPoisson.uncapped(1_000, 0.064), noise, count)
    assert accountant.get_epsilon(1e-5) == reference.epsilon(1e-5)
    assert accountant.get_delta(2.0) == reference.delta(2.0)
    spent = accountant.get_privacy_spent()
    assert (spent.epsilon, spent.delta, spent.num_releases) == (reference.epsilon(1e-5), 1e-5, 60)


def test_everything_that_the_protocol_asks_for_is_there_with_its_parameters():
    for name, member in vars(PrivacyAccountant).items():
        if name.startswith("_") or not callable(member):
            continue
        theirs, ours = (
            inspect.signature(getattr(kind, name)).parameters for kind in (PrivacyAccountant, CohortAccountant)
        )
        assert list(ours) == list(theirs), name
    for name in ("config", "num_releases"):
        assert isinstance(vars(CohortAccountant)[name], property)


def test_flowers_own_strategy_takes_it_where_it_accounts():
    accountant = CohortAccountant(config(SamplingMethod.NO_AMPLIFICATION, max_epsilon=5.0))
    strategy = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 64, accountant=accountant)
    strategy._compose_release(event())
    assert strategy.privacy_spent().num_releases == 1
    plain = filet.Accountant("add-remove")
    plain.compose_gaussian(1.0)
    assert strategy.privacy_spent().epsilon == plain.epsilon(1e-5)
    with pytest.raises(ValueError, match="no-amplification"):  # why its own strategies cannot be amplified
        DifferentialPrivacyServerSideFixedClipping(
            FedAvg(), 1.0, 1.0, 64, accountant=CohortAccountant(config(SamplingMethod.POISSON))
        )


def test_a_budget_is_kept_before_it_is_exceeded():
    accountant = CohortAccountant(config(SamplingMethod.POISSON, max_epsilon=4.0), SCHEME)
    taken = 0
    while not accountant.would_exceed(event(), count=10):
        accountant.compose(event(), 10)
        taken += 10
    assert 0 < taken < 1_000
    assert accountant.get_epsilon(1e-5) <= 4.0
    assert accountant.would_exceed(event(), max_epsilon=0.01)
    assert not accountant.would_exceed(event(), max_epsilon=100.0)
    with pytest.raises(filet.InvalidArgumentError, match="max_epsilon"):
        CohortAccountant(config(SamplingMethod.POISSON), SCHEME).would_exceed(event())


def test_states_pass_through_json_and_those_of_another_run_are_refused():
    accountant = CohortAccountant(config(SamplingMethod.POISSON), SCHEME)
    accountant.compose(event(noise=0.7), 12)
    state = json.loads(json.dumps(accountant.state_dict()))
    again = CohortAccountant(config(SamplingMethod.POISSON), SCHEME)
    again.load_state_dict(state)
    assert again.get_epsilon(1e-6) == accountant.get_epsilon(1e-6)
    assert again.num_releases == 12
    other = CohortAccountant(config(SamplingMethod.POISSON))
    with pytest.raises(filet.StateError, match="another run: scheme differs"):
        other.load_state_dict(state)
    for wrong in ({}, {**state, "events": [["x", 1, 1]]}, {**state, "events": [[1.0]]}, None):
        with pytest.raises(filet.StateError, match="not a state of a CohortAccountant"):
            other.load_state_dict(wrong)
    assert other.num_releases == 0
    assert other.get_epsilon(1e-5) == 0.0
    assert other.get_delta(1.0) == 0.0


def test_events_that_do_not_fit_are_refused():
    accountant = CohortAccountant(config(SamplingMethod.POISSON), SCHEME)
    for wrong, match in [
        (lambda: accountant.compose(event(population=999)), "population_size=999"),
        (lambda: accountant.compose(event(sample=50)), "max_batch_size=64"),
        (lambda: accountant.compose(event(), 0), "count=0"),
        (lambda: accountant.compose("event"), "GaussianPrivacyEvent"),
        (lambda: CohortAccountant("config"), "PrivacyConfig"),
        (
            lambda: CohortAccountant(config(SamplingMethod.POISSON), filet.CappedPoisson(999, 0.1, 64)),
            "population_size=1000",
        ),
    ]:
        with pytest.raises(filet.InvalidArgumentError, match=match):
            wrong()
    assert accountant.num_releases == 0
