"""A sketch of a run: its losses at few points, with their tilted moments in one table. Nothing rests on it.

The table says at once where epsilon(delta) lies, which losses matter and which lines to read, so that the first cells and
the first lines are usually the last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..proving.cells import Cells, Discrete, cut
from ..proving.loss_law import Array, LossLaw, Piece
from ..proving.transform import by_powers
from .grids import points_within
from .tilts import Proposal, choose_line

_WIDTH = 0.25  # distance of points, in deviations
_LADDER = 2.0 ** np.arange(-5.0, 1.7, 1 / 3)  # tilts, over that of a Gaussian sum of the same variance
_WEAKER = 4  # times
_LOG_ROOT = 0.5 * math.log(2 * math.pi)
_TINY = 1e-300
_FAR = -600.0  # logarithms below it are cut off: numbers that are nearly denormal are slow
_ENDS = np.array([95 / 288, 317 / 240, 23 / 30, 793 / 720, 157 / 160])  # Gregory's rule, where a piece ends in the bulk
_EASY = 6_000  # nodes of a line before it is known where its transform dies out
_FINE = 2.0 ** np.concatenate([np.arange(-5.0, -1.5, 0.5), np.arange(-1.5, 1.51, 1 / 12), [2.0, 3.0]])
_REGULAR = 0.012  # relative: how little the scale of an interpolation matters where a table is good enough
_SMALL, _COARSER = 0.01, 10.0  # epsilons below it need fewer digits, but some
_MERGED = 5  # neighbouring losses of a fine law
_NODES = (48, 512)  # of a rough line
_FADED = -20.0  # logarithm of a transform that no longer matters
_FAR_BELOW = 2.0  # what a table says of log delta where large losses decide
_AMPLIFIED = 12.0  # by how much rounding may be amplified, as a logarithm, where all tilts amplify it much
_ALIKE = 2.0  # directions whose log deltas differ by less
_LESS = 4.0  # how much less the other direction matters, in logarithms
_AROUND = np.linspace(-0.25, 1.25, 13)  # of epsilon: where delta is tabulated


class Points(NamedTuple):
    """A loss law at some points in increasing x, piece by piece: losses, and logarithms of the masses of P around them."""

    x: Array
    loss: Array
    log_mass: Array
    ends: tuple[int, ...]  # where pieces end


def points_of(law: LossLaw, reach: float, width: float = _WIDTH) -> Points:
    """Gregory's rule: good to many digits, as densities are smooth and losses too."""
    inner = [points_within(piece, reach, width) for piece in law.pieces]
    x = np.concatenate(inner)
    counts = [one.size for one in inner]
    means, weights = law.columns(counts)
    exponent = means * (x - 0.5 * means)
    top = exponent.max(axis=0)
    e = np.exp(np.maximum(exponent - top, _FAR))
    p, q, d = (weights * e).sum(axis=1)
    p, q = np.maximum(p, _TINY), np.maximum(q, _TINY)
    ratio = d / q
    loss = np.where(np.abs(ratio) < 0.5, np.log1p(np.maximum(ratio, -0.9)), np.log(p / q))
    widths = np.concatenate([_widths(one, piece) for one, piece in zip(inner, law.pieces, strict=True)])
    log_mass = np.log(np.maximum(widths, _TINY) * p) + top - 0.5 * x * x - _LOG_ROOT
    return Points(x, loss, log_mass, tuple(itertools.accumulate(counts)))


def _widths(x: Array, piece: Piece) -> Array:
    """Gregory's rule, and at open ends what lies beyond, with some of the last cell's mass: it decides at strong tilts."""
    apart = x[1:] - x[:-1]
    width = np.empty_like(x)
    if x.size < 10:
        width[0], width[-1] = 0.5 * apart[0], 0.5 * apart[-1]
        width[1:-1] = 0.5 * (apart[1:] + apart[:-1])
    else:
        width[5:-5] = 0.5 * (apart[5:-4] + apart[4:-5])
        width[:5], width[-5:] = apart[0] * _ENDS, apart[-1] * _ENDS[::-1]
    width[0] += math.isinf(piece.low)
    width[-1] += math.isinf(piece.high)
    return width


def sketch_law(law: LossLaw, points: Points) -> tuple[Array, Array]:
    """Losses and log-masses of one step."""
    loss = np.append(points.loss, [atom.loss for atom in law.atoms])
    logs = np.append(points.log_mass, [math.log(max(atom.p, _TINY)) for atom in law.atoms])
    return loss, logs - math.log(float(np.exp(np.maximum(logs, _FAR)).sum()))


def sketch_discrete(law: Discrete) -> tuple[Array, Array]:
    """Losses and log-masses of a discrete law, some neighbours merged."""
    if law.loss.size < 4 * _MERGED:
        return law.loss, law.log_mass
    first, mass = np.arange(0, law.loss.size, _MERGED), np.exp(np.maximum(law.log_mass, _FAR))
    together = np.add.reduceat(mass, first)
    return np.add.reduceat(mass * law.loss, first) / together, np.log(together)


@dataclass(frozen=True)
class Sketch:
    """One step of each phase as losses and log-masses (rows are padded), steps, and Gaussian releases."""

    loss: Array
    log_mass: Array
    steps: Array
    gaussian: float

    @classmethod
    def of(cls, rows: Sequence[tuple[Array, Array]], steps: Array, gaussian: float) -> Sketch:
        if len(rows) == 1:
            ((loss, log_mass),) = rows
            return cls(loss[None, :], log_mass[None, :], steps, gaussian)
        most = max(loss.size for loss, _ in rows)
        losses, masses = np.zeros((len(rows), most)), np.full((len(rows), most), 2 * _FAR)
        for row, (loss, log_mass) in enumerate(rows):
            losses[row, : loss.size], masses[row, : loss.size] = loss, log_mass
        return cls(losses, masses, steps, gaussian)

    @cached_property
    def _powers(self) -> Array:
        return np.stack([np.ones_like(self.loss), self.loss, self.loss * self.loss], axis=2)

    @cached_property
    def variance(self) -> float:
        weighted = np.exp(np.maximum(self.log_mass, _FAR)) * self.loss
        mean, square = weighted.sum(axis=1), (weighted * self.loss).sum(axis=1)
        return float((square - mean * mean) @ self.steps) + self.gaussian

    @property
    def rows(self) -> int:
        return self.steps.size

    @cached_property
    def total_steps(self) -> float:
        return max(1.0, float(self.steps.sum()))

    def log_mgf(self, c: Array) -> Array:
        """The logarithm of the whole transform, at each tilt."""
        v = c[:, None, None] * self.loss + self.log_mass
        top = v.max(axis=2)
        total = np.exp(np.maximum(v - top[:, :, None], _FAR)).sum(axis=2)
        return np.asarray((np.log(total) + top) @ self.steps + 0.5 * self.gaussian * (c * c + c))

    def moments(self, c: Array) -> tuple[Array, Array, Array]:
        """Value, slope and curvature of the logarithm of the whole transform, at each tilt."""
        v = c[:, None] * self.loss[:, None, :] + self.log_mass[:, None, :]
        top = v.max(axis=2)
        v -= top[:, :, None]
        np.maximum(v, _FAR, out=v)
        sums = np.exp(v, out=v) @ self._powers
        total = sums[:, :, 0]
        mean, square = sums[:, :, 1] / total, sums[:, :, 2] / total
        g, steps = self.gaussian, self.steps
        value, slope = steps @ (np.log(total) + top), steps @ mean
        curvature = np.maximum(steps @ (square - mean * mean), 0.0)
        return value + (0.5 * g) * (c * c + c), slope + g * (c + 0.5), curvature + g

    def tables(self, log_delta: float) -> tuple[Table, Table]:
        """Laplace's approximation in both directions, at tilts around that of a Gaussian sum of the same variance; or far
        weaker ones, where few large losses decide.

        With P and Q exchanged, the transform at c is that at -1 - c.
        """
        tilt = math.sqrt(-2.0 * log_delta / max(self.variance, _TINY))
        tables = self._tables(tilt * _LADDER)
        for _ in range(_WEAKER):
            if not tables[0].log_delta[0] < log_delta:
                break
            tilt *= float(_LADDER[1])
            tables = self._tables(tilt * _LADDER)
        return tables

    def _tables(self, c: Array) -> tuple[Table, Table]:
        value, slope, curvature = self.moments(np.concatenate([c, -1.0 - c, [-1.0]]))
        first, second = 1.0 / c, 1.0 / (c + 1.0)
        about = np.log(first * second) - _LOG_ROOT
        tables = []
        for way, sign, total in ((slice(0, c.size), 1.0, 0.0), (slice(c.size, -1), -1.0, value[-1])):
            epsilon = sign * slope[way] - first - second
            height = value[way] - total - c * epsilon
            bent = curvature[way] + first * first + second * second
            tables.append(Table(c, value[way] - total, epsilon, height + about - 0.5 * np.log(bent), self.total_steps))
        return tables[0], tables[1]


class Table(NamedTuple):
    """At each tilt, the logarithm of the transform, the epsilon whose saddle point it is, and log delta there."""

    c: Array
    log_mgf: Array
    epsilon: Array
    log_delta: Array
    steps: float

    def line(self, epsilon: float, log_delta: float, width: float) -> Proposal:
        """A line for queries near an epsilon."""
        return choose_line(np.append(0.0, self.c), np.append(0.0, self.log_mgf), self.steps, epsilon, log_delta, width)


class RoughLine:
    """One line through the transform of a sketch: delta at any epsilon nearby, without error bounds."""

    def __init__(self, sketch: Sketch, c: float, period: float) -> None:
        v = c * sketch.loss + sketch.log_mass
        top = v.max(axis=1)
        weights = np.exp(np.maximum(v - top[:, None], _FAR))
        total = weights.sum(axis=1)
        weights /= total[:, None]
        centre = (weights * sketch.loss).sum(axis=1)
        w, away = 2.0 * math.pi / period, sketch.loss - centre[:, None]
        for nodes in _NODES:
            u = w * np.arange(nodes)
            log_f = sketch.steps @ np.log(by_powers(away, weights, w, nodes)) - (0.5 * sketch.gaussian) * (u * u)
            alive = nodes - 1 - int(np.argmax((log_f.real > _FADED)[::-1]))  # the first one is not faded
            if alive < nodes - 1:
                break
        self.c, self.u = c, u[: alive + 1]
        self.end = w * (alive + 1) if alive < nodes - 1 else math.inf  # the frequency at which the transform has faded
        z = c + 1j * self.u
        self.f = np.exp(log_f[: self.u.size]) / (z * (z + 1.0)) * (w / math.pi)
        self.f[0] *= 0.5
        self.centre = float(sketch.steps @ centre) + sketch.gaussian * (c + 0.5)
        self.log_scale = float(sketch.steps @ (np.log(total) + top)) + 0.5 * sketch.gaussian * (c * c + c)

    def log_deltas(self, epsilon: Array) -> Array:
        values = (np.exp((-1j) * np.outer(epsilon - self.centre, self.u)) * self.f).real.sum(axis=1)
        return np.asarray(np.log(np.maximum(values, _TINY)) + self.log_scale - self.c * epsilon)

    def shorter(self, line: Proposal) -> Proposal:
        """A line that is left off where the transform has faded; as that may be hard to prove, it counts as half as long at least."""
        faded = max(self.end * line.plan.period / (2.0 * math.pi), 0.5 * line.nodes)
        return line._replace(nodes=min(line.nodes, faded))

    def solve(self, epsilon: float, log_delta: float) -> float:
        """Newton's method for the epsilon of a log delta; NaN if it leads nowhere."""
        for _ in range(6):
            turned = self.f * np.exp((-1j) * ((epsilon - self.centre) * self.u))
            value, slope = float(turned.real.sum()), float(turned.imag @ self.u)
            if not value > 0.0 or not slope < self.c * value:
                return math.nan
            off = math.log(value) + self.log_scale - self.c * epsilon - log_delta
            step = off / (self.c - slope / value)
            epsilon += min(max(step, -3.0 / self.c), 3.0 / self.c)
            if abs(step) < 1e-3 * epsilon:
                return epsilon
        return math.nan


class Guess(NamedTuple):
    """An epsilon at which delta is about the given one, the line to read, and log delta at some epsilons around."""

    epsilon: float
    log_delta: float
    line: Proposal
    epsilons: Array  # increasing
    log_deltas: Array

    def log_weight(self, loss: Array) -> Array:
        """A step of loss l leaves about delta(epsilon - l) to the others, over delta: the logarithm of that."""
        at = np.interp(self.epsilon - loss, self.epsilons, self.log_deltas)
        return np.asarray(np.minimum(at, 0.0) - self.log_delta)


def _line(sketch: Sketch, table: Table, epsilon: float, log_delta: float, width: float) -> Proposal:
    """A line for queries near an epsilon; where the table is too coarse for a short one, from finer tilts."""
    line = table.line(epsilon, log_delta, width)
    return line if line.nodes <= _EASY else _finer_line(sketch, line.plan.c, epsilon, log_delta, width)


def _finer_line(sketch: Sketch, c: float, epsilon: float, log_delta: float, width: float,
                tolerable: float = 0.0) -> Proposal:  # fmt: skip
    tilts = np.append(0.0, c * _FINE)
    return choose_line(tilts, sketch.log_mgf(tilts), sketch.total_steps, epsilon, log_delta, width, tolerable=tolerable)


def guess_at_delta(sketch: Sketch, table: Table, log_delta: float, width: float,
                   regular: float = _REGULAR) -> Guess | None:  # fmt: skip
    """Where epsilon(delta) is likely to be; None where no sketch says. Without `regular` tables it is good to a part in 1,000."""
    if not table.log_delta[-1] < log_delta < table.log_delta[0]:
        return None
    epsilon = float(np.interp(-log_delta, -table.log_delta, table.epsilon))
    if not epsilon > 0.0:
        return None
    line = _line(sketch, table, epsilon, log_delta, width * max(1.0, min(_SMALL / epsilon, _COARSER)))
    # epsilon is nearly linear in the root of -log delta where sums are nearly normal, and then the table says enough
    found = float(np.interp(math.sqrt(-log_delta), np.sqrt(np.maximum(-table.log_delta, 0.0)), table.epsilon))
    if abs(found - epsilon) < regular * epsilon:
        return Guess(found, log_delta, line, table.epsilon, table.log_delta)
    rough = RoughLine(sketch, line.plan.c, line.plan.period)
    found = rough.solve(epsilon, log_delta)
    if not found > 0.0:
        return None
    around = _AROUND * found
    return Guess(found, log_delta, rough.shorter(line), around, rough.log_deltas(around))


def guess_near_epsilon(sketch: Sketch, table: Table, epsilon: float, width: float) -> Guess | None:
    """How large delta(epsilon) is likely to be; None where no sketch says."""
    if not table.epsilon[0] < epsilon < table.epsilon[-1] or not epsilon > 0.0:
        return None
    about = float(np.interp(epsilon, table.epsilon, table.log_delta))
    line = _line(sketch, table, epsilon, about, width)
    around, rough = np.append(_AROUND * epsilon, epsilon), RoughLine(sketch, line.plan.c, line.plan.period)
    log_deltas = rough.log_deltas(around)
    found = float(log_deltas[-1])
    if not math.log(_TINY) < found < 0.0:
        return None
    if about - found > _FAR_BELOW:  # then the line amplifies rounding and aliases too much
        line = _finer_line(sketch, line.plan.c, epsilon, found, width, tolerable=_AMPLIFIED)
    return Guess(epsilon, found, rough.shorter(line), around[:-1], log_deltas[:-1])


def guess_at_epsilon(table: Table, epsilon: float, log_delta: float, width: float, known: Proposal) -> Guess | None:
    """About how large delta(epsilon) is, with a line that shows whether it is at most the given one.

    Where it is nearly that, the line that is `known` to be one for the other direction is one for this, too.
    """
    if not epsilon > table.epsilon[0]:  # further out than the table delta is smaller still
        return None
    found = float(np.interp(epsilon, table.epsilon, table.log_delta))
    line = known if abs(log_delta - found) < _ALIKE else table.line(epsilon, log_delta, width)
    return Guess(epsilon, found, line, table.epsilon, table.log_delta)


def log_needs(points: Points, forward: Guess, reverse: Guess | None) -> Array:
    """How much the squared width of a cell matters between neighbouring points (of the same piece): its mass over its width,
    times the squared slope of the loss, times its weight in the answer, and a little of that for the other direction.
    """
    loss, width = points.loss, np.maximum(points.x[1:] - points.x[:-1], 1e-12)
    middle = 0.5 * (loss[1:] + loss[:-1])
    common = 0.5 * (points.log_mass[1:] + points.log_mass[:-1])
    common += 2.0 * np.log(np.abs(loss[1:] - loss[:-1]) + 1e-150) - 3.0 * np.log(width)
    need = common + forward.log_weight(middle)
    if reverse is not None:
        need = np.maximum(need, common - middle + reverse.log_weight(-middle) - _LESS)
    return np.asarray(need)


def sketched_cells(law: LossLaw, points: Points, log_need: Array, cells: int) -> Cells:
    """Cells fitted to a sketch: `log_need` says for each gap of the points how much a cell's squared width matters."""
    x, between = points.x, [end - 1 for end in points.ends[:-1]]  # pieces
    log_need[between] = -math.inf
    need = np.cbrt(np.exp(np.maximum(log_need - log_need.max(), -14.0))) * np.minimum(np.abs(x[1:] - x[:-1]), 1.0)
    need[between] = 0.0
    count = np.concatenate([[0.0], np.cumsum(need)])
    unit, edges = max(float(count[-1]) / cells, 1e-300), []
    for first, end in zip((0, *points.ends[:-1]), points.ends, strict=True):
        low, width = float(count[first]), float(count[end - 1] - count[first])
        number = 2 + math.ceil(width / unit)
        edges.append(np.interp(low + np.arange(number) * (width / (number - 1)), count[first:end], x[first:end]))
        edges[-1][-1] = x[end - 1]
    return cut(law, edges)
