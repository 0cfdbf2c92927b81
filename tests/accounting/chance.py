"""Random choices in place of everything that the search decides: what `test_truth` draws, and where it puts it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from filet.accounting.proving import composition as composition_module
from filet.accounting.proving import contour as contour_module
from filet.accounting.proving.cells import Cells, cut
from filet.accounting.proving.contour import ContourParameters
from filet.accounting.proving.hull import ProfileNodes
from filet.accounting.proving.inversion import Inversion
from filet.accounting.proving.lending import Step
from filet.accounting.proving.loss_law import LossLaw, Piece
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.search import closed_form, question, solve
from filet.accounting.search.closed_form import crossings
from filet.accounting.search.contour import Query
from filet.accounting.search.effort import Effort
from filet.accounting.search.grid import CellWeights
from filet.accounting.search.question import DeltaQuestion, EpsilonQuestion
from filet.accounting.search.saddle_point import SaddlePoints


@dataclass
class Chance:
    """Random choices; counts what they led to."""

    rng: np.random.Generator
    about: float = 1.0  # an epsilon that starts come near, now and then
    fine: float = 0.4  # the share of fine grids: one coarse one of many phases leaves nothing to prove
    proposals: int = 0
    proofs: int = 0
    violations: list[object] = field(default_factory=list)

    def scale(self, low: float, high: float) -> float:
        """A number between powers of ten."""
        return float(10.0 ** self.rng.uniform(low, high))

    def near(self, size: int) -> np.ndarray:
        """Epsilons anywhere, half of them on the scale of the answer."""
        blind = 10.0 ** self.rng.uniform(-4, 2, size=size)
        return np.where(self.rng.random(size) < 0.5, blind, self.about * 10.0 ** self.rng.uniform(-0.3, 0.3, size=size))

    # --- grids --------------------------------------------------------------------------------------------------------

    def edges(self, law: LossLaw) -> Cells:
        """Cells anywhere: in the bulk, in the tails, next to each other or far apart; sometimes fine ones."""
        parts, fine, jitter = [], self.rng.random() < self.fine, self.scale(-3, -1)
        for piece in law.pieces:
            count = int(self.rng.integers(100, 300) if fine else self.rng.integers(2, 150))
            middle = self.rng.choice(piece.means, size=count)
            if fine or self.rng.random() < 0.7:  # far enough out for small deltas
                middle = np.linspace(min(piece.means) - 12.0, max(piece.means) + 12.0, count)
            parts.append(middle + (jitter if fine else self.scale(-1, 0.5)) * self.rng.normal(size=count))
        return cut(law, parts)

    def weights(self, *_: object) -> CellWeights:
        size = int(self.rng.integers(2, 9))
        losses = np.sort(self.rng.normal(size=size)) * self.scale(-2, 2)
        return CellWeights(losses, self.rng.normal(size=size) * self.scale(-1, 2))

    # --- contours -----------------------------------------------------------------------------------------------------

    def parameters(self, epsilon: float) -> ContourParameters:
        """Half of them are drawn blindly; the others have a tilt on the scale of epsilon, so that some prove much."""
        blind = self.rng.random() < 0.5
        c = self.scale(-3, 3) if blind else float(self.rng.uniform(0.2, 40.0) / max(epsilon, 1e-3))
        tilts = self.scale(-3, 3) if blind else c
        ladder = np.concatenate([[0.0], tilts * 10.0 ** self.rng.uniform(-1, 1, size=int(self.rng.integers(1, 20)))])
        shift = self.scale(-6, 0) if blind else self.scale(-3, 0) / c
        period, both = self.scale(-1, 4 if blind else 2), bool(self.rng.random() < 0.5)
        return ContourParameters(c, shift, float(self.rng.uniform(1.0, 40.0)), period, ladder, both)

    def contours(self, pmf: LossPMF, epsilon: float) -> Inversion:
        """One contour of all losses, or some with caps in any order."""
        self.proposals += 1
        if self.rng.random() < 0.6:
            return Inversion(pmf, [self.parameters(epsilon)])
        highest = max(float(block.loss.max()) for block in pmf.blocks)
        caps = [float(self.rng.choice([epsilon, highest, 1.0])) * self.scale(-0.7, 0.3)]
        while self.rng.random() < 0.4:
            caps.append(caps[0] * self.scale(-0.7, 0.7))
        return Inversion(pmf, [self.parameters(epsilon) for _ in [None, *caps]], *caps)

    def inversion(self, query: Query, _: float) -> Inversion:
        return self.contours(query.pmf, float(self.rng.choice(query.epsilon)))

    # --- questions ----------------------------------------------------------------------------------------------------

    def table(self) -> SaddlePoints:
        size = int(self.rng.integers(1, 9))
        tilt, epsilon = np.sort(10.0 ** self.rng.uniform(-3, 3, size=size)), np.sort(self.rng.normal(size=size))
        return SaddlePoints(tilt, epsilon * self.scale(-2, 2), -np.sort(self.rng.exponential(size=size) * 20.0))

    def start_epsilon(self, question: EpsilonQuestion, _: LossPMF) -> SaddlePoints:
        question.epsilon = np.sort(self.near(question.log_delta.size))[::-1]
        return self.table()

    def start_delta(self, question: DeltaQuestion, _: LossPMF) -> SaddlePoints:
        question.log_delta = -self.rng.exponential(size=question.epsilon.size) * 20.0
        return self.table()

    def read_epsilon(self, question: EpsilonQuestion, inversion: Inversion) -> float:
        for _ in range(3):
            question.bracket.read(inversion, np.maximum(question.epsilon, 1e-9) * self.scale(-0.3, 0.3))
        question.epsilon = question.epsilon * self.scale(-0.1, 0.1)
        return self.scale(-2, 2)

    def read_delta(self, question: DeltaQuestion, inversion: Inversion) -> float:
        question.bracket.read(inversion, question.log_delta * self.scale(-0.3, 0.3))
        return self.scale(-2, 2)

    def again(self, question: EpsilonQuestion, _: np.ndarray) -> EpsilonQuestion:
        """The other order, looked for anywhere."""
        other = EpsilonQuestion(question.bracket.delta)
        other.epsilon = self.near(question.log_delta.size)
        return other

    # --- where all this goes ------------------------------------------------------------------------------------------

    def install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(contour_module, "_MOST_NODES", 3000)  # for the sake of time
        patch.setattr(composition_module, "_MOST_SAMPLES", 3000)
        effort = Effort(levels=3, contours=2, readings=3, nodes=int(self.scale(3, 6)), group=3.0)
        for module in (solve, question):
            patch.setattr(module, "EFFORT", effort)
        patch.setattr(EpsilonQuestion, "levels", effort.levels)
        patch.setattr(DeltaQuestion, "levels", effort.levels)
        patch.setattr(solve, "uniform_grid", lambda law, *_: self.edges(law))
        patch.setattr(solve, "refined_grid", lambda coarse, *_: self.edges(coarse.law))
        patch.setattr(solve, "tilted_weights", self.weights)
        patch.setattr(solve, "read_weights", self.weights)
        patch.setattr(solve, "choose_inversion", self.inversion)
        patch.setattr(EpsilonQuestion, "start", lambda one, pmf: self.start_epsilon(one, pmf))
        for name in ("read", "read_below"):
            patch.setattr(EpsilonQuestion, name, lambda one, inversion: self.read_epsilon(one, inversion))
        patch.setattr(EpsilonQuestion, "again", lambda one, upper: self.again(one, upper))
        patch.setattr(EpsilonQuestion, "below_the_cliff", lambda one: self.again(one, one.epsilon))
        patch.setattr(DeltaQuestion, "start", lambda one, pmf: self.start_delta(one, pmf))
        patch.setattr(DeltaQuestion, "read", lambda one, inversion: self.read_delta(one, inversion))
        patch.setattr(closed_form, "_FIRST", np.sort(10.0 ** self.rng.uniform(-3, 3, size=20)))
        patch.setattr(closed_form, "gaussian_log_delta", lambda *_: -self.scale(-2, 2))

    def crossings(self, piece: Piece, epsilon: np.ndarray) -> list[np.ndarray]:
        """Thresholds of other epsilons, and some that are of none."""
        found = [next(iter(crossings(piece, epsilon * (1.0 - self.scale(-7, 0.3))))) for _ in range(3)]
        return [found[0] + self.rng.normal(size=epsilon.shape), *found[1:]]

    def check(self, what: object, lower: float, upper: float, truth: float, slack: float, widest: float) -> None:
        """Count a proof, and note a bound on the wrong side of the truth."""
        self.proofs += (lower > 0.0) + (upper < widest)
        if not lower - slack <= truth <= upper + slack:
            self.violations.append((what, lower, upper, truth))


# --- lending ----------------------------------------------------------------------------------------------------------


class RandomShares:
    """Shares and tilts that nobody chose; some are NaN, as a division by zero would leave them."""

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


def random_losses(rng: np.random.Generator, high: float) -> np.ndarray:
    """Losses anywhere, on both sides of zero, some next to each other."""
    loss = rng.normal(size=int(rng.integers(5, 120))) * high * 10.0 ** rng.uniform(-2, 0.3)
    return np.unique(np.concatenate([loss, loss[:3] * (1 + 1e-12), [0.0]]))


def random_nodes(step: Step, rng: np.random.Generator, far: float = 0.5) -> ProfileNodes:
    """The bound at random losses, by random shares; a share of them reaches far enough for one of many steps."""
    high = 1.0 + 2.0 / step.sigma
    loss = random_losses(rng, high)
    if rng.random() < far:
        even = np.linspace(-4.0, 4.0, int(rng.integers(40, 120))) * high * float(rng.uniform(0.5, 1.0))
        ends = np.log1p(step.p * np.expm1(-10.0 * rng.exponential(size=40)))  # where losses of the other order end
        loss = np.unique(np.concatenate([loss, even, ends]))
    return ProfileNodes(step, np.empty(0), np.empty(0)).more(loss, *RandomShares(step, rng).at(loss))


def more_nodes(nodes: ProfileNodes, rng: np.random.Generator) -> ProfileNodes:
    loss = random_losses(rng, 1.0 + 2.0 / nodes.step.sigma)
    return nodes.more(loss, *RandomShares(nodes.step, rng).at(loss))


def lend_at_random(patch: pytest.MonkeyPatch, rng: np.random.Generator, far: float = 0.5) -> None:
    """It is used whether it helps or not, or by half."""
    for module in (solve, closed_form):
        patch.setattr(module, "can_help", lambda *_: True)
        patch.setattr(module, "coarse_nodes", lambda step, *_: random_nodes(step, rng, far))
        patch.setattr(module, "choose", lambda step, _: RandomShares(step, rng))
    patch.setattr(solve, "refined_nodes", lambda nodes, *_, **__: more_nodes(nodes, rng))
    patch.setattr(solve, "gain", lambda *_: float(rng.choice([math.inf, 0.0], p=[0.8, 0.2])))
    patch.setattr(solve, "negligible", lambda *_: float(10.0 ** rng.uniform(-12, -6)))
    patch.setattr("filet.accounting.run.lenders", lambda cap, _: int(rng.integers(1, min(cap, 12))))
