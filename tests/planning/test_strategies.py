"""Strategies: the same rows for each, and the least noise that a search over the probability finds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from filet.accounting.accountant import account
from filet.accounting.terms import Analysis
from filet.planning.calibration import noise_for
from filet.planning.strategies import (
    FIXED_SIZE,
    IDEAL,
    MICROBATCHES,
    STRATEGIES,
    Strategy,
    at_probability,
    best_option,
    mean_passes,
)
from filet.planning.target import Target
from filet.scheme import CappedPoisson, Overflow

HARDWARE = CappedPoisson(3_000, 1.0, 48)
TARGET = Target.checked(2.0, 1e-5, "zero-out", "refined")


def test_passes_of_microbatches_equal_the_sum_over_batch_sizes() -> None:
    scheme = CappedPoisson(40, 0.3, 40)
    expected = sum(math.ceil(size / 7) * math.exp(scheme.log_batch_size_probability(size)) for size in range(41))
    assert mean_passes(scheme, 7) == pytest.approx(expected, rel=1e-12)


def test_names_policies_and_analyses_are_all_different() -> None:
    everything = (*STRATEGIES, FIXED_SIZE, MICROBATCHES, IDEAL)
    assert len({strategy.name for strategy in everything}) == len(everything)
    assert {(one.overflow, one.analysis) for one in STRATEGIES} == {
        (Overflow.REJECT, Analysis.REFINED), *((Overflow.TRUNCATE, one) for one in Analysis if one is not Analysis.SWAP)}  # fmt: skip


@pytest.mark.parametrize("strategy", [*STRATEGIES, FIXED_SIZE, MICROBATCHES, IDEAL], ids=lambda one: one.name)
def test_every_strategy_spends_the_same_rows(strategy: Strategy) -> None:
    scheme, steps, rows = at_probability(strategy, HARDWARE, 400, 0.012)
    assert 0.99 * 400 * 48 <= steps * rows <= 400 * 48 * (1 + 1e-12)
    assert scheme.max_batch_size == (3_000 if strategy in (MICROBATCHES, IDEAL) else 48)
    assert scheme.sampling_probability == 0.012


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.name)
@pytest.mark.long
def test_no_neighbouring_probability_is_less_noisy(strategy: Strategy) -> None:
    found = best_option(TARGET, strategy, HARDWARE, 400)
    assert found is not None
    assert found.epsilon <= 2.0
    words = replace(TARGET, analysis=found.analysis)
    for factor in (0.9, 0.97, 1.03, 1.1):
        scheme = replace(found.scheme, sampling_probability=factor * found.scheme.sampling_probability)
        noise = noise_for(words, scheme, 400)
        assert noise is None or noise / scheme.expected_batch_size >= found.effective_noise * (1 - 1.5e-3), factor


def test_an_option_is_certified_by_its_own_account() -> None:
    found = best_option(TARGET, MICROBATCHES, HARDWARE, 400)
    assert found is not None
    curve = account(found.scheme, noise_multiplier=found.noise_multiplier, steps=found.steps, adjacency="zero-out")
    assert curve.epsilon(1e-5) == found.epsilon <= 2.0
    assert math.isnan(found.ratio_to_ideal)  # known only beside the ideal


def test_what_no_noise_meets_is_none() -> None:
    hopeless = Target.checked(1e-9, 1e-30, "add-remove", "refined")
    assert best_option(hopeless, STRATEGIES[0], CappedPoisson(1_000, 1.0, 900), 10**7) is None
