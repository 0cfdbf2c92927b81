"""Searches in one variable: they end beside the root, or at the bottom, and say when there is none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from filet.planning.roots import climb, last_whole, lowest, minimum


@pytest.mark.parametrize(
    ("cost", "answer"),
    [
        (lambda x: x - 0.7, 0.7),
        (lambda x: math.expm1(20 * (x - 0.3)), 0.3),
        (lambda x: -math.inf if x <= 0.123 else math.inf, 0.123),
        (lambda x: (x + 2.0) ** 3 + 1e-3 * (x + 2.0), -2.0),
    ],
)
def test_climb_ends_just_below_the_root(cost: Callable[[float], float], answer: float) -> None:
    for start in (-9.0, -0.1, 0.0, 3.0):
        found = climb(cost, start, 0.25, (-10.0, 10.0), tolerance=1e-6)
        assert found.good is not None
        assert cost(found.good) <= 0.0
        assert found.good == pytest.approx(answer, abs=2e-6)


def test_climb_says_when_no_end_or_every_end_is_good() -> None:
    assert climb(lambda x: 1.0 + x * x, 0.0, 0.25, (-1.0, 1.0), tolerance=1e-3).good is None
    assert climb(lambda x: x - 5.0, 0.0, 0.25, (-1.0, 1.0), tolerance=1e-3)[:2] == (1.0, None)


def test_lowest_finds_the_bottom() -> None:
    x, value = lowest(lambda x: (x - 0.3) ** 2 + 1.0, -1.0, 2.0, 30)
    assert x == pytest.approx(0.3, abs=1e-4)
    assert value == pytest.approx(1.0, abs=1e-8)


def test_minimum_finds_the_bottom_of_a_valley_with_a_wall() -> None:
    def valley(x: float) -> float:
        return math.inf if x > 1.0 else (x + 0.4) ** 2

    for start in (-3.0, 0.0, 2.5):
        assert minimum(valley, start, 0.3, 5.0) == pytest.approx(-0.4, abs=0.02)
    assert minimum(lambda x: -x, 0.0, 0.3, 2.0) == 2.0


def test_climb_asks_few_times_for_a_line() -> None:
    asked: list[float] = []

    def cost(x: float) -> float:
        asked.append(x)
        return 3.0 * (x - 0.61)

    assert climb(cost, 0.0, 0.25, (-10.0, 10.0), tolerance=1e-5, slope=3.0).good == pytest.approx(0.61, abs=1e-5)
    assert len(asked) <= 5


def logarithmic(root: float, slope: float = 0.6) -> Callable[[int], float]:
    return lambda x: slope * math.log(x / root)


@pytest.mark.parametrize("root", [1.0, 1.5, 7.0, 1234.5, 98_765.999, 3e9 + 0.5])
@pytest.mark.parametrize("start", [1, 7, 1234, 5000, 10**12])
def test_the_last_whole_number_is_good_and_the_next_is_not(root: float, start: int) -> None:
    costs = {
        "a line": logarithmic(root),
        "steeper than was said": logarithmic(root, 40.0),
        "flatter": logarithmic(root, 0.01),
        "a wall": lambda x: -math.inf if x <= root else math.inf,
        "a bend": lambda x: (x / root) ** 3 - 1.0,
    }
    for name, cost in costs.items():
        assert last_whole(cost, start, 0.6, 10**12) == (math.floor(root), math.floor(root) + 1), name


def test_there_may_be_no_good_number_or_no_other() -> None:
    assert last_whole(lambda x: 1.0, 100, 0.6, 1000) == (None, 1)
    assert last_whole(lambda x: math.inf, 100, 0.6, 1000) == (None, 1)
    assert last_whole(lambda x: -1.0, 100, 0.6, 1000) == (1000, None)
    assert last_whole(lambda x: -math.inf, 100, 0.6, 1000) == (1000, None)


@pytest.mark.parametrize("away", [-20, -1, 0, 1, 2, 20])
def test_few_numbers_are_asked_for_along_a_known_slope(away: int) -> None:
    asked = []

    def cost(x: int) -> float:
        asked.append(x)
        return logarithmic(15_592.4)(x)

    assert last_whole(cost, 15_592 + away, 0.58, 10**12) == (15_592, 15_593)
    assert len(asked) <= 4
