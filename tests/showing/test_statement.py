"""The statement: guarantee, neighbours, mechanism, assumptions and theorems, all of them and no others."""

import pytest

import filet
from filet.showing.statement import statement

CURVE = filet.account(
    filet.CappedPoisson(60_000, 256 / 60_000, 300), noise_multiplier=1.0, steps=14_000, adjacency="add-remove"
)


def words(curve, delta=1e-5):
    return " ".join(statement(curve, delta).split())


def test_it_states_guarantee_neighbours_assumptions_and_theorem():
    text = words(CURVE)
    for part in (
        "epsilon = 2.828",
        "size of the larger",
        "n and n + 1",
        "Theorems 2 and 4",
        "divided by a",
        "14000 steps",
    ):
        assert part in text
    assert "BandMF" not in text
    assert "Gaussian releases" not in text


def test_it_names_every_phase_release_and_theorem_of_a_run():
    several = filet.Accountant("zero-out")
    several.compose(filet.CappedPoisson(1000, 0.01, 20, cycle_length=4), 1.0, 10)
    several.compose(filet.CappedPoisson(1000, 0.01, 20, overflow="reject"), 2.0, 10)
    several.compose_gaussian(5.0)
    text = words(several.curve())
    for part in ("4 groups of 250", "Theorem 3", "Gaussian releases", "BandMF", "2. 10 steps", "at most 3 steps"):
        assert part in text
    assert "n and n + 1" not in text  # of add-remove only


def test_the_guarantee_is_rounded_up_and_the_interval_outward():
    bounds = CURVE.epsilon_bounds(1e-5)
    shown = float(words(CURVE).split("with epsilon = ")[1].split()[0])
    low, high = words(CURVE).split("proven to lie in [")[1].split("]")[0].split(", ")
    assert float(low) <= bounds.lower <= bounds.upper <= float(high) <= shown


def test_without_noise_nothing_is_guaranteed():
    curve = filet.account(filet.CappedPoisson(100, 0.5, 60), noise_multiplier=0.0, steps=1, adjacency="zero-out")
    assert "None: no finite epsilon is proven at delta = 1e-05." in words(curve)


@pytest.mark.parametrize("analysis", ["note", "union"])
def test_other_analyses_name_their_source(analysis):
    scheme = filet.CappedPoisson(60_000, 100 / 60_000, 300)
    curve = filet.account(scheme, noise_multiplier=1.0, steps=10, adjacency="zero-out", analysis=analysis)
    assert {"note": "Ganesh (2025), arXiv 2508.15089", "union": "Chua et al., 2024"}[analysis] in words(curve)
