"""Calibration of a described run: the noise, the steps or the sampling probability is the unknown.

Nothing heavy is imported at the top, so that the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .run_file import LENGTH, RATE

if TYPE_CHECKING:
    from ..scheme import CappedPoisson

TARGET = ("epsilon", "delta", "adjacency")
RISK = ("advantage", "true_positive_rate", "false_positive_rate")  # a target in place of epsilon and delta
# The keys of a run file that give each unknown: they must be absent.
UNKNOWNS = {
    "noise_multiplier": ("noise_multiplier",),
    "steps": LENGTH,
    "sampling_probability": RATE,
}


def by_risk(settings: Mapping[str, Any]) -> bool:
    """True if the target is a limit on what attacks reach, and not an epsilon."""
    return any(settings.get(key) is not None for key in RISK)


def calibrated(unknown: str, settings: Mapping[str, Any]) -> tuple[CappedPoisson, dict[str, Any], dict[str, Any]]:
    """The scheme, the inputs and the result of a calibration.

    `settings` are the keys of a run file and of its target; those of the unknown are None. The
    result has the run's cost under the target: epsilon, or the limited risk.
    """
    from dataclasses import replace

    from . import calibration
    from .target import chosen_target

    target = {key: settings[key] for key in (*TARGET, *RISK) if settings.get(key) is not None}
    target["analysis"] = settings["analysis"] or "refined"
    scheme, known = _known(unknown, settings)
    found = getattr(calibration, f"calibrate_{unknown}")(scheme, **known, **target)
    run = dict(known)
    if unknown == "sampling_probability":
        scheme = replace(scheme, sampling_probability=found)
    else:
        run[unknown] = found
    goal = chosen_target(**{key: target.get(key) for key in (*TARGET, *RISK, "analysis")})
    spent = goal.spent(scheme, run["noise_multiplier"], run["steps"])
    inputs = {key: value for key, value in scheme.to_dict().items() if key != unknown}
    result = {unknown: found, goal.measure: spent, "utilization": scheme.utilization}
    return scheme, {**inputs, **known, **target}, result


def _known(unknown: str, settings: Mapping[str, Any]) -> tuple[CappedPoisson, dict[str, Any]]:
    """The scheme, and the noise and the steps as far as they are known."""
    from .. import _checks
    from .run_file import make_scheme, make_steps

    if unknown == "sampling_probability":
        settings = {**settings, "sampling_probability": 0.5}  # a placeholder: calibration replaces it
    scheme = make_scheme(settings, "the run")
    known: dict[str, Any] = {}
    if unknown != "noise_multiplier":
        known["noise_multiplier"] = _checks.noise_multiplier(settings["noise_multiplier"])
    if unknown != "steps":
        known["steps"] = make_steps(settings, scheme, "the run")
    return scheme, known
