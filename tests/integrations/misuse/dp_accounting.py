"""Wrong uses of filet's accountant in dp_accounting, which sees events, and neither batches nor models."""

from __future__ import annotations

from dp_accounting import NeighboringRelation, UnsupportedEventError, dp_event
from tests.integrations.misuse import MISUSES, Absent, Answer, Refused

from filet.integrations.dp_accounting import FiletAccountant


def another_size():
    accountant = FiletAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    for size in (40, 39):
        accountant.compose(dp_event.TruncatedSubsampledGaussianDpEvent(size, 0.1, 6, 1.0))


ANSWERS: dict[str, Answer] = {
    **dict.fromkeys(MISUSES, Absent("it draws nothing and trains nothing: it accounts for the events it is given")),
    "data set changed during the run": Refused(another_size, "dataset_size=39", UnsupportedEventError),
}
