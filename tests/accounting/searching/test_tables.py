"""Many questions to a closed form: brackets hold the exact epsilons, and are as narrow as those of single questions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.accounting.laws import law_of, rows, usual_law

from filet.accounting.proving.closed_form import Gaussian, OneStep, gaussian_log_delta
from filet.accounting.searching import tables
from filet.accounting.searching.crossings import crossings
from filet.accounting.searching.exact import Exact
from filet.accounting.searching.refinement import wide

DELTAS = np.geomspace(1e-200, 0.9, 300)
SQUARES = [1e-6, 0.01, 1.0, 60.0, 1e5]


@pytest.mark.parametrize("square", SQUARES)
def test_epsilons_of_a_gaussian_are_held_to_many_digits(square: float) -> None:
    form, mu = Gaussian(square, square), math.sqrt(square)
    lower, upper = tables.epsilons(form, DELTAS)
    some = upper > 0.0
    assert (upper - lower <= 1e-8 * np.maximum(upper, 1e-6))[some].all()
    for i in np.flatnonzero(some)[::37]:
        assert gaussian_log_delta(mu, upper[i]) <= math.log(DELTAS[i]) + 1e-8
        assert lower[i] == 0.0 or gaussian_log_delta(mu, lower[i]) >= math.log(DELTAS[i]) - 1e-8
    for i in (0, 150, 299):
        alone = Exact(form).epsilon(float(DELTAS[i]))
        assert max(alone.lower, lower[i]) <= min(alone.upper, upper[i])
    assert (upper[~some] == 0.0).all()
    assert (np.diff(upper) <= 0.0).all()


def test_epsilons_of_one_step_are_those_of_the_reference() -> None:
    seen = 0
    for row in rows("profiles.csv")[::12]:
        epsilon, delta = float(row["epsilon"]), float(row["delta"])
        if not (1e-290 < delta < 0.99 and epsilon > 1e-6):
            continue
        asked = np.unique(np.minimum(np.array([1e-3, 0.1, 1.0, 3.0]) * delta, 0.99))
        lower, upper = tables.epsilons(OneStep(law_of(row), crossings), asked)
        at, slack = int(np.searchsorted(asked, delta)), 1e-6 * (1.0 + epsilon)
        assert lower[at] - slack <= epsilon <= upper[at] + slack, row
        seen += 1
    assert seen > 5


def test_profiles_with_kinks_and_flat_parts_are_searched_by_sections() -> None:
    class Stairs:
        """delta falls in steps of ten, at whole epsilons, and is flat in between."""

        def delta_bounds(self, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value = 0.5 * 10.0 ** -np.minimum(np.floor(epsilon), 300.0)
            return value * (1 - 1e-12), value * (1 + 1e-12)

    asked = np.array([2e-6, 2e-4, 7e-4, 0.03])
    lower, upper = tables.epsilons(Stairs(), asked)
    assert upper == pytest.approx([6.0, 4.0, 3.0, 2.0], rel=1e-7)
    assert lower == pytest.approx([6.0, 4.0, 3.0, 2.0], rel=1e-7)
    assert (lower < upper).all()


def test_what_is_asked_beside_does_not_move_an_answer_out_of_its_bracket() -> None:
    form = OneStep(usual_law(), crossings)
    whole = tables.epsilons(form, DELTAS)
    some = np.array([3, 99, 100, 250])
    part = tables.epsilons(form, DELTAS[some])
    assert (np.maximum(whole[0][some], part[0]) <= np.minimum(whole[1][some], part[1])).all()
    assert not wide(whole).any()
