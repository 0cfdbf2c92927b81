"""A wrong guess costs time or width, never truth: every guess of the search is replaced by random numbers.

Cells, tilts, shifts, periods, caps, starting points and steps are drawn at random; what is proven must still contain
the reference epsilons and the exact deltas of small laws. So are lending's shares, tilts, nodes and focus; what is
proven must still be above exact divergences of populations. In a crowd, so are groups, who stands for whom, and what is
handed on. That the checks can fail is shown by proofs that are broken on purpose. Three lists say of everything that
searches what becomes of it here.
"""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import lending_cases as cases
from tests.accounting.chance import Chance, lend_at_random, lend_to_crowds_at_random, random_model
from tests.accounting.laws import KINDS, NOTHING, Counted, law_of, random_laws, rows
from tests.populations import ROUNDING, Mechanism, divergences, some_epsilons, some_mechanism, some_population

from filet import Adjacency, Analysis, Bounds, CappedPoisson, NotCertifiedError, Phase, epsilon_lower_bound
from filet.accounting import searching
from filet.accounting.proving import composition as composition_module
from filet.accounting.proving import lending
from filet.accounting.proving import line as line_module
from filet.accounting.proving.cells import Cells
from filet.accounting.proving.closed_form import ClosedForm, Gaussian, OneStep
from filet.accounting.proving.hull import HullStep, dominating
from filet.accounting.proving.line import LinePlan
from filet.accounting.proving.verdict import EpsilonBracket, Evidence, Verdict
from filet.accounting.proving.view import View
from filet.accounting.run import Run, part_of
from filet.accounting.searching import (
    crowds,
    lending_looks,
    newton,
    stretches,
    tables,
)
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.crossings import crossings
from filet.accounting.searching.crowds import MANY, Crowd
from filet.accounting.searching.exact import Exact
from filet.accounting.searching.lending_crowds import Model
from filet.accounting.searching.lending_looks import Laws, Query
from filet.accounting.searching.refinement import Direction, Part

COMPOSED = rows("composed.csv")
SLACK = 1e-9
# Everything in the searching room: what is random here where it is used (or what it says is), what only such things read,
# and what asks: its own way is taken, with random guesses. A new name has to find its place.
RANDOM = """
groups Few propose_evidence equal_cells fitted_cells sketched_cells guess_epsilon guess_log_delta saddle_point bulk_focus
focus jump_focus guess_by_parts gaussian_epsilon crossings guess_at_delta guess_near_epsilon guess_at_epsilon settle Known choose
first_nodes fitted_nodes worth_a_look resolved model Model look Chart rare wide
""".split()  # noqa: SIM905, a list of words
READ_BY_THOSE = """
Focus any_of piece_edges points_within moments saddle laplace one_jump_decides single_jump log_values nodes_of_one Shares between
one_way_model Guide tilt_focus Seen Sight tolerance Points points_of sketch_law sketch_discrete Sketch Table RoughLine Guess log_needs Proposal
propose_line choose_line smoothing_shift Ask Capped Bands bands ends hardly_any rare_loss guess_by_jump from_the_largest
epsilon_by_laplace lenders symmetric bucket Query Budget
""".split()  # noqa: SIM905
ASKING = """
Scouts Crowd Laws laws narrow Part Direction Exact OneStepAnswers Run Drawn Drawing bracket_epsilon bracket_delta shows_at_most
longer epsilons at_most deltas upper_deltas
""".split()  # noqa: SIM905


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


@pytest.mark.long
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


@pytest.mark.long
def test_random_guesses_never_make_a_bound_of_a_small_law_wrong(chance: Chance) -> None:
    check_laws(chance, range(36))
    assert chance.violations == []
    assert chance.proofs > 200


@pytest.mark.slow
def test_random_guesses_never_make_a_bound_of_many_small_laws_wrong(chance: Chance) -> None:
    check_laws(chance, range(36, 600))
    assert chance.violations == []


# --- many phases, and tables of closed forms --------------------------------------------------------------------------


def check_crowds(chance: Chance, table: list[dict[str, str]]) -> None:
    """Rows whose steps are dealt out to many phases: a crowd of the same law many times is that law's run."""
    for row in table:
        epsilon, delta, steps = float(row["epsilon"]), float(row["delta"]), int(row["steps"])
        slack = epsilon * 10.0 ** -float(row["digits"]) + 1e-15
        shares = np.diff(
            np.append(np.sort(chance.rng.choice(np.arange(1, steps), MANY - 1, replace=False)), steps), prepend=0
        )
        law, chance.about = law_of(row), epsilon
        crowd = Crowd([Part(law, int(share)) for share in shares], NOTHING)
        back = Crowd([Part(law.reversed(), int(share)) for share in shares], NOTHING).reversed()
        for one in (crowd, back):
            try:
                found = one.epsilon(delta)
                chance.check(row, found.lower, found.upper, epsilon, slack, math.inf)
                if one.at_most(epsilon * 0.98, delta) and epsilon * 0.98 > 1e-12:
                    chance.violations.append((row, "at most"))
            except NotCertifiedError as error:
                chance.violations.append((row, str(error)))
            except ArithmeticError:
                pass


@pytest.mark.long
def test_random_scouts_never_make_a_bound_of_a_crowd_wrong(chance: Chance) -> None:
    check_crowds(chance, [row for row in COMPOSED if int(row["steps"]) > 2 * MANY][2::30])
    assert chance.violations == []
    assert chance.proofs > 2


@pytest.mark.slow
def test_random_scouts_never_make_a_bound_of_any_crowd_wrong(chance: Chance) -> None:
    check_crowds(chance, [row for row in COMPOSED if int(row["steps"]) > 2 * MANY])
    assert chance.violations == []
    assert chance.proofs > 60


def overlap(one: Bounds, other: Bounds) -> bool:
    return one.lower <= other.upper * (1 + SLACK) and other.lower <= one.upper * (1 + SLACK)


@pytest.mark.long
def test_random_scouts_of_different_phases_leave_room_for_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the general search with its own guesses: both brackets hold one number, so they overlap."""
    scheme, kinds = CappedPoisson(60_000, 256 / 60_000, 256), ("swap", "note", "union")
    phases = [Phase(scheme, 0.8 + 0.02 * i, 3 + i % 4, Analysis(kinds[i % 3])) for i in range(MANY + 3)]
    parts, proofs = [part_of(phase, Adjacency.ADD_REMOVE) for phase in phases], 0
    truth = Direction(parts, NOTHING).epsilon(1e-5)
    Chance(np.random.default_rng(3), truth.upper).install(monkeypatch)
    with np.errstate(all="ignore"):
        for _ in range(8):
            with contextlib.suppress(ArithmeticError):
                found = Crowd(parts, NOTHING).epsilon(1e-5)
                assert overlap(found, truth)
                proofs += (found.lower > 0.0) + (found.upper < math.inf)
    assert proofs > 1


def test_random_points_never_make_an_answer_of_a_closed_form_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    law, deltas = law_of(COMPOSED[0]), np.array([1e-9, 1e-5, 1e-3])
    forms: list[ClosedForm] = [OneStep(law, crossings), Gaussian(0.99, 0.99), Gaussian(1e-4, 1e-4)]
    truth = [[Exact(form).epsilon(delta) for delta in deltas.tolist()] for form in forms]
    chance = Chance(np.random.default_rng(4))
    chance.install(monkeypatch)
    forms.append(OneStep(law, chance.crossings))
    truth.append(truth[0])
    with np.errstate(all="ignore"):
        for form, exact in zip(forms, truth, strict=True):
            for _ in range(4):
                many = [
                    Bounds(*pair) for pair in zip(*(one.tolist() for one in tables.epsilons(form, deltas)), strict=True)
                ]
                alone = [Exact(form).epsilon(delta) for delta in deltas.tolist()]
                assert all(overlap(one, other) for one, other in zip(many + alone, exact * 2, strict=True))
                assert any(one.lower > 0.0 for one in many)


# --- lending ----------------------------------------------------------------------------------------------------------


def against_populations(
    m: Mechanism, both: Laws, rng: np.random.Generator, populations: int
) -> tuple[int, list[object]]:
    """Laws of a step against divergences of populations, which are exact lower bounds of what is lost."""
    seen, violations, eps = 0, list[object](), some_epsilons(m, rng)
    bound = np.concatenate([HullStep(law).delta_bounds(eps)[1] for law in (both.forward, both.reverse)])
    for _ in range(populations):
        value, size = divergences(m, some_population(m, rng), eps)
        seen += value.size
        if (value > bound + ROUNDING * size).any():
            violations.append((m, float((value - bound).max())))
    return seen, violations


def check_lending(rng: np.random.Generator, mechanisms: int) -> tuple[int, list[object]]:
    """Laws by lending, one step at a time."""
    seen, violations = 0, list[object]()
    for _ in range(mechanisms):
        m = some_mechanism(rng)
        both = lending_looks.laws(cases.make(m.n, m.p, m.B, m.sigma, m.adjacency), Query(10, -10.0))
        if both is not None:  # there is something to gain
            more, found = against_populations(m, both, rng, 2)
            seen, violations = seen + more, violations + found
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
    rng = np.random.default_rng([3, len(adjacency)])
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


def check_lending_to_crowds(rng: np.random.Generator, rounds: int) -> tuple[int, list[object]]:
    """Laws of steps side by side, each against populations of its own mechanism."""
    seen, violations = 0, list[object]()
    for _ in range(rounds):
        some = [some_mechanism(rng) for _ in range(9)]
        some = [m for m in some if m.adjacency == some[0].adjacency]
        steps = [cases.make(m.n, m.p, m.B, m.sigma, m.adjacency) for m in some]
        for m, both in zip(some, random_model(steps[-1], rng).laws(steps, Query(10, -10.0)), strict=True):
            assert both is not None
            more, found = against_populations(m, both, rng, 1)
            seen, violations = seen + more, violations + found
    return seen, violations


def test_random_lending_to_many_steps_at_once_is_never_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(15)
    lend_to_crowds_at_random(monkeypatch, rng)
    with np.errstate(all="ignore"):
        seen, violations = check_lending_to_crowds(rng, 10)
    assert violations == []
    assert seen > 300


@pytest.mark.slow
def test_random_lending_to_many_steps_at_once_is_never_wrong_however_often(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(16)
    lend_to_crowds_at_random(monkeypatch, rng)
    with np.errstate(all="ignore"):
        seen, violations = check_lending_to_crowds(rng, 200)
    assert violations == []
    assert seen > 6_000


def test_a_neighbours_law_in_a_crowd_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(17)
    monkeypatch.setattr(lending_looks, "_UNRESOLVED", math.inf)
    honest = Model.laws
    monkeypatch.setattr(Model, "laws", lambda model, steps, query: honest(model, steps[1:] + steps[:1], query))
    with np.errstate(all="ignore"):
        _, violations = check_lending_to_crowds(rng, 10)
    assert violations


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_random_lending_keeps_epsilons_of_crowds_above_every_attack(
    monkeypatch: pytest.MonkeyPatch, adjacency: str
) -> None:
    """The least noise stands for all in the crowd, the most for all in the attack."""
    rng, answered = np.random.default_rng([3, len(adjacency)]), 0
    monkeypatch.setattr(crowds, "groups", Chance(rng).groups)
    lend_to_crowds_at_random(monkeypatch, rng)
    for n, p, cap, sigma in [(60, 0.3, 20, 0.8), (400, 0.1, 41, 1.0)]:
        scheme = CappedPoisson(n, p, cap)
        phases = [Phase(scheme, sigma * (1.0 + 0.1 * i / MANY), 1) for i in range(MANY)]
        least = epsilon_lower_bound(scheme, noise_multiplier=1.1 * sigma, steps=MANY, adjacency=adjacency, delta=1e-3)
        for _ in range(2):
            with np.errstate(all="ignore"):
                upper = Run(phases, [], Adjacency(adjacency)).epsilon(1e-3).upper
            assert upper >= least > 0.0
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
    monkeypatch.setattr(lending_looks, "dominating", lambda loss, part: dominating(loss, part * 0.5))
    with np.errstate(all="ignore"):
        _, violations = check_lending(np.random.default_rng(9), 40)
    assert violations


# --- the checks are complete, and can fail ----------------------------------------------------------------------------------------------


def test_everything_that_searches_has_its_place_here() -> None:
    folder = Path(searching.__file__).parent
    bodies = [ast.parse(path.read_text()).body for path in folder.glob("*.py")]
    names = {node.name for body in bodies for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    listed = RANDOM + READ_BY_THOSE + ASKING
    assert sorted(listed) == sorted(set(listed))
    assert {name for name in names if not name.startswith("_")} == set(listed)


def halved(self: Evidence, epsilon: float, log_delta: float) -> Verdict:
    verdict = HONEST(self, epsilon, log_delta)
    return Verdict(verdict.bound * (0.5 if self.above else 2.0), verdict.slope, verdict.error)


HONEST = Evidence.delta_bound


def noticed(chance: Chance) -> bool:
    """Whether the checks of small laws notice something, sooner or later."""
    for seed in range(200):
        check_laws(chance, range(seed, seed + 1))
        if chance.violations:
            return True
    return False


@pytest.mark.long
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


@pytest.mark.long
def test_a_proof_that_forgets_what_splitting_added_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cells, "chord", lambda *_: 0.0)
    check_rows(chance, COMPOSED[3::9])
    assert chance.violations


def test_a_proof_that_forgets_sums_with_two_jumps_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Evidence.__init__

    def forget(self: Evidence, view: View, plans: list[LinePlan], *caps: float) -> None:
        honest(self, view, plans, *caps)
        self.uncovered = 0.0

    monkeypatch.setattr(Evidence, "__init__", forget)
    assert noticed(chance)
