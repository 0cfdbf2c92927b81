"""filet behind dp_accounting's interface, against dp_accounting itself."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event, pld, privacy_accountant, privacy_accountant_test
from scipy import stats
from tests.integrations.dp_accounting_runs import RELATIONS, SCHEME, TRUNCATED, EpsilonDeltaDpEvent

import filet
from filet.integrations.dp_accounting import (
    FiletAccountant,
    to_dp_event,
)


class TestConformance(privacy_accountant_test.PrivacyAccountantTest):
    """dp_accounting's own tests of every accountant, for all relations."""

    def _make_test_accountants(self):
        return [FiletAccountant(relation) for relation in RELATIONS.values()]


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_truncated_events_cost_what_filet_says(adjacency):
    accountant = FiletAccountant(RELATIONS[adjacency]).compose(TRUNCATED, 300)
    curve = filet.account(SCHEME, noise_multiplier=1.5, steps=300, adjacency=adjacency)
    assert accountant.get_epsilon(1e-6) == curve.epsilon(1e-6)
    assert accountant.get_delta(2.0) == curve.delta(2.0)


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_never_above_dp_accounting_and_never_below_on_plain_events(adjacency):
    relation = RELATIONS[adjacency]
    events = {
        "truncated": TRUNCATED,
        "poisson": dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.5)),
        "gaussian": dp_event.GaussianDpEvent(20.0),
        "several": dp_event.ComposedDpEvent(
            [dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(3.0)), dp_event.GaussianDpEvent(40.0)]
        ),
    }
    for name, event in events.items():
        theirs = pld.PLDAccountant(relation, value_discretization_interval=1e-3).compose(event, 100).get_epsilon(1e-6)
        ours = FiletAccountant(relation).compose(event, 100).get_epsilon(1e-6)
        # Their grid rounds up; ours is a bracket of 0.1 %.
        assert ours <= theirs * 1.001
        if name != "truncated":
            assert ours >= theirs * 0.98, name


def test_the_note_analysis_equals_dp_accounting_for_replace_one():
    relation = NeighboringRelation.REPLACE_ONE
    theirs = pld.PLDAccountant(relation).compose(TRUNCATED, 100).get_epsilon(1e-6)
    ours = FiletAccountant(relation, analysis="note").compose(TRUNCATED, 100).get_epsilon(1e-6)
    assert ours == pytest.approx(theirs, rel=2e-3)
    assert FiletAccountant(relation).compose(TRUNCATED, 100).get_epsilon(1e-6) < 0.99 * ours


def test_compositions_nest_and_the_ledger_remembers_them():
    nested = dp_event.SelfComposedDpEvent(dp_event.ComposedDpEvent([TRUNCATED, dp_event.NoOpDpEvent()]), 10)
    relation = NeighboringRelation.REPLACE_SPECIAL
    accountant = FiletAccountant(relation).compose(nested, 30)
    flat = FiletAccountant(relation).compose(TRUNCATED, 300)
    assert accountant.get_epsilon(1e-6) == flat.get_epsilon(1e-6)
    assert accountant.ledger == dp_event.SelfComposedDpEvent(nested.event, 300)
    before = accountant.get_epsilon(1e-6)
    accountant.compose(dp_event.GaussianDpEvent(10.0))
    assert accountant.get_epsilon(1e-6) > before


@pytest.mark.parametrize(
    "event",
    [
        dp_event.TruncatedSubsampledGaussianDpEvent(0, 0.1, 5, 1.0),
        dp_event.TruncatedSubsampledGaussianDpEvent(10, 0.0, 5, 1.0),
        dp_event.TruncatedSubsampledGaussianDpEvent(10, 0.1, 0, 1.0),
        dp_event.PoissonSampledDpEvent(0.0, dp_event.GaussianDpEvent(0.0)),
        to_dp_event(SCHEME, 0.0, 0, adjacency="zero-out"),
    ],
)
def test_events_that_touch_nobody_are_free(event):
    assert FiletAccountant(NeighboringRelation.REPLACE_ONE).compose(event).get_epsilon(1e-9) == 0


@pytest.mark.parametrize(
    "event",
    [
        dp_event.GaussianDpEvent(0.0),
        dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(0.0)),
        dp_event.TruncatedSubsampledGaussianDpEvent(10, 0.1, 5, 0.0),
    ],
)
def test_no_noise_is_no_privacy(event):
    accountant = FiletAccountant(NeighboringRelation.REPLACE_SPECIAL).compose(event)
    assert accountant.get_epsilon(0.5) == math.inf
    assert accountant.get_delta(100.0) == 1.0


@pytest.mark.parametrize(
    "event",
    [
        dp_event.LaplaceDpEvent(1.0),
        dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(1.0)),
        dp_event.PoissonSampledDpEvent(1.5, dp_event.GaussianDpEvent(1.0)),
        dp_event.TruncatedSubsampledGaussianDpEvent(10, 0.1, -5, 1.0),
        dp_event.SampledWithoutReplacementDpEvent(10, 11, dp_event.GaussianDpEvent(1.0)),
        dp_event.SampledWithoutReplacementDpEvent(10, 2, dp_event.LaplaceDpEvent(1.0)),
        dp_event.PoissonSampledDpEvent(
            0.1, dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(1.0), dp_event.LaplaceDpEvent(1.0)])
        ),
        EpsilonDeltaDpEvent(-1.0, 0.1),
        EpsilonDeltaDpEvent(1.0, 1.1),
    ],
)
def test_a_refused_event_changes_nothing(event):
    accountant = FiletAccountant(NeighboringRelation.REPLACE_SPECIAL).compose(TRUNCATED)
    before = accountant.get_epsilon(1e-6)
    with pytest.raises(privacy_accountant.UnsupportedEventError):
        accountant.compose(dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(1.0), event]))
    assert accountant.get_epsilon(1e-6) == before
    assert accountant.ledger == TRUNCATED


def test_add_remove_refuses_two_data_set_sizes_within_one_event_and_across():
    other = dp_event.TruncatedSubsampledGaussianDpEvent(1_999, 0.02, 45, 1.5)
    both = dp_event.ComposedDpEvent([TRUNCATED, other])
    assert not FiletAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).supports(both)
    assert not FiletAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(TRUNCATED).supports(other)
    assert FiletAccountant(NeighboringRelation.REPLACE_SPECIAL).supports(both)


def test_calibration_by_dp_accounting_meets_the_target():
    def epsilon(sigma):
        return filet.account(SCHEME, noise_multiplier=sigma, steps=500, adjacency="zero-out").epsilon(1e-6)

    sigma = dp_accounting.calibrate_dp_mechanism(
        lambda: FiletAccountant(NeighboringRelation.REPLACE_SPECIAL),
        lambda value: to_dp_event(SCHEME, value, 500, adjacency="zero-out"),
        2.0,
        1e-6,
        tol=1e-4,
    )
    assert epsilon(sigma) <= 2.0 < epsilon(sigma - 1e-3)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_reject_is_bounded_by_plain_poisson(adjacency):
    scheme = filet.CappedPoisson(2_000, 0.02, 40, overflow="reject")
    event = to_dp_event(scheme, 1.5, 300, adjacency=adjacency)
    bound = pld.PLDAccountant(RELATIONS[adjacency], value_discretization_interval=1e-3).compose(event)
    exact = filet.account(scheme, noise_multiplier=1.5, steps=300, adjacency=adjacency)
    assert isinstance(event.event, dp_event.PoissonSampledDpEvent)
    assert exact.epsilon(1e-6) <= bound.get_epsilon(1e-6)


def mixture_delta(first, second, sigma, epsilon):
    """The larger hockey-stick divergence of two mixtures of Gaussians on the line, by quadrature; either way round."""
    x = np.linspace(-1.0 - 12 * sigma, 1.0 + 12 * sigma, 40_001)
    p, q = (sum(w * stats.norm.pdf(x, mean, sigma) for w, mean in parts) for parts in (first, second))
    ways = [np.maximum(a - math.exp(epsilon) * b, 0.0) for a, b in ((p, q), (q, p))]
    return max(float(np.trapezoid(way, x)) for way in ways)


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_dp_accounting_events_sampled_without_replacement_against_the_worst_data(adjacency):
    n, size, sigma = 50, 5, 0.9
    rate = size / n
    event = dp_event.SampledWithoutReplacementDpEvent(n, size, dp_event.GaussianDpEvent(sigma))
    accountant = FiletAccountant(RELATIONS[adjacency]).compose(event)
    expected = filet.account(
        filet.CappedPoisson(n, 1.0, size), noise_multiplier=sigma, steps=1, adjacency=adjacency
    ).epsilon(1e-4)
    assert accountant.get_epsilon(1e-4) == expected
    for epsilon in (0.05, 0.3, 1.0, 2.5):
        worst = 0.0
        for other in np.linspace(-1.0, 1.0, 21):  # what everybody else has
            base = (1.0 - rate, other)
            for mine in (1.0, -1.0):
                replaced = {"add-remove": [(1.0, other)], "zero-out": [base, (rate, 0.0)],
                            "replace-one": [base, (rate, -mine)]}[adjacency]  # fmt: skip
                worst = max(worst, mixture_delta([base, (rate, mine)], replaced, sigma, epsilon))
        assert worst * (1 - 1e-6) <= accountant.get_delta(epsilon) <= worst * 1.05 + 1e-9
    everybody = dp_event.SampledWithoutReplacementDpEvent(n, n, dp_event.GaussianDpEvent(sigma))
    plain = FiletAccountant(RELATIONS[adjacency]).compose(dp_event.GaussianDpEvent(sigma)).get_epsilon(1e-4)
    assert FiletAccountant(RELATIONS[adjacency]).compose(everybody).get_epsilon(1e-4) == pytest.approx(plain, rel=1e-6)
    nobody = dp_event.SampledWithoutReplacementDpEvent(n, 0, dp_event.GaussianDpEvent(0.0))
    assert FiletAccountant(RELATIONS[adjacency]).compose(nobody).get_epsilon(1e-4) == 0


def test_dp_accounting_events_fixed_samples_must_agree_on_the_size_under_add_remove():
    event = dp_event.SampledWithoutReplacementDpEvent(1_999, 45, dp_event.GaussianDpEvent(1.5))
    assert not FiletAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(TRUNCATED).supports(event)
    assert FiletAccountant(NeighboringRelation.REPLACE_ONE).compose(TRUNCATED).supports(event)


def test_dp_accounting_events_several_gaussians_on_one_sample():
    relation = NeighboringRelation.REPLACE_SPECIAL
    several = dp_event.ComposedDpEvent(
        [dp_event.GaussianDpEvent(2.0), dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(5.0), 3)]
    )
    joint = (2.0**-2 + 3 * 5.0**-2) ** -0.5
    for make in (lambda inner: dp_event.PoissonSampledDpEvent(0.05, inner),
                 lambda inner: dp_event.SampledWithoutReplacementDpEvent(500, 25, inner)):  # fmt: skip
        one = FiletAccountant(relation).compose(make(several), 20).get_epsilon(1e-5)
        other = FiletAccountant(relation).compose(make(dp_event.GaussianDpEvent(joint)), 20).get_epsilon(1e-5)
        assert other <= one <= other * (1 + 1e-3)
        apart = FiletAccountant(relation)
        apart.compose(make(dp_event.GaussianDpEvent(2.0)), 20).compose(make(dp_event.GaussianDpEvent(5.0)), 60)
        assert one > apart.get_epsilon(1e-5) * 1.05  # a fresh sample for each is another, better mechanism
    assert FiletAccountant(relation).compose(
        dp_event.PoissonSampledDpEvent(0.05, dp_event.ComposedDpEvent([several, dp_event.GaussianDpEvent(0.0)]))
    ).get_epsilon(1e-5) == math.inf  # fmt: skip
    empty = dp_event.PoissonSampledDpEvent(0.05, dp_event.ComposedDpEvent([]))
    assert FiletAccountant(relation).compose(empty).get_epsilon(1e-5) == 0


@pytest.mark.parametrize("count", [-1, 0])
def test_dp_accounting_events_counts_below_one_raise_what_dp_accounting_does(count):
    event = dp_event.GaussianDpEvent(1.0)
    for accountant in (FiletAccountant(NeighboringRelation.REPLACE_ONE), pld.PLDAccountant()):
        if count:  # theirs divides by the square root of 0
            with pytest.raises(ValueError, match="count"):
                accountant.compose(event, count)
    with pytest.raises(filet.InvalidArgumentError, match=f"count={count} is below 1"):
        FiletAccountant(NeighboringRelation.REPLACE_ONE).compose(event, count)
