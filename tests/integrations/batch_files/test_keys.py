"""Handles of keys: every one leads to the key, and none shows it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from tests.integrations.beam_jobs import (
    secret,
)

import filet
from filet.integrations.beam import (
    KeyCall,
    KeyFile,
    KeyVariable,
)

# --- keys ----------------------------------------------------------------------------------------------------------


def test_every_handle_leads_to_the_key(tmp_path, monkeypatch):
    key = secret(tmp_path)
    value = Path(key.path).read_bytes()
    monkeypatch.setenv("FILET_TEST_KEY", value.hex())
    (tmp_path / "vault_for_tests.py").write_text(f"def fetch():\n    return {value!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    for handle in (
        key,
        KeyVariable("FILET_TEST_KEY"),
        KeyCall("vault_for_tests:fetch"),
        KeyFile(f"vault://{key.path}"),
    ):
        assert handle.read() == value
        assert pickle.loads(pickle.dumps(handle)) == handle


def test_a_handle_that_leads_nowhere_says_so_without_the_key(tmp_path, monkeypatch):
    Path(tmp_path, "open").write_bytes(bytes(32))
    Path(tmp_path, "open").chmod(0o644)
    monkeypatch.setenv("FILET_TEST_SHORT", "00ff")
    monkeypatch.setenv("FILET_TEST_TEXT", "not hex: hunter2")
    wrong: list = [
        (KeyFile(str(tmp_path / "none")), "cannot read the key file"),
        (KeyFile("vault:///no/such/key"), "cannot read the key file"),
        (KeyFile(str(tmp_path / "open")), "others have access"),
        (KeyVariable("FILET_TEST_NONE"), "is not set here"),
        (KeyVariable("FILET_TEST_SHORT"), "holds 2 bytes, not 16 to 64"),
        (KeyVariable("FILET_TEST_TEXT"), "does not hold hex digits"),
        (KeyCall("no_such_module:fetch"), "no function 'no_such_module:fetch' here"),
        (KeyCall("os:getpid"), "os:getpid returned a int, not bytes"),
    ]
    for handle, match in wrong:
        with pytest.raises(filet.InvalidArgumentError, match=match) as caught:
            handle.read()
        assert "hunter2" not in str(caught.value)
