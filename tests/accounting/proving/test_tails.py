"""Positive parts of one Gaussian minus two others: thresholds, integrals and their errors against many digits."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import ndtr
from tests.reference import lending as reference

from filet._rounding import UNIT
from filet.accounting.proving import tails
from filet.accounting.proving.tails import integral, threshold, upper

WEIGHTS = [(c, m1, m2) for c in (1e-200, 1e-8, 0.3, 1.0) for m1 in (1e-200, 1e-6, 0.9) for m2 in (1e-200, 1e-3, 1.0)]


def exact_threshold(c: float, m1: float, m2: float | None, y: float) -> mpf:
    """Where c N(0) = m1 N(y) + m2 N(2y): a quadratic equation in e^{xy}."""
    a, b = mpf(m1) * mp.exp(-(mpf(y) ** 2) / 2), (mpf(m2) if m2 is not None else mpf(0)) * mp.exp(-2 * mpf(y) ** 2)
    u = mpf(c) / a if b == 0 else 2 * mpf(c) / (a + mp.sqrt(a * a + 4 * b * mpf(c)))
    return mp.log(u) / mpf(y)


def test_thresholds_are_within_their_error() -> None:
    with mp.workdps(300):
        for y in (0.01, 0.3, 1.0, 7.0, 100.0):
            for c, m1, m2 in WEIGHTS:
                for second in (None, m2):
                    x, off = threshold(np.array([c]), np.array([m1]), None if second is None else np.array([second]), y)
                    exact = exact_threshold(c, m1, second, y)
                    if abs(exact) < 9_999:
                        assert abs(mpf(float(x[0])) - exact) <= mpf(float(off[0])), (c, m1, second, y)
                        assert float(off[0]) < 1e-9
                        logs = abs(np.log(c)) + abs(float(x[0])) * y + 2.0
                        assert float(off[0]) == pytest.approx(2 * UNIT * (4 * logs / y + 8 * y), rel=1e-9, abs=0.0)
                    else:
                        assert abs(float(x[0])) == tails._FAR
                        assert float(off[0]) == 0.0


def test_thresholds_of_nothing_are_ends_of_the_line() -> None:
    zero, one = np.zeros(1), np.ones(1)
    assert threshold(one, zero, None, 1.0)[0][0] == tails._FAR  # nothing is taken off
    assert threshold(zero, one, None, 1.0)[0][0] == -tails._FAR
    assert threshold(zero, zero, None, 1.0)[0][0] == -tails._FAR
    for c, m1, m2, value in (
        (one, zero, None, 1.0),
        (zero, one, None, 0.0),
        (one, zero, zero, 1.0),
        (zero, one, one, 0.0),
    ):
        found = integral(c, m1, m2, 1.0)
        assert abs(found.value[0] - value) <= found.error[0] < 1e-14


@pytest.mark.long
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_integrals_hold_their_error(sign: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(150):
        c, m1, m2 = (float(10 ** rng.uniform(-9, 0)) for _ in range(3))
        y, both = float(10 ** rng.uniform(-2, 1)), bool(rng.integers(2))
        got = integral(np.array([c]), np.array([m1]), np.array([m2]) if both else None, y, sign)
        with mp.workdps(400):
            s = 1 / mpf(y)
            exact = reference.K(mpf(c), mpf(m1), mpf(m2) if both else mpf(0), s)
            exact = exact if sign > 0 else exact - mpf(c) + mpf(m1) + (mpf(m2) if both else 0)
        assert abs(mpf(float(got.value[0])) - exact) <= mpf(float(got.error[0])), (c, m1, m2, y, both)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_error_is_that_of_both_tails_and_of_the_threshold(sign: float) -> None:
    """Weights so light and noise so large that what a shifted threshold misses, the square of its error, is seen."""
    c, y, x = 1e-250, 1e-8, 1.5
    got = integral(np.array([c]), np.array([c * (1 - x * y)]), None, y, sign)
    assert got.x[0] == pytest.approx(x, abs=got.off[0])
    off, n = 2 * UNIT * (4 * (-np.log(c) + x * y + 2) / y + 8 * y), max(-sign * x, 0.0)
    assert got.off[0] == pytest.approx(off, rel=1e-6)
    missed = 8 * np.exp(-x * x / 2) * y * off**2
    tails_error = UNIT * ndtr(sign * x) * (32 + 4 * (1 + n) * (2 + 2 * n + y))
    assert missed > 1e-3 * tails_error
    assert got.error[0] == pytest.approx(c * (tails_error + missed), rel=1e-4, abs=0.0)


@pytest.mark.parametrize("y", [0.02, 1.0, 9.0])
def test_a_positive_and_a_negative_part_differ_by_the_weights(y: float) -> None:
    c, m1, m2 = (np.array([one[i] for one in WEIGHTS]) for i in range(3))
    for second in (None, m2):
        plus, minus = integral(c, m1, second, y), integral(c, m1, second, y, -1.0)
        rest = c - m1 - (0.0 if second is None else m2)
        size = c + m1 + (0.0 if second is None else m2)
        assert (np.abs(plus.value - minus.value - rest) <= plus.error + minus.error + 1e-15 * size).all()
        assert (upper(c, m1, second, y) == plus.value + plus.error).all()
        assert (upper(c, m1, second, y, -1.0) == minus.value + minus.error).all()
        assert (plus.error <= 1e-12 * size + 2e-300).all()


def test_an_array_of_signs_and_distances_is_read_one_by_one() -> None:
    c, m1, y = np.array([0.3, 0.3, 0.01]), np.array([0.4, 0.4, 0.2]), np.array([0.5, 2.0, 1.0])
    sign = np.array([1.0, -1.0, -1.0])
    together = integral(c, m1, None, y, sign)
    assert (together.x == threshold(c, m1, None, y)[0]).all()
    assert (together.off == threshold(c, m1, None, y)[1]).all()
    for i in range(3):
        one = integral(c[i : i + 1], m1[i : i + 1], None, float(y[i]), float(sign[i]))
        assert (together.value[i], together.error[i]) == (one.value[0], one.error[0])
