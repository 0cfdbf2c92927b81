"""One-step profiles at the extremes, from the tables of the theory page alone: python extremes.py [FILE].

Written apart from `exact.py`, in a form that loses no digits: both directions are integrals of one positive (or one
negative) Gaussian part against the rest, every tail is an upper tail, and 90-digit arithmetic leaves at least 40 digits
of a delta of 1e-280 (checked at every kernel; more digits where that fails). Binomial tails come from `binomial_tables`.
Nothing of filet is used. `rows(count)` draws parameters log-uniformly from n to 1e15, p from 1e-15, 1-p from 1e-12, caps
within 40 deviations and far ones, noise from 1e-5 to 1e6; the script writes one
scheme in six to `tables/extremes_profiles.csv`, or everything to FILE; about four minutes.
"""

from __future__ import annotations

import csv
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mpmath import mp, mpf

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.reference import binomial_tables

PATH = Path(__file__).parent / "tables" / "extremes_profiles.csv"
HEADER = """\
# One-step profiles at the extremes, made by tests/reference/extremes.py with 90-digit arithmetic or more. forward: H_{exp(epsilon)}(P||Q),
# P with the example; reverse: H_{exp(epsilon)}(Q||P). p, sigma and epsilon are the doubles printed here; an empty field repeats the one above.
"""
FIELDS = ["n", "p", "cap", "policy", "analysis", "adjacency", "sigma", "epsilon", "forward", "reverse"]
ADJACENCIES = ("add-remove", "zero-out", "replace-one")
POLICIES = (
    ("truncate", "refined"),
    ("truncate", "refined"),
    ("truncate", "note"),
    ("reject", "refined"),
    ("none", "refined"),
)
DIGITS = 90
ROWS = 13_000
SPARE = 40  # digits that every kernel must keep
Weights = dict[str, Any]


# --- binomial weights ---------------------------------------------------------------------------------------------


def _tail_ratio(k: int, n: int, p: Any, q: Any, check: bool) -> Any:
    """Pr[X >= k] / Pr[X = k] above the mean, computed twice if asked."""
    if check:
        return binomial_tables.tail_ratio(k, n, p, q, True)[0]
    if k == n:
        return mpf(1)
    if binomial_tables.terms_needed(k, n, p / q) <= 4000:
        return binomial_tables.by_sum(k, n, p / q)
    return binomial_tables.by_integral(k, n, p / q)


@lru_cache(maxsize=64)
def weights(n: int, p: float, cap: int, check: bool = False) -> Weights:
    """The numbers of section 1 and of policy reject (b, b', k), at 100 digits; 1 <= cap < n."""
    with mp.workdps(100):
        hit, miss, others = mpf(p), 1 - mpf(p), n - 1
        w, at = mpf(0), mpf(0)  # cap - 1 others, cap others
        if p == 1.0:
            up_to, tau, room = mpf(0), mpf(1), mpf(0)
        else:
            w = mp.exp(binomial_tables.log_pmf(cap - 1, others, hit))
            at = mp.exp(binomial_tables.log_pmf(cap, others, hit))
            if cap > n * hit:
                tau = at * _tail_ratio(cap, others, hit, miss, check)
                up_to = 1 - tau
                room = up_to - w if cap > 1 else mpf(0)
            else:
                ratio = _tail_ratio(n - cap, others, miss, hit, check)
                up_to = w * ratio
                tau, room = 1 - up_to, w * (ratio - 1) if cap > 1 else mpf(0)
        tq = mpf(cap) / n * (tau - miss * at)
        found = {
            "p": hit,
            "w": w,
            "tau": tau,
            "tq": tq,
            "c": hit * w + tq,
            "q": tq / tau if tau else hit,
            "room": room,
            "swap": tau - tq,
        }
        if p < 1.0:
            small, large = up_to + miss * at, up_to + at  # Z_n and Z_{n-1}
            found |= {"b": miss * at / small, "b'": at / large, "k": large / small}
        return found


# --- kernels ------------------------------------------------------------------------------------------------------


class LostDigitsError(ArithmeticError):
    """More digits are needed."""


def _tail(x: Any) -> Any:
    """Pr[N(0, 1) > x]."""
    return mp.erfc(x / mp.sqrt(2)) / 2


def _kept(value: Any, size: Any) -> Any:
    if value < size * mpf(10) ** (SPARE - mp.dps):
        raise LostDigitsError
    return value


def _meeting(c: Any, parts: list[tuple[Any, int]], s: Any) -> Any:
    """x with c N(0) = sum m N(d) in density: Newton's method from the right, on a convex and increasing function."""
    goal, square = mp.log(c), s * s
    logs = [(mp.log(m) - mpf(d * d) / (2 * square), d) for m, d in parts]
    u = min((goal - log) / d for log, d in logs)
    if len(logs) == 1:
        return u * square
    for _ in range(200):
        top = max(log + d * u for log, d in logs)
        terms = [(mp.exp(log + d * u - top), d) for log, d in logs]
        total = mp.fsum(v for v, _ in terms)
        step = (top + mp.log(total) - goal) * total / mp.fsum(v * d for v, d in terms)
        u -= step
        if abs(step) < mpf(10) ** (-mp.dps + 8) * (1 + abs(u)):
            return u * square
    raise LostDigitsError


def one_positive(c: Any, parts: list[tuple[Any, int]], s: Any) -> Any:
    """Integral of [c N(0) - sum m N(d)]_+, distances d > 0."""
    parts = [(m, d) for m, d in parts if m > 0]
    if c <= 0 or not parts:
        return max(c, mpf(0))
    x = _meeting(c, parts, s)
    first = c * _tail(-x / s)
    return _kept(first - mp.fsum(m * _tail((d - x) / s) for m, d in parts), first)


def one_negative(c: Any, parts: list[tuple[Any, int]], s: Any) -> Any:
    """Integral of [sum m N(d) - c N(0)]_+."""
    parts = [(m, d) for m, d in parts if m > 0]
    if c <= 0 or not parts:
        return mp.fsum(m for m, _ in parts)
    x = _meeting(c, parts, s)
    first = mp.fsum(m * _tail((x - d) / s) for m, d in parts)
    return _kept(first - c * _tail(x / s), first)


# --- sections 2, 4 and 5, for a = 1 + gain >= 1 ---------------------------------------------------------------------


def poisson(gain: Any, p: Any, s: Any, adjacency: str, forward: bool) -> Any:
    """Poisson sampling at rate p."""
    if adjacency == "replace-one":
        return one_positive(p, [((1 - p) * gain, 1), ((1 + gain) * p, 2)], s)
    if forward:
        return one_positive(p, [(gain + p, 1)], s)
    return one_positive(p - gain * (1 - p), [((1 + gain) * p, 1)], s)


def capped(gain: Any, v: Weights, s: Any, adjacency: str, forward: bool) -> Any:
    """Section 4's group of cap - 1 or more others."""
    a, p, w, tau, tq, c, swap = 1 + gain, v["p"], v["w"], v["tau"], v["tq"], v["c"], v["swap"]
    if adjacency == "replace-one":
        return one_positive(c, [((1 - p) * w * gain, 1), (swap * gain + a * c, 2)], s)
    if adjacency == "zero-out":
        if forward:
            return one_positive(c, [((gain + p) * w + a * tq, 1), (swap * gain, 2)], s)
        return one_positive(w * (p - gain * (1 - p)) + tq, [(swap * gain + a * c, 1)], s)
    if forward:
        return one_positive(c, [((gain + p) * w, 1), (gain * tau + tq, 2)], s)
    stays, moves = w * (p - gain * (1 - p)), tq - gain * swap  # of Q - a P at Y and at Y + v
    if moves >= 0:  # x_1 = -v
        return one_negative(a * c, [(stays, 1), (moves, 2)], s)
    return one_positive(stays, [(gain * tau + a * p * w, 1)], s)  # x_1 = v


def note(gain: Any, v: Weights, s: Any, adjacency: str, forward: bool) -> Any:
    """Section 2's label r = 2, given that label."""
    if adjacency != "zero-out":
        return poisson(gain, v["q"], s / 2, adjacency, forward)
    rest, hit = gain * v["swap"] / v["tau"], (1 + gain) * v["q"]
    return one_positive(v["q"], [(rest, 2 if forward else 1), (hit, 3)], s)


def _profile(gain: Any, v: Weights, s: Any, kind: tuple[str, str, str], forward: bool) -> Any:
    policy, analysis, adjacency = kind
    p = v["p"]
    if policy == "none":
        return poisson(gain, p, s, adjacency, forward)
    if policy == "reject" and adjacency != "add-remove":
        return (1 - v["b"]) * poisson(gain, p, s, adjacency, forward)
    if policy == "reject":
        a, k, b = 1 + gain, v["k"], v["b'"]
        if forward:
            return (1 - b) * one_positive(k * p, [(a - k * (1 - p), 1)], s)
        left = 1 - a * k * (1 - p)
        return (1 - b) * one_positive(left, [(a * k * p, 1)], s) + b * max(left, mpf(0))
    if analysis == "note":
        rest = v["tau"] * note(gain, v, s, adjacency, forward) if v["tau"] else mpf(0)
        return (v["room"] + v["w"]) * poisson(gain, p, s, adjacency, forward) + rest
    return v["room"] * poisson(gain, p, s, adjacency, forward) + capped(gain, v, s, adjacency, forward)


def profile(
    epsilon: Any, v: Weights, sigma: Any, kind: tuple[str, str, str], forward: bool, digits: int = DIGITS
) -> Any:
    """H_{e^epsilon}(P||Q), or of (Q||P), epsilon >= 0, of a step with the given weights; kind: policy, analysis, adjacency."""
    for more in range(5):
        with mp.workdps(digits * 2**more):
            try:
                return +_profile(mp.expm1(mpf(epsilon)), v, mpf(sigma), kind, forward)
            except LostDigitsError:
                continue
    raise LostDigitsError(f"epsilon {epsilon}, sigma {sigma}, {kind}, {forward}")


# --- parameters ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Parameters of one step."""

    n: int
    p: float
    cap: int
    policy: str
    analysis: str
    adjacency: str
    sigma: float

    @property
    def kind(self) -> tuple[str, str, str]:
        return self.policy, self.analysis, self.adjacency

    def weights(self, check: bool = False) -> Weights:
        return {"p": mpf(self.p)} if self.policy == "none" else weights(self.n, self.p, self.cap, check)

    def delta(self, epsilon: Any, forward: bool, digits: int = DIGITS) -> Any:
        return profile(epsilon, self.weights(), self.sigma, self.kind, forward, digits)


def draw_scheme(draw: random.Random) -> tuple[int, float, int]:
    """n to 1e15, p and 1-p log-uniform, a cap within 40 deviations of the mean, mostly near, or far from it."""
    n = int(10.0 ** draw.uniform(0.4, 15))
    p = 10.0 ** draw.uniform(-15, -0.3) if draw.random() < 0.6 else 1.0 - 10.0 ** draw.uniform(-12, -0.3)
    if draw.random() < 0.02:
        p = 1.0
    kind = draw.random()
    spread = math.sqrt(n * p * (1.0 - p)) + 0.5
    if kind < 0.8:
        cap = round(n * p + spread * (draw.gauss(0, 3) if kind < 0.5 else draw.uniform(-40, 40)))
    else:
        cap = int(n ** draw.random())
        cap = cap if draw.random() < 0.7 else n - cap
    return n, p, min(max(cap, 1), n - 1)


def draw_step(draw: random.Random, scheme: tuple[int, float, int]) -> Step:
    policy, analysis = draw.choice([v for v in POLICIES if v[0] != "reject" or scheme[1] < 1.0])
    sigma = 10.0 ** (draw.uniform(-5, 6) if draw.random() < 0.5 else draw.gauss(0, 0.7))
    return Step(*scheme, policy, analysis, draw.choice(ADJACENCIES), sigma)


def _log10(step: Step, epsilon: float) -> float:
    """log10 of the larger direction's delta, about."""
    ways = (True,) if step.adjacency == "replace-one" else (True, False)
    value = max(step.delta(epsilon, forward, 50) for forward in ways)
    return float(mp.log10(value)) if value > 0 else -math.inf


def _reach(step: Step, goal: float, low: float, high: float) -> float:
    """log10 of an epsilon where delta is about 10^goal."""
    for _ in range(60):
        middle = 0.5 * (low + high)
        seen = _log10(step, 10.0**middle)
        if abs(seen - goal) < 0.03 * abs(goal) + 0.1 or high - low < 1e-13:
            return middle
        low, high = (middle, high) if seen > goal else (low, middle)
    return 0.5 * (low + high)


def ladder(step: Step, draw: random.Random, count: int) -> list[float]:
    """Epsilons whose deltas are spread over all sizes from 0.1, or the largest there is, to 1e-280."""
    largest = _log10(step, 0.0)
    if largest < -275.0:
        return [0.0]
    low = _reach(step, -1.0, -25.0, 13.0) if largest > -1.0 else _reach(step, 1.02 * largest - 0.5, -40.0, 13.0)
    high = _reach(step, -280.0, low, 13.0)
    ends = 10.0**low, 10.0**high
    chosen = [0.0] if draw.random() < 0.2 else []
    for _ in range(count - len(chosen)):
        u = draw.random()
        chosen.append(
            ends[0] + (ends[1] - ends[0]) * math.sqrt(u) if draw.random() < 0.7 else 10.0 ** (low + (high - low) * u)
        )
    return sorted(chosen)


def rows(count: int, seed: int = 20_260_101) -> Iterator[dict[str, Any]]:
    """Rows of FIELDS with both directions (two values a row), as many as asked for; every tenth scheme is computed twice."""
    draw, made, number = random.Random(seed), 0, 0
    while made < count:
        scheme = draw_scheme(draw)
        number += 1
        for _ in range(4):
            step = draw_step(draw, scheme)
            if step.policy != "none":
                step.weights(number % 10 == 0)
            for epsilon in ladder(step, draw, 6):
                value = step.delta(epsilon, True)
                other = value if step.adjacency == "replace-one" else step.delta(epsilon, False)
                yield vars(step) | {"epsilon": epsilon, "forward": value, "reverse": other, "scheme": number}
                made += 1


def write(count: int, path: Path = PATH, every: int = 6) -> None:
    """Write one scheme in `every`; fields that repeat the row above are left empty."""
    with path.open("w", newline="") as out:
        out.write(HEADER)
        table = csv.DictWriter(out, FIELDS, lineterminator="\n", extrasaction="ignore")
        table.writeheader()
        above: dict[str, str] = {}
        for row in rows(count):
            if row["scheme"] % every == 0:
                shown = {k: mp.nstr(v, 22) if isinstance(v, mp.mpf) else str(v) for k, v in row.items()}
                table.writerow({k: "" if above.get(k) == shown[k] else shown[k] for k in FIELDS})
                above = shown


if __name__ == "__main__":
    everything = len(sys.argv) > 1
    write(ROWS, Path(sys.argv[1]) if everything else PATH, 1 if everything else 6)
