"""Where laws are cut: cells of one width for a first look, then cells fitted to where the answer lies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.accounting.laws import cuts, usual_law

from filet.accounting.proving.cells import Cells, discretise_above, discretise_below
from filet.accounting.proving.loss_law import LossLaw, Piece
from filet.accounting.searching.grids import Focus, equal_cells, fitted_cells


def test_equal_cells_cover_what_is_within_reach_of_a_mean() -> None:
    law = usual_law()
    cells = equal_cells(law, 6.0, 0.1)
    assert cells.law is law
    for piece, one in zip(law.pieces, cuts(cells), strict=True):
        x = np.sort(one.x)
        inner = x[np.isfinite(x)]
        assert (np.diff(inner) <= 0.1 + 1e-12).all()
        assert inner[0] == pytest.approx(max(piece.low, min(piece.means) - 6.0))
        assert inner[-1] == pytest.approx(min(piece.high, max(piece.means) + 6.0))
        assert (x[0], x[-1]) == (piece.low, piece.high)


def test_far_means_leave_a_gap_of_one_cell() -> None:
    law = usual_law(0.01)  # means a hundred deviations apart
    seen = cuts(equal_cells(law, 6.0, 0.1))
    assert any((np.abs(np.diff(one.x[np.isfinite(one.x)])) > 80.0).any() for one in seen)
    assert all(one.x.size < 500 for one in seen)


def test_a_piece_far_in_a_tail_is_one_cell() -> None:
    far = Piece((0.0, 1.0), (0.9, 0.1), (1.0, 0.0), (-0.1, 0.1), low=50.0, high=60.0)
    assert list(equal_cells(LossLaw((far,)), 6.0, 0.1).x) == [50.0, 60.0]
    half = Piece((0.0, 1.0), (0.9, 0.1), (1.0, 0.0), (-0.1, 0.1), low=50.0)
    assert list(equal_cells(LossLaw((half,)), 6.0, 0.1).x) == [50.0, math.inf]


@pytest.mark.parametrize("cells", [50, 800, 3000])
def test_fitted_cells_are_about_as_many_as_asked_for(cells: int) -> None:
    law = usual_law()
    fitted = fitted_cells(equal_cells(law, 8.0, 0.1), Focus(cells, np.array([-1.0, 1.0]), np.zeros(2)))
    assert cells <= sum(one.p.size for one in cuts(fitted)) <= cells + 5 * len(law.pieces)
    assert fitted.law is law


def test_cells_are_small_where_losses_matter() -> None:
    law = usual_law()
    look = equal_cells(law, 8.0, 0.1)
    weight = np.array([0.0, 0.0, -40.0, -40.0])
    small = fitted_cells(look, Focus(500, np.array([-1.0, 0.0, 0.001, 9.0]), weight))
    large = fitted_cells(look, Focus(500, np.array([-9.0, 0.0, 0.5, 9.0]), weight[::-1].copy()))

    def width(cells: Cells, low: float, high: float) -> float:
        apart = [np.abs(np.diff(one.x)) for one in cuts(cells)]
        widths = [v[(one.loss[1:] > low) & (one.loss[1:] < high) & np.isfinite(v)]
                  for v, one in zip(apart, cuts(cells), strict=True)]  # fmt: skip
        return float(np.median(np.concatenate(widths)))

    assert width(small, -0.01, 0.0) < 0.2 * width(large, -0.01, 0.0)
    assert width(large, 1.0, 3.0) < 0.2 * width(small, 1.0, 3.0)


def test_fitted_cells_bring_both_sides_closer() -> None:
    law = usual_law()
    look = equal_cells(law, 8.0, 0.1)
    focus = Focus(1600, np.array([-1.0, 3.0]), np.zeros(2))

    def gap(cells: object) -> float:
        above, below = discretise_above(cells), discretise_below(cells)  # type: ignore[arg-type]
        deltas = [float(np.exp(one.log_mass) @ -np.expm1(np.minimum(0.1 - one.loss, 0.0))) for one in (above, below)]
        return deltas[0] - deltas[1]

    assert 0.0 < gap(fitted_cells(look, focus)) < 0.3 * gap(look)


def test_weights_that_say_nothing_still_make_cells() -> None:
    look = equal_cells(usual_law(), 8.0, 0.1)
    for log_weight in (np.full(2, -math.inf), np.full(2, -1e300)):
        fitted = fitted_cells(look, Focus(100, np.array([0.0, 1.0]), log_weight))
        discretise_above(fitted)
        assert sum(one.p.size for one in cuts(fitted)) >= 2
