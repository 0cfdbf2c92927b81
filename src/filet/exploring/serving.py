"""Server of the page: a socket of this machine only, an end at once, and the browser."""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from ..errors import InvalidArgumentError, OutputError
from .app import make_app
from .pool import STOPS, Pool, held_signals
from .protection import loopback_hosts

HOST, PORT, _TRIED = "127.0.0.1", 8765, 20


def loopback_socket(port: int | None) -> socket.socket:
    """A listening socket of this machine alone, at the port.

    None: the first free one from 8765 on.
    """
    if port is not None and not 0 <= port <= 65535:
        raise InvalidArgumentError(f"port={port} is not in [0, 65535]; pass a port number, 0 for any free one")
    for tried in [port] if port is not None else [*range(PORT, PORT + _TRIED), 0]:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, tried))
            listening.listen(128)
            return listening
        except OSError as error:
            listening.close()
            if port is None and error.errno == errno.EADDRINUSE:
                continue
            in_use = error.errno == errno.EADDRINUSE
            what = "is in use" if in_use else f"cannot be opened ({error.strerror})"
            raise OutputError(f"port {tried} {what}; pass another --port, or none to take a free one") from None
    raise AssertionError("port 0 is always free")


class Server(uvicorn.Server):
    """A server that ends its processes before all else when it is told to stop."""

    def __init__(self, config: uvicorn.Config, pool: Pool, begin: Callable[[], None]) -> None:
        """`begin` is called once signals are heard."""
        super().__init__(config)
        self._pool = pool
        self._begin = begin

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear signals from here on, also those that came before."""
        with super().capture_signals():
            if hasattr(signal, "pthread_sigmask"):
                signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
            self._begin()
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop: the processes end here, and with them every open answer.

        A second signal does not even wait for the connections.
        """
        self._pool.stop()
        self.force_exit = self.should_exit
        self.should_exit = True
        if sig != signal.SIGINT:  # Ctrl-C is the ordinary way to stop; other signals keep their exit code
            super().handle_exit(sig, frame)


def serve(listening: socket.socket, *, browser: bool, announce: Callable[[], None] = lambda: None) -> None:
    """Serve the page on the socket until Ctrl-C; opens the browser once it is there.

    `announce` tells the user. A signal may follow at once: it is held until the server can take it.
    """
    port = listening.getsockname()[1]
    pool = Pool()
    app = make_app(pool, loopback_hosts(port))
    config = uvicorn.Config(
        app,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=30,
        ws="none",
    )

    def begin() -> None:
        if browser:  # the socket listens already: the browser may come before the server is ready
            opened = (address(listening),)
            threading.Thread(target=webbrowser.open, args=opened, daemon=True).start()

    with held_signals():
        announce()
        Server(config, pool, begin).run(sockets=[listening])


def address(listening: socket.socket) -> str:
    return f"http://{HOST}:{listening.getsockname()[1]}/"
