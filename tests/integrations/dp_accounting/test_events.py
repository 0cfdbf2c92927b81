"""Runs as dp_accounting's events, and back."""

from __future__ import annotations

import pytest
from dp_accounting import NeighboringRelation, dp_event
from tests.integrations.dp_accounting_runs import SCHEME, TRUNCATED

import filet
from filet.integrations.dp_accounting import (
    FiletAccountant,
    from_dp_event,
    to_dp_event,
)


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
