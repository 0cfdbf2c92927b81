"""A worker process: one JSON line in for each task, lines of progress and one of the outcome out. It ends with its input.

A line `{"id": 7, "task": "epsilon", "arguments": [...]}` asks; `{"cancel": 7}` gives up task 7, which stops at its next report
of progress. The server may also end the process: nothing here needs tidying up.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import IO, Any

from .._progress import Progress
from ..errors import FiletError, InvalidArgumentError, NoSolutionError
from .tasks import REPORTING, TASKS


class GivenUpError(Exception):
    """Nobody waits for the answer any more."""


class Worker:
    """Reads questions on a thread of its own, so that giving one up is heard while it is being computed."""

    def __init__(self, source: IO[str], sink: IO[str]) -> None:
        self._source, self._sink = source, sink
        self._asked: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._given_up: set[int] = set()

    def run(self) -> None:
        """Answer until the input ends."""
        threading.Thread(target=self._listen, daemon=True).start()
        while (question := self._asked.get()) is not None:
            self._say({"id": question["id"], **self._outcome(question)})

    def _listen(self) -> None:
        for line in self._source:
            message = json.loads(line)
            if "cancel" in message:
                self._given_up.add(message["cancel"])
            else:
                self._asked.put(message)
        self._asked.put(None)
        if self._source is sys.stdin:
            os._exit(0)  # the server is gone: what is being computed has no reader

    def _outcome(self, question: dict[str, Any]) -> dict[str, Any]:
        number, name = question["id"], question["task"]
        try:
            reports = {"progress": self._progress(number)} if name in REPORTING else {}
            return {"answer": TASKS[name](*question["arguments"], **reports)}
        except GivenUpError:
            return {"error": "given up", "kind": "cancelled"}
        except FiletError as error:
            return {"error": " ".join(str(error).split()), "kind": _kind(error)}
        except ArithmeticError as error:
            return {"error": f"these numbers are out of range ({error}); please report them", "kind": "unanswered"}
        except MemoryError:
            return {"error": "not enough memory for this question; ask for less at a time", "kind": "unanswered"}
        except Exception:
            traceback.print_exc()
            return {"error": f"{name} failed; the terminal of filet explore has the details", "kind": "failed"}
        finally:
            self._given_up.discard(number)

    def _progress(self, number: int) -> Progress:
        def report(share: float, label: str) -> None:
            if number in self._given_up:
                raise GivenUpError
            self._say({"id": number, "share": share, "label": label})

        return report

    def _say(self, message: dict[str, Any]) -> None:
        self._sink.write(json.dumps(message) + "\n")
        self._sink.flush()


def _kind(error: FiletError) -> str:
    if isinstance(error, InvalidArgumentError) and not isinstance(error, NoSolutionError):
        return "invalid"
    return "unanswered"


def main() -> None:
    """Serve standard input; Ctrl-C in the terminal is the server's to handle. The argument is how far to stand back for others."""
    if hasattr(os, "nice"):
        os.nice(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(sys.stdin, sys.stdout).run()


if __name__ == "__main__":
    main()
