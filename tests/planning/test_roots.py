"""Searches in one variable: they end beside the root, or at the bottom, and say when there is none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from filet.planning.roots import climb, lowest, minimum


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
