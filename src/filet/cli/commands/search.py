"""The commands that search: `calibrate` and `plan`."""

from __future__ import annotations

from typing import Any

import click

from ..options import INTEGER, adjacency_option, analysis_option, delta_option, json_option, run_options
from ..output import print_json, print_pairs, progress_bar
from ..questions import Calibration, calibrated, planned

UNKNOWNS = ("noise-multiplier", "steps", "sampling-probability")


@click.command()
@click.argument("unknown", type=click.Choice(UNKNOWNS))
@run_options
@click.option("--epsilon", type=float, help="The target epsilon (no default).")
@delta_option
@adjacency_option
@analysis_option
@json_option
def calibrate(unknown: str, as_json: bool, **options: Any) -> None:
    """The noise, the steps or the sampling probability that meet a target.

    UNKNOWN is what to look for; pass all other options of the run. The answer always meets the target: the least noise,
    the most steps, or the largest sampling probability whose certified epsilon is at or below it.

    Example: filet calibrate noise-multiplier --dataset-size 60000 --poisson-batch-size 256 --max-batch-size 300
    --steps 14000 --epsilon 3 --delta 1e-5 --adjacency zero-out
    """
    name = unknown.replace("-", "_")
    found = calibrated(name, options)
    if as_json:
        print_json("calibrate", found.inputs, found.result)
        return
    _print_found(unknown, found.result[name], found)


def _print_found(unknown: str, number: float, found: Calibration) -> None:
    from ..._numbers import round_up

    spent, target, scheme = found.result["epsilon"], found.target, found.scheme
    # More noise costs less privacy, so its text is rounded up; the others are shown in full.
    print_pairs(
        [
            (unknown, round_up(number, 6) if unknown == "noise-multiplier" else repr(number)),
            ("epsilon", f"{round_up(spent)} (target {target['epsilon']!r})"),
            ("delta", repr(target["delta"])),
            ("adjacency", target["adjacency"]),
            ("utilization", f"{100 * scheme.utilization:.1f} % of {scheme.max_batch_size} rows"),
        ]
    )


@click.command()
@click.option("--dataset-size", type=INTEGER, help="Number of examples, public (add-remove: of the larger set).")
@click.option("--max-batch-size", type=INTEGER, multiple=True, help="Rows the hardware takes; repeat to compare.")
@click.option("--steps", type=INTEGER, multiple=True, help="Number of training steps; repeat to compare.")
@click.option("--hardware-epochs", type=float, help="Instead: rows of all batches, padding included, in data sets.")
@click.option("--cycle-length", type=INTEGER, default=1, help="Groups of cyclic sampling, for BandMF.  [default: 1]")
@click.option("--epsilon", type=float, help="The target epsilon (no default).")
@delta_option
@adjacency_option
@json_option
def plan(as_json: bool, **options: Any) -> None:
    """The run that wastes the least compute at a target epsilon.

    Finds the sampling probability and the noise of every policy and analysis at equal hardware cost, and ranks them by
    the noise left on the mean gradient. A star marks the best with fixed shapes; "ideal" is out of reach of any sampler.

    Example: filet plan --dataset-size 60000 --max-batch-size 256 --steps 14000 --epsilon 3 --delta 1e-5
    --adjacency zero-out
    """
    with progress_bar("planning") as progress:
        inputs, found = planned(options, progress)
    if as_json:
        print_json("plan", inputs, found.to_dict())
        return
    click.echo(found.table())
