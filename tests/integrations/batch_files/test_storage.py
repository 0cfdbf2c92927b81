"""Storage: local files, fsspec's and Beam's are read, written whole, listed and cleaned alike."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import fsspec
import numpy as np
import pytest
from tests.integrations import beam_jobs

import filet
from filet.integrations.batch_files import storage

assert beam_jobs.VaultFileSystem.scheme() == "vault"  # importing it makes Beam know the scheme


@pytest.fixture(params=["local", "fsspec", "beam"])
def folder(request, tmp_path):
    if request.param == "fsspec":
        path = f"memory://{tmp_path.name}"
        storage.write_whole(path, "_", b"")  # a directory is there once it has a file
        yield path
        fsspec.filesystem("memory").rm(tmp_path.name, recursive=True)
    else:
        (tmp_path / "out").mkdir()
        yield f"vault://{tmp_path}/out" if request.param == "beam" else str(tmp_path / "out")


def test_a_file_is_written_replaced_listed_and_read(folder):
    for content in (b"old", b"new content"):
        storage.write_whole(folder, "a.bin", content)
    storage.write_whole(folder, "_SUCCESS", b"")
    storage.write_whole(folder, ".a.bin.0123", b"half")
    path = storage.joined(folder, "a.bin")
    found = storage.content_of(path)
    assert found.tobytes() == b"new content"
    found[0] = 0  # a copy of its own
    with storage.opened(path) as file:
        assert file.read() == b"new content"
    assert storage.exists(path)
    assert not storage.exists(path + "x")
    assert [name.rsplit("/", 1)[1] for name in storage.matching(storage.joined(folder, "*"))] == ["a.bin"]
    storage.remove_partial(folder, (".a.bin.", ".none"))
    assert not storage.exists(storage.joined(folder, ".a.bin.0123"))
    assert storage.exists(path)


def test_what_is_not_there_is_named(folder):
    with pytest.raises(filet.StateError, match=r"cannot read '.*none.bin'.*restore it"):
        storage.content_of(storage.joined(folder, "none.bin"))
    with pytest.raises(filet.InvalidArgumentError, match=r"no file matches '.*\*\.csv'; pass a directory"):
        storage.matching(storage.joined(folder, "*.csv"))


def test_a_checked_content_does_not_change_with_its_file(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(10_000))
    content = storage.content_of(str(path))
    path.write_bytes(b"short")  # a memory map would end the process here
    assert np.array_equal(content, np.zeros(10_000, np.uint8))


def test_an_unknown_scheme_says_what_to_install():
    code = """
        import sys
        sys.modules["apache_beam"] = sys.modules["fsspec"] = None
        import filet
        from filet.integrations.batch_files import open_batches
        try:
            open_batches("s3://bucket/run")
        except filet.FiletError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == (
        "nothing here reads s3:// paths; install fsspec and its package for them, or pass a local path\n"
    )


def test_a_directory_that_cannot_be_written_says_so(tmp_path):
    Path(tmp_path, "file").write_bytes(b"")
    with pytest.raises(filet.OutputError, match="choose a writable directory"):
        storage.write_whole(str(tmp_path / "file"), "a.bin", b"")
