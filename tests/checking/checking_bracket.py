"""Both sides of the exact delta of an analysis: the checker's upper bound, and a lower bound from the same nodes.

Below, as above, masses on the lattice have a profile F; if F <= g for the analysis's exact profile g at all a >= 0, then the
composed masses bound the composed profile from below. Smaller masses are as valid, so everything rounds down, and mass at
the ends may be dropped. A convex g that is known at nodes lies above the extensions of the chords on either side of a cell;
they meet in a corner inside it, and the maximum of all of them is E <= g. F starts as 1 - a, and at every node turns as far
up as E allows: to the line through the next cell's corner, or parallel to E where it is far below. Each of its lines lies
below E everywhere, so F is convex, and it loses only the square of the spacing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from flint import arb, arb_poly, ctx, fmpq, fmpz, fmpz_poly

from filet.checking import Claim
from filet.checking.lattice import Law
from filet.checking.theorems import Step


def bracket(claim: dict[str, Any], *epsilons: float) -> list[tuple[fmpq, fmpq]]:
    """The exact delta of the claim's analysis at each epsilon lies between the two numbers. Not for union or lending."""
    one = Claim(claim)
    assert not one.unions
    found = []
    with ctx.workprec(one.precision):
        above, below = one.compose(lambda share: None), _compose(one)
        for epsilon in epsilons:
            exact = fmpq(*epsilon.as_integer_ratio())
            lower = max(_delta(one, law, arb(exact)).lower().fmpq() for law in below)
            found.append((max(lower, fmpq(0)), one.delta_at(above, exact).upper().fmpq()))
    return found


def _compose(one: Claim) -> list[Law]:
    total: list[Law] = []
    light = one.delta * fmpq(2) ** (one.bits - 24) / one.rounds
    for arguments, rounds, nodes in one.parts:
        step = Step(*arguments)

        def reversed_profile(loss: arb, node: int, step: Step = step) -> arb:
            return 1 - loss.exp() + loss.exp() * step.profile(-loss, -node)

        sides = [(step.profile, nodes), (reversed_profile, [-k for k in reversed(nodes)])]
        powers = [_power(_law(*side, one), rounds, one.bits, light) for side in sides]
        total = [_times(x, y, one.bits, light) for x, y in zip(total, powers, strict=True)] if total else powers
    return total


def _law(profile: Any, nodes: list[int], one: Claim) -> Law:
    points = [(0, arb(0), arb(1))]
    for k in nodes:
        loss = k * arb(one.spacing)
        value = profile(loss, k)
        if value.is_finite():
            points.append((k, loss.exp(), value))
    chords = [(h1 - h0) / (a1 - a0) for (_, a0, h0), (_, a1, h1) in pairwise(points)] + [arb(0)]
    values, slopes = [(1 - points[1][1]).lower()], [arb(-1)]  # of F, at the nodes and before them
    for i in range(1, len(points) - 1):
        (_, _, h), width = points[i], points[i + 1][1] - points[i][1]
        A, B = chords[i] - chords[i - 1], chords[i + 1] - chords[i]
        slope = chords[i + 1].lower()
        if A + B > 0 and B > 0:
            corner = B * width / (A + B)
            slope = slope.min(((h + chords[i - 1] * corner - values[-1]) / corner).lower())
        slopes.append(slope.max(slopes[-1]) if A + B > 0 else slopes[-1])
        values.append((values[-1] + slopes[-1] * width).lower())
    last = max(i for i, value in enumerate(values) if i == 0 or (value >= 0 and slopes[i] < 0))
    slopes[last + 1 :] = [arb(0)]
    first = points[1][0]
    masses = [fmpz(0)] * (points[last + 1][0] - first + 1)
    for (k, a, _), (left, right) in zip(points[1 : last + 2], pairwise(slopes), strict=True):
        masses[k - first] = _down(a * (right - left), one.bits)
    return Law(first, masses, fmpz(0))  # without the infinite mass, F is lower by its last value: below g, then 0


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
