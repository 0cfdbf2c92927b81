"""Options that commands share, and their combinations. Imports nothing heavy at the top."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InvalidArgumentError
from ..planning.run_file import CAP, LENGTH, PHASE_KEYS, RATE

if TYPE_CHECKING:
    from ..planning.run_file import RunFile
    from ..scheme import CappedPoisson


ADJACENCIES = ("add-remove", "zero-out", "replace-one")
OVERFLOWS = ("truncate", "reject")
SIZES = ("public", "at-most", "secret")
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


class FilePath(click.Path):
    """The name of a file. One that the file system cannot encode is refused in a line."""

    def __init__(self, allow_dash: bool = False) -> None:
        super().__init__(dir_okay=False, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except UnicodeEncodeError as error:
            self.fail(f"{value!a} has characters that file names cannot have here ({error.encoding})", param, ctx)


def _stacked(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    return lambda command: functools.reduce(lambda f, d: d(f), reversed(decorators), command)


def dataset_size_option(command: Command) -> Command:
    text = "Number of examples, public (add-remove: of the larger set)."
    return click.option("--dataset-size", type=INTEGER, help=text)(command)


def rate_options(command: Command) -> Command:
    """The sampling probability, in one of two ways."""
    return _stacked(
        click.option(
            "--sampling-probability", type=float, help="Chance that an example joins a batch, before the cap."
        ),
        click.option(
            "--poisson-batch-size", type=float, help="Instead: mean Poisson batch size, before the cap (p times n)."
        ),
    )(command)


def cap_option(command: Command) -> Command:
    return click.option("--max-batch-size", type=INTEGER, help="The cap: rows of every batch.")(command)


def scheme_options(command: Command) -> Command:
    """--dataset-size ... --cycle-length."""
    return _stacked(
        dataset_size_option,
        rate_options,
        cap_option,
        click.option("--no-cap", is_flag=True, default=None, help="Instead: plain Poisson batches of any size."),
        click.option(
            "--overflow", type=click.Choice(OVERFLOWS), help="What happens to a larger batch.  [default: truncate]"
        ),
        click.option(
            "--cycle-length", type=INTEGER, help="Groups of cyclic Poisson sampling, for BandMF.  [default: 1]"
        ),
        click.option(
            "--size",
            type=click.Choice(SIZES),
            help="Data set sizes that the guarantee is for: --dataset-size alone, all up to it, or every one (it is"
            " then a planned one).  [default: public]",
        ),
    )(command)


def noise_option(command: Command) -> Command:
    return click.option("--noise-multiplier", type=float, help="Noise standard deviation over the clipping norm.")(
        command
    )


def steps_options(command: Command) -> Command:
    """The number of steps, in one of two ways."""
    text = "Instead: passes over the data set (expected draws before the cap), rounded up to whole steps."
    return _stacked(
        click.option("--steps", type=INTEGER, help="Number of training steps."),
        click.option("--epochs", type=float, help=text),
    )(command)


def run_options(command: Command) -> Command:
    """The scheme, the noise and the steps."""
    return _stacked(scheme_options, noise_option, steps_options)(command)


def analysis_option(command: Command) -> Command:
    return click.option(
        "--analysis", type=click.Choice(ANALYSES), help="Which proof to use.  [default: refined, the tightest]"
    )(command)


# Checked against the installed libraries by tests/integrations/test_adjacencies.py.
NEIGHBOURS = (
    "add-remove: one example is added or removed; what papers on DP-SGD usually report (Opacus: its only one; dp_accounting:"
    " ADD_OR_REMOVE_ONE, its default; JAX Privacy: that of its jax_privacy.accounting). zero-out: one example's contribution"
    " becomes zero, and all else stays (dp_accounting: REPLACE_SPECIAL; JAX Privacy: that, the default of its execution"
    " plans); without a cap the same epsilon as add-remove. replace-one: one example becomes any other, the strongest, with"
    " a larger epsilon (dp_accounting and JAX Privacy: REPLACE_ONE; Opacus: none)."
)


def adjacency_option(command: Command) -> Command:
    text = f"Which data sets are neighbours (no default). {NEIGHBOURS}"
    return click.option("--adjacency", type=click.Choice(ADJACENCIES), help=text)(command)


def delta_option(command: Command) -> Command:
    return click.option("--delta", type=float, help="The delta of (epsilon, delta), such as 1e-5 (no default).")(
        command
    )


def target_options(command: Command) -> Command:
    """--epsilon, --delta and --adjacency of a target."""
    text = "The target epsilon (no default; in a run file, max_epsilon)."
    return _stacked(click.option("--epsilon", type=float, help=text), delta_option, adjacency_option)(command)


def risk_options(command: Command) -> Command:
    """A limit on what any attack reaches, in place of --epsilon and --delta."""
    advantage = "Instead of epsilon and delta: largest membership advantage."
    reached = "Instead: largest true positive rate of an attack ..."
    return _stacked(
        click.option("--advantage", type=float, help=advantage),
        click.option("--true-positive-rate", type=float, help=reached),
        click.option("--false-positive-rate", type=float, help="... at this false positive rate."),
    )(command)


def budget_options(command: Command) -> Command:
    """Limits of long work."""
    seconds = "Refuse what takes longer, or is estimated to."
    size = "Refuse what is estimated to need more."
    return _stacked(
        click.option("--max-seconds", type=float, default=600.0, help=f"{seconds}  [default: 600]"),
        click.option("--max-bytes", type=float, default=2e9, help=f"{size}  [default: 2e9]"),
    )(command)


def config_option(command: Command) -> Command:
    text = "Read the run from a TOML file instead; - is standard input."
    return click.option("--config", type=FilePath(allow_dash=True), callback=_not_empty, help=text)(command)


def _not_empty(context: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty name, such as that of an unset variable: it must not stand for no file."""
    if value == "":
        raise InvalidArgumentError("config='' is empty; pass the path of a run file, or drop --config")
    return value


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON with full precision.")(command)


def output_options(text: str) -> Callable[[Command], Command]:
    """-o and --force.

    Where the file is needed, `required` says so, together with all else that is missing.
    """
    return _stacked(
        click.option("-o", "--output", type=FilePath(), help=text),
        click.option("--force", is_flag=True, help="Overwrite the file if it exists."),
    )


RUN_NAMES = (*PHASE_KEYS, "adjacency")
# Options without a default: a name, or the two ways to give one thing.
SCHEME_NEEDS = ("dataset_size", RATE, CAP)
RUN_NEEDS = (*SCHEME_NEEDS, "noise_multiplier", LENGTH, "adjacency")


def flag(name: str) -> str:
    """The option of a Python name."""
    return "--" + name.replace("_", "-")


def required(options: Mapping[str, Any], *needs: str | tuple[str, ...]) -> None:
    """Refuse to go on without options that have no default.

    All that are missing are named at once.
    """
    names = [(need,) if isinstance(need, str) else need for need in needs]
    missing = [ways for ways in names if all(options.get(name) is None for name in ways)]
    if missing:
        what = [ways[0] for ways in missing]
        how = [" or ".join(map(flag, ways)) for ways in missing]
        are, they = ("is", "it has") if len(missing) == 1 else ("are", "they have")
        raise InvalidArgumentError(f"{listed(what)} {are} missing; pass {listed(how)} ({they} no default)")


def listed(words: Sequence[str]) -> str:
    """Words as in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _refuse_beside_config(options: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse options that the file describes already."""
    for name in names:
        if options.get(name) not in (None, ()):
            raise InvalidArgumentError(
                f"{flag(name)} and --config are both given; the file describes the whole run, drop {flag(name)}"
            )


def run_from(options: Mapping[str, Any], *asked: str) -> RunFile:
    """The run that the options, or the file they name, describe.

    `asked` are the question's own options, such as delta.
    """
    from dataclasses import replace

    from ..planning.run_file import checked_question, parse_run, read_run

    if options.get("config"):
        _refuse_beside_config(options, RUN_NAMES)
        required(options, *(name for name in asked if name != "delta"))
        run = read_run(options["config"])
    else:
        required(options, *RUN_NEEDS, *asked)
        run = parse_run({name: options[name] for name in RUN_NAMES if options.get(name) is not None})
    delta, limit = checked_question(options.get("delta"), options.get("max_epsilon"))
    run = replace(
        run,
        delta=run.delta if delta is None else delta,
        max_epsilon=run.max_epsilon if limit is None else limit,
    )
    if "delta" in asked and run.delta is None:
        raise InvalidArgumentError("delta is missing in the file; pass --delta, or write it there (it has no default)")
    return run


def settings_from(options: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The named options, from the file if one is given, and the file's other keys.

    The target is the question's: --epsilon and --delta win over the file's max_epsilon and delta.
    """
    from ..planning.run_file import read_settings

    if not options.get("config"):
        return {name: options.get(name) for name in names}, []
    _refuse_beside_config(options, [name for name in options if name in (*RUN_NAMES, "hardware_epochs")])
    found = read_settings(options["config"])
    unused = sorted(set(found) - set(names) - {"max_epsilon", "delta", "adjacency"})
    found["epsilon"] = found.get("max_epsilon")
    question = {name: options[name] for name in ("epsilon", "delta") if options.get(name) is not None}
    settings = {**found, **question}
    return {name: settings.get(name) for name in names}, unused


def scheme_and_steps(options: Mapping[str, Any]) -> tuple[CappedPoisson, int]:
    """The scheme and the steps to draw, from options or a run file, without noise and target."""
    from ..planning.run_file import make_scheme, make_steps

    settings, _ = settings_from(options, PHASE_KEYS)
    required(settings, *SCHEME_NEEDS, LENGTH)
    scheme = make_scheme(settings, "the run")
    return scheme, make_steps(settings, scheme, "the run")
