"""Gaussian noise on a grid, drawn exactly: a real Gaussian rounded to the nearest whole number.

Adding it to a whole number is the same as rounding the sum of that number and a real Gaussian. So a
release of this kind reveals nothing that the ideal mechanism over the real numbers would not:
rounding comes after it.
"""

from __future__ import annotations

import functools
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .draws import not_random
from .streams import Stream

# Error of SciPy's inverse, of a tail rounded to 53 bits, relative to 1 + z. Measured: 2**-51 at
# most (tests/sampling/test_noise.py); this is 16 times as much.
_INVERSE_ERROR = 2.0**-47
_MOST_BITS = 960  # beyond, floats end; words of a random stream get there with a chance of 2**-800


def rounded_normals(
    stream: Stream, count: int, scale: Fraction, means: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    """`count` independent whole numbers: Gaussians of standard deviation `scale`, rounded to the nearest.

    Guarantees: the law is exactly that, provided that SciPy's inverse of the normal law is as good as measured. Each
    Gaussian has a sign bit and 127 bits of its tail probability; where these, or the inverse, do not tell to which
    side to round, arithmetic of more digits does, with further words if need be. There is no largest value.

    Arguments:
        stream: where the random words come from.
        count: how many.
        scale: their standard deviation, positive.
        means: their means, in [-1/2, 1/2]; zeros by default.
    """
    high, low = stream.words(2 * count).reshape(2, count)
    tail = high * 2.0**-65 + ((low >> np.uint64(1)) + 0.5) * 2.0**-128
    negative = (low & np.uint64(1)).astype(bool)
    mean = (
        np.zeros(count) if means is None else np.where(negative, -means, means)
    )  # mirrored where the Gaussian is negative
    spread = float(scale)
    sizes = spread * -ndtri(np.minimum(tail, 0.5))
    moved = sizes + mean
    near = np.rint(moved)
    unsure = (np.abs(moved - near) > 0.5 - _INVERSE_ERROR * (spread + sizes + np.abs(mean))) | (high == 0)
    values = near.astype(np.int64)
    for place in np.flatnonzero(unsure).tolist():
        known = int(high[place]) << 63 | int(low[place]) >> 1
        values[place] = _exact(known, stream, scale, Fraction(float(mean[place])))
    return np.where(negative, -values, values)


def _exact(known: int, stream: Stream, scale: Fraction, mean: Fraction) -> int:
    """The mean plus the size of the Gaussian whose tail probability begins with these 127 bits behind a 0, rounded."""
    bits = 128
    while bits <= _MOST_BITS:
        guess = round(float(scale) * -float(ndtri((2 * known + 1) / (1 << bits + 1))) + float(mean))
        for value in (guess, guess - 1, guess + 1):
            if value >= 0 and _certain(value - mean, known, bits, scale):
                return value
        known, bits = known << 64 | int(stream.words(1)[0]), bits + 64
    raise not_random()


def _certain(size: Fraction, known: int, bits: int, scale: Fraction) -> bool:
    """True if every tail probability in [known, known + 1) / 2**bits is of a Gaussian within 1/2 of `size`."""
    inner, outer = size - Fraction(1, 2), size + Fraction(1, 2)
    if outer <= 0:
        return False
    least = Fraction(upper_tail(outer / scale, bits)[1])
    most = Fraction(upper_tail(inner / scale, bits)[0]) if inner > 0 else Fraction(1)
    return least * (1 << bits) <= known and most * (1 << bits) >= known + 1


def upper_tail(x: Fraction, bits: int) -> tuple[Decimal, Decimal]:
    """Decimals around Pr[Z > x] for x > 0, less than 2**-(bits + 30) apart.

    The series is Pr[0 < Z < x] = phi(x) (x + x**3 / 3 + x**5 / (3 5) + ...), without cancellation.
    In a context of `digits` digits every operation is right to 10**(1 - digits); term k has 2 k + 2
    of them, and squaring x multiplies the error of the exponential by x**2 at most.
    """
    if x * x > 2 * bits + 100:  # Pr[Z > x] <= exp(-x**2 / 2) / 2
        return Decimal(0), Decimal(f"1e-{bits * 31 // 100 + 14}")
    digits = bits * 31 // 100 + 30
    context = Context(prec=digits)
    point = context.divide(Decimal(x.numerator), Decimal(x.denominator))
    square = context.multiply(point, point)
    term = total = point
    count = 1
    while square > count or term.adjusted() > total.adjusted() - digits:
        term = context.divide(context.multiply(term, square), Decimal(2 * count + 1))
        total = context.add(total, term)
        count += 1
    exponential = context.exp(context.divide(square, Decimal(-2)))
    density = context.divide(exponential, context.sqrt(context.multiply(Decimal(2), _pi(digits))))
    inside = context.multiply(density, total)
    error = context.multiply(context.add(Decimal(4 * count + 100), square), Decimal(f"1e-{digits - 1}"))
    middle = context.subtract(Decimal("0.5"), inside)
    low = Context(prec=digits, rounding=ROUND_FLOOR).subtract(middle, error)
    return max(low, Decimal(0)), Context(prec=digits, rounding=ROUND_CEILING).add(middle, error)


@functools.lru_cache(maxsize=16)
def _pi(digits: int) -> Decimal:
    """Pi by Machin's formula, right to 10**-digits."""
    unit: int = 10 ** (digits + 10)

    def arctan_of_inverse(number: int) -> int:
        total = power = unit // number
        place = 1
        while power:
            power //= -number * number
            place += 2
            total += power // place
        return total

    return Decimal(f"{4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))}e-{digits + 10}")
