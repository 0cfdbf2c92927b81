"""Lending: any shares and nodes give true bounds; those that are chosen are near the best, and lower epsilon."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests import lending_cases as cases
from tests.settings import SETTINGS

from filet import Adjacency, CappedPoisson, account, epsilon_lower_bound
from filet.accounting.proving.hull import HullStep, ProfileNodes
from filet.accounting.proving.lending import Step, lent_excess, swap_excess
from filet.accounting.search.grid import CellWeights, tilted_weights
from filet.accounting.search.lending import (
    Shares,
    can_help,
    choose_shares,
    coarse_nodes,
    gain,
    lenders,
    most_nodes,
    negligible,
    refined_nodes,
    shares_for,
    similar,
)

ADJACENCIES = ("add-remove", "zero-out", "replace-one")
STEPS = [
    (100, 0.3, 30, 1.0),
    (1_000, 0.05, 50, 0.7),
    (60_000, 256 / 60_000, 256, 1.0),
    (60, 0.5, 20, 3.0),
    (400, 0.1, 40, 0.4),
]

# e^{4 loss}, as far as losses matter
WEIGHTS = CellWeights(np.array([-5.0, 0.0, 5.0]), np.array([-20.0, 0.0, 20.0]))


def steps_of() -> list[Step]:
    return [cases.make(*words, adjacency) for words in STEPS for adjacency in ADJACENCIES]


def losses_of(step: Step, count: int = 60) -> np.ndarray:
    return cases.losses(step, np.random.default_rng(3), count)


def refined(
    nodes: ProfileNodes, shares: Shares, weights: CellWeights, worth: float = 1e6, around: tuple[float, ...] = ()
) -> ProfileNodes:
    return refined_nodes(nodes, shares, weights, worth=worth, most=most_nodes(1), rare=1e-12, around=around)


@pytest.mark.parametrize("step", steps_of(), ids=str)
def test_shares_are_shares_and_tilts_are_numbers(step: Step) -> None:
    share, tilt = choose_shares(step).at(losses_of(step))
    assert share.shape == (61, step.lenders)
    assert ((share >= 0.0) & (share <= 1.0)).all()
    assert np.isfinite(tilt).all()


@pytest.mark.parametrize("step", steps_of(), ids=str)
def test_no_random_shares_are_much_better_than_those_that_are_chosen(step: Step) -> None:
    """The bound itself decides, with its correction: where losses matter, random tries gain hardly anything."""
    rng, loss = np.random.default_rng(5), np.array([0.02, 0.1, 0.5, 1.0, 2.0])
    share, tilt = choose_shares(step).at(loss)
    chosen = np.minimum(lent_excess(step, loss, share, tilt), swap_excess(step, loss))
    best = chosen.copy()
    for _ in range(60):
        wild = rng.random() < 0.3
        other = rng.uniform(size=share.shape) if wild else np.clip(share + rng.normal(size=share.shape) * 0.2, 0.0, 1.0)
        found = lent_excess(step, loss, other, tilt + rng.normal(size=loss.size) * rng.choice([0.1, 1.0]))
        best = np.fmin(best, found)
    assert (best >= 0.97 * chosen - 1e-12).all()


@pytest.mark.parametrize("step", steps_of(), ids=str)
def test_the_bound_at_chosen_nodes_is_at_most_the_swap(step: Step) -> None:
    nodes = coarse_nodes(step, choose_shares(step), 10, -12.0)
    assert (nodes.excess <= swap_excess(step, nodes.loss) * (1 + 1e-9)).all()
    assert (np.diff(nodes.loss) > 0.0).all()
    for one in (nodes, nodes.reversed()):
        law = one.discretised(negligible(10, -12.0))
        assert law.infinite < math.exp(-12.0) / 10


@pytest.mark.parametrize("step", steps_of()[:6], ids=str)
def test_more_nodes_only_lower_the_hull(step: Step) -> None:
    shares, at = choose_shares(step), np.array([0.0, 0.05, 0.3, 1.0])
    nodes = coarse_nodes(step, shares, 10, -12.0)
    weights = tilted_weights(np.array([8.0]), np.array([0.5]), np.array([-12.0]))
    finer = refined(nodes, shares, weights, 100.0, (0.5,))
    assert finer.loss.size > nodes.loss.size
    assert set(nodes.loss.tolist()) <= set(finer.loss.tolist())
    coarse, fine = (HullStep(one.discretised(0.0)).delta_bounds(at)[1] for one in (nodes, finer))
    assert (fine <= coarse * (1 + 1e-9)).all()


def test_nodes_go_where_their_weights_are_and_around_what_may_decide_alone() -> None:
    step = cases.make(1_000, 0.05, 50, 0.7, "zero-out")
    shares = choose_shares(step)
    nodes = coarse_nodes(step, shares, 10, -12.0)
    flat = CellWeights(np.array([0.0, 1.0]), np.zeros(2))
    steep = CellWeights(np.array([0.0, 2.0]), np.array([0.0, 20.0]))
    means = [refined(nodes, shares, w).loss for w in (flat, steep)]
    assert np.mean(means[1] > 0.5) > np.mean(means[0] > 0.5)
    near = refined(nodes, shares, flat, around=(0.9,)).loss
    assert ((near > 0.855) & (near < 0.945)).sum() >= 30
    tiny = ProfileNodes(step, np.empty(0), np.empty(0)).more(np.array([-0.1, 0.1]), *shares.at(np.array([-0.1, 0.1])))
    assert refined(tiny, shares, flat).loss.size > 100


def test_lending_is_tried_only_where_full_batches_matter_and_noise_hides_something() -> None:
    full, seldom = cases.make(1_000, 0.05, 50, 1.0, "zero-out"), cases.make(1_000, 0.05, 190, 1.0, "zero-out")
    assert can_help(full, 100, -12.0)
    assert not can_help(seldom, 100, -12.0)
    assert not can_help(cases.make(1_000, 0.05, 50, 0.05, "zero-out"), 100, -12.0)
    assert 0.0 < negligible(100, -12.0) < 1e-6 * math.exp(-12.0)


def test_there_are_more_lenders_where_noise_reaches_more_levels() -> None:
    assert [lenders(cap, 1.0) for cap in (1, 2, 5)] == [0, 1, 4]
    assert lenders(1_000, 0.3) < lenders(1_000, 3.0) <= lenders(1_000, 1e9) < 100


def test_what_lending_gains_is_positive_where_it_lowers_the_profile() -> None:
    step = cases.make(100, 0.3, 30, 1.0, "zero-out")
    nodes = coarse_nodes(step, choose_shares(step), 10, -12.0)
    for one in (nodes, nodes.reversed()):
        assert gain(one, 10, 4.0, WEIGHTS) > 0.0
    as_swap = ProfileNodes(step, nodes.loss, swap_excess(step, nodes.loss))
    assert gain(as_swap, 10, 4.0, WEIGHTS) == 0.0


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("steps", "delta"), [(1, 1e-6), (2, 1e-9), (5, 1e-6), (40, 1e-12), (400, 1e-5)])
def test_refined_lies_between_every_attack_and_the_swap(steps: int, delta: float, adjacency: str) -> None:
    for n, p, cap, sigma in STEPS[:2]:
        scheme, words = CappedPoisson(n, p, cap), {"noise_multiplier": sigma, "steps": steps, "adjacency": adjacency}
        refined = account(scheme, **words).epsilon(delta)  # type: ignore[arg-type]
        assert refined <= account(scheme, analysis="swap", **words).epsilon(delta) * (1 + 1e-4)  # type: ignore[arg-type]
        assert refined >= epsilon_lower_bound(scheme, delta=delta, **words)  # type: ignore[arg-type]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_shares_of_a_step_serve_any_number_of_steps_and_any_delta(adjacency: str) -> None:
    s = SETTINGS["A"]
    step = cases.make(s.n, s.p, s.cap, s.sigma, adjacency)
    one, other = choose_shares(step), choose_shares(step)
    at = losses_of(step)
    assert all((a == b).all() for a, b in zip(one.at(at), other.at(at), strict=True))
    assert Adjacency(adjacency) is step.adjacency


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_shares_of_a_similar_step_serve_nearly_as_well(adjacency: str) -> None:
    """Any shares prove true bounds; those of a step with a little less noise lose hardly anything."""
    known: dict[tuple[float, ...], Shares] = {}
    first, second = (cases.make(1_000, 0.05, 50, sigma, adjacency) for sigma in (0.99, 1.03))
    assert similar(first) == similar(second) != similar(cases.make(1_000, 0.05, 50, 2.0, adjacency))
    shares_for(first, known)
    lent, loss = shares_for(second, known), np.array([0.05, 0.2, 0.6, 1.0])
    assert len(known) == 1
    own = lent_excess(second, loss, *choose_shares(second).at(loss))
    assert (lent_excess(second, loss, *lent.at(loss)) <= 1.03 * own + 1e-12).all()


def test_a_similar_step_may_have_more_lenders_or_fewer() -> None:
    for more, fewer in ((8, 3), (3, 8)):
        one, other = (cases.make(1_000, 0.05, 50, 1.0, "zero-out", count) for count in (more, fewer))
        known = {similar(other): choose_shares(one)}
        share, tilt = shares_for(other, known).at(np.array([0.1, 0.5]))
        assert share.shape == (2, fewer)
        assert np.isfinite(tilt).all()


def test_very_many_phases_have_fewer_nodes_each() -> None:
    counts = [most_nodes(phases) for phases in (1, 100, 1_000, 10**6)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] >= 50
