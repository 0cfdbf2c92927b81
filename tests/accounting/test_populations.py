"""Lending against exact divergences of populations, at sizes where it lowers the profile; the search can fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests import lending_cases as cases
from tests.enumeration import ADJACENCIES
from tests.populations import (
    ROUNDING,
    Found,
    Mechanism,
    Population,
    divergences,
    mixtures,
    search,
    some_epsilons,
    some_mechanism,
    some_population,
    turned,
)

from filet.accounting.proving import lending
from filet.accounting.search.lending import choose_shares


def bounds(m: Mechanism, eps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both directions of the bound and of Theorem 2, point by point."""
    step = cases.make(m.n, m.p, m.B, m.sigma, m.adjacency)
    shares, scale = choose_shares(step), np.exp(eps)
    both = [lending.profile_excess(step, at, *shares.at(at)) for at in (eps, -eps)]
    swap = [lending.swap_excess(step, at) for at in (eps, -eps)]
    return np.append(both[0], both[1] * scale), np.append(swap[0], swap[1] * scale)


def found_by(seed: int, mechanisms: int, starts: int, climbs: int) -> Found:
    with np.errstate(all="ignore"):
        return search(bounds, np.random.default_rng(seed), mechanisms, starts, climbs)


@pytest.mark.long
def test_no_population_violates_the_bound() -> None:
    found = found_by(20, mechanisms=12, starts=3, climbs=1)
    assert found.margin < ROUNDING, found.worst
    assert found.divergences > 500
    assert found.active > 100
    assert found.closest > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("part", range(25))
def test_long_no_population_violates_the_bound(part: int) -> None:
    """All parts together: more than 100,000 divergences."""
    found = found_by(1_000 + part, mechanisms=40, starts=4, climbs=4)
    assert found.margin < ROUNDING, found.worst
    assert found.divergences > 4_000


@pytest.mark.long
def test_a_bound_that_is_too_low_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With twice the negative mass at the top, some populations lose more than the bound."""
    whole = lending.cover
    monkeypatch.setattr(lending, "cover", lambda *given: (2.0 * whole(*given)[0], 0.0 * whole(*given)[1]))
    assert found_by(21, mechanisms=10, starts=3, climbs=0).margin > 1e-6


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_others_orthogonal_to_x_nearly_attain_the_bound(adjacency: str) -> None:
    """So a bound that is one percent too low would be noticed."""
    m = Mechanism(400, 40 / 400, 55, 1.0, adjacency)
    people = Population((1.0, 0.0), (-1.0, 0.0), (m.n - 1,), (turned(math.pi / 2),))
    eps = np.log1p(m.p * np.expm1(np.array([0.5, 1.0, 1.5])))
    value, _ = divergences(m, people, eps, finer=2.0)
    with np.errstate(all="ignore"):
        bound, swap = bounds(m, eps)
    assert (value[:3] / bound[:3] > 0.99).any()
    assert (value <= bound).all()
    assert (bound[:3] < swap[:3]).all()


def test_mixtures_are_those_of_batches_that_are_drawn() -> None:
    m = Mechanism(30, 0.4, 10, 1.0, "replace-one")
    people = Population((1.0, 0.0), (0.0, 1.0), (12, 17), ((0.5, 0.5), (-0.3, 0.9)))
    means, weights = mixtures(m, people)
    assert np.allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    rng = np.random.default_rng(8)
    data = np.array([people.x] + [people.vectors[0]] * 12 + [people.vectors[1]] * 17)
    batches = [rng.permutation(np.flatnonzero(rng.uniform(size=m.n) < m.p))[: m.B] for _ in range(20_000)]
    sums = np.array([data[batch].sum(axis=0) for batch in batches])
    expected = weights[0] @ means
    spread = np.sqrt(weights[0] @ means**2 - expected**2)
    assert (np.abs(sums.mean(axis=0) - expected) < 5 * spread / math.sqrt(len(batches))).all()
    assert np.allclose((sums**2).mean(axis=0), weights[0] @ means**2, rtol=0.05)


def test_finer_cells_only_raise_divergences() -> None:
    rng = np.random.default_rng(9)
    for _ in range(6):
        m = some_mechanism(rng)
        people, eps = some_population(m, rng), some_epsilons(m, rng)
        once, size = divergences(m, people, eps)
        twice, _ = divergences(m, people, eps, finer=2.0)
        assert (twice >= once - 1e-3 * size).all()
        assert (np.abs(twice - once) <= 4e-3 * size).all()
