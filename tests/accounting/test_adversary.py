"""The library's own bounds against a search for data sets that violate them, by enumeration of every batch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.adversary import (
    ATTAINED,
    FLOOR,
    Bound,
    Draw,
    Hunt,
    Tally,
    campaign,
    draws,
    epsilons,
    hunt,
    hunt_in_space,
    library_bound,
    library_curve,
    reference_bound,
    streams,
    two_step_violations,
)
from tests.enumeration import ADJACENCIES, Config

from filet import Adjacency, Analysis, epsilon_lower_bound
from filet.accounting.proving.loss_law import LossLaw
from filet.accounting.proving.theorems import loss_law
from filet.accounting.search.closed_form import crossings

PARTS, PER_PART = 25, 4_000  # the long mode: 100,000 configurations
KINDS = 15  # policy, adjacency and analysis: truncate has four analyses, reject one


@pytest.mark.long
def test_no_data_set_violates_a_bound() -> None:
    tally = campaign(seed=10_000, count=200)
    assert not tally.violations, tally.violations[0]
    assert len({kind.rsplit(",", 1)[0] for kind in tally.slacks}) == KINDS
    attained = [slack < ATTAINED for slacks in tally.slacks.values() for slack in slacks]
    assert np.mean(attained) > 0.4  # so that a slightly lower bound would be noticed


def test_no_data_set_violates_the_reference() -> None:
    which, rng = streams(10_001)
    for draw in draws(which, 60):
        if draw.analysis != "union":
            search = hunt(draw, reference_bound, rng)
            assert not search.violated, (draw, search.margin, search.worst)


def lends(draw: Draw) -> bool:
    """Whether lending lowers the bound at one of its epsilons by a thousandth; with 8 examples it seldom does."""
    c = draw.config
    if draw.analysis != "refined" or c.overflow != "truncate" or not (1 < c.B < c.n and c.p < 1):
        return False
    eps = epsilons(c, np.random.default_rng(0))
    swap = library_bound(replace(draw, analysis="swap"), eps)
    return bool((library_bound(draw, eps) < 0.999 * swap)[swap > FLOOR].any())


@pytest.mark.long
def test_no_data_set_violates_a_bound_that_lending_lowers() -> None:
    which, rng = streams(10_006)
    tally = Tally()
    for draw in itertools.islice(filter(lends, draws(which, 4_000)), 20):
        search = hunt(draw, library_bound, rng)
        tally.add(search)
        tally.check_account(search)
    assert tally.configurations == 20
    assert not tally.violations, tally.violations[0]
    assert len(tally.slacks) == len(ADJACENCIES)


@pytest.mark.slow
def test_long_no_data_set_violates_a_bound_that_lending_lowers() -> None:
    which, rng = streams(10_007)
    for draw in filter(lends, draws(which, 100_000)):
        search = hunt(draw, library_bound, rng)
        assert not search.violated, (draw, search.margin, search.worst)


def check_two_steps(seed: int, count: int) -> None:
    which, rng = streams(seed)
    for draw in draws(which, count):
        found = two_step_violations(draw, rng)
        assert not found, found[0]


def check_lower_bounds(seed: int, count: int) -> None:
    which, rng = streams(seed)
    for draw in draws(which, count):
        delta = float(10 ** rng.uniform(-8, -0.5))
        run = {"noise_multiplier": draw.config.sigma, "adjacency": draw.config.adjacency}
        lower = epsilon_lower_bound(draw.scheme, steps=1, delta=delta, **run)
        assert lower <= library_curve(draw, steps=1).epsilon(delta), (draw, delta)


def test_no_two_steps_violate_a_bound() -> None:
    check_two_steps(seed=10_002, count=6)


def test_lower_bounds_are_below_upper_bounds() -> None:
    check_lower_bounds(seed=10_003, count=12)


# --- the search notices mistakes ---


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_climbing_alone_finds_the_worst_data(adjacency: str) -> None:
    """B = 1, where the bound is attained: from random data, with none of the known attacks."""
    rng = np.random.default_rng(7)
    draw = Draw(Config(4, 0.5, 1, 0.8, "truncate", adjacency), 1, "refined")
    search = Hunt(draw, library_bound, rng)
    data = rng.uniform(-1, 1, (4, search.pair.vectors, 1))
    before = np.where(search.away, search.lines(data), np.inf).min()
    search.climb(search.lines, data, generations=80, brood=8)
    assert before > 0.05
    assert -1e-9 < search.relative < 1e-3


def of_another_mechanism(change: Callable[[Config], dict[str, float | int]]) -> Bound:
    return lambda draw, eps: library_bound(replace(draw, config=replace(draw.config, **change(draw.config))), eps)


def of_damaged_law(damage: Callable[[LossLaw], LossLaw]) -> Bound:
    def bound(draw: Draw, eps: np.ndarray) -> np.ndarray:
        adjacency, analysis = Adjacency(draw.config.adjacency), Analysis(draw.analysis)
        law = damage(loss_law(draw.scheme, draw.config.sigma, adjacency, analysis))
        return np.concatenate([law.profile(eps, crossings)[0], law.reversed().profile(eps, crossings)[0]])

    return bound


# The mistake, the policies, adjacencies and analyses that it concerns, and the share of it that must be caught.
MISTAKES: dict[str, tuple[Bound, str, float]] = {
    "rate 3 % too small": (of_another_mechanism(lambda c: {"p": 0.97 * c.p}), "swap|reject", 0.85),
    "noise 2 % too large": (of_another_mechanism(lambda c: {"sigma": 1.02 * c.sigma}), "swap|reject", 0.85),
    "cap forgotten": (of_another_mechanism(lambda c: {"B": c.n}), "truncate, .*, (refined|swap)", 0.75),
    "cap one too high": (of_another_mechanism(lambda c: {"B": c.B + 1}), "truncate, .*, (refined|swap)", 0.65),
    "the note without its second group": (
        of_damaged_law(lambda v: replace(v, pieces=v.pieces[:-1])),
        "note, B <",
        0.95,
    ),
    "atoms forgotten": (of_damaged_law(lambda v: replace(v, atoms=())), "truncate, add-remove, swap, B <", 0.85),
    "public size forgotten": (of_another_mechanism(lambda c: {"adjacency": "zero-out"}), "reject, add-remove", 0.85),
}


def matters(bound: Bound, draw: Draw) -> bool:
    """Whether the mistake lowers the bound by half a percent anywhere; for some mechanisms it raises it."""
    eps = epsilons(draw.config, np.random.default_rng(0))
    right = library_bound(draw, eps)
    return bool((bound(draw, eps) < 0.995 * right)[right > FLOOR].any())


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_slightly_wrong_bound_is_caught(mistake: str) -> None:
    bound, kinds, rate = MISTAKES[mistake]
    which, rng = streams(10_004)
    concerned = (draw for draw in draws(which, 2_000) if re.search(kinds, draw.kind) and matters(bound, draw))
    caught = [hunt(draw, bound, rng).violated for draw in itertools.islice(concerned, 20)]
    print(f"{mistake}: {sum(caught)} of {len(caught)} caught")
    assert len(caught) == 20
    assert np.mean(caught) >= rate


def test_data_in_space_alone_catch_a_wrong_bound() -> None:
    """The cells are fine enough: with a rate 3 % too small, data off the line notice it without the attacks on the line."""
    bound = of_another_mechanism(lambda c: {"p": 0.97 * c.p})
    which, rng = streams(10_005)
    caught = []
    for draw in draws(which, 500):
        if draw.dimension > 1 and draw.config.overflow == "reject" and draw.config.n > draw.config.B:
            search = Hunt(draw, bound, rng)
            hunt_in_space(search)
            caught.append(search.violated)
    print(f"{sum(caught)} of {len(caught)} caught")
    assert np.mean(caught) > 0.6


# --- the long mode ---


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_long_no_data_set_violates_a_bound(part: int) -> None:
    tally = campaign(seed=part, count=PER_PART)
    print(tally)
    assert not tally.violations, tally.violations[0]


@pytest.mark.slow
def test_long_configurations_are_distinct() -> None:
    assert len({draw for part in range(PARTS) for draw in draws(streams(part)[0], PER_PART)}) == PARTS * PER_PART


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_long_no_two_steps_violate_a_bound(part: int) -> None:
    check_two_steps(seed=20_000 + part, count=150)


@pytest.mark.slow
def test_long_lower_bounds_are_below_upper_bounds() -> None:
    check_lower_bounds(seed=30_000, count=1_000)
