"""Events and relations of the tests of dp_accounting."""

from __future__ import annotations

import attr
from dp_accounting import NeighboringRelation, dp_event

import filet

RELATIONS = {
    "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "zero-out": NeighboringRelation.REPLACE_SPECIAL,
    "replace-one": NeighboringRelation.REPLACE_ONE,
}


SCHEME = filet.CappedPoisson(dataset_size=2_000, sampling_probability=0.02, max_batch_size=45)
TRUNCATED = dp_event.TruncatedSubsampledGaussianDpEvent(2_000, 0.02, 45, 1.5)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class EpsilonDeltaDpEvent(dp_event.DpEvent):
    """As dp_accounting will have it after 0.6."""

    epsilon: float
    delta: float
