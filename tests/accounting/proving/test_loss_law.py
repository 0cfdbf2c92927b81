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
from filet.accounting.proving.loss_law import Atom, LossLaw, Piece, log_interval
from filet.accounting.proving.theorems import loss_law


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
        lows, highs = piece.threshold(epsilon)
        assert ((lows >= piece.low) & (lows <= highs) & (highs <= piece.high)).all()
        for low, high, loss in zip(lows, highs, epsilon, strict=True):
            ends = np.clip([min(piece.means) - 40.0, max(piece.means) + 40.0], piece.low, piece.high)
            lowest, highest = np.sort(piece.loss(ends))
            if lowest < loss < highest:
                with mp.workdps(60):
                    first, last = sorted(exact_loss(piece, x) for x in (low, high))
                assert first <= loss <= last  # for certain, whatever was rounded
                assert high - low <= 1e-8 * (1 + abs(low))
            else:
                end, mean = (
                    (piece.high, max(piece.means))
                    if (loss >= highest) == piece.increasing
                    else (piece.low, min(piece.means))
                )
                for x in (low, high):
                    assert abs(x - end) <= 1e-8 * (1 + abs(x)) or abs(x - mean) > 39.9  # nothing lies beyond


def test_the_profile_of_a_piece_is_within_its_stated_error_and_that_is_small() -> None:
    epsilon = np.array([0.0, 1e-10, 1e-4, 0.3, 0.499, 0.501, 3.0, 60.0])
    checked, sharp = 0, 0
    with mp.workdps(40):
        for piece in PIECES[::2]:
            for e, value, error in zip(epsilon, *piece.profile(epsilon), strict=True):
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
        value, error = piece.profile(np.array([epsilon]))
        assert value + error < 1e-250, piece


def test_the_error_of_a_law_adds_up_the_errors_of_its_pieces() -> None:
    epsilon = np.array([0.0, 0.2, 0.7])
    law = LossLaw((WIDE[0], WIDE[0]), (Atom(0.5, 0.2, 0.1),))
    value, error = law.profile(epsilon)
    parts = [piece.profile(epsilon) for piece in law.pieces]
    assert value == pytest.approx(sum(v for v, _ in parts) + 0.2 * -np.expm1(np.minimum(epsilon - 0.5, 0.0)), rel=1e-14)
    rounding = sum(e for _, e in parts)
    assert (error >= rounding + 1e-15 * value).all()
    assert (error <= rounding + 1e-13 * value).all()


def test_exchanging_p_and_q_twice_changes_nothing() -> None:
    law = LossLaw(tuple(PIECES), (Atom(0.3, 0.1, 0.2),), 1e-20, 1e-11, whole=False)
    back = law.reversed()
    assert back.reversed() == law
    assert (back.lost, back.weight_error, back.atoms) == (1e-20, 1e-11, (Atom(-0.3, 0.2, 0.1),))
    assert not back.whole
    assert back.loss_error == pytest.approx(law.loss_error)
    for piece, other in zip(law.pieces, back.pieces, strict=True):
        assert piece.increasing != other.increasing
        ends = grid(piece, 2)
        assert ends[0] == ends[1] or piece.increasing == (np.diff(piece.loss(ends)) > 0)
        assert other.loss(np.zeros(1)) == pytest.approx(-piece.loss(np.zeros(1)), rel=1e-12)
