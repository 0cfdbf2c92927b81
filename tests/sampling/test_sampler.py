"""The sampler as a Python object: shapes, access, keys, shards, pickles, golden batches, bad input."""

import builtins
import collections
import copy
import importlib.util
import itertools
import json
import pickle
import secrets
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filet.errors import FiletError, InvalidArgumentError, MissingExtraError
from filet.sampling import streams as _streams
from filet.sampling.batch import Batch
from filet.sampling.keys import Key
from filet.sampling.sampler import Batches, Sampler
from filet.sampling.streams import Purpose, open_source
from filet.scheme import CappedPoisson

GOLDEN = Path(__file__).parents[1] / "golden"
SCHEME = CappedPoisson(dataset_size=1000, sampling_probability=0.05, max_batch_size=64)
CYCLIC = CappedPoisson(
    dataset_size=1003, sampling_probability=0.2, max_batch_size=60, overflow="reject", cycle_length=4
)
KEY = b"a key of 16 byte"


def same(one, two):
    return one == two and np.array_equal(one.mask, two.mask) and one.size == two.size


# --- batches ---------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    n=st.one_of(st.integers(1, 40), st.integers(1, 2**63 - 1)),
    expected=st.floats(0.01, 60),
    cap=st.integers(1, 50),
    overflow=st.sampled_from(["truncate", "reject"]),
    cycle=st.integers(1, 5),
    step=st.integers(0, 2**63 - 1),
    secure=st.booleans(),
)
def test_a_batch_has_its_fixed_shape_and_distinct_examples_first(*, n, expected, cap, overflow, cycle, step, secure):
    scheme = CappedPoisson(n, min(0.99, expected / n), cap, overflow, cycle_length=min(cycle, n))
    batch = scheme.sampler(KEY, secure=secure)[step]
    assert batch.indices.shape == batch.mask.shape == (cap,)
    assert batch.mask.dtype == np.bool_
    assert batch.size == batch.mask.sum() <= min(cap, scheme.group_size)
    real = batch.indices[: batch.size].astype(object)
    assert np.array_equal(batch.mask, batch.indices >= 0)
    assert np.all(batch.indices[batch.size :] == -1)
    assert np.all(real[1:] > real[:-1])
    assert np.all((real >= 0) & (real < n))


@pytest.mark.parametrize(
    ("n", "dtype"),
    [(1, "int8"), (128, "int8"), (129, "int16"), (2**15, "int16"), (2**15 + 1, "int32"), (2**31, "int32"),
     (2**31 + 1, "int64"), (2**63 - 1, "int64")],
)  # fmt: skip
def test_indices_have_the_smallest_type_that_fits(n, dtype):
    for cycle in {1, min(n, 3)}:
        batch = CappedPoisson(n, min(1.0, 4 / n), 8, cycle_length=cycle).sampler(1)[3]
        assert batch.indices.dtype == dtype


def test_the_cap_may_exceed_the_data_set():
    batch = CappedPoisson(3, 1.0, 7).sampler(1)[0]
    assert batch.indices.tolist() == [0, 1, 2, -1, -1, -1, -1]


def test_empty_batches_are_batches():
    batches = list(CappedPoisson(10**6, 1e-12, 4).sampler(1).batches(5))
    assert [batch.indices.tolist() for batch in batches] == [[-1] * 4] * 5
    rows = batches[0].take(np.ones((10**6, 2)))
    assert rows.tolist() == [[0.0, 0.0]] * 4


def test_batches_compare_by_their_examples():
    sampler = SCHEME.sampler(KEY)
    assert sampler[1] == sampler[1]
    assert sampler[1] != sampler[2]
    assert sampler[1] != CappedPoisson(1001, 0.05, 64).sampler(KEY)[1]
    assert sampler[1] != 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(sampler[1])


def test_a_batch_hides_its_contents():
    batch = SCHEME.sampler(KEY)[0]
    assert repr(batch) == "Batch(<64 rows, contents hidden>, dataset_size=1000)"
    assert str(batch) == repr(batch)


# --- take ------------------------------------------------------------------------------------------------------------

Pair = collections.namedtuple("Pair", "x y")


def test_take_gathers_rows_of_nested_arrays_and_keeps_types():
    batch = CappedPoisson(20, 0.3, 16).sampler(3)[0]
    assert 0 < batch.size < 16
    x = np.arange(20, dtype=np.float32)[:, None] + np.array([100, 200], dtype=np.float32)
    data = {"pair": Pair(x, [np.arange(20), None]), "t": (np.full(20, True),), "names": np.array(["name"] * 20)}
    data["ordered"] = collections.OrderedDict(z=np.arange(20, dtype=np.uint8))
    taken = batch.take(data)
    assert type(taken) is dict
    assert type(taken["pair"]) is Pair
    assert type(taken["pair"].y) is list
    assert type(taken["t"]) is tuple
    assert type(taken["ordered"]) is collections.OrderedDict
    assert taken["pair"].y[1] is None
    rows = taken["pair"].x
    assert rows.dtype == np.float32
    assert rows.shape == (16, 2)
    assert np.array_equal(rows[: batch.size], x[batch.indices[: batch.size]])
    assert not rows[batch.size :].any()
    assert taken["pair"].y[0].tolist() == [*batch.indices[: batch.size].tolist(), *[0] * (16 - batch.size)]
    assert taken["t"][0].tolist() == batch.mask.tolist()
    assert taken["names"].tolist() == ["name"] * batch.size + [""] * (16 - batch.size)
    assert taken["ordered"]["z"].dtype == np.uint8


def test_take_never_reads_the_last_row_for_padding():
    batch = CappedPoisson(20, 0.1, 16).sampler(3)[0]
    assert 19 not in batch.indices
    marked = np.zeros(20)
    marked[-1] = 7
    assert 7 not in batch.take(marked)


def test_take_fills_with_what_it_is_told():
    batch = CappedPoisson(20, 0.3, 16).sampler(3)[0]
    assert np.isnan(batch.take(np.zeros(20), fill=np.nan)[batch.size :]).all()
    assert (batch.take(np.zeros(20, dtype=np.float32), fill=-np.inf)[batch.size :] == -np.inf).all()
    assert (batch.take(np.zeros(20, dtype=np.complex64), fill=0.1j)[batch.size :] == np.complex64(0.1j)).all()
    filled = batch.take(np.zeros(20, dtype=np.int8), fill=-100)
    assert (filled[batch.size :] == -100).all()
    assert filled.dtype == np.int8
    assert (batch.take(np.array(["a"] * 20), fill="b")[batch.size :] == "b").all()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (np.zeros(19), {}, "data has 19 rows, not dataset_size=20"),
        (np.zeros((21, 2)), {}, "data has 21 rows, not dataset_size=20"),
        ({"x": [np.zeros(20), np.zeros(5)]}, {}, r"data\['x'\]\[1\] has 5 rows"),
        (np.float64(1), {}, "data has no rows"),
        ([1, 2, 3], {}, r"data\[0\] is of type int, not an array"),
        ("text", {}, "data is of type str"),
        (types.SimpleNamespace(shape=(20,)), {}, "data is of type SimpleNamespace, not an array"),
        (np.zeros(20, dtype=int), {"fill": 0.5}, "fill=0.5 does not fit data of type int64"),
        ({"x": np.zeros(20, dtype=int)}, {"fill": 0.5}, r"fill=0.5 does not fit data\['x'\] of type int64"),
        (np.zeros(20, dtype=bool), {"fill": np.nan}, "fill=nan does not fit data of type bool"),
        (np.zeros(20, dtype=np.uint8), {"fill": -1}, "fill=-1 does not fit data of type uint8"),
        (np.zeros(20, dtype=np.float32), {"fill": 1e300}, r"fill=1e\+300 does not fit data of type float32"),
        (np.zeros(20, dtype=np.float16), {"fill": 10**6}, r"fill=1000000 does not fit data of type float16"),
        (np.zeros(20, dtype=np.complex64), {"fill": -1e300}, r"fill=-1e\+300 does not fit data of type complex64"),
        (np.zeros(20), {"fill": "x"}, "fill='x' does not fit"),
        (np.zeros(20), {"fill": [1, 2]}, r"fill=\[1, 2\] does not fit"),
    ],
)
def test_take_refuses_what_does_not_fit(data, options, message):
    batch = CappedPoisson(20, 0.3, 16).sampler(3)[0]
    with pytest.raises(InvalidArgumentError, match=message) as error:
        batch.take(data, **options)
    assert "\n" not in str(error.value)


# --- access ----------------------------------------------------------------------------------------------------------


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


def test_a_cycle_of_two_draws_from_one_half_then_the_other():
    sampler = CappedPoisson(1000, 0.5, 300, cycle_length=2).sampler(KEY)
    halves = [set().union(*(batch.indices[batch.mask].tolist() for batch in sampler[start:40:2])) for start in (0, 1)]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == set(range(1000))
    assert halves[0] != set(range(500))


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


# --- shards ----------------------------------------------------------------------------------------------------------


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
    assert repr(shard).endswith("secure=False, rank=2, world_size=4)")
    assert repr(SCHEME.sampler(KEY).shard(0, 2)).endswith("secure=False, rank=0, world_size=2)")


def test_a_whole_sampler_is_the_only_rank_and_does_not_mention_ranks():
    sampler = SCHEME.sampler(KEY)
    assert (sampler.rank, sampler.world_size, sampler.rows) == (0, 1, 64)
    assert repr(sampler) == f"Sampler({SCHEME!r}, secure=False)"


# --- keys and streams ------------------------------------------------------------------------------------------------


def test_without_a_key_every_sampler_is_different():
    assert SCHEME.sampler()[0] != SCHEME.sampler()[0]


def test_fresh_keys_come_from_the_operating_system(monkeypatch):
    monkeypatch.setattr(secrets, "token_bytes", lambda count: b"\x07" * count)
    assert same(SCHEME.sampler()[0], SCHEME.sampler(b"\x07" * 32)[0])


def test_keys_of_every_form_are_told_apart():
    keys = [b"\0" * 16, b"\0" * 17, b"\0" * 32, 0, 1, 2**256 - 1, bytes(15) + b"\1", bytes(range(64))]
    batches = [SCHEME.sampler(key, secure=secure)[0] for key in keys for secure in (False, True)]
    assert all(one != two for one, two in itertools.combinations(batches, 2))


def test_equivalent_keys_agree():
    assert same(SCHEME.sampler(bytearray(KEY))[0], SCHEME.sampler(memoryview(KEY))[0])
    assert same(SCHEME.sampler(np.int64(5))[0], SCHEME.sampler(5)[0])


def test_the_key_is_never_shown():
    key, number = b"very secret key!", 8675309123456789
    shown = []
    for sampler in (SCHEME.sampler(key), CYCLIC.sampler(key, secure=True), SCHEME.sampler(number)):
        shown += [repr(sampler), str(sampler), repr(sampler.batches(3)), repr(sampler[0]), repr(sampler._key)]
        shown += [repr(value) for value in vars(sampler).values()]
        assert repr(sampler._key) == f"{sampler._key}" == "Key(hidden)"
    for bad in (key[:15], key * 5, -number, number << 256, key.decode(), [key], float(number), {"key": key}, True):
        with pytest.raises(InvalidArgumentError) as error:
            SCHEME.sampler(bad)
        shown.append(str(error.value))
    assert not any("very" in text or "8675309" in text or "6765" in text for text in shown)
    assert all("\n" not in text for text in shown)


@pytest.mark.parametrize("secure", [False, True])
def test_streams_of_different_purposes_and_steps_share_no_words(secure):
    source = open_source(Key(KEY), secure=secure)
    steps = [0, 1, 2, 255, 256, 2**32, 2**63 - 1]
    words = [source.at(purpose, step).words(2000) for purpose in Purpose for step in steps]
    assert np.unique(np.concatenate(words)).size == len(words) * 2000


@pytest.mark.parametrize("secure", [False, True])
def test_a_stream_does_not_depend_on_how_it_is_read(secure):
    source = open_source(Key(KEY), secure=secure)
    pieces, whole = source.at(Purpose.BATCH, 5), source.at(Purpose.BATCH, 5).words(60)
    assert np.concatenate([pieces.words(count) for count in (1, 0, 3, 7, 49)]).tolist() == whole.tolist()
    assert whole.flags.writeable
    assert whole.dtype == np.uint64


def philox_block(key, counter):
    """Philox4x64-10 after Salmon et al. 2011, in plain integers."""
    x, (k0, k1) = list(counter), key
    for _ in range(10):
        left, right = x[0] * 0xD2E7470EE14C6C93, x[2] * 0xCA5A826395121157
        x = [right >> 64 ^ x[1] ^ k0, right % 2**64, left >> 64 ^ x[3] ^ k1, left % 2**64]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) % 2**64, (k1 + 0xBB67AE8584CAA73B) % 2**64
    return x


def test_the_default_stream_is_philox_from_block_one():
    key = [int.from_bytes(Key(KEY).derive("philox", 16)[8 * i : 8 * i + 8], "little") for i in range(2)]
    words = open_source(Key(KEY), secure=False).at(Purpose.NOISE, 77).words(12).tolist()
    assert words == [word for block in (1, 2, 3) for word in philox_block(key, (block, 0, 77, 3))]


def test_the_secure_stream_is_aes_in_counter_mode():
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    cipher = Cipher(algorithms.AES(Key(KEY).derive("aes-ctr", 32)), modes.ECB()).encryptor()
    data = cipher.update(b"".join(bytes([1]) + (77).to_bytes(8, "big") + n.to_bytes(7, "big") for n in range(4)))
    expected = [int.from_bytes(data[8 * i : 8 * i + 8], "little") for i in range(8)]
    assert open_source(Key(KEY), secure=True).at(Purpose.BATCH, 77).words(8).tolist() == expected


def test_a_missing_package_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'filet\[secure\]'"):
        SCHEME.sampler(KEY, secure=True)
    SCHEME.sampler(KEY)[0]


# --- golden ----------------------------------------------------------------------------------------------------------


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


# --- bad input -------------------------------------------------------------------------------------------------------


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


def test_batch_is_frozen():
    batch = SCHEME.sampler(KEY)[0]
    assert isinstance(batch, Batch)
    with pytest.raises(AttributeError):
        batch.size = 3
