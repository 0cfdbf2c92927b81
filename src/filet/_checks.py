"""Argument checks. Each names the argument, its value and the rule, before any work is done."""

from __future__ import annotations

import difflib
import enum
import math
import operator
import os
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidArgumentError

MAX_INTEGER = 2**63 - 1

# For type checkers: one number, and an array or lists of numbers.
Number = float | np.floating[Any] | np.integer[Any]
Numbers = Sequence[float] | Sequence[Sequence[float]] | NDArray[np.floating[Any]] | NDArray[np.integer[Any]]

_EnumT = TypeVar("_EnumT", bound=enum.Enum)


def show(value: object) -> str:
    """A short one-line form of any value, for error messages.

    >>> show("a" * 200)
    "'aaaaaaaaaaaa...aaaaaaaaaaaaa'"
    """
    try:
        return " ".join(reprlib.repr(value).split())
    except ValueError:  # an integer of more digits than Python converts to text
        return f"<{type(value).__name__} too long to show>"


def fail(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(message)


def _scalar(name: str, value: Any, kind: str) -> Any:
    """Unwrap a NumPy scalar; refuse arrays, booleans, text and None."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, str, bytes, np.ndarray)) or value is None:
        raise fail(f"{name}={show(value)} is not {kind}; pass one plain number")
    return value


def integer(name: str, value: Any, *, low: int, remedy: str, high: int = MAX_INTEGER) -> int:
    """An integer in [low, high]; a float is taken only if it is whole, so that 1e4 works."""
    value = _scalar(name, value, "an integer")
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) <= 2**53:
        value = int(value)
    try:
        result = operator.index(value)
    except TypeError:
        raise fail(f"{name}={show(value)} is not an integer; {remedy}") from None
    if result < low:
        raise fail(f"{name}={show(result)} is below {low}; {remedy}")
    if result > high:
        bound = "2**63 - 1" if high == MAX_INTEGER else str(high)
        raise fail(f"{name}={show(result)} is above {bound}; {remedy}")
    return result


def real(name: str, value: Any, *, rule: str = "", remedy: str) -> float:
    """A finite or infinite float, never NaN; the caller checks the range named by `rule`, if there is one."""
    value = _scalar(name, value, "a number")
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise fail(f"{name}={show(value)} is not {_number(rule)}; {remedy}") from None
    if math.isnan(result):
        raise fail(f"{name}=nan is not {rule or 'a number'}; {remedy}")
    return result


def _number(rule: str) -> str:
    return f"a number {rule}".strip()


def probability(name: str, value: Any, *, remedy: str) -> float:
    """A number in (0, 1]."""
    result = real(name, value, rule="in (0, 1]", remedy=remedy)
    if not 0.0 < result <= 1.0:
        raise fail(f"{name}={show(result)} is not in (0, 1]; {remedy}")
    return result


def open_probability(name: str, value: Any, *, remedy: str) -> float:
    """A number in (0, 1)."""
    result = real(name, value, rule="in (0, 1)", remedy=remedy)
    if not 0.0 < result < 1.0:
        raise fail(f"{name}={show(result)} is not in (0, 1); {remedy}")
    return result


def noise_multiplier(value: Any, name: str = "noise_multiplier") -> float:
    """A number in [0, inf]."""
    remedy = "pass the noise's standard deviation divided by the clipping norm"
    result = real(name, value, rule="in [0, inf]", remedy=remedy)
    if result < 0:
        raise fail(f"{name}={show(result)} is negative; {remedy}")
    return result


def step_count(value: Any, name: str = "steps") -> int:
    return integer(name, value, low=0, remedy="pass the whole number of training steps")


def steps_of_epochs(epochs: float, exact: float, name: str = "epochs") -> int:
    """The whole number of steps that `epochs` take, from the exact one."""
    if not exact <= MAX_INTEGER:
        raise fail(f"{name}={show(epochs)} take {exact:.3g} steps, above 2**63 - 1; pass fewer epochs")
    return math.ceil(exact)


def path(value: Any) -> str:
    """A file's path as text; a path that the operating system cannot take is refused."""
    try:
        text = os.fsdecode(value)
    except TypeError:
        raise fail(f"path={show(value)} is not a path; pass a string or a pathlib.Path") from None
    if "\0" in text:
        raise fail(f"path={show(text)} holds a zero byte; pass the name of a file")
    if not text:
        raise fail("path='' is empty; pass the name of a file")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise fail(
            f"path={text!a} has characters that file names cannot have here ({error.encoding}); pass another name,"
            " or set PYTHONUTF8=1"
        ) from None
    return text


_KEY_REMEDY = "pass 16 to 64 random bytes such as secrets.token_bytes(32)"


def key_bytes(value: Any) -> bytes:
    """A secret key as bytes, tagged by its type. No message here may contain the key."""
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0 or value.bit_length() > 256:
            raise fail(f"key is an integer that is negative or has more than 256 bits; {_KEY_REMEDY}")
        return b"int" + value.to_bytes(32, "little")
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
        if not 16 <= len(data) <= 64:
            raise fail(f"key has {len(data)} bytes, not 16 to 64; {_KEY_REMEDY}")
        return b"bytes" + data
    raise fail(f"key is of type {type(value).__name__}, not bytes or int; {_KEY_REMEDY}")


def choice(name: str, value: Any, options: type[_EnumT]) -> _EnumT:
    """A member of a string enum, given as member or as its string."""
    if isinstance(value, options):
        return value
    if isinstance(value, str):
        for option in options:
            if option.value == value:
                return option
    names = ", ".join(repr(option.value) for option in options)
    raise fail(f"{name}={show(value)} is unknown; pass one of {names}")


def real_array(name: str, value: Any, *, rule: str, remedy: str) -> NDArray[np.float64]:
    """A float array of any shape without NaN (scalars become 0-d arrays)."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        result = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise fail(f"{name}={show(value)} is not a number (or array of numbers) {rule}; {remedy}") from None
    if np.isnan(result).any():
        raise fail(f"{name} holds nan, which is not {rule}; {remedy}")
    return result


def delta_array(value: Any) -> NDArray[np.float64]:
    """Numbers in (0, 1), any shape."""
    if type(value) is float and 0.0 < value < 1.0:  # the usual question, many thousand times a second
        return np.array(value)
    remedy = "pass a probability such as 1e-5, well below 1 / dataset_size"
    result = real_array("delta", value, rule="in (0, 1)", remedy=remedy)
    bad = ~((result > 0) & (result < 1))
    if bad.any():
        raise fail(f"delta={show(float(result[bad].flat[0]))} is not in (0, 1); {remedy}")
    return result


def epsilon_array(value: Any) -> NDArray[np.float64]:
    """Numbers in [0, inf), any shape."""
    remedy = "pass a finite number of at least 0"
    result = real_array("epsilon", value, rule="in [0, inf)", remedy=remedy)
    bad = ~((result >= 0) & np.isfinite(result))
    if bad.any():
        raise fail(f"epsilon={show(float(result[bad].flat[0]))} is not in [0, inf); {remedy}")
    return result


def no_unknown_keys(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse keys that nobody would read (a misspelt key must not be ignored)."""
    extra = sorted(set(given) - set(known))
    if extra:
        near = suggestion(extra[0], known)
        raise fail(f"{where} has the unknown key {show(extra[0])}; {near}known keys are {', '.join(sorted(known))}")


def suggestion(word: Any, known: Iterable[str]) -> str:
    """The known word nearest to a misspelt one, as the beginning of a remedy; empty if none is near.

    >>> suggestion("--noise", ["--steps", "--noise-multiplier"])
    'did you mean --noise-multiplier? '
    """
    if not isinstance(word, str):
        return ""
    names, bare = sorted(set(known)), word.strip("-")
    near = [name for name in names if len(bare) >= 3 and bare.lower() in name]
    close = difflib.get_close_matches(
        bare, [name.strip("-") for name in names], cutoff=0.6
    )  # dashes do not count as likeness
    near += [name for name in names if name.strip("-") in close and name not in near]
    return f"did you mean {' or '.join(near[:3])}? " if near else ""
