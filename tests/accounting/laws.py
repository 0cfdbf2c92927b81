"""Losses for the tests of the engine: reference rows, small discrete laws, and their exact compositions."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import log_ndtr

from filet import Adjacency, Analysis, Bounds, CappedPoisson
from filet.accounting.proving.cells import Cells, Discrete, cut, discretise_above
from filet.accounting.proving.composition import Composition, Spectrum
from filet.accounting.proving.inversion import EpsilonBracket, Inversion
from filet.accounting.proving.loss_law import LossLaw
from filet.accounting.proving.pair import Pair, PhaseLaw
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.proving.theorems import loss_law
from filet.accounting.search import closed_form, solve
from filet.accounting.search.contour import Query, choose_inversion
from filet.accounting.search.grid import uniform_grid
from filet.accounting.search.question import EpsilonQuestion
from filet.accounting.search.saddle_point import saddle_points_at_epsilon

TABLES = Path(__file__).parents[1] / "reference" / "tables"
LONG = np.longdouble
NOTHING = Bounds(0.0, 0.0)

FEW = Discrete(np.array([-0.4, 0.1, 0.9]), np.log([0.5, 0.4, 0.1]), 1e-3, 0.0)
OTHER = Discrete(np.array([-0.05, 0.3]), np.log([0.8, 0.2]), 0.0, 0.0)
SMALL = Discrete(np.array([-0.09, 0.01, 0.11]), np.log([0.3, 0.4, 0.3]), 0.0, 0.0)
SKEW = Discrete(np.array([-0.02, 0.2]), np.log([0.9, 0.1]), 0.0, 0.0)
TICK = Discrete(np.array([-0.01, 0.01]), np.log([0.5, 0.5]), 0.0, 0.0)

KINDS = ("pair", "wide", "tiny", "lattice", "heavy", "rare", "one", "cluster", "jump")


def rows(name: str) -> list[dict[str, str]]:
    """The rows of a reference table."""
    with (TABLES / name).open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def law_of(row: dict[str, Any]) -> LossLaw:
    """The loss law of a row, in its direction."""
    n, p, sigma = int(row["n"]), float(row["p"]), float(row["sigma"])
    plain = row["analysis"] == "poisson"
    scheme = CappedPoisson(n, p, n if plain else int(row["B"]), "truncate" if plain else row["overflow"])  # type: ignore[arg-type]
    law = loss_law(scheme, sigma, Adjacency(row["adjacency"]), Analysis("refined" if plain else row["analysis"]))
    return law if row["direction"] == "forward" else law.reversed()


def usual_law(sigma: float = 1.0) -> LossLaw:
    return loss_law(CappedPoisson(10**4, 0.01, 100), sigma, Adjacency.ZERO_OUT, Analysis.REFINED)


def pair_of(*laws: tuple[LossLaw, int], gaussian: Bounds = NOTHING) -> Pair:
    """One order of the neighbours, of laws without lending."""
    return Pair(tuple(PhaseLaw(law, steps) for law, steps in laws), gaussian, symmetric=True)


class Answers:
    """One order of a run of one law: a bracket for each question, by the closed form where there is one."""

    def __init__(self, law: LossLaw, steps: int) -> None:
        self.pair = pair_of((law, steps))

    def epsilon(self, delta: float) -> Bounds:
        ask = closed_form.one_step_epsilons if self.pair.steps == 1 else solve.epsilons
        return Bounds(*(float(end[0]) for end in ask(self.pair, np.array([delta]))))

    def delta(self, epsilon: float) -> Bounds:
        ask = closed_form.one_step_deltas if self.pair.steps == 1 else solve.deltas
        return Bounds(*(float(end[0]) for end in ask(self.pair, np.array([epsilon]))))


def inversion_near(pmf: LossPMF, epsilon: float, log_delta: float, fineness: float = 1.0) -> Inversion:
    """The contours that the search chooses for one question about a composed loss."""
    at = np.array([epsilon])
    table = saddle_points_at_epsilon(pmf.whole, at)
    tilt = float(table.at_epsilon(at)[1][0]) if table.tilt.size else 1.0 / max(epsilon, 1e-3)
    return choose_inversion(Query(pmf, at, np.array([log_delta]), fineness, both_sides=pmf.above), tilt)


def bracket_near(pmf: LossPMF, delta: float, start: float, fineness: float = 1.0) -> EpsilonBracket:
    """What a composed loss proves of epsilon, read by Newton's method from a start."""
    question = EpsilonQuestion(np.array([delta]))
    for _ in range(3):
        question.epsilon = np.array([start])
        try:
            moved = question.read(inversion_near(pmf, start, math.log(delta), fineness))
        except ArithmeticError:  # beyond floats: nothing more is proven
            break
        start = float(question.epsilon[0])
        if not moved > 1.0:
            break
    return question.bracket


def spectrum_of(
    composition: Composition, c: float, spacing: float, count: int, chords: list[np.ndarray] | None = None
) -> Spectrum:
    return composition.spectrum(c, composition.tilted(c), spacing, count, chords)


def chords_of(composition: Composition, c: float) -> list[np.ndarray] | None:
    return composition.chords(composition.tilted(c))


def decay_of(
    composition: Composition, c: float, limit: float, tolerance: float, chords: list[np.ndarray] | None = None
) -> tuple[float, float]:
    return composition.decays_after(c, composition.tilted(c), limit, tolerance, chords)


def own_deltas(epsilon: float, laws: list[tuple[Discrete, int]]) -> float:
    """The sum of the steps' own deltas, term by term."""
    return math.fsum(
        steps * (law.infinite + math.fsum(math.exp(m) * -math.expm1(min(epsilon - v, 0.0))
                                          for v, m in zip(law.loss, law.log_mass, strict=True)))
        for law, steps in laws
    )  # fmt: skip


def random_law(rng: np.random.Generator, kind: str, most: int) -> Discrete:
    """A discrete loss of one of the unpleasant `KINDS`, with at most so many outcomes."""
    n = int(rng.integers(2, most + 1))
    log_p = rng.normal(size=n)
    if kind == "pair":
        loss = rng.normal(size=n) * rng.choice([0.01, 0.3, 2.0])
    elif kind == "wide":
        log_p = -rng.exponential(size=n) * rng.choice([10.0, 100.0])
        loss = log_p + rng.exponential(size=n) * rng.choice([3.0, 20.0])
    elif kind == "tiny":
        loss = 10.0 ** rng.uniform(-12, -5) * rng.normal(size=n)
    elif kind == "lattice":
        loss = rng.choice([0.01, 0.25, 1.0]) * rng.integers(-4, 9, size=n).astype(float)
    elif kind == "heavy":
        loss = np.clip(rng.standard_cauchy(size=n), -50, 50) * 10.0 ** rng.uniform(-4, 0)
        log_p -= 0.5 * np.abs(loss)
    elif kind == "rare":
        loss, log_p = np.abs(rng.normal(size=n)) * rng.choice([1.0, 5.0]), -rng.uniform(5, 460, size=n)
        loss[0], log_p[0] = -(10.0 ** rng.uniform(-12, -1)), 0.0
    elif kind == "one":
        loss = np.full(n, abs(float(rng.normal())) * 10.0 ** rng.uniform(-6, 1)) * (1 + 1e-3 * rng.normal(size=n))
    elif kind == "cluster":
        centres = rng.normal(size=3) * rng.choice([0.01, 1.0, 5.0])
        loss, log_p = centres[rng.integers(0, 3, size=n)] + rng.normal(size=n) * 1e-5, 3 * log_p
    else:
        loss = 10.0 ** rng.uniform(-8, 1, size=n) * rng.choice([-0.5, 1.0], size=n)
        log_p = -rng.exponential(size=n) * 20
    log_p = log_p - np.logaddexp.reduce(log_p)
    loss = loss + np.logaddexp.reduce(log_p - loss)  # Q sums to one
    return Discrete(loss, log_p, float(rng.choice([0.0, 0.0, 1e-12, 1e-30])), 0.0)


def random_laws(rng: np.random.Generator, kind: str) -> list[tuple[Discrete, int]]:
    """One or two phases of few steps, so that every outcome can be counted."""
    if rng.random() < 0.7:
        steps = int(rng.integers(1, 5))
        return [(random_law(rng, kind, {1: 40, 2: 30, 3: 16, 4: 9}[steps]), steps)]
    return [(random_law(rng, kind, 9), int(rng.integers(1, 3))), (random_law(rng, str(rng.choice(KINDS)), 9), 1)]


class Counted:
    """The composed loss, outcome by outcome; a Gaussian part is added in closed form."""

    def __init__(self, laws: list[tuple[Discrete, int]], gaussian: float = 0.0) -> None:
        self.loss, self.log_mass, self.gaussian = np.zeros(1, LONG), np.zeros(1, LONG), gaussian
        for law, steps in laws:
            index = np.array(list(itertools.combinations_with_replacement(range(law.loss.size), steps)))
            orders, run = np.full(len(index), float(math.factorial(steps))), np.ones(len(index))
            for k in range(1, steps):
                run = np.where(index[:, k] == index[:, k - 1], run + 1, 1.0)
                orders /= run
            log_mass = law.log_mass.astype(LONG)[index].sum(axis=1) + np.log(orders.astype(LONG))
            self.loss = np.add.outer(self.loss, law.loss.astype(LONG)[index].sum(axis=1)).ravel()
            self.log_mass = np.add.outer(self.log_mass, log_mass).ravel()
        self.infinite = -np.expm1(sum(steps * np.log1p(-LONG(law.infinite)) for law, steps in laws))

    def delta(self, epsilon: float) -> np.longdouble:
        if self.gaussian:
            mu, y = math.sqrt(self.gaussian), (LONG(epsilon) - self.loss).astype(float)
            first = log_ndtr(mu / 2 - y / mu) + self.log_mass.astype(float)
            second = y + log_ndtr(-mu / 2 - y / mu) + self.log_mass.astype(float)
            return LONG(math.fsum(np.exp(first) - np.exp(second))) + self.infinite
        over = self.loss > epsilon
        return (np.exp(self.log_mass[over]) * -np.expm1(LONG(epsilon) - self.loss[over])).sum() + self.infinite

    def queries(self, rng: np.random.Generator) -> list[float]:
        """Zero, on an outcome, next to one, and anywhere."""
        positive = self.loss[self.loss > 0].astype(float)
        if not positive.size:
            return [0.0]
        on = float(rng.choice(positive))
        return [0.0, on, on * (1 - 1e-9), on * 1.001, float(rng.uniform()) * float(positive.max())]


def piece_edges(cells: Cells) -> list[slice]:
    """The edges of each piece of a law in cells."""
    return [slice(start, end) for start, end in itertools.pairwise((0, *cells.ends))]


def cuts(cells: Cells) -> list[SimpleNamespace]:
    """The pieces of a law in cells, one by one, each in the order of its losses."""
    made = []
    for one in piece_edges(cells):
        within = slice(one.start, one.stop - 1)
        made.append(
            SimpleNamespace(
                x=cells.x[one], loss=cells.loss[one], p=cells.p[within], q=cells.q[within], d=cells.d[within]
            )
        )
    return made


def coarse_and_fine(sigma: float, width: float, reach: float = 9.0) -> tuple[Discrete, Discrete]:
    """A law in coarse cells, and in cells that are far finer: nearly what it is without any."""
    law = loss_law(CappedPoisson(100, 0.3, 35), sigma, Adjacency.ZERO_OUT, Analysis.SWAP)
    cells = uniform_grid(law, reach, width)
    finer = [np.union1d(a.x, b.x) for a, b in zip(cuts(cells), cuts(uniform_grid(law, 9.0, 0.003)), strict=True)]
    return discretise_above(cells), discretise_above(cut(law, finer))
