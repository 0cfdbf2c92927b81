"""Lower bounds: sound (never above the exact value of their own attack, nor above the upper bound) and tight."""

import math
import random

import mpmath
import numpy as np
import pytest
from scipy import stats
from tests.settings import SETTINGS

import filet
from filet.accounting import lower_bounds as module
from filet.accounting.attacks import attack
from filet.accounting.lower_bounds import epsilon_lower_bound
from filet.accounting.proving.closed_form import gaussian_log_delta
from filet.accounting.terms import Adjacency

ADJACENCIES = ("add-remove", "zero-out", "replace-one")


def bounds(scheme, delta, **run):
    return epsilon_lower_bound(scheme, delta=delta, **run), filet.account(scheme, **run).epsilon(delta)


def setting(name, overflow):
    n, batch, cap, sigma, steps, delta = SETTINGS[name]
    return filet.CappedPoisson(n, batch / n, cap, overflow), delta, {"noise_multiplier": sigma, "steps": steps}


def exact_delta(pair, epsilon, sigma):
    """delta of one step of an attack, by brute force on a fine grid of the line or the plane."""
    clouds = pair.common + pair.only_p + pair.only_q
    flat = all(cloud.across == 0.0 for cloud in clouds)
    step, height = (0.002, 1.0) if flat else (0.03, 0.03)
    x = np.arange(-8.0, 12.0 / sigma + 8.0, step)
    y = np.zeros(1) if flat else np.arange(-8.0, 8.0, height)
    p, q = np.zeros((x.size, y.size)), np.zeros((x.size, y.size))
    for part, into in ((pair.common, (p, q)), (pair.only_p, (p,)), (pair.only_q, (q,))):
        for cloud in part:
            across = np.ones(1) if flat else stats.norm.pdf(y - cloud.across / sigma)
            for i, weight in enumerate(cloud.weights):
                spot = stats.norm.pdf(x - (pair.first + i + cloud.along) / sigma)
                for density in into:
                    density += weight * np.outer(spot, across)
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * step * height)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("share", "cosine"), [(0, 0.0), (1, 1.0), (1, 0.3), (1, 0.0), (0.5, 1.0)])
def test_one_step_is_just_below_the_exact_hockey_stick_divergence_of_the_attack(share, cosine, adjacency):
    scheme, sigma, epsilon = filet.CappedPoisson(9, 0.5, 4), 0.8, 0.7
    pair = attack(scheme, sigma, filet.Adjacency(adjacency), round(share * 8), cosine)
    law, _ = module.merged(pair, 9.0)
    exact = exact_delta(pair, epsilon, sigma)
    merged = float((np.exp(law.log_mass) * -np.expm1(np.minimum(epsilon - law.loss, 0.0))).sum())
    assert merged <= exact * (1 + (1e-6 if cosine == 1.0 else 4e-4))  # the grid's own error
    assert merged >= exact * (1 - 2e-3)
    assert module._one_step(law, math.log(exact)) == pytest.approx(epsilon, abs=3e-3)


@pytest.mark.parametrize("coarse", [1.0, 5.0])
@pytest.mark.parametrize(
    ("n", "p", "cap", "sigma"), [(9, 0.5, 4, 0.8), (60_000, 0.004, 240, 1.0), (2_000, 0.3, 610, 20.0)]
)
def test_merged_outcomes_have_no_more_of_p_and_no_less_of_q(n, p, cap, sigma, coarse):
    scheme = filet.CappedPoisson(n, p, cap)
    for share, cosine in module._FAMILY:
        pair = attack(scheme, sigma, filet.Adjacency.ADD_REMOVE, round(share * (n - 1)), cosine)
        for law in module.merged(pair, 11.0, coarse):
            assert np.exp(law.log_mass).sum() <= 1 + 1e-12
            assert np.exp(law.log_mass).sum() >= 1 - 1e-9
            assert np.exp(law.log_mass - law.loss).sum() >= 1 - 1e-11


@pytest.mark.long
def test_never_above_the_upper_bound_on_random_settings():
    rng = random.Random(5)
    seen = 0
    while seen < 30:
        n = int(10 ** rng.uniform(0.5, rng.choice([1, 3, 7, 12])))
        p = min(1.0, 10 ** rng.uniform(-rng.choice([1, 6]), 0.1))
        cap = max(1, min(n, int(n * p * 10 ** rng.uniform(-0.7, 0.5)) + rng.choice([0, 1, 5])))
        overflow = rng.choice(["truncate", "reject"])
        if cap >= n or (p == 1.0 and overflow == "reject"):
            continue
        scheme = filet.CappedPoisson(n, p, cap, overflow)
        run = {"noise_multiplier": 10 ** rng.uniform(-0.7, 1.5), "steps": int(10 ** rng.uniform(0, 5)),
               "adjacency": rng.choice(ADJACENCIES)}  # fmt: skip
        try:
            lower, upper = bounds(scheme, 10 ** -rng.uniform(1, 12), **run)
        except filet.NotCertifiedError:
            continue
        seen += 1
        assert 0.0 <= lower <= upper, (scheme, run)


@pytest.mark.parametrize("steps", [1, 7, 1_000])
@pytest.mark.parametrize(("n", "cap"), [(7, 6), (50, 20), (60_000, 256), (10**12, 10**8)])
def test_meets_the_add_remove_bound_for_fixed_size_batches(n, cap, steps):
    scheme = filet.CappedPoisson(n, 1.0, cap)
    lower, upper = bounds(scheme, 1e-6, noise_multiplier=0.9, steps=steps, adjacency="add-remove")
    assert upper * (1 - 1.5e-3) - 1e-4 <= lower <= upper


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", SETTINGS)
def test_within_three_per_cent_of_the_upper_bound_for_reject(name, adjacency):
    scheme, delta, run = setting(name, "reject")
    lower, upper = bounds(scheme, delta, adjacency=adjacency, **run)
    assert 0.97 * upper <= lower <= upper


@pytest.mark.parametrize(("name", "adjacency", "least"), [
    ("B", "add-remove", 6.69), ("C", "zero-out", 3.41), ("D", "zero-out", 0.95), ("E", "add-remove", 3.79),
    ("E", "replace-one", 5.6),
])  # fmt: skip
def test_others_at_an_angle_reveal_more_than_zero_others_when_batches_are_cut(name, adjacency, least):
    scheme, delta, run = setting(name, "truncate")
    lower, upper = bounds(scheme, delta, adjacency=adjacency, **run)
    rate = scheme.inclusion_probability
    plain = filet.CappedPoisson(scheme.dataset_size, rate, scheme.dataset_size)
    assert lower > filet.account(plain, adjacency=adjacency, **run).epsilon(delta)
    assert least <= lower <= upper


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_without_a_cap_the_attack_is_the_dominating_pair(adjacency):
    scheme = filet.CappedPoisson(1_000, 0.01, 1_000)
    run = {"noise_multiplier": 1.0, "steps": 100, "adjacency": adjacency}
    assert epsilon_lower_bound(scheme, delta=1e-5, **run) == filet.account(scheme, **run).epsilon_bounds(1e-5).lower


def test_every_example_in_every_batch_is_the_gaussian_mechanism():
    scheme = filet.CappedPoisson(10, 1.0, 10)
    lower = epsilon_lower_bound(scheme, noise_multiplier=2.0, steps=9, adjacency="zero-out", delta=1e-5)
    assert gaussian_log_delta(1.5, lower) == pytest.approx(math.log(1e-5), abs=1e-6)


def test_cyclic_sampling_is_one_group_seen_every_cycle():
    run = {"noise_multiplier": 1.0, "adjacency": "zero-out", "delta": 1e-5}
    cyclic = filet.CappedPoisson(2_003, 0.1, 40, cycle_length=4)
    group = filet.CappedPoisson(500, 0.1, 40)
    assert epsilon_lower_bound(cyclic, steps=41, **run) == epsilon_lower_bound(group, steps=11, **run) > 0


def test_runs_without_noise_are_exposed_exactly_if_x_1_is_seen_more_often_than_delta():
    scheme = filet.CappedPoisson(100, 1e-6, 50)
    run = {"noise_multiplier": 0.0, "steps": 10, "adjacency": "zero-out"}
    assert epsilon_lower_bound(scheme, delta=0.9e-5, **run) == math.inf
    assert epsilon_lower_bound(scheme, delta=1.1e-5, **run) == 0.0


@pytest.mark.parametrize("change", [{"steps": 0}, {"noise_multiplier": math.inf}])
def test_nothing_released_loses_nothing(change):
    run = {"noise_multiplier": 1.0, "steps": 10, "adjacency": "zero-out", "delta": 1e-5}
    assert epsilon_lower_bound(filet.CappedPoisson(100, 0.1, 5), **{**run, **change}) == 0.0


@pytest.mark.parametrize("change", [
    {"steps": -1}, {"noise_multiplier": -1.0}, {"noise_multiplier": math.nan}, {"adjacency": "both"}, {"delta": 0.0},
    {"delta": 1.0}, {"delta": [1e-5, 1e-6]}, {"scheme": 3},
])  # fmt: skip
def test_refuses_arguments_that_break_their_rule(change):
    run = {"scheme": filet.CappedPoisson(100, 0.1, 5), "noise_multiplier": 1.0, "steps": 10, "adjacency": "zero-out",
           "delta": 1e-5}  # fmt: skip
    with pytest.raises(filet.InvalidArgumentError, match=next(iter(change))):
        epsilon_lower_bound(**{**run, **change})


LITTLE = [filet.CappedPoisson(60_000, 256 / 60_000, 300), filet.CappedPoisson(60_000, 256 / 60_000, 256, "reject"),
          filet.CappedPoisson(1_000, 0.05, 30), filet.CappedPoisson(200, 1.0, 20), filet.CappedPoisson(400, 0.05, 12, "truncate", 4)]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.003, 0.02, 0.06])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("scheme", LITTLE, ids=str)
def test_with_little_noise_the_attack_is_close_to_the_bound(scheme, adjacency, noise):
    lower, upper = bounds(scheme, 1e-5, noise_multiplier=noise, steps=30, adjacency=adjacency)
    assert 0.97 * upper <= lower <= upper


def poisson_delta(rate, distance, epsilon):
    """Of one step of (1 - rate) N(0, 1) + rate N(distance, 1) against N(0, 1), in 60 digits."""
    with mpmath.workdps(60):
        rate, distance, ratio = mpmath.mpf(rate), mpmath.mpf(distance), mpmath.exp(epsilon)
        # the likelihood ratio 1 - rate + rate exp(distance x - distance^2 / 2) is above e^epsilon beyond here
        edge = mpmath.log((ratio - 1 + rate) / rate) / distance + distance / 2
        here, there = (mpmath.erfc((edge - mean) / mpmath.sqrt(2)) / 2 for mean in (0, distance))
        return (1 - rate - ratio) * here + rate * there


@pytest.mark.parametrize("noise", [0.004, 0.02, 0.05, 0.19])
@pytest.mark.parametrize(("scheme", "adjacency", "distance"), [
    (filet.CappedPoisson(1_000, 0.05, 60, "reject"), Adjacency.ZERO_OUT, 1), (filet.CappedPoisson(1_000, 0.05, 30), Adjacency.ADD_REMOVE, 1),
    (filet.CappedPoisson(200, 1.0, 20), Adjacency.ADD_REMOVE, 2), (filet.CappedPoisson(200, 1.0, 20), Adjacency.REPLACE_ONE, 2),
])  # fmt: skip
def test_a_lone_example_loses_what_the_closed_form_says(scheme, adjacency, distance, noise):
    lower = module._lone(scheme, noise, 1, adjacency, 1e-5)
    rate = scheme.inclusion_probability
    assert poisson_delta(rate, distance / noise, lower) >= 1e-5
    assert poisson_delta(rate, distance / noise, 1.001 * lower + 1e-3) < 1e-5
    assert epsilon_lower_bound(scheme, noise_multiplier=noise, steps=1, adjacency=adjacency, delta=1e-5) >= lower


def test_the_least_noise_that_floats_hold_is_not_taken_for_none():
    for sigma in (5e-324, 1e-300):
        assert module._lone(filet.CappedPoisson(200, 1.0, 20), sigma, 1, Adjacency.REPLACE_ONE, 1e-5) < math.inf
