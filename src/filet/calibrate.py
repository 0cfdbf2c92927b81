"""One root finder (`_search`), three unknowns: the noise, the steps or the sampling probability that a privacy target allows.

All three look for the largest `x` whose cost is at or below zero, where the cost never falls as `x` grows: `x` is minus
the logarithm of the noise, or the logarithm of the steps or of the probability. A few coarse looks, a millisecond or
so each, bring `x` within about a part in a thousand; certified epsilons do the rest, and only a point whose certified
epsilon is at or below the target is ever returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from . import _validate
from ._public import public
from ._search import Bracket, Cost, climb, lowest
from .accountant import BEYOND_FLOATS, Phase, PrivacyCurve, account
from .composite import gaussian_log_delta
from .errors import InvalidArgumentError, NotCertifiedError
from .profiles import Analysis
from .scheme import Adjacency, CappedPoisson, Overflow

LEAST_NOISE, MOST_NOISE = 0.05, 1e9  # where noise is looked for
_MOST_STEPS = 10**12
_LEAST_PROBABILITY = 1e-15
_TOLERANCE = 2e-5  # relative, of noise and probability; the bounds' own slack comes on top
_LOOK_TOLERANCE = 3e-4
_LEAST_LOOK = 1e-17  # coarse looks do not resolve smaller deltas, they only compare
_SLOPE = 1.3  # of log epsilon, roughly, before two points are known
_NOISE_LIMITS = (-math.log(MOST_NOISE), -math.log(LEAST_NOISE))


@dataclass(frozen=True)
class Target:
    """A privacy budget, and the words under which it is spent."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    analysis: Analysis = Analysis.REFINED

    @classmethod
    def checked(cls, epsilon: Any, delta: Any, adjacency: Any, analysis: Any) -> Target:
        remedy = "pass one finite number above 0"
        budget = _validate.real("epsilon", epsilon, rule="in (0, inf)", remedy=remedy)
        if not 0.0 < budget < math.inf:
            raise _validate.fail(f"epsilon={_validate.show(budget)} is not in (0, inf); {remedy}")
        deltas = _validate.delta_array(delta)
        if deltas.ndim:
            raise _validate.fail(f"delta of shape {deltas.shape} is not one number; calibrate for one at a time")
        return cls(budget, float(deltas), _validate.choice("adjacency", adjacency, Adjacency),
                   _validate.choice("analysis", analysis, Analysis))  # fmt: skip

    def curve(self, scheme: CappedPoisson, noise: float, steps: int) -> PrivacyCurve:
        return account(scheme, noise_multiplier=noise, steps=steps, adjacency=self.adjacency, analysis=self.analysis)

    def spent(self, scheme: CappedPoisson, noise: float, steps: int) -> float:
        """Certified epsilon of the run; infinite where none can be certified."""
        return _spent(self, scheme, noise, steps)

    def cost(self, scheme: CappedPoisson, noise: float, steps: int) -> float:
        """log of the certified epsilon over the target: at most 0 exactly if the run meets the target."""
        spent = self.spent(scheme, noise, steps)
        if spent in (0.0, math.inf):
            return math.copysign(math.inf, spent - 1.0)
        value = math.log(spent / self.epsilon)
        return max(value, 1e-16) if spent > self.epsilon else min(value, 0.0)  # rounding must not change the verdict

    def search_cost(self, scheme: CappedPoisson, noise: float, steps: int) -> float:
        """As `cost`; but where overflows weigh on the union strategy's delta, log of that delta over the target's.

        There the certified epsilon jumps to infinity, and takes seconds. The caller must prove what it found by `cost`.
        """
        curve = self.curve(scheme, noise, steps)
        if not self._overflow_matters(curve, 0.02):
            return self.cost(scheme, noise, steps)
        delta = float(curve.delta(self.epsilon))
        if self._overflow_matters(curve):
            delta = min(delta, float(curve.delta(lowest(lambda e: _quick_delta(curve, e), 0.0, self.epsilon)[0])))
        return math.log(delta / self.delta)

    def _overflow_matters(self, curve: PrivacyCurve, share: float = 0.5) -> bool:
        return curve._run.overflow * math.exp(min(self.epsilon, 700.0)) > share * self.delta

    def look(self, scheme: CappedPoisson, noise: float, steps: int, thorough: bool = True) -> float:
        """A quick cost, on another scale and slightly too high: above 0 where the target is missed.

        sqrt(-log delta) is close to linear in the noise, so that chords find the root fast. Where overflows weigh on
        the union strategy, a smaller epsilon may have a smaller delta; `thorough` looks for it.
        """
        curve = self.curve(scheme, noise, steps)
        run = curve._run
        if run.exposed or 2.0 * run.overflow >= self.delta:
            return math.inf
        if self.delta < _LEAST_LOOK:
            known = all(direction.at_most(self.epsilon, self.delta) for direction in run.directions)
            return -math.inf if known else math.inf
        delta = _quick_delta(curve, self.epsilon)
        if thorough and self._overflow_matters(curve):
            delta = min(delta, lowest(lambda e: _quick_delta(curve, e), 0.0, self.epsilon)[1])
        if delta >= 1.0:
            return math.inf
        return math.sqrt(-math.log(self.delta)) - math.sqrt(-math.log(max(delta, 1e-290)))

    def gaussian_shift(self) -> float:
        """The shift mu of the Gaussian mechanism that spends exactly this target."""
        low, high = math.log(1e-12), math.log(1e12)
        for _ in range(40):
            middle = 0.5 * (low + high)
            if gaussian_log_delta(math.exp(middle), self.epsilon) > math.log(self.delta):
                high = middle
            else:
                low = middle
        return math.exp(low)

    def describe(self) -> str:
        return f"epsilon={self.epsilon:.6g} at delta={self.delta:.3g}"


@lru_cache(maxsize=256)  # the search and the proof of its result ask for the same points
def _spent(target: Target, scheme: CappedPoisson, noise: float, steps: int) -> float:
    try:
        return float(target.curve(scheme, noise, steps).epsilon(target.delta))
    except NotCertifiedError:
        return math.inf


def _quick_delta(curve: PrivacyCurve, epsilon: float) -> float:
    """An upper bound of delta(epsilon), within a few percent, some ten times faster than the certified bracket."""
    run = curve._run
    try:
        delta = max((direction.quick_delta(epsilon) for direction in run.directions), default=0.0)
    except BEYOND_FLOATS:
        return 1.0  # all that is known
    return delta + run.overflow * (1.0 + math.exp(min(epsilon, 700.0)))


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


def refine(look: Cost, cost: Cost, guess: float, limits: tuple[float, float], *,
           tolerance: Callable[[float], float] = lambda x: _TOLERANCE, slope: float = _SLOPE) -> Bracket:  # fmt: skip
    """Coarse looks first, then costs around what they found."""
    rough = climb(look, guess, 0.25, limits, tolerance=_LOOK_TOLERANCE)
    start = rough.good if rough.good is not None else limits[0]
    return climb(cost, start, 0.01, limits, tolerance=tolerance(start), slope=slope)


def solve(look: Cost, cost: Cost, proof: Cost, guess: float, limits: tuple[float, float]) -> float | None:
    """The largest `x` with proof(x) <= 0, found by the cheaper `look` and `cost`; None if there is none."""
    found = refine(look, cost, guess, limits).good
    if found is None:
        return None
    retreat = _TOLERANCE
    while proof(found) > 0.0:
        if found <= limits[0]:
            return None
        found, retreat = max(limits[0], found - retreat), 2.0 * retreat
    return found


def rough_noise(target: Target, scheme: CappedPoisson, steps: int, guess: float | None = None) -> float:
    """About the noise that the target takes, by coarse looks; infinite if no noise is enough."""
    stride = 0.25 if guess is None else 0.1
    if guess is None:
        guess = _guess_noise(target, scheme, Phase(scheme, 1.0, steps).rounds)
    found = climb(lambda x: target.look(scheme, math.exp(-x), steps, thorough=False), -math.log(guess), stride,
                  _NOISE_LIMITS, tolerance=1e-3, slope=1.2 * math.sqrt(-math.log(target.delta)))  # fmt: skip
    if found.good is None:
        return math.inf
    return math.exp(-(found.good if found.root is None else found.root))


def noise_for(target: Target, scheme: CappedPoisson, steps: int, guess: float | None = None) -> float | None:
    """The smallest noise in the searched range that meets the target; None if none does."""
    if guess is None or not math.isfinite(guess):
        guess = _guess_noise(target, scheme, Phase(scheme, 1.0, steps).rounds)
    found = solve(
        lambda x: target.look(scheme, math.exp(-x), steps),
        lambda x: target.search_cost(scheme, math.exp(-x), steps),
        lambda x: target.cost(scheme, math.exp(-x), steps),
        -math.log(guess),
        _NOISE_LIMITS,
    )
    return None if found is None else math.exp(-found)


def _checked_scheme(scheme: Any) -> CappedPoisson:
    if not isinstance(scheme, CappedPoisson):
        raise _validate.fail(f"scheme={_validate.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)")
    return scheme


def _checked_steps(steps: Any) -> int:
    return _validate.integer("steps", steps, low=1, remedy="pass the whole number of training steps, at least 1")


@public
def calibrate_noise_multiplier(
    scheme: CappedPoisson,
    *,
    steps: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency | str,
    analysis: Analysis | str = Analysis.REFINED,
) -> float:
    """The smallest noise multiplier with which `steps` steps of the scheme stay within (epsilon, delta).

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    >>> noise = calibrate_noise_multiplier(scheme, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="zero-out")
    >>> round(noise, 3)
    0.974
    >>> account(scheme, noise_multiplier=noise, steps=14_000, adjacency="zero-out").epsilon(1e-5) <= 3.0
    True

    Guarantees: `account` of the result gives an epsilon at or below the target. The result is at most a part in 10,000
    above the exact answer of the analysis. A target that no noise meets raises `InvalidArgumentError` and says why.

    Arguments:
        scheme: how batches are drawn.
        steps: number of training steps.
        epsilon, delta: the privacy budget.
        adjacency, analysis: as for `account`.
    """
    scheme, steps = _checked_scheme(scheme), _checked_steps(steps)
    target = Target.checked(epsilon, delta, adjacency, analysis)
    phase = Phase(scheme, 1.0, steps, target.analysis)
    overflow = -math.expm1(-phase.overflow_exponent)
    if 2.0 * overflow >= target.delta:
        raise InvalidArgumentError(
            f"delta={target.delta:.3g} cannot be met by any noise: analysis='union' adds at least twice the chance"
            f" {overflow:.3g} that one of {steps} batches overflows; lower sampling_probability, raise max_batch_size,"
            " or pass analysis='refined'"
        )
    noise = noise_for(target, scheme, steps)
    if noise is None:
        spent = target.spent(scheme, MOST_NOISE, steps)
        raise InvalidArgumentError(
            f"{target.describe()} cannot be met by any noise: even noise_multiplier={MOST_NOISE:.0e} costs epsilon"
            f" {spent:.4g}, because batches that are drawn again reveal dataset_size; lower sampling_probability, raise"
            " max_batch_size, or pass overflow='truncate'"
            if scheme.overflow is Overflow.REJECT and target.adjacency is Adjacency.ADD_REMOVE
            else f"{target.describe()} cannot be met: even noise_multiplier={MOST_NOISE:.0e} costs epsilon {spent:.4g};"
            " raise epsilon or delta"
        )
    if noise <= LEAST_NOISE * (1 + 1e-9):
        raise InvalidArgumentError(
            f"{target.describe()} is met even by noise_multiplier={LEAST_NOISE}, which hides nothing of a batch: an"
            f" example is used at all with chance {_chance_of_use(phase):.3g}; lower epsilon or delta"
        )
    return noise


def _chance_of_use(phase: Phase) -> float:
    inclusion = phase.scheme.inclusion_probability
    return 1.0 if inclusion >= 1.0 else -math.expm1(phase.rounds * math.log1p(-inclusion))


@public
def calibrate_steps(
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    epsilon: float,
    delta: float,
    adjacency: Adjacency | str,
    analysis: Analysis | str = Analysis.REFINED,
) -> int:
    """The largest number of steps of the scheme that stays within (epsilon, delta).

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    >>> steps = calibrate_steps(scheme, noise_multiplier=1.0, epsilon=1.0, delta=1e-5, adjacency="zero-out")
    >>> round(steps, -1)
    1790

    Guarantees: `account` of the result gives an epsilon at or below the target, and of one step more (one cycle more
    if `cycle_length > 1`) an epsilon above it. If even one step costs too much, `InvalidArgumentError` says how much.

    Arguments:
        scheme: how batches are drawn.
        noise_multiplier: standard deviation of the Gaussian noise on the sum, divided by the clipping norm.
        epsilon, delta: the privacy budget.
        adjacency, analysis: as for `account`.
    """
    scheme, noise = _checked_scheme(scheme), _validate.noise_multiplier(noise_multiplier)
    target = Target.checked(epsilon, delta, adjacency, analysis)
    if noise == math.inf:
        raise InvalidArgumentError("noise_multiplier=inf allows any number of steps; pass a finite number")
    # An example takes part once in a cycle, so that only whole cycles cost; the union strategy counts every batch.
    unit = 1 if target.analysis is Analysis.UNION else scheme.cycle_length
    known: dict[int, float] = {}

    def cost(rounds: int) -> float:
        if rounds not in known:
            known[rounds] = target.cost(scheme, noise, rounds * unit)
        return known[rounds]

    if noise == 0.0:
        raise InvalidArgumentError(
            f"{target.describe()} cannot be met: noise_multiplier=0 costs epsilon inf in one step; raise it"
        )
    variance = _spread(noise, target.adjacency) * scheme.sampling_probability**2
    guess = target.gaussian_shift() ** 2 / max(variance, 1e-300)
    found = refine(
        lambda x: target.look(scheme, noise, round(math.exp(x)) * unit),
        lambda x: cost(round(math.exp(x))),
        math.log(min(max(guess, 1.0), _MOST_STEPS)),
        (0.0, math.log(_MOST_STEPS)),
        tolerance=lambda x: max(1e-6, 0.3 * math.exp(-x)),
        slope=0.6,
    )
    if found.good is None:
        spent = target.spent(scheme, noise, unit)
        raise InvalidArgumentError(
            f"{target.describe()} cannot be met: even one step at noise_multiplier={noise:.6g} costs epsilon"
            f" {spent:.4g} > {target.epsilon:.6g}; raise noise_multiplier, or lower sampling_probability"
        )
    if found.bad is None:
        raise InvalidArgumentError(
            f"{target.describe()} is met even by {_MOST_STEPS} steps at noise_multiplier={noise:.6g}; any run you can"
            " finish is within it"
        )
    return _last_good(cost, known) * unit


def _last_good(cost: Callable[[int], float], known: dict[int, float]) -> int:
    """The integer that is good while the next one is not, from the closest ones known."""
    good = max(rounds for rounds, value in known.items() if value <= 0.0)
    bad = min(rounds for rounds, value in known.items() if value > 0.0 and rounds > good)
    while bad - good > 1:
        middle = (good + bad) // 2
        if cost(middle) <= 0.0:
            good = middle
        else:
            bad = middle
    return good


@public
def calibrate_sampling_probability(
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    steps: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency | str,
    analysis: Analysis | str = Analysis.REFINED,
) -> float:
    """The largest sampling probability with which the run stays within (epsilon, delta).

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject")
    >>> p = calibrate_sampling_probability(
    ...     scheme, noise_multiplier=1.0, steps=14_000, epsilon=3.0, delta=1e-5, adjacency="add-remove")
    >>> round(p * 60_000, 1)
    277.7

    Guarantees: `account` with the result gives an epsilon at or below the target; it is at most a part in 10,000 below
    the exact answer of the analysis.

    Arguments:
        scheme: how batches are drawn; its own `sampling_probability` does not matter.
        noise_multiplier: standard deviation of the Gaussian noise on the sum, divided by the clipping norm.
        steps: number of training steps.
        epsilon, delta: the privacy budget.
        adjacency, analysis: as for `account`.
    """
    scheme, steps = _checked_scheme(scheme), _checked_steps(steps)
    noise = _validate.noise_multiplier(noise_multiplier)
    target = Target.checked(epsilon, delta, adjacency, analysis)
    if noise == 0.0:
        raise InvalidArgumentError(
            f"{target.describe()} cannot be met: noise_multiplier=0 costs epsilon inf at any probability; raise it"
        )
    highest = 0.0
    if scheme.overflow is Overflow.REJECT and scheme.max_batch_size < scheme.group_size:
        highest = math.log1p(-1e-6)  # at 1 no batch is ever accepted

    def at(x: float) -> CappedPoisson:
        return replace(scheme, sampling_probability=min(math.exp(x), 1.0))

    rounds = Phase(scheme, noise, steps).rounds
    guess = target.gaussian_shift() / math.sqrt(rounds * max(_spread(noise, target.adjacency), 1e-300))
    guess = min(max(guess, _LEAST_PROBABILITY), scheme.max_batch_size / scheme.group_size, 1.0)
    best = solve(
        lambda x: target.look(at(x), noise, steps),
        lambda x: target.search_cost(at(x), noise, steps),
        lambda x: target.cost(at(x), noise, steps),
        math.log(guess),
        (math.log(_LEAST_PROBABILITY), highest),
    )
    if best is None:
        raise InvalidArgumentError(
            f"{target.describe()} cannot be met by any sampling_probability above {_LEAST_PROBABILITY:.0e} at"
            f" noise_multiplier={noise:.6g} and {steps} steps; raise noise_multiplier, or lower steps"
        )
    return at(best).sampling_probability
