"""Binomial tails and cap weights: every row of a 100-digit table is within the stated error, and exact small cases."""

from __future__ import annotations

import csv
import functools
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest

from filet._binomial import CapWeights, cap_weights, hazard, log_cdf, log_pmf, log_sf, relative_error
from filet._binomial_ranges import log_pmf_ratio

mp = mpmath.mp.clone()
mp.dps = 60
TABLE = Path(__file__).parent / "reference" / "tables" / "binomial.csv"
SAFETY = 4  # the stated error is at least this many times the largest that the table shows
ABSOLUTE = 1e-322  # below the smallest normal float


@functools.cache
def rows() -> list[dict[str, str]]:
    with TABLE.open() as lines:
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))


@functools.cache
def capped_rows() -> list[tuple[dict[str, str], CapWeights]]:
    return [(row, cap_weights(int(row["n"]), float(row["p"]), int(row["cap"]))) for row in rows() if row["q"]]


def share_of_log_bound(found: float, text: str) -> float:
    """Error of a logarithm over its stated bound."""
    exact = mp.mpf(text)
    if mp.isinf(exact):
        return 0.0 if found == float(exact) else math.inf
    return float(abs(exact - mp.mpf(found)) / relative_error(found))


def share_of_bound(found: float, exact: mpmath.mpf, error: float) -> float:
    """Relative error of a value over its stated bound, but for what underflow takes."""
    if exact == 0:
        return 0.0 if found == 0.0 else math.inf
    return float(max(0, abs(exact - mp.mpf(found)) - ABSOLUTE) / (exact * mp.mpf(error)))


def test_the_table_covers_the_extremes() -> None:
    size = [int(row["n"]) for row in rows()]
    deviations = [float(row["deviations"]) for row in rows()]
    assert len(rows()) >= 1500
    assert (min(size), max(size)) == (1, 10**15)
    assert min(float(row["p"]) for row in rows()) < 1e-290
    assert min(1.0 - float(row["p"]) for row in rows()) < 2e-15
    assert sum(-45 < z < -5 for z in deviations) > 200
    assert sum(5 < z < 45 for z in deviations) > 200
    assert sum(row["method"] == "integral" for row in rows()) > 500


@pytest.mark.parametrize(("name", "function"), [("log_pmf", log_pmf), ("log_sf", log_sf), ("log_cdf", log_cdf)])
def test_logarithms_keep_the_stated_error_in_every_row(name: str, function: object) -> None:
    assert callable(function)
    worst = max(
        share_of_log_bound(function(int(row["cap"]), int(row["n"]), float(row["p"])), row[name]) for row in rows()
    )
    assert worst <= 1 / SAFETY


def test_both_members_of_the_hazard_keep_the_stated_error_in_every_row() -> None:
    worst = 0.0
    for row in rows():
        pair = hazard(int(row["cap"]), int(row["n"]), float(row["p"]))
        for found, name in zip(pair, ("hazard", "hazard_complement"), strict=True):
            exact = mp.mpf(row[name])
            error = relative_error(float(mp.log(exact))) if exact else 1.0
            worst = max(worst, share_of_bound(found, exact, error))
    assert worst <= 1 / SAFETY


@pytest.mark.parametrize("name", ["room", "w", "tau", "tq", "swap"])
def test_weights_keep_the_stated_error_in_every_row(name: str) -> None:
    worst = max(
        share_of_bound(getattr(v, name), mp.exp(mp.mpf(row[f"log_{name}"])), v.error) for row, v in capped_rows()
    )
    assert worst <= 1 / SAFETY


@pytest.mark.parametrize("name", ["q", "rest_rate", "drop"])
def test_rates_keep_the_stated_error_in_every_row(name: str) -> None:
    worst = max(share_of_bound(getattr(v, name), mp.mpf(row[name]), v.error) for row, v in capped_rows())
    assert worst <= 1 / SAFETY


def test_sums_of_weights_keep_the_stated_error_in_every_row() -> None:
    worst = 0.0
    for row, v in capped_rows():
        p, w, tq = mp.mpf(float(row["p"])), mp.exp(mp.mpf(row["log_w"])), mp.exp(mp.mpf(row["log_tq"]))
        worst = max(worst, share_of_bound(v.c, p * w + tq, v.error), share_of_bound(v.stay, (1 - p) * w, v.error))
    assert worst <= 1 / SAFETY


@pytest.mark.parametrize("name", ["log_room", "log_w", "log_tau"])
def test_logarithms_of_weights_keep_the_stated_error_in_every_row(name: str) -> None:
    for row, v in capped_rows():
        found, exact = getattr(v, name), mp.mpf(row[name])
        if mp.isinf(exact):
            assert found == -math.inf
        else:
            assert SAFETY * abs(exact - mp.mpf(found)) <= v.error + relative_error(found)


def test_weights_add_up_to_one_and_are_in_range() -> None:
    for row, v in capped_rows():
        assert abs(v.room + v.w + v.tau - 1.0) <= 4e-16
        values = (v.room, v.w, v.tau, v.tq, v.c, v.q, v.swap, v.stay, v.rest_rate, v.drop)
        assert all(0.0 <= value <= 1.0 for value in values), row
        assert v.log_w > -math.inf
        assert v.log_tau > -math.inf


def test_a_rate_next_to_one_and_trillions_of_examples() -> None:
    v = cap_weights(58142183557163, 0.9999998881569551, 58142177061868)
    expected = {
        "room": 0.99837435276820478,
        "w": 2.0587740346039712e-6,
        "tau": 0.0016235884577606177,
        "tq": 0.0016235882761530879,
        "swap": 1.8160752983359336e-10,
        "q": 0.99999988814435766,
        "rest_rate": 1.1185564233690162e-07,
        "drop": 1.2597400402294405e-11,
    }  # the table's row
    for name, value in expected.items():
        assert getattr(v, name) == pytest.approx(value, rel=v.error), name
    assert v.error < 1e-12


def exact_law(n: int, p: float) -> list[Fraction]:
    hit = Fraction(p)
    return [math.comb(n, k) * hit**k * (1 - hit) ** (n - k) for k in range(n + 1)]


@pytest.mark.parametrize("p", [0.3, 0.5, 2.0**-40, 1.0 - 2.0**-40, 0.9, 1 / 7])
@pytest.mark.parametrize("n", [2, 3, 4, 9, 40])
def test_weights_equal_exact_fractions(n: int, p: float) -> None:
    law, hit = exact_law(n - 1, p), Fraction(p)
    for cap in range(1, n):
        v = cap_weights(n, p, cap)
        w, tau = law[cap - 1], sum(law[cap:])
        tq = sum(hit * law[s] * Fraction(cap, s + 1) for s in range(cap, n))
        expected = (
            sum(law[: cap - 1]),
            w,
            tau,
            tq,
            hit * w + tq,
            tq / tau,
            tau - tq,
            (1 - hit) * w,
            1 - tq / tau,
            hit - tq / tau,
        )
        found = (v.room, v.w, v.tau, v.tq, v.c, v.q, v.swap, v.stay, v.rest_rate, v.drop)
        for a, b in zip(found, expected, strict=True):
            assert abs(Fraction(a) - b) <= Fraction(v.error) * b + Fraction(ABSOLUTE)


def test_certain_and_impossible_draws() -> None:
    v = cap_weights(10, 1.0, 4)
    assert (v.room, v.w, v.tau, v.tq, v.q, v.swap, v.rest_rate, v.drop) == (0.0, 0.0, 1.0, 0.4, 0.4, 0.6, 0.6, 0.6)
    assert (v.log_w, v.log_tau) == (-math.inf, 0.0)
    v = cap_weights(10, 0.0, 4)
    assert (v.room, v.w, v.tau, v.q, v.log_tau) == (1.0, 0.0, 0.0, 0.0, -math.inf)
    assert cap_weights(10, 0.0, 1).w == 1.0


def test_an_underflow_shows_in_the_logarithm() -> None:
    v = cap_weights(60_000, 0.004, 30_000)
    assert (v.w, v.tau, v.swap) == (0.0, 0.0, 0.0)
    assert v.log_tau < v.log_w < -20_000
    assert 0.0 < v.q < 0.004
    assert v.drop == pytest.approx(0.004 - v.q, rel=1e-12)


@pytest.mark.parametrize("p", [5e-324, 1e-310, 1e-300, 2.0**-53, 1.0 - 2.0**-53])
@pytest.mark.parametrize("n", [2, 1000, 10**15, 2**63 - 1])
def test_the_smallest_and_largest_rates_give_finite_answers(n: int, p: float) -> None:
    for cap in {1, n // 2, n - 1}:
        v = cap_weights(n, p, cap)
        assert -math.inf < v.log_tau <= 0.0
        assert v.q + v.drop == pytest.approx(p, rel=v.error, abs=ABSOLUTE)
        assert v.q + v.rest_rate == pytest.approx(1.0, abs=2e-16)
        assert -math.inf < log_sf(cap, n, p) <= 0.0
        assert -math.inf < log_cdf(cap, n, p) <= 0.0
        assert sum(hazard(cap, n, p)) == pytest.approx(1.0, abs=1e-15)
        assert math.isfinite(log_pmf_ratio(1, cap, n, p))


def test_cdf_and_survival_add_up_to_one() -> None:
    for n, p in [(5, 0.3), (10**6, 1e-3), (10**12, 0.3), (10**12, 0.9), (10**15, 1e-8), (2**62, 1e-6), (2**62, 0.7)]:
        for z in (-3.0, 0.0, 3.0):
            k = min(max(1, int(n * p + z * math.sqrt(n * p * (1 - p)))), n)
            assert math.exp(log_sf(k, n, p)) + math.exp(log_cdf(k - 1, n, p)) == pytest.approx(1.0, abs=2e-15)
            step = math.exp(log_cdf(k, n, p)) - math.exp(log_cdf(k - 1, n, p))
            assert step == pytest.approx(math.exp(log_pmf(k, n, p)), abs=4e-15)


def test_impossible_and_certain_events() -> None:
    assert log_sf(0, 5, 0.5) == 0.0
    assert log_sf(6, 5, 0.5) == -math.inf
    assert log_sf(5, 5, 1.0) == 0.0
    assert log_cdf(4, 5, 1.0) == -math.inf
    assert log_cdf(5, 5, 0.5) == 0.0
    assert log_cdf(0, 0, 0.5) == 0.0
    assert log_pmf(6, 5, 0.5) == -math.inf
    assert (log_pmf(0, 5, 0.0), log_pmf(1, 5, 0.0), log_sf(1, 5, 0.0)) == (0.0, -math.inf, -math.inf)
    assert hazard(7, 4, 0.5) == (0.0, 1.0)
    assert hazard(3, 5, 0.0) == (0.0, 1.0)


def test_hazard_is_a_ratio_that_survives_underflow() -> None:
    at, below = hazard(1000, 10**12, 0.5)  # both probabilities are below 1e-10^11
    odds = term = mp.mpf(1)
    for j in range(1000, 990, -1):
        term = term * j / (10**12 - j + 1)
        odds += term
    assert below == pytest.approx(float((odds - 1) / odds), rel=relative_error(math.log(below)))
    assert at == pytest.approx(float(1 / odds), rel=1e-15)


RATIOS = [(4094, 4096, 10**12, 0.5), (300, 350, 60_000, 256 / 60_000), (10**14, 10**14 + 10**9, 10**15, 0.1),
          (499_999_000_000_000, 500_000_001_000_000, 10**15, 0.5), (5, 10**6, 10**15, 1e-300), (0, 7, 9, 0.3), (7, 9, 9, 0.3)]  # fmt: skip


@pytest.mark.parametrize(("k", "reference", "n", "p"), RATIOS)
def test_pmf_ratio_survives_underflow(k: int, reference: int, n: int, p: float) -> None:
    def log_weight(j: int) -> mpmath.mpf:
        hit = mp.mpf(p)
        return j * mp.log(hit) + (n - j) * mp.log1p(-hit) - mp.loggamma(j + 1) - mp.loggamma(n - j + 1)

    exact = log_weight(k) - log_weight(reference)
    found = log_pmf_ratio(k, reference, n, p)
    tilt = math.log(reference / (n - reference)) - math.log(p) + math.log1p(-p) if reference < n else n
    assert abs(exact - mp.mpf(found)) <= relative_error(abs(found) + 2 * (reference - k) * abs(tilt)) / SAFETY
    assert log_pmf_ratio(reference, k, n, p) == pytest.approx(-found, rel=1e-12, abs=1e-13)


def test_the_digits_do_not_depend_on_scipy() -> None:
    code = "import sys, filet._binomial_ranges; print([name for name in sys.modules if name.startswith('scipy')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
