"""Answers in one direction, delta at epsilon: the size that is looked for, the readings, and the crude bounds."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from tests.accounting.laws import usual_law
from tests.settings import SETTINGS

from filet import Bounds, NotCertifiedError, account
from filet.accounting.proving.verdict import DeltaBracket, Verdict
from filet.accounting.proving.view import View
from filet.accounting.searching import refinement as module
from filet.accounting.searching.refinement import Direction, Part

CRUDE = Bounds(0.0, 0.9)
NODES = 100  # of each scripted line


def scripted(monkeypatch: pytest.MonkeyPatch, above: list[float], below: list[float],
             crude: Bounds = CRUDE) -> list[tuple[Any, ...]]:  # fmt: skip
    """Readings from lists, and what was asked: whether from above, epsilon, log delta, fineness."""
    asked: list[tuple[Any, ...]] = []
    left = {True: [*above], False: [*below]}

    def propose(view: View, *where: float, of_delta: bool = False) -> Any:
        asked.append((view.above, *where))
        value = left[view.above].pop(0)
        return SimpleNamespace(
            above=view.above, resolved=view.resolved, nodes=NODES, delta_bound=lambda *_: Verdict(value, 0.25, 0.0)
        )

    def focus(_: Any, *where: float) -> None:
        asked.append(where)

    def first(self: DeltaBracket, _: View) -> None:
        self.lower, self.upper = crude

    monkeypatch.setattr(Direction, "_draw", lambda *_: None)  # the long way
    monkeypatch.setattr(module, "propose_evidence", propose)
    monkeypatch.setattr(module, "focus", focus)
    monkeypatch.setattr(module, "fitted_cells", lambda one, _: one)
    monkeypatch.setattr(module, "guess_log_delta", lambda *_: -7.0)
    monkeypatch.setattr(DeltaBracket, "crude", first)
    return asked


@pytest.mark.parametrize(("above", "below", "expected"), [
    ([0.8, 0.6, 0.5, 0.5], [0.3, 0.4, 0.45], (0.45, 0.5)),  # refined twice, since wide
    ([0.8, 0.6, 0.5], [0.3, 0.4999], (0.4999, 0.5)),
    ([0.8, 0.6], [0.5995], (0.5995, 0.6)),  # within a thousandth
    ([0.8, 0.6, 0.7, 0.7], [0.3, 0.2, 0.2], (0.3, 0.6)),  # nothing is forgotten
    ([0.4, 0.6, 0.7, 0.7], [0.3, 0.2, 0.2], (0.3, 0.4)),
    ([math.nan, math.nan, math.nan, 0.5], [math.nan, math.nan, 0.4], (0.4, 0.5)),
    ([0.0, -1.0, -1.0, 0.5], [-1.0, -1.0, 0.4], (0.4, 0.5)),
])  # fmt: skip
def test_delta_is_refined_if_it_is_wide(
    monkeypatch: pytest.MonkeyPatch, above: list[float], below: list[float], expected: tuple[float, float]
) -> None:
    looks = len(below)
    asked = scripted(monkeypatch, above, below)
    found, scale = Direction([Part(usual_law(), 50)]).delta(0.3), math.exp(-7.0)
    assert found == pytest.approx((expected[0] * scale, expected[1] * scale))
    levels = [((0.3, 800 * 2**k), (True, 0.3, -7.0, 2.0**k), (False, 0.3, -7.0, 2.0**k)) for k in range(looks)]
    assert asked == [(True, 0.3, -7.0, 1.0), *(one for level in levels for one in level)]


def test_without_a_reading_delta_is_the_crude_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, [math.nan] * 4, [math.nan] * 3)
    assert Direction([Part(usual_law(), 50)]).delta(0.3) == Bounds(0.0, 0.9)


@pytest.mark.parametrize(("guesses", "reaches", "used"), [
    ([-7.0, -7.5], [-32.0, -8.0], -7.5), ([-24.0], [-32.0], -24.0), ([-23.5, 99.0], [-32.0], -23.5),
    ([-22.5, -23.5], [-32.0, -24.0], -23.5), ([5.0, 5.0], [-32.0, -8.0], -1e-3), ([-9e9, -9e9], [-32.0, -640.0], -640.0),
    ([-100.0, -50.0, -90.0, -40.0, -80.0], [-32.0, -104.0, -56.0, -96.0], -40.0)])  # fmt: skip
def test_the_size_of_delta_is_looked_for_until_it_settles(
    monkeypatch: pytest.MonkeyPatch, guesses: list[float], reaches: list[float], used: float
) -> None:
    """Looks are at multiples of 8, rounded down, so that questions of about one size share them."""
    asked = scripted(monkeypatch, [0.5, 0.5], [0.5])
    left = [*guesses]
    monkeypatch.setattr(module, "guess_log_delta", lambda *_: left.pop(0))
    looked, look = [], Direction.look
    monkeypatch.setattr(Direction, "look", lambda self, at: looked.append(at) or look(self, at))  # type: ignore[func-returns-value]
    run = Direction([Part(usual_law(), 50)])
    run.delta(0.3)
    assert looked == reaches
    assert asked[0] == (True, 0.3, used, 1.0)


@pytest.mark.parametrize(("ratio", "expected"), [(0.5, 0.5), (math.nan, None), (0.0, None), (-1.0, None), (9e9, None)])
def test_a_quick_delta_is_the_reading_or_the_crude_bound(
    monkeypatch: pytest.MonkeyPatch, ratio: float, expected: float | None
) -> None:
    asked = scripted(monkeypatch, [ratio], [])
    found = Direction([Part(usual_law(), 50)]).quick_delta(0.3)
    assert found == pytest.approx(0.9 if expected is None else expected * math.exp(-7.0))
    assert asked == [(True, 0.3, -7.0, 1.0)]
    for guess, used in ((5.0, -1e-3), (-9e9, -640.0)):
        asked = scripted(monkeypatch, [ratio], [])
        monkeypatch.setattr(module, "guess_log_delta", lambda *_, guess=guess: guess)
        Direction([Part(usual_law(), 50)]).quick_delta(0.3)
        assert asked == [(True, 0.3, used, 1.0)]


def test_a_narrow_crude_bracket_is_the_answer_and_needs_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Direction([Part(usual_law(), 50)])
    for lower in (0.9991, 1.0):
        asked = scripted(monkeypatch, [], [], Bounds(lower, 1.0))
        assert run.delta(0.3) == Bounds(lower, 1.0)
        assert run.quick_delta(0.3) == 1.0
        assert asked == []
    scale = math.exp(-7.0)
    scripted(monkeypatch, [0.5, 0.4], [0.397], Bounds(0.417 * scale, 0.42 * scale))
    with pytest.raises(NotCertifiedError):  # the lines were asked, and say less than the crude lower bound
        run.delta(0.3)


@pytest.mark.parametrize(("log_delta", "sides"), [(-3.0, [True]), (-0.6, [True]), (-0.4, [True, False])])
def test_the_floor_is_looked_at_only_where_delta_is_large(
    monkeypatch: pytest.MonkeyPatch, log_delta: float, sides: list[bool]
) -> None:
    seen = []
    monkeypatch.setattr(DeltaBracket, "crude", lambda self, view: seen.append(view.above))
    run = Direction([Part(usual_law(), 50)])
    look = run.look(-25.0)
    assert not run._crude(DeltaBracket(0.3), look, run.view(look, above=True), log_delta)
    assert seen == sides


def test_a_delta_near_one_is_known_from_few_small_losses() -> None:
    loud = Direction([Part(usual_law(0.1), 5000)])
    found = loud.delta(3.0)
    assert 0.999 < found.lower <= found.upper <= 1.0


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.65, 1.0, 1.03, 1.5, 1.92, 3.0])
def test_a_delta_far_below_that_of_a_table_goes_the_straight_way(
    adjacency: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few large losses decide: the line that suits the table's delta would amplify rounding too much."""
    setting = SETTINGS["D"]
    curve = account(setting.scheme("reject"), noise_multiplier=1.0, steps=setting.steps, adjacency=adjacency)
    with monkeypatch.context() as patch:
        patch.setattr(Direction, "_sized", no_long_way)
        lower, upper = curve.delta_bounds(epsilon)
    assert upper - lower <= 1e-3 * upper
    with monkeypatch.context() as patch:
        patch.setattr(Direction, "_straight_delta", lambda *_: False)
        other = account(setting.scheme("reject"), noise_multiplier=1.0, steps=setting.steps, adjacency=adjacency)
        found = other.delta_bounds(epsilon)
    assert max(lower, found.lower) <= min(upper, found.upper)


def no_long_way(*_: object) -> None:
    raise AssertionError("the long way was taken")


@pytest.mark.parametrize(("name", "epsilon"), [("B", 73.5), ("C", 35.5), ("B", 44.0)])
def test_deltas_next_to_nothing_are_drawn_further_out(
    name: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = SETTINGS[name]
    monkeypatch.setattr(Direction, "_sized", no_long_way)
    curve = account(setting.scheme("reject"), noise_multiplier=setting.sigma, steps=setting.steps,
                    adjacency="replace-one")  # fmt: skip
    lower, upper = curve.delta_bounds(epsilon)
    assert upper - lower <= 1e-3 * upper < 1e-43
