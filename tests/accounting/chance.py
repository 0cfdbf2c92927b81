"""Random proposals in place of every guess of the search: what `test_truth` draws, and where it puts it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from filet import Bounds
from filet.accounting.proving import composition as composition_module
from filet.accounting.proving import line as line_module
from filet.accounting.proving.cells import Cells, cut
from filet.accounting.proving.lending import Step
from filet.accounting.proving.line import LinePlan
from filet.accounting.proving.loss_law import LossLaw, Piece
from filet.accounting.proving.verdict import EpsilonBracket, Evidence, Verdict
from filet.accounting.proving.view import View
from filet.accounting.searching import (
    crowds,
    exact,
    grids,
    lending_crowds,
    lending_looks,
    newton,
    refinement,
    straight,
    stretches,
    tables,
)
from filet.accounting.searching.crossings import crossings
from filet.accounting.searching.grids import Focus
from filet.accounting.searching.lending_crowds import Model
from filet.accounting.searching.lending_looks import Seen
from filet.accounting.searching.lending_shares import KNOTS, Shares
from filet.accounting.searching.refinement import Direction, Part
from filet.accounting.searching.sketches import Guess
from filet.accounting.searching.tilts import Proposal


@dataclass
class Chance:
    """Random proposals in place of every guess; counts what they led to."""

    rng: np.random.Generator
    about: float = 1.0  # an epsilon that scouts come near, now and then
    proposals: int = 0
    proofs: int = 0
    violations: list[object] = field(default_factory=list)

    def scale(self, low: float, high: float) -> float:
        """A number between powers of ten."""
        return float(10.0 ** self.rng.uniform(low, high))

    def edges(self, law: LossLaw) -> Cells:
        """Cells anywhere: in the bulk, in the tails, next to each other or far apart."""
        parts = []
        for piece in law.pieces:
            count = int(self.rng.integers(2, 150))
            middle = self.rng.choice(piece.means, size=count)
            if self.rng.random() < 0.7:  # far enough out for small deltas
                middle = np.linspace(min(piece.means) - 12.0, max(piece.means) + 12.0, count)
            parts.append(middle + self.scale(-1, 0.5) * self.rng.normal(size=count))
        return cut(law, parts)

    def plan(self, view: View | None, epsilon: float) -> LinePlan:
        """Half of the plans are drawn blindly; the others have a tilt on the scale of epsilon, so that some prove much."""
        blind = self.rng.random() < 0.5
        c = self.scale(-3, 3) if blind else float(self.rng.uniform(0.2, 40.0) / max(epsilon, 1e-3))
        tilts = self.scale(-3, 3) if blind else c
        ladder = np.concatenate([[0.0], tilts * 10.0 ** self.rng.uniform(-1, 1, size=int(self.rng.integers(1, 20)))])
        shift = self.scale(-6, 0) if blind else self.scale(-3, 0) / c
        return LinePlan(c, shift, float(self.rng.uniform(1.0, 40.0)), self.scale(-1, 4 if blind else 2), ladder)

    def evidence(self, view: View, epsilon: float, *_: object, **__: object) -> Evidence:
        self.proposals += 1
        if self.rng.random() < 0.6:
            return Evidence(view, [self.plan(view, epsilon)])
        highest = max(float(block.loss.max()) for block in view.blocks)
        caps = [float(self.rng.choice([epsilon, highest, 1.0])) * self.scale(-0.7, 0.3)]
        while self.rng.random() < 0.4:  # in any order
            caps.append(caps[0] * self.scale(-0.7, 0.7))
        return Evidence(view, [self.plan(view, epsilon) for _ in [None, *caps]], *caps)

    def settle(self, bracket: EpsilonBracket, evidence: Evidence, epsilon: float) -> tuple[float, Verdict]:
        for _ in range(3):
            verdict = bracket.read(evidence, epsilon * self.scale(-0.3, 0.3))
        return epsilon * self.scale(-0.1, 0.1), verdict

    def focus(self, *_: object) -> Focus:
        size = int(self.rng.integers(2, 9))
        losses = np.sort(self.rng.normal(size=size)) * self.scale(-2, 2)
        return Focus(int(self.rng.integers(5, 300)), losses, self.rng.normal(size=size) * self.scale(-1, 2))

    def jump_focus(self) -> tuple[float, Focus] | None:
        return (self.scale(-4, 2), self.focus()) if self.rng.random() < 0.3 else None

    def cover(self, chart: stretches.Chart, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A chart of random lines, read at random and mistaken about delta."""
        for _ in range(2):
            chart.lines.append(self.evidence(chart.view, float(self.rng.choice(epsilons)), -10.0, 1.0))
        log_delta = -self.rng.exponential(size=epsilons.size) * 20.0
        return log_delta, self.rng.integers(-1, len(chart.lines), size=epsilons.size)

    def charted(self, chart: stretches.Chart, log_delta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        start = self.scale(-2, 1) * 10.0 ** self.rng.uniform(-1, 1, size=log_delta.size)
        return start, self.cover(chart, np.maximum(start, 1e-3))[1] if start.size else start

    def guess(self, log_delta: float, epsilon: float = math.nan) -> Guess | None:
        """What a sketch might say: anything, with any line, or nothing."""
        self.proposals += 1
        if self.rng.random() < 0.1:
            return None
        epsilon = self.scale(-4, 2) if math.isnan(epsilon) else epsilon
        line = Proposal(self.plan(None, epsilon), float(self.rng.normal()), 100.0)
        size = int(self.rng.integers(2, 9))
        epsilons = np.sort(self.rng.normal(size=size)) * self.scale(-2, 2)
        return Guess(epsilon, log_delta, line, epsilons, self.rng.normal(size=size) * self.scale(-1, 2))

    def groups(self, parts: list[Part]) -> list[list[int]]:
        """Any phases together, as long as their laws have as many pieces; any one of them stands for the others."""
        shapes: dict[int, list[int]] = {}
        for number, part in enumerate(parts):
            shapes.setdefault(len(part.law.pieces), []).append(number)
        found = []
        for numbers in shapes.values():
            owner = self.rng.integers(0, int(self.rng.integers(1, 6)), size=len(numbers))
            found += [self.rng.permutation(np.array(numbers)[owner == one]).tolist() for one in np.unique(owner)]
        return found

    def few(self, few: crowds.Few, parts: list[Part], gaussian: Bounds, seen: refinement.Look, delta: float) -> None:
        """Scouts that have not looked, and mostly say that they know."""
        Direction.__init__(few, parts, gaussian)
        few._seen, few._goal = seen, math.log(delta)
        few.useful, few.guess = bool(self.rng.random() < 0.9), self.about * self.scale(-0.3, 0.3)

    def fine_edges(self, law: LossLaw) -> Cells:
        """Cells for one of very many phases: where each is as coarse as `edges` makes them, nothing is left to prove."""
        parts, jitter = [], self.scale(-3, -1)
        for piece in law.pieces:
            x = np.linspace(min(piece.means) - 12.0, max(piece.means) + 12.0, int(self.rng.integers(100, 300)))
            parts.append(x + jitter * self.rng.normal(size=x.size))
        return cut(law, parts)

    def install_crowds(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(crowds, "groups", self.groups)
        patch.setattr(crowds.Few, "__init__", lambda few, *given: self.few(few, *given))
        patch.setattr(crowds, "propose_evidence", self.evidence)
        patch.setattr(crowds, "focus", self.focus)
        patch.setattr(crowds, "equal_cells", lambda law, *_: self.fine_edges(law))
        patch.setattr(crowds, "cut", lambda law, _: self.fine_edges(law))  # another phase's cells
        patch.setattr(crowds, "wide", lambda *_: self.rng.random() < 0.5)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        self.install_crowds(patch)
        patch.setattr(straight, "guess_at_delta", lambda _, __, log_delta, *___: self.guess(log_delta))
        patch.setattr(
            straight, "guess_near_epsilon", lambda _, __, e, *___: self.guess(-self.rng.exponential() * 20.0, e)
        )
        patch.setattr(straight, "guess_at_epsilon", lambda _, e, log_delta, *__: self.guess(log_delta - 1e-3, e))
        patch.setattr(straight, "settle", self.settle)
        patch.setattr(line_module, "_MOST_NODES", 3000)
        patch.setattr(composition_module, "_MOST_SAMPLES", 3000)
        for module in (newton, refinement, stretches):
            patch.setattr(module, "propose_evidence", self.evidence)
        patch.setattr(refinement, "equal_cells", lambda law, *_: self.edges(law))
        patch.setattr(grids, "cut", lambda law, _: self.edges(law))  # fitted cells
        for module in (refinement, stretches):
            patch.setattr(module, "guess_epsilon", lambda *_: self.scale(-4, 2))
            patch.setattr(module, "guess_log_delta", lambda *_: float(-self.rng.exponential() * 20.0))
            patch.setattr(module, "focus", self.focus)
        patch.setattr(stretches.Chart, "cover", lambda chart, epsilons: self.cover(chart, epsilons))
        patch.setattr(stretches, "_charted", self.charted)
        patch.setattr(refinement, "saddle_point", lambda *_: self.scale(-4, 2))
        patch.setattr(refinement, "guess_by_parts", lambda *_: self.scale(-4, 2))
        patch.setattr(refinement, "jump_focus", lambda *_: self.jump_focus())
        patch.setattr(refinement, "bulk_focus", lambda *_: self.focus() if self.rng.random() < 0.5 else None)
        patch.setattr(newton.Known, "step", lambda known, epsilon, *_: epsilon * self.rng.normal() + self.scale(-8, 0))
        patch.setattr(newton, "_ROUNDS", 6)
        patch.setattr(newton, "_READINGS", 4)
        patch.setattr(exact, "gaussian_epsilon", lambda *_: (self.scale(-2, 1), -self.scale(-2, 2)))
        patch.setattr(exact, "_meeting", lambda *_: self.scale(-2, 1))
        patch.setattr(tables, "_near", lambda _, __, goal: 10.0 ** self.rng.uniform(-2, 1, size=goal.size))
        patch.setattr(tables, "_FIRST", np.sort(10.0 ** self.rng.uniform(-3, 3, size=20)))
        patch.setattr(tables, "_AROUND", self.rng.uniform(0.5, 2.0, size=6))

    def crossings(self, piece: Piece, epsilon: np.ndarray) -> list[np.ndarray]:
        """Thresholds of other epsilons, and some that are of none."""
        found = [next(iter(crossings(piece, epsilon * (1.0 - self.scale(-7, 0.3))))) for _ in range(3)]
        return [found[0] + self.rng.normal(size=epsilon.shape), *found[1:]]

    def check(self, what: object, lower: float, upper: float, truth: float, slack: float, widest: float) -> None:
        """Count a proof, and note a bound on the wrong side of the truth."""
        self.proofs += (lower > 0.0) + (upper < widest)
        if not lower - slack <= truth <= upper + slack:
            self.violations.append((what, lower, upper, truth))


class RandomShares:
    """Shares and tilts that nobody chose; some are no numbers, as a division by nothing would leave them."""

    def __init__(self, step: Step, rng: np.random.Generator) -> None:
        self.step, self.rng = step, rng

    def at(self, loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share = self.rng.uniform(-0.2, 1.2, size=(loss.size, self.step.lenders)) ** int(self.rng.integers(1, 4))
        if self.rng.random() < 0.5:  # all levels lend about the same at all nodes
            share = np.full(share.shape, float(self.rng.uniform()))
        tilt = self.rng.normal(size=loss.size) * 10.0 ** self.rng.uniform(-1, 1.5)
        share[self.rng.random(share.shape) < 0.01] = math.nan
        tilt[self.rng.random(tilt.shape) < 0.01] = self.rng.choice([math.nan, math.inf, -math.inf])
        return share, tilt


def random_nodes(rng: np.random.Generator, high: float) -> np.ndarray:
    """Losses anywhere, on both sides of zero, some next to each other."""
    loss = rng.normal(size=int(rng.integers(5, 120))) * high * 10.0 ** rng.uniform(-2, 0.3)
    return np.unique(np.concatenate([loss, loss[:3] * (1 + 1e-12), [0.0]]))


def lend_at_random(patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    patch.setattr(lending_looks, "choose", lambda step: RandomShares(step, rng))
    for module in (lending_looks, refinement):
        patch.setattr(module, "worth_a_look", lambda *_: True)
    patch.setattr(lending_looks, "_GAIN", -math.inf)  # it is used whether it helps or not
    patch.setattr(lending_looks, "_UNRESOLVED", math.inf)
    patch.setattr(lending_looks, "first_nodes", lambda step, *_: random_nodes(rng, 1.0 + 2.0 / step.sigma))
    patch.setattr(lending_looks, "fitted_nodes", lambda law, *_: random_nodes(rng, 1.0 + float(law.loss.max())))


def many_nodes(rng: np.random.Generator, step: Step) -> np.ndarray:
    """Far enough out on both sides for one of very many steps."""
    high = 1.0 + 2.0 / step.sigma
    even = np.linspace(-4.0, 4.0, int(rng.integers(40, 120))) * high * float(rng.uniform(0.5, 1.0))
    near = np.log1p(step.p * np.expm1(-10.0 * rng.exponential(size=40)))  # where losses of the other direction end
    return np.unique(np.concatenate([random_nodes(rng, high), even, near]))


def random_model(step: Step, rng: np.random.Generator) -> Model:
    """One step's shares and nodes, which nobody chose, for any others."""
    shares = Shares(
        step, np.sort(rng.normal(size=KNOTS)), rng.uniform(size=(step.lenders, KNOTS)), rng.normal(size=KNOTS)
    )
    return Model(shares, many_nodes(rng, step))


def lend_to_crowds_at_random(patch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    lend_at_random(patch, rng)
    patch.setattr(Model, "_shares", lambda _, __, stack, loss, ___: RandomShares(stack, rng).at(loss))
    patch.setattr(Model, "_nodes", lambda _, step: many_nodes(rng, step))
    patch.setattr(lending_crowds, "rare", lambda _: float(10.0 ** rng.uniform(-12, -6)))
    patch.setattr(crowds, "model", lambda seen, *_, **__: random_model(seen.shares.step, rng))
    patch.setattr(crowds, "look", lambda step, _: Seen(random_model(step, rng).shares, np.zeros(1), np.zeros(1)))
