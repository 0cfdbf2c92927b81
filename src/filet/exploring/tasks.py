"""Tasks of the worker processes: short functions of plain JSON that return plain JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from .. import _checks
from .._progress import Progress
from ..accounting.accountant import account
from ..accounting.curve import PrivacyCurve
from ..accounting.terms import Adjacency, Phase
from ..errors import InvalidArgumentError, NotCertifiedError
from ..planning import unknowns
from ..planning.calibration import noise_for
from ..planning.comparison import Comparison, attack_epsilon
from ..planning.planner import plan
from ..planning.run_file import PHASE_KEYS, RunFile, make_scheme, make_steps, parse_run
from ..planning.strategies import SECRET, STRATEGIES, best_option
from ..planning.target import Target
from ..scheme import CappedPoisson
from ..showing import columns
from ..showing.answers import describe_run
from ..showing.risk import risks

Given = Mapping[str, Any]
_MOST_SIZES = 2000  # rows of batch sizes: every size of ordinary runs; a slider redraws them


@lru_cache(maxsize=32)
def _curve(phase: Phase, adjacency: Adjacency) -> PrivacyCurve:
    """The curve of one phase, kept because the views ask about the same one."""
    return account(
        phase.scheme,
        noise_multiplier=phase.noise_multiplier,
        steps=phase.steps,
        adjacency=adjacency,
        analysis=phase.analysis,
    )


def _need(given: Given, *keys: str) -> None:
    for key in keys:
        if given.get(key) is None:
            raise InvalidArgumentError(f"{key} is missing; pass it (it has no default)")


def _asked(given: Given) -> tuple[RunFile, float]:
    """The run, and the delta that is asked about."""
    run = parse_run(given)
    if run.delta is None:
        raise InvalidArgumentError("delta is missing; pass a probability such as 1e-5 (it has no default)")
    return run, run.delta


def _only_phase(run: RunFile) -> Phase:
    if run.only_phase is None:
        raise InvalidArgumentError("phases: the page draws runs of one phase; pass the keys of that phase")
    return run.only_phase


def _only_curve(given: Given) -> PrivacyCurve:
    run, _ = _asked(given)
    return _curve(_only_phase(run), run.accountant.adjacency)


def epsilon(given: Given) -> dict[str, Any]:
    """The inputs and the result of `filet epsilon`, without the attack, which takes longer."""
    run, delta = _asked(given)
    phase = run.only_phase
    curve = run.curve if phase is None else _curve(phase, run.accountant.adjacency)
    bounds = curve.epsilon_bounds(delta)
    result = {
        "epsilon": bounds.upper,
        "epsilon_lower": bounds.lower,
        "attack_epsilon": None,
        "target_met": None if run.max_epsilon is None else bounds.upper <= run.max_epsilon,
    }
    return {"inputs": _inputs(run, delta), "result": result}


def _inputs(run: RunFile, delta: float) -> dict[str, Any]:
    return {**describe_run(run.curve), "delta": delta, "max_epsilon": run.max_epsilon}


def attack(given: Given) -> float | None:
    """The epsilon that the best known attack proves to be lost; None where none is known."""
    run, delta = _asked(given)
    if run.only_phase is None:
        return None
    try:
        return attack_epsilon(run.only_phase, run.accountant.adjacency.value, delta)
    except NotCertifiedError:
        return None


def comparison(given: Given) -> dict[str, Any]:
    """The inputs of `filet compare`, and its rows without their epsilons."""
    asked, adjacencies = _compared(given)
    return {"inputs": asked.inputs(adjacencies), "rows": asked.rows(adjacencies)}


def entry(given: Given, policy: str, analysis: str, adjacency: str) -> float | None:
    """One epsilon of `filet compare`; None where there is none."""
    asked, _ = _compared(given)
    return asked.epsilon(policy, analysis, adjacency)


def _compared(given: Given) -> tuple[Comparison, list[str]]:
    """The run to compare, and its adjacencies: one, or a list of them."""
    wanted = given.get("adjacency")
    names = wanted if isinstance(wanted, list) and wanted else [wanted]
    adjacencies = [_checks.choice("adjacency", name, Adjacency).value for name in names]
    run, delta = _asked({**given, "adjacency": adjacencies[0]})
    return Comparison(run, delta), adjacencies


def calibrated(given: Given) -> dict[str, Any]:
    """The answer of `filet calibrate`."""
    options = dict(given)
    name = str(options.pop("unknown", "noise_multiplier")).replace("-", "_")
    if name not in unknowns.UNKNOWNS:
        raise InvalidArgumentError(
            f"unknown={_checks.show(name)} cannot be looked for; pass noise_multiplier, steps or sampling_probability"
        )
    for key in unknowns.UNKNOWNS[name]:
        if options.get(key) is not None:
            raise InvalidArgumentError(f"{key} is what is looked for; drop it")
    _need(options, *unknowns.TARGET)
    if name != "noise_multiplier":
        _need(options, "noise_multiplier")
    _, inputs, result = unknowns.calibrated(name, {**dict.fromkeys(PHASE_KEYS), **options})
    return {"inputs": inputs, "result": result}


def planned(given: Given, progress: Progress) -> dict[str, Any]:
    """The answer of `filet plan`."""
    _need(given, "dataset_size", "max_batch_size", *unknowns.TARGET)
    names = ("dataset_size", "max_batch_size", "steps", "hardware_epochs", "cycle_length")
    asked: dict[str, Any] = {name: given.get(name) for name in (*names, *unknowns.TARGET)}
    asked["cycle_length"] = given.get("cycle_length") or 1
    asked["comparisons"] = bool(given.get("comparisons"))
    return {"inputs": asked, "result": plan(**asked, progress=progress).to_dict()}


def sizes(given: Given) -> dict[str, Any]:
    """The law of batch sizes, and numbers that follow from it.

    Where there are too many sizes to list, a row stands for several. Its probability is that of its
    own size, and probabilities times `sizes` add up to 1.
    """
    scheme = make_scheme(given, "the run")
    free = CappedPoisson(scheme.group_size, scheme.sampling_probability, scheme.group_size)
    shown = _shown_sizes(scheme)
    gaps = [1, *(after - before for before, after in pairwise(shown)), 1]
    table = {
        "size": [float(size) for size in shown],
        "sizes": [0.5 * sum(pair) for pair in pairwise(gaps)],
    }
    for name, one in (("probability", scheme), ("probability_without_cap", free)):
        table[name] = [math.exp(one.log_batch_size_probability(size)) for size in shown]
    names = (
        "max_batch_size",
        "poisson_batch_size",
        "expected_batch_size",
        "utilization",
        "overflow_probability",
        "sampling_probability",
    )
    marks = {name: getattr(scheme, name) for name in names}
    if given.get("steps") is not None or given.get("epochs") is not None:
        marks["steps"] = make_steps(given, scheme, "the run")
    return {"inputs": scheme.to_dict(), "columns": table, "marks": marks}


def _shown_sizes(scheme: CappedPoisson) -> list[int]:
    """Evenly spaced sizes around the mean and up to the cap, with the cap and its neighbours."""
    n, cap = scheme.group_size, scheme.max_batch_size
    mean, spread = _mean_and_spread(scheme)
    low = max(0, math.floor(min(mean, cap) - 5.5 * spread))
    high = math.ceil(max(mean + 5.5 * spread, min(cap, mean * 1.6) + 0.5 * spread)) + 3
    high = min(n, high)
    stride = math.ceil((high - low + 1) / _MOST_SIZES)
    near = [size for size in (cap - 1, cap, cap + 1) if low <= size <= high]
    return sorted({*range(low, high + 1, stride), *near})


def _mean_and_spread(scheme: CappedPoisson) -> tuple[float, float]:
    """Mean and standard deviation of the batch size before the cap."""
    mean = scheme.group_size * scheme.sampling_probability
    return mean, math.sqrt(mean * (1.0 - scheme.sampling_probability))


def caps(given: Given, points: int) -> dict[str, Any]:
    """Caps for the curve of epsilon: around the batch sizes, with head-room, and the given one."""
    asked, adjacencies = _compared(given)
    scheme = _only_phase(asked.run).scheme
    return {
        "inputs": asked.inputs(adjacencies),
        "caps": _around(scheme, -1.0, 6.0, points),
        "cap": min(scheme.max_batch_size, scheme.group_size),
    }


def _around(scheme: CappedPoisson, low: float, high: float, points: int) -> list[int]:
    """Caps `low` to `high` standard deviations from the mean batch size, and the scheme's own."""
    mean, spread = _mean_and_spread(scheme)
    grid = (mean + spread * np.linspace(low, high, points)).tolist()
    values = (*grid, scheme.max_batch_size)
    return sorted({min(scheme.group_size, max(1, round(value))) for value in values})


def profile(given: Given, delta: float) -> dict[str, Any]:
    """One point of the privacy profile: epsilon at delta, from above, from below and by an attack.

    All other examples of the attacked data set are zero.
    """
    curve = _only_curve(given)
    bounds = curve.epsilon_bounds(delta)
    attacked = _zero_others(curve.phases[0], curve.adjacency).epsilon_bounds(delta).lower
    return {
        "delta": delta,
        "epsilon_upper": bounds.upper,
        "epsilon_lower": bounds.lower,
        "epsilon_attack": min(attacked, bounds.upper),
    }


@lru_cache(maxsize=8)
def _zero_others(phase: Phase, adjacency: Adjacency) -> PrivacyCurve:
    return columns.zero_others(_curve(phase, adjacency))


def power(given: Given, points: int) -> dict[str, Any]:
    """The trade-off of tests: an upper bound for every attack, and the power of one."""
    found = columns.trade_off(_only_curve(given), points=points)
    return {name: array.tolist() for name, array in found.arrays.items()}


def risk(given: Given, points: int) -> dict[str, Any]:
    """The measures of `filet risk`, and a column of beliefs after the run for beliefs before it."""
    run, delta = _asked(given)
    curve = _curve(_only_phase(run), run.accountant.adjacency)
    # Evenly spaced in the logarithm of the odds, where the curve bends: from 0.001 to 0.999, and a half.
    odds = np.exp(np.linspace(-math.log(999.0), math.log(999.0), points)).tolist()
    priors = sorted({0.5, *(one / (1.0 + one) for one in odds)})
    beliefs = [curve.posterior_belief(prior, delta) for prior in priors]
    return {"risk": risks(curve, delta), "columns": {"prior": priors, "belief": beliefs}}


def described(given: Given) -> dict[str, Any]:
    """The inputs of `filet epsilon` for a run of one phase, checked but not computed with."""
    run, delta = _asked(given)
    _only_phase(run)
    return _inputs(run, delta)


def noise(given: Given, max_batch_size: int, overflow: str) -> dict[str, Any] | None:
    """The noise that the target takes at a cap and policy; None if no noise is enough.

    The sampling probability is the given one.
    """
    changed = {**given, "max_batch_size": max_batch_size, "overflow": overflow}
    target, scheme, steps = _targeted(changed)
    found = noise_for(target, scheme, steps)
    if found is None:
        return None
    return {"noise_multiplier": found, "effective_noise": found / scheme.expected_batch_size}


def option(given: Given, overflow: str) -> dict[str, Any] | None:
    """The planner's best run under a policy at the given cap; None if it has none, or the target cannot be met."""
    target, scheme, steps = _targeted(given)
    rows, cycle = scheme.max_batch_size, scheme.cycle_length
    whole = CappedPoisson(scheme.dataset_size, 1.0, rows, cycle_length=cycle)
    wanted = overflow, scheme.size, target.analysis
    strategy = next((one for one in (*STRATEGIES, SECRET) if (one.overflow, one.size, one.analysis) == wanted), None)
    found = best_option(target, strategy, whole, steps) if strategy and strategy.fits(whole) else None
    return None if found is None else found.to_dict()


def hardware(given: Given, points: int) -> dict[str, Any]:
    """Caps for the curves of utilization, and the share of rows in use at each."""
    target, scheme, steps = _targeted(given)
    at = _around(scheme, -3.0, 8.0, points)
    policies = ("truncate", "reject")
    used = [{policy: _used(scheme, cap, policy) for policy in policies} for cap in at]
    asked = {
        "epsilon": target.epsilon,
        "delta": target.delta,
        "adjacency": target.adjacency.value,
    }
    return {"inputs": {**scheme.to_dict(), "steps": steps, **asked}, "caps": at, "used": used}


def _used(scheme: CappedPoisson, cap: int, policy: str) -> float | None:
    changed = {**scheme.to_dict(), "max_batch_size": cap, "overflow": policy}
    try:
        return CappedPoisson(**changed).utilization
    except InvalidArgumentError:  # at probability 1 reject has no batch
        return None


def _targeted(given: Given) -> tuple[Target, CappedPoisson, int]:
    asked = [given.get(key) for key in ("epsilon", "delta", "adjacency")]
    target = Target.checked(asked[0], asked[1], asked[2], "refined")
    scheme = make_scheme(given, "the run")
    return target, scheme, make_steps(given, scheme, "the run")
