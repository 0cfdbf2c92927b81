"""Certified brackets of delta(epsilon) and epsilon(delta) for a composed run, in one direction.

`Run` holds the loss laws of the phases. A query discretises them from above and from below, finely enough for the
answer, inverts both (`inversion`), and returns an interval that contains the truth. If the interval is too wide the
cells are refined; if it stays too wide an error is raised instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import NotCertifiedError
from ..proving.cells import Cells, Discrete, Focus, discretise_above, discretise_below, equal_cells, fitted_cells
from ..proving.composition import STEP_ERROR, Composition, Phase
from ..proving.line import Line, log_peak, saddle
from ..proving.loss_law import Array, LossLaw

_REFINEMENTS = 5
_ROUNDS = 20  # of building lines, in a search for epsilon; most searches take one or two
_SEARCH_NODES = 2_500_000  # on all lines of a search, a second or two
_PATIENCE = 6  # readings after which a search must have narrowed what it knows
_MANY_NODES = 50_000  # lines with more take a tenth of a second
_CELLS = 800
_TABLE = 16  # points at which the weight of a loss is tabulated
_LOWEST_LOG_DELTA = -640.0
_NEARLY_GAUSSIAN = 0.08  # sums with a smaller absolute skewness count as such
_SMOOTHING = 1e-5  # share of epsilon that smoothing may cost
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4  # the promised width of an epsilon bracket
_DELTA = 0.01  # the relative width up to which a delta bracket is refined


@dataclass(frozen=True)
class Interval:
    lower: float
    upper: float


def wide(bracket: Interval, share: float = 1.0) -> bool:
    """Whether an epsilon bracket is wider than (a share of) what filet promises."""
    if bracket.upper == math.inf:
        return bracket.lower < math.inf
    return not bracket.upper - bracket.lower <= share * max(_RELATIVE * bracket.upper, _ABSOLUTE)


def contradiction(what: str, lower: float, upper: float, at: str) -> NotCertifiedError:
    """Bounds that cross prove a defect: nothing may be returned."""
    return NotCertifiedError(
        f"the bounds {lower!r} and {upper!r} of {what} at {at} contradict each other; please report these parameters"
    )


def _laplace(c: float, height: float, curvature: float) -> float:
    """Laplace's approximation of log delta: `height` is log mgf(c) - c epsilon at the saddle point c."""
    curvature += c**-2 + (c + 1.0) ** -2
    return height - math.log(c * (c + 1.0)) - 0.5 * math.log(2 * math.pi * curvature)


class Side:
    """The run seen from above or from below: one composition of discrete losses."""

    def __init__(self, laws: Sequence[tuple[Discrete, int]], gaussian: float, above: bool) -> None:
        self.phases = [Phase(law, steps) for law, steps in laws]
        self.gaussian, self.above = gaussian, above
        self.whole = Composition(self.phases, gaussian)
        # Chance that some loss is infinite, by the union bound.
        self.infinite = sum(steps * law.infinite for law, steps in laws) if above else 0.0
        # What rounded masses can do to the total loss where losses are tiny: to its mean (rounded masses telescope, so
        # an ulp of one a step) and, step by step, at random. Everything that is read off allows for it.
        self.slack = sum(law.difference * (4e-16 * steps + 1e-12 * math.sqrt(steps)) for law, steps in laws)
        # Relative errors of the binomial weights, and with the rounding of masses those of a transform at a real point.
        self.weight_error = max((law.weight_error for law, _ in laws), default=0.0)
        self.rounding = sum(steps * (1e-12 + law.weight_error) for law, steps in laws)
        # Losses that are nearly all rounding prove nothing from below.
        self.resolved = above or any(float(law.loss.max()) > 1e-9 * law.difference for law, _ in laws)
        # No finite total loss is larger.
        largest = sum(steps * max(float(law.loss.max()), 0.0) for law, steps in laws)
        self.largest = math.inf if gaussian else largest * (1 + 1e-12 + self.weight_error) + self.slack

    def guess(self, log_delta: float) -> float:
        """A starting point for epsilon(delta): saddle-point approximation, or one single large loss."""
        jump = self._single_jump(log_delta)
        return jump if self._one_jump_decides(jump, log_delta) else self.saddle_point(log_delta)

    def _one_jump_decides(self, epsilon: float, log_delta: float) -> bool:
        """Whether epsilon is exceeded by one large loss rather than by several or by the bulk (a rule of thumb)."""
        if not epsilon > 0.0:
            return False
        square = sum(
            p.steps * float(np.exp(p.law.log_mass) @ np.square(np.minimum(p.law.loss, epsilon / 3)))
            for p in self.phases
        )
        bulk = math.sqrt(max(0.0, -2.0 * log_delta) * (square + self.gaussian))
        return bulk < epsilon and 0.5 * self._chance_above(epsilon / 2) ** 2 < self._chance_above(epsilon)

    def _chance_above(self, loss: float) -> float:
        """The expected number of losses above the given one."""
        return sum(p.steps * float(np.exp(p.law.log_mass[p.law.loss > loss]).sum()) for p in self.phases)

    def _single_jump(self, log_delta: float) -> float:
        """The epsilon at which the sum of the steps' own deltas is delta."""
        loss = np.concatenate([p.law.loss for p in self.phases])
        log_mass = np.concatenate([p.law.log_mass + math.log(p.steps) for p in self.phases])
        order = np.argsort(-loss)
        loss, log_mass = loss[order], log_mass[order]
        p = np.cumsum(np.exp(log_mass))
        q = np.logaddexp.accumulate(log_mass - loss)
        with np.errstate(over="ignore"):
            delta = p - np.exp(np.minimum(loss + q, 700.0))
        at = int(np.argmax(delta >= math.exp(log_delta)))
        return float(loss[at]) if delta[at] >= math.exp(log_delta) else -math.inf

    def saddle_point(self, log_delta: float) -> float:
        def approximate(log_c: float) -> tuple[float, float]:
            c = math.exp(log_c)
            value, slope, curvature = self.whole.moments(c)
            epsilon = slope - 1.0 / c - 1.0 / (c + 1.0)
            return epsilon, _laplace(c, value - c * epsilon, curvature)

        low, high, middle, step = -45.0, 45.0, 0.0, 1.5
        sign = approximate(middle)[1] > log_delta
        while low < middle < high:
            following = middle + (step if sign else -step)
            new = approximate(following)[1] > log_delta
            if new != sign:
                low, high = min(middle, following), max(middle, following)
                break
            middle, step = following, step * 1.6
        for _ in range(8):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if approximate(middle)[1] > log_delta else (low, middle)
        return approximate(0.5 * (low + high))[0]

    def estimate(self, epsilon: float) -> float:
        """log delta(epsilon), roughly: the larger of the saddle-point and the single-jump approximation."""
        c = saddle(self.whole, epsilon)
        value, _, curvature = self.whole.moments(c)
        jump = float(self.separate(np.array([epsilon]))[0])
        # where the bulk cannot reach epsilon the saddle point is far too high
        if 0.0 < jump < 1.0 and self._one_jump_decides(epsilon, math.log(jump)):
            return math.log(jump)
        return _laplace(c, value - c * epsilon, curvature)

    def bulk_focus(self, epsilon: float, log_delta: float, cells: int) -> Focus | None:
        """Where cells should be small if many small losses, nearly a Gaussian sum, make up epsilon; None otherwise."""
        if not (epsilon > 0.01 and self._chance_above(epsilon / 4) < math.exp(log_delta)):
            return None
        c = saddle(self.whole, epsilon)
        variance, third = self.gaussian, 0.0
        for phase, one in zip(self.phases, self.whole.tilted(c), strict=True):
            variance += phase.steps * one.deviation**2
            third += phase.steps * float(one.weights @ one.distance**3)
        if third > _NEARLY_GAUSSIAN * variance**1.5:
            return None
        return Focus(cells, np.array([-epsilon, -log_delta / c]), np.array([log_delta - c * epsilon, 0.0]))

    def lines(self, epsilon: float, log_delta: float, fineness: float) -> Sampled:
        """Lines through the transform for queries near epsilon; with a cap on the losses where no tilt would do."""
        tolerable = math.log(1e-4 / (self.whole.total_steps * STEP_ERROR))
        shift = (_SMOOTHING if self.above else 3 * _SMOOTHING) / fineness**2
        whole = Line(self.whole, epsilon, log_delta, shift)
        if whole.log_amplitude <= tolerable or epsilon <= 0:
            return Sampled(self, [whole.sample()], 0.0)
        best: tuple[float, Line, Composition, float] | None = None
        for stretch in (2.0, 1.3, 1.15, 1.07, 1.03):
            cap = epsilon * stretch
            chance = self._chance_above(cap)
            if chance == 0.0 or 0.5 * chance**2 > 1e-3 * math.exp(log_delta):
                continue
            line = Line(Composition(self.phases, self.gaussian, cap), epsilon, log_delta, shift)
            if best is None or line.log_amplitude < best[0]:
                best = line.log_amplitude, line, Composition(self.phases, self.gaussian, cap, jump=True), chance
            if line.log_amplitude <= tolerable:
                break
        if best is None or best[0] > whole.log_amplitude:
            return Sampled(self, [whole.sample()], 0.0)
        _, line, jumping, chance = best
        jump_line = Line(jumping, epsilon, log_delta, shift)
        return Sampled(self, [line.sample(), jump_line.sample()], 0.5 * chance**2 * (1 + 1e-9))

    def separate(self, epsilon: Array) -> Array:
        """The sum of the steps' own deltas at epsilon, an upper bound of the composed delta(steps * epsilon)."""
        total = np.full(epsilon.shape, self.infinite + math.erf(math.sqrt(self.gaussian / 8.0)))
        for phase in self.phases:
            # losses may be off by that much
            least = epsilon[:, None] * (1 - self.weight_error) - 1e-12 * phase.law.difference
            gain = -np.expm1(np.minimum(least - phase.law.loss[None, :], 0.0))
            total += phase.steps * (gain @ np.exp(phase.law.log_mass))
        return np.asarray(total * (1 + 1e-9 + 2 * self.weight_error))

    def invert_separate(self, delta: float) -> float:
        """The epsilon >= 0 at which `separate` falls to delta."""
        loss = np.concatenate([p.law.loss for p in self.phases])
        log_mass = np.concatenate([p.law.log_mass + math.log(p.steps) for p in self.phases])
        order = np.argsort(-loss)
        loss, mass = loss[order], np.exp(log_mass[order])
        # Between neighbouring losses the sum is p - e^epsilon q; count e^epsilon q from the lower one.
        p = self.infinite + np.cumsum(mass)
        gap = np.append(-np.diff(loss), 0.0)
        q, running = np.empty_like(loss), 0.0
        for i in range(loss.size):
            running += mass[i]
            q[i] = running
            running *= math.exp(-gap[i])
        reached = np.nonzero(p - q * np.exp(-gap) >= delta)[0]  # delta at the next lower loss
        if reached.size == 0:
            return 0.0
        i = int(reached[0])
        if self.infinite >= delta:
            return math.inf
        spare = (p[i] - delta) / q[i]
        return max(0.0, float(loss[i]) + (math.log(spare) if spare > 0 else -float(gap[i])))

    def basic(self, delta: float) -> float:
        """Upper bound of epsilon(delta) by basic composition, looked for below 1e-4 only: epsilons and deltas add up."""
        if self.gaussian:
            return math.inf
        goals = _ABSOLUTE * 2.0 ** -np.arange(1.0, 14.0)
        proven = self.separate(goals / self.whole.total_steps) <= delta
        return float(goals[proven].min()) if proven.any() else math.inf

    def chernoff_delta(self, epsilon: float) -> float:
        """A crude but certain upper bound of delta(epsilon)."""
        c = 2.0 ** np.arange(-45.0, 45.0, 0.5)
        least = epsilon * (1 - 1e-12 - self.weight_error) - self.slack
        log_delta = float((self.whole.log_mgf(c) + log_peak(c) - c * least).min())
        return min(1.0, math.exp(min(0.0, log_delta + self.rounding)) + self.infinite)

    def floor_delta(self, epsilon: float) -> float:
        """A crude but certain lower bound of delta(epsilon) where it is nearly one, from below: few losses are small."""
        if not self.resolved or self.rounding > 1e-5:
            return 0.0
        spare = 7.0  # losses above epsilon + spare count with 1 - e^-spare or more
        c = 2.0 ** np.arange(-45.0, 45.0, 0.5)
        most = (epsilon + spare) * (1 + 1e-12 + self.weight_error) + self.slack
        small = float((self.whole.log_mgf(-c) + c * most).min()) + self.rounding
        mass = float(self.whole.log_mgf(np.zeros(1))[0]) - self.rounding
        return max(0.0, (math.exp(mass) - math.exp(min(small, 0.0))) * -math.expm1(-spare))

    def chernoff(self, log_delta: float) -> float:
        """A crude but certain upper bound of epsilon(delta)."""
        spare = math.exp(log_delta) - self.infinite
        if spare <= 0:
            return math.inf
        c = 2.0 ** np.arange(-45.0, 45.0, 0.5)
        log_mgf = self.whole.log_mgf(c) + self.rounding
        bound = float(((log_mgf + log_peak(c) - math.log(spare)) / c).min())
        return max(0.0, bound * (1 + 1e-12 + self.weight_error)) + self.slack


class Sampled:
    """Lines that add up to the composed delta, and the part that no line covers."""

    def __init__(self, side: Side, lines: list[Line], uncovered: float) -> None:
        self.side, self._lines, self.uncovered = side, lines, uncovered
        self.c = max(line.c for line in lines)
        self.nodes = max(line.u.size for line in lines)
        self.costly = self.nodes > _MANY_NODES

    def focus(self, epsilon: float, cells: int) -> Focus:
        """A step of loss l leaves about delta(epsilon - l) to the other steps: that is its weight."""
        loss = np.concatenate([np.linspace(-0.25, 1.0, _TABLE) * epsilon, epsilon + np.array([0.1, 1.0, 30.0])])
        parts = [line.log_values(epsilon - loss[:_TABLE]) for line in self._lines]
        log_weight = np.minimum(np.max(parts, axis=0), 0.0)
        known = np.isfinite(log_weight)
        if not known.any():
            return Focus(cells, np.array([0.0, 1.0]), np.zeros(2))
        tail = float(log_weight[known][-1]) - np.array([0.1, 1.0, 30.0])
        return Focus(
            cells,
            np.concatenate([loss[:_TABLE][known], loss[_TABLE:]]),
            np.concatenate([log_weight[known], tail]),
        )

    def ratio(self, epsilon: float, log_delta: float) -> tuple[float, float, float]:
        """Certified bound of delta(epsilon) over the given delta; its slope; the share of it that is error."""
        above = self.side.above
        rest = (self.side.infinite + self.uncovered if above else 0.0) / math.exp(log_delta)
        bound, slope, error = rest, 0.0, rest
        for line in self._lines:
            # Above: the profile is convex in e^epsilon, so a random shift with mean factor 1 can only raise it.
            # Below: what smoothing added is bounded and taken off (`excess`), or the whole shift is.
            e = epsilon - line.drift if above else epsilon if line.curved else epsilon + line.s
            e += -self.side.slack if above else self.side.slack
            reading = line.read(e)
            log_scale = line.log_unit(e) - log_delta
            if log_scale > 700.0:
                return math.nan, math.nan, math.inf
            scale = math.exp(log_scale)
            off = reading.error if above else -reading.error - reading.alias - reading.excess
            bound += scale * (reading.value + off)
            slope += scale * reading.slope
            error += scale * (reading.error + reading.alias)
        if not math.isfinite(bound):
            return math.nan, math.nan, math.inf
        return bound, slope, error


def _positive(value: float, otherwise: float) -> float:
    """The value if it is a positive number, else the safe alternative (NaN must never read as zero)."""
    return value if value > 0.0 else otherwise


def _tolerance(epsilon: float) -> float:
    """Steps that are not worth taking."""
    return 1e-7 * max(epsilon, 0.1)


@dataclass
class _Known:
    """What is known of an answer that is looked for: delta is above its goal at `low`, and not at `high`."""

    low: float = -math.inf
    high: float = math.inf
    tangent: float = math.nan
    readings: int = 0
    width: float = math.inf  # when last compared

    def step(self, epsilon: float, ratio: float, slope: float, longest: float) -> float:
        """The way to the next epsilon to try, from a reading: Newton's in log delta, within what is known."""
        flat = slope >= 0.0  # but for rounding
        if ratio > 1.0:  # delta is convex, so its tangent meets the goal on this side of the answer
            self.low = max(self.low, epsilon)
            self.tangent = math.nan if flat else epsilon - (ratio - 1.0) / slope
        else:
            self.high = min(self.high, epsilon)
        step = math.copysign(math.inf, ratio - 1.0) if flat else -math.log(ratio) * ratio / slope
        step = min(max(step, -longest), longest)
        if abs(step) <= _tolerance(epsilon):
            return step
        middle, width, stuck = 0.5 * (self.low + self.high), self.high - self.low, False
        self.readings += 1
        if self.readings % _PATIENCE == 0:
            stuck, self.width = width > 0.1 * self.width, width  # delta may be flat over a long stretch
        if stuck:
            return middle - epsilon
        if width > 0.0 and not self.low < epsilon + step < self.high:  # delta may have a kink
            return (self.tangent if self.low < self.tangent < self.high else middle) - epsilon
        return step


def solve(side: Side, log_delta: float, start: float, fineness: float) -> tuple[float, Sampled]:
    """The smallest epsilon that is certified (above), or the largest that is refuted (below); NaN if neither is found.

    Also the last lines that were sampled. The answer is moved outwards by a part in 1e11, far beyond its own rounding.
    """

    def outward(epsilon: float) -> float:
        return epsilon * (1 + 1e-11 if side.above else 1 - 1e-11)

    if not side.resolved:
        return 0.0, side.lines(max(start, 0.0), log_delta, fineness)
    epsilon = max(start, 0.0)
    best, known, nodes = math.nan, _Known(), 0
    for _ in range(_ROUNDS):
        built = epsilon
        sampled = side.lines(built, log_delta, fineness)
        nodes += sampled.nodes
        settled = False
        for _ in range(12):
            ratio, slope, error = sampled.ratio(epsilon, log_delta)
            if not ratio > 0.0 or (error > 0.01 * ratio and epsilon != built):  # too far away for these lines
                break
            good = ratio <= 1.0 if side.above else ratio >= 1.0
            if good and (math.isnan(best) or (epsilon < best) == side.above):
                best = epsilon
            if epsilon == 0.0 and ratio <= 1.0:
                return 0.0, sampled
            if good and side.above and epsilon <= 0.9 * _ABSOLUTE and sampled.costly:  # as near to zero as is promised
                return outward(epsilon), sampled
            step = known.step(epsilon, ratio, slope, 4.0 / sampled.c)
            if abs(step) <= _tolerance(epsilon):
                if good:
                    return outward(epsilon), sampled
                step += 0.2 * _tolerance(epsilon) * (1.0 if side.above else -1.0)
                settled = True
            # Lines close to zero need many nodes: approach it in strides.
            epsilon = max(0.1 * epsilon if epsilon > _ABSOLUTE else 0.0, epsilon + step)
            if abs(epsilon - built) * sampled.c > 2.0 and not settled:
                break
        if epsilon == built or nodes > _SEARCH_NODES:
            break
    return outward(best) if best == best else best, sampled


class Run:
    """Phases of loss laws with their steps, and Gaussian losses of total squared shift `gaussian`, in one direction."""

    def __init__(self, laws: Sequence[tuple[LossLaw, int]], gaussian: float = 0.0, mirror: Run | None = None) -> None:
        """`mirror` is the same run with P and Q exchanged, which may have looked at the laws already."""
        self.laws = [law for law, steps in laws if steps > 0]
        self.counts = [steps for _, steps in laws if steps > 0]
        self.gaussian = gaussian
        self.steps = sum(self.counts)
        # Sums of few discrete losses are coarse, so few steps take finer cells.
        self.cells = _CELLS * (4 if self.steps <= 4 else 2 if self.steps <= 30 else 1)
        self._mirror = mirror
        self._looked: tuple[float, list[Cells]] = math.nan, []

    def reversed(self) -> Run:
        """The run with P and Q exchanged."""
        laws = [(law.reversed(), steps) for law, steps in zip(self.laws, self.counts, strict=True)]
        return Run(laws, self.gaussian, self)

    def _look(self, reach: float) -> list[Cells]:
        """The laws in equal cells; the last look is kept (and replaced as a whole: threads may share a run)."""
        known, cells = self._looked
        if known == reach:
            return cells
        known, cells = self._mirror._looked if self._mirror else (math.nan, [])
        if known == reach:
            cells = [one.reversed() for one in cells]
        else:
            cells = [equal_cells(law, reach, 0.1) for law in self.laws]
        self._looked = reach, cells
        return cells

    def above(self, cells: list[Cells]) -> Side:
        laws = [(discretise_above(one), steps) for one, steps in zip(cells, self.counts, strict=True)]
        return Side(laws, self.gaussian, True)

    def below(self, cells: list[Cells]) -> Side:
        laws = [(discretise_below(one), steps) for one, steps in zip(cells, self.counts, strict=True)]
        return Side(laws, self.gaussian, False)

    def _reach(self, log_delta: float) -> float:
        """Beyond this many standard deviations the losses of all steps weigh less than e^-10 delta."""
        return math.sqrt(2.0 * (math.log(self.steps) - log_delta + 10.0))

    def delta(self, epsilon: float) -> Interval:
        """Bracket of delta(epsilon)."""
        log_delta, first = -25.0, self.above(self._look(self._reach(-25.0)))
        for _ in range(4):  # find the size of the answer, and how far out the losses matter
            previous, log_delta = log_delta, min(-1e-3, max(first.estimate(epsilon), _LOWEST_LOG_DELTA))
            look = self._look(self._reach(log_delta))
            first = self.above(look)
            if abs(log_delta - previous) < 2.0:
                break
        crude = self._crude_delta(epsilon, log_delta, look, first)
        if crude.upper - crude.lower <= 0.1 * _DELTA * crude.upper:
            return crude
        sampled = first.lines(epsilon, log_delta, 1.0)
        scale = math.exp(log_delta)
        lower, upper = crude.lower, min(crude.upper, _positive(sampled.ratio(epsilon, log_delta)[0], math.inf) * scale)
        for level in range(2):
            focus = sampled.focus(epsilon, self.cells * 2**level)
            cells = [fitted_cells(one, focus) for one in look]
            sampled = self.above(cells).lines(epsilon, log_delta, 2.0**level)
            upper = min(upper, _positive(sampled.ratio(epsilon, log_delta)[0], math.inf) * scale)
            below = self.below(cells)
            if below.resolved:
                ratio = below.lines(epsilon, log_delta, 2.0**level).ratio(epsilon, log_delta)[0]
                lower = max(lower, _positive(ratio, 0.0) * scale)
            if upper - lower <= _DELTA * upper:
                break
        if lower > upper:
            raise contradiction("delta", lower, upper, f"epsilon={epsilon!r}")
        return Interval(lower, upper)

    def quick_delta(self, epsilon: float) -> float:
        """An upper bound of delta(epsilon) from one coarse look."""
        look = self._look(self._reach(-25.0))
        first = self.above(look)
        log_delta = min(-1e-3, max(first.estimate(epsilon), _LOWEST_LOG_DELTA))
        crude = self._crude_delta(epsilon, log_delta, look, first)
        if crude.upper - crude.lower <= 0.1 * _DELTA * crude.upper:
            return crude.upper
        ratio = first.lines(epsilon, log_delta, 1.0).ratio(epsilon, log_delta)[0]
        return min(crude.upper, _positive(ratio, math.inf) * math.exp(log_delta))

    def _crude_delta(self, epsilon: float, log_delta: float, look: list[Cells], first: Side) -> Interval:
        """Bracket of delta(epsilon) without lines; narrow where delta is nearly one, or epsilon 0 and hits are rare."""
        lower = self.below(look).floor_delta(epsilon) if log_delta > -0.5 else 0.0
        own = float(first.separate(np.array([epsilon / self.steps]))[0])
        return Interval(lower, min(first.chernoff_delta(epsilon), own))

    def one_step(self, delta: float) -> Interval:
        """Bracket of epsilon(delta) for a run of one step, straight from the discrete laws."""
        reach = self._reach(math.log(delta))
        cells = [equal_cells(law, reach, 0.05) for law in self.laws]
        return Interval(self.below(cells).invert_separate(delta), self.above(cells).invert_separate(delta))

    def at_most(self, epsilon: float, delta: float) -> bool:
        """Whether epsilon(delta) <= epsilon is proven by a quick look; False means "not known"."""
        log_delta = math.log(delta)
        first = self.above(self._look(self._reach(log_delta)))
        if epsilon >= first.largest and first.infinite <= delta:
            return True
        if first.estimate(epsilon) > log_delta + 3.0:  # far from it, where lines may take long
            return False
        lines = first.lines(epsilon, log_delta, 1.0)
        return lines.ratio(epsilon, log_delta)[0] <= 1.0

    def epsilon(self, delta: float) -> Interval:
        """Bracket of epsilon(delta)."""
        log_delta = math.log(delta)
        reach = self._reach(log_delta)
        look = self._look(reach)
        first = self.above(look)
        if first.separate(np.zeros(1))[0] <= delta:
            return Interval(0.0, 0.0)
        if first.infinite >= delta:  # masses this small are not resolved, whatever the cells
            return Interval(0.0, math.inf)
        tiny = first.basic(delta)
        if tiny <= 0.5 * _ABSOLUTE:
            return Interval(0.0, tiny)
        guess = first.guess(log_delta)
        best = Interval(0.0, math.inf)
        focus = first.bulk_focus(guess, log_delta, self.cells)
        if focus is not None:
            best, sampled = self._narrow(best, [fitted_cells(one, focus) for one in look], log_delta, guess, 1.0)
            if not wide(best, 0.9):
                return best
        epsilon, sampled = solve(first, log_delta, guess, 1.0)
        if math.isnan(epsilon):
            guess = first.saddle_point(log_delta)
            epsilon, sampled = solve(first, log_delta, guess, 1.0)
        if epsilon == 0.0:
            return Interval(0.0, 0.0)
        upper = epsilon if math.isfinite(epsilon) else first.chernoff(log_delta)
        best = Interval(best.lower, min(best.upper, upper))
        if best.upper <= 0.9 * _ABSOLUTE:
            return best
        for level in range(_REFINEMENTS):
            start = best.upper if math.isfinite(best.upper) else guess
            focus = sampled.focus(start, self.cells * 2**level)
            cells = [fitted_cells(one, focus) for one in look]
            known = best
            best, sampled = self._narrow(best, cells, log_delta, start, 2.0**level)
            if not wide(best, 0.9):
                return best
            if (
                level
                and sampled.nodes > 0.1 * _SEARCH_NODES
                and best.upper - best.lower > 0.9 * (known.upper - known.lower)
            ):
                break  # more of the same would take long, and help as little
        return self._bisect(best, log_delta, reach)

    def _narrow(self, best: Interval, cells: list[Cells], log_delta: float, start: float,
                fineness: float) -> tuple[Interval, Sampled]:  # fmt: skip
        """The bracket of epsilon, narrowed by a look from above and from below on the given cells."""
        upper, sampled = solve(self.above(cells), log_delta, start, fineness)
        if upper == 0.0:
            return Interval(0.0, 0.0), sampled
        lower, _ = solve(self.below(cells), log_delta, min(start, upper) if upper == upper else start, fineness)
        best = Interval(
            max(best.lower, lower if lower == lower else 0.0),
            min(best.upper, upper if upper == upper else math.inf),
        )
        if best.lower > best.upper:
            raise contradiction("epsilon", best.lower, best.upper, f"log delta={log_delta!r}")
        return best, sampled

    def _bisect(self, bracket: Interval, log_delta: float, reach: float) -> Interval:
        """Narrow a bracket where Newton's method failed (delta may be flat over long stretches of epsilon)."""
        low, high = bracket.lower, bracket.upper
        if not math.isfinite(high):
            return bracket
        cells = [equal_cells(law, reach, 0.05) for law in self.laws]
        above, below = self.above(cells), self.below(cells)
        for _ in range(30):
            middle = 0.5 * (low + high)
            if not wide(Interval(low, high), 0.9) or middle in (low, high):
                break
            if above.lines(middle, log_delta, 2.0).ratio(middle, log_delta)[0] <= 1.0:
                high = middle
            elif below.lines(middle, log_delta, 2.0).ratio(middle, log_delta)[0] >= 1.0:
                low = middle
            else:
                break
        return Interval(low, high)
