"""Grids: any of them gives true bounds, and refined ones give tight bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.accounting.laws import inversion_near, piece_edges, usual_law

from filet import Adjacency, Analysis, CappedPoisson
from filet.accounting.proving.cells import Cells, discretise_above
from filet.accounting.proving.loss_law import LossLaw
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.proving.theorems import loss_law
from filet.accounting.search.grid import CellWeights, refined_grid, tilted_weights, uniform_grid
from filet.accounting.search.saddle_point import saddle_points_at_epsilon

LAWS = {
    "usual": usual_law(),
    "reversed": usual_law().reversed(),
    "little noise": usual_law(0.05),
    "much noise": usual_law(50.0),
    "pieces": loss_law(CappedPoisson(1_000, 0.1, 120), 1.0, Adjacency.REPLACE_ONE, Analysis.SWAP),
    "note": loss_law(CappedPoisson(1_000, 0.1, 120), 1.0, Adjacency.ADD_REMOVE, Analysis.NOTE),
}


def inner(cells: Cells) -> list[np.ndarray]:
    """The finite edges of each piece, in the order of x."""
    return [np.sort(cells.x[one][np.isfinite(cells.x[one])]) for one in piece_edges(cells)]


@pytest.mark.parametrize("name", LAWS)
def test_uniform_grids_cover_every_mean_as_far_as_they_reach(name: str) -> None:
    law = LAWS[name]
    for piece, x in zip(law.pieces, inner(uniform_grid(law, 8.0, 0.2)), strict=True):
        for mean in piece.means:
            low, high = max(piece.low, mean - 8.0), min(piece.high, mean + 8.0)
            within = x[(x >= low - 1e-9) & (x <= high + 1e-9)]
            if high - low > 0.5:
                assert within[0] <= low + 0.2 + 1e-9
                assert within[-1] >= high - 0.2 - 1e-9
                assert np.diff(within).max() <= 0.2 + 1e-9


@pytest.mark.parametrize("name", LAWS)
def test_masses_of_any_grid_add_up_to_one(name: str) -> None:
    law = LAWS[name]
    for cells in (uniform_grid(law, 8.0, 0.2), uniform_grid(law, 0.3, 5.0)):
        assert math.fsum(cells.p) + sum(atom.p for atom in law.atoms) == pytest.approx(1.0, abs=1e-9)


def own_delta(cells: Cells, epsilon: float) -> float:
    law = discretise_above(cells)
    return law.infinite + math.fsum(np.exp(law.log_mass) * -np.expm1(np.minimum(epsilon - law.loss, 0.0)))


def composed_delta(cells: Cells, epsilon: float) -> float:
    """An upper bound of delta after 50 steps."""
    pmf = LossPMF([(discretise_above(cells), 50)], 0.0, True)
    return float(inversion_near(pmf, epsilon, -14.0, 4.0).delta_bound(epsilon, 0.0).bound)


@pytest.mark.parametrize(("name", "epsilon"), [("usual", 1.4), ("pieces", 12.0), ("note", 10.0)])
def test_refined_grids_are_tighter_than_uniform_ones_of_as_many_cells(name: str, epsilon: float) -> None:
    law, at = LAWS[name], np.array([epsilon])
    coarse = uniform_grid(law, 9.0, 0.1)
    table = saddle_points_at_epsilon(LossPMF([(discretise_above(coarse), 50)], 0.0, True).whole, at)
    log_delta, tilt = table.at_epsilon(at)
    fitted = refined_grid(coarse, tilted_weights(tilt, at, log_delta), 150)
    equal = uniform_grid(law, 9.0, 19.0 * len(law.pieces) / 150)
    exact = composed_delta(uniform_grid(law, 9.0, 0.005), epsilon)
    assert exact * (1 - 1e-3) <= composed_delta(fitted, epsilon)
    assert composed_delta(fitted, epsilon) - exact < 0.7 * (composed_delta(equal, epsilon) - exact)
    assert fitted.x.size <= 1.5 * 150 + 8 * len(law.pieces)


def test_more_cells_are_closer_to_the_exact_delta() -> None:
    law, weights = usual_law(), tilted_weights(np.array([6.0]), np.array([0.5]), np.array([-12.0]))
    coarse = uniform_grid(law, 8.0, 0.1)
    found = [own_delta(refined_grid(coarse, weights, count), 0.5) for count in (50, 200, 800)]
    exact = own_delta(uniform_grid(law, 12.0, 0.002), 0.5)
    excess = [one - exact for one in found]
    assert excess[0] > 8 * excess[1] > 40 * max(excess[2], 0.0)  # as the square of their number


@pytest.mark.parametrize("name", LAWS)
def test_refined_grids_have_more_cells_where_losses_matter(name: str) -> None:
    """All weight on large losses draws the cells there; without weights, they go where the mass is."""
    coarse = uniform_grid(LAWS[name], 8.0, 0.1)
    finite = coarse.loss[np.isfinite(coarse.loss)]
    low, high = float(np.quantile(finite, 0.2)), float(np.quantile(finite, 0.8))
    counts = []
    for slope in (0.0, 5.0 / max(high - low, 1e-9)):
        loss = refined_grid(coarse, CellWeights(np.array([low, high]), np.array([0.0, slope * (high - low)])), 300).loss
        counts.append(np.mean(loss[np.isfinite(loss)] > 0.5 * (low + high)))
    assert counts[1] >= counts[0]


def test_weights_are_those_of_chernoffs_bound_between_the_tilts() -> None:
    weights = tilted_weights(np.array([2.0, 5.0]), np.array([1.0, 0.2]), np.array([-10.0, -3.0]))
    at = np.array([-1.0, -0.5, 0.0, 0.3])
    assert weights.at(at) == pytest.approx([-2.0, -1.0, 0.0, 1.5])
    assert weights.at(np.array([99.0])) <= weights.at(np.array([98.0]))  # a step alone leaves at most 1 to the others


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_reversed_grids_are_grids_of_the_reversed_law(law: LossLaw) -> None:
    cells = uniform_grid(law, 6.0, 0.3)
    assert cells.reversed().law == law.reversed()
    assert cells.reversed().reversed().loss == pytest.approx(cells.loss)
