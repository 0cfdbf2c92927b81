"""Keyed streams of words: what they are made of, and that no two share a block."""

import builtins

import numpy as np
import pytest

from filet.errors import MissingExtraError
from filet.sampling.keys import Key
from filet.sampling.streams import Purpose, open_source
from filet.scheme import CappedPoisson

SCHEME = CappedPoisson(dataset_size=1000, sampling_probability=0.05, max_batch_size=64)
KEY = b"a key of 16 byte"


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


def test_the_plain_stream_is_philox_from_block_one():
    key = [int.from_bytes(Key(KEY).derive("philox", 16)[8 * i : 8 * i + 8], "little") for i in range(2)]
    words = open_source(Key(KEY), secure=False).at(Purpose.NOISE, 77).words(12).tolist()
    assert words == [word for block in (1, 2, 3) for word in philox_block(key, (block, 0, 77, 3))]


def test_the_secure_stream_is_aes_in_counter_mode():
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    cipher = Cipher(algorithms.AES(Key(KEY).derive("aes-ctr", 32)), modes.ECB()).encryptor()
    data = cipher.update(b"".join(bytes([1]) + (77).to_bytes(8, "big") + n.to_bytes(7, "big") for n in range(4)))
    expected = [int.from_bytes(data[8 * i : 8 * i + 8], "little") for i in range(8)]
    assert open_source(Key(KEY), secure=True).at(Purpose.BATCH, 77).words(8).tolist() == expected


def test_a_missing_package_is_named_and_the_plain_stream_needs_none(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install cryptography, or pass secure=False"):
        SCHEME.sampler(KEY)
    assert SCHEME.sampler(KEY, secure=False)[0].indices.shape == (64,)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("purpose", [Purpose.BATCH, Purpose.NOISE])
def test_first_words_of_many_steps_are_those_of_single_streams(secure, count, purpose):
    source = open_source(Key(KEY), secure=secure)
    first_words = source.first_words(purpose, count, 5)
    for steps in (range(5), range(254, 258), range(2**32 - 1, 2**32 + 1), range(2**63 - 3, 2**63), range(7, 8)):
        words = first_words.read(steps)
        assert words.tolist() == [source.at(purpose, step).words(count).tolist() for step in steps]
        assert words.dtype == np.uint64
        assert words.shape == (len(steps), count)
