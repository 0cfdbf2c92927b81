"""Worker processes of the page: one for quick tasks, one for slow ones, one for plans.

Each takes one task at a time over a pipe. The standard library's process pools are not used: they
cannot end one task without the others, nor report progress, and a killed server leaves them behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from ..errors import FiletError, InvalidArgumentError, NoSolutionError

QUICK, SLOW, PLAN = range(3)  # lanes: each is nicer to other processes than the one before it
_NICER = 5
_SECONDS = 60.0  # that a task may take
_PATIENCE = 2.0  # seconds in which a task that was given up may end by itself: a new process costs more
STOPS = {signal.SIGINT, signal.SIGTERM}
_PROCESSES = multiprocessing.get_context("spawn")
Report = Callable[[float, str], None]


class TaskError(FiletError):
    """A task has no answer; `kind` says why: invalid, unanswered, lost or failed."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Pool:
    """One process a lane.

    Guarantees: a task whose caller is cancelled is not started, or its process is free within
    `_PATIENCE`; a task that takes more than `seconds` ends with an error; `stop` leaves no process.
    """

    def __init__(self, seconds: float = _SECONDS) -> None:
        self.seconds = seconds
        self._lanes: list[_Lane] = []

    @property
    def processes(self) -> list[int]:
        """The process numbers, in the order of the lanes."""
        return [lane.process.pid or 0 for lane in self._lanes]

    def start(self) -> None:
        """Start the processes; they import filet while the page loads."""
        self._lanes = [_Lane(number * _NICER) for number in range(PLAN + 1)]

    def stop(self) -> None:
        """End every process at once; signal handlers may call it too."""
        for lane in self._lanes:
            lane.stop()

    async def ask(self, lane: int, task: str, *arguments: Any, report: Report | None = None) -> Any:
        """The answer to a task, or `TaskError`. Cancel the caller to give the task up.

        A task may also run one lane further, where that one is free.
        """
        free = [one for one in self._lanes[lane : lane + 2] if not one.busy]
        chosen = free[0] if free else self._lanes[lane]
        return await chosen.run(task, arguments, report, self.seconds)


class _Lane:
    """One process, replaced when it is lost or does not stop.

    One task at a time, in their order.
    """

    def __init__(self, niceness: int) -> None:
        self._niceness = niceness
        self._free = asyncio.Lock()
        self._stopped = False
        self._start()

    def _start(self) -> None:
        if os.name == "posix":  # Python 3.11 lets signals through as it starts this helper: before they are held
            resource_tracker.ensure_running()
        with held_signals():  # the new process inherits the mask: Ctrl-C is the server's to handle
            self._connection, theirs = _PROCESSES.Pipe()
            arguments = (theirs, self._niceness)
            self.process = _PROCESSES.Process(target=work, args=arguments, daemon=True)
            self.process.start()
        theirs.close()

    @property
    def busy(self) -> bool:
        return self._free.locked()

    def stop(self) -> None:
        self._stopped = True
        self.process.kill()

    async def run(self, task: str, arguments: tuple[Any, ...], report: Report | None, seconds: float) -> Any:
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        pass_on = report and (lambda *told: loop.call_soon_threadsafe(report, *told))
        talking = loop.run_in_executor(None, _talk, self._connection, task, arguments, pass_on)
        talking.add_done_callback(asyncio.Future.exception)  # or Python reports it as not retrieved
        try:
            await asyncio.wait({talking}, timeout=seconds)
            if not talking.done():
                text = f"this took more than {seconds:g} seconds and was ended; ask for less at a time"
                raise TaskError(text, "unanswered")
            return await talking
        finally:
            # A task of its own: the caller need not wait, and cannot be cancelled out of it.
            self._ending = loop.create_task(self._end(talking))

    async def _end(self, talking: asyncio.Future[Any]) -> None:
        """Free the lane once its process has finished, or has been replaced."""
        await asyncio.wait({talking}, timeout=_PATIENCE)
        error = talking.exception() if talking.done() else TaskError("given up", "lost")
        if isinstance(error, TaskError) and error.kind == "lost" and not self._stopped:
            self.process.kill()  # which also ends the thread that listens
            self.process.join()
            self._start()
            await asyncio.wait({talking})
        self._free.release()


def _talk(connection: Connection, task: str, arguments: tuple[Any, ...], report: Callable[..., Any] | None) -> Any:
    """Send a task to a process, pass its reports on, and return its answer."""
    try:
        connection.send((task, arguments, report is not None))
        kind, content = connection.recv()
        while kind == "report":
            assert report is not None
            report(*content)
            kind, content = connection.recv()
        if kind == "error":
            raise TaskError(*content)
        return content
    except (EOFError, OSError):
        raise TaskError("the computation was lost; ask again", "lost") from None


def work(connection: Connection, niceness: int) -> None:
    """Answer tasks until the server ends: the main function of a worker process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where signals cannot be held
    if hasattr(os, "nice"):
        os.nice(niceness)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    from . import tasks  # only here: NumPy reads these variables as it is imported

    def report(share: float, label: str) -> None:
        connection.send(("report", (share, label)))

    with contextlib.suppress(EOFError, OSError):
        while True:
            task, arguments, reports = connection.recv()
            progress = {"progress": report} if reports else {}
            try:
                answer = ("answer", getattr(tasks, task)(*arguments, **progress))
            except Exception as error:
                answer = ("error", described(task, error))
            connection.send(answer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)  # nobody reads what is being computed


def described(task: str, error: Exception) -> tuple[str, str]:
    """The error of a task as one line, and its kind."""
    if isinstance(error, FiletError):
        bad = isinstance(error, InvalidArgumentError) and not isinstance(error, NoSolutionError)
        return " ".join(str(error).split()), "invalid" if bad else "unanswered"
    if isinstance(error, ArithmeticError):
        return f"these numbers are out of range ({error}); please report them", "unanswered"
    if isinstance(error, MemoryError):
        return "not enough memory for this question; ask for less at a time", "unanswered"
    traceback.print_exception(error)
    return f"{task} failed; the terminal of filet explore has the details", "failed"


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Hold back the signals that stop the server, where the system can."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
