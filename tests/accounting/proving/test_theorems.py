"""One-step loss laws: against the 50-digit table, the note's sum, and limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from tests.accounting.laws import law_of, rows
from tests.reference.exact import weights

from filet import Adjacency, Analysis, CappedPoisson
from filet._binomial import cap_weights, hazard, log_pmf, relative_error
from filet._rounding import LIGHTEST, UNDERFLOW, UNIT
from filet.accounting.proving import theorems as module
from filet.accounting.proving.loss_law import LossLaw, cell_masses
from filet.accounting.proving.theorems import lending_step, loss_law
from filet.accounting.search.closed_form import crossings
from filet.errors import NotCertifiedError


def profile(law: LossLaw, epsilon: np.ndarray) -> np.ndarray:
    """H at any real epsilon; below zero by the other direction."""
    above, _ = law.profile(np.maximum(epsilon, 0.0), crossings)
    below, _ = law.reversed().profile(np.maximum(-epsilon, 0.0), crossings)
    return np.where(epsilon >= 0, above, -np.expm1(epsilon) + np.exp(epsilon) * below)


@pytest.mark.long
@pytest.mark.parametrize("part", range(12))
def test_every_row_of_the_reference_profiles_is_matched(part: int) -> None:
    table = rows("profiles.csv")
    assert len(table) > 400
    for row in table[part::12]:
        value = float(profile(law_of(row), np.array([float(row["epsilon"])]))[0])
        assert value == pytest.approx(float(row["delta"]), rel=1e-9), row


@pytest.mark.parametrize(("n", "p", "cap"), [(50, 0.3, 17), (200, 0.9, 150), (1000, 0.01, 8), (300, 1.0, 20)])
def test_the_closed_form_of_the_conditional_rate_equals_the_notes_sum(n: int, p: float, cap: int) -> None:
    tail = [math.exp(log_pmf(s, n - 1, p)) for s in range(cap, n)]
    expected = p * sum(v * cap / (s + 1) for s, v in zip(range(cap, n), tail, strict=True)) / sum(tail)
    assert cap_weights(n, p, cap).q == pytest.approx(expected, rel=1e-12)


CORNERS = [(10**6, 0.5, 100), (1000, 1 - 1e-6, 1), (1000, 1 - 1e-6, 500), (10**6, 1 - 1e-6, 10**6 - 3),
           (10**9, 1 - 1e-9, 10**9 - 3), (60_000, 256 / 60_000, 300), (10**9, 1e-6, 1010),
           (3, 0.5, 2), (50, 0.3, 1), (50, 0.3, 2), (50, 0.3, 49)]  # fmt: skip


@pytest.mark.parametrize(("n", "p", "cap"), [*CORNERS, (10**9, 1.0, 10**9 - 1), (5, 1.0, 2)])
def test_truncation_weights_are_within_their_stated_error(n: int, p: float, cap: int) -> None:
    exact, found = weights(n, p, cap), cap_weights(n, p, cap)
    error = loss_law(CappedPoisson(n, p, cap), 1.0, Adjacency.ZERO_OUT, Analysis.REFINED).weight_error
    assert error == found.error
    assert 1e-14 < error < 4e-12
    assert found.room + found.w + found.tau == pytest.approx(1.0, abs=4e-16)
    for name in ("w", "tau", "tq", "c", "q"):
        assert abs(getattr(found, name) - getattr(exact, name)) <= error * getattr(exact, name) + 1e-300, name
    assert abs(found.swap - (exact.tau - exact.tq)) <= error * (exact.tau - exact.tq)
    assert abs(found.stay - (1 - exact.p) * exact.w) <= error * (1 - exact.p) * exact.w + 1e-300
    assert abs(found.drop - (exact.p - exact.q)) <= error * (exact.p - exact.q)
    assert abs(found.rest_rate - (1 - exact.q)) <= error * (1 - exact.q)
    assert abs(found.room - (1 - exact.w - exact.tau)) <= error * (1 - exact.w - exact.tau) + 1e-16


@pytest.mark.parametrize(("n", "p", "cap"), CORNERS)
def test_rejection_weights_and_their_differences_keep_twelve_digits(n: int, p: float, cap: int) -> None:
    exact, scheme = weights(n, p, cap), CappedPoisson(n, p, cap, "reject")  # type: ignore[arg-type]
    law = loss_law(scheme, 0.5, Adjacency.ADD_REMOVE, Analysis.REFINED)
    ((piece,), (atom,)), full = (law.pieces, law.atoms), exact.b_prime
    rest, hit, free = exact.k * (1 - exact.p), exact.k * exact.p, 1 - exact.b_prime
    assert piece.means == (0.0, 2.0)
    assert 1e-14 < law.weight_error < 4e-12
    expected = [(piece.p, (free * rest, free * hit)), (piece.q, (free, 0)), (piece.d, (free * (rest - 1), free * hit)),
                ((atom.loss, atom.p, atom.q), (mp.log(rest), full * rest, full))]  # fmt: skip
    for found, true in expected:
        assert all(abs(a - b) <= 1e-12 * abs(b) for a, b in zip(found, true, strict=True)), (found, true)
    same_size = loss_law(scheme, 0.5, Adjacency.REPLACE_ONE, Analysis.REFINED).atoms[0]
    # the others fill the batch: exactly cap of them, given that the batch is accepted
    assert same_size.loss == 0.0
    assert abs(same_size.p - exact.b) <= 1e-12 * exact.b
    assert same_size.p == same_size.q


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_cap_too_light_for_floats_is_plain_poisson_and_a_chance_of_any_loss(adjacency: Adjacency) -> None:
    law = loss_law(CappedPoisson(60_000, 0.004, 30_000), 0.7, adjacency, Analysis.REFINED)
    plain = loss_law(CappedPoisson(60_000, 0.004, 60_000), 0.7, adjacency, Analysis.REFINED)
    assert law.pieces == plain.pieces
    assert law.lost >= weights(60_000, 0.004, 30_000).w + weights(60_000, 0.004, 30_000).tau
    assert 0.0 < law.lost < 1e-280


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("analysis", [Analysis.REFINED, Analysis.NOTE])
# the weight tau underflows alone; c does; q is rounded to p
@pytest.mark.parametrize(("n", "p", "cap"), [(1000, 1e-140, 3), (10**15, 0.9, 900_000_056_920_997)])
def test_weights_at_the_edge_of_floats_still_make_a_law(
    n: int, p: float, cap: int, analysis: Analysis, adjacency: Adjacency
) -> None:
    law = loss_law(CappedPoisson(n, p, cap), 1.0, adjacency, analysis)
    plain = loss_law(CappedPoisson(n, p, n), 1.0, adjacency, Analysis.REFINED)
    epsilon = np.array([0.0, 0.1])
    assert law.profile(epsilon, crossings)[0] == pytest.approx(plain.profile(epsilon, crossings)[0], rel=1e-6, abs=0)
    assert 1e-14 < law.weight_error < 4e-12


def test_data_sets_beyond_the_digits_of_binomial_tails_are_refused_where_tails_are_needed() -> None:
    def law(n: int, cap: int, analysis: Analysis = Analysis.REFINED) -> LossLaw:
        return loss_law(CappedPoisson(n, 1e-12, cap), 1.0, Adjacency.ZERO_OUT, analysis)

    assert 1e-14 < law(10**15, 1100).weight_error < 4e-13
    with pytest.raises(NotCertifiedError, match=r"^dataset_size=1000000000000001 is above 10\*\*15, .*; use fewer$"):
        law(10**15 + 1, 1100)
    assert law(10**16, 10**16) == law(10**16, 1100, Analysis.UNION) == law(10, 10)
    assert lending_step(CappedPoisson(10**15, 0.3, 3 * 10**14), 1.0, Adjacency.ZERO_OUT, 5) is not None
    assert lending_step(CappedPoisson(10**15 + 1, 0.3, 3 * 10**14), 1.0, Adjacency.ZERO_OUT, 5) is None


@pytest.mark.parametrize("log", [-670.0, -800.0])  # a float with few digits, and none at all
def test_weights_too_light_for_their_digits_are_left_out_and_counted_as_lost(log: float) -> None:
    v, light = cap_weights(100, 0.5, 60), math.exp(log)
    assert 0.0 <= light < LIGHTEST
    assert module._resolved(v, 0.01) == (v, 0.0, True)
    few = replace(v, room=light, log_room=log)
    assert module._resolved(few, 0.01) == (
        replace(few, room=0.0),
        LIGHTEST,
        True,
    )  # plain Poisson: losses stay as they are
    near = replace(v, w=light, stay=light, log_w=log)
    assert module._resolved(near, 1.0) == (replace(near, w=0.0, stay=0.0), LIGHTEST, True)
    full = replace(v, tau=light, tq=light, swap=light, log_tau=log)
    assert module._resolved(full, 1.0) == (replace(full, tau=0.0, tq=0.0, swap=0.0), LIGHTEST, True)
    all_of_them = replace(full, room=light, w=light, stay=light, log_room=log, log_w=log)
    assert module._resolved(all_of_them, 1.0)[1] == pytest.approx(3 * LIGHTEST, rel=1e-12, abs=0.0)
    for one in (near, full):  # losses of hundreds: lower bounds cannot tell
        assert [module._resolved(one, math.sqrt(2.0 / loss))[2] for loss in (300.5, 299.5)] == [False, True]


def test_weights_that_are_truly_nothing_lose_nothing() -> None:
    v = cap_weights(100, 0.5, 60)
    for none in (
        replace(v, room=0.0, log_room=-math.inf),
        replace(v, w=0.0, log_w=-math.inf),
        replace(v, tau=0.0, log_tau=-math.inf),
    ):
        assert module._resolved(none, 0.01) == (none, 0.0, True)


def test_the_lightest_weight_that_has_its_digits_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    v = cap_weights(100, 0.5, 60)
    kept = replace(v, room=LIGHTEST, w=LIGHTEST, tau=LIGHTEST)
    assert module._resolved(kept, 0.01) == (kept, 0.0, True)
    alone = replace(v, w=LIGHTEST, tau=0.0, tq=0.0, swap=0.0, log_tau=-math.inf)
    monkeypatch.setattr(module, "cap_weights", lambda *_: alone)
    law = loss_law(CappedPoisson(100, 0.5, 60), 1.0, Adjacency.ZERO_OUT, Analysis.REFINED)
    assert (len(law.pieces), law.lost) == (3, 0.0)


def test_a_rate_at_the_very_end_of_floats_still_makes_a_law() -> None:
    """Here q is so near p that their difference is no float, and the two ways to compare meet nowhere."""
    assert (cap_weights(2, 5e-324, 1).drop, cap_weights(2, 5e-324, 1).c) == (0.0, 5e-324)
    law = loss_law(CappedPoisson(2, 5e-324, 1), 1.0, Adjacency.ADD_REMOVE, Analysis.REFINED)
    assert [piece.high for piece in law.pieces] == [math.inf]


def test_masses_between_two_points_are_as_exact_as_the_smaller_tails() -> None:
    rng = np.random.default_rng(2)
    for low, width in zip(rng.uniform(0.3, 1.0, 200).tolist(), rng.uniform(0.5, 3.0, 200).tolist(), strict=True):
        with mp.workdps(40):
            exact = mp.ncdf(-mp.mpf(low)) - mp.ncdf(-mp.mpf(low + width))
            for found in (module._between(low, low + width), module._between(-low - width, -low)):
                assert abs(found - exact) <= 3 * UNIT * mp.ncdf(-low)


@pytest.mark.parametrize(
    ("low", "high"), [(5.0, 9.0), (-9.0, -5.0), (-1.0, 2.0), (0.5, 0.6), (8.0, 20.0), (-20.0, -8.0), (-3.0, 40.0)]
)
def test_masses_between_two_points_keep_their_digits(low: float, high: float) -> None:
    with mp.workdps(40):
        exact = float(mp.ncdf(high) - mp.ncdf(low)) if low < 0 else float(mp.ncdf(-low) - mp.ncdf(-high))
    assert module._between(low, high) == pytest.approx(exact, rel=1e-13, abs=0.0)


@pytest.mark.parametrize(("n", "p", "cap"), [*CORNERS[1:], (1000, 1 - 1e-6, 999)])
def test_the_loss_where_truncation_hides_most_keeps_twelve_digits(n: int, p: float, cap: int) -> None:
    (atom,) = loss_law(CappedPoisson(n, p, cap), 1.0, Adjacency.ADD_REMOVE, Analysis.REFINED).atoms
    exact = mp.log1p(-weights(n, p, cap).q)
    assert abs(atom.loss - exact) <= 4e-12 * abs(exact)


@pytest.mark.parametrize(("n", "p", "cap"), CORNERS)
def test_the_error_of_rejection_is_that_of_its_lighter_chance(n: int, p: float, cap: int) -> None:
    for adjacency in Adjacency:
        law = loss_law(CappedPoisson(n, p, cap, "reject"), 1.0, adjacency, Analysis.REFINED)  # type: ignore[arg-type]
        chances = hazard(cap, n - 1 if adjacency is Adjacency.ADD_REMOVE else n, p)
        assert law.weight_error == 4.0 * max(relative_error(math.log(max(one, 1e-300))) for one in chances)
        assert law.lost == UNDERFLOW


@pytest.mark.parametrize("name", ["room", "w", "tau", "tq", "c", "q", "swap"])
@pytest.mark.parametrize("value", [math.nan, -1e-300, 1.0 + 1e-12])
def test_weights_that_are_no_chances_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    broken = replace(cap_weights(100, 0.5, 60), **{name: value})
    monkeypatch.setattr(module, "cap_weights", lambda *_: broken)
    with pytest.raises(NotCertifiedError, match="dataset_size=100 are beyond floating point"):
        loss_law(CappedPoisson(100, 0.5, 60), 1.0, Adjacency.ZERO_OUT, Analysis.REFINED)


@pytest.mark.parametrize(("n", "p", "cap", "overflow", "sigma", "count"), [
    (40, 0.3, 40, "truncate", 1.0, 5), (40, 0.3, 1, "truncate", 1.0, 5), (40, 1.0, 15, "truncate", 1.0, 5),
    (40, 0.3, 15, "reject", 1.0, 5), (40, 0.3, 15, "truncate", 1.0, 0), (40, 0.3, 15, "truncate", 1e-3, 5),
    (60_000, 0.004, 30_000, "truncate", 1.0, 5)])  # fmt: skip
def test_a_step_without_anything_to_lend_is_none(
    n: int, p: float, cap: int, overflow: str, sigma: float, count: int
) -> None:
    scheme = CappedPoisson(n, p, cap, overflow)  # type: ignore[arg-type]
    assert lending_step(scheme, sigma, Adjacency.ADD_REMOVE, count) is None


def test_a_step_for_lending_is_that_of_one_group() -> None:
    step = lending_step(CappedPoisson(400, 0.3, 15, cycle_length=10), 1.2, Adjacency.ZERO_OUT, 5)
    assert step is not None
    assert (step.n, step.p, step.cap, step.sigma, step.adjacency, step.lenders) == (40, 0.3, 15, 1.2, "zero-out", 5)
    assert step.weights == cap_weights(40, 0.3, 15)
    least = lending_step(CappedPoisson(40, 0.05, 2), 1.2, Adjacency.ZERO_OUT, 1)  # one place more than one, one lender
    assert least is not None
    assert (least.cap, least.lenders) == (2, 1)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_weights_too_light_for_their_digits_count_as_any_loss_and_prove_nothing_from_below(
    adjacency: Adjacency,
) -> None:
    """Full batches of weight e^-700 or so: they may matter from below where losses reach hundreds, and only there."""
    for sigma, whole in ((1.0, True), (0.05, False)):
        law = loss_law(CappedPoisson(10**4, 0.5, 3150), sigma, adjacency, Analysis.REFINED)
        assert (law.whole, 0.0 < law.lost < 1e-280) == (whole, True)


SIGMAS = (0.1, 0.7, 1.0, 10.0)
EPSILONS = np.array([-2.0, -0.5, -1e-3, 0.0, 1e-4, 0.01, 0.3, 1.0, 4.0])


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("overflow", ["truncate", "reject"])
def test_a_cap_that_never_binds_is_plain_poisson(adjacency: Adjacency, overflow: str) -> None:
    for cap in (40, 41, 1000):
        scheme = CappedPoisson(40, 0.3, cap, overflow)  # type: ignore[arg-type]
        plain = CappedPoisson(40, 0.3, 10**6)
        for analysis in Analysis if overflow == "truncate" else [Analysis.REFINED]:
            assert loss_law(scheme, 1.0, adjacency, analysis) == loss_law(plain, 1.0, adjacency, Analysis.REFINED)


@pytest.mark.parametrize("sigma", SIGMAS)
def test_always_truncating_is_fixed_size_sampling_at_twice_the_distance(sigma: float) -> None:
    law = loss_law(CappedPoisson(50, 1.0, 20), sigma, Adjacency.ADD_REMOVE, Analysis.REFINED)
    doubled = loss_law(CappedPoisson(50, 20 / 50, 50), sigma / 2, Adjacency.ADD_REMOVE, Analysis.REFINED)
    assert profile(law, EPSILONS) == pytest.approx(profile(doubled, EPSILONS), rel=1e-10, abs=1e-300)


def combinations() -> Iterator[tuple[CappedPoisson, float, Adjacency]]:
    for n, p, cap in [(5, 0.5, 2), (60, 0.5, 30), (1000, 0.01, 12), (60_000, 256 / 60_000, 300), (10**9, 1e-6, 1010)]:
        for sigma in SIGMAS:
            for adjacency in Adjacency:
                yield CappedPoisson(n, p, cap), sigma, adjacency


@pytest.mark.long
def test_refined_is_never_above_the_note() -> None:
    for scheme, sigma, adjacency in combinations():
        refined = profile(loss_law(scheme, sigma, adjacency, Analysis.REFINED), EPSILONS)
        note = profile(loss_law(scheme, sigma, adjacency, Analysis.NOTE), EPSILONS)
        assert (refined <= note * (1 + 1e-9) + 1e-15).all(), (scheme, sigma, adjacency)


def test_reject_is_never_above_plain_poisson_when_sizes_are_equal() -> None:
    for scheme, sigma, adjacency in combinations():
        if adjacency is Adjacency.ADD_REMOVE:
            continue
        n, p = scheme.dataset_size, scheme.sampling_probability
        reject = loss_law(CappedPoisson(n, p, scheme.max_batch_size, "reject"), sigma, adjacency, Analysis.REFINED)  # type: ignore[arg-type]
        plain = loss_law(CappedPoisson(n, p, n), sigma, adjacency, Analysis.REFINED)
        assert (profile(reject, EPSILONS) <= profile(plain, EPSILONS) * (1 + 1e-9) + 1e-15).all()


@pytest.mark.long
def test_profiles_are_convex_decreasing_and_above_the_trivial_bound() -> None:
    a = np.exp(np.linspace(-3.0, 3.0, 241))
    for scheme, sigma, adjacency in combinations():
        for analysis in (Analysis.REFINED, Analysis.NOTE):
            values = profile(loss_law(scheme, sigma, adjacency, analysis), np.log(a))
            slopes = np.diff(values) / np.diff(a)
            assert (slopes <= 1e-12).all()
            assert (np.diff(slopes) >= -1e-9).all()
            assert (values >= np.maximum(0.0, 1.0 - a) - 1e-12).all()


def test_p_and_q_have_unit_mass() -> None:
    for scheme, sigma, adjacency in combinations():
        for overflow in ("truncate", "reject"):
            capped = CappedPoisson(scheme.dataset_size, scheme.sampling_probability, scheme.max_batch_size, overflow)  # type: ignore[arg-type]
            law = loss_law(capped, sigma, adjacency, Analysis.REFINED)
            ends = [np.array([piece.low, piece.high]) for piece in law.pieces]
            masses = [cell_masses(*piece.columns, x) for piece, x in zip(law.pieces, ends, strict=True)]
            for which in (0, 1):
                total = sum(float(m[which][0]) for m in masses) + sum((a.p, a.q)[which] for a in law.atoms)
                assert total == pytest.approx(1.0, abs=1e-12), (capped, sigma, adjacency)
