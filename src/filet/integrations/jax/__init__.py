"""Capped Poisson batches for JAX: a sampler that runs inside `jax.jit`, and host batches as fixed-shape arrays."""

from .sampler import batches, device_sampler, gather, secret_key

__all__ = ["batches", "device_sampler", "gather", "secret_key"]
