"""Searches in one variable: they end beside the root, or at the bottom, and say when there is none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from filet.planning.roots import largest, last_whole, minimum

Cost = Callable[[float], float]

COSTS: dict[str, tuple[Cost, float]] = {
    "a line": (lambda x: x - 0.7, 0.7),
    "steep": (lambda x: math.expm1(min(20 * (x - 0.3), 700.0)), 0.3),
    "a wall": (lambda x: -math.inf if x <= 0.123 else math.inf, 0.123),
    "a wall after a slope": (lambda x: x - 5.0 if x <= 0.123 else math.inf, 0.123),
    "a slope after a pit": (lambda x: x - 0.2 if x > 0.1 else -math.inf, 0.2),
    "flatter at the root": (lambda x: (x + 2.0) ** 3 + 0.06 * (x + 2.0), -2.0),
    "a kink": (lambda x: 0.1 * (x - 1.0) if x < 1.0 else 50.0 * (x - 1.0), 1.0),
    "stairs": (lambda x: math.floor(4.0 * x) - 2.5, 0.75),
    "a line far off": (lambda x: 3.0 * (x - 9.7), 9.7),
}


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("start", [-9.0, -0.1, 0.0, 3.0, 99.0])
@pytest.mark.parametrize("slope", [0.3, 1.0, 3.0])
def test_the_largest_argument_is_good_and_beside_the_root(name: str, start: float, slope: float) -> None:
    cost, answer = COSTS[name]
    asked: list[float] = []

    def counted(x: float) -> float:
        asked.append(x)
        return cost(x)

    found = largest(counted, start, (-10.0, 10.0), tolerance=1e-6, slope=slope)
    assert found in asked  # its cost was computed
    assert cost(found) <= 0.0
    assert answer - 1e-5 <= found <= answer
    assert all(-10.0 <= x <= 10.0 for x in asked)
    assert len(asked) <= 60


def test_no_argument_may_be_good_or_all_of_them() -> None:
    assert largest(lambda x: 1.0 + x * x, 0.0, (-1.0, 1.0), tolerance=1e-3, slope=1.0) is None
    assert largest(lambda x: math.inf, 0.0, (-1.0, 1.0), tolerance=1e-3, slope=1.0) is None
    assert largest(lambda x: x - 5.0, 0.0, (-1.0, 1.0), tolerance=1e-3, slope=1.0) == 1.0
    assert largest(lambda x: -math.inf, 0.0, (-1.0, 1.0), tolerance=1e-3, slope=1.0) == 1.0
    assert largest(lambda x: 0.0 if x <= -1.0 else 1.0, 0.0, (-1.0, 1.0), tolerance=1e-3, slope=1.0) == pytest.approx(
        -1.0, abs=1e-3
    )


@pytest.mark.parametrize("start", [0.0, 0.6, 1.5])
def test_a_nearly_straight_cost_is_asked_few_times(start: float) -> None:
    asked: list[float] = []

    def cost(x: float) -> float:
        asked.append(x)
        return 3.0 * (x - 0.61) + 0.1 * (x - 0.61) ** 2

    assert largest(cost, start, (-10.0, 10.0), tolerance=1e-5, slope=2.5) == pytest.approx(0.61, abs=1e-5)
    assert len(asked) <= 8


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
        "a wall after a slope": lambda x: math.log(x / 1e13) if x <= root else math.inf,
        "a bend": lambda x: (x / root) ** 3 - 1.0,
        "stairs": lambda x: -1.0 if x <= root else 1.0,
    }
    for name, cost in costs.items():
        assert last_whole(cost, start, 10**12) == (math.floor(root), math.floor(root) + 1), name


def test_there_may_be_no_good_number_or_no_other() -> None:
    assert last_whole(lambda x: 1.0, 100, 1000) == (None, 1)
    assert last_whole(lambda x: math.inf, 100, 1000) == (None, 1)
    assert last_whole(lambda x: -1.0, 100, 1000) == (1000, None)
    assert last_whole(lambda x: -math.inf, 100, 1000) == (1000, None)
    assert last_whole(lambda x: 0.0 if x == 1 else 1.0, 100, 1000) == (1, 2)


@pytest.mark.parametrize("away", [-20, -1, 0, 1, 2, 20])
def test_few_numbers_are_asked_for_along_a_slope(away: int) -> None:
    asked = []

    def cost(x: int) -> float:
        asked.append(x)
        return logarithmic(15_592.4)(x)

    assert last_whole(cost, 15_592 + away, 10**12) == (15_592, 15_593)
    assert len(asked) == len(set(asked)) <= 8


VALLEYS: dict[str, tuple[Cost, float]] = {
    "a parabola": (lambda x: (x + 0.4) ** 2, -0.4),
    "with a wall": (lambda x: math.inf if x > 1.0 else (x + 0.4) ** 2, -0.4),
    "at a wall": (lambda x: math.inf if x > 0.25 else -x, 0.25),
    "a kink": (lambda x: abs(x - 0.33), 0.33),
    "one steep side": (lambda x: math.exp(3.0 * (x - 0.7)) - 3.0 * x, 0.7),
    "far off": (lambda x: math.hypot(1.0, x + 40.0), -40.0),
}


@pytest.mark.parametrize("name", VALLEYS)
@pytest.mark.parametrize("start", [-3.0, 0.0, 2.5])
def test_the_bottom_of_a_valley_is_found(name: str, start: float) -> None:
    valley, bottom = VALLEYS[name]
    found = minimum(valley, start, 0.3, 5.0)
    # to about a tenth of the stride where the bottom is round; else within one
    assert abs(found - bottom) <= (0.05 if name in ("a parabola", "with a wall", "one steep side") else 0.35)
    assert math.isfinite(valley(found))


def test_a_function_that_falls_everywhere_is_least_at_the_end() -> None:
    assert minimum(lambda x: -x, 0.0, 0.3, 2.0) == 2.0
    assert minimum(lambda x: -x, 9.0, 0.3, 2.0) == 2.0
