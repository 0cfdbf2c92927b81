"""Ways to fill the hardware's batch that a plan tries, and the best of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .._binomial import log_sf
from ..accounting.terms import Analysis
from ..scheme import CappedPoisson, Overflow, Size
from .calibration import noise_for
from .options import Option
from .roots import minimum
from .target import Target

_FULLER = 1e-3  # where the noise hardly depends on the probability, fuller batches break the tie
_ROUGH = 1e-3  # relative: how closely noises are compared
_LEAST_DRAW = 0.01  # examples: emptier batches are no way to train
_HIGHEST_REJECT = 1.0 - 1e-6  # at probability 1 policy reject accepts no batch


@dataclass(frozen=True)
class Strategy:
    """A way to fill the hardware's batch that a plan tries: a policy, and the analysis that proves its privacy."""

    name: str
    description: str
    overflow: Overflow
    analysis: Analysis
    deviations: float = 0.0  # start of the search: mean batch this many standard deviations below the cap
    fixed_shape: bool = True
    size: Size = Size.PUBLIC

    def fits(self, hardware: CappedPoisson) -> bool:
        """True if the strategy serves this cap: sizes that are not public need one below the data set size, and one group."""
        return self.size is Size.PUBLIC or (hardware.capped and hardware.cycle_length == 1)

    @property
    def may_win(self) -> bool:
        """True if no other analysis proves more about its batches: the refined one is never above the others."""
        return self.analysis is Analysis.REFINED


STRATEGIES = (
    Strategy("reject", "capped, drawn again on overflow", Overflow.REJECT, Analysis.REFINED),
    Strategy("truncate", "capped, cut on overflow", Overflow.TRUNCATE, Analysis.REFINED, 1.5),
    Strategy("note", "capped, cut, analysis of Ganesh (2025)", Overflow.TRUNCATE, Analysis.NOTE, 2.5),
    Strategy("union", "capped, cut, overflows added to delta", Overflow.TRUNCATE, Analysis.UNION, 6.0),
)
FIXED_SIZE = Strategy("fixed-size", "fixed-size sampling (probability 1)", Overflow.TRUNCATE, Analysis.REFINED)
SECRET = Strategy("secret", "capped, drawn again, number of records secret", Overflow.REJECT, Analysis.REFINED,
                  size=Size.SECRET)  # fmt: skip
MICROBATCHES = Strategy("microbatches", "plain Poisson in microbatches, fewer steps", Overflow.TRUNCATE,
                        Analysis.REFINED, 2.0, fixed_shape=False)  # fmt: skip
IDEAL = Strategy("ideal", "plain Poisson, no cap, no padding: unreachable", Overflow.TRUNCATE, Analysis.REFINED,
                 fixed_shape=False)  # fmt: skip


def mean_passes(scheme: CappedPoisson, rows: int) -> float:
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


def at_probability(
    strategy: Strategy, hardware: CappedPoisson, steps: int, p: float
) -> tuple[CappedPoisson, int, float]:
    """Scheme, steps and hardware rows a step of a strategy at a sampling probability, for the same rows in total."""
    rows = hardware.max_batch_size
    if strategy not in (MICROBATCHES, IDEAL):
        scheme = replace(hardware, sampling_probability=p, overflow=strategy.overflow, size=strategy.size)
        return scheme, steps, float(rows)
    scheme = replace(hardware, sampling_probability=p, max_batch_size=max(rows, hardware.group_size))
    if strategy is IDEAL:
        return scheme, steps, float(rows)
    passes = mean_passes(scheme, rows)
    return scheme, math.floor(min(1.0 / passes, 1.0) * steps), rows * passes


def best_option(target: Target, strategy: Strategy, hardware: CappedPoisson, steps: int) -> Option | None:
    """The strategy's least noisy run, certified; None if no noise meets the target."""
    target = replace(target, analysis=strategy.analysis)
    p, guess = _best_probability(target, strategy, hardware, steps)
    if not math.isfinite(guess):
        return None
    scheme, count, rows = at_probability(strategy, hardware, steps, p)
    noise = noise_for(target, scheme, count, guess)
    if noise is None:
        return None
    return Option(
        strategy.name,
        strategy.description,
        scheme,
        strategy.analysis,
        noise,
        count,
        target.spent(scheme, noise, count),
        hardware.max_batch_size,
        rows,
        strategy.fixed_shape,
        math.nan,
        target,
    )


def _best_probability(target: Target, strategy: Strategy, hardware: CappedPoisson, steps: int) -> tuple[float, float]:
    """The sampling probability with the least run noise, and its noise multiplier, both roughly."""
    full = min(1.0, hardware.max_batch_size / hardware.group_size)
    noises: dict[float, float] = {}

    def log_run_noise(log_p: float) -> float:
        p = min(math.exp(log_p), 1.0)
        if p * hardware.group_size < _LEAST_DRAW:
            return math.inf
        scheme, count, _ = at_probability(strategy, hardware, steps, p)
        if count < 1:
            return math.inf
        noises[log_p] = noise_for(target, scheme, count, _extrapolated(noises, log_p), _ROUGH) or math.inf
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
