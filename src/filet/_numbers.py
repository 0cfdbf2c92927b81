"""Numbers rounded to the safe side."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from ._public import public

_WIDE = Context(prec=800)  # enough for every digit of every float


@public
def round_up(value: float, digits: int = 4, *, zeros: bool = False) -> str:
    """The value with `digits` significant digits, never below it: for printing upper bounds; `zeros` keeps trailing ones.

    >>> round_up(2.8517426), round_up(1.00001e-5), round_up(99999.0001), round_up(0.5)
    ('2.852', '1.001e-05', '99999.1', '0.5')
    >>> round_up(0.5, zeros=True), round_up(2.9995, 3, zeros=True)
    ('0.5000', '3.00')
    """
    return _rounded(value, digits, ROUND_CEILING, zeros)


def round_down(value: float, digits: int = 4, *, zeros: bool = False) -> str:
    """The value with `digits` significant digits, never above it: for printing lower bounds.

    >>> round_down(2.8519), round_down(0.99999), round_down(float("inf"))
    ('2.851', '0.9999', 'inf')
    """
    return _rounded(value, digits, ROUND_FLOOR, zeros)


def _rounded(value: float, digits: int, rounding: str, zeros: bool) -> str:
    from . import _checks  # late, so that the command line starts quickly

    value = _checks.real("value", value, remedy="pass one plain number")
    digits = _checks.integer("digits", digits, low=1, high=17, remedy="pass a number of significant digits")
    if not math.isfinite(value) or value == 0.0:
        return f"{value:g}"
    # Decimal(value) is the exact binary value, so the direction of rounding is exact too.
    exact = Decimal(value)
    places = digits - 1 - exact.adjusted()
    if value < 1e15:  # large numbers keep one digit behind the point rather than turn into 1e+05
        places = max(places, 1)
    shown = exact.quantize(Decimal(1).scaleb(-places), rounding=rounding, context=_WIDE)
    number = float(shown)
    text = format(shown, "f") if 1e-4 <= abs(number) < 1e15 else format(shown if zeros else shown.normalize(), "e")
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa}e{int(exponent):+03d}"
    return text.rstrip("0").rstrip(".") if "." in text and not zeros else text
