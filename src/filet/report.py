"""Words, tables and files: numbers rounded to the safe side, the privacy statement, atomic writing.

Nothing heavy is imported at the top, so that the command line starts quickly.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import FiletError

if TYPE_CHECKING:
    from .accountant import Phase, PrivacyCurve


class OutputError(FiletError, OSError):
    """A file could not be written; nothing was changed."""


def round_up(value: float, digits: int = 4) -> str:
    """The value with `digits` significant digits, never below it: for printing upper bounds.

    >>> round_up(2.8517426), round_up(1.00001e-5), round_up(99999.0001), round_up(0.5)
    ('2.852', '1.001e-05', '99999.1', '0.5')
    """
    return _rounded(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """The value with `digits` significant digits, never above it: for printing lower bounds.

    >>> round_down(2.8519), round_down(0.99999), round_down(float("inf"))
    ('2.851', '0.9999', 'inf')
    """
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if not math.isfinite(value) or value == 0.0:
        return f"{value:g}"
    # Decimal(value) is the exact binary value, so the direction of rounding is exact too.
    exact = Decimal(value)
    places = digits - 1 - exact.adjusted()
    if value < 1e15:  # large numbers keep one digit behind the point rather than turn into 1e+05
        places = max(places, 1)
    shown = exact.quantize(Decimal(1).scaleb(-places), rounding=rounding)
    number = float(shown)
    text = format(shown, "f") if 1e-4 <= abs(number) < 1e15 else format(shown.normalize(), "e")
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa}e{int(exponent):+03d}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside the target that replaces it at the end of the block, or vanishes on any error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder, "a.txt")) as temporary:
    ...         _ = temporary.write_text("all of it")
    ...     [file.name for file in Path(folder).iterdir()]
    ['a.txt']
    """
    from . import _validate

    target = Path(_validate.path(path))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise OutputError(f"cannot write {str(target)!r}: {error.strerror}; choose a writable directory") from None
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # mkstemp's 0600 is for secrets; results follow the user's umask
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise OutputError(f"cannot write {str(target)!r}: {error.strerror or error}; nothing was changed") from None
    finally:
        temporary.unlink(missing_ok=True)


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned with blanks: the first to the left, numbers to the right.

    >>> print(text_table(["policy", "epsilon"], [["truncate", "2.852"], ["reject", "2.815"]]))
    policy    epsilon
    truncate    2.852
    reject      2.815
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


_ADJACENCY = {
    "add-remove": (
        "Two data sets are neighbours if one is the other without one example. dataset_size is public and is the"
        " size of the larger of the two."
    ),
    "zero-out": (
        "Two data sets of the same public size are neighbours if one example of one is a zero vector (contributes"
        " nothing) in the other."
    ),
    "replace-one": (
        "Two data sets of the same public size are neighbours if one example of one is an arbitrary other in the other."
    ),
}

_THEOREM = {
    ("truncate", "refined"): "refined bound for random truncation (documentation, theory page, Theorem 2)",
    ("truncate", "note"): "Ganesh (2025), arXiv 2508.15089, Theorems 3.1, 3.3 and 3.4 (theory page, Theorem 1)",
    ("truncate", "union"): (
        "plain Poisson sampling with delta + (1 + e^epsilon) eta, eta the chance that any batch overflows"
        " (after Chua et al., 2024)"
    ),
    ("reject", "refined"): "Poisson sampling conditioned on fitting (documentation, theory page, Theorem 3)",
}

_OVERFLOW = {
    "truncate": "a larger batch is cut to a uniformly random subset of {cap} examples",
    "reject": "a larger batch is thrown away and drawn again",
}


def statement(curve: PrivacyCurve, delta: float) -> str:
    """The privacy statement of a run: mechanism, neighbours, guarantee, assumptions, theorems.

    >>> import filet
    >>> scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    >>> curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    >>> print(statement(curve, delta=1e-5).splitlines()[1])
      The outputs of the whole run are (epsilon, delta)-differentially private with epsilon = 2.852 and delta = 1e-05.
    """
    bounds = curve.epsilon_bounds(delta)
    lines = ["Guarantee"]
    if math.isinf(bounds.upper):
        lines += [f"  None: no finite epsilon is proven at delta = {delta!r}."]
    else:
        lines += [
            "  The outputs of the whole run are (epsilon, delta)-differentially private with"
            f" epsilon = {round_up(bounds.upper)} and delta = {delta!r}.",
            "  Epsilon is an upper bound, rounded up, for both orders of the two data sets; the exact value of this",
            f"  analysis is proven to lie in [{round_down(bounds.lower, 6)}, {round_up(bounds.upper, 6)}].",
        ]
    lines += ["", f"Neighbouring data sets ({curve.adjacency})", *_wrapped(_ADJACENCY[curve.adjacency.value])]
    lines += ["", "Mechanism"]
    for number, phase in enumerate(curve.phases, 1):
        lines += _wrapped(_mechanism(phase), f"{number}. " if len(curve.phases) > 1 else "")
    if curve.gaussian:
        lines += _wrapped(
            "Gaussian releases beside the training, together as private as one of noise multiplier"
            f" {round_down(1 / math.sqrt(curve.gaussian))}."
        )
    lines += ["", "Assumptions"]
    for assumption in _assumptions(curve):
        lines += _wrapped(assumption, "- ")
    lines += ["", "Theorems"]
    used = dict.fromkeys((phase.scheme.overflow.value, phase.analysis.value) for phase in curve.phases)
    for pair in used:
        lines += _wrapped(f"{pair[0]}, {pair[1]}: {_THEOREM[pair]}.", "- ")
    lines += _wrapped("composition: privacy loss distributions, added up with bounds on every numerical error.", "- ")
    return "\n".join(lines)


def _mechanism(phase: Phase) -> str:
    scheme = phase.scheme
    overflow = _OVERFLOW[scheme.overflow.value].format(cap=scheme.max_batch_size)
    cyclic = ""
    if scheme.cycle_length > 1:
        cyclic = (
            f" The examples are split once, at random, into {scheme.cycle_length} groups of {scheme.group_size}, and"
            " step t samples from group t mod the number of groups; each example takes part in at most"
            f" {phase.rounds} steps."
        )
    return (
        f"{phase.steps} steps. Each includes every one of the {scheme.group_size} examples independently with"
        f" probability {scheme.sampling_probability!r}; {overflow}."
        f"{cyclic} The step releases the sum of the batch's vectors, each of norm at most C, plus Gaussian noise of"
        f" standard deviation {phase.noise_multiplier!r} C in every coordinate."
    )


def _assumptions(curve: PrivacyCurve) -> list[str]:
    size = curve.dataset_size
    given = [
        f"dataset_size{'' if size is None else f' = {size}'}, the probabilities, caps, noise multipliers and numbers of"
        " steps are public constants, not computed from the data.",
        "Batches stay secret: neither their members nor their sizes are released, and sums are divided by a constant.",
        "Sampling keys are secret, uniformly random and used for one run.",
        "Vectors are clipped to norm C one example at a time; noise is an ideal Gaussian (computers add it in floating"
        " point).",
        "Everything released from these data is in the list above (what is not must be composed with it).",
    ]
    if curve.adjacency.value == "add-remove":
        given.append(
            "The guarantee is for this public size. To protect a set of n examples against additions as well, report"
            " the larger of the epsilons for n and n + 1; do not compose it with mechanisms that keep the size private."
        )
    if any(phase.scheme.cycle_length > 1 for phase in curve.phases):
        given.append("Cyclic sampling: the steps are those of DP-SGD, or of BandMF with at most cycle_length bands.")
    return given


def _wrapped(text: str, mark: str = "", width: int = 110) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width, initial_indent="  " + mark, subsequent_indent="  " + " " * len(mark))
