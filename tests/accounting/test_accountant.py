"""The public accountant: figures, limits, properties, phases and bad input."""

from __future__ import annotations

import math
import pickle
from typing import Any

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.settings import SETTINGS, TABLE

import filet
from filet import Accountant, CappedPoisson, InvalidArgumentError, account
from filet.accounting.proving.closed_form import gaussian_log_delta

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


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("steps", [1, 7, 10**6])
@pytest.mark.parametrize("sigma", [0.2, 1.0, 50.0])
def test_sampling_everything_is_the_gaussian_mechanism(adjacency: str, steps: int, sigma: float) -> None:
    curve = account(CappedPoisson(100, 1.0, 100), noise_multiplier=sigma, steps=steps, adjacency=adjacency)
    mu = math.sqrt(steps) / sigma * (2 if adjacency == "replace-one" else 1)
    for delta in (1e-2, 1e-9):
        epsilon = curve.epsilon(delta)
        assert gaussian_log_delta(mu, epsilon) <= math.log(delta)
        if epsilon > 0:
            assert gaussian_log_delta(mu, epsilon * (1 - 1e-8)) >= math.log(delta)


def test_the_gaussian_closed_form_matches_dp_accounting() -> None:
    for sigma in (0.5, 1.0, 10.0):
        for epsilon in (0.1, 1.0, 5.0):
            delta = math.exp(gaussian_log_delta(1 / sigma, epsilon))
            if delta > 1e-15:
                assert dp_accounting.get_epsilon_gaussian(sigma, delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_dp_accounting_is_never_below_and_close_on_plain_poisson(adjacency: str) -> None:
    relation = {
        "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        "zero-out": dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
        "replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
    }[adjacency]
    for p, sigma, steps, delta in [(0.01, 1.0, 500, 1e-6), (0.2, 2.0, 40, 1e-5), (1e-3, 0.7, 2000, 1e-5)]:
        event = dp_accounting.PoissonSampledDpEvent(p, dp_accounting.GaussianDpEvent(sigma))
        peer = dp_accounting.pld.PLDAccountant(relation).compose(event, steps).get_epsilon(delta)
        bounds = account(CappedPoisson(10**6, p, 10**6), noise_multiplier=sigma, steps=steps,
                         adjacency=adjacency).epsilon_bounds(delta)  # fmt: skip
        assert bounds.lower <= peer * (1 + 1e-6)
        assert peer == pytest.approx(bounds.upper, rel=5e-3)


def test_the_note_matches_dp_accounting_where_both_are_defined() -> None:
    event = dp_accounting.TruncatedSubsampledGaussianDpEvent(1000, 0.05, 60, 1.5)
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    peer = accountant.compose(event, 200).get_epsilon(1e-5)
    ours = account(
        CappedPoisson(1000, 0.05, 60), noise_multiplier=1.5, steps=200, adjacency="replace-one", analysis="note"
    )
    assert ours.epsilon(1e-5) == pytest.approx(peer, rel=1e-3)
    refined = account(CappedPoisson(1000, 0.05, 60), noise_multiplier=1.5, steps=200, adjacency="replace-one")
    assert refined.epsilon(1e-5) < peer


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


@settings(max_examples=25, deadline=None, derandomize=True)
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


@settings(max_examples=20, deadline=None, derandomize=True)
@given(**PARAMETERS)
def test_delta_and_epsilon_are_inverse_and_refined_never_exceeds_the_note(
    n: int, p: float, cap: float, sigma: float, steps: int, delta: float, adjacency: str, overflow: str
) -> None:
    scheme = make(n, p, cap, overflow)
    curve = account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency)
    bounds = curve.epsilon_bounds(delta)
    if bounds.upper > 0:
        assert curve.delta_bounds(bounds.upper).lower <= delta
        assert curve.delta_bounds(bounds.lower).upper >= delta * (1 - 1e-9)
    if overflow == "truncate":
        note = account(scheme, noise_multiplier=sigma, steps=steps, adjacency=adjacency, analysis="note")
        assert bounds.lower <= note.epsilon(delta)


@settings(max_examples=10, deadline=None, derandomize=True)
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


def test_phases_and_gaussians_match_dp_accounting() -> None:
    accountant = Accountant("zero-out")
    accountant.compose(CappedPoisson(10**5, 0.01, 10**5), 1.0, 300)
    accountant.compose(CappedPoisson(10**5, 0.05, 10**5), 3.0, 100)
    accountant.compose_gaussian(noise_multiplier=5.0, count=2)
    peer = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    for p, sigma, steps in ((0.01, 1.0, 300), (0.05, 3.0, 100), (1.0, 5.0, 2)):
        peer.compose(dp_accounting.PoissonSampledDpEvent(p, dp_accounting.GaussianDpEvent(sigma)), steps)
    assert accountant.epsilon(1e-5) == pytest.approx(peer.get_epsilon(1e-5), rel=1e-3)


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


def test_an_attack_cannot_beat_the_trade_off_curve() -> None:
    curve = account(A.scheme(), noise_multiplier=1.0, steps=A.steps, adjacency="add-remove")
    rates = np.array([0.0, 1e-4, 0.01, 0.1, 0.5, 0.9, 1.0])
    power = curve.true_positive_rate(rates)
    assert (power >= rates).all()
    assert (np.diff(power) >= 0).all()
    assert power[-1] == 1.0
    for epsilon in (0.0, 0.5, 1.0, 3.0):
        assert (power <= curve.delta(epsilon) + math.exp(epsilon) * rates + 2e-3).all()
    gaussian = account(CappedPoisson(10, 1.0, 10), noise_multiplier=1.0, steps=1, adjacency="zero-out")
    from scipy.special import ndtr, ndtri

    for rate in (0.01, 0.2, 0.5):
        exact = float(ndtr(1.0 + ndtri(rate)))
        assert exact <= gaussian.true_positive_rate(rate) <= exact + 2e-3


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [1e-2, 1e-10, 1e-30])
def test_one_step_is_answered_by_the_closed_form_to_seven_digits(adjacency: str, delta: float) -> None:
    for p, sigma, overflow in [(1e-9, 1.0, "truncate"), (0.01, 0.1, "reject"), (0.5, 100.0, "truncate")]:
        scheme = CappedPoisson(round(1000 / p), p, 1000, overflow)  # type: ignore[arg-type]
        curve = account(scheme, noise_multiplier=sigma, steps=1, adjacency=adjacency)
        lower, upper = curve.epsilon_bounds(delta)
        assert upper - lower <= 1e-7 * upper
        if upper > 0:
            assert curve.delta_bounds(upper).lower <= delta <= curve.delta_bounds(lower).upper * (1 + 1e-8)


def test_limits_of_noise_and_steps() -> None:
    scheme = A.scheme()
    assert account(scheme, noise_multiplier=0.0, steps=1, adjacency="zero-out").epsilon(1e-5) == math.inf
    assert account(scheme, noise_multiplier=0.0, steps=1, adjacency="zero-out").delta(10.0) == 1.0
    assert account(scheme, noise_multiplier=1.0, steps=0, adjacency="zero-out").epsilon(1e-5) == 0.0
    assert account(scheme, noise_multiplier=0.0, steps=0, adjacency="zero-out").epsilon(1e-5) == 0.0
    assert account(scheme, noise_multiplier=math.inf, steps=9, adjacency="zero-out").epsilon(1e-5) == 0.0
    assert account(scheme, noise_multiplier=1e-3, steps=5, adjacency="zero-out").epsilon(1e-12) > 1e5
    assert account(scheme, noise_multiplier=1e6, steps=5, adjacency="zero-out").epsilon(1e-12) < 1e-3


def test_a_delta_below_what_floats_resolve_is_refused_rather_than_guessed() -> None:
    for steps in (1, 100):
        curve = account(A.scheme(), noise_multiplier=1.0, steps=steps, adjacency="zero-out")
        assert curve.epsilon(1e-280) > curve.epsilon(1e-200) > 10
        with pytest.raises(filet.NotCertifiedError, match="delta=5e-324"):
            curve.epsilon(5e-324)
        assert 0.0 < curve.delta(1e300) < 1e-250


def test_arrays_in_arrays_out() -> None:
    curve = account(A.scheme(), noise_multiplier=1.0, steps=100, adjacency="zero-out")
    deltas = np.array([[1e-3, 1e-5], [1e-7, 1e-9]])
    assert curve.epsilon(deltas).shape == (2, 2)
    assert curve.epsilon(deltas)[1, 0] == curve.epsilon(np.float64(1e-7))
    assert isinstance(curve.epsilon(1e-5), float)
    assert isinstance(curve.delta(np.float32(1.0)), float)


def test_a_curve_can_be_pickled() -> None:
    curve = account(A.scheme(), noise_multiplier=1.0, steps=1, adjacency="zero-out")
    assert pickle.loads(pickle.dumps(curve)).epsilon(1e-5) == curve.epsilon(1e-5)


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


@pytest.mark.parametrize(
    "delta", [0.0, 1.0, -1e-5, math.nan, math.inf, "x", None, [], [[0.1], [2.0]], np.array([math.nan])]
)
def test_bad_deltas_are_refused(delta: Any) -> None:
    curve = account(A.scheme(), noise_multiplier=1.0, steps=10, adjacency="zero-out")
    if isinstance(delta, list) and not delta:
        assert curve.epsilon(np.array([])).shape == (0,)
        return
    with pytest.raises(InvalidArgumentError, match="delta"):
        curve.epsilon(delta)


@pytest.mark.parametrize("epsilon", [-0.1, math.inf, math.nan, "x"])
def test_bad_epsilons_are_refused(epsilon: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="epsilon"):
        account(A.scheme(), noise_multiplier=1.0, steps=10, adjacency="zero-out").delta(epsilon)


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


@pytest.mark.parametrize(("sigma", "epsilon"), [(5e-324, math.inf), (1e-200, math.inf), (1e200, 0.0), (1e308, 0.0)])
def test_gaussian_noise_whose_square_is_no_float_is_accounted(sigma: float, epsilon: float) -> None:
    accountant = Accountant("zero-out")
    accountant.compose_gaussian(sigma)
    assert accountant.epsilon(1e-5) == epsilon
    assert (
        account(CappedPoisson(10, 1.0, 10), noise_multiplier=sigma, steps=1, adjacency="zero-out").epsilon(1e-5)
        == epsilon
    )


@pytest.mark.parametrize("cap", [1, 12, 60])
def test_the_union_strategy_answers_where_almost_every_batch_overflows(cap: int) -> None:
    scheme = CappedPoisson(1000, 0.1, cap)
    assert (
        account(scheme, noise_multiplier=2.0, steps=3, adjacency="add-remove", analysis="union").epsilon(1e-3)
        == math.inf
    )
