"""Certified brackets: they contain every reference epsilon and the sums over all pairs, and are as narrow as promised."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.accounting.laws import Answers, bracket_near, law_of, rows

from filet import Adjacency, Analysis, CappedPoisson
from filet.accounting.proving.cells import Discrete, discretise_above, discretise_below
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.proving.theorems import loss_law
from filet.accounting.search.effort import TOLERANCE
from filet.accounting.search.grid import uniform_grid
from filet.accounting.search.solve import guess_epsilon

COMPOSED = rows("composed.csv")


def test_the_reference_table_is_large() -> None:
    assert len(COMPOSED) >= 60


@pytest.mark.parametrize("part", range(8))
def test_every_reference_epsilon_lies_in_its_certified_bracket(part: int) -> None:
    for row in COMPOSED[part::8]:
        with np.errstate(all="ignore"):
            bracket = Answers(law_of(row), int(row["steps"])).epsilon(float(row["delta"]))
        slack = float(row["epsilon"]) * 10.0 ** -float(row["digits"]) + 1e-15
        assert bracket.lower - slack <= float(row["epsilon"]) <= bracket.upper + slack, row
        assert not TOLERANCE.wide(*bracket), row
        assert bracket.upper <= float(row["epsilon"]) * (1 + 2e-4) + 0.8 * TOLERANCE.absolute, row


@pytest.mark.parametrize("part", range(4))
def test_every_reference_delta_lies_in_its_certified_bracket(part: int) -> None:
    for row in COMPOSED[part::16]:
        epsilon, delta = float(row["epsilon"]), float(row["delta"])
        with np.errstate(all="ignore"):
            bracket = Answers(law_of(row), int(row["steps"])).delta(epsilon)
        slack = epsilon * 10.0 ** -float(row["digits"]) + 1e-9 * delta  # delta has a slope of at most one
        assert bracket.lower - slack <= delta <= bracket.upper + slack, row


def pairs(law: Discrete, epsilon: float) -> float:
    """delta of two steps of a discrete law, by adding up all pairs."""
    loss = law.loss[:, None] + law.loss[None, :]
    log_mass = law.log_mass[:, None] + law.log_mass[None, :]
    finite = float((np.exp(log_mass) * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum())
    return finite + law.infinite * (2.0 - law.infinite)


TWO_STEPS = [(p, sigma, delta) for p in (1e-9, 1e-6, 1e-3, 0.3) for sigma in (0.3, 0.5, 1.0, 4.0)
             for delta in (1e-3, 1e-10, 1e-30)]  # fmt: skip


@pytest.mark.parametrize(("p", "sigma", "delta"), TWO_STEPS)
def test_two_steps_agree_with_adding_up_all_pairs(p: float, sigma: float, delta: float) -> None:
    n = round(1000 / p)
    law = loss_law(CappedPoisson(n, p, 1000), sigma, Adjacency.ZERO_OUT, Analysis.REFINED)
    for one in (law, law.reversed()):
        cells = uniform_grid(one, math.sqrt(2 * (math.log(2 / delta) + 10)), 0.1)
        high, low = discretise_above(cells), discretise_below(cells)
        above, below = LossPMF([(high, 2)], 0.0, True), LossPMF([(low, 2)], 0.0, False)
        start = guess_epsilon(above, math.log(delta))
        upper, lower = (
            float(bracket_near(above, delta, start).upper[0]),
            float(bracket_near(below, delta, start).lower[0]),
        )
        if upper < math.inf:
            assert pairs(high, upper) <= delta * (1 + 1e-9)
        if lower > 0:
            assert pairs(low, lower) >= delta * (1 - 1e-9)


GRID = [
    (p, sigma, steps, delta)
    for p in (1e-9, 1e-6, 1e-4, 1e-2, 0.5, 1.0)
    for sigma in (0.1, 0.5, 1.0, 3.0, 10.0, 100.0)
    for steps in (1, 2, 10, 100, 10**4, 10**7)
    for delta in (1e-2, 1e-5, 1e-10, 1e-30)
]


@pytest.mark.parametrize("part", range(6))
def test_a_slice_of_the_stress_grid_is_answered_within_the_promised_width(part: int) -> None:
    rng = np.random.default_rng(part)
    for index in rng.choice(len(GRID), 12, replace=False):
        p, sigma, steps, delta = GRID[index]
        n = round(1000 / p)
        sds = int(rng.choice([0, 2, 5]))
        cap = min(n, int(n * p + sds * math.sqrt(n * p * (1 - p))))
        overflow = str(rng.choice(["truncate", "reject"]))
        adjacency = list(Adjacency)[int(rng.integers(3))]
        scheme = CappedPoisson(n, p, cap, overflow)  # type: ignore[arg-type]
        law = loss_law(scheme, sigma, adjacency, Analysis.REFINED)
        with np.errstate(all="ignore"):
            bracket = Answers(law, steps).epsilon(delta)
        assert not TOLERANCE.wide(*bracket), (GRID[index], scheme, adjacency, bracket)
