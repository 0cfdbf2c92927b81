"""Who is in which group: uniform tables, bijective networks, and cycles that visit the groups in turn."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.sampling.laws import P_VALUE, assert_law, drawn, stream, subset_law

from filet.errors import NotCertifiedError
from filet.sampling import partition
from filet.sampling.keys import Key
from filet.sampling.streams import Purpose, open_source
from filet.scheme import CappedPoisson


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize("n", [4, 5])
@pytest.mark.long
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


def test_a_cycle_of_two_draws_from_one_half_then_the_other():
    sampler = CappedPoisson(1000, 0.5, 300, cycle_length=2).sampler(b"a key of 16 byte")
    halves = [set().union(*(batch.indices[batch.mask].tolist() for batch in sampler[start:40:2])) for start in (0, 1)]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == set(range(1000))
    assert halves[0] != set(range(500))


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


def test_words_that_are_always_equal_are_refused():
    class Same:
        def at(self, *_):
            return self

        def words(self, count):
            return np.zeros(count, dtype=np.uint64)

    with pytest.raises(NotCertifiedError, match="not random"):
        partition.shuffled(Same(), 3)


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


def image(keys, size, position):
    """Where the network sends one position, in plain integers: four rounds on a grid of about sqrt(size) columns."""
    columns = 2 ** ((size - 1).bit_length() // 2)
    rows = -(-size // columns)
    row, column = divmod(position, columns)
    for number in range(4):
        mixed = ((column if number % 2 else row) * keys[2 * number] + keys[2 * number + 1]) % 2**64
        if number in (1, 2):
            mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 % 2**64
        if number % 2:
            row = (row + (mixed >> 24)) % rows
        else:
            column = (column + (mixed >> 24)) % columns
    found = row * columns + column
    return found if found < size else image(keys, size, found)


@pytest.mark.parametrize("size", [2, 3, 17, 1000, 2**16, 2**16 + 1, 2**20 + 7, 10**12])
def test_the_network_is_the_one_of_the_first_release(size):
    """Another would put the examples of a run that goes on into other groups."""
    positions = np.unique(np.linspace(0, size - 1, 50, dtype=np.int64))
    for key in range(60 if size < 100 else 4):  # of small grids a cell beyond the last is often met
        keys = stream(key).words(2 * partition.ROUNDS)
        images = partition.feistel(keys, size, positions)
        assert images.tolist() == [image(keys.tolist(), size, position) for position in positions.tolist()]
        assert images.dtype == np.int64


def test_a_table_is_the_order_of_the_first_stream_and_a_network_has_the_keys_of_the_second():
    source = open_source(Key(b"a key of 16 byte"), secure=False)
    words = source.at(Purpose.PARTITION, 0).words(200).tolist()
    table = partition.shuffled(source, 200)
    assert table.tolist() == sorted(range(200), key=words.__getitem__)
    assert table.dtype == np.int16
    size, places = 2**20 + 4, np.array([0, 5, 349_525], dtype=np.int32)
    keys = source.at(Purpose.PARTITION, 1).words(8).tolist()
    for group in range(3):
        found = partition.Partition(source, size, 3).members(group, places)
        assert found.tolist() == sorted(image(keys, size, group * (size // 3) + place) for place in places.tolist())
        assert found.dtype == np.int32


def test_up_to_2_20_examples_every_partition_is_equally_likely():
    source = open_source(Key(b"a key of 16 byte"), secure=False)
    order = partition.shuffled(source, 2**20)
    found = partition.Partition(source, 2**20, 2).members(1, np.arange(2**19, dtype=np.int32))
    assert np.array_equal(found, np.sort(order[2**19 :]))
