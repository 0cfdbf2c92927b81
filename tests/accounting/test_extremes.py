"""Bounds at the extremes hold the truth, from both sides: against 60-digit profiles, composed closed forms, and named examples."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from mpmath import mp, mpf
from tests.reference import extremes, extremes_composed
from tests.reference.extremes import Step

from filet import Accountant, CappedPoisson, NotCertifiedError, PrivacyCurve, account, epsilon_lower_bound
from filet.accounting.curve import delta_brackets_each_order
from filet.accounting.terms import Bounds

TABLES = Path(__file__).parents[1] / "reference" / "tables"
PRINTED = mpf(10) ** -20  # relative error of the tables' digits
MARGIN = mpf(2) ** -50
Row = dict[str, str]


def table(name: str) -> Iterator[Row]:
    """Rows of a table; an empty field repeats the one above."""
    above: Row = {}
    with (TABLES / f"extremes_{name}.csv").open() as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            above = {k: v or ("" if name == "composed" else above[k]) for k, v in row.items()}
            yield above


def scheme(n: int, p: float, cap: int, policy: str) -> CappedPoisson:
    return CappedPoisson(n, p, n if policy == "none" else cap, "truncate" if policy == "none" else policy)  # type: ignore[arg-type]


def named(policy: str, analysis: str) -> str:
    """The library's name of a table's analysis: the tables know nothing of lending."""
    return "swap" if (policy, analysis) == ("truncate", "refined") else analysis


def step_curve(row: Row) -> PrivacyCurve:
    drawn = scheme(int(row["n"]), float(row["p"]), int(row["cap"]), row["policy"])
    sigma, analysis = float(row["sigma"]), named(row["policy"], row["analysis"])
    return account(drawn, noise_multiplier=sigma, steps=1, adjacency=row["adjacency"], analysis=analysis)


def run_curve(row: Row) -> PrivacyCurve:
    accountant = Accountant(row["adjacency"])
    for text in filter(None, row["steps"].split(";")):
        n, p, cap, policy, analysis, sigma, count = text.split()
        accountant.compose(
            scheme(int(n), float(p), int(cap), policy), float(sigma), int(count), analysis=named(policy, analysis)
        )
    for text in filter(None, row["releases"].split(";")):
        sigma, count = text.split()
        accountant.compose_gaussian(float(sigma), int(count))
    return accountant.curve()


def holds(bounds: Bounds, truth: mpf, error: mpf) -> bool:
    return bounds.lower <= truth * (1 + error) and truth * (1 - error) <= bounds.upper


def each_order(curve: PrivacyCurve, epsilon: float) -> list[Bounds]:
    """Bounds of delta for each order of the neighbours."""
    found = delta_brackets_each_order(curve, np.array([epsilon]))
    return [Bounds(float(one.lower[0]), float(one.upper[0])) for one in found]


def check_epsilon(curve: PrivacyCurve, epsilon: float, delta: mpf, error: mpf) -> bool:
    """epsilon lies between the bounds at deltas a little above and a little below its own; False if refused."""
    try:
        assert curve.epsilon_bounds(float(delta * (1 - error - MARGIN))).upper >= epsilon
        assert curve.epsilon_bounds(float(delta * (1 + error + MARGIN))).lower <= epsilon
    except NotCertifiedError as refusal:
        assert "contradict" not in str(refusal)
        return False
    return True


def check_profiles(rows: Iterable[Row], every: int) -> tuple[int, int]:
    """Enclosure directions' deltas, and epsilon on some rows: how many epsilons of ordinary parameters were asked for and refused."""
    asked = refused = 0
    for number, row in enumerate(rows):
        curve, epsilon = step_curve(row), float(row["epsilon"])
        truth = [mpf(row[way]) for way in ("forward", "reverse")]
        for bounds, exact in zip(each_order(curve, epsilon), truth, strict=False):
            assert holds(bounds, exact, PRINTED), (row, bounds)
        if number % every == 0:  # the larger of the two, computed once more
            assert holds(curve.delta_bounds(epsilon), max(truth), PRINTED), row
        if number % every == 0 and 1e-285 < max(truth) < 0.999:
            answered = check_epsilon(curve, epsilon, max(truth), PRINTED)
            ordinary = epsilon > 0 and 0.1 < float(row["sigma"]) < 100 and 1e-15 < max(truth) < 0.1
            asked, refused = asked + ordinary, refused + (ordinary and not answered)
    return asked, refused


def check_composed(rows: Iterable[Row], *, costly: bool) -> None:
    """Deltas of all rows, and epsilons; those of hits told apart take seconds, as delta falls in steps there."""
    for row in rows:
        curve, epsilon, truth, error = run_curve(row), float(row["epsilon"]), mpf(row["delta"]), mpf(row["error"])
        assert holds(curve.delta_bounds(epsilon), truth, error), (row, curve.delta_bounds(epsilon))
        if 1e-285 < truth < 0.999 and (costly or row["part"] != "apart"):
            check_epsilon(curve, epsilon, truth, error)


@pytest.mark.long
def test_one_step_profiles_lie_in_their_bounds() -> None:
    asked, refused = check_profiles(list(table("profiles"))[::9], every=7)
    assert asked > 3
    assert refused <= 0.1 * asked


@pytest.mark.long
def test_composed_runs_lie_in_their_bounds() -> None:
    check_composed(list(table("composed"))[::10], costly=False)


@pytest.mark.slow
def test_every_kept_profile_lies_in_its_bounds() -> None:
    asked, refused = check_profiles(table("profiles"), every=1)
    assert asked > 100
    assert refused <= 0.05 * asked


@pytest.mark.slow
def test_every_composed_run_lies_in_its_bounds() -> None:
    rows = list(table("composed"))
    assert len(rows) >= 500
    check_composed(rows, costly=True)


@pytest.mark.slow
def test_twenty_thousand_profiles_lie_in_their_bounds() -> None:
    made = ({k: str(v) for k, v in row.items()} for row in extremes.rows(extremes.ROWS))
    check_profiles(made, every=20)


def test_the_tables_are_what_their_scripts_make() -> None:
    """The first rows of each; the references agree with `exact` elsewhere (tests of the reference)."""
    kept = next(iter(table("profiles")))
    step = Step(
        int(kept["n"]),
        float(kept["p"]),
        int(kept["cap"]),
        kept["policy"],
        kept["analysis"],
        kept["adjacency"],
        float(kept["sigma"]),
    )
    for forward, way in ((True, "forward"), (False, "reverse")):
        assert abs(step.delta(float(kept["epsilon"]), forward) / mpf(kept[way]) - 1) < PRINTED
    made = next(iter(extremes_composed.rows(["gaussian"])))
    assert {k: str(v) for k, v in made.items()} == next(iter(table("composed")))


# --- named examples -----------------------------------------------------------------------------------------------

ADJACENCIES = ("add-remove", "zero-out", "replace-one")


def brackets_truth(step: Step, delta: float) -> Bounds:
    """The bounds of epsilon(delta) for one step by Theorem 2 or 3, checked against the reference at both ends."""
    curve = account(
        scheme(step.n, step.p, step.cap, step.policy),
        noise_multiplier=step.sigma,
        steps=1,
        adjacency=step.adjacency,
        analysis="refined" if step.policy == "reject" else "swap",
    )
    bounds = curve.epsilon_bounds(delta)
    worst = [max(step.delta(e, forward) for forward in (True, False)) for e in bounds]
    assert worst[1] <= delta <= worst[0] or (bounds == (0.0, 0.0) and worst[1] <= delta)
    return bounds


def test_weights_of_a_nearly_certain_draw_keep_their_digits() -> None:
    n, p, cap = 58142183557163, 0.9999998881569551, 58142177061868
    bounds = brackets_truth(Step(n, p, cap, "truncate", "refined", "add-remove", 0.5), 1e-5)
    assert bounds.lower <= 15.3649 <= bounds.upper + 1e-4
    three = account(CappedPoisson(n, p, cap), noise_multiplier=0.5, steps=3, adjacency="add-remove").epsilon_bounds(
        1e-4
    )
    assert three.upper >= 20.71


def test_one_step_of_vast_noise_has_no_false_zero() -> None:
    bounds = brackets_truth(Step(10, 1e-10, 10, "none", "refined", "zero-out", 1e6), 1e-17)
    assert bounds.lower > 0.0
    curve = account(CappedPoisson(10, 1e-10, 10), noise_multiplier=1e6, steps=1, adjacency="zero-out")
    assert curve.delta_bounds(0.0).lower <= 3.9894228e-17 <= curve.delta_bounds(0.0).upper


def test_rare_hits_at_a_tiny_delta_have_bounds_of_some_width() -> None:
    bounds = brackets_truth(Step(10, 1e-14, 10, "none", "refined", "zero-out", 1.0), 1e-17)
    assert bounds.lower < bounds.upper


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_noise_and_hits_rarer_than_delta_is_epsilon_zero(adjacency: str) -> None:
    curve = account(CappedPoisson(10**6, 1e-9, 10), noise_multiplier=0.0, steps=1, adjacency=adjacency)
    assert curve.epsilon_bounds(1e-5) == (0.0, 0.0)
    assert curve.epsilon_bounds(1e-10) == (math.inf, math.inf)
    assert curve.delta_bounds(1.0).lower <= 1e-9 <= curve.delta_bounds(1.0).upper


def test_noise_whose_square_is_no_float_is_no_false_infinity() -> None:
    with pytest.raises(NotCertifiedError):
        account(CappedPoisson(10, 1.0, 10), noise_multiplier=1e-100, steps=1, adjacency="zero-out").epsilon_bounds(1e-5)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_lower_bounds_stay_below_the_truth_where_weights_underflow(adjacency: str) -> None:
    drawn, step = CappedPoisson(2627, 0.5, 18), Step(2627, 0.5, 18, "truncate", "refined", adjacency, 0.02)
    least = epsilon_lower_bound(drawn, noise_multiplier=0.02, steps=1, adjacency=adjacency, delta=1e-6)
    assert max(step.delta(least, forward) for forward in (True, False)) >= 1e-6
    try:
        bounds = account(drawn, noise_multiplier=0.02, steps=1, adjacency=adjacency).epsilon_bounds(1e-6)
    except NotCertifiedError as refusal:
        lower, upper = (float(v) for v in str(refusal).split("[")[1].split("]")[0].split(","))
        bounds = Bounds(lower, upper)
    assert max(step.delta(bounds.upper, forward) for forward in (True, False)) <= 1e-6
    assert max(step.delta(bounds.lower, forward) for forward in (True, False)) >= 1e-6


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("n", "p", "cap", "sigma", "delta"), [
    (10**15, 1.0, 10**15 - 1, 1.0, 1e-5), (10**15, 1.0, 10**15 - 1, 10.0, 0.01),
    (7116471893460, 0.9999999949779669, 7116471851038, 11.319985813422988, 0.022247288885131496)])  # fmt: skip
def test_attacks_on_vast_batches_lose_no_digits_of_their_coordinates(
    n: int, p: float, cap: int, sigma: float, delta: float, adjacency: str
) -> None:
    """The sum of a batch of 1e15 rows has a position of 1e15, whose rounding is a large part of one example."""
    least = epsilon_lower_bound(
        CappedPoisson(n, p, cap), noise_multiplier=sigma, steps=1, adjacency=adjacency, delta=delta
    )
    step = Step(n, p, cap, "truncate", "refined", adjacency, sigma)
    assert max(step.delta(least, forward) for forward in (True, False)) >= delta


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 50.0])
def test_the_union_strategy_claims_no_delta_above_one(epsilon: float) -> None:
    curve = account(
        CappedPoisson(60_000, 256 / 60_000, 256),
        noise_multiplier=1.0,
        steps=100,
        adjacency="add-remove",
        analysis="union",
    )
    bounds = curve.delta_bounds(epsilon)
    assert 0.0 <= bounds.lower <= bounds.upper <= 1.0


@pytest.mark.parametrize("deviations", [36.5, 37.0, 37.5, 38.0, 38.4])
def test_deltas_without_all_their_digits_are_not_claimed_from_below(deviations: float) -> None:
    """Floats below 1e-308 are rounded to few digits."""
    step = Step(10, 0.1, 10, "none", "refined", "replace-one", 0.14)
    epsilon = 0.5 / 0.14**2 + deviations / 0.14 + math.log(0.1 / 0.9)
    curve = account(CappedPoisson(10, 0.1, 10), noise_multiplier=0.14, steps=1, adjacency="replace-one")
    for more in range(8):
        assert holds(curve.delta_bounds(epsilon + 0.1 * more), step.delta(epsilon + 0.1 * more, True), PRINTED)


def test_one_step_is_answered_at_deltas_far_below_any_rounding() -> None:
    brackets_truth(Step(60_000, 256 / 60_000, 300, "reject", "refined", "zero-out", 1.0), 1e-60)


def test_whole_numbers_are_epsilons_too() -> None:
    curve = account(CappedPoisson(60_000, 256 / 60_000, 256), noise_multiplier=1.0, steps=1, adjacency="zero-out")
    assert curve.delta_bounds(20) == curve.delta_bounds(20.0)


@pytest.mark.parametrize("rate", [0.0, 1e-20, 1e-17, 1e-5, 0.5])
def test_no_test_has_more_power_than_claimed(rate: float) -> None:
    """The test that calls everything above a threshold a hit, at this false positive rate."""
    curve = account(CappedPoisson(10, 1e-17, 10), noise_multiplier=0.1, steps=1, adjacency="zero-out")
    with mp.workdps(60):
        cut = mp.findroot(lambda x: mp.log(extremes._tail(x) / rate), 3.0) if rate else mp.inf
        power = (1 - mpf(1e-17)) * rate + mpf(1e-17) * (extremes._tail(cut - 10) if rate else 0)
    assert power <= curve.true_positive_rate(rate) <= 1.0


@pytest.mark.parametrize("sigma", [1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_little_noise_has_thresholds_of_all_digits(sigma: float, adjacency: str) -> None:
    step = Step(1000, 0.01, 12, "truncate", "refined", adjacency, sigma)
    curve = account(CappedPoisson(1000, 0.01, 12), noise_multiplier=sigma, steps=1, adjacency=adjacency)
    for deviations in (-3.0, 0.0, 3.0, 12.0, 30.0):
        epsilon = 0.5 / sigma**2 + deviations / sigma
        each = each_order(curve, epsilon)
        for bounds, forward in zip(each, (True, False), strict=False):
            assert holds(bounds, step.delta(epsilon, forward), PRINTED)


def shift(orders: Iterable[tuple[float, int, int]]) -> Accountant:
    """Releases (noise, count, calls)."""
    accountant = Accountant("zero-out")
    for sigma, count, calls in orders:
        for _ in range(calls):
            accountant.compose_gaussian(sigma, count)
    return accountant


@pytest.mark.parametrize("orders", [
    [(1.0, 1, 1), (1e8, 200_000, 1)], [(1e8, 200_000, 1), (1.0, 1, 1)], [(1.0, 1, 1), (1e8, 1, 200_000)], [(1e8, 1, 200_000), (1.0, 1, 1)]],
    ids=["two calls", "two calls, faint first", "one call each", "one call each, faint first"])  # fmt: skip
def test_faint_gaussian_releases_are_not_rounded_away(orders: list[tuple[float, int, int]]) -> None:
    with mp.workdps(60):
        truth = extremes_composed.gaussian_delta(1 + mpf(200_000) / mpf(1e8) ** 2, mpf(36))
    assert holds(shift(orders).curve().delta_bounds(36.0), truth, PRINTED)


@pytest.mark.parametrize("mu", [1e3, 6e5, 1e6, 1e7, 1e8, 1e12])
@pytest.mark.parametrize("deviations", [-2.0, 0.0, 5.0, 30.0])
def test_gaussian_releases_of_almost_no_noise_lie_in_their_bounds(mu: float, deviations: float) -> None:
    epsilon = mu * (mu / 2 + deviations)
    with mp.workdps(120):
        truth = extremes_composed.gaussian_delta((1 / mpf(1.0 / mu)) ** 2, mpf(epsilon))
    assert holds(shift([(1.0 / mu, 1, 1)]).curve().delta_bounds(epsilon), truth, PRINTED)


def test_noise_at_the_end_of_floats_is_answered_or_refused() -> None:
    drawn = CappedPoisson(1000, 0.01, 20)
    curve = account(drawn, noise_multiplier=5e-324, steps=10, adjacency="zero-out")
    with pytest.raises(NotCertifiedError):
        curve.epsilon_bounds(1e-5)
    with pytest.raises(NotCertifiedError, match="noise is beyond floats"):
        curve.delta_bounds(1.0)
    with pytest.raises(NotCertifiedError):
        epsilon_lower_bound(drawn, noise_multiplier=5e-324, steps=10, adjacency="zero-out", delta=1e-5)


@pytest.mark.long
def test_more_steps_than_floats_count_leave_a_power_of_one() -> None:
    curve = account(CappedPoisson(10**15, 1e-10, 10**6), noise_multiplier=1.0, steps=2**63 - 1, adjacency="zero-out")
    assert curve.true_positive_rate(0.1) == 1.0


@pytest.mark.long
def test_costly_questions_are_answered_or_refused() -> None:
    little = account(CappedPoisson(1000, 0.01, 20), noise_multiplier=1e-6, steps=10, adjacency="zero-out")
    deep = account(CappedPoisson(1_100_000_000, 1e-9, 2, cycle_length=17), noise_multiplier=1.0, steps=66_428,
                   adjacency="add-remove", analysis="note")  # fmt: skip
    for curve, delta in ((little, 1e-5), (deep, 1e-289)):
        with pytest.raises(NotCertifiedError):
            curve.epsilon_bounds(delta)
    long = account(CappedPoisson(60_000, 256 / 60_000, 300), noise_multiplier=1.0, steps=10**15, adjacency="zero-out")
    assert long.true_positive_rate(0.1) == 1.0
    few = account(CappedPoisson(58_528_084, 1.86e-7, 17), noise_multiplier=0.39, steps=211, adjacency="add-remove")
    bounds = few.epsilon_bounds(1e-5)
    assert bounds.upper - bounds.lower <= max(1e-4, 1e-3 * bounds.upper)


def test_two_phases_of_one_step_each_are_answered_at_a_tiny_delta() -> None:
    accountant = Accountant("add-remove")
    accountant.compose(CappedPoisson(141_074, 0.275, 38_788), 133.0, 1)
    accountant.compose(CappedPoisson(141_074, 0.966, 1), 169.3, 1)
    bounds = accountant.curve().epsilon_bounds(9.7e-32)
    assert 0.0 < bounds.lower <= bounds.upper <= bounds.lower + 1e-4
