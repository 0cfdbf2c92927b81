"""Capped Poisson cohorts for Flower: selection of clients, clipping and noise on the server, accounting."""

from .accountant import CohortAccountant
from .adaptive import AdaptiveNorm
from .clients import by_node_id, by_partition, say_partition
from .cohorts import CappedCohorts

__all__ = ["AdaptiveNorm", "CappedCohorts", "CohortAccountant", "by_node_id", "by_partition", "say_partition"]
