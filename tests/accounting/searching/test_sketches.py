"""Sketches: few points of a law say where the answer lies and which losses matter, close to what is true."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.accounting.laws import usual_law

from filet import Adjacency, Analysis, CappedPoisson, account
from filet.accounting.proving.cells import Discrete, discretise_above
from filet.accounting.proving.composition import Composition, blocks
from filet.accounting.proving.loss_law import LossLaw
from filet.accounting.proving.theorems import loss_law
from filet.accounting.searching.grids import equal_cells
from filet.accounting.searching.guesses import moments
from filet.accounting.searching.sketches import (
    RoughLine,
    Sketch,
    guess_at_delta,
    guess_at_epsilon,
    guess_near_epsilon,
    log_needs,
    points_of,
    sketch_discrete,
    sketch_law,
    sketched_cells,
)

SCHEME = CappedPoisson(60_000, 256 / 60_000, 300)


def truncated(adjacency: Adjacency = Adjacency.ADD_REMOVE) -> LossLaw:
    """Three pieces, two of which end where their densities are large."""
    return loss_law(SCHEME, 1.0, adjacency, Analysis.SWAP)


def sketched(law: LossLaw, steps: int, gaussian: float = 0.0) -> Sketch:
    return Sketch.of([sketch_law(law, points_of(law, 8.0))], np.array([float(steps)]), gaussian)


def fine(law: LossLaw, steps: int, gaussian: float = 0.0) -> Composition:
    return Composition(blocks([(discretise_above(equal_cells(law, 8.0, 0.01)), steps)]), gaussian)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("gaussian", [0.0, 0.3])
def test_moments_of_a_sketch_are_those_of_fine_cells(adjacency: Adjacency, gaussian: float) -> None:
    law, tilts = truncated(adjacency), np.array([0.5, 2.0, 4.0])
    found = np.array(sketched(law, 1000, gaussian).moments(tilts)).T
    whole = fine(law, 1000, gaussian)
    for c, some in zip(tilts.tolist(), found, strict=True):
        assert some == pytest.approx(moments(whole, c), rel=3e-3)
    assert sketched(law, 1000, gaussian).log_mgf(tilts) == pytest.approx(found[:, 0], rel=1e-9)


def test_the_other_direction_is_in_the_same_table() -> None:
    law = truncated()
    _, back = sketched(law, 3000).tables(math.log(1e-5))
    direct, _ = sketched(law.reversed(), 3000).tables(math.log(1e-5))
    same = slice(4, 14)
    assert np.interp(direct.c[same], back.c, back.epsilon) == pytest.approx(direct.epsilon[same], rel=0.05, abs=0.02)


@pytest.mark.parametrize(("delta", "steps"), [(1e-5, 14_000), (1e-8, 3_000), (1e-3, 100), (1e-12, 10**6)])
@pytest.mark.parametrize("sigma", [0.8, 3.0])
def test_a_guess_is_close_to_what_is_proven(delta: float, steps: int, sigma: float) -> None:
    scheme = CappedPoisson(60_000, 256 / 60_000, 60_000)
    law = loss_law(scheme, sigma, Adjacency.REPLACE_ONE, Analysis.REFINED)
    sketch, log_delta = sketched(law, steps), math.log(delta)
    guess = guess_at_delta(sketch, sketch.tables(log_delta)[0], log_delta, 1e-5)
    assert guess is not None
    bounds = account(scheme, noise_multiplier=sigma, steps=steps, adjacency="replace-one").epsilon_bounds(delta)
    assert guess.epsilon == pytest.approx(bounds.upper, rel=0.012)  # where the table was trusted, to that much
    closely = guess_at_delta(sketch, sketch.tables(log_delta)[0], log_delta, 1e-5, 0.0)
    assert closely is not None
    assert closely.epsilon == pytest.approx(bounds.upper, rel=1e-3)
    assert guess.log_weight(np.zeros(1))[0] == pytest.approx(0.0, abs=0.3)
    assert guess.line.plan.tilts.min() < guess.line.plan.c < guess.line.plan.tilts.max()
    near = guess_near_epsilon(sketch, sketch.tables(log_delta)[0], bounds.upper, 1e-5)
    assert near is not None
    assert near.log_delta == pytest.approx(log_delta, abs=0.05)
    rough = guess_at_epsilon(sketch.tables(log_delta)[0], bounds.upper, log_delta, 1e-4, guess.line)
    assert rough is not None
    assert rough.log_delta == pytest.approx(log_delta, abs=2.0)


def test_what_a_sketch_does_not_show_is_not_guessed() -> None:
    sketch = sketched(usual_law(), 1000)
    table, _ = sketch.tables(math.log(1e-5))
    assert guess_at_delta(sketch, table, -1e9, 1e-5) is None
    assert guess_at_delta(sketch, table, 0.0, 1e-5) is None
    assert guess_near_epsilon(sketch, table, 1e9, 1e-5) is None
    assert guess_near_epsilon(sketch, table, 0.0, 1e-5) is None
    assert guess_at_epsilon(table, -1e9, -10.0, 1e-5, table.line(1.0, -10.0, 1e-5)) is None


def test_a_rough_line_gives_up_where_it_leads_nowhere() -> None:
    sketch = sketched(usual_law(), 1000)
    assert math.isnan(RoughLine(sketch, 3.0, 40.0).solve(5.0, -1e6))


def test_phases_of_different_lengths_stand_side_by_side() -> None:
    first, second = truncated(), loss_law(SCHEME, 2.0, Adjacency.ADD_REMOVE, Analysis.NOTE)
    rows = [sketch_law(law, points_of(law, 8.0)) for law in (first, second)]
    both = Sketch.of(rows, np.array([300.0, 700.0]), 0.1)
    tilts = np.array([1.0, 3.0])
    parts = [Sketch.of([row], np.array([steps]), 0.0) for row, steps in zip(rows, (300.0, 700.0), strict=True)]
    expected = parts[0].log_mgf(tilts) + parts[1].log_mgf(tilts) + 0.05 * (tilts * tilts + tilts)
    assert both.log_mgf(tilts) == pytest.approx(expected, rel=1e-12)


def test_neighbours_of_a_fine_law_are_merged_and_keep_mass_and_mean() -> None:
    rng = np.random.default_rng(1)
    law = Discrete(np.sort(rng.normal(size=403)), np.log(rng.dirichlet(np.ones(403))), 0.0, 0.0)
    loss, log_mass = sketch_discrete(law)
    assert loss.size < 0.3 * law.loss.size
    assert np.exp(log_mass).sum() == pytest.approx(1.0)
    assert np.exp(log_mass) @ loss == pytest.approx(float(np.exp(law.log_mass) @ law.loss))
    few = Discrete(law.loss[:9], law.log_mass[:9], 0.0, 0.0)
    assert sketch_discrete(few)[0] is few.loss


def test_cells_are_needed_where_losses_matter() -> None:
    law = truncated()
    points, sketch, log_delta = points_of(law, 8.0), sketched(law, 3000), math.log(1e-6)
    forward, back = sketch.tables(log_delta)
    guess = guess_at_delta(sketch, forward, log_delta, 1e-5)
    assert guess is not None
    other = guess_at_epsilon(back, guess.epsilon, log_delta, 1e-4, guess.line)
    alone, both = log_needs(points, guess, None), log_needs(points, guess, other)
    assert alone.size + 1 == points.x.size
    assert (alone <= both).all()
    inside = np.delete(alone, [end - 1 for end in points.ends[:-1]])
    assert float(inside.max() - np.median(inside)) > 2.0


def test_sketched_cells_are_small_where_they_are_needed_and_none_spans_two_pieces() -> None:
    law = truncated()
    points = points_of(law, 8.0)
    need = np.where(np.abs(points.x[1:] - 1.0) < 0.5, 3.0, 0.0)
    cells = sketched_cells(law, points, need, 400)
    assert 350 < cells.p.size < 450
    assert len(cells.ends) == len(law.pieces) > 1
    assert float(cells.p.sum()) + sum(atom.p for atom in law.atoms) == pytest.approx(1.0)
    for piece, first, end in zip(law.pieces, (0, *cells.ends[:-1]), cells.ends, strict=True):
        x = cells.x[first:end]
        assert {x[0], x[-1]} == {piece.low, piece.high}
        width = np.abs(np.diff(x[1:-1]))
        near = np.abs(x[2:-1] - 1.0) < 0.4
        if near.any():
            assert width[near].max() < 0.5 * np.median(width[~near])
