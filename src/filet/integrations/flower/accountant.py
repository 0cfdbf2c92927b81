# mypy: disable-error-code="import-untyped, import-not-found, no-any-return", allow-subclassing-any
"""filet's accounting behind Flower's protocol of privacy accountants."""

from __future__ import annotations

import math
from typing import Any

from filet import _checks
from filet.accounting.accountant import Accountant
from filet.accounting.terms import Adjacency
from filet.errors import InvalidArgumentError, StateError
from filet.scheme import CappedPoisson

from .._frameworks import needed_for

with needed_for("flower"):
    from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, PrivacySpent, SamplingMethod

_ADJACENCY = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Adjacency.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Adjacency.REPLACE_ONE,
}


class CohortAccountant:
    """filet as one of Flower's privacy accountants: certified epsilons for the events of its strategies.

    >>> from flwr.serverapp import GaussianPrivacyEvent
    >>> config = PrivacyConfig(1e-5, 1_000, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.POISSON)
    >>> scheme = CappedPoisson(dataset_size=1_000, sampling_probability=0.05, max_batch_size=64)
    >>> accountant = CohortAccountant(config, scheme)
    >>> accountant.compose(GaussianPrivacyEvent(noise_multiplier=1.0, sample_size=64, population_size=1_000), 100)
    >>> accountant.get_privacy_spent().num_releases
    100

    Guarantees: `get_epsilon` and `get_delta` are certified upper bounds for everything composed. An
    event of another population, or of another cap than the scheme's, is refused.

    Arguments:
        config: Flower's. Its sampling methods mean: "poisson", cohorts of the scheme, or, without
            one, Poisson cohorts without a cap at the rate `sample_size / population_size`;
            "without-replacement", cohorts of exactly `sample_size`; "no-amplification", every
            client may be in every cohort.
        scheme: of `CappedCohorts`; an event's `sample_size` is its `max_batch_size`.
    """

    def __init__(self, config: PrivacyConfig, scheme: CappedPoisson | None = None) -> None:
        if not isinstance(config, PrivacyConfig):
            raise InvalidArgumentError(f"config={_checks.show(config)} is not a PrivacyConfig; pass flwr.serverapp's")
        if scheme is not None:
            if not isinstance(scheme, CappedPoisson) or config.sampling_method is not SamplingMethod.POISSON:
                raise InvalidArgumentError(
                    f"scheme={_checks.show(scheme)} with sampling_method={config.sampling_method.value!r}: capped cohorts are"
                    " Poisson cohorts; pass a CappedPoisson and SamplingMethod.POISSON"
                )
            if scheme.dataset_size != config.population_size:
                raise InvalidArgumentError(
                    f"scheme.dataset_size={scheme.dataset_size} is not population_size={config.population_size}; pass one"
                    " population"
                )
        self._config = config
        self._scheme = scheme
        self._events: dict[tuple[float, int], int] = {}

    @property
    def config(self) -> PrivacyConfig:
        return self._config

    @property
    def num_releases(self) -> int:
        return sum(self._events.values())

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Add `count` releases of an event."""
        kind, count = self._checked(event, count)
        self._events[kind] = self._events.get(kind, 0) + count

    def _checked(self, event: Any, count: Any) -> tuple[tuple[float, int], int]:
        if not isinstance(event, GaussianPrivacyEvent):
            raise InvalidArgumentError(
                f"event={_checks.show(event)} is not a GaussianPrivacyEvent; pass flwr.serverapp's"
            )
        if event.population_size != self._config.population_size:
            raise InvalidArgumentError(
                f"event.population_size={event.population_size} is not the accountant's {self._config.population_size}; the"
                " population must stay"
            )
        if self._scheme is not None and event.sample_size != self._scheme.max_batch_size:
            raise InvalidArgumentError(
                f"event.sample_size={event.sample_size} is not scheme.max_batch_size={self._scheme.max_batch_size}; pass the"
                " cap of the cohorts"
            )
        count = _checks.integer("count", count, low=1, remedy="pass how often the event happens")
        return (event.noise_multiplier, event.sample_size), count

    def _accountant(self, more: dict[tuple[float, int], int] | None = None) -> Accountant:
        accountant = Accountant(_ADJACENCY[self._config.neighboring_relation])
        events = dict(self._events)
        for kind, count in (more or {}).items():
            events[kind] = events.get(kind, 0) + count
        size = self._config.population_size
        for (noise, sample), count in events.items():
            if self._config.sampling_method is SamplingMethod.NO_AMPLIFICATION:
                accountant.compose_gaussian(noise, count)
            elif self._config.sampling_method is SamplingMethod.WITHOUT_REPLACEMENT:
                # Everybody is chosen, and the cap leaves a uniformly random set of its size.
                accountant.compose(CappedPoisson(size, 1.0, sample), noise, count)
            else:
                accountant.compose(self._scheme or CappedPoisson.uncapped(size, sample / size), noise, count)
        return accountant

    def get_epsilon(self, delta: float) -> float:
        """Certified upper bound of epsilon."""
        return float(self._accountant().epsilon(delta)) if self._events else 0.0

    def get_delta(self, epsilon: float) -> float:
        """Certified upper bound of delta."""
        return float(self._accountant().delta(epsilon)) if self._events else 0.0

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """Epsilon at `delta`, or at the configuration's `target_delta`."""
        at = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(at), at, self.num_releases, "filet")

    def would_exceed(self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1) -> bool:
        """True if composing the event would bring epsilon above a limit."""
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None:
            raise InvalidArgumentError("neither the config nor the call has a max_epsilon; pass one")
        kind, count = self._checked(event, count)
        epsilon = float(self._accountant({kind: count}).epsilon(self._config.target_delta))
        return not (math.isfinite(epsilon) and epsilon <= limit)

    def _run(self) -> dict[str, Any]:
        config = self._config
        return {
            "population_size": config.population_size,
            "neighboring_relation": config.neighboring_relation.value,
            "sampling_method": config.sampling_method.value,
            "scheme": None if self._scheme is None else self._scheme.to_dict(),
        }

    def state_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        events = [[noise.hex(), sample, count] for (noise, sample), count in self._events.items()]
        return {"format": "filet-cohort-accountant 1", **self._run(), "events": events}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Take the events of a state; one of another run is refused, and changes nothing."""
        try:
            own = {**self._run(), "format": "filet-cohort-accountant 1"}
            other = sorted(name for name, value in own.items() if state[name] != value)
            events: dict[tuple[float, int], int] = {}
            for noise, sample, count in state["events"]:  # type: ignore[attr-defined]
                event = GaussianPrivacyEvent(float.fromhex(noise), sample, self._config.population_size)
                kind, many = self._checked(event, count)
                events[kind] = events.get(kind, 0) + many
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"this is not a state of a CohortAccountant: {error}; restore it from a backup") from None
        if other:
            raise StateError(
                f"the state is of another run: {', '.join(other)} differs; make the accountant as it was made"
            )
        self._events = events
