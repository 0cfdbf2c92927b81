"""Arrays to draw or to export: each function returns `Columns`, the named arrays of one picture.

>>> import filet
>>> scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
>>> curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
>>> print(delta_of_epsilon(curve, points=3).to_csv().splitlines()[0])
epsilon,delta_upper,delta_lower,delta_attack

Numbers are written with all their digits, so that upper bounds stay upper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _checks
from .._progress import Progress, reported
from ..accounting.accountant import Accountant, account
from ..accounting.curve import PrivacyCurve, delta_brackets_each_order
from ..accounting.lower_bounds import epsilon_lower_bound
from ..accounting.terms import Adjacency, AdjacencyName, Analysis, AnalysisName
from ..errors import InvalidArgumentError, NoSolutionError, NotCertifiedError
from ..planning.calibration import calibrate_sampling_probability
from ..planning.frontiers import frontier
from ..planning.strategies import STRATEGIES
from ..scheme import CappedPoisson, Overflow, Size

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Named arrays of equal length, and the assumptions behind them.

    >>> print(Columns({"a": np.array([1.0, 2.0]), "b": np.array([0.1, np.inf])}).to_csv(), end="")
    a,b
    1,0.1
    2,inf
    """

    arrays: Mapping[str, Array]
    assumptions: str = ""
    marks: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def to_csv(self) -> str:
        """Comma-separated text with full precision and a header line."""
        rows = zip(*self.arrays.values(), strict=True)
        return "\n".join([",".join(self.arrays), *(",".join(map(_number, row)) for row in rows)]) + "\n"


def _number(value: float) -> str:
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _describe(scheme: CappedPoisson, sigma: float | None = None) -> str:
    cap = [f"B={scheme.max_batch_size}", str(scheme.overflow)] if scheme.capped else ["no cap"]
    parts = [f"n={scheme.dataset_size}", f"p={scheme.sampling_probability:.4g}", *cap]
    if scheme.cycle_length > 1:
        parts.append(f"{scheme.cycle_length} groups")
    if scheme.size is not Size.PUBLIC:
        parts.append(f"size {scheme.size}")
    if sigma is not None:
        parts.append(f"noise multiplier {sigma:g}")
    return ", ".join(parts)


def _describe_curve(curve: PrivacyCurve) -> str:
    phases = "; ".join(
        f"{_describe(p.scheme, p.noise_multiplier)}, {p.steps} steps, {p.analysis}" for p in curve.phases
    )
    return f"{curve.adjacency}; {phases}" if phases else str(curve.adjacency)


def checked_points(points: int) -> int:
    return _checks.integer("points", points, low=2, high=100_000, remedy="pass the number of points to compute")


def epsilon_of_steps(
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    steps: int,
    delta: float,
    adjacency: Adjacency | AdjacencyName,
    analyses: Sequence[Analysis | AnalysisName] = (Analysis.REFINED,),
    points: int = 25,
    progress: Progress | None = None,
) -> Columns:
    """Epsilon after 1 .. `steps` steps, closer together at first, one column for each analysis.

    `epsilon_attack` is a lower bound that an explicit attack proves (`epsilon_lower_bound`): the truth
    lies between.

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    >>> curve = epsilon_of_steps(scheme, noise_multiplier=1.0, steps=100, delta=1e-5, adjacency="zero-out", points=3)
    >>> [int(value) for value in curve["steps"]]
    [1, 26, 100]
    """
    steps = _checks.integer("steps", steps, low=1, remedy="pass the number of training steps")
    counts = np.unique(np.round(1 + (steps - 1) * np.linspace(0.0, 1.0, checked_points(points)) ** 2))
    kinds = [_checks.choice("analysis", analysis, Analysis) for analysis in analyses]
    given: dict[str, Any] = {"noise_multiplier": noise_multiplier, "adjacency": adjacency}
    tries = [(kind, int(count)) for kind in (*kinds, "attack") for count in counts]
    arrays: dict[str, list[float]] = {f"epsilon_{kind}": [] for kind in (*kinds, "attack")}
    for kind, count in reported(tries, progress, lambda one: f"{one[0]}, {one[1]} steps"):
        if isinstance(kind, Analysis):
            value = account(scheme, steps=count, analysis=kind, **given).epsilon(delta)
        else:
            value = epsilon_lower_bound(scheme, steps=count, delta=delta, **given)
        arrays[f"epsilon_{kind}"].append(value)
    relation = _checks.choice("adjacency", adjacency, Adjacency)
    about = f"{relation}, delta={delta:g}; {_describe(scheme, noise_multiplier)}"
    columns = {name: np.array(values) for name, values in arrays.items()}
    columns["epsilon_attack"] = np.maximum.accumulate(columns["epsilon_attack"])  # more steps never lose less
    return Columns({"steps": counts, **columns}, about)


def epsilon_of_run(curve: PrivacyCurve, *, delta: float, points: int = 25, progress: Progress | None = None) -> Columns:
    """Epsilon after 1 .. all steps of a run of any phases, in their order.

    Gaussian releases count from the start.

    >>> accountant = Accountant("zero-out")
    >>> accountant.compose(CappedPoisson(60_000, 256 / 60_000, 300), noise_multiplier=1.0, steps=60)
    >>> accountant.compose(CappedPoisson(60_000, 512 / 60_000, 600), noise_multiplier=1.2, steps=40)
    >>> [int(value) for value in epsilon_of_run(accountant.curve(), delta=1e-5, points=4)["steps"]]
    [0, 33, 67, 100]
    """
    counts = np.unique(np.round(np.linspace(0.0, curve.steps, checked_points(points))))
    values = []
    for count in reported(counts.tolist(), progress, lambda one: f"{one:g} steps"):
        accountant = Accountant(curve.adjacency)
        for sigma, number in curve.releases:
            accountant.compose_gaussian(sigma, number)
        left = int(count)
        for phase in curve.phases:
            taken = min(left, phase.steps)
            accountant.compose(phase.scheme, phase.noise_multiplier, taken, analysis=phase.analysis)
            left -= taken
        values.append(accountant.epsilon(delta))
    return Columns({"steps": counts, "epsilon_run": np.array(values)}, f"delta={delta:g}; {_describe_curve(curve)}")


_FAR = 10.0  # larger than any epsilon of use, where none is finite


def delta_of_epsilon(
    curve: PrivacyCurve,
    *,
    max_epsilon: float | None = None,
    points: int = 41,
    progress: Progress | None = None,
) -> Columns:
    """Delta at epsilons from 0 to `max_epsilon`, from above and from below.

    By default the largest epsilon is the one at delta 1e-12; 10 where that one is infinite.

    `delta_lower` bounds the same analysis from below, `delta_attack` the truth: an attack with all
    other examples zero reaches it.
    """
    top = curve.epsilon(1e-12) if max_epsilon is None else float(_checks.epsilon_array(max_epsilon))
    top = top if math.isfinite(top) else _FAR
    epsilons = np.linspace(0.0, top if top > 0.0 else 1.0, checked_points(points))
    attack = zero_others(curve)
    asked = reported([curve, attack], progress, lambda one: "the attack" if one is attack else "the analysis")
    proven, reached = (one.delta_bounds(epsilons) for one in asked)
    arrays = {
        "epsilon": epsilons,
        "delta_upper": np.asarray(proven.upper),
        "delta_lower": np.asarray(proven.lower),
        "delta_attack": np.minimum(reached.lower, proven.upper),
    }
    return Columns(arrays, _describe_curve(curve))


def trade_off(curve: PrivacyCurve, *, points: int = 61, progress: Progress | None = None) -> Columns:
    """Power of membership attacks, for either null hypothesis.

    True positive rates are at false positive rates from 1e-6 to 1.

    `true_positive_rate_upper` bounds every attack. `true_positive_rate_lower` is reached by one:
    all other examples are zero, so that a step shows one vector, or its absence, with the chance
    that a batch holds it. Nothing an analysis can do moves the truth below it.

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    >>> curve = account(scheme, noise_multiplier=1.0, steps=1_000, adjacency="zero-out")
    >>> both = trade_off(curve, points=5)
    >>> bool((both["true_positive_rate_lower"] <= both["true_positive_rate_upper"]).all())
    True
    """
    rates = np.geomspace(1e-6, 1.0, checked_points(points))
    asked: list[Callable[[Array], Array]] = [curve.true_positive_rate, partial(_attack_power, curve)]
    upper, lower = (power(rates) for power in reported(asked, progress, lambda _: "power of attacks"))
    arrays = {
        "false_positive_rate": rates,
        "true_positive_rate_upper": upper,
        "true_positive_rate_lower": np.minimum(lower, upper),
    }
    return Columns(arrays, _describe_curve(curve))


def zero_others(curve: PrivacyCurve) -> PrivacyCurve:
    """The run that an attacker sees if all other examples are zero.

    It is Poisson sampling at each phase's inclusion probability.
    """
    accountant = Accountant(curve.adjacency)
    accountant.compose_gaussian(1.0 / math.sqrt(curve.gaussian) if curve.gaussian else math.inf)
    for phase in curve.phases:
        n = phase.scheme.dataset_size
        rate = phase.scheme.inclusion_probability * (1 - 1e-9)
        accountant.compose(CappedPoisson(n, rate, n), phase.noise_multiplier, phase.rounds)
    return accountant.curve()


def _attack_power(curve: PrivacyCurve, rates: Array) -> Array:
    """Proven power of the attack with all other examples zero."""
    attack = zero_others(curve)
    noiseless = [phase for phase in attack.phases if phase.steps and phase.noise_multiplier == 0.0]
    if noiseless or attack.gaussian == math.inf:
        return rates.copy()
    top = max(attack.epsilon(1e-9), 0.1)
    grid = np.concatenate([np.linspace(0.0, 1.0, 41) ** 1.5 * top, [2.0 * top]])
    each = delta_brackets_each_order(attack, grid)
    forward, backward = (np.asarray(each[side].lower) for side in (0, -1))
    power = np.zeros_like(rates)
    for one, other in ((forward, backward), (backward, forward)):
        # power(f) = inf over thresholds a of H_a + a f. Between two grid points H_a is at least its
        # value at the right one and a at least the left one; beyond the last point a alone decides.
        ahead = np.append(one[1:], 0.0)[None, :] + np.exp(grid)[None, :] * rates[:, None]
        # Thresholds below 1: H_{1/b}(P||Q) + f/b = 1 - (1 - H_b(Q||P) - f) / b, with b falling
        # towards 1.
        spare = 1.0 - np.append(other[1:], 0.0)[None, :] - rates[:, None]
        behind = 1.0 - np.maximum(spare, 0.0) * np.exp(-grid)[None, :]
        power = np.maximum(power, np.minimum(ahead.min(axis=1), behind.min(axis=1)))
    # The power of the best test is concave in f, and at least f: the hull of proven points is
    # proven.
    return _concave_hull(np.append(0.0, rates), np.append(0.0, np.maximum(power, rates)))[1:]


def _concave_hull(x: Array, y: Array) -> Array:
    """The smallest concave function above the points, at the points."""
    kept: list[int] = []
    for i in range(x.size):
        while len(kept) > 1 and (y[kept[-1]] - y[kept[-2]]) * (x[i] - x[kept[-2]]) <= (y[i] - y[kept[-2]]) * (
            x[kept[-1]] - x[kept[-2]]
        ):
            kept.pop()
        kept.append(i)
    return np.interp(x, x[kept], y[kept])


def batch_sizes(scheme: CappedPoisson) -> Columns:
    """Chance of each batch size, after the cap and without it, where either is above 1e-9.

    >>> curve = batch_sizes(CappedPoisson(10, 0.5, 6))
    >>> round(float(curve["probability"].sum()), 12), int(curve["size"][-1])
    (1.0, 10)
    """
    n, p = scheme.group_size, scheme.sampling_probability
    mean, spread = n * p, math.sqrt(n * p * (1.0 - p))
    cap = scheme.max_batch_size if scheme.capped else math.ceil(mean)
    low = max(0, min(math.floor(mean - 6.5 * spread), cap - 1) - 2)
    high = min(n, math.ceil(max(mean + 6.5 * spread, cap)) + 2)
    if high - low > 200_000:
        raise InvalidArgumentError(f"the batch sizes {low} to {high} are too many to list; use a smaller dataset_size")
    sizes = np.arange(low, high + 1)
    free = replace(scheme, max_batch_size=n, overflow="truncate", size="public")  # type: ignore[arg-type]
    capped, poisson = (np.exp([one.log_batch_size_probability(int(size)) for size in sizes]) for one in (scheme, free))
    arrays = {"size": sizes.astype(float), "probability": capped, "probability_without_cap": poisson}
    marks = {"mean": scheme.expected_batch_size}
    return Columns(arrays, _describe(scheme), marks | ({"max_batch_size": cap} if scheme.capped else {}))


CAPPED = (
    ("truncate", Analysis.UNION),
    ("truncate", Analysis.NOTE),
    ("truncate", Analysis.SWAP),
    ("truncate", Analysis.REFINED),
    ("reject", Analysis.REFINED),
)


def epsilon_of_cap(
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    steps: int,
    delta: float,
    adjacency: Adjacency | AdjacencyName,
    points: int = 41,
    progress: Progress | None = None,
) -> Columns:
    """Epsilon against the cap, one column for each policy and analysis, and without a cap.

    Caps go from half a standard deviation below the mean batch to eight above it, with the scheme's
    own. Infinite where an analysis proves nothing.

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    >>> curve = epsilon_of_cap(scheme, noise_multiplier=1.0, steps=100, delta=1e-5, adjacency="zero-out", points=3)
    >>> [int(cap) for cap in curve["max_batch_size"]]
    [248, 300, 316, 384]
    """
    mean = scheme.group_size * scheme.sampling_probability
    spread = math.sqrt(mean * (1.0 - scheme.sampling_probability))
    grid = np.round(mean + spread * np.linspace(-0.5, 8.0, checked_points(points)))
    caps = np.unique(np.clip([*grid, min(scheme.max_batch_size, scheme.group_size)], 1, scheme.group_size))
    given: dict[str, Any] = {"noise_multiplier": noise_multiplier, "steps": steps, "adjacency": adjacency}
    free = replace(scheme, max_batch_size=None, overflow="truncate", size="public")  # type: ignore[arg-type]
    plain = account(free, **given).epsilon(delta)
    tries = [(policy, analysis, int(cap)) for policy, analysis in CAPPED for cap in caps]
    arrays: dict[str, list[float]] = {f"epsilon_{policy}_{analysis}": [] for policy, analysis in CAPPED}
    for policy, analysis, cap in reported(tries, progress, lambda one: f"{one[0]}, {one[1]}, cap {one[2]}"):
        capped = replace(free, max_batch_size=cap, overflow=Overflow(policy))
        arrays[f"epsilon_{policy}_{analysis}"].append(account(capped, analysis=analysis, **given).epsilon(delta))
    relation = _checks.choice("adjacency", adjacency, Adjacency)
    about = f"{relation}, delta={delta:g}; n={scheme.dataset_size}, mean batch {mean:g}"
    about += f", noise multiplier {noise_multiplier:g}, {steps} steps"
    columns = {name: np.array(values) for name, values in arrays.items()}
    columns["epsilon_no_cap"] = np.full(caps.size, plain)
    return Columns({"max_batch_size": caps, **columns}, about, {"max_batch_size": float(scheme.max_batch_size)})


def utilization_of_cap(
    *,
    dataset_size: int,
    max_batch_sizes: Sequence[int],
    noise_multiplier: float,
    steps: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency | AdjacencyName,
    progress: Progress | None = None,
) -> Columns:
    """The share of rows that hold examples, at the largest sampling probability for the target.

    One column for each strategy, by its policy and analysis; 0 where no probability will do.
    """
    target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "adjacency": adjacency}
    given: dict[str, Any] = {"noise_multiplier": noise_multiplier, "steps": steps, **target}
    tries = [(strategy, cap) for strategy in reversed(STRATEGIES) for cap in max_batch_sizes]
    arrays: dict[str, list[float]] = {"max_batch_size": [float(cap) for cap in max_batch_sizes]}
    for strategy, cap in reported(tries, progress, lambda one: f"{one[0].name}, cap {one[1]}"):
        start = CappedPoisson(dataset_size, min(1.0, cap / dataset_size) / 2, cap, strategy.overflow)
        column = arrays.setdefault(f"utilization_{strategy.overflow}_{strategy.analysis}", [])
        try:
            rate = calibrate_sampling_probability(start, analysis=strategy.analysis, **given)
            column.append(replace(start, sampling_probability=rate).utilization)
        except (NotCertifiedError, NoSolutionError):
            column.append(0.0)
    relation = _checks.choice("adjacency", adjacency, Adjacency)
    about = f"{relation}, epsilon={epsilon:g}, delta={delta:g}; n={dataset_size}"
    about += f", noise multiplier {noise_multiplier:g}, {steps} steps"
    return Columns({name: np.array(values) for name, values in arrays.items()}, about)


def frontier_of_steps(
    *,
    dataset_size: int,
    max_batch_size: int,
    sampling_probability: float,
    steps: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency | AdjacencyName,
    points: int = 25,
    progress: Progress | None = None,
) -> Columns:
    """The planner's frontier: noise on the mean gradient that a target takes, against the steps.

    Columns are named after the planner's strategies; nan where the target cannot be met.
    """
    steps = _checks.integer("steps", steps, low=1, remedy="pass the number of training steps")
    # From a thirtieth of the steps to thirty times as many.
    counts = np.unique(np.maximum(1.0, np.round(steps * np.geomspace(1 / 30, 30, checked_points(points)))))
    found = frontier(
        over="steps",
        values=counts,
        dataset_size=dataset_size,
        max_batch_size=max_batch_size,
        sampling_probability=sampling_probability,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        progress=progress,
    )
    scheme = CappedPoisson(dataset_size, sampling_probability, max_batch_size)
    relation = _checks.choice("adjacency", adjacency, Adjacency)
    shape = f"n={scheme.dataset_size}, p={scheme.sampling_probability:.4g}, B={scheme.max_batch_size}"
    about = f"{relation}, epsilon={epsilon:g}, delta={delta:g}; {shape}"
    return Columns({"steps": found.x, **found.series}, about)
