"""Runs with a closed form: the Gaussian mechanism and one step, against many digits and within their stated errors."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from tests.accounting.laws import usual_law

from filet import Adjacency, Analysis, CappedPoisson
from filet._rounding import UNDERFLOW
from filet.accounting.proving.closed_form import Gaussian, OneStep, gaussian_log_delta
from filet.accounting.proving.loss_law import LossLaw
from filet.accounting.proving.theorems import loss_law
from filet.accounting.search.closed_form import crossings


def exact_gaussian(mu: float, epsilon: float) -> mp.mpf:
    with mp.workdps(80):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


CASES = [(mu, epsilon) for mu in (1e-6, 1e-3, 0.0099, 0.02, 0.5, 1.0, 7.0, 30.0, 600.0)
         for epsilon in (0.0, 1e-4, 0.1, 1.0, 5.0, 40.0, 700.0)]  # fmt: skip
# nearly one, where the complement decides; and tails in which Mills' ratio is a series
CASES += [
    (10.1, 0.0),
    (11.0, 0.5),
    (12.0, 7.0),
    (0.02, 0.65),
    (0.1, 3.05),
    (0.1, 3.3),
    (0.3, 9.9),
    (1e-6, 3.2e-5),
    (0.0101, 0.0),
]


@pytest.mark.parametrize(("mu", "epsilon"), CASES)
def test_the_gaussian_closed_form_keeps_nine_digits_and_its_bounds_contain_the_truth(mu: float, epsilon: float) -> None:
    exact = exact_gaussian(mu, epsilon)
    if exact < mp.mpf(10) ** -300:
        assert math.exp(gaussian_log_delta(mu, epsilon)) < 1e-290
        return
    assert gaussian_log_delta(mu, epsilon) == pytest.approx(float(mp.log(exact)), rel=1e-9, abs=1e-9)
    lower, upper = Gaussian(mu**2, mu**2).delta_bounds(np.array([epsilon]))
    assert lower[0] <= exact <= upper[0]
    assert upper[0] - lower[0] <= 3e-9 * upper[0] or epsilon / mu > 1e4


def test_shifts_that_are_known_roughly_give_both_ends() -> None:
    epsilon = np.array([0.0, 0.4, 3.0])
    lower, upper = Gaussian(0.9, 1.1).delta_bounds(epsilon)
    for e, low, high in zip(epsilon, lower, upper, strict=True):
        assert low <= exact_gaussian(math.sqrt(0.9), e) < exact_gaussian(math.sqrt(1.1), e) <= high
    lower, upper = Gaussian(0.0, 0.0).delta_bounds(epsilon)
    assert (lower == 0.0).all()
    assert (upper == UNDERFLOW).all()
    assert Gaussian(0.0, 3.6e5).delta_bounds(np.zeros(1))[1][0] == 1.0  # though rounded up


@pytest.mark.parametrize("epsilon", [37.0, 38.2, 38.6, 40.0])
def test_bounds_rest_on_no_denormal_number(epsilon: float) -> None:
    """A processor that flushes denormal numbers to zero gives the same bounds."""
    exact = exact_gaussian(1.0, epsilon)
    lower, upper = (float(bound[0]) for bound in Gaussian(1.0, 1.0).delta_bounds(np.array([epsilon])))
    assert lower == 0.0 or lower > np.finfo(float).smallest_normal
    assert upper >= UNDERFLOW
    assert lower <= exact <= upper
    tiny = 5e-324
    assert Gaussian(1.0, 1.0).bracket(tiny, epsilon, epsilon).upper == math.inf
    assert Gaussian(1.0, 1.0).bracket(tiny, 38.6, math.inf).lower == 0.0


ROUNDED = [(6e5, 1.8e11), (1e9, 5e17), (1e-9, 30.0), (1e-12, 1.0)]
ROUNDED += [(mu, mu * mu / 2 + k * mu) for mu in (1e7, 3.3e7) for k in (7.3, 11.7, 19.1, 23.3, 31.7)]


@pytest.mark.parametrize(("mu", "epsilon"), ROUNDED)
def test_rounded_arguments_of_a_tail_are_allowed_for_or_nothing_is_said(mu: float, epsilon: float) -> None:
    lower, upper = Gaussian(mu**2, mu**2).delta_bounds(np.array([epsilon]))
    assert float(lower[0]) <= exact_gaussian(mu, epsilon) <= float(upper[0])


def test_where_rounding_could_take_a_tenth_of_a_tail_nothing_is_known() -> None:
    mu = 3e14
    lower, upper = Gaussian(mu**2, mu**2).delta_bounds(np.array([mu * mu / 2]))
    assert (lower[0], upper[0]) == (0.0, 1.0)


@pytest.mark.parametrize(("mu", "epsilon"), [(1e-3, 1e-3), (0.5, 1.0), (7.0, 40.0), (118.0, 7500.0)])
def test_two_epsilons_prove_a_bracket_if_delta_clears_its_error(mu: float, epsilon: float) -> None:
    form, exact = Gaussian(mu**2, mu**2), float(exact_gaussian(math.sqrt(mu**2), epsilon))
    off = 1e-9 + 8 * 2.0**-53 * (epsilon / mu + mu) * (abs(epsilon / mu - mu / 2) + 1)  # what the form allows for
    for share, proven in ((1.2, True), (0.8, False)):
        assert form.bracket(exact * (1 - share * off), epsilon, math.inf).lower == (epsilon if proven else 0.0)
        assert form.bracket(exact * (1 + share * off), 0.0, epsilon).upper == (epsilon if proven else math.inf)
    rough = Gaussian(0.9 * mu**2, 1.1 * mu**2)
    least, most = (float(exact_gaussian(math.sqrt(v) * mu, epsilon)) for v in (0.9, 1.1))
    for delta in (0.99 * least, 1.01 * least, 0.99 * most, 1.01 * most):
        assert rough.bracket(delta, epsilon, epsilon) == (
            epsilon if delta < least else 0.0,
            epsilon if delta > most else math.inf,
        )


def test_a_bracket_of_what_is_vague_or_without_a_shift_is_whole_or_nothing() -> None:
    vague = Gaussian(9e28, 9e28)
    assert vague.bracket(0.9, 4.5e28, 4.5e28) == vague.bracket(0.1, 4.5e28, 4.5e28) == (0.0, math.inf)
    assert Gaussian(0.0, 0.0).bracket(1e-300, 1.0, 1.0) == (0.0, 1.0)


def test_without_a_shift_nothing_is_lost() -> None:
    assert gaussian_log_delta(0.0, 0.0) == -math.inf


def test_one_step_is_its_profile_with_every_error_outward() -> None:
    law, epsilon = usual_law(), np.array([0.0, 0.2, 1.0, 50.0])
    rough = LossLaw(law.pieces, law.atoms, 1e-9, 1e-6)
    value, error = rough.profile(epsilon, crossings)
    lower, upper = OneStep(rough, crossings).delta_bounds(epsilon)
    assert (lower == np.maximum(value * (1 - 1e-12 - 20e-6) - error, 0.0)).all()
    assert (upper == value * (1 + 1e-12 + 20e-6) + error + 1e-9 + UNDERFLOW).all()
    assert UNDERFLOW <= float(OneStep(law, crossings).delta_bounds(np.array([1e5]))[1][0]) < 1e-290
    assert (lower[:3] < upper[:3]).all()
    part = LossLaw(law.pieces, law.atoms, 1e-9, 1e-6, whole=False)  # lost weights could lower its losses
    assert (OneStep(part, crossings).delta_bounds(epsilon)[0] == 0.0).all()
    assert (OneStep(part, crossings).delta_bounds(epsilon)[1] == upper).all()
    unknown = LossLaw(law.pieces, law.atoms, 1e-9, math.inf)  # no number is left to speak of
    assert [one.tolist() for one in OneStep(unknown, crossings).delta_bounds(epsilon[:3])] == [[0.0] * 3, [1.0] * 3]
    lost = LossLaw(law.pieces, law.atoms, 1.0)
    assert (OneStep(lost, crossings).delta_bounds(epsilon)[1] == 1.0).all()


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
    with np.errstate(over="ignore"):  # as runs do
        lower, upper = OneStep(law, crossings).delta_bounds(np.array([epsilon]))
    assert float(lower[0]) * (1 - 1e-9) <= exact <= float(upper[0]) * (1 + 1e-9)
