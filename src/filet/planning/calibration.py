"""Calibration: the noise, the steps or the sampling probability that a privacy target allows.

All three find the largest `x` whose cost is at or below zero, where the cost never falls as `x`
grows: `x` is minus the logarithm of the noise, or the logarithm of the steps or of the probability,
and the cost is the logarithm of the certified epsilon over the target's. So only a point whose
certified epsilon meets the target is ever returned.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from .. import _checks
from .._public import public
from ..accounting.terms import Adjacency, AdjacencyName, Analysis, AnalysisName, Phase
from ..errors import NoSolutionError
from ..scheme import CappedPoisson, Overflow, Size
from .roots import largest, last_whole
from .target import Target, chosen_target

LEAST_NOISE, MOST_NOISE = 0.05, 1e9  # the range of the search for noise
_MOST_STEPS = 10**12
_LEAST_PROBABILITY = 1e-15
_TOLERANCE = 4e-5  # relative, of noise and probability
_NOISE_SLOPE, _PROBABILITY_SLOPE = 1.3, 1.2  # of log epsilon, roughly, before two points are known
_BELOW = 2.0  # deviations of the draw by which the mean is below the cap where cuts begin to cost
_NOISE_LIMITS = (-math.log(MOST_NOISE), -math.log(LEAST_NOISE))


def _spread(noise: float, adjacency: Adjacency) -> float:
    """Variance of one step's loss over p**2, for small p."""
    x = min(noise**-2.0, 600.0)
    return 4.0 * math.sinh(x) if adjacency is Adjacency.REPLACE_ONE else math.expm1(x)


def _guess_noise(target: Target, scheme: CappedPoisson, rounds: int) -> float:
    """The noise that the central limit theorem would take for plain Poisson sampling."""
    chance = max(scheme.inclusion_probability, 1e-130)  # its square must not vanish
    goal = target.gaussian_shift() ** 2 / rounds / chance**2
    x = math.asinh(goal / 4.0) if target.adjacency is Adjacency.REPLACE_ONE else math.log1p(goal)
    return x**-0.5 if x > 0.0 else MOST_NOISE


def noise_for(
    target: Target, scheme: CappedPoisson, steps: int, guess: float | None = None, tolerance: float = _TOLERANCE
) -> float | None:
    """The smallest noise in the searched range that meets the target; None if none does."""
    start = guess or _guess_noise(target, scheme, Phase(scheme, 1.0, steps).rounds)
    found = largest(
        lambda x: target.cost(scheme, math.exp(-x), steps),
        -math.log(start),
        _NOISE_LIMITS,
        tolerance=tolerance,
        slope=_NOISE_SLOPE,
    )
    return None if found is None else math.exp(-found)


def _checked_scheme(scheme: Any) -> CappedPoisson:
    if not isinstance(scheme, CappedPoisson):
        raise _checks.fail(f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
    return scheme


def _checked_steps(steps: Any) -> int:
    return _checks.integer("steps", steps, low=1, remedy="pass the whole number of training steps, at least 1")


@public
def calibrate_noise_multiplier(
    scheme: CappedPoisson,
    *,
    steps: int | None = None,
    epochs: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    true_positive_rate: float | None = None,
    false_positive_rate: float | None = None,
    adjacency: Adjacency | AdjacencyName,
    analysis: Analysis | AnalysisName = Analysis.REFINED,
) -> float:
    """The smallest noise multiplier with which `steps` steps of the scheme stay within (epsilon, delta).

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    >>> noise = calibrate_noise_multiplier(scheme, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="zero-out")
    >>> from filet import account, round_up
    >>> round_up(noise, 3)
    '0.969'
    >>> account(scheme, noise_multiplier=noise, steps=14_000, adjacency="zero-out").epsilon(1e-5) <= 3.0
    True
    >>> noise = calibrate_noise_multiplier(scheme, steps=14_000, advantage=0.1, adjacency="zero-out")
    >>> round_up(noise, 3)
    '2.13'

    Guarantees: `account` of the result gives an epsilon at or below the target. The result is at most a part in 10,000
    above the exact answer of the analysis. A target that no noise meets raises `NoSolutionError` and says why.

    Arguments:
        scheme: how batches are drawn.
        steps: number of training steps. Or:
        epochs: passes over the data, by expected draws before the cap (`scheme.steps_of_epochs`).
        epsilon, delta: the privacy budget. Or:
        advantage: largest membership advantage (`PrivacyCurve.membership_advantage`). Or:
        true_positive_rate, false_positive_rate: largest power of an attack, and where.
        adjacency, analysis: as for `account`.
    """
    scheme = _checked_scheme(scheme)
    steps = _checked_steps(scheme.checked_steps(steps, epochs))
    target = chosen_target(epsilon, delta, advantage, true_positive_rate, false_positive_rate, adjacency, analysis)
    phase = Phase(scheme, 1.0, steps, target.analysis)
    _check_overflows(target, phase)
    noise = noise_for(target, scheme, steps)
    if noise is None:
        raise _beyond_noise(target, scheme, steps)
    if noise <= LEAST_NOISE * (1 + 1e-9):
        raise NoSolutionError(
            f"{target.describe()} is met even by noise_multiplier={LEAST_NOISE}, which hides nothing of a batch: an"
            f" example is used at all with chance {_chance_of_use(phase):.3g}; lower {target.words}"
        )
    return noise


def _check_overflows(target: Target, phase: Phase) -> None:
    """Refuse a delta that the union strategy spends on overflows alone."""
    overflow = -math.expm1(-phase.overflow_exponent)
    if 2.0 * overflow >= target.most_overflow:
        raise NoSolutionError(
            f"{target.describe()} cannot be met by any noise: analysis='union' adds at least twice the chance"
            f" {overflow:.3g} that one of {phase.steps} batches overflows; lower sampling_probability, raise"
            " max_batch_size, or pass analysis='refined'"
        )


def _beyond_noise(target: Target, scheme: CappedPoisson, steps: int) -> NoSolutionError:
    """The reason why no noise is enough."""
    spent = target.spent(scheme, MOST_NOISE, steps)
    most = f"even noise_multiplier={MOST_NOISE:.0e} {target.costs(spent)}"
    if scheme.overflow is Overflow.REJECT and target.adjacency is Adjacency.ADD_REMOVE:
        return NoSolutionError(
            f"{target.describe()} cannot be met by any noise: {most}, because batches that are drawn again reveal"
            " dataset_size; lower sampling_probability, raise max_batch_size, or pass overflow='truncate'"
        )
    return NoSolutionError(f"{target.describe()} cannot be met: {most}; raise {target.words}")


def _chance_of_use(phase: Phase) -> float:
    inclusion = phase.scheme.inclusion_probability
    return 1.0 if inclusion >= 1.0 else -math.expm1(phase.rounds * math.log1p(-inclusion))


@public
def calibrate_steps(
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    true_positive_rate: float | None = None,
    false_positive_rate: float | None = None,
    adjacency: Adjacency | AdjacencyName,
    analysis: Analysis | AnalysisName = Analysis.REFINED,
) -> int:
    """The largest number of steps of the scheme that stays within (epsilon, delta).

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    >>> steps = calibrate_steps(scheme, noise_multiplier=1.0, epsilon=1.0, delta=1e-5, adjacency="zero-out")
    >>> round(steps, -1)
    1920

    Guarantees: `account` of the result gives an epsilon at or below the target, and of one step more (one cycle more
    if `cycle_length > 1`) an epsilon above it. If even one step costs too much, `NoSolutionError` says how much.

    Arguments:
        scheme: how batches are drawn.
        noise_multiplier: standard deviation of the Gaussian noise on the sum, divided by the clipping norm.
        epsilon, delta: the privacy budget. Or:
        advantage: largest membership advantage (`PrivacyCurve.membership_advantage`). Or:
        true_positive_rate, false_positive_rate: largest power of an attack, and where.
        adjacency, analysis: as for `account`.
    """
    scheme = _checked_scheme(scheme)
    noise = _checks.noise_multiplier(noise_multiplier)
    target = chosen_target(epsilon, delta, advantage, true_positive_rate, false_positive_rate, adjacency, analysis)
    if noise == math.inf:
        raise NoSolutionError("noise_multiplier=inf allows any number of steps; pass a finite number")
    if noise == 0.0:
        raise NoSolutionError(
            f"{target.describe()} cannot be met: noise_multiplier=0 hides nothing of a batch; raise it"
        )
    # An example takes part once in a cycle, so that only whole cycles cost; the union strategy counts every batch.
    unit = 1 if target.analysis is Analysis.UNION else scheme.cycle_length
    rounds = _most_rounds(target, scheme, noise, unit)
    return rounds * unit


def _most_rounds(target: Target, scheme: CappedPoisson, noise: float, unit: int) -> int:
    """The largest number of times `unit` steps that meets the target."""
    variance = _spread(noise, target.adjacency) * scheme.sampling_probability**2
    guess = min(max(target.gaussian_shift() ** 2 / max(variance, 1e-300), 1.0), _MOST_STEPS)
    good, bad = last_whole(lambda rounds: target.cost(scheme, noise, rounds * unit), round(guess), _MOST_STEPS)
    if good is None:
        spent = target.spent(scheme, noise, unit)
        raise NoSolutionError(
            f"{target.describe()} cannot be met: even one step at noise_multiplier={noise:.6g}"
            f" {target.costs(spent)}; raise noise_multiplier, or lower sampling_probability"
        )
    if bad is None:
        raise NoSolutionError(
            f"{target.describe()} is met even by {_MOST_STEPS} steps at noise_multiplier={noise:.6g}; any run you can"
            " finish is within it"
        )
    return good


@public
def calibrate_sampling_probability(
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    steps: int,
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    true_positive_rate: float | None = None,
    false_positive_rate: float | None = None,
    adjacency: Adjacency | AdjacencyName,
    analysis: Analysis | AnalysisName = Analysis.REFINED,
) -> float:
    """The largest sampling probability with which the run stays within (epsilon, delta).

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject")
    >>> p = calibrate_sampling_probability(
    ...     scheme, noise_multiplier=1.0, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="add-remove")
    >>> round(p * 60_000, 1)
    277.7

    Guarantees: `account` with the result gives an epsilon at or below the target; it is at most a part in 10,000 below
    the exact answer of the analysis. A target that no probability meets raises `NoSolutionError`.

    Arguments:
        scheme: how batches are drawn; its own `sampling_probability` does not matter.
        noise_multiplier: standard deviation of the Gaussian noise on the sum, divided by the clipping norm.
        steps: number of training steps.
        epsilon, delta: the privacy budget. Or:
        advantage: largest membership advantage (`PrivacyCurve.membership_advantage`). Or:
        true_positive_rate, false_positive_rate: largest power of an attack, and where.
        adjacency, analysis: as for `account`.
    """
    scheme, steps = _checked_scheme(scheme), _checked_steps(steps)
    noise = _checks.noise_multiplier(noise_multiplier)
    target = chosen_target(epsilon, delta, advantage, true_positive_rate, false_positive_rate, adjacency, analysis)
    if noise == 0.0:
        raise NoSolutionError(
            f"{target.describe()} cannot be met: noise_multiplier=0 hides nothing of a batch; raise it"
        )
    found = _most_probable(target, scheme, noise, steps)
    if found is None:
        raise NoSolutionError(
            f"{target.describe()} cannot be met by any sampling_probability above {_LEAST_PROBABILITY:.0e} at"
            f" noise_multiplier={noise:.6g} and {steps} steps; raise noise_multiplier, or lower steps"
        )
    return found


def _most_probable(target: Target, scheme: CappedPoisson, noise: float, steps: int) -> float | None:
    """The largest sampling probability that meets the target; None if none does."""
    highest = 0.0
    if scheme.capped and (scheme.overflow is Overflow.REJECT or scheme.size is not Size.PUBLIC):
        highest = math.log1p(-1e-6)  # at 1 no batch is ever accepted

    def at(x: float) -> CappedPoisson:
        return replace(scheme, sampling_probability=min(math.exp(x), 1.0))

    rounds = Phase(scheme, noise, steps).rounds
    guess = target.gaussian_shift() / math.sqrt(rounds * max(_spread(noise, target.adjacency), 1e-300))
    if scheme.overflow is Overflow.TRUNCATE:
        guess = min(guess, _probability_below_cap(scheme))
    best = largest(
        lambda x: target.cost(at(x), noise, steps),
        math.log(min(max(guess, _LEAST_PROBABILITY), 1.0)),
        (math.log(_LEAST_PROBABILITY), highest),
        tolerance=_TOLERANCE,
        slope=_PROBABILITY_SLOPE,
    )
    return None if best is None else at(best).sampling_probability


def _probability_below_cap(scheme: CappedPoisson) -> float:
    """The sampling probability at which the mean draw is some deviations below the cap."""
    root = math.sqrt(scheme.max_batch_size + 0.25 * _BELOW**2) - 0.5 * _BELOW
    return root * root / scheme.group_size
