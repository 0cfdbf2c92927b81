"""Bounded integers, subsets and Gaussians from words: exact laws, and loops that end."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from tests.sampling.laws import Constant, assert_law, stream

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


@pytest.mark.parametrize(("population", "size"), [(6, 3), (7, 3), (6, 5), (6, 0), (6, 6), (1, 1)])
def test_subsets_are_uniform(population, size):
    source = stream(51)
    counts = Counter(tuple(draws.subset(source, population, size, np.dtype(np.int8)).tolist()) for _ in range(6000))
    every = list(itertools.combinations(range(population), size))
    assert_law(counts, {chosen: Fraction(1, len(every)) for chosen in every})
