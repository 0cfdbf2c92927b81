"""Looks at steps that lend: kept for both directions, beside cells in one view, and left out where they do not help."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests import lending_cases as cases
from tests.accounting.laws import usual_law

from filet import Adjacency, Analysis, Bounds, CappedPoisson, account
from filet.accounting.proving.cells import Cells
from filet.accounting.proving.closed_form import OneStep
from filet.accounting.proving.hull import HullStep
from filet.accounting.proving.lending import Step
from filet.accounting.proving.theorems import loss_law
from filet.accounting.proving.verdict import EpsilonBracket
from filet.accounting.searching import refinement as module
from filet.accounting.searching.budget import Budget
from filet.accounting.searching.crossings import crossings
from filet.accounting.searching.exact import Exact, OneStepAnswers
from filet.accounting.searching.grids import Focus
from filet.accounting.searching.lending_looks import Laws, Query, Sight
from filet.accounting.searching.refinement import Direction, Part, wide

LOG = math.log(1e-6)


def lending_part(steps: int, adjacency: str = "zero-out", cap: int = 41) -> Part:
    law = loss_law(CappedPoisson(400, 0.1, cap), 0.9, Adjacency(adjacency), Analysis.REFINED)
    return Part(law, steps, cases.make(400, 0.1, cap, 0.9, adjacency))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Query]:
    """What lending is asked for."""
    queries: list[Query] = []

    def down_to(step: Step, query: Query) -> Sight:
        queries.append(query)
        return sight(step, query)

    sight = Sight.down_to
    monkeypatch.setattr(Sight, "down_to", down_to)
    return queries


def test_a_look_is_kept_and_the_mirror_takes_it_reversed(asked: list[Query]) -> None:
    run = Direction([lending_part(50), Part(usual_law(), 9)])
    mirror = run.reversed()
    first = run.look(LOG)
    assert run.look(LOG) is first
    lent, cells = first
    assert isinstance(lent, Laws)
    assert isinstance(cells, Cells)
    assert asked == [Query(59, -40.0)]  # all steps of the run decide how far out losses matter
    second = mirror.look(LOG)
    assert asked == [Query(59, -40.0)]
    back = second[0]
    assert isinstance(back, Laws)
    assert (back.forward, back.reverse) == (lent.reverse, lent.forward)
    assert mirror.look(LOG) is second


def test_a_mirror_that_looks_first_sees_the_reverse_too(asked: list[Query]) -> None:
    run = Direction([lending_part(50)])
    mirror = run.reversed()
    (back,) = mirror.look(LOG)
    assert len(asked) == 1
    (lent,) = run.look(LOG)
    assert isinstance(back, Laws)
    assert isinstance(lent, Laws)
    assert (back.forward.loss == lent.reverse.loss).all()
    assert (back.forward.log_mass == lent.reverse.log_mass).all()
    assert (back.reverse.loss == lent.forward.loss).all()


def test_another_delta_is_another_look_as_nodes_are_fitted_to_it(asked: list[Query]) -> None:
    run = Direction([lending_part(50)])
    first, second = run.look(LOG), run.look(-20.0)
    assert run.look(-20.0) is second
    assert isinstance(first[0], Laws)
    assert isinstance(second[0], Laws)
    assert first[0].forward.loss.max() < second[0].forward.loss.max()
    assert asked == [Query(50, -40.0)]  # what is lent serves both
    run.look(-41.0)
    assert asked[1:] == [Query(50, -80.0)]


@pytest.mark.parametrize("earlier", [[-30.0], [-60.0, -3.0], [-41.0, -20.0]])
@pytest.mark.parametrize("backwards", [False, True])
def test_what_is_seen_does_not_depend_on_earlier_questions(earlier: list[float], backwards: bool) -> None:
    def seen(log_deltas: list[float]) -> list[np.ndarray]:
        run = Direction([lending_part(50), Part(usual_law(), 9)])
        mirror = run.reversed()
        for log_delta in log_deltas:
            run.size(-log_delta)
            run.look(log_delta)
        lent, cells = mirror.look(LOG) if backwards else run.look(LOG)
        assert isinstance(lent, Laws)
        assert isinstance(cells, Cells)
        return [lent.forward.loss, lent.forward.log_mass, lent.reverse.log_mass, cells.loss]

    for one, other in zip(seen(earlier), seen([]), strict=True):
        assert (one == other).all()


def test_cells_and_laws_meet_in_one_view() -> None:
    run = Direction([lending_part(50), Part(usual_law(), 9)], Bounds(0.1, 0.2))
    look = run.look(LOG)
    lent, cells = look
    assert isinstance(lent, Laws)
    for above in (True, False):
        view = run.view(look, above=above)
        assert (view.steps, view.gaussian) == (59, 0.2 if above else 0.1)
        rows = [row[np.isfinite(mass)] for b in view.blocks for row, mass in zip(b.loss, b.log_mass, strict=True)]
        assert (rows[0] == lent.forward.loss).all()  # discrete as it is, from both sides
        alone = run.view([lent, cells], above=above).blocks
        assert sum(b.loss.shape[0] for b in alone) == 2
    where = Focus(100, np.array([-1.0, 1.0]), np.zeros(2))
    fitted = module._fitted(look, where)
    assert fitted[0] is lent
    assert isinstance(fitted[1], Cells)
    assert fitted[1] is not cells


def test_where_lending_does_not_help_a_step_is_seen_in_cells() -> None:
    rare = lending_part(50, cap=110)  # cuts hardly ever happen
    (seen,) = Direction([rare]).look(LOG)
    assert isinstance(seen, Cells)
    plain = Direction([Part(rare.law, 50)]).epsilon(1e-6)
    assert Direction([rare]).epsilon(1e-6) == plain


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_run_that_lends_is_below_the_same_run_that_does_not(adjacency: Adjacency) -> None:
    part = lending_part(50, adjacency)
    with np.errstate(all="ignore"):
        for run, plain in ((Direction([part]), Direction([Part(part.law, 50)])),
                           (Direction([part]).reversed(), Direction([Part(part.law, 50)]).reversed())):  # fmt: skip
            lent, swap = run.epsilon(1e-6), plain.epsilon(1e-6)
            assert lent.upper < 0.99 * swap.lower
            assert not wide(lent)
            assert run.delta(swap.lower).upper < 1e-6
            assert run.at_most(lent.upper * 1.01, 1e-6)
            assert not run.at_most(lent.lower * 0.99, 1e-6)


def test_halving_keeps_the_laws_of_lending(monkeypatch: pytest.MonkeyPatch, asked: list[Query]) -> None:
    run = Direction([lending_part(50), Part(usual_law(), 9)])
    seen: list[Any] = []
    view = Direction.view

    def spy(self: Direction, look: Any, *, above: bool) -> Any:
        seen.append(look)
        return view(self, look, above=above)

    monkeypatch.setattr(Direction, "view", spy)
    with np.errstate(all="ignore"):
        bracket = EpsilonBracket(1e-6)
        bracket.chernoff(run.view(run.look(LOG), above=True))
        run._halve(bracket, Budget())
    assert len(asked) == 1
    assert seen[-1][0] is run.look(LOG)[0]
    assert not wide(bracket)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_step_is_read_off_the_law_of_lending(adjacency: Adjacency) -> None:
    part = lending_part(1, adjacency)
    run = Direction([part])
    one = OneStepAnswers(run)
    (lent,) = run.look(LOG)
    assert isinstance(lent, Laws)
    found = one.epsilon(1e-6)
    upper = HullStep(lent.forward).delta_bounds(np.array([found.upper]))[1][0]
    assert upper <= 1e-6
    plain = Exact(OneStep(part.law, crossings))
    assert found.upper < plain.epsilon(1e-6).lower
    for epsilon in (0.0, 0.2, 1.0):
        assert one.delta(epsilon).upper <= plain.delta(epsilon).upper * (1 + 1e-4)
        assert one.quick_delta(epsilon) == one.delta(epsilon).upper
    assert one.at_most(found.upper, 1e-6)
    assert not one.at_most(found.lower * 0.999, 1e-6)


def test_one_step_without_lending_or_beyond_all_losses_is_its_profile() -> None:
    part = lending_part(1)
    plain = Exact(OneStep(part.law, crossings))
    without = OneStepAnswers(Direction([Part(part.law, 1)]))
    assert without.epsilon(1e-6) == plain.epsilon(1e-6)
    assert without.delta(0.4) == plain.delta(0.4)
    far = 1e4  # nothing is left there
    assert OneStepAnswers(Direction([part])).delta(far) == plain.delta(far)


@pytest.mark.parametrize("epsilon", [0.2, 0.2248, 0.23])
def test_a_delta_far_below_that_without_lending_is_found(epsilon: float) -> None:
    """Laws that are made for deltas of two sizes differ, and so do their brackets: they are not mixed."""
    scheme = CappedPoisson(10_000_000, 1e-4, 1000)
    lent, swap = (account(scheme, noise_multiplier=1.0, steps=10_000, adjacency="zero-out", analysis=analysis)
                  for analysis in ("refined", "swap"))  # fmt: skip
    found = lent.delta_bounds(epsilon)
    assert 0.0 < found.upper - found.lower < 1e-3 * found.upper
    assert found.upper < 1e-3 * swap.delta(epsilon)


def test_a_delta_far_below_its_first_guess_is_narrow() -> None:
    curve = account(CappedPoisson(10**9, 1e-6, 1158), noise_multiplier=1.0, steps=100, adjacency="replace-one")
    found = curve.delta_bounds(0.0001432)
    assert 0.9e-10 < found.lower <= found.upper < 1.1e-10
    assert found.upper - found.lower < 1e-3 * found.upper


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
def test_the_delta_of_one_step_is_looked_for_at_its_own_size(adjacency: Adjacency) -> None:
    """Lending may lower it by many powers of ten, and a law that is made for large deltas says nothing of small ones."""
    curve = account(CappedPoisson(100_000, 0.01, 1157), noise_multiplier=3.0, steps=1, adjacency=adjacency)
    found = curve.delta_bounds(curve.epsilon(1e-30))
    assert 0.0 < found.upper - found.lower < 1e-3 * found.upper
    assert found.upper < 1e-29
