"""What a run costs: `account` for one scheme, `Accountant` for several phases, `PrivacyCurve` for the answers."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import _state, _validate
from ._public import public
from .composite import Composite
from .engine import wide
from .errors import InvalidArgumentError, NotCertifiedError, StateError
from .kernel import Array, LossLaw
from .profiles import Analysis, loss_law
from .scheme import Adjacency, CappedPoisson, Overflow

BEYOND_FLOATS = (ZeroDivisionError, OverflowError, FloatingPointError)


@public
class Bounds(NamedTuple):
    """A proven interval: the exact value of the analysis lies in it."""

    lower: float
    upper: float


@dataclass(frozen=True)
class Phase:
    """`steps` training steps with one scheme and one noise multiplier."""

    scheme: CappedPoisson
    noise_multiplier: float
    steps: int
    analysis: Analysis = Analysis.REFINED

    def __post_init__(self) -> None:
        if self.analysis is not Analysis.REFINED and self.scheme.overflow is Overflow.REJECT:
            raise InvalidArgumentError(
                f"analysis={self.analysis.value!r} is for overflow='truncate', not 'reject'; pass analysis='refined'"
            )

    @property
    def rounds(self) -> int:
        """Steps in which one given example can take part: every `cycle_length`-th."""
        return -(-self.steps // self.scheme.cycle_length)

    @property
    def only_gaussian(self) -> bool:
        """Whether every step uses every example, so that only a Gaussian mechanism is left."""
        return self.scheme.sampling_probability == 1.0 and self.scheme.max_batch_size >= self.scheme.group_size

    @property
    def overflow_exponent(self) -> float:
        """-log of the chance that no batch overflows, for the union strategy."""
        if self.analysis is not Analysis.UNION:
            return 0.0
        log_one = self.scheme.log_overflow_probability
        if log_one >= 0.0:
            return math.inf
        # Near 1 and near 0 the other formula loses the digits that matter.
        log_fits = math.log(-math.expm1(log_one)) if log_one > -0.5 else math.log1p(-math.exp(log_one))
        return -self.steps * log_fits


def _composite(phases: list[Phase], gaussian: float, adjacency: Adjacency) -> Composite:
    laws: list[tuple[LossLaw, int]] = []
    exposed = False
    exponent = 0.0
    for phase in phases:
        if phase.steps == 0 or phase.noise_multiplier == math.inf:
            continue
        exponent += phase.overflow_exponent
        if phase.noise_multiplier == 0.0:
            exposed = True
        elif phase.only_gaussian:
            shift = (2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0) / phase.noise_multiplier
            gaussian += phase.rounds * shift * shift  # a product, as a power raises where it overflows
        else:
            laws.append((loss_law(phase.scheme, phase.noise_multiplier, adjacency, phase.analysis), phase.rounds))
    return Composite(laws, gaussian, symmetric=adjacency is Adjacency.REPLACE_ONE, exposed=exposed,
                     overflow=-math.expm1(-exponent))  # fmt: skip


@public
class PrivacyCurve:
    """The privacy of a run: epsilon as a function of delta, and back. Made by `account` and `Accountant.curve`.

    >>> scheme = CappedPoisson(dataset_size=60_000, sampling_probability=256 / 60_000, max_batch_size=300)
    >>> curve = account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    >>> curve
    PrivacyCurve(zero-out, dataset_size=60000, steps=14000, analysis=refined)
    >>> round(curve.epsilon(delta=1e-5), 3)
    2.852
    >>> curve.delta(epsilon=3.0) < 1e-5
    True

    Guarantees: `epsilon` and `delta` are upper bounds, for both directions of the adjacency, of the dominating pair
    of the chosen analysis, including every numerical error. The `..._bounds` methods give the interval in which the
    exact value lies; for epsilon it is at most max(0.1 %, 1e-4) wide, or `NotCertifiedError` is raised.
    """

    def __init__(self, phases: list[Phase], gaussian: float, adjacency: Adjacency) -> None:
        self.adjacency = adjacency
        self.phases = tuple(phases)
        self.gaussian = gaussian
        try:
            self._run = _composite(phases, gaussian, adjacency)
        except BEYOND_FLOATS as error:
            raise NotCertifiedError(
                f"this run is beyond what floats can hold ({error}); use less extreme noise"
            ) from None
        self._known: dict[tuple[str, float], Bounds] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return PrivacyCurve._from_state, (_state.to_dict(self.adjacency, self.phases, self.gaussian),)

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> PrivacyCurve:
        adjacency, phases, gaussian = _state.from_dict(state)
        made = [Phase(scheme, sigma, steps, Analysis(analysis)) for scheme, sigma, steps, analysis in phases]
        return cls(made, gaussian, adjacency)

    @property
    def dataset_size(self) -> int | None:
        """The public data set size that the guarantee is for (add-remove: the larger of the two); None if any."""
        sizes = {phase.scheme.dataset_size for phase in self.phases}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def __repr__(self) -> str:
        analyses = "+".join(sorted({phase.analysis.value for phase in self.phases})) or "none"
        size = "any" if self.dataset_size is None else self.dataset_size
        return f"PrivacyCurve({self.adjacency}, dataset_size={size}, steps={self.steps}, analysis={analyses})"

    def epsilon(self, delta: ArrayLike) -> Any:
        """Certified upper bound of epsilon at delta in (0, 1); a float, or an array for an array."""
        return _map(lambda d: self.epsilon_bounds(d).upper, _validate.delta_array(delta))

    def delta(self, epsilon: ArrayLike) -> Any:
        """Certified upper bound of delta at epsilon >= 0; a float, or an array for an array."""
        return _map(lambda e: self.delta_bounds(e).upper, _validate.epsilon_array(epsilon))

    def epsilon_bounds(self, delta: float) -> Bounds:
        """The interval that is proven to hold the analysis's exact epsilon at delta."""
        value = float(_one("delta", _validate.delta_array(delta)))
        return self._remember("epsilon", value, self._epsilon_bounds)

    def delta_bounds(self, epsilon: float) -> Bounds:
        """The interval that is proven to hold the analysis's exact delta at epsilon."""
        value = float(_one("epsilon", _validate.epsilon_array(epsilon)))
        return self._remember("delta", value, self._delta_bounds)

    def true_positive_rate(self, false_positive_rate: ArrayLike) -> Any:
        """The largest power of any attack that tells two neighbouring data sets apart, at a false positive rate.

        Valid whichever of the two is the null hypothesis; a float, or an array for an array.
        """
        remedy = "pass the attack's false positive rate"
        rates = _validate.real_array("false_positive_rate", false_positive_rate, rule="in [0, 1]", remedy=remedy)
        if ((rates < 0) | (rates > 1)).any():
            raise _validate.fail(
                f"false_positive_rate={_validate.show(false_positive_rate)} is not in [0, 1]; {remedy}"
            )
        return _map(self._run.power, rates)

    def _remember(self, kind: str, value: float, compute: Callable[[float], Bounds]) -> Bounds:
        key = (kind, value)
        if key not in self._known:
            self._known[key] = compute(value)
        return self._known[key]

    def _epsilon_bounds(self, delta: float) -> Bounds:
        try:
            bracket = self._run.epsilon(delta)
        except BEYOND_FLOATS as error:
            raise NotCertifiedError(
                f"epsilon at delta={delta!r} is beyond what floats can hold ({error}); use a larger delta or more noise"
            ) from None
        if wide(bracket):
            raise NotCertifiedError(
                f"epsilon at delta={delta!r} is only known to lie in [{bracket.lower!r}, {bracket.upper!r}];"
                " use a larger delta, or report these parameters"
            )
        return Bounds(bracket.lower, bracket.upper)

    def _delta_bounds(self, epsilon: float) -> Bounds:
        try:
            bracket = self._run.delta(epsilon)
        except BEYOND_FLOATS:
            return Bounds(0.0, 1.0)
        return Bounds(bracket.lower, bracket.upper)


def _one(name: str, array: Array) -> float:
    if array.ndim:
        raise _validate.fail(f"{name} of shape {array.shape} is not one number; ask for one at a time")
    return float(array)


def _map(function: Callable[[float], float], values: Array) -> Any:
    if values.ndim == 0:
        return float(function(float(values)))
    return np.array([function(float(v)) for v in values.ravel()]).reshape(values.shape)


@public
def account(
    scheme: CappedPoisson,
    *,
    noise_multiplier: float,
    steps: int,
    adjacency: Adjacency | str,
    analysis: Analysis | str = Analysis.REFINED,
) -> PrivacyCurve:
    """The privacy of `steps` training steps that each release a noisy sum over a capped Poisson batch.

    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject")
    >>> round(account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out").epsilon(1e-5), 3)
    2.741

    Arguments:
        scheme: how batches are drawn.
        noise_multiplier: standard deviation of the Gaussian noise on the sum, divided by the clipping norm.
        steps: number of training steps.
        adjacency: "add-remove", "zero-out" or "replace-one".
        analysis: "refined" (the default, the tightest), or, to compare, "note" (Theorems 3.1, 3.3 and 3.4 of
            Ganesh, 2025) or "union" (plain Poisson plus the chance of any overflow).
    """
    accountant = Accountant(adjacency)
    accountant.compose(scheme, noise_multiplier, steps, analysis=analysis)
    return accountant.curve()


@public
class Accountant:
    """Adds up the privacy of a run's phases, with different schemes, rates and noise.

    >>> accountant = Accountant("zero-out")
    >>> scheme = CappedPoisson(60_000, 256 / 60_000, 300)
    >>> accountant.compose(scheme, noise_multiplier=1.0, steps=1_000)
    >>> accountant.compose_gaussian(noise_multiplier=5.0)
    >>> round(accountant.epsilon(delta=1e-5), 3)
    1.058

    Under add-remove adjacency the guarantee is for data sets of one public size (`dataset_size`, the larger of the two
    neighbours), so all schemes must agree on it.
    """

    def __init__(self, adjacency: Adjacency | str) -> None:
        self.adjacency = _validate.choice("adjacency", adjacency, Adjacency)
        self._phases: list[Phase] = []
        self._gaussian = 0.0
        self._curve: PrivacyCurve | None = None

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What was composed, in order; equal neighbours are merged."""
        return tuple(self._phases)

    @property
    def dataset_size(self) -> int | None:
        """The public data set size that the guarantee is for; None before the first scheme."""
        return self._phases[0].scheme.dataset_size if self._phases else None

    def compose(
        self,
        scheme: CappedPoisson,
        noise_multiplier: float,
        steps: int,
        *,
        analysis: Analysis | str = Analysis.REFINED,
    ) -> None:
        """Add `steps` training steps."""
        if not isinstance(scheme, CappedPoisson):
            raise _validate.fail(
                f"scheme={_validate.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)"
            )
        phase = Phase(
            scheme,
            _validate.noise_multiplier(noise_multiplier),
            _validate.step_count(steps),
            _validate.choice("analysis", analysis, Analysis),
        )
        if (
            self.adjacency is Adjacency.ADD_REMOVE
            and self.dataset_size is not None
            and scheme.dataset_size != self.dataset_size
        ):
            raise InvalidArgumentError(
                f"dataset_size={scheme.dataset_size} differs from the {self.dataset_size} of earlier phases, which"
                " add-remove adjacency does not allow; use one size, or adjacency='zero-out'"
            )
        same = self._phases and replace(self._phases[-1], steps=phase.steps) == phase and scheme.cycle_length == 1
        if same:  # merged, with as many steps as one phase may have
            self._phases[-1] = replace(phase, steps=_validate.step_count(self._phases[-1].steps + phase.steps))
        else:
            self._phases.append(phase)
        self._curve = None

    def compose_gaussian(self, noise_multiplier: float, count: int = 1) -> None:
        """Add `count` plain Gaussian releases; the noise is relative to their sensitivity under this adjacency."""
        sigma = _validate.noise_multiplier(noise_multiplier)
        count = _validate.integer("count", count, low=0, remedy="pass the number of releases")
        self._curve = None
        if count and sigma < math.inf:
            # Divided twice, as the square of an extreme sigma is no float; never rounded down to nothing.
            self._gaussian += math.inf if sigma == 0.0 else max(count / sigma / sigma, sys.float_info.min)

    def curve(self) -> PrivacyCurve:
        """The privacy of everything composed so far."""
        if self._curve is None:
            self._curve = PrivacyCurve(list(self._phases), self._gaussian, self.adjacency)
        return self._curve

    def epsilon(self, delta: ArrayLike) -> Any:
        """Certified upper bound of epsilon at delta."""
        return self.curve().epsilon(delta)

    def delta(self, epsilon: ArrayLike) -> Any:
        """Certified upper bound of delta at epsilon."""
        return self.curve().delta(epsilon)

    def __repr__(self) -> str:
        steps = sum(phase.steps for phase in self._phases)
        return (
            f"Accountant({self.adjacency}, dataset_size={self.dataset_size}, phases={len(self._phases)}, steps={steps})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Accountant.from_state_dict, (self.state_dict(),)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as plain JSON types."""
        return _state.to_dict(self.adjacency, self._phases, self._gaussian)

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Accountant:
        """The inverse of `state_dict`; a damaged state raises `StateError`."""
        adjacency, phases, gaussian = _state.from_dict(state)
        accountant = cls(adjacency)
        try:
            for scheme, sigma, steps, analysis in phases:
                accountant.compose(scheme, sigma, steps, analysis=analysis)
        except InvalidArgumentError as error:
            raise StateError(f"the accountant state is invalid: {error}") from None
        accountant._gaussian = gaussian
        if accountant.state_dict() != state:  # a field that would be read as something else, or not at all
            raise StateError("the accountant state is not as save() writes it; restore it from a backup")
        return accountant

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a JSON file, whole or not at all."""
        _state.write(self.state_dict(), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Accountant:
        """Restore what `save` wrote; a damaged file raises `StateError`."""
        return cls.from_state_dict(_state.read(path))
