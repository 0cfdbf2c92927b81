"""The `filet` command: thin wrappers of the library, each answering one question.

Exit codes: 0 answered, 1 cannot answer, 2 usage, 3 target not met (`--max-epsilon`), 130 interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ... import __version__
from ...errors import InvalidArgumentError, NotCertifiedError
from ..group import TARGET_NOT_MET, Group
from ..options import (
    ADJACENCIES,
    ANALYSES,
    INTEGER,
    OVERFLOWS,
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
from .certificates import certify, check
from .files import plot, sample
from .search import calibrate, plan

if TYPE_CHECKING:
    from ..._progress import Progress
    from ...scheme import CappedPoisson
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
    attack = _attack(run, delta)
    if as_json:
        result = {"epsilon": bounds.upper, "epsilon_lower": bounds.lower, "attack_epsilon": attack}
        asked = {**describe_run(curve), "delta": delta, "max_epsilon": run.max_epsilon}
        print_json("epsilon", asked, {**result, "target_met": _met(run, bounds.upper)})
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
    if _met(run, bounds.upper) is False:
        note(f"epsilon {round_up(bounds.upper)} is above max_epsilon {run.max_epsilon!r}")
        ctx.exit(TARGET_NOT_MET)


def _met(run: RunFile, value: float) -> bool | None:
    return None if run.max_epsilon is None else value <= run.max_epsilon


def _attack(run: RunFile, delta: float) -> float | None:
    """The best known lower bound on the true epsilon; None for runs of several phases."""
    from ...accounting.lower_bounds import epsilon_lower_bound

    phases = run.accountant.phases
    if len(phases) != 1 or run.curve.gaussian:
        return None
    phase = phases[0]
    try:
        return epsilon_lower_bound(
            phase.scheme, noise_multiplier=phase.noise_multiplier, steps=phase.steps,
            adjacency=run.accountant.adjacency, delta=delta,
        )  # fmt: skip
    except NotCertifiedError:
        return None


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
    from ..run_file import make_scheme, make_steps

    if not adjacency:
        raise InvalidArgumentError("adjacency is missing; pass --adjacency (it has no default), or --adjacency all")
    if options.get("overflow"):
        raise InvalidArgumentError("overflow has no place here; compare shows both policies")
    wanted = list(ADJACENCIES) if "all" in adjacency else list(dict.fromkeys(adjacency))
    value = float(required(options, "delta"))
    for name in ("dataset_size", "max_batch_size", "noise_multiplier"):
        required(options, name)
    scheme = make_scheme(options, "the command line")
    steps = make_steps(options, scheme, "the command line")
    sigma = options["noise_multiplier"]
    with progress_bar("accounting") as progress:
        rows = _comparison(scheme, sigma, steps, value, wanted, progress)
    if as_json:
        asked = {key: entry for key, entry in scheme.to_dict().items() if key != "overflow"}
        print_json(
            "compare", {**asked, "noise_multiplier": sigma, "steps": steps, "delta": value, "adjacency": wanted}, rows
        )
        return
    print_table(["policy", "analysis", "utilization", *wanted], [_compared(row) for row in rows])


def _compared(row: dict[str, Any]) -> list[str]:
    """A line of the table: attacks are lower bounds and rounded down."""
    from ..._numbers import round_down, round_up

    rounded = round_down if row["analysis"] == "attack" else round_up
    used = "-" if row["utilization"] is None else f"{100 * row['utilization']:.1f} %"
    figures = ("-" if value is None else rounded(value) for value in row["epsilon"].values())
    return [row["policy"], row["analysis"], used, *figures]


def _comparison(scheme: CappedPoisson, sigma: float, steps: int, delta: float, wanted: list[str],
                progress: Progress | None) -> list[dict[str, Any]]:  # fmt: skip
    """A row for each policy and analysis, with an epsilon for each adjacency; None where there is none."""
    from dataclasses import replace

    from ..._progress import reported

    rows: list[dict[str, Any]] = [
        {"policy": policy, "analysis": analysis, "utilization": None, "epsilon": dict.fromkeys(wanted)}
        for policy, analysis in _compared_kinds()
    ]
    tries = [(row, adjacency) for row in rows for adjacency in wanted]
    for row, adjacency in reported(tries, progress, lambda one: f"{one[0]['policy']}, {one[0]['analysis']}, {one[1]}"):
        free = row["policy"] == "no cap"
        change: dict[str, Any] = {"max_batch_size": scheme.group_size} if free else {"overflow": row["policy"]}
        try:
            changed = replace(scheme, **change)
            row["utilization"] = None if free else changed.utilization
            row["epsilon"][adjacency] = _epsilon(changed, sigma, steps, delta, adjacency, row["analysis"])
        except NotCertifiedError as error:
            note(str(error))
        except InvalidArgumentError as error:
            if row["policy"] != "reject":  # only reject can be impossible where the others are not
                raise
            note(str(error))
    return rows


def _compared_kinds() -> list[tuple[str, str]]:
    """Policy and analysis of each row: no cap at all, every analysis that a policy has, and the attack on it."""
    kinds = [("no cap", "refined")]
    for policy in OVERFLOWS:
        analyses = reversed(ANALYSES) if policy == "truncate" else ("refined",)
        kinds += [(policy, analysis) for analysis in (*analyses, "attack")]
    return kinds


def _epsilon(scheme: CappedPoisson, sigma: float, steps: int, delta: float, adjacency: str, analysis: str) -> float:
    from ...accounting.accountant import account
    from ...accounting.lower_bounds import epsilon_lower_bound

    given: dict[str, Any] = {"noise_multiplier": sigma, "steps": steps, "adjacency": adjacency}
    if analysis == "attack":
        return epsilon_lower_bound(scheme, delta=delta, **given)
    return account(scheme, **given | {"analysis": analysis}).epsilon(delta)


for _command in (calibrate, plan, sample, plot, certify, check):
    main.add_command(_command)
