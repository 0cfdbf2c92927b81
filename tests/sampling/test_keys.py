"""Keys: what is taken, what is told apart, and what is never shown."""

import itertools
import secrets

import numpy as np
import pytest
from tests.sampling.laws import same

from filet.errors import InvalidArgumentError
from filet.scheme import CappedPoisson

SCHEME = CappedPoisson(dataset_size=1000, sampling_probability=0.05, max_batch_size=64)
CYCLIC = CappedPoisson(
    dataset_size=1003, sampling_probability=0.2, max_batch_size=60, overflow="reject", cycle_length=4
)
KEY = b"a key of 16 byte"


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
