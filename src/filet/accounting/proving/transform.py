"""Laplace transforms of a discrete loss at equally spaced frequencies, fast and with a proven error.

The losses are spread onto a regular grid with a Gaussian, transformed by one FFT, and the Gaussian is divided out
(a non-uniform FFT of type 1, after Dutt and Rokhlin, 1993, and Greengard and Lee, 2004).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len, rfft

from ..._rounding import UNIT
from .loss_law import Array

Complex = NDArray[np.complex128]

_HALF_WIDTH = 13  # grid points on each side of a source
_OVERSAMPLING = 3

_CACHED = 200_000  # complex numbers that fit the processor's cache
_SERIAL = 32_000  # complex multiplications that no BLAS hands to threads, which would cost more than they save
_SHORT = 64  # frequencies up to which all turns are powers of one
_SERIES = 16  # 0.5^16 / 16! < 1e-18


def characteristic(positions: Array, weights: Array, spacing: float, count: int) -> Complex:
    """sum_i weights_i e^{i j spacing positions_i} for j = 0 .. count - 1, to `TRANSFORM_ERROR`.

    Proof: engine.md#the-transform-of-a-discrete-loss
    """
    modes = 2 * count
    grid = int(next_fast_len(_OVERSAMPLING * modes, True))
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
    spectrum: Complex = np.conj(np.asarray(rfft(field))[:count])
    spectrum *= (math.sqrt(math.pi / tau) / grid) * np.exp(tau * np.square(np.arange(count)))
    return spectrum


def by_powers(positions: Array, weights: Array, spacing: float, count: int) -> Complex:
    """sum_i weights_ki e^{i j spacing positions_ki} for j < count, one row k each, to `powers_error`.

    The powers below a stride are multiplied by those of its multiples, and the sums are a product of matrices.
    Proof: engine.md#the-transform-of-a-discrete-loss
    """
    stride, (rows, size) = _stride(count), positions.shape
    most = max(1, _CACHED // (2 * stride * size))
    if rows > most:
        parts = [(positions[i : i + most], weights[i : i + most]) for i in range(0, rows, most)]
        return np.concatenate([by_powers(*part, spacing, count) for part in parts])
    low, high = np.empty((stride, rows, size), complex), np.empty((_even(-(-count // stride)), rows, size), complex)
    low[0], high[0] = 1.0, weights
    turn = _turn(spacing * positions)
    for powers in (low, high):
        for j in range(1, len(powers)):
            np.multiply(powers[j - 1], turn, out=powers[j])
        if powers is low:
            turn = low[-1] * turn if count <= _SHORT else _turn(stride * spacing * positions)
    # In parts of an even number of rows: a single one would be handed to threads sooner.
    part = 2 * max(1, _SERIAL // (2 * stride * size))
    products = [high[i : i + part].transpose(1, 0, 2) @ low.transpose(1, 2, 0) for i in range(0, len(high), part)]
    sums = products[0] if len(products) == 1 else np.concatenate(products, axis=1)
    return sums.reshape(rows, len(high) * stride)[:, :count]


def powers_error(size: int, count: int) -> float:
    """Bound on what `by_powers` adds to a sum of weights that is 1: 16 units for each power, and those of a sum of `size` terms.

    Proof: engine.md#the-transform-of-a-discrete-loss
    """
    return (16 * (count if count <= _SHORT else 2 * _stride(count)) + 2 * size + 16) * UNIT


def _stride(count: int) -> int:
    return _even(math.isqrt(count - 1) + 1)


def _even(count: int) -> int:
    """The next even number: products of matrices are quicker."""
    return count + count % 2


def _turn(angle: Array) -> Complex:
    """e^{i angle} by the tangent of half the angle, quicker than sine and cosine; good to 12 units."""
    half, turn = np.tan(0.5 * angle), np.empty(angle.shape, complex)
    square = half * half
    turn.real, turn.imag = (1.0 - square) / (1.0 + square), 2.0 * half / (1.0 + square)
    return turn


def by_series(turns: Array, weights: Array, share: Array) -> Complex:
    """sum_i weights_i e^{i share turns_i} for turns of at most half a radian.

    Proof: engine.md#the-transform-of-a-discrete-loss
    """
    moments, power = [], weights
    for k in range(_SERIES):
        moments.append(power.sum() if k % 4 < 2 else -power.sum())
        power = power * turns / (k + 1)
    square = np.square(share)
    values = np.empty(share.size, complex)
    values.real = np.polyval(moments[-2::-2], square)
    values.imag = share * np.polyval(moments[::-2], square)
    return values
