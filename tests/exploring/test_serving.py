"""Serving: this machine only, a port that is free, and an end at once."""

import contextlib
import os
import signal
import socket
import threading
import time

import httpx
import pytest
from tests.exploring.served import HANGS, LONG, Served, gone

from filet.errors import InvalidArgumentError, OutputError
from filet.exploring import serving

pytestmark = pytest.mark.long


def test_the_socket_is_this_machines_alone():
    with serving.loopback_socket(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


def test_a_busy_port_is_a_clear_error():
    with serving.loopback_socket(0) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(OutputError, match=f"port {port} is in use; pass another --port"):
            serving.loopback_socket(port)


def test_without_a_port_the_next_free_one_is_taken():
    with serving.loopback_socket(None) as first, serving.loopback_socket(None) as second:
        assert first.getsockname() != second.getsockname()


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_must_be_one(port):
    with pytest.raises(InvalidArgumentError, match=f"port={port}"):
        serving.loopback_socket(port)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_stops_it_in_the_middle_of_a_plan_and_leaves_no_process(number, code):
    served = Served("--port", 0)
    begun = threading.Event()
    lines = []

    def ask():
        headers = {"accept": "application/x-ndjson"}
        options = {"json": LONG, "headers": headers, "timeout": HANGS}
        stream = httpx.stream("POST", f"{served.url}api/plan", **options)
        with contextlib.suppress(httpx.HTTPError), stream as answer:  # an error: the server is gone
            for line in answer.iter_lines():
                lines.append(line)
                begun.set()

    asking = [threading.Thread(target=ask) for _ in range(3)]  # one is computed, two wait
    for one in asking:
        one.start()
    assert begun.wait(HANGS)
    workers = served.workers()
    assert len(workers) >= 3
    said = served.stop(number)
    assert served.process.returncode == code
    assert said.splitlines() == ["filet: Ctrl-C stops"]  # no traceback
    for one in asking:
        one.join(HANGS)
    assert not any("result" in line for line in lines)  # nobody waited for the plan
    assert all(gone(pid) for pid in workers)


@pytest.mark.parametrize("started", [1, 2, 3, 4])  # a helper of Python's, and three workers
def test_ctrl_c_in_the_terminal_while_the_processes_start_is_quiet(started):
    served = Served("--port", 0, start_new_session=True)
    while len(served.workers()) < started:
        time.sleep(0.001)
    os.killpg(served.process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    assert served.process.communicate(timeout=HANGS)[1].splitlines() == ["filet: Ctrl-C stops"]
    assert served.process.returncode == 0


def test_the_port_is_free_again_after_it():
    served = Served("--port", 0)
    port = int(served.url.rsplit(":", 1)[1].strip("/"))
    served.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_before_the_server_is_there_waits_for_it(monkeypatch, number):
    heard = []

    def run(server, sockets):
        assert signal.sigpending() == {number}
        with server.capture_signals():
            heard.append(server.should_exit)
            server._captured_signals.clear()  # nothing is left to raise again

    monkeypatch.setattr(serving.Server, "run", run)
    with serving.loopback_socket(0) as listening:
        serving.serve(listening, browser=False, announce=lambda: signal.pthread_kill(threading.get_ident(), number))
    assert heard == [True]
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGINT, signal.SIGTERM}
