"""Questions: Newton's method from anywhere keeps what is proven true, and ends at the answer from a fair start."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.accounting.laws import FEW, OTHER, Counted, inversion_near, pair_of, usual_law

from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.search.grid import uniform_grid
from filet.accounting.search.question import DeltaQuestion, EpsilonQuestion, Question

DELTAS = np.array([1e-6, 1e-4, 1e-2])


def usual_pmf(steps: int = 300, above: bool = True) -> LossPMF:
    law = usual_law()
    return pair_of((law, steps)).pmf([uniform_grid(law, 10.0, 0.05)], above=above, negligible=0.0)


def test_a_question_knows_nothing_at_first_and_all_of_it_is_wide() -> None:
    assert EpsilonQuestion(DELTAS).wide.all()
    assert DeltaQuestion(np.array([0.0, 1.0])).wide.all()


@pytest.mark.parametrize("start", [1e-3, 0.2, 1.0, 5.0, 40.0])
def test_newtons_method_from_any_start_proves_only_what_is_true(start: float) -> None:
    """A contour near the answer, read from starts that are far off."""
    laws = [(FEW, 3), (OTHER, 2)]
    exact, goal = Counted(laws), 0.02
    pmf = LossPMF(laws, 0.0, True)
    question = EpsilonQuestion(np.array([goal]))
    question.epsilon = np.array([start])
    question.read(inversion_near(pmf, 1.0, math.log(goal)))
    upper = float(question.bracket.upper[0])
    assert upper == math.inf or float(exact.delta(upper)) <= goal * (1 + 1e-9)
    question.epsilon = np.array([start])
    question.read(inversion_near(LossPMF(laws, 0.0, False), 1.0, math.log(goal)))
    assert float(exact.delta(float(question.bracket.lower[0]))) >= goal * (1 - 1e-9)


@pytest.mark.parametrize("start", [0.5, 0.9, 1.2, 1.8])
def test_newtons_method_ends_at_the_least_epsilon_that_its_contour_proves(start: float) -> None:
    pmf, delta = usual_pmf(), 1e-6
    inversion = inversion_near(pmf, 1.1, math.log(delta))
    question = EpsilonQuestion(np.array([delta]))
    question.epsilon = np.array([start])
    for _ in range(3):
        question.read(inversion)
    upper = float(question.bracket.upper[0])
    assert inversion.delta_bound(upper, math.log(delta)).bound <= 1.0
    assert inversion.delta_bound(upper * (1 - 1e-4), math.log(delta)).bound > 1.0


def test_several_questions_are_read_at_once_and_each_as_if_alone() -> None:
    pmf = usual_pmf()
    inversion = inversion_near(pmf, 0.9, math.log(1e-4))
    starts = np.array([1.2, 0.9, 0.4])
    whole = EpsilonQuestion(DELTAS)
    whole.epsilon = starts
    whole.read(inversion)
    for i in range(3):
        alone = EpsilonQuestion(DELTAS[i : i + 1])
        alone.epsilon = starts[i : i + 1]
        alone.read(inversion)
        assert whole.bracket.upper[i] == pytest.approx(alone.bracket.upper[0], rel=1e-6)


@pytest.mark.parametrize("question", [EpsilonQuestion(DELTAS), DeltaQuestion(np.array([0.1, 0.5, 1.0]))])
def test_a_part_is_made_of_some_of_the_questions(question: Question) -> None:
    question.start(usual_pmf())
    part = question.part(np.array([0, 2]))
    assert part.epsilon.tolist() == question.epsilon[[0, 2]].tolist()
    assert part.log_delta.tolist() == question.log_delta[[0, 2]].tolist()
    assert part.wide.all()  # what is proven of it starts anew
    question.bracket.keep_part(np.array([0, 2]), part.bracket)


def test_guesses_are_near_the_answer_of_many_steps() -> None:
    pmf = usual_pmf(3_000)
    epsilons, deltas = EpsilonQuestion(DELTAS), DeltaQuestion(np.array([1.0]))
    epsilons.start(pmf)
    assert (np.diff(epsilons.epsilon) < 0.0).all()
    deltas.epsilon = epsilons.epsilon
    deltas.log_delta = 0.0 * epsilons.epsilon
    deltas.start(pmf)
    assert deltas.log_delta == pytest.approx(np.log(DELTAS), abs=0.5)


def test_guesses_of_rare_large_losses_are_theirs() -> None:
    rare = Discrete(np.array([-2e-3, 2e-3, 4.0, 9.0]), np.log([0.5, 0.5 - 1.1e-6, 1e-6, 1e-7]), 0.0, 0.0)
    pmf = LossPMF([(rare, 1_000)], 0.0, True)
    question = EpsilonQuestion(np.array([9e-4]))  # the chance of one loss of 4 among them, nearly
    question.start(pmf)
    assert 0.5 < question.epsilon[0] < 9.5


def test_crude_bounds_settle_what_costs_nothing() -> None:
    tiny = Discrete(np.array([-1e-9, 1e-9]), np.log([0.5, 0.5]), 0.0, 0.0)
    pmf, pair = LossPMF([(tiny, 10)], 0.0, True), pair_of((usual_law(), 1))
    question = EpsilonQuestion(np.array([1e-5, 0.1]))
    assert question.settled_without_contour(pair, [], pmf).all()
    assert (question.bracket.upper <= 1e-4).all()
    infinite = LossPMF([(Discrete(tiny.loss, tiny.log_mass, 1e-3, 0.0), 10)], 0.0, True)
    question = EpsilonQuestion(np.array([1e-5, 0.1]))
    assert question.settled_without_contour(pair, [], infinite).tolist() == [True, True]
    assert question.bracket.upper[0] == math.inf  # no contour would prove it either


def test_what_the_other_order_costs_is_shown_by_one_reading() -> None:
    pmf = usual_pmf()
    question = EpsilonQuestion(DELTAS[:1])
    inversion = inversion_near(pmf, 1.1, math.log(DELTAS[0]))
    question.epsilon = np.array([1.1])
    for _ in range(3):
        question.read(inversion)
    upper = question.bracket.upper
    assert question.again(upper).shown(inversion, upper).all()
    assert not question.again(upper).shown(inversion, upper * 0.999).any()


def test_a_bound_at_a_cliff_is_looked_for_as_far_below_as_is_promised() -> None:
    question = EpsilonQuestion(np.array([1e-6, 1e-5]))
    question.epsilon = np.array([1.1, 0.9])
    question.read(inversion_near(usual_pmf(), 1.1, math.log(1e-6)))
    upper, below = question.bracket.upper, question.below_the_cliff()
    assert ((upper * (1 - 1e-3) <= below.epsilon) & (below.epsilon < upper)).all()
    assert below.log_delta.tolist() == question.log_delta.tolist()
    assert below.wide.all()
