"""Bounded integers, subsets and Gaussians from words: exact laws, and loops that end."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from tests.sampling.laws import Constant, Listed, assert_law, stream

from filet.errors import NotCertifiedError
from filet.sampling import draws


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 3 * 2**61, 2**63, 2**63 - 1])
def test_bounded_integers_are_unbiased(bound):
    """At 3 * 2**61, plain remainders would fall in the lower two thirds with chance 3/4."""
    values = draws.integers_below(stream(41), bound, 30_000)
    assert int(values.max()) < bound
    parts = min(bound, 6)
    cells = Counter(int(value) * parts // bound for value in values.tolist())
    sizes = {c: Fraction(-(-bound * (c + 1) // parts) + (bound * -c // parts), bound) for c in range(parts)}
    assert_law(cells, sizes)


def test_a_stream_that_is_not_random_is_refused_rather_than_read_with_a_bias():
    with pytest.raises(NotCertifiedError, match="not random, so nothing is drawn from them; use another key"):
        draws.integers_below(Constant(2**64 - 1), 3 * 2**61, 5)


def test_no_loop_depends_on_luck():
    assert draws.subset(Constant(0), 1000, 20, np.dtype(np.int16)).tolist() == list(range(20))
    assert draws.subset(Constant(2**64 - 2**60), 1000, 999, np.dtype(np.int16)).size == 999
    with pytest.raises(NotCertifiedError, match="not random"):
        draws.subset(Constant(2**64 - 1), 1000, 999, np.dtype(np.int16))


def test_biased_draws_are_dropped():
    """2**32 leaves 1 over modulo 3, and 2**64 leaves 2**30 modulo 3 * 2**30: so many of the last words are unfair."""
    assert draws._rough_draws(Constant(2**64 - 1), 3, 1).size == 0
    assert draws._rough_draws(Constant(2**64 - 2**30), 3 * 2**30, 1).size == 0
    assert draws._rough_draws(Constant(2**64 - 2**30 - 1), 3 * 2**30, 1).size == 1
    assert draws._rough_draws(Constant((2**32 - 2) * (2**32 + 1)), 3, 1).tolist() == [2]


@pytest.mark.parametrize(("population", "size"), [(3 * 2**58, 1_000), (3 * 2**22, 8_000)])
def test_rough_draws_are_usually_enough_although_biased_ones_are_dropped(population, size):
    """Of all words one in 64, or of half words one in 1,024, is unfair here: more have to be drawn at first."""
    assert all(np.unique(draws._rough_draws(stream(seed), population, size)).size >= size for seed in range(20))


@pytest.mark.parametrize(("population", "size"), [(6, 3), (7, 3), (6, 5), (6, 0), (6, 6), (1, 1)])
def test_subsets_are_uniform(population, size):
    source = stream(51)
    counts = Counter(tuple(draws.subset(source, population, size, np.dtype(np.int8)).tolist()) for _ in range(6000))
    every = list(itertools.combinations(range(population), size))
    assert_law(counts, {chosen: Fraction(1, len(every)) for chosen in every})


def test_the_last_fair_word_is_taken_and_the_first_unfair_one_is_drawn_again():
    """2**64 leaves 1 over modulo 3: all words but the last one are fair."""
    assert draws.integers_below(Listed(2**64 - 2), 3, 1).tolist() == [(2**64 - 2) % 3]
    assert draws.integers_below(Listed(2**64 - 1, 7), 3, 1).tolist() == [1]


def test_a_set_that_is_too_large_is_thinned_at_random_places():
    source, chosen = stream(61), np.array([1, 4, 7, 9], dtype=np.int8)
    counts = Counter(tuple(draws.fitted(source, 10, 2, chosen).tolist()) for _ in range(6000))
    assert_law(counts, {pair: Fraction(1, 6) for pair in itertools.combinations([1, 4, 7, 9], 2)})


def test_a_set_that_is_too_small_is_extended_by_random_absent_elements():
    source, chosen = stream(62), np.array([0, 3], dtype=np.int8)
    counts = Counter(tuple(draws.fitted(source, 6, 4, chosen).tolist()) for _ in range(6000))
    more = itertools.combinations([1, 2, 4, 5], 2)
    assert_law(counts, {tuple(sorted([0, 3, *pair])): Fraction(1, 6) for pair in more})


def test_repeated_values_are_taken_once():
    assert draws._distinct(np.array([5, 3, 3, 5, 3], dtype=np.int16)).tolist() == [3, 5]
    assert draws._distinct(np.array([3], dtype=np.int16)).tolist() == [3]


def test_populations_up_to_2_24_take_half_words():
    """The width of a draw is part of what a key means: another one would change every batch."""
    assert [draws.draw_width(size) for size in (1, 2**24, 2**24 + 1, 2**40)] == [32, 32, 64, 64]


def test_indices_take_the_smallest_type_that_holds_them_and_padding():
    limits = {2**7: "int8", 2**7 + 1: "int16", 2**15: "int16", 2**15 + 1: "int32", 2**31: "int32", 2**31 + 1: "int64"}
    assert {size: draws.index_dtype(size).name for size in limits} == limits


def test_a_set_keeps_the_type_that_was_asked_for_however_it_is_made():
    """By draws, by the complement, thinned and extended."""
    for size in (3, 97):
        assert draws.subset(stream(63), 100, size, np.dtype(np.int8)).dtype == np.int8
    chosen = np.array([1, 4, 7, 9], dtype=np.int16)
    for size in (2, 4, 8):
        assert draws.fitted(stream(64), 10, size, chosen).dtype == np.int16


def test_a_word_is_two_half_words_the_lower_one_first():
    found = draws.halves(np.array([5 * 2**32 + 7, 2**64 - 1], dtype=np.uint64))
    assert found.tolist() == [7, 5, 2**32 - 1, 2**32 - 1]
    assert found.dtype == np.uint32


@pytest.mark.parametrize(("population", "size", "words"), [(2**20, 4, 2), (2**20, 5, 3), (2**40, 4, 4)])
def test_no_word_is_read_that_is_not_needed(population, size, words):
    """What follows in the stream depends on it, and so does every batch."""
    source = Listed(*range(1, 10))
    draws._rough_draws(source, population, size)
    assert int(source.words(1)[0]) == words + 1
