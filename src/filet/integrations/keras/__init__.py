"""Keras models through JAX Privacy's Keras API, on capped Poisson batches and with filet's accounting."""

from .training import CappedKerasTraining

__all__ = ["CappedKerasTraining"]
