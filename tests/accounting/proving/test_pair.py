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
from filet.accounting.proving.lending import Step, swap_excess
from filet.accounting.proving.pair import Pair, PhaseLaw, phase_law
from filet.accounting.proving.sizes import SecretSize, SizesUpTo
from filet.accounting.proving.theorems import lending_step, loss_law
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


def test_a_secret_size_is_bounded_for_every_size_under_add_remove_and_only_there() -> None:
    scheme = CappedPoisson(1_000, 0.01, 20, "reject", size="secret")
    found = phase_law(Phase(scheme, 1.3, 5), Adjacency.ADD_REMOVE, 3)
    assert found.law is None
    assert found.steps == 5
    assert isinstance(found.step, SecretSize)
    assert (found.step.p, found.step.sigma, found.step.full) == (0.01, 1.3, 0.02)
    public = CappedPoisson(1_000, 0.01, 20, "reject")
    for adjacency in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE):
        assert phase_law(Phase(scheme, 1.3, 5), adjacency, 3) == phase_law(Phase(public, 1.3, 5), adjacency, 3)
    assert phase_law(Phase(public, 1.3, 5), Adjacency.ADD_REMOVE, 3).step is None


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_sizes_up_to_a_largest_one_are_bounded_together_by_the_refined_analysis(adjacency: Adjacency) -> None:
    scheme = CappedPoisson(10_000, 0.01, 120, size="at-most")
    found = phase_law(Phase(scheme, 1.3, 5), adjacency, 3)
    assert found.law is None
    assert found.steps == 5
    assert isinstance(found.step, SizesUpTo)
    assert (found.step.p, found.step.sigma, found.step.adjacency) == (0.01, 1.3, adjacency)
    assert found.step.cells == SizesUpTo(scheme, 1.3, adjacency, 3).cells


@pytest.mark.parametrize("analysis", list(Analysis))
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_law_is_that_of_the_analysis(adjacency: Adjacency, analysis: Analysis) -> None:
    found = phase_law(Phase(USUAL, 1.3, 5, analysis), adjacency, 3)
    assert found.law == loss_law(USUAL, 1.3, adjacency, analysis)
    if analysis is Analysis.REFINED:
        assert found.step == lending_step(USUAL, 1.3, adjacency, 3)
        assert found.step.adjacency is adjacency


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


def test_nodes_are_read_up_to_the_first_negligible_one() -> None:
    phase = phase_law(Phase(USUAL, 1.0, 7), Adjacency.ADD_REMOVE, 3)
    losses = np.linspace(-2.0, 6.0, 81)
    assert isinstance(phase.step, Step)
    nodes = ProfileNodes(phase.step, losses, swap_excess(replace(phase.step, lenders=0), losses))
    few = float(nodes.excess[60])
    for negligible in (0.0, few):
        composed = Pair((phase,)).pmf([nodes], above=True, negligible=negligible)
        assert composed.steps == 7
        assert composed.blocks[0].loss.max() == nodes.discretised(negligible).loss.max()
    assert nodes.discretised(few).loss.max() == losses[60] < nodes.discretised(0.0).loss.max()


def test_gaussian_releases_are_rounded_to_the_safe_side() -> None:
    pair = Pair((PhaseLaw(usual_law(), 3),), Bounds(0.1, 0.2))
    grid = uniform_grid(usual_law(), 9.0, 0.3)
    assert pair.pmf([grid], above=True, negligible=0.0).gaussian == 0.2
    assert pair.pmf([grid], above=False, negligible=0.0).gaussian == 0.1
