"""The commands that search: `calibrate` and `plan`."""

from __future__ import annotations

from typing import Any

import click

from ...errors import InvalidArgumentError, NoSolutionError
from ..options import INTEGER, adjacency_option, analysis_option, delta_option, json_option, required, run_options
from ..output import note, print_json, print_pairs, print_table, progress

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

    Example: filet calibrate noise-multiplier --dataset-size 60000 --expected-batch-size 256 --max-batch-size 300
    --steps 14000 --epsilon 3 --delta 1e-5 --adjacency zero-out
    """
    from dataclasses import replace

    from ... import _checks
    from ..._numbers import round_up
    from ...accounting.accountant import account
    from ...planning import calibration
    from ...planning.target import Target
    from ..run_file import make_scheme, make_steps

    name = unknown.replace("-", "_")
    taken = {"steps": ("steps", "epochs"), "sampling_probability": ("sampling_probability", "expected_batch_size")}
    for given in taken.get(name, (name,)):
        if options.get(given) is not None:
            raise InvalidArgumentError(f"{given} is what is looked for; drop --{given.replace('_', '-')}")
    target = {key: required(options, key) for key in ("epsilon", "delta", "adjacency")}
    target["analysis"] = options.get("analysis") or "refined"
    for key in ("dataset_size", "max_batch_size"):
        required(options, key)
    if name == "sampling_probability":
        # Any value will do here: it is what is looked for.
        scheme = make_scheme({**options, "sampling_probability": 0.5}, "the command line")
    else:
        scheme = make_scheme(options, "the command line")
    known: dict[str, Any] = {}
    if name != "noise_multiplier":
        known["noise_multiplier"] = _checks.noise_multiplier(required(options, "noise_multiplier"))
    if name != "steps":
        known["steps"] = make_steps(options, scheme, "the command line")
        if name == "sampling_probability" and options.get("epochs") is not None:
            raise InvalidArgumentError("epochs depend on the sampling probability that is looked for; pass --steps")
    Target.checked(**target)
    try:
        found = getattr(calibration, f"calibrate_{name}")(scheme, **known, **target)
    except InvalidArgumentError as error:  # the arguments were checked above, so the target is out of reach
        raise NoSolutionError(str(error)) from None
    run = {**known, name: found}
    if name == "sampling_probability":
        scheme = replace(scheme, sampling_probability=run.pop(name))
    spent = account(scheme, **run, adjacency=target["adjacency"], analysis=target["analysis"]).epsilon(target["delta"])
    if as_json:
        inputs = {**_scheme_keys(scheme), **known, **target}
        if name == "sampling_probability":
            del inputs[name]
        print_json("calibrate", inputs, {name: found, "epsilon": spent, "utilization": scheme.utilization})
        return
    # More noise costs less privacy, so its text is rounded up; the others are shown in full.
    print_pairs(
        [
            (unknown, round_up(found, 6) if name == "noise_multiplier" else repr(found)),
            ("epsilon", f"{round_up(spent)} (target {target['epsilon']!r})"),
            ("delta", repr(target["delta"])),
            ("adjacency", target["adjacency"]),
            ("utilization", f"{100 * scheme.utilization:.1f} % of {scheme.max_batch_size} rows"),
        ]
    )


def _scheme_keys(scheme: Any) -> dict[str, Any]:
    names = ("dataset_size", "sampling_probability", "max_batch_size", "cycle_length")
    return {**{name: getattr(scheme, name) for name in names}, "overflow": scheme.overflow.value}


@click.command()
@click.option("--dataset-size", type=INTEGER, help="Number of examples, public (add-remove: of the larger set).")
@click.option("--max-batch-size", type=INTEGER, multiple=True, help="Rows the hardware takes; repeat to compare.")
@click.option("--steps", type=INTEGER, multiple=True, help="Number of training steps; repeat to compare.")
@click.option("--epochs", type=float, help="Instead: hardware rows in passes over the data set.")
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
    from ..._numbers import round_up
    from ...planning import planner

    names = ("dataset_size", "epsilon", "delta", "adjacency")
    given = {name: required(options, name) for name in names}
    given["max_batch_size"] = required({"max_batch_size": options["max_batch_size"] or None}, "max_batch_size")
    if not options["steps"] and options["epochs"] is None:
        raise InvalidArgumentError("steps is missing; pass --steps, or --epochs")
    with progress("planning", 1000) as advance:
        done = 0

        def report(share: float, _: str) -> None:
            nonlocal done
            advance(round(1000 * share) - done)
            done = round(1000 * share)

        try:
            found = planner.plan(
                **given,
                steps=options["steps"] or None,
                epochs=options["epochs"],
                cycle_length=options["cycle_length"],
                progress=report,
            )
        except InvalidArgumentError as error:
            if "cannot be met" in str(error):
                raise NoSolutionError(str(error)) from None
            raise
    for reason in found.skipped:
        note(f"skipped {reason}")
    if as_json:
        inputs = {
            **given,
            "steps": options["steps"],
            "epochs": options["epochs"],
            "cycle_length": options["cycle_length"],
        }
        print_json("plan", inputs, found.to_dict())
        return
    header = ["option", "batch", "steps", "probability", "noise", "rows used", "overflow", "noise/example", "x ideal"]
    print_table(
        header,
        [
            [
                option.name + (" *" if option is found.best else ""),
                str(option.max_batch_size),
                str(option.steps),
                repr(option.scheme.sampling_probability),
                round_up(option.noise_multiplier, 6),
                f"{100 * option.utilization:.1f} %",
                round_up(option.overflow_probability, 2),
                round_up(option.effective_noise),
                round_up(option.ratio_to_ideal),
            ]
            for option in found.options
        ],
    )
