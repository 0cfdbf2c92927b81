"""A wrong guess costs time or width, never truth: every guess of the search is replaced by random numbers.

Cells, tilts, shifts, periods, caps, starting points and steps are drawn at random; what is proven must still contain
the reference epsilons and the exact deltas of small laws. So are lending's shares, tilts, nodes and focus; what is
proven must still be above exact divergences of populations. That the checks can fail is shown by proofs that are
broken on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests import lending_cases as cases
from tests.accounting.laws import KINDS, Counted, law_of, random_laws, rows
from tests.populations import ROUNDING, divergences, some_epsilons, some_mechanism, some_population

from filet import Adjacency, CappedPoisson, NotCertifiedError, Phase, epsilon_lower_bound
from filet.accounting.proving import composition as composition_module
from filet.accounting.proving import lending
from filet.accounting.proving import line as line_module
from filet.accounting.proving.cells import Cells, cut
from filet.accounting.proving.closed_form import HullStep
from filet.accounting.proving.hull import dominating
from filet.accounting.proving.lending import Step
from filet.accounting.proving.line import LinePlan
from filet.accounting.proving.loss_law import LossLaw
from filet.accounting.proving.verdict import EpsilonBracket, Evidence, Verdict
from filet.accounting.proving.view import View
from filet.accounting.run import Run
from filet.accounting.searching import grids, lending_shares, newton, refinement, straight, stretches
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.grids import Focus
from filet.accounting.searching.lending_shares import Query
from filet.accounting.searching.refinement import Direction, Part
from filet.accounting.searching.sketches import Guess
from filet.accounting.searching.tilts import Proposal

COMPOSED = rows("composed.csv")
SLACK = 1e-9


@dataclass
class Chance:
    """Random proposals in place of every guess; counts what they led to."""

    rng: np.random.Generator
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

    def evidence(self, view: View, epsilon: float, log_delta: float, fineness: float) -> Evidence:
        self.proposals += 1
        if self.rng.random() < 0.6:
            return Evidence(view, [self.plan(view, epsilon)])
        highest = max(float(block.loss.max()) for block in view.blocks)
        cap = float(self.rng.choice([epsilon, highest, 1.0])) * self.scale(-0.7, 0.3)
        return Evidence(view, [self.plan(view, epsilon), self.plan(view, epsilon)], cap)

    def settle(self, bracket: EpsilonBracket, evidence: Evidence, epsilon: float) -> float:
        for _ in range(3):
            bracket.read(evidence, epsilon * self.scale(-0.3, 0.3))
        return epsilon * self.scale(-0.1, 0.1)

    def focus(self, *_: object) -> Focus:
        size = int(self.rng.integers(2, 9))
        losses = np.sort(self.rng.normal(size=size)) * self.scale(-2, 2)
        return Focus(int(self.rng.integers(5, 300)), losses, self.rng.normal(size=size) * self.scale(-1, 2))

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

    def install(self, patch: pytest.MonkeyPatch) -> None:
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
        patch.setattr(refinement, "bulk_focus", lambda *_: self.focus() if self.rng.random() < 0.5 else None)
        patch.setattr(newton.Known, "step", lambda known, epsilon, *_: epsilon * self.rng.normal() + self.scale(-8, 0))
        patch.setattr(newton, "_ROUNDS", 6)
        patch.setattr(newton, "_READINGS", 4)

    def check(self, what: object, lower: float, upper: float, truth: float, slack: float, widest: float) -> None:
        """Count a proof, and note a bound on the wrong side of the truth."""
        self.proofs += (lower > 0.0) + (upper < widest)
        if not lower - slack <= truth <= upper + slack:
            self.violations.append((what, lower, upper, truth))


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chance]:
    made = Chance(np.random.default_rng(20_240_917))
    made.install(monkeypatch)
    with np.errstate(all="ignore"):
        yield made


def check_rows(chance: Chance, table: list[dict[str, str]]) -> None:
    """Brackets of epsilon at the row's delta, and of delta at the row's epsilon, in that row's direction."""
    for row in table:
        epsilon, delta = float(row["epsilon"]), float(row["delta"])
        slack = epsilon * 10.0 ** -float(row["digits"]) + 1e-15
        run = Direction([Part(law_of(row), int(row["steps"]))])
        try:
            found = run.epsilon(delta)
            chance.check(row, found.lower, found.upper, epsilon, slack, math.inf)
        except NotCertifiedError as error:  # bounds that cross prove a defect, too
            chance.violations.append((row, str(error)))
        except ArithmeticError:
            pass
        try:
            known = run.delta(epsilon)
            # delta has a slope of at most one in epsilon
            chance.check(row, known.lower, known.upper, delta, slack + SLACK * delta, 1.0)
            if run.at_most(epsilon * 0.98, delta) and epsilon * 0.98 > 1e-12:
                chance.violations.append((row, "at most"))
        except NotCertifiedError as error:
            chance.violations.append((row, str(error)))
        except ArithmeticError:
            pass
        check_many(chance, row, run, epsilon, delta, slack)


def check_many(chance: Chance, row: object, run: Direction, epsilon: float, delta: float, slack: float) -> None:
    """The same questions among others."""
    try:
        lower, upper = stretches.epsilons(run, delta * np.array([0.1, 1.0]))
        chance.check(row, lower[1], upper[1], epsilon, slack, math.inf)
        lower, upper = stretches.deltas(run, epsilon * np.array([0.5, 1.0]))
        chance.check(row, lower[1], upper[1], delta, slack + SLACK * delta, 1.0)
        if epsilon * 0.98 > 1e-12:
            most = stretches.at_most(run, epsilon * np.array([0.98]), np.array([delta]))
            chance.check(row, 0.0, float(most[0]), epsilon, slack, math.inf)
        most = stretches.upper_deltas(run, epsilon * np.array([0.5, 1.0]), Budget())
        chance.check(row, 0.0, float(most[1]), delta, slack + SLACK * delta, 1.0)
    except NotCertifiedError as error:
        chance.violations.append((row, str(error)))
    except ArithmeticError:
        pass


def check_laws(chance: Chance, seeds: range) -> None:
    """Verdicts, brackets and crude bounds of small discrete laws against sums over all outcomes."""
    for seed in seeds:
        rng = np.random.default_rng([31, seed])
        laws = random_laws(rng, KINDS[seed % len(KINDS)])
        exact = Counted(laws, float(rng.choice([0.0, 0.0, 0.3, 4.0])))
        for epsilon in exact.queries(rng):
            if 1e-250 < exact.delta(epsilon) < 0.999:
                for above in (True, False):
                    check_view(chance, View(laws, exact.gaussian, above), exact, epsilon)


def check_view(chance: Chance, view: View, exact: Counted, epsilon: float) -> None:
    log_delta = float(np.log(exact.delta(epsilon)))
    try:
        evidence = chance.evidence(view, epsilon, log_delta, 1.0)
        for e in (epsilon, epsilon * 0.9, epsilon + 0.7 / evidence.c):
            bound, true = evidence.delta_bound(e, log_delta).bound, float(exact.delta(e)) / math.exp(log_delta)
            lower, upper = (0.0, bound) if view.above else (bound, math.inf)
            if not math.isnan(bound):
                chance.check((e, bound), lower, upper, true, SLACK * true, math.inf)
        bracket = EpsilonBracket(math.exp(log_delta))
        newton.narrow(bracket, view, epsilon * chance.scale(-1, 1), 1.0, Budget())
    except ArithmeticError:
        return
    for e, least in ((bracket.lower, True), (bracket.upper, False)):
        if 0.0 < e < math.inf:
            chance.proofs += 1
            ratio = float(exact.delta(e)) / math.exp(log_delta)
            if not (ratio >= 1 - SLACK if least else ratio <= 1 + SLACK):
                chance.violations.append((e, least, ratio))


def test_random_guesses_never_make_a_bound_of_a_reference_row_wrong(chance: Chance) -> None:
    check_rows(chance, COMPOSED[3::9])
    assert chance.violations == []
    assert chance.proofs > 30


@pytest.mark.slow
@pytest.mark.parametrize("part", range(9))
def test_random_guesses_never_make_a_bound_of_any_reference_row_wrong(chance: Chance, part: int) -> None:
    chance.rng = np.random.default_rng(part)
    check_rows(chance, COMPOSED[part::9])
    assert chance.violations == []
    assert chance.proofs > 30


def test_random_guesses_never_make_a_bound_of_a_small_law_wrong(chance: Chance) -> None:
    check_laws(chance, range(36))
    assert chance.violations == []
    assert chance.proofs > 200


@pytest.mark.slow
def test_random_guesses_never_make_a_bound_of_many_small_laws_wrong(chance: Chance) -> None:
    check_laws(chance, range(36, 600))
    assert chance.violations == []


# --- lending ----------------------------------------------------------------------------------------------------------


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
    patch.setattr(lending_shares, "choose", lambda step: RandomShares(step, rng))
    patch.setattr(lending_shares, "worth_a_look", lambda *_: True)
    patch.setattr(lending_shares, "_GAIN", -math.inf)  # it is used whether it helps or not
    patch.setattr(lending_shares, "_UNRESOLVED", math.inf)
    patch.setattr(lending_shares, "first_nodes", lambda step, *_: random_nodes(rng, 1.0 + 2.0 / step.sigma))
    patch.setattr(lending_shares, "fitted_nodes", lambda law, *_: random_nodes(rng, 1.0 + float(law.loss.max())))


def check_lending(rng: np.random.Generator, mechanisms: int) -> tuple[int, list[object]]:
    """Laws by lending against divergences of populations, which are exact lower bounds of what is lost."""
    seen, violations = 0, list[object]()
    for _ in range(mechanisms):
        m = some_mechanism(rng)
        both = lending_shares.laws(cases.make(m.n, m.p, m.B, m.sigma, m.adjacency), Query(10, -10.0))
        if both is None:  # nothing to gain
            continue
        eps = some_epsilons(m, rng)
        bound = np.concatenate([HullStep(law).delta_bounds(eps)[1] for law in (both.forward, both.reverse)])
        for _ in range(2):
            value, size = divergences(m, some_population(m, rng), eps)
            seen += value.size
            if (value > bound + ROUNDING * size).any():
                violations.append((m, float((value - bound).max())))
    return seen, violations


def test_random_shares_tilts_and_nodes_never_make_lending_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    lend_at_random(monkeypatch, rng)
    with np.errstate(all="ignore"):
        seen, violations = check_lending(rng, 25)
    assert violations == []
    assert seen > 400


@pytest.mark.slow
def test_random_shares_tilts_and_nodes_never_make_lending_wrong_however_often(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    lend_at_random(monkeypatch, rng)
    with np.errstate(all="ignore"):
        seen, violations = check_lending(rng, 600)
    assert violations == []
    assert seen > 10_000


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_random_lending_keeps_composed_epsilons_above_every_attack(
    monkeypatch: pytest.MonkeyPatch, adjacency: str
) -> None:
    """The whole way: what is composed is wide or refused, and never below what an explicit pair of data sets loses."""
    rng = np.random.default_rng([1, len(adjacency)])
    lend_at_random(monkeypatch, rng)
    answered = 0
    for n, p, cap, sigma, steps in [(60, 0.3, 20, 0.8, 20), (400, 0.1, 41, 1.0, 50), (30, 0.5, 15, 2.0, 1)] * 2:
        run = Run([Phase(CappedPoisson(n, p, cap), sigma, steps)], [], Adjacency(adjacency))
        upper = run.epsilon(1e-4).upper
        least = epsilon_lower_bound(
            CappedPoisson(n, p, cap), noise_multiplier=sigma, steps=steps, adjacency=adjacency, delta=1e-4
        )
        assert upper >= least
        answered += upper < math.inf
    assert answered > 0


def test_a_cover_that_is_too_strong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = lending.cover

    def cover(*given: Any) -> tuple[np.ndarray, np.ndarray]:
        mass, theta = honest(*given)
        return 2.0 * mass, theta

    monkeypatch.setattr(lending, "cover", cover)
    with np.errstate(all="ignore"):
        _, violations = check_lending(np.random.default_rng(8), 40)
    assert violations


def test_a_hull_below_its_values_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending_shares, "dominating", lambda loss, part: dominating(loss, part * 0.5))
    with np.errstate(all="ignore"):
        _, violations = check_lending(np.random.default_rng(9), 40)
    assert violations


# --- the checks can fail ----------------------------------------------------------------------------------------------


def halved(self: Evidence, epsilon: float, log_delta: float) -> Verdict:
    verdict = HONEST(self, epsilon, log_delta)
    return Verdict(verdict.bound * (0.5 if self.view.above else 2.0), verdict.slope, verdict.error)


HONEST = Evidence.delta_bound


def noticed(chance: Chance) -> bool:
    """Whether the checks of small laws notice something, sooner or later."""
    for seed in range(200):
        check_laws(chance, range(seed, seed + 1))
        if chance.violations:
            return True
    return False


def test_a_proof_that_says_half_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evidence, "delta_bound", halved)
    check_rows(chance, COMPOSED[3::9])
    assert chance.violations


def test_a_proof_that_forgets_aliases_or_smoothing_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = line_module.Line.read

    def read(self: line_module.Line, e: float) -> line_module.Reading:
        found = honest(self, e)
        return line_module.Reading(found.value, found.slope, found.error, 0.0, 0.0)

    monkeypatch.setattr(line_module.Line, "read", read)
    assert noticed(chance)


def test_a_proof_that_forgets_what_was_cut_off_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = line_module.Line._sample

    def sample(self: line_module.Line, largest: float) -> composition_module.Spectrum:
        spectrum = honest(self, largest)
        self.truncation = 0.0
        return spectrum

    monkeypatch.setattr(line_module.Line, "_sample", sample)
    assert noticed(chance)


def test_a_proof_that_forgets_sums_with_two_jumps_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Evidence.__init__

    def forget(self: Evidence, view: View, plans: list[LinePlan], cap: float = math.inf) -> None:
        honest(self, view, plans, cap)
        self.uncovered = 0.0

    monkeypatch.setattr(Evidence, "__init__", forget)
    assert noticed(chance)
