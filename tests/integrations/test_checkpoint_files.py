"""Files of checkpoints: whole or not at all, and those with a key for their owner only."""

from __future__ import annotations

import io
import os
import stat

import pytest

from filet.integrations._checkpoint_files import target


def test_a_checkpoint_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "run.pt"
    path.write_text("before")

    def fails():
        with target(path, secret=False) as file:
            file.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert path.read_text() == "before"
    with target(path, secret=False) as file:
        file.write_text("all")
    assert path.read_text() == "all"
    assert os.listdir(tmp_path) == ["run.pt"]


def test_a_checkpoint_with_a_key_is_for_its_owner_only_also_where_a_wider_one_was(tmp_path):
    path = tmp_path / "run.pt"
    path.write_text("before")
    path.chmod(0o644)
    with target(path, secret=True) as file:
        file.write_text("with a key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_open_file_is_written_to_as_it_is():
    given = io.BytesIO()
    with target(given, secret=True) as file:
        assert file is given
