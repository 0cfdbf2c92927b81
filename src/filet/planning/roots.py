"""Searches in one variable: the largest argument that a rising cost allows, and the argument of a minimum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

Cost = Callable[[float], float]
_CHORDS = 8  # turns after which a bracket is halved
_FACTOR = 4.0  # in log x: the longest stride


class Bracket(NamedTuple):
    """The largest `x` known to meet the target, and the smallest known not to; None where there is none."""

    good: float | None
    bad: float | None
    root: float | None = None  # of the chord between them


def climb(cost: Cost, start: float, stride: float, limits: tuple[float, float], *, tolerance: float,
          slope: float = 0.0) -> Bracket:  # fmt: skip
    """Bracket the largest `x` within the limits with cost(x) <= 0, for a cost that does not fall and may be infinite.

    Ends when the good end is within `tolerance` of the bad one, or of the root between two close ends. `slope` is a
    first guess of the cost's slope, 0 for none.
    """
    good: tuple[float, float] | None = None
    bad: tuple[float, float] | None = None
    last: tuple[float, float] | None = None
    low, high = limits
    x, streak = min(max(start, low), high), 0
    while True:
        f = cost(x)
        if last is not None and x != last[0] and math.isfinite(f - last[1]):
            slope = max((f - last[1]) / (x - last[0]), 0.0)
        last = (x, f)
        if f <= 0.0:
            good, streak = last, max(streak, 0) + 1
        else:
            bad, streak = last, min(streak, 0) - 1
        if good is not None and bad is not None:
            width = bad[0] - good[0]
            share = -good[1] / (bad[1] - good[1]) if math.isfinite(bad[1] - good[1]) else 0.5
            linear = width < 0.02 and math.isfinite(bad[1] - good[1])
            if width <= tolerance or (linear and share * width <= tolerance):
                return Bracket(good[0], bad[0], good[0] + share * width)
            # Three answers on one side: the cost bends too much for the chord, so halve.
            to_root = width * (0.5 if abs(streak) >= 3 else share) - 0.4 * tolerance
            x = good[0] + min(max(to_root, 0.25 * tolerance, 0.01 * width), width - 0.25 * tolerance, 0.99 * width)
            continue
        if (good is None and x <= low) or (bad is None and x >= high):
            return Bracket(good and good[0], bad and bad[0])
        # Not enclosed yet: the chord's step and a little more, else ever longer strides.
        move = 1.15 * abs(f) / slope + tolerance if slope > 0.0 and math.isfinite(f) else stride
        move = min(move, stride)
        stride *= 2.0 if abs(streak) < 4 else 4.0
        x = min(x + move, high) if good is not None else max(x - move, low)


def last_whole(cost: Callable[[int], float], start: int, slope: float, most: int) -> tuple[int | None, int | None]:
    """The last number from 1 to `most` that is good, cost(x) <= 0, and the next one, which is not; None where there is none.

    For a cost that rises, with about that `slope` in log x, and may be infinite: along the slope until the answer is enclosed,
    then by chords, and by halves where those do not help.
    """
    good: tuple[int, float] | None = None
    bad: tuple[int, float] | None = None
    x, turn, stride = min(max(start, 1), most), 0, 1
    while True:
        value = cost(x)
        if value <= 0.0:
            good = x, value
        else:
            bad = x, value
        if (good and good[0] == most) or (bad and bad[0] == 1) or (good and bad and bad[0] - good[0] == 1):
            return good and good[0], bad and bad[0]
        turn += 1
        if good and bad:
            width, rise = bad[0] - good[0], bad[1] - good[1]
            share = -good[1] / rise if turn < _CHORDS and math.isfinite(rise) else 0.5
            expected = good[0] + math.floor(share * width)  # the last good one
            x = min(max(expected, good[0] + 1), bad[0] - 1)
            continue
        expected = math.floor(x * math.exp(min(max(-value / slope, -_FACTOR), _FACTOR)))
        if good and expected <= x:  # the next one is not good, by the slope; ever further, should that mislead
            expected, stride = x + stride, 4 * stride
        elif bad and expected >= x:
            expected, stride = x - stride, 4 * stride
        x = min(max(expected, 1), most)


def lowest(function: Callable[[float], float], low: float, high: float, turns: int = 14) -> tuple[float, float]:
    """The point and value of the minimum of a unimodal function, by golden sections."""
    ratio = 0.5 * (math.sqrt(5.0) - 1.0)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(turns - 2):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return (left, at_left) if at_left <= at_right else (right, at_right)


def minimum(function: Callable[[float], float], start: float, stride: float, highest: float) -> float:
    """The argument below `highest` at which a unimodal function is least, to a few percent of the first stride.

    Infinite values, on the right, are fine.
    """
    values: dict[float, float] = {}

    def at(x: float) -> float:
        x = min(x, highest)
        if x not in values:
            values[x] = function(x)
        return values[x]

    middle, width = start, stride
    while not math.isfinite(at(middle)) and width < 1e4:
        middle, width = middle - width, 1.5 * width
    width = stride
    low, high = middle - width, min(middle + width, highest)
    while at(low) < at(middle) and width < 1e4:
        width *= 1.6
        low, middle, high = low - width, low, middle
    while high < highest and at(high) < at(middle) and width < 1e4:
        width *= 1.6
        low, middle, high = middle, high, min(high + width, highest)
    at(high)
    lowest(at, low, high, 5 + math.ceil(math.log(max((high - low) / stride, 1.0)) / math.log(1.618)))
    best = min(values, key=lambda x: values[x])
    left = max((x for x in values if x < best), default=best)
    right = min((x for x in values if x > best), default=best)
    if left < best < right and math.isfinite(values[left] + values[right]):
        at(_vertex((left, best, right), values))
    return min(values, key=lambda x: values[x])


def _vertex(points: tuple[float, float, float], values: dict[float, float]) -> float:
    """Where the parabola through three points is least; the middle one is the lowest of them."""
    left, middle, right = points
    from_left, from_right = middle - left, middle - right
    rise_left = from_left * (values[middle] - values[right])
    rise_right = from_right * (values[middle] - values[left])
    scale = rise_left - rise_right
    return middle if scale == 0.0 else middle - 0.5 * (from_left * rise_left - from_right * rise_right) / scale
