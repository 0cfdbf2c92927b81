"""The command `plot`: one command a kind of picture, each with the options that it reads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ...errors import InvalidArgumentError
from ...planning.run_file import LENGTH, RATE, SCHEME_KEYS
from ..group import Group
from ..options import (
    INTEGER,
    SCHEME_NEEDS,
    adjacency_option,
    analysis_option,
    cap_option,
    config_option,
    dataset_size_option,
    delta_option,
    listed,
    noise_option,
    output_options,
    rate_options,
    required,
    run_from,
    run_options,
    scheme_options,
    settings_from,
    steps_options,
    target_options,
)
from ..output import check_output, note, progress_bar

if TYPE_CHECKING:
    from ...showing.columns import Columns

KINDS = ("epsilon-steps", "epsilon-cap", "delta-epsilon", "trade-off", "batch-sizes", "utilization", "frontier")
_FORMATS = ("png", "svg", "pdf", "csv")
_TARGET = ("epsilon", "delta", "adjacency")


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def plot(ctx: click.Context) -> None:
    """Draw a picture, or write its numbers to a .csv file; filet plot KIND --help has the options
    of a kind.

    Example: filet plot frontier --dataset-size 60000 --poisson-batch-size 256 --max-batch-size 300
    --steps 14000 --epsilon 3 --delta 1e-5 --adjacency zero-out -o frontier.svg
    """
    if ctx.invoked_subcommand is None:
        raise click.UsageError(f"the kind of picture is missing; pass one of {listed(KINDS)}", ctx)


Columned = Callable[[dict[str, Any]], "Columns"]
points_option = click.option("--points", type=INTEGER, help="Number of points to compute.")


def _kind(name: str, *decorators: Callable[[Any], Any]) -> Callable[[Columned], click.Command]:
    """Make a function from options to columns a command that draws or writes them."""

    def made(columned: Columned) -> click.Command:
        def command(force: bool, **options: Any) -> None:
            output = options["output"]
            if output is not None:  # if it is, `columned` refuses, and names all that is missing
                _check_format(output)
                check_output(output, force)
                _check_drawing(output)
            _write(name, columned(options), output)

        command.__doc__ = columned.__doc__
        options = (*decorators, config_option, output_options("A .png, .svg, .pdf or .csv file (no default)."))
        decorated = functools.reduce(lambda f, decorator: decorator(f), reversed(options), command)
        return plot.command(name)(decorated)

    return made


def _check_format(output: str) -> None:
    if Path(output).suffix.lstrip(".").lower() not in _FORMATS:
        raise InvalidArgumentError(f"the file name {output!r} names no format; end it in .png, .svg, .pdf or .csv")


def _check_drawing(output: str) -> None:
    """Miss matplotlib before the work, not after it."""
    if Path(output).suffix.lower() != ".csv":
        from ...showing.plots import new_axes

        new_axes()


def _write(kind: str, columns: Columns, output: str) -> None:
    """The picture, or its numbers, and a remark that it is there."""
    from ..._files import whole_file

    if Path(output).suffix.lower() == ".csv":
        with whole_file(output) as temporary:
            temporary.write_text(columns.to_csv(), encoding="utf-8")
        note(f"wrote {output}: {listed(list(columns.arrays))}")
        return
    from ...showing import plots

    draw = {
        "epsilon-steps": plots.plot_epsilon_of_steps,
        "epsilon-cap": plots.plot_epsilon_of_cap,
        "delta-epsilon": plots.plot_delta_of_epsilon,
        "trade-off": plots.plot_trade_off,
        "batch-sizes": plots.plot_batch_sizes,
        "utilization": plots.plot_utilization_of_cap,
        "frontier": plots.plot_frontier,
    }[kind]
    plots.save(draw(columns), output)
    note(f"wrote {output}: {kind}, {columns.assumptions}")


def _points(options: dict[str, Any], default: int) -> int:
    from ...showing.columns import checked_points

    return checked_points(default if options["points"] is None else options["points"])


def _settings(options: dict[str, Any], names: tuple[str, ...], *needs: str | tuple[str, ...]) -> dict[str, Any]:
    """The named settings, from options or a file; all that are needed are there."""
    settings, _ = settings_from(options, names)
    required({**settings, "output": options["output"]}, *needs, "output")
    return settings


@_kind("epsilon-steps", run_options, delta_option, adjacency_option, analysis_option, points_option)
def epsilon_steps(options: dict[str, Any]) -> Columns:
    """Privacy spent over a run: epsilon against the steps.

    For one phase, each analysis and the best known attack (--analysis draws one analysis); for
    several, what they cost together.
    """
    from ...accounting.terms import Analysis
    from ...showing import columns

    run = run_from(options, "delta", "output")
    delta, points = cast(float, run.delta), _points(options, 25)
    phase = run.only_phase
    with progress_bar("accounting") as progress:
        if phase is None:
            return columns.epsilon_of_run(run.curve, delta=delta, points=points, progress=progress)
        other = phase.analysis is not Analysis.REFINED  # a file's
        one = options.get("analysis") or other or phase.scheme.overflow.value == "reject"
        return columns.epsilon_of_steps(
            phase.scheme,
            noise_multiplier=phase.noise_multiplier,
            steps=phase.steps,
            delta=delta,
            adjacency=run.accountant.adjacency,
            analyses=[phase.analysis] if one else list(Analysis),
            points=points,
            progress=progress,
        )


@_kind("epsilon-cap", dataset_size_option, rate_options, cap_option, noise_option, steps_options, delta_option,
       adjacency_option, points_option)  # fmt: skip
def epsilon_cap(options: dict[str, Any]) -> Columns:
    """The price of a fixed shape: epsilon against the cap, for each policy and analysis.

    Caps go from just below the mean batch to eight standard deviations above it.
    """
    from ...planning.run_file import make_scheme, make_steps
    from ...showing import columns

    names = ("dataset_size", *RATE, "max_batch_size", "noise_multiplier", *LENGTH, "delta", "adjacency")
    given = _settings(
        options, names, "dataset_size", RATE, "max_batch_size", "noise_multiplier", LENGTH, "delta", "adjacency"
    )
    scheme = make_scheme(given, "the run")
    asked = {name: given[name] for name in ("noise_multiplier", "delta", "adjacency")}
    points = _points(options, 41)
    steps = make_steps(given, scheme, "the run")
    with progress_bar("accounting") as progress:
        return columns.epsilon_of_cap(scheme, steps=steps, points=points, progress=progress, **asked)


@_kind("delta-epsilon", run_options, adjacency_option, analysis_option, points_option)
def delta_epsilon(options: dict[str, Any]) -> Columns:
    """The privacy profile of a run: delta against epsilon."""
    from ...showing import columns

    run, points = run_from(options, "output"), _points(options, 41)
    with progress_bar("accounting") as progress:
        return columns.delta_of_epsilon(run.curve, points=points, progress=progress)


@_kind("trade-off", run_options, adjacency_option, analysis_option, points_option)
def trade_off(options: dict[str, Any]) -> Columns:
    """Power of membership attacks on a run: true against false positive rates."""
    from ...showing import columns

    run, points = run_from(options, "output"), _points(options, 61)
    with progress_bar("accounting") as progress:
        return columns.trade_off(run.curve, points=points, progress=progress)


@_kind("batch-sizes", scheme_options)
def batch_sizes(options: dict[str, Any]) -> Columns:
    """The law of batch sizes, with the cap."""
    from ...planning.run_file import make_scheme
    from ...showing import columns

    return columns.batch_sizes(make_scheme(_settings(options, SCHEME_KEYS, *SCHEME_NEEDS), "the run"))


@_kind(
    "utilization",
    dataset_size_option,
    cap_option,
    noise_option,
    click.option("--steps", type=INTEGER, help="Number of training steps."),
    target_options,
    points_option,
)
def utilization(options: dict[str, Any]) -> Columns:
    """Rows in use against the cap, at a target epsilon, for each policy and analysis.

    Caps go from an eighth of --max-batch-size to eight times it.
    """
    from ...scheme import CappedPoisson
    from ...showing import columns

    names = ("dataset_size", "max_batch_size", "noise_multiplier", "steps", *_TARGET)
    given = _settings(options, names, *names)
    cap, points = given.pop("max_batch_size"), _points(options, 17)
    CappedPoisson(given["dataset_size"], 1.0, cap)  # checks both, before they are computed with
    # Caps from an eighth of the given one to eight times it, as far as the data set allows.
    factors = [2 ** (6 * i / max(points - 1, 1) - 3) for i in range(points)]
    caps = sorted({min(given["dataset_size"], max(1, round(cap * factor))) for factor in factors})
    with progress_bar("calibrating") as progress:
        return columns.utilization_of_cap(max_batch_sizes=caps, progress=progress, **given)


@_kind("frontier", dataset_size_option, rate_options, cap_option, steps_options, target_options, points_option)
def frontier(options: dict[str, Any]) -> Columns:
    """The noise that a target takes, against the number of steps, for each policy and analysis.

    Steps go from a thirtieth of --steps to thirty times as many.
    """
    from ...planning.run_file import make_scheme, make_steps
    from ...showing import columns

    names = ("dataset_size", *RATE, "max_batch_size", *LENGTH, *_TARGET)
    given = _settings(options, names, "dataset_size", RATE, "max_batch_size", LENGTH, *_TARGET)
    scheme = make_scheme(given, "the run")
    target = {name: given[name] for name in ("dataset_size", "max_batch_size", *_TARGET)}
    steps = make_steps(given, scheme, "the run")
    points = _points(options, 25)
    with progress_bar("planning") as progress:
        return columns.frontier_of_steps(
            sampling_probability=scheme.sampling_probability, steps=steps, points=points, progress=progress, **target
        )
