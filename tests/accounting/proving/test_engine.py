"""Composition: certified brackets against 20-digit epsilons, brute force for two steps, and every error bound alone."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammaln, i0e, log_ndtr, ndtr
from scipy.stats import binom
from tests.accounting.proving.test_theorems import law_of, rows

from filet import Adjacency, Analysis, CappedPoisson
from filet.accounting.proving.cells import Discrete, discretise_above, discretise_below, equal_cells
from filet.accounting.proving.composition import Composition, Phase
from filet.accounting.proving.line import Line, log_smoothing, smoothing_transform
from filet.accounting.proving.theorems import loss_law
from filet.accounting.proving.transform import TRANSFORM_ERROR, characteristic
from filet.accounting.run import _direction
from filet.accounting.searching import engine
from filet.accounting.searching.engine import Interval, Run, Sampled, Side, _positive, solve, wide
from filet.errors import NotCertifiedError


def discrete_profile(law: Discrete, epsilon: np.ndarray) -> np.ndarray:
    gains = -np.expm1(np.minimum(epsilon[:, None] - law.loss[None, :], 0.0))
    return law.infinite + gains @ np.exp(law.log_mass)


COMPOSED = rows("composed.csv")


def test_the_reference_table_is_large() -> None:
    assert len(COMPOSED) >= 60


@pytest.mark.parametrize("part", range(8))
def test_every_reference_epsilon_lies_in_its_certified_bracket(part: int) -> None:
    for row in COMPOSED[part::8]:
        law = law_of(row)
        bracket = _direction(Run([(law, int(row["steps"]))])).epsilon(float(row["delta"]))
        slack = float(row["epsilon"]) * 10.0 ** -float(row["digits"]) + 1e-15
        assert bracket.lower - slack <= float(row["epsilon"]) <= bracket.upper + slack, row
        assert not wide(bracket), row
        assert bracket.upper <= float(row["epsilon"]) * (1 + 2e-4) + 3e-5, row


def laws() -> list[tuple[CappedPoisson, float, Adjacency]]:
    cases = []
    for n, p, cap in [(5, 0.3, 2), (60_000, 256 / 60_000, 300), (10**9, 1e-6, 1010), (100, 1.0, 60), (100, 0.5, 60)]:
        for overflow in ("truncate", "reject"):
            if p < 1.0 or overflow == "truncate":
                scheme = CappedPoisson(n, p, cap, overflow)  # type: ignore[arg-type]
                cases += [(scheme, sigma, adjacency) for sigma in (0.1, 1.0, 30.0) for adjacency in Adjacency]
    return cases


@pytest.mark.parametrize(("scheme", "sigma", "adjacency"), laws())
def test_discrete_laws_bracket_the_profile_and_conserve_mass(
    scheme: CappedPoisson, sigma: float, adjacency: Adjacency
) -> None:
    epsilon = np.array([0.0, 1e-8, 1e-4, 0.02, 0.4, 2.0, 30.0])
    law = loss_law(scheme, sigma, adjacency, Analysis.REFINED)
    for one in (law, law.reversed()):
        cells = equal_cells(one, 9.0, 0.1)
        above, below = discretise_above(cells), discretise_below(cells)
        exact = one.profile(epsilon)
        assert (discrete_profile(above, epsilon) >= exact * (1 - 1e-9)).all()
        assert (discrete_profile(below, epsilon) <= exact * (1 + 1e-9) + 1e-300).all()
        assert math.fsum(np.exp(above.log_mass)) + above.infinite == pytest.approx(1.0, abs=1e-12)
        assert math.fsum(np.exp(below.log_mass)) <= 1.0 + 1e-12


def pairs(law: Discrete, epsilon: float) -> float:
    """delta of two steps of a discrete law, by adding up all pairs."""
    loss = law.loss[:, None] + law.loss[None, :]
    log_mass = law.log_mass[:, None] + law.log_mass[None, :]
    finite = float((np.exp(log_mass) * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum())
    return finite + law.infinite * (2.0 - law.infinite)


TWO_STEPS = [(p, sigma, delta) for p in (1e-9, 1e-6, 1e-3, 0.3) for sigma in (0.3, 0.5, 1.0, 4.0)
             for delta in (1e-3, 1e-10, 1e-30)]  # fmt: skip


@pytest.mark.parametrize(("p", "sigma", "delta"), TWO_STEPS)
def test_two_steps_agree_with_adding_up_all_pairs(p: float, sigma: float, delta: float) -> None:
    n = round(1000 / p)
    law = loss_law(CappedPoisson(n, p, 1000), sigma, Adjacency.ZERO_OUT, Analysis.REFINED)
    for one in (law, law.reversed()):
        cells = equal_cells(one, math.sqrt(2 * (math.log(2 / delta) + 10)), 0.1)
        above = Side([(discretise_above(cells), 2)], 0.0, True)
        below = Side([(discretise_below(cells), 2)], 0.0, False)
        start = above.guess(math.log(delta))
        upper, _ = solve(above, math.log(delta), start, 1.0)
        lower, _ = solve(below, math.log(delta), start, 1.0)
        if upper == upper:
            assert pairs(above.phases[0].law, upper) <= delta * (1 + 1e-9)
        if lower > 0:
            assert pairs(below.phases[0].law, lower) >= delta * (1 - 1e-9)
        if upper == upper and lower == lower:
            assert lower <= upper


def test_the_fast_transform_stays_within_its_error_bound() -> None:
    rng = np.random.default_rng(1)
    for sources, count, spacing in [(1000, 50, 0.3), (3000, 500, 0.01), (3000, 20_000, 1e-3), (500, 3, 2.0)]:
        x = rng.normal(size=sources)
        weights = rng.exponential(size=sources)
        weights /= weights.sum()
        values = characteristic(x, weights, spacing, count)
        picked = np.unique(np.linspace(0, count - 1, 40).astype(int))
        for j in picked:
            angle = np.remainder(x.astype(np.longdouble) * spacing * j, 2 * np.longdouble(np.pi))
            exact = (weights * np.exp(1j * angle.astype(float))).sum()
            phase = 4 * 2.0**-53 * spacing * j * np.abs(x).max()
            assert abs(values[j] - exact) <= TRANSFORM_ERROR + phase


def kernel(beta: float) -> tuple[np.ndarray, np.ndarray]:
    """The law of the smoothing shift on fine nodes."""
    x, w = np.polynomial.legendre.leggauss(400)
    root = beta * np.sqrt(1 - x * x)
    density = i0e(root) * np.exp(root - beta) * w
    return x, density / density.sum()


@pytest.mark.parametrize("beta", [15.0, 25.0, 40.0])
def test_the_smoothing_transform_is_that_of_its_density(beta: float) -> None:
    x, weights = kernel(beta)
    for z in (0.0, 1.0, 0.3 + 5j, 2 + 30j):
        direct = (weights * np.exp(z * 0.7 * x)).sum()
        assert smoothing_transform(np.array([z], complex), 0.7, beta)[0] == pytest.approx(direct, rel=1e-9, abs=1e-12)
    direct = math.log((weights * np.exp(3.0 * 0.7 * x)).sum())
    assert float(log_smoothing(np.array([3.0]), 0.7, beta)[0]) == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_readings_contain_the_exact_delta_of_an_atomic_law(steps: int) -> None:
    """Smoothing, aliasing, truncation and rounding together: the worst case for smoothing is a law of few atoms."""
    loss = np.array([-0.4, -0.01, 0.02, 0.5, 1.3])
    mass = np.array([0.1, 0.55, 0.3, 0.049, 0.001])
    law = Discrete(loss, np.log(mass), 0.0, 0.0)
    totals, masses = np.zeros(1), np.ones(1)
    for _ in range(steps):
        totals, masses = np.add.outer(totals, loss).ravel(), np.outer(masses, mass).ravel()
    for epsilon in (0.0, 0.01, 0.3, 0.499, 0.501, 0.9, 1.31):
        exact = float((masses * -np.expm1(np.minimum(epsilon - totals, 0.0))).sum())
        if exact == 0.0:
            continue
        line = Line(Composition([Phase(law, steps)]), epsilon, math.log(exact), 1e-3).sample()
        scale = math.exp(line.log_unit(epsilon))
        reading = line.read(epsilon)
        assert scale * (reading.value - reading.error - reading.alias - reading.excess) <= exact
        upper = line.read(epsilon - line.drift)
        assert math.exp(line.log_unit(epsilon - line.drift)) * (upper.value + upper.error) >= exact


def test_a_jump_and_no_jump_add_up_to_the_whole() -> None:
    law = loss_law(CappedPoisson(10**4, 0.01, 100), 0.6, Adjacency.ZERO_OUT, Analysis.REFINED)
    discrete = discretise_above(equal_cells(law, 9.0, 0.1))
    c = np.array([0.0, 0.5, 2.0])
    steps, cap = 4, 0.7
    phases = [Phase(discrete, steps)]
    none = Composition(phases, 0.0, cap).log_mgf(c)
    one = Composition(phases, 0.0, cap, jump=True).log_mgf(c)
    mass, loss = np.exp(discrete.log_mass), discrete.loss
    small = np.array([(mass * np.exp(v * loss))[loss <= cap].sum() for v in c])
    big = np.array([(mass * np.exp(v * loss))[loss > cap].sum() for v in c])
    assert np.exp(none) == pytest.approx(small**steps, rel=1e-12)
    assert np.exp(one) == pytest.approx(steps * big * small ** (steps - 1), rel=1e-12)


GRID = [
    (p, sigma, steps, delta)
    for p in (1e-9, 1e-6, 1e-4, 1e-2, 0.5, 1.0)
    for sigma in (0.1, 0.5, 1.0, 3.0, 10.0, 100.0)
    for steps in (1, 2, 10, 100, 10**4, 10**7)
    for delta in (1e-2, 1e-5, 1e-10, 1e-30)
]


@pytest.mark.parametrize("part", range(6))
def test_a_slice_of_the_stress_grid_is_answered_within_the_promised_width(part: int) -> None:
    rng = np.random.default_rng(part)
    for index in rng.choice(len(GRID), 12, replace=False):
        p, sigma, steps, delta = GRID[index]
        n = round(1000 / p)
        sds = int(rng.choice([0, 2, 5]))
        cap = min(n, int(n * p + sds * math.sqrt(n * p * (1 - p))))
        overflow = str(rng.choice(["truncate", "reject"]))
        adjacency = list(Adjacency)[int(rng.integers(3))]
        scheme = CappedPoisson(n, p, cap, overflow)  # type: ignore[arg-type]
        law = loss_law(scheme, sigma, adjacency, Analysis.REFINED)
        bracket = _direction(Run([(law, steps)])).epsilon(delta)
        assert not wide(bracket), (GRID[index], scheme, adjacency, bracket)


# --- the parts of the search, each alone ------------------------------------------------------------------------------

FEW = Discrete(np.array([-0.4, 0.1, 0.9]), np.log([0.5, 0.4, 0.1]), 1e-3, 0.0)
OTHER = Discrete(np.array([-0.05, 0.3]), np.log([0.8, 0.2]), 0.0, 0.0)


def own_deltas(epsilon: float, laws: list[tuple[Discrete, int]]) -> float:
    """The sum of the steps' own deltas, term by term."""
    return math.fsum(
        steps * (law.infinite + math.fsum(math.exp(m) * -math.expm1(min(epsilon - v, 0.0))
                                          for v, m in zip(law.loss, law.log_mass, strict=True)))
        for law, steps in laws
    )  # fmt: skip


def test_separate_deltas_and_their_inverse_are_those_of_the_steps() -> None:
    laws = [(FEW, 3), (OTHER, 2)]
    side = Side(laws, 0.0, True)
    for epsilon in (0.0, 0.05, 0.1, 0.2, 0.5, 0.8999):
        exact = own_deltas(epsilon, laws)
        assert exact < float(side.separate(np.array([epsilon]))[0]) <= exact * (1 + 2e-9)
        assert side.invert_separate(exact) == pytest.approx(epsilon, abs=1e-12)
    # a Gaussian of squared shift 0.8 is at total variation 2 Phi(mu / 2) - 1
    shifted = Side(laws, 0.8, True).separate(np.array([0.2]))[0]
    assert shifted == pytest.approx(own_deltas(0.2, laws) + math.erf(math.sqrt(0.8) / 2 / math.sqrt(2)), rel=2e-9)
    assert side.invert_separate(3 * FEW.infinite) == math.inf
    assert side.invert_separate(own_deltas(0.0, laws) + 1e-6) == side.invert_separate(10.0) == 0.0
    assert Side(laws, 0.0, False).infinite == 0.0  # a lower bound may not count on infinite losses


def test_crude_bounds_allow_for_rounded_losses() -> None:
    exact, rounded = (Discrete(FEW.loss, FEW.log_mass, 0.0, 0.0, difference) for difference in (1e-3, 1e9))
    sharp, blunt = Side([(exact, 5)], 0.0, True), Side([(rounded, 5)], 0.0, True)
    slack = 1e9 * (4e-16 * 5 + 1e-12 * math.sqrt(5))
    assert blunt.slack == pytest.approx(slack)
    assert blunt.largest == pytest.approx(sharp.largest + slack, rel=1e-9)
    assert float(blunt.separate(np.array([0.5]))[0]) == pytest.approx(own_deltas(0.5 - 1e-3, [(exact, 5)]), rel=1e-8)
    assert blunt.chernoff_delta(2.0) == pytest.approx(sharp.chernoff_delta(2.0 - slack), rel=1e-9)
    assert blunt.chernoff(-3.0) == pytest.approx(sharp.chernoff(-3.0) + slack, rel=1e-9)
    assert Side([(OTHER, 1)], 0.0, True).chernoff(math.log(0.15)) < 0.3


def test_crude_bounds_allow_for_the_error_of_binomial_weights() -> None:
    exact, rough = (Discrete(FEW.loss, FEW.log_mass, 0.0, error, 1e-3) for error in (0.0, 1e-6))
    for above in (True, False):
        sharp, blunt = Side([(exact, 5), (OTHER, 2)], 0.0, above), Side([(rough, 5), (OTHER, 2)], 0.0, above)
        assert blunt.weight_error == 1e-6
        assert blunt.largest == pytest.approx(sharp.largest * (1 + 1e-6), rel=1e-9)
        assert blunt.rounding == pytest.approx(5e-6, rel=1e-5)
        at = np.array([0.5])
        assert blunt.separate(at)[0] > sharp.separate(at * (1 - 0.99e-6))[0] * (1 + 1.9e-6)
        assert blunt.chernoff_delta(2.0) == pytest.approx(sharp.chernoff_delta(2.0 - 2e-6) * math.exp(5e-6), rel=1e-9)
        assert blunt.chernoff(-3.0) > sharp.chernoff(-3.0) * (1 + 1e-6)
    few, many = (Side([(Discrete(np.array([9.0]), np.zeros(1), 0.0, error), 5)], 0.0, False) for error in (0.0, 1e-6))
    assert few.floor_delta(3.0) * (1 - 1e-5) < many.floor_delta(3.0) < few.floor_delta(3.0) * (1 - 4e-6)
    assert Side([(rough, 11)], 0.0, False).floor_delta(0.0) == 0.0  # more error than is allowed for


def test_basic_composition_gives_the_smallest_proven_epsilon_and_none_beside_a_gaussian() -> None:
    tiny = Discrete(np.array([-1e-6, 3e-6]), np.log([0.75, 0.25]), 1e-12, 0.0)
    side = Side([(tiny, 10)], 0.0, True)
    found = side.basic(1e-10)
    goals = [1e-4 / 2**k for k in range(1, 14)]
    assert found == min(goal for goal in goals if own_deltas(goal / 10, [(tiny, 10)]) <= 1e-10)
    assert side.basic(1e-12) == math.inf
    assert Side([(tiny, 10)], 1e-12, True).basic(1e-10) == math.inf


@pytest.mark.parametrize("steps", [1, 30, 3000])
def test_chernoff_bounds_are_above_the_truth_and_not_far(steps: int) -> None:
    p, loss = 0.01, 1.0
    other = -math.log1p(-p * math.expm1(-loss) / (1 - p))
    law = Discrete(np.array([other, loss]), np.array([math.log1p(-p), math.log(p)]), 1e-30, 0.0)
    side = Side([(law, steps)], 0.0, True)
    hits = np.arange(steps + 1)
    log_mass = binom.logpmf(hits, steps, p)
    mean, deviation = steps * (p * loss + (1 - p) * other), math.sqrt(steps * p * (1 - p)) * (loss - other)
    for epsilon in (0.5, mean + 3 * deviation, mean + 7 * deviation):
        gains = -np.expm1(np.minimum(epsilon - hits * loss - (steps - hits) * other, 0.0))
        exact = math.fsum(np.exp(log_mass) * gains)
        assert exact <= side.chernoff_delta(epsilon) <= min(1.0, 30 * exact)
        if epsilon > mean + deviation:
            assert epsilon <= side.chernoff(math.log(exact)) <= 1.2 * epsilon + 1.0
    assert side.chernoff_delta(1e9) == pytest.approx(side.infinite)
    half = Discrete(np.array([0.3]), np.log([0.5]), 0.5, 0.0)
    assert Side([(half, 1)], 0.0, True).chernoff_delta(0.0) <= 1.0
    assert side.chernoff(math.log(side.infinite) - 1e-9) == math.inf


@pytest.mark.parametrize("gaussian", [0.0, 300.0])
def test_the_floor_of_a_delta_near_one_is_below_it_and_near(gaussian: float) -> None:
    law = Discrete(np.array([-0.7, 0.6]), np.log([0.3, 0.7]), 0.0, 0.0)
    side = Side([(law, 400)], gaussian, False)
    hits = np.arange(401)
    totals, mass = hits * 0.6 - (400 - hits) * 0.7, binom.pmf(hits, 400, 0.7)
    mu, most = math.sqrt(gaussian), 0.0
    for epsilon in (0.0, 2.0, 40.0, 70.0, 84.0, 120.0, 300.0):
        rest = epsilon - totals
        if gaussian:
            gains = ndtr(mu / 2 - rest / mu) - np.exp(rest + log_ndtr(-mu / 2 - rest / mu))
        else:
            gains = -np.expm1(np.minimum(rest, 0.0))
        exact, floor = math.fsum(mass * gains), side.floor_delta(epsilon)
        assert 0.0 <= floor <= exact
        assert floor > 0.999 or exact < 1 - 1e-6
        most = max(most, floor)
    assert most > 0.999
    atom = Side([(Discrete(np.array([3.0]), np.zeros(1), 0.0, 0.0), 1)], 0.0, False)
    assert atom.floor_delta(0.0) <= -math.expm1(-3.0)
    half = Side([(Discrete(law.loss, law.log_mass - math.log(2.0) / 400, 0.0, 0.0), 400)], gaussian, False)
    assert half.floor_delta(2.0) == pytest.approx(side.floor_delta(2.0) / 2, rel=1e-3)  # outcomes that were dropped
    blunt = Side([(Discrete(law.loss, law.log_mass, 0.0, 0.0, 1e11), 400)], gaussian, False)
    assert 1.0 < blunt.slack < 4.0
    blunt.resolved = True
    assert blunt.floor_delta(70.0) == pytest.approx(side.floor_delta(70.0 + blunt.slack), rel=1e-9)
    assert Side([(law, 10**8)], gaussian, False).floor_delta(2.0) == 0.0  # rounding could be more than is spared
    faint = Discrete(law.loss * 1e-17, law.log_mass, 0.0, 0.0)
    assert Side([(faint, 400)], 1e6, False).floor_delta(2.0) == 0.0


def test_what_is_wide_is_wider_than_the_promise() -> None:
    assert not wide(Interval(2.0, 2.0019))
    assert wide(Interval(2.0, 2.0021))
    assert not wide(Interval(0.0, 0.99e-4))
    assert wide(Interval(0.0, 1.01e-4))
    assert wide(Interval(2.0, 2.0019), 0.9)
    assert wide(Interval(2.0, math.inf))
    assert not wide(Interval(math.inf, math.inf))
    assert wide(Interval(math.nan, 1.0))


def test_what_is_not_a_positive_number_is_replaced() -> None:
    assert [_positive(v, 7.0) for v in (math.nan, 0.0, -1.0, 0.5)] == [7.0, 7.0, 7.0, 0.5]


class Exponential:
    """Stands for a side with delta = e^(root - epsilon) of the goal."""

    c, nodes, costly, resolved = 1.0, 1, False, True

    def __init__(self, above: bool, root: float) -> None:
        self.above, self.root = above, root

    def lines(self, *_: float) -> Exponential:
        return self

    def ratio(self, epsilon: float, _: float) -> tuple[float, float, float]:
        return math.exp(self.root - epsilon), -math.exp(self.root - epsilon), 0.0


@pytest.mark.parametrize("start", [0.0, 1.0, 5.0])
def test_answers_are_on_the_safe_side_of_the_root(start: float) -> None:
    for root in (0.5, 2.0):
        for above in (True, False):
            found, _ = solve(Exponential(above, root), -5.0, start, 1.0)  # type: ignore[arg-type]
            assert found == pytest.approx(root, abs=1e-6)
            assert (found > root) == above
    assert solve(Exponential(True, -1.0), -5.0, start, 1.0)[0] == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize(("ratio", "above"), [(0.5, True), (2.0, True), (2.0, False), (0.5, False), (math.nan, True)])
def test_without_a_slope_the_search_walks_on_as_far_as_it_is_proven(ratio: float, above: bool) -> None:
    flat = Exponential(above, 0.0)
    flat.ratio = lambda *_: (ratio, 0.0, 0.0)  # type: ignore[method-assign]
    found = solve(flat, -5.0, 1.0, 1.0)[0]  # type: ignore[arg-type]
    if ratio == 0.5:  # below the goal everywhere
        assert found == 0.0
    elif ratio == 2.0 and not above:
        assert found > 10.0
    else:
        assert math.isnan(found)


class Plateaus(Exponential):
    """Stands for a side with few hits of large losses: delta falls from one level to the next, and is flat between."""

    c = 0.01

    def __init__(self, above: bool) -> None:
        super().__init__(above, 9_750.0)
        self.visited: list[float] = []

    def ratio(self, epsilon: float, _: float) -> tuple[float, float, float]:
        self.visited.append(epsilon)
        value, slope = 1e-4, 0.0
        for level, edge in ((300.0, 4_800.0), (3.0, 9_750.0 - 100.0 * math.log(2.0))):
            falls = 1.0 / (1.0 + math.exp(min((epsilon - edge) / 100.0, 50.0)))
            value += level * falls
            slope -= level * falls * (1.0 - falls) / 100.0
        return value, slope if abs(slope) > 1e-9 else 1e-12, 0.0  # rounding


@pytest.mark.parametrize("start", [4_000.0, 5_500.0, 7_300.0, 9_000.0, 13_000.0])
@pytest.mark.parametrize("above", [True, False])
def test_the_edge_of_a_plateau_is_found_by_halving(start: float, above: bool) -> None:
    side = Plateaus(above)
    found, _ = solve(side, -5.0, start, 1.0)  # type: ignore[arg-type]
    assert found == pytest.approx(9_750.0, abs=0.1)
    assert len(side.visited) <= 40
    assert (side.ratio(found, 0.0)[0] < 1.0) == above


@pytest.mark.parametrize(("nodes", "rounds"), [(1, 20), (600_000, 5), (2_500_000, 2), (9_000_000, 1)])
def test_a_search_ends_when_it_has_cost_enough(nodes: int, rounds: int) -> None:
    side, built = Exponential(True, 600.0), []
    side.nodes, lines = nodes, side.lines
    side.lines = lambda *where: built.append(where) or lines()  # type: ignore[method-assign,func-returns-value]
    assert math.isnan(solve(side, -5.0, 1.0, 1.0)[0])  # type: ignore[arg-type]
    assert len(built) == rounds


class Kinked(Exponential):
    """Stands for a side where one loss of 2 decides: delta is flat, and falls off a cliff just before it."""

    c = 5.0

    def __init__(self, above: bool) -> None:
        super().__init__(above, 2.0 - 5.08e-4)
        self.visited: list[float] = []

    def ratio(self, epsilon: float, _: float) -> tuple[float, float, float]:
        self.visited.append(epsilon)
        parts = [(1e3, 2.0), (0.5, 10.0)]
        value = sum(-mass * math.expm1(min(0.0, epsilon - loss)) for mass, loss in parts)
        return value, -sum(mass * math.exp(epsilon - loss) for mass, loss in parts if epsilon < loss), 0.0


@pytest.mark.parametrize("start", [0.0, 1.5, 1.9999, 2.5, 4.0])
@pytest.mark.parametrize("above", [True, False])
def test_a_cliff_of_delta_is_found_between_what_is_known(start: float, above: bool) -> None:
    side = Kinked(above)
    found, _ = solve(side, -5.0, start, 1.0)  # type: ignore[arg-type]
    exact = brentq(lambda epsilon: Kinked(True).ratio(epsilon, 0.0)[0] - 1.0, 1.9, 2.0, xtol=1e-14)
    assert found == pytest.approx(exact, abs=1e-6)
    assert (found > exact) == above
    assert len(side.visited) <= 40


@pytest.mark.parametrize(("above", "start"), [(True, 3.0), (False, 0.2)])
def test_of_all_that_is_proven_the_best_is_kept(above: bool, start: float) -> None:
    """Where nothing more can be read the search ends, with the last point, which is nearer than the first."""
    side = Exponential(above, 1.0)
    visited: list[float] = []

    def ratio(epsilon: float, _: float) -> tuple[float, float, float]:
        visited.append(epsilon)
        value = math.exp(0.9 * (1.0 - epsilon))
        if epsilon == start:
            return value, -value, 0.0
        return (0.8 if above else 1.2) if epsilon == visited[1] else math.nan, -1.0, 0.0

    side.ratio = ratio  # type: ignore[method-assign]
    found, _ = solve(side, -5.0, start, 1.0)  # type: ignore[arg-type]
    best = visited[1]
    assert (start > best) == above
    assert found == pytest.approx(best, rel=2e-11)
    assert (found > best) == above


def test_losses_that_are_all_rounding_prove_nothing_from_below() -> None:
    noise = Discrete(np.array([-1e-17, 1e-17]), np.log([0.5, 0.5]), 0.0, 0.0, difference=0.2)
    below, above = (Side([(noise, 4)], 0.0, above) for above in (False, True))
    assert solve(below, -40.0, 1e-17, 1.0)[0] == 0.0
    assert solve(above, -40.0, 1e-17, 1.0)[0] != 0.0  # a small one, or none
    assert above.slack == below.slack == pytest.approx(0.2 * (4e-16 * 4 + 1e-12 * 2), rel=1e-9, abs=0.0)
    assert Side([(FEW, 3)], 0.0, False).resolved
    faint = Discrete(np.array([-1e-14, 1e-14]), np.log([0.5, 0.5]), 0.0, 0.0, difference=1e-6)
    assert Side([(faint, 4)], 0.0, False).resolved


@pytest.mark.parametrize(("root", "start", "expected"), [(5e-5, 6e-5, 6e-5), (1.2e-4, 1.5e-4, 1.2e-4), (2.0, 5.0, 2.0)])
def test_costly_lines_are_left_where_the_promise_is_kept_and_only_there(
    root: float, start: float, expected: float
) -> None:
    side = Exponential(True, root)
    side.costly = True
    assert solve(side, -5.0, start, 1.0)[0] == pytest.approx(expected, rel=1e-6)  # type: ignore[arg-type]


def test_a_gaussian_part_has_no_largest_loss() -> None:
    assert Side([(FEW, 3), (OTHER, 2)], 0.0, True).largest == pytest.approx(3 * 0.9 + 2 * 0.3)
    assert Side([(FEW, 3)], 0.8, True).largest == math.inf


@pytest.mark.parametrize(("above", "below", "lower", "upper"), [
    (0.5, math.nan, 0.0, 0.5), (0.5, 0.4, 0.4, 0.5), (math.nan, 0.4, 0.4, math.inf), (0.5, -1.0, 0.0, 0.5)])  # fmt: skip
def test_delta_counts_only_what_was_read(
    monkeypatch: pytest.MonkeyPatch, above: float, below: float, lower: float, upper: float
) -> None:
    law = loss_law(CappedPoisson(10**4, 0.01, 100), 1.0, Adjacency.ZERO_OUT, Analysis.REFINED)
    monkeypatch.setattr(Sampled, "ratio", lambda self, *_: (above if self.side.above else below, -1.0, 0.0))
    monkeypatch.setattr(Side, "estimate", lambda *_: -7.0)
    found, scale = Run([(law, 50)]).delta(0.3), math.exp(-7.0)
    assert found.lower == pytest.approx(lower * scale)
    assert found.upper == pytest.approx(min(upper * scale, 1.0)) if upper < math.inf else 0 < found.upper <= 1.0


def test_deltas_that_cross_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    law = loss_law(CappedPoisson(10**4, 0.01, 100), 1.0, Adjacency.ZERO_OUT, Analysis.REFINED)
    monkeypatch.setattr(Sampled, "ratio", lambda self, *_: (0.5 if self.side.above else 0.75, -1.0, 0.0))
    monkeypatch.setattr(Side, "estimate", lambda *_: math.log(1e-3))
    message = r"^the bounds 0\.00075\d* and 0\.0005\d* of delta at epsilon=0\.3 contradict each other"
    with pytest.raises(NotCertifiedError, match=message):
        Run([(law, 50)]).delta(0.3)


class Reading:
    """Stands for a line whose transform reads 3 / (1 + epsilon), in units of e^-1, with all its errors."""

    c, s, drift, u = 1.0, 0.25, 0.125, np.zeros(1)

    def __init__(self, curved: bool, log_unit: float = -1.0) -> None:
        self.curved, self._log_unit = curved, log_unit

    def log_unit(self, _: float) -> float:
        return self._log_unit

    def read(self, epsilon: float) -> SimpleNamespace:
        return SimpleNamespace(value=3.0 / (1.0 + epsilon), slope=-1.0, error=0.1, alias=0.02, excess=0.003)


def test_a_reading_counts_every_error_on_the_safe_side() -> None:
    lines, log_delta, unit = [Reading(True), Reading(False)], -5.0, math.exp(4.0)
    above, below = (
        SimpleNamespace(above=above, infinite=0.01 if above else 0.0, slack=0.05) for above in (True, False)
    )
    rest = (0.01 + 0.02) * math.exp(5.0)
    bound, slope, error = Sampled(above, lines, 0.02).ratio(2.0, log_delta)  # type: ignore[arg-type]
    assert bound == pytest.approx(rest + 2 * unit * (3.0 / 2.825 + 0.1))
    assert slope == pytest.approx(-2 * unit)
    assert error == pytest.approx(rest + 2 * unit * 0.12)
    # from below: the uncovered part does not count, and where no curvature is known the whole shift is taken off
    bound, _, error = Sampled(below, lines, 0.02).ratio(2.0, log_delta)  # type: ignore[arg-type]
    assert bound == pytest.approx(unit * (3.0 / 3.05 + 3.0 / 3.30 - 2 * 0.123))
    assert error == pytest.approx(2 * unit * 0.12)
    beyond = Sampled(above, [Reading(True, 710.0)], 0.0).ratio(2.0, log_delta)  # type: ignore[arg-type,list-item]
    assert math.isnan(beyond[0])


@pytest.mark.parametrize(
    ("upper", "lower", "expected"),
    [
        (2.0, 1.5, (1.5, 2.0)),
        (math.nan, 1.5, (1.5, 3.0)),
        (2.0, math.nan, (0.7, 2.0)),
        (4.0, 0.5, (0.7, 3.0)),
        (0.0, 5.0, (0.0, 0.0)),
        (2.0, 2.0, (2.0, 2.0)),
    ],
)
def test_a_bracket_only_narrows_and_nothing_found_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, upper: float, lower: float, expected: tuple[float, float]
) -> None:
    asked = []

    def found(side: Side, *where: float) -> tuple[float, None]:
        asked.append((side.above, *where))
        return upper if side.above else lower, None

    monkeypatch.setattr(engine, "solve", found)
    assert Run([])._narrow(Interval(0.7, 3.0), [], -5.0, 2.5, 1.5)[0] == Interval(*expected)
    assert asked[0] == (True, -5.0, 2.5, 1.5)
    # the upper bound is the better start for the lower one, if it is nearer
    assert asked[1:] == ([] if upper == 0.0 else [(False, -5.0, 2.0 if upper == 2.0 else 2.5, 1.5)])


def test_bounds_that_cross_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "solve", lambda side, *_: (1.5 if side.above else 2.0, None))
    message = r"^the bounds 2\.0 and 1\.5 of epsilon at log delta=-5\.0 contradict each other; please report these"
    with pytest.raises(NotCertifiedError, match=message):
        Run([])._narrow(Interval(1.0, 3.0), [], -5.0, 2.5, 1.0)


def test_a_quick_look_proves_only_what_holds() -> None:
    law = loss_law(CappedPoisson(10**4, 0.01, 100), 1.0, Adjacency.ZERO_OUT, Analysis.REFINED)
    run = Run([(law, 50), (law, 0)])
    assert (run.counts, run.steps) == ([50], 50)
    truth = run.epsilon(1e-6)
    assert run.at_most(truth.upper * 1.01, 1e-6)
    assert not run.at_most(truth.lower * 0.99, 1e-6)
    assert run.delta(truth.lower * 0.9).lower > 1e-6
    assert truth.lower == pytest.approx(truth.upper, rel=1e-3)
    assert run.quick_delta(truth.upper) >= run.delta(truth.upper).lower


def told_apart(p: float, sigma: float, steps: int, epsilon: float) -> float:
    """delta of plain Poisson sampling with so little noise that every hit can be told from a miss.

    Given k hits the loss is a_k + N(k m, 2 k m) under P and a_k - N(k m, 2 k m) under Q, with m = 1 / (2 sigma^2) and a_k
    the log-chance of these hits. Errors are of the order e^(-m / 4).
    """
    k = np.arange(1, min(steps, 60) + 1)
    log_chance = k * math.log(p) + (steps - k) * math.log1p(-p)
    log_ways = gammaln(steps + 1) - gammaln(k + 1) - gammaln(steps - k + 1)
    mean, deviation = k / (2 * sigma**2), np.sqrt(k) / sigma
    hits = np.exp(log_ways + log_chance + log_ndtr((log_chance + mean - epsilon) / deviation))
    misses = np.exp(log_ways + epsilon + log_ndtr((log_chance - mean - epsilon) / deviation))
    return math.fsum(hits - misses)


@pytest.mark.parametrize("sigma", [0.03, 0.01, 0.001])
@pytest.mark.parametrize(("p", "steps", "delta"), [
    (0.01, 2, 1e-3), (1e-4, 3, 1e-6), (1e-4, 10, 1e-6), (1e-4, 100, 1e-6), (1e-4, 1000, 1e-2), (0.01, 10, 1e-2)])  # fmt: skip
def test_little_noise_gives_the_epsilon_of_hits_that_can_be_told_apart(
    sigma: float, p: float, steps: int, delta: float
) -> None:
    """delta is flat between one hit and two, over most of the way: the search must not stop there."""
    law = loss_law(CappedPoisson(10**6, p, 10**6), sigma, Adjacency.ZERO_OUT, Analysis.REFINED)
    bracket = Run([(law, steps)]).epsilon(delta)
    exact = brentq(lambda epsilon: told_apart(p, sigma, steps, epsilon) - delta, 1.0, 60 / sigma**2, xtol=1e-9)
    assert bracket.lower <= exact * (1 + 1e-12)
    assert bracket.upper >= exact * (1 - 1e-12)
    assert not wide(bracket)
