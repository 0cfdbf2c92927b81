"""The commands that search: `calibrate` and `plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ...errors import InvalidArgumentError
from ..group import Command
from ..options import (
    INTEGER,
    SCHEME_NEEDS,
    analysis_option,
    config_option,
    dataset_size_option,
    flag,
    json_option,
    listed,
    required,
    run_options,
    settings_from,
    target_options,
)
from ..output import note, print_json, print_pairs, progress_bar, warn_of_delta, width
from ..run_file import LENGTH, PHASE_KEYS, RATE

if TYPE_CHECKING:
    from ...scheme import CappedPoisson

UNKNOWNS = ("noise-multiplier", "steps", "sampling-probability")
_TARGET = ("epsilon", "delta", "adjacency")


@click.command(cls=Command)
@click.argument("unknown", type=click.Choice(UNKNOWNS))
@run_options
@target_options
@analysis_option
@config_option
@json_option
def calibrate(unknown: str, as_json: bool, **options: Any) -> None:
    """The noise, the steps or the sampling probability that meet a target.

    UNKNOWN is what to look for; pass all other options of the run, or a run file. The answer always meets the target: the
    least noise, the most steps, or the largest sampling probability whose certified epsilon is at or below it.

    Example: filet calibrate noise-multiplier --dataset-size 60000 --poisson-batch-size 256 --max-batch-size 300
    --steps 14000 --epsilon 3 --delta 1e-5 --adjacency zero-out
    """
    name = unknown.replace("-", "_")
    settings, dropped = _settings(name, options)
    scheme, inputs, result = calibrated(name, settings)
    target = {key: inputs[key] for key in _TARGET}
    if as_json:
        print_json("calibrate", inputs, result)
    else:
        _print_found(unknown, result[name], result["epsilon"], target, scheme)
    if dropped:
        note(f"{listed(dropped)} of the file is what is looked for, and was not used")
    warn_of_delta(target["delta"], scheme.dataset_size)


def calibrated(name: str, settings: Mapping[str, Any]) -> tuple[CappedPoisson, dict[str, Any], dict[str, Any]]:
    """The scheme, the inputs and the result of a search for `name`; `settings` are the keys of a run and its target."""
    from dataclasses import replace

    from ...accounting.accountant import account
    from ...planning import calibration

    target = {**{key: settings[key] for key in _TARGET}, "analysis": settings["analysis"] or "refined"}
    scheme, known = _known(name, settings)
    found = getattr(calibration, f"calibrate_{name}")(scheme, **known, **target)
    if name == "sampling_probability":
        scheme, run = replace(scheme, sampling_probability=found), known
    else:
        run = {**known, name: found}
    spent = account(scheme, **run, adjacency=target["adjacency"], analysis=target["analysis"]).epsilon(target["delta"])
    inputs = {key: value for key, value in scheme.to_dict().items() if key != name}
    return scheme, {**inputs, **known, **target}, {name: found, "epsilon": spent, "utilization": scheme.utilization}


def _settings(name: str, options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Everything but the unknown: on the command line it must not be given, in a file it is passed over."""
    taken = {"steps": LENGTH, "sampling_probability": RATE}.get(name, (name,))
    for given in taken:
        if options.get(given) is not None:
            raise InvalidArgumentError(f"{given} is what is looked for; drop {flag(given)}")
    settings, _ = settings_from(options, (*PHASE_KEYS, *_TARGET))
    dropped = [key for key in taken if settings[key] is not None]
    settings |= dict.fromkeys(dropped)
    if name == "sampling_probability" and settings["epochs"] is not None:
        raise InvalidArgumentError("epochs depend on the sampling probability that is looked for; pass --steps")
    needs = [need for need in (*SCHEME_NEEDS, "noise_multiplier", LENGTH, *_TARGET) if need not in (name, taken)]
    required(settings, *needs)
    return settings, dropped


def _known(name: str, settings: Mapping[str, Any]) -> tuple[CappedPoisson, dict[str, Any]]:
    """The scheme, and the rest of the run that is not looked for."""
    from ... import _checks
    from ..run_file import make_scheme, make_steps

    if name == "sampling_probability":
        settings = {**settings, "sampling_probability": 0.5}  # any value will do: it is what is looked for
    scheme = make_scheme(settings, "the run")
    known: dict[str, Any] = {}
    if name != "noise_multiplier":
        known["noise_multiplier"] = _checks.noise_multiplier(settings["noise_multiplier"])
    if name != "steps":
        known["steps"] = make_steps(settings, scheme, "the run")
    return scheme, known


def _print_found(unknown: str, found: float, spent: float, target: dict[str, Any], scheme: CappedPoisson) -> None:
    from ..._numbers import round_up

    used = f"{100 * scheme.utilization:.1f} % of {scheme.max_batch_size} rows" if scheme.capped else "no cap"
    # More noise costs less privacy, so its text is rounded up; the others are shown in full.
    print_pairs(
        [
            (unknown, round_up(found, 6, zeros=True) if unknown == "noise-multiplier" else repr(found)),
            ("epsilon", f"{round_up(spent)} (target {target['epsilon']!r})"),
            ("delta", repr(target["delta"])),
            ("adjacency", target["adjacency"]),
            ("utilization", used),
        ]
    )


_PLANNED = ("sampling_probability", "poisson_batch_size", "overflow", "noise_multiplier", "analysis")


@click.command(cls=Command)
@dataset_size_option
@click.option("--max-batch-size", type=INTEGER, multiple=True, help="Rows the hardware takes; repeat to compare.")
@click.option("--steps", type=INTEGER, multiple=True, help="Number of training steps; repeat to compare.")
@click.option("--hardware-epochs", type=float, help="Instead: rows of all batches, padding included, in data sets.")
@click.option("--cycle-length", type=INTEGER, help="Groups of cyclic sampling, for BandMF.  [default: 1]")
@click.option("--comparisons", is_flag=True, help="Also the note's analysis and the union bound, which cannot win.")
@target_options
@config_option
@json_option
def plan(as_json: bool, comparisons: bool, **options: Any) -> None:
    """The run that wastes the least compute at a target epsilon.

    Finds the sampling probability and the noise of every strategy at equal hardware cost, and ranks them by
    the noise left on the mean gradient. A star marks the best with fixed shapes; "ideal" is out of reach of any sampler.
    From a run file come the data set, the cap, the steps and the target.

    Example: filet plan --dataset-size 60000 --max-batch-size 256 --steps 14000 --epsilon 3 --delta 1e-5
    --adjacency zero-out
    """
    from ...planning import planner

    given, unused = _hardware(options)
    required(given, "dataset_size", "max_batch_size", ("steps", "hardware_epochs"), *_TARGET)
    given["comparisons"] = comparisons
    with progress_bar("planning") as progress:
        found = planner.plan(**given, progress=progress)
    if as_json:
        print_json("plan", given, found.to_dict())
    else:
        click.echo(found.table(width()))
    if unused:
        note(f"{listed(unused)} of the file {'is' if len(unused) == 1 else 'are'} what a plan chooses, and not used")
    warn_of_delta(given["delta"], found.dataset_size)


def _hardware(options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments of `plan`, and what a file says of things that a plan chooses itself."""
    from ..run_file import make_scheme, make_steps

    names = ("dataset_size", "max_batch_size", "steps", "hardware_epochs", "cycle_length", *_TARGET)
    several = {name: list(options[name]) or None for name in ("max_batch_size", "steps")}
    if not options["config"]:
        given = {name: options[name] for name in names} | several
        return {**given, "cycle_length": 1 if given["cycle_length"] is None else given["cycle_length"]}, []
    found, _ = settings_from({**options, **several}, (*PHASE_KEYS, *_TARGET))
    if found["no_cap"]:
        raise InvalidArgumentError("no_cap leaves nothing to plan for; write max_batch_size into the file")
    if found["epochs"] is not None:
        found["steps"] = make_steps(found, make_scheme(found, "the file"), "the file")
    given = {name: found.get(name) for name in names if name != "hardware_epochs"}
    return {**given, "cycle_length": given["cycle_length"] or 1}, [key for key in _PLANNED if found[key] is not None]
