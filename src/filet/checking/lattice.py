"""From one step's profile to delta after many: exact integers that are only ever rounded up.

Principle. Masses M_k >= 0 at losses k s and M at infinity have the profile F(a) = M + sum of M_k [1 - a e^{-k s}]_+. If F >= g
on a >= 0, where g bounds the profile of every neighbouring pair (convex, falling, g(0) = 1), then composing the masses
bounds the composed profile: integral [P1 P2 - a Q1 Q2]_+ = integral P2 H1(a Q2/P2) <= integral P2 F1(a Q2/P2), and so on.
Nothing else is asked of the masses, so larger ones, and larger losses, are as valid: all rounding goes that way.
Through values h >= g at nodes, chords from (0, 1) to the last node and a constant beyond lie above g; the second differences
are the masses, where negative ones may be raised to 0. So any nodes may be left out: those above the convex hull are.
Reversed, Q against P: H(b) = 1 - b + b g(1/b), so e^{-k s} M_k at the loss -k s, and 1 - (their sum) at infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flint import arb, arb_poly, fmpq, fmpz, fmpz_poly


class RefusedError(ValueError):
    """Why a claim is not proven."""


@dataclass(frozen=True)
class Law:
    """Masses times 2^bits at the losses low, low + 1, ... (times s), and at infinity."""

    low: int
    masses: list[fmpz]
    infinite: fmpz


def up(value: arb, bits: int) -> fmpz:
    """value 2^bits, rounded up to an integer >= 0."""
    whole = (value * arb(2) ** bits).upper().ceil().unique_fmpz() if value.is_finite() else None
    if whole is None:
        raise RefusedError("a mass could not be enclosed; the witness needs more bits")
    return max(whole, fmpz(0))


def hull(points: list[tuple[int, arb, arb]]) -> list[tuple[int, arb, arb]]:
    """(node, a, h) on the lower convex hull from (0, 1), as far as it falls. Which are kept cannot make a bound wrong."""
    kept = [(0, arb(0), arb(1))]
    for node, a, h in points:
        if not h.is_finite():
            continue
        while len(kept) > 1:
            (_, a0, h0), (_, a1, h1) = kept[-2:]
            if (h1 - h0) * (a - a0) < (h - h0) * (a1 - a0):
                break
            kept.pop()
        kept.append((node, a, h))
    while len(kept) > 2 and not kept[-1][2] < kept[-2][2]:
        kept.pop()
    if len(kept) < 2:
        raise RefusedError("no node of the witness has a usable profile; it needs more bits")
    return kept


def laws(profile: Callable[[arb, int], arb], nodes: Sequence[int], spacing: fmpq, bits: int) -> tuple[Law, Law]:
    """One step's masses, forward and reversed."""
    kept = hull([(k, (k * arb(spacing)).exp(), profile(k * arb(spacing), k)) for k in nodes])
    slopes = [(h1 - h0) / (a1 - a0) for (_, a0, h0), (_, a1, h1) in zip(kept, kept[1:], strict=False)] + [arb(0)]
    rises = [(k, a, slopes[i + 1] - slopes[i]) for i, (k, a, _) in enumerate(kept[1:])]
    forward, backward = ([fmpz(0)] * (kept[-1][0] - kept[1][0] + 1) for _ in range(2))
    for k, a, rise in rises:
        forward[k - kept[1][0]] = up(a * rise, bits)
        backward[kept[-1][0] - k] = up(rise, bits)
    return (Law(kept[1][0], forward, up(kept[-1][2], bits)),
            Law(-kept[-1][0], backward, up(1 + slopes[0], bits)))  # fmt: skip


@dataclass(frozen=True)
class Composer:
    """Products of laws; light ends are cut: `light` is the mass (times 2^bits) that the whole run may lose at an end."""

    bits: int
    window: int
    light: int
    steps: int

    def times(self, x: Law, y: Law, steps: int) -> Law:
        """The law of a sum of `steps` losses. A light low end moves up to the next loss, a light high end to infinity."""
        one = (1 << self.bits) - 1
        masses = [(m + one) >> self.bits for m in (fmpz_poly(x.masses) * fmpz_poly(y.masses)).coeffs()] or [fmpz(0)]
        sum_x, sum_y = sum(x.masses, x.infinite), sum(y.masses, fmpz(0))
        infinite = (sum_x * y.infinite + x.infinite * sum_y + one) >> self.bits
        cut = self.light * steps // self.steps
        first, last, below, above = 0, len(masses), fmpz(0), fmpz(0)
        while first < last - 1 and below + masses[first] <= cut:
            below, first = below + masses[first], first + 1
        while last > first + 1 and above + masses[last - 1] <= cut:
            above, last = above + masses[last - 1], last - 1
        masses = masses[first:last]
        masses[0] += below
        if len(masses) > self.window:
            raise RefusedError(f"the composed losses take {len(masses)} nodes, above the witness's window {self.window}")
        return Law(x.low + y.low + first, masses, infinite + above)

    def power(self, law: Law, steps: int) -> Law:
        """The law of `steps` independent losses, by repeated squaring."""
        result, done = law, 1
        for bit in bin(steps)[3:]:
            result, done = self.times(result, result, 2 * done), 2 * done
            if bit == "1":
                result, done = self.times(result, law, done + 1), done + 1
        return result


def delta(law: Law, epsilon: fmpq, spacing: fmpq, bits: int) -> arb:
    """The sum of M_k [1 - e^{epsilon - k s}]_+ and the infinite mass."""
    first = max(0, int((epsilon / spacing).floor()) + 1 - law.low)  # the first loss above epsilon
    rest = law.masses[first:]
    scale = (arb(epsilon) - (law.low + first) * arb(spacing)).exp()
    total = sum(rest, law.infinite) - scale * arb_poly(rest)((-arb(spacing)).exp())
    return total / arb(2) ** bits
