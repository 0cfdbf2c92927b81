"""The privacy of a run as a curve: epsilon at delta, delta at epsilon, and the trade-off."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from .. import _checks
from .._checks import Number, Numbers
from .._numbers import round_up
from .._progress import Progress
from .._public import public
from .._rounding import LARGEST_EXPONENT, down
from .._tables import html_table
from ..errors import FiletError, NotCertifiedError
from ..scheme import Size
from .proving.combining import bayes_error, loss_quantile, posterior, squared_shift
from .proving.loss_law import Array
from .run import Run
from .search.effort import TOLERANCE
from .state import as_state, from_state
from .terms import Adjacency, Analysis, Bounds, Brackets, Phase

_P = ParamSpec("_P")
_T = TypeVar("_T")
_SHARES = 0.75 * 2.0 ** -np.arange(0.0, 12.0, 0.5)  # of delta, at which a quantile of the loss is read off
_TINY_NOISE = 1e-100  # losses grow as its inverse square, and overflow not far below


def certified(method: Callable[_P, _T]) -> Callable[_P, _T]:
    """The one place where numbers beyond floating point become a refusal: an answer is proven, or an error."""

    @functools.wraps(method)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(*args, **kwargs)
        except FiletError:
            raise
        except ArithmeticError as error:
            remedy = _remedy(args[0] if args else None, "use less extreme parameters")
            raise NotCertifiedError(f"this run is beyond what floats can hold; {remedy}") from error

    return wrapped


def _remedy(curve: Any, usual: str) -> str:
    """The usual remedy; but a noise whose losses have no float is named."""
    noises = [phase.noise_multiplier for phase in getattr(curve, "phases", ()) if phase.noise_multiplier > 0.0]
    if min(noises, default=1.0) < _TINY_NOISE:
        return f"use more noise than noise_multiplier={min(noises)!r}, or 0 for none"
    return usual


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
        self._lock = threading.Lock()

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
        """The phases' data set size, `scheme.dataset_size`; None without phases, or if it is not the same in all.

        The guarantee is for this size (add-remove: that of the larger set), or for others as well: see `size`.
        """
        sizes = {phase.scheme.dataset_size for phase in self.phases}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def size(self) -> Size:
        """The data set sizes that the guarantee is for: of several phases, those that all of them hold for."""
        sizes = {phase.scheme.size for phase in self.phases}
        return next((size for size in (Size.PUBLIC, Size.AT_MOST) if size in sizes), Size.SECRET)

    @property
    def holds_for(self) -> str:
        """The data set sizes that the guarantee is for, in words."""
        if self.size is Size.SECRET:
            return "every number of records"
        sizes = {phase.scheme.dataset_size for phase in self.phases if phase.scheme.size is self.size}
        if self.size is Size.AT_MOST:
            return f"every number of records up to {min(sizes):,}"
        return (
            f"{max(sizes):,} records, a public number" if len(sizes) == 1 else "the phases' public numbers of records"
        )

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def __repr__(self) -> str:
        analyses = "+".join(sorted({phase.analysis.value for phase in self.phases})) or "none"
        size = "any" if self.dataset_size is None else self.dataset_size
        kind = "" if self.size is Size.PUBLIC or not self.phases else f", size={self.size}"
        return f"PrivacyCurve({self.adjacency}, dataset_size={size}{kind}, steps={self.steps}, analysis={analyses})"

    def _repr_html_(self) -> str:
        """The composed phases, and epsilon at deltas below 1 / dataset_size, for notebooks."""
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
        return self._epsilon_bounds(values)

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
        return self._delta_bounds(values)

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
        found = self._run.powers(self._power_tables, rates.ravel()).reshape(rates.shape)
        return found if rates.ndim else float(found)

    @certified
    def membership_advantage(self) -> float:
        """Upper bound of the advantage of any attack: true minus false positive rate. This is `delta(0)`.

        >>> import filet
        >>> scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300)
        >>> curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency="zero-out")
        >>> filet.round_up(curve.membership_advantage())
        '0.2579'
        """
        return self.delta(0.0)

    @certified
    def bayes_error(self, prior: float = 0.5) -> float:
        """Lower bound of the chance that a guess is wrong, for any attacker who believes in one data set by `prior`.

        At a prior of 1/2 this is (1 - membership advantage) / 2. Valid whichever neighbour has the prior.
        """
        chance = _checks.open_probability("prior", prior, remedy="pass the attacker's belief before the run")
        small = min(chance, 1.0 - chance)
        log_odds = down(math.log1p((1.0 - 2.0 * small) / small))
        return bayes_error(small, self.delta(min(log_odds, LARGEST_EXPONENT)))

    @certified
    def posterior_belief(self, prior: float, delta: float) -> float:
        """Upper bound of an attacker's belief in either neighbour after the run, but for outputs of chance `delta`.

        An attacker who knows all else holds one data set for the true one by `prior`, and computes with Bayes' rule. With
        chance at least 1 - delta over the run, whichever data set is the true one, the belief ends at or below this.
        """
        chance = _checks.open_probability("prior", prior, remedy="pass the attacker's belief before the run")
        value = _one("delta", _checks.delta_array(delta))
        shares = _SHARES[_SHARES * value > 0.0]
        loss = loss_quantile(self._run.epsilons(shares * value).upper, shares) if shares.size else math.inf
        return posterior(chance, loss)

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

    @cached_property
    def _power_tables(self) -> list[Array]:
        return self._run.power_tables()

    def _remember(self, kind: str, value: float, compute: Callable[[Array], Brackets]) -> Bounds:
        key = (kind, value)
        with self._lock:
            if key not in self._known:
                self._known[key] = _first(compute(np.array([value])))
            return self._known[key]

    def _epsilon_bounds(self, deltas: Array) -> Brackets:
        found = self._run.epsilons(deltas.ravel())
        wide = np.flatnonzero(TOLERANCE.wide(*found))
        if wide.size:
            delta, lower, upper = (float(one[wide[0]]) for one in (deltas.ravel(), *found))
            known = f"epsilon at delta={delta!r} is only known to lie in [{lower!r}, {upper!r}]"
            raise NotCertifiedError(f"{known}; {_remedy(self, 'use a larger delta, or report these parameters')}")
        return _shaped(found, deltas.shape)

    def _delta_bounds(self, epsilons: Array) -> Brackets:
        try:
            return _shaped(self._run.deltas(epsilons.ravel()), epsilons.shape)
        except NotCertifiedError:
            raise
        except ArithmeticError:  # beyond floats, so nothing is known
            return Brackets(np.zeros(epsilons.shape), np.ones(epsilons.shape))


@certified
def delta_brackets_each_order(curve: PrivacyCurve, epsilons: Array) -> list[Brackets]:
    """Brackets of delta for each order of the neighbours; one entry if both have the same."""
    return curve._run.deltas_each_order(np.asarray(epsilons, dtype=np.float64))


def _one(name: str, array: Array) -> float:
    if array.ndim:
        raise _checks.fail(f"{name} of shape {array.shape} is not one number; ask for one at a time")
    return float(array)


def _first(found: Brackets) -> Bounds:
    return Bounds(float(found.lower[0]), float(found.upper[0]))


def _shaped(found: Brackets, shape: tuple[int, ...]) -> Brackets:
    return Brackets(*(one.reshape(shape) for one in found))
