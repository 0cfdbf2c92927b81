"""A run seen from one side: its crude bounds against sums term by term, and what they allow for rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom
from tests.accounting.laws import FEW, OTHER, SKEW, SMALL, own_deltas

from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.pmf import LossPMF


def test_separate_deltas_are_those_of_the_steps() -> None:
    laws = [(FEW, 3), (OTHER, 2)]
    view = LossPMF(laws, 0.0, True)
    for epsilon in (0.0, 0.05, 0.1, 0.2, 0.5, 0.8999):
        exact = own_deltas(epsilon, laws)
        assert exact < float(view.separate(np.array([epsilon]))[0]) <= exact * (1 + 2e-9)
    assert view.distance == float(view.separate(np.zeros(1))[0])
    # a Gaussian of squared shift 0.8 is at total variation 2 Phi(mu / 2) - 1
    shifted = LossPMF(laws, 0.8, True).separate(np.array([0.2]))[0]
    assert shifted == pytest.approx(own_deltas(0.2, laws) + math.erf(math.sqrt(0.8) / 2 / math.sqrt(2)), rel=2e-9)
    assert view.infinite == pytest.approx(3 * FEW.infinite)
    assert LossPMF(laws, 0.0, False).infinite == 0.0  # a lower bound may not count on infinite losses


def test_several_epsilons_and_several_laws_of_different_sizes_are_one_question() -> None:
    laws = [(FEW, 3), (OTHER, 2), (SMALL, 9), (SKEW, 1)]
    found = LossPMF(laws, 0.0, True).separate(np.array([0.0, 0.1, 0.25, 3.0]))
    assert found == pytest.approx([own_deltas(e, laws) for e in (0.0, 0.1, 0.25, 3.0)], rel=2e-9)


def test_the_expected_number_of_large_losses_is_counted() -> None:
    view = LossPMF([(SMALL, 3), (SKEW, 2)], 0.0, True)
    assert view.chance_above(0.05) == pytest.approx(3 * 0.3 + 2 * 0.1)
    assert view.chance_above(0.11) == pytest.approx(2 * 0.1)
    assert view.chance_above(0.2) == 0.0
    assert view.chance_above(-math.inf) == pytest.approx(5.0)


def test_crude_bounds_allow_for_rounded_losses() -> None:
    exact, rounded = (Discrete(FEW.loss, FEW.log_mass, 0.0, 0.0, difference) for difference in (1e-3, 1e9))
    sharp, blunt = LossPMF([(exact, 5)], 0.0, True), LossPMF([(rounded, 5)], 0.0, True)
    slack = 1e9 * (4e-16 * 5 + 1e-12 * math.sqrt(5))
    assert blunt.slack == pytest.approx(slack)
    assert blunt.largest == pytest.approx(sharp.largest + slack, rel=1e-9)
    assert float(blunt.separate(np.array([0.5]))[0]) == pytest.approx(own_deltas(0.5 - 1e-3, [(exact, 5)]), rel=1e-8)
    assert blunt.chernoff_delta(2.0) == pytest.approx(sharp.chernoff_delta(2.0 - slack), rel=1e-9)
    assert blunt.chernoff_epsilon(-3.0) == pytest.approx(sharp.chernoff_epsilon(-3.0) + slack, rel=1e-9)
    assert LossPMF([(OTHER, 1)], 0.0, True).chernoff_epsilon(math.log(0.15)) < 0.3


def test_crude_bounds_allow_for_the_error_of_binomial_weights() -> None:
    exact, rough = (Discrete(FEW.loss, FEW.log_mass, 0.0, error, 1e-3) for error in (0.0, 1e-6))
    for above in (True, False):
        sharp, blunt = LossPMF([(exact, 5), (OTHER, 2)], 0.0, above), LossPMF([(rough, 5), (OTHER, 2)], 0.0, above)
        assert blunt.weight_error == 1e-6
        # every loss may be off by twice the error, or by that share of the largest loss where all are small
        assert blunt.slack == pytest.approx(5 * 2e-6 * 0.9, rel=1e-4)
        assert blunt.largest == pytest.approx(sharp.largest * (1 + 1e-6) + blunt.slack, rel=1e-9)
        assert blunt.rounding == pytest.approx(5e-6, rel=1e-5)
        at = np.array([0.5])
        assert blunt.separate(at)[0] > sharp.separate(at * (1 - 0.99e-6))[0] * (1 + 1.9e-6)
        assert blunt.chernoff_delta(2.0) == pytest.approx(
            sharp.chernoff_delta(2.0 - 2e-6 - blunt.slack) * math.exp(5e-6), rel=1e-8
        )
        assert blunt.chernoff_epsilon(-3.0) > sharp.chernoff_epsilon(-3.0) * (1 + 1e-6)
    few, many = (
        LossPMF([(Discrete(np.array([9.0]), np.zeros(1), 0.0, error), 5)], 0.0, False) for error in (0.0, 1e-6)
    )
    assert few.floor_delta(3.0) * (1 - 1e-5) < many.floor_delta(3.0) < few.floor_delta(3.0) * (1 - 4e-6)
    assert LossPMF([(rough, 11)], 0.0, False).floor_delta(0.0) == 0.0  # more error than is allowed for


@pytest.mark.parametrize(
    ("losses", "share"), [([-0.5, 0.1], math.expm1(0.5)), ([-0.1, 0.5], 0.5), ([-5.0, 3.0], 1.0), ([-800.0, 0.1], 1.0)]
)
def test_wrong_weights_change_a_loss_by_twice_their_error_or_that_share_of_it(
    losses: list[float], share: float
) -> None:
    law = Discrete(np.array(losses), np.log([0.5, 0.5]), 0.0, 1e-6, difference=0.0, loss_error=1e-9)
    assert LossPMF([(law, 3)], 0.0, True).slack == pytest.approx(3 * (1e-9 + 2e-6 * share), rel=1e-9)


def test_crude_bounds_allow_for_the_error_of_weights_to_the_letter() -> None:
    exact, rough = (Discrete(np.array([-7.0, 60.0]), np.log([0.3, 0.7]), 0.0, w, 0.0) for w in (0.0, 1e-6))
    sharp, blunt = LossPMF([(exact, 8)], 0.0, True), LossPMF([(rough, 8)], 0.0, True)
    at = np.array([59.0])  # twice the error for a loss, and for each of two masses
    assert blunt.separate(at)[0] == pytest.approx(sharp.separate(at * (1 - 2e-6))[0] * (1 + 4e-6), rel=1e-10)
    off = 8e-6  # of the logarithm of a transform
    assert blunt.chernoff_epsilon(-3.0) == pytest.approx(
        sharp.chernoff_epsilon(-3.0 - off) * (1 + 1e-6) + blunt.slack, rel=1e-10
    )
    sharp, blunt = LossPMF([(exact, 8)], 0.0, False), LossPMF([(rough, 8)], 0.0, False)
    many = -math.expm1(-7.0)
    for epsilon in (150.0, 200.0):
        moved = (epsilon + 7.0) * (1 + 1e-6) + blunt.slack - 7.0
        small = 1.0 - sharp.floor_delta(moved) / many
        assert 0.01 < small < 0.8
        expected = many * (math.exp(-off) - small * math.exp(off))
        assert blunt.floor_delta(epsilon) == pytest.approx(expected, rel=1e-10)
    together = sharp.floor_delta(np.array([150.0, 200.0]))
    assert together.tolist() == [sharp.floor_delta(150.0), sharp.floor_delta(200.0)]


def test_a_loss_at_the_very_epsilon_counts_as_rounded_to_the_worse_side() -> None:
    law = Discrete(np.array([1000.0]), np.zeros(1), 0.0, 0.0, difference=0.0)
    above, below = LossPMF([(law, 1)], 0.0, True), LossPMF([(law, 1)], 0.0, False)
    assert above.slack == 0.0
    assert above.largest / 1000.0 - 1.0 == pytest.approx(1e-12, rel=0.1, abs=0.0)
    assert above.separate(np.array([1000.0]))[0] == pytest.approx(1e-9, rel=0.1)
    assert 1e-10 < above.chernoff_delta(1000.0) < 1e-8
    assert above.chernoff_epsilon(-40.0) >= 1000.0
    assert below.floor_delta(993.0) < 1e-3
    assert below.floor_delta(992.0) > 0.999


def test_a_run_of_gaussian_releases_alone_has_crude_bounds() -> None:
    view = LossPMF([], 0.8, True)
    assert view.slack == view.weight_error == view.infinite == 0.0
    mu = math.sqrt(0.8)
    assert view.distance == pytest.approx(2 * ndtr(mu / 2) - 1, rel=2e-9)
    exact = ndtr(mu / 2 - 2.0 / mu) - math.exp(2.0) * ndtr(-mu / 2 - 2.0 / mu)
    assert exact < view.chernoff_delta(2.0) < 8 * exact
    assert not LossPMF([], 0.8, False).resolved


@pytest.mark.parametrize("steps", [1, 30, 3000])
def test_chernoff_bounds_are_above_the_truth_and_not_far(steps: int) -> None:
    p, loss = 0.01, 1.0
    other = -math.log1p(-p * math.expm1(-loss) / (1 - p))
    law = Discrete(np.array([other, loss]), np.array([math.log1p(-p), math.log(p)]), 1e-30, 0.0)
    view = LossPMF([(law, steps)], 0.0, True)
    hits = np.arange(steps + 1)
    log_mass = binom.logpmf(hits, steps, p)
    mean, deviation = steps * (p * loss + (1 - p) * other), math.sqrt(steps * p * (1 - p)) * (loss - other)
    for epsilon in (0.5, mean + 3 * deviation, mean + 7 * deviation):
        gains = -np.expm1(np.minimum(epsilon - hits * loss - (steps - hits) * other, 0.0))
        exact = math.fsum(np.exp(log_mass) * gains)
        assert exact <= view.chernoff_delta(epsilon) <= min(1.0, 30 * exact)
        if epsilon > mean + deviation:
            assert epsilon <= view.chernoff_epsilon(math.log(exact)) <= 1.2 * epsilon + 1.0
    assert view.chernoff_delta(1e9) == pytest.approx(view.infinite, rel=1e-6, abs=0)
    half = Discrete(np.array([0.3]), np.log([0.5]), 0.5, 0.0)
    assert LossPMF([(half, 1)], 0.0, True).chernoff_delta(0.0) <= 1.0
    heavy = LossPMF([(Discrete(np.array([50.0]), np.zeros(1), 0.5, 0.0), 1)], 0.0, True)  # more mass than there is
    assert heavy.chernoff_delta(0.0) == 1.0
    assert heavy.chernoff_epsilon(math.log(0.5)) == math.inf
    assert view.chernoff_epsilon(math.log(view.infinite) - 1e-9) == math.inf


LOUD = Discrete(np.array([-0.7, 0.6]), np.log([0.3, 0.7]), 0.0, 0.0)


def exact_delta_of_loud_steps(epsilon: float, gaussian: float) -> float:
    """delta of 400 steps of two losses each, and a Gaussian one."""
    hits, mu = np.arange(401), math.sqrt(gaussian)
    rest, mass = epsilon - hits * 0.6 + (400 - hits) * 0.7, binom.pmf(hits, 400, 0.7)
    if not gaussian:
        return math.fsum(mass * -np.expm1(np.minimum(rest, 0.0)))
    return math.fsum(mass * (ndtr(mu / 2 - rest / mu) - np.exp(rest + log_ndtr(-mu / 2 - rest / mu))))


@pytest.mark.parametrize("gaussian", [0.0, 300.0])
def test_the_floor_of_a_delta_near_one_is_below_it_and_near(gaussian: float) -> None:
    view = LossPMF([(LOUD, 400)], gaussian, False)
    floors = []
    for epsilon in (0.0, 2.0, 40.0, 70.0, 84.0, 120.0, 300.0):
        exact, floor = exact_delta_of_loud_steps(epsilon, gaussian), view.floor_delta(epsilon)
        assert 0.0 <= floor <= exact
        assert floor > 0.999 or exact < 1 - 1e-6
        floors.append(floor)
    assert max(floors) > 0.999


def test_the_floor_of_one_atom_is_at_most_its_own_delta() -> None:
    atom = LossPMF([(Discrete(np.array([3.0]), np.zeros(1), 0.0, 0.0), 1)], 0.0, False)
    assert atom.floor_delta(0.0) <= -math.expm1(-3.0)


def test_dominating_losses_have_no_floor() -> None:
    assert LossPMF([(LOUD, 400)], 0.0, True).floor_delta(2.0) == 0.0


def test_outcomes_that_were_dropped_lower_the_floor() -> None:
    view = LossPMF([(LOUD, 400)], 0.0, False)
    half = LossPMF([(Discrete(LOUD.loss, LOUD.log_mass - math.log(2.0) / 400, 0.0, 0.0), 400)], 0.0, False)
    assert half.floor_delta(2.0) == pytest.approx(view.floor_delta(2.0) / 2, rel=1e-3)


def test_rounded_losses_lower_the_floor_by_their_slack() -> None:
    view = LossPMF([(LOUD, 400)], 0.0, False)
    blunt = LossPMF([(Discrete(LOUD.loss, LOUD.log_mass, 0.0, 0.0, 1e11), 400)], 0.0, False)
    assert 1.0 < blunt.slack < 4.0
    blunt.resolved = True
    assert blunt.floor_delta(70.0) == pytest.approx(view.floor_delta(70.0 + blunt.slack), rel=1e-9)


def test_there_is_no_floor_where_rounding_could_be_more_than_is_spared() -> None:
    assert LossPMF([(LOUD, 10**8)], 0.0, False).floor_delta(2.0) == 0.0
    view = LossPMF([(LOUD, 400)], 0.0, False)
    for view.rounding, proven in ((1e-5, True), (math.nextafter(1e-5, 1.0), False)):
        assert (float(view.floor_delta(2.0)) > 0.999) is proven


def test_losses_that_are_not_resolved_have_no_floor() -> None:
    faint = Discrete(LOUD.loss * 1e-17, LOUD.log_mass, 0.0, 0.0)
    assert LossPMF([(faint, 400)], 1e6, False).floor_delta(2.0) == 0.0


def test_losses_that_are_all_rounding_are_not_resolved_from_below() -> None:
    noise = Discrete(np.array([-1e-17, 1e-17]), np.log([0.5, 0.5]), 0.0, 0.0, difference=0.2)
    below, above = (LossPMF([(noise, 4)], 0.0, above) for above in (False, True))
    assert not below.resolved
    assert above.resolved
    assert above.slack == below.slack == pytest.approx(0.2 * (4e-16 * 4 + 1e-12 * 2), rel=1e-9, abs=0.0)
    assert LossPMF([(FEW, 3)], 0.0, False).resolved
    faint = Discrete(np.array([-1e-14, 1e-14]), np.log([0.5, 0.5]), 0.0, 0.0, difference=1e-6)
    assert LossPMF([(faint, 4)], 0.0, False).resolved
    assert LossPMF([(noise, 4), (FEW, 1)], 0.0, False).resolved
    nothing = Discrete(np.zeros(1), np.zeros(1), 0.0, 0.0, difference=0.0)
    assert not LossPMF([(nothing, 4)], 0.0, False).resolved


def test_a_gaussian_part_has_no_largest_loss() -> None:
    assert LossPMF([(FEW, 3), (OTHER, 2)], 0.0, True).largest == pytest.approx(3 * 0.9 + 2 * 0.3)
    assert LossPMF([(FEW, 3)], 0.8, True).largest == math.inf
    negative = Discrete(np.array([-0.3, -0.1]), np.log([0.5, 0.5]), 0.0, 0.0)
    assert LossPMF([(FEW, 3), (negative, 7)], 0.0, True).largest == pytest.approx(3 * 0.9)
