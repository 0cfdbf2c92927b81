"""One-step loss laws and their kernel: against the 50-digit table, the note's sum, and limits."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from tests.reference.exact import weights

from filet import Adjacency, Analysis, CappedPoisson
from filet._binomial import log_pmf
from filet.accounting.proving.loss_law import Atom, LossLaw, Piece, log_interval
from filet.accounting.proving.theorems import cap_weights, loss_law
from filet.errors import NotCertifiedError

TABLES = Path(__file__).parents[2] / "reference" / "tables"


def rows(name: str) -> list[dict[str, str]]:
    with (TABLES / name).open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def law_of(row: dict[str, Any]) -> LossLaw:
    n, p, sigma = int(row["n"]), float(row["p"]), float(row["sigma"])
    plain = row["analysis"] == "poisson"
    scheme = CappedPoisson(n, p, n if plain else int(row["B"]), "truncate" if plain else row["overflow"])  # type: ignore[arg-type]
    law = loss_law(scheme, sigma, Adjacency(row["adjacency"]), Analysis("refined" if plain else row["analysis"]))
    return law if row["direction"] == "forward" else law.reversed()


def profile(law: LossLaw, epsilon: np.ndarray) -> np.ndarray:
    """H at any real epsilon; below zero by the other direction."""
    above = law.profile(np.maximum(epsilon, 0.0))
    below = law.reversed().profile(np.maximum(-epsilon, 0.0))
    return np.where(epsilon >= 0, above, -np.expm1(epsilon) + np.exp(epsilon) * below)


def test_every_row_of_the_reference_profiles_is_matched() -> None:
    table = rows("profiles.csv")
    assert len(table) > 400
    for row in table:
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
    assert 1e-15 * math.sqrt(n) < error < 4e-11 + 1e-14 / float(1 - exact.q)  # binomial tails lose digits as sqrt(n)
    assert found.room + found.w + found.tau == pytest.approx(1.0, abs=4e-16)
    for name in ("w", "tau", "tq", "c", "q"):
        assert abs(getattr(found, name) - getattr(exact, name)) <= error * getattr(exact, name) + 1e-300, name
    assert abs(found.room - (1 - exact.w - exact.tau)) <= error * (1 - exact.w - exact.tau) + 1e-16
    # the rate at which another example takes the place: a small difference of large weights where q is almost one
    assert abs((found.tau - found.tq) - (exact.tau - exact.tq)) <= error * (exact.tau - exact.tq)


@pytest.mark.parametrize(("n", "p", "cap"), CORNERS)
def test_rejection_weights_and_their_differences_keep_twelve_digits(n: int, p: float, cap: int) -> None:
    exact, scheme = weights(n, p, cap), CappedPoisson(n, p, cap, "reject")  # type: ignore[arg-type]
    law = loss_law(scheme, 0.5, Adjacency.ADD_REMOVE, Analysis.REFINED)
    ((piece,), (atom,)), full = (law.pieces, law.atoms), exact.b_prime
    rest, hit, free = exact.k * (1 - exact.p), exact.k * exact.p, 1 - exact.b_prime
    assert piece.means == (0.0, 2.0)
    assert 1e-15 * math.sqrt(n) < law.weight_error < 4e-11
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
    assert law.profile(np.array([0.0, 0.1])) == pytest.approx(plain.profile(np.array([0.0, 0.1])), rel=1e-6)
    assert law.weight_error >= 1e-15 * math.sqrt(n)


def test_data_sets_beyond_the_digits_of_binomial_tails_are_refused_where_tails_are_needed() -> None:
    def law(n: int, cap: int, analysis: Analysis = Analysis.REFINED) -> LossLaw:
        return loss_law(CappedPoisson(n, 1e-12, cap), 1.0, Adjacency.ZERO_OUT, analysis)

    assert law(10**15, 1100).weight_error > 3e-8
    with pytest.raises(NotCertifiedError, match=r"^dataset_size=1000000000000001 is above 10\*\*15, .*; use fewer$"):
        law(10**15 + 1, 1100)
    assert law(10**16, 10**16) == law(10**16, 1100, Analysis.UNION) == law(10, 10)
    with pytest.raises(NotCertifiedError, match=r"^the weights of dataset_size=10+ are beyond floating point; use at"):
        cap_weights(10**18, 0.3, 3 * 10**17)


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
            masses = [piece.masses(x) for piece, x in zip(law.pieces, ends, strict=True)]
            for which in (0, 1):
                total = sum(float(m[which][0]) for m in masses) + sum((a.p, a.q)[which] for a in law.atoms)
                assert total == pytest.approx(1.0, abs=1e-12), (capped, sigma, adjacency)


# --- the kernel, against 40-digit integrals ---------------------------------------------------------------------------


def random_pieces(count: int) -> Iterator[Piece]:
    """Pieces of random laws: whole and half lines, rising and falling losses, rates down to 1e-9."""
    rng = np.random.default_rng(12)
    for index in range(count):
        n, sigma = int(10 ** rng.uniform(1, 9)), float(10 ** rng.uniform(-1.2, 1.5))
        p = float(10 ** rng.uniform(-math.log10(n), -0.01))
        cap = max(1, min(n - 1, int(n * p + rng.normal() * math.sqrt(n * p))))
        overflow = ("truncate", "reject")[index % 4 == 0]
        law = loss_law(CappedPoisson(n, p, cap, overflow), sigma, list(Adjacency)[index % 3], Analysis.REFINED)  # type: ignore[arg-type]
        yield from (law if index % 2 else law.reversed()).pieces


# two whose densities underflow relative to each other, one of them with tiny losses elsewhere
WIDE = [Piece((-5.0, 40.0), (1 - rate, rate), (1.0, 0.0), (-rate, rate)) for rate in (0.1, 1e-9)]
PIECES = [*random_pieces(24), *WIDE]


def components(piece: Piece, x: Any) -> list[mp.mpf]:
    """The components' densities relative to N(0, 1)."""
    return [mp.exp(m * mp.mpf(x) - mp.mpf(m) ** 2 / 2) for m in piece.means]


def exact_densities(piece: Piece, x: Any) -> tuple[mp.mpf, mp.mpf]:
    """P and Q relative to N(0, 1)."""
    bells = components(piece, x)
    # P as Q + d where p is near q: there d has more digits
    p = [p if abs(d) > q / 2 else mp.mpf(q) + d for p, q, d in zip(piece.p, piece.q, piece.d, strict=True)]
    return mp.fdot(bells, p), mp.fdot(bells, piece.q)


def exact_loss(piece: Piece, x: Any) -> mp.mpf:
    p, q = exact_densities(piece, x)
    return mp.log(p / q) if p > 0 and q > 0 else mp.inf if p > 0 else -mp.inf


def exact_interval(low: Any, high: Any) -> mp.mpf:
    """The standard normal mass of (low, high), in the tail where nothing cancels."""
    low, high = mp.mpf(low), mp.mpf(high)
    return mp.ncdf(-low) - mp.ncdf(-high) if low > 0 else mp.ncdf(high) - mp.ncdf(low)


def exact_masses(piece: Piece, low: Any, high: Any) -> list[mp.mpf]:
    """P, Q, P - Q and the sum of |p_j - q_j| of a cell."""
    cells = [exact_interval(mp.mpf(low) - m, mp.mpf(high) - m) for m in piece.means]
    return [mp.fdot(cells, weights) for weights in (piece.p, piece.q, piece.d, np.abs(piece.d))]


def exact_profile(piece: Piece, epsilon: float) -> tuple[mp.mpf, mp.mpf]:
    """The integral of P - e^epsilon Q over the side of its one zero on which it is positive, and that of its terms."""
    a = mp.exp(mp.mpf(epsilon))

    def positive(x: mp.mpf) -> bool:
        p, q = exact_densities(piece, x)
        return bool(p > a * q)

    low, high = max(mp.mpf(piece.low), -1000), min(mp.mpf(piece.high), mp.mpf(1000))
    if positive(low) == positive(high):
        low, high = (piece.low, piece.high) if positive(low) else (0, 0)
    else:
        rising, ends = positive(high), [low, high]
        for _ in range(90):
            middle = (ends[0] + ends[1]) / 2
            ends[int(positive(middle) == rising)] = middle
        low, high = (ends[0], piece.high) if rising else (piece.low, ends[0])
    p, q, d, change = exact_masses(piece, low, high)
    return d - (a - 1) * q, change + (a - 1) * q if epsilon < 0.5 else p + a * q


def grid(piece: Piece, count: int) -> np.ndarray:
    """Points up to 30 standard deviations out, as far as the interval of the piece goes."""
    low = max(piece.low, min(piece.means) - 30.0)
    return np.linspace(low, max(low, min(piece.high, max(piece.means) + 30.0)), count)


def test_losses_keep_twelve_digits_however_small() -> None:
    sizes = []
    with mp.workdps(60):
        for piece in PIECES:
            x = grid(piece, 13)
            for at, loss in zip(x, piece.loss(x), strict=True):
                exact, q = exact_loss(piece, at), exact_densities(piece, at)[1]
                change = mp.fdot(components(piece, at), np.abs(piece.d)) / q if q > 0 else mp.inf
                assert loss == exact or abs(loss - exact) <= 1e-12 * max(abs(exact), min(1.0, change)), (piece, at)
                sizes.append(abs(float(exact)))
    assert min(sizes) < 1e-9
    assert max(sizes) > 30.0


def test_densities_that_underflow_give_losses_without_a_warning() -> None:
    x = np.linspace(20.0, 40.0, 4001)  # Q / P passes through every magnitude that floats have, and beyond
    assert (np.diff(WIDE[0].loss(x)) > 0).all()
    assert (np.diff(LossLaw((WIDE[0],)).reversed().pieces[0].loss(x)) < 0).all()


def test_cell_masses_keep_their_digits_in_both_tails() -> None:
    with mp.workdps(60):
        for piece in PIECES[::2]:
            x = grid(piece, 9)
            for cell, (p, q, d) in enumerate(zip(*piece.masses(x), strict=True)):
                exact = exact_masses(piece, x[cell], x[cell + 1])
                assert abs(p - exact[0]) <= 1e-12 * exact[0] + 1e-300
                assert abs(q - exact[1]) <= 1e-12 * exact[1] + 1e-300
                assert abs(d - exact[2]) <= 1e-12 * exact[3] + 1e-300


def test_log_masses_of_intervals_neither_cancel_nor_underflow() -> None:
    points = [-math.inf, -300.0, -40.0, -5.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 5.0, 40.0, 300.0, math.inf]
    with mp.workdps(60):
        for low, high in itertools.combinations(points, 2):
            exact = mp.log(exact_interval(low, high))
            assert float(log_interval(low, high)) == pytest.approx(float(exact), rel=1e-13, abs=1e-15)
    assert log_interval(3.0, 3.0) == log_interval(math.inf, math.inf) == -math.inf


def test_a_threshold_is_where_its_loss_is_reached_and_otherwise_an_end() -> None:
    epsilon = np.array([0.0, 1e-9, 1e-3, 0.3, 2.0, 40.0])
    for piece in PIECES:
        found = piece.threshold(epsilon)
        assert ((found >= piece.low) & (found <= piece.high)).all()
        for x, loss in zip(found, epsilon, strict=True):
            ends = np.clip([min(piece.means) - 40.0, max(piece.means) + 40.0], piece.low, piece.high)
            lowest, highest = np.sort(piece.loss(ends))
            if lowest < loss < highest:
                with mp.workdps(40):
                    below, above = (exact_loss(piece, x + side * 1e-8 * (1 + abs(x))) for side in (-1, 1))
                assert min(below, above) <= loss <= max(below, above)
            else:
                end, mean = (
                    (piece.high, max(piece.means))
                    if (loss >= highest) == piece.increasing
                    else (piece.low, min(piece.means))
                )
                assert x == end or abs(x - mean) > 39.9  # nothing lies beyond


def test_the_profile_of_a_piece_is_within_its_stated_error_a_part_in_1e13_of_its_terms() -> None:
    epsilon = np.array([0.0, 1e-10, 1e-4, 0.3, 0.499, 0.501, 3.0, 60.0])
    checked = 0
    with mp.workdps(40):
        for piece in PIECES[::2]:
            for e, value, error in zip(epsilon, *piece.profile(epsilon), strict=True):
                exact, terms = exact_profile(piece, e)
                assert abs(value - exact) <= error + 1e-30, (piece, e)
                assert 1e-13 * terms * (1 - 1e-6) <= error + 1e-30
                assert error <= 1.2e-13 * terms + 1e-30
                checked += exact > 0
    assert checked > 30


@pytest.mark.parametrize("epsilon", [1e5, 1e50])
def test_an_epsilon_beyond_all_losses_leaves_nothing_and_no_error(epsilon: float) -> None:
    for piece in PIECES:
        value, error = piece.profile(np.array([epsilon]))
        assert value + error < 1e-250, piece


def test_the_error_of_a_law_adds_up_the_errors_of_its_pieces() -> None:
    epsilon = np.array([0.0, 0.2, 0.7])
    law = LossLaw((WIDE[0], WIDE[0]), (Atom(0.5, 0.2, 0.1),))
    value, error = law.profile_and_error(epsilon)
    parts = [piece.profile(epsilon) for piece in law.pieces]
    assert value == pytest.approx(sum(v for v, _ in parts) + 0.2 * -np.expm1(np.minimum(epsilon - 0.5, 0.0)), rel=1e-14)
    rounding = sum(e for _, e in parts)
    assert (error >= rounding + 1e-15 * value).all()
    assert (error <= rounding + 1e-13 * value).all()


def test_exchanging_p_and_q_twice_changes_nothing() -> None:
    law = LossLaw(tuple(PIECES), (Atom(0.3, 0.1, 0.2),), 1e-20, 1e-11)
    back = law.reversed()
    assert back.reversed() == law
    assert (back.lost, back.weight_error, back.atoms) == (1e-20, 1e-11, (Atom(-0.3, 0.2, 0.1),))
    for piece, other in zip(law.pieces, back.pieces, strict=True):
        assert piece.increasing != other.increasing
        ends = grid(piece, 2)
        assert ends[0] == ends[1] or piece.increasing == (np.diff(piece.loss(ends)) > 0)
        assert other.loss(np.zeros(1)) == pytest.approx(-piece.loss(np.zeros(1)), rel=1e-12)
