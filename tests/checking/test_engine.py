"""The engine judged by the checker: random runs, whose exact delta is bracketed in ball arithmetic.

`epsilon_bounds(delta)` says: at `upper` the exact delta is at most delta, at `lower` at least. The checker's bracket must not
contradict either. The long form is `pytest -m slow tests/checking/test_engine.py`, with FILET_POINTS runs (700 unless
set), two sevenths of them extreme.
"""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import fmpq
from tests.checking.checking_bracket import bracket

import filet
from filet.accounting.certificate import Plan
from filet.checking import Claim

ADJACENCIES = ("add-remove", "zero-out", "replace-one")
KINDS = (("truncate", "swap"), ("truncate", "note"), ("reject", "refined"))
BUDGET = 60.0  # estimated seconds for one run; those that take longer are drawn again


def ordinary(rng: np.random.Generator, most_steps: float = 2e4) -> dict[str, Any]:
    n = round(10 ** rng.uniform(2, 7))
    p = 10 ** rng.uniform(-3.5, -0.5)
    return {
        "n": n,
        "p": p,
        "cap": max(1, round(n * p + rng.uniform(-1, 4) * math.sqrt(n * p * (1 - p)))),
        "sigma": 10 ** rng.uniform(-0.3, 0.8),
        "steps": round(10 ** rng.uniform(0, math.log10(most_steps))),
        "delta": 10 ** rng.uniform(-10, -3),
    }


def extreme(rng: np.random.Generator) -> dict[str, Any]:
    n = round(10 ** rng.uniform(0.3, 15))
    p = 10 ** rng.uniform(-12, 0)
    if rng.random() < 0.3:
        p = 1 - p
    return {
        "n": n,
        "p": p,
        "cap": max(1, round(n * p + rng.uniform(-5, 8) * math.sqrt(n * p * (1 - p)))),
        "sigma": 10 ** rng.uniform(-1.3, 2),
        "steps": round(10 ** rng.uniform(0, 6)),
        "delta": 10 ** rng.uniform(-60, -1),
    }


def judge(run: dict[str, Any], adjacency: str, overflow: str, analysis: str) -> tuple[float, float] | None:
    """log(delta / lower) at the engine's upper epsilon, log(upper / delta) at its lower one; None if too long or refused."""
    try:
        scheme = filet.CappedPoisson(run["n"], run["p"], run["cap"], overflow=overflow)
        curve = filet.account(scheme, noise_multiplier=run["sigma"], steps=run["steps"], adjacency=adjacency, analysis=analysis)  # fmt: skip
        bounds = curve.epsilon_bounds(run["delta"])
    except filet.FiletError:
        return None
    if not 1e-4 < bounds.upper < 600.0 or curve.phases[0].only_gaussian:
        return None
    try:
        plan = Plan.guess(curve, run["delta"], bounds.upper)
    except filet.FiletError:
        return None
    plan = replace(plan, spacing=0.35 * plan.spacing, fineness=2 * plan.fineness)
    span = 20 * (bounds.upper + plan.ranges[0][1]) / plan.spacing
    if 4e-6 * span * math.log2(run["steps"] + 2) > BUDGET:
        return None
    claim = plan.claim()[0]
    if Claim(claim).seconds > BUDGET:
        return None
    delta = fmpq(*run["delta"].as_integer_ratio())
    (lower, _), (_, upper) = bracket(claim, bounds.upper, bounds.lower)
    return _log(delta) - _log(lower), _log(upper) - _log(delta)


def _log(value: fmpq) -> float:
    """Natural logarithm of a fraction far beyond floats."""
    return math.log(int(value.p)) - math.log(int(value.q)) if value > 0 else -math.inf


def judged(count: int, seed: int, draw: Any) -> list[tuple[float, float]]:
    rng = np.random.default_rng(seed)
    margins: list[tuple[float, float]] = []
    while len(margins) < count:
        run = draw(rng)
        kind = (ADJACENCIES[rng.integers(3)], *KINDS[rng.integers(3)])
        found = judge(run, *kind)
        if found is None:
            continue
        assert found[0] >= 0.0, f"the engine's upper bound is too low: {run}, {kind}, {found}"
        assert found[1] >= 0.0, f"the engine's lower bound is too high: {run}, {kind}, {found}"
        margins.append(found)
    return margins


def report(margins: list[tuple[float, float]]) -> float:
    """Print the smallest margins, and return the share of runs in which the bracket is within 10 % of delta."""
    for name, values in zip(("above", "below"), zip(*margins, strict=True), strict=True):
        print(
            f"{name}: {len(values)} runs, smallest margin of log delta {min(values):.2e}, median {np.median(values):.2e}"
        )
    return float(np.mean([first < 0.1 and second < 0.1 for first, second in margins]))


@pytest.mark.long
def test_the_engine_agrees_with_ball_arithmetic() -> None:
    margins = judged(20, 1, lambda rng: ordinary(rng, most_steps=1e3))
    assert report(margins) > 0.6


@pytest.mark.slow
def test_the_engine_agrees_with_ball_arithmetic_at_many_points() -> None:
    count = int(os.environ.get("FILET_POINTS", "700"))
    margins = judged(count - 2 * count // 7, 2, ordinary)
    assert report(margins) > 0.6
    report(judged(2 * count // 7, 3, extreme))


def test_an_engine_that_is_too_low_would_be_noticed() -> None:
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    curve = filet.account(scheme, noise_multiplier=1.0, steps=50, adjacency="add-remove", analysis="swap")
    epsilon = curve.epsilon_bounds(1e-5).upper
    plan = Plan.guess(curve, 1e-5, epsilon)
    claim = replace(plan, spacing=0.35 * plan.spacing, fineness=2 * plan.fineness).claim()[0]
    ((lower, upper),) = bracket(claim, 0.998 * epsilon)
    assert fmpq(1, 10**5) < lower < upper
