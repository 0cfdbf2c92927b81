"""One line through a transform: smoothing, aliasing, truncation and rounding, each alone and all together."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import i0e
from tests.accounting.laws import FEW, OTHER, Counted, usual_law

from filet.accounting.proving import line as module
from filet.accounting.proving.cells import Discrete, discretise_above
from filet.accounting.proving.composition import Composition, blocks
from filet.accounting.proving.line import Line, LinePlan, log_peak, log_smoothing, smoothing_transform
from filet.accounting.searching.grids import equal_cells
from filet.accounting.searching.tilts import propose_line

ATOMS = Discrete(np.array([-0.4, -0.01, 0.02, 0.5, 1.3]), np.log([0.1, 0.55, 0.3, 0.049, 0.001]), 0.0, 0.0)


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
    assert log_smoothing(3.0, 0.7, beta) == pytest.approx(direct, rel=1e-9)


def test_the_smoothing_transform_passes_its_turning_point_without_a_gap() -> None:
    """Where beta^2 + (s z)^2 is nearly zero, a series takes over."""
    z = 1j * 15.0 * np.linspace(1 - 1e-7, 1 + 1e-7, 41) + 1e-9
    with mp.workdps(40):
        for at, value in zip(z, smoothing_transform(z, 1.0, 15.0), strict=True):
            root = mp.sqrt(mp.mpf(15) ** 2 + mp.mpc(at) ** 2)
            exact = complex(mp.sinh(root) / root * 15 / mp.sinh(15))
            assert abs(value - exact) <= 1e-9 * abs(exact)


@pytest.mark.parametrize("beta", [15.0, 17.3, 40.0])
def test_the_drift_of_a_small_shift_is_not_understated(beta: float) -> None:
    for s in (1e-2, 1e-4, 1e-6, 1e-8):
        with mp.workdps(60):
            root = mp.sqrt(mp.mpf(beta) ** 2 + mp.mpf(s) ** 2)
            exact = float(mp.log(mp.sinh(root) / root * beta / mp.sinh(beta)))
        assert log_smoothing(1.0, s, beta) * (1 + 1e-9) >= exact * (1 - 1e-12)
        plan = LinePlan(1.0, s, beta, 20.0, np.array([0.0, 0.5, 2.0]))
        if s >= 1e-4:
            assert Line(Composition(blocks([(OTHER, 1)])), plan).drift >= exact * (1 - 1e-12)


def test_the_peak_is_the_largest_gain_times_the_tilt() -> None:
    y = np.geomspace(1e-9, 60.0, 200_001)
    for c in (1e-3, 0.2, 1.0, 7.0, 400.0):
        exact = math.log(float((-np.expm1(-y) * np.exp(-c * y)).max()))
        assert float(log_peak(np.array([c]))[0]) == pytest.approx(exact, abs=1e-6)
    assert log_peak(np.zeros(1))[0] == 0.0
    with mp.workdps(40):
        for c in (1e-12, 1e8, 1e13):
            exact = float(c * mp.log(c) - (1 + mp.mpf(c)) * mp.log1p(c))
            assert float(log_peak(np.array([c]))[0]) == pytest.approx(exact, rel=1e-12)


def check_reading(line: Line, exact: Counted, epsilon: float) -> None:
    """From below without the excess and from above with the drift, the exact delta is not crossed."""
    delta = float(exact.delta(epsilon))
    reading = line.read(epsilon)
    off = reading.error + reading.alias + reading.excess
    if line.curved:
        assert math.exp(line.log_unit(epsilon)) * (reading.value - off) <= delta
    else:
        whole = line.read(epsilon + line.s)
        value = whole.value - whole.error - whole.alias - whole.excess
        assert math.exp(line.log_unit(epsilon + line.s)) * value <= delta
    upper = line.read(epsilon - line.drift)
    assert math.exp(line.log_unit(epsilon - line.drift)) * (upper.value + upper.error) >= delta


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_readings_contain_the_exact_delta_of_an_atomic_law(steps: int) -> None:
    """Smoothing, aliasing, truncation and rounding together: the worst case for smoothing is a law of few atoms."""
    exact = Counted([(ATOMS, steps)])
    composition = Composition(blocks([(ATOMS, steps)]))
    for epsilon in (0.0, 0.01, 0.3, 0.499, 0.501, 0.9, 1.31):
        delta = float(exact.delta(epsilon))
        if delta > 0.0:
            plan = propose_line(composition, epsilon, math.log(delta), 1e-3).plan
            check_reading(Line(composition, plan), exact, epsilon)


@pytest.mark.parametrize("steps", [1, 3])
def test_any_plan_gives_readings_that_contain_the_exact_delta(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NODES", 3000)
    exact = Counted([(ATOMS, steps)])
    composition, rng, told = Composition(blocks([(ATOMS, steps)])), np.random.default_rng(steps), 0
    for _ in range(60):
        tilts = np.concatenate([[0.0], 10.0 ** rng.uniform(-3, 3, size=8)])
        c, shift, beta, period = 10.0 ** rng.uniform([-1, -4, 0, -1], [2, 0, 1.6, 3])
        plan = LinePlan(c, shift, beta, period, tilts)
        with np.errstate(all="ignore"):
            line = Line(composition, plan)
            for epsilon in rng.uniform(0.0, 1.2, size=3):
                if math.isfinite(line.read(epsilon).error) and line.read(epsilon).error < 1e200:
                    check_reading(line, exact, float(epsilon))
                    told += 1
    assert told > 90


def test_values_after_the_last_node_are_counted_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum up to few nodes and the whole sum differ by less than the difference of what both leave out."""
    composition = Composition(blocks([(ATOMS, 2)]))
    plan = LinePlan(2.0, 1e-3, 20.0, 40.0, np.array([0.0, 1.0, 4.0]))
    whole = Line(composition, plan)
    assert whole.u.size > 20_000
    monkeypatch.setattr(module, "_SPARE_NODES", 700)
    for most in (1_000, 3_000, 10_000):
        monkeypatch.setattr(module, "_MOST_NODES", most)
        few = Line(composition, plan)
        assert few.u.size == most
        assert few.truncation > whole.truncation
        for epsilon in (0.1, 0.5, 0.98):
            gap = abs(few.read(epsilon).value - whole.read(epsilon).value)
            assert gap <= few.truncation
    two = Composition(blocks([(ATOMS, 2), (OTHER, 2)]))
    assert Line(two, plan).u.size == 5_000  # phases share the budget
    monkeypatch.setattr(module, "_SPARE_NODES", 6_000)
    assert Line(two, plan).u.size == 6_000  # but very many of them would leave too little to each


def test_the_transform_of_many_steps_dies_out_before_the_smoothing() -> None:
    many = Composition(blocks([(discretise_above(equal_cells(usual_law(), 9.0, 0.1)), 3000)]))
    plan = LinePlan(1.0, 1e-3, 20.0, 900.0, np.array([0.0, 0.5, 2.0]))
    line = Line(many, plan)
    assert line.u[-1] < 0.01 * 1.05 * 20.0 / 1e-3
    assert line.truncation < 1e-9


@pytest.mark.parametrize("period", [3.0, 6.0, 12.0])
def test_aliases_are_positive_and_below_their_bound(period: float) -> None:
    """A short period reads too much, by no more than the bound: against a long one, which has hardly any aliases."""
    composition = Composition(blocks([(FEW, 3)]))
    tilts = np.concatenate([[0.0], 2.0 ** np.arange(-4.0, 4.1, 0.25)])
    short, long = (Line(composition, LinePlan(1.5, 0.05, 20.0, length, tilts)) for length in (period, 300.0))
    for epsilon in (0.1, 0.7, 1.4):
        one, other = short.read(epsilon), long.read(epsilon)
        assert other.alias < 1e-9
        rounding = one.error + other.error
        assert -rounding <= one.value - other.value <= one.alias + other.alias + rounding
    assert short.read(0.7).alias < 1e4 * abs(short.read(0.7).value)


def test_tilts_on_one_side_only_prove_nothing_from_below() -> None:
    composition = Composition(blocks([(FEW, 3)]))
    for tilts in (np.array([0.0, 0.5]), np.array([2.0, 4.0]), np.array([1.0])):
        assert Line(composition, LinePlan(1.0, 0.05, 20.0, 30.0, tilts)).read(0.5).alias == math.inf


def test_the_excess_bounds_what_smoothing_adds() -> None:
    """The smoothed delta, by averaging over the shift, exceeds the exact one by at most `excess`."""
    exact = Counted([(ATOMS, 2)])
    composition = Composition(blocks([(ATOMS, 2)]))
    tilts = np.concatenate([[0.0], 2.0 ** np.arange(-4.0, 4.1, 0.25)])
    for shift in (1e-3, 0.03, 0.1):
        line = Line(composition, LinePlan(2.0, shift, 20.0, 40.0, tilts))
        assert line.curved
        x, weights = kernel(20.0)
        for epsilon in (0.02, 0.491, 0.5, 0.517, 1.0):
            smoothed = float(sum(w * exact.delta(epsilon - shift * v) for v, w in zip(x, weights, strict=True)))
            reading, unit = line.read(epsilon), math.exp(line.log_unit(epsilon))
            assert smoothed - float(exact.delta(epsilon)) <= unit * reading.excess * (1 + 1e-9)
            assert abs(unit * reading.value - smoothed) <= unit * (reading.error + reading.alias) * (1 + 1e-9) + 1e-6
    wide = Line(composition, LinePlan(2.0, 0.11, 20.0, 40.0, tilts))
    assert not wide.curved
    assert wide.read(0.5).excess == 0.0


def test_a_period_is_at_least_four_shifts() -> None:
    line = Line(Composition(blocks([(FEW, 1)])), LinePlan(1.0, 0.5, 15.0, 0.1, np.array([0.0, 2.0])))
    assert line.period == 2.0


def test_errors_of_the_weights_widen_every_reading_and_large_ones_make_it_worthless() -> None:
    def reading(error: float) -> module.Reading:
        law = Discrete(FEW.loss, FEW.log_mass, 0.0, error)
        plan = LinePlan(1.5, 0.05, 20.0, 60.0, np.array([0.0, 1.0, 3.0]))
        return Line(Composition(blocks([(law, 4)])), plan).read(0.7)

    exact, rough = reading(0.0), reading(1e-6)
    margin = Composition(blocks([(Discrete(FEW.loss, FEW.log_mass, 0.0, 1e-6), 4)])).weight_margin
    assert rough.error - exact.error == pytest.approx(math.expm1(margin) * abs(exact.value), rel=1e-3)
    assert rough.excess > exact.excess
    assert reading(0.02).error > 0.08 * reading(0.02).value  # T w = 0.08
    assert reading(0.03).error == math.inf  # more than a tenth: nothing is said
