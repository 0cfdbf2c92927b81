"""Explicit pairs of neighbours: their mixtures against an enumeration of every batch, and what is left out of them."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import filet
from filet import Adjacency
from filet.accounting import attacks as module
from filet.accounting.attacks import WEIGHT_ERROR, _batch_law, _hypergeometric, attack

ADJACENCIES = ("add-remove", "zero-out", "replace-one")


def batch_law(n, p, cap, overflow, marked):
    """Chances of (x_1 drawn, number of marked others drawn), by enumerating subsets; example 0 is x_1."""
    p, law = Fraction(p), Counter()
    for size in range(n + 1):
        for drawn in itertools.combinations(range(n), size):
            chance = p**size * (1 - p) ** (n - size)
            if size <= cap:
                kept = [drawn]
            elif overflow == "truncate":
                kept = list(itertools.combinations(drawn, cap))
            else:
                continue
            for batch in kept:
                law[0 in batch, sum(1 for i in batch if 1 <= i <= marked)] += chance / len(kept)
    total = sum(law.values())
    return {outcome: float(chance / total) for outcome, chance in law.items()}


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize(("n", "p", "cap"), [(6, 0.4, 3), (7, 0.75, 2), (5, 0.1, 1), (6, 0.9, 5)])
def test_batch_law_of_every_attack_matches_enumeration(n, p, cap, overflow):
    scheme = filet.CappedPoisson(n, p, cap, overflow)
    for marked in range(n):
        law = _batch_law(scheme, marked, n)
        assert law is not None
        first, inside, outside = law
        exact = batch_law(n, p, cap, overflow, marked)
        for k in range(n):
            at = k - first
            for drawn, weights in ((True, inside), (False, outside)):
                got = weights[at] if 0 <= at < weights.size else 0.0
                assert got == pytest.approx(exact.get((drawn, k), 0.0), rel=1e-11, abs=1e-15)


def test_an_attack_that_conditions_on_a_rare_event_is_left_out():
    """Ten of 300 examples marked, of which 270 are drawn on average and 2 fit: reject would divide by about 1e-290."""
    laws = {
        overflow: [_batch_law(filet.CappedPoisson(300, 0.9, 2, overflow), marked, 300) for marked in (10, 299)]
        for overflow in ("truncate", "reject")
    }
    assert [law is None for law in laws["truncate"]] == [False, False]
    assert [law is None for law in laws["reject"]] == [True, False]


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize(("n", "p", "cap"), [(6, 0.4, 3), (7, 0.6, 4), (6, 0.9, 5)])
def test_the_smaller_neighbour_of_add_remove_matches_enumeration(n, p, cap, overflow):
    """Data of n - 1 others and no x_1, under the mechanism that was set up for n: the same rate and cap."""
    scheme = filet.CappedPoisson(n, p, cap, overflow)
    for marked in range(1, n):
        first, inside, outside = _batch_law(scheme, marked, n - 1)
        assert not inside.any()
        whole = Counter()
        for (drawn, k), chance in batch_law(n - 1, p, cap, overflow, marked - 1).items():
            whole[k + drawn] += chance  # with its first example among the marked
        for k in range(n):
            got = outside[k - first] if 0 <= k - first < outside.size else 0.0
            assert got == pytest.approx(whole.get(k, 0.0), rel=1e-11, abs=1e-15)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("count", "cosine"), [(0, 0.0), (4, 1.0), (8, 0.3), (8, -1.0)])
def test_both_neighbours_have_mass_one_and_lie_where_x_1_puts_them(count, cosine, adjacency):
    pair = attack(filet.CappedPoisson(9, 0.5, 4), 0.8, Adjacency(adjacency), count, cosine)
    total = [sum(float(cloud.weights.sum()) for cloud in part) for part in (pair.common, pair.only_p, pair.only_q)]
    assert total[0] + total[1] == pytest.approx(1.0, abs=1e-12)
    assert total[0] + total[2] == pytest.approx(1.0, abs=1e-12)
    assert pair.scale == 1 / 0.8
    assert pair.missing == 0.0  # every outcome is listed
    hit = pair.only_p[-1]
    assert (hit.along, hit.across) == (-cosine, pytest.approx(math.sqrt(1 - cosine**2)))
    if adjacency == "replace-one":
        assert (pair.only_q[0].along, pair.only_q[0].across) == (-hit.along, -hit.across)
    else:
        assert all((cloud.along, cloud.across) == (0.0, 0.0) for cloud in pair.only_q)
    if adjacency == "add-remove" and count:  # different numbers of others: nothing is common
        assert pair.common == ()


def test_what_is_left_out_of_large_data_sets_is_allowed_for():
    scheme = filet.CappedPoisson(10**6, 0.01, 10**4)
    for count in (10**5, 5 * 10**5, 10**6 - 1):
        first, inside, outside = _batch_law(scheme, count, 10**6)
        assert first > 0
        assert inside.size < 4_000
        assert float(inside.sum() + outside.sum()) == pytest.approx(1.0, abs=WEIGHT_ERROR)
        assert float(inside.sum()) == pytest.approx(scheme.inclusion_probability, rel=1e-9)
        mean = float((inside + outside) @ (first + np.arange(inside.size)))
        assert mean <= min(count * 0.01, 10**4) * (1 + 1e-9)
        assert attack(scheme, 1.0, Adjacency.ZERO_OUT, count, 1.0).missing > 0.0


def test_attacks_of_too_many_parts_or_rare_batches_are_left_out():
    assert _batch_law(filet.CappedPoisson(10**12, 0.5, 5 * 10**11), 10**12 - 1, 10**12) is None
    assert attack(filet.CappedPoisson(10**12, 0.5, 5 * 10**11), 1.0, Adjacency.ADD_REMOVE, 10**12 - 1, 1.0) is None
    rare = filet.CappedPoisson(400, 0.5, 120, "reject")  # a batch fits once in 10^15
    assert _batch_law(rare, 200, 400) is None
    assert _batch_law(rare, 0, 400) is not None


@pytest.mark.parametrize(("total", "marked", "drawn"), [(9, 4, 3), (9, 9, 3), (9, 4, 0), (9, 4, 9), (40, 25, 17)])
def test_drawing_without_putting_back_is_hypergeometric(total, marked, drawn):
    last = min(marked, drawn)
    found = _hypergeometric(0, last, total, marked, drawn)
    exact = [
        math.comb(marked, k) * math.comb(total - marked, drawn - k) / math.comb(total, drawn) for k in range(last + 1)
    ]
    assert found == pytest.approx(exact, rel=1e-12)


def test_the_family_has_zero_equal_and_orthogonal_others():
    from filet.accounting.lower_bounds import _FAMILY

    assert {(0.0, 0.0), (1.0, 1.0), (1.0, 0.0)} <= set(_FAMILY)
    assert module._OUTSIDE < 1e-30
