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

from .kernel import Array
from .pld import Discrete
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
_SERIES = 16  # 0.5^16 / 16! < 1e-18


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

    def spectrum(self, c: float, spacing: float, count: int) -> Spectrum:
        """The transform at c + i j spacing, j < count, and a bound on its rounding error."""
        u = spacing * np.arange(count)
        size = np.hypot(c, u)
        log_f: Complex = (-0.5 * self.gaussian) * np.square(u) + 0j
        log_bound = log_f.real.copy()
        log_value = 0.5 * self.gaussian * (c * c + c)
        centre = self.gaussian * (c + 0.5)
        relative = np.full(count, 8 * _UNIT)
        phases = [_tilted(c, *small, spacing, count) for small in self.small]
        bounds = []
        for steps, one in zip(self.steps, phases, strict=True):
            error = one.error(size)
            bounds.append(np.abs(one.values) + error)
            log_f += steps * one.log_values
            log_bound += steps * np.log(bounds[-1])
            relative += steps * error / bounds[-1]
            log_value += steps * one.log_scale
            centre += steps * one.centre
        relative += 4 * _UNIT * np.abs(log_f.imag)
        bound_f = np.exp(np.minimum(log_bound, 600.0))  # huge means hopeless, and is refused later
        if not self.jump:
            return Spectrum(np.exp(log_f), bound_f * relative, log_value, centre)
        jumps = [_tilted(c, *big, spacing, count) if big[0].size else None for big in self.big]
        odds = [
            math.log(steps) + jump.log_scale - one.log_scale if jump else -math.inf
            for steps, one, jump in zip(self.steps, phases, jumps, strict=True)
        ]
        top = max(odds)
        values, rounding = np.zeros(count, complex), np.zeros(count)
        for one, jump, bound, odd in zip(phases, jumps, bounds, odds, strict=True):
            if jump is None:
                continue
            weight = math.exp(odd - top)
            error = jump.error(size)
            # one factor of this phase is exchanged for the jump
            values += weight * jump.values * np.exp(log_f - one.log_values + 1j * u * (jump.centre - one.centre))
            others = weight * bound_f / bound
            rounding += others * (error + (np.abs(jump.values) + error) * relative)
        return Spectrum(values, rounding, log_value + top, centre)

    def weight_margin(self, c: float) -> float:
        """What errors of the binomial weights can do to log delta, to first order with a generous factor.

        A relative error w of the group weights changes the likelihood of T steps by about w sqrt(T) standard
        deviations (15 of them are allowed for), and every loss by a relative w.
        """
        margin = 0.0
        for steps, small, error in zip(self.steps, self.small, self.weight_errors, strict=True):
            one = _tilted(c, *small, 1.0, 1)
            margin += error * (15.0 * math.sqrt(steps) + c * steps * (one.spread + abs(one.centre)))
        if self.jump:  # one loss more, from above the cap
            jumps = zip(self.big, self.weight_errors, strict=True)
            tilted = [(_tilted(c, *big, 1.0, 1), error) for big, error in jumps if big[0].size]
            margin += max(error * c * (one.spread + abs(one.centre)) for one, error in tilted)
        return margin

    def decays_after(self, c: float, limit: float, tolerance: float) -> tuple[float, float]:
        """A frequency beyond which (up to `limit`) the relative transform stays below `tolerance`, and its bound there.

        Sound between samples: |M(c + iu)| / M(c) changes by at most E_c|L - centre| per unit of u.
        """
        tilts = [_tilted(c, *small, 1.0, 1) for small in self.small]
        rate = max(one.spread for one in tilts)
        spacing = 0.25 / max(rate, 1e-300)
        if not limit / spacing < 200_000.0:  # looking would cost more than it saves
            return limit, 1.0
        count = math.ceil(limit / spacing) + 2
        u = spacing * np.arange(count)
        log_bound = (-0.5 * self.gaussian) * np.square(np.maximum(u - 0.5 * spacing, 0.0))
        for steps, small in zip(self.steps, self.small, strict=True):
            one = _tilted(c, *small, spacing, count)
            bound = np.abs(one.values) + one.error(np.hypot(c, u)) + 0.5 * spacing * one.spread
            log_bound += steps * np.log(np.minimum(bound, 1.0))
        worst = np.maximum.accumulate(log_bound[::-1])[::-1]
        first = int(np.argmax(worst <= math.log(tolerance)))
        if not worst[first] <= math.log(tolerance) or first == 0:
            return limit, 1.0
        return min(limit, float(u[first])), math.exp(worst[first])


@dataclass(frozen=True)
class Spectrum:
    """Values relative to e^{log_scale} and turned back by the centre: f_j e^{log_scale + i u_j centre}."""

    values: Complex
    rounding: Array
    log_scale: float
    centre: float


@dataclass(frozen=True)
class _Tilted:
    """One step's transform relative to its value at c, with losses counted from their tilted mean."""

    values: Complex
    log_scale: float
    centre: float
    spread: float
    far: float  # the share of the mass that went through the fast transform

    @property
    def log_values(self) -> Complex:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.values))

    def error(self, size: Array) -> Array:
        """Bound on the error of `values`: transform, masses, and phases (they grow with |z|).

        Masses sum to one (they telescope), so their errors only show in E|e^{zL} - 1| <= min(|z| E|L|, 2).
        """
        reach = size * (self.spread + abs(self.centre))
        return 16 * _UNIT + TRANSFORM_ERROR * self.far + _PHASE_ERROR * reach + _MASS_ERROR * np.minimum(reach, 2.0)


def _tilted(c: float, loss: Array, log_mass: Array, spacing: float, count: int) -> _Tilted:
    v = log_mass + c * loss
    top = float(v.max())
    weights = np.exp(v - top)
    total = float(weights.sum())
    weights /= total
    centre = float(weights @ loss)
    away = loss - centre
    spread = float(weights @ np.abs(away))
    if count == 1:
        return _Tilted(np.ones(1, complex), math.log(total) + top, centre, spread, 1.0)
    # Losses that turn by less than half a radian go through a power series, exact to rounding; the rest, often a
    # tiny share of the mass, through the fast transform with its larger error.
    limit = spacing * (count - 1)
    near = np.abs(away) * limit <= 0.5
    keep = ~near & (weights > 1e-40)  # what is dropped is far below the error bounds
    far = float(weights[keep].sum())
    values = characteristic(away[keep], weights[keep], spacing, count) if far > 0.0 else np.zeros(count, complex)
    if near.any():
        scaled = away[near] * limit
        turn = np.arange(count) / (count - 1)
        series, power = np.zeros(count, complex), weights[near]
        coefficients = []
        for k in range(_SERIES):
            coefficients.append(power.sum() * (1j**k))
            power = power * scaled / (k + 1)
        for coefficient in reversed(coefficients):
            series = series * turn + coefficient
        values = values + series
    return _Tilted(values, math.log(total) + top, centre, spread, far)


def _log_sum(c: Array, loss: Array, log_mass: Array) -> Array:
    """log sum_i e^{log_mass_i + c loss_i} for each c."""
    v = c[:, None] * loss[None, :] + log_mass[None, :]
    top = v.max(axis=1)
    return np.asarray(top + np.log(np.exp(v - top[:, None]).sum(axis=1)))
