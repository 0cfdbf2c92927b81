"""First looks at what is lent: whether it is worth its time, and nodes that suit the question."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests import lending_cases as cases
from tests.enumeration import ADJACENCIES

from filet import CappedPoisson, account
from filet.accounting.proving import lending
from filet.accounting.proving.hull import dominating
from filet.accounting.searching import lending_looks
from filet.accounting.searching.grids import Focus
from filet.accounting.searching.lending_looks import (
    Query,
    Sight,
    first_nodes,
    fitted_nodes,
    laws,
    tilt_focus,
    worth_a_look,
)
from filet.accounting.searching.lending_shares import choose


def query(steps: int, delta: float) -> Query:
    return Query(steps, math.log(delta))


# --- when it is not computed ---


def test_it_is_not_computed_where_it_cannot_help() -> None:
    ask, usual = query(100, 1e-5), cases.make(100, 0.2, 25, 1.0, "zero-out")
    assert worth_a_look(usual, ask)
    assert not worth_a_look(cases.make(100, 0.2, 25, 0.05, "zero-out"), ask)  # every hit shows
    rare = cases.make(60_000, 256 / 60_000, 500, 1.0, "zero-out")
    assert not worth_a_look(rare, query(14_000, 1e-5))
    assert worth_a_look(rare, query(14_000, 1e-60))


def test_rare_cuts_gain_next_to_nothing() -> None:
    steps, delta = 14_000, 1e-5
    step = cases.make(60_000, 256 / 60_000, 350, 1.0, "zero-out")
    assert laws(step, query(steps, delta)) is None


@pytest.mark.parametrize(
    ("scheme", "noise", "steps", "delta", "adjacency", "gain"),
    [
        (CappedPoisson(1_095_590, 33.117 / 1_095_590, 42), 0.5938698, 1061, 2.1e-9, "replace-one", 0.87),
        (CappedPoisson(146_459, 194.28 / 146_459, 221), 1.934077, 1, 1e-10, "zero-out", 0.33),
        (CappedPoisson(8_015, 50.07 / 8_015, 70), 1.3892877, 37, 3e-12, "add-remove", 0.7),
        (CappedPoisson(10**12, 1e-9, 1000), 1.0, 1, 1e-30, "zero-out", 0.11),
    ],
)
def test_losses_that_no_step_has_do_not_hide_what_is_lent(
    scheme: CappedPoisson, noise: float, steps: int, delta: float, adjacency: str, gain: float
) -> None:
    """Where few losses decide, Chernoff's bound over all of them said that lending gains nothing."""
    refined, swap = (
        account(scheme, noise_multiplier=noise, steps=steps, adjacency=adjacency, analysis=one).epsilon(delta)
        for one in ("refined", "swap")
    )
    plain = CappedPoisson(scheme.dataset_size, scheme.inclusion_probability, scheme.dataset_size)
    least = account(plain, noise_multiplier=noise, steps=steps, adjacency=adjacency).epsilon_bounds(delta).lower
    assert least <= refined <= gain * swap


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("noise", [1.5, 3.09, 6.0])
def test_a_smaller_profile_that_is_not_convex_counts_as_its_hull(adjacency: str, noise: float) -> None:
    """The smaller of two convex profiles has kinks. Taken for a law, they would be mass too much, and hide what is gained."""
    scheme, words = CappedPoisson(60_000, 256 / 60_000, 256), {"noise_multiplier": noise, "steps": 1_000}
    refined, swap = (
        account(scheme, adjacency=adjacency, analysis=one, **words).epsilon(1e-5) for one in ("refined", "swap")
    )
    assert refined < 0.985 * swap
    sight = Sight.down_to(cases.make(60_000, 256 / 60_000, 256, noise, adjacency), query(1_000, 1e-5))
    seen = sight.seen(query(1_000, 1e-5))
    assert seen is not None
    for back in (False, True):
        law = seen.coarse(back=back)
        assert np.exp(law.log_mass).sum() == pytest.approx(1.0, abs=1e-6)


def test_nodes_that_nearly_coincide_do_not_blur_a_look() -> None:
    """Where losses end nodes are as close as 1e-15; slopes between them were noise, and Chernoff's bound rose with more nodes."""
    step, ask = cases.make(60_000, 256 / 60_000, 300, 1.0, "add-remove"), query(14_000, 1e-5)
    found = []
    for count in (160, 320, 640):
        loss = first_nodes(step, Query(14_000, -40.0), count)
        found.append(
            lending_looks._chernoff(lending_looks._coarse(loss, lending.swap_part(step, loss), ask), ask).epsilon
        )
    assert found == pytest.approx([found[-1]] * 3, rel=0.01)
    assert found == sorted(found, reverse=True)  # chords only add


def test_a_look_that_was_too_coarse_is_taken_again() -> None:
    """At delta 1e-30 losses of one step decide at which the first look has gaps: epsilon was jagged in the noise, by 1 %."""
    scheme = CappedPoisson(60_000, 256 / 60_000, 256)
    noises = 3.08 * np.linspace(1.0, 1.01, 6)
    found = [account(scheme, noise_multiplier=one, steps=1_000, adjacency="zero-out").epsilon(1e-30) for one in noises]
    steps = np.diff(np.log(found)) / np.diff(np.log(noises))
    assert steps == pytest.approx([float(steps.mean())] * 5, abs=0.3)


# --- nodes ---


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("steps", "delta"), [(1, 1e-3), (14_000, 1e-5), (10**6, 1e-30)])
def test_the_last_node_is_far_enough(adjacency: str, steps: int, delta: float) -> None:
    step = cases.make(60_000, 256 / 60_000, 256, 1.0, adjacency)
    both = laws(step, query(steps, delta))
    assert both is not None
    for law in (both.forward, both.reverse):
        assert steps * law.infinite < 1e-5 * delta
        assert (np.diff(law.loss) > 0).all()


def test_another_look_never_makes_a_law_worse() -> None:
    """Nodes of a second look alone had once missed what decides here: 0.943, or a bracket too wide to be given."""
    scheme = CappedPoisson(10**9, 1e-6, 1_000)
    lower, upper = account(scheme, noise_multiplier=1.0, steps=10**7, adjacency="zero-out").epsilon_bounds(1e-30)
    assert 0.5362 < lower <= upper < 0.5363


def test_nodes_are_dense_where_the_weight_is() -> None:
    step = cases.make(400, 0.1, 41, 0.7, "add-remove")
    loss = first_nodes(step, query(100, 1e-6))
    law = dominating(loss, lending.part(step, loss, *choose(step).at(loss)))
    focus = tilt_focus(lending_looks._chernoff(law, query(100, 1e-6)), query(100, 1e-6), 300)
    fine = fitted_nodes(law, focus, float(law.loss[0]), float(law.loss[-1]))
    heavy = fitted_nodes(
        law, Focus(300, np.array([0.0, 1.0, 1.1, 9.0]), np.array([-60.0, -60, 0, 0])), law.loss[0], law.loss[-1]
    )
    assert 280 < fine.size < 320
    assert (heavy > 1.0).sum() > 1.3 * (fine > 1.0).sum()
