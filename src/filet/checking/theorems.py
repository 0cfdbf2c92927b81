"""The theorems: upper bounds of one step's privacy profile, evaluated in balls.

The profile of neighbours P, Q is H(a) = integral [P - a Q]_+, for a > 0. Unit sensitivity, noise N(0, s^2). Symbols, with
Bin over the n-1 other records: w = Pr[B-1 drawn], tau = Pr[at least B], tq = (B/n) Pr[Bin(n,p) > B], c = p w + tq.
Rows are for a >= 1 where "mirrored": below 1 the profile is 1 - a + a H(1/a). Docs: `theory.md` has the proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from flint import arb, ctx, fmpq

Parts = list[tuple[arb, int]]


def normal(x: arb) -> arb:
    """The standard normal distribution function."""
    return (-x / arb(2).sqrt()).erfc() / 2


def sharp(function: Callable[[], arb]) -> arb:
    """The value to nearly full relative precision, by computing with more bits; a wide ball is sound too."""
    goal, value = ctx.prec, arb.nan()
    for work in (goal + 64, 2 * goal + 128, 4 * goal + 512):
        with ctx.workprec(work):
            value = function()
            if value.is_finite() and value.rel_accuracy_bits() >= goal:
                break
    return value


def point(j: int, n: int, p: fmpq) -> arb:
    """Pr[Bin(n, p) = j]."""
    if not 0 <= j <= n or p == 1:
        return arb(int(j == n and p == 1))
    log_choose = lambda: arb(n + 1).lgamma() - arb(j + 1).lgamma() - arb(n - j + 1).lgamma()  # noqa: E731
    return sharp(lambda: (log_choose() + j * arb(p).log() + (n - j) * arb(1 - p).log()).exp())


def tail(j: int, n: int, p: fmpq) -> arb:
    """Pr[Bin(n, p) >= j], a regularized incomplete beta function."""
    if j <= 0 or j > n or p == 1:
        return arb(int(j <= n))
    return sharp(lambda: arb(p).beta_lower(j, n - j + 1, True))


def threshold(c: arb, parts: Parts, s: arb) -> arb:
    """The x with c = sum of m e^{(d x - d^2/2) / s^2} over the parts (m, d): the two sides of [.]_+ are equal there."""
    by = {d: m * (-arb(d * d) / (2 * s * s)).exp() for m, d in parts}
    if set(by) <= {1, 2}:  # a quadratic in e^{x / s^2}
        one, two = by.get(1, arb(0)), by.get(2, arb(0))
        return s * s * (2 * c / (one + (one * one + 4 * two * c).sqrt())).log()
    u = min((((c / m).log() / d).mid() for d, m in by.items()), key=lambda v: v.mid())
    for _ in range(40):  # the log of the right side is convex in u = x / s^2 and rises by min(d) or more: Newton's steps
        terms = {d: m * (d * u).exp() for d, m in by.items()}
        total = sum(terms.values(), arb(0))
        gap = (total / c).log()
        bound = gap.abs_upper() / min(by)
        if not bound.mid() > arb(2) ** (20 - ctx.prec):
            break
        u = (u - gap * total / sum((d * t for d, t in terms.items()), arb(0))).mid()
    return s * s * arb(u, bound)


def kernel(c: arb, parts: Parts, s: arb) -> arb:
    """K = integral [c N(0) - sum of m N(d)]_+ over the parts (m, d): every row of the tables is made of these."""
    if not c > 0:
        return arb(0).union(c.max(arb(0)))
    parts = [(m, d) for m, d in parts if not m.is_zero()]
    if not parts:
        return c
    x = threshold(c, parts, s)
    return c * normal(x / s) - sum((m * normal((x - d) / s) for m, d in parts), arb(0))


def gaussian(mu2: arb, loss: arb) -> arb:
    """A Gaussian release, mu2 = (sensitivity / noise)^2; k of them are one with k mu2."""
    mu = mu2.sqrt()
    return normal(mu / 2 - loss / mu) - loss.exp() * normal(-mu / 2 - loss / mu)


@dataclass(frozen=True)
class Step:
    """One step: n records (of one group), rate p, cap B, noise s. `profile(loss)` bounds H(e^loss) for all neighbours."""

    n: int
    p: fmpq
    cap: int
    s: fmpq
    overflow: str
    adjacency: str
    analysis: str
    lend: Mapping[int, tuple[list[fmpq], fmpq]]

    @cached_property
    def weights(self) -> tuple[arb, arb, arb, arb, arb, arb]:
        """p, room, w, tau, tq, c."""
        w, tau = point(self.cap - 1, self.n - 1, self.p), tail(self.cap, self.n - 1, self.p)
        tq = self.cap * tail(self.cap + 1, self.n, self.p) / self.n
        return arb(self.p), 1 - w - tau, w, tau, tq, arb(self.p) * w + tq

    def profile(self, loss: arb, node: int) -> arb:
        if loss < 0 and self.adjacency == "replace-one":
            return 1 - loss.exp() + loss.exp() * self.profile(-loss, -node)
        a = loss.exp()
        if self.cap >= self.n or self.analysis == "union":
            return self.plain(a)
        if self.overflow == "reject":
            return self.reject(a)
        p, room, w, tau, tq, c = self.weights
        if self.analysis == "note":
            return (1 - tau) * self.plain(a) + self.note(a)
        swap = room * self.plain(a) + self.swap(a)
        if node not in self.lend or not self.lending_holds(a, node):
            return swap
        lent = self.lending(a, *self.lend[node])
        return lent if lent.is_finite() and lent.upper() < swap.upper() else swap

    def plain(self, a: arb) -> arb:
        """Poisson sampling without a cap, p N(1) + (1-p) N(0) against N(0), or (1-p) N(0) + p N(-1) (mirrored)."""
        p, s = arb(self.p), arb(self.s)
        if self.adjacency == "replace-one":
            return kernel(p, [((1 - p) * (a - 1), 1), (a * p, 2)], s)
        return kernel(p, [(a - 1 + p, 1)], s) if a > 1 - p else 1 - a

    def note(self, a: arb) -> arb:
        """The note's group r = 2, weight tau: q N(2) + (1-q) N(0) against N(0); (1-q) N(0) + q N(-1); the same at -2."""
        p, room, w, tau, tq, c = self.weights
        s = arb(self.s)
        if self.adjacency == "replace-one":
            return kernel(tq, [((tau - tq) * (a - 1), 2), (a * tq, 4)], s)
        if self.adjacency == "add-remove":
            return kernel(tq, [((a - 1) * tau + tq, 2)], s) if (a - 1) * tau + tq >= 0 else tau * (1 - a)
        if a >= 1:
            return kernel(tq, [((tau - tq) * (a - 1), 2), (a * tq, 3)], s)
        return tau * (1 - a) + a * kernel(tq, [((tau - tq) * (1 / a - 1), 1), (tq / a, 3)], s)

    def swap(self, a: arb) -> arb:
        """The group of B-1 or more others, by the exchanged record: the table of section 4."""
        p, room, w, tau, tq, c = self.weights
        s = arb(self.s)
        if self.adjacency == "replace-one":
            return kernel(c, [((1 - p) * w * (a - 1), 1), ((tau - tq) * (a - 1) + a * c, 2)], s)
        if self.adjacency == "add-remove":
            if (a - 1) * tau + tq >= 0:
                return kernel(c, [((a - 1 + p) * w, 1), ((a - 1) * tau + tq, 2)], s)
            return kernel(c + tau * (1 - a) - tq, [((a - 1 + p) * w, 1)], s) if a > 1 - p else (w + tau) * (1 - a)
        if a >= 1:
            return kernel(c, [((a - 1 + p) * w + a * tq, 1), ((tau - tq) * (a - 1), 2)], s)
        back = kernel(w * (1 - (1 - p) / a) + tq, [((tau - tq) * (1 / a - 1) + c / a, 1)], s)
        return (w + tau) * (1 - a) + a * back

    @cached_property
    def reject_weights(self) -> tuple[arb, arb]:
        """b = Pr[the others fill the batch] and k: section 5, add-remove (b', k = Z_{n-1} / Z_n) or the others (b, 1)."""
        z_n, z_rest = (tail(m - self.cap, m, 1 - self.p) for m in (self.n, self.n - 1))  # Pr[Bin(m, p) <= B]
        full = point(self.cap, self.n - 1, self.p)
        return (full / z_rest, z_rest / z_n) if self.adjacency == "add-remove" else ((1 - self.p) * full / z_n, arb(1))

    def reject(self, a: arb) -> arb:
        b, k = self.reject_weights
        last = k * (1 - arb(self.p)) - a if self.adjacency == "add-remove" else 1 - a
        return (1 - b) * k * self.plain(a / k) + b * last.max(arb(0))

    def lending_holds(self, a: arb, node: int) -> bool:
        p, room, w, tau, tq, c = self.weights
        return bool((a - 1) * tau + tq >= 0) if self.adjacency == "add-remove" else node >= 0

    def lending(self, a: arb, shares: list[fmpq], tilt: fmpq) -> arb:
        """Section 9: lower levels lend the shares of their negative mass to the top; any shares and tilt are valid."""
        (p, room, w, tau, tq, c), s, tilt_ = self.weights, arb(self.s), arb(tilt)
        i, zero = 1 / (2 * s * s), arb(0)
        low, low2, m0, m1, top2 = {
            "add-remove": (a - 1 + p, zero, (a - 1 + p) * w, (a - 1) * tau + tq, zero),
            "zero-out": (a - 1 + p, zero, (a - 1 + p) * w + a * tq, (a - 1) * (tau - tq), zero),
            "replace-one": ((1 - p) * (a - 1), a * p, (1 - p) * (a - 1) * w, (a - 1) * (tau - tq), a * c),
        }[self.adjacency]
        total, up, lent = zero, zero, zero
        rest = room
        for k, share in enumerate(shares, 1):
            level = self.level(k)
            e = share * low * level * (-k * tilt_ - k * k * i).exp()
            up, lent, rest = up + k * e, lent + e, rest - level
            total += level * kernel(p, [((1 - share) * low, 1), (low2, 2)], s)
        total += rest * kernel(p, [(low, 1), (low2, 2)], s)
        if up.is_zero() or m1.is_zero():
            return total + kernel(c, [(m0, 1), (top2, 2)], s)
        z = up + m0 + lent
        theta = up / z
        m = z * (theta * (m1.log() - i + tilt_ - up.log())).exp()
        return total + self.top(c, m, top2, theta, s)

    def level(self, k: int) -> arb:
        """Pr[B-1-k others drawn]."""
        if k not in self._levels:
            self._levels[k] = point(self.cap - 1 - k, self.n - 1, self.p)
        return self._levels[k]

    @cached_property
    def _levels(self) -> dict[int, arb]:
        return {}

    def top(self, c: arb, m: arb, top2: arb, theta: arb, s: arb) -> arb:
        """Section 9's `Top`: the smaller of its two forms."""
        parts = [(m, 1), (top2, 2)] if not top2.is_zero() else [(m, 1)]
        x, v, v0 = threshold(c, parts, s), kernel(c, parts, s), kernel(c - m, [(top2, 2)], s)
        b, others = self.cap - 1, self.n - 1
        size, kappa = (b, arb(others) / (others - b)) if b <= others - b else (others - b, arb(others) / b)
        reach = kappa * theta
        crude = v + m * (reach / arb(size).sqrt() + reach * reach / size) / (2 * s * (2 * arb.pi()).sqrt())
        slope = m * (-(((x - 1) / s) ** 2) / 2).exp() / ((2 * arb.pi()).sqrt() * 2 * s * (v - v0))
        room = 1 - 2 * slope * reach * reach / size
        shaped = top2.is_zero() or m >= c
        if not shaped:
            edge = 1 / s + s / 2 * (c / top2).log()
            shaped = bool(edge <= arb(3).sqrt()) and bool(edge <= 3 * s / 2)
        if not (shaped and v > v0 and room > 0):
            return crude
        c_ = slope * reach * reach
        psi = (4 * c_ / room + 2 * slope * c_ / (room * room)) / size
        fine = v0 + (v - v0) * psi.exp()
        return fine if fine.upper() < crude.upper() else crude
