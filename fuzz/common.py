"""What the targets share: values that have broken parsers before, and the rules that hold for every input."""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TypeVar

from filet.accounting.accountant import Accountant
from filet.errors import FiletError, NotCertifiedError

CORPUS = Path(__file__).parent / "corpus"
MOST_PHASES = 3  # more phases take longer to compose and reach no more code
LEAST_NOISE = 0.01  # below it an answer may take seconds; how large it is is not the parsers' affair

# Ends of ranges, numbers just beyond them, and words of other types.
NUMBERS = (
    "0", "1", "-1", "2", "7", "40", "100", "0.5", "-0.0", "1.0", "1.5", "1e-5", "1e-12", "1e-300", "5e-324", "1e-200", "1e200",
    "1e308", "1e400", "inf", "-inf", "nan", "1_000", "1e3", "0x10", "9007199254740993", "9223372036854775807",
    "9223372036854775808", "18446744073709551616", "0x" + "f" * 4000, "9" * 5000,
)  # fmt: skip
WORDS = (
    "add-remove",
    "zero-out",
    "replace-one",
    "truncate",
    "reject",
    "refined",
    "note",
    "union",
    "",
    " ",
    "\u00e9",
    "all",
)

_Item = TypeVar("_Item")


def edited(items: list[_Item], random: Random) -> list[_Item]:
    """The list with one entry dropped, repeated, moved or swapped."""
    if not items:
        return items
    items = list(items)
    here, there = random.randrange(len(items)), random.randrange(len(items))
    change = random.randrange(3)
    if change == 0:
        del items[here]
    elif change == 1:
        items.insert(there, items[here])
    else:
        items[here], items[there] = items[there], items[here]
    return items


def check_message(error: FiletError) -> str:
    """Errors are one line that a terminal can show."""
    text = str(error)
    assert text.strip(), "an error without words"
    assert "\n" not in text, f"an error of several lines: {text!r}"
    assert len(text) < 2000, f"an error of {len(text)} characters"
    return text


def check_accountant(accountant: Accountant, delta: float) -> None:
    """What an accepted input composed can be saved, restored and asked."""
    state = accountant.state_dict()
    assert Accountant.from_state_dict(state).state_dict() == state, "a state that does not come back"
    if is_quick(accountant):
        epsilon_of(json.dumps(state), delta)


def is_quick(accountant: Accountant) -> bool:
    few = len(accountant.phases) <= MOST_PHASES
    return few and not any(0.0 < phase.noise_multiplier < LEAST_NOISE for phase in accountant.phases)


@lru_cache(maxsize=10_000)  # most mutations change words and not the run; composing is the slow part
def epsilon_of(state: str, delta: float) -> float | None:
    """Epsilon of a saved state; None where none can be certified."""
    try:
        bounds = Accountant.from_state_dict(json.loads(state)).curve().epsilon_bounds(delta)
    except NotCertifiedError as error:
        check_message(error)
        return None
    assert 0.0 <= bounds.lower <= bounds.upper, f"not an interval: {bounds}"
    return bounds.upper


def check_json(text: str) -> object:
    """Strict JSON: no NaN or Infinity, which other languages cannot read."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in JSON")


def check_no_nan(text: str) -> None:
    assert not re.search(r"\bnan\b", text, re.IGNORECASE), f"nan in {text!r}"


def is_number_between(text: str, low: float, high: float) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return not math.isnan(value) and low < value <= high
