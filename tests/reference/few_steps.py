"""Composition without a transform, for few steps and rare hits, where `exact.Composed` decays too slowly.

`two_steps` is the definition for two steps: one step's profile averaged over the other step's loss, at 50 digits.
`PoissonLoss` is plain Poisson sampling (add-remove, zero-out) for any number of steps: the density of the total loss
by repeated direct convolution. Measured from its lowest value, the loss of a step is positive and its density is
a smooth function of the *logarithm* of the loss, however rare the hits, so Chebyshev panels in that variable hold
the logarithm of the density to full relative accuracy, and a convolution adds positive terms only. Double precision;
the measured accuracy is about 1e-11 relative (against `exact.Composed` and `two_steps`).
"""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf
from mpmath.calculus.quadrature import GaussLegendre

from . import exact, profile_float


def two_steps(L: exact.Law, eps: Any, digits: int = 22, profile: Any = None, degree: int = 4) -> mpf:
    """delta(eps) of two steps: E over one step's loss of the other's profile, by Gauss-Legendre panels over outputs.

    `profile(eps)` gives the closed form of the law's profile; without it the law is integrated (ten times slower).
    """
    profile = profile or (lambda e: exact.law_profile(L, e))
    eps, s = mpf(eps), L.s
    # The profile has branch points within about p of a = 1: a mark at loss 0 as well.
    kinks = [mpf(0)] + [mpmath.log(x / y) for x, y in L.atoms if x > 0 and y > 0]
    ends = [(t, x) for t in L.pieces if t.hi is not None for x in (t.hi,)]
    kinks += [exact._log_density(t.P, x, s) - exact._log_density(t.Q, x, s) for t, x in ends]
    # Each profile is also not analytic where a piece's losses end (its closed form changes there).
    for t in L.pieces:
        for far in (-(10**4) * s, 10**4 * s if t.hi is None else None):
            if far is not None:
                edge = exact._log_density(t.P, far, s) - exact._log_density(t.Q, far, s)
                if abs(edge) < 100:
                    kinks.append(edge)
    old = mp.dps
    total = mpf(0)
    try:
        mp.dps = digits + 6
        rule = GaussLegendre(mp).calc_nodes(degree, mp.prec)  # 3 * 2^(degree - 1) nodes
        for x, y in L.atoms:
            if x > 0:
                total += x * (profile(eps - mpmath.log(x / y)) if y > 0 else 1)
        for t in L.pieces:

            def ratio(x, t=t):
                return exact._log_density(t.P, x, s) - exact._log_density(t.Q, x, s)

            roots = [exact._root(ratio, eps - k, s, rising=t.rising, hi=t.hi) for k in kinks]
            shifts = [*t.P, 0]
            low, top = min(shifts) - 14 * s, max(shifts) + 14 * s
            top = top if t.hi is None else min(top, t.hi)
            marks = [m for m in roots if m is not None and low < m < top]
            cuts = {low, top, *marks}
            cuts |= {low + j * s / 2 for j in range(1, int((top - low) / (s / 2)) + 1)}
            for m in marks:  # the profile need not be analytic there: panels shrinking towards the mark
                cuts |= {c for k in range(1, 36) for c in (m - s / 2**k, m + s / 2**k) if low < c < top}
            ordered = sorted(c for c in cuts if c <= top)

            def term(x: mpf, t: exact.Piece = t, ratio: Any = ratio) -> mpf:
                density = mpmath.exp(exact._log_density(t.P, x, s) - x * x / (2 * s * s))
                return density * profile(eps - ratio(x))

            part = mpf(0)
            for a, b in itertools.pairwise(ordered):
                if b > a:
                    part += (b - a) / 2 * mpmath.fsum(v * term((a + b) / 2 + (b - a) / 2 * u) for u, v in rule)
            total += part / (s * mpmath.sqrt(2 * mp.pi))
    finally:
        mp.dps = old
    return total


def two_steps_epsilon(delta: float, **step: Any) -> tuple[mpf, mpf]:
    """epsilon of two steps at delta > 0, and the relative error of delta there (against a finer quadrature).

    `step` as for `exact.profile`. Secant steps on log delta from a double-precision guess.
    """
    L = exact.law(**step)
    log_mass, loss = exact.Composed(L, 2)._cells
    mass = np.exp(log_mass)

    def rough(e):
        return mass @ profile_float.profile(np.clip(e - loss, -300, 300), **step)

    low, high = 0.0, 1e-6
    while rough(high) > delta:
        low, high = high, 2 * high
    for _ in range(40):
        mid = (low + high) / 2
        low, high = (mid, high) if rough(mid) > delta else (low, mid)

    def h(e):
        return exact.profile(e, **step)

    def miss(e):
        return mpmath.log(two_steps(L, e, profile=h, degree=3) / mpf(delta))

    x0, x1 = mpf(high), mpf(high) * (1 + mpf(10) ** -5)
    f0, f1 = miss(x0), miss(x1)
    for _ in range(12):
        if abs(f1) < mpf(10) ** -21:
            break
        x0, x1, f0 = x1, x1 - f1 * (x1 - x0) / (f1 - f0), f1
        f1 = miss(x1)
    return x1, two_steps_error(x1, delta, degree=4, **step)


def two_steps_error(eps: mpf, delta: float, degree: int = 4, **step: Any) -> mpf:
    """How far delta(eps) of two steps is from `delta`, relatively."""
    found = two_steps(exact.law(**step), eps, profile=lambda e: exact.profile(e, **step), degree=degree)
    return abs(found / mpf(delta) - 1)


class PoissonLoss:
    """Total loss of `steps` steps of plain Poisson sampling, P = (1-p)N(0)+pN(1) against Q = N(0)."""

    def __init__(self, p: float, sigma: float, steps: int, *, width: float = 0.2, order: int = 16) -> None:
        self.p, self.sigma, self.steps = p, sigma, steps
        r = np.log(p) - np.log1p(-p)
        low, high = r - 17 / sigma - 2, np.log(60 / sigma + 60 / sigma**2 + steps * p * 4 + 5)
        self.edges = np.linspace(low, high, int(np.ceil((high - low) / width)) + 1)
        self.width = self.edges[1] - self.edges[0]
        k = np.arange(order)
        self.points = np.cos(np.pi * (k + 0.5) / order)
        self.to_coefficients = 2 / order * np.cos(np.pi * np.outer(k, k + 0.5) / order)
        self.to_coefficients[0] /= 2
        self.x, self.wt = np.polynomial.legendre.leggauss(12)
        self.floor = steps * np.log1p(-p)  # the lowest total loss
        density = None
        power, rest = self._tabulate(self._one), steps
        while rest:
            if rest & 1:
                density = power if density is None else self._convolve(density, power)
            rest >>= 1
            if rest:
                power = self._convolve(power, power)
        assert density is not None
        self.density = density

    def _one(self, v: np.ndarray) -> np.ndarray:
        """log density (in the loss above its lowest value, e^v) of one step."""
        above = np.exp(v)
        log_expm1 = np.where(above > 30, above, np.log(np.expm1(np.minimum(above, 40))))
        x = self.sigma**2 * (log_expm1 - np.log(self.p) + np.log1p(-self.p)) + 0.5
        log_q = -0.5 * (x / self.sigma) ** 2 - np.log(self.sigma * np.sqrt(2 * np.pi))
        return np.log1p(-self.p) + above + log_q + 2 * np.log(self.sigma) + above - log_expm1

    def _tabulate(self, f: Any) -> np.ndarray:
        """Chebyshev coefficients of f on every panel."""
        v = self.edges[:-1, None] + self.width * (self.points + 1) / 2
        values = f(v)
        values[~(values > -600).all(axis=1)] = -1e4  # a panel whose density is nowhere above e^-600 of 1 is dropped
        return values @ self.to_coefficients.T

    def _eval(self, table: np.ndarray, v: np.ndarray) -> np.ndarray:
        """log density at e^v; -inf outside the panels, where it is below e^-100 of the peak."""
        place = (v - self.edges[0]) / self.width
        i = np.clip(place.astype(int), 0, len(table) - 1)
        t = 2 * (place - i) - 1
        b1 = b2 = np.zeros_like(v)
        for k in range(table.shape[1] - 1, 0, -1):
            b1, b2 = table[i, k] + 2 * t * b1 - b2, b1
        return np.where((place < 0) | (place > len(table)), -np.inf, table[i, 0] + t * b1 - b2)

    def _convolve(self, f: np.ndarray, g: np.ndarray) -> np.ndarray:
        def log_density(v: np.ndarray) -> np.ndarray:
            out = np.full(v.shape, -np.inf)
            alive = [np.argmax(table[:, 0] > -5e3) for table in (f, g)]
            start = self.edges[min(alive)]
            for row, values in enumerate(v):
                for col, value in enumerate(values):
                    u, wt = self._grid(start, value - np.log(2))
                    other = value + np.log1p(-np.exp(u - value))
                    both = [self._eval(f, u) + self._eval(g, other)]
                    both.append(both[0] if f is g else self._eval(g, u) + self._eval(f, other))
                    logs = np.logaddexp(*both) + u
                    top = logs.max(initial=-np.inf)
                    if top > -5e3:
                        out[row, col] = top + np.log(np.exp(logs - top) @ wt)
            return out

        return self._tabulate(log_density)

    def _grid(self, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        """Gauss-Legendre panels on [low, high], finer towards high, where the other factor may be sharp."""
        if high <= low:
            return np.zeros(0), np.zeros(0)
        cuts = np.arange(high, low - self.width, -self.width)[::-1]
        cuts[0] = low
        a, b = cuts[:-1, None], cuts[1:, None]
        return ((a + b) / 2 + (b - a) / 2 * self.x).ravel(), ((b - a) / 2 * self.wt).ravel()

    def moments(self) -> tuple[float, float]:
        """E_P 1 and E_P e^{-loss} = E_Q 1: both must be 1."""
        u, wt = self._grid(self.edges[0], self.edges[-1] - 1e-9)
        f = np.exp(self._eval(self.density, u) + u) * wt
        return float(f.sum()), float((f * np.exp(-np.exp(u) - self.floor)).sum())

    def delta(self, eps: float, direction: str = "forward") -> float:
        """delta(eps) of the total loss, in either direction, from the one density."""
        if direction == "forward":
            start = eps - self.floor  # measured from the lowest loss
            gap, wt = self._grid(np.log(start) - 40, np.log(np.exp(self.edges[-1]) - start) - 1e-9)
            f = self._eval(self.density, np.log(start + np.exp(gap)))
            return float(-np.expm1(-np.exp(gap)) * np.exp(f + gap) @ wt)
        start = -eps - self.floor
        if start <= 0:
            return 0.0
        u, wt = self._grid(self.edges[0], np.log(start))
        f = self._eval(self.density, u) - np.exp(u) - self.floor
        return float(-np.expm1(np.minimum(np.exp(u) - start, 0)) * np.exp(f + u) @ wt)

    def epsilon(self, delta: float, direction: str = "forward") -> float:
        """The positive epsilon with delta(epsilon) = delta, by bisection."""
        low, high = 0.0, 1e-9
        while self.delta(high, direction) > delta:
            low, high = high, 2 * high
        for _ in range(200):
            mid = (low + high) / 2
            if mid in (low, high):
                break
            low, high = (mid, high) if self.delta(mid, direction) > delta else (low, mid)
        return (low + high) / 2
