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

_BLOCK = 30_000  # products at once, a size that fits the processor's cache
_SERIES = 16  # 0.5^16 / 16! < 1e-18


def characteristic(positions: Array, weights: Array, spacing: float, count: int) -> Complex:
    """sum_i weights_i e^{i j spacing positions_i} for j = 0 .. count - 1, to `TRANSFORM_ERROR`.

    Proof: engine.md#the-transform-of-a-discrete-loss
    """
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


def by_powers(positions: Array, weights: Array, spacing: float, count: int) -> Complex:
    """sum_i weights_ki e^{i j spacing positions_ki} for j < count, one row k each; a product adds less than 4 roundings.

    Proof: engine.md#the-transform-of-a-discrete-loss
    """
    turn = np.exp(1j * (spacing * positions))
    power = weights.astype(complex)
    values = np.empty((positions.shape[0], count), complex)
    for j in range(count):
        values[:, j] = power.sum(axis=1)
        power *= turn
    return values


def by_strides(positions: Array, weights: Array, spacing: float, count: int) -> Complex:
    """As `by_powers`: strides of about sqrt(count) frequencies by multiplication, and the frequencies within one; no more roundings.

    Proof: engine.md#the-transform-of-a-discrete-loss
    """
    stride, (rows, losses) = math.isqrt(count - 1) + 1, positions.shape
    values = np.empty((rows, stride, stride), complex)
    most = max(1, _BLOCK // (stride * losses))
    for first in range(0, rows, most):
        some = slice(first, first + most)
        start = _powers(stride * spacing * positions[some], stride)
        start *= weights[some, None, :]
        np.matmul(start, _powers(spacing * positions[some], stride).transpose(0, 2, 1), out=values[some])
    return values.reshape(rows, -1)[:, :count]


def _powers(turns: Array, count: int) -> Complex:
    """e^{i j turns} for j < count, by doubling: a power is a product of two earlier ones."""
    power = np.empty((turns.shape[0], count, turns.shape[1]), complex)
    power[:, 0] = 1.0
    power.real[:, 1:2], power.imag[:, 1:2] = np.cos(turns)[:, None], np.sin(turns)[:, None]
    known = 2
    while known < count:
        more = min(known, count - known)
        np.multiply(power[:, :more], (power[:, known - 1] * power[:, 1])[:, None], out=power[:, known : known + more])
        known += more
    return power


def by_series(turns: Array, weights: Array, share: Array) -> Complex:
    """sum_i weights_i e^{i share turns_i} for turns of at most half a radian.

    Proof: engine.md#the-transform-of-a-discrete-loss
    """
    moments, power = [], weights
    for k in range(_SERIES):
        moments.append(float(power.sum()) * (1.0 if k % 4 < 2 else -1.0))
        power = power * turns / (k + 1)
    square = np.square(share)
    values = np.empty(share.size, complex)
    values.real = _horner(moments[::2], square)
    values.imag = share * _horner(moments[1::2], square)
    return values


def _horner(coefficients: list[float], x: Array) -> Array:
    total = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total
