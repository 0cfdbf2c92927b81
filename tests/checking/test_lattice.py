"""The checker's composition, against closed forms and exact sums: masses are never lost, and rounding goes up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, ctx, fmpq, fmpz
from scipy.special import ndtr

from filet.checking import lattice
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
    with pytest.raises(ValueError, match=r"^a mass could not be enclosed; the witness needs more bits$"):
        up(arb.nan(), 10)


@pytest.mark.parametrize("value", ["inf", "nan", "[0 +/- inf]", "2", "[1 +/- 1.5]", "1e999999999999"])
def test_what_is_no_mass_is_refused_before_it_is_a_whole_number(value: str) -> None:
    """A whole number of 10^12 digits would end the process."""
    with pytest.raises(ValueError, match="a mass could not be enclosed"):
        up(arb(value), 20)


@pytest.mark.parametrize(
    ("value", "found"),
    [("1e-999999999999", 1), ("-1e999999999999", 0), ("-inf", 0), ("[0 +/- 1e-9]", 1), ("1.5", 3 << 19), ("[1 +/- 1e-30]", (1 << 20) + 1)],
)  # fmt: skip
def test_any_mass_below_two_is_rounded_up(value: str, found: int) -> None:
    assert up(arb(value), 20) == found


def test_points_above_the_hull_are_left_out() -> None:
    points = [(k, arb(a), arb(h)) for k, a, h in [(1, 1, 0.5), (2, 2, 0.6), (3, 3, 0.1)]]
    assert [k for k, _, _ in hull(points)] == [0, 1, 3]


def test_sums_that_outgrow_the_window_are_refused() -> None:
    law = Law(0, [arb(1).fmpz() << 10] * 8, arb(0).fmpz())
    with pytest.raises(ValueError, match="the composed losses take more nodes than the window of 14"):
        times(law, law, (12, 14, fmpq(0)))
    assert len(times(law, law, (12, 15, fmpq(0))).masses) == 15


# --- products by hand ---

X = Law(2, [fmpz(1), fmpz(2), fmpz(3)], fmpz(1))
Y = Law(-1, [fmpz(4), fmpz(0), fmpz(5)], fmpz(2), 3)


def numbers(law: Law) -> tuple[int, list[int], int, int]:
    return law.low, [int(mass) for mass in law.masses], int(law.infinite), law.steps


@pytest.mark.parametrize(
    ("light", "found"),
    [
        (fmpq(0), (1, [1, 2, 5, 3, 4], 6, 4)),  # 4, 8, 17, 10, 15 and 7 * 2 + 1 * 9 quarters, each rounded up
        (fmpq(7, 8), (2, [3, 5, 3, 4], 6, 4)),  # 3 may be cut: 1 moves up, and 3 may not
        (fmpq(1), (2, [3, 5, 3], 10, 4)),  # 4 may be cut: the last counts as infinite
        (fmpq(2), (3, [8], 13, 4)),  # 8 may be cut: 1 + 2 + 5 move up, 4 + 3 count as infinite
        (fmpq(100), (5, [15], 6, 4)),  # all may be cut, and one place is left
    ],
)
def test_a_product_is_what_it_is_by_hand(light: fmpq, found: tuple[int, list[int], int, int]) -> None:
    assert numbers(times(X, Y, (2, 5, light))) == found
    if light == 0:
        assert numbers(times(Y, X, (2, 5, light))) == found
        with pytest.raises(ValueError, match="window of 4"):
            times(X, Y, (2, 4, light))


def test_nothing_times_nothing_is_nothing() -> None:
    empty = Law(3, [fmpz(0)] * 4, fmpz(1))
    assert numbers(times(empty, empty, (1, 5, fmpq(0)))) == (6, [0], 1, 2)


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_power_of_whole_masses_is_exact(steps: int) -> None:
    """In units of 1 nothing is rounded."""
    low, masses, infinite, count = numbers(power(X, steps, (0, 100, fmpq(0))))
    expected = np.array([1], dtype=object)
    for _ in range(steps):
        expected = np.convolve(expected, np.array([1, 2, 3], dtype=object))
    assert (low, masses, count) == (2 * steps, expected.tolist(), steps)
    assert infinite == 7**steps - 6**steps


def test_progress_of_a_power_is_the_share_of_its_squarings() -> None:
    shares: list[float] = []
    power(X, 11, (0, 100, fmpq(0)), shares.append)
    assert shares == [0.25, 0.5, 1.0]


@pytest.mark.parametrize(
    "epsilon", [fmpq(-1), fmpq(0), fmpq(1, 4), fmpq(1, 3), fmpq(1, 2), fmpq(9, 10), fmpq(1), fmpq(3)]
)
def test_delta_is_the_sum_over_losses_above_epsilon(epsilon: fmpq) -> None:
    law = Law(1, [fmpz(3), fmpz(5), fmpz(7), fmpz(11)], fmpz(2))
    truth = arb(2)
    for k, mass in enumerate((3, 5, 7, 11), 1):
        if fmpq(k, 4) > epsilon:
            truth += mass * (1 - (arb(epsilon) - arb(k) / 4).exp())
    off = delta(law, epsilon, fmpq(1, 4), 5) - truth / 32
    assert off.contains(0)
    assert off.rad() < arb(2) ** -150


@pytest.mark.parametrize("nodes", [list(range(-60, 61)), [-50, -3, 0, 1, 2, 8, 40], [7], [-7]])
def test_masses_have_the_profile_at_the_nodes_in_both_directions(nodes: list[int]) -> None:
    """Rounding raises it by a unit a mass at most."""
    one, spacing, bits = step(1, 1.0, 1, 1.0, "zero-out"), fmpq(1, 20), 100
    ahead, back = laws(one.profile, nodes, spacing, bits)
    for k in nodes:
        a, truth = (k * arb(spacing)).exp(), one.profile(k * arb(spacing), k)
        for law, sign, exact in ((ahead, 1, truth), (back, -1, 1 - 1 / a + truth / a)):
            off = delta(law, fmpq(sign * k, 20), spacing, bits) - exact
            assert off > -(arb(2) ** -150)
            assert off < arb(2) ** (8 - bits)


def test_there_is_no_mass_between_nodes() -> None:
    one = step(1, 1.0, 1, 1.0, "zero-out")
    for law, places in zip(laws(one.profile, [-3, 0, 4], fmpq(1, 20), 60), ([0, 3, 7], [0, 4, 7]), strict=True):
        assert len(law.masses) == 8
        assert [i for i, mass in enumerate(law.masses) if mass] == places


def test_nodes_whose_value_is_unknown_are_left_out() -> None:
    one = step(1, 1.0, 1, 1.0, "zero-out")

    def profile(loss: arb, node: int) -> arb:
        return arb.nan() if node in (-1, 5) else one.profile(loss, node)

    assert laws(profile, [-1, 0, 2, 5], fmpq(1, 20), 60) == laws(one.profile, [0, 2], fmpq(1, 20), 60)
    with pytest.raises(ValueError, match=r"^the witness has no usable node for some step$"):
        laws(profile, [-1, 5], fmpq(1, 20), 60)


@pytest.mark.parametrize(
    ("points", "kept"),
    [
        ([(1, 1, 0.5), (2, 2, 0.25), (3, 3, 0.125)], [0, 1, 2, 3]),
        ([(1, 1, 0.5), (2, 2, 0.0)], [0, 2]),  # on a line
        ([(1, 1, 0.75), (2, 2, 0.6), (3, 3, 0.125)], [0, 3]),
        ([(1, 2, 0.5), (2, 3, 0.25), (3, 5, 0.2)], [0, 2, 3]),
    ],
)
def test_the_hull_is_strictly_convex(points: list[tuple[int, float, float]], kept: list[int]) -> None:
    assert [k for k, _, _ in hull([(k, arb(a), arb(h)) for k, a, h in points])] == kept


def test_a_product_asks_for_its_time() -> None:
    """Ten thousand masses in units of 2^-1000: half a second, of which a third is needed."""
    law = Law(0, [fmpz(1)] * 5_000, fmpz(0))
    asked: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lattice, "spend", asked.append)
        times(law, Law(0, [fmpz(1)], fmpz(0)), (1_000, 10_000, fmpq(0)))
    assert asked == [pytest.approx(5_001 * 28e-6)]
