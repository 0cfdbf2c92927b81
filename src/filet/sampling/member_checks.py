"""Checks of batch members: how often, at which rows, together with which others, and in which group."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, ndtr

from ..scheme import CappedPoisson
from .p_values import ENOUGH, Check, count_p_value, poisson_p_value, two_sided

Sets = list[NDArray[np.int64]]


def split_groups(sets: Sets, scheme: CappedPoisson, checks: list[Check], skipped: list[str]) -> list[Sets]:
    """The batches of each group, with row numbers counted within the group.

    A scheme without cycles has one group.
    """
    cycle = scheme.cycle_length
    if cycle == 1:
        return [sets]
    members = [np.unique(np.concatenate(sets[turn::cycle])) for turn in range(min(cycle, len(sets)))]
    together = np.concatenate(members)
    shared = together.size - np.unique(together).size
    crowded = sum(one.size > scheme.group_size for one in members)
    wrong = f"{shared} examples appear in two groups, {crowded} groups are too large"
    checks.append(Check("groups", 0.0 if shared or crowded else 1.0, wrong))
    if any(one.size != scheme.group_size for one in members):
        skipped.append("inclusion and positions: not tested, as some members of groups were never drawn")
        return []
    return [[np.searchsorted(one, rows) for rows in sets[turn::cycle]] for turn, one in enumerate(members)]


def inclusion_check(parts: list[Sets], n: int, skipped: list[str]) -> list[Check]:
    """Counts of draws of each example: neither too uneven nor too even (as with shuffled epochs).

    The squares of the counts add up to the sizes plus twice the overlaps of all pairs of steps.
    Given the sizes, overlaps of different pairs are uncorrelated, so the mean and the variance of
    the sum are exact. A gamma law with these moments gives the p-value; while overlaps are few, so
    does Poisson's law, and the larger one counts.
    """
    overlap = mean = variance = spread = 0.0
    for sets in parts:
        sizes = np.array([rows.size for rows in sets], dtype=np.float64)
        _, counts = np.unique(np.concatenate(sets), return_counts=True)
        overlap += 0.5 * float(counts @ (counts - 1))
        mean += _pairs(sizes) / n
        variance += _pairs(sizes * (n - sizes)) / (n**2 * max(n - 1.0, 1.0))
        spread += float((sizes * (1.0 - sizes / n)).sum())
    if mean < 1.0 or variance <= 0.0:
        if parts:
            skipped.append("inclusion: not tested, no example is expected twice")
        return []
    shape, scale = spread**2 / (4.0 * variance), 4.0 * variance / spread
    x = max(spread + 2.0 * (overlap - mean), 0.0) / scale
    p_value = two_sided(float(gammainc(shape, x)), float(gammaincc(shape, x)))
    if mean <= 1_000.0:
        p_value = max(p_value, poisson_p_value(overlap, mean))
    ratio = 1.0 + 2.0 * (overlap - mean) / spread
    return [Check("inclusion", p_value, f"variance of the examples' counts {ratio:.4g} times the expected one")]


def _pairs(values: NDArray[np.float64]) -> float:
    """The sum of the products of all pairs."""
    return 0.5 * (float(values.sum()) ** 2 - float(values @ values))


def position_checks(parts: list[Sets], scheme: CappedPoisson, skipped: list[str]) -> list[Check]:
    """Row numbers lie evenly, in all batches and in full ones (where a biased cut would show)."""
    n = scheme.group_size
    checks = []
    for name, least in (("positions", 0), ("positions in full batches", min(scheme.max_batch_size, n))):
        gap = variance = 0.0
        for sets in parts:
            for rows in sets:
                if rows.size >= least:
                    gap += float(rows.sum(dtype=np.float64)) / n - rows.size * (n - 1) / (2.0 * n)
                    variance += rows.size * (n - rows.size) * (n + 1.0) / (12.0 * n**2)
        # a row's place is uniform, so that about this many rows make a normal sum
        if variance * 12.0 < 2 * ENOUGH:
            if parts:
                skipped.append(f"{name}: not tested, too few examples")
            continue
        z = gap / math.sqrt(variance)
        checks.append(Check(name, 2.0 * float(ndtr(-abs(z))), f"{z:+.2f} standard deviations towards the end"))
    return checks


def overlap_check(sets: Sets, scheme: CappedPoisson, skipped: list[str]) -> list[Check]:
    """Overlaps of two steps of a group: those of independent batches (shuffled epochs: none)."""
    n, lag = scheme.group_size, scheme.cycle_length
    total, mean, variance = 0, 0.0, 0.0
    for one, other in zip(sets[:-lag], sets[lag:], strict=True):
        total += np.intersect1d(one, other, assume_unique=True).size
        a, b = one.size, other.size
        mean += a * b / n
        if n > 1:
            variance += a * b / n * (1.0 - a / n) * (n - b) / (n - 1)
    if mean < 1.0 or variance <= 0.0:
        skipped.append("overlap of steps: not tested, it is too rare")
        return []
    p_value = count_p_value(float(total), mean, variance)
    return [Check("overlap of steps", p_value, f"{total} shared examples, expected {mean:.6g}")]
