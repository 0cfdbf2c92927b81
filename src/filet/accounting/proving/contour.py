"""One vertical line Re z = c through a transform: the smoothed, tilted Fourier sum at one epsilon, with its error."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import i0e, i1e

from ..._rounding import UNIT, exp_or_infinite, expm1_or_infinite
from .composition import Composition, Spectrum
from .loss_law import Array
from .transform import Complex

_MANY_NODES = 100  # from here on it pays to look where the transform dies out
_MOST_NODES, _SPARE_NODES = 400_000, 6_000  # of all phases together, and for each in any case
_FEW_POINTS = 8
LARGEST_CURVED_SHIFT = 0.1


class ContourParameters(NamedTuple):
    """Place and fineness of a contour. Any positive numbers give proven readings; good ones, narrow readings.

    tilts: candidates c' >= 0 for Chernoff's bound on aliases, on both sides of `c`; without any, nothing is read from below.
    both_ways: whether what split cells have added is bounded, too, so that a view from above can be read from below.
    """

    c: float
    shift: float
    beta: float
    period: float
    tilts: Array
    both_ways: bool = False


class Reading(NamedTuple):
    """A smoothed delta at one point, in units of e^{log_unit}: estimate, slope, and bounds of what it may be off.

    |estimate - alias - smoothed delta| <= error with the unknown alias in [0, `alias`], and the smoothed delta exceeds
    the true one, that of laws of which no cell was split, by at most `excess`. Numbers, or arrays for several points at once.
    """

    value: Any
    slope: Any
    error: Any
    alias: Any
    excess: Any


def smoothing_transform(z: Complex, s: float, beta: float) -> Complex:
    """E[e^{z s X}] for the shift X in [-1, 1] with density proportional to I_0(beta sqrt(1 - x^2)).

    Proof: engine.md#smoothing
    """
    root = np.sqrt(beta * beta + np.square(s * z))
    value = (np.exp(root - beta) - np.exp(-root - beta)) / root
    if (near_zero := np.abs(root) < 1e-3).any():
        value[near_zero] = 2.0 * math.exp(-beta) * (1.0 + np.square(root[near_zero]) / 6.0)
    return np.asarray(value * (beta / -math.expm1(-2.0 * beta)))


def log_smoothing(c: float, s: float, beta: float) -> float:
    """log of the above at real c, without overflow. Proof: engine.md#smoothing"""
    square = (s * c) ** 2
    root = math.sqrt(beta * beta + square)
    # sinh(root) / root over sinh(beta) / beta, with the differences written out so that tiny shifts keep their digits
    value = square / (root + beta) - 0.5 * math.log1p(square / (beta * beta))
    return value + math.log1p(-math.exp(-2 * root)) - math.log1p(-math.exp(-2 * beta))


def log_peak(c: Array) -> Array:
    """log of the largest (1 - e^{-y}) e^{-c y} over y > 0: Chernoff's bound with it is a bound on delta.

    Proof: engine.md#aliasing
    """
    # c log c - (1 + c) log(1 + c), written without the cancellation that ruins it for large c
    return np.where(c > 0, -c * np.log1p(1.0 / c) - np.log1p(c), 0.0)


class Contour:
    """The transform of a composition, sampled as planned; `read` gives the smoothed delta with all its errors.

    Proof: engine.md#smoothing
    """

    def __init__(self, composition: Composition, plan: ContourParameters) -> None:
        self.composition, self.c, self.s, self.beta = composition, plan.c, plan.shift, plan.beta
        self.period, self.tilts = max(plan.period, 4.0 * plan.shift), plan.tilts
        self.both_ways = plan.both_ways and not composition.jump
        # The mean of e^{sX} is e^drift; rounded up. The smoothing is nowhere larger than on the real line.
        self.drift = log_smoothing(1.0, self.s, self.beta) * (1 + 1e-9)
        spectrum = self._sample(math.exp(log_smoothing(self.c, self.s, self.beta)) * (1 + 1e-9))
        self.log_scale, self.centre = spectrum.log_scale, spectrum.centre
        self.margin = expm1_or_infinite(composition.weight_margin)
        self.sides = self._sides()

    def _sides(self) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        """Chernoff's bounds of the smoothed delta, as geometric series of the aliases on either side; without the tilt itself."""
        left, right = [(0.0, math.inf)], [(0.0, math.inf)]
        if not self.tilts.size:
            return left, right
        log_bounds = self.composition.log_mgf(self.tilts) + log_peak(self.tilts) - self.log_scale
        log_bounds += [log_smoothing(c, self.s, self.beta) for c in self.tilts.tolist()]
        gap = self.c - self.tilts
        away = np.abs(gap) * self.period
        series = log_bounds - away - np.log(-np.expm1(-away))
        for away, one in zip(gap.tolist(), series.tolist(), strict=True):
            if away and one == one:
                (left if away > 0.0 else right).append((away, one))
        return left, right

    @property
    def curved(self) -> bool:
        """True if `excess` is of use; the alternative is to take the whole shift off."""
        return self.s <= LARGEST_CURVED_SHIFT

    def _sample(self, largest: float) -> Spectrum:
        """Evaluate the transform at the nodes, as far as it or the smoothing, nowhere above `largest`, has not died out.

        Proof: engine.md#truncation
        """
        c, s, beta, w = self.c, self.s, self.beta, 2.0 * math.pi / self.period
        limit = 1.05 * math.sqrt(beta * beta + (s * c) ** 2) / s
        # beyond `limit` the smoothing bounds everything: |sinh(q) / q| <= cosh(Re q) / |Im q|
        imaginary = math.sqrt(max((s * limit) ** 2 - beta * beta - (s * c) ** 2, 1e-300))
        real = s * s * c * limit / imaginary
        beyond = 2.0 * beta * math.exp(-beta) / -math.expm1(-2 * beta) * math.cosh(real) / imaginary
        self.truncation = beyond * (1.0 / limit + w / limit / limit) / math.pi
        end, left_out = limit, 0.0
        tilted = self.composition.tilted(c)
        chords = self.composition.chords(tilted) if self.both_ways else None
        if limit / w > _MANY_NODES and not self.composition.jump:
            cut, bound = self.composition.decays_after(c, tilted, limit, 1e-3 * math.exp(-self.beta), chords)
            if chords and not cut < limit:  # what splitting may do hides the decay: the contour is read from above only
                chords, self.both_ways = None, False
                cut, bound = self.composition.decays_after(c, tilted, limit, 1e-3 * math.exp(-self.beta))
            if cut < limit:
                self.truncation += largest * bound * (1.0 / cut + w / cut / cut) / math.pi
                limit, left_out = cut, bound
        most = max(_SPARE_NODES, _MOST_NODES // self.composition.rows)
        count = most if not limit / w < most else math.ceil(limit / w) + 1
        if count >= most:
            count, limit, left_out = most, most * w, 1.0
            self.truncation += largest * (1.0 / limit + w / limit / limit) / math.pi
        self.u = w * np.arange(count)
        spectrum = self.composition.spectrum(c, tilted, w, count, chords)
        z: Complex = np.asarray(c + 1j * self.u, dtype=np.complex128)
        shape = smoothing_transform(z, s, beta) * (w / math.pi) / (z * (z + 1.0))
        self.f = spectrum.values * shape
        self.f[0] *= 0.5
        self.rounding = float(spectrum.rounding @ np.abs(shape)) * (1 + count * UNIT)
        size = np.abs(self.f)
        self.total, self.turning = float(size.sum()), float(size @ self.u) * (1 + count * UNIT)
        self._sample_excess(spectrum, z, end, left_out)
        if chords:  # what is cut off may have belonged to either law
            self.excess_error += float(spectrum.split @ np.abs(shape)) * (1 + count * UNIT) + 2.0 * self.truncation
        self.few = math.isqrt(count - 1) + 1
        padded = np.zeros((count + -count % self.few, 3), complex)
        padded[:count, 0], padded[:count, 1], padded[:count, 2] = self.f, self.g, self.f * self.u
        self.folded = padded.reshape(-1, self.few, 3).transpose(1, 0, 2).reshape(self.few, -1)
        return spectrum

    def _sample_excess(self, spectrum: Spectrum, z: Complex, limit: float, left_out: float) -> None:
        """Smoothing raises delta(e) by at most s e^{2s} r0 E[k((L - e) / s)] with k the density of the shift.

        k(x) <= k(0) e^{-beta^2 r0 x^2 / 2}, so a Gaussian, whose transform decays fast, takes the place of k. `left_out`
        bounds the transform at the frequencies between the last node and `limit`. Proof: engine.md#smoothing
        """
        if not (self.curved and self.tilts.size):
            self.g, self.excess_error = np.zeros_like(self.f), 0.0
            return
        s, beta = self.s, self.beta
        r0 = float(i1e(beta) / (beta * i0e(beta)))
        peak = beta * float(i0e(beta)) / -math.expm1(-2.0 * beta)
        variance = s * s / (beta * beta * r0)
        factor = s * math.exp(2.0 * s) * r0 * peak * math.sqrt(2.0 * math.pi * variance)
        shape = np.exp(0.5 * variance * np.square(z)) * (factor * (2.0 / self.period))  # w / pi
        self.g = spectrum.values * shape
        self.g[0] *= 0.5
        beyond = factor / math.pi * math.exp(0.5 * variance * (self.c**2 - limit**2))
        beyond *= 1.0 / (variance * limit) + 2.0 * math.pi / self.period
        tail = math.exp(0.5 * variance * self.c**2) * math.sqrt(0.5 * math.pi / variance)
        beyond += left_out * factor / math.pi * tail
        summed = spectrum.rounding + spectrum.split + np.abs(spectrum.values) * ((len(self.u) + 16) * UNIT)
        self.excess_error = float((np.abs(shape) * summed).sum()) + beyond

    def log_unit(self, e: Any) -> Any:
        return self.log_scale - self.c * e

    def log_values(self, e: Array) -> Array:
        """log of the smoothed delta at several e, without error bounds; -inf where the estimate is not positive."""
        size = np.abs(self.f)
        heavy = size > 1e-7 * size.max()
        values = (np.exp((-1j) * np.outer(e - self.centre, self.u[heavy])) * self.f[heavy]).real.sum(axis=1)
        return np.asarray(np.log(np.maximum(values, 0.0)) + self.log_scale - self.c * e)

    def read(self, e: Any) -> Reading:
        """The smoothed delta at e, one or several (epsilon shifted by the caller). Proof: engine.md#rounding"""
        # The turn at node a few + b is that at a few times that at b.
        turn = np.asarray(e - self.centre)[..., None] * -1j
        small, large = np.exp(turn * self.u[: self.few]), np.exp(turn * self.u[:: self.few])
        # few points without BLAS, whose threads cost more than they save
        inner = np.einsum("...b,bk->...k", small, self.folded) if np.size(e) <= _FEW_POINTS else small @ self.folded
        sums = (large[..., None, :] @ inner.reshape(*large.shape, 3))[..., 0, :]
        value, excess = sums[..., 0].real, sums[..., 1].real + self.excess_error
        slope = sums[..., 2].imag - self.c * value
        error = self.rounding + self.truncation + self.total * (len(self.u) + 16) * UNIT
        error = error + 4 * UNIT * self.turning * (abs(e) + abs(self.centre))
        # the relative error of e^{log_unit} itself, and of the weights
        scale_error = 4 * UNIT * (abs(self.log_scale) + abs(self.c * e) + 4)
        relative = self.margin + expm1_or_infinite(scale_error)
        error = error + (abs(value) + error) * relative
        excess = excess * (excess > 0.0) * (1.0 + relative)
        return Reading(value, slope, error, self._alias(e), excess)

    def _alias(self, e: Any) -> Any:
        """Bound of all other periods: geometric series of Chernoff's bounds. Proof: engine.md#aliasing"""
        left, right = (np.minimum.reduce([gap * e + series for gap, series in side]) for side in self.sides)
        return 2.0 * (exp_or_infinite(left) + exp_or_infinite(right))  # twice, for the rounding of the exponents
