# mypy: disable-error-code="import-untyped, import-not-found", allow-subclassing-any
"""JAX Privacy's execution plans with filet's batches, and what a plan costs."""

from __future__ import annotations

import dataclasses
from typing import Any

from filet import _checks
from filet.accounting.accountant import account
from filet.accounting.curve import PrivacyCurve
from filet.accounting.terms import Adjacency, AdjacencyName, Analysis, AnalysisName
from filet.errors import InvalidArgumentError, MissingExtraError
from filet.scheme import CappedPoisson, Overflow

try:
    from dp_accounting import NeighboringRelation, dp_event
    from jax_privacy import batch_selection
    from jax_privacy.experimental import execution_plan
except ImportError as error:
    raise MissingExtraError("JAX Privacy is not installed; run: pip install 'filet[jax-privacy]'") from error

from .dp_accounting import Run, from_dp_event
from .jax_privacy import CappedPoissonSelection


def capped_plan(
    config: execution_plan.BandMFExecutionPlanConfig,
    *,
    max_batch_size: int | None = None,
    dataset_size: int | None = None,
    secure: bool | None = None,
) -> execution_plan.DPExecutionPlan:
    """A config's plan whose batches are filet's: of one shape, padded with -1.

    >>> import numpy as np
    >>> from filet.integrations.dp_accounting import FiletAccountant
    >>> config = execution_plan.BandMFExecutionPlanConfig(
    ...     strategy=np.ones(1), iterations=1_000, epsilon=2.0, delta=1e-6, sampling_prob=0.005,
    ...     truncated_batch_size=320, num_examples=60_000,
    ...     accountant=FiletAccountant(NeighboringRelation.REPLACE_SPECIAL))
    >>> plan = capped_plan(config)
    >>> next(plan.batch_selection_strategy.batch_iterator(60_000, rng=1)).shape
    (320,)
    >>> 1.99 < account_plan(plan, adjacency="zero-out").epsilon(1e-6) <= 2.0
    True

    Guarantees: clipping, noise and `dp_event` are the config's. With `truncated_batch_size` the batches are truncated, and
    the event is their mechanism. Without it, pass `max_batch_size` and `dataset_size`: batches that are too large are
    drawn again ("reject"), for which the event, plain Poisson sampling, is a proven upper bound.

    Arguments:
        config: JAX Privacy's; with `FiletAccountant` as its accountant the noise is calibrated by filet.
        max_batch_size, dataset_size: if the config has no `truncated_batch_size`.
        secure: as for `CappedPoissonSelection`.
    """
    if not isinstance(config, execution_plan.BandMFExecutionPlanConfig):
        raise InvalidArgumentError(
            f"config={_checks.show(config)} is not a BandMFExecutionPlanConfig; pass one of jax_privacy.experimental"
        )
    bands = len(config.strategy)
    if bands > 1 and config.partition_type is not batch_selection.PartitionType.EQUAL_SPLIT:
        raise InvalidArgumentError(
            f"partition_type={config.partition_type} is not filet's, whose groups are of equal size; use EQUAL_SPLIT"
        )
    scheme = _scheme(config, bands, max_batch_size, dataset_size)
    strategy = CappedPoissonSelection(scheme, config.iterations, secure=secure)
    return dataclasses.replace(config.plan, batch_selection_strategy=strategy)


def _scheme(config: Any, bands: int, max_batch_size: int | None, dataset_size: int | None) -> CappedPoisson:
    if config.truncated_batch_size is not None:
        if max_batch_size is not None or dataset_size is not None:
            raise InvalidArgumentError(
                "the config has truncated_batch_size and num_examples; leave max_batch_size and dataset_size out"
            )
        size, cap, overflow = config.num_examples, config.truncated_batch_size, Overflow.TRUNCATE
    else:
        if max_batch_size is None or dataset_size is None:
            raise InvalidArgumentError(
                "the config has no truncated_batch_size; set it with num_examples, or pass max_batch_size and dataset_size"
            )
        if config.accountant.neighboring_relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
            raise InvalidArgumentError(
                "under ADD_OR_REMOVE_ONE plain Poisson is no upper bound for batches drawn again; use REPLACE_SPECIAL"
            )
        size, cap, overflow = dataset_size, max_batch_size, Overflow.REJECT
    return CappedPoisson(size, config.sampling_prob, cap, overflow=overflow, cycle_length=bands)


def account_plan(
    plan: execution_plan.DPExecutionPlan,
    *,
    adjacency: Adjacency | AdjacencyName,
    analysis: Analysis | AnalysisName = Analysis.REFINED,
) -> PrivacyCurve:
    """What a JAX Privacy plan costs, read from the plan itself: no noise multiplier to be passed in a wrong convention.

    Guarantees: the noise is that of the plan's `dp_event`; the batches are those of its strategy, `CappedPoissonSelection`
    or JAX Privacy's own. A strategy and an event that do not belong together raise `InvalidArgumentError`.

    Arguments:
        plan: from `capped_plan`, or JAX Privacy's `config.plan`.
        adjacency: "add-remove", "zero-out" or "replace-one".
        analysis: as for `filet.account`.
    """
    if not isinstance(plan, execution_plan.DPExecutionPlan):
        raise InvalidArgumentError(f"plan={_checks.show(plan)} is not a DPExecutionPlan; pass config.plan")
    batches = plan.batch_selection_strategy
    run = _run(plan.dp_event)
    if isinstance(batches, CappedPoissonSelection):
        rounds = -(-batches.iterations // batches.scheme.cycle_length)
        if (batches.scheme.sampling_probability, rounds) != (run.scheme.sampling_probability, run.steps):
            raise InvalidArgumentError(
                f"the plan's batches, {batches}, are not those of its event, {_checks.show(plan.dp_event)}; use capped_plan"
            )
        run = Run(batches.scheme, run.noise_multiplier, batches.iterations)
    elif not isinstance(batches, batch_selection.CyclicPoissonSampling):
        raise InvalidArgumentError(
            f"the strategy {type(batches).__name__} draws no Poisson batches, which are all that filet accounts for; use"
            " capped_plan"
        )
    return account(run.scheme, noise_multiplier=run.noise_multiplier, steps=run.steps, adjacency=adjacency,
                   analysis=analysis)  # fmt: skip


def _run(event: Any) -> Run:
    inner = event
    while isinstance(inner, dp_event.SelfComposedDpEvent):
        inner = inner.event
    # A Poisson event does not name the data set's size, on which plain Poisson sampling does not depend.
    return from_dp_event(event, dataset_size=1 if isinstance(inner, dp_event.PoissonSampledDpEvent) else None)
