"""How to run: noise, sampling probability, cap and policy that waste the least, at a privacy target.

Options are compared at equal hardware cost, `steps * max_batch_size` rows, by the noise that is left on the mean
gradient: `noise_multiplier / expected_batch_size` of one step, over the square root of the number of steps for the
run as a whole. The search over the sampling probability uses coarse looks; what it finds is calibrated and certified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from . import _validate
from ._public import public
from ._search import minimum
from .binomial import log_sf
from .calibrate import Target, noise_for, rough_noise
from .errors import InvalidArgumentError
from .profiles import Analysis
from .scheme import Adjacency, CappedPoisson, Overflow

Progress = Callable[[float, str], None]
"""Called with the share of the work that is done, in [0, 1], and with what comes next; "done" at the end."""

_FULLER = 1e-3  # where the noise hardly depends on the probability, fuller batches break the tie
_HIGHEST_REJECT = 1.0 - 1e-6  # at probability 1 policy reject accepts no batch


@dataclass(frozen=True)
class Strategy:
    """A way to fill the hardware's batch that a plan tries."""

    name: str
    description: str
    overflow: Overflow
    analysis: Analysis
    deviations: float = 0.0  # where to start: mean batch this many standard deviations below the cap
    fixed_shape: bool = True


STRATEGIES = (
    Strategy("reject", "capped, drawn again on overflow", Overflow.REJECT, Analysis.REFINED),
    Strategy("truncate", "capped, cut on overflow", Overflow.TRUNCATE, Analysis.REFINED, 1.5),
    Strategy("note", "capped, cut, analysis of Ganesh (2025)", Overflow.TRUNCATE, Analysis.NOTE, 2.5),
    Strategy("union", "capped, cut, overflows added to delta", Overflow.TRUNCATE, Analysis.UNION, 6.0),
)
FIXED_SIZE = Strategy("fixed-size", "fixed-size sampling (probability 1)", Overflow.TRUNCATE, Analysis.REFINED)
MICROBATCHES = Strategy("microbatches", "plain Poisson in microbatches, fewer steps", Overflow.TRUNCATE,
                        Analysis.REFINED, 2.0, fixed_shape=False)  # fmt: skip
IDEAL = Strategy("ideal", "plain Poisson, no cap, no padding: unreachable", Overflow.TRUNCATE, Analysis.REFINED,
                 fixed_shape=False)  # fmt: skip


@public
@dataclass(frozen=True)
class Option:
    """One way to run that meets the target.

    name: "reject", "truncate", "note", "union", "fixed-size", "microbatches" or "ideal".
    epsilon: what the run is certified to cost, at or below the target.
    rows_per_step: rows that the hardware processes in a step, padding included, on average.
    fixed_shape: whether every step is one batch of `max_batch_size` rows; `Plan.best` is such an option.
    ratio_to_ideal: `run_noise` over that of the unreachable ideal at the same hardware cost.
    """

    name: str
    description: str
    scheme: CappedPoisson
    analysis: Analysis
    noise_multiplier: float
    steps: int
    epsilon: float
    max_batch_size: int
    rows_per_step: float
    fixed_shape: bool
    ratio_to_ideal: float

    @property
    def recommendable(self) -> bool:
        return self.fixed_shape and self.analysis is Analysis.REFINED

    @property
    def expected_batch_size(self) -> float:
        return self.scheme.expected_batch_size

    @property
    def utilization(self) -> float:
        """Share of the hardware's rows that hold examples."""
        return self.expected_batch_size / self.rows_per_step

    @property
    def wasted_percent(self) -> float:
        """Rows of padding, in percent."""
        return 100.0 * max(0.0, 1.0 - self.utilization)

    @property
    def overflow_probability(self) -> float:
        """Chance that a Poisson draw exceeds `max_batch_size`."""
        n, p = self.scheme.group_size, self.scheme.sampling_probability
        return math.exp(log_sf(self.max_batch_size + 1, n, p))

    @property
    def effective_noise(self) -> float:
        """Noise on the mean gradient of one step, in clipping norms: `noise_multiplier / expected_batch_size`."""
        return self.noise_multiplier / self.expected_batch_size

    @property
    def run_noise(self) -> float:
        """Noise on the average of all the run's mean gradients: `effective_noise / sqrt(steps)`. Options rank by it."""
        return self.effective_noise / math.sqrt(self.steps)

    @property
    def hardware_rows(self) -> float:
        """Rows that the hardware processes in the whole run, on average."""
        return self.rows_per_step * self.steps

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "name": self.name,
            "description": self.description,
            "fixed_shape": self.fixed_shape,
            "dataset_size": self.scheme.dataset_size,
            "sampling_probability": self.scheme.sampling_probability,
            "max_batch_size": self.max_batch_size,
            "overflow": self.scheme.overflow.value,
            "cycle_length": self.scheme.cycle_length,
            "analysis": self.analysis.value,
            "noise_multiplier": self.noise_multiplier,
            "steps": self.steps,
            "epsilon": self.epsilon,
            "expected_batch_size": self.expected_batch_size,
            "rows_per_step": self.rows_per_step,
            "hardware_rows": self.hardware_rows,
            "utilization": self.utilization,
            "wasted_percent": self.wasted_percent,
            "overflow_probability": self.overflow_probability,
            "effective_noise": self.effective_noise,
            "run_noise": self.run_noise,
            "ratio_to_ideal": self.ratio_to_ideal,
        }


@public
@dataclass(frozen=True)
class Plan:
    """Ways to run within (epsilon, delta), the least noisy first. Made by `plan`.

    `options` ranks all of them, the unreachable ideal included; `best` is the first that gives every step one batch of
    the fixed shape and rests on the refined analysis. `skipped` says why a strategy is missing.
    """

    dataset_size: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    options: tuple[Option, ...]
    skipped: tuple[str, ...] = ()

    @cached_property
    def best(self) -> Option:
        """The least noisy option with fixed shapes and the refined analysis, which proves the most about each sampler."""
        return next(option for option in self.options if option.recommendable)

    def option(self, name: str) -> Option:
        """The least noisy option of that name."""
        for option in self.options:
            if option.name == name:
                return option
        names = ", ".join(dict.fromkeys(repr(option.name) for option in self.options))
        raise _validate.fail(f"name={_validate.show(name)} is not in this plan; pass one of {names}")

    def table(self) -> str:
        """The options as plain text. Noise is rounded up and probabilities down, so that copied figures stay safe."""
        head = ("option", "batch", "steps", "probability", "noise", "used rows", "wasted", "overflow", "noise/example",
                "x ideal")  # fmt: skip
        rows = [head]
        for o in self.options:
            rows.append((
                o.name + (" *" if o is self.best else ""),
                str(o.max_batch_size),
                str(o.steps),
                f"{_rounded(o.scheme.sampling_probability, math.floor):.6g}",
                f"{_rounded(o.noise_multiplier, math.ceil):.6g}",
                f"{100 * o.utilization:.1f} %",
                f"{o.wasted_percent:.1f} %",
                f"{o.overflow_probability:.2g}",
                f"{o.effective_noise:.4g}",
                f"{o.ratio_to_ideal:.3f}",
            ))  # fmt: skip
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = [
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        title = (f"dataset_size={self.dataset_size}, epsilon={self.epsilon:g}, delta={self.delta:g}, {self.adjacency};"
                 " * is the best with fixed shapes")  # fmt: skip
        return "\n".join([title, *lines, *(f"skipped {reason}" for reason in self.skipped)])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; the options in order, `best` as its place among them."""
        return {
            "dataset_size": self.dataset_size,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": self.adjacency.value,
            "best": self.options.index(self.best),
            "options": [option.to_dict() for option in self.options],
            "skipped": list(self.skipped),
        }


def _rounded(value: float, how: Callable[[float], int]) -> float:
    """Six significant digits, rounded up or down."""
    scale = 10.0 ** (5 - math.floor(math.log10(value)))
    return how(value * scale) / scale


@public
def plan(
    *,
    dataset_size: int,
    max_batch_size: int | Iterable[int],
    epsilon: float,
    delta: float,
    adjacency: Adjacency | str,
    steps: int | Iterable[int] | None = None,
    epochs: float | None = None,
    cycle_length: int = 1,
    progress: Progress | None = None,
) -> Plan:
    """Find the sampling probability and the noise of every strategy at a privacy target, and rank them.

    >>> plans = plan(dataset_size=60_000, max_batch_size=256, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="zero-out")
    >>> plans.best.name, round(plans.best.utilization, 2), round(plans.best.ratio_to_ideal, 2)
    ('reject', 0.95, 1.04)

    Every option meets (epsilon, delta), certified. The hardware spends the same on each: `steps` batches of
    `max_batch_size` rows. Plain Poisson sampling in microbatches takes a second batch on overflow, and so gets
    fewer steps for the same rows; the ideal would fill every row and never overflow, which no sampler can.

    Guarantees: for each strategy the noise is calibrated as by `calibrate_noise_multiplier`; the sampling probability
    minimises `run_noise` to about a part in a thousand. Nothing is written anywhere, so that an interruption is safe.

    Arguments:
        dataset_size: number of examples.
        max_batch_size: rows that the hardware takes at once; several to compare.
        epsilon, delta, adjacency: the privacy target.
        steps: number of training steps; several to compare. Or:
        epochs: hardware rows in passes over the data, so that steps = ceil(epochs * dataset_size / max_batch_size)
            and every `max_batch_size` costs the same.
        cycle_length: number of groups of cyclic sampling, as for `CappedPoisson`.
        progress: called with the share of the work done and a label.
    """
    target = Target.checked(epsilon, delta, adjacency, Analysis.REFINED)
    settings = checked_settings(dataset_size, max_batch_size, steps, epochs, cycle_length)
    strategies = (IDEAL, *STRATEGIES, FIXED_SIZE, MICROBATCHES)
    options: list[Option] = []
    skipped: list[str] = []
    for at, (hardware, count) in enumerate(settings):
        ideal = None
        for turn, strategy in enumerate(strategies):
            if progress is not None:
                share = (at + turn / len(strategies)) / len(settings)
                progress(share, f"{strategy.name}, batch {hardware.max_batch_size}, {count} steps")
            option = best_option(target, strategy, hardware, count)
            if option is None:
                skipped.append(
                    f"{strategy.name} (batch {hardware.max_batch_size}, {count} steps): no noise meets the target"
                )
                continue
            if ideal is None:
                ideal = option.run_noise
            options.append(replace(option, ratio_to_ideal=option.run_noise / ideal))
    if progress is not None:
        progress(1.0, "done")
    if not any(option.recommendable for option in options):
        raise InvalidArgumentError(f"{target.describe()} cannot be met by any strategy; raise epsilon or delta")
    options.sort(key=lambda option: option.run_noise)
    first = settings[0][0]
    return Plan(first.dataset_size, target.epsilon, target.delta, target.adjacency, tuple(options), tuple(skipped))


def several(name: str, value: Any) -> list[Any]:
    """One number or several; at least one."""
    values = list(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else [value]
    if not values:
        raise _validate.fail(f"{name} is empty; pass one number or several")
    return values


def checked_settings(dataset_size: Any, max_batch_size: Any, steps: Any, epochs: Any,
              cycle_length: Any) -> list[tuple[CappedPoisson, int]]:  # fmt: skip
    """The hardware batches (as schemes of probability 1) and the steps of each."""
    if (steps is None) == (epochs is None):
        both = "neither is" if steps is None else "both are"
        raise _validate.fail(f"exactly one of steps and epochs is needed, {both} given; pass one of them")
    hardware = [CappedPoisson(dataset_size, 1.0, size, cycle_length=cycle_length)
                for size in several("max_batch_size", max_batch_size)]  # fmt: skip
    remedy = "pass the whole number of training steps, at least 1"
    if steps is not None:
        counts = [_validate.integer("steps", count, low=1, remedy=remedy) for count in several("steps", steps)]
        return [(scheme, count) for scheme in hardware for count in counts]
    passes = _validate.real("epochs", epochs, rule="in (0, inf)", remedy="pass the number of passes over the data")
    if not 0.0 < passes < math.inf:
        raise _validate.fail(
            f"epochs={_validate.show(passes)} is not in (0, inf); pass the number of passes over the data"
        )
    exact = [passes * scheme.dataset_size / scheme.max_batch_size for scheme in hardware]
    counts = [max(1, _validate.steps_of_epochs(passes, count)) for count in exact]
    return list(zip(hardware, counts, strict=True))


def _passes(scheme: CappedPoisson, rows: int) -> float:
    """Mean number of microbatches of `rows` rows that an uncapped Poisson batch takes: the sum of Pr[size > k rows]."""
    n, p = scheme.group_size, scheme.sampling_probability
    total, k = 0.0, 0
    while k * rows < n:
        chance = math.exp(log_sf(k * rows + 1, n, p))
        total += chance
        if chance < 1e-12:
            break
        k += 1
    return total


def run_of(strategy: Strategy, hardware: CappedPoisson, steps: int, p: float) -> tuple[CappedPoisson, int, float]:
    """Scheme, steps and hardware rows a step of a strategy at a sampling probability, for the same rows in total."""
    rows = hardware.max_batch_size
    if strategy not in (MICROBATCHES, IDEAL):
        return replace(hardware, sampling_probability=p, overflow=strategy.overflow), steps, float(rows)
    scheme = replace(hardware, sampling_probability=p, max_batch_size=max(rows, hardware.group_size))
    if strategy is IDEAL:
        return scheme, steps, float(rows)
    passes = _passes(scheme, rows)
    return scheme, math.floor(min(1.0 / passes, 1.0) * steps), rows * passes


def best_option(target: Target, strategy: Strategy, hardware: CappedPoisson, steps: int) -> Option | None:
    """The strategy's least noisy run, certified; None if no noise meets the target."""
    target = replace(target, analysis=strategy.analysis)
    p, guess = _best_probability(target, strategy, hardware, steps)
    if not math.isfinite(guess):
        return None
    scheme, count, rows = run_of(strategy, hardware, steps, p)
    noise = noise_for(target, scheme, count, guess)
    if noise is None:
        return None
    return Option(strategy.name, strategy.description, scheme, strategy.analysis, noise, count,
                  target.spent(scheme, noise, count), hardware.max_batch_size, rows, strategy.fixed_shape, math.nan)  # fmt: skip


def _best_probability(target: Target, strategy: Strategy, hardware: CappedPoisson, steps: int) -> tuple[float, float]:
    """The sampling probability with the least run noise, and its noise multiplier, both by coarse looks."""
    full = min(1.0, hardware.max_batch_size / hardware.group_size)
    noises: dict[float, float] = {}

    def log_run_noise(log_p: float) -> float:
        p = min(math.exp(log_p), 1.0)
        scheme, count, _ = run_of(strategy, hardware, steps, p)
        if count < 1:
            return math.inf
        noises[log_p] = rough_noise(target, scheme, count, _extrapolated(noises, log_p))
        batch = scheme.expected_batch_size
        return math.log(noises[log_p] / batch) - 0.5 * math.log(count) - _FULLER * math.log(batch)

    if strategy in (FIXED_SIZE, IDEAL):
        p = 1.0 if strategy is FIXED_SIZE else full
        log_run_noise(math.log(p))
        return p, noises.get(math.log(p), math.inf)
    highest = math.log(full if strategy is MICROBATCHES else 1.0)
    if strategy.overflow is Overflow.REJECT and full < 1.0:
        highest = math.log(_HIGHEST_REJECT)
    relative = min(1.0, 1.0 / math.sqrt(hardware.max_batch_size))
    start = math.log(full) - strategy.deviations * relative if full < 1.0 else 0.0
    best = minimum(log_run_noise, min(start, highest), relative, highest)
    return min(math.exp(best), 1.0), noises.get(best, math.inf)


def _extrapolated(noises: dict[float, float], log_p: float) -> float | None:
    """A first guess of the noise from the two nearest probabilities whose noise is known."""
    near = sorted((x for x in noises if math.isfinite(noises[x])), key=lambda x: abs(x - log_p))[:2]
    if not near:
        return None
    slope = 0.5
    if len(near) == 2:
        slope = min(max(math.log(noises[near[1]] / noises[near[0]]) / (near[1] - near[0]), 0.0), 4.0)
    return noises[near[0]] * math.exp(min(max(slope * (log_p - near[0]), -1.0), 1.0))
