"""Output of commands: JSON, tables, progress and remarks; and the rule for files that exist."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from .._progress import Progress


def note(message: str) -> None:
    """A remark for people, on stderr."""
    click.echo(f"filet: {message}", err=True)


def print_json(kind: str, inputs: Mapping[str, Any], result: Any) -> None:
    """One JSON object.

    Infinities are the strings "inf" and "-inf", as JSON has no number for them.
    """
    from ..showing.answers import as_answer

    click.echo(json.dumps(as_answer(kind, inputs, result), indent=2, allow_nan=False))


def width() -> int:
    """Columns of the terminal, or what COLUMNS says, or 80."""
    from .._tables import WIDTH

    return max(40, shutil.get_terminal_size((WIDTH, 24)).columns)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, the first pair being the answer."""
    from .._tables import wrapped

    indent = max(len(name) for name, _ in pairs) + 2
    for number, (name, value) in enumerate(pairs):
        text = name.ljust(indent) + wrapped(value, width() - indent).replace("\n", "\n" + " " * indent)
        click.echo(click.style(text, bold=True) if number == 0 else text)  # echo drops styles unless on a terminal


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned text that fits the terminal; figures are never cut."""
    from .._tables import text_table

    click.echo(text_table(header, rows, width()))


def warn_of_delta(delta: float, *sizes: int) -> None:
    """Say that a delta is too large to mean much; after the answer, as errors are one line."""
    from .._numbers import round_down

    if sizes and delta * max(sizes) > 1.0:
        note(
            f"delta {delta!r} is above 1 / dataset_size = {round_down(1.0 / max(sizes), 2)}: publishing some examples as they"
            " are would pass; pass a smaller delta"
        )


_TICKS = 1000


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Progress | None]:
    """A bar on stderr, only where stderr is a terminal; yields the function that long work reports to."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=_TICKS, label=label, file=sys.stderr) as bar:
        yield lambda share, _: bar.update(round(_TICKS * share) - bar.pos)


def check_output(path: str | None, force: bool) -> None:
    """Refuse, before any work, a file that exists (unless told to replace it) or cannot be written."""
    from .._files import check_writable

    if path is None:
        return
    if not force and os.path.exists(path):
        raise InvalidArgumentError(f"{path!r} exists; pass --force to overwrite it, or another name")
    check_writable(path)
