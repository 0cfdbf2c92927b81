"""A slow, obvious, 50-digit judge for filet's accountant. It shares no code with the library.

Three layers, each checked against the others in `tests/test_reference.py`:

1. `Weights`: the binomial numbers of one step (`w`, `tau`, `tq`, `c`, `Z`, `b`, `b'`, `k`), by summing terms.
2. `profile(...)`: the one-step privacy profile `H_a(P||Q)`, from closed forms (the kernel `K`) or a numeric root.
3. `law(...)`: the same step as an explicit loss law: pieces of Gaussian mixtures on half-lines, and atoms.
   `Composed(law, steps)` composes it: `M(z) = E_P exp(z L)` by quadrature over the *output* `x`, then the
   inversion `delta = 1/(2 pi i) int M(z)^T e^{-z eps} / (z (z+1)) dz` by the trapezoid rule.
   `law_profile` integrates the law directly, so layers 2 and 3 check each other.

The laws come from where each bound is attained. Put the single positive part at 0; then `P` and `Q` of a refined
group are mixtures of N(0), N(1), N(2) for losses above the group's atom, and of N(0), N(1) below it. The loss
is decreasing in the output on each piece, and what is left of the mass is the atom.

`direction`: `"forward"` is (P, Q) = (with the example, without it), `"reverse"` swaps the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpc, mpf

mp.dps = 50
ANALYSES = ("note", "refined", "poisson")
ADJACENCIES = ("add-remove", "zero-out", "replace-one")
COMBINATIONS = tuple(
    (overflow, adjacency, analysis)
    for overflow, analysis in (
        ("truncate", "note"),
        ("truncate", "refined"),
        ("reject", "refined"),
        ("none", "poisson"),
    )
    for adjacency in ADJACENCIES
)
"""Every (overflow, adjacency, analysis); `("none", ..., "poisson")` is plain Poisson sampling without a cap."""


# --- 1. binomial weights ------------------------------------------------------------------------------------------


def pmf(k: int, n: int, p: mpf) -> mpf:
    """Pr[Bin(n,p) = k]."""
    if k < 0 or k > n:
        return mpf(0)
    if p == 1:
        return mpf(k == n)
    if n < 5000:
        return mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k)
    with mp.extradps(20):
        log_choose = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(n - k + 1)
        return mpmath.exp(log_choose + k * mpmath.log(p) + (n - k) * mpmath.log(1 - p))


def _run(k: int, n: int, p: mpf, step: int) -> mpf:
    """Sum of pmf(k), pmf(k+step), ... away from the mode, until the terms no longer count."""
    term = total = pmf(k, n, p)
    while term > 0 and 0 <= k + step <= n:
        term *= (n - k) * p / ((k + 1) * (1 - p)) if step > 0 else k * (1 - p) / ((n - k + 1) * p)
        k += step
        total += term
        if term < total * mpf(10) ** (-mp.dps - 15):
            break
    return total


def lower(k: int, n: int, p: mpf) -> mpf:
    """Pr[Bin(n,p) <= k]."""
    if k < 0:
        return mpf(0)
    if k >= n:
        return mpf(1)
    if p == 1:
        return mpf(0)
    return _run(k, n, p, -1) if k < n * p else 1 - _run(k + 1, n, p, +1)


def upper(k: int, n: int, p: mpf) -> mpf:
    """Pr[Bin(n,p) >= k]."""
    if k <= 0:
        return mpf(1)
    if k > n:
        return mpf(0)
    if p == 1:
        return mpf(1)
    return _run(k, n, p, +1) if k > n * p else 1 - _run(k - 1, n, p, -1)


@dataclass(frozen=True)
class Weights:
    """The binomial numbers of one step with `n` examples, probability `p` and cap `B`."""

    n: int
    p: mpf
    B: int
    w: mpf
    tau: mpf
    tq: mpf
    c: mpf
    q: mpf
    Z_n: mpf
    Z_N: mpf
    b: mpf
    b_prime: mpf
    k: mpf


@lru_cache(maxsize=256)
def weights(n: int, p: float, B: int) -> Weights:
    p = mpf(p)
    with mp.extradps(15):
        tau = upper(B, n - 1, p)
        tq = mpf(B) / n * upper(B + 1, n, p)
        Z_n, Z_N = lower(B, n, p), lower(B, n - 1, p)
        full = pmf(B, n - 1, p)
        return Weights(
            n=n, p=p, B=B,
            w=pmf(B - 1, n - 1, p), tau=tau, tq=tq, c=mpf(B) / n * upper(B, n, p), q=tq / tau if tau > 0 else p,
            Z_n=Z_n, Z_N=Z_N,
            b=(1 - p) * full / Z_n if Z_n > 0 else mpf(0),
            b_prime=full / Z_N if Z_N > 0 else mpf(0),
            k=Z_N / Z_n if Z_n > 0 else mpf(1),
        )  # fmt: skip


# --- 2. one-step profiles, closed form ----------------------------------------------------------------------------


def Phi(x: mpf) -> mpf:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def K(c: mpf, m1: mpf, m2: mpf, s: mpf) -> mpf:
    """Integral of [c N(0) - m1 N(1) - m2 N(2)]_+ with N(m) = N(m, s^2)."""
    if c <= 0:
        return mpf(0)
    m1, m2 = max(m1, mpf(0)), max(m2, mpf(0))
    if m1 == 0 and m2 == 0:
        return c
    e1, e2 = m1 * mpmath.exp(-1 / (2 * s**2)), m2 * mpmath.exp(-2 / s**2)
    x = s**2 * mpmath.log(2 * c / (e1 + mpmath.sqrt(e1**2 + 4 * e2 * c)))
    return c * Phi(x / s) - m1 * Phi((x - 1) / s) - m2 * Phi((x - 2) / s)


def hockey_stick_1d(P: dict[int, mpf], Q: dict[int, mpf], a: mpf, s: mpf) -> mpf:
    """H_a(P||Q) of two mixtures {shift: weight} whose ratio P/Q increases with x, by a numeric root."""

    def ratio(x: mpf) -> mpf:
        top = sum(wt * mpmath.exp((2 * m * x - m * m) / (2 * s * s)) for m, wt in P.items())
        return mpmath.log(top / sum(wt * mpmath.exp((2 * m * x - m * m) / (2 * s * s)) for m, wt in Q.items()))

    x = _root(ratio, mpmath.log(a), s)
    if x is None:  # the ratio stays on one side of a
        return max(sum(P.values()) - a * sum(Q.values()), mpf(0)) if ratio(mpf(0)) > mpmath.log(a) else mpf(0)
    return sum(wt * Phi((m - x) / s) for m, wt in P.items()) - a * sum(wt * Phi((m - x) / s) for m, wt in Q.items())


def _root(f: Any, target: mpf, s: mpf, rising: bool = True, hi: mpf | None = None) -> mpf | None:
    """Where the monotone `f` crosses `target` on (-inf, hi]; None if it does not within 1e4 s."""
    g = (lambda x: f(x) - target) if rising else (lambda x: target - f(x))
    top = mpf(10) ** 4 * s if hi is None else hi
    lo_x, hi_x = min(-s, top - s), top if hi is not None else s
    while g(lo_x) > 0:
        lo_x = top + 2 * (lo_x - top) if hi is not None else 2 * lo_x
        if lo_x < -(mpf(10) ** 4) * s:
            return None
    while g(hi_x) < 0:
        if hi is not None or hi_x > top:
            return None
        hi_x *= 2
    while hi_x - lo_x > mpf(10) ** -5 * min(s, s * s):  # bisection close to the root, then secant steps
        mid = (lo_x + hi_x) / 2
        lo_x, hi_x = (mid, hi_x) if g(mid) < 0 else (lo_x, mid)
    if hi_x - lo_x == 0 or g(hi_x) == g(lo_x):
        return lo_x
    x0, x1, g0, g1 = lo_x, hi_x, g(lo_x), g(hi_x)
    for _ in range(12):
        if g1 in (g0, 0):
            break
        x0, x1, g0 = x1, x1 - g1 * (x1 - x0) / (g1 - g0), g1
        g1 = g(x1)
    return x1


def poisson_profile(a: mpf, p: mpf, s: mpf, adjacency: str) -> mpf:
    """H_a of Poisson sampling without a cap."""
    if adjacency != "replace-one":
        return K(p, a - 1 + p, mpf(0), s) if a > 1 - p else 1 - a
    if a >= 1:
        return K(p, (1 - p) * (a - 1), a * p, s)
    return (1 - a) + a * K(p, (1 - p) * (1 / a - 1), p / a, s)


def capped_group(a: mpf, W: Weights, s: mpf, adjacency: str) -> mpf:
    """The refined profile of the group in which B-1 or more others were drawn (mass w + tau)."""
    p, w, tau, tq, c = W.p, W.w, W.tau, W.tq, W.c
    b = 1 / a
    if adjacency == "add-remove":
        if a <= 1 - p:
            return (w + tau) * (1 - a)
        if a < 1 - W.q:
            return K(c + tau * (1 - a) - tq, (a - 1 + p) * w, mpf(0), s)
        return K(c, (a - 1 + p) * w, (a - 1) * tau + tq, s)
    if adjacency == "zero-out":
        if a >= 1:
            return K(c, (a - 1 + p) * w + a * tq, (tau - tq) * (a - 1), s)
        return (w + tau) * (1 - a) + a * K(w * (1 - b * (1 - p)) + tq, (tau - tq) * (b - 1) + b * c, mpf(0), s)
    if a >= 1:
        return K(c, (1 - p) * w * (a - 1), (tau - tq) * (a - 1) + a * c, s)
    return (w + tau) * (1 - a) + a * K(c, (1 - p) * w * (b - 1), (tau - tq) * (b - 1) + b * c, s)


def note_overflow_group(a: mpf, q: mpf, s: mpf, adjacency: str) -> mpf:
    """The note's pair for r = 2."""
    if adjacency == "zero-out":  # three distinct shifts
        return hockey_stick_1d({0: 1 - q, 2: q}, {0: 1 - q, -1: q}, a, s)
    return poisson_profile(a, q, s / 2, adjacency)  # shift 2 at noise s is shift 1 at noise s/2


def _forward(a: mpf, *, n: int, p: float, B: int, s: mpf, overflow: str, adjacency: str, analysis: str) -> mpf:
    if analysis == "poisson":
        return poisson_profile(a, mpf(p), s, adjacency)
    W = weights(n, p, B)
    plain = lambda t: poisson_profile(t, W.p, s, adjacency)  # noqa: E731
    if overflow == "reject":
        if W.Z_n == 0:
            raise ValueError("policy reject accepts no batch")
        if adjacency != "add-remove":
            return (1 - W.b) * plain(a) + W.b * max(1 - a, mpf(0))
        return (1 - W.b_prime) * W.k * plain(a / W.k) + W.b_prime * max(W.k * (1 - W.p) - a, mpf(0))
    if analysis == "note":
        rest = W.tau * note_overflow_group(a, W.q, s, adjacency) if W.tau > 0 else 0
        return (1 - W.tau) * plain(a) + rest
    return (1 - W.tau - W.w) * plain(a) + capped_group(a, W, s, adjacency)


def profile(
    eps: Any, *, n: int, p: float, B: int, sigma: Any,
    overflow: str = "truncate", adjacency: str = "add-remove", analysis: str = "refined", direction: str = "forward",
) -> mpf:  # fmt: skip
    """One step's H_{e^eps}(P||Q), or H_{e^eps}(Q||P) for `direction="reverse"`; `eps` any real."""
    with mp.extradps(20):
        s, a = mpf(sigma), mpmath.exp(mpf(eps))
        rest = {"n": n, "p": p, "B": B, "s": s, "overflow": overflow, "adjacency": adjacency, "analysis": analysis}
        return _forward(a, **rest) if direction == "forward" else 1 - a + a * _forward(1 / a, **rest)


# --- 3. one step as an explicit loss law --------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """Mixtures {shift: weight} of N(shift, s^2), on outputs x < hi (None: all); log P/Q is decreasing in x."""

    P: dict[int, mpf]
    Q: dict[int, mpf]
    hi: mpf | None = None
    rising: bool = False  # log P/Q increases instead


@dataclass(frozen=True)
class Law:
    s: mpf
    pieces: tuple[Piece, ...]
    atoms: tuple[tuple[mpf, mpf], ...] = field(default=())  # (mass under P, mass under Q)

    def reversed(self) -> Law:
        return Law(
            self.s,
            tuple(Piece(t.Q, t.P, t.hi, not t.rising) for t in self.pieces),
            tuple((y, x) for x, y in self.atoms),
        )


def _piece(P: dict[int, Any], Q: dict[int, Any], scale: Any = 1, hi: mpf | None = None) -> Piece:
    drop = lambda d: {m: scale * wt for m, wt in d.items() if wt > 0}  # noqa: E731
    return Piece(drop(P), drop(Q), hi)


def _mass(mix: dict[int, mpf], hi: mpf | None, s: mpf) -> mpf:
    return sum((wt * (1 if hi is None else Phi((hi - m) / s)) for m, wt in mix.items()), mpf(0))


def _poisson_piece(p: mpf, adjacency: str, mass_p: mpf, mass_q: mpf) -> Piece:
    other = {0: mpf(1)} if adjacency != "replace-one" else {0: 1 - p, 1: p}
    return Piece(
        {m: mass_p * wt for m, wt in {0: 1 - p, -1: p}.items() if wt > 0},
        {m: mass_q * wt for m, wt in other.items() if wt > 0},
    )


def _capped_pieces(W: Weights, s: mpf, adjacency: str) -> tuple[list[Piece], list[tuple[mpf, mpf]]]:
    """Where the rows of `capped_group` are attained: the losses above the atom, the losses below, the atom."""
    p, w, tau, tq, c = W.p, W.w, W.tau, W.tq, W.c
    stay, swap = (1 - p) * w, tau - tq
    above_P = {0: c, 1: stay, 2: swap}
    if adjacency == "add-remove":
        # P = (1-q) Q where c N(0) = (p-q) w N(1)
        if (W.p - W.q) * w <= 0:
            return [_piece(above_P, {1: w, 2: tau})], []
        hi = mpf(1) / 2 + s**2 * mpmath.log(c / ((p - W.q) * w))
        high = _piece(above_P, {1: w, 2: tau}, hi=hi)
        low = Piece({0: stay, 1: swap + c}, {0: w, 1: tau}, 1 - hi, rising=True)
        low = Piece({m: v for m, v in low.P.items() if v > 0}, low.Q, low.hi, rising=True)
        share = Phi(hi / s) - Phi((hi - 2) / s)
        return [high, low], [(swap * share, tau * share)]
    if adjacency == "zero-out":
        hi = mpf(1) / 2  # P = Q where c N(0) = c N(1)
        high = _piece(above_P, {1: w + tq, 2: swap}, hi=hi)
        low = Piece(
            {m: v for m, v in {0: stay, 1: swap + c}.items() if v > 0},
            {m: v for m, v in {0: w + tq, 1: swap}.items() if v > 0},
            hi,
            rising=True,
        )
        share = 1 - Phi(-3 / (2 * s)) - Phi(-1 / (2 * s))
        return [high, low], [(swap * share, swap * share)]
    hi = mpf(1)  # P = Q where N(0) = N(2)
    high = _piece(above_P, {1: stay, 2: swap + c}, hi=hi)
    share = 1 - 2 * Phi(-1 / s)
    return [high, Piece(high.Q, high.P, hi, rising=True)], [(swap * share, swap * share)]


def law(
    *, n: int, p: float, B: int, sigma: Any,
    overflow: str = "truncate", adjacency: str = "add-remove", analysis: str = "refined", direction: str = "forward",
) -> Law:  # fmt: skip
    """The loss law with the profile of `profile`, same arguments."""
    with mp.extradps(20):
        s = mpf(sigma)
        one = mpf(1)
        if analysis == "poisson":
            pieces, atoms = [_poisson_piece(mpf(p), adjacency, one, one)], []
        else:
            W = weights(n, p, B)
            if overflow == "reject":
                if W.Z_n == 0:
                    raise ValueError("policy reject accepts no batch")
                if adjacency == "add-remove":
                    pieces = [_poisson_piece(W.p, adjacency, (1 - W.b_prime) * W.k, 1 - W.b_prime)]
                    atoms = [(W.b_prime * W.k * (1 - W.p), W.b_prime)]
                else:
                    pieces, atoms = [_poisson_piece(W.p, adjacency, 1 - W.b, 1 - W.b)], [(W.b, W.b)]
            elif analysis == "note":
                pieces, atoms = [_poisson_piece(W.p, adjacency, 1 - W.tau, 1 - W.tau)], []
                if W.tau > 0:
                    far = {"add-remove": 0, "zero-out": 1, "replace-one": 2}[adjacency]
                    other = {0: 1 - W.q, far: W.q} if far else {0: one}
                    pieces.append(_piece({0: 1 - W.q, -2: W.q}, other, W.tau))
            else:
                rest = 1 - W.tau - W.w
                pieces, atoms = [], []
                if rest > mpf(10) ** (-mp.dps + 5):
                    pieces = [_poisson_piece(W.p, adjacency, rest, rest)]
                if W.w + W.tau > 0:
                    more, atoms = _capped_pieces(W, s, adjacency)
                    pieces += more
        atoms = [(x, y) for x, y in atoms if x > 0 or y > 0]
        pieces = [t for t in pieces if sum(t.P.values()) + sum(t.Q.values()) > 0]
        found = Law(s, tuple(pieces), tuple(atoms))
        return found if direction == "forward" else found.reversed()


def _log_density(mix: dict[int, mpf], x: Any, s: mpf) -> Any:
    """log of the mixture over N(0, s^2); analytic continuation for complex x near the real line."""
    top = max(mpmath.re((2 * m * x - m * m) / (2 * s * s)) for m in mix)
    return top + mpmath.log(sum(wt * mpmath.exp((2 * m * x - m * m) / (2 * s * s) - top) for m, wt in mix.items()))


def law_profile(L: Law, eps: Any) -> mpf:
    """E_P[(1 - e^{eps - loss})_+] straight from the law; must equal `profile`."""
    with mp.extradps(20):
        eps, s = mpf(eps), L.s
        a = mpmath.exp(eps)
        total = sum((max(x - a * y, mpf(0)) for x, y in L.atoms), mpf(0))
        for t in L.pieces:

            def ratio(x, t=t):
                return _log_density(t.P, x, s) - _log_density(t.Q, x, s)

            x = _root(ratio, eps, s, rising=t.rising, hi=t.hi)
            all_P, all_Q = _mass(t.P, t.hi, s), _mass(t.Q, t.hi, s)
            if x is None:
                probe = t.hi if t.hi is not None else mpf(0)
                total += all_P - a * all_Q if ratio(probe - s / 1000) > eps else 0
            else:
                below = _mass(t.P, x, s), _mass(t.Q, x, s)
                total += (all_P - below[0]) - a * (all_Q - below[1]) if t.rising else below[0] - a * below[1]
        return total


# --- composition --------------------------------------------------------------------------------------------------


class Composed:
    """`steps` independent copies of a loss law: `delta(eps)` and `epsilon(delta)`.

    Outputs x are integrated along a line moved off the real axis towards growing Im(loss), where
    exp(z loss) falls instead of oscillating (all densities are analytic there, so nothing changes but the speed).
    `digits` is the aim for the relative error of delta; `fineness` > 1 refines every grid, `lean` scales the
    tilt: answers with other values of the two are independent checks.
    """

    def __init__(self, L: Law, steps: int, *, digits: int = 24, fineness: float = 1.0, lean: float = 1.0,
                 most: int = 30_000) -> None:  # fmt: skip
        self.L, self.steps, self.digits, self.fineness, self.lean = L, steps, digits, fineness, lean
        self.most = most
        self._cells = self._float_cells()
        self._table: dict[str, Any] | None = None
        self.frequencies = 0

    # -- float guidance: where to put the contour; no answer depends on it beyond the error checks --

    def _float_cells(self) -> tuple[np.ndarray, np.ndarray]:
        s = float(self.L.s)
        masses, losses = [], []
        t = np.linspace(-9.5, 9.5, 12001)
        for piece in self.L.pieces:
            x = s * np.sinh(t) if piece.hi is None else float(piece.hi) - s * np.exp(np.linspace(-12, 9.5, 6001))
            dx = np.abs(np.gradient(x))
            logs = [
                np.logaddexp.reduce([float(mpmath.log(v)) - (x - m) ** 2 / (2 * s * s) for m, v in mix.items()])
                for mix in (piece.P, piece.Q)
            ]
            masses.append(logs[0] + np.log(dx / (s * np.sqrt(2 * np.pi))))
            losses.append(logs[0] - logs[1])
        for x, y in self.L.atoms:
            if x > 0:
                masses.append(np.array([float(mpmath.log(x))]))
                losses.append(np.array([float(mpmath.log(x / y)) if y > 0 else 1e9]))
        mass, loss = np.concatenate(masses), np.concatenate(losses)
        keep = mass > -1e5
        return mass[keep], loss[keep]

    def _cgf(self, c: float) -> float:
        v = self._cells[0] + c * self._cells[1]
        top = v.max()
        return self.steps * (top + np.log(np.exp(v - top).sum()))

    def _saddle(self, eps: float) -> tuple[float, float]:
        """The tilt minimising log of the integrand, and the saddle-point estimate of log delta."""

        def f(t):
            return self._cgf(np.exp(t)) - np.exp(t) * eps - t - np.log1p(np.exp(t))

        grid = np.linspace(-7, 9, 65)
        best = grid[int(np.argmin([f(t) for t in grid]))]
        lo, hi = best - 0.25, best + 0.25
        for _ in range(40):
            m1, m2 = lo + 0.382 * (hi - lo), lo + 0.618 * (hi - lo)
            lo, hi = (lo, m2) if f(m1) < f(m2) else (m1, hi)
        t, d = (lo + hi) / 2, 1e-3
        c = np.exp(t)

        def curve_at(v):
            return self._cgf(v) - v * eps - np.log(v) - np.log1p(v)

        curve = max((curve_at(c * (1 + d)) - 2 * curve_at(c) + curve_at(c * (1 - d))) / (c * d) ** 2, 1e-300)
        return float(c), float(f(t) - 0.5 * np.log(2 * np.pi * curve))

    def _period(self, c: float, eps: float, log_delta: float) -> float:
        """A period whose aliases are below 10^-digits of delta: left by e^{-cP}, right by Chernoff."""
        goal = log_delta - (self.digits + 2) * np.log(10)
        P = max(-goal / c, 0.0)
        right = [(c * v, self._cgf(c * v)) for v in (1.02, 1.05, 1.1, 1.2, 1.4, 1.7, 2, 3, 5, 8, 20, 100)]
        while min(c * P + m - c2 * (eps + P) for c2, m in right) > goal:
            P *= 1.05
        return P

    # -- the quadrature of M, in multiple precision --

    def _nodes(self, c: mpf, boost: float = 1) -> tuple[list[Any], list[Any]]:
        """Complex masses m_i e^{c l_i} and losses l_i with M(c + iu) = sum m_i e^{c l_i} e^{i u l_i}, u >= 0."""
        s, cut = self.L.s, mpf(10) ** (-(self.digits + 22))
        fineness = self.fineness * boost
        masses: list[Any] = []
        losses: list[Any] = []
        norm = 1 / (s * mpmath.sqrt(2 * mp.pi))

        def put(piece: Piece, x: Any, weight: Any) -> mpf:
            log_p = _log_density(piece.P, x, s)
            loss = log_p - _log_density(piece.Q, x, s)
            mass = weight * norm * mpmath.exp(log_p - x * x / (2 * s * s) + c * loss)
            masses.append(mass)
            losses.append(loss)
            return abs(mass)

        def size_at(piece: Piece, x: mpf) -> mpf:
            return (1 + c) * _log_density(piece.P, x, s) - c * _log_density(piece.Q, x, s) - x * x / (2 * s * s)

        for piece in self.L.pieces:
            sign = 1 if piece.rising else -1
            if piece.hi is None or piece.hi > 2 + 18 * s:  # an end that far carries less than 1e-70
                y = min(mp.pi * s * s / 4 if max(map(abs, [*piece.P, *piece.Q])) > 1 else mp.pi * s * s / 2, 3 * s / 2)
                h = 2 * mp.pi * y / ((self.digits + 8) * mpmath.log(10)) / fineness
                best = mpf(0)
                for way in (1, -1):
                    j = 0 if way == 1 else 1
                    while True:
                        size = put(piece, way * j * h + sign * 1j * y, h)
                        best = max(best, size)
                        if j * h > 3 * s + 3 and size < cut * best:
                            break
                        j += 1
            else:
                y = min(mp.pi * s * s / 4, s)
                radii = [mpf(2) ** (v / mpf(4)) for v in range(-12, 60)]
                peak = max(radii, key=lambda r, piece=piece: size_at(piece, piece.hi - s * r))
                h = mpf("0.9") / (16 + self.digits) / fineness / max(1, peak / 4, piece.hi / (4 * s))
                best, j = mpf(0), 0
                t0 = -mpmath.log(mp.dps * mpmath.log(10))
                while True:
                    t = t0 + j * h
                    r = mpmath.exp(t - mpmath.exp(-t))
                    dr = r * (1 + mpmath.exp(-t))
                    bend = mpmath.exp(-r)
                    x = piece.hi - s * r + sign * 1j * y * (1 - bend)
                    size = put(piece, x, h * dr * (s - sign * 1j * y * bend))
                    best = max(best, size)
                    if r > 3 + 3 / s and size < cut * best:
                        break
                    j += 1
        for x, y in self.L.atoms:
            if x > 0 and y > 0:
                loss = mpmath.log(x / y)
                masses.append(mpc(x * mpmath.exp(c * loss)))
                losses.append(mpc(loss))
        return masses, losses

    def mgf(self, c: Any) -> mpf:
        """M(c) = E_P exp(c L) of one step for real c; M(0) = 1 and M(-1) = 1 check the law."""
        with mp.extradps(10):
            return mpmath.fsum(self._nodes(mpf(c))[0])

    def _build(self, eps: float, log_delta: float) -> dict[str, Any]:
        """M(c + i j w)^T / M(c)^T for j = 0, 1, ... until it no longer counts."""
        c_float = self._saddle(eps)[0] * self.lean
        P = self._period(c_float, eps, log_delta) * (1 + 0.13 * (self.fineness - 1))
        bits = 40 + int(3.33 * (self.digits + 22))
        with mp.extradps(10):
            c, w = mpf(c_float), 2 * mp.pi / mpf(P)
            for boost in (1, 1.5, 2.25, 3.4, 5):  # M(c) must be real, though its nodes are not: a check of the grid
                masses, losses = self._nodes(c, boost)
                M0 = mpmath.fsum(masses)
                if abs(M0.imag) < abs(M0) * mpf(10) ** (-self.digits - 3) / self.steps:
                    break
            else:
                raise ArithmeticError(f"quadrature of M failed: {M0}")
            M0 = M0.real
            unit = mpf(2) ** bits

            def fix(v):
                return (int(mpmath.nint(v.real * unit)), int(mpmath.nint(v.imag * unit)))

            def turn(v):
                return mpmath.exp(1j * w * v)

            ab = [fix(m / M0) for m in masses]
            A = np.array([v[0] for v in ab], dtype=object), np.array([v[1] for v in ab], dtype=object)
            block = 32
            rot = [fix(turn(v)) for v in losses]
            R = np.array([v[0] for v in rot], dtype=object), np.array([v[1] for v in rot], dtype=object)

            def mul(u, v):
                return ((u[0] * v[0] - u[1] * v[1]) >> bits, (u[0] * v[1] + u[1] * v[0]) >> bits)

            one = np.array([1 << bits] * len(losses), dtype=object), np.array([0] * len(losses), dtype=object)
            powers = [one]
            for _ in range(block):
                powers.append(mul(powers[-1], R))
            baby = np.array([v[0] for v in powers[:block]]).T, np.array([v[1] for v in powers[:block]]).T
            values: list[Any] = []
            floor = -(self.digits + 8) * np.log(10)
            quiet = 0
            while quiet < 3:
                re = A[0].dot(baby[0]) - A[1].dot(baby[1])
                im = A[0].dot(baby[1]) + A[1].dot(baby[0])
                biggest = -np.inf
                for u, v in zip(re, im, strict=True):
                    z = mpc(mpf(int(u)), mpf(int(v))) / unit**2
                    size = self.steps * float(mpmath.log(abs(z))) if z != 0 else -1e9
                    j = len(values)
                    size -= np.log1p((j * 2 * np.pi / P / c_float) ** 2)
                    biggest = max(biggest, size)
                    values.append(z**self.steps if size > floor - 20 else mpc(0))
                quiet = quiet + 1 if biggest < floor else 0
                A = mul(A, powers[block])
                if len(values) > self.most:
                    raise ArithmeticError("the transform decays too slowly; use few_steps")
            self.frequencies = len(values)
            return {"c": c, "w": w, "M0": M0, "values": values, "eps": eps}

    def _sum(self, table: dict[str, Any], eps: mpf) -> tuple[mpf, mpf]:
        """delta and its derivative in eps."""
        with mp.extradps(10):
            c, w = table["c"], table["w"]
            delta = slope = mpf(0)
            step = mpmath.exp(-1j * w * eps)
            turn = mpc(1)
            for j, v in enumerate(table["values"]):
                if v != 0:
                    z = mpc(c, j * w)
                    term = v * turn / (z * (z + 1)) * (mpf(1) / 2 if j == 0 else 1)
                    delta += term.real
                    slope -= (term * z).real
                turn *= step
            scale = w / mp.pi * mpmath.exp(self.steps * mpmath.log(table["M0"]) - c * eps)
            return delta * scale, slope * scale

    def delta(self, eps: Any) -> mpf:
        eps = mpf(eps)
        table = self._build(float(eps), self._saddle(float(eps))[1])
        return +self._sum(table, eps)[0]

    def epsilon(self, delta: Any) -> mpf:
        delta = mpf(delta)
        goal = float(mpmath.log(delta))
        lo, hi = 0.0, 1.0
        while self._saddle(hi)[1] > goal:
            lo, hi = hi, 2 * hi
        while lo == 0 and hi > 1e-12 and self._saddle(hi / 4)[1] < goal:
            hi /= 4
        for _ in range(25):
            mid = (lo + hi) / 2
            lo, hi = (mid, hi) if self._saddle(mid)[1] > goal else (lo, mid)
        start = (lo + hi) / 2
        for _ in range(3):
            table = self._build(start, goal)
            eps = mpf(start)
            for _ in range(60):
                value, slope = self._sum(table, eps)
                step = (mpmath.log(value) - mpmath.log(delta)) / (slope / value) if value > 0 else mpf(0.01) * eps
                eps -= step
                if abs(step) < abs(eps) * mpf(10) ** (-self.digits):
                    break
            if abs(eps - start) <= 0.05 * abs(eps):
                break
            start = float(eps)
        return eps


def total_variation_below(L: Law, steps: int, delta: float) -> bool:
    """Whether delta(0) <= delta is certain (by steps times one step's), so that epsilon is 0 or negative."""
    return steps * law_profile(L, 0) <= delta
