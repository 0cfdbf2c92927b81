"""Inverting the composed transform: the smoothed, tilted Fourier sum at one (epsilon, delta), with its error."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .compose import STEP_ERROR, Composition
from .kernel import Array
from .transform import Complex

_UNIT = 2.0**-53
_ALIAS = 1e-6  # tolerated aliases, relative to delta
_MANY_NODES = 3_000
_MOST_NODES = 3_000_000


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
    root = np.sqrt(beta * beta + np.square(s * c))
    return np.asarray(root - beta + np.log(beta / root) + np.log1p(-np.exp(-2 * root)) - math.log1p(-math.exp(-2 * beta)))


def log_peak(c: Array) -> Array:
    """log of the largest (1 - e^{-y}) e^{-c y} over y > 0: Chernoff's bound with it is a bound on delta."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(c > 0, c * np.log(c) - (1.0 + c) * np.log1p(c), 0.0)


def saddle(composition: Composition, epsilon: float) -> float:
    """The tilt that minimises the Chernoff bound of delta(epsilon), to a few per cent."""
    low, high = -40.0, 40.0  # log c

    def slope(log_c: float) -> float:
        c = math.exp(log_c)
        return composition.moments(c)[1] - 1.0 / c - 1.0 / (c + 1.0) - epsilon

    middle, step = 0.0, 1.5
    value = slope(middle)
    while low < middle < high:  # walk until the sign changes
        following = middle + (step if value < 0 else -step)
        new = slope(following)
        if (new < 0) != (value < 0):
            low, high = min(middle, following), max(middle, following)
            break
        middle, value, step = following, new, step * 1.6
    for _ in range(7):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return math.exp(0.5 * (low + high))


def jump_saddle(composition: Composition, epsilon: float) -> float:
    """The same for a measure with a jump, on a coarse ladder."""
    ladder = 2.0 ** np.arange(-40.0, 41.0)
    value = composition.log_mgf(ladder) - ladder * epsilon - np.log(ladder) - np.log1p(ladder)
    return float(ladder[int(np.argmin(value))])


@dataclass(frozen=True)
class Reading:
    """A composed delta at one point: log of the estimate, its slope, and bounds of what it may be off, in its own units."""

    value: float
    slope: float
    error: float
    alias: float


class Line:
    """One vertical line Re z = c through a transform, planned for queries near `epsilon`; `sample` does the work."""

    def __init__(self, composition: Composition, epsilon: float, log_delta: float, width: float) -> None:
        """`width` is the largest admissible smoothing shift."""
        self.composition = composition
        centre = jump_saddle(composition, epsilon) if composition.jump else saddle(composition, epsilon)
        self.tilts = np.concatenate([[0.0], centre * 2.0 ** np.arange(-5.0, 6.01, 0.25)])
        self.log_mgf = composition.log_mgf(self.tilts)
        chosen = self._choose(epsilon, log_delta)
        self.c = float(self.tilts[chosen])
        self.s = min(width, 0.4 / self.c)
        self.beta = min(40.0, 15.0 + max(0.0, self.log_amplitude))
        self.drift = float(log_smoothing(np.ones(1), self.s, self.beta)[0]) * (1 + 1e-9)
        self.log_bounds = self.log_mgf + log_smoothing(self.tilts, self.s, self.beta) + log_peak(self.tilts)

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
        tolerable = math.log(1e-5 / (self.composition.total_steps * STEP_ERROR))
        allowed = amplitude <= max(float(amplitude.min()) + 1.0, min(9.0, tolerable))
        best = int(np.argmin(np.where(allowed, period, np.inf)))
        self.log_amplitude = float(amplitude[best])
        self.period = float(period[best])
        return best

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
        if limit / w > _MANY_NODES and not self.composition.jump:
            cut, bound = self.composition.decays_after(c, limit, 1e-3 * math.exp(-self.beta))
            if cut < limit:
                self.truncation += bound * (1.0 / cut + w / cut**2) / math.pi
                limit = cut
        count = min(math.ceil(limit / w) + 1, _MOST_NODES)
        if count == _MOST_NODES:
            limit = count * w
            self.truncation += (1.0 / limit + w / limit**2) / math.pi
        self.u = w * np.arange(count)
        spectrum = self.composition.spectrum(c, w, count)
        z = c + 1j * self.u
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
        return self

    def read(self, e: float) -> Reading:
        """The smoothed delta at e (epsilon shifted by the caller)."""
        turned = self.f * np.exp((-1j) * ((e - self.centre) * self.u))
        value = float(turned.real.sum())
        slope = -self.c * value + float((turned.imag * self.u).sum())
        error = self.rounding + self.truncation + self.total * (len(self.u) + 16) * _UNIT
        error += 4 * _UNIT * self.turning * (abs(e) + abs(self.centre))
        log_unit = self.log_scale - self.c * e
        with np.errstate(divide="ignore", over="ignore"):
            exponents = self.log_bounds - self.tilts * e
            gap = self.c - self.tilts
            ratio = np.exp(-np.abs(gap) * self.period)
            alias = np.where(gap != 0, np.exp(np.minimum(exponents - log_unit, 700.0)) * ratio / (1.0 - ratio), np.inf)
        left, right = float(alias[gap > 0].min()), float(alias[gap < 0].min())
        # the relative error of e^{log_unit} itself
        error += abs(value) * 4 * _UNIT * (abs(self.log_scale) + abs(self.c * e) + 4)
        return Reading(value, slope, error, left + right) if math.isfinite(value) else Reading(math.nan, 0, math.inf, math.inf)

    def log_unit(self, e: float) -> float:
        return self.log_scale - self.c * e
