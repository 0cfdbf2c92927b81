"""Serving: this machine only, a port that is free, and an end at once."""

import contextlib
import signal
import socket
import threading
import time

import httpx
import pytest
from tests.exploring.served import RUN, Served

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
def test_a_signal_stops_it_at_once_in_the_middle_of_a_plan(number, code):
    served = Served("--port", 0)
    caps = list(range(200, 400))
    long = {key: RUN[key] for key in ("dataset_size", "steps", "delta", "adjacency")} | {
        "epsilon": 3.0,
        "max_batch_size": caps,
    }

    def ask():
        with contextlib.suppress(httpx.HTTPError):  # the server is gone
            served.ask("plan", long)

    asking = threading.Thread(target=ask)
    asking.start()
    workers = served.workers()
    end = time.monotonic() + 20
    while (len(workers) < 3 or served.idle(0.2)) and time.monotonic() < end:
        workers = served.workers()
    seconds, said = served.stop(number)
    assert seconds < 3.0
    assert served.process.returncode == code
    assert said.splitlines() == ["filet: Ctrl-C stops"]  # no traceback
    asking.join(10)
    assert not asking.is_alive()
    for pid in workers:
        assert gone(pid)


def gone(pid, within=5.0):
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                if "exploring.worker" not in file.read():
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


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
