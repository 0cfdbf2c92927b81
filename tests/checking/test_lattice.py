"""The checker's composition, against closed forms and exact sums: masses are never lost, and rounding goes up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from scipy.special import ndtr

from filet.checking.lattice import Law, delta, hull, laws, power, times, up
from filet.checking.theorems import Step


@pytest.fixture(autouse=True)
def _bits():
    with ctx.workprec(200):
        yield


def step(n: int, p: float, cap: int, sigma: float, adjacency: str) -> Step:
    rate, noise = (fmpq(*value.as_integer_ratio()) for value in (p, sigma))
    return Step(n, rate, cap, noise**2, "truncate", adjacency, "swap", {})


def gaussian_delta(mu: float, epsilon: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def test_many_gaussian_steps_are_one() -> None:
    """100 releases at noise 5 are one at noise 1/2: the lattice is above the closed form, and close."""
    one = step(1, 1.0, 1, 5.0, "zero-out")
    spacing, rule = fmpq(1, 500), (80, 10**6, fmpq(0))
    for law in laws(one.profile, list(range(-900, 901)), spacing, 80):
        found = float(delta(power(law, 100, rule), fmpq(5), spacing, 80).upper())
        assert gaussian_delta(2.0, 5.0) <= found <= gaussian_delta(2.0, 5.0) * 1.002


def test_power_is_the_multinomial_sum() -> None:
    """Three steps of a two-point law, in exact arithmetic."""
    law = Law(-1, [arb(1).fmpz() << 18, arb(0).fmpz(), arb(3).fmpz() << 18], arb(0).fmpz())
    cubed = power(law, 3, (20, 100, fmpq(0)))
    assert (cubed.low, [int(m) / 2**20 for m in cubed.masses]) == (-3, [1 / 64, 0, 9 / 64, 0, 27 / 64, 0, 27 / 64])


def test_cut_mass_is_never_lost() -> None:
    rng = np.random.default_rng(0)
    masses = [arb(int(v)).fmpz() for v in rng.integers(1, 2**12, 50)]
    law = Law(3, masses, arb(7).fmpz())
    total = sum(int(m) for m in masses) + 7
    for light in (0, 1, 500, 10**6):
        squared = power(law, 2, (14, 1000, fmpq(light)))
        assert sum(map(int, squared.masses)) + int(squared.infinite) >= total**2 / 2**14
        assert squared.low >= 6


def test_a_profile_that_is_not_convex_gives_valid_masses() -> None:
    """Masses have a profile above the truth even if the upper bounds zigzag."""
    one = step(9, 0.4, 3, 0.7, "add-remove")

    def rough(loss: arb, node: int) -> arb:
        return one.profile(loss, node) * (1 + arb(node % 3) / 50)

    law, back = laws(rough, list(range(-40, 200)), fmpq(1, 50), 60)
    for k in range(-60, 220, 7):
        for each, sign in ((law, 1), (back, -1)):
            loss = k / 50
            bound = int(each.infinite) / 2**60 + sum(
                int(m) / 2**60 * max(0.0, 1 - math.exp(loss - (each.low + i) / 50)) for i, m in enumerate(each.masses)
            )
            truth = float(one.profile(arb(sign * k) / 50, 0))
            truth = truth if sign > 0 else 1 - math.exp(loss) + math.exp(loss) * truth
            assert bound >= truth - 1e-12


def test_masses_are_rounded_up_and_never_negative() -> None:
    assert up(arb(1) / 3, 10) == 342  # 341.33
    assert up(arb(-1), 10) == 0
    with pytest.raises(ValueError, match="more bits"):
        up(arb.nan(), 10)


def test_points_above_the_hull_are_left_out() -> None:
    points = [(k, arb(a), arb(h)) for k, a, h in [(1, 1, 0.5), (2, 2, 0.6), (3, 3, 0.1)]]
    assert [k for k, _, _ in hull(points)] == [0, 1, 3]


def test_sums_that_outgrow_the_window_are_refused() -> None:
    law = Law(0, [arb(1).fmpz() << 10] * 8, arb(0).fmpz())
    with pytest.raises(ValueError, match="window of 14"):
        times(law, law, (12, 14, fmpq(0)))
    assert len(times(law, law, (12, 15, fmpq(0))).masses) == 15
