"""Releases of a given epsilon and delta, and filet's curves as dp_accounting's loss distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event, pld, privacy_accountant
from scipy import stats
from tests.integrations.dp_accounting_runs import RELATIONS, SCHEME, EpsilonDeltaDpEvent

import filet
from filet.integrations.dp_accounting import (
    FiletAccountant,
    to_privacy_loss_distribution,
)


def test_dp_accounting_events_of_a_given_epsilon_and_delta():
    relation = NeighboringRelation.REPLACE_SPECIAL
    grid = 1e-4
    promise = pld.privacy_loss_distribution.from_privacy_parameters(
        pld.common.DifferentialPrivacyParameters(0.3, 1e-7), value_discretization_interval=grid
    )
    gaussian = pld.privacy_loss_distribution.from_gaussian_mechanism(2.0, value_discretization_interval=grid)
    theirs = promise.self_compose(3).compose(gaussian)
    ours = FiletAccountant(relation).compose(EpsilonDeltaDpEvent(0.3, 1e-7), 3).compose(dp_event.GaussianDpEvent(2.0))
    for delta in (1e-3, 1e-5):
        assert theirs.get_epsilon_for_delta(delta) * 0.999 <= ours.get_epsilon(delta)
        assert ours.get_epsilon(delta) <= theirs.get_epsilon_for_delta(delta) * 1.001
    for epsilon in (0.0, 0.5, 2.0):
        assert ours.get_delta(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-3)
    assert ours.get_epsilon(2.9e-7) == math.inf
    assert ours.get_delta(math.inf) == pytest.approx(3e-7, rel=1e-3)
    alone = FiletAccountant(relation).compose(EpsilonDeltaDpEvent(0.3, 0.0), 2)
    assert 0.59 < alone.get_epsilon(1e-9) <= 0.6001
    assert alone.get_delta(0.61) < 1e-9
    assert FiletAccountant(relation).compose(EpsilonDeltaDpEvent(math.inf, 0.0)).get_epsilon(0.5) == math.inf
    many = dp_event.ComposedDpEvent(
        [dp_event.SelfComposedDpEvent(EpsilonDeltaDpEvent(0.1 * k, 0.0), 100) for k in (1, 2)]
    )
    accountant = FiletAccountant(relation).compose(many)  # each part is few enough, and nothing may be left out
    with pytest.raises(filet.InvalidArgumentError, match="to_privacy_loss_distribution"):
        accountant.get_epsilon(1e-5)
    with pytest.raises(privacy_accountant.UnsupportedEventError, match="2000 different losses"):
        FiletAccountant(relation).compose(EpsilonDeltaDpEvent(0.1, 0.0), 2_000)


def test_promises_with_delta_zero_have_the_sum_of_their_epsilons_at_delta_zero():
    def promised(*pairs):
        accountant = FiletAccountant(NeighboringRelation.REPLACE_SPECIAL)
        for epsilon, delta, count in pairs:
            accountant.compose(EpsilonDeltaDpEvent(epsilon, delta), count)
        return accountant

    assert promised((0.0, 0.0, 1)).get_epsilon(0.0) == 0.0
    assert promised((0.0, 0.0, 1)).get_delta(0.0) == 0.0
    assert 1.1 <= promised((0.3, 0.0, 2), (0.5, 0.0, 1)).get_epsilon(0.0) <= 1.1 * (1 + 1e-9)
    assert promised((0.3, 0.0, 2), (0.0, 1e-9, 1)).get_epsilon(0.0) == math.inf
    with_noise = promised((0.0, 0.0, 1)).compose(dp_event.GaussianDpEvent(2.0))
    assert with_noise.get_epsilon(0.0) == math.inf


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_dp_accounting_events_power_and_gdp_of_the_next_release(adjacency):
    gaussian = FiletAccountant(RELATIONS[adjacency]).compose(dp_event.GaussianDpEvent(2.0), 4)
    mu = 2.0 if adjacency == "replace-one" else 1.0
    rates = np.array([1e-6, 1e-3, 0.1, 0.5])
    exact = stats.norm.cdf(stats.norm.ppf(rates) + mu)
    found = gaussian.get_true_positive_rates(rates)
    assert np.all(found >= exact)
    assert np.all(found <= exact * 1.1)
    assert gaussian.get_true_positive_rates(0.1) == found[2]
    assert mu <= gaussian.get_gdp_parameter_estimate() <= mu * 1.05
    promised = FiletAccountant(RELATIONS[adjacency]).compose(EpsilonDeltaDpEvent(1.0, 1e-3))
    # The trade-off of (epsilon, delta) is known: delta + e^epsilon alpha, until the other line is lower.
    line = np.minimum(1e-3 + math.e * rates, 1 - (1 - 1e-3 - rates) / math.e)
    assert np.all(promised.get_true_positive_rates(rates) >= line * (1 - 1e-9))
    assert np.all(promised.get_true_positive_rates(rates) <= line * 1.1)
    exposed = FiletAccountant(RELATIONS[adjacency]).compose(dp_event.NonPrivateDpEvent())
    assert exposed.get_true_positive_rates(0.1) == 1.0
    assert exposed.get_gdp_parameter_estimate() == math.inf
    nothing = FiletAccountant(RELATIONS[adjacency])
    assert nothing.get_true_positive_rates(0.1) == 0.1
    assert nothing.get_gdp_parameter_estimate() == 0


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_export_privacy_loss_distribution_is_pessimistic_tight_and_composes(adjacency):
    curve = filet.account(SCHEME, noise_multiplier=1.5, steps=300, adjacency=adjacency)
    exported = to_privacy_loss_distribution(curve)
    for delta in (1e-2, 1e-4, 1e-6, 1e-9):
        assert curve.epsilon_bounds(delta).lower <= exported.get_epsilon_for_delta(delta)
        assert exported.get_epsilon_for_delta(delta) <= curve.epsilon(delta) * 1.01 + 1e-3
    for epsilon in np.linspace(0.0, 4.0, 9):
        # what is lent is bounded at nodes that suit the question, so that either may be a little closer to the limit
        assert exported.get_delta_for_epsilon(epsilon) >= curve.delta_bounds(epsilon).lower * (1 - 1e-3)
    # With a Gaussian release, which filet can add itself.
    both = filet.Accountant(adjacency)
    both.compose(SCHEME, 1.5, 300)
    both.compose_gaussian(4.0 / (2.0 if adjacency == "replace-one" else 1.0))
    relation = RELATIONS[adjacency]
    release = pld.privacy_loss_distribution.from_gaussian_mechanism(4.0, neighboring_relation=relation)
    together = exported.compose(release).get_epsilon_for_delta(1e-6)
    assert both.curve().epsilon_bounds(1e-6).lower <= together <= both.epsilon(1e-6) * 1.01
    twice = exported.self_compose(2).get_epsilon_for_delta(1e-6)
    assert twice >= filet.account(SCHEME, noise_multiplier=1.5, steps=600, adjacency=adjacency).epsilon(1e-6) * 0.999


def test_export_privacy_loss_distribution_on_other_grids_and_at_the_ends():
    curve = filet.account(SCHEME, noise_multiplier=1.5, steps=300, adjacency="zero-out")
    coarse = to_privacy_loss_distribution(curve, value_discretization_interval=0.01, points=40)
    assert curve.epsilon(1e-6) <= coarse.get_epsilon_for_delta(1e-6) <= curve.epsilon(1e-6) * 1.05
    other = pld.privacy_loss_distribution.from_laplace_mechanism(3.0, value_discretization_interval=0.01)
    assert coarse.compose(other).get_epsilon_for_delta(1e-6) > coarse.get_epsilon_for_delta(1e-6)
    nothing = filet.account(SCHEME, noise_multiplier=1.5, steps=0, adjacency="zero-out")
    assert to_privacy_loss_distribution(nothing).get_epsilon_for_delta(1e-9) <= 1e-3
    exposed = filet.account(SCHEME, noise_multiplier=0.0, steps=1, adjacency="zero-out")
    for call, match in [
        (lambda: to_privacy_loss_distribution(exposed), "no finite epsilon"),
        (lambda: to_privacy_loss_distribution("curve"), "PrivacyCurve"),
        (lambda: to_privacy_loss_distribution(curve, value_discretization_interval=0.0), "in \\(0, 1\\]"),
        (lambda: to_privacy_loss_distribution(curve, points=1), "points=1"),
    ]:
        with pytest.raises(filet.InvalidArgumentError, match=match):
            call()
