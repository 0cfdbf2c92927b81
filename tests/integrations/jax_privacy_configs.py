"""JAX Privacy's config of a banded plan, in the form of the installed version."""

from __future__ import annotations

import numpy as np
from dp_accounting import NeighboringRelation

from filet.integrations.dp_accounting import FiletAccountant
from filet.integrations.jax_privacy.configs import Config

HEAD = Config.__name__ == "BandMFConfig"


def banded_config(
    *, strategy=None, iterations=10, sampling_prob=0.1, relation=NeighboringRelation.REPLACE_SPECIAL, **others
):
    """One config for both: the head has no accountant, and reads the relation from `num_examples`."""
    strategy = np.ones(1) if strategy is None else strategy
    common = {"strategy": strategy, "iterations": iterations, "noise_multiplier": 1.0, **others}
    if HEAD:
        return Config(**common, expected_participations=sampling_prob * iterations / len(strategy))
    return Config(**common, epsilon=None, delta=None, sampling_prob=sampling_prob, accountant=FiletAccountant(relation))


def own_plan(config):
    """JAX Privacy's own plan of a config."""
    return config.make() if HEAD else config.plan


def seeded(seed):
    """Where a version takes the seed of its noise: options of the config, and of `capped_plan`."""
    if not HEAD:
        return {"noise_seed": seed}, {}
    from jax_privacy import execution_plan

    return {}, {"performance_flags": execution_plan.PerformanceFlags(noise_seed=seed)}
