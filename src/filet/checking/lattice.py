"""From one step's profile to delta after many, in integers that are only ever rounded up.

Masses M_k >= 0 at the losses k s and M at infinity have the profile F(a) = M + sum of M_k [1 - a e^{-k s}]_+. Let g be the
supremum of the profiles of all neighbours: convex, falling, g(0) = 1. If F >= g for all a >= 0, the masses, composed, bound
all composed profiles: integral [P1 P2 - a Q1 Q2]_+ = integral P2 H1(a Q2/P2) <= integral P2 F1(a Q2/P2), and so on. Nothing
else is asked of them: larger masses and larger losses are as valid, and all rounding goes that way. Chords through values
h >= g at nodes, from (0, 1) to the last node, and a constant beyond it, lie above g; their second differences are the masses,
negative ones raised to 0. So nodes may be left out, and those above the lower convex hull are.
Reversed (Q against P) the profile is 1 - b + b F(1/b): e^{-k s} M_k at the losses -k s, and 1 - (their sum) at infinity.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from flint import arb, arb_poly, fmpq, fmpz, fmpz_poly

from .theorems import need, spend


class Law(NamedTuple):
    """Masses times 2^bits at the losses low s, (low + 1) s, ..., and at infinity, of the sum of some steps."""

    low: int
    masses: list[fmpz]
    infinite: fmpz
    steps: int = 1


def up(value: arb, bits: int) -> fmpz:
    """value 2^bits, rounded up to an integer >= 0. No mass is 2; what is not surely less has no place in memory."""
    whole = (value.max(arb(0)) * arb(2) ** bits).upper().ceil().unique_fmpz() if value < 2 else None
    need(whole is not None, "a mass could not be enclosed; the witness needs more bits")
    return fmpz(0) if whole is None else whole


def hull(points: list[tuple[int, arb, arb]]) -> list[tuple[int, arb, arb]]:
    """The points (node, a, h) of the lower convex hull from (0, 1)."""
    kept = [(0, arb(0), arb(1))]
    for node, a, h in points:
        while len(kept) > 1:
            (_, a0, h0), (_, a1, h1) = kept[-2:]
            if (h1 - h0) * (a - a0) < (h - h0) * (a1 - a0):
                break
            kept.pop()
        kept.append((node, a, h))
    return kept


def laws(profile: Callable[[arb, int], arb], nodes: list[int], spacing: fmpq, bits: int) -> tuple[Law, Law]:
    """One step's masses, forward and reversed."""
    points = [(k, (k * arb(spacing)).exp(), profile(k * arb(spacing), k)) for k in nodes]
    kept = hull([one for one in points if one[2].is_finite()])
    need(len(kept) > 1, "the witness has no usable node for some step")
    slopes = [(h1 - h0) / (a1 - a0) for (_, a0, h0), (_, a1, h1) in pairwise(kept)] + [arb(0)]
    first, last = kept[1][0], kept[-1][0]
    forward, backward = ([fmpz(0)] * (last - first + 1) for _ in range(2))
    for (k, a, _), (left, right) in zip(kept[1:], pairwise(slopes), strict=True):
        forward[k - first], backward[last - k] = up(a * (right - left), bits), up(right - left, bits)
    return Law(first, forward, up(kept[-1][2], bits)), Law(-last, backward, up(1 + slopes[0], bits))


def times(x: Law, y: Law, rule: tuple[int, int, fmpq]) -> Law:
    """The law of the sum; rule: bits, window, the mass a step may lose at either end, up to the next kept loss or infinity."""
    bits, one, cut = rule[0], (1 << rule[0]) - 1, (rule[2] * (x.steps + y.steps)).floor()
    spend((len(x.masses) + len(y.masses)) * (8000 + 20 * bits) / 10**9)  # measured: a third of it at most
    masses = [(m + one) >> bits for m in (fmpz_poly(x.masses) * fmpz_poly(y.masses)).coeffs()] or [fmpz(0)]
    infinite = (sum(x.masses, x.infinite) * y.infinite + x.infinite * sum(y.masses, fmpz(0)) + one) >> bits
    first, last, above = 0, len(masses) - 1, fmpz(0)
    while first < last and masses[first] + masses[first + 1] <= cut:
        masses[first + 1], first = masses[first] + masses[first + 1], first + 1
    while first < last and above + masses[last] <= cut:
        above, last = above + masses[last], last - 1
    need(last - first < rule[1], f"the composed losses take more nodes than the window of {rule[1]}")
    return Law(x.low + y.low + first, masses[first : last + 1], infinite + above, x.steps + y.steps)


def power(law: Law, steps: int, rule: tuple[int, int, fmpq], tick: Callable[[float], None] = lambda share: None) -> Law:
    """The law of `steps` independent losses, by repeated squaring; `tick` hears which share of them is done."""
    half = law if steps < 4 else power(law, steps // 2, rule, lambda share: tick(share / 2))
    square = times(half, half, rule) if steps > 1 else law
    tick(1)
    return times(square, law, rule) if steps % 2 and steps > 1 else square


def delta(law: Law, epsilon: fmpq, spacing: fmpq, bits: int) -> arb:
    """The sum of M_k [1 - e^{epsilon - k s}]_+, and the infinite mass."""
    first = max(0, int((epsilon / spacing).floor()) + 1 - law.low)  # the first loss above epsilon
    rest, scale = law.masses[first:], (arb(epsilon) - (law.low + first) * arb(spacing)).exp()
    return (sum(rest, law.infinite) - scale * arb_poly(rest)((-arb(spacing)).exp())) / arb(2) ** bits
