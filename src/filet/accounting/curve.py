"""The privacy of a run as a curve: epsilon at delta, delta at epsilon, and the trade-off."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from .. import _checks
from .._checks import Number, Numbers
from .._numbers import round_up
from .._progress import Progress
from .._public import public
from .._tables import html_table
from ..errors import FiletError, NotCertifiedError
from .many import deltas, deltas_each, epsilons, power_tables, powers
from .proving.combining import squared_shift
from .proving.loss_law import Array
from .run import Run
from .searching.refinement import wide
from .state import as_state, from_state
from .terms import Adjacency, Analysis, Bounds, Brackets, Phase

_P = ParamSpec("_P")
_T = TypeVar("_T")
_CERTAINLY_NARROW = 1e-5  # a width of epsilon that needs no closer look


def certified(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """The one place where numbers beyond floating point become a refusal: an answer is proven, or an error."""

    @functools.wraps(method)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(*args, **kwargs)
        except FiletError:
            raise
        except (ArithmeticError, IndexError, ValueError) as error:
            raise NotCertifiedError(
                f"this run is beyond what floats can hold ({type(error).__name__}: {error}); use less extreme parameters"
            ) from None

    return wrapped


@public
class PrivacyCurve:
    """The privacy of a run: epsilon as a function of delta, and back. Made by `account` and `Accountant.curve`.

    >>> import filet
    >>> scheme = filet.CappedPoisson(dataset_size=60_000, sampling_probability=256 / 60_000, max_batch_size=300)
    >>> curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
    >>> curve
    PrivacyCurve(zero-out, dataset_size=60000, steps=14000, analysis=refined)
    >>> filet.round_up(curve.epsilon(delta=1e-5))
    '2.825'
    >>> curve.delta(epsilon=3.0) < 1e-5
    True

    Guarantees: `epsilon` and `delta` are upper bounds, for both directions of the adjacency, of the dominating pair
    of the chosen analysis, including every numerical error. The `..._bounds` methods give the interval in which the
    exact value lies; for epsilon it is at most max(0.1 %, 1e-4) wide, or `NotCertifiedError` is raised. Where lending
    lowers the bound of truncated batches, that value is the bound on the nodes chosen for this one question: the upper
    ends are proven, while two questions may differ by a little more than their intervals say.
    """

    @certified
    def __init__(self, phases: Sequence[Phase], releases: Sequence[tuple[float, int]], adjacency: Adjacency) -> None:
        """`releases` are Gaussian releases beside the training: noise multiplier and number of each."""
        self.adjacency = adjacency
        self.phases, self.releases = tuple(phases), tuple(releases)
        self._run = Run(self.phases, self.releases, adjacency)
        self._known: dict[tuple[str, float], Bounds] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return PrivacyCurve._from_state, (as_state(self.adjacency, self.phases, self.releases),)

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> PrivacyCurve:
        adjacency, phases, releases = from_state(state)
        made = [Phase(scheme, sigma, steps, Analysis(analysis)) for scheme, sigma, steps, analysis in phases]
        return cls(made, releases, adjacency)

    @property
    def gaussian(self) -> float:
        """The total squared shift of the Gaussian releases, rounded up: the sum of count / noise_multiplier^2."""
        if any(sigma == 0.0 for sigma, _ in self.releases):
            return math.inf
        return squared_shift(self.releases).upper

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

    def _repr_html_(self) -> str:
        """What was composed, and epsilon at deltas below 1 / dataset_size, for notebooks."""
        rows = [
            (
                f"{phase.steps} steps",
                f"noise multiplier {phase.noise_multiplier:g}, {phase.analysis} analysis; {phase.scheme.dataset_size}"
                f" examples, mean draw {phase.scheme.poisson_batch_size:.1f},"
                + (
                    f" cap {phase.scheme.max_batch_size}, {phase.scheme.overflow}" if phase.scheme.capped else " no cap"
                ),
            )
            for phase in self.phases
        ]
        rows += [(f"{count} Gaussian releases", f"noise multiplier {sigma:g}") for sigma, count in self.releases]
        decade = math.floor(-math.log10(max((phase.scheme.dataset_size for phase in self.phases), default=1e5)))
        for power in (decade, decade - 1, decade - 3):
            try:
                found = round_up(self.epsilon(10.0**power), zeros=True)
            except NotCertifiedError:
                found = "not certified"
            rows.append((f"epsilon at delta = 1e{power:03d}", found))
        return html_table(("", ""), rows, f"PrivacyCurve, {self.adjacency}")

    @overload
    def epsilon(self, delta: Number) -> float: ...
    @overload
    def epsilon(self, delta: Numbers) -> Array: ...
    @certified
    def epsilon(self, delta: Number | Numbers) -> float | Array:
        """Certified upper bound of epsilon at delta in (0, 1); a float, or an array for an array.

        A thousand deltas of one call cost little more than a few: they share their computations, not their proofs.
        """
        return self.epsilon_bounds(delta).upper

    @overload
    def delta(self, epsilon: Number) -> float: ...
    @overload
    def delta(self, epsilon: Numbers) -> Array: ...
    @certified
    def delta(self, epsilon: Number | Numbers) -> float | Array:
        """Certified upper bound of delta at epsilon >= 0; a float, or an array for an array."""
        return self.delta_bounds(epsilon).upper

    @overload
    def epsilon_bounds(self, delta: Number) -> Bounds: ...
    @overload
    def epsilon_bounds(self, delta: Numbers) -> Brackets: ...
    @certified
    def epsilon_bounds(self, delta: Number | Numbers) -> Bounds | Brackets:
        """The interval that is proven to hold the analysis's exact epsilon at delta; two arrays for an array."""
        values = _checks.delta_array(delta)
        if values.ndim == 0:
            return self._remember("epsilon", float(values), self._epsilon_bounds)
        return _shaped(_many(epsilons, self._run, values.ravel(), self._epsilon_bounds), values.shape)

    @overload
    def delta_bounds(self, epsilon: Number) -> Bounds: ...
    @overload
    def delta_bounds(self, epsilon: Numbers) -> Brackets: ...
    @certified
    def delta_bounds(self, epsilon: Number | Numbers) -> Bounds | Brackets:
        """The interval that is proven to hold the analysis's exact delta at epsilon; two arrays for an array."""
        values = _checks.epsilon_array(epsilon)
        if values.ndim == 0:
            return self._remember("delta", float(values), self._delta_bounds)
        return _shaped(_many(deltas, self._run, values.ravel(), self._delta_bounds), values.shape)

    @overload
    def true_positive_rate(self, false_positive_rate: Number) -> float: ...
    @overload
    def true_positive_rate(self, false_positive_rate: Numbers) -> Array: ...
    @certified
    def true_positive_rate(self, false_positive_rate: Number | Numbers) -> float | Array:
        """The largest power of any attack that tells two neighbouring data sets apart, at a false positive rate.

        Valid whichever of the two is the null hypothesis; a float, or an array for an array.
        """
        remedy = "pass the attack's false positive rate"
        rates = _checks.real_array("false_positive_rate", false_positive_rate, rule="in [0, 1]", remedy=remedy)
        if ((rates < 0) | (rates > 1)).any():
            raise _checks.fail(f"false_positive_rate={_checks.show(false_positive_rate)} is not in [0, 1]; {remedy}")
        found = powers(self._run, self._power_tables, rates.ravel()).reshape(rates.shape)
        return found if rates.ndim else float(found)

    @certified
    def certificate(
        self,
        delta: float,
        *,
        max_seconds: float = 600.0,
        max_bytes: float = 2e9,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """The claim that the run is (epsilon, delta)-private, with a proof that others can check; plain JSON.

        >>> import filet
        >>> from filet.checking import check
        >>> scheme = filet.CappedPoisson(dataset_size=1_000, sampling_probability=0.05, max_batch_size=60)
        >>> curve = filet.account(scheme, noise_multiplier=2.0, steps=100, adjacency="zero-out")
        >>> claim = curve.certificate(delta=1e-5)
        >>> check(claim).ok
        True
        >>> float(claim["epsilon"]) <= 1.001 * curve.epsilon(1e-5)
        True

        Guarantees: `filet.checking.check`, which uses ball arithmetic and nothing else of filet, has accepted it. Its
        epsilon is at most max(0.1 %, 1e-4) above `epsilon(delta)`, or `NotCertifiedError` is raised. Nothing secret is
        in it. Needs `pip install 'filet[check]'`, and takes seconds; what is estimated to take more than `max_seconds` or
        `max_bytes` is refused before it starts. `progress` is called with the share of the work done and a label.
        """
        from .certificate import certificate

        one = _one("delta", _checks.delta_array(delta))
        return certificate(self, one, max_seconds=max_seconds, max_bytes=max_bytes, progress=progress)

    @property
    def overflow(self) -> float:
        """The chance that any batch overflows, which the union strategy adds to delta; for planning."""
        return self._run.overflow.upper

    @property
    def exposed(self) -> bool:
        """Whether some step has no noise; for planning and showing."""
        return self._run.exposure.upper > 0.0

    def quick_delta(self, epsilon: float) -> float:
        """An upper bound of delta(epsilon), within a few percent, some ten times faster than `delta`; for planning."""
        value = _one("epsilon", _checks.epsilon_array(epsilon))
        try:
            return self._run.quick_delta(value)
        except ArithmeticError:  # nothing is known
            return 1.0

    @certified
    def quickly_at_most(self, epsilon: float, delta: float) -> bool:
        """Whether epsilon(delta) <= epsilon is proven by a quick look; False means "not known"; for planning."""
        return self._run.at_most(
            _one("epsilon", _checks.epsilon_array(epsilon)), _one("delta", _checks.delta_array(delta))
        )

    @overload
    def delta_bounds_each_direction(self, epsilon: Number) -> list[Bounds]: ...
    @overload
    def delta_bounds_each_direction(self, epsilon: Numbers) -> list[Brackets]: ...
    @certified
    def delta_bounds_each_direction(self, epsilon: Number | Numbers) -> list[Bounds] | list[Brackets]:
        """`delta_bounds` of either order of the neighbours; one entry if both are the same; for showing."""
        values = _checks.epsilon_array(epsilon)
        if values.ndim == 0:
            return self._run.delta_each(float(values))
        return [_shaped(one, values.shape) for one in deltas_each(self._run, values.ravel())]

    @cached_property
    def _power_tables(self) -> list[Array]:
        return power_tables(self._run)

    def _remember(self, kind: str, value: float, compute: Callable[[float], Bounds]) -> Bounds:
        key = (kind, value)
        if key not in self._known:
            self._known[key] = compute(value)
        return self._known[key]

    def _epsilon_bounds(self, delta: float) -> Bounds:
        bounds = self._run.epsilon(delta)
        if not bounds.upper - bounds.lower <= _CERTAINLY_NARROW and wide(bounds):
            raise NotCertifiedError(
                f"epsilon at delta={delta!r} is only known to lie in [{bounds.lower!r}, {bounds.upper!r}];"
                " use a larger delta, or report these parameters"
            )
        return bounds

    def _delta_bounds(self, epsilon: float) -> Bounds:
        try:
            return self._run.delta(epsilon)
        except NotCertifiedError:
            raise
        except ArithmeticError:  # beyond floats, so nothing is known
            return Bounds(0.0, 1.0)


def after(curve: PrivacyCurve, steps: int) -> PrivacyCurve:
    """The curve of the same single phase after other `steps`, which sees what this one has seen; for planning."""
    (phase,) = curve.phases
    made = PrivacyCurve([replace(phase, steps=steps)], curve.releases, curve.adjacency)
    made._run.see_as(curve._run)
    return made


def _one(name: str, array: Array) -> float:
    if array.ndim:
        raise _checks.fail(f"{name} of shape {array.shape} is not one number; ask for one at a time")
    return float(array)


def _many(ask: Callable[[Run, Array], Brackets], run: Run, values: Array, one: Callable[[float], Bounds]) -> Brackets:
    """Many questions at once; those that are refused, or stay wide, are asked again one by one, to say why."""
    try:
        found = ask(run, values) if values.size else Brackets(values, values)
    except ArithmeticError:
        found = Brackets(np.zeros(values.shape), np.full(values.shape, np.nan))
    unknown = np.isnan(found.upper) | (wide(found) if ask is epsilons else False)
    for i in np.flatnonzero(unknown):
        found.lower[i], found.upper[i] = one(float(values[i]))
    return found


def _shaped(found: Brackets, shape: tuple[int, ...]) -> Brackets:
    return Brackets(*(one.reshape(shape) for one in found))
