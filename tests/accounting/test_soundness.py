"""Adversarial checks: no certified bound may cross the exact answer, however unpleasant the losses are.

Random discrete losses are composed exactly (every multiset of outcomes, in extended precision; binomial sums in mpmath
for many steps) and compared with the bounds from above and from below.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from tests.accounting.laws import KINDS, LONG, Counted, bracket_near, inversion_near, random_laws

from filet import CappedPoisson, NotCertifiedError, account
from filet.accounting.proving import contour as contour_module
from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.composition import Composition, Tilted
from filet.accounting.proving.inversion import EpsilonBracket
from filet.accounting.proving.pmf import LossPMF

SLACK = 1e-9


@pytest.fixture(autouse=True)
def _few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer frequencies, and no search for an early decay where it is costly: wide bounds, but none may be wrong."""
    full = Composition.decays_after

    def decays_after(
        self: Composition, c: float, tilted: list[Tilted], limit: float, tolerance: float, chords: Any = None
    ) -> tuple[float, float]:
        rate = max(float(one.spread.max()) for one in tilted)
        return full(self, c, tilted, limit, tolerance, chords) if 1.0 < limit * rate < 3000.0 else (limit, 1.0)

    monkeypatch.setattr(contour_module, "_MOST_NODES", 3000)
    monkeypatch.setattr(Composition, "decays_after", decays_after)


def check(view: LossPMF, exact: Counted, epsilon: float, rng: np.random.Generator) -> None:
    delta = exact.delta(epsilon)
    if not 1e-250 < delta < 0.999:
        return
    log_delta = min(float(np.log(delta)) + float(rng.choice([0.0, 0.0, 1.0, -3.0])), -1e-3)
    goal = np.exp(LONG(log_delta))
    evidence = inversion_near(view, epsilon, log_delta, float(rng.choice([1.0, 4.0])))
    for e in (epsilon, epsilon * 0.9, epsilon + 0.7 / evidence.c):
        ratio, true = evidence.delta_bound(e, log_delta).bound, float(exact.delta(e) / goal)
        assert not ratio < true * (1 - SLACK) if view.above else not ratio > true * (1 + SLACK)
    bracket = bracket_near(view, math.exp(log_delta), epsilon * rng.uniform(0.7, 1.3))
    lower, upper = float(bracket.lower[0]), float(bracket.upper[0])
    if upper < math.inf:
        assert exact.delta(upper) <= goal * (1 + SLACK)
    if lower > 0.0:
        assert exact.delta(lower) >= goal * (1 - SLACK)
    if view.above:
        assert view.chernoff_delta(epsilon) >= float(delta) * (1 - SLACK)
        crude = EpsilonBracket(math.exp(log_delta))
        crude.crude(view, 5e-5)
        if crude.upper < math.inf:
            assert exact.delta(crude.upper) <= goal * (1 + SLACK)


def compare(seed: int, kind: str) -> None:
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    laws = random_laws(rng, kind)
    exact = Counted(laws, float(rng.choice([0.0, 0.0, 0.3, 4.0])))
    with np.errstate(all="ignore"):
        for epsilon in exact.queries(rng):
            for above in (True, False):
                check(LossPMF(laws, exact.gaussian, above), exact, epsilon, rng)


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_random_discrete_laws_never_cross_the_exact_delta(kind: str) -> None:
    for seed in range(3):
        compare(seed, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_many_random_discrete_laws_never_cross_the_exact_delta(kind: str) -> None:
    for seed in range(3, 150):
        compare(seed, kind)


def binomial_delta(law: Discrete, steps: int, epsilon: float) -> mp.mpf:
    """delta of many steps of a loss with two values, the second the larger."""
    with mp.workdps(40):
        low, high, log_low, log_high = (mp.mpf(float(v)) for v in (*law.loss, *law.log_mass))
        first = max(0, int(mp.floor((mp.mpf(epsilon) - steps * low) / (high - low))) + 1)
        start = max(first, int(steps * mp.exp(log_high)))
        if first > steps:
            return mp.mpf(0)
        peak = mp.exp(mp.loggamma(steps + 1) - mp.loggamma(start + 1) - mp.loggamma(steps - start + 1)
                      + start * log_high + (steps - start) * log_low)  # fmt: skip
        odds, total = mp.exp(log_high - log_low), mp.mpf(0)
        for direction in (1, -1):
            k, mass = start, peak
            while first <= k <= steps:
                if direction > 0 or k < start:
                    total -= mass * mp.expm1(mp.mpf(epsilon) - steps * low - k * (high - low))
                mass *= odds * (steps - k) / (k + 1) if direction > 0 else k / (odds * (steps - k + 1))
                k += direction
                if mass < total * mp.mpf(10) ** -22:
                    break
        return total


MANY_STEPS = [(10, 0.3, 0.5), (300, 0.01, 1.0), (3000, 1e-3, 2.0), (10**5, 1e-4, 0.3), (10**6, 1e-6, 1.0),
              (10**6, 1e-4, 1e-2), (10**6, 1e-7, 3.0), (3 * 10**4, 0.2, 1e-3)]  # fmt: skip


@pytest.mark.parametrize(("steps", "p", "loss"), MANY_STEPS)
def test_bounds_of_many_steps_of_a_two_point_loss_never_cross_the_binomial_sum(
    steps: int, p: float, loss: float
) -> None:
    other = -math.log1p(-p * math.expm1(-loss) / (1 - p))
    law = Discrete(np.array([other, loss]), np.array([math.log1p(-p), math.log(p)]), 0.0, 0.0)
    mean, deviation = steps * (p * loss + (1 - p) * other), math.sqrt(steps * p * (1 - p)) * (loss - other)
    for epsilon in (max(0.0, mean), mean + 4 * deviation, mean + 7 * deviation + loss):
        delta = binomial_delta(law, steps, epsilon)
        if not 1e-250 < delta < 0.999:
            continue
        log_delta = float(mp.log(delta))
        for above in (True, False):
            evidence = inversion_near(LossPMF([(law, steps)], 0.0, above), epsilon, log_delta, 4.0)
            for e in (epsilon, epsilon + 0.5 / evidence.c):
                ratio = evidence.delta_bound(e, log_delta).bound
                true = float(binomial_delta(law, steps, e) / mp.exp(log_delta))
                assert not ratio < true * (1 - SLACK) if above else not ratio > true * (1 + SLACK)


def test_data_sets_too_large_for_binomial_tails_are_refused_and_the_largest_has_no_small_epsilon() -> None:
    """Half of the draws exceed the cap, which changes little for 10^15 examples: the example is drawn 300 times in 1000."""
    largest = account(CappedPoisson(10**15, 0.3, 3 * 10**14), noise_multiplier=1.0, steps=1000, adjacency="zero-out")
    assert largest.epsilon(1e-5) > 100.0
    with pytest.raises(NotCertifiedError, match=r"above 10\*\*15, where binomial tails lose their digits"):
        account(CappedPoisson(10**16, 0.3, 3 * 10**15), noise_multiplier=1.0, steps=1000, adjacency="zero-out")


@pytest.mark.parametrize(
    ("p", "noise", "steps"),
    [(0.1, 998764763.5333924, 2**63 - 1), (0.3724, 1938824971.5, 1761606693068501760), (0.021, 409660310.6, 2278216569574811904)],
)  # fmt: skip
def test_steps_beyond_floating_point_never_give_a_small_epsilon(p: float, noise: float, steps: int) -> None:
    """The roundings of 10^18 steps add up to many times delta; the Gaussian limit has epsilons of 0.3 to 1.7 here."""
    curve = account(CappedPoisson(1000, p, 1000), noise_multiplier=noise, steps=steps, adjacency="replace-one")
    assert curve.delta(0.0) > 0.05
    with pytest.raises(NotCertifiedError):
        curve.epsilon(1e-3)


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize("steps", [3, 1000, 10**6])
def test_delta_of_vast_noise_lies_in_its_bracket(adjacency: str, steps: int) -> None:
    """Losses next to rounding. With vast noise a step's loss is Gaussian: delta(0) is that of the Gaussian mechanism."""
    p, distance = 0.1, 2.0 if adjacency == "replace-one" else 1.0
    for noise in 10.0 ** np.arange(4, 18):
        curve = account(CappedPoisson(100, p, 100), noise_multiplier=noise, steps=steps, adjacency=adjacency)
        bounds = curve.delta_bounds(0.0)
        truth = math.erf(distance * p * math.sqrt(steps) / noise / math.sqrt(8.0))
        assert bounds.lower <= truth * (1 + 1e-7 + 2.0 / noise), noise
        assert bounds.upper >= truth * (1 - 1e-7 - 2.0 / noise), noise
