"""The command group: errors are one line on stderr, with the documented exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from ..errors import FiletError, InvalidArgumentError, NoSolutionError

ANSWERED, CANNOT_ANSWER, USAGE, TARGET_NOT_MET, INTERRUPTED = 0, 1, 2, 3, 130

# The first class that fits decides, so that children stand before their parents. What is not here is a bug and shows.
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (click.UsageError, USAGE),
    (click.ClickException, CANNOT_ANSWER),
    (NoSolutionError, CANNOT_ANSWER),
    (InvalidArgumentError, USAGE),
    (FiletError, CANNOT_ANSWER),
    (click.Abort, INTERRUPTED),
    (KeyboardInterrupt, INTERRUPTED),
    (BrokenPipeError, CANNOT_ANSWER),
    (ArithmeticError, CANNOT_ANSWER),
    (MemoryError, CANNOT_ANSWER),
)


class Group(click.Group):
    """A group whose errors are one line on stderr, with the documented exit codes, however it is called."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name or "filet", **extra)
            sys.stdout.flush()
        except click.exceptions.Exit as stop:
            code = stop.exit_code
        except tuple(kind for kind, _ in EXIT_CODES) as error:
            code = exit_code(error)
            _complain(error)
        sys.exit(code if isinstance(code, int) else ANSWERED)


def exit_code(error: BaseException) -> int:
    """The exit code of an error, by its class."""
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def _complain(error: BaseException) -> None:
    if isinstance(
        error, BrokenPipeError
    ):  # the reader went away: say nothing, and keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    click.echo(f"filet: {' '.join(_words(error).split())}", err=True)


def _words(error: BaseException) -> str:
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "filet"
        return f"{error.format_message().rstrip('.')}; see '{path} --help'"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, FiletError):
        return str(error)
    if isinstance(error, ArithmeticError):
        return f"these numbers are out of range ({error}); please report them"
    if isinstance(error, MemoryError):
        return "not enough memory for this question; ask for less at a time"
    return "interrupted"
