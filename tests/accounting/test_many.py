"""Many questions to a whole run: what a single question proves, in any order and shape, with overflows and exposure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.accounting.test_run import Known, made
from tests.settings import SETTINGS

import filet
from filet import Adjacency, Analysis, Bounds, CappedPoisson, NotCertifiedError, account
from filet.accounting import many
from filet.accounting.searching import stretches
from filet.accounting.searching.refinement import wide

USUAL = CappedPoisson(10_000, 0.01, 120)
DELTAS = np.geomspace(1e-9, 1e-2, 12)


def curve(**changes: Any) -> filet.PrivacyCurve:
    words: dict[str, Any] = {"noise_multiplier": 1.0, "steps": 300, "adjacency": "add-remove", "analysis": "swap"}
    return account(changes.pop("scheme", USUAL), **words | changes)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_each_of_many_answers_is_that_of_a_single_question(adjacency: Adjacency, overflow: str) -> None:
    words: dict[str, Any] = {"adjacency": adjacency, "analysis": "swap" if overflow == "truncate" else "refined"}
    words["scheme"] = CappedPoisson(10_000, 0.01, 120, overflow)  # type: ignore[arg-type]
    found = curve(**words).epsilon_bounds(DELTAS)
    assert not wide(found).any()
    for i in (0, 5, 11):
        one = curve(**words).epsilon_bounds(float(DELTAS[i]))
        assert max(one.lower, found.lower[i]) <= min(one.upper, found.upper[i])
        back = curve(**words).delta_bounds(found.upper)
        assert back.lower[i] <= DELTAS[i] * (1 + 1e-9)
        one = curve(**words).delta_bounds(float(found.upper[i]))
        assert max(one.lower, back.lower[i]) <= min(one.upper, back.upper[i])


def test_order_shape_and_repetition_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    asked = rng.permutation(np.concatenate([DELTAS, DELTAS[:5]]))
    found = curve().epsilon_bounds(asked)
    whole = curve().epsilon_bounds(DELTAS)
    at = np.searchsorted(DELTAS, asked)
    assert found.upper == pytest.approx(whole.upper[at], rel=1e-12)
    square = curve().epsilon_bounds(asked[:16].reshape(4, 4))
    assert square.upper.shape == square.lower.shape == (4, 4)
    assert (
        np.maximum(square.lower.ravel(), found.lower[:16]) <= np.minimum(square.upper.ravel(), found.upper[:16])
    ).all()
    assert curve().epsilon(np.zeros((0, 3))).shape == (0, 3)
    assert curve().delta([]).shape == (0,)
    assert curve().true_positive_rate(np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("name", ["A", "D", "E"])
def test_where_lending_helps_a_curve_is_within_a_little_of_single_questions(name: str) -> None:
    s = SETTINGS[name]
    words: dict[str, Any] = {"noise_multiplier": s.sigma, "steps": s.steps, "adjacency": "zero-out"}
    asked = np.geomspace(1e-11, 1e-3, 9)
    found = account(s.scheme(), **words).epsilon_bounds(asked)
    assert not wide(found).any()
    for i in (0, 4, 8):
        assert found.upper[i] == pytest.approx(account(s.scheme(), **words).epsilon(float(asked[i])), rel=3e-4)
    assert (np.diff(found.upper) <= 0.0).all()


def test_overflows_count_for_each_delta() -> None:
    scheme = CappedPoisson(10_000, 0.01, 160)
    found = curve(scheme=scheme, analysis=Analysis.UNION).epsilon_bounds(DELTAS)
    for i in (0, 4, 11):
        one = curve(scheme=scheme, analysis=Analysis.UNION).epsilon_bounds(float(DELTAS[i]))
        assert max(one.lower, found.lower[i]) <= min(one.upper, found.upper[i]) or one.upper == found.upper[i]
    asked = np.array([0.5, 1.0, 2.0, 4.0, 900.0])
    deltas = curve(scheme=scheme, analysis=Analysis.UNION).delta_bounds(asked)
    for i, epsilon in enumerate(asked.tolist()):
        one = curve(scheme=scheme, analysis=Analysis.UNION).delta_bounds(epsilon)
        assert max(one.lower, deltas.lower[i]) <= min(one.upper, deltas.upper[i])


def test_steps_without_noise_count_for_each_delta() -> None:
    run = made(Known(), exposure=Bounds(0.9e-3, 1.1e-3))
    asked = np.array([5e-4, 1e-3, 0.01, 0.02, 0.1, 0.3])
    found = many.epsilons(run, asked)
    for i, delta in enumerate(asked.tolist()):
        assert (found.lower[i], found.upper[i]) == pytest.approx(run.epsilon(delta))
    grid = np.array([0.0, 0.5, 1.0, 3.0, 2e9])
    deltas = many.deltas(run, grid)
    for i, epsilon in enumerate(grid.tolist()):
        assert (deltas.lower[i], deltas.upper[i]) == pytest.approx(run.delta(epsilon))


def test_the_larger_direction_counts() -> None:
    asked = np.array([0.001, 0.01, 0.1, 0.2])
    found = many.epsilons(made(Known(), Known(0.5)), asked)
    assert found.upper == pytest.approx([-math.log(2 * delta) + 0.5 for delta in asked])
    deltas = many.deltas(made(Known(), Known(0.5)), np.array([0.5, 1.0, 2.0, 3.0]))
    assert deltas.upper == pytest.approx(many.deltas(made(Known(0.5)), np.array([0.5, 1.0, 2.0, 3.0])).upper)
    each = many.deltas_each(made(Known(), Known(0.5)), np.array([0.5, 1.0, 2.0, 3.0]))
    assert [one.upper[0] for one in each] == pytest.approx([0.5 * math.exp(-0.5) * 1.01, 0.5 * 1.01])


def test_nothing_costs_nothing() -> None:
    empty = made()
    assert many.epsilons(empty, DELTAS).upper.tolist() == [0.0] * 12
    assert many.deltas(empty, DELTAS).upper.tolist() == [0.0] * 12
    assert many.powers(empty, many.power_tables(empty), DELTAS).tolist() == DELTAS.tolist()


@pytest.mark.parametrize("steps", [1, 7])
def test_closed_forms_answer_many_questions_too(steps: int) -> None:
    for scheme in (USUAL, CappedPoisson(10, 1.0, 10)):
        found = curve(scheme=scheme, steps=steps).epsilon_bounds(DELTAS)
        for i in (0, 6, 11):
            one = curve(scheme=scheme, steps=steps).epsilon_bounds(float(DELTAS[i]))
            assert max(one.lower, found.lower[i]) <= min(one.upper, found.upper[i])
        back = curve(scheme=scheme, steps=steps).delta_bounds(found.upper)
        assert (back.lower <= DELTAS * (1 + 1e-6)).all()


def test_a_refusal_names_the_delta_that_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "epsilons", lambda _, deltas: (0.0 * deltas, np.full(deltas.shape, np.inf)))
    monkeypatch.setattr("filet.accounting.searching.refinement.Direction.epsilon", lambda *_: Bounds(0.0, math.inf))
    with pytest.raises(NotCertifiedError, match=r"epsilon at delta=1e-09 is only known"):
        curve().epsilon(DELTAS)


def test_the_power_of_tests_is_that_of_the_table_and_rises() -> None:
    one = curve()
    rates = np.geomspace(1e-6, 1.0, 50)
    powers = one.true_positive_rate(rates)
    assert (np.diff(powers) >= 0.0).all()
    assert (powers >= rates).all()
    assert float(powers[7]) == one.true_positive_rate(float(rates[7]))
    epsilon = one.epsilon(1e-5)
    assert (powers <= np.exp(epsilon) * rates + 1.1e-5).all()  # what epsilon and delta say by themselves


def test_more_questions_than_memory_allows_are_asked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "_MOST", 5)
    asked = np.geomspace(1e-9, 1e-2, 12)
    found, whole = curve().epsilon_bounds(asked), curve().epsilon_bounds(DELTAS)
    assert (np.maximum(found.lower, whole.lower) <= np.minimum(found.upper, whole.upper)).all()
