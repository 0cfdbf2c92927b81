"""Composition: discrete losses of many steps -> certified delta(epsilon) and epsilon(delta), in one direction.

With `M_k(z) = E[e^{z L}]` for one step of phase k, the composed losses have the transform `prod_k M_k(z)^{T_k}`, and

    delta(e) = 1/(2 pi i) * integral over Re z = c of  prod_k M_k(z)^{T_k} e^{-z e} / (z (z + 1)) dz.

Four errors are bounded, none is assumed away (docs/engine.md has the derivations):
*smoothing*: a random shift of at most `s` is added to the total loss, so that the transform dies out at frequency
`beta / s`; since delta falls in e, the truth at e lies between the smoothed values at `e + s` and `e - s`.
*aliasing*: the trapezoid rule with period `P` adds `sum_{k != 0} e^{c k P} delta(e + k P)`, which is positive (so upper
bounds may ignore it) and small by Chernoff's bound. *truncation* of the frequencies. *rounding* (`_Tilted.error`).

In the rare-hit regime one large loss decides, and no tilt `c` reaches it. There the losses are split at `cap`: no step
above it (bounded losses, so a strong tilt works), exactly one (the jump is integrated directly), or more (bounded).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .cells import Discrete
from .loss_law import Array
from .transform import TRANSFORM_ERROR, Complex, characteristic

_UNIT = 2.0**-53
# Relative rounding error of one cell's mass: normal tails to 4 ulp, differences of neighbours lose a factor of 100.
_MASS_ERROR = 5e-14
# Error of one step's phase per unit of |z| E|L|: a few roundings of loss, centre and grid position.
_PHASE_ERROR = 1e-14


@dataclass(frozen=True)
class Phase:
    """`steps` repetitions of one discrete loss."""

    law: Discrete
    steps: int


STEP_ERROR = 3e-13  # typical rounding of one step's transform; plans only, bounds use the real one
_FEW = 64  # frequencies up to which multiplication is the quickest way
_NEGLIGIBLE = 1e-21  # weights below it are dropped: thousands of them are still far below the error bounds
_SERIES = 16  # 0.5^16 / 16! < 1e-18
_NEAR_ZERO = np.geomspace(1e-6, 1.0, 200)  # frequencies at which decay is looked for, in units of 1 / deviation


class Composition:
    """Sums of independent losses: phases of discrete losses and one Gaussian loss N(mu^2/2, mu^2).

    With `jump=True` it stands for the measure of sums in which exactly one loss is above `cap` (and the others are not).
    """

    def __init__(
        self, phases: Sequence[Phase], gaussian: float = 0.0, cap: float = math.inf, jump: bool = False
    ) -> None:
        self.gaussian, self.jump = gaussian, jump
        self.steps = [phase.steps for phase in phases]
        self.total_steps = max(1, sum(self.steps))
        self.small: list[tuple[Array, Array]] = []
        self.big: list[tuple[Array, Array]] = []
        self._tilt, self._tilted = math.nan, list[_Tilted]()
        self.weight_errors = [phase.law.weight_error for phase in phases]
        for phase in phases:
            low = phase.law.loss <= cap
            self.small.append((phase.law.loss[low], phase.law.log_mass[low]))
            self.big.append((phase.law.loss[~low], phase.law.log_mass[~low]))

    def log_mgf(self, c: Array) -> Array:
        """log of the total transform at real c."""
        total = 0.5 * self.gaussian * (c * c + c)
        odds = np.full(c.shape, -np.inf)
        for steps, small, big in zip(self.steps, self.small, self.big, strict=True):
            one = _log_sum(c, *small)
            total = total + steps * one
            if self.jump and big[0].size:
                odds = np.logaddexp(odds, math.log(steps) + _log_sum(c, *big) - one)
        return total + odds if self.jump else total

    def moments(self, c: float) -> tuple[float, float, float]:
        """Value, slope and curvature of `log_mgf` at c (without jump)."""
        value = 0.5 * self.gaussian * (c * c + c)
        slope, curvature = self.gaussian * (c + 0.5), self.gaussian
        for steps, (loss, log_mass) in zip(self.steps, self.small, strict=True):
            v = log_mass + c * loss
            top = float(v.max())
            e = np.exp(v - top)
            total = float(e.sum())
            mean = float(e @ loss) / total
            value += steps * (math.log(total) + top)
            slope += steps * mean
            curvature += steps * (float(e @ np.square(loss - mean)) / total)
        return value, slope, curvature

    def tilted(self, c: float) -> list[_Tilted]:
        """The tilted losses of each phase (up to the cap); the last tilt is kept, as several questions share it."""
        if self._tilt != c:
            self._tilt, self._tilted = c, [_Tilted(c, *small) for small in self.small]
        return self._tilted

    def spectrum(self, c: float, spacing: float, count: int) -> Spectrum:
        """The transform at c + i j spacing, j < count, and a bound on its rounding error."""
        u = spacing * np.arange(count)
        size = np.hypot(c, u)
        log_f: Complex = (-0.5 * self.gaussian) * np.square(u) + 0j
        log_bound = log_f.real.copy()
        log_value = 0.5 * self.gaussian * (c * c + c)
        centre = self.gaussian * (c + 0.5)
        relative = np.full(count, 8 * _UNIT)
        tilted = self.tilted(c)
        logs, bounds = [], []
        for steps, one in zip(self.steps, tilted, strict=True):
            values, own = one.transform(spacing, count)
            error = one.error(size, own)
            bounds.append(np.abs(values) + error)
            with np.errstate(divide="ignore"):
                logs.append(np.log(values))
            log_f += steps * logs[-1]
            log_bound += steps * np.log(bounds[-1])
            relative += steps * error / bounds[-1]
            log_value += steps * one.log_scale
            centre += steps * one.centre
        relative += 4 * _UNIT * np.abs(log_f.imag)
        # Hopeless where the steps are so many that their roundings drown the transform; infinite errors are refused.
        bound_f = np.where(log_bound < 600.0, np.exp(np.minimum(log_bound, 600.0)), np.inf)
        if not self.jump:
            return Spectrum(
                np.exp(np.minimum(log_f.real, 600.0) + 1j * log_f.imag), bound_f * relative, log_value, centre
            )
        jumps = [_Tilted(c, *big) if big[0].size else None for big in self.big]
        odds = [
            math.log(steps) + jump.log_scale - one.log_scale if jump else -math.inf
            for steps, one, jump in zip(self.steps, tilted, jumps, strict=True)
        ]
        top = max(odds)
        total, rounding = np.zeros(count, complex), np.zeros(count)
        for one, jump, log_one, bound, odd in zip(tilted, jumps, logs, bounds, odds, strict=True):
            if jump is None:
                continue
            weight = math.exp(odd - top)
            values, own = jump.transform(spacing, count)
            error = jump.error(size, own)
            # one factor of this phase is exchanged for the jump
            total += weight * values * np.exp(log_f - log_one + 1j * u * (jump.centre - one.centre))
            others = weight * bound_f / bound
            rounding += others * (error + (np.abs(values) + error) * relative)
        return Spectrum(total, rounding, log_value + top, centre)

    def weight_margin(self, c: float) -> float:
        """What errors of the binomial weights can do to log delta, to first order with a generous factor.

        A relative error w of the group weights changes the likelihood of T steps by about w sqrt(T) standard
        deviations (15 of them are allowed for), and every loss by a relative w.
        """
        margin = 0.0
        for steps, one, error in zip(self.steps, self.tilted(c), self.weight_errors, strict=True):
            margin += error * (15.0 * math.sqrt(steps) + c * steps * (one.spread + abs(one.centre)))
        if self.jump:  # one loss more, from above the cap
            jumps = zip(self.big, self.weight_errors, strict=True)
            tilted = [(_Tilted(c, *big), error) for big, error in jumps if big[0].size]
            margin += max(error * c * (one.spread + abs(one.centre)) for one, error in tilted)
        return margin

    def decays_after(self, c: float, limit: float, tolerance: float) -> tuple[float, float]:
        """A frequency beyond which (up to `limit`) the relative transform stays below `tolerance`, and its bound there.

        Sound between samples: near zero by the moments of the losses (`_Tilted.near_zero`), further out because
        |M(c + iu)| / M(c) changes by at most E_c|L - centre| per unit of u.
        """
        tilts = self.tilted(c)
        spacing = 0.25 / max(max(one.spread for one in tilts), 1e-300)
        if not limit / spacing < 200_000.0:  # looking would cost more than it saves
            return limit, 1.0
        near = min(limit, 1.0 / max(max(one.deviation for one in tilts), 1e-300)) * _NEAR_ZERO
        far = spacing * np.arange(math.ceil(limit / spacing) + 2)
        start = np.concatenate([near[:-1], np.maximum(far - 0.5 * spacing, 0.0)])
        log_bound = (-0.5 * self.gaussian) * np.square(start) if self.gaussian else np.zeros_like(start)
        for steps, one in zip(self.steps, tilts, strict=True):
            values, own = one.transform(spacing, far.size)
            bound = np.concatenate([one.near_zero(near), np.abs(values) + 0.5 * spacing * one.spread])
            bound += one.error(np.hypot(c, start + spacing), own)
            log_bound += steps * np.log(np.minimum(bound, 1.0))
        beyond = start + spacing > near[-1]  # the samples further in are not needed
        beyond[: near.size - 1] = True
        start, log_bound = start[beyond], log_bound[beyond]
        worst = np.maximum.accumulate(log_bound[::-1])[::-1]
        first = int(np.argmax(worst <= math.log(tolerance)))
        if not worst[first] <= math.log(tolerance) or first == 0:
            return limit, 1.0
        return min(limit, float(start[first])), math.exp(worst[first])


@dataclass(frozen=True)
class Spectrum:
    """Values relative to e^{log_scale} and turned back by the centre: f_j e^{log_scale + i u_j centre}."""

    values: Complex
    rounding: Array
    log_scale: float
    centre: float


class _Tilted:
    """One step's losses under the tilted law e^{c L} P / E[e^{c L}], counted from their mean `centre`."""

    def __init__(self, c: float, loss: Array, log_mass: Array) -> None:
        v = log_mass + c * loss
        top = float(v.max())
        weights = np.exp(v - top)
        total = float(weights.sum())
        self.weights = weights / total
        self.log_scale = math.log(total) + top
        self.centre = float(self.weights @ loss)
        self.away = loss - self.centre
        self.distance = np.abs(self.away)
        self.spread = float(self.weights @ self.distance)
        self.deviation = math.sqrt(float(self.weights @ np.square(self.away)))

    def transform(self, spacing: float, count: int) -> tuple[Complex, float]:
        """E_c[e^{i u (L - centre)}] at u = j spacing, j < count, and a bound of its own error.

        Few frequencies are reached by multiplication. Else losses that turn by less than half a radian go through a
        power series, exact to rounding; the rest, often a tiny share of the mass, through the fast transform.
        """
        if count <= _FEW:
            return _by_powers(self.away, self.weights, spacing, count), 4 * count * _UNIT
        limit = spacing * (count - 1)
        near = self.distance * limit <= 0.5
        keep = ~near & (self.weights > _NEGLIGIBLE)
        far = float(self.weights[keep].sum())
        values = np.zeros(count, complex)
        if far > 0.0:
            values = characteristic(self.away[keep], self.weights[keep], spacing, count)
        if near.any():
            values = values + _series(self.away[near] * limit, self.weights[near], np.arange(count) / (count - 1))
        return values, TRANSFORM_ERROR * far

    def error(self, size: Array, own: float) -> Array:
        """Bound on the error of a transform: its own, masses, and phases (they grow with |z|).

        Masses sum to one (they telescope), so their errors only show in E|e^{zL} - 1| <= min(|z| E|L|, 2).
        """
        reach = size * (self.spread + abs(self.centre))
        return 16 * _UNIT + own + _PHASE_ERROR * reach + _MASS_ERROR * np.minimum(reach, 2.0)

    def near_zero(self, u: Array) -> Array:
        """Bounds of the transform's modulus on the intervals between the given frequencies, of at most 1 / deviation.

        From cos x <= 1 - x^2/2 + x^4/24 and |sin x - x| <= |x|^3/6 for the losses that turn little; of the others,
        cos x <= 1 and |sin x - x| <= 1.4 |x|. The mean of L - centre is zero, and 1 - u^2 deviation^2 / 2 > 0.
        """
        x = self.distance * u[-1]
        little = x <= 2.0
        x, w, rest = x[little], self.weights[little], 1.4 * float(self.weights[~little] @ x[~little])
        square, cube, fourth = (float(w @ x**k) for k in (2, 3, 4))
        low, high = u[:-1] / u[-1], u[1:] / u[-1]
        real = 1.0 - square * np.square(low) / 2.0 + fourth * high**4 / 24.0
        return np.asarray(np.hypot(real, cube * high**3 / 6.0 + rest * high) + 1e-12 * square * np.square(high))


def _by_powers(positions: Array, weights: Array, spacing: float, count: int) -> Complex:
    """sum_i weights_i e^{i j spacing positions_i} for j = 0 .. count - 1; each product adds less than 4 roundings."""
    turn = np.exp(1j * (spacing * positions))
    power = weights.astype(complex)
    values = np.empty(count, complex)
    for j in range(count):
        values[j] = power.sum()
        power *= turn
    return values


def _series(turns: Array, weights: Array, share: Array) -> Complex:
    """sum_i weights_i e^{i share turns_i} for turns of at most half a radian."""
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


def _log_sum(c: Array, loss: Array, log_mass: Array) -> Array:
    """log sum_i e^{log_mass_i + c loss_i} for each c."""
    v = c[:, None] * loss[None, :] + log_mass[None, :]
    top = v.max(axis=1)
    return np.asarray(top + np.log(np.exp(v - top[:, None]).sum(axis=1)))
