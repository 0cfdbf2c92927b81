"""The command `risk`: the meaning of epsilon for one person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import click

from ...showing.answers import describe_run
from ...showing.risk import FALSE_POSITIVE_RATES, PRIORS, risks
from ..group import Command
from ..options import (
    adjacency_option,
    analysis_option,
    config_option,
    delta_option,
    json_option,
    run_from,
    run_options,
)
from ..output import print_json, print_pairs, warn_of_delta


@click.command(cls=Command)
@run_options
@delta_option
@adjacency_option
@analysis_option
@config_option
@click.option(
    "--false-positive-rate",
    type=float,
    multiple=True,
    help="Where to state the power of attacks; may be repeated.  [default: 0.001, 0.01, 0.05]",
)
@click.option(
    "--prior",
    type=float,
    multiple=True,
    help="An attacker's belief before the run; may be repeated.  [default: 0.01, 0.5]",
)
@json_option
def risk(as_json: bool, false_positive_rate: tuple[float, ...], prior: tuple[float, ...], **options: Any) -> None:
    """Limits of any attack on one example: advantage, power, error, belief.

    All figures are proven for attackers who know every other example and have unlimited time. Bayes errors
    are lower bounds, the others upper bounds. Beliefs hold but for outputs of chance delta.

    Example: filet risk --dataset-size 60000 --poisson-batch-size 256 --max-batch-size 300 --noise-multiplier 1
    --steps 14000 --delta 1e-5 --adjacency zero-out
    """
    run = run_from(options, "delta")
    delta = cast(float, run.delta)
    rates = false_positive_rate or FALSE_POSITIVE_RATES
    priors = prior or PRIORS
    found = risks(run.curve, delta, rates, priors)
    if as_json:
        asked = {**describe_run(run.curve), "delta": delta, "false_positive_rates": list(rates), "priors": list(priors)}
        print_json("risk", asked, found)
    else:
        print_pairs([*_lines(found, delta), ("adjacency", str(run.curve.adjacency))])
    warn_of_delta(delta, *run.sizes)


def _lines(found: Mapping[str, Any], delta: float) -> list[tuple[str, str]]:
    """The measures with their direction, rounded to the safe side."""
    from ..._numbers import round_down, round_up

    lines = [("membership advantage", f"{round_up(found['membership_advantage'])} at most")]
    for one in found["true_positive_rates"]:
        rate = one["false_positive_rate"]
        text = f"{round_up(one['true_positive_rate'])} at most, at false positive rate {rate!r}"
        lines.append(("true positive rate", text))
    for one in found["bayes_errors"]:
        lines.append(("bayes error", f"{round_down(one['bayes_error'])} at least, at prior {one['prior']!r}"))
    for one in found["beliefs"]:
        text = f"{round_up(one['belief'])} at most, from prior {one['prior']!r}, but for outputs of chance {delta!r}"
        lines.append(("posterior belief", text))
    return lines
