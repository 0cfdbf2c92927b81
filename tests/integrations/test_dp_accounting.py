"""filet behind dp_accounting's interface, against dp_accounting itself."""

from __future__ import annotations

import math

import attr
import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event, pld, privacy_accountant, privacy_accountant_test
from scipy import stats

import filet
from filet.integrations.dp_accounting import (
    FiletAccountant,
    from_dp_event,
    to_dp_event,
    to_privacy_loss_distribution,
)

RELATIONS = {
    "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "zero-out": NeighboringRelation.REPLACE_SPECIAL,
    "replace-one": NeighboringRelation.REPLACE_ONE,
}
SCHEME = filet.CappedPoisson(dataset_size=2_000, sampling_probability=0.02, max_batch_size=45)
TRUNCATED = dp_event.TruncatedSubsampledGaussianDpEvent(2_000, 0.02, 45, 1.5)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EpsilonDeltaDpEvent(dp_event.DpEvent):
    """As dp_accounting will have it after 0.6."""

    epsilon: float
    delta: float


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


def test_events_and_runs_translate_both_ways():
    event = to_dp_event(SCHEME, 1.5, 300, adjacency="add-remove")
    assert event == dp_event.SelfComposedDpEvent(TRUNCATED, 300)
    assert from_dp_event(event) == (SCHEME, 1.5, 300)
    nested = dp_event.SelfComposedDpEvent(dp_event.SelfComposedDpEvent(TRUNCATED, 3), 4)
    assert from_dp_event(nested).steps == 12
    plain = dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.5))
    assert from_dp_event(plain, dataset_size=100).scheme == filet.CappedPoisson(100, 0.02, 100)


def test_a_cycle_is_the_run_of_one_group():
    scheme = filet.CappedPoisson(2_000, 0.02, 20, cycle_length=4)
    event = to_dp_event(scheme, 1.5, 401, adjacency="zero-out")
    assert event.count == 101
    assert event.event.dataset_size == 500
    ours = filet.account(scheme, noise_multiplier=1.5, steps=401, adjacency="zero-out").epsilon(1e-6)
    assert FiletAccountant(NeighboringRelation.REPLACE_SPECIAL).compose(event).get_epsilon(1e-6) == ours


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_reject_is_bounded_by_plain_poisson(adjacency):
    scheme = filet.CappedPoisson(2_000, 0.02, 40, overflow="reject")
    event = to_dp_event(scheme, 1.5, 300, adjacency=adjacency)
    bound = pld.PLDAccountant(RELATIONS[adjacency], value_discretization_interval=1e-3).compose(event)
    exact = filet.account(scheme, noise_multiplier=1.5, steps=300, adjacency=adjacency)
    assert isinstance(event.event, dp_event.PoissonSampledDpEvent)
    assert exact.epsilon(1e-6) <= bound.get_epsilon(1e-6)


def test_what_cannot_be_expressed_is_refused():
    reject = filet.CappedPoisson(2_000, 0.02, 40, overflow="reject")
    with pytest.raises(filet.InvalidArgumentError, match=r"reject.*add-remove.*zero-out"):
        to_dp_event(reject, 1.5, 300, adjacency="add-remove")
    with pytest.raises(filet.InvalidArgumentError, match="dataset_size="):
        from_dp_event(dp_event.PoissonSampledDpEvent(0.02, dp_event.GaussianDpEvent(1.5)))
    with pytest.raises(filet.InvalidArgumentError, match="FiletAccountant"):
        from_dp_event(dp_event.ComposedDpEvent([TRUNCATED]))
    with pytest.raises(filet.InvalidArgumentError, match="differs"):
        from_dp_event(TRUNCATED, dataset_size=5)
    with pytest.raises(filet.InvalidArgumentError, match="NeighboringRelation"):
        FiletAccountant("zero-out")


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


@pytest.mark.parametrize("count", [-1, 0])
def test_dp_accounting_events_counts_below_one_raise_what_dp_accounting_does(count):
    event = dp_event.GaussianDpEvent(1.0)
    for accountant in (FiletAccountant(NeighboringRelation.REPLACE_ONE), pld.PLDAccountant()):
        if count:  # theirs divides by the square root of 0
            with pytest.raises(ValueError, match="count"):
                accountant.compose(event, count)
    with pytest.raises(filet.InvalidArgumentError, match=f"count={count} is below 1"):
        FiletAccountant(NeighboringRelation.REPLACE_ONE).compose(event, count)


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
