"""Batches: keyed streams, exact draws, samplers, the noisy sum, and audits. Knows nothing of privacy accounting."""
