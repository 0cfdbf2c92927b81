"""Discrete losses from cells: whatever the cells, the profile lies between the two, and no mass gets lost."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.accounting.laws import cuts, usual_law

from filet import Adjacency, Analysis, CappedPoisson
from filet._rounding import DROPPED, RESOLVED, UNDERFLOW
from filet.accounting.proving import cells as module
from filet.accounting.proving.cells import Cells, Discrete, cut, discretise_above, discretise_below
from filet.accounting.proving.loss_law import Atom, LossLaw, Piece, cell_masses
from filet.accounting.proving.theorems import loss_law
from filet.accounting.search.closed_form import crossings
from filet.accounting.search.grid import uniform_grid
from filet.errors import NotCertifiedError

EPSILON = np.array([0.0, 1e-8, 1e-4, 0.02, 0.4, 2.0, 30.0])


def discrete_profile(law: Discrete, epsilon: np.ndarray) -> np.ndarray:
    gains = -np.expm1(np.minimum(epsilon[:, None] - law.loss[None, :], 0.0))
    return law.infinite + gains @ np.exp(law.log_mass)


def check(cells: Cells) -> tuple[Discrete, Discrete]:
    above, below = discretise_above(cells), discretise_below(cells)
    assert np.isfinite(above.loss).all()
    assert np.isfinite(below.loss).all()
    exact, _ = cells.law.profile(EPSILON, crossings)
    assert (discrete_profile(above, EPSILON) >= exact * (1 - 1e-9)).all()
    assert (discrete_profile(below, EPSILON) <= exact * (1 + 1e-9) + 1e-300).all()
    total = math.fsum(np.exp(above.log_mass)) + above.infinite  # infinite masses are rounded up
    assert -1e-12 <= total - 1.0 <= 1e-12 + 2e-9 * above.infinite
    assert math.fsum(np.exp(below.log_mass)) <= 1.0 + 1e-12
    return above, below


def laws() -> list[tuple[CappedPoisson, float, Adjacency]]:
    cases = []
    for n, p, cap in [(5, 0.3, 2), (60_000, 256 / 60_000, 300), (10**9, 1e-6, 1010), (100, 1.0, 60), (100, 0.5, 60)]:
        for overflow in ("truncate", "reject"):
            if p < 1.0 or overflow == "truncate":
                scheme = CappedPoisson(n, p, cap, overflow)  # type: ignore[arg-type]
                cases += [(scheme, sigma, adjacency) for sigma in (0.1, 1.0, 30.0) for adjacency in Adjacency]
    return cases


@pytest.mark.parametrize(("scheme", "sigma", "adjacency"), laws())
def test_discrete_laws_bracket_the_profile_and_conserve_mass(
    scheme: CappedPoisson, sigma: float, adjacency: Adjacency
) -> None:
    law = loss_law(scheme, sigma, adjacency, Analysis.REFINED)
    for one in (law, law.reversed()):
        check(uniform_grid(one, 9.0, 0.1))


def q_mass(law: Discrete) -> float:
    return math.fsum(np.exp(law.log_mass - law.loss))


@pytest.mark.parametrize("sigma", [0.4, 1.0, 5.0])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_cells_keep_their_mass_under_q(adjacency: Adjacency, sigma: float) -> None:
    """Above it is split, below it is merged, and either way it is all there: that is what makes the bounds tight."""
    law = loss_law(CappedPoisson(100, 0.5, 60), sigma, adjacency, Analysis.REFINED)
    for one in (law, law.reversed()):
        cells = uniform_grid(one, 12.0, 0.1)
        assert q_mass(discretise_above(cells)) == pytest.approx(1.0, rel=1e-9)
        assert q_mass(discretise_below(cells)) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("edges", [[-0.5, 0.3, 1.0], [0.2], []])
def test_heavy_cells_at_the_ends_are_rounded_up_and_keep_what_q_has(edges: list[float]) -> None:
    """From -inf all of P goes to the first edge; to +inf as much stays at the last as Q accounts for."""
    law = loss_law(CappedPoisson(100, 0.4, 100), 0.7, Adjacency.ADD_REMOVE, Analysis.REFINED)
    for one in (law, law.reversed()):
        cells = cut(one, [np.array(edges)])
        loss, p, q = cells.loss, cells.p, cells.q
        above, below = check(cells)
        first = p[0] * math.exp(-loss[1]) if edges else 0.0
        inner = math.fsum(q[1:])
        assert q_mass(above) == pytest.approx(first + inner, rel=1e-9)
        assert q_mass(below) == pytest.approx(1.0, rel=1e-9)
        kept = q[-1] * math.exp(loss[-2]) if edges else 0.0
        assert above.infinite == pytest.approx(p[-1] - kept, rel=2e-9, abs=1e-299)
        assert above.infinite > (p[-1] - kept) * (1 + 0.9e-9) or not edges


def bare(loss: list[float], p: list[float], q: list[float]) -> Cells:
    """Cells of one piece with these losses and masses, whatever the law."""
    law, masses = LossLaw(usual_law().pieces), (np.array(p), np.array(q), np.array(p) - np.array(q))
    return Cells(law, np.arange(float(len(loss))), np.array(loss), *masses, (len(loss),))


@pytest.mark.parametrize("faint", [0.0, 1e-310, 1e-295, RESOLVED])
def test_digits_that_are_not_trusted_keep_nothing_at_the_last_edge(faint: float) -> None:
    made = discretise_above(bare([-math.inf, 690.0, math.inf], [0.5, 0.5], [1.0, faint]))
    assert made.infinite >= 0.5
    assert list(made.loss) == [690.0]


@pytest.mark.parametrize("faint", [0.0, 1e-310, 1e-295, RESOLVED])
def test_where_digits_are_not_trusted_a_cell_goes_to_the_end_that_is_safe(faint: float) -> None:
    """Up from above, down from below; a mass that is trusted is split, or merged."""
    for q, trusted in ((faint, False), (1.1 * RESOLVED, True)):
        cells = bare([0.0, 1.0, 2.0, 3.0], [0.5, 0.5, 9 * RESOLVED], [0.5, 1e-310, q])
        above, below = discretise_above(cells), discretise_below(cells)
        assert above.loss[-1] == 3.0
        share = (9.0 - 1.1 * math.exp(2.0)) / 9.0 / -math.expm1(-1.0) if trusted else 1.0
        assert math.exp(above.log_mass[-1]) == pytest.approx(9 * RESOLVED * share, rel=1e-11, abs=0.0)
        assert list(below.loss) == pytest.approx([0.0, 1.0, math.log(9.0 / 1.1) if trusted else 2.0], rel=1e-12)


def test_the_lightest_outcomes_are_left_out_from_below_alone() -> None:
    for light, kept in ((DROPPED, 0), (2 * DROPPED, 1)):
        cells = bare([0.0, 1.0, 2.0], [1.0, light], [1.0, 1e-280])
        cells = replace(cells, law=LossLaw(cells.law.pieces, (Atom(0.5, light, light),)))
        assert discretise_below(cells).loss.size == 1 + 2 * kept
        assert discretise_above(cells).loss[-1] == 0.5


@pytest.mark.parametrize("mass", [1.0 - 1e-9, 1.0, 1.0 + 1e-9])
def test_masses_may_be_off_by_a_billionth(mass: float) -> None:
    module._check_total(mass, exact=True)
    further = math.nextafter(mass, -1.0 if mass < 1.0 else 2.0)
    if mass != 1.0:
        with pytest.raises(NotCertifiedError, match="instead of 1"):
            module._check_total(further, exact=True)


def test_losses_out_of_order_by_rounding_are_put_in_order() -> None:
    """Neighbouring points so close that their losses differ by less than they are rounded by."""
    x = -2.3 + np.arange(3000) * 2.0**-51
    for law in (usual_law(1.0), usual_law(1.0).reversed()):
        piece = law.pieces[1]
        loss = piece.loss(x)
        assert (np.diff(loss if piece.increasing else loss[::-1]) < 0).any()
        made = cuts(cut(law, [x] * 3))[1]
        assert made.x.size == 3002
        assert (np.diff(made.loss) >= 0).all()


@pytest.mark.parametrize("seed", range(12))
def test_any_cells_bracket_the_profile(seed: int) -> None:
    """One cell, or many at random places, some twice and some outside the piece."""
    rng = np.random.default_rng(seed)
    scheme, sigma, adjacency = laws()[seed * 5 % len(laws())]
    law = loss_law(scheme, sigma, adjacency, Analysis.REFINED)
    edges = []
    for piece in law.pieces:
        centre, spread = float(rng.choice(piece.means)), 10.0 ** rng.uniform(-2, 2)
        points = centre + spread * rng.normal(size=int(rng.integers(1, 60)))
        edges.append(np.concatenate([points, points[:3], [piece.low - 5.0, piece.high + 5.0]]))
    check(cut(law, edges))
    check(cut(law, edges).reversed())


def test_edges_are_put_in_order_and_those_outside_are_left_out() -> None:
    law = loss_law(CappedPoisson(100, 0.5, 60), 1.0, Adjacency.ZERO_OUT, Analysis.REFINED)
    bounded = next(i for i, piece in enumerate(law.pieces) if math.isfinite(piece.high))
    edges = [np.array([3.0, 1.0, 0.25, 0.25, -2.0, 700.0]) for _ in law.pieces]
    made = cuts(cut(law, edges))[bounded]
    high = law.pieces[bounded].high
    assert sorted(made.x) == [-math.inf, *[x for x in (-2.0, 0.25, 1.0, 3.0) if x < high], high]
    jumbled = cuts(cut(law, [np.array([-2.0, 0.25, -1.0]) for _ in law.pieces]))[bounded]
    assert sorted(jumbled.x) == [-math.inf, -2.0, -1.0, *[x for x in (0.25,) if x < high], high]
    twice = cuts(cut(law, [np.array([-2.0, 0.25, 0.25]) for _ in law.pieces]))[bounded]
    assert sorted(twice.x) == [-math.inf, -2.0, *[x for x in (0.25,) if x < high], high]
    with pytest.raises(ValueError, match="shorter"):
        cut(law, edges[:-1])
    assert (np.diff(made.loss) >= 0).all()
    assert made.p.sum() == pytest.approx(
        float(cell_masses(*law.pieces[bounded].columns, np.sort(made.x)[[0, -1]])[0][0]), rel=1e-12
    )


def test_no_mass_lies_between_the_pieces() -> None:
    cells = uniform_grid(usual_law(0.7), 9.0, 0.2)
    assert len(cells.ends) == len(cells.law.pieces) == 3
    for end in cells.ends[:-1]:
        assert cells.p[end - 1] == cells.q[end - 1] == cells.d[end - 1] == 0.0
    assert cells.ends[-1] == cells.x.size == cells.loss.size == cells.p.size + 1


def test_exchanging_p_and_q_exchanges_the_cells() -> None:
    law = usual_law(0.7)
    cells = uniform_grid(law, 9.0, 0.2)
    back = cells.reversed()
    assert back.law == law.reversed()
    direct = cut(law.reversed(), [np.sort(one.x)[1:-1] for one in cuts(back)])
    assert back.ends == direct.ends
    for one, other in zip(cuts(back), cuts(direct), strict=True):
        assert list(one.x) == list(other.x)
        assert one.p == pytest.approx(other.p, rel=1e-12, abs=1e-300)
        assert one.q == pytest.approx(other.q, rel=1e-12, abs=1e-300)
        assert one.d == pytest.approx(other.d, rel=1e-9, abs=1e-15)
        assert one.loss == pytest.approx(other.loss, rel=1e-9, abs=1e-12)


def test_what_underflows_counts_as_infinite_above_and_not_at_all_below() -> None:
    law = LossLaw(usual_law().pieces, usual_law().atoms, 1e-20, 1e-11)
    above, below = check(uniform_grid(law, 9.0, 0.1))
    without = discretise_above(uniform_grid(usual_law(), 9.0, 0.1))
    assert without.infinite >= UNDERFLOW
    assert above.infinite == pytest.approx(without.infinite + 1e-20, rel=1e-8, abs=0)
    assert below.infinite == 0.0
    assert (above.weight_error, below.weight_error) == (1e-11, 1e-11)
    assert above.difference == below.difference == pytest.approx(sum(abs(v) for s in law.pieces for v in s.d))


@pytest.mark.parametrize("share", [math.nan, 0.5, 1.5])
def test_a_lost_or_a_doubled_cell_is_refused(share: float) -> None:
    cells = uniform_grid(usual_law(), 9.0, 0.1)
    p = cells.p.copy()
    p[int(np.argmax(p))] *= share
    broken = replace(cells, p=p)
    with pytest.raises(NotCertifiedError, match=r"have mass .* instead of 1"):
        discretise_above(broken)
    if share == 0.5:  # less mass is allowed below
        assert discretise_below(broken).loss.size
    elif share == 1.5:
        with pytest.raises(NotCertifiedError):
            discretise_below(broken)


def test_atoms_keep_their_loss_and_their_mass() -> None:
    piece = Piece((0.0, 1.0), (0.1, 0.3), (0.4, 0.0), (-0.3, 0.3))
    law = LossLaw((piece,), (Atom(0.5, 0.5, 0.5 * math.exp(-0.5)), Atom(-0.3, 0.1, 0.1 * math.exp(0.3))))
    cells = uniform_grid(law, 9.0, 0.1)
    for one in (discretise_above(cells), discretise_below(cells)):
        assert list(one.loss[-2:]) == [0.5, -0.3]
        assert np.exp(one.log_mass[-2:]) == pytest.approx([0.5, 0.1])


def test_a_law_without_all_its_weights_and_rounded_losses_stays_that_in_cells() -> None:
    law = usual_law(0.7)
    assert law.loss_error > 0.0
    for whole in (True, False):
        one = LossLaw(law.pieces, law.atoms, 0.0, 1e-11, whole)
        for made in check(uniform_grid(one, 9.0, 0.1)):
            assert (made.whole, made.loss_error) == (whole, law.loss_error)


# --- what splitting adds ---


def transform(law: Discrete, z: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(z[:, None] * law.loss + law.log_mass).sum(axis=1))


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_splitting_changes_a_transform_by_no_more_than_chords_say(adjacency: Adjacency, sigma: float) -> None:
    """Against cells that are a hundred times as fine; at real points it only adds, and much of the bound if they are narrow."""
    law = loss_law(CappedPoisson(100, 0.3, 35), sigma, adjacency, Analysis.SWAP)
    for one in (law, law.reversed()):
        cells, fine = uniform_grid(one, 9.0, 0.3), uniform_grid(one, 9.0, 0.003)
        fine = cut(one, [np.union1d(a.x, b.x) for a, b in zip(cuts(cells), cuts(fine), strict=True)])
        split, exact = discretise_above(cells), discretise_above(fine)
        assert split.cells is cells
        assert discretise_below(cells).cells is None
        for c in (0.3, 2.0, 9.0):
            z = c + 1j * np.append(0.0, np.geomspace(0.01, 100.0, 40))
            change, bound = transform(split, z) - transform(exact, z), cells.chord(c, 0.0) * np.abs(z * (z + 1.0))
            assert (np.abs(change) <= bound * (1 + 1e-3)).all()
            assert change[0].real > (0.6 if sigma == 4.0 and c < 3.0 else 0.0) * bound[0]
            assert cells.chord(c, 3.0) == pytest.approx(cells.chord(c, 0.0) * math.exp(-3.0), rel=1e-12)


def test_chords_are_counted_to_the_letter() -> None:
    """A cell that keeps both masses counts by its width; the open first one and one that Q does not see are moved."""
    cells = bare([-math.inf, -1.0, 0.5, 2.0, 2.5, math.inf], [0.1, 0.2, 0.3, 0.15, 0.25], [0.4, 0.3, 0.1, 0.0, 0.2])
    chord = (0.2 * 1.5**2 * math.exp(2.0 * 0.5) + 0.3 * 1.5**2 * math.exp(2.0 * 2.0)) / 8
    assert chord < cells.chord(2.0, 0.0) < chord * (1 + 2e-9)
    assert 0.25 < cells.moved < 0.25 * (1 + 2e-9)
    whole = bare([-math.inf, math.inf], [1.0], [1.0])
    assert (whole.chord(1.0, 0.0), whole.moved) == (0.0, 0.0)  # all of it is put on an infinite loss
    assert bare([0.0, 800.0], [1.0], [0.5]).chord(2.0, 0.0) == math.inf


def test_moved_mass_is_all_that_is_above_without_being_split() -> None:
    """What lies below a first edge is counted, wherever that edge is."""
    law = loss_law(CappedPoisson(100, 0.4, 100), 0.7, Adjacency.ADD_REMOVE, Analysis.REFINED)
    for edges in ([-0.5, 0.3, 1.0], [0.2], []):
        cells = cut(law, [np.array(edges)])
        assert cells.moved == pytest.approx(float(cells.p[0]) if edges else 0.0, rel=2e-9)
