"""Sizes that are no public number: the law of batches at any number of records, and a number that nothing tells."""

import copy
import itertools
import json
import pickle
from collections import Counter, defaultdict
from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pytest
from tests.sampling.laws import assert_law, drawn, same, subset_law

import filet
from filet.errors import InvalidArgumentError
from filet.sampling.urn import urn
from filet.scheme import CappedPoisson

KEY = b"a key of 16 byte"
PLANNED = CappedPoisson(6, 0.3, 3, overflow="reject", size="secret")
AT_MOST = CappedPoisson(6, 0.6, 3, size="at-most")
SECRET = CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject", size="secret")


def secret_law(planned: int, p: float, cap: int, records: int) -> dict[tuple[int, ...], Fraction]:
    """Every batch's exact chance from the definition: a size by the law of the planned data set, then slots."""
    rate, slots = Fraction(p), max(records, planned)
    weights = [comb(planned, k) * rate**k * (1 - rate) ** (planned - k) for k in range(cap + 1)]
    law: defaultdict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for size, weight in enumerate(weights):
        for chosen in itertools.combinations(range(slots), size):
            law[tuple(i for i in chosen if i < records)] += weight / sum(weights) / comb(slots, size)
    return dict(law)


@pytest.mark.parametrize("records", [0, 1, 4, 5, 6, 7, 9])
def test_batches_of_a_secret_size_follow_the_exact_law_below_at_and_above_the_planned_size(records):
    law = secret_law(6, 0.3, 3, records)
    batches = PLANNED.sampler(KEY, records=records, secure=False).batches(20_000)
    assert_law(Counter(map(drawn, batches)), law)


@pytest.mark.parametrize("records", [0, 1, 3, 4, 6])
def test_batches_of_at_most_so_many_records_are_those_of_the_true_number(records):
    law = subset_law(range(records), 0.6, 3, "truncate")
    batches = AT_MOST.sampler(KEY, records=records, secure=False).batches(20_000)
    assert_law(Counter(map(drawn, batches)), law)


def test_a_single_record_shares_its_slot_with_nobody():
    """With a cap of one, a second slot would take a place."""
    batches = CappedPoisson(6, 0.6, 1, size="at-most").sampler(KEY, records=1, secure=False).batches(2_000)
    assert_law(Counter(map(drawn, batches)), subset_law(range(1), 0.6, 1, "truncate"))


def test_a_secret_number_of_records_is_as_large_as_any_public_one():
    batch = SECRET.sampler(KEY, records=2**63 - 1)[0]
    assert 0 < batch.size <= 256
    assert batch.indices[batch.mask].min() > 60_000  # among so many, the first 60,000 are hardly ever drawn


def test_at_the_planned_size_the_law_is_that_of_policy_reject():
    assert secret_law(6, 0.3, 3, 6) == subset_law(range(6), 0.3, 3, "reject")


@pytest.mark.parametrize("secure", [False, True])
def test_at_the_planned_size_the_batches_are_those_of_policy_reject_bit_for_bit(secure):
    public = CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject").sampler(KEY, secure=secure)
    secret = SECRET.sampler(KEY, secure=secure, records=60_000)
    for one, two in zip(public.batches(40), secret.batches(40), strict=True):
        assert same(one, two)
        assert one.indices.dtype == two.indices.dtype
    rows = json.loads((Path(__file__).parents[1] / "golden" / "batches.json").read_text())
    golden = [row for row in rows if row["scheme"].get("overflow") == "reject" and row["scheme"]["max_batch_size"] == 9]
    assert golden
    for row in golden:
        key = bytes.fromhex(row["key"]) if isinstance(row["key"], str) else row["key"]
        scheme = CappedPoisson(**row["scheme"], size="secret")
        sampler = scheme.sampler(key, secure=row["secure"], records=scheme.dataset_size)
        assert sampler[row["step"]].indices.tolist() == row["indices"]


def test_the_law_of_sizes_does_not_depend_on_the_number_of_records():
    several = [0, 1, 59_999, 60_000, 60_001, 10**6, 10**12]
    assert len({urn(SECRET, records).law for records in several}) == 1
    sizes = [[b.size for b in SECRET.sampler(KEY, records=n).batches(50)] for n in several if n >= 60_000]
    assert len(set(sizes[0])) > 5
    assert all(one == sizes[0] for one in sizes)
    mean = np.mean([b.size for b in SECRET.sampler(KEY, records=30_000).batches(400)])
    assert mean == pytest.approx(SECRET.expected_batch_size / 2, rel=0.02)


@pytest.mark.parametrize("records", [100, 59_000, 60_000, 10**9])
def test_drawn_ahead_or_alone_in_shards_or_in_pickles_the_batches_are_the_same(records):
    sampler = SECRET.sampler(KEY, records=records)
    alone = [sampler[step] for step in range(40)]
    assert all(map(same, alone, sampler.batches(40)))
    assert all(map(same, alone, pickle.loads(pickle.dumps(sampler)).batches(40)))
    assert all(map(same, alone, copy.deepcopy(sampler).batches(40)))
    parts = [sampler.shard(rank, 3)[7] for rank in range(3)]
    assert sorted(itertools.chain(*map(drawn, parts))) == list(drawn(alone[7]))


def test_the_number_of_records_is_in_no_text():
    number = 7_654_321
    sampler = SECRET.sampler(KEY, records=number)
    for thing in (sampler, sampler.batches(3), sampler[0], sampler.shard(0, 2), sampler.scheme):
        assert str(number) not in repr(thing) + str(thing)
    assert "7654321" not in sampler.fingerprint
    with pytest.raises(InvalidArgumentError) as caught:
        sampler[0].take(np.zeros(number - 1))
    assert str(number) not in str(caught.value)
    assert str(number - 1) not in str(caught.value)
    with pytest.raises(InvalidArgumentError) as caught:
        AT_MOST.sampler(KEY, records=number)
    assert str(number) not in str(caught.value)
    for wrong in (-number, number + 0.5, str(number), 2**70 + number):
        with pytest.raises(InvalidArgumentError, match="records is not a whole number") as caught:
            SECRET.sampler(KEY, records=wrong)
        assert str(number) not in str(caught.value)


def test_records_are_asked_for_exactly_where_the_size_is_not_public():
    with pytest.raises(InvalidArgumentError, match=r"pass records=len\(data\)"):
        SECRET.sampler(KEY)
    with pytest.raises(InvalidArgumentError, match="leave it out"):
        CappedPoisson(10, 0.3, 4).sampler(KEY, records=10)
    with pytest.raises(InvalidArgumentError, match="above dataset_size=6"):
        AT_MOST.sampler(KEY, records=7)
    with pytest.raises(InvalidArgumentError, match="size='secret'"):
        filet.audit(PLANNED.sampler(KEY, records=6), PLANNED, steps=100)


def test_rows_are_taken_from_as_many_records_as_there_are():
    batch = SECRET.sampler(KEY, records=1_000)[0]
    taken = batch.take(np.arange(1_000))
    assert np.array_equal(taken[batch.mask], batch.indices[batch.mask])
    assert not taken[~batch.mask].any()


def test_noisy_sums_of_a_secret_size_are_sums_of_its_batches():
    rows = np.random.default_rng(1).normal(size=(9, 2)) / 10
    for step in range(5):
        batch = PLANNED.sampler(KEY, records=9)[step]
        found = filet.noisy_sum(rows, PLANNED, noise_multiplier=0.0, key=KEY, step=step)
        assert found == pytest.approx(rows[batch.indices[batch.mask]].sum(axis=0), abs=1e-6)


def test_a_pickle_leaves_neither_the_key_nor_the_number_of_records_under_a_plain_name():
    sampler = SECRET.sampler(KEY, records=70_000)
    restored = pickle.loads(pickle.dumps(sampler))
    assert set(vars(restored)) <= set(vars(sampler))
    assert not {"key", "records"} & set(vars(restored))
