"""`filet explore`: help without its extra, one line where the extra is missing or the port is busy."""

import socket
import sys

import pytest
from tests.cli.invoke import one_line, process, run

import filet.exploring


@pytest.fixture
def missing(monkeypatch):
    """As if the extra were not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("starlette", "uvicorn")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("filet.exploring.")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(
            filet.exploring, name.split(".")[2], raising=False
        )  # a module is its package's attribute too
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "starlette", None)


def test_help_needs_no_extra(missing):
    outcome = run("explore", "--help")
    assert outcome.exit_code == 0
    assert "--port" in outcome.stdout
    assert "--no-browser" in outcome.stdout


def test_a_missing_extra_is_named(missing):
    assert "pip install 'filet[explore]'" in one_line(run("explore", "--no-browser"), 1)


def test_a_busy_port_is_one_line():
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        outcome = process("explore", "--no-browser", "--port", port)
    assert outcome.returncode == 1
    assert outcome.stdout == ""
    assert outcome.stderr == f"filet: port {port} is in use; pass another --port, or none to take a free one\n"


def test_a_port_that_is_none_is_a_usage_error():
    assert "port=70000 is not in [0, 65535]" in one_line(run("explore", "--port", 70000), 2)
