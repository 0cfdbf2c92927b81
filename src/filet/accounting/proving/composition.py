"""Sums of independent losses: phases of discrete losses -> transform of the composed loss, with bounds on its error.

With `M_k(z) = E[e^{z L}]` for one step of phase k, the composed losses have the transform `prod_k M_k(z)^{T_k}`, and

    delta(e) = 1/(2 pi i) * integral over Re z = c of  prod_k M_k(z)^{T_k} e^{-z e} / (z (z + 1)) dz.

In the rare-hit regime one large loss decides, and no tilt `c` reaches it. There the losses are split at `cap`: no step
above it (bounded losses, so a strong tilt works), exactly one (the jump is integrated directly), or more (bounded).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from ..._rounding import MASS_ERROR, NEGLIGIBLE, PHASE_ERROR, RESOLVED, TRANSFORM_ERROR, UNIT
from .cells import Cells, Discrete
from .loss_law import Array
from .transform import Complex, by_powers, by_series, characteristic, powers_error

BLOCK = 250_000  # losses of one block, a size that fits the processor's cache
_FEW, _FEW_INBLOCKS = 512, 8_000  # frequencies up to which multiplication is the quickest way; for several phases
_SEVERAL = 8
_LOWEST = -1e300  # in place of -inf, which cannot be taken off itself
_MOST_SAMPLES = 200_000  # of one look for decay; more would cost more than they save
_MOST_SPLIT = 300.0  # logarithm of what splitting may do to a value before nothing is known
_NEAR_ZERO = np.geomspace(1e-6, 1.0, 200)  # frequencies at which decay is looked for, in units of 1 / deviation
_NEAR_POWERS = _NEAR_ZERO ** np.array([[2.0], [4.0], [6.0], [8.0]])
_NEAR_FACTORS = np.array([[1.4], [1 / 2], [1 / 6], [1 / 24]])  # of E|x| far out, and of E x^2, |x|^3, x^4 near zero


@dataclass(frozen=True)
class Block:
    """Phases side by side: row k holds one step's losses and log-masses of phase k; -inf means no mass."""

    loss: Array
    log_mass: Array
    steps: Array
    weight_error: Array
    size: Array  # E|L| of each phase, before any tilt
    cells: Sequence[Cells | None] = ()  # that were split, of each phase

    def part(self, where: np.ndarray) -> Block:
        """The same phases with the other losses left out."""
        some = np.asarray(where.any(axis=0))
        some[0] |= not some.any()  # an outcome of no mass is left if there is none
        return replace(self, loss=self.loss[:, some], log_mass=np.where(where, self.log_mass, -np.inf)[:, some])

    def log_sum(self, c: Array) -> Array:
        """log sum_i e^{log_mass_i + c loss_i} for each c (rows) and phase (columns)."""
        most = max(1, 4 * BLOCK // self.loss.size)
        if c.size > most:
            return np.concatenate([self.log_sum(c[i : i + most]) for i in range(0, c.size, most)])
        v = c[:, None, None] * self.loss + self.log_mass
        top = np.maximum(v.max(axis=2), _LOWEST)
        return np.asarray(top + np.log(np.exp(v - top[:, :, None]).sum(axis=2)))


def blocks(laws: Sequence[tuple[Discrete, int]]) -> list[Block]:
    """The laws in few arrays: rows are padded with outcomes of no mass.

    Proof: engine.md#the-inversion-formula
    """
    made: list[Block] = []
    rest = list(laws)
    while rest:
        count, width = 1, rest[0][0].loss.size
        while count < len(rest) and (count + 1) * max(width, rest[count][0].loss.size) <= BLOCK:
            count, width = count + 1, max(width, rest[count][0].loss.size)
        some, rest = rest[:count], rest[count:]
        loss, log_mass = some[0][0].loss[None, :], some[0][0].log_mass[None, :]
        if count > 1:
            loss, log_mass = np.zeros((count, width)), np.full((count, width), -np.inf)
            for row, (law, _) in enumerate(some):
                loss[row, : law.loss.size] = law.loss
                log_mass[row, : law.loss.size] = law.log_mass
        steps = np.array([float(steps) for _, steps in some])
        size = np.einsum("km,km->k", np.exp(log_mass), np.abs(loss))
        weight_error, cells = np.array([law.weight_error for law, _ in some]), [law.cells for law, _ in some]
        made.append(Block(loss, log_mass, steps, weight_error, size, cells))
    return made


class Composition:
    """Sums of independent losses: phases of discrete losses and one Gaussian loss N(mu^2/2, mu^2), mu^2 = `gaussian`.

    Losses above `cap` are left out; with `jump=True` it is the measure of sums in which exactly one loss is above it, and
    within `band`. Proof: engine.md#the-inversion-formula, engine.md#rare-large-losses
    """

    def __init__(self, whole: list[Block], gaussian: float = 0.0, cap: float = math.inf, jump: bool = False,
                 band: tuple[float, float] = (-math.inf, math.inf)) -> None:  # fmt: skip
        self.gaussian, self.jump, self.cap = gaussian, jump, cap
        self.small = whole if cap == math.inf else [block.part(block.loss <= cap) for block in whole]
        low, high = max(cap, band[0]), band[1]
        self.big = [block.part((block.loss > low) & (block.loss <= high)) for block in whole] if jump else []
        self.total_steps = max(1.0, sum(float(block.steps.sum()) for block in whole))
        self.rows = max((block.steps.size for block in whole), default=1)

    def log_mgf(self, c: Array) -> Array:
        """log of the total transform at real c."""
        total = 0.5 * self.gaussian * (c * c + c)
        odds = np.full(c.shape, -np.inf)
        for number, block in enumerate(self.small):
            one = block.log_sum(c)
            total = total + one @ block.steps
            if self.jump:
                big = self.big[number].log_sum(c) - one + np.log(block.steps)
                odds = np.logaddexp(odds, np.logaddexp.reduce(big, axis=1))
        return total + odds if self.jump else total

    def tilted(self, c: float) -> list[Tilted]:
        """The tilted losses of each block (up to the cap)."""
        return [Tilted(c, block) for block in self.small]

    def chords(self, tilted: list[Tilted]) -> list[Array] | None:
        """The change that splitting makes to a step's relative transform, over |z (z + 1)|; None if nothing is split.

        Proof: engine.md#what-splitting-adds
        """
        if not any(cells for block in self.small for cells in block.cells):
            return None
        return [
            np.array(
                [
                    cells.chord(one.c, unit) if cells else 0.0
                    for cells, unit in zip(block.cells, one.log_scale, strict=True)
                ]
            )
            for block, one in zip(self.small, tilted, strict=True)
        ]

    def spectrum(
        self, c: float, tilted: list[Tilted], spacing: float, count: int, chords: list[Array] | None = None
    ) -> Spectrum:
        """The transform at c + i j spacing, j < count, and a bound on its rounding error; with `chords`, also on what they add.

        Proof: engine.md#rounding, engine.md#what-splitting-adds
        """
        u: Array = spacing * np.arange(count, dtype=np.float64)
        log_bound = (-0.5 * self.gaussian) * (u * u)
        log_f, relative, size = log_bound.astype(complex), np.full(count, 8 * UNIT), np.hypot(c, u)
        log_value, centre = 0.5 * self.gaussian * (c * c + c), self.gaussian * (c + 0.5)
        jump = _Jump(c, tilted, self.big, u) if self.jump else None
        curve, split = size * np.hypot(c + 1.0, u) if chords else size, np.zeros(count)
        for number, whole in enumerate(tilted):
            log_value += float(whole.steps @ whole.log_scale)
            centre += float(whole.steps @ whole.centre)
            for rows in whole.slices(count):
                one = whole.rows(rows)
                values, own = one.transform(spacing, count)
                error = one.error(size, own)
                bound = np.abs(values) + error
                log_f += one.steps @ np.log(values)
                log_bound += one.steps @ np.log(bound)
                relative += one.steps @ (error / bound)
                if chords:
                    split += (one.steps * chords[number][rows]) @ (curve / bound)
                if jump:
                    jump.add(number, rows, one, values, bound, size)
        relative += 4 * UNIT * np.abs(log_f.imag)
        # Hopeless where there are too many steps and their roundings drown the transform; infinite errors are refused.
        bound_f = np.exp(log_bound)
        np.minimum(log_f.real, 600.0, out=log_f.real)
        values = np.exp(log_f)
        if jump:
            rounding = bound_f * (jump.error + jump.size * relative)
            return Spectrum(values * jump.total, rounding, log_value + jump.top, centre)
        if chords:
            split = np.where(split < _MOST_SPLIT, bound_f * np.expm1(np.minimum(split, _MOST_SPLIT)), np.inf)
        return Spectrum(values, bound_f * relative, log_value, centre, split)

    @property
    def weight_margin(self) -> float:
        """Bound of the change of log delta by errors of the binomial weights: a relative error w of P is (1 + w)^T after T steps.

        (What they do to the losses is allowed for by the view.) Proof: engine.md#binomial-weights
        """
        return sum(float(block.weight_error @ block.steps) for block in self.small)

    def decays_after(
        self, c: float, tilts: list[Tilted], limit: float, tolerance: float, chords: list[Array] | None = None
    ) -> tuple[float, float]:
        """A frequency beyond which (up to `limit`) the relative transform stays below `tolerance`, and its bound there.

        With `chords` so does that of the law without splitting. Proof: engine.md#truncation, engine.md#what-splitting-adds
        """
        spacing = 0.25 / max(max(float(one.spread.max()) for one in tilts), 1e-300)
        if not limit / spacing * self.rows < _MOST_SAMPLES:
            return limit, 1.0
        end = min(limit, 1.0 / max(max(float(one.deviation.max()) for one in tilts), 1e-300))
        first, count = int(end / spacing + 0.5), math.ceil(limit / spacing) + 2  # samples further in are not needed
        start = np.concatenate([end * _NEAR_ZERO, np.maximum(spacing * (np.arange(first, count) - 0.5), end)])
        log_bound = (-0.5 * self.gaussian) * (start * start)
        ends = np.append(start[1 : _NEAR_ZERO.size], start[_NEAR_ZERO.size - 1 :] + spacing)
        curve = np.hypot(c, ends) * np.hypot(c + 1.0, ends)
        for number, one in enumerate(tilts):
            values, own = one.transform(spacing, count)
            far = np.abs(values[:, first:]) + (0.5 * spacing) * one.spread[:, None]
            bound = np.concatenate([one.near_zero(end), far], axis=1) + one.error(c + start + spacing, own)
            if chords:
                bound += chords[number][:, None] * curve
            log_bound += one.steps @ np.log(np.minimum(bound, 1.0))
        worst = np.maximum.accumulate(log_bound[::-1])[::-1]
        first = int(np.argmax(worst <= math.log(tolerance)))
        if not worst[first] <= math.log(tolerance) or first == 0:
            return limit, 1.0
        return min(limit, float(start[first])), math.exp(worst[first])


@dataclass(frozen=True)
class Spectrum:
    """Values relative to e^{log_scale} and turned back by the centre: f_j e^{log_scale + i u_j centre}.

    `rounding` bounds their errors, `split` how far the values without splitting any cell may be from these.
    """

    values: Complex
    rounding: Array
    log_scale: float
    centre: float
    split: Array | float = 0.0


class _Jump:
    """The sum over phases in which one factor is exchanged for a loss above the cap, relative to the product of all.

    Proof: engine.md#rare-large-losses
    """

    def __init__(self, c: float, tilted: list[Tilted], big: list[Block], u: Array) -> None:
        self.u, self.jumps = u, [Tilted(c, block) for block in big]
        self.odds = [np.log(one.steps) + jump.log_scale - one.log_scale
                     for one, jump in zip(tilted, self.jumps, strict=False)]  # fmt: skip
        # of the sum, so that no value is above one
        self.top = float(np.logaddexp.reduce(np.concatenate(self.odds))) if big else 0.0
        self.total, self.error, self.size = np.zeros(u.size, complex), np.zeros(u.size), np.zeros(u.size)

    def add(self, number: int, rows: slice, one: Tilted, values: Complex, bound: Array, size: Array) -> None:
        """Add some phases of a block, whose transforms without the jump are `values`, of a modulus below `bound`."""
        jump = self.jumps[number].rows(rows)
        hit = np.isfinite(jump.log_scale)  # phases with losses above the cap
        weight = np.where(hit, np.exp(self.odds[number][rows] - self.top), 0.0)[:, None]
        spacing = float(self.u[1]) if self.u.size > 1 else 1.0
        found, own = jump.transform(spacing, self.u.size)
        error = jump.error(size, own)
        turn = np.exp(1j * self.u * (jump.centre - one.centre)[:, None])
        self.total += (weight * found * turn / values).sum(axis=0)
        self.error += (weight / bound * error).sum(axis=0)
        self.size += (weight / bound * (np.abs(found) + error)).sum(axis=0)


class Tilted:
    """One step's losses of each phase under the tilted law e^{c L} P / E[e^{c L}], counted from their mean `centre`.

    Proof: engine.md#the-transform-of-a-discrete-loss
    """

    def __init__(self, c: float, block: Block) -> None:
        v = block.log_mass + c * block.loss
        top = v.max(axis=1)  # -inf where no loss is left
        weights = np.exp(v - np.maximum(top, _LOWEST)[:, None])
        weights[weights < RESOLVED] = 0.0  # numbers that are nearly denormal are slow
        total = np.maximum(weights.sum(axis=1), 1.0)
        self.c, self.steps, self.weight_error = c, block.steps, block.weight_error
        self.weights, self.log_scale = weights / total[:, None], np.log(total) + top
        self.centre = (self.weights * block.loss).sum(axis=1)
        self.away = block.loss - self.centre[:, None]
        distance = self.distance
        first = self.weights * distance
        self.spread, self.deviation = first.sum(axis=1), np.sqrt((first * distance).sum(axis=1))
        # of the error in |z|
        self.slope = (PHASE_ERROR + MASS_ERROR) * (self.spread + np.abs(self.centre) + block.size)

    @property
    def distance(self) -> Array:
        return np.asarray(np.abs(self.away))

    def slices(self, count: int) -> list[slice]:
        """The phases in turn, so few at once that their transforms at `count` frequencies fit the processor's cache."""
        most = max(1, BLOCK // count)
        return [slice(first, first + most) for first in range(0, self.steps.size, most)]

    def rows(self, rows: slice) -> Tilted:
        """Some of the phases."""
        if rows.stop - rows.start >= self.steps.size:
            return self
        some = copy(self)
        vars(some).update({name: value[rows] for name, value in vars(self).items() if name != "c"})
        return some

    def transform(self, spacing: float, count: int) -> tuple[Complex, Array]:
        """E_c[e^{i u (L - centre)}] at u = j spacing, j < count, one row a phase, and a bound of its own error.

        Few frequencies are reached by multiplication. Else losses that turn by less than half a radian go through a
        power series, exact to rounding; the rest, often a tiny share of the mass, through the fast transform.
        Proof: engine.md#the-transform-of-a-discrete-loss
        """
        if count <= (_FEW if self.steps.size < _SEVERAL else _FEW_INBLOCKS):
            own = powers_error(self.away.shape[1], count)
            return by_powers(self.away, self.weights, spacing, count), np.full(self.steps.size, own)
        values, shares = np.zeros((self.steps.size, count), complex), np.zeros(self.steps.size)
        limit = spacing * (count - 1)
        for row, (away, weights, distance) in enumerate(zip(self.away, self.weights, self.distance, strict=True)):
            near = distance * limit <= 0.5
            keep = ~near & (weights > NEGLIGIBLE)
            shares[row] = weights[keep].sum()
            if shares[row] > 0.0:
                values[row] = characteristic(away[keep], weights[keep], spacing, count)
            if near.any():
                values[row] += by_series(away[near] * limit, weights[near], np.arange(count) / (count - 1))
        return values, TRANSFORM_ERROR * shares

    def error(self, size: Array, own: Array) -> Array:
        """Bound on the error of a transform at |z| = size: its own, masses, and phases (they grow with |z|).

        Proof: engine.md#rounding
        """
        return np.asarray((own + 16 * UNIT)[:, None] + size * self.slope[:, None])

    def near_zero(self, end: float) -> Array:
        """Bounds of the transform's modulus from each share of `_NEAR_ZERO` of `end` on, up to end <= 1 / deviation.

        Proof: engine.md#truncation
        """
        x = self.distance * end
        little = np.where(x <= 2.0, x, 0.0)
        weighted = self.weights * little * little
        sums = [(self.weights * (x - little)).sum(axis=1), weighted.sum(axis=1), (weighted * little).sum(axis=1)]
        far, a, k, b = np.array([*sums, (weighted * little * little).sum(axis=1)]) * _NEAR_FACTORS
        terms = np.array([far * far - 2.0 * a * (1 - 1e-11), a * a + 2.0 * (b + far * k), k * k, b * b]).T
        bound = np.sqrt(1.0 + terms @ _NEAR_POWERS)  # convex but for the root, so largest at one of the ends
        return np.asarray(np.maximum(bound, bound[:, -1:]) + 16 * UNIT)
