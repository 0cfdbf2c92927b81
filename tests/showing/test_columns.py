"""Columns: the arrays are the library's numbers, bounds stay bounds, and text keeps every bit."""

import math

import numpy as np
import pytest

import filet
from filet.errors import InvalidArgumentError
from filet.planning.strategies import STRATEGIES
from filet.showing import columns

SCHEME = filet.CappedPoisson(60_000, 256 / 60_000, 300)
CURVE = filet.account(SCHEME, noise_multiplier=1.0, steps=1_000, adjacency="zero-out")


def parsed(text):
    header, *rows = text.splitlines()
    return dict(zip(header.split(","), np.array([[float(v) for v in row.split(",")] for row in rows]).T, strict=True))


def test_epsilon_against_steps_is_the_accountants_at_every_step():
    curve = columns.epsilon_of_steps(SCHEME, noise_multiplier=1.0, steps=1_000, delta=1e-5, adjacency="zero-out",
                                    analyses=["refined", "note"], points=4)  # fmt: skip
    assert curve["steps"].tolist() == [1, 112, 445, 1000]
    for analysis in ("refined", "note"):
        last = filet.account(SCHEME, noise_multiplier=1.0, steps=1_000, adjacency="zero-out", analysis=analysis)
        assert curve[f"epsilon_{analysis}"][-1] == last.epsilon(1e-5)
        assert (np.diff(curve[f"epsilon_{analysis}"]) > 0).all()
        assert (curve["epsilon_attack"] <= curve[f"epsilon_{analysis}"]).all()
    known = filet.epsilon_lower_bound(SCHEME, noise_multiplier=1.0, steps=1_000, adjacency="zero-out", delta=1e-5)
    assert curve["epsilon_attack"][-1] == known > 0


def test_delta_against_epsilon_brackets_and_falls():
    curve = columns.delta_of_epsilon(CURVE, points=9)
    assert (curve["delta_lower"] <= curve["delta_upper"]).all()
    assert (curve["delta_attack"] <= curve["delta_upper"]).all()
    assert curve["delta_attack"][0] > 0.5 * curve["delta_upper"][0]
    assert (np.diff(curve["delta_upper"]) < 0).all()
    assert curve["delta_upper"][-1] == pytest.approx(1e-12, rel=0.01)


def test_the_gaussian_trade_off_is_met_by_the_attack_and_the_bound():
    # With every example in every step both columns must enclose Phi(Phi^-1(f) + mu).
    from scipy.special import ndtr, ndtri

    scheme = filet.CappedPoisson(10, 1.0, 10)
    curve = columns.trade_off(filet.account(scheme, noise_multiplier=2.0, steps=4, adjacency="zero-out"), points=13)
    exact = ndtr(ndtri(curve["false_positive_rate"]) + 1.0)
    assert (curve["true_positive_rate_lower"] <= exact * (1 + 1e-6)).all()
    assert (curve["true_positive_rate_upper"] >= exact * (1 - 1e-6)).all()
    assert (curve["true_positive_rate_lower"] >= 0.8 * exact).all()


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_the_attacks_power_stays_below_the_bound_and_above_guessing(adjacency):
    accountant = filet.Accountant(adjacency)
    accountant.compose(SCHEME, 1.0, 1_000)
    accountant.compose(filet.CappedPoisson(60_000, 0.01, 700, overflow="reject", cycle_length=3), 2.0, 50)
    accountant.compose_gaussian(4.0)
    curve = columns.trade_off(accountant.curve(), points=9)
    f = curve["false_positive_rate"]
    assert (f <= curve["true_positive_rate_lower"]).all()
    assert (curve["true_positive_rate_lower"] <= curve["true_positive_rate_upper"]).all()
    assert curve["true_positive_rate_lower"][0] > 2 * f[0]


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_batch_sizes_sum_to_one_and_stop_at_the_cap(overflow):
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 260, overflow=overflow)
    curve = columns.batch_sizes(scheme)
    assert curve["probability"].sum() == pytest.approx(1.0, abs=1e-8)
    assert curve["probability_without_cap"].sum() == pytest.approx(1.0, abs=1e-8)
    assert (curve["probability"][curve["size"] > 260] == 0).all()
    assert curve["size"] @ curve["probability"] == pytest.approx(scheme.expected_batch_size, rel=1e-7)


def test_utilization_at_a_target_is_best_for_reject_and_worst_for_the_union_strategy():
    curve = columns.utilization_of_cap(dataset_size=60_000, max_batch_sizes=[256], noise_multiplier=1.0, steps=14_000,
                                      epsilon=3.0, delta=1e-5, adjacency="add-remove")  # fmt: skip
    union, note, refined, reject = (
        float(curve[f"utilization_{s.overflow}_{s.analysis}"][0]) for s in reversed(STRATEGIES)
    )
    assert 0.55 < union < note < refined < reject
    assert (note, refined, reject) == pytest.approx((0.81, 0.925, 0.97), abs=0.01)


def test_csv_keeps_every_bit():
    curve = columns.delta_of_epsilon(CURVE, points=5)
    back = parsed(curve.to_csv())
    for name in curve.arrays:
        assert (back[name] == curve[name]).all()


def test_without_noise_or_without_steps_the_attack_is_at_least_guessing():
    hit = SCHEME.inclusion_probability
    for noise, steps, more in ((0.0, 1, hit), (1.0, 0, 0.0), (math.inf, 5, 0.0)):
        curve = filet.account(SCHEME, noise_multiplier=noise, steps=steps, adjacency="zero-out")
        both = columns.trade_off(curve, points=4)
        rates = both["false_positive_rate"]
        assert (both["true_positive_rate_lower"] == rates).all()
        assert both["true_positive_rate_upper"] == pytest.approx(np.minimum(rates + more, 1.0), rel=1e-9)


def test_a_target_that_nothing_meets_is_zero_and_a_wrong_one_an_error():
    given = {"dataset_size": 1_000, "max_batch_sizes": [20], "noise_multiplier": 0.0, "steps": 10, "delta": 1e-5}
    found = columns.utilization_of_cap(**given, epsilon=1.0, adjacency="zero-out")
    assert [found[name].tolist() for name in list(found.arrays)[1:]] == [[0.0]] * len(STRATEGIES)
    with pytest.raises(InvalidArgumentError, match="epsilon=-1"):
        columns.utilization_of_cap(**given, epsilon=-1.0, adjacency="zero-out")


@pytest.mark.long
def test_the_frontier_is_the_planners():
    given = {"dataset_size": 3_000, "max_batch_size": 48, "sampling_probability": 0.012, "epsilon": 2.0, "delta": 1e-5,
                 "adjacency": "zero-out"}  # fmt: skip
    found = columns.frontier_of_steps(**given, steps=300, points=3)
    assert found["steps"].tolist() == [10, 300, 9000]
    again = filet.frontier(over="steps", values=[10, 300, 9000], **given)
    assert list(found.arrays) == ["steps", *again.series]
    for name, series in again.series.items():
        assert np.array_equal(found[name], series, equal_nan=True)


@pytest.mark.parametrize("points", [0, 1, 10**15])
def test_the_number_of_points_is_checked(points):
    with pytest.raises(InvalidArgumentError, match="points="):
        columns.delta_of_epsilon(CURVE, points=points)


def test_a_run_without_a_finite_epsilon_has_the_same_delta_at_every_one():
    exposed = filet.account(SCHEME, noise_multiplier=0.0, steps=1, adjacency="zero-out")
    found = columns.delta_of_epsilon(exposed, points=3)
    assert found["epsilon"].tolist() == [0.0, 5.0, 10.0]
    assert found["delta_upper"].tolist() == exposed.delta([0.0, 5.0, 10.0]).tolist()


def test_too_many_sizes_say_what_to_pass():
    with pytest.raises(InvalidArgumentError, match="too many to list"):
        columns.batch_sizes(filet.CappedPoisson(10**12, 0.5, 10**12))


def test_progress_rises_to_one_in_every_kind():
    for draw in (
        lambda report: columns.delta_of_epsilon(CURVE, points=3, progress=report),
        lambda report: columns.trade_off(CURVE, points=3, progress=report),
        lambda report: columns.epsilon_of_steps(SCHEME, noise_multiplier=1.0, steps=9, delta=1e-5, adjacency="zero-out",
                                                points=2, progress=report),
    ):  # fmt: skip
        seen = []
        draw(lambda share, label: seen.append((share, label)))  # noqa: B023, called at once
        shares = [share for share, _ in seen]
        assert shares == sorted(shares)
        assert (shares[0], seen[-1]) == (0.0, (1.0, "done"))


def test_the_steps_of_a_run_end_with_what_it_costs():
    accountant = filet.Accountant("replace-one")
    accountant.compose(filet.CappedPoisson(1_000, 0.05, 60), 2.0, 6)
    accountant.compose(filet.CappedPoisson(1_000, 0.05, 80, "reject"), 3.0, 4)
    accountant.compose_gaussian(9.0)
    found = columns.epsilon_of_run(accountant.curve(), delta=1e-5, points=6)
    assert found["steps"].tolist() == [0, 2, 4, 6, 8, 10]
    alone = filet.Accountant("replace-one")
    alone.compose_gaussian(9.0)
    assert found["epsilon_run"][0] == alone.epsilon(1e-5)
    assert found["epsilon_run"][-1] == accountant.epsilon(1e-5)
    assert (np.diff(found["epsilon_run"]) > 0).all()


def test_without_a_cap_the_sizes_are_those_of_poisson_batches():
    found = columns.batch_sizes(filet.CappedPoisson.uncapped(60_000, 256 / 60_000))
    assert "max_batch_size" not in found.marks
    assert "no cap" in found.assumptions
    assert found["size"][-1] < 400
    assert found["probability"].sum() == pytest.approx(1.0, abs=1e-8)


def test_epsilon_against_the_cap_is_the_accountants_at_every_cap_and_never_below_no_cap_but_for_reject():
    scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    given = {"noise_multiplier": 1.0, "steps": 100, "adjacency": "zero-out"}
    found = columns.epsilon_of_cap(scheme, delta=1e-5, points=3, **given)
    assert found["max_batch_size"].tolist() == [248, 300, 316, 384]
    for policy, analysis in columns.CAPPED:
        capped = filet.CappedPoisson(60_000, 256 / 60_000, 300, policy)
        value = filet.account(capped, analysis=analysis, **given).epsilon(1e-5)
        assert found[f"epsilon_{policy}_{analysis}"][1] == value
    free = filet.CappedPoisson.uncapped(60_000, 256 / 60_000)
    assert set(found["epsilon_no_cap"].tolist()) == {filet.account(free, **given).epsilon(1e-5)}
    assert (found["epsilon_truncate_refined"] >= found["epsilon_no_cap"] * (1 - 1e-3)).all()


@pytest.mark.parametrize("cap", [1, 20, None])
def test_caps_of_small_data_sets_stay_within_them(cap):
    scheme = filet.CappedPoisson(20, 0.5, cap)
    given = {"noise_multiplier": 2.0, "steps": 3, "delta": 1e-3, "adjacency": "add-remove"}
    found = columns.epsilon_of_cap(scheme, points=5, **given)
    assert found["max_batch_size"].min() >= 1
    assert found["max_batch_size"].max() <= 20
