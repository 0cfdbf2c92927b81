"""What commands print: JSON, tables, progress and remarks; and whether they may write over a file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from .._progress import Progress
    from ..accounting.curve import PrivacyCurve


def note(message: str) -> None:
    """A remark for people, on stderr."""
    click.echo(f"filet: {message}", err=True)


def describe_run(curve: PrivacyCurve) -> dict[str, Any]:
    """The inputs of an answer, as they were understood."""
    from ..accounting.state import phase_fields

    described: dict[str, Any] = {
        "adjacency": curve.adjacency.value,
        "phases": [phase_fields(phase) for phase in curve.phases],
    }
    if curve.gaussian:
        # together as private as one release of this noise
        squares = [count / sigma / sigma if sigma else math.inf for sigma, count in curve.releases]
        described["gaussian_noise_multiplier"] = 1.0 / math.sqrt(math.fsum(squares))
    return described


def print_json(kind: str, inputs: Mapping[str, Any], result: Any) -> None:
    """One JSON object; infinities are the strings "inf" and "-inf", as JSON has no number for them."""
    click.echo(json.dumps(as_answer(kind, inputs, result), indent=2, allow_nan=False))


def as_answer(kind: str, inputs: Mapping[str, Any], result: Any) -> dict[str, Any]:
    """The object that `print_json` prints."""
    from .. import __version__

    answer = {"schema": f"filet.{kind}.v1", "version": __version__, "inputs": inputs, "result": result}
    return {key: jsonable(entry) for key, entry in answer.items()}


def jsonable(value: Any) -> Any:
    """The value with every float that JSON has no number for as a string."""
    if isinstance(value, Mapping):
        return {key: jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, the first pair being the answer."""
    width = max(len(name) for name, _ in pairs)
    for number, (name, value) in enumerate(pairs):
        line = f"{name.ljust(width)}  {value}"
        click.echo(click.style(line, bold=True) if number == 0 else line)  # echo drops styles unless on a terminal


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Rich table on a terminal that is wide enough, aligned text elsewhere: figures are never cut."""
    from .._tables import text_table

    text = text_table(header, rows)
    if sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            from rich.console import Console
            from rich.table import Table

            console = Console()
            frame = len(header) + 3  # Rich puts three characters where the text has two, and one at the end
            if max(map(len, text.splitlines())) + frame <= console.width:
                table = Table()
                for number, name in enumerate(header):
                    table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
                for row in rows:
                    table.add_row(*row)
                console.print(table)
                return
    click.echo(text)


_TICKS = 1000


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Progress | None]:
    """A bar on stderr, only where stderr is a terminal; yields what long work reports to."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=_TICKS, label=label, file=sys.stderr) as bar:
        yield lambda share, _: bar.update(round(_TICKS * share) - bar.pos)


def check_output(path: str | None, force: bool) -> None:
    """Refuse, before any work, to write over a file unless told to."""
    if path is not None and not force and os.path.exists(path):
        raise InvalidArgumentError(f"{path!r} exists; pass --force to overwrite it, or another name")
