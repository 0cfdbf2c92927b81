"""A run: how phases, releases, overflows and steps without noise come together, for many questions at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from tests.accounting.laws import NOTHING
from tests.settings import SETTINGS

import filet
from filet import Adjacency, Analysis, Bounds, CappedPoisson, NotCertifiedError, Phase, account
from filet.accounting.proving.closed_form import gaussian_log_delta
from filet.accounting.run import Run
from filet.accounting.search.effort import TOLERANCE
from filet.accounting.terms import Brackets

USUAL = CappedPoisson(10_000, 0.01, 120)
ALL = CappedPoisson(10, 1.0, 10)
DELTAS = np.geomspace(1e-9, 1e-2, 12)


def run(*phases: Phase, releases: Sequence[tuple[float, int]] = (), adjacency: Adjacency = Adjacency.ZERO_OUT) -> Run:
    return Run(phases, releases, adjacency)


def epsilon(one: Run, delta: float) -> Bounds:
    return Bounds(*(float(end[0]) for end in one.epsilons(np.array([delta]))))


def delta(one: Run, epsilon: float) -> Bounds:
    return Bounds(*(float(end[0]) for end in one.deltas(np.array([epsilon]))))


def power(one: Run, rate: float) -> float:
    return float(one.powers(one.power_tables(), np.array([rate]))[0])


def overlap(one: Any, other: Any) -> bool:
    """Both hold the same numbers, so they have some in common."""
    return bool((np.maximum(one.lower, other.lower) <= np.minimum(one.upper, other.upper)).all())


def curve(**changes: Any) -> filet.PrivacyCurve:
    words: dict[str, Any] = {"noise_multiplier": 1.0, "steps": 300, "adjacency": "add-remove", "analysis": "swap"}
    return account(changes.pop("scheme", USUAL), **words | changes)


# --- what is composed -------------------------------------------------------------------------------------------------


def test_phases_without_steps_or_with_infinite_noise_cost_nothing() -> None:
    empty = run(Phase(USUAL, 1.0, 0), Phase(USUAL, math.inf, 9), Phase(USUAL, 0.0, 0))
    assert empty.silent
    assert (empty.overflow, empty.noiseless) == (NOTHING, NOTHING)
    assert epsilon(empty, 1e-5) == Bounds(0.0, 0.0)
    assert delta(empty, 0.0) == Bounds(0.0, 0.0)
    assert [one.upper.tolist() for one in empty.deltas_each_order(np.array([1.0]))] == [[0.0]]
    assert power(empty, 0.3) == 0.3
    assert empty.epsilons(DELTAS).upper.tolist() == [0.0] * 12


@pytest.mark.parametrize(("adjacency", "count"), [("add-remove", 2), ("zero-out", 2), ("replace-one", 1)])
@pytest.mark.parametrize("steps", [1, 5])
def test_a_run_has_two_orders_unless_both_are_the_same(adjacency: str, count: int, steps: int) -> None:
    one = run(Phase(USUAL, 1.0, steps), adjacency=Adjacency(adjacency))
    at = np.array([0.2, 1.0])
    each = one.deltas_each_order(at)
    assert len(each) == len(one.power_tables()) == count
    whole = one.deltas(at)
    assert overlap(whole, Brackets(*(np.max([getattr(o, e) for o in each], axis=0) for e in ("lower", "upper"))))
    alone = run(Phase(ALL, 1.0, 5), adjacency=Adjacency(adjacency))
    assert len(alone.deltas_each_order(at)) == 1


@pytest.mark.parametrize(("adjacency", "distance"), [("zero-out", 1.0), ("replace-one", 2.0)])
def test_phases_that_use_every_example_are_one_gaussian_mechanism(adjacency: str, distance: float) -> None:
    both = run(Phase(ALL, 2.0, 3), Phase(ALL, 5.0, 50), releases=[(2.0, 1), (4.0, 3)], adjacency=Adjacency(adjacency))
    mu = math.sqrt(1 / 4 + 3 / 16 + distance**2 * (3 / 4 + 50 / 25))
    found = delta(both, 1.5)
    assert found.lower <= math.exp(gaussian_log_delta(mu, 1.5)) <= found.upper
    assert found.upper == pytest.approx(found.lower, rel=1e-8)
    many = run(*[Phase(ALL, 1e8, 1)] * 2000, Phase(ALL, 1.0, 1))  # rounded up, in any order
    first = run(Phase(ALL, 1.0, 1), *[Phase(ALL, 1e8, 1)] * 2000)
    exact = math.exp(gaussian_log_delta(math.sqrt(1 + 2000e-16), 36.0))
    for one in (many, first):
        assert delta(one, 36.0).lower <= exact <= delta(one, 36.0).upper


def test_a_release_beside_a_phase_costs_more_than_the_phase_and_less_than_both_apart() -> None:
    alone, beside = run(Phase(USUAL, 1.0, 50)), run(Phase(USUAL, 1.0, 50), releases=[(8.0, 2)])
    release = run(releases=[(8.0, 2)])
    assert epsilon(alone, 1e-5).upper < epsilon(beside, 1e-5).lower
    assert epsilon(beside, 1e-5).upper < epsilon(alone, 5e-6).upper + epsilon(release, 5e-6).upper


def test_gaussian_releases_with_too_little_noise_are_refused() -> None:
    with pytest.raises(OverflowError):
        run(Phase(ALL, 1e-200, 1))
    with pytest.raises(OverflowError):
        run(releases=[(1e-200, 1)])


def test_a_release_without_noise_shows_everything() -> None:
    for shown in (run(releases=[(0.0, 1)]), run(Phase(USUAL, 1.0, 5), releases=[(2.0, 1), (0.0, 3)])):
        assert shown.noiseless == Bounds(pytest.approx(1.0), 1.0)
        assert epsilon(shown, 0.5) == Bounds(math.inf, math.inf)
        assert delta(shown, 9.0).lower > 1 - 1e-12
        assert power(shown, 0.0) == 1.0


def test_steps_without_noise_show_the_example_with_their_chance() -> None:
    shown = run(Phase(CappedPoisson(10**6, 1e-9, 10), 0.0, 100))
    assert shown.silent
    assert shown.noiseless.lower <= 1e-7 * (1 - 49.5e-9) <= shown.noiseless.upper
    assert epsilon(shown, 1e-6) == Bounds(0.0, 0.0)  # hardly ever
    assert epsilon(shown, 1e-8) == Bounds(math.inf, math.inf)
    assert delta(shown, 50.0) == delta(shown, 0.0) == pytest.approx((1e-7, 1e-7), rel=1e-6)
    assert power(shown, 0.0) == pytest.approx(1e-7, rel=1e-6)


def test_steps_without_noise_take_their_chance_from_delta() -> None:
    rare = Phase(CappedPoisson(10**6, 1e-9, 10), 0.0, 100)
    plain, mixed = run(Phase(USUAL, 1.0, 50)), run(Phase(USUAL, 1.0, 50), rare)
    asked, hit = np.array([5e-8, 1e-6, 1e-4]), mixed.noiseless
    found = mixed.epsilons(asked)
    assert (found.lower[0], found.upper[0]) == (math.inf, math.inf)
    assert found.upper[1:] == pytest.approx(plain.epsilons(asked[1:] - hit.upper).upper, rel=1e-3)
    assert (found.lower[1:] <= plain.epsilons(asked[1:]).upper).all()
    grid = np.array([0.0, 0.5, 1.0, 3.0, 2e9])
    deltas, without = mixed.deltas(grid), plain.deltas(grid)
    assert (deltas.upper >= without.upper + hit.lower).all()
    assert (deltas.upper <= without.upper + 1.001 * hit.upper).all()
    assert (deltas.lower == np.maximum(without.lower, hit.lower)).all()


# --- the union strategy -----------------------------------------------------------------------------------------------


def test_the_union_strategy_solves_for_the_epsilon_that_pays_for_its_overflows() -> None:
    union = run(Phase(CappedPoisson(10_000, 0.01, 160), 1.0, 50, Analysis.UNION))
    plain = run(Phase(CappedPoisson(10_000, 0.01, 10_000), 1.0, 50))
    overflow = union.overflow.upper
    found = union.epsilons(DELTAS)
    assert (found.lower <= found.upper).all()
    for one, upper in zip(DELTAS.tolist(), found.upper.tolist(), strict=True):
        if upper < math.inf:
            cost = delta(plain, upper).lower + (1 + math.exp(upper)) * overflow
            assert cost <= one * (1 + 1e-9)
            assert cost == pytest.approx(one, rel=1e-2)
    assert epsilon(union, 1.9 * overflow) == Bounds(math.inf, math.inf)
    at = np.array([2.0, 701.0, 1e13])
    deltas = union.deltas(at)
    assert deltas.upper[0] == pytest.approx(delta(plain, 2.0).upper + (1 + math.exp(2.0)) * overflow, rel=1e-6)
    assert deltas.upper[1:].tolist() == [1.0, 1.0]
    assert deltas.lower[2] == 0.0


def test_the_union_strategy_counts_the_overflows_of_every_batch() -> None:
    scheme = CappedPoisson(1000, 0.1, 150)
    found = run(Phase(scheme, 1.0, 40, Analysis.UNION))
    exact = -math.expm1(40 * math.log1p(-math.exp(scheme.log_overflow_probability)))
    assert found.overflow.lower <= exact * (1 + 1e-9)
    assert found.overflow.upper >= exact * (1 - 1e-9)
    assert run(Phase(scheme, 1.0, 40)).overflow == NOTHING


# --- many questions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_each_of_many_answers_is_that_of_a_single_question(adjacency: Adjacency, overflow: str) -> None:
    words: dict[str, Any] = {"adjacency": adjacency, "analysis": "swap" if overflow == "truncate" else "refined"}
    words["scheme"] = CappedPoisson(10_000, 0.01, 120, overflow)  # type: ignore[arg-type]
    one = curve(**words)
    found = one.epsilon_bounds(DELTAS)
    assert not TOLERANCE.wide(*found).any()
    back = one.delta_bounds(found.upper)
    assert (back.lower <= DELTAS * (1 + 1e-9)).all()
    for i in (0, 5, 11):
        alone = one.epsilon_bounds(float(DELTAS[i]))
        assert max(alone.lower, found.lower[i]) <= min(alone.upper, found.upper[i])
        alone = one.delta_bounds(float(found.upper[i]))
        assert max(alone.lower, back.lower[i]) <= min(alone.upper, back.upper[i])


def test_order_shape_and_repetition_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    asked = rng.permutation(np.concatenate([DELTAS, DELTAS[:5]]))
    found, whole = curve().epsilon_bounds(asked), curve().epsilon_bounds(DELTAS)
    at = np.searchsorted(DELTAS, asked)
    assert found.upper.tolist() == whole.upper[at].tolist()
    square = curve().epsilon_bounds(asked[:16].reshape(4, 4))
    assert square.upper.shape == square.lower.shape == (4, 4)
    assert overlap(Brackets(square.lower.ravel(), square.upper.ravel()), Brackets(found.lower[:16], found.upper[:16]))
    assert curve().epsilon(np.zeros((0, 3))).shape == (0, 3)
    assert curve().delta([]).shape == (0,)
    assert curve().true_positive_rate(np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("name", ["A", "D", "E"])
def test_where_lending_helps_a_curve_is_within_a_little_of_single_questions(name: str) -> None:
    s = SETTINGS[name]
    words: dict[str, Any] = {"noise_multiplier": s.sigma, "steps": s.steps, "adjacency": "zero-out"}
    asked = np.geomspace(1e-11, 1e-3, 9)
    found = account(s.scheme(), **words).epsilon_bounds(asked)
    assert not TOLERANCE.wide(*found).any()
    for i in (0, 4, 8):
        assert found.upper[i] == pytest.approx(account(s.scheme(), **words).epsilon(float(asked[i])), rel=3e-4)
    assert (np.diff(found.upper) <= 0.0).all()


@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("scheme", [USUAL, ALL], ids=str)
def test_closed_forms_answer_many_questions_too(scheme: CappedPoisson, steps: int) -> None:
    one = curve(scheme=scheme, steps=steps)
    found = one.epsilon_bounds(DELTAS)
    for i in (0, 6, 11):
        alone = one.epsilon_bounds(float(DELTAS[i]))
        assert max(alone.lower, found.lower[i]) <= min(alone.upper, found.upper[i])
    assert (one.delta_bounds(found.upper).lower <= DELTAS * (1 + 1e-6)).all()


def test_a_refusal_names_the_delta_that_was_refused() -> None:
    """Beyond what floats resolve: the other deltas of the array have answers."""
    one = curve(steps=100)
    assert one.epsilon_bounds(DELTAS).upper.max() < 20.0
    with pytest.raises(NotCertifiedError, match=r"epsilon at delta=5e-324 is only known"):
        one.epsilon(np.append(DELTAS, 5e-324))


@pytest.mark.parametrize("count", [5, 13])
def test_more_questions_than_memory_allows_are_asked_in_parts(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    whole = curve().epsilon_bounds(DELTAS)
    monkeypatch.setattr("filet.accounting.run._AT_ONCE", count)
    assert overlap(curve().epsilon_bounds(DELTAS), whole)


def test_far_out_delta_is_that_of_the_farthest_epsilon() -> None:
    plain = run(Phase(USUAL, 1.0, 5))
    assert delta(plain, 1e300).upper == delta(plain, 1e12).upper < 1e-200
    assert delta(plain, 1e300).lower == 0.0


# --- powers of tests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, 1e-5, 0.1, 0.7])
def test_power_is_above_every_explicit_test(rate: float) -> None:
    """Reject when the outcome of a Gaussian release is above a threshold."""
    found = power(run(Phase(ALL, 1.0, 4)), rate)
    assert float(ndtr(2.0 + ndtri(rate))) <= found <= 1.0


def test_the_power_of_tests_rises_and_is_below_what_epsilon_and_delta_say() -> None:
    one = curve()
    rates = np.geomspace(1e-6, 1.0, 50)
    powers = one.true_positive_rate(rates)
    assert (np.diff(powers) >= 0.0).all()
    assert (powers >= rates).all()
    assert float(powers[7]) == one.true_positive_rate(float(rates[7]))
    assert (powers <= np.exp(one.epsilon(1e-5)) * rates + 1.1e-5).all()


def test_tables_of_the_power_bound_delta_from_above() -> None:
    one = run(Phase(USUAL, 1.0, 50, Analysis.SWAP), adjacency=Adjacency.ADD_REMOVE)
    for table, order in zip(one.power_tables(), one.deltas_each_order(np.linspace(0.0, 2.0, 9)), strict=True):
        at, upper = table.T
        assert (np.diff(at) > 0.0).all()
        for place, least in zip(np.linspace(0.0, 2.0, 9), order.lower, strict=True):
            before = np.flatnonzero(at <= place)[-1]
            assert upper[before] >= least  # delta falls


# --- very many phases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_phase_cut_into_many_costs_the_same(adjacency: Adjacency) -> None:
    for scheme, analysis in ((USUAL, Analysis.SWAP), (CappedPoisson(1_000, 0.05, 50), Analysis.REFINED)):
        whole = run(Phase(scheme, 1.0, 120, analysis), adjacency=adjacency)
        cut = run(*[Phase(scheme, 1.0, 2, analysis)] * 60, adjacency=adjacency)
        one, other = epsilon(whole, 1e-5), epsilon(cut, 1e-5)
        assert not TOLERANCE.wide(*other)
        assert other.upper == pytest.approx(one.upper, rel=1e-3)
        if analysis is Analysis.SWAP:
            assert overlap(one, other)


def test_many_phases_lie_between_the_least_and_the_most_noise() -> None:
    noises = np.linspace(1.0, 1.3, 70)
    scheme = CappedPoisson(1_000, 0.05, 50)
    found = epsilon(run(*[Phase(scheme, float(noise), 2) for noise in noises]), 1e-5)
    most, least = (epsilon(run(Phase(scheme, noise, 140)), 1e-5) for noise in (1.0, 1.3))
    assert least.lower < found.upper
    assert found.lower < most.upper
    assert not TOLERANCE.wide(*found)
