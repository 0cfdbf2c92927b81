"""Batches: keyed streams, exact draws, samplers, the noisy sum, and audits; no accounting."""
