# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""filet's accounting behind dp_accounting's interface, and its schemes as dp_accounting's events."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from filet import _checks
from filet.accounting.accountant import Accountant
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, Analysis
from filet.errors import FiletError, InvalidArgumentError, MissingExtraError
from filet.scheme import CappedPoisson, Overflow

try:
    from dp_accounting import NeighboringRelation, dp_event, privacy_accountant
except ImportError as error:
    raise MissingExtraError("dp_accounting is not installed; run: pip install 'filet[dp-accounting]'") from error

_Details = privacy_accountant.PrivacyAccountant.CompositionErrorDetails

_ADJACENCY = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Adjacency.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Adjacency.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL: Adjacency.ZERO_OUT,
}


class Run(NamedTuple):
    """What `filet.account` takes: a scheme, its noise multiplier and the number of steps."""

    scheme: CappedPoisson
    noise_multiplier: float
    steps: int


class FiletAccountant(privacy_accountant.PrivacyAccountant):
    """filet as a dp_accounting `PrivacyAccountant`: same events, tighter epsilons, milliseconds instead of seconds.

    >>> from dp_accounting import NeighboringRelation, TruncatedSubsampledGaussianDpEvent
    >>> event = TruncatedSubsampledGaussianDpEvent(60_000, 256 / 60_000, 300, 1.0)
    >>> accountant = FiletAccountant(NeighboringRelation.REPLACE_SPECIAL).compose(event, 14_000)
    >>> round(accountant.get_epsilon(1e-5), 3)
    2.824

    Guarantees: `get_epsilon` and `get_delta` are certified upper bounds of everything composed. Supported are
    `TruncatedSubsampledGaussianDpEvent`, `PoissonSampledDpEvent` of a Gaussian, `GaussianDpEvent`, no-op and
    non-private events, and compositions of these; any other event raises `UnsupportedEventError` and changes nothing.
    As in dp_accounting, noise is relative to the norm of one record, so replacing one moves a Gaussian by 2.

    Under ADD_OR_REMOVE_ONE, truncated events make the guarantee one for data sets of their public `dataset_size` (the
    larger of the two neighbours), so they must agree on it.

    Arguments:
        neighboring_relation: dp_accounting's; REPLACE_SPECIAL is filet's "zero-out".
        analysis: of truncated events: "refined", or, to compare, "note" or "union".
    """

    def __init__(self, neighboring_relation: NeighboringRelation, analysis: Analysis | str = Analysis.REFINED) -> None:
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

    def _leaf(self, event: Any, count: int, do_compose: bool, sizes: set[int]) -> bool:
        """Check one simple event, and take it if `do_compose`; False if its kind is not supported."""
        count = _checks.integer("count", count, low=0, remedy="pass how often the event happens")
        if isinstance(event, dp_event.GaussianDpEvent):
            self._take(self._gaussian, _noise(event), count, event, do_compose)
            return True
        if isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(event.event, dp_event.GaussianDpEvent):
            if event.sampling_probability != 0:
                rate = _checks.probability(
                    "sampling_probability", event.sampling_probability, remedy="pass batch_size / dataset_size"
                )
                self._take(self._poisson, (rate, _noise(event.event)), count, event.event, do_compose)
            return True
        if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
            if event.sampling_probability and event.truncated_batch_size and event.dataset_size:
                scheme = CappedPoisson(event.dataset_size, event.sampling_probability, event.truncated_batch_size)
                self._check_size(scheme, sizes)
                self._take(self._steps, (scheme, _noise(event)), count, event, do_compose)
            return True
        return False

    def _take(self, totals: dict[Any, int], key: Any, count: int, noisy: Any, do_compose: bool) -> None:
        if not do_compose or count == 0:
            return
        if noisy.noise_multiplier == 0:
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
        """Everything composed so far as a `filet.PrivacyCurve` (non-private events are not in it)."""
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

    @property
    def _empty(self) -> bool:
        return not (self._steps or self._poisson or self._gaussian)

    def get_epsilon(self, target_delta: float) -> float:
        """Certified upper bound of epsilon; infinite after a non-private event, or at delta 0."""
        if self._exposed:
            return math.inf
        if self._empty or target_delta == 1:
            return 0.0
        if target_delta == 0:
            return math.inf
        return float(self.curve().epsilon(target_delta))

    def get_delta(self, target_epsilon: float) -> float:
        """Certified upper bound of delta; 1 after a non-private event."""
        if self._exposed:
            return 1.0
        if self._empty or target_epsilon == math.inf:
            return 0.0
        return float(self.curve().delta(target_epsilon))


def _noise(event: Any) -> float:
    return _checks.noise_multiplier(event.noise_multiplier)


def to_dp_event(
    scheme: CappedPoisson, noise_multiplier: float, steps: int, *, adjacency: Adjacency | str
) -> dp_event.DpEvent:
    """A run as a dp_accounting event, for accountants and ledgers that know nothing of filet.

    >>> to_dp_event(CappedPoisson(60_000, 0.005, 320), 1.0, 1_000, adjacency="zero-out")
    SelfComposedDpEvent(event=TruncatedSubsampledGaussianDpEvent(dataset_size=60000, sampling_probability=0.005,
    truncated_batch_size=320, noise_multiplier=1.0), count=1000)

    Guarantees: any sound accountant of the event, with the relation that `adjacency` names, gives an upper bound for
    the run. For overflow="truncate" the event is the mechanism itself. For "reject" it is plain Poisson sampling, a
    proven upper bound under zero-out and replace-one; under add-remove it is not, and an error. With `cycle_length = b`
    the event is that of one group, `ceil(steps / b)` times.

    Arguments:
        scheme: how batches are drawn.
        noise_multiplier: of every step.
        steps: number of training steps.
        adjacency: the one that the event will be accounted with.
    """
    if not isinstance(scheme, CappedPoisson):
        raise InvalidArgumentError(
            f"scheme={_checks.show(scheme)} is not a CappedPoisson; pass filet.CappedPoisson(...)"
        )
    sigma = _checks.noise_multiplier(noise_multiplier)
    rounds = -(-_checks.step_count(steps) // scheme.cycle_length)
    adjacency = _checks.choice("adjacency", adjacency, Adjacency)
    capped = scheme.max_batch_size < scheme.group_size
    if capped and scheme.overflow is Overflow.REJECT and adjacency is Adjacency.ADD_REMOVE:
        raise InvalidArgumentError(
            "overflow='reject' has no dp_accounting event under add-remove, where plain Poisson is no upper bound;"
            " use adjacency='zero-out', or filet.account"
        )
    if rounds == 0:
        return dp_event.NoOpDpEvent()  # dp_accounting's ledger refuses a count of 0
    if capped and scheme.overflow is Overflow.TRUNCATE:
        step = dp_event.TruncatedSubsampledGaussianDpEvent(
            scheme.group_size, scheme.sampling_probability, scheme.max_batch_size, sigma
        )
    else:
        step = dp_event.PoissonSampledDpEvent(scheme.sampling_probability, dp_event.GaussianDpEvent(sigma))
    return dp_event.SelfComposedDpEvent(step, rounds)


def from_dp_event(event: dp_event.DpEvent, *, dataset_size: int | None = None) -> Run:
    """The run that a dp_accounting event describes: scheme, noise multiplier and steps.

    >>> event = dp_event.TruncatedSubsampledGaussianDpEvent(60_000, 0.005, 320, 1.0)
    >>> from_dp_event(dp_event.SelfComposedDpEvent(event, 1_000))
    Run(scheme=CappedPoisson(dataset_size=60000, sampling_probability=0.005, max_batch_size=320,
    overflow=<Overflow.TRUNCATE: 'truncate'>, cycle_length=1), noise_multiplier=1.0, steps=1000)

    Arguments:
        event: a `TruncatedSubsampledGaussianDpEvent`, or a `PoissonSampledDpEvent` of a Gaussian, self-composed or not.
            For anything else use `FiletAccountant`.
        dataset_size: for a Poisson event, which does not name it; the cap is then the whole data set.
    """
    steps = 1
    while isinstance(event, dp_event.SelfComposedDpEvent):
        steps *= event.count
        event = event.event
    steps = _checks.step_count(steps)
    if isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
        if dataset_size is not None and dataset_size != event.dataset_size:
            raise InvalidArgumentError(
                f"dataset_size={_checks.show(dataset_size)} differs from the event's {event.dataset_size}; drop it"
            )
        scheme = CappedPoisson(event.dataset_size, event.sampling_probability, event.truncated_batch_size)
        return Run(scheme, _noise(event), steps)
    if isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(event.event, dp_event.GaussianDpEvent):
        if dataset_size is None:
            raise InvalidArgumentError("a PoissonSampledDpEvent does not name its data set's size; pass dataset_size=")
        return Run(CappedPoisson(dataset_size, event.sampling_probability, dataset_size), _noise(event.event), steps)
    raise InvalidArgumentError(
        f"event={_checks.show(event)} is not one scheme's run; compose it with FiletAccountant instead"
    )
