"""Poisson batches, cut to fit."""
