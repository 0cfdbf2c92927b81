"""Keys: what is taken, what is told apart, and what is never shown."""

import itertools
import os
import secrets
import stat

import numpy as np
import pytest
from tests.sampling.laws import same

from filet.errors import FiletError, InvalidArgumentError
from filet.sampling.keys import read_key_file, write_key_file
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
