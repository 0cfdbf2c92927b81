"""Closed forms bracket the inverse of what is known of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from filet import Adjacency, Analysis, CappedPoisson
from filet.accounting.proving.closed_form import Gaussian, OneStep, gaussian_log_delta
from filet.accounting.proving.loss_law import LossLaw
from filet.accounting.proving.theorems import loss_law
from filet.accounting.searching.crossings import crossings
from filet.accounting.searching.exact import Exact


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9])
@pytest.mark.parametrize("sigma", [0.5, 2.0])
def test_one_step_brackets_the_inverse_of_the_profile(sigma: float, delta: float) -> None:
    law = loss_law(CappedPoisson(100, 0.5, 60), sigma, Adjacency.ZERO_OUT, Analysis.REFINED)
    for one in (law, law.reversed()):
        form = Exact(OneStep(one, crossings))
        bracket = form.epsilon(delta)

        def excess(epsilon: float, one: LossLaw = one) -> float:
            return float(one.profile(np.array([epsilon]), crossings)[0][0]) / delta - 1.0

        exact = brentq(excess, 0.0, 99.0, xtol=1e-13, rtol=1e-13) if excess(0.0) > 0 else 0.0
        assert bracket.lower <= exact * (1 + 1e-10)
        assert bracket.upper >= exact * (1 - 1e-10)
        assert bracket.upper - bracket.lower <= 1e-7 * bracket.upper
        # alone, a threshold is halved more often than beside others, so that the last digits differ
        assert form.at_most(bracket.upper * (1 + 1e-9), delta)
        assert not form.at_most(bracket.lower * 0.99, delta) or exact == 0.0
        assert form.quick_delta(0.7) == form.delta(0.7).upper >= float(one.profile(np.array([0.7]), crossings)[0][0])


@pytest.mark.parametrize("mu", [1e-3, 0.5, 30.0])
@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-200])
def test_the_epsilon_of_a_gaussian_is_found_however_small_or_large(mu: float, delta: float) -> None:
    bracket = Exact(Gaussian(mu * mu, mu * mu)).epsilon(delta)
    assert bracket.upper - bracket.lower <= 1e-7 * bracket.upper
    assert gaussian_log_delta(mu, bracket.upper) <= math.log(delta) + 1e-12
    if bracket.lower > 0.0:
        assert gaussian_log_delta(mu, bracket.lower) >= math.log(delta) - 1e-12
