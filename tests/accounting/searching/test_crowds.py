"""Very many phases: a few stand for all in the search, and what is proven of the run is proven of every phase."""

from __future__ import annotations

import math

import numpy as np
import pytest

from filet import Adjacency, Analysis, CappedPoisson, Phase
from filet.accounting.proving.line import LinePlan
from filet.accounting.run import Run, part_of
from filet.accounting.searching import crowds
from filet.accounting.searching.crowds import MANY, Crowd, groups
from filet.accounting.searching.refinement import Direction, Part, wide
from filet.accounting.terms import Bounds

NONE = Bounds(0.0, 0.0)
FULL = CappedPoisson(60_000, 256 / 60_000, 256)


def noises(count: int) -> list[Phase]:
    """A schedule of noise, the same scheme at every step."""
    return [Phase(FULL, 1.0 + 0.3 * math.sin(7.0 * i / count), 3) for i in range(count)]


def rates(count: int) -> list[Phase]:
    """A schedule of sampling rates, from few batches that overflow to most."""
    return [Phase(CappedPoisson(60_000, 256 / 60_000 * (0.8 + 0.3 * i / count), 256), 1.1, 3) for i in range(count)]


def parts(phases: list[Phase], adjacency: Adjacency) -> list[Part]:
    return [part_of(phase, adjacency) for phase in phases]


@pytest.mark.long
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("schedule", [noises, rates])
def test_a_crowd_costs_what_its_phases_cost_one_by_one(adjacency: Adjacency, schedule: object) -> None:
    """Each phase looked at closely, 15 ms each, proves at most a part in a thousand less."""
    made = parts(schedule(MANY + 4), adjacency)  # type: ignore[operator]
    crowd, each = Crowd(made, NONE), Direction(made, NONE)
    for one, other in ((crowd, each), (crowd.reversed(), each.reversed())):
        ours, theirs = one.epsilon(1e-5), other.epsilon(1e-5)
        assert not wide(ours)
        assert ours.upper <= 1.001 * theirs.upper
        assert ours.upper >= 0.999 * theirs.lower


@pytest.mark.parametrize("analysis", [Analysis.SWAP, Analysis.NOTE, Analysis.UNION])
def test_laws_that_lend_nothing_have_one_truth(analysis: Analysis) -> None:
    """Both searches bracket the same number: the brackets overlap."""
    phases = [Phase(FULL, phase.noise_multiplier, 3, analysis) for phase in noises(MANY)]
    made = parts(phases, Adjacency.ADD_REMOVE)
    ours, theirs = Crowd(made, NONE).epsilon(1e-5), Direction(made, NONE).epsilon(1e-5)
    assert ours.lower <= theirs.upper
    assert theirs.lower <= ours.upper
    assert not wide(ours)


def test_equal_phases_cost_as_much_as_one_with_all_their_steps() -> None:
    reject = CappedPoisson(10_000, 0.01, 110, overflow="reject")  # type: ignore[arg-type]
    many = [Phase(reject, 1.0 + 1e-12 * i, 5) for i in range(MANY + 8)]
    crowd = Crowd(parts(many, Adjacency.ZERO_OUT), Bounds(0.04, 0.04)).epsilon(1e-6)
    one = Direction(parts([Phase(reject, 1.0, 5 * len(many))], Adjacency.ZERO_OUT), Bounds(0.04, 0.04)).epsilon(1e-6)
    assert crowd.lower <= one.upper * (1 + 1e-9)
    assert one.lower <= crowd.upper * (1 + 1e-9)


def test_every_phase_is_in_one_group_and_groups_are_alike() -> None:
    every = noises(60) + rates(60)
    found = groups(parts(every, Adjacency.ADD_REMOVE))
    assert sorted(number for group in found for number in group) == list(range(120))
    assert 1 < len(found) <= 24
    for group in found:
        assert np.ptp([math.log(every[number].noise_multiplier) for number in group]) <= 0.2


def test_an_epsilon_near_zero_and_one_beyond_reach_are_left_to_the_general_search() -> None:
    faint = Crowd(parts([Phase(FULL, 1e4 + i, 1) for i in range(MANY)], Adjacency.ZERO_OUT), NONE)
    assert faint.epsilon(1e-5).upper <= 1e-4
    assert faint.at_most(1e-3, 1e-5)


def test_quick_looks_prove_and_do_not_claim_too_much() -> None:
    crowd = Crowd(parts(noises(MANY), Adjacency.ADD_REMOVE), NONE)
    bounds = crowd.epsilon(1e-5)
    assert crowd.at_most(1.01 * bounds.upper, 1e-5)
    assert not crowd.at_most(0.99 * bounds.lower, 1e-5)
    back = crowd.reversed()
    assert back.at_most(bounds.lower, 1e-5) == (back.epsilon(1e-5).upper <= bounds.lower)


@pytest.mark.parametrize("spoil", ["guess", "cells", "lines"])
def test_poor_proposals_of_the_few_cannot_make_a_bound_wrong(spoil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    swap = [Phase(FULL, phase.noise_multiplier, 3, Analysis.SWAP) for phase in noises(MANY)]
    made = parts(swap, Adjacency.ADD_REMOVE)
    truth = Crowd(made, NONE).epsilon(1e-5)
    if spoil == "guess":
        real_few = crowds.Few.__init__

        def off(self: crowds.Few, *arguments: object) -> None:
            real_few(self, *arguments)  # type: ignore[arg-type]
            self.guess *= 0.7

        monkeypatch.setattr(crowds.Few, "__init__", off)
    elif spoil == "cells":
        monkeypatch.setattr(crowds, "_CELLS", 20)
    else:
        monkeypatch.setattr(crowds, "LinePlan", lambda c, s, b, r, t: LinePlan(1.7 * c, 0.3 * s, b, 0.4 * r, t))
    found = Crowd(made, NONE).epsilon(1e-5)
    assert found.lower <= truth.upper
    assert truth.lower <= found.upper


def test_a_run_of_many_phases_is_a_crowd_and_of_few_is_not() -> None:
    assert isinstance(Run(noises(MANY), (), Adjacency.ZERO_OUT).directions[0], Crowd)
    assert not isinstance(Run(noises(MANY - 1), (), Adjacency.ZERO_OUT).directions[0], Crowd)
