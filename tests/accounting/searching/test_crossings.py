"""Thresholds proposed for one step: the first is nearly always one that proves, and close."""

from __future__ import annotations

import math

import numpy as np
import pytest

from filet import Adjacency, Analysis, CappedPoisson
from filet.accounting.proving.loss_law import Piece
from filet.accounting.proving.theorems import loss_law
from filet.accounting.searching.crossings import crossings

EPSILON = np.append(0.0, np.geomspace(1e-9, 1e3, 61))


def pieces(sigma: float) -> list[Piece]:
    """Of every analysis and adjacency, in both orders."""
    found = []
    for adjacency in Adjacency:
        for scheme, analysis in (
            (CappedPoisson(1000, 0.01, 1000), Analysis.REFINED),
            (CappedPoisson(1000, 0.01, 14), Analysis.SWAP),
            (CappedPoisson(1000, 0.01, 14), Analysis.NOTE),
            (CappedPoisson(1000, 0.01, 14, "reject"), Analysis.REFINED),
        ):
            law = loss_law(scheme, sigma, adjacency, analysis)
            found += [*law.pieces, *law.reversed().pieces]
    return found


@pytest.mark.parametrize("sigma", [0.01, 0.3, 1.0, 20.0, 1e5])
def test_proposals_are_on_the_safe_side_and_as_close_as_rounding_allows(sigma: float) -> None:
    first, asked = 0, 0
    for piece in pieces(sigma):
        tried = []

        def proposals(piece: Piece = piece, tried: list[int] = tried):
            for x in crossings(piece, EPSILON):
                tried.append(1)
                yield x

        x, lack = piece.threshold(EPSILON, proposals())
        assert len(tried) <= 8  # none is left without one
        seen = piece.loss(x)
        off = piece.loss_error(x, seen)
        low, high = (max(piece.low, min(piece.means) - 39.0), min(piece.high, max(piece.means) + 39.0))
        inside = (x > low) & (x < high)
        assert (lack[inside] <= 400.0 * off[inside] + 1e-15 * max(map(abs, piece.d))).all()
        first, asked = first + (len(tried) == 1), asked + 1
    assert first > 0.3 * asked


def test_a_loss_that_is_the_same_everywhere_is_passed_nowhere() -> None:
    same = Piece((0.0,), (0.5,), (0.4,), (0.1,))
    below, above = next(crossings(same, np.array([0.1, 0.3])))
    assert {below, above} == {math.inf, -math.inf}
    value, error = same.profile(np.array([0.1, 0.3]), crossings(same, np.array([0.1, 0.3])))
    assert value == pytest.approx([0.5 - 0.4 * math.exp(0.1), 0.0], rel=1e-12)
    assert (error <= 1e-14).all()
