"""A wrong guess costs time or width, never truth: everything that the search decides is replaced by random choices.

Grids, tilts, shifts, periods, caps, starting points and steps are drawn at random; what is proven must still contain
the reference epsilons and the exact deltas of small laws. So are lending's shares, tilts and nodes; what is proven must
still be above exact divergences of populations. That the checks can fail is shown by proofs that are broken on purpose.
Three lists say of everything that searches what becomes of it here.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import lending_cases as cases
from tests.accounting.chance import Chance, lend_at_random, random_nodes
from tests.accounting.laws import KINDS, NOTHING, Counted, law_of, pair_of, random_laws, rows
from tests.populations import ROUNDING, Mechanism, divergences, some_epsilons, some_mechanism, some_population

from filet import Adjacency, Analysis, CappedPoisson, NotCertifiedError, Phase, epsilon_lower_bound
from filet.accounting import search
from filet.accounting.proving import contour as contour_module
from filet.accounting.proving import hull, lending
from filet.accounting.proving.cells import Cells
from filet.accounting.proving.closed_form import ClosedForm, Gaussian, OneStep
from filet.accounting.proving.composition import Spectrum
from filet.accounting.proving.contour import ContourParameters
from filet.accounting.proving.hull import HullStep, ProfileNodes, dominating
from filet.accounting.proving.inversion import DeltaBound, Inversion
from filet.accounting.proving.pair import Pair, PhaseLaw, phase_law
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.run import Run
from filet.accounting.search import closed_form, solve
from filet.accounting.search.closed_form import crossings
from filet.accounting.search.question import EpsilonQuestion
from filet.accounting.terms import Brackets

COMPOSED = rows("composed.csv")
SLACK = 1e-9
MANY = 60  # phases
# Everything in the search room: what is random here where it is used, what only such things read, and what asks: its
# own way is taken, with random guesses. A new name has to find its place.
RANDOM = """
choose_inversion read_weights tilted_weights uniform_grid refined_grid EpsilonQuestion DeltaQuestion SaddlePoints Effort
can_help negligible choose choose_shares shares_for similar coarse_nodes gain most_nodes refined_nodes lenders crossings
""".split()  # noqa: SIM905, a list of words
READ_BY_THOSE = """
Proposal Query CellWeights equidistributed Shares cumulants moments saddle_points_at_delta saddle_points_at_epsilon LossTail least_step Tolerance
""".split()  # noqa: SIM905
ASKING = """
Start lending_used epsilon_below guess_epsilon epsilons deltas one_step_epsilons one_step_deltas
""".split()  # noqa: SIM905


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chance]:
    made = Chance(np.random.default_rng(20_240_917))
    made.install(monkeypatch)
    with np.errstate(all="ignore"):
        yield made


def noting(chance: Chance, what: object, ask: Callable[..., None], *given: Any) -> None:
    """A refusal for want of floats is fine; bounds that cross prove a defect."""
    try:
        ask(*given)
    except NotCertifiedError as error:
        chance.violations.append((what, str(error)))
    except ArithmeticError:
        pass


def check_row(chance: Chance, row: dict[str, str], pair: Pair) -> None:
    """Brackets at the row's delta and at its epsilon, alone and among others, for its order and for both."""
    epsilon, delta = float(row["epsilon"]), float(row["delta"])
    slack = epsilon * 10.0 ** -float(row["digits"]) + 1e-15
    delta_slack = slack + SLACK * delta  # delta has a slope of at most one in epsilon
    chance.about = epsilon

    def epsilons(factors: list[float]) -> None:
        lower, upper = solve.epsilons(pair, delta * np.array(factors))
        chance.check(row, lower[-1], upper[-1], epsilon, slack, math.inf)

    def deltas(factors: list[float]) -> None:
        lower, upper = solve.deltas(pair, epsilon * np.array(factors))
        chance.check(row, lower[-1], upper[-1], delta, delta_slack, 1.0)

    def both_orders() -> None:
        two = Pair(pair.phases, pair.gaussian)
        chance.check(row, 0.0, solve.epsilons(two, np.array([delta])).upper[0], epsilon, slack, math.inf)
        chance.check(row, 0.0, solve.deltas(two, np.array([epsilon])).upper[0], delta, delta_slack, 1.0)
        back = solve.epsilons(two.reversed(), np.array([0.01 * delta, delta]))
        chance.check(row, 0.0, back.upper[1], epsilon, slack, math.inf)

    for factors in ([1.0], [1e-4, 0.1, 1.0]):
        noting(chance, row, epsilons, factors)
        noting(chance, row, deltas, factors)
    noting(chance, row, both_orders)


def check_rows(chance: Chance, table: list[dict[str, str]]) -> None:
    for row in table:
        check_row(chance, row, pair_of((law_of(row), int(row["steps"]))))


def check_laws(chance: Chance, seeds: range) -> None:
    """Bounds, brackets and crude bounds of small discrete laws against sums over all outcomes."""
    for seed in seeds:
        rng = np.random.default_rng([31, seed])
        laws = random_laws(rng, KINDS[seed % len(KINDS)])
        exact = Counted(laws, float(rng.choice([0.0, 0.0, 0.3, 4.0])))
        for epsilon in exact.queries(rng):
            if 1e-250 < exact.delta(epsilon) < 0.999:
                for above in (True, False):
                    check_pmf(chance, LossPMF(laws, exact.gaussian, above), exact, epsilon)


def check_pmf(chance: Chance, pmf: LossPMF, exact: Counted, epsilon: float) -> None:
    log_delta = float(np.log(exact.delta(epsilon)))
    question = EpsilonQuestion(np.array([math.exp(log_delta)]))
    try:
        inversion = chance.contours(pmf, epsilon)
        for e in (epsilon, epsilon * 0.9, epsilon + 0.7 / inversion.c):
            bound, true = inversion.delta_bound(e, log_delta).bound, float(exact.delta(e)) / math.exp(log_delta)
            lower, upper = (0.0, bound) if pmf.above else (bound, math.inf)
            if not math.isnan(bound):
                chance.check((e, bound), lower, upper, true, SLACK * true, math.inf)
        question.epsilon = np.array([epsilon * chance.scale(-1, 1)])
        question.bracket.crude(pmf, 1e-4)
        for _ in range(3):
            question.read(chance.contours(pmf, epsilon))
    except ArithmeticError:
        return
    for e, least in ((float(question.bracket.lower[0]), True), (float(question.bracket.upper[0]), False)):
        if 0.0 < e < math.inf:
            chance.proofs += 1
            ratio = float(exact.delta(e)) / math.exp(log_delta)
            if not (ratio >= 1 - SLACK if least else ratio <= 1 + SLACK):
                chance.violations.append((e, least, ratio))


@pytest.mark.long
def test_random_choices_never_make_a_bound_of_a_reference_row_wrong(chance: Chance) -> None:
    check_rows(chance, COMPOSED[3::9])
    assert chance.violations == []
    assert chance.proofs > 30


@pytest.mark.slow
@pytest.mark.parametrize("part", range(9))
def test_random_choices_never_make_a_bound_of_any_reference_row_wrong(chance: Chance, part: int) -> None:
    chance.rng = np.random.default_rng(part)
    check_rows(chance, COMPOSED[part::9])
    assert chance.violations == []
    assert chance.proofs > 30


@pytest.mark.long
def test_random_choices_never_make_a_bound_of_a_small_law_wrong(chance: Chance) -> None:
    check_laws(chance, range(36))
    assert chance.violations == []
    assert chance.proofs > 200


@pytest.mark.slow
def test_random_choices_never_make_a_bound_of_many_small_laws_wrong(chance: Chance) -> None:
    check_laws(chance, range(36, 600))
    assert chance.violations == []


# --- many phases, and closed forms ------------------------------------------------------------------------------------


def check_phases(chance: Chance, table: list[dict[str, str]]) -> None:
    """Rows whose steps are dealt out to many phases: the same law many times is that law's run."""
    chance.fine = 1.0
    for row in table:
        steps = int(row["steps"])
        ends = np.sort(chance.rng.choice(np.arange(1, steps), MANY - 1, replace=False))
        shares = np.diff(np.append(ends, steps), prepend=0)
        law = law_of(row)
        check_row(chance, row, Pair(tuple(PhaseLaw(law, int(share)) for share in shares), NOTHING, symmetric=True))


@pytest.mark.long
def test_random_choices_never_make_a_bound_of_many_phases_wrong(chance: Chance) -> None:
    check_phases(chance, [row for row in COMPOSED if int(row["steps"]) > 2 * MANY][2::240])
    assert chance.violations == []
    assert chance.proofs > 2


@pytest.mark.slow
def test_random_choices_never_make_a_bound_of_any_many_phases_wrong(chance: Chance) -> None:
    check_phases(chance, [row for row in COMPOSED if int(row["steps"]) > 2 * MANY][::16])
    assert chance.violations == []
    assert chance.proofs > 20


@pytest.mark.long
def test_random_choices_for_different_phases_leave_room_for_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the search with its own guesses: both brackets hold one number, so they overlap."""
    scheme, kinds = CappedPoisson(60_000, 256 / 60_000, 256), ("swap", "note", "union")
    phases = [Phase(scheme, 0.8 + 0.05 * i, 3 + i % 4, Analysis(kinds[i % 3])) for i in range(12)]
    pair, at = Pair(tuple(phase_law(phase, Adjacency.ADD_REMOVE, 1) for phase in phases)), np.array([1e-5])
    with np.errstate(all="ignore"):
        truth = solve.epsilons(pair, at)
        chance = Chance(np.random.default_rng(3), float(truth.upper[0]), fine=1.0)
        chance.install(monkeypatch)
        for _ in range(30):
            noting(chance, "phases", check_overlap, chance, solve.epsilons, pair, at, truth)
    assert chance.violations == []
    assert chance.proofs > 1


def part(brackets: Brackets, some: slice) -> Brackets:
    return Brackets(brackets.lower[some], brackets.upper[some])


def check_overlap(
    chance: Chance, ask: Callable[..., Brackets], of: Pair | ClosedForm, at: np.ndarray, truth: Brackets
) -> None:
    """Answers about numbers of which only brackets are known."""
    found = ask(of, at)
    chance.proofs += int((found.lower > 0.0).sum() + (found.upper < math.inf).sum())
    if not (found.lower <= truth.upper * (1 + SLACK)).all() or not (truth.lower <= found.upper * (1 + SLACK)).all():
        chance.violations.append((found, truth))


def test_random_points_never_make_an_answer_of_a_closed_form_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    law, deltas = law_of(COMPOSED[0]), np.array([1e-9, 1e-5, 1e-3])
    forms: list[ClosedForm] = [OneStep(law, crossings), Gaussian(0.99, 0.99), Gaussian(1e-4, 1e-4)]
    with np.errstate(all="ignore"):
        truth = [closed_form.epsilons(form, deltas) for form in forms]
        chance = Chance(np.random.default_rng(4))
        chance.install(monkeypatch)
        forms.append(OneStep(law, chance.crossings))
        truth.append(truth[0])
        for form, exact in zip(forms, truth, strict=True):
            for _ in range(4):
                for some in (slice(None), slice(1, 2)):
                    noting(
                        chance, form, check_overlap, chance, closed_form.epsilons, form, deltas[some], part(exact, some)
                    )
    assert chance.violations == []
    assert chance.proofs > 30


# --- lending ----------------------------------------------------------------------------------------------------------


def against_populations(
    m: Mechanism, nodes: ProfileNodes, rng: np.random.Generator, populations: int
) -> tuple[int, list[object]]:
    """Laws of a step against divergences of populations, which are exact lower bounds of what is lost."""
    seen, violations, eps = 0, list[object](), some_epsilons(m, rng)
    rare = float(10.0 ** rng.uniform(-12, -4))
    both = [one.discretised(rare) for one in (nodes, nodes.reversed())]
    bound = np.concatenate([HullStep(law).delta_bounds(eps)[1] for law in both])
    for _ in range(populations):
        value, size = divergences(m, some_population(m, rng), eps)
        seen += value.size
        if (value > bound + ROUNDING * size).any():
            violations.append((m, float((value - bound).max())))
    return seen, violations


def check_lending(
    rng: np.random.Generator, mechanisms: int, nodes: Callable[..., ProfileNodes]
) -> tuple[int, list[object]]:
    """Laws by lending, one step at a time."""
    seen, violations = 0, list[object]()
    for _ in range(mechanisms):
        m = some_mechanism(rng)
        step = cases.make(m.n, m.p, m.B, m.sigma, m.adjacency)
        try:
            more, found = against_populations(m, nodes(step, rng), rng, 2)
        except NotCertifiedError:  # no node has a finite loss that matters
            continue
        seen, violations = seen + more, violations + found
    return seen, violations


def chosen_nodes(step: lending.Step, rng: np.random.Generator) -> ProfileNodes:
    """As the search chooses them."""
    from filet.accounting.search.lending import choose_shares, coarse_nodes

    return coarse_nodes(step, choose_shares(step), 10, -10.0)


def test_random_shares_tilts_and_nodes_never_make_lending_wrong() -> None:
    with np.errstate(all="ignore"):
        seen, violations = check_lending(np.random.default_rng(5), 25, random_nodes)
    assert violations == []
    assert seen > 400


@pytest.mark.slow
def test_random_shares_tilts_and_nodes_never_make_lending_wrong_however_often() -> None:
    with np.errstate(all="ignore"):
        seen, violations = check_lending(np.random.default_rng(6), 600, random_nodes)
    assert violations == []
    assert seen > 10_000


@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_random_lending_keeps_epsilons_above_every_attack(monkeypatch: pytest.MonkeyPatch, adjacency: str) -> None:
    """The whole way: what is composed is wide or refused, and never below what an explicit pair of data sets loses."""
    rng = np.random.default_rng([3, len(adjacency)])
    lend_at_random(monkeypatch, rng)
    answered = 0
    for n, p, cap, sigma, steps in [(60, 0.3, 20, 0.8, 20), (400, 0.1, 41, 1.0, 50), (30, 0.5, 15, 2.0, 1)] * 2:
        scheme = CappedPoisson(n, p, cap)
        run = Run([Phase(scheme, sigma, steps)], [], Adjacency(adjacency))
        upper = run.epsilons(np.array([1e-5, 1e-4])).upper
        words = {"noise_multiplier": sigma, "steps": steps, "adjacency": adjacency}
        least = [epsilon_lower_bound(scheme, delta=delta, **words) for delta in (1e-5, 1e-4)]  # type: ignore[arg-type]
        assert (upper >= least).all()
        assert run.deltas(np.array(least)).upper[1] >= 1e-4 * (1 - 1e-6)
        answered += int((upper < math.inf).sum())
    assert answered > 0


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ["add-remove", "zero-out", "replace-one"])
def test_random_lending_keeps_epsilons_of_many_phases_above_every_attack(
    monkeypatch: pytest.MonkeyPatch, adjacency: str
) -> None:
    """The most noise stands for all in the attack."""
    rng, answered = np.random.default_rng([3, len(adjacency)]), 0
    lend_at_random(monkeypatch, rng, far=1.0)
    for n, p, cap, sigma in [(60, 0.3, 20, 0.8), (400, 0.1, 41, 1.0)]:
        scheme = CappedPoisson(n, p, cap)
        phases = [Phase(scheme, sigma * (1.0 + 0.1 * i / MANY), 1) for i in range(MANY)]
        least = epsilon_lower_bound(scheme, noise_multiplier=1.1 * sigma, steps=MANY, adjacency=adjacency, delta=1e-3)
        upper = float(Run(phases, [], Adjacency(adjacency)).epsilons(np.array([1e-3])).upper[0])
        assert upper >= least > 0.0
        answered += upper < math.inf
    assert answered > 0


def test_a_neighbours_law_is_noticed() -> None:
    def neighbours(step: lending.Step, rng: np.random.Generator) -> ProfileNodes:
        other = cases.make(step.n, 0.7 * step.p, step.cap, step.sigma, str(step.adjacency))
        return chosen_nodes(other, rng)

    with np.errstate(all="ignore"):
        _, violations = check_lending(np.random.default_rng(17), 30, neighbours)
    assert violations


def test_a_cover_that_is_too_strong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = lending.cover

    def cover(*given: Any) -> tuple[np.ndarray, np.ndarray]:
        mass, theta = honest(*given)
        return 2.0 * mass, theta

    monkeypatch.setattr(lending, "cover", cover)
    with np.errstate(all="ignore"):
        _, violations = check_lending(np.random.default_rng(8), 40, chosen_nodes)
    assert violations


def test_a_hull_below_its_values_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hull, "dominating", lambda loss, excess: dominating(loss, excess * 0.5))
    with np.errstate(all="ignore"):
        _, violations = check_lending(np.random.default_rng(9), 40, chosen_nodes)
    assert violations


# --- the checks are complete, and can fail ----------------------------------------------------------------------------


def test_everything_that_searches_has_its_place_here() -> None:
    folder = Path(search.__file__).parent
    bodies = [ast.parse(path.read_text()).body for path in folder.glob("*.py")]
    names = {node.name for body in bodies for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    listed = RANDOM + READ_BY_THOSE + ASKING
    assert sorted(listed) == sorted(set(listed))
    assert {name for name in names if not name.startswith("_")} == set(listed)


def test_the_loop_calls_nothing_of_the_search_that_is_not_random_or_reads_only_such() -> None:
    """What `solve` imports from the other modules of its room is in one of the lists."""
    tree = ast.parse((Path(search.__file__).parent / "solve.py").read_text())
    used = {
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1 for alias in node.names
    }
    constants = {name for name in used if name.isupper()}
    assert constants == {"EFFORT", "LOWEST_LOG_DELTA", "TOLERANCE"}
    assert used - constants - {"Question"} <= set(RANDOM + READ_BY_THOSE)


HONEST = Inversion.delta_bound


def halved(self: Inversion, epsilon: float, log_delta: float) -> DeltaBound:
    found = HONEST(self, epsilon, log_delta)
    return DeltaBound(found.bound * (0.5 if self.above else 2.0), found.slope, found.error)


def noticed(chance: Chance) -> bool:
    """Whether the checks of small laws notice something, sooner or later."""
    for seed in range(200):
        check_laws(chance, range(seed, seed + 1))
        if chance.violations:
            return True
    return False


@pytest.mark.long
def test_a_proof_that_says_half_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inversion, "delta_bound", halved)
    check_rows(chance, COMPOSED[3::9])
    assert chance.violations


def test_a_proof_that_forgets_aliases_or_smoothing_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = contour_module.Contour.read

    def read(self: contour_module.Contour, e: float) -> contour_module.Reading:
        found = honest(self, e)
        return contour_module.Reading(found.value, found.slope, found.error, 0.0, 0.0)

    monkeypatch.setattr(contour_module.Contour, "read", read)
    assert noticed(chance)


def test_a_proof_that_forgets_what_was_cut_off_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = contour_module.Contour._sample

    def sample(self: contour_module.Contour, largest: float) -> Spectrum:
        spectrum = honest(self, largest)
        self.truncation = 0.0
        return spectrum

    monkeypatch.setattr(contour_module.Contour, "_sample", sample)
    assert noticed(chance)


@pytest.mark.long
def test_a_proof_that_forgets_what_splitting_added_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cells, "chord", lambda *_: 0.0)
    check_rows(chance, COMPOSED[3::9])
    assert chance.violations


def test_a_proof_that_forgets_sums_with_two_jumps_is_noticed(chance: Chance, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Inversion.__init__

    def forget(self: Inversion, pmf: LossPMF, plans: list[ContourParameters], *caps: float) -> None:
        honest(self, pmf, plans, *caps)
        self.uncovered = 0.0

    monkeypatch.setattr(Inversion, "__init__", forget)
    assert noticed(chance)
