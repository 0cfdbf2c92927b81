"""The options that commands share, and what they mean together. Imports nothing heavy at the top."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InvalidArgumentError
from .run_file import PHASE_KEYS

if TYPE_CHECKING:
    from .run_file import RunFile


ADJACENCIES = ("add-remove", "zero-out", "replace-one")
OVERFLOWS = ("truncate", "reject")
ANALYSES = ("refined", "swap", "note", "union")

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
            "--poisson-batch-size", type=float, help="Instead: mean Poisson batch size, before the cap (p times n)."
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


def output_options(text: str, *, needed: bool = False) -> Callable[[Command], Command]:
    """-o and --force."""
    return _stacked(
        click.option("-o", "--output", required=needed, type=click.Path(dir_okay=False), help=text),
        click.option("--force", is_flag=True, help="Overwrite the file if it exists."),
    )


RUN_NAMES = (*PHASE_KEYS, "adjacency")


def required(options: Mapping[str, Any], name: str) -> Any:
    """An option that has no default."""
    value = options.get(name)
    if value is None:
        raise InvalidArgumentError(f"{name} is missing; pass --{name.replace('_', '-')} (it has no default)")
    return value


def run_from(options: Mapping[str, Any]) -> RunFile:
    """The run that the options, or the file they name, describe."""
    from dataclasses import replace

    from .run_file import checked_question, parse_run, read_run

    given = {name: options[name] for name in RUN_NAMES if options.get(name) is not None}
    if options.get("config"):
        if given:
            name = "--" + next(iter(given)).replace("_", "-")
            raise InvalidArgumentError(
                f"{name} and --config are both given; the file describes the whole run, drop {name}"
            )
        run = read_run(options["config"])
    else:
        for name in ("adjacency", "dataset_size", "max_batch_size", "noise_multiplier"):
            required(given, name)
        run = parse_run(given)
    delta, limit = checked_question(options.get("delta"), options.get("max_epsilon"))
    return replace(
        run,
        delta=run.delta if delta is None else delta,
        max_epsilon=run.max_epsilon if limit is None else limit,
    )


def asked_delta(run: RunFile) -> float:
    if run.delta is None:
        raise InvalidArgumentError("delta is missing; pass --delta (it has no default)")
    return run.delta
