"""Sizes by integer arithmetic, against rational numbers; and what happens where words leave a choice."""

import math
import random
from fractions import Fraction

import pytest
from tests.sampling.laws import Constant, Listed

from filet.errors import NotCertifiedError
from filet.sampling.exact_sizes import _enclosed, _halvings_below_cap, exact_size
from filet.sampling.size_law import size_law
from filet.scheme import CappedPoisson

SMALL = [
    (5, 0.3, 2, "truncate"),
    (5, 0.3, 2, "reject"),
    (40, 0.3, 15, "truncate"),
    (40, 0.7, 15, "reject"),
    (12, 1 - 2**-53, 12, "truncate"),
    (12, 1 - 2**-53, 9, "reject"),
    (12, 1e-12, 12, "truncate"),
    (3, 5e-324, 3, "truncate"),
    (30, 0.5, 100, "reject"),
    (1, 0.25, 1, "truncate"),
]


def cumulative(scheme):
    """Pr[size <= k] for every size up to the cap, as fractions."""
    n, p, cap = scheme.group_size, Fraction(scheme.sampling_probability), min(scheme.max_batch_size, scheme.group_size)
    law = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    if scheme.overflow == "truncate":
        law = [*law[:cap], sum(law[cap:])]
    sums = [sum(law[: k + 1]) for k in range(cap + 1)]
    return [one / sums[-1] for one in sums]


def words_of(number, count):
    """The first words of a fraction in [0, 1)."""
    whole = int(number * 2 ** (64 * count))
    return [whole >> 64 * (count - 1 - place) & 2**64 - 1 for place in range(count)]


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_sizes_are_those_of_rational_arithmetic(case):
    scheme = CappedPoisson(*case)
    edges = cumulative(scheme)
    rng = random.Random(5)
    for _ in range(60):
        first, *more = words = [rng.getrandbits(64) for _ in range(3)]
        number = Fraction(first * 2**128 + more[0] * 2**64 + more[1], 2**192)
        expected = next(size for size, edge in enumerate(edges) if number < edge)
        assert exact_size(scheme, first, Listed(*more)) == expected
        assert size_law(scheme).draw(Listed(*words)) == expected


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_words_at_a_threshold_are_decided_by_the_words_that_follow(case):
    """The bits of every threshold, cut after one to three words, and then a little less and a little more."""
    scheme = CappedPoisson(*case)
    law = size_law(scheme)
    for size, edge in enumerate(cumulative(scheme)[:-1]):
        for count in (1, 2, 3):
            whole = int(edge * 2 ** (64 * count))
            for beginning in (whole - 1, whole, whole + 1):
                if not 0 <= beginning < 2 ** (64 * count):
                    continue
                number = Fraction(beginning, 2 ** (64 * count)) + Fraction(1, 2 ** (64 * 30))
                expected = next(k for k, other in enumerate(cumulative(scheme)) if number < other)
                assert law.draw(Listed(*words_of(number, 31))) == expected, (size, count)


def test_the_second_word_is_drawn_only_where_the_first_leaves_a_choice():
    scheme = CappedPoisson(40, 0.3, 15)
    edge = cumulative(scheme)[10]
    first, second = words_of(edge, 2)
    assert exact_size(scheme, first - 1, Listed()) == 10
    assert exact_size(scheme, first + 1, Listed()) == 11
    assert exact_size(scheme, first, Listed(second - 1)) == 10
    assert exact_size(scheme, first, Listed(second + 1)) == 11


def test_sizes_that_no_table_holds_are_reached():
    """Pr[size = 0] is 2**-100: a table of 64 bits has no room for it, and the sampler can still draw it."""
    law = size_law(CappedPoisson(100, 0.5, 60))
    assert law.draw(Listed(0, 2**27)) == 0
    assert law.draw(Listed(0, 2**28, 1)) == 1
    assert law.draw(Listed(0, 2**64 - 1)) > 1
    top = size_law(CappedPoisson(100, 0.5, 100))
    assert top.draw(Listed(2**64 - 1, 2**64 - 2**28, 1)) == 100
    assert top.draw(Listed(2**64 - 1, 2**64 - 2**28 - 1, 1)) == 99


def test_a_cap_far_below_the_mean_is_decided_at_once():
    for n in (10**12, 2**62):
        assert size_law(CappedPoisson(n, 0.5, 4096)).draw(Listed(0, 1)) == 4096
    near = CappedPoisson(10**6, 0.5, 490_000)  # 20 standard deviations: chance 3e-89 of a smaller batch
    assert size_law(near).draw(Listed(0, 1)) == 490_000


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize(("n", "p", "cap"), [(60_000, 256 / 60_000, 300), (10**12, 4096e-12, 4096), (3000, 0.5, 1000)])
def test_the_table_and_the_exact_way_agree(n, p, cap, overflow):
    scheme = CappedPoisson(n, p, cap, overflow)
    law = size_law(scheme)
    rng = random.Random(1)
    for word in [rng.getrandbits(64) for _ in range(20)] + law.ends[law.ends >= law.starts].tolist()[:20]:
        assert exact_size(scheme, word, Listed()) == law.draw(Listed(word))


def test_words_that_never_decide_are_refused():
    with pytest.raises(NotCertifiedError, match="not random"):
        size_law(CappedPoisson(10_000, 0.5, 5_000)).draw(Constant(0))


def test_small_words_give_sizes_below_a_cap_that_is_usually_full():
    """A smaller batch has a chance of 3e-5 here, so that most words are decided without any sum; these are not."""
    scheme = CappedPoisson(100, 0.5, 30)
    edges = cumulative(scheme)
    for word in [1, *(2**place for place in range(10, 60, 7)), int(edges[29] * 2**64) - 1, int(edges[29] * 2**64) + 1]:
        expected = next(size for size, edge in enumerate(edges) if Fraction(word, 2**64) < edge)
        assert exact_size(scheme, word, Listed(0, 1)) == expected
    assert exact_size(scheme, 0, Listed(2**63)) < 20


@pytest.mark.parametrize("bits", [-62, -58, -40, 0])
@pytest.mark.parametrize(
    "case", [(40, 0.3, 15, "truncate"), (40, 0.7, 15, "reject"), (200, 0.5, 200, "truncate")], ids=str
)
def test_coarse_integers_enclose_all_chances_and_what_lies_beyond(case, bits):
    """In units that leave the far sizes out, relative to the chance of the most likely one."""
    scheme = CappedPoisson(*case)
    n, p, cap = scheme.group_size, Fraction(scheme.sampling_probability), scheme.max_batch_size
    chances = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    if scheme.overflow == "reject":
        chances = chances[: cap + 1]
    unit = Fraction(2) ** (bits + 64 + n.bit_length()) / max(chances)
    sums = [unit * sum(chances[: k + 1]) for k in range(len(chances))]
    law = _enclosed(scheme, bits)
    before = sums[law.first - 1] if law.first else 0
    assert before <= law.below
    assert law.total_low <= sums[-1] <= law.total_high
    for place, (low, high) in enumerate(zip(law.low, law.high, strict=True)):
        assert low <= sums[law.first + place] - before
        assert sums[law.first + place] <= high
    beyond = law.first + len(law.low) < len(chances)
    assert (law.total_high > law.high[-1]) is beyond  # what lies above is counted, if anything does
    assert bits < 0 or law.total_high - law.total_low < 2**20


def test_halvings_are_no_more_than_chernoff_proves():
    """The mean is 100 nats above the cap: 144.27 halvings."""
    assert 140 < _halvings_below_cap(CappedPoisson(10**6, 0.5, 490_001)) <= 144
