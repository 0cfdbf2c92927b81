"""What one worker process computes for the page: short tasks, each a function of plain JSON that returns plain JSON."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from .. import _checks
from .._progress import Progress
from ..accounting.accountant import account
from ..accounting.curve import PrivacyCurve
from ..accounting.terms import Adjacency, Phase
from ..cli.commands.comparison import Comparison, kinds, utilization
from ..cli.commands.search import calibrated as calibration
from ..cli.output import describe_run
from ..cli.run_file import LENGTH, PHASE_KEYS, RATE, RunFile, make_scheme, make_steps, parse_run
from ..errors import InvalidArgumentError, NoSolutionError, NotCertifiedError
from ..planning.calibration import noise_for
from ..planning.planner import plan
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
    return _curve(_only_phase(run)[0], run.accountant.adjacency), delta


def _only_phase(run: RunFile) -> tuple[Phase]:
    if len(run.accountant.phases) != 1 or run.curve.gaussian:
        raise InvalidArgumentError("phases: the page draws runs of one phase; pass the keys of that phase")
    return (run.accountant.phases[0],)


def epsilon(given: Given) -> dict[str, Any]:
    """The inputs of `filet epsilon`, and its result but for the attack, which takes longer."""
    run, delta = _asked(given)
    whole = len(run.accountant.phases) == 1 and not run.curve.gaussian
    curve = _curve(run.accountant.phases[0], run.accountant.adjacency) if whole else run.curve
    bounds = curve.epsilon_bounds(delta)
    met = None if run.max_epsilon is None else bounds.upper <= run.max_epsilon
    result = {"epsilon": bounds.upper, "epsilon_lower": bounds.lower, "attack_epsilon": None, "target_met": met}
    return {"inputs": _inputs(run, delta), "result": result}


def _inputs(run: RunFile, delta: float) -> dict[str, Any]:
    return {**describe_run(run.curve), "delta": delta, "max_epsilon": run.max_epsilon}


def attack(given: Given) -> float | None:
    """What the best known attack proves to be lost; None where none is known."""
    run, delta = _asked(given)
    try:
        return Comparison(run, delta).epsilon(list(run.accountant.phases), run.accountant.adjacency.value, attack=True)
    except NotCertifiedError:
        return None


def comparison(given: Given) -> dict[str, Any]:
    """The inputs of `filet compare`, and its rows without their epsilons."""
    asked, adjacencies = _compared(given)
    rows = []
    for policy, analysis in kinds():
        used = None
        with contextlib.suppress(InvalidArgumentError):  # at probability 1 reject has no batch
            used = None if policy == "no cap" else utilization(asked.phases(policy, analysis))
        rows.append(
            {"policy": policy, "analysis": analysis, "utilization": used, "epsilon": dict.fromkeys(adjacencies)}
        )
    return {"inputs": {**asked.inputs(), "delta": asked.delta, "adjacency": adjacencies}, "rows": rows}


def entry(given: Given, policy: str, analysis: str, adjacency: str) -> float | None:
    """One epsilon of `filet compare`; None where there is none."""
    asked, _ = _compared(given)
    try:
        return asked.epsilon(asked.phases(policy, analysis), adjacency, attack=analysis == "attack")
    except NotCertifiedError:
        return None
    except InvalidArgumentError:
        if policy != "reject":  # only reject can be impossible where the others are not
            raise
        return None


def _compared(given: Given) -> tuple[Comparison, list[str]]:
    """What is compared, and under which adjacencies: one, or a list of them."""
    wanted = given.get("adjacency")
    names = wanted if isinstance(wanted, list) and wanted else [wanted]
    adjacencies = [_checks.choice("adjacency", name, Adjacency).value for name in names]
    run, delta = _asked({**given, "adjacency": adjacencies[0]})
    return Comparison(run, delta), adjacencies


def calibrated(given: Given) -> dict[str, Any]:
    """The answer of `filet calibrate`."""
    options = dict(given)
    name = str(options.pop("unknown", "noise_multiplier")).replace("-", "_")
    taken = {"noise_multiplier": ("noise_multiplier",), "steps": LENGTH, "sampling_probability": RATE}
    if name not in taken:
        raise InvalidArgumentError(
            f"unknown={_checks.show(name)} cannot be looked for; pass noise_multiplier, steps or sampling_probability"
        )
    for key in taken[name]:
        if options.get(key) is not None:
            raise InvalidArgumentError(f"{key} is what is looked for; drop it")
    for key in ("epsilon", "delta", "adjacency"):
        if options.get(key) is None:
            raise InvalidArgumentError(f"{key} is missing; pass it (it has no default)")
    if name != "noise_multiplier" and options.get("noise_multiplier") is None:
        raise InvalidArgumentError("noise_multiplier is missing; pass it (it has no default)")
    _, inputs, result = calibration(name, {**dict.fromkeys(PHASE_KEYS), **options})
    return {"inputs": inputs, "result": result}


def planned(given: Given, progress: Progress) -> dict[str, Any]:
    """The answer of `filet plan`."""
    for key in ("dataset_size", "max_batch_size", "epsilon", "delta", "adjacency"):
        if given.get(key) is None:
            raise InvalidArgumentError(f"{key} is missing; pass it (it has no default)")
    names = (
        "dataset_size",
        "max_batch_size",
        "steps",
        "hardware_epochs",
        "cycle_length",
        "epsilon",
        "delta",
        "adjacency",
    )
    asked: dict[str, Any] = {
        **{name: given.get(name) for name in names},
        "cycle_length": given.get("cycle_length") or 1,
        "comparisons": bool(given.get("comparisons")),
    }
    return {"inputs": asked, "result": plan(**asked, progress=progress).to_dict()}


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
    [phase] = _only_phase(asked.run)
    cap = min(phase.scheme.max_batch_size, phase.scheme.group_size)
    inputs = {**asked.inputs(), "delta": asked.delta, "adjacency": adjacencies}
    return {"inputs": inputs, "caps": _around(phase.scheme, -1.0, 6.0, points), "cap": cap}


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
    return _inputs(run, delta)


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
