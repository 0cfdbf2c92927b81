"""What one worker process computes for the page: short tasks, each a function of plain JSON that returns plain JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from .._progress import Progress
from ..accounting.accountant import account
from ..accounting.curve import PrivacyCurve
from ..accounting.terms import Adjacency, Phase
from ..cli import questions
from ..cli.run_file import RunFile, make_scheme, make_steps, parse_run
from ..errors import InvalidArgumentError, NoSolutionError
from ..planning.calibration import noise_for
from ..planning.strategies import STRATEGIES, best_option
from ..planning.target import Target
from ..scheme import CappedPoisson
from ..showing import columns

Given = Mapping[str, Any]
_MOST_SIZES = 240  # points of the picture of batch sizes: more than a screen can tell apart


@lru_cache(maxsize=32)
def _curve(phase: Phase, adjacency: Adjacency) -> PrivacyCurve:
    """The curve of one phase, kept because the views ask about the same one."""
    return account(
        phase.scheme, noise_multiplier=phase.noise_multiplier, steps=phase.steps, adjacency=adjacency,
        analysis=phase.analysis,
    )  # fmt: skip


def _asked(given: Given) -> tuple[RunFile, float]:
    """The run, and the delta that is asked about."""
    run = parse_run(given)
    if run.delta is None:
        raise InvalidArgumentError("delta is missing; pass a probability such as 1e-5 (it has no default)")
    return run, run.delta


def _only_curve(given: Given) -> tuple[PrivacyCurve, float]:
    """The curve of a run of one phase; one adjacency, as every picture has."""
    run, delta = _asked(given)
    if len(run.accountant.phases) != 1 or run.curve.gaussian:
        raise InvalidArgumentError("phases: the page draws runs of one phase; pass the keys of that phase")
    return _curve(run.accountant.phases[0], run.accountant.adjacency), delta


def epsilon(given: Given) -> dict[str, Any]:
    """The inputs of `filet epsilon`, and its result but for the attack, which takes longer."""
    run, delta = _asked(given)
    whole = len(run.accountant.phases) == 1 and not run.curve.gaussian
    curve = _curve(run.accountant.phases[0], run.accountant.adjacency) if whole else run.curve
    bounds = curve.epsilon_bounds(delta)
    return {
        "inputs": questions.epsilon_inputs(run, delta),
        "result": questions.epsilon_result(run, bounds, None),
    }


def attack(given: Given) -> float | None:
    run, delta = _asked(given)
    return questions.known_attack(run, delta)


def comparison(given: Given) -> dict[str, Any]:
    """The inputs of `filet compare`, and its rows without their epsilons."""
    asked, adjacencies = _compared(given)
    rows = [asked.row(policy, analysis, adjacencies) for policy, analysis in questions.compared_kinds()]
    return {"inputs": asked.inputs(adjacencies), "rows": rows}


def entry(given: Given, policy: str, analysis: str, adjacency: str) -> float | None:
    """One epsilon of `filet compare`."""
    asked, _ = _compared(given)
    return asked.entry(policy, analysis, adjacency)[0]


def _compared(given: Given) -> tuple[questions.Comparison, list[str]]:
    from .. import _checks

    wanted = given.get("adjacency")
    names = wanted if isinstance(wanted, list) and wanted else [wanted]
    adjacencies = [_checks.choice("adjacency", name, Adjacency).value for name in names]
    return questions.Comparison.asked(given), adjacencies


def calibrated(given: Given) -> dict[str, Any]:
    """The answer of `filet calibrate`."""
    options = dict(given)
    name = str(options.pop("unknown", "noise_multiplier")).replace("-", "_")
    if name not in ("noise_multiplier", "steps", "sampling_probability"):
        raise InvalidArgumentError(
            f"unknown={name!r} cannot be looked for; pass noise_multiplier, steps or sampling_probability"
        )
    found = questions.calibrated(name, options)
    return {"inputs": found.inputs, "result": found.result}


def planned(given: Given, progress: Progress) -> dict[str, Any]:
    """The answer of `filet plan`."""
    inputs, found = questions.planned(given, progress)
    return {"inputs": inputs, "result": found.to_dict()}


def sizes(given: Given) -> dict[str, Any]:
    """The law of batch sizes at no more sizes than a screen can show, and what follows from it."""
    scheme = make_scheme(given, "the run")
    free = CappedPoisson(scheme.group_size, scheme.sampling_probability, scheme.group_size)
    shown = _shown_sizes(scheme)
    table = {"size": [float(size) for size in shown]}
    for name, one in (("probability", scheme), ("probability_without_cap", free)):
        table[name] = [math.exp(one.log_batch_size_probability(size)) for size in shown]
    marks = {
        "max_batch_size": scheme.max_batch_size,
        "poisson_batch_size": scheme.poisson_batch_size,
        "expected_batch_size": scheme.expected_batch_size,
        "utilization": scheme.utilization,
        "overflow_probability": scheme.overflow_probability,
        "sampling_probability": scheme.sampling_probability,
    }
    if given.get("steps") is not None or given.get("epochs") is not None:
        marks["steps"] = make_steps(given, scheme, "the run")
    return {"inputs": scheme.to_dict(), "columns": table, "marks": marks}


def _shown_sizes(scheme: CappedPoisson) -> list[int]:
    """Sizes around the mean and up to the cap, evenly spaced, the cap and its neighbours always among them."""
    n, p, cap = scheme.group_size, scheme.sampling_probability, scheme.max_batch_size
    mean, spread = n * p, math.sqrt(n * p * (1.0 - p))
    low = max(0, math.floor(min(mean - 4.5 * spread, cap - 0.5 * spread)))
    high = min(n, math.ceil(max(mean + 4.5 * spread, min(cap, mean * 1.6) + 0.5 * spread)) + 1)
    stride = max(1, (high - low) // _MOST_SIZES)
    near = [size for size in (cap - 1, cap, cap + 1) if low <= size <= high]
    return sorted({*range(low, high + 1, stride), *near})


def caps(given: Given, points: int) -> dict[str, Any]:
    """The caps at which epsilon is drawn: where the batch sizes lie, with head-room, and the given cap."""
    asked, adjacencies = _compared(given)
    cap = min(asked.scheme.max_batch_size, asked.scheme.group_size)
    return {"inputs": asked.inputs(adjacencies), "caps": _around(asked.scheme, -1.0, 6.0, points), "cap": cap}


def _around(scheme: CappedPoisson, low: float, high: float, points: int) -> list[int]:
    """The scheme's cap, and caps from so many standard deviations of the batch size below the mean to so many above it."""
    n, p = scheme.group_size, scheme.sampling_probability
    mean, spread = n * p, math.sqrt(n * p * (1.0 - p))
    grid = (mean + spread * np.linspace(low, high, points)).tolist()
    return sorted({min(n, max(1, round(value))) for value in (*grid, scheme.max_batch_size)})


def profile(given: Given, delta: float) -> dict[str, Any]:
    """One point of delta(epsilon): the epsilon of the analysis at delta, and what an attack with all other examples zero loses."""
    curve, _ = _only_curve(given)
    bounds = curve.epsilon_bounds(delta)
    reached = min(_zero_others(curve.phases[0], curve.adjacency).epsilon_bounds(delta).lower, bounds.upper)
    return {"delta": delta, "epsilon_upper": bounds.upper, "epsilon_lower": bounds.lower, "epsilon_attack": reached}


@lru_cache(maxsize=8)
def _zero_others(phase: Phase, adjacency: Adjacency) -> PrivacyCurve:
    return columns.zero_others(_curve(phase, adjacency))


def power(given: Given, points: int) -> dict[str, Any]:
    """The trade-off of tests: what any attack can reach, and what one does reach."""
    curve, _ = _only_curve(given)
    found = columns.trade_off(curve, points=points)
    return {name: array.tolist() for name, array in found.arrays.items()}


def described(given: Given) -> dict[str, Any]:
    """The inputs of `filet epsilon`, checked but not computed with."""
    run, delta = _asked(given)
    _only_curve(given)
    return questions.epsilon_inputs(run, delta)


def noise(given: Given, max_batch_size: int, overflow: str) -> dict[str, Any] | None:
    """The noise that the target takes at a cap and policy, with the given sampling probability; None if none is enough."""
    target, scheme, steps = _targeted({**given, "max_batch_size": max_batch_size, "overflow": overflow})
    found = noise_for(target, scheme, steps)
    if found is None:
        return None
    return {"noise_multiplier": found, "effective_noise": found / scheme.expected_batch_size}


def option(given: Given, overflow: str) -> dict[str, Any] | None:
    """The planner's best run under a policy at the given cap, target and steps; None if the target cannot be met."""
    target, scheme, steps = _targeted(given)
    hardware = CappedPoisson(scheme.dataset_size, 1.0, scheme.max_batch_size, cycle_length=scheme.cycle_length)
    strategy = next(one for one in STRATEGIES if one.name == overflow)
    found = best_option(target, strategy, hardware, steps)
    return None if found is None else found.to_dict()


def hardware(given: Given, points: int) -> dict[str, Any]:
    """The caps at which utilization is drawn, around the sizes of batches and the given cap, and the share of rows in use."""
    target, scheme, steps = _targeted(given)
    at = _around(scheme, -3.0, 8.0, points)
    used = [{policy: _used(scheme, cap, policy) for policy in ("truncate", "reject")} for cap in at]
    inputs = {**scheme.to_dict(), "steps": steps, "epsilon": target.epsilon, "delta": target.delta,
              "adjacency": target.adjacency.value}  # fmt: skip
    return {"inputs": inputs, "caps": at, "used": used}


def _used(scheme: CappedPoisson, cap: int, policy: str) -> float | None:
    try:
        return CappedPoisson(**{**scheme.to_dict(), "max_batch_size": cap, "overflow": policy}).utilization
    except InvalidArgumentError:  # nothing to accept at probability 1
        return None


def _targeted(given: Given) -> tuple[Target, CappedPoisson, int]:
    target = Target.checked(given.get("epsilon"), given.get("delta"), given.get("adjacency"), "refined")
    scheme = make_scheme(given, "the run")
    steps = make_steps(given, scheme, "the run")
    if steps < 1:
        raise NoSolutionError("steps=0 cost nothing at any noise; pass at least one step")
    return target, scheme, steps


TASKS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (epsilon, attack, comparison, entry, calibrated, planned, sizes, caps, profile, power, described,
                     noise, option, hardware)
}  # fmt: skip
REPORTING = ("planned",)  # tasks that say how far they are
