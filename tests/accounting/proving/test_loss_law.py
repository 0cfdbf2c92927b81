"""The kernel, Gaussian mixtures on a line: losses, masses and profiles against 40-digit integrals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from filet import Adjacency, Analysis, CappedPoisson
from filet._rounding import UNIT
from filet.accounting.proving.loss_law import Atom, LossLaw, Piece, cell_masses, log_interval, losses
from filet.accounting.proving.theorems import loss_law
from filet.accounting.search.closed_form import crossings


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


def threshold(piece: Piece, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return piece.threshold(epsilon, crossings(piece, epsilon))


def profile(piece: Piece, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return piece.profile(epsilon, crossings(piece, epsilon))


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
            for cell, (p, q, d) in enumerate(zip(*cell_masses(*piece.columns, x), strict=True)):
                exact = exact_masses(piece, x[cell], x[cell + 1])
                assert abs(p - exact[0]) <= 1e-12 * exact[0] + 1e-300
                assert abs(q - exact[1]) <= 1e-12 * exact[1] + 1e-300
                assert abs(d - exact[2]) <= 1e-12 * exact[3] + 1e-300


def test_log_masses_of_intervals_neither_cancel_nor_underflow() -> None:
    points = [-math.inf, -300.0, -40.0, -5.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 5.0, 40.0, 300.0, math.inf]
    with mp.workdps(60):
        for low, high in itertools.combinations(points, 2):
            exact = mp.log(exact_interval(low, high))
            found, tail = (float(one) for one in log_interval(low, high))
            assert found == pytest.approx(float(exact), rel=1e-13, abs=1e-15)
            # the larger of the tails whose difference it is
            larger = mp.log(mp.ncdf(-low) if low > 0.0 else mp.ncdf(high))
            assert tail == pytest.approx(float(larger), rel=1e-13, abs=1e-15)
    assert log_interval(3.0, 3.0)[0] == log_interval(math.inf, math.inf)[0] == -math.inf


def ends_of(piece: Piece) -> tuple[float, float]:
    """The end from which all losses count, and the other; 40 deviations out if it is infinite."""
    low, high = np.clip([min(piece.means) - 40.0, max(piece.means) + 40.0], piece.low, piece.high)
    return (low, high) if piece.increasing else (high, low)


def test_beyond_a_threshold_lies_every_loss_above_epsilon_and_it_lacks_no_more_than_stated() -> None:
    epsilon, met = np.array([0.0, 1e-9, 1e-3, 0.3, 2.0, 40.0]), 0
    for piece in PIECES:
        whole, nothing = ends_of(piece)
        for x, lack, asked in zip(*threshold(piece, epsilon), epsilon, strict=True):
            assert min(whole, nothing) <= x <= max(whole, nothing)
            with mp.workdps(60):
                loss, most = exact_loss(piece, x), exact_loss(piece, nothing)
                assert x == whole or loss <= asked  # for certain, whatever was rounded
                assert asked - loss <= lack
                if loss < asked < most:
                    error = float(piece.loss_error(np.array([x]), np.array([float(loss)]))[0])
                    assert lack <= 300 * error  # close enough to cost little
                    met += 1
                elif asked > most + mp.mpf("1e-12"):
                    assert x == nothing
    assert met > 50


def test_the_profile_of_a_piece_is_within_its_stated_error_and_that_is_small() -> None:
    epsilon = np.array([0.0, 1e-10, 1e-4, 0.3, 0.499, 0.501, 3.0, 60.0])
    checked, sharp = 0, 0
    with mp.workdps(40):
        for piece in PIECES[::2]:
            for e, value, error in zip(epsilon, *profile(piece, epsilon), strict=True):
                exact, terms = exact_profile(piece, e)
                assert abs(value - exact) <= error + 1e-30, (piece, e)
                assert 7e-15 * terms <= error + 1e-30  # 64 units
                assert error <= 1e-9 * terms + 1e-27  # a threshold that is off by 1e-9 costs less than that
                checked += exact > 0
                sharp += exact > 0 and error <= 1e-12 * terms
    assert checked > 30
    assert sharp > 0.9 * checked


@pytest.mark.parametrize("epsilon", [1e5, 1e12])
def test_an_epsilon_beyond_all_losses_leaves_nothing_and_no_error(epsilon: float) -> None:
    for piece in PIECES:
        value, error = profile(piece, np.array([epsilon]))
        assert value + error < 1e-250, piece


def test_the_error_of_a_law_adds_up_the_errors_of_its_pieces() -> None:
    epsilon = np.array([0.0, 0.2, 0.7])
    law = LossLaw((WIDE[0], WIDE[0]), (Atom(0.5, 0.2, 0.1),))
    value, error = law.profile(epsilon, crossings)
    parts = [profile(piece, epsilon) for piece in law.pieces]
    assert value == pytest.approx(sum(v for v, _ in parts) + 0.2 * -np.expm1(np.minimum(epsilon - 0.5, 0.0)), rel=1e-14)
    rounding = sum(e for _, e in parts)
    assert (error >= rounding + 1e-15 * value).all()
    assert (error <= rounding + 1e-13 * value).all()


def test_pieces_beyond_whose_losses_epsilon_lies_add_nothing_and_unknown_ones_leave_nothing_known() -> None:
    ended = next(piece for piece in PIECES if piece.increasing and piece.high < max(piece.means))
    at = np.array([ended.top, ended.top + 1.0])
    law = LossLaw((WIDE[0], ended))
    assert [one.tolist() for one in law.profile(at, crossings)] == [
        one.tolist() for one in LossLaw((WIDE[0],)).profile(at, crossings)
    ]
    below = np.array([ended.top - 1e-3])
    assert law.profile(below, crossings)[0] > LossLaw((WIDE[0],)).profile(below, crossings)[0]
    beyond = Piece((0.0, math.inf), (0.5, 0.5), (1.0, 0.0), (-0.5, 0.5), high=3.0)  # no number is its largest loss
    with np.errstate(invalid="ignore"):
        assert np.isnan(LossLaw((beyond,)).profile(at, crossings)[1]).all()


def test_exchanging_p_and_q_twice_changes_nothing() -> None:
    law = LossLaw(tuple(PIECES), (Atom(0.3, 0.1, 0.2),), 1e-20, 1e-11, whole=False)
    back = law.reversed()
    assert back.reversed() == law
    assert (back.lost, back.weight_error, back.atoms) == (1e-20, 1e-11, (Atom(-0.3, 0.2, 0.1),))
    assert not back.whole
    assert back.loss_error == pytest.approx(law.loss_error, rel=1e-6, abs=0)
    for piece, other in zip(law.pieces, reversed(back.pieces), strict=True):
        assert piece.increasing != other.increasing
        ends = grid(piece, 2)
        assert ends[0] == ends[1] or piece.increasing == (np.diff(piece.loss(ends)) > 0)
        assert other.loss(np.zeros(1)) == pytest.approx(-piece.loss(np.zeros(1)), rel=1e-12)


# --- every bound to the letter -----------------------------------------------------------------------------------------


def test_the_error_of_a_loss_is_that_of_its_exponents_or_its_share_of_a_small_loss() -> None:
    for piece in PIECES[::3]:
        x = grid(piece, 7)
        loss = piece.loss(x)
        for at, value, error in zip(x.tolist(), loss.tolist(), piece.loss_error(x, loss), strict=True):
            rounded = 2 * UNIT * max(abs(m * at) + m * m for m in piece.means) + 8 * UNIT
            with mp.workdps(40):
                bells = components(piece, at)
                lighter = min(mp.fdot(bells, piece.p), mp.fdot(bells, piece.q))
                change = mp.fdot(bells, np.abs(piece.d))
                share = min(2.0, float(2 * change / lighter)) if lighter > mp.mpf(10) ** -300 * change else 2.0
            assert error == pytest.approx(rounded * share + 4 * UNIT * abs(value), rel=1e-6, abs=0.0)


@pytest.mark.parametrize(("far", "change"), [(0.01, 1e-3), (0.01, 1e-9), (3.0, 1e-3), (30.0, 1e-300)])
def test_the_error_of_any_loss_of_a_law_is_relative_to_what_changes(far: float, change: float) -> None:
    law = LossLaw((Piece((0.0, -far), (1.0 - change, change), (1.0, 0.0), (-change, change)),))
    assert law.difference == pytest.approx(2 * change, rel=1e-12, abs=0.0)
    reach = far * far + 40 * far
    exact = 8 * UNIT * reach * min(1.0, 4 * change * math.exp(min(reach, 700.0)))
    assert law.loss_error == pytest.approx(exact, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("weight_error", [0.0, 1e-6])
def test_an_atom_near_epsilon_is_in_doubt_by_the_error_of_the_weights(weight_error: float) -> None:
    plain = LossLaw((WIDE[0],), (), 0.0, weight_error)
    law = LossLaw((WIDE[0],), (Atom(0.5, 0.2, 0.1),), 0.0, weight_error)
    doubt = 2 * weight_error + 4 * UNIT * 0.5
    for epsilon, counts in ((0.4, True), (0.5, True), (0.5 + 0.9e-6, weight_error > 0.0), (0.5 + 2.1e-6, False)):
        at = np.array([epsilon])
        (value, error), (base, rounding) = law.profile(at, crossings), plain.profile(at, crossings)
        own = 0.2 * -math.expm1(min(epsilon - 0.5, 0.0))
        assert value[0] - base[0] == pytest.approx(own, abs=1e-15)
        expected = (0.2 * doubt if counts else 0.0) + 64 * UNIT * own
        assert error[0] - rounding[0] == pytest.approx(expected, rel=1e-6, abs=1e-20)


def test_the_loss_at_a_threshold_leaves_no_doubt() -> None:
    epsilon, sure = np.array([0.0, 1e-9, 1e-3, 0.3, 2.0]), 0
    for piece in PIECES:
        x, lack = threshold(piece, epsilon)
        seen = piece.loss(x)
        off = piece.loss_error(x, seen)
        assert (lack == np.maximum((epsilon - seen + off) * (1 + 8 * UNIT), 0.0)).all()
        inside = x != ends_of(piece)[0]
        assert (epsilon - seen > off)[inside].all()
        sure += int(inside.sum())
    assert sure > 100


def test_a_loss_that_might_be_that_of_an_end_is_not_beyond_it() -> None:
    ended = [piece for piece in PIECES if piece.high < max(piece.means) + 40.0]
    assert {piece.increasing for piece in ended} == {True, False}
    for piece in ended:
        (at,) = piece.loss(np.array([piece.high]))
        (off,) = piece.loss_error(np.array([piece.high]), np.array([at]))
        if piece.increasing:  # all losses of it lie below that of its end
            (near, far), _ = threshold(piece, np.array([at + 0.7 * off, at + 1e-6]))
            assert near < piece.high == far
            assert piece.top == at + off
            for beyond in profile(piece, np.array([at + 1.5 * off])):
                assert beyond == 0.0
        else:
            assert piece.top == math.inf
            (all_of_it,), (lack,) = threshold(piece, np.array([at - 2.0 * abs(at) - 1e-9]))
            assert all_of_it == piece.high
            assert lack == 0.0


def test_where_no_threshold_is_sure_everything_counts() -> None:
    class Unsure(Piece):
        def loss_error(self, x: np.ndarray, loss: np.ndarray) -> np.ndarray:
            return np.full(x.shape, 1e9)

    for piece in PIECES[::5]:
        unsure = Unsure(piece.means, piece.p, piece.q, piece.d, piece.low, piece.high)
        x, lack = threshold(unsure, np.array([0.3]))
        assert x[0] == ends_of(piece)[0]
        assert lack[0] > 1e8
        value, error = profile(unsure, np.array([0.3]))
        with mp.workdps(40):
            assert exact_profile(piece, 0.3)[0] <= value[0] + error[0] + 1e-300


def test_any_proposals_of_a_threshold_bound_the_profile_and_none_makes_all_count() -> None:
    rng, epsilon = np.random.default_rng(7), np.array([0.0, 1e-6, 0.1, 2.0])
    for piece in PIECES[::3]:
        with mp.workdps(40):
            exact = [exact_profile(piece, e)[0] for e in epsilon]
        for count in (0, 1, 5):
            proposals = [rng.choice([1.0, 30.0, np.nan, np.inf, -np.inf], epsilon.size) * rng.normal(size=epsilon.size)
                         for _ in range(count)]  # fmt: skip
            for e, value, error, truth in zip(epsilon, *piece.profile(epsilon, proposals), exact, strict=True):
                assert value - error - 1e-300 <= truth <= value + error + 1e-300, (piece, e, count)
            if not count:
                assert (piece.threshold(epsilon, proposals)[0] == ends_of(piece)[0]).all()


def test_the_error_of_a_profile_is_the_sum_of_its_parts() -> None:
    """The tails beyond the threshold, what its loss lacks, and the rounding of exponents; never more than all of P there."""
    for piece in PIECES[::4]:
        for epsilon in (0.0, 1e-4, 0.3, 0.7, 3.0):
            value, error = (float(one[0]) for one in profile(piece, np.array([epsilon])))
            (x,), (lack,) = threshold(piece, np.array([epsilon]))
            low, high = (x, piece.high) if piece.increasing else (piece.low, x)
            total, most, a = 0.0, 0.0, math.exp(epsilon)
            for m, p, q, d in zip(piece.means, piece.p, piece.q, piece.d, strict=True):
                logs = [float(one) for one in log_interval(low - m, high - m)]
                cell, tail = (math.exp(one) for one in logs)
                # of the tail, of its logarithm, and of its argument: 2 units of the parts of x - m
                loose = UNIT * (64 + 8 * abs(logs[1]) + sum(
                    2 * (abs(end) + abs(m)) * min(1 + abs(end - m), math.exp(-0.5 * (end - m) ** 2 - logs[1]))
                    for end in (low, high) if math.isfinite(end)))  # fmt: skip
                loose = loose if low < high else 0.0
                exponent = (
                    4 * UNIT * (epsilon + abs(math.log(-math.expm1(-epsilon))) + abs(math.log(q)))
                    if q and epsilon
                    else 0.0
                )
                total += (abs(d) + (a - 1) * q) * tail * loose + (a - 1) * q * cell * exponent
                total += -math.expm1(-lack) * a * q * cell
                most += p * (cell + tail * loose)
            most *= -math.expm1(min(epsilon - piece.top, 0.0))
            assert error == pytest.approx(min(total, most), rel=1e-6, abs=1e-300)
            assert value <= most * (1 + 1e-12)


def test_the_errors_of_losses_at_several_points_are_those_at_each() -> None:
    x = np.array([-60.0, -1.0, 0.0, 3.0, 80.0])
    for piece in random_pieces(6):
        loss = piece.loss(x)
        alone = [float(piece.loss_error(x[i : i + 1], loss[i : i + 1])[0]) for i in range(x.size)]
        assert piece.loss_error(x, loss) == pytest.approx(alone, rel=1e-12, abs=0.0)


def test_columns_of_a_law_are_those_of_its_pieces_side_by_side() -> None:
    """Shorter pieces are filled up with components of no weight, which change neither losses nor masses."""
    two, three = Piece((0.0, 1.0), (0.3, 0.1), (0.4, 0.0), (-0.1, 0.1)), Piece(
        (0.0, 1.0, 2.0), (0.1, 0.2, 0.3), (0.2, 0.2, 0.2), (-0.1, 0.0, 0.1)
    )  # fmt: skip
    law, x = LossLaw((two, three)), np.array([-1.0, 0.5, 2.0, -2.0, 0.0, 1.0, 3.0])
    means, weights = law.columns([3, 4])
    assert means.shape == (3, 7)
    assert weights.shape == (3, 3, 7)
    assert (means[:, 0] == [0.0, 1.0, 0.0]).all()
    assert (means[:, 3] == [0.0, 1.0, 2.0]).all()
    assert (weights[:, 2, :3] == 0.0).all()
    assert losses(means, weights, x) == pytest.approx(np.concatenate([two.loss(x[:3]), three.loss(x[3:])]), rel=1e-13)
    for kind, mass in enumerate(cell_masses(means, weights, x)):
        expected = np.concatenate(
            [cell_masses(*piece.columns, part)[kind] for piece, part in ((two, x[:3]), (three, x[3:]))]
        )
        assert np.delete(mass, 2) == pytest.approx(expected, rel=1e-13)
    alone = LossLaw((three,)).columns([4])
    assert all(one is other for one, other in zip(alone, three.columns, strict=True))
