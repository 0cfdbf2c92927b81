"""The sampler as a Python object: access, shards, pickles, golden batches, bad input; and the law of whole batches."""

import base64
import copy
import importlib.util
import itertools
import json
import pickle
import subprocess
import sys
import threading
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.sampling.laws import P_VALUE, assert_law, drawn, same, subset_law

from filet.errors import FiletError, InvalidArgumentError
from filet.sampling import streams as _streams
from filet.sampling.keys import Key
from filet.sampling.mechanism import noisy_sum
from filet.sampling.sampler import Batches, Sampler
from filet.sampling.streams import Purpose, open_source
from filet.scheme import CappedPoisson

GOLDEN = Path(__file__).parents[1] / "golden"
SCHEME = CappedPoisson(dataset_size=1000, sampling_probability=0.05, max_batch_size=64)
CYCLIC = CappedPoisson(
    dataset_size=1003, sampling_probability=0.2, max_batch_size=60, overflow="reject", cycle_length=4
)
KEY = b"a key of 16 byte"
FINGERPRINT = "37517a069ae159eeb8ab71ccc344929b"


@pytest.mark.parametrize("scheme", [SCHEME, CYCLIC, CappedPoisson(10**12, 3e-11, 40, cycle_length=3)])
@pytest.mark.parametrize("secure", [False, True])
def test_a_step_gives_the_same_batch_in_any_order(scheme, secure):
    sampler = scheme.sampler(KEY, secure=secure)
    forwards = [sampler[step] for step in range(20)]
    backwards = [scheme.sampler(KEY, secure=secure)[step] for step in reversed(range(20))]
    assert all(map(same, forwards, reversed(backwards)))
    assert all(one != two for one, two in itertools.combinations(forwards, 2))


def test_steps_may_be_numpy_integers_and_huge():
    sampler = SCHEME.sampler(KEY)
    assert same(sampler[np.int64(5)], sampler[5])
    assert sampler[2**63 - 1] != sampler[0]


def test_batches_is_a_sequence():
    sampler = SCHEME.sampler(KEY)
    run = sampler.batches(10)
    assert len(run) == 10
    assert isinstance(run, Batches)
    assert all(map(same, run, [sampler[step] for step in range(10)]))
    assert all(map(same, run, run))  # iterates again
    assert same(run[-1], sampler[9])
    assert same(run[np.int32(2)], sampler[2])
    assert [len(run[2:5]), len(run[::3]), len(run[100:])] == [3, 4, 0]
    assert same(run[::3][1], sampler[3])
    assert same(next(iter(reversed(run))), sampler[9])
    assert sampler[4] in run
    assert sampler[11] not in run
    with pytest.raises(IndexError):
        run[10]
    assert len(sampler.batches(0)) == 0


def test_resuming_gives_the_rest_of_the_run():
    sampler = SCHEME.sampler(KEY)
    rest = sampler.batches(10, start=7)
    assert len(rest) == 3
    assert all(map(same, rest, sampler.batches(10)[7:]))
    assert len(sampler.batches(10, start=10)) == 0
    assert len(sampler.batches(2**63 - 1, start=2**62)) == 2**63 - 1 - 2**62


def test_slices_of_a_sampler_are_lazy_and_need_a_stop():
    sampler = SCHEME.sampler(KEY)
    part = sampler[10**15 : 10**18 : 10]
    assert len(part) == (10**18 - 10**15) // 10
    assert same(part[1], sampler[10**15 + 10])
    assert len(sampler[5:2]) == 0
    assert sampler[:3].steps == range(3)


def test_a_sampler_has_no_length_and_no_end():
    sampler = SCHEME.sampler(KEY)
    with pytest.raises(TypeError):
        len(sampler)
    with pytest.raises(TypeError, match=r"^a Sampler has no end; iterate over sampler\.batches\(steps\)$"):
        iter(sampler)


def test_pickles_and_copies_draw_the_same_batches():
    for sampler in (SCHEME.sampler(KEY), CYCLIC.sampler(secure=True).shard(1, 3), SCHEME.sampler()):
        for other in (pickle.loads(pickle.dumps(sampler)), copy.copy(sampler), copy.deepcopy(sampler)):
            assert same(other[3], sampler[3])
            assert (other.scheme, other.secure, other.rank) == (sampler.scheme, sampler.secure, sampler.rank)
        run = pickle.loads(pickle.dumps(sampler.batches(9, start=3)))
        assert len(run) == 6
        assert same(run[0], sampler[3])


def test_the_secure_stream_is_the_default_everywhere():
    vectors = np.full((1000, 2), 0.01)
    assert SCHEME.sampler(KEY).secure
    assert same(Sampler(SCHEME, KEY)[3], SCHEME.sampler(KEY, secure=True)[3])
    assert Sampler(SCHEME, KEY)[3] != SCHEME.sampler(KEY, secure=False)[3]
    options = {"noise_multiplier": 1.0, "key": KEY, "step": 3}
    default, plain = noisy_sum(vectors, SCHEME, **options), noisy_sum(vectors, SCHEME, **options, secure=False)
    assert np.array_equal(default, noisy_sum(vectors, SCHEME, **options, secure=True))
    assert not np.array_equal(default, plain)


def test_a_pickle_says_which_stream_it_uses_and_old_ones_keep_theirs():
    for secure in (False, True):
        state = SCHEME.sampler(KEY, secure=secure).__getstate__()
        assert state["secure"] is secure
    pickles = json.loads((GOLDEN / "pickles.json").read_text())
    for name, secure in (("sampler", False), ("shard", False), ("secure sampler", True)):
        old = pickle.loads(base64.b64decode(pickles[name]))
        assert old.secure is secure
        fresh = old.scheme.sampler(b"golden pickle key", secure=secure)
        assert same(old[5], fresh.shard(1, 2)[5] if name == "shard" else fresh[5])


def test_a_pickle_leaves_the_tables_behind():
    sampler = CappedPoisson(10**6, 1e-3, 100, cycle_length=5).sampler(KEY)
    sampler[0]
    assert len(pickle.dumps(sampler)) < 1000


def test_threads_may_share_a_sampler():
    sampler = CYCLIC.sampler(KEY)
    expected = [CYCLIC.sampler(KEY)[step] for step in range(200)]
    found = {}

    def draw(steps):
        for step in steps:
            found[step] = sampler[step]

    threads = [threading.Thread(target=draw, args=(range(start, 200, 4),)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(found[step], expected[step]) for step in range(200))


def test_other_processes_draw_the_same_batches():
    code = "import pickle, sys; run = pickle.load(sys.stdin.buffer);print([batch.indices.tolist() for batch in run])"
    for sampler in (SCHEME.sampler(KEY), CYCLIC.sampler(KEY, secure=True)):
        run = sampler.batches(50, start=45)
        output = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(run), capture_output=True, check=True)
        assert json.loads(output.stdout) == [batch.indices.tolist() for batch in run]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 64, 100])
@pytest.mark.parametrize("scheme", [SCHEME, CYCLIC, CappedPoisson(50, 1e-3, 10)])
def test_shards_are_equal_in_shape_and_their_union_is_the_batch(scheme, world_size):
    whole = scheme.sampler(KEY)
    shards = [scheme.sampler(KEY).shard(rank, world_size) for rank in range(world_size)]
    rows = -(-scheme.max_batch_size // world_size)
    for step in range(12):
        parts = [shard[step] for shard in shards]
        assert {part.indices.shape for part in parts} == {(rows,)}
        assert {shard.rows for shard in shards} == {rows}
        together = np.concatenate([part.indices[part.mask] for part in parts])
        batch = whole[step]
        assert sorted(together.tolist()) == batch.indices[batch.mask].tolist()
        sizes = [part.size for part in parts]
        assert sum(sizes) == batch.size
        assert max(sizes) - min(sizes) <= 1
        assert [len(shard.batches(9)) for shard in shards] == [9] * world_size


def test_a_shard_says_which_part_it_is():
    shard = SCHEME.sampler(KEY).shard(2, 4)
    assert (shard.rank, shard.world_size, shard.rows) == (2, 4, 16)
    assert repr(shard).endswith("secure=True, rank=2, world_size=4)")
    other = SCHEME.sampler(KEY, secure=False).shard(0, 2)
    assert repr(other).endswith("secure=False, rank=0, world_size=2)")


def test_a_whole_sampler_is_the_only_rank_and_does_not_mention_ranks():
    sampler = SCHEME.sampler(KEY)
    assert (sampler.rank, sampler.world_size, sampler.rows) == (0, 1, 64)
    assert repr(sampler) == f"Sampler({SCHEME!r}, secure=True)"


def golden_module():
    spec = importlib.util.spec_from_file_location("make_batches", GOLDEN / "make_batches.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_golden_batches_have_not_changed():
    module = golden_module()
    rows = json.loads((GOLDEN / "batches.json").read_text())
    assert len(rows) == len(module.CASES) * len(module.KEYS) * 2 * len(module.STEPS)
    for row in rows:
        assert module.drawn(row["scheme"], row["key"], row["secure"], row["step"]) == row["indices"], row


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda s: s[-1], "step=-1 is below 0"),
        (lambda s: s[2**63], r"step=9223372036854775808 is above 2\*\*63 - 1"),
        (lambda s: s["3"], "step='3' is not an integer"),
        (lambda s: s[1.5], "step=1.5 is not an integer"),
        (lambda s: s[None], "step=None is not an integer"),
        (lambda s: s[True], "step=True is not an integer"),
        (lambda s: s[1, 2], r"step=\(1, 2\) is not an integer"),
        (lambda s: s[5:], "the slice has no stop"),
        (lambda s: s[-5:3], "start=-5 is below 0"),
        (lambda s: s[:-1], "stop=-1 is below 0"),
        (lambda s: s[9:0:-1], "stride=-1 is below 1"),
        (lambda s: s.batches(-1), "steps=-1 is below 0"),
        (lambda s: s.batches(5, start=6), "start=6 is above 5"),
        (lambda s: s.batches(5, start=-1), "start=-1 is below 0"),
        (lambda s: s.batches(None), "steps=None"),
        (lambda s: s.shard(4, 4), "rank=4 is above 3"),
        (lambda s: s.shard(-1, 4), "rank=-1 is below 0"),
        (lambda s: s.shard(0, 0), "world_size=0 is below 1"),
        (lambda s: s.shard(0, 2).shard(0, 2), "call shard on the whole sampler"),
        (lambda s: s.scheme.sampler(b"short"), "key has 5 bytes, not 16 to 64"),
        (lambda s: s.scheme.sampler(b"x" * 65), "key has 65 bytes"),
        (lambda s: s.scheme.sampler("text"), "key is of type str"),
        (lambda s: s.scheme.sampler(True), "key is of type bool"),
        (lambda s: s.scheme.sampler(1.0), "key is of type float"),
        (lambda s: s.scheme.sampler(-1), "key is a negative integer"),
        (lambda s: s.scheme.sampler(2**256), "key is an integer of 257 bits"),
        (lambda s: s.scheme.sampler(KEY, secure="yes"), "secure='yes' is not a bool"),
        (lambda s: Sampler("scheme", KEY), "scheme='scheme' is not a CappedPoisson"),
    ],
)
def test_bad_input_is_refused_before_anything_is_drawn(monkeypatch, action, message):
    sampler = SCHEME.sampler(KEY)
    for stream in (_streams._PhiloxStream, _streams._AesStream):
        monkeypatch.setattr(stream, "words", lambda *_: pytest.fail("something was drawn"))
    with pytest.raises(FiletError, match=message) as error:
        action(sampler)
    assert isinstance(error.value, ValueError)
    assert "\n" not in str(error.value)
    assert "; " in str(error.value)  # a remedy


@pytest.mark.parametrize(
    ("action", "remedy"),
    [
        (lambda s: s[-1], "pass a step from 0 to 2**63 - 1"),
        (lambda s: s[5:], "pass sampler[start:stop]"),
        (lambda s: s[9:0:-1], "pass sampler[start:stop:stride] with a stride of 1 or more"),
        (lambda s: s.batches(5, start=6), "pass the first step to draw, at most the run's number of steps"),
        (lambda s: s.shard(0, 0), "pass the number of ranks"),
        (lambda s: s.shard(4, 4), "pass this rank, from 0 to world_size - 1"),
    ],
)
def test_a_refusal_says_what_to_pass_instead(action, remedy):
    with pytest.raises(FiletError) as error:
        action(SCHEME.sampler(KEY))
    assert str(error.value).split("; ")[1] == remedy


@pytest.mark.parametrize("dataset_size", [100, 10**12])  # one and eight bytes a row
def test_a_cap_beyond_memory_is_refused_in_words(dataset_size):
    sampler = CappedPoisson(dataset_size, 1e-12, 2**63 - 1).sampler(KEY)
    with pytest.raises(
        InvalidArgumentError, match=r"more than memory holds; pass the number of rows the hardware takes$"
    ):
        sampler[0]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize(("n", "p", "cap"), [(5, 0.5, 2), (6, 0.25, 3), (4, 0.75, 3), (3, 0.5, 7), (5, 0.125, 1)])
@pytest.mark.long
def test_every_batch_of_a_small_data_set_has_its_exact_chance(n, p, cap, overflow, secure):
    sampler = CappedPoisson(n, p, cap, overflow).sampler(key=11, secure=secure)
    counts = Counter(drawn(batch) for batch in sampler.batches(12_000))
    assert_law(counts, subset_law(range(n), p, cap, overflow))


def test_a_probability_of_one_gives_every_subset_of_the_cap():
    sampler = CappedPoisson(6, 1.0, 4).sampler(key=12)
    counts = Counter(drawn(batch) for batch in sampler.batches(10_000))
    assert_law(counts, {batch: Fraction(1, 15) for batch in itertools.combinations(range(6), 4)})


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


# --- what other rooms need of a run ----------------------------------------------------------------------------------


def test_a_fingerprint_tells_keys_apart_and_old_checkpoints_know_it():
    """The literal is what checkpoints have held since the first version: it must never change."""
    assert SCHEME.sampler(KEY).fingerprint == FINGERPRINT == Key(KEY).derive("check", 16).hex()
    assert CYCLIC.sampler(KEY).shard(1, 2).fingerprint == FINGERPRINT
    assert SCHEME.sampler(KEY + b"!").fingerprint != FINGERPRINT
    assert KEY.hex() not in FINGERPRINT


@pytest.mark.parametrize("secure", [False, True])
def test_a_stream_of_a_sampler_is_the_run_s_own(secure):
    words = SCHEME.sampler(KEY, secure=secure).stream(Purpose.NOISE, 3).words(5)
    assert words.tolist() == open_source(Key(KEY), secure=secure).at(Purpose.NOISE, 3).words(5).tolist()
    with pytest.raises(InvalidArgumentError, match="step=-1 is below 0"):
        SCHEME.sampler(KEY, secure=secure).stream(Purpose.NOISE, -1)
