"""Run descriptions, as TOML files or mappings: all phases of a training run, checked key by key.

adjacency = "zero-out"
delta = 1e-5
max_epsilon = 3.0            # optional: the command line fails if epsilon is above it
dataset_size = 60_000        # keys of a phase may stand here, for all phases; but not its length

[[phases]]
sampling_probability = 0.004 # or poisson_batch_size, the mean before the cap
max_batch_size = 300         # or no_cap = true: plain Poisson sampling
noise_multiplier = 1.0
steps = 14_000               # or epochs

[[gaussian]]                 # optional: other Gaussian releases from the same data
noise_multiplier = 5.0
count = 1
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from ..accounting.accountant import Accountant
    from ..accounting.curve import PrivacyCurve
    from ..accounting.terms import Phase
    from ..scheme import CappedPoisson


_T = TypeVar("_T")

RUN_KEYS = ("adjacency", "delta", "max_epsilon", "phases", "gaussian")
SCHEME_KEYS = (
    "dataset_size",
    "sampling_probability",
    "poisson_batch_size",
    "max_batch_size",
    "no_cap",
    "overflow",
    "cycle_length",
    "size",
)
PHASE_KEYS = (*SCHEME_KEYS, "noise_multiplier", "steps", "epochs", "analysis")
GAUSSIAN_KEYS = ("noise_multiplier", "count")
# Two ways to give one thing.
RATE = ("sampling_probability", "poisson_batch_size")
CAP = ("max_batch_size", "no_cap")
LENGTH = ("steps", "epochs")


def make_scheme(options: Mapping[str, Any], where: str = "the scheme") -> CappedPoisson:
    """A `CappedPoisson` from the keys of a run file.

    `poisson_batch_size` (before the cap) is another way to give the rate.

    `no_cap` instead of `max_batch_size` is plain Poisson sampling.

    >>> make_scheme({"dataset_size": 1000, "poisson_batch_size": 10, "max_batch_size": 16}).sampling_probability
    0.01
    """
    from ..scheme import CappedPoisson

    given = {key: options[key] for key in SCHEME_KEYS if options.get(key) is not None}
    _require(given, "dataset_size", where)
    free = given.pop("no_cap", False)
    if not isinstance(free, bool):
        raise InvalidArgumentError(f"no_cap={free!r} in {where} is not true or false; write no_cap = true, or a cap")
    if free:
        if "overflow" in given:
            raise InvalidArgumentError(
                f"overflow and no_cap are both given in {where}; nothing overflows, drop overflow"
            )
        given["max_batch_size"] = None
        _check_one(RATE, given, where)
        _check_one(CAP, {**options, "no_cap": True}, where)
    else:
        _check_one(CAP, given, where)
        _check_one(RATE, given, where)
    return CappedPoisson.from_batch_size(**given) if "poisson_batch_size" in given else CappedPoisson(**given)


def make_steps(options: Mapping[str, Any], scheme: CappedPoisson, where: str = "the run") -> int:
    """`steps`, or enough steps for `epochs`.

    An epoch is as many expected draws (before the cap) as there are examples.

    >>> scheme = make_scheme({"dataset_size": 1000, "sampling_probability": 0.015, "max_batch_size": 32})
    >>> make_steps({"epochs": 3}, scheme)
    200
    """
    from .. import _checks

    steps, epochs = options.get("steps"), options.get("epochs")
    _check_one(LENGTH, options, where)
    count = scheme.steps_of_epochs(epochs) if epochs is not None else _checks.step_count(steps)
    if count == 0:
        raise InvalidArgumentError(f"steps=0 is below 1 in {where}; pass at least one step")
    return count


def _require(given: Mapping[str, Any], key: str, where: str) -> Any:
    if given.get(key) is None:
        raise InvalidArgumentError(f"{key} is missing in {where}; it has no default")
    return given[key]


def _check_one(pair: tuple[str, str], given: Mapping[str, Any], where: str) -> None:
    """Exactly one of two ways to give one thing."""
    first, second = pair
    there = [given.get(key) is not None for key in pair]
    if all(there):
        raise InvalidArgumentError(f"{first} and {second} are both given in {where}; pass one of them")
    if not any(there):
        raise InvalidArgumentError(f"{first} is missing in {where}; pass it, or {second}")


@dataclass(frozen=True)
class RunFile:
    """A checked run description: its accountant, and the delta and the limit of the question."""

    accountant: Accountant
    delta: float | None
    max_epsilon: float | None

    @property
    def curve(self) -> PrivacyCurve:
        return self.accountant.curve()

    @property
    def only_phase(self) -> Phase | None:
        """The phase of a run of one phase without Gaussian releases; None for all other runs."""
        phases = self.accountant.phases
        return phases[0] if len(phases) == 1 and not self.curve.gaussian else None

    @property
    def sizes(self) -> list[int]:
        """The data set sizes of the phases."""
        return [phase.scheme.dataset_size for phase in self.accountant.phases]


def read_run(path: str | os.PathLike[str]) -> RunFile:
    """Read and check a run file (`-` is standard input); every error names the file and the key."""
    return _read(path, parse_run)


def read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys of a run file of one phase, those of the phase over the shared ones."""
    return _read(path, parse_settings)


def _read(path: str | os.PathLike[str], parse: Callable[[Mapping[str, Any]], _T]) -> _T:
    import tomllib

    from .. import _checks

    name = _checks.path(path)
    try:
        data = tomllib.loads(_text(name))
    except OSError as error:
        raise InvalidArgumentError(f"cannot read {name!r}: {error.strerror}; pass the path of a run file") from None
    except (ValueError, RecursionError) as error:  # bad TOML or UTF-8, a number or a nesting beyond Python's limits
        raise InvalidArgumentError(f"{name}: not valid TOML ({' '.join(str(error).split())}); mend the file") from None
    try:
        return parse(data)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{name}: {error}") from None


def _text(name: str) -> str:
    """A file's text, or that of standard input."""
    if name != "-":
        return Path(name).read_text(encoding="utf-8")
    if sys.stdin is None:
        raise InvalidArgumentError("standard input is closed; pass a run file by its name")
    return sys.stdin.buffer.read().decode("utf-8")


def parse_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run of one phase, unchecked but for their names.

    >>> parse_settings({"max_batch_size": 5, "phases": [{"epochs": 2, "overflow": "reject"}]})
    {'max_batch_size': 5, 'epochs': 2, 'overflow': 'reject'}
    """
    from .. import _checks

    _checks.no_unknown_keys("the run", data, (*RUN_KEYS, *PHASE_KEYS))
    phases = _phases(data)
    if len(phases) > 1 or _tables(data, "gaussian"):
        raise InvalidArgumentError("this question is about one phase alone; pass a file with one, and no [[gaussian]]")
    phase = phases[0] if phases else {}
    _checks.no_unknown_keys("phase 1", phase, PHASE_KEYS)
    return _merged({key: value for key, value in data.items() if key not in ("phases", "gaussian")}, phase)


def parse_run(data: Mapping[str, Any]) -> RunFile:
    """A run from the keys of its file.

    >>> run = parse_run({"adjacency": "zero-out", "delta": 1e-5, "dataset_size": 60_000, "max_batch_size": 300,
    ...     "phases": [{"poisson_batch_size": 256, "noise_multiplier": 1.0, "steps": 14_000}]})
    >>> from filet import round_up
    >>> round_up(run.curve.epsilon(run.delta), 4)
    '2.825'
    """
    import scipy.special  # noqa: F401, here it takes a sixth less than further down, within the imports of others

    from .. import _checks
    from ..accounting.accountant import Accountant

    _checks.no_unknown_keys("the run", data, (*RUN_KEYS, *PHASE_KEYS))
    accountant = Accountant(_require(data, "adjacency", "the run"))
    shared = {key: value for key, value in data.items() if key in PHASE_KEYS}
    phases = _phases(data)
    gaussians = _tables(data, "gaussian")
    if not phases and (shared or not gaussians):
        phases = [{}]
    for number, phase in enumerate(phases, 1):
        where = f"phase {number}" if data.get("phases") else "the run"
        _checks.no_unknown_keys(where, phase, PHASE_KEYS)
        _compose(accountant, _merged(shared, phase), where)
    for number, release in enumerate(gaussians, 1):
        where = f"gaussian release {number}"
        _checks.no_unknown_keys(where, release, GAUSSIAN_KEYS)
        accountant.compose_gaussian(_require(release, "noise_multiplier", where), release.get("count", 1))
    return RunFile(accountant, *checked_question(data.get("delta"), data.get("max_epsilon")))


def _phases(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tables of the phases.

    A length above them is refused: it may be that of a phase without a table, which would be
    dropped.
    """
    phases = _tables(data, "phases")
    for key in LENGTH:
        if phases and data.get(key) is not None:
            raise InvalidArgumentError(
                f"{key} stands above [[phases]]; write {key} into each of them, and what was one phase without a table"
                " as a [[phases]] of its own"
            )
    return phases


def _compose(accountant: Accountant, options: Mapping[str, Any], where: str) -> None:
    """Add a phase; every error says which one it is about."""
    try:
        scheme = make_scheme(options, where)
        steps = make_steps(options, scheme, where)
        sigma = _require(options, "noise_multiplier", where)
        accountant.compose(scheme, sigma, steps, analysis=options.get("analysis", "refined"))
    except InvalidArgumentError as error:
        if where in str(error) or where == "the run":
            raise
        raise InvalidArgumentError(f"{where}: {error}") from None


def checked_question(delta: Any, max_epsilon: Any) -> tuple[float | None, float | None]:
    """The delta that is asked about and the epsilon that is allowed; either may be None."""
    from .. import _checks

    return (
        None if delta is None else float(_checks.delta_array(_plain("delta", delta))),
        None if max_epsilon is None else float(_checks.epsilon_array(_plain("max_epsilon", max_epsilon))),
    )


def _merged(shared: Mapping[str, Any], phase: Mapping[str, Any]) -> dict[str, Any]:
    """The phase's keys over the shared ones.

    A phase that gives one of two alternatives displaces the other.
    """
    base = dict(shared)
    for pair in (RATE, CAP, LENGTH):
        if any(key in phase for key in pair):
            for key in pair:
                base.pop(key, None)
    if phase.get("no_cap"):
        base.pop("overflow", None)  # the policy of the phases that have a cap
    return {**base, **phase}


def _plain(name: str, value: Any) -> float:
    from .. import _checks

    return _checks.real(name, value, remedy="pass one plain number")


def _tables(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise InvalidArgumentError(f"{key} is not a list of tables; write each one as [[{key}]]")
    return value
