"""Binomial probabilities in log space, to about 12 significant digits in every tail.

Ordinary use underflows ordinary floats: with n=60000, p=0.004 and B=30000 the tail is below 1e-10000.
So everything here returns logarithms; `-inf` means an impossible event.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.special import betainc, betaincc

# Stirling's correction log(n!) - log(sqrt(2 pi n) (n/e)^n) at 0 (by convention) to 15, computed with 30-digit arithmetic.
_STIRLING_TABLE = (
    0.0,
    0.081061466795327258,
    0.041340695955409294,
    0.027677925684998339,
    0.020790672103765093,
    0.016644691189821192,
    0.013876128823070748,
    0.01189670994589177,
    0.010411265261972096,
    0.0092554621827127329,
    0.0083305634333628713,
    0.0075736754879518408,
    0.0069428401072095299,
    0.0064089941880042071,
    0.0059513701127588477,
    0.0055547335519628014,
)


def _stirling_error(n: int) -> float:
    if n < len(_STIRLING_TABLE):
        return _STIRLING_TABLE[n]
    m = 1.0 / (float(n) * float(n))
    return (1 / 12 - m * (1 / 360 - m * (1 / 1260 - m * (1 / 1680 - m * (1 / 1188 - m * 691 / 360360))))) / n


def _excess(k: int, n: int, p: float, q: float) -> float:
    """k - n p with one rounding; the smaller of p and q = 1 - p is the exact one."""
    if p <= q:
        return float(k - n * Fraction(p))
    return float(n * Fraction(q) - (n - k))


def _deviance(x: float, mean: float, gap: float) -> float:
    """x log(x / mean) + mean - x with gap = x - mean, without cancellation near x = mean."""
    if abs(gap) < 0.1 * (x + mean):
        v = gap / (x + mean)
        total = gap * v
        term = 2.0 * x * v
        for j in range(1, 1000):
            term *= v * v
            new = total + term / (2 * j + 1)
            if new == total:
                return total
            total = new
    return x * math.log(x / mean) - gap


def log_pmf(k: int, n: int, p: float, q: float | None = None) -> float:
    """log Pr[Bin(n, p) = k], by Loader's saddle-point form. `q = 1 - p` may be given exactly.

    >>> round(math.exp(log_pmf(2, 4, 0.5)), 12)
    0.375
    """
    q = 1.0 - p if q is None else q
    if k < 0 or k > n:
        return -math.inf
    if p == 0.0 or q == 0.0:
        return 0.0 if k == (0 if p == 0.0 else n) else -math.inf
    if k == 0:
        return n * _log_complement(p, q)
    if k == n:
        return n * _log_complement(q, p)
    core = _stirling_error(n) - _stirling_error(k) - _stirling_error(n - k)
    gap = _excess(k, n, p, q)
    core -= _deviance(k, n * p, gap) + _deviance(n - k, n * q, -gap)
    return core - 0.5 * (math.log(2 * math.pi) + math.log(k) + math.log((n - k) / n))


def log_pmf_ratio(k: int, reference: int, n: int, p: float) -> float:
    """log(Pr[Bin = k] / Pr[Bin = reference]) for k <= reference, accurate also where both are far below 1e-300."""
    if reference - k > 1_000_000:
        return log_pmf(k, n, p) - log_pmf(reference, n, p)
    j = np.arange(k, reference, dtype=np.float64)
    return float(np.sum(np.log((j + 1.0) / (n - j)))) + (reference - k) * (_log_complement(p, 1.0 - p) - math.log(p))


def _log_complement(p: float, q: float) -> float:
    """log(1 - p), from whichever of p and q = 1 - p is exact."""
    return math.log1p(-p) if p < 0.5 else math.log(q)


def _continued_fraction(k: int, n: int, p: float, q: float) -> float | None:
    """Pr[Bin >= k] / Pr[Bin = k] for k above the mean, by the incomplete beta's continued fraction (Lentz)."""
    a, b = float(k), float(n - k + 1)
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * p / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 3000):
        for odd in (False, True):
            if odd:
                step = -(a + m) * (a + b + m) * p / ((a + 2 * m) * (a + 2 * m + 1))
            else:
                step = m * (b - m) * p / ((a + 2 * m - 1) * (a + 2 * m))
            d = 1.0 + step * d
            c = 1.0 + step / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            change = d * c
            value *= change
        if abs(change - 1.0) < 1e-15:
            return value * q
    return None


def _tail_sum(k: int, n: int, p: float, q: float) -> float:
    """Pr[Bin >= k] / Pr[Bin = k] for k not far below the mean, term by term: exact where beta routines lose digits."""
    j = np.arange(min(n - k, 60 + int(20.0 * math.sqrt(n * p * q))), dtype=np.float64)
    return 1.0 + float(np.cumprod((n - k - j) / (k + 1.0 + j) * (p / q)).sum())


def log_sf(k: int, n: int, p: float, q: float | None = None) -> float:
    """log Pr[Bin(n, p) >= k] (note: at least k).

    >>> round(math.exp(log_sf(3, 4, 0.5)), 12)
    0.3125
    """
    q = 1.0 - p if q is None else q
    if k <= 0:
        return 0.0
    if k > n:
        return -math.inf
    if p == 0.0 or q == 0.0:
        return 0.0 if q == 0.0 else -math.inf
    if k == n:
        return log_pmf(n, n, p, q)
    above_mean, spread = _excess(k, n, p, q), math.sqrt(n * p * q)
    if spread < 2000.0 and above_mean > -2.0 * spread:
        return log_pmf(k, n, p, q) + math.log(_tail_sum(k, n, p, q))
    if above_mean > 2.0 * spread:
        ratio = _continued_fraction(k, n, p, q)
        if ratio is not None:
            return log_pmf(k, n, p, q) + math.log(ratio)
    if above_mean < -2.0 * spread:
        return _log1mexp(log_sf(n - k + 1, n, q, p))
    if q < p:  # q is the exact one of the two
        return math.log(float(betaincc(float(n - k + 1), float(k), q)))
    return math.log(float(betainc(float(k), float(n - k + 1), p)))


def log_cdf(k: int, n: int, p: float) -> float:
    """log Pr[Bin(n, p) <= k]."""
    return log_sf(n - k, n, 1.0 - p, p)


def hazard(k: int, n: int, p: float) -> tuple[float, float]:
    """Pr[Bin(n, p) = k | Bin(n, p) <= k] and its complement, both without cancellation.

    This ratio stays accurate where both probabilities are far below 1e-300.

    >>> hazard(1, 2, 0.5)
    (0.666..., 0.333...)
    """
    q = 1.0 - p
    if k >= n:
        at, below = math.exp(log_pmf(n, n, p, q)), -math.expm1(log_pmf(n, n, p, q))
        return (at, below) if k == n else (0.0, 1.0)
    if k == 0:
        return 1.0, 0.0
    # Pr[<= k-1] / Pr[= k] = (Pr[<= k-1] / Pr[= k-1]) * (Pr[= k-1] / Pr[= k])
    odds = _cdf_over_pmf(k - 1, n, p, q) * (k / (n - k + 1)) * (q / p)
    if math.isinf(odds):
        return math.exp(log_pmf(k, n, p, q) - log_cdf(k, n, p)), 1.0
    return 1.0 / (1.0 + odds), odds / (1.0 + odds)


def _cdf_over_pmf(k: int, n: int, p: float, q: float) -> float:
    if k == 0:
        return 1.0
    spread = math.sqrt(n * p * q)
    if spread < 2000.0 and _excess(k, n, p, q) < 2.0 * spread:
        return _tail_sum(n - k, n, q, p)
    if _excess(k, n, p, q) < -2.0 * spread:
        ratio = _continued_fraction(n - k, n, q, p)
        if ratio is not None:
            return ratio
    gap = log_sf(n - k, n, q, p) - log_pmf(k, n, p, q)
    return math.exp(gap) if gap < 700 else math.inf


def _log1mexp(x: float) -> float:
    """log(1 - e^x) for x <= 0."""
    if x == 0.0:
        return -math.inf
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))
