"""filet next to dp_accounting, where both have an answer: plain Poisson batches, the note, phases, Gaussians, calibration."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import pytest
from dp_accounting import pld

import filet
from filet import Accountant, CappedPoisson, account, calibrate_noise_multiplier
from filet.accounting.proving.closed_form import gaussian_log_delta

ADJACENCIES = [a.value for a in filet.Adjacency]
N = 60_000


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_dp_accounting_is_never_below_and_close_on_plain_poisson(adjacency: str) -> None:
    relation = {
        "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        "zero-out": dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
        "replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
    }[adjacency]
    for p, sigma, steps, delta in [(0.01, 1.0, 500, 1e-6), (0.2, 2.0, 40, 1e-5), (1e-3, 0.7, 2000, 1e-5)]:
        event = dp_accounting.PoissonSampledDpEvent(p, dp_accounting.GaussianDpEvent(sigma))
        peer = dp_accounting.pld.PLDAccountant(relation).compose(event, steps).get_epsilon(delta)
        bounds = account(CappedPoisson(10**6, p, 10**6), noise_multiplier=sigma, steps=steps,
                         adjacency=adjacency).epsilon_bounds(delta)  # fmt: skip
        assert bounds.lower <= peer * (1 + 1e-6)
        assert peer == pytest.approx(bounds.upper, rel=5e-3)


def test_the_note_matches_dp_accounting_where_both_are_defined() -> None:
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(1000, 0.05, 60, 1.5)
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    peer = accountant.compose(event, 200).get_epsilon(1e-5)
    ours = account(
        CappedPoisson(1000, 0.05, 60), noise_multiplier=1.5, steps=200, adjacency="replace-one", analysis="note"
    )
    assert ours.epsilon(1e-5) == pytest.approx(peer, rel=1e-3)
    refined = account(CappedPoisson(1000, 0.05, 60), noise_multiplier=1.5, steps=200, adjacency="replace-one")
    assert refined.epsilon(1e-5) < peer


def test_phases_and_gaussians_match_dp_accounting() -> None:
    accountant = Accountant("zero-out")
    accountant.compose(CappedPoisson(10**5, 0.01, 10**5), 1.0, 300)
    accountant.compose(CappedPoisson(10**5, 0.05, 10**5), 3.0, 100)
    accountant.compose_gaussian(noise_multiplier=5.0, count=2)
    peer = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    for p, sigma, steps in ((0.01, 1.0, 300), (0.05, 3.0, 100), (1.0, 5.0, 2)):
        peer.compose(dp_accounting.PoissonSampledDpEvent(p, dp_accounting.GaussianDpEvent(sigma)), steps)
    assert accountant.epsilon(1e-5) == pytest.approx(peer.get_epsilon(1e-5), rel=1e-3)


def test_the_gaussian_closed_form_matches_dp_accounting() -> None:
    for sigma in (0.5, 1.0, 10.0):
        for epsilon in (0.1, 1.0, 5.0):
            delta = math.exp(gaussian_log_delta(1 / sigma, epsilon))
            if delta > 1e-15:
                assert dp_accounting.get_epsilon_gaussian(sigma, delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(
    ("steps", "epsilon", "delta", "batch"),
    [(1_000, 1.0, 1e-5, 256.0), (200, 3.0, 1e-7, 3_000.0)],
)
def test_plain_poisson_agrees_with_dp_accounting(steps: int, epsilon: float, delta: float, batch: float) -> None:
    p = batch / N

    def event(sigma: float) -> Any:
        gaussian = dp_accounting.GaussianDpEvent(sigma)
        return dp_accounting.SelfComposedDpEvent(dp_accounting.PoissonSampledDpEvent(p, gaussian), steps)

    ours = calibrate_noise_multiplier(
        CappedPoisson(N, p, N), steps=steps, epsilon=epsilon, delta=delta, adjacency="add-remove"
    )
    # A bracket that does not hold their answer raises, so that the narrow one only saves time.
    theirs = dp_accounting.calibrate_dp_mechanism(
        pld.PLDAccountant,
        event,
        epsilon,
        delta,
        dp_accounting.ExplicitBracketInterval(0.97 * ours, 1.03 * ours),
        tol=1e-4,
    )
    assert ours == pytest.approx(theirs, rel=1e-3)
