"""Constants that stand for errors of floating point: the reason of each, and the direction in which it is used.

One place for all of them: the binomial weights of the vocabulary and every proof of `accounting/proving` read theirs here.
The model: IEEE double precision; sums, products and quotients are correctly rounded; exp, log, tan, normal tails and fast
Fourier transforms err by the stated small multiples of the unit. Errors widen bounds: upper ones grow, lower ones fall.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

_Number = TypeVar("_Number", float, Any)  # a float, or an array of them

UNIT = 2.0**-53  # relative error of one rounding
FEW = 16 * UNIT  # more than the roundings of any product or sum of a few terms
EXTENDED_UNIT = float(np.finfo(np.longdouble).eps)  # of extended precision, which on some machines is that of a float

# Error of the logarithm of a binomial probability, both ways: this, plus the slope for each unit of the logarithm. Counting
# roundings gives 4e-14 and 1.3e-15; `_binomial.relative_error` has the count, and what was measured.
BINOMIAL_ERROR = 1e-13
BINOMIAL_SLOPE = 3e-15

# Relative error of a normal tail at an edge of cells: x^2 / 2 units and a few more, as far as tails are floats (38
# deviations). Masses are differences of tails, so the errors of edges telescope: what counts is per unit of |z| E|L|.
MASS_ERROR = 5e-13
# Error of one step's phase per unit of |z| E|L|: a few roundings of loss, centre and grid position.
PHASE_ERROR = 1e-14
# |computed - exact| <= TRANSFORM_ERROR * sum(weights) of the fast transform, besides the rounding of the positions.
# Dropping the Gaussian beyond 13 points and the aliases of the oversampled grid cost at most 2e-14 together (exponents
# -34 and -32.7, times the division by the Gaussian's own transform, at most 4); the FFT's rounding, times 4, was
# measured below 2e-14.
TRANSFORM_ERROR = 1e-13
# Closed forms are sums of at most ten terms that do not cancel by more than 10^5, each good to a few units.
CLOSED_FORM_ERROR = 1e-9
# Sums of positive terms (infinite masses, chances): far more than their rounding.
SUM_ERROR = 1e-9
# Epsilons that were proven are moved outward by this much, far beyond the rounding of the numbers they came from.
OUTWARD = 1e-11
# Losses and transforms at real points: a dozen roundings each, with a factor of a hundred to spare.
POINT_ERROR = 1e-12

# More than all masses that underflow to zero together, per step; put on an infinite loss in upper bounds.
UNDERFLOW = 1e-300
# Smaller masses are denormal or nearly so, and their digits are not trusted.
RESOLVED = 1e-290
# The logarithm below which a mass under Q is left out of a hull: those below are nearly denormal, and their differences have few digits.
LEAST_LOG_MASS = -620.0
# Weights of full batches below it leave too few digits to products, so nothing is lent; densities below this share of the
# largest are compared by their logarithms.
LEAST_LIGHT = 1e-250
# Groups lighter than this are put on an infinite loss instead of being resolved.
LIGHTEST = 1e-290
# Outcomes lighter than this are dropped in lower bounds.
DROPPED = 1e-307
# Largest exponent of an exponential: e^700 is a float, and leaves a factor of thousands to what it is multiplied by.
LARGEST_EXPONENT = 700.0
# Losses beyond it are left out of hulls and searches: products of their exponentials would overflow.
LARGEST_LOSS = 600.0
# Tilted weights below it are dropped from the fast transform: thousands of them are far below its error.
NEGLIGIBLE = 1e-21


def up(value: _Number, error: float = OUTWARD) -> _Number:
    """A positive number, moved up by a relative error."""
    return value * (1.0 + error)


def down(value: _Number, error: float = OUTWARD) -> _Number:
    """A positive number, moved down by a relative error."""
    return value * (1.0 - error)


def exp_or_unknown(value: Any) -> Any:
    """e^value; NaN, and so refused, where that is no float."""
    return np.exp(np.where(value <= LARGEST_EXPONENT, value, np.nan))[()]


def finite_or_unknown(value: Any) -> Any:
    """A number, or NaN where it is infinite."""
    return np.where(np.isfinite(value), value, np.nan)[()]


def exp_or_infinite(value: Any) -> Any:
    """e^value; infinite where that is no float."""
    return np.exp(np.where(value <= LARGEST_EXPONENT, value, np.inf))[()]


def expm1_or_infinite(value: Any) -> Any:
    """e^value - 1 for a small error in the exponent; infinite, and so refused, where it is not small."""
    return np.where(value < 0.1, np.expm1(np.minimum(value, 0.1)), np.inf)[()]
