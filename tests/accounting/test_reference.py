"""The reference against closed forms, against itself by other routes, and against its stored tables."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf
from tests.reference import exact, few_steps, profile_float

TABLES = Path(__file__).parents[1] / "reference" / "tables"
STEP = ("n", "p", "B", "sigma", "overflow", "adjacency", "analysis", "direction")
KINDS = {"n": int, "B": int, "steps": int, "p": float, "sigma": float}
# Figures printed elsewhere, to be reproduced: the larger direction, settings A to E.
FIGURES = {
    ("none", "add-remove", "poisson"): (2.81572, 6.57890, 3.40317, 0.64403, 2.81572),
    ("none", "zero-out", "poisson"): (2.81572, 6.57890, 3.40317, 0.64403, 2.81572),
    ("none", "replace-one", "poisson"): (4.83309, 14.71120, 7.10815, 0.96007, 4.83309),
    ("truncate", "add-remove", "note"): (4.56715, 7.27084, 3.76842, 5.67291, 14.56534),
    ("truncate", "add-remove", "refined"): (2.86517, 7.24585, 3.75939, 3.68924, 9.09122),
    ("truncate", "zero-out", "note"): (4.57646, 8.00776, 4.08992, 5.67612, 15.00145),
    ("truncate", "zero-out", "refined"): (2.85175, 6.71409, 3.50859, 3.53819, 7.84232),
    ("truncate", "replace-one", "note"): (5.67985, 15.96867, 7.69144, 5.72554, 17.86201),
    ("truncate", "replace-one", "refined"): (4.87560, 15.01265, 7.31769, 3.76136, 11.96719),
    ("reject", "add-remove", "refined"): (2.81531, 6.62400, 3.40997, 0.64399, 2.78190),
    ("reject", "zero-out", "refined"): (2.81475, 6.57318, 3.40172, 0.64396, 2.74078),
    ("reject", "replace-one", "refined"): (4.83132, 14.69733, 7.10498, 0.95992, 4.69668),
}


def table(name: str) -> list[dict[str, Any]]:
    with (TABLES / f"{name}.csv").open() as lines:
        rows = csv.DictReader(line for line in lines if not line.startswith("#"))
        return [{k: KINDS.get(k, str)(v) for k, v in row.items()} for row in rows]


def small(rows: list[dict[str, Any]], every: int) -> list[dict[str, Any]]:
    """Every so many of the rows whose binomial sums are quick."""
    return [row for row in rows if row["n"] < 100_000][::every]


def step(row: dict[str, Any]) -> dict[str, Any]:
    return {k: row[k] for k in STEP}


@pytest.mark.long
def test_profiles_reproduce_the_table() -> None:
    for row in small(table("profiles"), 2):
        found, stored = exact.profile(float(row["epsilon"]), **step(row)), mpf(row["delta"])
        assert abs(found - stored) <= mpf(10) ** -19 * stored


@pytest.mark.long
def test_closed_forms_and_laws_agree() -> None:
    for row in small(table("profiles"), 9):
        eps = float(row["epsilon"])
        assert abs(exact.profile(eps, **step(row)) - exact.law_profile(exact.law(**step(row)), eps)) < mpf(10) ** -40


@pytest.mark.long
def test_float_profiles_agree() -> None:
    for row in small(table("profiles"), 2):
        eps = float(row["epsilon"])
        # 1 - tau and its like lose digits to cancellation; nothing here needs more than this.
        assert abs(float(profile_float.profile(eps, **step(row))) - float(row["delta"])) < 1e-14 * (1 + np.exp(eps))


def test_profiles_are_profiles() -> None:
    """Convex and nonincreasing in a, at least [1-a]_+, 1 at a = 0."""
    a = np.exp(np.linspace(-4, 4, 401))
    for overflow, adjacency, analysis in exact.COMBINATIONS:
        for n, p, B, sigma in [(6, 0.5, 3, 0.6), (1000, 0.02, 21, 1.0), (5, 0.9, 1, 2.0)]:
            h = profile_float.profile(
                np.log(a), n=n, p=p, B=B, sigma=sigma, overflow=overflow, adjacency=adjacency, analysis=analysis
            )
            slopes = np.diff(h) / np.diff(a)
            assert (h >= np.maximum(1 - a, 0) - 1e-15).all()
            assert (slopes < 1e-12).all()
            assert (np.diff(slopes) > -1e-11).all()


@pytest.mark.long
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize(("overflow", "adjacency", "analysis"), exact.COMBINATIONS)
def test_laws_have_mass_one(overflow: str, adjacency: str, analysis: str, direction: str) -> None:
    """E_P 1 = 1 and E_P e^{-L} = 1, through the same quadrature off the real axis that the composition uses."""
    law = exact.law(
        n=50, p=0.3, B=17, sigma=0.9, overflow=overflow, adjacency=adjacency, analysis=analysis, direction=direction
    )
    composed = exact.Composed(law, 10)
    assert abs(composed.mgf(0) - 1) < 1e-32
    assert abs(composed.mgf(-1) - 1) < 1e-32


@pytest.mark.parametrize(("sigma", "steps", "eps"), [(1.0, 2, 1.0), (3.0, 50, 4.0), (20.0, 1000, 1.5)])
def test_gaussian_closed_form(sigma: float, steps: int, eps: float) -> None:
    composed = exact.Composed(exact.law(n=10, p=1.0, B=10, sigma=sigma), steps)
    mu = mp.sqrt(steps) / mpf(sigma)
    truth = exact.Phi(mu / 2 - eps / mu) - mp.exp(eps) * exact.Phi(-mu / 2 - eps / mu)
    assert abs(composed.delta(eps) / truth - 1) < 1e-24


@pytest.mark.long
def test_two_steps_against_convolution() -> None:
    """Three routes for two steps of plain Poisson: direct quadrature, repeated convolution, and the stored epsilon."""
    law = exact.law(n=10, p=0.3, B=10, sigma=1.0, overflow="none", analysis="poisson")
    kw = {"n": 10, "p": 0.3, "B": 10, "sigma": 1.0, "analysis": "poisson"}
    direct = few_steps.two_steps(law, 1.0, digits=12, profile=lambda e: exact.profile(e, **kw))
    assert abs(few_steps.PoissonLoss(0.3, 1.0, 2).delta(1.0) / float(direct) - 1) < 1e-11


@pytest.mark.long
def test_convolution_against_the_transform() -> None:
    """Ordinary parameters, where both work, both directions."""
    loss = few_steps.PoissonLoss(0.2, 1.5, 16)
    for direction in ("forward", "reverse"):
        law = exact.law(n=10, p=0.2, B=10, sigma=1.5, overflow="none", analysis="poisson", direction=direction)
        assert abs(loss.delta(0.8, direction) / float(exact.Composed(law, 16, digits=14).delta(0.8)) - 1) < 1e-10


@pytest.mark.long
def test_composed_reproduce_the_table() -> None:
    named = [row for row in table("composed") if row["part"] == "named"]
    for row in [named[6], named[7 + 24]]:
        found = exact.Composed(exact.law(**step(row)), row["steps"]).epsilon(float(row["delta"]))
        assert abs(found / mpf(row["epsilon"]) - 1) < 1e-19


def test_table_contains_the_published_figures() -> None:
    rows = [row for row in table("composed") if row["part"] == "named"]
    settings = list(dict.fromkeys((row["n"], row["B"]) for row in rows))
    assert len(settings) == 5
    for combination, figures in FIGURES.items():
        for (n, B), figure in zip(settings, figures, strict=True):
            found = [
                float(row["epsilon"])
                for row in rows
                if (row["n"], row["B"]) == (n, B)
                and (row["overflow"], row["adjacency"], row["analysis"]) == combination
            ]
            assert len(found) == 2
            assert abs(max(found) - figure) < 6e-6, (combination, n, B)


@pytest.mark.slow
def test_every_composed_row_reproduces() -> None:
    for row in table("composed"):
        if row["part"] in ("named", "random"):
            # A smaller tilt: with a larger one rare large losses may outweigh all else by e^1,000,000.
            composed = exact.Composed(exact.law(**step(row)), row["steps"], digits=16, lean=0.95)
            found = composed.epsilon(float(row["delta"]))
            assert abs(found / mpf(row["epsilon"]) - 1) < 1e-13
