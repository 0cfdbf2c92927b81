"""Ranges of binomial probabilities: the single values, at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from filet._binomial import log_cdf, log_pmf, relative_error
from filet._binomial_ranges import cdf_range, log_pmf_range

RANGES = [(0, 9, 9, 0.3), (-3, 70, 60, 0.98), (0, 700, 60_000, 0.004), (59_900, 60_000, 60_000, 0.999),
          (31_000, 34_000, 65_000, 0.5), (0, 40, 10**15, 1e-15), (10**15 - 40, 10**15 + 2, 10**15, 1 - 1e-15),
          (5 * 10**14 - 3000, 5 * 10**14 + 3000, 10**15, 0.5), (10, 20, 10**15, 1e-3)]  # fmt: skip


@pytest.mark.parametrize(("first", "last", "n", "p"), RANGES)
def test_ranges_hold_the_single_values(first: int, last: int, n: int, p: float) -> None:
    logs, cdf = log_pmf_range(first, last, n, p), cdf_range(first, last, n, p)
    assert logs.size == cdf.size == last - first + 1
    assert (np.diff(cdf) >= 0.0).all()
    for k in {*range(first, last, max(1, (last - first) // 97)), first, last}:
        one = log_pmf(k, n, p)
        assert logs[k - first] == pytest.approx(one, abs=relative_error(one) / 2 if one > -math.inf else 0.0)
        one = log_cdf(k, n, p) if k >= 0 else -math.inf
        error = relative_error(one) + 1.2e-16 * (last - first) if one > -math.inf else 0.0
        assert cdf[k - first] == pytest.approx(math.exp(one), rel=error / 2, abs=1e-307)


def test_ranges_of_certain_and_impossible_draws() -> None:
    assert cdf_range(-1, 4, 3, 1.0).tolist() == [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    assert cdf_range(-1, 1, 3, 0.0).tolist() == [0.0, 1.0, 1.0]
    assert cdf_range(-1, 1, 0, 0.5).tolist() == [0.0, 1.0, 1.0]
    assert cdf_range(-9, -2, 3, 0.5).tolist() == [0.0] * 8
    assert cdf_range(5, 6, 3, 0.5).tolist() == [1.0, 1.0]
    assert log_pmf_range(2, 3, 3, 1.0).tolist() == [-math.inf, 0.0]
