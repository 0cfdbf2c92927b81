"""Guesses for planning are about right, cheap to ask again, and never raise."""

from __future__ import annotations

import math

import pytest

from filet import Adjacency, Analysis, CappedPoisson, Phase, account
from filet.accounting.proving.closed_form import gaussian_log_delta
from filet.accounting.rough import Rough

SCHEMES = [
    CappedPoisson(60_000, 256 / 60_000, 300),
    CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject"),  # type: ignore[arg-type]
    CappedPoisson(50_000, 4096 / 50_000, 50_000),
]


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_guesses_of_ordinary_runs_are_within_a_tenth_of_log_delta(scheme: CappedPoisson, adjacency: Adjacency) -> None:
    rough = Rough(adjacency, math.log(1e-5))
    for noise in (1.5, 1.55):  # the second by the first's lending
        epsilon = account(scheme, noise_multiplier=noise, steps=2_000, adjacency=adjacency).epsilon(1e-5)
        assert abs(rough.log_delta(Phase(scheme, noise, 2_000), epsilon) - math.log(1e-5)) < 0.15


def test_every_example_at_every_step_is_a_gaussian() -> None:
    everybody = Phase(CappedPoisson(100, 1.0, 100), 2.0, 9)
    for adjacency, apart in ((Adjacency.ZERO_OUT, 1.0), (Adjacency.REPLACE_ONE, 2.0)):
        found = Rough(adjacency, math.log(1e-5)).log_delta(everybody, 4.0)
        assert found == gaussian_log_delta(apart * 3.0 / 2.0, 4.0)


def test_overflows_are_added_under_the_union_strategy() -> None:
    scheme = CappedPoisson(60_000, 256 / 60_000, 330)
    rough = Rough(Adjacency.ADD_REMOVE, math.log(1e-5))
    plain, union = (
        rough.log_delta(Phase(scheme, 1.0, 1_000, analysis), 1.0) for analysis in (Analysis.SWAP, Analysis.UNION)
    )
    overflow = 1_000 * math.exp(scheme.log_overflow_probability)
    assert union > plain
    assert math.exp(union) >= (1.0 + math.e) * overflow * 0.99


def test_beyond_floats_it_does_not_raise() -> None:
    for noise in (5e-324, 1e-9, 1e300):
        assert isinstance(Rough(Adjacency.ZERO_OUT, math.log(1e-5)).log_delta(Phase(SCHEMES[0], noise, 10), 1.0), float)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    "scheme", [*SCHEMES, CappedPoisson(60_000, 256 / 60_000, 256), CappedPoisson(500_000, 128 / 500_000, 140)]
)
def test_an_epsilon_is_guessed_within_a_part_in_a_thousand(scheme: CappedPoisson, adjacency: Adjacency) -> None:
    rough = Rough(adjacency, math.log(1e-5))
    for noise in (1.1, 1.15):  # the second by the first's lending
        epsilon = account(scheme, noise_multiplier=noise, steps=5_000, adjacency=adjacency).epsilon(1e-5)
        assert rough.epsilon(Phase(scheme, noise, 5_000)) == pytest.approx(epsilon, rel=1e-3)


def test_an_epsilon_that_no_sketch_shows_is_no_number() -> None:
    for noise in (5e-324, 1e-9, 1e300):
        assert math.isnan(Rough(Adjacency.ZERO_OUT, math.log(1e-5)).epsilon(Phase(SCHEMES[0], noise, 10)))
