"""Many questions at once: each answer holds the truth and is as narrow as if it were asked alone, and few lines are read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.accounting.laws import law_of, rows, usual_law

from filet import Adjacency, Analysis, CappedPoisson, Phase
from filet.accounting.proving.verdict import Evidence
from filet.accounting.run import Run
from filet.accounting.searching import stretches
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.refinement import DELTA_WIDTH, Direction, Part, wide

COMPOSED = [row for row in rows("composed.csv") if int(row["steps"]) > 1]
AROUND = np.array([1e-4, 1e-2, 0.1, 0.5, 1.0, 2.0, 10.0])
DELTAS = np.geomspace(1e-12, 1e-2, 200)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):  # as runs do
        yield


def direction(row: dict[str, str]) -> Direction:
    return Direction([Part(law_of(row), int(row["steps"]))])


def usual(steps: int = 1_000) -> Direction:
    return Direction([Part(usual_law(), steps)])


def lending(steps: int = 500, adjacency: Adjacency = Adjacency.ZERO_OUT) -> list[Any]:
    phase = Phase(CappedPoisson(60_000, 256 / 60_000, 290), 1.0, steps, Analysis.REFINED)
    return Run([phase], [], adjacency).directions


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_every_reference_epsilon_lies_in_its_bracket_among_others(part: int) -> None:
    for row in COMPOSED[part::8]:
        delta, epsilon = float(row["delta"]), float(row["epsilon"])
        asked = np.minimum(delta * AROUND, 0.9)
        lower, upper = stretches.epsilons(direction(row), np.unique(asked))
        at = int(np.searchsorted(np.unique(asked), min(delta, 0.9)))
        slack = epsilon * 10.0 ** -float(row["digits"]) + 1e-15
        assert lower[at] - slack <= epsilon <= upper[at] + slack, row
        assert not wide((lower, upper)).any(), row
        assert upper[at] <= epsilon * (1 + 1e-3) + 1e-4, row


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_every_reference_delta_lies_in_its_bracket_among_others(part: int) -> None:
    for row in COMPOSED[part::16]:
        delta, epsilon = float(row["delta"]), float(row["epsilon"])
        asked = np.unique(epsilon * np.array([0.0, 0.5, 0.8, 1.0, 1.1, 1.5]))
        lower, upper = stretches.deltas(direction(row), asked)
        at = int(np.searchsorted(asked, epsilon))
        slack = epsilon * 10.0 ** -float(row["digits"]) + 1e-9 * delta  # delta has a slope of at most one
        assert lower[at] - slack <= delta <= upper[at] + slack, row
        alone = direction(row).delta(epsilon)
        assert upper[at] - lower[at] <= max(DELTA_WIDTH * upper[at], 1.01 * (alone.upper - alone.lower)), row


def test_what_is_answered_depends_on_what_else_is_asked_only_within_the_bracket() -> None:
    rng = np.random.default_rng(3)
    whole = stretches.epsilons(usual(), DELTAS)
    profile = stretches.deltas(usual(), whole[1][::-1])
    for size in (4, 15, 60):
        some = np.sort(rng.choice(DELTAS.size, size, replace=False))
        part = stretches.epsilons(usual(), DELTAS[some])
        assert not wide(part).any()
        assert (np.maximum(whole[0][some], part[0]) <= np.minimum(whole[1][some], part[1])).all()
        back = DELTAS.size - 1 - some[::-1]
        below, above = stretches.deltas(usual(), whole[1][::-1][back])
        assert (np.maximum(profile[0][back], below) <= np.minimum(profile[1][back], above)).all()
    for i in (0, 77, 199):
        alone = usual().epsilon(float(DELTAS[i]))
        assert max(alone.lower, whole[0][i]) <= min(alone.upper, whole[1][i])
        alone = usual().delta(float(whole[1][i]))
        assert max(alone.lower, profile[0][199 - i]) <= min(alone.upper, profile[1][199 - i])


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_where_lending_helps_the_same_holds_up_to_the_choice_of_nodes(adjacency: Adjacency) -> None:
    for i, one in enumerate(lending(adjacency=adjacency)):
        lower, upper = stretches.epsilons(one, DELTAS)
        assert not wide((lower, upper)).any()
        for at in (0, 100, 199):
            alone = lending(adjacency=adjacency)[i].epsilon(float(DELTAS[at]))
            assert upper[at] == pytest.approx(alone.upper, rel=3e-4)


def test_deltas_far_apart_lend_what_suits_each() -> None:
    """One law by lending cannot serve deltas of 1e-3 and 1e-60: they are looked at apart."""
    (one,) = lending(steps=5, adjacency=Adjacency.REPLACE_ONE)
    asked = np.array([1e-60, 1e-40, 1e-20, 1e-8, 1e-5, 1e-3])
    _, upper = stretches.epsilons(one, asked)
    profile = stretches.deltas(one, upper[::-1])[1][::-1]
    for at in (0, 2, 5):
        (fresh,) = lending(steps=5, adjacency=Adjacency.REPLACE_ONE)
        assert upper[at] == pytest.approx(fresh.epsilon(float(asked[at])).upper, rel=1e-3)
        assert profile[at] == pytest.approx(asked[at], rel=2e-2)


def test_a_curve_takes_few_lines_and_no_question_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made, honest = list[Evidence](), Evidence.__init__

    def count(self: Evidence, *given: Any) -> None:
        made.append(self)
        honest(self, *given)

    def alone(*_: Any) -> None:
        raise AssertionError("asked alone")

    monkeypatch.setattr(Evidence, "__init__", count)
    monkeypatch.setattr(Direction, "epsilon", alone)
    monkeypatch.setattr(Direction, "delta", alone)
    asked = np.geomspace(1e-12, 1e-2, 1_000)
    _, upper = stretches.epsilons(usual(), asked)
    assert len(made) <= 8
    made.clear()
    stretches.deltas(usual(), np.linspace(0.0, float(upper[0]), 1_000))
    assert len(made) <= 16


def test_questions_that_no_line_serves_are_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: stretches.Chart, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(epsilons.shape, math.nan), np.full(epsilons.shape, -1)

    monkeypatch.setattr(stretches.Chart, "cover", nothing)
    asked = np.array([1e-9, 1e-6, 1e-3])
    lower, upper = stretches.epsilons(usual(), asked)
    each = [usual().epsilon(float(delta)) for delta in asked]
    assert [one.lower for one in each] == pytest.approx(lower, rel=1e-9)
    assert [one.upper for one in each] == pytest.approx(upper, rel=1e-9)
    lower, upper = stretches.deltas(usual(), np.array([0.5, 1.0]))
    for at, epsilon in enumerate((0.5, 1.0)):
        own = usual().delta(epsilon)
        assert (own.lower <= lower[at], upper[at] <= own.upper) == (True, True)


def test_deltas_that_every_epsilon_keeps_have_epsilon_zero() -> None:
    """Hardly any loss: the steps' own distances add up to less than some of the deltas."""
    quiet = Direction([Part(usual_law(50.0), 3)])
    lower, upper = stretches.epsilons(quiet, np.array([1e-9, 1e-6, 1e-3, 0.1, 0.9]))
    assert (upper[-2:] == 0.0).all()
    assert not wide((lower, upper)).any()
    assert (np.diff(upper) <= 0.0).all()


def test_epsilons_beyond_every_loss_leave_only_what_is_infinite() -> None:
    lower, upper = stretches.deltas(usual(20), np.array([0.0, 1.0, 5.0, 300.0, 900.0]))
    assert (lower[-2:] == 0.0).all()
    assert (upper[-2:] < 1e-200).all()
    assert (upper - lower <= DELTA_WIDTH * upper)[:3].all()


def test_a_coarse_look_says_that_the_other_direction_costs_no_more() -> None:
    forward = usual()
    back = forward.reversed()
    asked = np.geomspace(1e-9, 1e-3, 30)
    ours, theirs = stretches.epsilons(forward, asked), stretches.epsilons(back, asked)
    assert (theirs[1] < ours[0]).all()
    assert (stretches.at_most(back, ours[0], asked) <= ours[0] * (1 + 1e-9)).all()
    assert (stretches.at_most(forward, theirs[0], asked) == np.inf).all()  # not proven: it is not true


def test_upper_bounds_of_one_look_are_upper_bounds_and_near() -> None:
    asked = np.linspace(0.0, 4.0, 60)
    lower, upper = stretches.deltas(usual(), asked)
    quick = stretches.upper_deltas(usual(), asked, Budget())
    assert (quick >= lower).all()
    assert (quick <= upper * 1.01).all()


def test_a_chart_covers_epsilons_with_lines_that_read_delta_there() -> None:
    one = usual()
    chart = stretches.Chart(one.view(one.look(-30.0), above=True))
    asked = np.linspace(0.0, 4.0, 40)
    log_delta, best = chart.cover(asked)
    assert (best >= 0).all()
    assert len(chart.lines) <= 3
    for at in (0, 15, 39):
        assert math.exp(log_delta[at]) == pytest.approx(one.delta(float(asked[at])).upper, rel=0.03)
    before = len(chart.lines)
    chart.cover(asked[3:9])
    assert len(chart.lines) == before  # what is there is used
