"""Calibration: the result meets the target, nothing cheaper does, and what cannot be met says why."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.settings import SETTINGS, TABLE

from filet.accounting.accountant import account
from filet.accounting.terms import Adjacency
from filet.errors import InvalidArgumentError, NoSolutionError
from filet.planning import target as targets
from filet.planning.calibration import calibrate_noise_multiplier, calibrate_sampling_probability, calibrate_steps
from filet.scheme import CappedPoisson, Overflow
from settings import TARGET_EPSILON, Setting

N = 60_000
ADJACENCIES = [adjacency.value for adjacency in Adjacency]
# The epsilons are the theory page's figures, from an independent prototype that agrees with 45-digit arithmetic to 1e-7
# wherever both were run; they are given to five decimals.
CASES = [
    pytest.param(setting, overflow, adjacency, epsilon, id=f"{name}-{overflow}-{adjacency}")
    for (overflow, analysis, adjacency), epsilons in TABLE.items()
    for (name, setting), epsilon in zip(SETTINGS.items(), epsilons, strict=True)
    if (overflow, analysis) in (("truncate", "swap"), ("reject", "refined"))  # whose exact epsilons are known
]


def scheme(batch: float = 256.0, cap: int = 256, overflow: str = "truncate", **options: Any) -> CappedPoisson:
    return CappedPoisson(N, batch / N, cap, Overflow(overflow), **options)


def spent(scheme: CappedPoisson, noise: float, steps: int, *, delta: float, **words: Any) -> float:
    return float(account(scheme, noise_multiplier=noise, steps=steps, **words).epsilon(delta))


def exact_analysis(overflow: str) -> dict[str, str]:
    """The analysis whose exact epsilons are in the table."""
    return {"analysis": "swap"} if overflow == "truncate" else {}


@pytest.fixture
def account_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts every account that the calibration asks for, coarse or certified."""
    calls: list[int] = []
    real = targets.account  # type: ignore[attr-defined]

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return real(*args, **kwargs)

    targets._spent.cache_clear()
    monkeypatch.setattr(targets, "account", counted)
    return calls


@pytest.mark.parametrize(("setting", "overflow", "adjacency", "epsilon"), CASES)
def test_noise_meets_the_target_and_is_within_a_ten_thousandth_of_the_exact_answer(
    account_calls: list[int], setting: Setting, overflow: str, adjacency: str, epsilon: float
) -> None:
    run = setting.scheme(overflow)
    words: dict[str, Any] = {"delta": setting.delta, "adjacency": adjacency, **exact_analysis(overflow)}
    noise = calibrate_noise_multiplier(run, steps=setting.steps, epsilon=epsilon, **words)
    assert len(account_calls) <= 20
    assert spent(run, noise, setting.steps, **words) <= epsilon
    rounding = 0.5e-5 / epsilon * 1.5  # of the reference
    assert -rounding <= noise / setting.sigma - 1.0 <= 1e-4 + rounding


@pytest.mark.parametrize(
    ("setting", "overflow", "adjacency", "epsilon"),
    [case for case in CASES if str(case.id).startswith(("A", "D"))],
)
def test_probability_meets_the_target_and_is_within_a_ten_thousandth_of_the_exact_answer(
    account_calls: list[int], setting: Setting, overflow: str, adjacency: str, epsilon: float
) -> None:
    given = replace(setting.scheme(overflow), sampling_probability=0.5)
    words: dict[str, Any] = {"delta": setting.delta, "adjacency": adjacency, **exact_analysis(overflow)}
    p = calibrate_sampling_probability(
        given, noise_multiplier=setting.sigma, steps=setting.steps, epsilon=epsilon, **words
    )
    assert len(account_calls) <= 25
    run = replace(given, sampling_probability=p)
    assert spent(run, setting.sigma, setting.steps, **words) <= epsilon
    rounding = 0.5e-5 / epsilon * 1.5
    assert -1e-4 - rounding <= p / setting.p - 1.0 <= rounding


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("sigma", "epsilon"), [(1.0, 2.0), (5.0, 0.1), (0.8, 6.0)])
def test_steps_are_the_last_integer_that_meets_the_target(
    account_calls: list[int], overflow: str, adjacency: str, sigma: float, epsilon: float
) -> None:
    run = scheme(240.0, 300, overflow)
    words = {"delta": 1e-5, "adjacency": adjacency}
    steps = calibrate_steps(run, noise_multiplier=sigma, epsilon=epsilon, **words)  # type: ignore[arg-type]
    assert len(account_calls) <= 30
    assert spent(run, sigma, steps, **words) <= epsilon < spent(run, sigma, steps + 1, **words)  # type: ignore[arg-type]


def test_steps_of_a_cyclic_scheme_are_whole_cycles() -> None:
    run = CappedPoisson(N, 100 / 6_000, 256, cycle_length=10)
    words: dict[str, Any] = {"delta": 1e-5, "adjacency": "zero-out"}
    steps = calibrate_steps(run, noise_multiplier=1.0, epsilon=3.0, **words)
    assert steps % 10 == 0
    assert spent(run, 1.0, steps, **words) <= 3.0 < spent(run, 1.0, steps + 1, **words)


@pytest.mark.parametrize(("analysis", "epsilon"), [("note", 3.0), ("union", 3.0), ("union", 0.3)])
def test_the_other_analyses_are_calibrated_too(analysis: str, epsilon: float) -> None:
    run = scheme(160.0)
    words: dict[str, Any] = {"adjacency": "add-remove", "analysis": analysis, "delta": 1e-5}
    noise = calibrate_noise_multiplier(run, steps=2_000, epsilon=epsilon, **words)
    assert spent(run, noise, 2_000, **words) <= epsilon < spent(run, noise * (1 - 3e-4), 2_000, **words)
    refined = calibrate_noise_multiplier(run, steps=2_000, epsilon=epsilon, delta=1e-5, adjacency="add-remove")
    assert refined <= noise * (1 + 1e-4)


@pytest.mark.long
def test_affordable_utilization_reaches_the_published_figures() -> None:
    floors = {("truncate", "union"): 0.55, ("truncate", "note"): 0.80, ("truncate", "swap"): 0.89, ("truncate", "refined"): 0.92,
              ("reject", "refined"): 0.97}  # fmt: skip
    for (overflow, analysis), floor in floors.items():
        run = scheme(overflow=overflow)
        words: dict[str, Any] = {"adjacency": "add-remove", "analysis": analysis, "delta": 1e-5}
        p = calibrate_sampling_probability(run, noise_multiplier=1.0, steps=14_000, epsilon=3.0, **words)
        run = replace(run, sampling_probability=p)
        assert spent(run, 1.0, 14_000, **words) <= 3.0
        assert run.utilization >= floor, (overflow, analysis)


def test_a_full_batch_takes_the_noise_of_the_gaussian_mechanism() -> None:
    # sensitivity 1, epsilon 1, delta 1e-5: Balle and Wang (2018) give 3.730632
    noise = calibrate_noise_multiplier(
        CappedPoisson(10, 1.0, 10), steps=1, epsilon=1.0, delta=1e-5, adjacency="zero-out"
    )
    assert noise == pytest.approx(3.730632, rel=1e-4)


def test_noise_falls_with_epsilon_and_grows_with_steps_and_probability() -> None:
    def noise(epsilon: float = 2.0, steps: int = 1_000, batch: float = 200.0) -> float:
        return calibrate_noise_multiplier(scheme(batch), steps=steps, epsilon=epsilon, delta=1e-5, adjacency="zero-out")

    assert noise(0.5) > noise(1.0) > noise(2.0) > noise(8.0)
    assert noise(steps=100) < noise(steps=1_000) < noise(steps=10_000)
    assert noise(batch=50.0) < noise(batch=100.0) < noise(batch=200.0) < noise(batch=300.0)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize("name", "ABCDE")
def test_few_certified_epsilons_lead_to_steps_and_to_a_probability(
    name: str, overflow: str, adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, asked = SETTINGS[name], []
    honest = targets.Target._spent_on

    def spent_on(self: Any, curve: Any) -> float:
        asked.append(curve)
        return honest(self, curve)

    monkeypatch.setattr(targets.Target, "_spent_on", spent_on)
    targets._spent.cache_clear()
    scheme, epsilon, delta = setting.scheme(overflow), TARGET_EPSILON[name], setting.delta
    words: dict[str, Any] = {"noise_multiplier": setting.sigma, "adjacency": adjacency}
    steps = calibrate_steps(scheme, epsilon=epsilon, delta=delta, **words)
    assert len(asked) <= 12
    last, following = (account(scheme, steps=one, **words).epsilon(delta) for one in (steps, steps + 1))
    assert last <= epsilon < following
    del asked[:]
    calibrate_sampling_probability(scheme, steps=setting.steps, epsilon=epsilon, delta=delta, **words)
    assert len(asked) <= 12


@pytest.mark.parametrize("epsilon", [0.001, 0.01])
def test_small_targets_take_few_accounts(account_calls: list[int], epsilon: float) -> None:
    run = scheme(cap=300)
    noise = calibrate_noise_multiplier(run, steps=14_000, epsilon=epsilon, delta=1e-5, adjacency="zero-out")
    assert len(account_calls) <= 20
    assert spent(run, noise, 14_000, delta=1e-5, adjacency="zero-out") <= epsilon
    assert spent(run, noise * (1 - 1e-3), 14_000, delta=1e-5, adjacency="zero-out") > epsilon


def test_a_tiny_delta_is_calibrated() -> None:
    noise = calibrate_noise_multiplier(scheme(), steps=1_000, epsilon=1.0, delta=1e-30, adjacency="add-remove")
    words: dict[str, Any] = {"delta": 1e-30, "adjacency": "add-remove"}
    assert spent(scheme(), noise, 1_000, **words) <= 1.0 < spent(scheme(), noise * (1 - 1e-3), 1_000, **words)


def test_a_probability_that_costs_nothing_more_is_one() -> None:
    words: dict[str, Any] = {"steps": 100, "epsilon": 5.0, "delta": 1e-5, "adjacency": "zero-out"}
    assert calibrate_sampling_probability(scheme(), noise_multiplier=50.0, **words) == 1.0
    assert calibrate_sampling_probability(scheme(), noise_multiplier=math.inf, **words) == 1.0
    assert calibrate_sampling_probability(scheme(overflow="reject"), noise_multiplier=500.0, **words) < 1.0


TARGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "zero-out"}
IMPOSSIBLE: dict[str, tuple[Callable[[], Any], str]] = {
    "one step": (lambda: calibrate_steps(scheme(), noise_multiplier=0.5, **TARGET | {"delta": 1e-9}),
                 r"even one step at noise_multiplier=0.5 costs epsilon 8.1\d*; raise noise_multiplier"),
    "any steps": (lambda: calibrate_steps(scheme(1e-4), noise_multiplier=5.0, **TARGET), r"even by 10{12} steps"),
    "infinite noise": (lambda: calibrate_steps(scheme(), noise_multiplier=math.inf, **TARGET), "any number of steps"),
    "no noise": (lambda: calibrate_steps(scheme(), noise_multiplier=0.0, **TARGET), "hides nothing of a batch"),
    "no noise, probability": (
        lambda: calibrate_sampling_probability(scheme(), noise_multiplier=0.0, steps=1, **TARGET), "hides nothing of a batch"),
    "union": (lambda: calibrate_noise_multiplier(scheme(), steps=1_000, analysis="union", **TARGET),
              r"cannot be met by any noise: analysis='union' adds at least twice the chance 1 .*analysis='refined'"),
    "reject reveals the size": (
        lambda: calibrate_noise_multiplier(scheme(overflow="reject"), steps=14_000, **TARGET
                                           | {"epsilon": 0.05, "adjacency": "add-remove"}),
        r"even noise_multiplier=1e\+09 costs epsilon 0.38.*pass overflow='truncate'"),
    "vacuous": (lambda: calibrate_noise_multiplier(scheme(1e-6), steps=100, **TARGET), r"used at all with chance 1.67e-09"),
}  # fmt: skip
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "zero epsilon": (lambda: calibrate_steps(scheme(), noise_multiplier=1.0, **TARGET | {"epsilon": 0}), r"in \(0, inf\)"),
    "nan epsilon": (lambda: calibrate_steps(scheme(), noise_multiplier=1.0, **TARGET | {"epsilon": math.nan}), "nan"),
    "many deltas": (lambda: calibrate_steps(scheme(), noise_multiplier=1.0, **TARGET | {"delta": [1e-5]}), "one at a time"),
    "no steps": (lambda: calibrate_noise_multiplier(scheme(), steps=0, **TARGET), "below 1"),
    "no scheme": (lambda: calibrate_noise_multiplier(None, steps=1, **TARGET), "CappedPoisson"),  # type: ignore[arg-type]
    "an analysis of another policy": (
        lambda: calibrate_noise_multiplier(scheme(overflow="reject"), steps=1, analysis="note", **TARGET),
        "for overflow='truncate'"),
}  # fmt: skip


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_has_no_solution_says_why_in_one_line(case: str) -> None:
    attempt, reason = IMPOSSIBLE[case]
    with pytest.raises(NoSolutionError, match=reason) as caught:
        attempt()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_not_taken_for_a_target_without_solution(case: str) -> None:
    attempt, reason = WRONG[case]
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        attempt()
    assert not isinstance(caught.value, NoSolutionError)


def test_a_probability_whose_square_vanishes_is_within_any_target() -> None:
    scheme = CappedPoisson(100, 5e-324, 12)
    with pytest.raises(InvalidArgumentError, match=r"is met even by noise_multiplier=0\.05"):
        calibrate_noise_multiplier(scheme, steps=3, epsilon=1.0, delta=1e-3, adjacency="zero-out")


def test_epochs_calibrate_as_the_steps_they_take():
    scheme = CappedPoisson(1_000, 0.05, 60)
    target = {"epsilon": 2.0, "delta": 1e-4, "adjacency": "zero-out"}
    assert calibrate_noise_multiplier(scheme, epochs=2, **target) == calibrate_noise_multiplier(
        scheme, steps=40, **target
    )
