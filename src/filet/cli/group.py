"""The command group: one-line errors on stderr, documented exit codes, no option ignored."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from ..errors import FiletError, InvalidArgumentError, NoSolutionError

ANSWERED, CANNOT_ANSWER, USAGE, TARGET_NOT_MET, INTERRUPTED = 0, 1, 2, 3, 130

# The first class that fits decides: children stand before their parents. All other errors are bugs
# and show their traceback.
EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (click.UsageError, USAGE),
    (click.ClickException, CANNOT_ANSWER),
    (NoSolutionError, CANNOT_ANSWER),
    (InvalidArgumentError, USAGE),
    (FiletError, CANNOT_ANSWER),
    (click.Abort, INTERRUPTED),
    (KeyboardInterrupt, INTERRUPTED),
    (OSError, CANNOT_ANSWER),  # of standard output; files have errors of their own
    (ArithmeticError, CANNOT_ANSWER),
    (MemoryError, CANNOT_ANSWER),
)


class Command(click.Command):
    """A command that refuses an option given twice, of which Click would silently keep the last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            self._refuse_repeated(ctx, list(args))
        return super().parse_args(ctx, args)

    def _refuse_repeated(self, ctx: click.Context, args: list[str]) -> None:
        _, _, order = self.make_parser(ctx).parse_args(args)
        if any(param.is_eager for param in order):  # help is shown whatever else is there
            return
        for param in order:
            if isinstance(param, click.Option) and not param.multiple and order.count(param) > 1:
                raise click.UsageError(f"{param.opts[-1]} is given {order.count(param)} times; pass it once", ctx)


class Group(click.Group):
    """A group whose errors are one line on stderr, with the documented exit codes."""

    command_class = Command
    group_class = type  # the same class again

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        extra["standalone_mode"] = False
        if os.environ.get("NO_COLOR"):
            extra["color"] = False
        _open_stdout()
        try:
            code = super().main(args, prog_name or "filet", **extra)
            sys.stdout.flush()
        except click.exceptions.Exit as stop:
            code = stop.exit_code
        except tuple(kind for kind, _ in EXIT_CODES) as error:
            if isinstance(error, OSError) and error.filename is not None:  # not of standard output: a bug
                raise
            code = exit_code(error)
            _complain(error)
        sys.exit(code if isinstance(code, int) else ANSWERED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}{_near(name, self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)


def _open_stdout() -> None:
    """Replace a closed standard output by one that refuses every write.

    No answer is lost in silence.
    """
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")


def exit_code(error: BaseException) -> int:
    """The exit code of an error, by its class."""
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def _complain(error: BaseException) -> None:
    if isinstance(error, OSError):
        # The rest of the buffer goes nowhere: Python must not try again, and complain, at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # the reader, such as head, has stopped reading: no error
        return
    with contextlib.suppress(OSError):  # standard error may be full too; the exit code is left
        click.echo(f"filet: {' '.join(_words(error).split())}", err=True)


def _words(error: BaseException) -> str:
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "filet"
        return f"{_usage(error)}; see '{path} --help'"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, FiletError):
        return str(error)
    if isinstance(error, OSError):
        return f"cannot write to standard output: {error.strerror or error}; the answer is not complete"
    if isinstance(error, ArithmeticError):
        return f"these numbers are out of range ({error}); please report them"
    if isinstance(error, MemoryError):
        return "not enough memory for this question; ask for less at a time"
    return "interrupted"


def _usage(error: click.UsageError) -> str:
    if not isinstance(error, click.NoSuchOption):
        return error.format_message().rstrip(".")
    params = error.ctx.command.params if error.ctx else []
    known = [option for param in params if isinstance(param, click.Option) for option in param.opts]
    return f"No such option: {error.option_name}{_near(error.option_name, [one for one in known if one[:2] == '--'])}"


def _near(word: str, known: Sequence[str]) -> str:
    from .._checks import suggestion  # late: it loads NumPy, and only errors need it

    found = suggestion(word, known).strip()
    return f" ({found})" if found else ""
