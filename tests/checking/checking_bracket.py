"""Enclosure sides of the exact delta of an analysis: the checker's upper bound, and a lower bound from the same nodes.

Below, as above, masses on the lattice have a profile F; if F <= g for the analysis's exact profile g at all a >= 0, then the
composed masses bound the composed profile from below. Smaller masses are as valid, so everything rounds down, and mass at
the ends may be dropped. A convex g that is known at nodes lies above the extensions of the chords on either side of a cell;
they meet in a corner inside it. Between two corners those extensions are a tent over the node, so the polygon through
the corners is below g; its slopes are averages of neighbouring chords, so it is convex. F turns at nodes only, and its lines
are tangents of the polygon: from the left, where it starts as 1 - a, each line is as flat as it may be; from the right, where
it starts as 0, as steep as it may be. Enclosure lose only the square of the spacing where cells resolve g; where g turns within
one cell, the first keeps the bulk of the masses in its place and the second those beyond, so the larger delta counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import islice, pairwise
from typing import Any

from flint import arb, arb_poly, ctx, fmpq, fmpz, fmpz_poly

from filet.checking import Claim
from filet.checking.lattice import Law, hull, laws, power, times
from filet.checking.theorems import profile

Points = list[tuple[int, arb, arb]]  # node, a, h
Slopes = list[arb]


def bracket(claim: dict[str, Any], *epsilons: float) -> list[tuple[fmpq, fmpq]]:
    """The exact delta of the claim's analysis at each epsilon lies between the two numbers. Not for union or lending."""
    one = Claim(claim)
    assert not one.unions
    with ctx.workprec(one.precision):
        phases = [(_points(one, step, nodes), rounds) for step, rounds, nodes in one.parts]
        exact = [fmpq(*epsilon.as_integer_ratio()) for epsilon in epsilons]
        above = _above(one, phases)
        upper = [one.delta_at(above, epsilon) for epsilon in exact]
        lower = [fmpq(0)] * len(exact)
        for turns in (from_left, from_right):
            if any(1.5 * float(low / high) < 1.0 for low, high in zip(lower, upper, strict=True)):
                below = _below(one, phases, turns)
                found = [max(_delta(one, law, arb(epsilon)).lower().fmpq() for law in below) for epsilon in exact]
                lower = [max(pair) for pair in zip(lower, found, strict=True)]
    return list(zip(lower, upper, strict=True))


def _points(one: Claim, step: tuple[Any, ...], nodes: list[int]) -> list[Points]:
    """One step's profile at the nodes, forward and, but for replace-one, where it is the same, reversed."""
    bound = profile(*step)
    values = [(k, (k * arb(one.spacing)).exp(), bound(k * arb(one.spacing), k)) for k in nodes]
    ahead = [point for point in values if point[2].is_finite()]
    back = [(-k, 1 / a, 1 - 1 / a + h / a) for k, a, h in reversed(ahead)]
    return [ahead] if one.adjacency == "replace-one" else [ahead, back]


def _above(one: Claim, phases: list[tuple[list[Points], int]]) -> list[Law]:
    """As `Claim.compose`, with profiles that were computed already."""
    rule = one.bits, one.window, one.delta * fmpq(2) ** (one.bits - 24) / one.rounds
    composed = []
    for sides, rounds in phases:
        values = {k: h for k, _, h in sides[0]}
        both = laws(lambda loss, k, values=values: values[k], list(values), one.spacing, one.bits)
        composed.append([power(law, rounds, rule) for law in both[: len(sides)]])
    return [reduce(lambda x, y: times(x, y, rule), row) for row in zip(*composed, strict=True)]


def _below(one: Claim, phases: list[tuple[list[Points], int]], turns: Callable[[Points], Slopes]) -> list[Law]:
    light = one.delta * fmpq(2) ** (one.bits - 24) / one.rounds
    composed = [
        [_power(law(side, turns, one.bits), rounds, one.bits, light) for side in sides] for sides, rounds in phases
    ]
    return [reduce(lambda x, y: _times(x, y, one.bits, light), row) for row in zip(*composed, strict=True)]


def corners(points: Points) -> list[tuple[arb, arb]]:
    """A convex polygon below g from (0, 1) on: a point in every cell. After the last one g is at least the last value.

    Points that are not surely below the line of their neighbours are left out: what is above it lowers the polygon, and the
    rest are on the line to rounding.
    """
    slopes = [(h1 - h0) / (a1 - a0) for (_, a0, h0), (_, a1, h1) in pairwise(points)]
    kept = [(arb(0), arb(1))]
    around = zip([arb(-1), *slopes[:-1]], slopes, [*slopes[1:], arb(0)], strict=True)
    for (left, middle, right), ((_, a0, h0), (_, a1, _)) in zip(around, pairwise(points), strict=True):
        if not right > left:  # a line, which has no corner
            continue
        at = ((right - middle) * (a1 - a0) / (right - left)).mid().max(arb(0)).min((a1 - a0).lower())
        a, h = a0 + at, (h0 + left * at).min(h0 + (a1 - a0) * middle - (a1 - a0 - at) * right).lower()
        while len(kept) > 1:
            (a2, h2), (a3, h3) = kept[-2:]
            if (h3 - h2) * (a - a2) < (h - h2) * (a3 - a2):
                break
            kept.pop()
        kept.append((a, h))
    return kept


def from_left(points: Points) -> Slopes:
    """Slopes of F in the cells: from each node the tangent of the polygon to the right, while F stays positive.

    The next node is on the tangent, so that from there no corner before the one it touches is in the way.
    """
    polygon, value, j, slopes = corners(points), arb(1), 1, [arb(-1)]
    for (_, a0, _), (_, a1, _) in pairwise(points):
        while j < len(polygon) and not polygon[j][0] > a0:
            j += 1
        slope = arb("inf")
        for i, (a, h) in enumerate(islice(polygon, j, None), j):
            to = ((h - value) / (a - a0)).lower()
            if not to < slope:
                break
            slope, j = to, i
        slopes.append(slope.min(arb(0)).max(slopes[-1]))
        value = (value + slopes[-1] * (a1 - a0)).lower()
        if not value >= 0:
            slopes.pop()
            break
    return slopes[1:] + [arb(0)] * (len(points) - len(slopes) + 1)


def from_right(points: Points) -> Slopes:
    """Slopes of F in the cells: from 0 at the last node, at each the tangent of the polygon to the left."""
    end, value, slopes = points[-1][2].upper(), arb(0), [arb(0)]
    polygon = [(a, (h - end).lower()) for a, h in corners(points)]
    j = len(polygon) - 1
    for (_, a1, _), (_, a0, _) in pairwise(reversed(points)):
        while j > 0 and not polygon[j][0] < a1:
            j -= 1
        slope = arb("-inf")
        for i in range(j, -1, -1):
            to = ((value - polygon[i][1]) / (a1 - polygon[i][0])).upper()
            if not to > slope:
                break
            slope, j = to, i
        slopes.append(slope.min(slopes[-1]))
        value = (value - slopes[-1] * (a1 - a0)).lower()
    return slopes[::-1]


def law(points: Points, turns: Callable[[Points], Slopes], bits: int) -> Law:
    """Masses whose profile is at most that of the step."""
    kept = hull(points)
    first, last = kept[1][0], kept[-1][0]
    masses = [fmpz(0)] * (last - first + 1)
    for (k, a, _), (left, right) in zip(kept[1:], pairwise(turns(kept)), strict=True):
        masses[k - first] = _down(a * (right - left), bits)
    return Law(first, masses, fmpz(0))  # without an infinite mass, F is lower by its last value: below g, then 0


def _delta(one: Claim, law: Law, epsilon: arb) -> arb:
    """The sum of M_k [1 - e^{epsilon - k s}]_+ over losses that are surely above epsilon."""
    step = arb(one.spacing)
    first = max(0, int((epsilon / step).upper().ceil().unique_fmpz()) - law.low)
    rest = law.masses[first:]
    scale = (epsilon - (law.low + first) * step).exp()
    return (sum(rest, fmpz(0)) - scale * arb_poly(rest)((-step).exp())) / arb(2) ** one.bits


def _down(value: arb, bits: int) -> fmpz:
    """Rounded down, and less one unit: more than the slopes' own rounding, of 2^-(bits + 64) or less, can have added."""
    return max((value * arb(2) ** bits).lower().fmpq().floor() - 1, fmpz(0))


def _times(x: Law, y: Law, bits: int, light: fmpq) -> Law:
    masses = [m >> bits for m in (fmpz_poly(x.masses) * fmpz_poly(y.masses)).coeffs()] or [fmpz(0)]
    cut = (light * (x.steps + y.steps)).floor()
    first, last, below, above = 0, len(masses), fmpz(0), fmpz(0)
    while first < last - 1 and below + masses[first] <= cut:
        below, first = below + masses[first], first + 1
    while last > first + 1 and above + masses[last - 1] <= cut:
        above, last = above + masses[last - 1], last - 1
    return Law(x.low + y.low + first, masses[first:last], fmpz(0), x.steps + y.steps)


def _power(law: Law, steps: int, bits: int, light: fmpq) -> Law:
    result = law
    for bit in bin(steps)[3:]:
        result = _times(result, result, bits, light)
        result = _times(result, law, bits, light) if bit == "1" else result
    return result
