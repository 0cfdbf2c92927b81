"""The target: certified costs decide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from filet.accounting.accountant import account
from filet.accounting.curve import PrivacyCurve, delta_brackets_each_order
from filet.accounting.terms import Adjacency, Analysis
from filet.errors import InvalidArgumentError
from filet.planning.target import Target
from filet.scheme import CappedPoisson

SCHEME = CappedPoisson(60_000, 200 / 60_000, 256)
TARGET = Target.checked(2.0, 1e-5, "zero-out", "refined")


def test_words_and_numbers_are_checked() -> None:
    assert Target(2.0, 1e-5, Adjacency.ZERO_OUT, Analysis.REFINED) == TARGET
    assert TARGET.describe() == "epsilon=2 at delta=1e-05"


@pytest.mark.parametrize(("arguments", "words"), [
    ((0.0, 1e-5, "zero-out", "refined"), r"epsilon=0.0 is not in \(0, inf\)"),
    ((math.inf, 1e-5, "zero-out", "refined"), r"epsilon=inf is not in \(0, inf\)"),
    ((1.0, [1e-5, 1e-6], "zero-out", "refined"), "one at a time"),
    ((1.0, 0.0, "zero-out", "refined"), "delta=0.0 is not in"),
    ((1.0, 1e-5, "swap", "refined"), "adjacency='swap' is unknown"),
    ((1.0, 1e-5, "zero-out", "best"), "analysis='best' is unknown"),
])  # fmt: skip
def test_what_is_no_target_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        Target.checked(*arguments)


def test_the_cost_is_at_most_zero_exactly_if_the_run_meets_the_target() -> None:
    spent = float(account(SCHEME, noise_multiplier=1.0, steps=1_000, adjacency="zero-out").epsilon(1e-5))
    assert TARGET.spent(SCHEME, 1.0, 1_000) == spent
    for epsilon in (spent, math.nextafter(spent, math.inf), 2 * spent):
        assert Target(epsilon, 1e-5, Adjacency.ZERO_OUT).cost(SCHEME, 1.0, 1_000) <= 0.0
    for epsilon in (math.nextafter(spent, 0.0), spent / 2):
        assert Target(epsilon, 1e-5, Adjacency.ZERO_OUT).cost(SCHEME, 1.0, 1_000) > 0.0


def test_costs_of_no_noise_and_of_no_steps_are_infinite() -> None:
    assert TARGET.cost(SCHEME, 0.0, 1_000) == math.inf
    assert TARGET.cost(SCHEME, 1.0, 0) == -math.inf


@pytest.mark.parametrize("analysis", ["refined", "note", "union"])
@pytest.mark.parametrize("delta", [1e-5, 1e-20])
def test_costs_fall_as_noise_grows(analysis: str, delta: float) -> None:
    target = Target.checked(2.0, delta, "add-remove", analysis)
    costs = [target.cost(CappedPoisson(60_000, 100 / 60_000, 256), noise, 1_000) for noise in (0.4, 0.7, 1.0, 3.0)]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < 0.0 < costs[0]


@pytest.mark.parametrize("delta", [1e-5, 1e-20])
def test_a_run_beyond_floats_counts_as_a_miss(delta: float) -> None:
    """As in `filet plan --steps 9223372036854775807`, which ended in a division by zero."""
    target = Target.checked(1.0, delta, "add-remove", "refined")
    for noise in (0.05, 1.0, 30.0):
        assert target.cost(SCHEME, noise, 2**63 - 1) == math.inf


def test_the_gaussian_shift_spends_the_target() -> None:
    curve = account(CappedPoisson(10, 1.0, 10), noise_multiplier=1.0 / TARGET.gaussian_shift(), steps=1,
                    adjacency="zero-out")  # fmt: skip
    assert curve.epsilon(1e-5) == pytest.approx(2.0, rel=1e-6)


CURVES = [
    account(SCHEME, noise_multiplier=noise, steps=steps, adjacency=adjacency, analysis=analysis)
    for noise, steps in ((1.0, 1_000), (3.0, 1), (0.7, 50))
    for adjacency, analysis in (("add-remove", "swap"), ("replace-one", "swap"), ("zero-out", "note"))
] + [
    account(CappedPoisson(60_000, 120 / 60_000, 256), noise_multiplier=1.0, steps=100, adjacency="zero-out", analysis="union"),
    account(CappedPoisson(10, 1.0, 10), noise_multiplier=3.0, steps=2, adjacency="add-remove"),
]  # fmt: skip


@pytest.mark.parametrize("curve", CURVES, ids=str)
def test_what_planning_asks_of_a_curve_is_on_the_safe_side(curve: PrivacyCurve) -> None:
    for epsilon in (0.0, 0.5, 2.0):
        bounds = curve.delta_bounds(epsilon)
        each = delta_brackets_each_order(curve, np.array([epsilon]))
        both_alike = curve.adjacency is Adjacency.REPLACE_ONE or curve.dataset_size == 10
        assert len(each) == (1 if both_alike else 2)
        assert max(one.upper[0] for one in each) == pytest.approx(bounds.upper, rel=1e-9)
        assert all(one.lower[0] <= one.upper[0] for one in each)


def test_a_curve_without_noise_shows_the_example_with_the_chance_of_a_hit() -> None:
    curve = account(SCHEME, noise_multiplier=0.0, steps=1, adjacency="zero-out")
    hit = SCHEME.inclusion_probability
    assert curve.delta_bounds(1.0).lower <= hit <= curve.delta_bounds(1.0).upper
    (both,) = delta_brackets_each_order(curve, np.ones(1))
    assert (both.lower[0], both.upper[0]) == curve.delta_bounds(1.0)
