"""Binomial probabilities in log space, with small relative errors in both tails, and the weights of a capped batch.

Ordinary use underflows ordinary floats: with n=60000, p=0.004 and B=30000 the tail is below 1e-10000. So probabilities
are returned as logarithms; `-inf` means an impossible event. No special function of SciPy is used, so that the digits
do not depend on its version. How the digits are kept, for X ~ Bin(n, p) and k at or above the mean n p (a lower tail is
the upper tail of n - X):

- p is a fraction of integers, and so are 1 - p and k - n p: every difference below is rounded once.
- Pr[X = k] has Loader's saddle-point form, whose terms have one sign each.
- R = Pr[X >= k] / Pr[X = k] is a short sum of products of ratios or, where that would take more than 700 terms,

      R = k * integral over s in (0, 1) of f(s),      f(s) = (1 - s)^(k-1) (1 + s p/(1-p))^(n-k),
      log f(s) = -a s + (k-1) l(-s) + (n-k) l(s p/(1-p)),   a = (k - n p - (1-p)) / (1-p),   l(x) = log(1+x) - x <= 0,

  (the incomplete beta integral with t = p (1 - s)) by Gauss's rule with 40 nodes. log f is concave and nothing cancels.
- The other side of the mean is one minus this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ._rounding import BINOMIAL_ERROR, BINOMIAL_SLOPE

_Array = NDArray[np.float64]

_MOST_TERMS = 700
_NEGLIGIBLE = 42.0  # terms below exp(-42) = 6e-19 of the first are left out

# Stirling's correction log(n!) - log(sqrt(2 pi n) (n/e)^n) at 0 (by convention) to 15, computed with 30-digit arithmetic.
STIRLING_TABLE = (
    0.0, 0.081061466795327258, 0.041340695955409294, 0.027677925684998339, 0.020790672103765093, 0.016644691189821192,
    0.013876128823070748, 0.01189670994589177, 0.010411265261972096, 0.0092554621827127329, 0.0083305634333628713,
    0.0075736754879518408, 0.0069428401072095299, 0.0064089941880042071, 0.0059513701127588477, 0.0055547335519628014,
)  # fmt: skip


@dataclass(frozen=True)
class Rate:
    """A probability hit / whole with its exact complement; `p` and `q` are the two, each rounded once."""

    hit: int
    whole: int
    p: float
    q: float

    @classmethod
    def of(cls, p: float) -> Rate:
        hit, whole = float(p).as_integer_ratio()
        return cls(hit, whole, float(p), (whole - hit) / whole)

    def flipped(self) -> Rate:
        return Rate(self.whole - self.hit, self.whole, self.q, self.p)

    def excess(self, k: int, n: int) -> float:
        """k - n p, rounded once."""
        return (k * self.whole - n * self.hit) / self.whole

    def above_mean(self, k: int, n: int) -> bool:
        return k * self.whole > n * self.hit

    def log_complement(self) -> float:
        """log(1 - p); the smaller of p and q is an exact float."""
        return math.log1p(-self.p) if self.p < 0.5 else math.log(self.q)


def relative_error(log_value: float) -> float:
    """Bound on the error of a returned logarithm, so on the relative error of its exponential: 1e-13 + 3e-15 |log_value|.

    It holds for `log_pmf`, `log_sf` and `log_cdf`; with the logarithm of the result for both members of `hazard`; and
    with `|value| + 2 |k - reference| |t|` for `_binomial_ranges.log_pmf_ratio` (see there).

    Counting roundings gives at most 4e-14 + 1.3e-15 |log_value|: ten for a deviance, which is at most |log_value|; two
    of 22 for the square root, since k (n-k) / n < 2^62; five a term in `_tail_sum`, whose mean index is below 45; six of
    E[-log f] <= 1 in `_tail_integral` (f is log-concave), where Gauss's rule and what is cut off add 1e-17. Measured on
    2,272 rows of 100-digit references (tests/reference/binomial_tables.py; n to 10^15, p from 1e-300, 1 - p from 1e-15,
    every cap, 40 deviations and far beyond) and 3,019 more: at most 5e-15 for |log_value| < 10, and 7.7e-16 |log_value|
    elsewhere. Impossible events are exact.

    >>> relative_error(-100.0)
    4e-13
    """
    return 0.0 if math.isinf(log_value) else BINOMIAL_ERROR + BINOMIAL_SLOPE * abs(log_value)


def stirling_error(n: int) -> float:
    if n < len(STIRLING_TABLE):
        return STIRLING_TABLE[n]
    m = 1.0 / (float(n) * float(n))
    return (1 / 12 - m * (1 / 360 - m * (1 / 1260 - m * (1 / 1680 - m * (1 / 1188 - m * 691 / 360360))))) / n


def deviance(x: float, mean: float, gap: float) -> float:
    """x log(x / mean) + mean - x with gap = x - mean, without cancellation near x = mean."""
    if abs(gap) >= 0.5 * (x + mean):
        return x * (math.log(x) - math.log(mean)) - gap if mean < 1e-280 else x * math.log(x / mean) - gap
    v = gap / (x + mean)
    total, term, square = gap * v, 2.0 * x * v, v * v
    for j in range(3, 200, 2):
        term *= square
        new = total + term / j
        if new == total:
            break
        total = new
    return total


def log_pmf_at(k: int, n: int, rate: Rate) -> float:
    if k < 0 or k > n:
        return -math.inf
    if rate.p == 0.0 or rate.q == 0.0:
        return 0.0 if k == (0 if rate.p == 0.0 else n) else -math.inf
    if k == 0:
        return n * rate.log_complement()
    if k == n:
        return n * rate.flipped().log_complement()
    gap = rate.excess(k, n)
    core = stirling_error(n) - stirling_error(k) - stirling_error(n - k)
    core -= deviance(k, n * rate.hit / rate.whole, gap)
    core -= deviance(n - k, n * (rate.whole - rate.hit) / rate.whole, -gap)
    return core - 0.5 * math.log(2 * math.pi * k * ((n - k) / n))


def log_pmf(k: int, n: int, p: float) -> float:
    """log Pr[Bin(n, p) = k], by Loader's saddle-point form; error: `relative_error(value)`.

    >>> round(math.exp(log_pmf(2, 4, 0.5)), 12)
    0.375
    """
    return log_pmf_at(k, n, Rate.of(p))


# Gauss's rule with 40 nodes on (0, 1): the left half, computed with 40-digit arithmetic (NumPy's weights err by 7e-13).
_LEFT_NODES = (
    0.000881145144720399825, 0.00463688065027149677, 0.0113700250081128687, 0.0210415903931041721, 0.0335935958606617333,
    0.0489505965155628516, 0.0670202483938702481, 0.0876938845833441684, 0.110847174286740306, 0.136340872405036448,
    0.164021657692910226, 0.193723055166009881, 0.225266437452435899, 0.258462099156910644, 0.293110397814197499,
    0.329002954587120763, 0.365923907496373159, 0.40365120964931445, 0.441957964662372396, 0.480613791246974589,
)  # fmt: skip
_LEFT_WEIGHTS = (
    0.00226063854926659563, 0.00524914226557640681, 0.00821052919095394436, 0.0111229245970834786, 0.0139685034900117005,
    0.0167300976412739237, 0.0193910839872360088, 0.021935454092836636, 0.024347903817536116, 0.0266139234919684122,
    0.0287198845496957757, 0.0306531212464644696, 0.032402006728300519, 0.0339560229076169519, 0.0353058236956433898,
    0.0364432911979020295, 0.0373615845289841321, 0.0380551809503131212, 0.0385199090821239828, 0.0387529739892124056,
)  # fmt: skip
_NODES = np.array([*_LEFT_NODES, *(1.0 - node for node in reversed(_LEFT_NODES))])
_WEIGHTS = np.array([*_LEFT_WEIGHTS, *reversed(_LEFT_WEIGHTS)])


def _log1p_minus(x: _Array) -> _Array:
    """log(1 + x) - x for |x| < 1/4, from log(1 + x) = 2 artanh(r)."""
    r = x / (2.0 + x)
    y = r * r
    series = np.full_like(y, 1.0 / 21.0)
    for odd in range(19, 1, -2):
        series = series * y + 1.0 / odd
    return np.asarray(r * (2.0 * series * y - x))


def _tail(k: int, n: int, rate: Rate) -> tuple[float, float]:
    """For k from the mean to n, k >= 1: Pr[X > k] / Pr[X = k], and the mean of s under the density f of the module's text."""
    if k == n:
        return 0.0, 1.0 / (n + 1)
    fall = -math.log(min(1.0, max(1e-300, (n - k) / (k + 1) * (rate.p / rate.q))))
    bend = 1.0 / (n - k + 1) + 1.0 / (k + 1)
    terms = 60 + 2.6 * _NEGLIGIBLE / (fall + math.sqrt(fall * fall + 2.0 * _NEGLIGIBLE * bend))
    if terms > _MOST_TERMS:
        return _tail_integral(k, n, rate)
    return _tail_sum(k, n, rate, min(n - k, int(terms)))


def _tail_sum(k: int, n: int, rate: Rate, terms: int) -> tuple[float, float]:
    j = np.arange(terms, dtype=np.float64)
    above, below = (n - k) - j, (k + 1) + j
    with np.errstate(under="ignore"):
        products = np.cumprod((above * rate.p) / (below * rate.q))
        ratio = float(products.sum())
        lift = 1.0 / (k + 1) + float((products * (j + 2.0) / (below + 1.0)).sum())
    return ratio, lift / (1.0 + ratio)


def _tail_integral(k: int, n: int, rate: Rate) -> tuple[float, float]:
    """The ratio by Gauss's rule, for more than 700 terms: then k and n - k are above 2,800, and s and s p/(1-p) stay below 0.19."""
    other = rate.whole - rate.hit
    slope = (k * rate.whole - n * rate.hit - other) / other
    odds = rate.p / rate.q
    bend = 0.85 * ((k - 1) + (n - k) * odds * odds)  # l(x) <= -0.85 x^2 / 2 for x < 0.19
    reach = 2.0 * _NEGLIGIBLE / (slope + math.sqrt(slope * slope + 2.0 * _NEGLIGIBLE * bend))
    s = reach * _NODES
    density = _WEIGHTS * np.exp((n - k) * _log1p_minus(odds * s) + (k - 1) * _log1p_minus(-s) - slope * s)
    total = float(density.sum())
    return k * reach * total - 1.0, float((density * s).sum()) / total


def log_sf_at(k: int, n: int, rate: Rate) -> float:
    if k <= 0:
        return 0.0
    if k > n:
        return -math.inf
    if rate.p == 0.0 or rate.q == 0.0:
        return 0.0 if rate.q == 0.0 else -math.inf
    if rate.above_mean(k, n):
        return log_pmf_at(k, n, rate) + math.log1p(_tail(k, n, rate)[0])
    return math.log1p(-math.exp(log_sf_at(n - k + 1, n, rate.flipped())))  # at most 1/2 is taken off


def log_sf(k: int, n: int, p: float) -> float:
    """log Pr[Bin(n, p) >= k] (note: at least k); error: `relative_error(value)`.

    >>> round(math.exp(log_sf(3, 4, 0.5)), 12)
    0.3125
    """
    return log_sf_at(k, n, Rate.of(p))


def log_cdf(k: int, n: int, p: float) -> float:
    """log Pr[Bin(n, p) <= k]; error: `relative_error(value)`.

    >>> round(math.exp(log_cdf(1, 4, 0.5)), 12)
    0.3125
    """
    return log_sf_at(n - k, n, Rate.of(p).flipped())


def hazard(k: int, n: int, p: float) -> tuple[float, float]:
    """Pr[Bin(n, p) = k | Bin(n, p) <= k] and its complement, both without cancellation; error: `relative_error(log(value))`.

    This ratio stays accurate where both probabilities are far below 1e-300.

    >>> hazard(1, 2, 0.5)
    (0.666..., 0.333...)
    """
    rate = Rate.of(p)
    if k > n or k == 0:
        return (0.0, 1.0) if k > n else (1.0, 0.0)
    log_at = log_pmf_at(k, n, rate)
    if k == n or rate.hit in (0, rate.whole):
        return math.exp(log_at), -math.expm1(log_at)
    if rate.above_mean(k, n):
        at, ratio = math.exp(log_at), _tail(k, n, rate)[0]
        up_to = 1.0 - at * ratio
        return at / up_to, (1.0 - at * (1.0 + ratio)) / up_to
    ratio = _tail(n - k, n, rate.flipped())[0]
    return 1.0 / (1.0 + ratio), ratio / (1.0 + ratio)


@dataclass(frozen=True)
class CapWeights:
    """Chances of how n - 1 others fill a batch of B, for policy truncate; the names follow the theory page.

    With N ~ Bin(n-1, p) others drawn: room = Pr[N <= B-2], w = Pr[N = B-1], tau = Pr[N >= B], together 1 to rounding;
    q is the chance that x_1 is kept and drawn given N >= B, tq = tau q, c = p w + tq. Differences, without cancellation:
    swap = tau - tq, stay = (1-p) w, rest_rate = 1 - q, drop = p - q.

    `error` bounds the relative error of each of these; a value below 1e-300 may also be off by 1e-322 (so it may have
    become 0, which `log_room`, `log_w` and `log_tau` show). The logarithms are off by at most `error` plus
    `relative_error` of themselves.
    """

    room: float
    w: float
    tau: float
    tq: float
    c: float
    q: float
    swap: float
    stay: float
    rest_rate: float
    drop: float
    log_room: float
    log_w: float
    log_tau: float
    error: float


@lru_cache(maxsize=1024)  # a law and what it lends ask for the same, and so do all noises of one scheme
def cap_weights(n: int, p: float, cap: int) -> CapWeights:
    """The weights of a batch of at most `cap` out of n, 1 <= cap < n, with their error.

    All come from w and one ratio of a tail to its first term, by identities whose terms are positive:
    c = (B/n) F and swap = (1 - B/n) F with F = tau + p w = Pr[Bin(n, p) >= B]; 1 - q = (1 - B/n) (1 + p w / tau);
    q = (B/n) (1 - (1-p) Pr[N = B] / tau); p - q = p - B/n + (1 - B/n) p w / tau where B <= n p. Elsewhere
    q = E[T | T <= p] for T of law Beta(B, n-B), so p - q = p E[s] under the density f of the module's text.

    >>> v = cap_weights(3, 0.5, 2)
    >>> v.room, v.w, v.tau, v.q, v.swap
    (0.25, 0.5, 0.25, 0.333..., 0.1666...)
    """
    rate = Rate.of(p)
    if rate.hit in (0, rate.whole):
        return _certain(n, rate, cap)
    log_w = log_pmf_at(cap - 1, n - 1, rate)
    w = math.exp(log_w)
    share, others = cap / n, (n - cap) / n
    if rate.above_mean(cap, n):
        ratio, lift = _tail(cap, n - 1, rate)
        lead = (n - cap) / cap * (1.0 + ratio)  # tau / w, but for p / (1-p), which may be tiny
        log_tau = log_w + math.log(lead) + (math.log(rate.p) - rate.log_complement())
        tau = math.exp(log_tau) if w < 1e-290 else w * (lead * rate.p / rate.q)
        w = w if cap > 1 else 1.0 - tau
        room = 1.0 - w - tau if cap > 1 else 0.0
        log_room = math.log1p(-(w + tau)) if cap > 1 else -math.inf
        q = share * ((ratio + rate.p) / (1.0 + ratio))
        rest_rate, drop = others + share * rate.q / (1.0 + ratio), rate.p * lift
    else:
        ratio, _ = _tail(n - cap, n - 1, rate.flipped())
        log_room = log_w + (math.log(ratio) if ratio > 0.0 else -math.inf)
        room = math.exp(log_room) if w < 1e-290 else w * ratio
        tau = 1.0 - w - room
        log_tau = math.log1p(-(w + room))
        hits = others * rate.p * w / tau
        q = share - hits
        rest_rate = others * (1.0 + rate.p * w / tau)
        drop = -rate.excess(cap, n) / n + hits
    full = tau + rate.p * w
    return CapWeights(
        room, w, tau, tau * q, share * full, q, others * full, rate.q * w, rest_rate, drop, log_room, log_w, log_tau,
        BINOMIAL_ERROR + relative_error(min(-log_w, 750.0)),
    )  # fmt: skip


def _certain(n: int, rate: Rate, cap: int) -> CapWeights:
    """The weights for p = 0 and p = 1."""
    share, others, never = cap / n, (n - cap) / n, -math.inf
    error = relative_error(0.0)
    if rate.hit:
        return CapWeights(0.0, 0.0, 1.0, share, share, share, others, 0.0, others, others, never, never, 0.0, error)
    w = 1.0 if cap == 1 else 0.0
    logs = (never, 0.0) if cap == 1 else (0.0, never)
    return CapWeights(1.0 - w, w, 0.0, 0.0, 0.0, 0.0, 0.0, w, 1.0, 0.0, *logs, never, error)
