"""What the commands share: options, one-line errors with exit codes, and output. Imports only Click at the top."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .errors import FiletError, InvalidArgumentError

if TYPE_CHECKING:
    from ._config import Run
    from .accountant import Phase, PrivacyCurve

ADJACENCIES = ("add-remove", "zero-out", "replace-one")
OVERFLOWS = ("truncate", "reject")
ANALYSES = ("refined", "note", "union")

ANSWERED, CANNOT_ANSWER, USAGE, TARGET_NOT_MET, INTERRUPTED = 0, 1, 2, 3, 130

Command = TypeVar("Command", bound=Callable[..., Any])

if TYPE_CHECKING:
    _ParamType = click.ParamType[int]
else:
    _ParamType = click.ParamType


class Integer(_ParamType):
    """Whole numbers, also as 60_000 or 6e4."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            pass
        try:
            number = float(value)
            if number == int(number) and abs(number) <= 2**53:
                return int(number)
        except (ValueError, OverflowError):
            pass
        self.fail(f"{value!r} is not a whole number", param, ctx)


INTEGER = Integer()


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


def note(message: str) -> None:
    """A remark for people, on stderr."""
    click.echo(f"filet: {message}", err=True)


def _stacked(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    return lambda command: functools.reduce(lambda f, d: d(f), reversed(decorators), command)


def scheme_options(command: Command) -> Command:
    """--dataset-size ... --cycle-length."""
    return _stacked(
        click.option(
            "--dataset-size", type=INTEGER, help="Number of examples, public (add-remove: of the larger set)."
        ),
        click.option(
            "--sampling-probability", type=float, help="Chance that an example joins a batch, before the cap."
        ),
        click.option(
            "--expected-batch-size", type=float, help="Instead: mean Poisson batch size, before the cap (p times n)."
        ),
        click.option("--max-batch-size", type=INTEGER, help="The cap: rows of every batch."),
        click.option(
            "--overflow", type=click.Choice(OVERFLOWS), help="What happens to a larger batch.  [default: truncate]"
        ),
        click.option(
            "--cycle-length", type=INTEGER, help="Groups of cyclic Poisson sampling, for BandMF.  [default: 1]"
        ),
    )(command)


def run_options(command: Command) -> Command:
    """The scheme, the noise and the steps."""
    return _stacked(
        scheme_options,
        click.option("--noise-multiplier", type=float, help="Noise standard deviation over the clipping norm."),
        click.option("--steps", type=INTEGER, help="Number of training steps."),
        click.option("--epochs", type=float, help="Instead: passes over the data set, rounded up to whole steps."),
    )(command)


def analysis_option(command: Command) -> Command:
    return click.option(
        "--analysis", type=click.Choice(ANALYSES), help="Which proof to use.  [default: refined, the tightest]"
    )(command)


def adjacency_option(command: Command) -> Command:
    return click.option(
        "--adjacency", type=click.Choice(ADJACENCIES), help="Which data sets are neighbours (no default)."
    )(command)


def delta_option(command: Command) -> Command:
    return click.option("--delta", type=float, help="The delta of (epsilon, delta), such as 1e-5 (no default).")(
        command
    )


def config_option(command: Command) -> Command:
    return click.option(
        "--config", type=click.Path(dir_okay=False), help="Read the whole run from a TOML file instead."
    )(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON with full precision.")(command)


RUN_NAMES = (
    "dataset_size", "sampling_probability", "expected_batch_size", "max_batch_size", "overflow", "cycle_length",
    "noise_multiplier", "steps", "epochs", "analysis", "adjacency",
)  # fmt: skip


def required(options: Mapping[str, Any], name: str) -> Any:
    """An option that has no default."""
    value = options.get(name)
    if value is None:
        raise InvalidArgumentError(f"{name} is missing; pass --{name.replace('_', '-')} (it has no default)")
    return value


def run_from(options: Mapping[str, Any]) -> Run:
    """The run that the options, or the file they name, describe."""
    from ._config import parse_run, read_run

    given = {name: options[name] for name in RUN_NAMES if options.get(name) is not None}
    delta, limit = options.get("delta"), options.get("max_epsilon")
    if options.get("config"):
        if given:
            name = "--" + next(iter(given)).replace("_", "-")
            raise InvalidArgumentError(
                f"{name} and --config are both given; the file describes the whole run, drop {name}"
            )
        run = read_run(options["config"])
    else:
        required(given, "adjacency")
        for name in ("dataset_size", "max_batch_size", "noise_multiplier"):
            required(given, name)
        run = parse_run(given)
    if delta is not None or limit is not None:
        from dataclasses import replace

        # Checked by the same rules as in a file.
        question = {name: value for name, value in (("delta", delta), ("max_epsilon", limit)) if value is not None}
        asked = parse_run({"adjacency": "zero-out", "gaussian": [{"noise_multiplier": 1.0}], **question})
        run = replace(
            run,
            delta=run.delta if delta is None else asked.delta,
            max_epsilon=run.max_epsilon if limit is None else asked.max_epsilon,
        )
    return run


def asked_delta(run: Run) -> float:
    if run.delta is None:
        raise InvalidArgumentError("delta is missing; pass --delta (it has no default)")
    return run.delta


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
    from . import __version__

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
    from .report import text_table

    click.echo(text_table(header, rows))


@contextlib.contextmanager
def progress(label: str, length: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, only where stderr is a terminal; yields a function that advances it."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
