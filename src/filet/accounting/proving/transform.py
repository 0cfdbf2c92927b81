"""Laplace transforms of a discrete loss at equally spaced frequencies, fast and with a proven error.

The losses are spread onto a regular grid with a Gaussian, transformed by one FFT, and the Gaussian is divided out
(a non-uniform FFT of type 1, after Dutt and Rokhlin, 1993, and Greengard and Lee, 2004).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len, rfft

from .loss_law import Array

Complex = NDArray[np.complex128]

_HALF_WIDTH = 13  # grid points on each side of a source
_OVERSAMPLING = 3.0

# |computed - exact| <= TRANSFORM_ERROR * sum(weights), besides the rounding of the positions themselves. Dropping the
# Gaussian beyond 13 points and the aliases of the oversampled grid cost at most 2e-14 together (exponents -34 and -32.7,
# times the division by the Gaussian's own transform, at most 4); the FFT's rounding, times 4, measured below 2e-14.
TRANSFORM_ERROR = 1e-13


def characteristic(positions: Array, weights: Array, spacing: float, count: int) -> Complex:
    """sum_i weights_i e^{i j spacing positions_i} for j = 0 .. count - 1."""
    modes = 2 * max(count, 4 * _HALF_WIDTH)
    grid = int(next_fast_len(math.ceil(_OVERSAMPLING * modes), True))
    ratio = grid / modes
    tau = math.pi * _HALF_WIDTH / (modes * modes * ratio * (ratio - 0.5))
    step = 2.0 * math.pi / grid
    at = positions * (spacing / step)
    nearest = np.floor(at)
    fraction = at - nearest  # before wrapping, which would round small negative positions
    nearest = np.remainder(nearest, grid)
    offsets = np.arange(1 - _HALF_WIDTH, _HALF_WIDTH + 1)
    spread = np.exp((-(step * step) / (4.0 * tau)) * np.square(fraction[:, None] - offsets[None, :]))
    spread *= weights[:, None]
    index = (nearest.astype(np.int64)[:, None] + offsets[None, :]) % grid
    field = np.bincount(index.ravel(), weights=spread.ravel(), minlength=grid)
    spectrum = np.conj(np.asarray(rfft(field))[:count])
    frequency = np.arange(count)
    spectrum *= (math.sqrt(math.pi / tau) / grid) * np.exp(tau * np.square(frequency))
    return np.asarray(spectrum, dtype=np.complex128)
