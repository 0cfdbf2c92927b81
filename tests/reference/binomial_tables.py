"""Write `tables/binomial.csv`: python binomial_tables.py. Nothing of filet is used, and no incomplete beta function.

Everything in a row follows from one ratio, Pr[X >= k] / Pr[X = k] for k above the mean of X ~ Bin(n, p), in 100-digit
arithmetic (differences may lose 30 of them; more digits where p is tiny). The ratio is a sum of products where 4,000 terms are enough, and there
every 20th is checked by quadrature. Elsewhere it is computed twice:
by quadrature of the incomplete beta integral (tanh-sinh), and by Euler's and Maclaurin's formula for the sum of the
probabilities, whose integrand consists of gamma functions. A row is refused unless the two agree to 45 digits.
No random state outside the seed below: the same table comes out every time, in about 6 minutes on one core.
"""

from __future__ import annotations

import csv
import math
import random
from pathlib import Path
from typing import Any

from mpmath import mp, mpf

DIGITS = 100
mp.dps = DIGITS
PATH = Path(__file__).parent / "tables" / "binomial.csv"
COLUMNS = ["log_pmf", "log_sf", "log_cdf", "hazard", "hazard_complement",
           "log_room", "log_w", "log_tau", "log_tq", "log_swap", "q", "rest_rate", "drop"]  # fmt: skip
HEADER = """\
# Binomial probabilities and the weights of capped batches, made by tests/reference/binomial_tables.py with 100-digit
# arithmetic; large tails were computed twice, by unrelated formulas. p is the double printed here; 24 digits are given.
# log_pmf, log_sf (at least cap), log_cdf (at most cap), hazard (exactly cap, given at most cap): of Bin(n, p).
# The others: of policy truncate with a batch of cap out of n, swap = tau - tq, rest_rate = 1 - q, drop = p - q.
# method: sum, or integral; deviations: (cap - n p) / sqrt(n p (1-p)).
"""
DEVIATIONS = (-40, -37.5, -30, -20, -12, -8, -6, -5, -4, -3, -2, -1.5, -1, -0.5, -0.1, 0,
              0.1, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 12, 20, 30, 37.5, 40)  # fmt: skip
REACH = 200  # exp(-200) of the first term is left out


def log_pmf(k: Any, n: int, p: Any) -> Any:
    log = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
    return log + (k * mp.log(p) if k else 0) + ((n - k) * mp.log1p(-p) if n != k else 0)


def terms_needed(k: int, n: int, odds: Any) -> float:
    fall = max(0.0, -float(mp.log(min(mpf(1), mpf(n - k) / (k + 1) * odds))))
    bend = 1.0 / (n - k + 1) + 1.0 / (k + 1)
    return 2.0 * REACH / (fall + math.sqrt(fall * fall + 2.0 * REACH * bend))


def by_sum(k: int, n: int, odds: Any) -> Any:
    total = term = mpf(1)
    j = k
    while j < n and term > mp.eps * total:
        term = term * (n - j) / (j + 1) * odds
        total += term
        j += 1
    return total


def by_integral(k: int, n: int, odds: Any) -> Any:
    """k times the integral of (1-s)^(k-1) (1 + s odds)^(n-k), as far as it matters."""

    def log_density(s: Any) -> Any:
        return (k - 1) * mp.log1p(-s) + (n - k) * mp.log1p(s * odds)

    high = mpf(1)
    low = high / 2
    while low > 0 and log_density(low) < -REACH - 30:
        high, low = low, low / 2
    points = [high * x for x in (0, 0.125, 0.25, 0.5, 1)]
    return k * mp.quad(lambda s: mp.exp(log_density(s)), points)


def by_euler_maclaurin(k: int, n: int, odds: Any) -> Any:
    """The sum over j >= k of exp(g(j)), g(j) = log Pr[X = j] - log Pr[X = k]: integral, half a term, derivatives."""
    log_odds = mp.log(odds)
    at_k = mp.loggamma(k + 1) + mp.loggamma(n - k + 1)

    def log_ratio(x: Any) -> Any:
        return at_k - mp.loggamma(x + 1) - mp.loggamma(n - x + 1) + (x - k) * log_odds

    width = mpf(n - k)
    while log_ratio(k + width / 2) < -REACH - 30:
        width /= 2
    points = [k + width * x for x in (0, 0.125, 0.25, 0.5, 1)]
    total = mp.quad(lambda x: mp.exp(log_ratio(x)), points) + mpf(1) / 2
    order = 26
    log_series = [mpf(0)] + [
        (-mp.psi(m - 1, mpf(k + 1)) + (-1) ** (m - 1) * mp.psi(m - 1, mpf(n - k + 1)) + (log_odds if m == 1 else 0))
        / mp.factorial(m)
        for m in range(1, order)
    ]
    series = [mpf(1)]  # of exp(g): m e_m = sum of i g_i e_{m-i}
    for m in range(1, order):
        series.append(sum(i * log_series[i] * series[m - i] for i in range(1, m + 1)) / m)
    for m in range(1, order // 2):
        total -= mp.bernoulli(2 * m) * series[2 * m - 1] / (2 * m)
    return total


def tail_ratio(k: int, n: int, p: Any, q: Any, check: bool) -> tuple[Any, str]:
    """Pr[X >= k] / Pr[X = k] for k not below the mean."""
    if k == n:
        return mpf(1), "sum"
    odds = p / q
    if terms_needed(k, n, odds) <= 4000:
        value, method, other = by_sum(k, n, odds), "sum", by_integral(k, n, odds) if check else None
    else:
        value, method, other = by_integral(k, n, odds), "integral", by_euler_maclaurin(k, n, odds)
    if other is not None:
        assert abs(value / other - 1) < mpf(10) ** -45, (k, n, p, mp.nstr(value / other - 1, 5))
    return value, method


def ends(n: int, p: Any, q: Any, cap: int) -> dict[str, Any]:
    """cap = 0 or cap >= n, where the binomials have closed forms and there are no weights."""
    if cap == 0:
        log = n * mp.log1p(-p)
        return {"log_pmf": log, "log_sf": mpf(0), "log_cdf": log, "hazard": mpf(1), "hazard_complement": mpf(0)}
    log = n * mp.log(p)
    return {"log_pmf": log, "log_sf": log, "log_cdf": mpf(0), "hazard": p**n, "hazard_complement": -mp.expm1(log)}


def values(n: int, p: float, cap: int, check: bool) -> tuple[dict[str, Any], str]:
    """Of one row: all from w, from Pr[N = cap] and from one tail of the N ~ Bin(n-1, p) others."""
    if p < 1e-20 and mp.dps == DIGITS:  # differences lose digits in proportion
        with mp.workdps(DIGITS - int(2 * math.log10(p))):
            return values(n, p, cap, False)
    hit, miss = mpf(p), 1 - mpf(p)
    if cap in (0, n):
        return ends(n, hit, miss, cap), "sum"
    others = n - 1
    w, at = mp.exp(log_pmf(cap - 1, others, hit)), mp.exp(log_pmf(cap, others, hit))
    above = cap > n * hit
    if above:
        ratio, method = tail_ratio(cap, others, hit, miss, check)
        tau = at * ratio
        up_to = 1 - tau  # at most cap - 1 others
        log_tau, log_sf, log_cdf = mp.log(tau), mp.log(tau + hit * w), mp.log1p(-(tau - miss * at))
        log_room = mp.log1p(-(tau + w)) if cap > 1 else mp.ninf
    else:
        ratio, method = tail_ratio(n - cap, others, miss, hit, check)
        up_to = w * ratio
        tau = 1 - up_to
        log_tau, log_sf, log_cdf = mp.log1p(-up_to), mp.log1p(-(up_to - hit * w)), mp.log(up_to + miss * at)
        log_room = mp.log(up_to - w) if cap > 1 else mp.ninf
    cdf = up_to + miss * at
    tq = mpf(cap) / n * (tau - miss * at)  # (cap / n) Pr[Bin(n, p) >= cap + 1]
    return {
        "log_pmf": log_pmf(cap, n, hit), "log_sf": log_sf, "log_cdf": log_cdf,
        "hazard": (hit * w + miss * at) / cdf, "hazard_complement": (up_to - hit * w) / cdf,
        "log_room": log_room, "log_w": mp.log(w), "log_tau": log_tau, "log_tq": mp.log(tq), "log_swap": mp.log(tau - tq),
        "q": tq / tau, "rest_rate": 1 - tq / tau, "drop": hit - tq / tau,
    }, method  # fmt: skip


def rate(draw: random.Random) -> float:
    """p and 1 - p log-uniform from 1e-15, some uniform, a few tiny."""
    kind = draw.random()
    if kind < 0.4:
        return 10.0 ** draw.uniform(-15, -0.3)
    if kind < 0.8:
        return 1.0 - 10.0 ** draw.uniform(-15, -0.3)
    return draw.random() if kind < 0.95 else 10.0 ** draw.uniform(-300, -15)


def near(n: int, p: float, deviations: float) -> int:
    return min(max(0, round(n * p + deviations * math.sqrt(n * p * (1.0 - p)))), n)


def points() -> list[tuple[int, float, int]]:
    draw = random.Random(20_250_815)
    chosen = [(58142183557163, 0.9999998881569551, 58142177061868)]
    fixed = [(60_000, 256 / 60_000), (50_000, 4096 / 50_000), (45_000_000, 65_536 / 45_000_000), (10**15, 0.5), (10**15, 1e-8),
             (10**12, 0.9), (9 * 10**14, 0.5), (10**15, 1e-15), (10**15, 1.0 - 1e-15), (10**9, 1e-3), (10**6, 1 - 1e-3)]  # fmt: skip
    chosen += [(n, p, near(n, p, z)) for n, p in fixed for z in DEVIATIONS]
    chosen += [
        (n, p, cap)
        for n in (1, 2, 3, 5, 12)
        for p in (1e-300, 1e-15, 0.1, 0.5, 0.8, 1.0 - 2.0**-50)
        for cap in range(n + 1)
    ]
    for _ in range(1200):
        n, p = int(10.0 ** draw.uniform(0, 15)), rate(draw)
        chosen.append((n, p, near(n, p, draw.uniform(-40, 40) if draw.random() < 0.6 else draw.gauss(0, 3))))
    for _ in range(300):  # far beyond: every cap from 1 to n - 1
        n, p = int(10.0 ** draw.uniform(1, 15)), rate(draw)
        cap = min(max(1, int(n ** draw.random())), n - 1)
        chosen.append((n, p, draw.choice((cap, n - cap))))
    for _ in range(300):  # the largest spreads
        n, p = int(10.0 ** draw.uniform(12, 15)), draw.random() ** draw.choice((1, 4))
        chosen.append((n, p, near(n, p, draw.uniform(-40, 40) if draw.random() < 0.5 else draw.gauss(0, 2))))
    return [point for point in dict.fromkeys(chosen) if 0.0 < point[1] < 1.0]


def main() -> None:
    rows = []
    for i, (n, p, cap) in enumerate(points()):
        found, method = values(n, p, cap, i % 20 == 0)
        deviations = (cap - n * mpf(p)) / mp.sqrt(n * mpf(p) * (1 - mpf(p)))
        row = {"n": n, "p": repr(p), "cap": cap, "deviations": mp.nstr(deviations, 4), "method": method}
        rows.append(row | {name: mp.nstr(found[name], 24) if name in found else "" for name in COLUMNS})
    with PATH.open("w", newline="") as out:
        out.write(HEADER)
        table = csv.DictWriter(out, ["n", "p", "cap", "deviations", "method", *COLUMNS], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main()
