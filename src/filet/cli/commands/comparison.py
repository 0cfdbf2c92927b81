"""The command `compare`: every policy and analysis of a run, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...errors import InvalidArgumentError
from ..group import Command
from ..options import (
    ADJACENCIES,
    NEIGHBOURS,
    RUN_NEEDS,
    config_option,
    delta_option,
    json_option,
    required,
    run_from,
    run_options,
)
from ..output import note, print_json, print_table, progress_bar, warn_of_delta

if TYPE_CHECKING:
    from ...planning.run_file import RunFile


@click.command(cls=Command)
@run_options
@delta_option
@click.option(
    "--adjacency",
    type=click.Choice([*ADJACENCIES, "all"]),
    multiple=True,
    help=f"Which data sets are neighbours; may be repeated, or all (no default). {NEIGHBOURS}",
)
@config_option
@json_option
def compare(as_json: bool, adjacency: tuple[str, ...], **options: Any) -> None:
    """Epsilon of every policy and analysis, side by side.

    The row "no cap" is plain Poisson sampling with batches of any size. The rows "attack" are lower
    bounds: explicit neighbouring data sets prove that at least this much is lost. With --config,
    every phase of the file is changed to the row's policy and analysis; --adjacency then adds to
    the question.
    """
    from ...planning.comparison import Comparison

    run = _run(adjacency, options)
    asked = adjacency or (run.accountant.adjacency.value,)
    wanted = list(ADJACENCIES) if "all" in asked else list(dict.fromkeys(asked))
    question = Comparison(run, float(run.delta or 0.0))
    with progress_bar("accounting") as progress:
        rows = question.rows(wanted)
        question.fill(rows, progress, note)
    if as_json:
        print_json("compare", question.inputs(wanted), rows)
    else:
        names = [name.replace("-", "-\n") for name in wanted]
        print_table(["policy", "analysis", "rows\nused", *names], [_compared(row) for row in rows])
    if run.only_phase is None:
        note("attacks are not computed: only for runs of one phase without Gaussian releases")
    warn_of_delta(question.delta, *run.sizes)


def _run(adjacency: tuple[str, ...], options: dict[str, Any]) -> RunFile:
    """The run to compare; options that the rows change are refused."""
    for name, why in (("overflow", "compare shows both policies"), ("no_cap", "compare has a row for it")):
        if options.get(name) is not None:
            raise InvalidArgumentError(f"{name} has no place here: {why}; drop it")
    if options["config"]:
        return run_from(options, "delta")
    required({**options, "adjacency": adjacency or None}, *RUN_NEEDS, "delta")
    return run_from({**options, "adjacency": ADJACENCIES[1]}, "delta")  # any: each row has its own


def _compared(row: dict[str, Any]) -> list[str]:
    """A line of the table: attacks are lower bounds and rounded down."""
    from ..._numbers import round_down, round_up

    attack = row["analysis"] == "attack"
    used = "-" if row["utilization"] is None else f"{100 * row['utilization']:.1f} %"
    figures = []
    for value in row["epsilon"].values():
        shown = "-" if value is None else (round_down if attack else round_up)(value, zeros=True)
        figures.append("none found" if attack and value == 0.0 else shown)
    return [row["policy"], row["analysis"], used, *figures]
