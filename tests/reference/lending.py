"""The lending bound (Theorem 4 of the theory page) in 50 digits, from its statement alone. It shares no code with the library.

`bound(...)` is h_1(a) for given shares and tilt, `swap(...)` Theorem 2's profile, both as H_a or, with `excess`, as
H_a - (1 - a). Replace-one is mirrored below a = 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mpmath
from mpmath import mp, mpf

from . import exact

mp.dps = 50
ONE = mpf(1)


def below(x: mpf) -> mpf:
    """The standard normal distribution function, to full relative precision in its lower tail."""
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def density(x: mpf) -> mpf:
    return mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)


def crossing(c: mpf, m1: mpf, m2: mpf, s: mpf, d: mpf) -> mpf:
    """Where c N(0) = m1 N(d) + m2 N(2), for m2 = 0 or d = 1."""
    if c <= 0:
        return -mpmath.inf
    if m1 <= 0 and m2 <= 0:
        return mpmath.inf
    if m2 <= 0:
        return d / 2 + s * s * mpmath.log(c / m1) / d
    A, b = m2 * mpmath.exp(-2 / s**2), m1 * mpmath.exp(-1 / (2 * s**2))
    return s * s * mpmath.log(2 * c / (b + mpmath.sqrt(b * b + 4 * A * c)))


def K(c: mpf, m1: mpf, m2: mpf, s: mpf, d: mpf = ONE) -> mpf:
    """Integral of [c N(0) - m1 N(d) - m2 N(2)]_+."""
    x = crossing(c, m1, m2, s, d)
    if x == -mpmath.inf:
        return mpf(0)
    if x == mpmath.inf:
        return c
    return c * below(x / s) - m1 * below((x - d) / s) - m2 * below((x - 2) / s)


@dataclass(frozen=True)
class Masses:
    low: mpf
    low2: mpf
    m0: mpf
    m1: mpf
    top2: mpf


def masses(W: exact.Weights, a: mpf, adjacency: str) -> Masses:
    """The table of the theorem."""
    p, w, tau, tq, c = W.p, W.w, W.tau, W.tq, W.c
    if adjacency == "add-remove":
        return Masses(a - 1 + p, mpf(0), (a - 1 + p) * w, (a - 1) * tau + tq, mpf(0))
    if adjacency == "zero-out":
        return Masses(a - 1 + p, mpf(0), (a - 1 + p) * w + a * tq, (a - 1) * (tau - tq), mpf(0))
    return Masses((1 - p) * (a - 1), a * p, (1 - p) * (a - 1) * w, (a - 1) * (tau - tq), a * c)


def cover(m: Masses, lent: Sequence[mpf], tilt: mpf, s: mpf) -> tuple[mpf, mpf]:
    """M and theta."""
    i = 1 / (2 * s * s)
    e = [mass * mpmath.exp(-k * tilt - k * k * i) for k, mass in enumerate(lent, 1)]
    up = sum((k * value for k, value in enumerate(e, 1)), mpf(0))
    if m.m1 <= 0 or up <= 0:
        return m.m0, mpf(0)
    Z = up + m.m0 + sum(e)
    theta = up / Z
    M = Z * mpmath.exp(theta * (mpmath.log(m.m1) - i + tilt - mpmath.log(up)))
    return (M, theta) if m.m0 < M else (m.m0, mpf(0))


def top(n: int, B: int, c: mpf, M: mpf, theta: mpf, top2: mpf, s: mpf, *, psi: bool = True) -> mpf:
    """The theorem's Top; without `psi`, only what it would be if all means were equal (which proves nothing)."""
    V = K(c, M, top2, s)
    if theta == 0 or not psi:
        return V
    N, b = n - 1, B - 1
    m, kappa = (b, mpf(N) / (N - b)) if b <= N - b else (N - b, mpf(N) / b)
    reach = (kappa * theta) ** 2
    found = [V + M * (mpmath.sqrt(reach / m) + reach / m) / (2 * s * mpmath.sqrt(2 * mpmath.pi))]
    V0 = K(max(c - M, mpf(0)), mpf(0), top2, s)
    concave = top2 == 0 or c <= M or 1 / s + s / 2 * mpmath.log(c / top2) <= min(mpmath.sqrt(3), mpf(3) / 2 * s)
    r, first = mpf(1), mpf(0)
    for worth in (mpf("0.01"), mpf("0.1"), mpf("inf")):  # another tangent is tried where psi is more
        d = mpmath.sqrt(r)
        x = crossing(c, M, top2, s, d)
        # without top2 and for M < c, V_0 = c - M and the rise is the integral's negative part
        other = top2 == 0 and c > M
        rise = M * below((d - x) / s) - c * below(-x / s) if other else K(c, M, top2, s, d) - V0
        if not concave or rise <= 0:
            break
        first = rise if r == 1 else first
        slope = M * density((x - d) / s) / (2 * s * d * rise)
        C = slope * reach
        left = 1 - 2 * C / m
        if left > 0:
            exponent = (4 * C / left + 2 * slope * C / left**2) / m - slope * (r - 1)
            found.append(V0 + rise * mpmath.exp(exponent))
        if top2 > 0 or (len(found) > 1 and min(found[1:]) - V0 <= first * (1 + worth)):
            break
        # a better tangent, about where the exponent is smallest
        r = 1 + min((4 * reach + 4 * C) / m / left**2, mpf(3)) if left > mpf(1) / 5 else mpf(3)
    return min(found)


def bound(
    n: int, p: float, B: int, sigma: float, adjacency: str, loss: float, shares: Sequence[float], tilt: float,
    *, excess: bool = False, psi: bool = True,
) -> mpf:  # fmt: skip
    """h_1(a) at a = e^loss, for a >= a_0 (mirrored under replace-one)."""
    s, a = mpf(sigma), mpmath.exp(mpf(loss))
    if adjacency == "replace-one" and loss < 0:
        value = a * bound(n, p, B, sigma, adjacency, -loss, shares, tilt, psi=psi)
        return value if excess else 1 - a + value
    W = exact.weights(n, p, B)
    m = masses(W, a, adjacency)
    levels = [exact.pmf(B - 1 - k, n - 1, W.p) for k in range(1, len(shares) + 1)]
    lent = [mpf(share) * m.low * w for share, w in zip(shares, levels, strict=True)]
    M, theta = cover(m, lent, mpf(tilt), s)
    total = top(n, B, W.c, M, theta, m.top2, s, psi=psi)
    for share, w in zip(shares, levels, strict=True):
        total += w * K(W.p, (1 - mpf(share)) * m.low, m.low2, s)
    total += exact.lower(B - 2 - len(shares), n - 1, W.p) * K(W.p, m.low, m.low2, s)
    return total - (1 - a) if excess else total


def swap(n: int, p: float, B: int, sigma: float, adjacency: str, loss: float, *, excess: bool = False) -> mpf:
    """Theorem 2's profile."""
    s, a = mpf(sigma), mpmath.exp(mpf(loss))
    if a < 1 and adjacency == "replace-one":
        value = a * swap(n, p, B, sigma, adjacency, -loss)
        return value if excess else 1 - a + value
    W = exact.weights(n, p, B)
    m = masses(W, a, adjacency)
    p, w, tau, tq, c, zero = W.p, W.w, W.tau, W.tq, W.c, mpf(0)
    room = exact.lower(B - 2, n - 1, p)
    total = room * (K(p, m.low, m.low2, s) if m.low > 0 or a >= 1 else 1 - a)
    if a >= 1 or (adjacency == "add-remove" and m.m1 >= 0):
        total += K(c, m.m0, m.m1 + m.top2, s)
    elif adjacency == "add-remove":
        total += K(c + tau * (1 - a) - tq, m.m0, zero, s) if m.m0 > 0 else (w + tau) * (1 - a)
    else:
        total += (w + tau) * (1 - a) + a * K(w * (1 - (1 - p) / a) + tq, (tau - tq) * (1 / a - 1) + c / a, zero, s)
    return total - (1 - a) if excess else total
