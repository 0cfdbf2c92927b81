"""Files of a Beam job: whole, for their owner only, with a manifest that does not hold the key."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from tests.integrations.beam_jobs import (
    SCHEME,
    STEPS,
    contents,
    created,
    examples,
    sampler_of,
    secret,
    write_job,
)

import filet


def test_the_manifest_says_what_was_run_and_not_the_key(tmp_path):
    key = secret(tmp_path)
    write_job(created(examples()), tmp_path / "out", key)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert filet.CappedPoisson(**manifest["scheme"]) == SCHEME
    assert (manifest["start"], manifest["steps"], manifest["format"]) == (0, STEPS, "arrow")
    assert manifest["fingerprint"] == sampler_of(SCHEME, key).fingerprint
    assert [one["name"] for one in manifest["fields"]] == ["image", "label", "weight"]
    assert manifest["files"][0]["name"] == "batches-00000-of-00004.arrow"
    assert Path(key.path).read_bytes().hex() not in json.dumps(manifest)


# --- modes and other file systems ----------------------------------------------------------------------------------


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_files_are_for_their_owner_only_also_where_wider_ones_were(tmp_path):
    old = os.umask(0)
    try:
        write_job(created(examples()), tmp_path / "new" / "out", secret(tmp_path))
        name = "batches-00000-of-00004.arrow"
        (tmp_path / "wide").mkdir(mode=0o755)
        (tmp_path / "wide" / name).write_bytes(b"anything")
        write_job(created(examples()), tmp_path / "wide", secret(tmp_path))
    finally:
        os.umask(old)
    assert mode(tmp_path / "new" / "out") == 0o700
    for folder in (tmp_path / "new" / "out", tmp_path / "wide"):
        assert {mode(path) for path in folder.iterdir()} == {0o600}
    assert contents(tmp_path / "wide") == contents(tmp_path / "new" / "out")


def test_an_output_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(filet.OutputError, match=r"cannot write '.*file/out/batches-.*': Not a directory"):
        write_job(created(examples()), tmp_path / "file" / "out", secret(tmp_path))
