"""Searches in one variable: the largest argument that a rising cost allows, and the argument of a minimum."""

from __future__ import annotations

import math
from collections.abc import Callable

Cost = Callable[[float], float]
_ITERATIONS = 100  # more than halving any range of floats takes
_SLOPES = (0.05, 1e4)  # of a cost that is trusted; where batches begin to overflow, it is steep
_GROWTH, _FARTHEST = 1.6, 1e4  # of strides
_ONE_SIDED = 3  # answers on one side, after which a chord is not trusted


def largest(cost: Cost, start: float, limits: tuple[float, float], *, tolerance: float, slope: float) -> float | None:
    """The largest x within the limits with cost(x) <= 0, to the tolerance; None if there is none.

    The cost rises, and may be infinite. A safeguarded secant method: the chord through the last two
    points, aimed at the good side; a half of the bracket where the chord leaves it or does not shrink it.
    Only an x whose cost was computed is ever returned.
    """
    low, high = limits
    good, bad = -math.inf, math.inf
    x = min(max(start, low), high)
    last = (math.nan, math.nan)
    stride, streak = 0.3, 0
    for _ in range(_ITERATIONS):
        f = cost(x)
        if f <= 0.0:
            good, streak = max(good, x), max(streak, 0) + 1
        else:
            bad, streak = min(bad, x), min(streak, 0) - 1
        slope = _chord(last, (x, f), slope)
        ends = x >= high if f <= 0.0 else x <= low
        near = f <= 0.0 and -f <= 0.5 * tolerance * slope
        if ends or near or bad - good <= tolerance:
            break
        last = (x, f)
        step = -f / slope - 0.25 * tolerance
        if math.isfinite(bad - good):
            x = _inside(good, x + step, bad, trusted=abs(streak) < _ONE_SIDED)
        else:
            x = min(max(x + min(max(step, -stride), stride), low), high)
            stride *= 2.0
    return good if math.isfinite(good) else None


def _chord(last: tuple[float, float], point: tuple[float, float], before: float) -> float:
    """The slope of the chord through two points, within bounds; the one before where there is no chord."""
    rise = point[1] - last[1]
    if point[0] == last[0] or not math.isfinite(rise) or rise == 0.0:
        return before
    return min(max(rise / (point[0] - last[0]), _SLOPES[0]), _SLOPES[1])


def _inside(good: float, x: float, bad: float, *, trusted: bool) -> float:
    """The point x if it is trusted and inside the bracket, and else the bracket's middle."""
    return x if trusted and good < x < bad else 0.5 * (good + bad)


def last_whole(cost: Callable[[int], float], start: int, most: int) -> tuple[int | None, int | None]:
    """The last number from 1 to `most` with cost(x) <= 0, and the next one, which has not; None where there is none."""
    costs: dict[int, float] = {}

    def at(x: int) -> float:
        if x not in costs:
            costs[x] = cost(x)
        return costs[x]

    end = math.log(most)
    rough = largest(lambda x: at(round(math.exp(x))), math.log(start), (0.0, end), tolerance=1e-3, slope=0.6)
    if rough is None:
        return None, 1
    good, bad, stride = 0, most + 1, 1
    x = min(max(math.floor(_expected_root(costs)), 1), most)
    while bad - good > 1:
        if at(x) <= 0.0:
            good, x = x, x + stride if bad > most else (x + bad) // 2
        else:
            bad, x = x, x - stride if good < 1 else (good + x) // 2
        x, stride = min(max(x, good + 1), bad - 1), 4 * stride
    return good or None, bad if bad <= most else None


def _expected_root(costs: dict[int, float]) -> float:
    """The zero of the cost, extrapolated in log x from the two points of the least costs."""
    (x, f), *others = sorted(costs.items(), key=lambda one: abs(one[1]))
    slope = (f - others[0][1]) / math.log(x / others[0][0]) if others else 0.6
    log_step = -f / slope if slope > 0.0 and math.isfinite(f) else 0.0
    return x * math.exp(min(max(log_step, -1.0), 1.0))


def minimum(function: Cost, start: float, stride: float, highest: float) -> float:
    """The argument below `highest` at which a unimodal function is least, to about a tenth of the stride.

    Strides that grow until the minimum is enclosed, golden sections, and a last parabola. Infinite
    values, on the right, are fine.
    """
    values: dict[float, float] = {}

    def at(x: float) -> float:
        if x not in values:
            values[x] = function(x)
        return values[x]

    low, middle, high = _enclosed(at, min(start, highest), stride, highest)
    # A parabola does the rest, but not beside a wall.
    while high - low > (2.2 if math.isfinite(at(high)) else 0.1) * stride:
        further = middle + 0.382 * (high - middle if high - middle > middle - low else low - middle)
        if at(further) < at(middle):
            low, middle, high = (middle, further, high) if further > middle else (low, further, middle)
        else:
            low, high = (low, further) if further > middle else (further, high)
    if low < middle < high and math.isfinite(at(low) + at(high)):
        at(_vertex(low, middle, high, values))
    return min(values, key=lambda x: values[x])


def _enclosed(at: Cost, start: float, stride: float, highest: float) -> tuple[float, float, float]:
    """Three points of which the middle one is not above the others, by growing strides; `highest` ends the range."""
    middle, width = start, stride
    while not math.isfinite(at(middle)) and width < _FARTHEST:
        middle, width = middle - width, _GROWTH * width
    low, high, width = middle - stride, min(middle + stride, highest), stride
    while at(low) < at(middle) and width < _FARTHEST:
        width *= _GROWTH
        low, middle, high = low - width, low, middle
    while high < highest and at(high) < at(middle) and width < _FARTHEST:
        width *= _GROWTH
        low, middle, high = middle, high, min(high + width, highest)
    return low, middle, high


def _vertex(left: float, middle: float, right: float, values: dict[float, float]) -> float:
    """The lowest point of the parabola through three points, of which the middle one is the lowest."""
    from_left, from_right = middle - left, middle - right
    rise_left = from_left * (values[middle] - values[right])
    rise_right = from_right * (values[middle] - values[left])
    scale = rise_left - rise_right
    return middle if scale == 0.0 else middle - 0.5 * (from_left * rise_left - from_right * rise_right) / scale
