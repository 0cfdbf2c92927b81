"""The law of batch sizes, against exact probabilities. Keys are fixed, so every test is deterministic."""

import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.sampling.laws import Listed, assert_law

from filet.sampling.size_law import SizeLaw, _certain_words, _geometric, _integer_weights, size_law
from filet.scheme import CappedPoisson

LAWS = [
    (5, 0.3, 2),
    (100, 0.5, 49),
    (1000, 0.1, 100),
    (1000, 0.1, 250),
    (1000, 0.99, 1000),
    (60_000, 256 / 60_000, 300),
    (60_000, 0.004, 30_000),
    (10**6, 1e-9, 10),
    (10**6, 0.5, 100),  # reject: accepts with chance below 1e-300000
    (10**12, 4096e-12, 4096),
    (10**12, 0.5, 4096),
    (2**63 - 1, 1e-16, 900),
    (7, 1 - 1e-9, 6),
]


@pytest.fixture(autouse=True)
def _fresh_tables():
    """A table that another test has made would hide a change of how it is made."""
    size_law.cache_clear()


def exact_size_chances(n, p, cap, overflow):
    """Chances of sizes around the mode from 40-digit arithmetic; beyond 25 sd they are below 1e-100."""
    with mpmath.workdps(40):
        odds = mpmath.mpf(p) / (1 - mpmath.mpf(p))
        reach = math.ceil(100 + 25 * math.sqrt(n * p * (1 - p)))
        centre = min(int(n * p), cap if overflow == "reject" else n)
        low, high = max(0, centre - reach), min(n, centre + reach, cap if overflow == "reject" else n)
        weights = {centre: mpmath.mpf(1)}
        for k in range(centre, low, -1):
            weights[k - 1] = weights[k] * k / (n - k + 1) / odds
        for k in range(centre, high):
            weights[k + 1] = weights[k] * (n - k) / (k + 1) * odds
        total = mpmath.fsum(weights.values())
        law = {k: weight / total for k, weight in weights.items() if k < cap}
        law[min(n, cap)] = law.get(min(n, cap), 0) + mpmath.fsum(w for k, w in weights.items() if k >= cap) / total
        return law


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize(("n", "p", "cap"), LAWS)
def test_size_table_holds_the_exact_chances(n, p, cap, overflow):
    """Relative error at most 1e-12, or one unit of 2**-64 per size."""
    scheme = CappedPoisson(n, p, cap, overflow)
    law = size_law(scheme)
    edges = [0, *law.thresholds.tolist(), 2**64]
    assert edges == sorted(edges)
    top = law.first + len(edges) - 2
    assert top <= min(n, cap)
    if overflow == "truncate" and n * p > 1e6:  # the cap is 10**6 standard deviations below the mean
        assert (law.first, top) == (cap, cap)
        return
    exact = exact_size_chances(n, p, cap, overflow)
    for size in exact.keys() | set(range(law.first, top + 1)):
        inside = law.first <= size <= top
        units = edges[size - law.first + 1] - edges[size - law.first] if inside else 0
        chance = exact[size] * 2**64
        assert abs(units - chance) <= 1e-12 * chance + 1.0, (size, units, chance)


def test_size_table_agrees_with_rational_arithmetic():
    n, p, cap = 40, Fraction(0.3), 15
    pmf = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    for overflow, law in [
        ("truncate", [*pmf[:cap], sum(pmf[cap:])]),
        ("reject", [chance / sum(pmf[: cap + 1]) for chance in pmf[: cap + 1]]),
    ]:
        table = size_law(CappedPoisson(n, 0.3, cap, overflow))
        edges = [0, *table.thresholds.tolist(), 2**64]
        for size, chance in enumerate(law):
            assert abs(edges[size + 1] - edges[size] - chance * 2**64) <= 1e-13 * chance * 2**64 + 1


def test_size_table_of_a_huge_data_set_stays_small():
    for overflow in ["truncate", "reject"]:
        assert size_law(CappedPoisson(10**12, 0.5, 4096, overflow)).thresholds.size <= 4096
        assert size_law(CappedPoisson(2**62, 0.5, 2**30, overflow)).thresholds.size <= 2**30 // 8


@pytest.mark.parametrize(("overflow", "mean"), [("truncate", 255.98154), ("reject", 255.9)])
def test_mean_size_at_a_large_data_set_is_the_expected_batch_size(overflow, mean):
    scheme = CappedPoisson(60_000, 256 / 60_000, 300, overflow)
    sizes = np.array([batch.size for batch in scheme.sampler(key=21).batches(4000)])
    law = {size: math.exp(scheme.log_batch_size_probability(size)) for size in range(301)}
    assert_law(Counter(sizes.tolist()), law)
    assert scheme.expected_batch_size == pytest.approx(mean, abs=0.1)
    error = math.sqrt(sum(chance * (size - scheme.expected_batch_size) ** 2 for size, chance in law.items()) / 4000)
    assert abs(sizes.mean() - scheme.expected_batch_size) < 3.9 * error  # p-value 1e-4


def test_rejecting_where_acceptance_is_hopeless_gives_the_tail_at_once():
    """Acceptance far below 1e-300: the sizes just below the cap, in proportion to binomial chances."""
    scheme = CappedPoisson(10**6, 0.5, 3, "reject")
    sizes = Counter(batch.size for batch in scheme.sampler(key=2).batches(300))
    assert sizes == {3: 300}  # size 2 has chance 3e-6
    scheme = CappedPoisson(3000, 0.5, 1000, "reject")
    law = {size: math.exp(scheme.log_batch_size_probability(size)) for size in range(1001)}
    assert_law(Counter(batch.size for batch in scheme.sampler(key=2).batches(3000)), law)


def test_a_word_at_a_threshold_belongs_to_the_next_size():
    """Chances 1/4, 1/2, 1/4: the thresholds are words, and the words on both sides of them need the exact way."""
    law = size_law(CappedPoisson(2, 0.5, 2))
    words = (0, 2**62 - 1, 2**62, 3 * 2**62 - 1, 3 * 2**62, 2**64 - 1)
    assert [law.draw(Listed(word)) for word in words] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize(("n", "p", "cap"), LAWS)
def test_words_read_off_the_table_are_certain(n, p, cap, overflow):
    """Every interval of certain words lies inside the exact one, and rounding moved no threshold out of its bounds."""
    scheme = CappedPoisson(n, p, cap, overflow)
    law = size_law(scheme)
    if overflow == "truncate" and n * p > 1e6:
        assert law.starts.tolist() == [1]
        assert law.ends.tolist() == [2**64 - 1]
        return
    exact, total = exact_size_chances(n, p, cap, overflow), 0
    with mpmath.workdps(40):
        for size in range(min(exact), law.first + len(law.starts)):
            start, total = total, total + exact[size]
            if size >= law.first:
                place = size - law.first
                if law.starts[place] <= law.ends[place]:
                    assert int(law.starts[place]) >= start * 2**64
                    assert int(law.ends[place]) + 1 <= total * 2**64 * (1 + mpmath.mpf(10) ** -35)
        uncertain = 2**64 - sum(
            max(0, int(end) - int(start) + 1) for start, end in zip(law.starts, law.ends, strict=True)
        )
        assert uncertain * 2.0**-64 < 1e-13 + 1e-15 * len(law.starts) ** 2


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_a_table_that_errs_within_its_bounds_draws_the_same_sizes(overflow):
    """The exact way decides near the thresholds, so that where the table puts them does not matter."""
    right = size_law(CappedPoisson(1000, 0.1, 110, overflow))
    for shift in (
        np.uint64(0),
        *(right.ends[:-1] + np.uint64(1) - right.thresholds, right.starts[1:] - right.thresholds),
    ):
        wrong = SizeLaw(right.scheme, right.first, right.thresholds + shift, right.starts, right.ends)
        for near in right.thresholds[40::4].tolist():
            for word in (near - 500, near - 3, near + 3, near + 500):
                assert wrong.draw(Listed(word, 9)) == right.draw(Listed(word, 9))


# --- error bounds, each against what it must cover ---


@pytest.mark.parametrize("case", [(40, 0.3, 15), (1000, 0.1, 100), (60_000, 256 / 60_000, 300)], ids=str)
def test_many_words_are_read_where_a_single_one_is_certain_and_nowhere_else(case):
    law = size_law(CappedPoisson(*case))
    certain = law.starts <= law.ends
    assert certain.sum() > 5
    for place in np.flatnonzero(certain).tolist():
        first, last = int(law.starts[place]), int(law.ends[place])
        assert law.read(np.array([first, last], dtype=np.uint64)) == [law.first + place] * 2
        outside = [word for word in (first - 1, last + 1) if 0 <= word < 2**64]
        assert law.read(np.array(outside, dtype=np.uint64)) == [None] * len(outside)


@pytest.mark.parametrize("ratio", [0.01, 0.5, 0.9, 0.999])
def test_a_geometric_bound_covers_the_rest_of_a_series_and_little_more(ratio):
    rest = Fraction(0.25) * Fraction(ratio) / (1 - Fraction(ratio))
    assert rest < Fraction(_geometric(0.25, ratio)) < rest * Fraction(101, 100)
    assert 0.0 < _geometric(0.0, ratio) < 1e-290
    assert [_geometric(0.25, ratio) for ratio in (1.0, 1.5)] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("first", "top", "limit"), [(18, 44, 100), (0, 44, 100), (18, 60, 60), (22, 100, 100), (1, 45, 100)]
)
def test_what_a_table_leaves_out_is_covered(first, top, limit):
    n, p = 100, Fraction(0.3)
    chances = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(limit + 1)]
    left_out = (sum(chances[:first]) + sum(chances[top + 1 :])) / sum(chances[first : top + 1])
    found = Fraction(_integer_weights(n, 0.3, first, 30, top, limit)[1])
    assert left_out <= found <= left_out * Fraction(5, 4) + Fraction(1, 10**299)


@pytest.mark.parametrize("outside", [0.0, 1e-9])
def test_a_word_is_certain_only_beyond_all_errors_of_its_thresholds(outside):
    """Eight roundings a step and four more, twice; half a unit for every weight; and what was left out."""
    thresholds = np.array([2**61, 2**62, 2**63, 2**63 + 2**62, 2**64 - 2**61], dtype=np.uint64)
    steps = 1_000
    starts, ends = _certain_words(thresholds, 2, steps, outside)
    fixed = Fraction(steps + 1, 2) + Fraction(outside) * 2**64
    for place, edge in enumerate(thresholds.tolist()):
        mass = edge if place < 2 else 2**64 - edge
        error = 2 * (8 * steps + 4) * Fraction(mass, 2**53) + fixed
        for distance in (int(starts[place + 1]) - edge, edge - 1 - int(ends[place])):
            assert error <= distance <= error * Fraction(103, 100) + 20
    for end in (int(starts[0]), 2**64 - 1 - int(ends[-1])):
        assert fixed <= end <= fixed * Fraction(103, 100) + 20
