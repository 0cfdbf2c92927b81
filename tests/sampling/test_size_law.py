"""The sampler's law, against exact probabilities. Keys are fixed, so every test is deterministic.

Each frequency test rejects at p-value 1e-4: a correct sampler would fail a fresh key once in ten thousand tries.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from filet.sampling import draws, partition
from filet.sampling.keys import Key
from filet.sampling.size_law import SizeLaw, size_law
from filet.sampling.streams import Purpose, open_source
from filet.scheme import CappedPoisson

P_VALUE = 1e-4


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


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize(("n", "p", "cap"), [(5, 0.5, 2), (6, 0.25, 3), (4, 0.75, 3), (3, 0.5, 7), (5, 0.125, 1)])
def test_every_batch_of_a_small_data_set_has_its_exact_chance(n, p, cap, overflow, secure):
    sampler = CappedPoisson(n, p, cap, overflow).sampler(key=11, secure=secure)
    counts = Counter(drawn(batch) for batch in sampler.batches(12_000))
    assert_law(counts, subset_law(range(n), p, cap, overflow))


def test_a_probability_of_one_gives_every_subset_of_the_cap():
    sampler = CappedPoisson(6, 1.0, 4).sampler(key=12)
    counts = Counter(drawn(batch) for batch in sampler.batches(10_000))
    assert_law(counts, {batch: Fraction(1, 15) for batch in itertools.combinations(range(6), 4)})


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize("n", [4, 5])
def test_two_steps_of_a_cycle_have_their_exact_joint_law(n, overflow):
    """Over keys: the partition is uniform, the remainder is left out, and the groups are drawn from in turn."""
    law = Counter()
    for order in itertools.permutations(range(n)):
        parts = [subset_law(group, 0.5, 1, overflow) for group in (order[:2], order[2:4])]
        for (one, chance), (two, other) in itertools.product(parts[0].items(), parts[1].items()):
            law[one, two] += chance * other / math.factorial(n)
    scheme = CappedPoisson(n, 0.5, 1, overflow, cycle_length=2)
    counts = Counter()
    for key in range(8_000):
        sampler = scheme.sampler(key)
        counts[drawn(sampler[6]), drawn(sampler[9])] += 1
    assert_law(counts, law)


def test_a_cycle_visits_disjoint_groups_again_and_again():
    for n, b in [(50, 4), (2**20 + 5, 3)]:
        m = n // b
        sampler = CappedPoisson(n, 1.0, m, cycle_length=b).sampler(key=5)
        groups = [set(drawn(batch)) for batch in sampler[: b + 1]]
        assert all(len(group) == m for group in groups)
        assert len(set.union(*groups)) == b * m
        assert groups[b] == groups[0]


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


@pytest.mark.parametrize(("n", "cap", "cycle"), [(500, 40, 1), (500, 400, 1), (2000, 40, 4)])
def test_every_example_is_included_equally_often(n, cap, cycle):
    """Fixed size (p = 1): the counts' covariance is known, so that the scaled squares are chi-square distributed."""
    steps = 3000
    sampler = CappedPoisson(n, 1.0, cap, cycle_length=cycle).sampler(key=31)
    counts = np.zeros(n)
    for batch in sampler[: steps * cycle : cycle]:
        counts[batch.indices[batch.mask]] += 1
    counts = np.sort(counts)[::-1][: n // cycle]  # the group of step 0: nobody else was drawn
    m = n // cycle
    assert counts.sum() == steps * cap
    statistic = ((counts - steps * cap / m) ** 2).sum() / (steps * cap * (m - cap) / (m * (m - 1)))
    assert P_VALUE < stats.chi2.sf(statistic, m - 1) < 1 - P_VALUE


def test_pairs_are_included_together_equally_often():
    n, cap, steps = 40, 10, 4000
    together = np.zeros((n, n))
    for batch in CappedPoisson(n, 1.0, cap).sampler(key=32).batches(steps):
        together[np.ix_(batch.indices, batch.indices)] += 1
    pairs = together[np.triu_indices(n, 1)]
    chance = cap * (cap - 1) / (n * (n - 1))
    # Bonferroni over the 780 pairs, two-sided.
    low, high = stats.binom.ppf([P_VALUE / 1560, 1 - P_VALUE / 1560], steps, chance)
    assert pairs.min() >= low
    assert pairs.max() <= high


def test_batches_of_different_steps_are_independent():
    """The overlap of two fixed-size batches is hypergeometric."""
    n, cap = 4000, 200
    batches = list(CappedPoisson(n, 1.0, cap).sampler(key=33).batches(3000))
    overlaps = Counter(
        int(np.intersect1d(one.indices, two.indices, assume_unique=True).size)
        for one, two in itertools.pairwise(batches)
    )
    assert_law(overlaps, {size: stats.hypergeom.pmf(size, n, cap, cap) for size in range(cap + 1)})


@pytest.mark.parametrize("cycle", [1, 7])
@pytest.mark.parametrize("n", [10**6, 10**8, 10**12, 2**63 - 1])
def test_large_data_sets_are_covered_evenly(n, cycle):
    """Positions in 64 equal bins, their lowest bits, and the gaps between neighbours, all uniform."""
    sampler = CappedPoisson(n, min(1.0, 4000 * cycle / n), 4096, cycle_length=cycle).sampler(key=34)
    found = [batch.indices[batch.mask].astype(np.int64) for batch in sampler.batches(cycle * 3)]
    assert all(np.unique(indices).size == indices.size for indices in found)
    indices = np.concatenate(found)
    assert 0 <= indices.min() <= indices.max() < n
    gaps = np.concatenate([np.diff(indices) for indices in found])
    bins = Counter((indices // (n // 64 + 1)).tolist())
    law = {place: Fraction(min(n, (place + 1) * (n // 64 + 1)) - place * (n // 64 + 1), n) for place in range(64)}
    assert_law(bins, law)
    assert_law(Counter((indices % 64).tolist()), {bit: Fraction(1, 64) for bit in range(64)})
    if n > 10**6:  # below, a gap has a mean of 250, too short to be even modulo 64
        assert_law(Counter((gaps % 64).tolist()), {bit: Fraction(1, 64) for bit in range(64)})


@pytest.mark.parametrize("bound", [1, 2, 3, 1000, 3 * 2**61, 2**63, 2**63 - 1])
def test_bounded_integers_are_unbiased(bound):
    """At 3 * 2**61, plain remainders would fall in the lower two thirds with chance 3/4."""
    values = draws.integers_below(stream(41), bound, 30_000)
    assert int(values.max()) < bound
    parts = min(bound, 6)
    cells = Counter(int(value) * parts // bound for value in values.tolist())
    sizes = {c: Fraction(-(-bound * (c + 1) // parts) + (bound * -c // parts), bound) for c in range(parts)}
    assert_law(cells, sizes)


class Constant:
    """A stream that repeats one word for ever: the worst case for every rejection loop."""

    def __init__(self, word):
        self.word = word

    def words(self, count):
        return np.full(count, self.word, dtype=np.uint64)


def test_no_loop_depends_on_luck():
    assert draws.integers_below(Constant(2**64 - 1), 3 * 2**61, 5).max() < 3 * 2**61
    assert draws.subset(Constant(0), 1000, 20, np.dtype(np.int16)).tolist() == list(range(20))
    assert draws.subset(Constant(2**64 - 1), 1000, 999, np.dtype(np.int16)).size == 999


def test_biased_draws_are_dropped():
    """2**32 leaves 1 over modulo 3, and 2**64 leaves 2**30 modulo 3 * 2**30: so many of the last words are unfair."""
    assert draws._rough_draws(Constant(2**64 - 1), 3, 1).size == 0
    assert draws._rough_draws(Constant(2**64 - 2**30), 3 * 2**30, 1).size == 0
    assert draws._rough_draws(Constant(2**64 - 2**30 - 1), 3 * 2**30, 1).size == 1
    assert draws._rough_draws(Constant((2**32 - 2) * (2**32 + 1)), 3, 1).tolist() == [2]


def test_a_word_at_a_threshold_belongs_to_the_next_size():
    law = SizeLaw(5, np.array([0, 10, 10, 20], dtype=np.uint64))
    sizes = [law.draw(Constant(word)) for word in (0, 9, 10, 19, 20, 2**64 - 1)]
    assert sizes == [6, 6, 8, 8, 9, 9]


@pytest.mark.parametrize(("population", "size"), [(6, 3), (7, 3), (6, 5), (6, 0), (6, 6), (1, 1)])
def test_subsets_are_uniform(population, size):
    source = stream(51)
    counts = Counter(tuple(draws.subset(source, population, size, np.dtype(np.int8)).tolist()) for _ in range(6000))
    every = list(itertools.combinations(range(population), size))
    assert_law(counts, {chosen: Fraction(1, len(every)) for chosen in every})


def test_small_partitions_are_uniform_over_all_orders():
    orders = Counter(tuple(partition.shuffled(open_source(Key(key), secure=False), 4).tolist()) for key in range(6000))
    assert_law(orders, {order: Fraction(1, 24) for order in itertools.permutations(range(4))})


def test_equal_words_are_redrawn_rather_than_ranked():
    class Repeats:
        def __init__(self):
            self.calls = 0

        def at(self, *_):
            return self

        def words(self, count):
            self.calls += 1
            return np.array([[5, 5, 1], [9, 3, 4]][self.calls - 1], dtype=np.uint64)

    assert partition.shuffled(Repeats(), 3).tolist() == [1, 2, 0]


@pytest.mark.parametrize("size", [2, 3, 5, 64, 65, 1000, 2**20 + 7])
def test_large_partitions_are_bijections(size):
    keys = stream(61).words(2 * partition.ROUNDS)
    images = partition.feistel(keys, size, np.arange(size))
    assert np.array_equal(np.sort(images), np.arange(size))


@pytest.mark.parametrize("size", [2**20 + 7, 10**9 + 1, 10**12])
def test_large_partitions_send_pairs_to_groups_independently(size):
    """Neighbours, and positions that share a row or column of the grid, over 3000 keys, in 5 groups."""
    columns = 1 << (size - 1).bit_length() // 2
    positions = np.array([0, 1, columns, columns + 1, size - 1])
    images = np.array(
        [partition.feistel(stream(key).words(2 * partition.ROUNDS), size, positions) for key in range(3000)]
    )
    groups = images * 5 // size if size < 2**60 else images // (size // 5)
    low = images % 5
    for cells in (groups, low):
        for one, two in itertools.combinations(range(5), 2):
            counts = Counter(zip(cells[:, one].tolist(), cells[:, two].tolist(), strict=True))
            assert_law(counts, dict.fromkeys(itertools.product(range(5), repeat=2), Fraction(1, 25)))


def test_large_partitions_scatter_runs():
    """Neighbouring positions stay within 1/100 of the data set of each other as seldom as chance has it."""
    size = 10**12
    images = partition.feistel(stream(62).words(2 * partition.ROUNDS), size, np.arange(20_000))
    close = int((np.abs(np.diff(images)) < size // 100).sum())
    assert stats.binomtest(close, images.size - 1, 0.0199).pvalue > P_VALUE
    assert abs(np.corrcoef(images[1:], images[:-1])[0, 1]) < 4 / math.sqrt(images.size)


def test_normals_are_standard_gaussian():
    values = draws.normals(stream(71), 200_000)
    assert np.isfinite(values).all()
    assert stats.kstest(values, "norm").pvalue > P_VALUE
    assert stats.kstest(np.abs(values[:-1]) - np.abs(values[1:]), "norm").pvalue < P_VALUE  # the test can fail


def test_normals_reach_far_tails_and_never_infinity():
    assert draws.normals(Constant(0), 2).tolist() == pytest.approx([13.1] * 2, abs=0.2)
    assert abs(draws.normals(Constant(2**64 - 1), 1)[0]) < 1e-15
