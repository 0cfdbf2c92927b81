"""One batch: its fixed shape, what it shows, and the rows that it takes."""

import collections
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filet.errors import InvalidArgumentError
from filet.sampling.batch import Batch
from filet.scheme import CappedPoisson

SCHEME = CappedPoisson(dataset_size=1000, sampling_probability=0.05, max_batch_size=64)
KEY = b"a key of 16 byte"
Pair = collections.namedtuple("Pair", "x y")


@settings(max_examples=150)
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
    assert {batch.indices.dtype for batch in batches} == {np.dtype(np.int32)}
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


def test_batch_is_frozen():
    batch = SCHEME.sampler(KEY)[0]
    assert isinstance(batch, Batch)
    with pytest.raises(AttributeError):
        batch.size = 3


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


def test_a_number_of_another_precision_must_be_one_of_the_data_s():
    """A plain 0.1 is rounded to the data's type; NumPy's 0.1 of twice the precision would be changed."""
    batch = CappedPoisson(20, 0.3, 16).sampler(b"a key of 16 byte")[0]
    data = np.zeros(20, dtype=np.float32)
    assert (batch.take(data, fill=0.1)[batch.size :] == np.float32(0.1)).all()
    assert (batch.take(data, fill=np.float64(0.5))[batch.size :] == 0.5).all()
    with pytest.raises(InvalidArgumentError, match=r"does not fit data of type float32; pass a value of that type"):
        batch.take(data, fill=np.float64(0.1))


def test_where_the_number_of_records_is_secret_data_have_as_many_rows_and_no_message_says_how_many():
    scheme = CappedPoisson(1000, 0.05, 64, overflow="reject", size="secret")
    batch = scheme.sampler(KEY, records=700)[0]
    assert batch.size > 0
    assert batch.take(np.arange(700))[: batch.size].tolist() == batch.indices[: batch.size].tolist()
    for rows in (699, 1000):
        with pytest.raises(InvalidArgumentError) as caught:
            batch.take(np.arange(rows))
        assert str(caught.value) == "data has not as many rows as the sampler's records; pass the whole data set"
