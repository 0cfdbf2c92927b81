"""The commands that search: `calibrate` and `plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...errors import InvalidArgumentError
from ..options import INTEGER, adjacency_option, analysis_option, delta_option, json_option, required, run_options
from ..output import print_json, print_pairs, progress_bar

if TYPE_CHECKING:
    from ...scheme import CappedPoisson

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
    from dataclasses import replace

    from ...accounting.accountant import account
    from ...planning import calibration

    name = unknown.replace("-", "_")
    target = _target(name, options)
    scheme, known = _known(name, options)
    found = getattr(calibration, f"calibrate_{name}")(scheme, **known, **target)
    if name == "sampling_probability":
        scheme, run = replace(scheme, sampling_probability=found), known
    else:
        run = {**known, name: found}
    spent = account(scheme, **run, adjacency=target["adjacency"], analysis=target["analysis"]).epsilon(target["delta"])
    if as_json:
        inputs = {key: value for key, value in scheme.to_dict().items() if key != name}
        result = {name: found, "epsilon": spent, "utilization": scheme.utilization}
        print_json("calibrate", {**inputs, **known, **target}, result)
        return
    _print_found(unknown, found, spent, target, scheme)


def _target(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """What is to be met; the unknown itself must not be given."""
    taken = {"steps": ("steps", "epochs"), "sampling_probability": ("sampling_probability", "poisson_batch_size")}
    for given in taken.get(name, (name,)):
        if options.get(given) is not None:
            raise InvalidArgumentError(f"{given} is what is looked for; drop --{given.replace('_', '-')}")
    target = {key: required(options, key) for key in ("epsilon", "delta", "adjacency")}
    return {**target, "analysis": options.get("analysis") or "refined"}


def _known(name: str, options: dict[str, Any]) -> tuple[CappedPoisson, dict[str, Any]]:
    """The scheme, and the rest of the run that is not looked for."""
    from ... import _checks
    from ..run_file import make_scheme, make_steps

    for key in ("dataset_size", "max_batch_size"):
        required(options, key)
    if name == "sampling_probability":
        if options.get("epochs") is not None:
            raise InvalidArgumentError("epochs depend on the sampling probability that is looked for; pass --steps")
        options = {**options, "sampling_probability": 0.5}  # any value will do: it is what is looked for
    scheme = make_scheme(options, "the command line")
    known: dict[str, Any] = {}
    if name != "noise_multiplier":
        known["noise_multiplier"] = _checks.noise_multiplier(required(options, "noise_multiplier"))
    if name != "steps":
        known["steps"] = make_steps(options, scheme, "the command line")
    return scheme, known


def _print_found(unknown: str, found: float, spent: float, target: dict[str, Any], scheme: CappedPoisson) -> None:
    from ..._numbers import round_up

    # More noise costs less privacy, so its text is rounded up; the others are shown in full.
    print_pairs(
        [
            (unknown, round_up(found, 6) if unknown == "noise-multiplier" else repr(found)),
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
    from ...planning import planner

    given = {name: required(options, name) for name in ("dataset_size", "epsilon", "delta", "adjacency")}
    given["max_batch_size"] = required({"max_batch_size": options["max_batch_size"] or None}, "max_batch_size")
    if not options["steps"] and options["hardware_epochs"] is None:
        raise InvalidArgumentError("steps is missing; pass --steps, or --hardware-epochs")
    budget = {name: options[name] for name in ("steps", "hardware_epochs", "cycle_length")}
    with progress_bar("planning") as progress:
        found = planner.plan(**given, **{**budget, "steps": budget["steps"] or None}, progress=progress)
    if as_json:
        print_json("plan", {**given, **budget}, found.to_dict())
        return
    click.echo(found.table())
