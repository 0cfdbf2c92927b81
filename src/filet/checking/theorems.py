"""The theorems: upper bounds of one step's privacy profile H(a) = integral [P - aQ]_+, a > 0, evaluated in balls.

Unit sensitivity, noise N(0, s^2); n records, rate p, cap B. Over the n-1 other records: w = Pr[B-1 drawn], tau = Pr[at least
B], room = the rest; tq = (B/n) Pr[Bin(n,p) > B]; c = p w + tq. The proofs are on the documentation's theory page.
"""

from contextvars import ContextVar
from functools import reduce
from itertools import pairwise
from time import monotonic
from typing import Any

from flint import arb, ctx, fmpq

DEADLINE: ContextVar[float] = ContextVar("DEADLINE", default=float("inf"))  # of this check, by the monotonic clock


def need(condition: object, reason: str) -> None:
    if not condition:
        raise ValueError(reason)


def spend(seconds: float = 0) -> None:
    """Stop, unless there is time for work of about that many seconds. Every loop asks at each of its turns."""
    need(monotonic() + seconds <= DEADLINE.get(), "it takes longer than max_seconds allows")


def point(j: int, n: int, p: fmpq) -> arb:
    """Pr[Bin(n, p) = j], with more bits than the rest: its logarithms cancel. A wide ball would be sound, too."""
    if not 0 <= j <= n or p == 1:
        return arb(int(j == n and p == 1))
    with ctx.workprec(ctx.prec + 192):
        choose = arb(n + 1).lgamma() - arb(j + 1).lgamma() - arb(n - j + 1).lgamma()
        return (choose + j * arb(p).log() + (n - j) * arb(1 - p).log()).exp()


def tail(j: int, n: int, p: fmpq) -> arb:
    """Pr[Bin(n, p) >= j]: a sum whose terms fall ever faster, or an incomplete beta function where they are too many."""
    spend()
    if j <= 0 or j > n or p == 1:
        return arb(int(j <= n))
    if j <= n * p:
        return 1 - tail(n - j + 1, n, 1 - p)
    if n * p * (1 - p) > 10**8 and n * p * (1 - p) > 1000 * (j - n * p):
        with ctx.workprec(min(ctx.prec + 192, 560)):  # with more bits it takes hours, and knows less
            return arb(p).beta_lower(j, n - j + 1, True)
    with ctx.workprec(ctx.prec + 192):
        odds, term, total = arb(p / (1 - p)), point(j, n, p), arb(0)
        while term > total * arb(2) ** (128 - ctx.prec):
            spend()
            j, term, total = j + 1, term * odds * (n - j) / (j + 1), total + term
        return total + term / (1 - odds * (n - j) / (j + 1)) * arb(0).union(arb(1))


def threshold(s: arb, c: arb, *parts: tuple[arb, int]) -> arb:
    """The x with c = sum of m e^{(d x - d^2/2) / s^2} over the parts (m, d), where the two sides of [.]_+ are equal."""
    by = {d: m * (-arb(d * d) / (2 * s * s)).exp() for m, d in parts if not m.is_zero()}
    if set(by) <= {1, 2}:  # a quadratic in e^{x / s^2}
        one, two = by.get(1, arb(0)), by.get(2, arb(0))
        return s * s * (2 * c / (one + (one * one + 4 * two * c).sqrt())).log()
    after = min((((c / m).log() / d).mid() for d, m in by.items()), key=lambda v: v.mid())
    for _ in range(14):  # Newton: the log of the right side is convex in u = x / s^2, with a slope of at least min(d)
        u, terms = after, {d: m * (d * after).exp() / c for d, m in by.items()}
        total = sum(terms.values(), arb(0))
        after = (u - total.log() * total / sum((d * term for d, term in terms.items()), arb(0))).mid()
    return s * s * arb(u, total.log().abs_upper() / min(by))


def kernel(s: arb, c: arb, *parts: tuple[arb, int]) -> arb:
    """K = integral [c N(0) - sum of m N(d)]_+ over the parts (m, d), m >= 0: all tables are made of it."""
    spend()
    if not c > 0 or all(m.is_zero() for m, _ in parts):
        return c if c > 0 else arb(0).union(c.max(arb(0)))
    x, root = threshold(s, c, *parts), arb(2).sqrt() * s
    return sum((-m * ((d - x) / root).erfc() / 2 for m, d in ((-c, 0), *parts)), arb(0))


def spread(n: int, p: fmpq, cap: int, cuts: list[int]) -> tuple[list[tuple[arb, arb]], arb, arb]:
    """Section 10: the chances of reject's sizes K < B on knots (any will do), with their mean and (1 - k/n) / (1-p); and B's chance."""
    knots = sorted({0, cap - 1, *(k for k in cuts if 0 < k < cap)})
    means = [k * (1 - tail(k, n, p)) - n * p * (1 - tail(k - 1, n - 1, p)) for k in knots]  # E[(k - K)_+]
    slopes = [(e1 - e0) / (k1 - k0) for (k0, k1), (e0, e1) in zip(pairwise(knots), pairwise(means), strict=True)]
    z, each = tail(n - cap, n, 1 - p), zip(knots, pairwise([arb(0), *slopes, 1 - tail(cap, n, p)]), strict=True)
    mix = [((after - before) / z, arb((n - k) / (n * (1 - p)))) for k, (before, after) in each]
    return mix, point(cap, n, p) / z, arb(fmpq(n - cap, n))


def profile(n: int, p: fmpq, cap: int, s2: fmpq, policy: str, adjacency: str, analysis: str,
            lend: dict[int, tuple[list[fmpq], fmpq]], cuts: list[int]) -> Any:  # fmt: skip
    """One step's bound. `at-most` is truncate for every size up to n, `secret` reject for all: the largest of some bounds."""
    several = [Step(n, p, cap, s2, {"secret": "reject"}.get(policy, policy), adjacency, analysis, lend)]
    if (policy, adjacency) == ("secret", "add-remove"):  # section 10: sizes up to n, as zero-out; above
        several = [Step(n, p, cap, s2, "reject", "zero-out", analysis, {}) for _ in range(2)]
        several[1].mix, several[1].b, several[1].stay = spread(n, p, cap, cuts)
    if policy == "at-most" and cap < n and analysis != "union":  # plain up to B, then cells j, ..., end - 1
        ends = [cap + 1, *sorted(j for j in cuts if cap + 1 < j <= n), n + 1]
        several = [Step(end - 1, p, cap, s2, "truncate", adjacency, analysis, lend, j) for j, end in pairwise(ends)]
        several.append(Step(n, p, n, s2, "truncate", adjacency, analysis, {}))
    return lambda loss, node: reduce(lambda most, step: most.max(step.profile(loss, node, most)), several[::-1], arb(0))


class Step:
    """One step on the n records of a group; `lend`: shares and tilts; `least`: sizes from there to n, for section 10."""

    def __init__(self, n: int, p: fmpq, cap: int, s2: fmpq, policy: str, adjacency: str, analysis: str,
                 lend: dict[int, tuple[list[fmpq], fmpq]], least: int = 0) -> None:  # fmt: skip
        self.p, self.cap, self.s, self.adjacency = arb(p), cap, arb(s2).sqrt(), adjacency
        self.kind = "plain" if cap >= n or analysis == "union" else "reject" if policy == "reject" else analysis
        self.n, self.least, self.w, self.tau = n, least or n, point(cap - 1, n - 1, p), tail(cap, n - 1, p)
        rate = cap * tail(cap + 1, self.least, p) / self.least / (tail(cap, least - 1, p) if least else 1)
        self.room, self.tq = 1 - self.w - self.tau, rate * (self.tau if least else 1)
        self.c, self.free = self.p * self.w + self.tq, self.tau - self.tq
        self.b, self.stay, self.mix, self.lend = arb(0), arb(1), [(arb(1), arb(1))], {} if 0 < least < 2 * cap - 1 else lend  # fmt: skip
        if self.kind == "reject":  # section 5; z = Pr[Bin(n, p) <= B], z_rest the same of n-1
            z, z_rest, full = tail(n - cap, n, 1 - p), tail(n - 1 - cap, n - 1, 1 - p), point(cap, n - 1, p)
            self.b, self.mix = (1 - p) * full / z, [(1 - (1 - p) * full / z, arb(1))]
            if adjacency == "add-remove":
                self.b, self.stay, self.mix = full / z_rest, (1 - p) * z_rest / z, [(1 - full / z_rest, z_rest / z)]

    def profile(self, loss: arb, node: int, enough: arb | int = 0) -> arb:
        """An upper bound of H(e^loss) for all neighbours; no tighter than `enough`. Replace-one: H(a) = 1 - a + a H(1/a)."""
        a = loss.exp()
        if loss < 0 and self.adjacency == "replace-one":
            return 1 - a + a * self.profile(-loss, -node)
        if self.kind in ("plain", "reject"):
            return sum((w * k * self.plain(a / k) for w, k in self.mix), self.b * (self.stay - a).max(arb(0)))
        if self.kind == "note":
            return (1 - self.tau) * self.plain(a) + self.note(a)
        swap = self.room * self.plain(a) + self.swap(a)
        lent = self.lent(a, *self.lend[node]) if node in self.lend and swap > enough else swap
        return lent if lent.upper() < swap.upper() else swap

    def rows(self, a: arb) -> tuple[arb, arb, arb, arb, arb]:
        """Negative parts of P - aQ, where only hits are positive (m1 >= 0): low, low2 with room; m0, m1, top2 without."""
        hit, low, away = a - 1 + self.p, (1 - self.p) * (a - 1), (a - 1) * self.free
        if self.adjacency == "replace-one":
            return low, a * self.p, low * self.w, away, a * self.c
        m0, m1 = (0, (a - 1) * self.tau + self.tq) if self.adjacency == "add-remove" else (a * self.tq, away)
        return hit, arb(0), hit * self.w + m0, m1, arb(0)

    def plain(self, a: arb) -> arb:
        """Poisson sampling: (1-p) N(0) + p N(1) against N(0), under replace-one against (1-p) N(0) + p N(-1)."""
        low, low2, *_ = self.rows(a)
        return 1 - a if low < 0 else kernel(self.s, self.p, (low, 1), (low2, 2)) if low >= 0 else self.p.max(1 - a)

    def note(self, a: arb) -> arb:
        """Section 2, r = 2, weight tau: (1-q) N(0) + q N(2) against N(0), (1-q) N(0) + q N(-1), (1-q) N(0) + q N(-2)."""
        m1, apart = self.rows(a)[3], {"add-remove": 0, "zero-out": 3, "replace-one": 4}[self.adjacency]
        if m1 >= 0:
            return kernel(self.s, self.tq, (m1, 2), (a * self.tq * bool(apart), apart))
        below = kernel(self.s, self.tq, (self.free * (1 / a - 1), 1), (self.tq / a, 3)) if apart else arb(0)
        return self.tau * (1 - a) + a * below if m1 < 0 else arb.nan()

    def swap(self, a: arb) -> arb:
        """Section 4: the group of B-1 or more others, by the record that takes an overflowing batch's last place."""
        low, _, m0, m1, top2 = self.rows(a)
        if not m1 < 0:
            return kernel(self.s, self.c, (m0, 1), (m1 + top2, 2)) if m1 >= 0 else arb.nan()
        if self.adjacency == "add-remove" and not low < 0:
            return kernel(self.s, self.c - m1, (m0, 1))
        back = kernel(self.s, self.w * (1 - (1 - self.p) / a) + self.tq, (self.free * (1 / a - 1) + self.c / a, 1))
        return (self.w + self.tau) * (1 - a) + (a * back if self.adjacency == "zero-out" else 0)

    def lent(self, a: arb, shares: list[fmpq], tilt: fmpq) -> arb:
        """Section 9: lower levels lend shares of their negative mass to the top. Any shares in [0, 1] and tilt are valid."""
        low, low2, m0, m1, top2 = self.rows(a)
        i, up, lent, total, level, rest = 1 / (2 * self.s * self.s), arb(0), arb(0), arb(0), self.w, self.room
        for k, share in enumerate(shares, 1):
            level *= (self.cap - k) * (1 - self.p) / ((self.n - self.cap + k) * self.p)  # Pr[B-1-k others drawn]
            e = share * low * level * (-k * arb(tilt) - k * k * i).exp()
            up, lent, rest = up + k * e, lent + e, rest - level
            total += level * kernel(self.s, self.p, ((1 - share) * low, 1), (low2, 2))
        total, z = total + rest * kernel(self.s, self.p, (low, 1), (low2, 2)), up + m0 + lent
        if not (m1 > 0 and up > 0):
            return total + kernel(self.s, self.c, (m0, 1), (top2, 2)) if m1 >= 0 else arb.nan()
        return total + self.top((up / z * (m1.log() - i + arb(tilt) - up.log())).exp() * z, top2, up / z)

    def top(self, m: arb, top2: arb, theta: arb) -> arb:
        """Section 9's `Top`: its second form, or a tangent at any r where log(V_r - V_0) is known to be concave in r."""
        s, c, size, r, parts = self.s, self.c, min(self.cap - 1, self.least - self.cap), arb(1), ((m, 1), (top2, 2))
        reach, root, at0 = theta / (1 - fmpq(size, self.least - 1)), (8 * arb.pi()).sqrt(), kernel(s, c - m, parts[1])
        best = kernel(s, c, *parts) + m * (reach / arb(size).sqrt() + reach * reach / size) / (root * s)
        for _ in range(4 if top2 == 0 else m >= c or 1 / s + s / 2 * (c / top2).log() <= arb(3).sqrt().min(3 * s / 2)):
            y, rise = s / r.sqrt(), kernel(s / r.sqrt(), c, *parts) - at0  # V_r has the noise y; with top2, r is 1
            slope = m * (-(((threshold(y, c, *parts) - 1) / y) ** 2) / 2).exp() / (root * y * r * rise)
            lift, left = slope * reach * reach, 1 - 2 * slope * reach * reach / size
            fine = at0 + rise * ((4 * lift / left + 2 * slope * lift / (left * left)) / size - slope * (r - 1)).exp()
            best = fine if rise > 0 and left > 0 and fine.upper() < best.upper() else best
            r = (1 + 4 * (reach * reach + lift) / (size * left * left)).mid() if 5 * left > 1 else arb(3)
        return best
