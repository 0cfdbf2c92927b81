"""One order of the neighbours: which phases lend, both orders, and discrete losses on any grids."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.accounting.laws import usual_law

from filet import Adjacency, Analysis, Bounds, CappedPoisson, NotCertifiedError, Phase
from filet.accounting.proving.closed_form import OneStep
from filet.accounting.proving.hull import ProfileNodes
from filet.accounting.proving.pair import Pair, PhaseLaw, phase_law
from filet.accounting.search.closed_form import crossings
from filet.accounting.search.grid import uniform_grid

USUAL = CappedPoisson(10_000, 0.01, 120)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_only_the_refined_analysis_of_truncated_batches_lends(adjacency: Adjacency) -> None:
    assert phase_law(Phase(USUAL, 1.0, 5), adjacency, 3).step is not None
    for analysis in (Analysis.SWAP, Analysis.NOTE, Analysis.UNION):
        assert phase_law(Phase(USUAL, 1.0, 5, analysis), adjacency, 3).step is None
    rejecting = CappedPoisson(10_000, 0.01, 120, "reject")
    for scheme in (rejecting, CappedPoisson(100, 0.2, 100), CappedPoisson(100, 0.2, 1)):
        assert phase_law(Phase(scheme, 1.0, 5), adjacency, 3).step is None


def test_a_phase_counts_the_rounds_of_one_group() -> None:
    cyclic = CappedPoisson(10_000, 0.01, 120, cycle_length=7)
    assert phase_law(Phase(cyclic, 1.0, 50), Adjacency.ZERO_OUT, 3).steps == 8


def test_the_other_order_of_the_other_order_is_the_pair_itself() -> None:
    one, other = (phase_law(Phase(USUAL, sigma, 5), Adjacency.ADD_REMOVE, 3) for sigma in (1.0, 2.0))
    pair = Pair((one, other), Bounds(0.1, 0.2))
    back = pair.reversed()
    assert back.backward
    assert back.phases[0].law == one.law.reversed()
    assert back.phases[1].step is other.step  # lending gives both orders at once
    assert back.gaussian == pair.gaussian
    assert back.steps == pair.steps == 10
    assert back.reversed() == pair


@pytest.mark.parametrize("backward", [False, True])
def test_discrete_losses_on_any_grid_bracket_the_steps_own_delta(backward: bool) -> None:
    pair = Pair((PhaseLaw(usual_law(), 1),))
    pair = pair.reversed() if backward else pair
    law, at = pair.phases[0].law, np.array([0.0, 0.1, 1.0, 3.0])
    lower, upper = OneStep(law, crossings).delta_bounds(at)
    for reach, spacing in ((9.0, 0.1), (2.0, 1.0), (0.5, 3.0)):
        grid = uniform_grid(law, reach, spacing)
        above, below = (pair.pmf([grid], above=above, negligible=0.0) for above in (True, False))
        assert (above.separate(at) >= lower).all()
        for block in below.blocks:
            mass = np.exp(block.log_mass[0])
            own = [math.fsum(mass * -np.expm1(np.minimum(e - block.loss[0], 0.0))) for e in at.tolist()]
            assert (own <= upper * (1 + 1e-9)).all()


def test_grids_of_another_phase_or_order_are_refused() -> None:
    phase = phase_law(Phase(USUAL, 1.0, 5), Adjacency.ADD_REMOVE, 3)
    pair = Pair((phase,))
    grid = uniform_grid(phase.law, 9.0, 0.3)
    with pytest.raises(NotCertifiedError, match="belong to another"):
        pair.reversed().pmf([grid], above=True, negligible=0.0)
    with pytest.raises(NotCertifiedError, match="belong to another"):
        pair.pmf([uniform_grid(usual_law(2.0), 9.0, 0.3)], above=True, negligible=0.0)
    assert phase.step is not None
    loss = np.array([-0.5, 0.0, 0.5])
    nodes = ProfileNodes(phase.step, np.empty(0), np.empty(0)).more(
        loss, np.zeros((3, phase.step.lenders)), np.zeros(3)
    )
    with pytest.raises(NotCertifiedError, match="belong to another"):
        pair.pmf([nodes.reversed()], above=True, negligible=0.0)
    other = phase_law(Phase(USUAL, 2.0, 5), Adjacency.ADD_REMOVE, 3).step
    assert other is not None
    with pytest.raises(NotCertifiedError, match="belong to another"):
        pair.pmf([replace(nodes, step=other)], above=True, negligible=0.0)
    with pytest.raises(ValueError, match="zip"):
        pair.pmf([], above=True, negligible=0.0)


def test_gaussian_releases_are_rounded_to_the_safe_side() -> None:
    pair = Pair((PhaseLaw(usual_law(), 3),), Bounds(0.1, 0.2))
    grid = uniform_grid(usual_law(), 9.0, 0.3)
    assert pair.pmf([grid], above=True, negligible=0.0).gaussian == 0.2
    assert pair.pmf([grid], above=False, negligible=0.0).gaussian == 0.1
