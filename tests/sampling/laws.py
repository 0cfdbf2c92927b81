"""What several tests of samplers share: exact laws of batches, a chi-square test against a law, fixed streams."""

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from filet.sampling.keys import Key
from filet.sampling.streams import Purpose, open_source

P_VALUE = 1e-4


def same(one, two):
    return one == two and np.array_equal(one.mask, two.mask) and one.size == two.size


def stream(key=0, step=0, secure=False):
    return open_source(Key(key), secure=secure).at(Purpose.BATCH, step)


def assert_law(counts, law):
    """A chi-square test of outcome counts against exact chances; rare outcomes are pooled to 10 expected."""
    total = sum(counts.values())
    assert set(counts) <= {outcome for outcome, chance in law.items() if chance > 0}
    assert float(sum(law.values())) == pytest.approx(1, abs=1e-12)
    observed, expected, rest = [], [], [0.0, 0.0]
    for outcome, chance in law.items():
        if total * chance >= 10:
            observed.append(counts[outcome])
            expected.append(total * float(chance))
        else:
            rest[0] += counts[outcome]
            rest[1] += total * float(chance)
    if rest[1] > 0:
        observed.append(rest[0])
        expected.append(rest[1])
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    assert len(observed) == 1 or stats.chi2.sf(statistic, len(observed) - 1) > P_VALUE


def subset_law(items, p, cap, overflow):
    """Every batch's exact chance, by enumerating the Poisson draws and repairing those above the cap."""
    items, p = sorted(items), Fraction(p)
    law = Counter()
    for size in range(len(items) + 1):
        for drawn in itertools.combinations(items, size):
            chance = p**size * (1 - p) ** (len(items) - size)
            if size <= cap:
                law[drawn] += chance
            elif overflow == "truncate":
                kept = list(itertools.combinations(drawn, cap))
                for batch in kept:
                    law[batch] += chance / len(kept)
    total = sum(law.values())
    return {batch: chance / total for batch, chance in law.items()}


def drawn(batch):
    return tuple(batch.indices[batch.mask].tolist())


class Constant:
    """A stream that repeats one word for ever: the worst case for every rejection loop."""

    def __init__(self, word):
        self.word = word

    def words(self, count):
        return np.full(count, self.word, dtype=np.uint64)


class Listed:
    """A stream of the given words, and not one more."""

    def __init__(self, *words):
        self.left = list(words)

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count, "more words were drawn than expected"
        return np.array(taken, dtype=np.uint64)


def poisson_draws(scheme, steps, seed=0):
    rng = np.random.default_rng(seed)
    n, p = scheme.dataset_size, scheme.sampling_probability
    return [np.flatnonzero(rng.random(n) < p) for _ in range(steps)]


def failed(report):
    return {check.name for check in report.failures}
