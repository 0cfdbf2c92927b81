"""Saddle points and rare large losses, against direct sums; they only guess, and the guesses are near."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from tests.accounting.laws import FEW, OTHER, Answers, own_deltas, pair_of, usual_law

from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.closed_form import gaussian_log_delta
from filet.accounting.proving.composition import Composition, blocks
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.search.grid import uniform_grid
from filet.accounting.search.saddle_point import (
    LossTail,
    SaddlePoints,
    cumulants,
    moments,
    saddle_points_at_delta,
    saddle_points_at_epsilon,
)

PHASES = [(FEW, 3), (OTHER, 5)]


@pytest.mark.parametrize("gaussian", [0.0, 0.4])
def test_cumulants_are_the_derivatives_of_the_logarithm(gaussian: float) -> None:
    whole, tilts = Composition(blocks(PHASES), gaussian), np.array([0.0, 0.1, 1.0, 8.0])
    with mp.workdps(40):

        def log_mgf(c: mp.mpf) -> mp.mpf:
            total = mp.mpf(gaussian) * (c * c + c) / 2
            for law, steps in PHASES:
                terms = zip(law.log_mass.tolist(), law.loss.tolist(), strict=True)
                total += steps * mp.log(mp.fsum(mp.exp(m + c * x) for m, x in terms))
            return total

        for order, values in enumerate(cumulants(whole, tilts)):
            exact = [float(mp.diff(log_mgf, mp.mpf(c), order)) for c in tilts.tolist()]
            assert values == pytest.approx(exact, rel=1e-9)


def test_many_tilts_are_those_of_each_alone() -> None:
    whole = Composition(blocks([(FEW, 3)] * 40 + [(OTHER, 1)]), 0.1)
    tilts = np.geomspace(1e-3, 50.0, 37)
    together = cumulants(whole, tilts)
    for i in (0, 17, 36):
        alone = cumulants(whole, tilts[i : i + 1])
        assert [float(one[i]) for one in together] == pytest.approx([float(one[0]) for one in alone], rel=1e-12)


def test_moments_are_mean_and_variance() -> None:
    mean, variance = moments(Composition(blocks(PHASES), 0.4))
    _, slope, curvature = cumulants(Composition(blocks(PHASES), 0.4), np.zeros(1))
    total = sum(steps * math.log(1 - law.infinite) for law, steps in PHASES)
    assert (mean, variance) == pytest.approx((float(slope[0]), float(curvature[0])), rel=5e-3)
    assert total < 0.0  # the difference: cumulants are of what is left without infinite losses


@pytest.mark.parametrize("mu", [0.05, 1.0, 12.0])
def test_saddle_points_of_a_gaussian_loss_are_near_its_delta(mu: float) -> None:
    losses = Composition([], mu * mu)
    log_delta = np.array([-600.0, -100.0, -20.0, -5.0])
    epsilon, tilt = saddle_points_at_delta(losses, log_delta).at_delta(log_delta)
    assert (np.diff(epsilon) < 0.0).all()
    assert (np.diff(tilt) < 0.0).all()
    for e, goal in zip(epsilon.tolist(), log_delta.tolist(), strict=True):
        if e > 0.0:
            assert gaussian_log_delta(mu, e) == pytest.approx(goal, abs=0.1 + 2e-3 * abs(goal))
    back, _ = saddle_points_at_epsilon(losses, epsilon[:3]).at_epsilon(epsilon[:3])
    assert back == pytest.approx(log_delta[:3], rel=0.01, abs=0.1)


@pytest.mark.parametrize("steps", [50, 10_000])
def test_saddle_points_of_many_steps_are_near_what_is_proven(steps: int) -> None:
    law = usual_law()
    pmf = pair_of((law, steps)).pmf([uniform_grid(law, 12.0, 0.1)], above=True, negligible=0.0)
    for delta in (1e-4, 1e-8, 1e-30):
        at = np.log([delta])
        epsilon, _ = saddle_points_at_delta(pmf.whole, at).at_delta(at)
        assert epsilon[0] == pytest.approx(Answers(law, steps).epsilon(delta).upper, rel=0.2)


def test_beyond_a_kink_the_tangent_is_followed() -> None:
    """A trace of large losses: epsilon jumps to theirs, and before it lies on the last tangent."""
    table = SaddlePoints(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 900.0]), np.array([-5.0, -7.0, -30.0]))
    epsilon, tilt = table.at_delta(np.array([-6.0, -9.0]))
    assert 1.0 < epsilon[0] < 2.0
    assert epsilon[1] == pytest.approx(2.0 + 2.0 / 2.0)
    assert tilt[1] == 2.0
    assert table.kinked(np.array([-9.0]))
    assert not table.kinked(np.array([-6.0]))
    log_delta, slope = table.at_epsilon(np.array([3.0]))
    assert log_delta[0] == pytest.approx(-7.0 - 2.0)
    assert slope[0] == 2.0


# --- rare large losses ------------------------------------------------------------------------------------------------

RARE = Discrete(np.array([-1e-6, 2.0, 5.0]), np.log([1 - 1.1e-6, 1e-6, 1e-7]), 0.0, 0.0)


@pytest.mark.parametrize("laws", [PHASES, [(RARE, 100)], [(RARE, 3), (FEW, 2)]])
def test_sums_over_the_tail_are_those_of_its_losses(laws: list[tuple[Discrete, int]]) -> None:
    tail = LossTail.of(LossPMF(laws, 0.0, True))
    every = np.unique(np.concatenate([law.loss for law, _ in laws]))
    for at in np.concatenate([every, every + 1e-3, [-9.0, 99.0]]).tolist():
        above = math.fsum(
            s * math.exp(m) for law, s in laws for x, m in zip(law.loss, law.log_mass, strict=True) if x > at
        )
        assert float(tail.chance_above(np.array(at))) == pytest.approx(above, rel=1e-9, abs=1e-300)
        finite = own_deltas(at, laws) - math.fsum(s * law.infinite for law, s in laws)
        assert float(tail.own_delta(np.array([at]))[0]) == pytest.approx(finite, rel=1e-6, abs=1e-12)


def test_one_jump_is_where_the_steps_own_deltas_add_up_to_delta() -> None:
    fine = Discrete(
        np.linspace(-0.01, 6.0, 4_000), np.log(np.full(4_000, 1 / 4_000)) - np.linspace(0.0, 25.0, 4_000), 0.0, 0.0
    )
    tail = LossTail.of(LossPMF([(fine, 7)], 0.0, True))
    goals = np.log([1e-4, 1e-6, 1e-9])
    epsilon = tail.one_jump(goals)
    assert [own_deltas(e, [(fine, 7)]) for e in epsilon.tolist()] == pytest.approx([1e-4, 1e-6, 1e-9], rel=2e-3)
    assert tail.one_jump(np.array([5.0]))[0] == -math.inf  # they never add up to that


def test_two_losses_above_a_rare_one_are_a_small_share_of_delta() -> None:
    tail = LossTail.of(LossPMF([(RARE, 100)], 0.0, True))
    for delta in (1e-6, 1e-8):
        rare = tail.rare(math.log(delta))
        assert 0.5 * float(tail.chance_above(np.array(rare))) ** 2 <= 1e-4 * delta * (1 + 1e-9)


def test_one_jump_decides_where_a_single_loss_is_rarer_than_the_bulk_is_small() -> None:
    rare, many = LossTail.of(LossPMF([(RARE, 100)], 0.0, True)), LossTail.of(LossPMF([(FEW, 400)], 0.0, True))
    assert rare.one_jump_decides(np.array([1.5]), np.log([1e-6]), 0.0).all()
    assert not many.one_jump_decides(np.array([30.0]), np.log([1e-6]), 0.0).any()
    assert not rare.one_jump_decides(np.array([1.5]), np.log([1e-6]), 4.0).any()  # beside a Gaussian loss
    assert not rare.one_jump_decides(np.array([0.0]), np.log([1e-6]), 0.0).any()
