"""What commands print: JSON, tables, progress and remarks."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..accounting.curve import PrivacyCurve
    from ..accounting.terms import Phase


def note(message: str) -> None:
    """A remark for people, on stderr."""
    click.echo(f"filet: {message}", err=True)


def describe_phase(phase: Phase) -> dict[str, Any]:
    scheme = phase.scheme
    return {
        "dataset_size": scheme.dataset_size,
        "sampling_probability": scheme.sampling_probability,
        "max_batch_size": scheme.max_batch_size,
        "overflow": scheme.overflow.value,
        "cycle_length": scheme.cycle_length,
        "noise_multiplier": phase.noise_multiplier,
        "steps": phase.steps,
        "analysis": phase.analysis.value,
    }


def describe_run(curve: PrivacyCurve) -> dict[str, Any]:
    """The inputs of an answer, as they were understood."""
    described: dict[str, Any] = {
        "adjacency": curve.adjacency.value,
        "phases": [describe_phase(phase) for phase in curve.phases],
    }
    if curve.gaussian:
        described["gaussian_noise_multiplier"] = 1.0 / math.sqrt(curve.gaussian)
    return described


def print_json(kind: str, inputs: Mapping[str, Any], result: Any) -> None:
    """One JSON object; infinities are the strings "inf" and "-inf", as JSON has no number for them."""
    from .. import __version__

    answer = {"schema": f"filet.{kind}.v1", "version": __version__, "inputs": inputs, "result": result}
    click.echo(json.dumps(_jsonable(answer), indent=2, allow_nan=False))


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(entry) for entry in value]
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
    """A Rich table on a terminal, aligned text elsewhere."""
    if sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            from rich.console import Console
            from rich.table import Table

            table = Table()
            for number, name in enumerate(header):
                table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
            for row in rows:
                table.add_row(*row)
            Console().print(table)
            return
    from .._tables import text_table

    click.echo(text_table(header, rows))


@contextlib.contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, only where stderr is a terminal; yields a function that advances it."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
