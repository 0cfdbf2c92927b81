"""Keys: what is taken, what is told apart, and what is never shown."""

import itertools
import os
import pickle
import secrets
import stat
import warnings

import numpy as np
import pytest
from tests.sampling.laws import same

from filet.errors import FiletError, InvalidArgumentError
from filet.sampling.keys import Key, read_key_file, write_key_file
from filet.sampling.mechanism import noisy_sum
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


def test_an_integer_that_can_be_found_by_trying_is_warned_of_at_the_callers_line():
    for short in (0, 7, 2**64 - 1, np.int32(5)):
        with pytest.warns(
            UserWarning, match=r"key is an integer below 2\*\*64.*found by trying.*token_bytes"
        ) as caught:
            SCHEME.sampler(short)
        assert [warning.filename for warning in caught] == [__file__]
        with pytest.warns(UserWarning, match="below") as caught:
            noisy_sum(np.zeros((1000, 1)), SCHEME, noise_multiplier=1.0, key=short, step=0)
        assert [warning.filename for warning in caught] == [__file__]


def test_a_short_key_is_warned_of_once_and_a_long_one_never():
    with pytest.warns(UserWarning, match="found by trying") as caught:
        made = SCHEME.sampler(2**64 - 1)
    assert [str(warning.message) for warning in caught] == [
        "key is an integer below 2**64, which can be found by trying: batches and noise would not be secret; pass 16 to 64"
        " random bytes such as secrets.token_bytes(32), or None for a fresh key"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for enough in (2**64, secrets.randbits(256) | 2**200, bytes(16), None):
            sampler = SCHEME.sampler(enough)
        pickle.loads(pickle.dumps(made)).shard(0, 2)  # said once is enough
    assert sampler[0].indices.size == 64


def test_what_a_key_means_never_changes():
    """As first released: another secret would change the batches of every run that goes on."""
    number = 2**255 + 12345
    assert Key(KEY).secret.hex() == "89a4a570452670cbb7ae47d0e8abdda1bfb36d656639e28ca7301316fd84550f"
    assert Key(number).secret.hex() == "f67256b828434db5bf96a312a781dd43a2b1c67f13f201bd95564723cebcc072"
    assert Key(KEY).derive("check", 16).hex() == "37517a069ae159eeb8ab71ccc344929b"
    assert Key(number).derive("check", 16).hex() == "bc7e54c9f427a866d9df3229d076795b"
    assert Key(KEY).derive("other", 16) != Key(KEY).derive("check", 16)
    saved = Key.from_secret(bytearray(Key(KEY).secret))
    assert (type(saved), saved.secret) == (Key, Key(KEY).secret)
    assert type(saved.secret) is bytes


@pytest.mark.parametrize(("key", "fact"), [
    (-5, "key is a negative integer"), (2**256, "key is an integer of 257 bits, more than 256"), (bytes(15), "key has 15 bytes, not 16 to 64"),
    (bytes(65), "key has 65 bytes, not 16 to 64"), ("a key of 16 byte", "key is of type str, not bytes or int"),
])  # fmt: skip
def test_what_is_no_key_is_refused_with_the_remedy(key, fact):
    remedy = "pass 16 to 64 random bytes such as secrets.token_bytes(32), or None for a fresh key"
    with pytest.raises(InvalidArgumentError) as caught:
        Key(key)
    assert str(caught.value) == f"{fact}; {remedy}"


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


def test_a_fresh_key_file_is_the_owner_s_alone_whatever_the_umask(tmp_path):
    old = os.umask(0)
    try:
        write_key_file(tmp_path / "one.key")
    finally:
        os.umask(old)
    write_key_file(str(tmp_path / "two.key"))
    assert stat.S_IMODE((tmp_path / "one.key").stat().st_mode) == 0o600
    keys = [read_key_file(tmp_path / name) for name in ("one.key", "two.key")]
    assert [len(key) for key in keys] == [32, 32]
    assert keys[0] != keys[1]
    assert SCHEME.sampler(keys[0])[0] != SCHEME.sampler(keys[1])[0]


def test_a_key_file_is_never_replaced(tmp_path):
    (tmp_path / "run.key").write_bytes(KEY)
    (tmp_path / "link.key").symlink_to(tmp_path / "nowhere")
    for name in ("run.key", "link.key"):
        with pytest.raises(FiletError, match="it exists, and a key is not replaced; choose another name"):
            write_key_file(tmp_path / name)
    assert (tmp_path / "run.key").read_bytes() == KEY
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(FiletError, match="No such file or directory; choose a writable directory"):
        write_key_file(tmp_path / "none" / "run.key")


def test_a_disk_that_fails_leaves_no_half_key_behind(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FiletError, match="No space left on device; nothing was changed"):
        write_key_file(tmp_path / "run.key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o644, 0o610])
def test_a_key_file_that_others_can_open_is_refused_with_the_remedy(tmp_path, mode):
    file = tmp_path / "run.key"
    file.write_bytes(KEY)
    file.chmod(mode)
    with pytest.raises(InvalidArgumentError, match=rf"has mode {mode:04o}, .*; run chmod 600 .*run\.key$") as error:
        read_key_file(file)
    assert "\n" not in str(error.value)
    file.chmod(0o600)
    assert read_key_file(file) == KEY
    file.chmod(0o400)
    assert read_key_file(file) == KEY
    longest = tmp_path / "longest.key"
    longest.write_bytes(bytes(64))
    longest.chmod(0o600)
    assert read_key_file(longest) == bytes(64)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"short", "holds 5 bytes, not 16 to 64"), (bytes(65), "holds more than 64 bytes"), (b"", "holds 0 bytes")],
)
def test_a_key_file_of_a_wrong_length_is_refused_without_its_contents(tmp_path, content, message):
    file = tmp_path / "run.key"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(InvalidArgumentError, match=message) as error:
        read_key_file(file)
    assert "short" not in str(error.value)


def test_a_missing_key_file_is_named(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"cannot read the key file .*none\.key.*No such file"):
        read_key_file(tmp_path / "none.key")
    with pytest.raises(InvalidArgumentError, match="Is a directory"):
        read_key_file(tmp_path)
