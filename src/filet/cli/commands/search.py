"""The commands that search: `calibrate` and `plan`."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from ...errors import InvalidArgumentError
from ...planning.run_file import LENGTH, PHASE_KEYS
from ...planning.unknowns import RISK, TARGET, UNKNOWNS, by_risk, calibrated
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
    risk_options,
    run_options,
    settings_from,
    target_options,
)
from ..output import note, print_json, print_pairs, progress_bar, warn_of_delta, width

if TYPE_CHECKING:
    from ...scheme import CappedPoisson


@click.command(cls=Command)
@click.argument("unknown", type=click.Choice([name.replace("_", "-") for name in UNKNOWNS]))
@run_options
@target_options
@risk_options
@analysis_option
@config_option
@json_option
def calibrate(unknown: str, as_json: bool, **options: Any) -> None:
    """The noise, the steps or the sampling probability that meet a target.

    UNKNOWN is the quantity to find; pass all other options of the run, or a run file. The answer always
    meets the target: the least noise, the most steps, or the largest sampling probability whose
    certified epsilon is at or below it. The target may be a risk instead: --advantage, or
    --true-positive-rate with --false-positive-rate.

    Example: filet calibrate noise-multiplier --dataset-size 60000 --poisson-batch-size 256
    --max-batch-size 300 --steps 14000 --epsilon 3 --delta 1e-5 --adjacency zero-out
    """
    name = unknown.replace("-", "_")
    settings, unused = _settings(name, options)
    scheme, inputs, result = calibrated(name, settings)
    if as_json:
        print_json("calibrate", inputs, result)
    else:
        _print_found(name, inputs, result, scheme)
    for reason, keys in unused.items():
        if keys:
            note(f"{listed(keys)} of the file {'is' if len(keys) == 1 else 'are'} {reason}")
    if "delta" in inputs:
        warn_of_delta(inputs["delta"], scheme.dataset_size)


def _settings(name: str, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The settings without the unknown, and which keys of a file are not used, by the reason.

    The unknown is refused as an option. A risk takes the place of a file's target.
    """
    taken = UNKNOWNS[name]
    _refuse_unknown(taken, options)
    settings, _ = settings_from(options, (*PHASE_KEYS, *TARGET))
    risk = {key: options[key] for key in RISK}
    replaced = ("epsilon", "delta") if by_risk(risk) else ()
    unused = {
        "the unknown, and was not used": _there(settings, taken),
        "replaced by the risk": [key for key in _there(settings, replaced) if options[key] is None],
    }
    settings |= dict.fromkeys(chain.from_iterable(unused.values())) | risk
    if name == "sampling_probability" and settings["epochs"] is not None:
        raise InvalidArgumentError("epochs depend on the sampling probability, which is the unknown; pass --steps")
    needs = (*SCHEME_NEEDS, "noise_multiplier", LENGTH, *TARGET)
    required(settings, *(need for need in needs if need not in (name, taken, *replaced)))
    return settings, unused


def _refuse_unknown(taken: tuple[str, ...], options: dict[str, Any]) -> None:
    for given in _there(options, taken):
        raise InvalidArgumentError(f"{given} is the unknown; drop {flag(given)}")


def _there(settings: dict[str, Any], keys: tuple[str, ...]) -> list[str]:
    return [key for key in keys if settings.get(key) is not None]


# Names of a run's cost, and of the unknown, in the answer.
_SPENT = {
    "epsilon": ("epsilon", "epsilon"),
    "membership_advantage": ("membership advantage", "advantage"),
    "true_positive_rate": ("true positive rate", "true_positive_rate"),
}


def _print_found(unknown: str, inputs: dict[str, Any], result: dict[str, Any], scheme: CappedPoisson) -> None:
    from ..._numbers import round_up

    found, used = result[unknown], "no cap"
    if scheme.capped:
        used = f"{100 * scheme.utilization:.1f} % of {scheme.max_batch_size} rows"
    measure = next(key for key in _SPENT if key in result)
    label, asked = _SPENT[measure]
    at = {"delta": "delta", "false_positive_rate": "false positive rate"}
    # More noise costs less privacy, so its text is rounded up; the others are shown in full.
    print_pairs(
        [
            (
                unknown.replace("_", "-"),
                round_up(found, 6, zeros=True) if unknown == "noise_multiplier" else repr(found),
            ),
            (label, f"{round_up(result[measure])} (target {inputs[asked]!r})"),
            *((words, repr(inputs[key])) for key, words in at.items() if key in inputs),
            ("adjacency", inputs["adjacency"]),
            ("utilization", used),
        ]
    )


_PLANNED = ("sampling_probability", "poisson_batch_size", "overflow", "noise_multiplier", "analysis")


@click.command(cls=Command)
@dataset_size_option
@click.option("--max-batch-size", type=INTEGER, multiple=True, help="Rows the hardware takes; repeat to compare.")
@click.option("--steps", type=INTEGER, multiple=True, help="Number of training steps; repeat to compare.")
@click.option(
    "--hardware-epochs", type=float, help="Instead: rows processed (padding included), in multiples of the data set."
)
@click.option("--cycle-length", type=INTEGER, help="Groups of cyclic sampling, for BandMF.  [default: 1]")
@click.option("--comparisons", is_flag=True, help="Also the note's analysis and the union bound, which cannot win.")
@target_options
@config_option
@json_option
def plan(as_json: bool, comparisons: bool, **options: Any) -> None:
    """The run that wastes the least compute at a target epsilon.

    Finds the sampling probability and the noise of every strategy at equal hardware cost, and ranks
    them by the noise left on the mean gradient of the run. A star marks the best with fixed shapes;
    "ideal" is out of reach of any sampler. Below the table stands the best as a `filet epsilon`
    command, as Python lines and as a run file. From a run file come the data set, the cap, the
    steps and the target.

    Example: filet plan --dataset-size 60000 --max-batch-size 256 --steps 14000 --epsilon 3 --delta
    1e-5 --adjacency zero-out
    """
    from ...planning import planner

    given, unused = _hardware(options)
    required(given, "dataset_size", "max_batch_size", ("steps", "hardware_epochs"), *TARGET)
    given["comparisons"] = comparisons
    with progress_bar("planning") as progress:
        found = planner.plan(**given, progress=progress)
    if as_json:
        print_json("plan", given, found.to_dict())
    else:
        click.echo(f"{found.table(width())}\n\n{found.recipe(width())}")
    if unused:
        note(f"{listed(unused)} of the file {'is' if len(unused) == 1 else 'are'} chosen by the plan, and not used")
    warn_of_delta(given["delta"], found.dataset_size)


def _hardware(options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments of `plan`, and the settings of a file that a plan chooses itself."""
    names = ("dataset_size", "max_batch_size", "steps", "hardware_epochs", "cycle_length", *TARGET)
    several = {name: list(options[name]) or None for name in ("max_batch_size", "steps")}
    found, unused = {**options, **several}, []
    if options["config"]:
        found = _file_settings(found)
        unused = [key for key in _PLANNED if found[key] is not None]
    given = {name: found[name] for name in names if name in found}
    if given["cycle_length"] is None:
        given["cycle_length"] = 1
    return given, unused


def _file_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file, with its steps also where it has epochs."""
    from ...planning.run_file import make_scheme, make_steps

    found, _ = settings_from(options, (*PHASE_KEYS, *TARGET))
    if found["no_cap"]:
        raise InvalidArgumentError("no_cap leaves nothing to plan for; write max_batch_size into the file")
    if found["epochs"] is not None:
        found["steps"] = make_steps(found, make_scheme(found, "the file"), "the file")
    return found
