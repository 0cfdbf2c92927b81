"""JAX Privacy's configs of the installed version: filet reads what their own plans draw and account for."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from jax_privacy import batch_selection
from tests.integrations.jax_privacy_configs import HEAD, banded_config, own_plan

import filet
from filet.integrations.jax_privacy import configs


@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("truncated", [None, 8])
def test_settings_are_those_of_the_plans_own_batches_and_event(bands, truncated):
    config = banded_config(strategy=np.ones(bands), iterations=20, truncated_batch_size=truncated, num_examples=40)
    found, plan = configs.read(config), own_plan(config)
    theirs = plan.batch_selection_strategy
    assert (found.bands, found.iterations) == (theirs.cycle_length, theirs.iterations) == (bands, 20)
    assert found.sampling_probability == theirs.sampling_prob
    assert found.max_batch_size == theirs.truncated_batch_size == truncated
    assert found.equal_split == (theirs.partition_type is batch_selection.PartitionType.EQUAL_SPLIT)
    assert found.dataset_size == 40
    assert found.relation is NeighboringRelation.REPLACE_SPECIAL
    if HEAD:
        assert plan.neighboring_relation is found.relation


def test_a_config_that_is_not_calibrated_is_refused_before_a_plan_is_made():
    if HEAD:
        config = banded_config(noise_multiplier=None, num_examples=40)
        with pytest.raises(filet.InvalidArgumentError, match=r"no noise_multiplier; pass one, or config\.calibrate"):
            configs.make(config, None)
    else:  # 2.0 calibrates as it makes the plan, and asks for the target where there is no noise
        with pytest.raises(ValueError, match="noise_multiplier"):
            banded_config(noise_multiplier=None, num_examples=40)
        with pytest.raises(filet.InvalidArgumentError, match="performance_flags is given"):
            configs.make(banded_config(), "flags")
