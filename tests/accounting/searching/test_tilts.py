"""Which lines are proposed: the cap that amplifies rounding least, and plans that suit the question."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.accounting.laws import FEW, SMALL

from filet.accounting.proving.cells import Discrete
from filet.accounting.proving.composition import Composition, blocks
from filet.accounting.proving.line import Line, LinePlan
from filet.accounting.proving.view import View
from filet.accounting.searching import tilts as module
from filet.accounting.searching.tilts import Proposal, propose_evidence, propose_line

HITS = Discrete(np.array([0.0, 2.2, 2.4, 5.0]), np.log([1 - 3e-5, 1e-5, 1e-5, 1e-5]), 0.0, 0.0)
TOLERABLE = math.log(1e-4 / (10 * module._STEP_ERROR))
CAPS = (math.inf, 4.0, 2.6, 2.3, 2.14, 2.06)


def proposed(monkeypatch: pytest.MonkeyPatch, view: View, epsilon: float, log_delta: float, fineness: float,
             amplitudes: tuple[float, ...]) -> tuple[Any, list[Any]]:  # fmt: skip
    """Evidence where lines amplify rounding as the test says, depending on the cap; and what was asked of them."""
    known, asked = dict(zip(CAPS, amplitudes, strict=False)), []

    def line(composition: Composition, epsilon: float, log_delta: float, width: float, *_: float) -> Proposal:
        asked.append((round(composition.cap, 9), composition.jump, epsilon, log_delta, width))
        amplitude = known.get(round(composition.cap, 9), 99.0)
        return Proposal(LinePlan(1.0, 0.1, 15.0, 10.0, np.array([float(len(asked))])), amplitude, 1.0)

    monkeypatch.setattr(module, "propose_line", line)
    monkeypatch.setattr(module, "Evidence", lambda view, plans, *caps: SimpleNamespace(
        view=view, plans=plans, cap=min(caps, default=math.inf)))  # fmt: skip
    return propose_evidence(view, epsilon, log_delta, fineness), asked


@pytest.mark.parametrize(("amplitudes", "delta", "cap"), [
    ((TOLERABLE, 0, 0, 0, 0, 0), 0.01, math.inf),  # no cap is needed
    ((TOLERABLE + 0.1, 9), 0.01, 4.0),  # the first that is tolerable; the rest is not looked at
    ((50, 40, TOLERABLE), 0.01, 2.6),
    ((50, 40, 30, TOLERABLE + 2, 45, 49), 0.01, 2.3),  # the best of all
    ((50, 40, 40, 40, 40, 40), 0.01, 4.0),  # the first of equals
    ((50, 50, 51, 51, 51, 51), 0.01, 4.0),
    ((50, 51, 51, 51, 51, 51), 0.01, math.inf),  # none helps
    ((50, 40, 35, 1, 1, 1), 1.7e-3, 2.6),  # at the lower caps two jumps would weigh too much: 0.5 (10 x 2e-5)^2
    ((50, 40, 35, 1, 1, 1), 1.9e-3, 2.3),
    ((50, 1, 1, 1, 1, 1), 4.4e-4, math.inf),
])  # fmt: skip
def test_the_cap_is_the_one_that_amplifies_rounding_least(
    monkeypatch: pytest.MonkeyPatch, amplitudes: tuple[float, ...], delta: float, cap: float
) -> None:
    view = View([(HITS, 10)], 0.25, True)
    evidence, asked = proposed(monkeypatch, view, 2.0, math.log(delta), 3.0, amplitudes)
    assert evidence.view is view
    assert all(where[2:] == (2.0, math.log(delta), pytest.approx(1e-5 / 9)) for where in asked)
    used = [asked[int(plan.tilts[0]) - 1][:2] for plan in evidence.plans]
    assert used == ([(math.inf, False)] if cap == math.inf else [(cap, False), (cap, True)])
    assert evidence.cap == pytest.approx(cap)


def test_caps_that_no_loss_exceeds_are_left_out_and_so_are_caps_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    law = Discrete(HITS.loss[:3], np.log([1 - 2e-5, 1e-5, 1e-5]), 0.0, 0.0)
    view = View([(law, 10)], 0.0, False)
    evidence, asked = proposed(monkeypatch, view, 2.0, math.log(0.01), 1.0, (50, 1, 1, 40, 40, 40))
    assert evidence.cap == pytest.approx(2.3)
    assert asked[0][4] == pytest.approx(3e-5)  # from below, smoothing costs less and may be wider
    evidence, asked = proposed(monkeypatch, view, 0.0, math.log(0.01), 1.0, (50,))
    assert evidence.cap == math.inf
    assert len(asked) == 1


def test_a_plan_has_its_tilt_between_others_and_a_period_that_keeps_aliases_small() -> None:
    composition = Composition(blocks([(FEW, 30)]))
    for epsilon, log_delta in ((1.0, math.log(0.3)), (6.0, math.log(1e-2)), (14.0, math.log(1e-6))):
        plan = propose_line(composition, epsilon, log_delta, 1e-5).plan
        assert (plan.tilts < plan.c).any()
        assert (plan.tilts > plan.c).any()
        assert 15.0 <= plan.beta <= 40.0
        line = Line(composition, plan)
        reading = line.read(epsilon)
        assert reading.alias <= 1e-5 * math.exp(log_delta - line.log_unit(epsilon))
        assert reading.error < 1e-4 * reading.value


def test_the_tilt_of_a_jump_is_near_the_minimum_of_its_own_chernoff_bound() -> None:
    jumping = Composition(blocks([(HITS, 10)]), 0.0, 2.3, jump=True)
    c = module._jump_saddle(jumping, 2.0)
    tilts = np.array([c / 2, c, 2 * c])
    value = jumping.log_mgf(tilts) - tilts * 2.0 - np.log(tilts) - np.log1p(tilts)
    assert value[1] == value.min()
    assert propose_line(jumping, 2.0, -7.0, 1e-5).plan.c > 0.0


@pytest.mark.parametrize("fineness", [1.0, 4.0])
def test_finer_questions_get_smaller_shifts(fineness: float) -> None:
    composition = Composition(blocks([(SMALL, 500)]))
    coarse, fine = (propose_line(composition, 3.0, -9.0, 1e-5 / f**2).plan for f in (1.0, 2 * fineness))
    assert fine.shift < coarse.shift
    plan = propose_line(composition, 1e-6, -0.1, 1e-5).plan
    assert plan.shift <= 1e-2  # never wide enough to smear the bulk over epsilon


# One in a million outcomes is large, and larger ones are rarer still; the others hardly matter, each for itself.
LOSSES = np.concatenate([[-1e-4, 1e-4], np.geomspace(0.01, 3.0, 200)])
RARE = Discrete(
    LOSSES, np.log(np.concatenate([[0.5, 0.5 - 2e-6], 1e-7 * 1e-20 ** np.linspace(0.0, 1.0, 200)])), 0.0, 0.0
)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("steps", [2, 100, 10_000])
def test_where_one_large_loss_decides_a_few_short_lines_suffice(steps: int, above: bool) -> None:
    """Delta is then about the sum of the steps' own, at an epsilon that small losses hardly move."""
    view = View([(RARE, steps)], 0.0, above)
    epsilon = 0.4
    log_delta = math.log(float(view.separate(np.array([epsilon]))[0]))
    evidence = propose_evidence(view, epsilon, log_delta, 1.0)
    assert len(evidence.caps) >= 2
    assert evidence.caps[0] < epsilon / 2
    assert evidence.nodes < 10_000
    bound = float(evidence.delta_bound(epsilon, log_delta).bound)
    assert bound == pytest.approx(1.0, abs=0.02)


def test_losses_far_above_epsilon_have_lines_that_are_smoothed_more() -> None:
    view = View([(RARE, 100)], 0.0, True)
    ask = module.Ask(view, 0.02, math.log(1e-6), 1.0)
    caps, lines = ask.jumps(0.02, 0.02)
    assert caps
    assert all(0.02 < cap < 3.0 for cap in caps)
    assert len(lines) == len(caps) + 1
    assert lines[1].plan.shift > 5.0 * lines[0].plan.shift


def test_smoothing_may_be_wider_from_above() -> None:
    law = Discrete(np.array([-1.0, 50.0, 60.0]), np.log([0.9, 0.05, 0.05]), 0.0, 0.0)
    above, below = (propose_evidence(View([(law, 100)], 0.0, above), 900.0, -9.0, 1.0) for above in (True, False))
    assert above.lines[0].s > module.WIDEST_SHIFT
    assert below.lines[0].s <= max(module.WIDEST_SHIFT, module._WIDE * 900.0, 0.03 * math.sqrt(3e-5) * 900.0)


def test_a_stretch_has_one_cap_at_most() -> None:
    view = View([(RARE, 100)], 0.0, True)
    log_delta = math.log(float(view.separate(np.array([0.4]))[0]))
    found = propose_evidence(view, 0.4, log_delta, 1.0, stretch=True)
    assert len(found.caps) == 1
    assert found.caps[0] > 0.4
