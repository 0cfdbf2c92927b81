"""The command group: errors are one line on stderr, with the documented exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from ..errors import FiletError, InvalidArgumentError

ANSWERED, CANNOT_ANSWER, USAGE, TARGET_NOT_MET, INTERRUPTED = 0, 1, 2, 3, 130


class Group(click.Group):
    """A group whose errors are one line on stderr, with the documented exit codes, however it is called."""

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name or "filet", **extra)
            sys.stdout.flush()
        except click.exceptions.Exit as stop:
            code = stop.exit_code
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else "filet"
            code = _complain(f"{error.format_message().rstrip('.')}; see '{path} --help'", USAGE)
        except click.ClickException as error:
            code = _complain(error.format_message(), CANNOT_ANSWER)
        except InvalidArgumentError as error:
            code = _complain(str(error), USAGE)
        except FiletError as error:
            code = _complain(str(error), CANNOT_ANSWER)
        except (click.Abort, KeyboardInterrupt):
            code = _complain("interrupted", INTERRUPTED)
        except BrokenPipeError:  # the reader went away: say nothing, and keep Python from complaining at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = CANNOT_ANSWER
        except ArithmeticError as error:
            code = _complain(f"these numbers are out of range ({error}); please report them", CANNOT_ANSWER)
        except MemoryError:
            code = _complain("not enough memory for this question; ask for less at a time", CANNOT_ANSWER)
        sys.exit(code if isinstance(code, int) else ANSWERED)


def _complain(message: str, code: int) -> int:
    click.echo(f"filet: {' '.join(message.split())}", err=True)
    return code
