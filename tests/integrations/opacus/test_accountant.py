"""filet as an Opacus accountant: it reports filet's epsilon for these batches, and refuses other states."""

from __future__ import annotations

import opacus
import pytest
from tests.integrations.opacus_engines import SCHEME, engine_for, private, train
from tests.integrations.quiet import OPACUS
from torch import nn

import filet
from filet.integrations.opacus import CappedAccountant

pytestmark = OPACUS


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_the_engines_epsilon_is_filets_for_these_batches(overflow, adjacency):
    scheme = filet.CappedPoisson(40, 0.05, 4, overflow=overflow)
    engine = engine_for(scheme, adjacency=adjacency, steps=7)
    assert engine.get_epsilon(1e-3) == 0
    train(*private(engine, nn.Linear(6, 3), noise_multiplier=1.3))
    assert len(engine.accountant) == 7
    expected = filet.account(scheme, noise_multiplier=1.3, steps=7, adjacency=adjacency).epsilon(1e-3)
    assert engine.get_epsilon(delta=1e-3) == expected


def test_a_cyclic_run_is_counted_by_its_rounds():
    scheme = filet.CappedPoisson(40, 0.2, 4, cycle_length=4)
    engine = engine_for(scheme, steps=10)
    train(*private(engine, nn.Linear(6, 3)))
    expected = filet.account(scheme, noise_multiplier=1.0, steps=10, adjacency="zero-out").epsilon(1e-3)
    assert engine.get_epsilon(1e-3) == expected


def test_a_state_of_another_scheme_or_damaged_is_refused():
    accountant = CappedAccountant(SCHEME, adjacency="zero-out")
    accountant.step(noise_multiplier=1.0, sample_rate=0.05)
    state = accountant.state_dict()
    other = CappedAccountant(filet.CappedPoisson(40, 0.05, 5), adjacency="zero-out")
    with pytest.raises(filet.StateError, match="max_batch_size=4"):
        other.load_state_dict(state)
    with pytest.raises(filet.StateError, match="adjacency=zero-out"):
        CappedAccountant(SCHEME, adjacency="replace-one").load_state_dict(state)
    for damaged in [None, {}, {**state, "history": [(1.0, 0.5, 3)]}, {**state, "history": [(1.0, 0.05, -3)]},
                    {**state, "mechanism": "rdp"}]:  # fmt: skip
        with pytest.raises(filet.StateError):
            accountant.load_state_dict(damaged)
    assert accountant.state_dict() == state


def test_opacus_own_calibration_works_with_the_accountant():
    class Ours(CappedAccountant):
        def __init__(self):
            super().__init__(SCHEME, adjacency="zero-out")

    opacus.accountants.register_accountant("filet-test", Ours, force=True)
    sigma = opacus.accountants.utils.get_noise_multiplier(
        target_epsilon=2.0, target_delta=1e-4, sample_rate=0.05, steps=20, accountant="filet-test"
    )
    cost = filet.account(SCHEME, noise_multiplier=sigma, steps=20, adjacency="zero-out").epsilon(1e-4)
    assert 1.98 < cost <= 2.0
