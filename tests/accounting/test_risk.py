"""Risk measures are on the safe side of their exact values, and close to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr, ndtri

import filet
from filet import Accountant, CappedPoisson, InvalidArgumentError, PrivacyCurve, account
from filet.accounting.proving.combining import bayes_error, loss_quantile, posterior

PRIORS = [1e-6, 0.01, 0.3, 0.5, 0.7, 0.99]


def gaussian(shift: float) -> PrivacyCurve:
    accountant = Accountant("zero-out")
    accountant.compose_gaussian(1.0 / shift)
    return accountant.curve()


def gaussian_delta(shift: float, epsilon: float) -> float:
    return float(ndtr(shift / 2 - epsilon / shift) - math.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift))


@pytest.mark.parametrize("shift", [0.01, 0.3, 1.0, 4.0])
def test_gaussian_measures_enclose_the_closed_forms(shift: float) -> None:
    curve = gaussian(shift)
    advantage = 2.0 * float(ndtr(shift / 2)) - 1.0
    assert advantage * (1 - 1e-12) <= curve.membership_advantage() <= advantage * (1 + 1e-6)
    for prior in PRIORS:
        small = min(prior, 1 - prior)
        error = small * (1.0 - gaussian_delta(shift, float(-logit(small))))
        assert error * (1 - 1e-6) <= curve.bayes_error(prior) <= error * (1 + 1e-12)


@pytest.mark.parametrize("shift", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01, 0.3])
def test_beliefs_lie_above_those_of_the_exact_quantile(shift: float, delta: float) -> None:
    curve = gaussian(shift)
    quantile = shift**2 / 2 - shift * float(ndtri(delta))  # of the loss under P, which is larger than under Q
    for prior in PRIORS:
        found = curve.posterior_belief(prior, delta)
        assert expit(logit(prior) + quantile) <= found <= 1.0
        assert logit(min(found, 1 - 1e-15)) - logit(prior) <= max(quantile, 0.0) + 0.7 * shift + 1e-3


def test_one_subsampled_step_is_known_exactly() -> None:
    rate, sigma = 0.1, 0.8
    curve = account(CappedPoisson(1_000, rate, None), noise_multiplier=sigma, steps=1, adjacency="add-remove")
    assert curve.membership_advantage() == pytest.approx(rate * (2 * ndtr(0.5 / sigma) - 1), rel=1e-6)
    for threshold in (1.0, 2.0, 3.0):
        hit = (1 - rate) * ndtr(-threshold / sigma) + rate * ndtr((1 - threshold) / sigma)
        belief = curve.posterior_belief(0.2, float(hit))
        loss = math.log1p(rate * math.expm1((threshold - 0.5) / sigma**2))
        assert belief >= expit(logit(0.2) + loss)
        assert curve.true_positive_rate(float(ndtr(-threshold / sigma))) >= hit


def test_a_run_that_releases_nothing_teaches_nothing() -> None:
    curve = Accountant("zero-out").curve()
    assert curve.membership_advantage() == 0.0
    assert curve.bayes_error(0.3) == pytest.approx(0.3, rel=1e-12)
    assert 0.3 <= curve.posterior_belief(0.3, 1e-5) <= 0.3002


def test_steps_without_noise_show_the_example_when_it_takes_part() -> None:
    curve = account(CappedPoisson(1_000, 0.1, None), noise_multiplier=0.0, steps=1, adjacency="zero-out")
    assert curve.membership_advantage() == pytest.approx(0.1, rel=1e-6)
    assert curve.bayes_error(0.5) == pytest.approx(0.45, rel=1e-6)
    assert curve.posterior_belief(0.5, 0.05) == 1.0
    assert curve.posterior_belief(0.5, 0.5) < 0.6


def test_measures_agree_with_each_other() -> None:
    scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    curve = account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    advantage = curve.membership_advantage()
    rates = np.linspace(0.0, 1.0, 101)
    assert (curve.true_positive_rate(rates) - rates).max() <= advantage * 1.01
    assert curve.bayes_error() == pytest.approx((1 - advantage) / 2, rel=1e-12)
    assert curve.bayes_error(0.2) == pytest.approx(curve.bayes_error(0.8), rel=1e-12)
    beliefs = [curve.posterior_belief(0.1, delta) for delta in (1e-12, 1e-9, 1e-6, 1e-3)]
    assert beliefs == sorted(beliefs, reverse=True)
    assert beliefs[2] > expit(logit(0.1) + curve.epsilon(1e-6))  # epsilon alone does not bound beliefs


@pytest.mark.parametrize("prior", [0.0, 1.0, -0.1, math.nan, "half", None, True])
def test_a_prior_is_a_chance_between_0_and_1(prior: Any) -> None:
    curve = gaussian(1.0)
    for ask in (curve.bayes_error, lambda one: curve.posterior_belief(one, 1e-5)):
        with pytest.raises(InvalidArgumentError, match="prior="):
            ask(prior)


def test_extreme_priors_and_deltas_are_answered() -> None:
    curve = gaussian(1.0)
    assert 0.0 <= curve.bayes_error(5e-324) <= 5e-324
    assert 0.0 < curve.posterior_belief(1e-300, 1e-5) < 1e-290
    assert curve.posterior_belief(0.5, 5e-324) == 1.0
    assert curve.posterior_belief(math.nextafter(1.0, 0.0), 1e-5) == 1.0


def test_formulas_round_to_the_safe_side() -> None:
    assert bayes_error(0.5, 1.0) == 0.0
    assert bayes_error(0.3, 0.2) < 0.3 * 0.8
    assert posterior(0.5, 0.0) > 0.5
    assert posterior(0.5, math.inf) == 1.0
    assert loss_quantile(np.array([math.inf]), np.array([0.5])) == math.inf
    assert loss_quantile(np.array([1.0, 9.0]), np.array([0.5, 0.1])) > 1.0 + math.log(2.0)


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_runs_are_calibrated_to_risks(overflow: str, adjacency: str) -> None:
    scheme = CappedPoisson(60_000, 256 / 60_000, 320, overflow=overflow)
    words: dict[str, Any] = {"adjacency": adjacency}
    rates = {"true_positive_rate": 0.05, "false_positive_rate": 0.01}
    noise = filet.calibrate_noise_multiplier(scheme, steps=1_000, advantage=0.2, **words)
    reached = account(scheme, noise_multiplier=noise, steps=1_000, **words).membership_advantage()
    assert 0.2 * (1 - 1e-3) <= reached <= 0.2
    noise = filet.calibrate_noise_multiplier(scheme, steps=1_000, **rates, **words)
    assert 0.0499 <= account(scheme, noise_multiplier=noise, steps=1_000, **words).true_positive_rate(0.01) <= 0.05
    steps = filet.calibrate_steps(scheme, noise_multiplier=2.0, advantage=0.2, **words)
    found = [account(scheme, noise_multiplier=2.0, steps=n, **words).membership_advantage() for n in (steps, steps + 1)]
    assert found[0] <= 0.2 < found[1]
    p = filet.calibrate_sampling_probability(scheme, noise_multiplier=2.0, steps=1_000, advantage=0.1, **words)
    drawn = CappedPoisson(60_000, p, 320, overflow=overflow)
    assert account(drawn, noise_multiplier=2.0, steps=1_000, **words).membership_advantage() <= 0.1


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({}, "nothing given"),
        ({"epsilon": 1.0}, "not whole"),
        ({"true_positive_rate": 0.1}, "not whole"),
        ({"epsilon": 1.0, "delta": 1e-5, "advantage": 0.1}, "epsilon, delta, advantage given"),
        ({"advantage": 1.0}, "advantage=1.0 is not in"),
        ({"true_positive_rate": 0.1, "false_positive_rate": 0.1}, "is not above false_positive_rate"),
        ({"true_positive_rate": 0.1, "false_positive_rate": 0.0}, "false_positive_rate=0.0 is not in"),
    ],
)
def test_one_whole_target_is_needed(target: dict[str, float], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        filet.calibrate_noise_multiplier(CappedPoisson(1_000, 0.1, 150), steps=10, adjacency="zero-out", **target)


def test_risks_that_cannot_be_met_say_why() -> None:
    scheme = CappedPoisson(1_000, 0.1, 110)
    with pytest.raises(filet.NoSolutionError, match=r"advantage=0\.1 cannot be met by any noise: analysis='union'"):
        filet.calibrate_noise_multiplier(scheme, steps=100, advantage=0.1, adjacency="zero-out", analysis="union")
    with pytest.raises(filet.NoSolutionError, match=r"allows advantage .*raise noise_multiplier"):
        filet.calibrate_steps(scheme, noise_multiplier=0.3, advantage=0.001, adjacency="zero-out")
    with pytest.raises(filet.NoSolutionError, match="lower true_positive_rate"):
        filet.calibrate_noise_multiplier(
            scheme, steps=1, true_positive_rate=0.9, false_positive_rate=0.1, adjacency="zero-out"
        )
