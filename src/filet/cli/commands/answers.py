"""The `filet` command: thin wrappers of the library, each answering one question.

Exit codes: 0 answered, 1 cannot answer, 2 usage, 3 target not met (`--max-epsilon`), 130 interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ... import __version__
from ...errors import InvalidArgumentError
from ..group import TARGET_NOT_MET, Group
from ..options import (
    ADJACENCIES,
    INTEGER,
    adjacency_option,
    analysis_option,
    asked_delta,
    config_option,
    delta_option,
    json_option,
    required,
    run_from,
    run_options,
    scheme_options,
)
from ..output import describe_run, note, print_json, print_pairs, print_table, progress_bar
from ..questions import Comparison, compared_kinds, epsilon_inputs, epsilon_result, known_attack
from .certificates import certify, check
from .explore import explore
from .files import plot, sample
from .search import calibrate, plan

if TYPE_CHECKING:
    from ..._progress import Progress
    from ..run_file import RunFile


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group("filet", cls=Group, context_settings=_CONTEXT, invoke_without_command=True)
@click.version_option(__version__, "--version", message="filet %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Privacy of training with capped Poisson batches: what a run costs, and how to plan one.

    Results go to standard output, remarks to standard error. Exit codes: 0 answered, 1 cannot answer, 2 usage, 3 target
    not met, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@main.command()
@run_options
@delta_option
@adjacency_option
@analysis_option
@config_option
@click.option("--max-epsilon", type=float, help="Exit with code 3 if epsilon is above this.")
@json_option
@click.pass_context
def epsilon(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """The epsilon of a run at a given delta: a certified upper bound.

    Example: filet epsilon --dataset-size 60000 --poisson-batch-size 256 --max-batch-size 300 --noise-multiplier 1
    --steps 14000 --delta 1e-5 --adjacency zero-out
    """
    from ..._numbers import round_down, round_up

    run = run_from(options)
    delta = asked_delta(run)
    curve = run.curve
    bounds = curve.epsilon_bounds(delta)
    attack = known_attack(run, delta)
    result = epsilon_result(run, bounds, attack)
    if as_json:
        print_json("epsilon", epsilon_inputs(run, delta), result)
    else:
        known = [] if attack is None else [("best known attack", f"{round_down(attack)} (no analysis can show less)")]
        print_pairs([
            ("epsilon", round_up(bounds.upper)),
            ("delta", repr(delta)),
            ("adjacency", str(curve.adjacency)),
            ("proven interval", f"[{round_down(bounds.lower, 6)}, {round_up(bounds.upper, 6)}] for this analysis"),
            *known,
            *_facts(run),
        ])  # fmt: skip
    if result["target_met"] is False:
        note(f"epsilon {round_up(bounds.upper)} is above max_epsilon {run.max_epsilon!r}")
        ctx.exit(TARGET_NOT_MET)


def _facts(run: RunFile) -> list[tuple[str, str]]:
    """What a reader wants to see beside the number."""
    from ..._numbers import round_up

    facts = []
    phases = run.accountant.phases
    for number, phase in enumerate(phases, 1):
        name = f"phase {number}" if len(phases) > 1 else "run"
        scheme = phase.scheme
        facts.append((
            name,
            f"{phase.steps} steps, {scheme.overflow}, {phase.analysis} analysis,"
            f" {100 * scheme.utilization:.1f} % of {scheme.max_batch_size} rows used,"
            f" overflow chance {round_up(scheme.overflow_probability, 2)} a step",
        ))  # fmt: skip
    return facts


@main.command()
@run_options
@click.option("--epsilon", type=float, help="The epsilon of (epsilon, delta) (no default).")
@adjacency_option
@analysis_option
@config_option
@json_option
def delta(as_json: bool, **options: Any) -> None:
    """The delta of a run at a given epsilon: a certified upper bound."""
    from ..._numbers import round_down, round_up

    value = float(required(options, "epsilon"))
    run = run_from(options)
    bounds = run.curve.delta_bounds(value)
    if as_json:
        asked = {**describe_run(run.curve), "epsilon": value}
        print_json("delta", asked, {"delta": bounds.upper, "delta_lower": bounds.lower})
        return
    print_pairs([
        ("delta", round_up(bounds.upper)),
        ("epsilon", repr(value)),
        ("adjacency", str(run.curve.adjacency)),
        ("proven interval", f"[{round_down(bounds.lower)}, {round_up(bounds.upper)}] for this analysis"),
        *_facts(run),
    ])  # fmt: skip


@main.command()
@run_options
@delta_option
@adjacency_option
@analysis_option
@config_option
@json_option
def explain(as_json: bool, **options: Any) -> None:
    """The privacy statement of a run: guarantee, neighbours, mechanism, assumptions, theorems."""
    from ...showing.statement import statement

    run = run_from(options)
    value = asked_delta(run)
    text = statement(run.curve, value)
    if as_json:
        asked = {**describe_run(run.curve), "delta": value}
        print_json("explain", asked, {"epsilon": run.curve.epsilon(value), "statement": text})
        return
    click.echo(text)


@main.command()
@scheme_options
@click.option("--noise-multiplier", type=float, help="Noise standard deviation over the clipping norm.")
@click.option("--steps", type=INTEGER, help="Number of training steps.")
@click.option("--epochs", type=float, help="Instead: passes over the data set, rounded up to whole steps.")
@delta_option
@click.option(
    "--adjacency",
    type=click.Choice([*ADJACENCIES, "all"]),
    multiple=True,
    help="Which data sets are neighbours; may be repeated, or all (no default).",
)
@json_option
def compare(as_json: bool, adjacency: tuple[str, ...], **options: Any) -> None:
    """Epsilon of every policy and analysis, side by side.

    The row "no cap" is plain Poisson sampling with batches of any size. The rows "attack" are lower bounds: explicit
    neighbouring data sets prove that at least this much is lost.
    """
    if not adjacency:
        raise InvalidArgumentError("adjacency is missing; pass --adjacency (it has no default), or --adjacency all")
    wanted = list(ADJACENCIES) if "all" in adjacency else list(dict.fromkeys(adjacency))
    asked = Comparison.asked(options)
    with progress_bar("accounting") as progress:
        rows = _comparison(asked, wanted, progress)
    if as_json:
        print_json("compare", asked.inputs(wanted), rows)
        return
    print_table(["policy", "analysis", "utilization", *wanted], [_compared(row) for row in rows])


def _compared(row: dict[str, Any]) -> list[str]:
    """A line of the table: attacks are lower bounds and rounded down."""
    from ..._numbers import round_down, round_up

    rounded = round_down if row["analysis"] == "attack" else round_up
    used = "-" if row["utilization"] is None else f"{100 * row['utilization']:.1f} %"
    figures = ("-" if value is None else rounded(value) for value in row["epsilon"].values())
    return [row["policy"], row["analysis"], used, *figures]


def _comparison(asked: Comparison, wanted: list[str], progress: Progress | None) -> list[dict[str, Any]]:
    """A row for each policy and analysis, with an epsilon for each adjacency; None where there is none."""
    from ..._progress import reported

    rows = [asked.row(policy, analysis, wanted) for policy, analysis in compared_kinds()]
    tries = [(row, adjacency) for row in rows for adjacency in wanted]
    for row, adjacency in reported(tries, progress, lambda one: f"{one[0]['policy']}, {one[0]['analysis']}, {one[1]}"):
        row["epsilon"][adjacency], why_not = asked.entry(row["policy"], row["analysis"], adjacency)
        if why_not:
            note(why_not)
    return rows


for _command in (calibrate, plan, sample, plot, certify, check, explore):
    main.add_command(_command)
