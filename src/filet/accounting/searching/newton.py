"""Search for epsilon(delta): Newton's method on readings, within what they have shown, halving where it gains little.

What is proven is kept by the bracket; what is known here only says where to look next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..proving.verdict import EpsilonBracket, Evidence, Verdict
from ..proving.view import View
from .budget import Budget
from .tilts import propose_evidence

_ROUNDS = 20  # of building lines; most searches take one or two
_SETTLING = 5  # readings on one set of lines, from a good guess
_READINGS = 12  # on one set of lines
_SHARE = 0.03  # of a bracket that is wide already
_PATIENCE = 6  # readings after which a search must have narrowed what it knows
_MORE = 3  # sets of lines once the answer is as near to zero as is promised
_COSTLY_NODES = 1_000  # lines with more take some milliseconds, and longer the nearer to zero
RELATIVE, ABSOLUTE = 1e-3, 1e-4  # the promised width of a bracket of epsilon
_ENOUGH = 0.8  # of it
NEAR_ZERO = 9e-5  # as near to zero as is promised


def _promised(upper: float) -> float:
    """The width of a bracket of epsilon that is promised."""
    return max(RELATIVE * upper, ABSOLUTE)


def tolerance(epsilon: float) -> float:
    """Steps that are not worth taking."""
    return 1e-7 * max(epsilon, 0.1)


@dataclass
class Known:
    """What readings have shown of an answer: delta is above its goal at `low`, and not at `high`."""

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
        if abs(step) <= tolerance(epsilon):
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


def settle(bracket: EpsilonBracket, evidence: Evidence, epsilon: float) -> tuple[float, Verdict] | None:
    """Newton's method from an epsilon that is close already, on one set of lines: the last one proven, and what was seen.

    It is the root of -log delta that is nearly linear in epsilon.
    """
    goal = -float(bracket.log_delta)
    for _ in range(_SETTLING):
        verdict = bracket.read(evidence, epsilon)
        ratio = verdict.bound
        if not ratio > 0.0 or not verdict.slope < 0.0 or not (here := goal - math.log(ratio)) > 0.0:
            return None
        step = 2.0 * (here - math.sqrt(goal * here)) * ratio / verdict.slope
        least = tolerance(epsilon)
        if evidence.above:
            if abs(step) <= 5.0 * least and ratio <= 1.0:
                return epsilon, verdict
            epsilon += step + least
        else:  # what is a small part of the bracket is not worth a reading
            part = _SHARE * (bracket.upper - epsilon) if bracket.upper < math.inf else 0.0
            if abs(step) <= max(5.0 * least, part) and ratio >= 1.0:
                return epsilon, verdict
            epsilon += step - max(least, 0.3 * _SHARE * abs(step))
        if not epsilon > 0.0 or abs(step) * evidence.c > 2.0:
            return None
    return None


def narrow(
    bracket: EpsilonBracket, view: View, start: float, fineness: float, budget: Budget, first: Evidence | None = None
) -> tuple[float, Evidence]:
    """Narrow a bracket by readings of one view; where the search ended (NaN if it read nothing), and its last lines.

    `first` are lines to begin with, if somebody has them.
    """
    epsilon = max(start, 0.0)
    if not view.resolved:
        return math.nan, propose_evidence(view, epsilon, bracket.log_delta, fineness)
    known, seen, more, lowered = Known(), math.nan, _MORE, view.above
    for _ in range(_ROUNDS):
        built = epsilon
        evidence = first or propose_evidence(view, built, bracket.log_delta, fineness)
        budget.spend(evidence.nodes)
        first = None
        epsilon, seen, done = _on_lines(bracket, evidence, known, epsilon, seen)
        if epsilon == built and math.isnan(seen) and not lowered and bracket.upper < math.inf:
            # nothing is proven where delta falls as from a cliff: as far below as is promised it may be
            epsilon, lowered = max(bracket.upper - _ENOUGH * _promised(bracket.upper), 0.0), True
            continue
        done = done or (lowered and not view.above and bracket.lower > 0.0)
        if done or epsilon == built or budget.spent or not math.isfinite(epsilon):
            break
        more -= view.above and bracket.upper <= NEAR_ZERO
        if more < 0:
            break
    return seen, evidence


def _on_lines(bracket: EpsilonBracket, evidence: Evidence, known: Known, epsilon: float,
              seen: float) -> tuple[float, float, bool]:  # fmt: skip
    """Read one set of lines until it answers or the next epsilon is too far away: that epsilon, the last good, done."""
    built, above, settled = epsilon, evidence.above, False
    for _ in range(_READINGS):
        verdict = bracket.read(evidence, epsilon)
        ratio = verdict.bound
        if not ratio > 0.0 or (verdict.error > 0.01 * ratio and epsilon != built):  # too far away for these lines
            break
        good = ratio <= 1.0 if above else ratio >= 1.0
        seen = epsilon if good or math.isnan(seen) else seen
        if ratio <= 1.0 and (epsilon == 0.0 or (above and epsilon <= NEAR_ZERO and evidence.nodes > _COSTLY_NODES)):
            return epsilon, epsilon, True
        step = known.step(epsilon, ratio, verdict.slope, 4.0 / evidence.c)
        if abs(step) <= tolerance(epsilon):
            if good:
                return epsilon, epsilon, True
            step += 0.2 * tolerance(epsilon) * (1.0 if above else -1.0)
            settled = True
        # Lines close to zero need many nodes: approach it in strides.
        epsilon = max(0.1 * epsilon if epsilon > 1e-4 else 0.0, epsilon + step)
        if abs(epsilon - built) * evidence.c > 2.0 and not settled:
            break
    return epsilon, seen, False
