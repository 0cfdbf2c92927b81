"""The record of a run: the facts for a paper, a model card and a regulator, in a form that others can check.

A record is plain JSON of a fixed shape. `verify` accounts for the run again and compares field by field, so a
changed field is found whoever computed the checksum. Nothing secret enters: a record is made from a
`PrivacyCurve`, which holds the run's public parameters and nothing else.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from .. import __version__, _checks
from .._checks import show
from .._files import plain_json, whole_file
from .._progress import Progress
from .._public import public
from ..accounting.accountant import Accountant
from ..accounting.curve import PrivacyCurve
from ..accounting.lower_bounds import epsilon_lower_bound
from ..accounting.state import checksum, phase_fields
from ..errors import FiletError, InvalidArgumentError, NotCertifiedError, StateError
from ..scheme import CappedPoisson, Size
from .risk import risks
from .statement import assumptions, mechanism, neighbours, theorems

FORMAT, VERSION = "filet-record", 1
UNIT = "one example of the training data"
USER_UNIT = "all examples of one user"  # a record with this unit speaks of users where others speak of examples
_PUBLIC = [
    "dataset_size", "sampling_probability", "max_batch_size", "overflow", "cycle_length", "noise_multiplier", "steps",
    "the number and the noise of other Gaussian releases", "the clipping norm", "the outputs of every step",
]  # fmt: skip
_SECRET = ["the examples", "the members of every batch", "the size of every batch", "the key of the run", "the noise"]
_CHECKING = [
    "filet record --verify FILE accounts for the run again and compares every field of this record.",
    "filet check FILE proves a certificate with ball arithmetic, without the code that made it.",
]
_SCHEME_KEYS = ("dataset_size", "sampling_probability", "max_batch_size", "overflow", "cycle_length")
_PHASE_KEYS = (*_SCHEME_KEYS, "noise_multiplier", "steps", "analysis")
# Fields whose value another machine may compute a little differently, and the direction in which they are bounds.
_UPPER = ("epsilon", "membership_advantage", "true_positive_rate", "belief")
_LOWER = ("epsilon_lower", "attack_epsilon", "bayes_error")
_EQUAL, _CLOSE = 1e-9, 2e-3  # relative, towards the unsafe side and towards the safe one
_SMALL = 2e-4  # absolute, beside the second: epsilons below 0.1 are proven to 1e-4


@public
def record(
    curve: PrivacyCurve,
    delta: float,
    *,
    unit: str = UNIT,
    title: str = "",
    certificate: bool = False,
    max_seconds: float = 600.0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The record of a run, as plain JSON: the mechanism, its guarantee, and how to check it.

    >>> import filet
    >>> scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
    >>> curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    >>> made = filet.record(curve, delta=1e-5)
    >>> filet.round_up(made["guarantee"]["epsilon"])
    '2.825'
    >>> from filet.showing.record import verify
    >>> verify(made)
    []

    Guarantees: nothing secret is in it, only the run's public parameters. A run without a finite epsilon at `delta` raises
    `NotCertifiedError`.

    Arguments:
        curve: the run.
        delta: the delta of (epsilon, delta).
        unit: what one example is, such as "one sequence of 1,024 tokens"; in your words.
        title: a name of the run; in your words.
        certificate: whether to add a proof for `filet check`; takes seconds to minutes.
        max_seconds: what the certificate may take, as estimated.
        progress: called with the share of the certificate that is done and with a label.
    """
    if not isinstance(curve, PrivacyCurve):
        raise _checks.fail(f"curve={show(curve)} is not a PrivacyCurve; pass what filet.account returned")
    deltas = _checks.delta_array(delta)
    if deltas.ndim:
        raise _checks.fail(f"delta of shape {deltas.shape} is not one number; a record is for one")
    made = _body(curve, float(deltas), _text("unit", unit), _text("title", title))
    if certificate:
        made["certificate"] = curve.certificate(delta, max_seconds=max_seconds, progress=progress)
    return {**made, "checksum": checksum(made)}


def _body(curve: PrivacyCurve, delta: float, unit: str, title: str) -> dict[str, Any]:
    """All fields but the certificate and the checksum."""
    bounds = curve.epsilon_bounds(delta)
    if not math.isfinite(bounds.upper):
        raise NotCertifiedError(f"the run has no finite epsilon at delta={delta!r}; a record needs one")
    attack, why = _attack(curve, delta)
    word = "user" if unit == USER_UNIT else "example"
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": title,
        "made_with": made_with(),
        "privacy_unit": {
            "unit": unit,
            "adjacency": curve.adjacency.value,
            "neighbours": neighbours(curve, word),
            "dataset_size": curve.dataset_size,
        },
        "mechanism": {
            "phases": [_plain(phase_fields(phase)) for phase in curve.phases],
            "gaussian_releases": [{"noise_multiplier": _number(s), "count": n} for s, n in curve.releases],
            "words": mechanism(curve, word),
        },
        "public": list(_PUBLIC),
        "secret": [*_SECRET, *(["the number of records"] if curve.size is not Size.PUBLIC else [])],
        "assumptions": assumptions(curve, word),
        "guarantee": {
            "flavor": "approximate differential privacy, central model",
            "epsilon": bounds.upper,
            "epsilon_lower": bounds.lower,
            "delta": delta,
            "holds_for": curve.holds_for,
            "composes_with_secret_sizes": curve.size is not Size.PUBLIC,
            "theorems": theorems(curve),
        },
        "attack": {"attack_epsilon": attack, "words": why},
        "risk": risks(curve, delta),
        "certificate": None,
        "checking": list(_CHECKING),
    }


def made_with() -> dict[str, str]:
    """The versions that a record names."""
    return {
        "filet": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _attack(curve: PrivacyCurve, delta: float) -> tuple[float | None, str]:
    """The epsilon that an explicit attack proves to be lost; None and why where it is not computed."""
    if len(curve.phases) != 1 or curve.gaussian:
        return None, "not computed: only for runs of one phase without Gaussian releases"
    phase = curve.phases[0]
    try:
        found = epsilon_lower_bound(
            phase.scheme,
            noise_multiplier=phase.noise_multiplier,
            steps=phase.steps,
            adjacency=curve.adjacency,
            delta=delta,
        )
    except NotCertifiedError:
        return None, "not computed: no attack is certified for this run"
    return found, "no analysis of this mechanism can show less"


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise _checks.fail(f"{name}={show(value)} is not one line of text; pass a string without line breaks")
    return value


def _number(value: float) -> float | str:
    """A float; infinity as a string, as JSON has no number for it."""
    return value if math.isfinite(value) else str(value)


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _number(value) if isinstance(value, float) else value for key, value in fields.items()}


# --- reading and checking ---------------------------------------------------------------------------------------------


def read_record(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A record from its file; any other file raises `StateError`."""
    name = _checks.path(path)
    try:
        found = plain_json(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise StateError(f"cannot read {name!r}: {error.strerror}; pass a record's file") from None
    except (ValueError, RecursionError) as error:
        raise StateError(f"{name!r} is not plain JSON ({error}): it is damaged or no record") from None
    _check_format(found)
    return dict(found)


def write_record(made: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a record, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(made, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _check_format(made: Any) -> None:
    if not isinstance(made, Mapping) or made.get("format") != FORMAT:
        raise StateError(f"this is no record (its format is not {FORMAT!r}); pass what filet record wrote")
    if made.get("version") != VERSION:
        raise StateError(f"record version {show(made.get('version'))} is unknown to this filet; install a newer one")


def run_of(made: Mapping[str, Any]) -> tuple[PrivacyCurve, float]:
    """The run that a record describes, and its delta; a field that is missing or wrong raises `StateError`."""
    _check_format(made)
    try:
        accountant = Accountant(made["privacy_unit"]["adjacency"])
        for entry in made["mechanism"]["phases"]:
            if set(entry) - {"size"} != set(_PHASE_KEYS):  # a public size is left out
                raise StateError(f"a phase of the record has the fields {sorted(entry)}; restore it from a backup")
            scheme = CappedPoisson(**{key: entry[key] for key in (*_SCHEME_KEYS, "size") if key in entry})
            accountant.compose(scheme, _read(entry["noise_multiplier"]), entry["steps"], analysis=entry["analysis"])
        for entry in made["mechanism"]["gaussian_releases"]:
            accountant.compose_gaussian(_read(entry["noise_multiplier"]), entry["count"])
        return accountant.curve(), float(_checks.delta_array(made["guarantee"]["delta"]))
    except (KeyError, TypeError, InvalidArgumentError) as error:
        raise StateError(f"the record describes no run ({error}); restore it from a backup") from None


def _read(value: Any) -> Any:
    return math.inf if value == "inf" else value


def verify(made: Mapping[str, Any], *, max_seconds: float = 600.0, progress: Progress | None = None) -> list[str]:
    """Faults of a record, a line for each field; an empty list if there are none.

    The run is accounted for again. Every word must be what this filet writes for that run. An upper bound must not lie
    below the one proven now (but for 1e-9 of it), nor far above it; a lower bound the other way round. A certificate
    must be one of this run, and the checker must accept it.

    Arguments:
        made: the record.
        max_seconds: what checking the certificate may take, as estimated.
        progress: called with the share of the certificate that is checked and with a label.
    """
    curve, delta = run_of(made)
    unit = made["privacy_unit"].get("unit")
    try:
        expected = _body(curve, delta, _text("unit", unit), _text("title", made.get("title")))
    except FiletError as error:
        return [f"the run cannot be recorded: {error}"]
    claim = made.get("certificate")
    problems = list(_differences({**made, "checksum": ""}, {**expected, "certificate": claim, "checksum": ""}, ""))
    if claim is not None:
        problems += _certificate_problems(claim, curve, delta, max_seconds, progress)
    if made.get("checksum") != checksum(dict(made)):
        problems.append("checksum does not match: the record was changed after it was written")
    return problems


def _differences(claimed: Any, expected: Any, where: str) -> Iterator[str]:
    """A line for each field that is not as expected."""
    if where == "made_with":  # other versions are no fault
        claimed, expected = _types(claimed), _types(expected)
    if isinstance(expected, Mapping) and isinstance(claimed, Mapping):
        for key in {**expected, **claimed}:
            yield from _field_differences(claimed, expected, key, where)
    elif isinstance(expected, list) and isinstance(claimed, list) and len(claimed) == len(expected):
        for number, (one, other) in enumerate(zip(claimed, expected, strict=True)):
            yield from _differences(one, other, f"{where}[{number}]")
    elif not _same(claimed, expected, where.rpartition(".")[2]):
        yield f"{where} is {show(claimed)}, not {show(expected)} as accounted for now"


def _field_differences(claimed: Mapping[str, Any], expected: Mapping[str, Any], key: str, where: str) -> Iterator[str]:
    name = f"{where}.{key}" if where else str(key)
    if key not in claimed:
        yield f"{name} is missing"
    elif key not in expected:
        yield f"{name} is no field of a record"
    else:
        yield from _differences(claimed[key], expected[key], name)


def _types(versions: Any) -> Any:
    return {key: type(one).__name__ for key, one in versions.items()} if isinstance(versions, Mapping) else versions


def _same(claimed: Any, expected: Any, name: str) -> bool:
    """True if a value may stand: a bound within its tolerances, anything else as it is."""
    if name not in _UPPER + _LOWER or not all(type(one) in (int, float) for one in (claimed, expected)):
        return type(claimed) is type(expected) and bool(claimed == expected)
    unsafe = _EQUAL * expected
    safe = _CLOSE * expected + (_SMALL if "epsilon" in name else 0.0)
    below, above = (unsafe, safe) if name in _UPPER else (safe, unsafe)
    return bool(expected - below <= claimed <= expected + above)


def _certificate_problems(
    claim: Any, curve: PrivacyCurve, delta: float, max_seconds: float, progress: Progress | None
) -> list[str]:
    """Faults of a record's certificate."""
    try:
        from ..accounting.certificate import describes
        from ..checking import check
    except (ImportError, FiletError) as error:
        return [f"certificate cannot be checked: {error}"]
    if not describes(claim, curve, delta):
        return ["certificate is that of another run"]
    heard = (lambda share: progress(share, "checking")) if progress else (lambda share: None)
    verdict = check(claim, max_seconds=max_seconds, progress=heard)
    if not verdict.ok:
        return [f"certificate is refused: {verdict.reason}"]
    enough = _same(float(verdict.epsilon), curve.epsilon(delta), "epsilon")
    return [] if enough else [f"certificate proves epsilon {verdict.epsilon} only"]
