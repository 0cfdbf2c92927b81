"""The public accountant: figures, limits, properties, phases and bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.settings import SETTINGS, TABLE

import filet
from filet import Accountant, CappedPoisson, InvalidArgumentError, account

A = SETTINGS["A"]
ADJACENCIES = [a.value for a in filet.Adjacency]


@pytest.mark.parametrize(("key", "values"), TABLE.items())
def test_the_table_of_the_theory_page_is_reproduced(key: tuple[str, str, str], values: tuple[float, ...]) -> None:
    overflow, analysis, adjacency = key
    for setting, expected in zip(SETTINGS.values(), values, strict=True):
        scheme = setting.uncapped() if overflow == "none" else setting.scheme(overflow)
        curve = account(
            scheme, noise_multiplier=setting.sigma, steps=setting.steps, adjacency=adjacency, analysis=analysis
        )
        assert curve.epsilon(setting.delta) == pytest.approx(expected, rel=1e-4)


def test_union_is_sound_and_looser() -> None:
    scheme = CappedPoisson(60_000, 150 / 60_000, 256)
    union = account(scheme, noise_multiplier=1.0, steps=1000, adjacency="add-remove", analysis="union")
    refined = account(scheme, noise_multiplier=1.0, steps=1000, adjacency="add-remove")
    plain = account(
        CappedPoisson(60_000, 150 / 60_000, 60_000), noise_multiplier=1.0, steps=1000, adjacency="add-remove"
    )
    eta = -math.expm1(1000 * math.log1p(-scheme.overflow_probability))
    epsilon = union.epsilon(1e-5)
    assert plain.delta(epsilon) + (1 + math.exp(epsilon)) * eta <= 1e-5 * (1 + 1e-3)
    assert refined.epsilon_bounds(1e-5).lower <= epsilon
    assert account(A.scheme(), noise_multiplier=1.0, steps=A.steps, adjacency="add-remove",
                   analysis="union").epsilon(1e-5) == math.inf  # fmt: skip


def test_union_where_every_batch_overflows_has_no_finite_epsilon() -> None:
    """The chance to fit is 1e-25 here, lost in 1 - Pr[overflow]."""
    scheme = CappedPoisson(60, 0.9, 20)
    run = account(scheme, noise_multiplier=1.0, steps=3, adjacency="zero-out", analysis="union")
    assert run.delta(1.0) == 1.0
    assert run.epsilon(1e-5) == math.inf


PARAMETERS = {
    "n": st.integers(2, 10**6),
    "p": st.floats(1e-4, 0.9),
    "cap": st.floats(0.2, 3.0),
    "sigma": st.floats(0.3, 20.0),
    "steps": st.integers(1, 3000),
    "delta": st.floats(-25.0, -2.0).map(math.exp),
    "adjacency": st.sampled_from(ADJACENCIES),
    "overflow": st.sampled_from(["truncate", "reject"]),
}


def make(n: int, p: float, cap: float, overflow: str) -> CappedPoisson:
    return CappedPoisson(n, p, max(1, math.ceil(cap * n * p)), overflow)  # type: ignore[arg-type]


def more(first: float, second: float) -> bool:
    """first <= second, up to the promised width of brackets."""
    return first <= second + max(1e-3 * second, 1e-4)


@pytest.mark.long
@settings(max_examples=25)
@given(**PARAMETERS)
def test_epsilon_grows_in_steps_and_falls_in_noise_and_delta(
    n: int, p: float, cap: float, sigma: float, steps: int, delta: float, adjacency: str, overflow: str
) -> None:
    scheme = make(n, p, cap, overflow)

    def epsilon(
        scheme: CappedPoisson = scheme, sigma: float = sigma, steps: int = steps, delta: float = delta
    ) -> float:
        bounds = account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency).epsilon_bounds(delta)
        assert 0.0 <= bounds.lower <= bounds.upper
        return bounds.upper

    base = epsilon()
    assert more(base, epsilon(steps=2 * steps))
    assert more(epsilon(sigma=1.5 * sigma), base)
    assert more(epsilon(delta=min(0.5, 5 * delta)), base)


@settings(max_examples=20)
@given(**PARAMETERS)
def test_delta_and_epsilon_are_inverse_and_refined_never_exceeds_the_note(
    n: int, p: float, cap: float, sigma: float, steps: int, delta: float, adjacency: str, overflow: str
) -> None:
    scheme = make(n, p, cap, overflow)
    curve = account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency)
    bounds = curve.epsilon_bounds(delta)
    assert curve.delta_bounds(bounds.upper).lower <= delta
    if bounds.lower > 0:
        assert curve.delta_bounds(bounds.lower).upper >= delta * (1 - 1e-9)
    if overflow == "truncate":
        note = account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency, analysis="note")
        assert bounds.lower <= note.epsilon(delta)


@settings(max_examples=10)
@given(p=st.floats(1e-3, 0.45), sigma=st.floats(0.5, 5.0), steps=st.integers(2, 500))
def test_plain_poisson_costs_more_at_a_higher_rate(p: float, sigma: float, steps: int) -> None:
    low, high = (
        account(CappedPoisson(1000, rate, 1000), noise_multiplier=sigma, steps=steps, adjacency="zero-out").epsilon(
            1e-6
        )
        for rate in (p, 2 * p)
    )
    assert more(low, high)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_splitting_a_composition_changes_nothing(adjacency: str) -> None:
    scheme = A.scheme()
    accountant = Accountant(adjacency)
    other = CappedPoisson(60_000, 0.01, 700, "reject")  # type: ignore[arg-type]
    for _ in range(3):
        accountant.compose(scheme, 1.0, 200)
        accountant.compose(other, 2.0, 50)
    together = Accountant(adjacency)
    together.compose(other, 2.0, 150)
    together.compose(scheme, 1.0, 600)
    assert accountant.epsilon(1e-6) == pytest.approx(together.epsilon(1e-6), rel=2e-4)
    assert accountant.epsilon(1e-6) > account(scheme, noise_multiplier=1.0, steps=600, adjacency=adjacency).epsilon(
        1e-6
    )


def test_cyclic_sampling_is_one_group_with_fewer_steps() -> None:
    cyclic = CappedPoisson(60_005, 0.02, 300, cycle_length=4)
    group = CappedPoisson(15_001, 0.02, 300)
    for steps, rounds in ((1000, 250), (1001, 251), (1, 1)):
        first, second = (
            account(scheme, noise_multiplier=1.0, steps=count, adjacency="zero-out").epsilon(1e-6)
            for scheme, count in ((cyclic, steps), (group, rounds))
        )
        assert first == second


def test_cyclic_phases_are_not_merged_across_their_rounding() -> None:
    accountant = Accountant("zero-out")
    for _ in range(3):
        accountant.compose(CappedPoisson(1000, 0.1, 30, cycle_length=4), 1.0, 1)
    assert sum(phase.rounds for phase in accountant.phases) == 3


BAD = [
    ({"noise_multiplier": -1.0}, "noise_multiplier=-1.0"),
    ({"noise_multiplier": math.nan}, "noise_multiplier=nan"),
    ({"noise_multiplier": "big"}, "noise_multiplier='big'"),
    ({"noise_multiplier": np.ones(2)}, "noise_multiplier="),
    ({"steps": -1}, "steps=-1"),
    ({"steps": 1.5}, "steps=1.5"),
    ({"steps": 2**63}, "steps="),
    ({"steps": True}, "steps=True"),
    ({"adjacency": "swap"}, "adjacency='swap'"),
    ({"analysis": "magic"}, "analysis='magic'"),
]


@pytest.mark.parametrize(("change", "words"), BAD)
def test_bad_arguments_get_one_line_that_names_them(change: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"noise_multiplier": 1.0, "steps": 10, "adjacency": "zero-out"}
    with pytest.raises(InvalidArgumentError) as caught:
        account(A.scheme(), **(arguments | change))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value)


def test_comparisons_are_for_truncation_only() -> None:
    for analysis in ("note", "union"):
        with pytest.raises(InvalidArgumentError, match="truncate"):
            account(A.scheme("reject"), noise_multiplier=1.0, steps=1, adjacency="zero-out", analysis=analysis)


def test_add_remove_refuses_two_data_set_sizes() -> None:
    accountant = Accountant("add-remove")
    accountant.compose(A.scheme(), 1.0, 1)
    with pytest.raises(InvalidArgumentError, match="60000"):
        accountant.compose(CappedPoisson(50_000, 0.01, 600), 1.0, 1)
    assert accountant.dataset_size == 60_000
    zero_out = Accountant("zero-out")
    zero_out.compose(A.scheme(), 1.0, 1)
    zero_out.compose(CappedPoisson(50_000, 0.01, 600), 1.0, 1)


def test_merged_phases_keep_to_the_limit_of_steps_so_that_they_can_be_restored() -> None:
    accountant = Accountant("zero-out")
    accountant.compose(A.scheme(), 1.0, 2**63 - 1)
    before = accountant.state_dict()
    with pytest.raises(InvalidArgumentError, match="steps=9223372036854775808 is above"):
        accountant.compose(A.scheme(), 1.0, 1)
    assert accountant.state_dict() == before
    assert Accountant.from_state_dict(before).state_dict() == before


@pytest.mark.parametrize("sigma", [1e200, 1e308])
def test_gaussian_noise_whose_square_is_no_float_is_accounted(sigma: float) -> None:
    accountant = Accountant("zero-out")
    accountant.compose_gaussian(sigma)
    assert accountant.epsilon(1e-5) == 0.0
    scheme = CappedPoisson(10, 1.0, 10)
    assert account(scheme, noise_multiplier=sigma, steps=1, adjacency="zero-out").epsilon(1e-5) == 0.0


@pytest.mark.parametrize("sigma", [5e-324, 1e-200])
def test_gaussian_noise_whose_epsilon_is_no_float_is_refused(sigma: float) -> None:
    accountant = Accountant("zero-out")
    accountant.compose_gaussian(sigma)
    with pytest.raises(filet.NotCertifiedError):
        accountant.epsilon(1e-5)
    with pytest.raises(filet.NotCertifiedError):
        account(CappedPoisson(10, 1.0, 10), noise_multiplier=sigma, steps=1, adjacency="zero-out").epsilon(1e-5)


@pytest.mark.parametrize("cap", [1, 12, 60])
def test_the_union_strategy_answers_where_almost_every_batch_overflows(cap: int) -> None:
    scheme = CappedPoisson(1000, 0.1, cap)
    assert (
        account(scheme, noise_multiplier=2.0, steps=3, adjacency="add-remove", analysis="union").epsilon(1e-3)
        == math.inf
    )


def test_epochs_are_another_way_to_give_the_steps():
    scheme = CappedPoisson(1_000, 0.015, 32)
    by_epochs = account(scheme, noise_multiplier=2.0, epochs=3, adjacency="zero-out")
    assert by_epochs.steps == 200
    accountant = Accountant("zero-out")
    accountant.compose(scheme, 2.0, epochs=3)
    assert accountant.phases == by_epochs.phases
    with pytest.raises(InvalidArgumentError, match="both are given"):
        account(scheme, noise_multiplier=2.0, steps=200, epochs=3, adjacency="zero-out")
    with pytest.raises(InvalidArgumentError, match="neither is given"):
        accountant.compose(scheme, 2.0)


def test_accountants_are_equal_by_content():
    def made(adjacency="zero-out", sigma=2.0, steps=10, count=1):
        accountant = Accountant(adjacency)
        accountant.compose(CappedPoisson(1_000, 0.015, 32), sigma, steps)
        accountant.compose_gaussian(5.0, count)
        return accountant

    assert made() == made()
    halves = made(steps=4)
    halves.compose(CappedPoisson(1_000, 0.015, 32), 2.0, 6)
    assert halves == made()  # equal neighbours are merged
    for other in (made("replace-one"), made(sigma=2.5), made(steps=11), made(count=2), "an accountant"):
        assert made() != other
    with pytest.raises(TypeError, match="unhashable"):
        hash(made())
