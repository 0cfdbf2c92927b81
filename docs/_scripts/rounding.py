"""Compose dp_accounting's losses of the case study in double and in extended precision, and print both epsilons.

    python docs/_scripts/rounding.py    (about 20 s; needs dp_accounting, and a processor with 80-bit floats)

The one-step losses, the truncation and the steps are dp_accounting's own in both columns; only the format differs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import fft

import filet

P, SIGMA, STEPS, DELTA = 521_000 / 1e10, 0.614, 100_000, 1.1e-10
_TAIL = 1e-15  # dp_accounting's own, of the composed mass


def reported(grid: float) -> float:
    """The epsilon of dp_accounting."""
    import dp_accounting

    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=grid)
    step = dp_accounting.PoissonSampledDpEvent(P, dp_accounting.GaussianDpEvent(SIGMA))
    return float(accountant.compose(step, STEPS).get_epsilon(DELTA))


def composed(grid: float, kind: Any) -> float:
    """The epsilon of the same losses (a record is removed, the worse order), composed in a floating-point format."""
    from dp_accounting.pld import common, privacy_loss_distribution

    pld = privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=SIGMA, sampling_prob=P, value_discretization_interval=grid, use_connect_dots=True
    )
    one = pld._pmf_remove.to_dense_pmf()
    masses = np.array(one._probs)
    low, high = common.compute_self_convolve_bounds(masses, STEPS, _TAIL)
    length = high - low + 1
    transform = fft.fft(masses.astype(kind), fft.next_fast_len(max(length, masses.size)))
    found = np.roll(np.real(fft.ifft(transform**STEPS)), -low)[:length]
    losses = (one._lower_loss * STEPS + low + np.arange(length)) * grid
    infinite = _TAIL - math.expm1(STEPS * math.log1p(-one._infinity_mass))
    below, above = 1.0, 4.0
    for _ in range(60):
        middle = 0.5 * (below + above)
        beyond = losses > middle
        delta = infinite + float(np.sum(found[beyond] * -np.expm1(middle - losses[beyond])))
        below, above = (middle, above) if delta > DELTA else (below, middle)
    return above


def main() -> None:
    scheme = filet.CappedPoisson.uncapped(10**10, P)
    curve = filet.account(scheme, noise_multiplier=SIGMA, steps=STEPS, adjacency="add-remove")
    print("proven:", curve.epsilon_bounds(DELTA))
    for grid in (1e-4, 5e-5, 2e-5):
        values = reported(grid), composed(grid, np.float64), composed(grid, np.longdouble)
        print(f"grid {grid:g}: dp_accounting {values[0]:.6f}, double {values[1]:.6f}, extended {values[2]:.6f}")


if __name__ == "__main__":
    main()
