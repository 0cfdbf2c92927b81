# mypy: disable-error-code="import-untyped, import-not-found, attr-defined", allow-subclassing-any
"""JAX Privacy's configs of execution plans, read in one way: those of 2.0 and those of its head.

Nothing else of this package knows how the two differ. The module of plans moved to the top level in
2.2; its config was renamed after that, and names an expected number of participations in place of a
sampling probability, calibrates by a method, and takes what concerns speed in `performance_flags`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from filet import _checks
from filet.errors import InvalidArgumentError

from .._frameworks import needed_for

with needed_for("jax-privacy"):
    from dp_accounting import NeighboringRelation
    from jax_privacy import batch_selection

    try:
        from jax_privacy import execution_plan
    except ImportError:
        from jax_privacy.experimental import execution_plan

Config = getattr(execution_plan, "BandMFConfig", None) or execution_plan.BandMFExecutionPlanConfig
Plan = execution_plan.DPExecutionPlan


@dataclass(frozen=True)
class Settings:
    """The public facts of a config that decide how batches are drawn."""

    bands: int
    iterations: int
    sampling_probability: float
    max_batch_size: int | None
    dataset_size: int | None
    relation: NeighboringRelation
    equal_split: bool


def read(config: Any) -> Settings:
    """The settings of a config of either kind; anything else is refused."""
    if not isinstance(config, Config):
        raise InvalidArgumentError(
            f"config={_checks.show(config)} is not a {Config.__name__}; pass one of {Config.__module__}"
        )
    bands = len(config.strategy)
    common = {
        "bands": bands,
        "iterations": config.iterations,
        "max_batch_size": config.truncated_batch_size,
        "dataset_size": config.num_examples,
    }
    if hasattr(config, "expected_participations"):
        public_size = config.num_examples is not None  # by this the head chooses relation and partition
        return Settings(
            **common,
            sampling_probability=config.expected_participations * bands / config.iterations,
            relation=_HEADS_RELATION[public_size],
            equal_split=public_size,
        )
    return Settings(
        **common,
        sampling_probability=config.sampling_prob,
        relation=config.accountant.neighboring_relation,
        equal_split=config.partition_type is batch_selection.PartitionType.EQUAL_SPLIT,
    )


_HEADS_RELATION = {True: NeighboringRelation.REPLACE_SPECIAL, False: NeighboringRelation.ADD_OR_REMOVE_ONE}


def noise_seed(config: Any, performance_flags: Any) -> int | None:
    """The integer from which JAX Privacy would draw the noise, wherever its version keeps it."""
    found = config.noise_seed if hasattr(config, "noise_seed") else getattr(performance_flags, "noise_seed", None)
    return found if found is None else int(found)


def make(config: Any, performance_flags: Any) -> Any:
    """The config's own plan."""
    if hasattr(config, "make"):
        if getattr(config, "noise_multiplier", None) is None:
            raise InvalidArgumentError(
                "the config has no noise_multiplier; pass one, or config.calibrate(epsilon=..., delta=...,"
                " accountant_fn=FiletAccountant)"
            )
        return config.make(performance_flags)
    if performance_flags is not None:
        raise InvalidArgumentError(
            "performance_flags is given, which this version of JAX Privacy does not have; set dtype and the like in the"
            " config"
        )
    return config.plan
