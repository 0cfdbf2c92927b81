"""Contours: whatever is chosen proves true bounds, and near the answer narrow ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.accounting.laws import FEW, OTHER, Counted, inversion_near, pair_of, usual_law

from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.inversion import DeltaBracket
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.search.contour import Query, choose_inversion, read_weights
from filet.accounting.search.grid import uniform_grid

# A large loss now and then beside small ones: no tilt reaches both.
RARE = Discrete(np.array([-2e-3, 2e-3, 4.0, 9.0]), np.log([0.5, 0.5 - 1.1e-6, 1e-6, 1e-7]), 0.0, 0.0)


def exact_of(law: Discrete, steps: int) -> Counted:
    return Counted([(law, steps)])


@pytest.mark.parametrize(("law", "steps"), [(FEW, 4), (OTHER, 7), (RARE, 4)], ids=["few", "other", "rare"])
@pytest.mark.parametrize("above", [True, False])
def test_chosen_contours_prove_true_bounds_wherever_they_are_read(law: Discrete, steps: int, above: bool) -> None:
    exact, pmf = exact_of(law, steps), LossPMF([(law, steps)], 0.0, above)
    told = 0
    for epsilon in (1e-3, 0.2, 0.7, 1.9, 3.5):
        delta = float(exact.delta(epsilon))
        if not 1e-200 < delta < 0.9:
            continue
        inversion = inversion_near(pmf, epsilon, math.log(delta))
        for e in (epsilon, 0.9 * epsilon, 1.05 * epsilon):
            bound, true = inversion.delta_bound(e, math.log(delta)).bound, float(exact.delta(e)) / delta
            if not math.isnan(bound):
                told += 1
                assert bound >= true * (1 - 1e-9) if above else bound <= true * (1 + 1e-9)
    assert told > 3


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("steps", [1_000, 10_000])
def test_one_contour_read_from_both_sides_is_narrow_at_the_answer(epsilon: float, steps: int) -> None:
    law = usual_law(3.0)
    pmf = pair_of((law, steps)).pmf([uniform_grid(law, 10.0, 0.02)], above=True, negligible=0.0)
    bracket, log_delta = DeltaBracket(np.array([epsilon])), -10.0
    for _ in range(4):
        inversion = inversion_near(pmf, epsilon, log_delta)
        bracket.read(inversion, np.array([log_delta]))
        bracket.read(inversion.from_below(), np.array([log_delta]))
        log_delta = float(np.log(bracket.upper[0]))
    assert bracket.upper[0] - bracket.lower[0] <= 0.02 * bracket.upper[0]


def test_finer_contours_are_not_wider() -> None:
    law, steps, epsilon = FEW, 4, 0.7
    delta = float(exact_of(law, steps).delta(epsilon))
    pmf = LossPMF([(law, steps)], 0.0, True)
    widths = []
    for fineness in (1.0, 4.0, 16.0):
        widths.append(
            inversion_near(pmf, epsilon, math.log(delta), fineness).delta_bound(epsilon, math.log(delta)).bound
        )
    assert widths[0] >= widths[1] * (1 - 1e-6) >= widths[2] * (1 - 1e-5)
    assert widths[2] == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("epsilon", [2.0, 4.5])
def test_runs_that_one_big_jump_decides_are_split_and_proven(epsilon: float) -> None:
    """10,000 steps: without caps, no contour would resolve a delta of one in a million."""
    steps = 10_000
    delta = steps * float(np.exp(RARE.log_mass[2:]) @ -np.expm1(np.minimum(epsilon - RARE.loss[2:], 0.0)))
    inversion = inversion_near(LossPMF([(RARE, steps)], 0.0, True), epsilon, math.log(delta))
    assert inversion.delta_bound(epsilon, math.log(delta)).bound == pytest.approx(
        1.0, abs=0.1
    )  # small losses add a little
    below = inversion_near(LossPMF([(RARE, steps)], 0.0, False), epsilon, math.log(delta))
    assert below.delta_bound(epsilon, math.log(delta)).bound == pytest.approx(1.0, abs=0.1)
    assert inversion.nodes < 50_000


def test_several_questions_share_one_contour_of_all_losses() -> None:
    law = usual_law()
    pmf = pair_of((law, 500)).pmf([uniform_grid(law, 10.0, 0.05)], above=True, negligible=0.0)
    at = np.array([1.0, 1.4])
    query = Query(pmf, at, np.array([-12.0, -18.0]), 1.0)
    inversion = choose_inversion(query, 12.0)
    assert (len(inversion.contours), inversion.caps) == (1, [])
    bounds = inversion.delta_bound(at, np.array([-12.0, -18.0])).bound
    assert np.isfinite(bounds).all()


def test_losses_count_by_what_they_leave_to_the_others() -> None:
    """The weight of a loss is the run's own delta at what is left of epsilon, and at most 1."""
    law, steps, epsilon = usual_law(), 400, 1.2
    pmf = pair_of((law, steps)).pmf([uniform_grid(law, 10.0, 0.05)], above=True, negligible=0.0)
    inversion = inversion_near(pmf, epsilon, -12.0)
    weights = read_weights(inversion, epsilon)
    assert (np.diff(weights.loss) > 0.0).all()
    assert (weights.log_weight <= 1e-9).all()
    for loss in (0.2, 0.6, 0.9):
        left = inversion_near(pmf, epsilon - loss, -3.0).delta_bound(epsilon - loss, 0.0).bound
        assert float(weights.at(np.array([loss]))[0]) == pytest.approx(math.log(left), abs=0.3)
    assert weights.at(np.array([99.0])) <= weights.at(np.array([epsilon]))


@pytest.mark.parametrize("epsilon", [0.0, 1e-12])
def test_an_epsilon_of_nothing_has_a_contour_too(epsilon: float) -> None:
    pmf = LossPMF([(FEW, 4)], 0.0, True)
    delta = float(exact_of(FEW, 4).delta(epsilon))
    bound = inversion_near(pmf, epsilon, math.log(delta)).delta_bound(epsilon, math.log(delta)).bound
    assert math.isnan(bound) or 1.0 - 1e-9 <= bound < 1.2
