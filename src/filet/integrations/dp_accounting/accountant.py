# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""filet's accounting behind dp_accounting's interface of accountants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special

from filet import _checks
from filet.accounting.accountant import Accountant
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, Analysis, AnalysisName
from filet.errors import FiletError, InvalidArgumentError
from filet.scheme import CappedPoisson

from .._frameworks import needed_for

with needed_for("dp-accounting"):
    from dp_accounting import NeighboringRelation, dp_event, privacy_accountant

from .events import joint_noise, noise_of
from .losses import EpsilonDeltaReleases

_Details = privacy_accountant.PrivacyAccountant.CompositionErrorDetails

_ADJACENCY = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Adjacency.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Adjacency.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL: Adjacency.ZERO_OUT,
}


class FiletAccountant(privacy_accountant.PrivacyAccountant):
    """filet as a dp_accounting `PrivacyAccountant`: same events, tighter epsilons, milliseconds instead of seconds.

    >>> from dp_accounting import NeighboringRelation, TruncatedSubsampledGaussianDpEvent
    >>> event = TruncatedSubsampledGaussianDpEvent(60_000, 256 / 60_000, 300, 1.0)
    >>> accountant = FiletAccountant(NeighboringRelation.REPLACE_SPECIAL).compose(event, 14_000)
    >>> from filet import round_up
    >>> round_up(accountant.get_epsilon(1e-5), 4)
    '2.825'

    Guarantees: `get_epsilon` and `get_delta` are certified upper bounds of everything composed. Supported are
    `TruncatedSubsampledGaussianDpEvent`; `PoissonSampledDpEvent` and `SampledWithoutReplacementDpEvent` of a Gaussian, or
    of several on the same sample; `GaussianDpEvent`; `EpsilonDeltaDpEvent` of newer versions; no-op and non-private
    events; and compositions of these. Any other event raises `UnsupportedEventError` and changes nothing. As in
    dp_accounting, noise is relative to the norm of one record, so replacing one moves a Gaussian by 2.

    Under ADD_OR_REMOVE_ONE, truncated events and samples of fixed size make the guarantee one for data sets of their public
    size (the larger of the two neighbours), so they must agree on it. Under REPLACE_SPECIAL the special record is zero and
    takes its place in a sample.

    Arguments:
        neighboring_relation: dp_accounting's; REPLACE_SPECIAL is filet's "zero-out".
        analysis: of truncated events: "refined" (the default, the tightest), or, to compare, "swap" (Theorem 2 alone),
            "note" (Ganesh, 2025: what dp_accounting itself uses) or "union" (plain Poisson plus the chance of any overflow).
    """

    def __init__(
        self, neighboring_relation: NeighboringRelation, analysis: Analysis | AnalysisName = Analysis.REFINED
    ) -> None:
        if neighboring_relation not in _ADJACENCY:
            raise InvalidArgumentError(
                f"neighboring_relation={_checks.show(neighboring_relation)} is unknown; pass a"
                " dp_accounting.NeighboringRelation"
            )
        super().__init__(neighboring_relation)
        self._analysis = _checks.choice("analysis", analysis, Analysis)
        self._steps: dict[tuple[CappedPoisson, float], int] = {}
        self._poisson: dict[tuple[float, float], int] = {}
        self._gaussian: dict[float, int] = {}
        self._releases = EpsilonDeltaReleases()
        self._exposed = False
        self._curve: PrivacyCurve | None = None

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        # Sizes are collected over the whole event, so that a composed event is refused before any part of it is taken.
        sizes = {scheme.dataset_size for scheme, _ in self._steps}
        return self._visit(event, count, do_compose, sizes)

    def _visit(self, event: Any, count: int, do_compose: bool, sizes: set[int]) -> Any:
        if isinstance(event, dp_event.NoOpDpEvent):
            return None
        if isinstance(event, dp_event.NonPrivateDpEvent):
            self._exposed |= do_compose
            return None
        if isinstance(event, dp_event.SelfComposedDpEvent):
            return self._visit(event.event, event.count * count, do_compose, sizes)
        if isinstance(event, dp_event.ComposedDpEvent):
            details = (self._visit(part, count, do_compose, sizes) for part in event.events)
            return next((found for found in details if found is not None), None)
        try:
            supported = self._leaf(event, count, do_compose, sizes)
        except FiletError as error:
            return _Details(invalid_event=event, error_message=str(error))
        return None if supported else _Details(invalid_event=event, error_message="Unsupported event.")

    def compose(self, event: Any, count: int = 1) -> Any:
        """As in dp_accounting; a count below 1 is a `ValueError`, as its ledger's is."""
        if type(count) is int and count < 1:
            raise InvalidArgumentError(f"count={count} is below 1; pass how often the event happens")
        return super().compose(event, count)

    def _leaf(self, event: Any, count: int, do_compose: bool, sizes: set[int]) -> bool:
        """Check one simple event, and take it if `do_compose`; False if its kind is not supported."""
        count = _checks.integer("count", count, low=0, remedy="pass how often the event happens")
        if isinstance(event, dp_event.GaussianDpEvent):
            self._take(self._gaussian, noise_of(event), count, noise_of(event), do_compose)
            return True
        if isinstance(event, (dp_event.PoissonSampledDpEvent, dp_event.SampledWithoutReplacementDpEvent)):
            noise = joint_noise(event.event)
            return noise is not None and self._sampled(event, noise, count, do_compose, sizes)
        if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
            if event.sampling_probability and event.truncated_batch_size and event.dataset_size:
                scheme = CappedPoisson(event.dataset_size, event.sampling_probability, event.truncated_batch_size)
                self._check_size(scheme, sizes)
                self._take(self._steps, (scheme, noise_of(event)), count, noise_of(event), do_compose)
            return True
        if type(event).__name__ == "EpsilonDeltaDpEvent":  # dp_accounting 0.6 does not have it yet
            self._promised(event, count, do_compose)
            return True
        return False

    def _sampled(self, event: Any, noise: float, count: int, do_compose: bool, sizes: set[int]) -> bool:
        if isinstance(event, dp_event.PoissonSampledDpEvent):
            if event.sampling_probability != 0:
                remedy = "pass batch_size / dataset_size"
                rate = _checks.probability("sampling_probability", event.sampling_probability, remedy=remedy)
                self._take(self._poisson, (rate, noise), count, noise, do_compose)
            return True
        size = event.source_dataset_size
        if event.sample_size == 0:
            return True
        # Everybody is chosen, and the cap leaves a uniformly random set of its size.
        scheme = CappedPoisson(size, 1.0, event.sample_size)
        if scheme.max_batch_size > scheme.dataset_size:
            raise InvalidArgumentError(
                f"sample_size={event.sample_size} is above source_dataset_size={size}; sample no more than there is"
            )
        self._check_size(scheme, sizes)
        self._take(self._steps, (scheme, noise), count, noise, do_compose)
        return True

    def _promised(self, event: Any, count: int, do_compose: bool) -> None:
        remedy = "pass the epsilon and the delta that the release is known to have"
        epsilon = _checks.real("epsilon", event.epsilon, rule="in [0, inf]", remedy=remedy)
        delta = _checks.real("delta", event.delta, rule="in [0, 1]", remedy=remedy)
        if epsilon < 0.0 or not 0.0 <= delta <= 1.0:
            raise InvalidArgumentError(f"epsilon={epsilon} and delta={delta} are no privacy guarantee; {remedy}")
        if not count or math.isinf(epsilon):
            self._exposed |= do_compose and count > 0
            return
        if do_compose:  # checked before, and never refused here, where a refusal would not be heard
            self._releases.add(epsilon, delta, count)
        else:
            self._releases.check(epsilon, delta, count)

    def _take(self, totals: dict[Any, int], key: Any, count: int, noise: float, do_compose: bool) -> None:
        if not do_compose or count == 0:
            return
        if noise == 0:
            self._exposed = True
        totals[key] = totals.get(key, 0) + count
        self._curve = None

    def _check_size(self, scheme: CappedPoisson, sizes: set[int]) -> None:
        sizes.add(scheme.dataset_size)
        if len(sizes) > 1 and self._neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
            raise InvalidArgumentError(
                f"dataset_size={scheme.dataset_size} differs from that of another truncated event, which"
                " ADD_OR_REMOVE_ONE does not allow; use one size, or REPLACE_SPECIAL"
            )

    def curve(self) -> PrivacyCurve:
        """Everything composed so far as a `filet.PrivacyCurve`.

        Non-private events, and those of which only epsilon and delta are known, are not in it.
        """
        if self._curve is None:
            adjacency = _ADJACENCY[self._neighboring_relation]
            accountant = Accountant(adjacency)
            size = next((scheme.dataset_size for scheme, _ in self._steps), 1)
            for (scheme, sigma), steps in self._steps.items():
                accountant.compose(scheme, sigma, steps, analysis=self._analysis)
            for (rate, sigma), steps in self._poisson.items():
                # A cap of the whole data set is no cap: plain Poisson, whatever the size.
                accountant.compose(CappedPoisson(size, rate, size), sigma, steps)
            distance = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
            for sigma, count in self._gaussian.items():
                accountant.compose_gaussian(sigma / distance, count)
            self._curve = accountant.curve()
        return self._curve

    def _rest(self, epsilon: float) -> float:
        """Delta of everything but these releases."""
        return 0.0 if self._only_releases else float(self.curve().delta(epsilon))

    @property
    def _only_releases(self) -> bool:
        return not (self._steps or self._poisson or self._gaussian)

    @property
    def _empty(self) -> bool:
        return self._only_releases and not self._releases.counts

    def get_epsilon(self, target_delta: float) -> float:
        """Certified upper bound of epsilon; infinite after a non-private event.

        At delta 0 it is infinite, too, unless all that was composed has a known epsilon and delta 0.
        """
        if self._exposed:
            return math.inf
        if self._empty or target_delta == 1:
            return 0.0
        if target_delta == 0:
            return self._releases.pure_epsilon() if self._only_releases else math.inf
        if not self._releases.counts:
            return float(self.curve().epsilon(target_delta))
        return self._releases.epsilon(self._rest, target_delta)

    def get_delta(self, target_epsilon: float) -> float:
        """Certified upper bound of delta; 1 after a non-private event."""
        if self._exposed:
            return 1.0
        if self._empty:
            return 0.0
        if target_epsilon == math.inf:
            return self._releases.law()[2]
        return self._releases.delta(self._rest, target_epsilon) if self._releases.counts else self._rest(target_epsilon)

    def get_true_positive_rates(self, false_positive_rates: Any, deltas: Any = None) -> Any:
        """Upper bound of the power of any attack at a false positive rate, or at several; `deltas` is not used."""
        rates = np.asarray(false_positive_rates, dtype=float)
        if self._exposed:
            powers = np.ones_like(rates)
        elif self._empty:
            powers = rates
        elif not self._releases.counts:
            powers = np.asarray(self.curve().true_positive_rate(rates))
        else:
            # Beyond the epsilon of a delta that is about the chance of an infinite loss nothing more is won.
            top = min(self.get_epsilon(min(0.5, 1.001 * self._releases.law()[2] + 1e-9)), 600.0)
            grid = np.linspace(0.0, top, 65)
            bounds = np.array([self.get_delta(float(epsilon)) for epsilon in grid])
            above = bounds + np.exp(grid) * rates[..., None]
            below = 1.0 - np.exp(-grid) * (1.0 - bounds - rates[..., None])
            powers = np.minimum(np.minimum(above, below).min(axis=-1), 1.0)
        return float(powers) if rates.ndim == 0 else powers

    def get_gdp_parameter_estimate(self, false_positive_rates: Any = None, deltas: Any = None) -> float:
        """The least mu for which mu-GDP allows all these powers: an estimate, on a grid, as dp_accounting's is."""
        grid = np.logspace(-12, math.log10(0.5), 500) if false_positive_rates is None else false_positive_rates
        rates = np.asarray(grid, dtype=float)
        powers = np.asarray(self.get_true_positive_rates(rates))
        return max(0.0, float(np.max(special.ndtri(powers) - special.ndtri(rates))))
