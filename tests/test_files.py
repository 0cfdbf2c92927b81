"""Whole files: all or nothing, modes kept, links followed, nobody else's business."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from filet._files import check_writable, whole_file
from filet.errors import InvalidArgumentError, OutputError, StateError

posix = pytest.mark.skipif(os.name != "posix", reason="file modes and links")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def half_written(path: Path, error: BaseException) -> None:
    with whole_file(path) as temporary:
        temporary.write_text("half")
        raise error


def write(path: Path, text: str = "new", **options: bool) -> int:
    """Write a file; returns the mode of the temporary one while it is written."""
    with whole_file(path, **options) as temporary:  # type: ignore[arg-type]
        temporary.write_text(text)
        return mode(temporary)


@pytest.fixture
def open_umask() -> Iterator[None]:
    mask = os.umask(0o022)
    yield
    os.umask(mask)


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with whole_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent
        assert temporary.suffix == ".txt"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_error_on_the_way_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    expected = OutputError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as caught:
        half_written(path, error)
    if expected is OutputError:
        assert str(caught.value) == f"cannot write {str(path)!r}: No space left on device; nothing was changed"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@posix
@pytest.mark.usefixtures("open_umask")
def test_new_files_follow_the_umask_and_secrets_do_not(tmp_path: Path) -> None:
    assert write(tmp_path / "shown") == mode(tmp_path / "shown") == 0o644
    assert write(tmp_path / "secret", secret=True) == mode(tmp_path / "secret") == 0o600


@posix
@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("bits", [0o600, 0o640, 0o664, 0o444, 0o200])
@pytest.mark.parametrize("secret", [False, True])
def test_an_existing_file_keeps_its_mode_and_is_closed_meanwhile(tmp_path: Path, bits: int, secret: bool) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    path.chmod(bits)
    assert write(path, secret=secret) == 0o600
    assert mode(path) == bits


@posix
def test_the_processs_umask_is_not_touched(tmp_path: Path) -> None:
    """A file that another thread makes at the same time must not become writable for all."""
    mask = os.umask(0o077)
    try:
        stop = threading.Event()
        modes = set()

        def keep_making() -> None:
            while not stop.is_set():
                path = tmp_path / "other"
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
                modes.add(mode(path))
                path.unlink()

        other = threading.Thread(target=keep_making)
        other.start()
        for number in range(200):
            write(tmp_path / f"{number}.txt")
        stop.set()
        other.join()
    finally:
        os.umask(mask)
    assert modes == {0o600}


@posix
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed_and_stays_a_link(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    real, link, second = tmp_path / "there" / "real", tmp_path / "here" / "link", tmp_path / "second"
    if exists:
        real.write_text("old")
        real.chmod(0o640)
    link.symlink_to("../there/real")
    second.symlink_to(link)
    write(second)
    assert second.is_symlink()
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert not exists or mode(real) == 0o640
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["link"]
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["real"]


@posix
def test_what_is_no_regular_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    loop, pipe = tmp_path / "loop", tmp_path / "pipe"
    loop.symlink_to("loop")
    os.mkfifo(pipe)
    for path in (tmp_path, loop, pipe, Path("/dev/null")):
        with pytest.raises(OutputError, match="it is not a regular file; choose another name"):
            write(path)
    assert loop.is_symlink()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loop", "pipe"]


@posix
def test_the_directory_is_flushed_after_the_file_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[tuple[bool, bool]] = []
    real = os.fsync

    def watched(handle: int) -> None:
        flushed.append((stat.S_ISDIR(os.fstat(handle).st_mode), (tmp_path / "a.txt").exists()))
        real(handle)

    monkeypatch.setattr(os, "fsync", watched)
    write(tmp_path / "a.txt")
    assert flushed == [(False, False), (True, True)]  # the file before the rename, the directory after it


def test_what_cannot_be_written_is_said_in_one_line_of_the_callers_class(tmp_path: Path) -> None:
    path = tmp_path / "no" / "a.txt"
    for kind in (OutputError, StateError):
        with pytest.raises(kind) as caught, whole_file(path, error=kind):
            pass
        assert (
            str(caught.value) == f"cannot write {str(path)!r}: No such file or directory; choose a writable directory"
        )
    with pytest.raises(OutputError, match="name too long"):
        write(tmp_path / ("n" * 300))
    with pytest.raises(InvalidArgumentError, match="holds a zero byte"), whole_file("a\0b"):
        pass


def test_names_as_long_as_the_file_system_takes_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 251 + ".txt")
    write(path)
    assert path.read_text() == "new"
    path = tmp_path / ("a." + "x" * 250)
    write(path)
    assert path.read_text() == "new"


def test_what_can_be_written_is_tried_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    check_writable(path)
    assert list(tmp_path.iterdir()) == []
    path.write_text("old")
    check_writable(path)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "old"
    for wrong, words in (
        (tmp_path, "not a regular file"),
        (path / "b", "Not a directory"),
        (tmp_path / "c" / "d", "No such"),
    ):
        with pytest.raises(OutputError, match=words):
            check_writable(wrong)


@posix
def test_a_name_that_the_file_system_cannot_encode_is_refused(tmp_path: Path) -> None:
    code = """import sys
from filet import Accountant, FiletError
assert sys.getfilesystemencoding() == "ascii"
accountant = Accountant("zero-out")
for act in (accountant.save, Accountant.load):
    try:
        act("caf\\xe9.json")
    except FiletError as error:
        print(error)
"""
    variables = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    outcome = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, cwd=tmp_path, capture_output=True, check=True
    )
    assert outcome.stdout.splitlines() == 2 * [
        rb"path='caf\xe9.json' has characters that file names cannot have here (ascii); pass another name, or set PYTHONUTF8=1"
    ]
    assert list(tmp_path.iterdir()) == []
