# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""filet's runs as dp_accounting's events, and back."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from filet import _checks
from filet.accounting.terms import Adjacency, AdjacencyName
from filet.errors import InvalidArgumentError
from filet.scheme import CappedPoisson, Overflow, Size

from .._frameworks import needed_for

with needed_for("dp-accounting"):
    from dp_accounting import dp_event


class Run(NamedTuple):
    """A training run, as `filet.account` takes it: a scheme, its noise multiplier and the number of steps."""

    scheme: CappedPoisson
    noise_multiplier: float
    steps: int


def noise_of(event: Any) -> float:
    return _checks.noise_multiplier(event.noise_multiplier)


def joint_noise(event: Any) -> float | None:
    """The noise multiplier of the one Gaussian that Gaussians of the same sample amount to; None if any is not one."""
    if isinstance(event, dp_event.GaussianDpEvent):
        return noise_of(event)
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return _joined([(joint_noise(event.event), _count(event.count))])
    if isinstance(event, dp_event.ComposedDpEvent):
        return _joined([(joint_noise(part), 1) for part in event.events])
    return None


def _joined(parts: list[tuple[float | None, int]]) -> float | None:
    """The noise multiplier of Gaussians on one sample, from the noise and the count of each; None if one has none."""
    precision = 0.0
    for sigma, count in parts:
        if sigma is None:
            return None
        if count and sigma == 0.0:
            return 0.0
        precision += count / sigma / sigma if count else 0.0
    return math.inf if precision == 0.0 else (1.0 - 1e-12) / math.sqrt(precision)  # never more noise than there is


def _count(count: Any) -> int:
    return _checks.integer("count", count, low=0, remedy="pass how often the event happens")


def to_dp_event(
    scheme: CappedPoisson, noise_multiplier: float, steps: int, *, adjacency: Adjacency | AdjacencyName
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
    if capped and scheme.size is Size.AT_MOST:
        raise InvalidArgumentError(
            "size='at-most' has no dp_accounting event, which are for one public size; use size='public', or filet.account"
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
    overflow=<Overflow.TRUNCATE: 'truncate'>, cycle_length=1, size=<Size.PUBLIC: 'public'>), noise_multiplier=1.0,
    steps=1000)

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
        return Run(scheme, noise_of(event), steps)
    if isinstance(event, dp_event.PoissonSampledDpEvent) and isinstance(event.event, dp_event.GaussianDpEvent):
        if dataset_size is None:
            raise InvalidArgumentError("a PoissonSampledDpEvent does not name its data set's size; pass dataset_size=")
        return Run(CappedPoisson(dataset_size, event.sampling_probability, dataset_size), noise_of(event.event), steps)
    raise InvalidArgumentError(
        f"event={_checks.show(event)} is not one scheme's run; compose it with FiletAccountant instead"
    )
