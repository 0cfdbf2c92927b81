"""filet behind dp_accounting's interface, against dp_accounting itself."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from dp_accounting import NeighboringRelation, dp_event, pld, privacy_accountant, privacy_accountant_test

import filet
from filet.integrations.dp_accounting import FiletAccountant, from_dp_event, to_dp_event

RELATIONS = {
    "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "zero-out": NeighboringRelation.REPLACE_SPECIAL,
    "replace-one": NeighboringRelation.REPLACE_ONE,
}
SCHEME = filet.CappedPoisson(dataset_size=2_000, sampling_probability=0.02, max_batch_size=45)
TRUNCATED = dp_event.TruncatedSubsampledGaussianDpEvent(2_000, 0.02, 45, 1.5)


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
        dp_event.SampledWithoutReplacementDpEvent(10, 2, dp_event.GaussianDpEvent(1.0)),
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
