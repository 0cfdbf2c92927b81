"""Adversarial checks: no certified bound may cross the exact answer, however unpleasant the losses are.

Random discrete losses are composed exactly (every multiset of outcomes, in extended precision; binomial sums in mpmath
for many steps) and compared with the bounds from above and from below.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import log_ndtr

from filet import Adjacency, Analysis, CappedPoisson, NotCertifiedError, account
from filet.accounting.proving import line as inversion_module
from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.composition import Composition, Phase
from filet.accounting.proving.line import log_smoothing
from filet.accounting.proving.theorems import loss_law
from filet.accounting.proving.transform import TRANSFORM_ERROR, characteristic
from filet.accounting.run import _direction
from filet.accounting.searching.engine import Run, Side, solve

LONG = np.longdouble
SLACK = 1e-9
KINDS = ("pair", "wide", "tiny", "lattice", "heavy", "rare", "one", "cluster", "jump")


@pytest.fixture(autouse=True)
def _few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer frequencies, and no search for an early decay where it is costly: wide bounds, but none may be wrong."""
    full = Composition.decays_after

    def decays_after(self: Composition, c: float, limit: float, tolerance: float) -> tuple[float, float]:
        rate = max(one.spread for one in self.tilted(c))
        return full(self, c, limit, tolerance) if 1.0 < limit * rate < 3000.0 else (limit, 1.0)

    monkeypatch.setattr(inversion_module, "_MOST_NODES", 3000)
    monkeypatch.setattr(Composition, "decays_after", decays_after)


def random_law(rng: np.random.Generator, kind: str, most: int) -> Discrete:
    n = int(rng.integers(2, most + 1))
    log_p = rng.normal(size=n)
    if kind == "pair":
        loss = rng.normal(size=n) * rng.choice([0.01, 0.3, 2.0])
    elif kind == "wide":
        log_p = -rng.exponential(size=n) * rng.choice([10.0, 100.0])
        loss = log_p + rng.exponential(size=n) * rng.choice([3.0, 20.0])
    elif kind == "tiny":
        loss = 10.0 ** rng.uniform(-12, -5) * rng.normal(size=n)
    elif kind == "lattice":
        loss = rng.choice([0.01, 0.25, 1.0]) * rng.integers(-4, 9, size=n).astype(float)
    elif kind == "heavy":
        loss = np.clip(rng.standard_cauchy(size=n), -50, 50) * 10.0 ** rng.uniform(-4, 0)
        log_p -= 0.5 * np.abs(loss)
    elif kind == "rare":
        loss, log_p = np.abs(rng.normal(size=n)) * rng.choice([1.0, 5.0]), -rng.uniform(5, 460, size=n)
        loss[0], log_p[0] = -(10.0 ** rng.uniform(-12, -1)), 0.0
    elif kind == "one":
        loss = np.full(n, abs(float(rng.normal())) * 10.0 ** rng.uniform(-6, 1)) * (1 + 1e-3 * rng.normal(size=n))
    elif kind == "cluster":
        centres = rng.normal(size=3) * rng.choice([0.01, 1.0, 5.0])
        loss, log_p = centres[rng.integers(0, 3, size=n)] + rng.normal(size=n) * 1e-5, 3 * log_p
    else:
        loss = 10.0 ** rng.uniform(-8, 1, size=n) * rng.choice([-0.5, 1.0], size=n)
        log_p = -rng.exponential(size=n) * 20
    log_p = log_p - np.logaddexp.reduce(log_p)
    loss = loss + np.logaddexp.reduce(log_p - loss)  # Q sums to one
    return Discrete(loss, log_p, float(rng.choice([0.0, 0.0, 1e-12, 1e-30])), 0.0)


class Exact:
    """The composed loss, outcome by outcome; a Gaussian part is added in closed form."""

    def __init__(self, laws: list[tuple[Discrete, int]], gaussian: float) -> None:
        self.loss, self.log_mass, self.gaussian = np.zeros(1, LONG), np.zeros(1, LONG), gaussian
        for law, steps in laws:
            index = np.array(list(itertools.combinations_with_replacement(range(law.loss.size), steps)))
            orders, run = np.full(len(index), float(math.factorial(steps))), np.ones(len(index))
            for k in range(1, steps):
                run = np.where(index[:, k] == index[:, k - 1], run + 1, 1.0)
                orders /= run
            log_mass = law.log_mass.astype(LONG)[index].sum(axis=1) + np.log(orders.astype(LONG))
            self.loss = np.add.outer(self.loss, law.loss.astype(LONG)[index].sum(axis=1)).ravel()
            self.log_mass = np.add.outer(self.log_mass, log_mass).ravel()
        self.infinite = -np.expm1(sum(steps * np.log1p(-LONG(law.infinite)) for law, steps in laws))

    def delta(self, epsilon: float) -> np.longdouble:
        if self.gaussian:
            mu, y = math.sqrt(self.gaussian), (LONG(epsilon) - self.loss).astype(float)
            first = log_ndtr(mu / 2 - y / mu) + self.log_mass.astype(float)
            second = y + log_ndtr(-mu / 2 - y / mu) + self.log_mass.astype(float)
            return LONG(math.fsum(np.exp(first) - np.exp(second))) + self.infinite
        over = self.loss > epsilon
        return (np.exp(self.log_mass[over]) * -np.expm1(LONG(epsilon) - self.loss[over])).sum() + self.infinite


def queries(rng: np.random.Generator, exact: Exact) -> list[float]:
    """Zero, on an outcome, next to one, and anywhere."""
    positive = exact.loss[exact.loss > 0].astype(float)
    if not positive.size:
        return [0.0]
    on = float(rng.choice(positive))
    return [0.0, on, on * (1 - 1e-9), on * 1.001, float(rng.uniform()) * float(positive.max())]


def check(side: Side, exact: Exact, epsilon: float, rng: np.random.Generator) -> None:
    delta = exact.delta(epsilon)
    if not 1e-250 < delta < 0.999:
        return
    log_delta = min(float(np.log(delta)) + float(rng.choice([0.0, 0.0, 1.0, -3.0])), -1e-3)
    goal = np.exp(LONG(log_delta))
    lines = side.lines(epsilon, log_delta, float(rng.choice([1.0, 4.0])))
    for e in (epsilon, epsilon * 0.9, epsilon + 0.7 / lines.c):
        ratio, true = lines.ratio(e, log_delta)[0], float(exact.delta(e) / goal)
        assert not ratio < true * (1 - SLACK) if side.above else not ratio > true * (1 + SLACK)
    found, _ = solve(side, log_delta, epsilon * rng.uniform(0.7, 1.3), 1.0)
    if side.above and not math.isnan(found):
        assert exact.delta(found) <= goal * (1 + SLACK)
    if not side.above and found > 0.0:
        assert exact.delta(found) >= goal * (1 - SLACK)
    if side.above:
        assert side.chernoff_delta(epsilon) >= float(delta) * (1 - SLACK)


def compare(seed: int, kind: str) -> None:
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    if rng.random() < 0.7:
        steps = int(rng.integers(1, 5))
        laws = [(random_law(rng, kind, {1: 40, 2: 30, 3: 16, 4: 9}[steps]), steps)]
    else:
        laws = [(random_law(rng, kind, 9), int(rng.integers(1, 3))), (random_law(rng, str(rng.choice(KINDS)), 9), 1)]
    exact = Exact(laws, float(rng.choice([0.0, 0.0, 0.3, 4.0])))
    with np.errstate(all="ignore"):
        for epsilon in queries(rng, exact):
            for above in (True, False):
                check(Side(laws, exact.gaussian, above), exact, epsilon, rng)


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_random_discrete_laws_never_cross_the_exact_delta(kind: str) -> None:
    for seed in range(3):
        compare(seed, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_many_random_discrete_laws_never_cross_the_exact_delta(kind: str) -> None:
    for seed in range(3, 150):
        compare(seed, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_transform_stays_below_its_bound_after_its_last_frequency(kind: str) -> None:
    """Beyond the cut, up to the limit, at frequencies between the samples too; both parts of the bound are used."""
    cuts = 0
    for seed in range(40):
        rng = np.random.default_rng([7, seed, KINDS.index(kind)])
        phases = [Phase(random_law(rng, kind, 30), int(10 ** rng.uniform(0, 6))) for _ in range(rng.integers(1, 3))]
        whole = Composition(phases, float(rng.choice([0.0, 0.0, 0.3])))
        c, tolerance = 10.0 ** rng.uniform(-1, 1), 10.0 ** rng.uniform(-12, -4)
        deviation = max(one.deviation for one in whole.tilted(c))
        limit = 10.0 ** rng.uniform(-2, 1.5) / deviation
        cut, bound = whole.decays_after(c, limit, tolerance)
        if cut == limit:
            continue
        cuts += 1
        assert bound <= tolerance
        u = np.concatenate([np.geomspace(cut, limit, 1500), np.linspace(cut, limit, 1500)])
        log_modulus = -0.5 * whole.gaussian * np.square(u)
        for steps, one in zip(whole.steps, whole.tilted(c), strict=True):
            values = np.exp(1j * np.outer(u, one.away)) @ one.weights
            with np.errstate(divide="ignore"):
                log_modulus += steps * np.log(np.abs(values))
        assert np.exp(log_modulus.max()) <= bound * (1 + 1e-6)
    assert cuts >= 5 or kind == "rare"  # with one rare hit the transform never dies out


@pytest.mark.parametrize("count", [2, 64, 65, 3000])
def test_both_ways_to_transform_meet_their_stated_error(count: int) -> None:
    """Multiplication for few frequencies, series and fast transform for many, against direct sums."""
    rng = np.random.default_rng(count)
    one = Composition([Phase(random_law(rng, "wide", 300), 1)]).tilted(0.7)[0]
    spacing = 3.0 / one.deviation / count
    values, own = one.transform(spacing, count)
    turns = np.multiply.outer(spacing * np.arange(count).astype(LONG), one.away.astype(LONG))
    exact = np.cos(turns) @ one.weights.astype(LONG) + 1j * (np.sin(turns) @ one.weights.astype(LONG))
    error = np.abs(values - exact.astype(complex))
    assert (error <= one.error(spacing * np.arange(count), own)).all()


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
            lines = Side([(law, steps)], 0.0, above).lines(epsilon, log_delta, 4.0)
            for e in (epsilon, epsilon + 0.5 / lines.c):
                ratio = lines.ratio(e, log_delta)[0]
                true = float(binomial_delta(law, steps, e) / mp.exp(log_delta))
                assert not ratio < true * (1 - SLACK) if above else not ratio > true * (1 + SLACK)


@pytest.mark.parametrize("count", [1000, 20_000, 200_000])
def test_a_single_negative_position_is_transformed_within_the_stated_error(count: int) -> None:
    j = np.arange(count).astype(LONG)
    for x in (-0.77, -1.0, -1.3, 1.3):
        values = characteristic(np.array([x]), np.ones(1), 1.0 / count, count)
        angle = j * LONG(1.0 / count) * LONG(x)
        off = np.hypot((values.real - np.cos(angle)).astype(float), (values.imag - np.sin(angle)).astype(float))
        assert off.max() <= TRANSFORM_ERROR


@pytest.mark.parametrize(("p", "epsilon"), [(0.9, 709.9), (0.9, 713.0), (0.99, 711.5), (0.5, 720.0)])
def test_one_step_with_a_huge_epsilon_has_the_right_delta(p: float, epsilon: float) -> None:
    sigma = 1 / 37.6
    # replace-one has the widest window: Q = (1-p) N(0) + p N(-1)
    law = loss_law(CappedPoisson(1000, p, 1000), sigma, Adjacency.REPLACE_ONE, Analysis.REFINED)
    with mp.workdps(50):
        m, a, rate = 1 / mp.mpf(sigma), mp.exp(mp.mpf(epsilon)), mp.mpf(p)
        low, high = mp.mpf(0), mp.mpf(100)
        for _ in range(160):
            x = (low + high) / 2
            positive = (1 - rate) + rate * mp.exp(m * x - m * m / 2)
            negative = (1 - rate) + rate * mp.exp(-m * x - m * m / 2)
            low, high = (x, high) if positive < a * negative else (low, x)
        rest = (1 - rate) * mp.ncdf(-x)
        exact = float(rest + rate * mp.ncdf(m - x) - a * (rest + rate * mp.ncdf(-x - m)))
    bracket = _direction(Run([(law, 1)])).delta(epsilon)
    assert bracket.lower * (1 - SLACK) <= exact <= bracket.upper * (1 + SLACK)


@pytest.mark.parametrize("beta", [15.0, 17.3, 40.0])
def test_the_drift_of_a_small_shift_is_not_understated(beta: float) -> None:
    for s in (1e-2, 1e-4, 1e-6, 1e-8):
        with mp.workdps(60):
            root = mp.sqrt(mp.mpf(beta) ** 2 + mp.mpf(s) ** 2)
            exact = float(mp.log(mp.sinh(root) / root * beta / mp.sinh(beta)))
        assert float(log_smoothing(np.ones(1), s, beta)[0]) * (1 + 1e-9) >= exact * (1 - 1e-12)


def test_a_scale_that_is_lost_to_rounding_is_refused() -> None:
    near = Discrete(np.array([-4e-15, 6e-15, 1.2e-14]), np.log([0.5, 0.3, 0.2]), 0.0, 0.0)
    far = Discrete(np.array([-5.0, 891.38874672, 1015.12963881]), np.array([-30.0, -2e-6, -13.0]), 0.0, 0.0)
    laws, epsilon = [(near, 1), (far, 1)], 1015.12963881
    log_delta = float(np.log(Exact(laws, 0.0).delta(epsilon)))
    for above in (True, False):
        lines = Side(laws, 0.0, above).lines(epsilon, log_delta, 8.0)
        lost = max(line.c for line in lines._lines) * epsilon * 2.0**-53 > 0.5
        assert not lost or math.isnan(lines.ratio(epsilon, log_delta)[0])


def test_weights_that_are_not_numbers_never_give_a_small_epsilon() -> None:
    scheme = CappedPoisson(10**16, 0.3, 3 * 10**15)
    with np.errstate(all="ignore"):
        try:
            law = loss_law(scheme, 1.0, Adjacency.ZERO_OUT, Analysis.REFINED)
            upper = _direction(Run([(law, 1000)])).epsilon(1e-5).upper
        except (ValueError, ArithmeticError, RuntimeError):
            return
    assert upper > 1.0


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
