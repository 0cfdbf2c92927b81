"""A few worker processes behind one queue: urgent tasks first, dropped when nobody waits, ended when they take too long."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import FiletError

# What is asked: the point under the slider, tables, curves, the noise of a target, what else takes longer than 0.1 s, plans.
POINT, ROW, CURVE, NOISE, SLOW, PLAN = range(6)
# What each process takes, in this order: the first nothing that takes long, the last nothing that people wait for while dragging.
DUTIES = ((POINT, ROW, CURVE), (NOISE, SLOW, POINT, ROW, CURVE), (PLAN, NOISE, SLOW))
_LIMIT = 64 * 1024 * 1024  # bytes of one answer's line
_YIELDS = 5  # how much nicer each process is than the one before it: what is quick goes first also on a busy machine
_PATIENCE = 3.0  # seconds in which a task that was given up may stop by itself


class TaskError(FiletError):
    """A task has no answer; `kind` says why: invalid, unanswered, cancelled, lost or failed."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class _Unit:
    """One task in a queue."""

    number: int
    task: str
    arguments: tuple[Any, ...]
    report: Callable[[float, str], None] | None
    future: asyncio.Future[Any]


class Pool:
    """Worker processes, one for each entry of `duties`: the kinds of tasks that it takes, the first kind first.

    Guarantees: a task whose caller is cancelled is not started, and if it has been started, its process is free again within
    seconds; a task that takes more than `seconds` ends with an error; after `close` no process is left.
    """

    def __init__(self, duties: Sequence[Sequence[int]] = DUTIES, seconds: float = 60.0) -> None:
        self._duties, self._seconds = duties, seconds
        self._queues: tuple[deque[_Unit], ...] = tuple(deque() for _ in range(PLAN + 1))
        self._numbers = itertools.count(1)
        self._wake = asyncio.Condition()
        self._loops: list[asyncio.Task[None]] = []
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self.running = 0

    @property
    def waiting(self) -> int:
        """Tasks in the queue that somebody waits for."""
        return sum(not unit.future.done() for queue in self._queues for unit in queue)

    @property
    def process_ids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def start(self) -> None:
        """Start the processes; they import filet while the page loads."""
        self._loops = [asyncio.create_task(self._serve(place)) for place in range(len(self._duties))]

    async def close(self) -> None:
        """End every process and refuse what was waiting."""
        self.stop()
        await asyncio.gather(*self._loops, return_exceptions=True)

    def stop(self) -> None:
        """End every process at once, without waiting for it; also from a signal handler."""
        for loop in self._loops:
            loop.cancel()
        for process in self._processes.values():
            _kill(process)
        for unit in (unit for queue in self._queues for unit in queue):
            if not unit.future.done():
                unit.future.set_exception(TaskError("filet explore has been stopped", "lost"))

    async def ask(self, task: str, *arguments: Any, urgency: int = CURVE,
                  report: Callable[[float, str], None] | None = None) -> Any:  # fmt: skip
        """The answer to a task, or `TaskError`. Cancel the caller to give the task up."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        async with self._wake:
            self._queues[urgency].append(_Unit(next(self._numbers), task, arguments, report, future))
            self._wake.notify_all()
        return await future

    async def _next(self, place: int) -> _Unit:
        """The next task that somebody waits for, from the queues that this worker serves, in its order."""
        async with self._wake:
            while True:
                for queue in (self._queues[urgency] for urgency in self._duties[place]):
                    while queue:
                        unit = queue.popleft()
                        if not unit.future.done():
                            return unit
                await self._wake.wait()

    async def _serve(self, place: int) -> None:
        """Take tasks for ever, with a process that is replaced whenever it is lost."""
        process = await self._started(place)
        try:
            while True:
                unit = await self._next(place)
                self.running += 1
                try:
                    if not await self._finished(process, unit):
                        process = await self._started(place)
                finally:
                    self.running -= 1
                    if not unit.future.done():
                        unit.future.set_exception(TaskError("the computation was lost; ask again", "lost"))
        finally:
            _kill(self._processes[place])
            await self._processes.pop(place).wait()

    async def _started(self, place: int) -> asyncio.subprocess.Process:
        old = self._processes.get(place)
        if old is not None:
            _kill(old)
            await old.wait()
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", f"{__package__}.worker", str(_YIELDS * place),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_LIMIT, env={**os.environ, **threads},
        )  # fmt: skip
        self._processes[place] = process
        return process

    async def _finished(self, process: asyncio.subprocess.Process, unit: _Unit) -> bool:
        """Whether the process has dealt with the task, whatever came of it, and can take another."""
        question = {"id": unit.number, "task": unit.task, "arguments": unit.arguments}
        listening = asyncio.ensure_future(self._listen(process, unit))
        try:
            await _send(process, question)
            await asyncio.wait({listening, unit.future}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
            if not listening.done():  # given up, or too slow
                if not unit.future.done():
                    text = f"this took more than {self._seconds:g} seconds and was ended; ask for less at a time"
                    unit.future.set_exception(TaskError(text, "unanswered"))
                await _send(process, {"cancel": unit.number})
                await asyncio.wait({listening}, timeout=_PATIENCE)
            return listening.done() and not listening.cancelled() and listening.exception() is None
        except ConnectionError:
            return False
        finally:
            listening.cancel()

    async def _listen(self, process: asyncio.subprocess.Process, unit: _Unit) -> None:
        """Pass on what the process says of the task until it is done."""
        assert process.stdout is not None
        while True:
            line = await process.stdout.readline()
            if not line:
                raise ConnectionResetError("the worker process ended")
            message = json.loads(line)
            if message["id"] != unit.number:
                continue
            if "share" in message:
                if unit.report is not None and not unit.future.done():
                    unit.report(message["share"], message["label"])
                continue
            if not unit.future.done():
                if "error" in message:
                    unit.future.set_exception(TaskError(message["error"], message["kind"]))
                else:
                    unit.future.set_result(message["answer"])
            return


async def _send(process: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    await process.stdin.drain()


def _kill(process: asyncio.subprocess.Process) -> None:
    """End a process, also twice. Not by its own `kill`, which would take its exit status away from the loop that waits for it."""
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None and hasattr(signal, "SIGKILL"):
            os.kill(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
