"""The words of accounting: strings where filet asks for them, and what a phase knows of itself."""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from filet import Adjacency, Analysis, Bounds, CappedPoisson, InvalidArgumentError, Phase


def test_members_are_their_strings() -> None:
    assert [str(a) for a in Adjacency] == ["add-remove", "zero-out", "replace-one"]
    assert [str(a) for a in Analysis] == ["refined", "swap", "note", "union"]
    assert Adjacency("zero-out") is Adjacency.ZERO_OUT
    assert Analysis("note") is Analysis.NOTE


def test_bounds_are_a_pair() -> None:
    lower, upper = Bounds(1.0, 2.0)
    assert (lower, upper) == Bounds(1.0, 2.0) == (1.0, 2.0)
    assert Bounds(lower=0.5, upper=1.0).upper == 1.0


def test_a_phase_counts_the_steps_in_which_one_example_can_take_part() -> None:
    for cycle, steps, rounds in ((1, 7, 7), (4, 8, 2), (4, 9, 3), (4, 1, 1), (4, 0, 0)):
        scheme = CappedPoisson(1000, 0.1, 30, cycle_length=cycle)
        assert Phase(scheme, 1.0, steps).rounds == rounds


def test_only_a_phase_that_uses_every_example_is_gaussian() -> None:
    assert Phase(CappedPoisson(10, 1.0, 10), 1.0, 3).only_gaussian
    assert Phase(CappedPoisson(40, 1.0, 10, cycle_length=4), 1.0, 3).only_gaussian
    assert not Phase(CappedPoisson(10, 1.0, 9), 1.0, 3).only_gaussian
    assert not Phase(CappedPoisson(10, 0.99, 10), 1.0, 3).only_gaussian


def test_comparisons_are_for_truncation_only() -> None:
    reject = CappedPoisson(100, 0.1, 20, "reject")  # type: ignore[arg-type]
    for analysis in (Analysis.SWAP, Analysis.NOTE, Analysis.UNION):
        with pytest.raises(
            InvalidArgumentError, match=r"^analysis='.*' is for overflow='truncate', not 'reject'; pass"
        ):
            Phase(reject, 1.0, 1, analysis)
    assert Phase(reject, 1.0, 1).analysis is Analysis.REFINED


@pytest.mark.parametrize(("n", "p", "cap", "cycle"), [(1000, 1e-6, 50, 1), (1000, 0.3, 310, 1), (50, 0.9, 45, 5)])
def test_exposure_is_the_chance_that_some_batch_holds_the_example(n: int, p: float, cap: int, cycle: int) -> None:
    scheme = CappedPoisson(n, p, cap, cycle_length=cycle)
    phase = Phase(scheme, 0.0, 11)
    with mp.workdps(40):
        exact = -phase.rounds * mp.log1p(-mp.mpf(scheme.inclusion_probability))
    assert phase.noiseless_exponent == pytest.approx(float(exact), rel=1e-14)
    # the union strategy is about plain Poisson sampling, and counts overflows apart
    assert Phase(scheme, 0.0, 11, Analysis.UNION).noiseless_exponent == pytest.approx(-phase.rounds * math.log1p(-p))
    assert Phase(CappedPoisson(10, 1.0, 10), 0.0, 1).noiseless_exponent == math.inf


@pytest.mark.parametrize(("n", "p", "cap"), [(100, 0.1, 40), (100, 0.1, 20), (100, 0.1, 10), (60, 0.9, 20)])
def test_overflow_is_the_chance_that_any_batch_is_too_large(n: int, p: float, cap: int) -> None:
    scheme = CappedPoisson(n, p, cap)
    with mp.workdps(60):
        fits = mp.fsum(mp.binomial(n, k) * mp.mpf(p) ** k * (1 - mp.mpf(p)) ** (n - k) for k in range(cap + 1))
        exact = float(-5 * mp.log(fits))
    assert Phase(scheme, 1.0, 5, Analysis.UNION).overflow_exponent == pytest.approx(exact, rel=1e-9)
    assert Phase(scheme, 1.0, 5).overflow_exponent == 0.0
    assert Phase(CappedPoisson(10, 1.0, 5), 1.0, 5, Analysis.UNION).overflow_exponent == math.inf
