"""Split cells in a composition: what they add to transforms, to the letter and against fine cells, and how they round."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from tests.accounting.laws import FEW, chords_of, coarse_and_fine, decay_of, piece_edges, spectrum_of

from filet import Adjacency, Analysis, CappedPoisson
from filet.accounting.proving import composition as module
from filet.accounting.proving.cells import Cells, Discrete, discretise_above
from filet.accounting.proving.composition import Composition, blocks
from filet.accounting.proving.theorems import loss_law
from filet.accounting.search.grid import uniform_grid


@pytest.mark.parametrize("gaussian", [0.0, 0.3])
def test_a_spectrum_bounds_what_splitting_did_to_all_steps(gaussian: float) -> None:
    pairs = [(*coarse_and_fine(2.0, 0.05), 30), (*coarse_and_fine(3.0, 0.1), 7)]
    split = Composition(blocks([(above, steps) for above, _, steps in pairs]), gaussian)
    exact = Composition(blocks([(fine, steps) for _, fine, steps in pairs]), gaussian)
    for c in (0.7, 2.5):
        chords = chords_of(split, c)
        assert chords is not None
        one, other = spectrum_of(split, c, 0.2, 40, chords), spectrum_of(exact, c, 0.2, 40)
        u = 0.2 * np.arange(40)
        turned = other.values * np.exp(other.log_scale - one.log_scale + 1j * u * (other.centre - one.centre))
        assert (np.abs(one.values - turned) <= one.split * (1 + 1e-3) + one.rounding).all()
        assert np.abs(one.values - turned)[0] > 0.5 * np.asarray(one.split)[0]
        assert not np.any(other.split)
        assert (one.values == spectrum_of(split, c, 0.2, 40).values).all()


def test_nothing_is_split_in_laws_that_are_what_is_bounded() -> None:
    law = Discrete(np.array([-0.3, 0.1, 0.5]), np.log([0.3, 0.4, 0.3]), 0.0, 0.0)
    assert chords_of(Composition(blocks([(law, 4)])), 1.0) is None
    above, _ = coarse_and_fine(1.0, 0.3)
    mixed = chords_of(Composition(blocks([(law, 4), (above, 2)])), 1.0)
    assert mixed is not None
    assert mixed[0][0] == 0.0 < mixed[0][1]


def test_decay_is_that_of_either_law() -> None:
    """Beyond the frequency that is found, the law before it was split is as small as is said, too."""
    above, fine = coarse_and_fine(3.0, 0.1)
    split, exact = (Composition(blocks([(law, 200)])) for law in (above, fine))
    c, limit = 1.5, 60.0
    cut_off, bound = decay_of(split, c, limit, 1e-8, chords_of(split, c))
    plain, _ = decay_of(split, c, limit, 1e-8)
    assert plain <= cut_off < limit
    spectrum, log_mgf = spectrum_of(exact, c, 0.05, int(limit / 0.05)), float(split.log_mgf(np.array([c]))[0])
    beyond = 0.05 * np.arange(int(limit / 0.05)) >= cut_off
    assert (np.abs(spectrum.values[beyond]) * math.exp(spectrum.log_scale - log_mgf) <= bound).all()


def test_splitting_that_may_do_anything_proves_nothing() -> None:
    above, _ = coarse_and_fine(1.0, 0.3)
    many = Composition(blocks([(above, 10**6)]))
    assert np.isposinf(spectrum_of(many, 2.0, 5.0, 10, chords_of(many, 2.0)).split).any()


def test_what_splitting_adds_is_counted_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """For phases in one block and in several: the product of all moduli, and the sum of what each may add to them."""
    laws = [(coarse_and_fine(sigma, 0.1)[0], steps) for sigma, steps in ((1.5, 3), (2.0, 5), (3.0, 2))]
    c, w, count = 1.2, 0.7, 9
    u, found = w * np.arange(count), []
    for most in (250_000, 1):
        monkeypatch.setattr(module, "BLOCK", most)
        one = Composition(blocks(laws))
        assert len(one.small) == (1 if most > 1 else 3)
        found.append(spectrum_of(one, c, w, count, chords_of(one, c)))
    log_bound, added = np.zeros(count), np.zeros(count)
    for law, steps in laws:
        (tilted,) = Composition(blocks([(law, 1)])).tilted(c)
        values, own = tilted.transform(w, count)
        bound = (np.abs(values) + tilted.error(np.hypot(c, u), own))[0]
        log_bound += steps * np.log(bound)
        chord = law.cells.chord(c, float(tilted.log_scale[0])) if law.cells else 0.0
        added += steps * chord * np.abs((c + 1j * u) * (c + 1.0 + 1j * u)) / bound
    for spectrum in found:
        assert spectrum.split == pytest.approx(np.exp(log_bound) * np.expm1(added), rel=1e-9)


@pytest.mark.parametrize("chord", [0.0, 1e-5, 3e-5])
def test_decay_with_chords_is_bounded_to_the_letter(monkeypatch: pytest.MonkeyPatch, chord: float) -> None:
    """Transforms that are a step near zero and half further out: what chords add is counted at the end of each interval."""
    monkeypatch.setattr(module.Tilted, "transform", lambda one, _, count: (np.full((1, count), 0.4), np.zeros(1)))
    monkeypatch.setattr(module.Tilted, "error", lambda *_: 0.0)
    near = np.where(module._NEAR_ZERO < 0.1, 1.0, 0.2)
    monkeypatch.setattr(module.Tilted, "near_zero", lambda *_: near[None, :])
    composition, c, limit, steps = Composition(blocks([(FEW, 50)])), 1.5, 100.0, 50
    (tilted,) = composition.tilted(c)
    end, spacing = 1.0 / float(tilted.deviation[0]), 0.25 / float(tilted.spread[0])
    last = spacing * (math.ceil(limit / spacing) + 1 + 0.5)  # the end of the last interval
    worst = 0.4 + 0.5 * spacing * float(tilted.spread[0]) + chord * abs((c + 1j * last) * (c + 1.0 + 1j * last))
    assert worst < 0.9
    cut_off, bound = decay_of(composition, c, limit, 1e-2, [np.array([chord])])
    assert bound == pytest.approx(worst**steps, rel=1e-9, abs=0)
    assert cut_off == pytest.approx(end * float(module._NEAR_ZERO[module._NEAR_ZERO >= 0.1][0]), rel=1e-9)


# --- masses, as they are split ---


def exactly_split(cells: Cells, z: list[mp.mpc]) -> list[mp.mpc]:
    """The transform of the law from above on these cells, in many digits: masses, losses and shares."""
    total, law = [mp.fsum(mp.mpf(a.p) * mp.exp(one * mp.mpf(a.loss)) for a in cells.law.atoms) for one in z], cells.law
    for piece, edges in zip(law.pieces, piece_edges(cells), strict=True):
        x, means = [mp.mpf(float(v)) for v in cells.x[edges]], [mp.mpf(m) for m in piece.means]
        below = [[mp.ncdf(v - m) if mp.isfinite(v) else mp.mpf(v > 0) for m in means] for v in x]
        for i in range(len(x) - 1):
            mass = [abs(low - high) for low, high in zip(below[i], below[i + 1], strict=True)]
            p, q = (mp.fsum(w * m for w, m in zip(weights, mass, strict=True)) for weights in (piece.p, piece.q))
            low, high = (
                mp.log(mp.fsum(w * mp.exp(m * v - m * m / 2) for w, m in zip(piece.p, means, strict=True)))
                - mp.log(mp.fsum(w * mp.exp(m * v - m * m / 2) for w, m in zip(piece.q, means, strict=True)))
                if mp.isfinite(v)
                else mp.nan
                for v in x[i : i + 2]
            )
            share = p if mp.isnan(low) else 0 if mp.isnan(high) else (p - mp.exp(low) * q) / (1 - mp.exp(low - high))
            kept = 0 if mp.isnan(low) else mp.exp(low) * q if mp.isnan(high) else p - share
            for n, one in enumerate(z):
                total[n] += share * mp.exp(one * high) if share else 0
                total[n] += kept * mp.exp(one * low) if kept else 0
    return total


@pytest.mark.parametrize(
    ("p", "sigma", "adjacency", "width"),
    [(0.01, 1.0, "replace-one", 0.05), (0.1, 20.0, "add-remove", 0.2), (256 / 60_000, 1.0, "add-remove", 0.2)],
)
def test_rounded_masses_and_losses_are_far_within_their_error_at_any_frequency(
    p: float, sigma: float, adjacency: str, width: float
) -> None:
    """Splitting amplifies errors of tails at high frequencies; tails are good enough for that."""
    law = loss_law(CappedPoisson(60_000, p, 60_000), sigma, Adjacency(adjacency), Analysis.SWAP)
    c, frequencies = 2.0, np.array([0.0, 1.0, 1e2, 1e3, 1e4])
    for one in (law, law.reversed()):
        cells = uniform_grid(one, 8.0, width)
        above = discretise_above(cells)
        (tilted,) = Composition(blocks([(above, 1)])).tilted(c)
        bound = tilted.error(np.hypot(c, frequencies), np.zeros(1))[0]
        with mp.workdps(40):
            z = [mp.mpc(c, float(u)) for u in frequencies]
            atoms = [(mp.mpf(float(v)), mp.mpf(float(m))) for v, m in zip(above.loss, above.log_mass, strict=True)]
            exact = exactly_split(cells, z)
            off = [
                abs(mp.fsum(mp.exp(at * v + m) for v, m in atoms) - e) / abs(exact[0])
                for at, e in zip(z, exact, strict=True)
            ]
        assert (np.array([float(v) for v in off]) <= bound / 20.0).all()
