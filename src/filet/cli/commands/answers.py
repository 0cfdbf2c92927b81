"""The `filet` command: thin wrappers of the library, each answering one question.

Exit codes: 0 answered, 1 cannot answer, 2 usage, 3 target not met (`--max-epsilon`), 130
interrupted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from ... import __version__
from ...errors import NotCertifiedError
from ...showing.answers import describe_run
from ..group import TARGET_NOT_MET, Group
from ..options import (
    RUN_NEEDS,
    adjacency_option,
    analysis_option,
    config_option,
    delta_option,
    json_option,
    required,
    run_from,
    run_options,
)
from ..output import note, print_json, print_pairs, warn_of_delta
from .batches import keygen, sample
from .beam import beam
from .certificates import certify, check
from .comparison import compare
from .explore import explore
from .pictures import plot
from .records import record
from .risk import risk
from .search import calibrate, plan
from .spark import spark

if TYPE_CHECKING:
    from ...planning.run_file import RunFile


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group("filet", cls=Group, context_settings=_CONTEXT, invoke_without_command=True)
@click.version_option(__version__, "--version", message="filet %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Privacy of training with capped Poisson batches: what a run costs, and how to plan one.

    Results go to standard output, remarks to standard error. Exit codes: 0 answered, 1 cannot
    answer, 2 usage, 3 target not met, 130 interrupted.
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

    Example: filet epsilon --dataset-size 60000 --poisson-batch-size 256 --max-batch-size 300
    --noise-multiplier 1 --steps 14000 --delta 1e-5 --adjacency zero-out
    """
    from ..._numbers import round_down, round_up

    run = run_from(options, "delta")
    delta, curve = cast(float, run.delta), run.curve
    bounds = curve.epsilon_bounds(delta)
    attack, why = _attack(run, delta)
    if as_json:
        result = {"epsilon": bounds.upper, "epsilon_lower": bounds.lower, "attack_epsilon": attack}
        asked = {**describe_run(curve), "delta": delta, "max_epsilon": run.max_epsilon}
        print_json("epsilon", asked, {**result, "target_met": _met(run, bounds.upper)})
    else:
        known = f"{round_down(attack)} (no analysis can show less)" if attack else why
        print_pairs(
            [
                ("epsilon", round_up(bounds.upper)),
                ("delta", repr(delta)),
                ("adjacency", str(curve.adjacency)),
                ("holds for", curve.holds_for),
                ("proven interval", f"[{round_down(bounds.lower, 6)}, {round_up(bounds.upper, 6)}] for this analysis"),
                ("best known attack", known),
                *_facts(run),
            ]
        )
    warn_of_delta(delta, *run.sizes)
    if _met(run, bounds.upper) is False:
        note(f"epsilon {round_up(bounds.upper)} is above max_epsilon {run.max_epsilon!r}")
        ctx.exit(TARGET_NOT_MET)


def _met(run: RunFile, value: float) -> bool | None:
    return None if run.max_epsilon is None else value <= run.max_epsilon


def _attack(run: RunFile, delta: float) -> tuple[float | None, str]:
    """The best known lower bound on the true epsilon; where there is none, None or 0 and why."""
    from ...planning.comparison import attack_epsilon

    if run.only_phase is None:
        return None, "not computed: only for runs of one phase without Gaussian releases"
    try:
        found = attack_epsilon(run.only_phase, run.accountant.adjacency.value, delta)
    except NotCertifiedError as error:
        return None, f"not certified: {error}"
    return found, "none found"


def _facts(run: RunFile) -> list[tuple[str, str]]:
    """Facts of each phase to show beside the answer."""
    from ..._numbers import round_up

    facts = []
    phases = run.accountant.phases
    for number, phase in enumerate(phases, 1):
        name = f"phase {number}" if len(phases) > 1 else "run"
        scheme = phase.scheme
        facts.append(
            (
                name,
                f"{phase.steps} steps, {scheme.overflow}, {phase.analysis} analysis,"
                f" {100 * scheme.utilization:.1f} % of {scheme.max_batch_size} rows used,"
                f" overflow chance {round_up(scheme.overflow_probability, 2)} a step"
                if scheme.capped
                else f"{phase.steps} steps, no cap, batches of {scheme.poisson_batch_size:.1f} examples on average",
            )
        )
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

    required(options, *(("epsilon",) if options["config"] else (*RUN_NEEDS, "epsilon")))
    value, run = float(options["epsilon"]), run_from(options)
    bounds = run.curve.delta_bounds(value)
    if as_json:
        asked = {**describe_run(run.curve), "epsilon": value}
        print_json("delta", asked, {"delta": bounds.upper, "delta_lower": bounds.lower})
        return
    print_pairs(
        [
            ("delta", round_up(bounds.upper)),
            ("epsilon", repr(value)),
            ("adjacency", str(run.curve.adjacency)),
            ("holds for", run.curve.holds_for),
            ("proven interval", f"[{round_down(bounds.lower)}, {round_up(bounds.upper)}] for this analysis"),
            *_facts(run),
        ]
    )


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

    run = run_from(options, "delta")
    value = cast(float, run.delta)
    text = statement(run.curve, value)
    if as_json:
        asked = {**describe_run(run.curve), "delta": value}
        print_json("explain", asked, {"epsilon": run.curve.epsilon(value), "statement": text})
    else:
        click.echo(text)
    warn_of_delta(value, *run.sizes)


for _command in (risk, compare, calibrate, plan, sample, keygen, plot, certify, check, record, beam, spark, explore):
    main.add_command(_command)
