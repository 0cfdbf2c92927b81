"""The search for the largest argument that meets a target: certified whatever guesses say, and by few certified epsilons."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from filet import Adjacency, Analysis, CappedPoisson
from filet.planning import solving as module
from filet.planning.looks import Looks, Run
from filet.planning.solving import bracketed, first_look, solve
from filet.planning.target import Target

TARGET = Target(3.0, 1e-5, Adjacency.ZERO_OUT)
LIMITS = (-10.0, 3.0)
NOISES = {
    "rare cuts": CappedPoisson(60_000, 256 / 60_000, 300),
    "frequent cuts": CappedPoisson(60_000, 256 / 60_000, 256),
    "drawn again": CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject"),  # type: ignore[arg-type]
}


def at_noise(scheme: CappedPoisson) -> Callable[[float], Run]:
    return lambda x: (scheme, math.exp(-x), 14_000)


def at_probability(x: float) -> Run:
    return replace(NOISES["frequent cuts"], sampling_probability=math.exp(x)), 1.3, 14_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What certified epsilons were, in the order in which they were asked for."""
    seen: list[float] = []
    honest = Target.spent

    def spent(self: Target, *run: object) -> float:
        seen.append(honest(self, *run))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(Target, "spent", spent)
    return seen


def check(found: float | None, at: Callable[[float], Run]) -> float:
    """What was found meets the target, and a part in ten thousand more does not."""
    assert found is not None
    assert TARGET.spent(*at(found)) <= TARGET.epsilon
    assert TARGET.spent(*at(found + 1e-4)) > TARGET.epsilon
    return found


@pytest.mark.parametrize("name", NOISES)
def test_few_certified_epsilons_lead_to_the_answer(name: str, asked: list[float]) -> None:
    at = at_noise(NOISES[name])
    found = solve(TARGET, at, 0.0, LIMITS)
    assert len(asked) <= 3
    assert asked[-1] <= TARGET.epsilon
    check(found, at)


def test_a_good_guess_is_where_the_search_begins(asked: list[float]) -> None:
    at = at_noise(NOISES["frequent cuts"])
    best = check(solve(TARGET, at, 0.0, LIMITS), at)
    del asked[:]
    assert solve(TARGET, at, best + 3e-4, LIMITS, close=True) == pytest.approx(best, abs=1e-4)
    assert asked[0] == pytest.approx(TARGET.epsilon, rel=1e-3)
    assert len(asked) <= 3


@pytest.mark.parametrize("guess", [math.log(200 / 60_000), math.log(250 / 60_000)])
def test_steep_costs_are_solved_too(guess: float) -> None:
    """The sampling probability at which batches begin to overflow decides, over a few parts in a hundred."""
    check(solve(TARGET, at_probability, guess, (math.log(1e-6), 0.0)), at_probability)


@pytest.mark.parametrize("wrong", [None, 0.9, -3.0])
def test_guesses_that_mislead_cost_time_and_no_truth(wrong: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    at = at_noise(NOISES["drawn again"])
    monkeypatch.setattr(Looks, "root", lambda *_, **__: wrong)
    check(solve(TARGET, at, 0.0, LIMITS), at)


@pytest.mark.parametrize("name", NOISES)
def test_a_first_look_is_good_to_a_part_in_a_thousand_and_knows_the_slope(name: str) -> None:
    at = at_noise(NOISES[name])
    found, slope = first_look(Looks(TARGET, quick=True), at, 0.0, LIMITS)
    assert found is not None
    assert TARGET.spent(*at(found)) == pytest.approx(TARGET.epsilon, rel=1e-3)
    chord = math.log(TARGET.spent(*at(found + 1e-2)) / TARGET.spent(*at(found - 1e-2))) / 2e-2
    assert slope == pytest.approx(chord, rel=0.15)


def test_where_close_looks_say_nothing_quick_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Looks, "close_root", lambda *_: None)
    for name in NOISES:
        at = at_noise(NOISES[name])
        found, slope = first_look(Looks(TARGET, quick=True), at, 0.0, LIMITS)
        assert found is not None
        assert TARGET.spent(*at(found)) == pytest.approx(TARGET.epsilon, rel=0.3)
        assert math.isnan(slope)
        check(solve(TARGET, at, 0.0, LIMITS), at)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("name", NOISES)
def test_two_certified_epsilons_suffice(name: str, adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch) -> None:
    target, at, asked = replace(TARGET, adjacency=adjacency), at_noise(NOISES[name]), []
    honest = Target.spent

    def spent(self: Target, *run: object) -> float:
        asked.append(run)
        return honest(self, *run)  # type: ignore[arg-type]

    monkeypatch.setattr(Target, "spent", spent)
    found = solve(target, at, 0.0, LIMITS)
    assert found is not None
    assert len(asked) <= 2
    assert honest(target, *at(found)) <= target.epsilon < honest(target, *at(found + 1e-4))


def test_no_argument_is_invented_where_none_meets_the_target() -> None:
    loud = at_noise(CappedPoisson(100, 0.5, 50))
    assert solve(TARGET, loud, 2.0, (1.0, 3.0)) is None


def test_overflows_that_weigh_on_delta_are_left_to_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(TARGET, analysis=Analysis.UNION, adjacency=Adjacency.ADD_REMOVE)
    scheme = CappedPoisson(60_000, 163 / 60_000, 256)

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(module, "_solved", refuse)
    assert target.overflow_matters(target.curve(scheme, 1.0, 14_000), 0.02)
    found = solve(target, lambda x: (scheme, math.exp(-x), 14_000), 0.0, LIMITS)
    assert found is not None
    assert target.spent(scheme, math.exp(-found), 14_000) <= target.epsilon


def test_brackets_enclose_a_root_that_looks_misjudge() -> None:
    found = bracketed(lambda x: x - 0.4, lambda x: 2.0 * (x - 0.5), 0.0, (-1.0, 1.0))
    assert found.good is not None
    assert found.bad is not None
    assert 0.5 - 3e-5 <= found.good <= 0.5
    assert bracketed(lambda x: 1.0, lambda x: 1.0, 0.0, (-1.0, 1.0)).good is None
