"""Guesses that planning starts from: roots on a nearly linear scale, and corrections by quick looks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from filet import Adjacency, Analysis, CappedPoisson
from filet.accounting.rough import Rough
from filet.planning.looks import Looks, Run
from filet.planning.target import Target

TARGET = Target(3.0, 1e-5, Adjacency.ADD_REMOVE)
REJECT = CappedPoisson(60_000, 256 / 60_000, 256, overflow="reject")  # type: ignore[arg-type]


def at(x: float) -> Run:
    return REJECT, math.exp(-x), 14_000


@pytest.mark.parametrize("start", [-3.0, -0.5, 0.0, 0.5, 1.5])
def test_roots_do_not_depend_on_where_they_start(start: float) -> None:
    found = Looks(TARGET).root(at, start, (-10.0, 3.0))
    assert found is not None
    assert abs(Looks(TARGET).log_delta(at(found), 3.0) - math.log(1e-5)) < 1e-3
    assert abs(math.exp(-found) / 0.96 - 1.0) < 0.02


def test_a_correction_makes_the_guess_that_of_a_quick_look() -> None:
    looks = Looks(TARGET)
    change = looks.correct(at(0.0))
    assert 0.0 < change < 0.3
    assert math.isclose(looks.log_delta(at(0.0), 3.0), math.log(TARGET.curve(*at(0.0)).quick_delta(3.0)), rel_tol=1e-9)
    assert looks.correct(at(0.0)) < 1e-9


def test_guesses_are_corrected_once_for_like_rates() -> None:
    """Quick looks at what is lent are dear, so more rates count as alike."""
    here, near, far = (CappedPoisson(60_000, rate / 60_000, 256) for rate in (240, 256, 350))
    looks = Looks(TARGET)
    assert looks.correct((here, 1.3, 14_000)) > 0.0
    assert looks.correct((here, 1.2, 14_000)) == looks.correct((near, 1.2, 14_000)) == 0.0
    assert looks.correct((far, 1.3, 14_000)) > 0.0
    note = Looks(Target(3.0, 1e-5, Adjacency.ADD_REMOVE, Analysis.NOTE))
    note.correct((here, 1.9, 14_000))
    assert note.correct((here, 1.89, 14_000)) == 0.0
    assert note.correct((here, 1.6, 14_000)) > 0.0
    assert note.correct((CappedPoisson(60_000, 270 / 60_000, 256), 1.6, 14_000)) > 0.0


def test_a_root_beyond_the_limits_is_a_limit_or_none() -> None:
    assert Looks(TARGET).root(at, -2.0, (-2.0, -1.0)) == -1.0
    assert Looks(TARGET).root(at, 2.5, (1.0, 3.0)) in (1.0, None)


TIGHT = CappedPoisson(60_000, 256 / 60_000, 256)  # every other batch is cut


def tight(x: float) -> Run:
    return TIGHT, math.exp(-x), 14_000


def test_lending_has_a_start_of_its_own_only_where_much_is_lent() -> None:
    looks = Looks(TARGET, quick=True)
    start = looks.lent_start(tight, 0.0)
    assert start is not None
    assert start < 0.0  # lending does not make up for all cuts
    assert Looks(Target(3.0, 1e-5, Adjacency.ADD_REMOVE, Analysis.SWAP)).lent_start(tight, 0.0) is None
    roomy = CappedPoisson(60_000, 256 / 60_000, 330)
    for scheme in (REJECT, roomy, CappedPoisson(60_000, 256 / 60_000, 60_000)):
        assert looks.lent_start(lambda x, one=scheme: (one, math.exp(-x), 14_000), 0.0) is None  # type: ignore[misc]


@pytest.mark.parametrize("start", [-0.6, -0.2, 0.3])
def test_a_close_look_at_what_is_lent_meets_the_target_nearly(start: float) -> None:
    found = Looks(TARGET, quick=True).close_root(tight, start, (-10.0, 3.0))
    assert found is not None
    assert TARGET.spent(*tight(found[0])) == pytest.approx(TARGET.epsilon, rel=1e-3)
    assert found[1] > 0.5


def test_a_close_look_that_says_nothing_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (math.nan, 0.0, math.inf):
        monkeypatch.setattr(Rough, "epsilon", lambda *_, it=answer: it)
        assert Looks(TARGET).close_root(tight, 0.0, (-10.0, 3.0)) is None
    monkeypatch.setattr(Rough, "epsilon", lambda _, phase: 3.5 * phase.noise_multiplier)  # falls as x grows
    assert Looks(TARGET).close_root(tight, 0.0, (-10.0, 3.0)) is None


def at_probability(scheme: CappedPoisson, noise: float = 1.0, steps: int = 14_000) -> Callable[[float], Run]:
    return lambda x: (replace(scheme, sampling_probability=min(math.exp(x), 1.0)), noise, steps)


P_LIMITS = (math.log(1e-15), 0.0)
SHARP = CappedPoisson(45_000_000, 1e-3, 66_000)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    ("scheme", "noise", "steps", "epsilon"),
    [(TIGHT, 1.0, 14_000, 3.0), (TIGHT, 1.3, 14_000, 5.0), (SHARP, 1.0, 3_500, 1.0), (SHARP, 2.0, 3_500, 0.1)],
)
def test_the_probability_is_seen_closely_where_batches_begin_to_overflow(
    scheme: CappedPoisson, noise: float, steps: int, epsilon: float, adjacency: Adjacency
) -> None:
    """Its epsilon is nearly flat, then grows threefold within a per cent, and is nearly flat again."""
    target, at = Target(epsilon, 1e-8, adjacency), at_probability(scheme, noise, steps)
    found = Looks(target, quick=True).probable_root(at, math.log(1e-3), P_LIMITS)
    assert found is not None
    x, slope = found
    away = abs(math.log(target.spent(*at(x)) / epsilon))
    assert away <= 1e-2
    assert away / slope <= 2e-3  # of the probability


def test_a_probability_is_not_looked_for_below_a_cap_that_there_is_not() -> None:
    for scheme in (REJECT, CappedPoisson(60_000, 256 / 60_000, 60_000)):
        assert Looks(TARGET, quick=True).probable_root(at_probability(scheme), math.log(1e-3), P_LIMITS) is None


def test_where_even_every_example_costs_too_little_the_limit_is_returned() -> None:
    wasteful = Target(60.0, 1e-5, Adjacency.ZERO_OUT)  # more than any probability costs
    found = Looks(wasteful, quick=True).probable_root(at_probability(TIGHT, 3.0), math.log(1e-3), P_LIMITS)
    assert found is not None
    assert found[0] == 0.0
    assert wasteful.spent(*at_probability(TIGHT, 3.0)(0.0)) <= 60.0


def test_looks_at_a_probability_that_say_nothing_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rough, "epsilon", lambda *_: math.nan)
    assert Looks(TARGET).probable_root(at_probability(TIGHT), math.log(1e-3), P_LIMITS) is None
