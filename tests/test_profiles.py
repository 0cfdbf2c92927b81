"""One-step loss laws: against the 50-digit table, the note's sum and limits."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from filet import Adjacency, Analysis, CappedPoisson
from filet.binomial import log_pmf
from filet.kernel import LossLaw
from filet.profiles import cap_weights, loss_law

TABLES = Path(__file__).parent / "reference" / "tables"


def rows(name: str) -> list[dict[str, str]]:
    with (TABLES / name).open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def law_of(row: dict[str, Any]) -> LossLaw:
    n, p, sigma = int(row["n"]), float(row["p"]), float(row["sigma"])
    plain = row["analysis"] == "poisson"
    scheme = CappedPoisson(n, p, n if plain else int(row["B"]), "truncate" if plain else row["overflow"])  # type: ignore[arg-type]
    law = loss_law(scheme, sigma, Adjacency(row["adjacency"]), Analysis("refined" if plain else row["analysis"]))
    return law if row["direction"] == "forward" else law.reversed()


def profile(law: LossLaw, epsilon: np.ndarray) -> np.ndarray:
    """H at any real epsilon; below zero by the other direction."""
    above = law.profile(np.maximum(epsilon, 0.0))
    below = law.reversed().profile(np.maximum(-epsilon, 0.0))
    return np.where(epsilon >= 0, above, -np.expm1(epsilon) + np.exp(epsilon) * below)


def test_every_row_of_the_reference_profiles_is_matched() -> None:
    table = rows("profiles.csv")
    assert len(table) > 400
    for row in table:
        value = float(profile(law_of(row), np.array([float(row["epsilon"])]))[0])
        assert value == pytest.approx(float(row["delta"]), rel=1e-9), row


@pytest.mark.parametrize(("n", "p", "cap"), [(50, 0.3, 17), (200, 0.9, 150), (1000, 0.01, 8), (300, 1.0, 20)])
def test_the_closed_form_of_the_conditional_rate_equals_the_notes_sum(n: int, p: float, cap: int) -> None:
    tail = [math.exp(log_pmf(s, n - 1, p)) for s in range(cap, n)]
    expected = p * sum(v * cap / (s + 1) for s, v in zip(range(cap, n), tail, strict=True)) / sum(tail)
    assert cap_weights(n, p, cap).q == pytest.approx(expected, rel=1e-12)


SIGMAS = (0.1, 0.7, 1.0, 10.0)
EPSILONS = np.array([-2.0, -0.5, -1e-3, 0.0, 1e-4, 0.01, 0.3, 1.0, 4.0])


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_a_cap_that_never_binds_is_plain_poisson(adjacency: Adjacency, overflow: str) -> None:
    for cap in (40, 41, 1000):
        scheme = CappedPoisson(40, 0.3, cap, overflow)  # type: ignore[arg-type]
        plain = CappedPoisson(40, 0.3, 10**6)
        for analysis in Analysis if overflow == "truncate" else [Analysis.REFINED]:
            assert loss_law(scheme, 1.0, adjacency, analysis) == loss_law(plain, 1.0, adjacency, Analysis.REFINED)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_always_truncating_is_fixed_size_sampling_at_twice_the_distance(sigma: float) -> None:
    law = loss_law(CappedPoisson(50, 1.0, 20), sigma, Adjacency.ADD_REMOVE, Analysis.REFINED)
    doubled = loss_law(CappedPoisson(50, 20 / 50, 50), sigma / 2, Adjacency.ADD_REMOVE, Analysis.REFINED)
    assert profile(law, EPSILONS) == pytest.approx(profile(doubled, EPSILONS), rel=1e-10, abs=1e-300)


def combinations() -> Iterator[tuple[CappedPoisson, float, Adjacency]]:
    for n, p, cap in [(5, 0.5, 2), (60, 0.5, 30), (1000, 0.01, 12), (60_000, 256 / 60_000, 300), (10**9, 1e-6, 1010)]:
        for sigma in SIGMAS:
            for adjacency in Adjacency:
                yield CappedPoisson(n, p, cap), sigma, adjacency


def test_refined_is_never_above_the_note() -> None:
    for scheme, sigma, adjacency in combinations():
        refined = profile(loss_law(scheme, sigma, adjacency, Analysis.REFINED), EPSILONS)
        note = profile(loss_law(scheme, sigma, adjacency, Analysis.NOTE), EPSILONS)
        assert (refined <= note * (1 + 1e-9) + 1e-15).all(), (scheme, sigma, adjacency)


def test_reject_is_never_above_plain_poisson_when_sizes_are_equal() -> None:
    for scheme, sigma, adjacency in combinations():
        if adjacency is Adjacency.ADD_REMOVE:
            continue
        n, p = scheme.dataset_size, scheme.sampling_probability
        reject = loss_law(CappedPoisson(n, p, scheme.max_batch_size, "reject"), sigma, adjacency, Analysis.REFINED)  # type: ignore[arg-type]
        plain = loss_law(CappedPoisson(n, p, n), sigma, adjacency, Analysis.REFINED)
        assert (profile(reject, EPSILONS) <= profile(plain, EPSILONS) * (1 + 1e-9) + 1e-15).all()


def test_profiles_are_convex_decreasing_and_above_the_trivial_bound() -> None:
    a = np.exp(np.linspace(-3.0, 3.0, 241))
    for scheme, sigma, adjacency in combinations():
        for analysis in (Analysis.REFINED, Analysis.NOTE):
            values = profile(loss_law(scheme, sigma, adjacency, analysis), np.log(a))
            slopes = np.diff(values) / np.diff(a)
            assert (slopes <= 1e-12).all()
            assert (np.diff(slopes) >= -1e-9).all()
            assert (values >= np.maximum(0.0, 1.0 - a) - 1e-12).all()


def test_p_and_q_have_unit_mass() -> None:
    for scheme, sigma, adjacency in combinations():
        for overflow in ("truncate", "reject"):
            capped = CappedPoisson(scheme.dataset_size, scheme.sampling_probability, scheme.max_batch_size, overflow)  # type: ignore[arg-type]
            law = loss_law(capped, sigma, adjacency, Analysis.REFINED)
            ends = [np.array([piece.low, piece.high]) for piece in law.pieces]
            masses = [piece.masses(x) for piece, x in zip(law.pieces, ends, strict=True)]
            for which in (0, 1):
                total = sum(float(m[which][0]) for m in masses) + sum((a.p, a.q)[which] for a in law.atoms)
                assert total == pytest.approx(1.0, abs=1e-12), (capped, sigma, adjacency)
