"""One line through a transform: smoothing, aliasing, truncation and rounding, each alone and all together."""

from __future__ import annotations

import math
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from scipy.special import i0e
from tests.accounting.laws import FEW, OTHER, Counted, inversion_near, spectrum_of, usual_law

from filet._rounding import UNIT
from filet.accounting.proving import contour as module
from filet.accounting.proving.cells import Discrete, discretise_above
from filet.accounting.proving.composition import Composition, blocks
from filet.accounting.proving.contour import Contour, ContourParameters, log_peak, log_smoothing, smoothing_transform
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.search.grid import uniform_grid

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
    z = 1j * 15.0 * np.concatenate([np.linspace(1 - 1e-7, 1 + 1e-7, 41), np.linspace(0.99, 1.01, 41)]) + 1e-9
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
        plan = ContourParameters(1.0, s, beta, 20.0, np.array([0.0, 0.5, 2.0]))
        if s >= 1e-4:
            assert Contour(Composition(blocks([(OTHER, 1)])), plan).drift >= exact * (1 - 1e-12)


def test_the_peak_is_the_largest_gain_times_the_tilt() -> None:
    y = np.geomspace(1e-9, 60.0, 200_001)
    for c in (1e-3, 0.2, 1.0, 7.0, 400.0):
        exact = math.log(float((-np.expm1(-y) * np.exp(-c * y)).max()))
        assert float(log_peak(np.array([c]))[0]) == pytest.approx(exact, abs=1e-6)
    assert log_peak(np.zeros(1))[0] == 0.0
    with mp.workdps(40):
        for c in (1e-12, 1e8, 1e13):
            exact = float(c * mp.log(c) - (1 + mp.mpf(c)) * mp.log1p(c))
            assert float(log_peak(np.array([c]))[0]) == pytest.approx(exact, rel=1e-12, abs=0)


def check_reading(line: Contour, exact: Counted, epsilon: float) -> None:
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
    exact, told = Counted([(ATOMS, steps)]), 0
    for epsilon in (0.0, 0.01, 0.3, 0.499, 0.501, 0.9, 1.31):
        delta = float(exact.delta(epsilon))
        if delta > 0.0:
            found = inversion_near(LossPMF([(ATOMS, steps)], 0.0, True), epsilon, math.log(delta))
            if not found.caps:
                check_reading(found.contours[0], exact, epsilon)
                told += 1
    assert told > 2


@pytest.mark.parametrize("steps", [1, 3])
def test_any_plan_gives_readings_that_contain_the_exact_delta(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NODES", 3000)
    exact = Counted([(ATOMS, steps)])
    composition, rng, told = Composition(blocks([(ATOMS, steps)])), np.random.default_rng(steps), 0
    for _ in range(60):
        tilts = np.concatenate([[0.0], 10.0 ** rng.uniform(-3, 3, size=8)])
        c, shift, beta, period = 10.0 ** rng.uniform([-1, -4, 0, -1], [2, 0, 1.6, 3])
        plan = ContourParameters(c, shift, beta, period, tilts)
        with np.errstate(all="ignore"):
            line = Contour(composition, plan)
            for epsilon in rng.uniform(0.0, 1.2, size=3):
                if math.isfinite(line.read(epsilon).error) and line.read(epsilon).error < 1e200:
                    check_reading(line, exact, float(epsilon))
                    told += 1
    assert told > 90


def test_values_after_the_last_node_are_counted_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum up to few nodes and the whole sum differ by less than the difference of what both leave out."""
    composition = Composition(blocks([(ATOMS, 2)]))
    plan = ContourParameters(2.0, 1e-3, 20.0, 40.0, np.array([0.0, 1.0, 4.0]))
    whole = Contour(composition, plan)
    assert whole.u.size > 20_000
    monkeypatch.setattr(module, "_SPARE_NODES", 700)
    for most in (1_000, 3_000, 10_000):
        monkeypatch.setattr(module, "_MOST_NODES", most)
        few = Contour(composition, plan)
        assert few.u.size == most
        assert few.truncation > whole.truncation
        for epsilon in (0.1, 0.5, 0.98):
            gap = abs(few.read(epsilon).value - whole.read(epsilon).value)
            assert gap <= few.truncation
    two = Composition(blocks([(ATOMS, 2), (OTHER, 2)]))
    assert Contour(two, plan).u.size == 5_000  # phases share the budget
    monkeypatch.setattr(module, "_SPARE_NODES", 6_000)
    assert Contour(two, plan).u.size == 6_000  # but very many of them would leave too little to each


def test_the_transform_of_many_steps_dies_out_before_the_smoothing() -> None:
    many = Composition(blocks([(discretise_above(uniform_grid(usual_law(), 9.0, 0.1)), 3000)]))
    plan = ContourParameters(1.0, 1e-3, 20.0, 900.0, np.array([0.0, 0.5, 2.0]))
    line = Contour(many, plan)
    assert line.u[-1] < 0.01 * 1.05 * 20.0 / 1e-3
    assert line.truncation < 1e-9


@pytest.mark.parametrize("period", [3.0, 6.0, 12.0])
def test_aliases_are_positive_and_below_their_bound(period: float) -> None:
    """A short period reads too much, by no more than the bound: against a long one, which has hardly any aliases."""
    composition = Composition(blocks([(FEW, 3)]))
    tilts = np.concatenate([[0.0], 2.0 ** np.arange(-4.0, 4.1, 0.25)])
    short, long = (
        Contour(composition, ContourParameters(1.5, 0.05, 20.0, length, tilts)) for length in (period, 300.0)
    )
    for epsilon in (0.1, 0.7, 1.4):
        one, other = short.read(epsilon), long.read(epsilon)
        assert other.alias < 1e-9
        rounding = one.error + other.error
        assert -rounding <= one.value - other.value <= one.alias + other.alias + rounding
    assert short.read(0.7).alias < 1e4 * abs(short.read(0.7).value)


def test_tilts_on_one_side_only_prove_nothing_from_below() -> None:
    composition = Composition(blocks([(FEW, 3)]))
    for tilts in (np.array([0.0, 0.5]), np.array([2.0, 4.0]), np.array([1.0])):
        assert Contour(composition, ContourParameters(1.0, 0.05, 20.0, 30.0, tilts)).read(0.5).alias == math.inf


def test_the_excess_bounds_what_smoothing_adds() -> None:
    """The smoothed delta, by averaging over the shift, exceeds the exact one by at most `excess`."""
    exact = Counted([(ATOMS, 2)])
    composition = Composition(blocks([(ATOMS, 2)]))
    tilts = np.concatenate([[0.0], 2.0 ** np.arange(-4.0, 4.1, 0.25)])
    for shift in (1e-3, 0.03, 0.1):
        line = Contour(composition, ContourParameters(2.0, shift, 20.0, 40.0, tilts))
        assert line.curved
        x, weights = kernel(20.0)
        for epsilon in (0.02, 0.491, 0.5, 0.517, 1.0):
            smoothed = float(sum(w * exact.delta(epsilon - shift * v) for v, w in zip(x, weights, strict=True)))
            reading, unit = line.read(epsilon), math.exp(line.log_unit(epsilon))
            assert smoothed - float(exact.delta(epsilon)) <= unit * reading.excess * (1 + 1e-9)
            assert abs(unit * reading.value - smoothed) <= unit * (reading.error + reading.alias) * (1 + 1e-9) + 1e-6
    wide = Contour(composition, ContourParameters(2.0, 0.11, 20.0, 40.0, tilts))
    assert not wide.curved
    assert wide.read(0.5).excess == 0.0


def test_a_period_is_at_least_four_shifts() -> None:
    line = Contour(Composition(blocks([(FEW, 1)])), ContourParameters(1.0, 0.5, 15.0, 0.1, np.array([0.0, 2.0])))
    assert line.period == 2.0


def test_errors_of_the_weights_widen_every_reading_and_large_ones_make_it_worthless() -> None:
    def reading(error: float) -> module.Reading:
        law = Discrete(FEW.loss, FEW.log_mass, 0.0, error)
        plan = ContourParameters(1.5, 0.05, 20.0, 60.0, np.array([0.0, 1.0, 3.0]))
        return Contour(Composition(blocks([(law, 4)])), plan).read(0.7)

    exact, rough = reading(0.0), reading(1e-6)
    margin = Composition(blocks([(Discrete(FEW.loss, FEW.log_mass, 0.0, 1e-6), 4)])).weight_margin
    assert rough.error - exact.error == pytest.approx(math.expm1(margin) * abs(exact.value), rel=1e-3)
    assert rough.excess > exact.excess
    assert reading(0.02).error > 0.08 * reading(0.02).value  # T w = 0.08
    assert reading(0.03).error == math.inf  # more than a tenth: nothing is said


# --- every bound to the letter -----------------------------------------------------------------------------------------

SPLIT = np.array([0.0, 0.3, 0.8, 1.5, 2.5, 4.0])


def smoothed_at(c: float, s: float, beta: float) -> float:
    """E[e^{c s X}] by sinh(root) / root over sinh(beta) / beta."""
    with mp.workdps(40):
        root = mp.sqrt(mp.mpf(beta) ** 2 + (mp.mpf(s) * c) ** 2)
        return float(mp.sinh(root) / root * beta / mp.sinh(beta))


def left_after(limit: float, w: float) -> float:
    """The integral of 1 / |z (z + 1)| over frequencies from a limit on, and one node more, over pi."""
    return (1.0 / limit + w / limit**2) / math.pi


def beyond_smoothing(c: float, s: float, beta: float) -> tuple[float, float]:
    """The frequency from which on smoothing is bounded by cosh(Re q) / |Im q| of q^2 = beta^2 + (s z)^2, and that bound."""
    limit = 1.05 * math.hypot(beta, s * c) / s
    q = complex(beta**2 + s**2 * (c * c - limit * limit), 2.0 * s * s * c * limit) ** 0.5
    real, imaginary = s * s * c * limit / (limit**2 * s**2 - beta**2 - (s * c) ** 2) ** 0.5, q.imag
    assert imaginary >= ((s * limit) ** 2 - beta**2 - (s * c) ** 2) ** 0.5 * (1 - 1e-12)
    imaginary = ((s * limit) ** 2 - beta**2 - (s * c) ** 2) ** 0.5
    return limit, beta / math.sinh(beta) * math.cosh(real) / imaginary


@pytest.mark.parametrize("beta", [0.4, 1.5, 6.0])
@pytest.mark.parametrize(("c", "s"), [(1.0, 0.05), (3.0, 0.7), (0.2, 2.0)])
def test_smoothing_is_exact_for_weak_smoothing_too_and_its_drift_is_rounded_up(c: float, s: float, beta: float) -> None:
    assert log_smoothing(c, s, beta) == pytest.approx(math.log(smoothed_at(c, s, beta)), rel=1e-9)
    line = Contour(Composition(blocks([(OTHER, 1)])), ContourParameters(c, s, beta, 20.0, SPLIT))
    drift = math.log(smoothed_at(1.0, s, beta))
    assert drift * (1 + 0.9e-9) <= line.drift <= drift * (1 + 1.1e-9)
    z = 1j * beta / s * np.linspace(1 - 1e-9, 1 + 1e-9, 9) + 1e-12
    with mp.workdps(40):
        for at, value in zip(z, smoothing_transform(z, s, beta), strict=True):
            root = mp.sqrt(mp.mpf(beta) ** 2 + (mp.mpf(s) * mp.mpc(at)) ** 2)
            assert abs(value - complex(mp.sinh(root) / root * beta / mp.sinh(beta))) <= 1e-9 * abs(value)


@pytest.mark.parametrize(
    ("c", "s", "beta", "period"), [(2.0, 0.5, 2.0, 4.0), (6.0, 0.4, 1.5, 3.0), (1.0, 0.1, 8.0, 2.0)]
)
def test_what_smoothing_cuts_off_is_counted_to_the_letter(c: float, s: float, beta: float, period: float) -> None:
    """Few nodes, so that everything beyond the last is smoothing's alone."""
    line = Contour(Composition(blocks([(ATOMS, 2)])), ContourParameters(c, s, beta, period, SPLIT))
    w, (limit, bound) = 2.0 * math.pi / period, beyond_smoothing(c, s, beta)
    assert line.u == pytest.approx(w * np.arange(line.u.size))
    assert limit <= line.u[-1] + w * 1e-9 < limit + w * (1 + 2e-9)
    assert line.u.size <= 100
    assert line.truncation == pytest.approx(bound * left_after(limit, w), rel=1e-9)


def test_what_is_cut_off_where_the_transform_dies_out_is_counted_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    c, s, beta, period, cut, rest = 1.0, 0.01, 3.0, 30.0, 20.0, 0.01
    w, (limit, bound), asked = 2.0 * math.pi / period, beyond_smoothing(c, s, beta), list[object]()

    def decays_after(_: Composition, at: float, __: object, *question: float | None) -> tuple[float, float]:
        *usual, chords = question
        asked.append([at, *usual])
        assert chords is None
        return cut, rest

    monkeypatch.setattr(Composition, "decays_after", decays_after)
    line = Contour(Composition(blocks([(ATOMS, 2)])), ContourParameters(c, s, beta, period, SPLIT))
    assert asked == [pytest.approx([c, limit, 1e-3 * math.exp(-beta)])]
    assert cut <= line.u[-1] + w * 1e-9 < cut + 2 * w
    largest = smoothed_at(c, s, beta) * (1 + 1e-9)
    exact = bound * left_after(limit, w) + largest * rest * left_after(cut, w)
    assert line.truncation == pytest.approx(exact, rel=1e-10)
    assert line.excess_error == pytest.approx(excess_beyond(line, limit, rest), rel=1e-9)
    jump = Composition(blocks([(ATOMS, 2)]), 0.0, 0.3, jump=True)  # its transform is not looked at that way
    assert Contour(jump, ContourParameters(c, s, beta, period, SPLIT)).u[-1] >= limit
    assert len(asked) == 1


def test_what_is_cut_off_for_want_of_nodes_is_counted_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SPARE_NODES", 5)
    monkeypatch.setattr(module, "_MOST_NODES", 5)
    c, s, beta, period = 1.5, 0.1, 1.5, 6.0
    line = Contour(Composition(blocks([(ATOMS, 2)])), ContourParameters(c, s, beta, period, SPLIT))
    w, (limit, bound) = 2.0 * math.pi / period, beyond_smoothing(c, s, beta)
    assert line.u.size == 5
    largest = smoothed_at(c, s, beta) * (1 + 1e-9)
    exact = bound * left_after(limit, w) + largest * left_after(5 * w, w)
    assert line.truncation == pytest.approx(exact, rel=1e-10)
    assert line.excess_error == pytest.approx(excess_beyond(line, limit, 1.0), rel=1e-9)


def excess_factors(s: float, beta: float) -> tuple[float, float]:
    """The factor and the variance of the Gaussian above the density of the shift, times what smoothing raises at most."""
    with mp.workdps(30):
        r0 = mp.besseli(1, beta) / (beta * mp.besseli(0, beta))
        peak, variance = beta * mp.besseli(0, beta) / (2 * mp.sinh(beta)), mp.mpf(s) ** 2 / (mp.mpf(beta) ** 2 * r0)
        return float(s * mp.exp(2 * mp.mpf(s)) * r0 * peak), float(variance)


def excess_beyond(line: Contour, limit: float, left_out: float) -> float:
    """A Gaussian's tail from the limit on and one node more, and all of it where the transform is below `left_out`."""
    factor, v = excess_factors(line.s, line.beta)
    c, w = line.c, 2.0 * math.pi / line.period
    height = factor * math.sqrt(2.0 * math.pi * v) / math.pi * math.exp(0.5 * v * c * c)
    tail = math.exp(-0.5 * v * limit**2) * (1.0 / (v * limit) + w)
    return height * (tail + left_out * math.sqrt(math.pi / (2.0 * v)))


@pytest.mark.parametrize(
    ("c", "s", "beta", "period"), [(2.0, 0.1, 2.0, 4.0), (9.0, 0.08, 1.2, 3.0), (1.0, 0.1, 4.0, 2.0)]
)
def test_the_excess_beyond_the_last_node_is_counted_to_the_letter(
    c: float, s: float, beta: float, period: float
) -> None:
    line = Contour(Composition(blocks([(ATOMS, 2)])), ContourParameters(c, s, beta, period, SPLIT))
    limit, _ = beyond_smoothing(c, s, beta)
    assert line.excess_error == pytest.approx(excess_beyond(line, limit, 0.0), rel=1e-9)


@pytest.mark.parametrize(("s", "beta"), [(0.1, 20.0), (0.05, 24.0), (0.1, 80.0)])
def test_the_excess_is_that_of_the_gaussian_above_the_density_of_the_shift(s: float, beta: float) -> None:
    line, (factor, v) = (
        Contour(Composition(blocks([(ATOMS, 1)])), ContourParameters(2.0, s, beta, 40.0, SPLIT)),
        excess_factors(s, beta),
    )
    for epsilon in (0.02, 0.45, 0.5, 1.28):
        near = float(np.exp(ATOMS.log_mass) @ np.exp(-np.square(ATOMS.loss - epsilon) / (2.0 * v)))
        unit, excess = math.exp(line.log_unit(epsilon)), line.read(epsilon).excess
        assert factor * near <= unit * excess <= factor * near + 2.0 * unit * line.excess_error
        assert unit * line.excess_error < 1e-3 * factor * near or near < 1e-3
    rounding = line.excess_error - excess_beyond(line, beyond_smoothing(2.0, s, beta)[0], 0.0)
    spectrum = spectrum_of(line.composition, 2.0, 2.0 * math.pi / 40.0, line.u.size)
    z = 2.0 + 1j * line.u
    shape = np.abs(np.exp(0.5 * v * z * z)) * factor * math.sqrt(2.0 * math.pi * v) * 2.0 / 40.0
    exact = float(shape @ (spectrum.rounding + np.abs(spectrum.values) * ((line.u.size + 16) * UNIT)))
    assert rounding == pytest.approx(exact, rel=1e-3, abs=0.0) or beta < 80.0


def test_aliases_are_geometric_series_of_chernoffs_bounds() -> None:
    s, beta, period, c = 0.4, 1.5, 2.5, 1.2
    composition = Composition(blocks([(FEW, 3)]), 0.2)
    line = Contour(composition, ContourParameters(c, s, beta, period, SPLIT))
    epsilons = np.array([0.1, 0.7, 1.4])
    for epsilon, alias in zip(epsilons.tolist(), line.read(epsilons).alias, strict=True):
        sides = []
        for tilts in (SPLIT[c > SPLIT], SPLIT[c < SPLIT]):
            bounds = []
            for tilt in tilts.tolist():
                mgf = 3 * math.log(math.fsum(np.exp(FEW.log_mass + tilt * FEW.loss))) + 0.1 * (tilt**2 + tilt)
                peak = tilt**tilt / (1 + tilt) ** (1 + tilt)
                chernoff = math.exp(mgf - tilt * epsilon) * peak * smoothed_at(tilt, s, beta)
                bounds.append(chernoff * math.fsum(math.exp(-abs(c - tilt) * k * period) for k in range(1, 400)))
            sides.append(min(bounds))
        assert math.exp(line.log_unit(epsilon)) * alias == pytest.approx(2.0 * sum(sides), rel=1e-9)
        assert line.read(epsilon).alias == pytest.approx(float(alias), rel=1e-12)
    none = Contour(composition, ContourParameters(c, s, beta, period, np.zeros(0)))
    assert none.read(epsilons).alias.tolist() == [math.inf] * 3
    assert none.read(0.7).alias == math.inf


def test_the_error_of_a_reading_covers_what_its_transform_and_its_sum_are_off() -> None:
    """Against the same nodes summed up in 30 digits; the rest of the error is what the transform itself is off."""
    line = Contour(Composition(blocks([(FEW, 3)])), ContourParameters(1.5, 0.05, 20.0, 60.0, SPLIT))
    for e in (0.0, 0.7, 5.0):
        found = line.read(e)
        with mp.workdps(30):
            turns = [mp.expj(-(mp.mpf(e) - line.centre) * u) for u in line.u.tolist()]
            exact = mp.re(mp.fsum(turn * mp.mpc(f) for turn, f in zip(turns, line.f.tolist(), strict=True)))
        own = found.error - line.rounding - line.truncation
        assert abs(found.value - float(exact)) <= own <= 1e-9 * line.total
        sums = line.total * line.u.size + line.turning * (e + abs(line.centre))
        assert UNIT * sums <= own


def test_errors_of_the_weights_widen_a_reading_by_their_margin() -> None:
    off = Discrete(FEW.loss, FEW.log_mass, 0.0, 1e-3)
    exact, wide = (
        Contour(Composition(blocks([(law, 3)])), ContourParameters(1.5, 0.05, 20.0, 60.0, SPLIT)).read(0.7)
        for law in (Discrete(FEW.loss, FEW.log_mass, 0.0, 0.0), off)
    )
    assert wide.error == pytest.approx(exact.error + math.expm1(3e-3) * (exact.value + exact.error), rel=1e-4)
    assert wide.excess == pytest.approx(math.exp(3e-3) * exact.excess, rel=1e-4)


def test_the_slope_of_a_reading_is_its_derivative() -> None:
    line = Contour(Composition(blocks([(FEW, 3)])), ContourParameters(1.5, 0.2, 20.0, 60.0, SPLIT))
    for e in (0.2, 1.0, 1.9):
        low, high = (line.read(x).value * math.exp(line.log_unit(x) - line.log_unit(e)) for x in (e - 1e-5, e + 1e-5))
        assert line.read(e).slope == pytest.approx((high - low) / 2e-5, rel=1e-4)


def test_the_rounding_of_sums_grows_with_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a unit that is far worse than it is, so that every part of the bound is seen."""
    unit, c, s, beta, period = 1e-6, 2.0, 0.1, 80.0, 40.0
    monkeypatch.setattr(module, "UNIT", unit)
    line, (factor, v) = (
        Contour(Composition(blocks([(ATOMS, 1)])), ContourParameters(c, s, beta, period, SPLIT)),
        excess_factors(s, beta),
    )
    spectrum, z, count = (
        spectrum_of(line.composition, c, 2.0 * math.pi / period, line.u.size),
        c + 1j * line.u,
        line.u.size,
    )
    shape = np.abs(smoothing_transform(z, s, beta) / (z * (z + 1.0))) * 2.0 / period
    assert line.rounding == pytest.approx(float(spectrum.rounding @ shape) * (1 + count * unit), rel=1e-10, abs=0.0)
    assert line.turning == pytest.approx(float(np.abs(line.f) @ line.u) * (1 + count * unit), rel=1e-10)
    shape = np.abs(np.exp(0.5 * v * z * z)) * factor * math.sqrt(2.0 * math.pi * v) * 2.0 / period
    exact = float(shape @ (spectrum.rounding + np.abs(spectrum.values) * ((count + 16) * unit)))
    exact += excess_beyond(line, beyond_smoothing(c, s, beta)[0], 0.0)
    assert line.excess_error == pytest.approx(exact, rel=1e-9)


def test_more_nodes_than_a_float_can_count_are_cut_to_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SPARE_NODES", 5)
    monkeypatch.setattr(module, "_MOST_NODES", 5)
    line = Contour(Composition(blocks([(ATOMS, 2)])), ContourParameters(1.0, 1e-152, 20.0, 1e156, SPLIT))
    assert line.u.size == 5
    assert line.truncation > 1.0


def test_aliases_beyond_floats_and_of_no_number_are_infinite() -> None:
    """Nothing is warned of, and nothing is proven."""
    line = object.__new__(Contour)
    line.c, line.s, line.beta, line.period, line.log_scale, line.tilts = (
        1.0,
        0.1,
        20.0,
        30.0,
        0.0,
        np.array([0.5, 1.0, 2.0]),
    )
    for value, alias in ((math.nan, math.inf), (5_000.0, math.inf), (-math.inf, 0.0)):
        line.composition = SimpleNamespace(log_mgf=lambda tilts, value=value: np.full(tilts.size, value))  # type: ignore[assignment]
        line.sides = line._sides()
        assert line._alias(0.3) == alias


# --- lines that are read from both sides ---


@pytest.mark.parametrize("s", [0.05, 0.2])
def test_what_splitting_adds_to_a_reading_is_counted_to_the_letter(monkeypatch: pytest.MonkeyPatch, s: float) -> None:
    """The sum over nodes, what is cut off twice, and what it does to the bound of smoothing's excess."""
    unit, asked = 1e-5, list[object]()
    monkeypatch.setattr(module, "UNIT", unit)
    c, beta, period, cut, rest = 1.0, 6.0, 30.0, 20.0, 0.01
    chords = [np.array([1e-4])]
    monkeypatch.setattr(Composition, "chords", lambda *_: chords)

    def decays_after(_: Composition, *question: object) -> tuple[float, float]:
        asked.append(question[-1])
        return cut, rest

    monkeypatch.setattr(Composition, "decays_after", decays_after)
    composition = Composition(blocks([(ATOMS, 2)]))
    plan = ContourParameters(c, s, beta, period, SPLIT)
    plain, both = Contour(composition, plan), Contour(composition, plan._replace(both_ways=True))
    assert asked == [None, chords]
    count, w = both.u.size, 2.0 * math.pi / period
    spectrum, z = spectrum_of(composition, c, w, count, chords), c + 1j * both.u
    shape = np.abs(smoothing_transform(z, s, beta) * (w / math.pi) / (z * (z + 1.0)))
    added = float((spectrum.split * shape).sum()) * (1 + count * unit) + 2.0 * both.truncation
    if s <= 0.1:
        factor, variance = excess_factors(s, beta)
        height = factor * math.sqrt(2.0 * math.pi * variance) * w / math.pi
        added += float((spectrum.split * np.abs(np.exp(0.5 * variance * z * z))).sum()) * height
    assert both.excess_error - plain.excess_error == pytest.approx(added, rel=1e-7)
    assert both.truncation == plain.truncation
    assert (both.f == plain.f).all()


def test_jumps_are_not_read_from_both_sides() -> None:
    jump = Composition(blocks([(ATOMS, 2)]), 0.0, 0.3, jump=True)
    assert not Contour(jump, ContourParameters(1.0, 0.1, 6.0, 30.0, SPLIT, True)).both_ways
    assert Contour(Composition(blocks([(ATOMS, 2)])), ContourParameters(1.0, 0.1, 6.0, 30.0, SPLIT, True)).both_ways


def test_one_point_is_read_as_in_an_array() -> None:
    for plan in (ContourParameters(1.5, 0.05, 20.0, 60.0, SPLIT), ContourParameters(2.0, 0.3, 10.0, 20.0, np.zeros(0))):
        line, points = Contour(Composition(blocks([(FEW, 3)]), 0.1), plan), np.array([0.0, 0.3, 1.7])
        together = line.read(points)
        for i, point in enumerate(points.tolist()):
            for name, one in line.read(np.array([point]))._asdict().items():
                assert float(one[0]) == pytest.approx(float(getattr(together, name)[i]), rel=1e-9, abs=1e-18), name
