"""Hulls of values at nodes, and the discrete losses that have them as profiles: convex, dominating, checked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from mpmath import mp, mpf
from tests import lending_cases as cases
from tests.enumeration import ADJACENCIES
from tests.reference import lending as reference

from filet._rounding import EXTENDED_UNIT, UNDERFLOW, UNIT
from filet.accounting.proving import lending
from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.hull import HullStep, check, dominating, profile, reverse, vertices
from filet.accounting.proving.lending import Step
from filet.accounting.search.lending import choose_shares
from filet.errors import NotCertifiedError


def arguments(step: Step, loss: float) -> tuple[int, float, int, float, str, float]:
    return step.n, step.p, step.cap, step.sigma, str(step.adjacency), loss


def exact_profile(law: Discrete, loss: float) -> mpf:
    """H of a discrete loss at e^loss, in many digits."""
    return mpf(law.infinite) + mp.fsum(
        mp.exp(mpf(float(m))) * -mp.expm1(min(mpf(float(loss)) - mpf(float(v)), mpf(0)))
        for v, m in zip(law.loss, law.log_mass, strict=True)
    )


def some_values(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and parts of values that need not be convex, as any bound's may be: a Gaussian's profile, made worse at random."""
    mu = float(10 ** rng.uniform(-1.5, 1.0))
    loss = np.unique(np.sort(rng.normal(size=int(rng.integers(2, 60)))) * mu * rng.uniform(1, 3))
    with mp.workdps(40):
        at = [mp.ncdf(mu / 2 - mpf(float(v)) / mu) - mp.exp(mpf(float(v))) * mp.ncdf(-mu / 2 - mpf(float(v)) / mu)
              for v in loss]  # fmt: skip
        part = np.array([float(h - max(0, -mp.expm1(mpf(float(v))))) for h, v in zip(at, loss, strict=True)])
    worse = np.where(rng.uniform(size=loss.size) < 0.3, 1 + rng.exponential(size=loss.size), 1.0)
    return loss, part * worse


@pytest.mark.parametrize("seed", range(4))
def test_the_law_dominates_whatever_lies_below_all_chords(seed: int) -> None:
    """Its profile is at least the hull at every vertex and 1 at zero, in 50 digits, and hardly more."""
    rng, seen = np.random.default_rng(seed), 0
    for _ in range(12):
        loss, part = some_values(rng)
        for at, value in ((loss, part), reverse(loss, part)):
            kept, hull, _ = vertices(at, value)
            if not kept.size:
                continue
            law = dominating(at, value)
            with mp.workdps(50):
                for v, h in zip(kept, hull, strict=True):
                    found = exact_profile(law, float(v))
                    assert mpf(float(h)) <= found <= mpf(float(h)) * (1 + mpf(10) ** -9)
                    seen += 1
                total = mpf(law.infinite) + mp.fsum(mp.exp(mpf(float(m))) for m in law.log_mass)
                assert 1 <= total < 1 + mpf(10) ** -9
    assert seen > 50


@pytest.mark.parametrize("seed", range(8))
def test_values_lie_above_their_hull_and_vertices_on_it(seed: int) -> None:
    loss, part = some_values(np.random.default_rng(100 + seed))
    kept, hull, _ = vertices(loss, part)
    assert np.isin(kept, loss).all()
    whole = np.where(loss < 0, -np.expm1(np.minimum(loss, 0.0)), 0.0) + part
    line = np.interp(np.exp(loss), np.append(0.0, np.exp(kept)), np.append(1.0, hull))  # constant after the last
    assert (line <= whole * (1 + 1e-12) + 1e-15).all()
    assert (np.diff(np.append(1.0, hull)) < 0).all()


def test_the_excess_of_the_reverse_pair_is_that_of_the_pair_times_its_factor() -> None:
    loss, part = np.array([-2.0, 0.0, 1.5]), np.array([1e-3, 0.2, 0.05])
    back, value = reverse(loss, part)
    assert list(back) == [-1.5, 0.0, 2.0]
    exact = np.array([0.05 * math.exp(-1.5), 0.2, 1e-3 * math.exp(2.0)])
    assert (value >= exact).all()
    assert value == pytest.approx(exact, rel=1e-14)
    again, twice = reverse(back, value)
    assert list(again) == list(loss)
    assert (twice >= part).all()


def test_nodes_that_prove_nothing_are_left_out() -> None:
    """Values of one and more, infinite ones, losses beyond what floats resolve, and whatever rises after the minimum."""
    loss = np.array([-700.0, 0.0, 0.5, 1.0, 2.0, 3.0, 650.0])
    part = np.array([1e-9, 0.4, math.inf, 0.1, 0.01, 0.02, 1e-320])
    kept, hull, _ = vertices(loss, part)
    assert list(kept) == [0.0, 1.0, 2.0]
    assert list(hull) == [0.4, 0.1, 0.01]
    law = dominating(loss, part)
    assert law.infinite == pytest.approx(0.01, rel=1e-9)


def test_nodes_with_too_few_digits_and_nodes_on_a_chord_are_no_vertices() -> None:
    for loss, part, kept in (
        ([0.0, 1.0], [0.4, 1e-300], [0.0]),  # nearly denormal
        ([0.0, 100.0], [0.4, math.exp(-550.0)], [0.0]),  # so is its mass under Q
        ([0.0, 100.0], [0.4, math.exp(-500.0)], [0.0, 100.0]),
        ([0.0], [math.exp(-619.5)], [0.0]),
        ([0.0, 1.0], [0.4, 0.0], [0.0]),  # no mass at all
        ([0.0, 600.0, 600.5], [0.4, 1e-5, 1e-6], [0.0, 600.0]),  # the largest loss
        ([0.0, 1.0], [0.4, 0.4], [0.0]),  # no lower than the last
        ([0.0, math.log(2.0)], [0.75, 0.5], [math.log(2.0)]),  # on the chord from (0, 1)
    ):
        assert list(vertices(np.array(loss), np.array(part))[0]) == kept


def test_values_are_rounded_up() -> None:
    """Below a = 1 a value is 1 - a and its part: neither may be lost to rounding."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        loss, part = -float(10 ** rng.uniform(-18, 1)), float(10 ** rng.uniform(-18, -0.5))
        kept, hull, _ = vertices(np.array([loss]), np.array([part]))
        if kept.size:
            with mp.workdps(60):
                exact = -mp.expm1(mpf(loss)) + mpf(part)
                assert exact <= mpf(float(hull[0])) <= exact * (1 + mpf(10) ** -15)


def test_masses_are_raised_by_the_rounding_of_their_logarithms() -> None:
    loss, part = np.array([-20.0, 0.0, 250.0]), np.array([1e-30, 0.3, 1e-100])
    law, (kept, hull, _) = dominating(loss, part), vertices(loss, part)
    assert list(kept) == [-20.0, 0.0, 250.0]
    spare = 8 * UNIT * (float(np.abs(law.log_mass).max()) + 500.0 + 32.0)
    assert law.infinite / hull[-1] - 1.0 == pytest.approx(spare, rel=0.0, abs=4 * UNIT)
    assert law.weight_error == 0.0
    assert law.whole


def test_the_rounding_of_a_profile_is_taken_off() -> None:
    large = Discrete(np.array([300.0]), np.array([-300.0]), 0.0, 0.0)
    loss = np.linspace(0.0, 1.0, 20_001)
    many = Discrete(loss, np.full(loss.size, -math.log(loss.size)), 0.0, 0.0)
    for law, size in ((large, 600.0), (many, math.log(loss.size) + 1.0)):
        with mp.workdps(50):  # the first value is at zero, where the whole mass counts
            exact = mp.fsum(mp.exp(mpf(float(m))) for m in law.log_mass)
            off = float((exact - mpf(profile(law)[2])) / exact)
        error = UNIT * (size + 16.0) + 2 * law.loss.size * EXTENDED_UNIT
        assert off == pytest.approx(error, abs=12 * UNIT)
    sure = Discrete(np.zeros(1), np.zeros(1), 0.0, 0.0)  # one outcome, whose numbers are all exact
    assert profile(sure)[2] == 1.0 - (16 * UNIT + 2 * EXTENDED_UNIT)


def test_the_profile_of_a_law_is_summed_from_below() -> None:
    law = Discrete(np.array([-0.4, 0.1, 0.9]), np.log([0.5, 0.3, 0.2]), 1e-3, 0.0)
    loss, found, start = profile(law)
    with mp.workdps(50):
        for v, h in zip(loss, found, strict=True):
            exact = exact_profile(law, float(v))
            assert exact * (1 - mpf(10) ** -12) <= mpf(float(h)) <= exact
        # at zero every outcome counts with its whole Q-mass times nothing: the P-mass
        assert start <= 1.001 <= start * (1 + 1e-12)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("n", "p", "B", "sigma"), [(400, 0.1, 41, 0.7), (60_000, 256 / 60_000, 256, 1.0)])
def test_hulls_are_convex_and_fall_and_their_laws_dominate(
    n: int, p: float, B: int, sigma: float, adjacency: str
) -> None:
    step = cases.make(n, p, B, sigma, adjacency)
    loss = np.log1p(p * np.expm1(np.linspace(-3.0, 2 / sigma**2 + 8 / sigma, 300)))
    part = lending.profile_excess(step, loss, *choose_shares(step).at(loss))
    for at, value in ((loss, part), reverse(loss, part)):
        kept, hull, _ = vertices(at, value)
        slopes = np.diff(np.append(1.0, hull)) / np.diff(np.append(0.0, np.exp(kept)))
        assert (np.diff(slopes) > -1e-13).all()
        assert (slopes < 0).all()
        law = dominating(at, value)
        # the profile of the law, summed independently, at the vertices and (convexity) nowhere above the values
        mass = np.exp(law.log_mass)
        gain = -np.expm1(np.minimum(at[:, None] - law.loss, 0.0)) @ mass + law.infinite
        whole = np.where(at < 0, -np.expm1(np.minimum(at, 0.0)), 0.0) + value
        where = np.isin(at, kept)
        assert (gain[where] >= whole[where] * (1 - 1e-12)).all()
        assert (gain[where] <= whole[where] * (1 + 1e-9)).all()
        seen = at <= kept[-1]
        assert (gain[seen] <= whole[seen] * (1 + 1e-9)).all()
        assert 1.0 <= mass.sum() + law.infinite < 1 + 1e-9


def test_the_excess_survives_where_one_minus_a_would_hide_it() -> None:
    """Far below a = 1 the reverse law keeps its digits: its infinite mass is that of the profile, not a rounding error."""
    step = cases.make(400, 0.3, 130, 1.0, "replace-one")
    loss = np.linspace(-30.0, 30.0, 200)
    at, value = reverse(loss, lending.profile_excess(step, loss, *choose_shares(step).at(loss)))
    law = dominating(at, value)
    exact = float(reference.swap(*arguments(step, float(law.loss[-1]))))
    assert law.infinite <= 1.01 * exact + 1e-290
    assert law.infinite < 1e-30


def test_a_law_below_its_values_is_refused() -> None:
    step = cases.make(400, 0.1, 41, 0.7, "zero-out")
    loss = np.log1p(0.1 * np.expm1(np.linspace(-3.0, 10.0, 100)))
    kept, hull, _ = vertices(loss, lending.swap_excess(step, loss))
    law = dominating(loss, lending.swap_excess(step, loss))
    check(law, kept, hull)
    assert (profile(law)[1] >= hull).all()
    check(law, kept, profile(law)[1])  # not above, so not short
    lighter = replace(law, log_mass=np.where(np.arange(kept.size) == 40, law.log_mass - 1e-9, law.log_mass))
    for broken in (lighter, replace(law, infinite=0.0), replace(law, log_mass=law.log_mass + math.nan)):
        with pytest.raises(NotCertifiedError, match="please report"):
            check(broken, kept, hull)
    moved = law.log_mass + np.where(np.arange(kept.size) == 40, -1e-3, 0.0)  # to a smaller loss: as much mass in all
    gone = np.exp(law.log_mass[40]) - np.exp(moved[40])
    moved[0] += np.log1p(gone / np.exp(law.log_mass[0]))
    assert 1.0 <= profile(replace(law, log_mass=moved))[2] < 1.0 + 1e-9
    short = float(np.max(hull - profile(replace(law, log_mass=moved))[1]))
    with pytest.raises(NotCertifiedError, match=f"short by {short!r}, or has mass 1[.]0"):
        check(replace(law, log_mass=moved), kept, hull)
    with pytest.raises(NotCertifiedError, match=r"has mass 1\.0000010"):
        check(replace(law, log_mass=law.log_mass + 1e-6), kept, hull)  # a law heavier than one is no law
    with pytest.raises(NotCertifiedError, match="short by nan"):
        check(law, kept[:-1], hull[:-1])


def test_a_law_of_mass_one_is_a_law() -> None:
    law = Discrete(np.zeros(1), np.log([0.5]), 0.5, 0.0)
    while profile(law)[2] < 1.0:
        law = replace(law, infinite=math.nextafter(law.infinite, 1.0))
    assert profile(law)[2] == 1.0
    check(law, law.loss, np.zeros(1))
    law = replace(law, infinite=law.infinite + 0.99999e-9)
    while profile(law)[2] < 1.0 + 1e-9:
        check(law, law.loss, np.zeros(1))
        law = replace(law, infinite=math.nextafter(law.infinite, 1.0))
    assert profile(law)[2] == 1.0 + 1e-9
    with pytest.raises(NotCertifiedError, match="please report"):
        check(law, law.loss, np.zeros(1))


def test_a_profile_without_losses_is_refused() -> None:
    with pytest.raises(NotCertifiedError, match=r"^a one-step .* matters; use the swap analysis$"):
        dominating(np.array([0.0, 1.0]), np.array([1.0, 2.0]))


def test_one_step_of_a_discrete_loss_is_its_sum_with_every_error_outward() -> None:
    law = Discrete(np.array([-0.4, 0.1, 0.9, 3.0]), np.log([0.5, 0.3, 0.15, 0.05]), 1e-6, 0.0)
    epsilon = np.array([0.0, 0.05, 0.1, 0.5, 2.9999, 3.0, 50.0])
    lower, upper = HullStep(law).delta_bounds(epsilon)
    with mp.workdps(40):
        for e, low, high in zip(epsilon, lower, upper, strict=True):
            terms = [
                mp.exp(mp.mpf(float(m))) * -mp.expm1(min(mp.mpf(float(e)) - mp.mpf(float(v)), 0))
                for v, m in zip(law.loss, law.log_mass, strict=True)
            ]
            exact = mp.fsum(terms)
            assert low <= exact  # infinite losses prove nothing from below
            assert exact + mp.mpf(1e-6) <= high
            assert high - low <= 1.01e-6 + 3e-9 * high
            assert high >= (exact + mp.mpf(1e-6)) * (1 + mp.mpf(0.9e-9))
            assert low <= max(exact - mp.mpf(0.9e-9) * exact, 0)
    finite = Discrete(law.loss, law.log_mass, 0.0, 0.0)
    assert HullStep(finite).delta_bounds(np.array([50.0]))[1][0] == UNDERFLOW
    certain = Discrete(np.array([40.0]), np.zeros(1), 0.5, 0.0)
    assert HullStep(certain).delta_bounds(np.zeros(1))[1][0] == 1.0
