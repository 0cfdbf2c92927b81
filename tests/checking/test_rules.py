"""Rules of the checker that other rules would hide: each has a claim, or a part of one, that only it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flint import arb, ctx, fmpq

from filet.checking import Claim, theorems
from filet.checking.theorems import Step, profile

CLAIM = json.loads(Path(__file__).with_name("swap.certificate.json").read_text())
RUN = (400, fmpq(1, 10), 40, fmpq(1))  # records, rate, cap, squared noise
LEND = {1: ([fmpq(1, 2)] * 3, fmpq(-1, 2))}
ADJACENCIES = ("add-remove", "zero-out", "replace-one")


def test_a_phase_is_not_even_read_when_time_is_up() -> None:
    """Ten thousand phases take long before anything is composed."""
    limit = theorems.DEADLINE.set(float("-inf"))
    try:
        with pytest.raises(ValueError, match="it takes longer than max_seconds allows"):
            Claim(CLAIM)
    finally:
        theorems.DEADLINE.reset(limit)


@pytest.mark.parametrize(("least", "used"), [(79, True), (78, False)])
def test_cells_lend_only_from_twice_the_cap_less_one_on(least: int, used: bool) -> None:
    """Section 10 proves it from 2B - 1 records on; shares that a witness has for smaller ones are left aside."""
    with ctx.workprec(200):
        with_, without = (
            Step(*RUN, "truncate", "zero-out", "refined", lend, least).profile(arb(0.5), 1) for lend in (LEND, {})
        )
    assert (with_ < 0.8 * without) is used
    assert used or with_.overlaps(without)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("policy", "analysis", "lend"), [
    ("truncate", "swap", {}), ("truncate", "note", {}), ("truncate", "union", {}), ("truncate", "refined", LEND), ("reject", "refined", {}),
])  # fmt: skip
def test_of_a_public_size_one_step_alone_is_the_bound(adjacency: str, policy: str, analysis: str, lend: Any) -> None:
    with ctx.workprec(200):
        one, bound = Step(*RUN, policy, adjacency, analysis, lend), profile(*RUN, policy, adjacency, analysis, lend, [])
        for loss in (-0.5, 0.1, 0.5, 2.0):
            assert bound(arb(loss), 1).overlaps(one.profile(arb(loss), 1))
            assert bound(arb(loss), 1).rad() < 1e-30


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_cuts_up_to_the_first_cell_and_beyond_the_last_size_change_nothing(adjacency: str) -> None:
    """Up to the cap nothing overflows: one plain bound holds, and the first cell begins behind it."""
    with ctx.workprec(200):
        for loss in (0.1, 1.0):
            none, some = (
                profile(*RUN, "at-most", adjacency, "swap", {}, cuts)(arb(loss), 1)
                for cuts in ([], [1, 39, 40, 41, 401])
            )
            assert some.overlaps(none)
            assert some.rad() < 1e-30
