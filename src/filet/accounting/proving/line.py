"""Inverting the composed transform: the smoothed, tilted Fourier sum at one (epsilon, delta), with its error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import i0e, i1e

from .composition import STEP_ERROR, Composition
from .loss_law import Array
from .transform import Complex

_UNIT = 2.0**-53
_ALIAS = 1e-6  # tolerated aliases, relative to delta
_MANY_NODES = 100
# Candidate tilts around the saddle point, finer near it: Chernoff bounds of aliases need close neighbours. Most
# runs are easy and do with the first ladder.
_LADDERS = (
    2.0 ** np.concatenate([np.arange(-5.0, -2.0), np.arange(-1.75, 1.76, 0.25), np.arange(2.5, 6.6)]),
    2.0 ** np.concatenate([np.arange(-5.0, -1.5, 0.5), np.arange(-1.5, 1.51, 1 / 12), np.arange(2.0, 6.1, 0.5)]),
)
_EASY_NODES = 4_000
_MOST_NODES = 600_000
_AFFORDABLE_NODES = 20_000
_LARGEST_CURVED_SHIFT = 0.1


def smoothing_transform(z: Complex, s: float, beta: float) -> Complex:
    """E[e^{z s X}] for the shift X in [-1, 1] with density proportional to I_0(beta sqrt(1 - x^2))."""
    root = np.sqrt(beta * beta + np.square(s * z))
    near_zero = np.abs(root) < 1e-3
    safe = np.where(near_zero, 1.0, root)
    value = (np.exp(safe - beta) - np.exp(-safe - beta)) / safe
    value = np.where(near_zero, 2.0 * math.exp(-beta) * (1.0 + np.square(root) / 6.0), value)
    return np.asarray(value * (beta / -math.expm1(-2.0 * beta)))


def log_smoothing(c: Array, s: float, beta: float) -> Array:
    """log of the above at real c, without overflow."""
    square = np.square(s * c)
    root = np.sqrt(beta * beta + square)
    # sinh(root) / root over sinh(beta) / beta, with the differences written out so that tiny shifts keep their digits
    value = square / (root + beta) - 0.5 * np.log1p(square / (beta * beta))
    return np.asarray(value + np.log1p(-np.exp(-2 * root)) - math.log1p(-math.exp(-2 * beta)))


def log_peak(c: Array) -> Array:
    """log of the largest (1 - e^{-y}) e^{-c y} over y > 0: Chernoff's bound with it is a bound on delta."""
    with np.errstate(divide="ignore", invalid="ignore"):
        # c log c - (1 + c) log(1 + c), written without the cancellation that ruins it for large c
        return np.where(c > 0, -c * np.log1p(1.0 / c) - np.log1p(c), 0.0)


def saddle(composition: Composition, epsilon: float) -> float:
    """The tilt that minimises the Chernoff bound of delta(epsilon), to a few per cent: Newton's method in log c."""
    low, high, log_c = -40.0, 40.0, 0.0
    for _ in range(60):
        c = math.exp(log_c)
        _, slope, curvature = composition.moments(c)
        value = slope - 1.0 / c - 1.0 / (c + 1.0) - epsilon
        low, high = (log_c, high) if value < 0 else (low, log_c)
        step = -value / (c * (curvature + c**-2 + (c + 1.0) ** -2))
        if abs(step) < 0.02 or high - low < 0.02:
            break
        log_c += min(max(step, -3.0), 3.0)
        if not low < log_c < high:
            log_c = 0.5 * (low + high)
    return math.exp(log_c)


def jump_saddle(composition: Composition, epsilon: float) -> float:
    """The same for a measure with a jump, on a coarse ladder."""
    ladder = 2.0 ** np.arange(-40.0, 41.0)
    value = composition.log_mgf(ladder) - ladder * epsilon - np.log(ladder) - np.log1p(ladder)
    return float(ladder[int(np.argmin(value))])


@dataclass(frozen=True)
class Reading:
    """A smoothed delta at one point, in units of e^{log_unit}: estimate, slope, and bounds of what it may be off.

    |estimate - alias - smoothed delta| <= error with the unknown alias in [0, `alias`], and the smoothed delta exceeds
    the true one by at most `excess`.
    """

    value: float
    slope: float
    error: float
    alias: float
    excess: float


class Line:
    """One vertical line Re z = c through a transform, planned for queries near `epsilon`; `sample` does the work."""

    def __init__(self, composition: Composition, epsilon: float, log_delta: float, width: float) -> None:
        """`width` is the admissible relative error of epsilon that smoothing may cause."""
        self.composition = composition
        centre = jump_saddle(composition, epsilon) if composition.jump else saddle(composition, epsilon)
        for ladder in _LADDERS:
            self.tilts = np.concatenate([[0.0], centre * ladder])
            self.log_mgf = composition.log_mgf(self.tilts)
            chosen = self._choose(epsilon, log_delta)
            self.c = float(self.tilts[chosen])
            self.beta = min(40.0, 15.0 + max(0.0, self.log_amplitude))
            self.s = self._smoothing_shift(epsilon, log_delta, width)
            if self.log_amplitude <= self._tolerable and self._nodes(self.s) <= _EASY_NODES:
                break
        self.drift = float(log_smoothing(np.ones(1), self.s, self.beta)[0]) * (1 + 1e-9)
        self.log_bounds = self.log_mgf + log_smoothing(self.tilts, self.s, self.beta) + log_peak(self.tilts)

    @property
    def _tolerable(self) -> float:
        """The largest log-amplification of rounding errors that does no harm."""
        return math.log(1e-5 / (self.composition.total_steps * STEP_ERROR))

    def _nodes(self, shift: float) -> float:
        """How many nodes it takes until a smoothing of this width has died out."""
        return 1.05 * self.beta * self.period / (2.0 * math.pi * shift)

    def _choose(self, epsilon: float, log_delta: float) -> int:
        """The tilt with the shortest admissible period among those that amplify rounding little."""
        goal = log_delta + math.log(_ALIAS)
        need = np.maximum(self.log_mgf + log_peak(self.tilts) - self.tilts * epsilon - goal, 0.1)
        gap = self.tilts[:, None] - self.tilts[None, :]  # gap[i, j] = c_i - c_j
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.where(gap > 0, need[None, :] / gap, np.inf).min(axis=1)
            right = np.where(gap < 0, need[None, :] / -gap, np.inf).min(axis=1)
        period = np.maximum(left, right)
        amplitude = self.log_mgf - self.tilts * epsilon - np.log1p(self.tilts) - log_delta
        amplitude[0] = np.inf
        allowed = amplitude <= max(float(amplitude.min()) + 1.0, self._tolerable)
        best = int(np.argmin(np.where(allowed, period, np.inf)))
        self.log_amplitude = float(amplitude[best])
        self.period = float(period[best])
        return best

    def _smoothing_shift(self, epsilon: float, log_delta: float, width: float) -> float:
        """The smoothing moves log delta by about (c s)^2 / beta, so epsilon by c s^2 / beta; aim at `width * epsilon`.

        Smaller shifts need more nodes: below 1e-4 an absolute error is fine, if that saves many. Large epsilons
        are insensitive to a shift as such.
        """
        relative, absolute = (math.sqrt(width * self.beta * e / self.c) for e in (epsilon, max(epsilon, 0.1)))
        cheap = self._nodes(1.0) / _AFFORDABLE_NODES
        shift = min(max(relative, min(cheap, absolute)), _LARGEST_CURVED_SHIFT)
        shift = min(max(shift, 0.03 * math.sqrt(width) * epsilon), 0.4 / self.c)
        # A wider shift would smear the bulk over epsilon, which matters unless delta is large anyway.
        return min(shift, max(epsilon / 1.5, 1e-4 / 1.5, 0.01 * math.exp(log_delta)))

    @property
    def curved(self) -> bool:
        """Whether `excess` is of use; the alternative is to take the whole shift off."""
        return self.s <= _LARGEST_CURVED_SHIFT

    def sample(self) -> Line:
        """Evaluate the transform at the nodes."""
        c, s, beta = self.c, self.s, self.beta
        self.period = max(self.period, 4.0 * s)
        w = 2.0 * math.pi / self.period
        limit = 1.05 * math.sqrt(beta * beta + (s * c) ** 2) / s
        # beyond `limit` the smoothing bounds everything: |sinh(q) / q| <= cosh(Re q) / |Im q|
        imaginary = math.sqrt(max((s * limit) ** 2 - beta * beta - (s * c) ** 2, 1e-300))
        real = s * s * c * limit / imaginary
        beyond = 2.0 * beta * math.exp(-beta) / -math.expm1(-2 * beta) * math.cosh(real) / imaginary
        self.truncation = beyond * (1.0 / limit + w / limit**2) / math.pi
        end, left_out = limit, 0.0
        if limit / w > _MANY_NODES and not self.composition.jump:
            cut, bound = self.composition.decays_after(c, limit, 1e-3 * math.exp(-self.beta))
            if cut < limit:
                self.truncation += 1.01 * bound * (1.0 / cut + w / cut**2) / math.pi  # the smoothing is below 1.01
                limit, left_out = cut, bound
        count = min(math.ceil(limit / w) + 1, _MOST_NODES)
        if count == _MOST_NODES:
            limit, left_out = count * w, 1.0
            self.truncation += 1.01 * (1.0 / limit + w / limit**2) / math.pi
        self.u = w * np.arange(count)
        spectrum = self.composition.spectrum(c, w, count)
        z: Complex = np.asarray(c + 1j * self.u, dtype=np.complex128)
        shape = smoothing_transform(z, s, beta) / (z * (z + 1.0))
        weight = w / math.pi
        self.f = spectrum.values * shape * weight
        self.f[0] *= 0.5
        modulus = np.abs(shape) * weight
        self.rounding = float((spectrum.rounding * modulus).sum())
        size = np.abs(self.f)
        self.total = float(size.sum())
        self.turning = float((size * self.u).sum())
        self.log_scale, self.centre = spectrum.log_scale, spectrum.centre
        margin = self.composition.weight_margin(c)
        self.margin = math.expm1(margin) if margin < 0.1 else math.inf  # infinite errors are refused
        self._sample_excess(spectrum.values, spectrum.rounding, z, end, left_out)
        return self

    def _sample_excess(self, values: Complex, rounding: Array, z: Complex, limit: float, left_out: float) -> None:
        """Smoothing raises delta(e) by at most s e^{2s} r E[k((L - e) / s)] with k the density of the shift.

        `left_out` bounds the transform at the frequencies between the last node and `limit`. It holds because the profile is convex in e^epsilon and k is log-concave with r = I_1(beta) / (beta I_0(beta));
        and k(x) <= k(0) e^{-beta^2 r x^2 / 2}, so a Gaussian, whose transform decays fast, takes the place of k.
        """
        if not self.curved:
            self.g, self.excess_error = np.zeros_like(self.f), 0.0
            return
        s, beta = self.s, self.beta
        r = float(i1e(beta) / (beta * i0e(beta)))
        peak = beta * float(i0e(beta)) / -math.expm1(-2.0 * beta)
        variance = s * s / (beta * beta * r)
        factor = s * math.exp(2.0 * s) * r * peak * math.sqrt(2.0 * math.pi * variance)
        weight = factor * (2.0 / self.period)  # w / pi
        shape = np.exp(0.5 * variance * np.square(z)) * weight
        self.g = values * shape
        self.g[0] *= 0.5
        size = np.abs(shape)
        beyond = factor / math.pi * math.exp(0.5 * variance * (self.c**2 - limit**2))
        beyond *= 1.0 / (variance * limit) + 2.0 * math.pi / self.period
        beyond += (
            left_out * factor / math.pi * math.exp(0.5 * variance * self.c**2) * math.sqrt(0.5 * math.pi / variance)
        )
        self.excess_error = float((size * (rounding + np.abs(values) * (len(self.u) + 16) * _UNIT)).sum()) + beyond

    def read(self, e: float) -> Reading:
        """The smoothed delta at e (epsilon shifted by the caller)."""
        phase = np.exp((-1j) * ((e - self.centre) * self.u))
        turned = self.f * phase
        excess = float((self.g * phase).real.sum()) + self.excess_error
        value = float(turned.real.sum())
        slope = -self.c * value + float((turned.imag * self.u).sum())
        error = self.rounding + self.truncation + self.total * (len(self.u) + 16) * _UNIT
        error += 4 * _UNIT * self.turning * (abs(e) + abs(self.centre))
        log_unit = self.log_scale - self.c * e
        gap = self.c - self.tilts
        away = np.abs(gap) * self.period
        exponent = self.log_bounds - self.tilts * e - log_unit - away
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # the tilt itself is left out below
            alias = np.exp(exponent) / -np.expm1(-away)
        left, right = float(alias[gap > 0].min()), float(alias[gap < 0].min())
        # the relative error of e^{log_unit} itself, and of the weights
        scale_error = 4 * _UNIT * (abs(self.log_scale) + abs(self.c * e) + 4)
        relative = self.margin + math.expm1(scale_error) if scale_error < 0.1 else math.inf
        error += (abs(value) + error) * relative
        excess = max(excess, 0.0) * (1.0 + relative)
        if not math.isfinite(value + error + excess):
            return Reading(math.nan, 0.0, math.inf, math.inf, math.inf)
        return Reading(value, slope, error, left + right, excess)

    def log_values(self, e: Array) -> Array:
        """log of the smoothed delta at several e, without error bounds; -inf where the estimate is not positive."""
        size = np.abs(self.f)
        heavy = size > 1e-7 * size.max()
        values = (np.exp((-1j) * np.outer(e - self.centre, self.u[heavy])) @ self.f[heavy]).real
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(values, 0.0)) + self.log_scale - self.c * e)

    def log_unit(self, e: float) -> float:
        return self.log_scale - self.c * e
