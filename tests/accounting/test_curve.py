"""The curve of a run: figures, limits, arrays, and refusals instead of crashes at the extremes."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from tests.settings import SETTINGS

import filet
from filet import CappedPoisson, InvalidArgumentError, NotCertifiedError, PrivacyCurve, account
from filet.accounting.curve import certified, delta_brackets_each_order
from filet.accounting.proving.closed_form import gaussian_log_delta

A = SETTINGS["A"]
ADJACENCIES = [a.value for a in filet.Adjacency]


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
    for rate in (0.01, 0.2, 0.5):
        exact = float(ndtr(1.0 + ndtri(rate)))
        assert exact <= gaussian.true_positive_rate(rate) <= exact + 2e-3


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [1e-2, 1e-10, 1e-30])
def test_one_step_is_answered_by_the_closed_form_to_seven_digits(adjacency: str, delta: float) -> None:
    for p, sigma, overflow in [(1e-9, 1.0, "truncate"), (0.01, 0.1, "reject"), (0.5, 100.0, "truncate")]:
        scheme = CappedPoisson(round(1000 / p), p, 1000, overflow)  # type: ignore[arg-type]
        analysis = "swap" if overflow == "truncate" else "refined"
        curve = account(scheme, noise_multiplier=sigma, steps=1, adjacency=adjacency, analysis=analysis)
        lower, upper = curve.epsilon_bounds(delta)
        assert upper - lower <= 1e-7 * upper
        if upper > 0:
            assert curve.delta_bounds(upper).lower <= delta <= curve.delta_bounds(lower).upper * (1 + 1e-8)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [1e-2, 1e-10, 1e-30])
def test_one_step_by_lending_is_answered_to_five_digits_and_never_above_the_swap(adjacency: str, delta: float) -> None:
    """Nodes are chosen for a delta, so delta at an epsilon may be by other nodes, a little above or below."""
    for p, sigma in [(1e-9, 1.0), (0.01, 0.5), (0.5, 100.0)]:
        scheme = CappedPoisson(round(1000 / p), p, 1000)
        refined, swap = (
            account(scheme, noise_multiplier=sigma, steps=1, adjacency=adjacency, analysis=analysis)
            for analysis in ("refined", "swap")
        )
        lower, upper = refined.epsilon_bounds(delta)
        assert upper - lower <= 1e-5 * upper
        assert upper <= swap.epsilon(delta) * (1 + 1e-4)
        if upper > 0:
            assert refined.delta_bounds(upper).lower <= delta * 1.01
            assert refined.delta_bounds(lower).upper >= delta / 1.01


def test_limits_of_noise_and_steps() -> None:
    scheme = A.scheme()
    assert account(scheme, noise_multiplier=0.0, steps=1, adjacency="zero-out").epsilon(1e-5) == math.inf
    shown = account(scheme, noise_multiplier=0.0, steps=1, adjacency="zero-out").delta_bounds(10.0)
    assert shown.lower <= scheme.inclusion_probability <= shown.upper  # the chance that a batch shows the example
    assert shown.upper == pytest.approx(shown.lower, rel=1e-9)
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
    assert curve.epsilon(deltas)[1, 0] == pytest.approx(curve.epsilon(np.float64(1e-7)), rel=1e-3)
    assert isinstance(curve.epsilon(1e-5), float)
    assert isinstance(curve.delta(np.float32(1.0)), float)


def test_a_curve_can_be_pickled() -> None:
    curve = account(A.scheme(), noise_multiplier=1.0, steps=1, adjacency="zero-out")
    assert pickle.loads(pickle.dumps(curve)).epsilon(1e-5) == curve.epsilon(1e-5)


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


# --- extremes ---------------------------------------------------------------------------------------------------------

EXTREMES: dict[str, tuple[CappedPoisson, float, int]] = {
    "noise below all floats": (CappedPoisson(1000, 0.1, 100), 5e-324, 10),
    "the same, one step": (CappedPoisson(1000, 0.1, 100), 5e-324, 1),
    "the same, without sampling": (CappedPoisson(1000, 1.0, 1000), 5e-324, 3),
    "noise that overflows": (CappedPoisson(10, 1.0, 10), 1e-100, 1),
    "hardly any noise": (CappedPoisson(1000, 0.1, 1000), 1e-160, 2),
    "most steps": (CappedPoisson(10**15, 1e-12, 1100), 1.0, 2**63 - 1),
    "most steps, all examples": (CappedPoisson(10**15, 1.0, 10**15), 1.0, 2**63 - 1),
    "vast noise": (CappedPoisson(1000, 0.1, 100), 1e300, 2**63 - 1),
    "tiny rate": (CappedPoisson(10, 1e-300, 10), 0.1, 7),
    "no noise": (CappedPoisson(10**6, 1e-9, 10), 0.0, 2**63 - 1),
}

QUESTIONS: dict[str, Any] = {
    "epsilon": lambda curve: curve.epsilon(1e-5),
    "epsilon of small delta": lambda curve: curve.epsilon(5e-324),
    "epsilons": lambda curve: curve.epsilon(np.array([1e-3, 0.999999])),
    "delta": lambda curve: curve.delta(1.0),
    "delta of large epsilon": lambda curve: curve.delta(1e308),
    "epsilon_bounds": lambda curve: curve.epsilon_bounds(1e-5),
    "delta_bounds": lambda curve: curve.delta_bounds(1.0),
    "true_positive_rate": lambda curve: curve.true_positive_rate(1e-3),
    "deltas of each order": lambda curve: delta_brackets_each_order(curve, np.ones(1)),
    "membership_advantage": lambda curve: curve.membership_advantage(),
    "bayes_error": lambda curve: curve.bayes_error(0.5),
    "posterior_belief": lambda curve: curve.posterior_belief(0.5, 1e-5),
}


def answer_or_refuse(question: str, curve: PrivacyCurve) -> None:
    try:
        found = QUESTIONS[question](curve)
    except NotCertifiedError as error:
        assert "\n" not in str(error)
        assert ";" in str(error)
        return
    values = np.asarray(found, dtype=float)
    assert not np.isnan(values).any(), question
    assert (values >= 0.0).all(), question


@pytest.mark.long
@pytest.mark.parametrize("extreme", EXTREMES)
def test_every_method_answers_or_refuses_at_the_extremes(extreme: str) -> None:
    scheme, noise, steps = EXTREMES[extreme]
    adjacency = ADJACENCIES[list(EXTREMES).index(extreme) % 3]
    try:
        curve = account(scheme, noise_multiplier=noise, steps=steps, adjacency=adjacency)
    except NotCertifiedError as error:
        assert ";" in str(error)
        return
    for question in QUESTIONS:
        answer_or_refuse(question, curve)


def test_every_question_of_the_curve_is_asked_at_the_extremes() -> None:
    """A method that is new has to refuse in the same words."""
    methods = {name for name, value in vars(PrivacyCurve).items() if callable(value) and not name.startswith("_")}
    assert methods <= {*QUESTIONS, "certificate"}  # whose refusals are tested with it


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_lower_bounds_answer_or_refuse_at_the_extremes(extreme: str, adjacency: str) -> None:
    scheme, noise, steps = EXTREMES[extreme]
    try:
        found = filet.epsilon_lower_bound(scheme, noise_multiplier=noise, steps=steps, adjacency=adjacency, delta=1e-5)
    except filet.FiletError as error:
        assert "\n" not in str(error)
        return
    assert found >= 0.0


@pytest.mark.parametrize(
    "error", [ArithmeticError("x"), OverflowError("x"), ZeroDivisionError("x"), FloatingPointError("x")]
)
def test_numbers_beyond_floats_become_a_refusal_and_what_filet_says_stays(error: Exception) -> None:
    def raising(error: Exception) -> None:
        raise error

    with pytest.raises(NotCertifiedError, match=r"^this run is beyond what floats can hold; use less extreme"):
        certified(raising)(error)
    with pytest.raises(InvalidArgumentError, match=r"^rule$"):
        certified(raising)(InvalidArgumentError("rule"))
    for mistake in (TypeError, IndexError, ValueError, AssertionError):
        with pytest.raises(mistake, match="of the programmer"):
            certified(raising)(mistake("a mistake of the programmer"))


def test_a_notebook_shows_what_was_composed_and_epsilons_below_one_in_the_examples() -> None:
    accountant = filet.Accountant("zero-out")
    accountant.compose(A.scheme(), 1.0, 100)
    accountant.compose(filet.CappedPoisson.uncapped(60_000, 0.01), 2.0, 10)
    accountant.compose_gaussian(30.0, 2)
    curve = accountant.curve()
    page = curve._repr_html_()
    for part in (
        "100 steps",
        "cap 300, truncate",
        "10 steps",
        "no cap",
        "2 Gaussian releases",
        "PrivacyCurve, zero-out",
    ):
        assert part in page
    for delta in (1e-5, 1e-6, 1e-8):
        assert (
            f"<td>epsilon at delta = {delta!r}</td><td>{filet.round_up(curve.epsilon(delta), zeros=True)}</td>" in page
        )


def test_a_notebook_shows_a_run_that_has_no_certified_epsilon() -> None:
    assert "epsilon at delta = 1e-05</td><td>0</td>" in filet.Accountant("zero-out").curve()._repr_html_()
    curve = account(CappedPoisson(1000, 0.01, 20), noise_multiplier=5e-324, steps=10, adjacency="zero-out")
    assert curve._repr_html_().count("not certified") == 3


def test_a_contradiction_is_never_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that cross prove a defect: a delta of 1 would hide it."""

    def crossed(*_: object) -> None:
        raise filet.NotCertifiedError("the bounds contradict each other")

    curve = account(A.scheme(), noise_multiplier=1.0, steps=100, adjacency="zero-out")
    monkeypatch.setattr("filet.accounting.run.Run.deltas", crossed)
    with pytest.raises(filet.NotCertifiedError, match="contradict"):
        curve.delta(1.0)


def test_a_delta_beyond_floats_is_anything_between_zero_and_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of it: neither that the run is private, nor that it is not."""

    def beyond(*_: object) -> None:
        raise OverflowError("math range error")

    curve = account(A.scheme(), noise_multiplier=1.0, steps=100, adjacency="zero-out")
    monkeypatch.setattr("filet.accounting.run.Run.deltas", beyond)
    assert curve.delta_bounds(1.0) == filet.Bounds(0.0, 1.0)
    lower, upper = curve.delta_bounds(np.array([[0.5, 1.0], [2.0, 3.0]]))
    assert (lower.tolist(), upper.tolist()) == ([[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2)
    assert curve.delta(2.0) == 1.0


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("analysis", ["refined", "swap", "union"])
def test_an_answer_depends_on_its_question_alone(adjacency: str, analysis: str) -> None:
    """Other questions, asked before of the same curve or of others, change no digit."""
    words: dict[str, Any] = {"noise_multiplier": A.sigma, "steps": 300, "adjacency": adjacency, "analysis": analysis}
    deltas, epsilons = np.geomspace(1e-9, 1e-3, 6), np.array([0.3, 0.6, 1.1])
    fresh = [account(A.scheme(), **words) for _ in range(4)]
    alone = [
        fresh[0].epsilon_bounds(deltas).upper.tolist(),
        fresh[1].epsilon_bounds(1e-5),
        fresh[2].delta_bounds(epsilons).upper.tolist(),
        fresh[3].delta_bounds(0.6),
    ]
    used = account(A.scheme(), **words)
    used.epsilon(np.geomspace(1e-12, 1e-2, 9))
    used.delta(np.linspace(0.0, 2.0, 5))
    account(A.scheme(), **words | {"steps": 301}).epsilon(1e-5)
    assert alone == [
        used.epsilon_bounds(deltas).upper.tolist(),
        used.epsilon_bounds(1e-5),
        used.delta_bounds(epsilons).upper.tolist(),
        used.delta_bounds(0.6),
    ]
    shuffled = [3, 0, 5, 1, 4, 2, 0]
    assert used.epsilon_bounds(deltas[shuffled]).upper.tolist() == np.array(alone[0])[shuffled].tolist()
    assert used.epsilon_bounds(np.array([1e-5])).upper.tolist() == [alone[1].upper]  # type: ignore[union-attr]
    assert used.delta_bounds(np.array([0.6])).lower.tolist() == [alone[3].lower]  # type: ignore[union-attr]


@pytest.mark.parametrize("adjacency", ["zero-out", "add-remove"])
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_a_noise_whose_losses_overflow_is_refused_by_its_name(adjacency, overflow) -> None:
    scheme = CappedPoisson(60_000, 256 / 60_000, 300, overflow)
    curve = account(scheme, noise_multiplier=1e-300, steps=10, adjacency=adjacency)
    with pytest.raises(NotCertifiedError) as caught:
        curve.epsilon(1e-5)
    assert str(caught.value).endswith("; use more noise than noise_multiplier=1e-300, or 0 for none")
    assert "Error" not in str(caught.value)
