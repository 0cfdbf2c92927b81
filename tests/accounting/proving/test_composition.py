"""Compositions: blocks of phases against the same phases one by one, caps and jumps, and the error of transforms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.accounting.laws import FEW, KINDS, LONG, OTHER, SMALL, decay_of, random_law, spectrum_of, usual_law

from filet._rounding import MASS_ERROR, PHASE_ERROR, TRANSFORM_ERROR, UNIT
from filet.accounting.proving import composition as module
from filet.accounting.proving import transform
from filet.accounting.proving.cells import Discrete, discretise_above
from filet.accounting.proving.composition import Block, Composition, blocks
from filet.accounting.search.grid import uniform_grid
from filet.accounting.search.saddle_point import cumulants

TILTS = np.array([0.0, 0.5, 2.0, 7.0])


def phases(seed: int, count: int) -> list[tuple[Discrete, int]]:
    """Phases of several sizes, with losses on both sides of zero and up to about 3."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        size = int(rng.integers(2, 40))
        loss, mass = rng.normal(size=size), rng.dirichlet(np.ones(size))
        made.append((Discrete(loss, np.log(mass), 0.0, 10.0 ** rng.uniform(-13, -9)), int(rng.integers(1, 6))))
    return made


def apart(laws: list[tuple[Discrete, int]]) -> list[Block]:
    """Every phase in a block of its own, without padding."""
    return [one for law in laws for one in blocks([law])]


def test_laws_share_a_block_and_short_rows_are_padded_with_outcomes_of_no_mass() -> None:
    laws = [(FEW, 3), (OTHER, 2), (SMALL, 7)]
    (block,) = blocks(laws)
    assert block.loss.shape == (3, 3)
    assert block.log_mass[1, 2] == -math.inf
    assert list(block.steps) == [3.0, 2.0, 7.0]
    assert np.exp(block.log_mass).sum(axis=1) == pytest.approx([1.0, 1.0, 1.0])
    assert block.loss[1, :2] == pytest.approx(OTHER.loss)
    assert blocks([]) == []
    only = block.part(block.loss > 0.2)
    assert np.exp(only.log_mass).sum(axis=1) == pytest.approx([0.1, 0.2, 0.0])


@pytest.mark.parametrize("most", [1, 60, 200, 10**6])
def test_blocks_hold_all_laws_in_their_order_whatever_their_size(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(module, "BLOCK", most)
    laws = phases(1, 25)
    made = blocks(laws)
    assert [float(v) for block in made for v in block.steps] == [float(steps) for _, steps in laws]
    assert [float(v) for block in made for v in block.weight_error] == [law.weight_error for law, _ in laws]
    rows = [(loss, log_mass) for block in made for loss, log_mass in zip(block.loss, block.log_mass, strict=True)]
    for (loss, log_mass), (law, _) in zip(rows, laws, strict=True):
        assert list(loss[: law.loss.size]) == list(law.loss)
        assert list(log_mass[: law.loss.size]) == list(law.log_mass)
        assert np.isneginf(log_mass[law.loss.size :]).all()


def test_blocks_hold_as_many_laws_as_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    ten = Discrete(np.zeros(10), np.full(10, -math.log(10)), 0.0, 0.0)
    monkeypatch.setattr(module, "BLOCK", 60)
    made = blocks([(ten, 1)] * 14)
    assert [block.steps.size for block in made] == [6, 6, 2]
    whole = Composition(made)  # without a cap nothing is made anew
    assert all(one is other for one, other in zip(whole.small, made, strict=True))
    assert whole.big == []


def test_a_block_is_not_much_larger_than_its_share_when_a_short_law_comes_first() -> None:
    short = Discrete(np.zeros(2), np.log([0.5, 0.5]), 0.0, 0.0)
    long = Discrete(np.zeros(5_000), np.full(5_000, -math.log(5_000)), 0.0, 0.0)
    for block in blocks([(short, 1), *[(long, 1)] * 200]):
        assert block.loss.size <= 2 * module.BLOCK


@pytest.mark.parametrize(("cap", "jump"), [(math.inf, False), (0.8, False), (0.8, True), (1.7, True)])
@pytest.mark.parametrize("gaussian", [0.0, 0.6])
def test_phases_in_blocks_compose_as_they_do_one_by_one(cap: float, jump: bool, gaussian: float) -> None:
    laws = phases(2, 12)
    together = Composition(blocks(laws), gaussian, cap, jump)
    single = Composition(apart(laws), gaussian, cap, jump)
    assert together.total_steps == single.total_steps == sum(steps for _, steps in laws)
    assert (together.rows, single.rows) == (12, 1)
    assert together.weight_margin == pytest.approx(single.weight_margin, rel=1e-12)
    with np.errstate(all="ignore"):
        assert together.log_mgf(TILTS) == pytest.approx(single.log_mgf(TILTS), rel=1e-13)
        for c in (0.3, 4.0):
            for spacing, count in ((0.2, 30), (0.01, 300)):
                one, other = spectrum_of(together, c, spacing, count), spectrum_of(single, c, spacing, count)
                assert one.centre == pytest.approx(other.centre, rel=1e-13)
                assert one.log_scale == pytest.approx(other.log_scale, rel=1e-13)
                bound = one.rounding + other.rounding
                assert (np.abs(one.values - other.values) <= bound).all()
                assert one.rounding == pytest.approx(other.rounding, rel=0.2)


@pytest.mark.parametrize("jump", [False, True])
def test_slices_of_a_block_change_nothing(monkeypatch: pytest.MonkeyPatch, jump: bool) -> None:
    """Few phases, and few tilts, at a time, as the cache takes them."""
    laws, cap = phases(3, 12), 0.8 if jump else math.inf
    with np.errstate(all="ignore"):
        whole = Composition(blocks(laws), 0.3, cap, jump)
        log_mgf, spectrum = whole.log_mgf(TILTS), spectrum_of(whole, 0.7, 0.2, 40)
        made = blocks(laws)
        monkeypatch.setattr(module, "BLOCK", 120)  # three phases, at 40 frequencies
        monkeypatch.setattr(transform, "_CACHED", 1000)
        sliced = Composition(made, 0.3, cap, jump)
        assert [rows.stop - rows.start for rows in sliced.tilted(0.7)[0].slices(40)] == [3] * 4
        assert sliced.log_mgf(TILTS) == pytest.approx(log_mgf, rel=1e-14)
        (tilted,) = sliced.tilted(0.7)
        assert [rows.stop - rows.start for rows in tilted.slices(500)] == [1] * 12  # more than fit: one by one
        assert tilted.rows(slice(0, 12)) is tilted
        found = spectrum_of(sliced, 0.7, 0.2, 40)
        monkeypatch.setattr(module, "BLOCK", made[0].loss.size)  # four tilts of eleven
        many = np.linspace(0.0, 5.0, 11)
        assert sliced.log_mgf(many) == pytest.approx([float(whole.log_mgf(many[i : i + 1])[0]) for i in range(11)])
    assert (found.log_scale, found.centre) == pytest.approx((spectrum.log_scale, spectrum.centre), rel=1e-14)
    assert (np.abs(found.values - spectrum.values) <= 1e-13).all()
    assert found.rounding == pytest.approx(spectrum.rounding, rel=1e-9, abs=0)


def mixed(steps: tuple[int, int]) -> list[tuple[Discrete, int]]:
    """Two phases; at a cap of one, all losses of the second are above it."""
    high = Discrete(np.array([1.5, 2.0]), np.log([0.25, 0.75]), 0.0, 0.0)
    return [(FEW, steps[0]), (high, steps[1])]


def test_a_phase_without_losses_below_the_cap_leaves_nothing_or_a_refusal() -> None:
    """With one such step every sum has its jump there; with more, no sum has exactly one. Never a finite wrong number."""
    with np.errstate(all="ignore"):
        none = Composition(blocks(mixed((3, 1))), 0.0, 1.0)
        assert (none.log_mgf(TILTS) == -math.inf).all()
        spectrum = spectrum_of(none, 0.5, 0.1, 20)
        values = spectrum.values * math.exp(spectrum.log_scale)
        assert not (np.isfinite(values) & (values != 0.0)).any()
        for steps in (1, 2):
            one = Composition(blocks(mixed((3, steps))), 0.0, 1.0, jump=True)
            log_mgf = one.log_mgf(TILTS)
            assert not np.isfinite(log_mgf).any()
            spectrum = spectrum_of(one, 0.5, 0.1, 20)
            values = spectrum.values * math.exp(min(spectrum.log_scale, 700.0))
            assert not (np.isfinite(values) & np.isfinite(spectrum.rounding) & (values != 0.0)).any()


def test_a_phase_without_losses_above_the_cap_has_no_jump() -> None:
    low = Discrete(np.array([-0.2, 0.1]), np.log([0.5, 0.5]), 0.0, 0.0)
    with np.errstate(all="ignore"):
        both = Composition(blocks([(FEW, 2), (low, 3)]), 0.0, 0.5, jump=True)
        alone = Composition(blocks([(FEW, 2)]), 0.0, 0.5, jump=True)
        rest = Composition(blocks([(low, 3)]))
        assert both.log_mgf(TILTS) == pytest.approx(alone.log_mgf(TILTS) + rest.log_mgf(TILTS), rel=1e-12)
        assert (spectrum_of(both, 1.0, 0.1, 30).rounding < 1e-11).all()


def test_a_jump_and_no_jump_add_up_to_the_whole() -> None:
    discrete = discretise_above(uniform_grid(usual_law(0.6), 9.0, 0.1))
    c = np.array([0.0, 0.5, 2.0])
    steps, cap = 4, 0.7
    whole = blocks([(discrete, steps)])
    none = Composition(whole, 0.0, cap).log_mgf(c)
    one = Composition(whole, 0.0, cap, jump=True).log_mgf(c)
    mass, loss = np.exp(discrete.log_mass), discrete.loss
    small = np.array([(mass * np.exp(v * loss))[loss <= cap].sum() for v in c])
    big = np.array([(mass * np.exp(v * loss))[loss > cap].sum() for v in c])
    assert np.exp(none) == pytest.approx(small**steps, rel=1e-12)
    assert np.exp(one) == pytest.approx(steps * big * small ** (steps - 1), rel=1e-12)


@pytest.mark.parametrize("cap", [0.8, 1.7])
def test_the_transform_of_a_jump_is_that_of_all_sums_with_one_loss_above_the_cap(cap: float) -> None:
    laws, c = [(FEW, 2), (OTHER, 1), (Discrete(np.array([-0.3, 1.0, 2.0]), np.log([0.7, 0.2, 0.1]), 0.0, 0.0), 2)], 0.9
    with np.errstate(all="ignore"):
        spectrum = spectrum_of(Composition(blocks(laws), 0.0, cap, jump=True), c, 0.3, 50)
    z = c + 0.3j * np.arange(50)
    steps = [law for law, count in laws for _ in range(count)]

    def transform(law: Discrete, big: bool) -> np.ndarray:
        keep = (law.loss > cap) == big
        return np.exp(np.outer(z, law.loss[keep])) @ np.exp(law.log_mass[keep])

    exact = sum(np.prod([transform(law, i == k) for i, law in enumerate(steps)], axis=0) for k in range(len(steps)))
    found = spectrum.values * np.exp(spectrum.log_scale + 1j * z.imag * spectrum.centre)
    assert (np.abs(found - exact) <= (spectrum.rounding + 1e-14) * math.exp(spectrum.log_scale)).all()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_jump_at_very_few_frequencies_is_that_at_more(count: int) -> None:
    composition = Composition(blocks([(FEW, 2), (OTHER, 3)]), 0.2, 0.05, jump=True)
    few, more = (spectrum_of(composition, 0.7, 0.2, number) for number in (count, 9))
    assert few.values == pytest.approx(more.values[:count], abs=1e-13)
    assert (few.log_scale, few.centre) == (more.log_scale, more.centre)


def test_releases_alone_have_no_jump() -> None:
    found = spectrum_of(Composition([], 0.5, 0.3, jump=True), 0.7, 0.2, 5)
    assert found.log_scale == pytest.approx(0.25 * (0.49 + 0.7))
    assert (found.values == 0.0).all()
    alone = Composition([], 0.5)
    assert (alone.total_steps, alone.rows) == (1.0, 1)


def test_a_composition_keeps_no_state() -> None:
    """Questions leave no trace, so that threads may share it, and every answer depends on its question alone."""
    whole, tilts = Composition(blocks([(FEW, 2)])), np.array([0.5, 2.0])
    before = dict(vars(whole))
    first = whole.log_mgf(tilts)
    spectrum_of(whole, 0.7, 0.2, 40)
    decay_of(whole, 0.7, 50.0, 1e-3)
    assert vars(whole) == before
    assert whole.log_mgf(tilts).tolist() == first.tolist()


@pytest.mark.parametrize("seed", [0, 2, 4])  # masses that add up to one, and to a rounding more or less
def test_steps_that_drown_in_their_roundings_prove_nothing_and_warn_of_nothing(seed: int) -> None:
    law = phases(seed, 1)[0][0]
    found = spectrum_of(Composition(blocks([(law, 10**20)])), 0.7, 0.1, 3)
    assert found.rounding[0] == math.inf
    assert np.isfinite(found.values).all()


def test_phases_share_the_samples_of_a_look_for_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Composition(blocks([(FEW, 4000), (OTHER, 4000), (SMALL, 4000)]))
    spacing = 0.25 / max(float(one.spread.max()) for one in whole.tilted(0.7))
    for samples, looks in ((90, False), (110, True)):
        monkeypatch.setattr(module, "_MOST_SAMPLES", 3 * 100)
        cut, bound = decay_of(whole, 0.7, spacing * 10_000 / samples, 1e-3)
        assert (cut < spacing * 10_000 / samples) is looks
        assert bound == 1.0 or looks


@pytest.mark.parametrize("jump", [False, True])
def test_values_are_relative_to_the_largest(jump: bool) -> None:
    """What is left out at high frequencies is bounded by one, also where several phases may have the jump."""
    composition = Composition(blocks([(FEW, 2)] * 5), 0.0, 0.5 if jump else math.inf, jump)
    with np.errstate(all="ignore"):
        spectrum = spectrum_of(composition, 0.7, 0.2, 40)
    assert np.abs(spectrum.values).max() <= 1 + 1e-12


def test_the_margin_of_the_weights_is_their_error_times_the_steps_of_all_phases() -> None:
    """With P off by a factor 1 + w at each step, log delta is off by T log(1 + w) < T w, with or without a jump."""
    one, two = (Discrete(FEW.loss, FEW.log_mass, 0.0, error) for error in (1e-9, 3e-7))
    laws = [(one, 9), (two, 2), (FEW, 5)]
    for cap, jump in ((math.inf, False), (0.5, False), (0.5, True)):
        for made in (blocks(laws), apart(laws)):
            assert Composition(made, 0.0, cap, jump).weight_margin == pytest.approx(9e-9 + 6e-7, rel=1e-12)
    assert Composition(blocks([(FEW, 9)])).weight_margin == 0.0
    heavier = Discrete(FEW.loss, FEW.log_mass + math.log1p(1e-9), 0.0, 0.0)
    tilts = np.array([0.5, 2.0])
    off = Composition(blocks([(heavier, 9)])).log_mgf(tilts) - Composition(blocks([(FEW, 9)])).log_mgf(tilts)
    assert (off <= Composition(blocks([(one, 9)])).weight_margin * (1 + 1e-5)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_transform_stays_below_its_bound_after_its_last_frequency(kind: str) -> None:
    """Beyond the cut, up to the limit, at frequencies between the samples too; both parts of the bound are used."""
    cuts = 0
    for seed in range(40):
        rng = np.random.default_rng([7, seed, KINDS.index(kind)])
        laws = [(random_law(rng, kind, 30), int(10 ** rng.uniform(0, 6))) for _ in range(rng.integers(1, 3))]
        whole = Composition(blocks(laws), float(rng.choice([0.0, 0.0, 0.3])))
        c, tolerance = 10.0 ** rng.uniform(-1, 1), 10.0 ** rng.uniform(-12, -4)
        deviation = max(float(one.deviation.max()) for one in whole.tilted(c))
        limit = 10.0 ** rng.uniform(-2, 1.5) / deviation
        with np.errstate(all="ignore"):  # a law of almost one outcome has a limit beyond floats
            cut, bound = decay_of(whole, c, limit, tolerance)
        if cut == limit:
            continue
        cuts += 1
        assert bound <= tolerance
        u = np.concatenate([np.geomspace(cut, limit, 1500), np.linspace(cut, limit, 1500)])
        log_modulus = -0.5 * whole.gaussian * np.square(u)
        for one in whole.tilted(c):
            for row in range(one.steps.size):
                values = np.exp(1j * np.outer(u, one.away[row])) @ one.weights[row]
                with np.errstate(divide="ignore"):
                    log_modulus += one.steps[row] * np.log(np.abs(values))
        assert np.exp(log_modulus.max()) <= bound * (1 + 1e-6)
    assert cuts >= 5 or kind == "rare"  # with one rare hit the transform never dies out


@pytest.mark.parametrize("count", [2, 64, 65, 3000])
def test_both_ways_to_transform_meet_their_stated_error(count: int) -> None:
    """Multiplication for few frequencies, series and fast transform for many, against direct sums, row by row."""
    rng = np.random.default_rng(count)
    laws = [(random_law(rng, "wide", 300), 1), (random_law(rng, "pair", 40), 3)]
    (one,) = Composition(blocks(laws)).tilted(0.7)
    spacing = 3.0 / float(one.deviation.max()) / count
    values, own = one.transform(spacing, count)
    bound = one.error(spacing * np.arange(count), own)
    for row in range(2):
        turns = np.multiply.outer(spacing * np.arange(count).astype(LONG), one.away[row].astype(LONG))
        weights = one.weights[row].astype(LONG)
        exact = np.cos(turns) @ weights + 1j * (np.sin(turns) @ weights)
        assert (np.abs(values[row] - exact.astype(complex)) <= bound[row]).all()


# --- every bound to the letter -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cap", "jump"), [(math.inf, False), (0.8, True)])
@pytest.mark.parametrize("gaussian", [0.0, 0.6])
def test_values_scale_and_centre_are_those_of_the_exact_transform(cap: float, jump: bool, gaussian: float) -> None:
    laws, c = [(FEW, 2), (OTHER, 1), (Discrete(np.array([-0.3, 1.0, 2.0]), np.log([0.7, 0.2, 0.1]), 0.0, 0.0), 2)], 0.9
    with np.errstate(all="ignore"):
        spectrum = spectrum_of(Composition(blocks(laws), gaussian, cap, jump), c, 0.3, 50)
    z = (c + 0.3j * np.arange(50)).astype(np.clongdouble)
    steps = [law for law, count in laws for _ in range(count)]

    def transform(law: Discrete, big: bool) -> np.ndarray:
        keep = (law.loss > cap) == big
        return np.exp(np.outer(z, law.loss[keep])) @ np.exp(law.log_mass[keep].astype(LONG))

    ways = range(len(steps)) if jump else [-1]
    exact = sum(np.prod([transform(law, i == k) for i, law in enumerate(steps)], axis=0) for k in ways)
    exact = exact * np.exp(0.5 * gaussian * (z * z + z))
    relative = exact * np.exp(-1j * z.imag * spectrum.centre) / math.exp(spectrum.log_scale)
    assert spectrum.values == pytest.approx(relative.astype(complex), rel=1e-10, abs=1e-13)
    assert spectrum.values[0] == pytest.approx(1.0, abs=1e-12)  # relative to the value on the real line
    assert (np.abs(spectrum.values - relative) <= spectrum.rounding).all()
    if not jump:  # turned back by the mean of the tilted sum
        _, slope, _ = cumulants(Composition(blocks(laws), gaussian), np.array([c]))
        assert spectrum.centre == pytest.approx(float(slope[0]), rel=1e-12)


@pytest.mark.parametrize("gaussian", [0.0, 0.3])
@pytest.mark.parametrize("jump", [False, True])
def test_the_rounding_of_a_spectrum_is_the_sum_of_its_parts(
    monkeypatch: pytest.MonkeyPatch, jump: bool, gaussian: float
) -> None:
    """With masses that are far worse than they are, so that every part of the bound is seen."""
    monkeypatch.setattr(module, "MASS_ERROR", 1e-4)
    laws, c, u, cap = [(FEW, 300), (SMALL, 20)], 0.9, 0.1 * np.arange(40), 0.5 if jump else math.inf
    made, size = apart(laws), np.hypot(c, u)
    low = [module.Tilted(c, block.part(block.loss <= cap)) for block in made]
    factors = [(one.transform(0.1, 40), one) for one in low]
    errors = [one.error(size, own)[0] for (_, own), one in factors]
    bounds = [np.abs(values[0]) + error for ((values, _), _), error in zip(factors, errors, strict=True)]
    log_f = -0.5 * gaussian * u * u + sum(
        steps * np.log(values[0]) for ((values, _), _), (_, steps) in zip(factors, laws, strict=True)
    )
    bound_f = np.exp(-0.5 * gaussian * u * u) * np.prod([b**t for b, (_, t) in zip(bounds, laws, strict=True)], axis=0)
    relative = 8 * UNIT + 4 * UNIT * np.abs(log_f.imag)
    relative += sum(steps * error / bound for error, bound, (_, steps) in zip(errors, bounds, laws, strict=True))
    with np.errstate(all="ignore"):
        found = spectrum_of(Composition(made, gaussian, cap, jump), c, 0.1, 40).rounding
    if not jump:
        assert found == pytest.approx(bound_f * relative, rel=1e-9, abs=0.0)
        return
    big = module.Tilted(c, made[0].part(made[0].loss > cap))  # the second phase has no loss above the cap
    values, own = big.transform(0.1, 40)
    error = big.error(size, own)[0]
    parts = error / bounds[0] + (np.abs(values[0]) + error) / bounds[0] * relative
    assert found == pytest.approx(bound_f * parts, rel=1e-9, abs=0.0)


def test_the_error_of_turns_counts_where_steps_are_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MASS_ERROR", 0.0)
    monkeypatch.setattr(module, "PHASE_ERROR", 0.0)
    skew, spacing = Discrete(np.array([0.0, 1.0]), np.log([0.9, 0.1]), 0.0, 0.0), 0.1 / 40
    found = spectrum_of(Composition(blocks([(skew, 10**6)])), 0.0, spacing, 40)
    (tilted,) = Composition(blocks([(skew, 10**6)])).tilted(0.0)
    values, own = tilted.transform(spacing, 40)
    error = tilted.error(spacing * np.arange(40), own)[0]
    log_f, bound = 1e6 * np.log(values[0]), np.abs(values[0]) + error
    assert np.abs(log_f.imag).max() > 10.0
    exact = np.exp(1e6 * np.log(bound)) * (8 * UNIT + 4 * UNIT * np.abs(log_f.imag) + 1e6 * error / bound)
    assert found.rounding == pytest.approx(exact, rel=3e-9, abs=0.0)


@pytest.mark.parametrize("cap", [0.1, 0.3, 0.9])
def test_a_loss_at_the_very_cap_is_below_it_and_counted_once(cap: float) -> None:
    made = blocks([(FEW, 2), (OTHER, 3)])
    with np.errstate(all="ignore"):
        jump = Composition(made, 0.0, cap, jump=True)
    for whole, small, big in zip(made, jump.small, jump.big, strict=True):
        for row in range(whole.steps.size):
            low, high, every = (outcomes(part, row) for part in (small, big, whole))
            assert low == [(loss, mass) for loss, mass in every if loss <= cap]
            assert high == [(loss, mass) for loss, mass in every if loss > cap]


def outcomes(block: Block, row: int) -> list[tuple[float, float]]:
    """Losses and log-masses of one phase, without those of no mass."""
    some = np.isfinite(block.log_mass[row])
    return sorted(zip(block.loss[row, some].tolist(), block.log_mass[row, some].tolist(), strict=True))


@pytest.mark.parametrize("band", [(-1.0, 0.3), (0.3, 0.9), (0.1, math.inf), (2.0, 3.0)])
def test_a_jump_may_be_asked_to_lie_within_a_band(band: tuple[float, float]) -> None:
    made, cap = blocks([(FEW, 2), (OTHER, 3)]), 0.1
    with np.errstate(all="ignore"):
        jump = Composition(made, 0.0, cap, True, band)
        c = np.array([0.3, 1.7])
        value = jump.log_mgf(c)
    for whole, big in zip(made, jump.big, strict=True):
        for row in range(whole.steps.size):
            inside = [one for one in outcomes(whole, row) if max(cap, band[0]) < one[0] <= band[1]]
            assert outcomes(big, row) == inside
    if band[0] <= cap:  # with what lies above the band it is the whole jump
        with np.errstate(all="ignore"):
            rest = Composition(made, 0.0, cap, True, (band[1], math.inf)).log_mgf(c)
        assert np.logaddexp(value, rest) == pytest.approx(Composition(made, 0.0, cap, jump=True).log_mgf(c))


@pytest.mark.parametrize("turn", [0.49, 0.5, 0.51, 1.4])
def test_only_losses_that_turn_by_half_a_radian_at_most_go_through_the_series(turn: float) -> None:
    count = 1025
    law = Discrete(np.array([-1.0, 1.0]), np.log([0.5, 0.5]), 0.0, 0.0)
    (one,) = Composition(blocks([(law, 1)])).tilted(0.0)
    spacing = turn / (count - 1)
    values, own = one.transform(spacing, count)
    assert own.tolist() == [TRANSFORM_ERROR if turn > 0.5 else 0.0]
    exact = np.cos((spacing * np.arange(count)).astype(LONG))
    assert (np.abs(values[0] - exact) <= own[0] + 16 * UNIT).all()


@pytest.mark.parametrize(("rows", "count"), [(1, 512), (7, 512), (8, 8_000)])
def test_few_frequencies_are_reached_by_multiplication_and_of_several_phases_more(rows: int, count: int) -> None:
    (one,) = Composition(blocks([(FEW, 1)] * rows)).tilted(0.7)
    assert (one.transform(1e-3, count)[1] == transform.powers_error(3, count)).all()
    assert (one.transform(1e-3, count + 1)[1] <= TRANSFORM_ERROR).all()


def test_a_transform_is_off_by_its_own_error_and_sixteen_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNIT", 1e-6)
    (one,) = Composition(blocks([(FEW, 1), (OTHER, 2)])).tilted(0.7)
    found = one.error(np.array([0.0, 1e5]), np.array([0.0, 1e-3]))
    assert found == pytest.approx(np.array([[0.0], [1e-3]]) + 16e-6 + np.outer(one.slope, [0.0, 1e5]), rel=1e-12)


@pytest.mark.parametrize("unit", [UNIT, 1e-9])  # and one that is far worse, so that it is seen
def test_near_zero_the_modulus_is_bounded_by_moments(monkeypatch: pytest.MonkeyPatch, unit: float) -> None:
    """(1 - a v^2 + b v^4)^2 + (far v + k v^3)^2, without the term that lowers it; largest at an end."""
    monkeypatch.setattr(module, "UNIT", unit)
    rng = np.random.default_rng(5)
    loss = np.concatenate([rng.normal(size=30), [3.0, -4.0, 9.0]])
    law = Discrete(loss, np.log(rng.dirichlet(np.ones(33))), 0.0, 0.0)
    (one,) = Composition(blocks([(law, 1), (FEW, 2)])).tilted(0.1)
    for end in (0.2 / float(one.deviation.max()), 1.0 / float(one.deviation.max())):
        found = one.near_zero(end)
        for row in range(2):
            x, weights = np.abs(one.away[row]) * end, one.weights[row]
            near = x <= 2.0
            a, b, k = (float(weights[near] @ x[near] ** n) / math.factorial(n) for n in (2, 4, 3))
            far, v = 1.4 * float(weights[~near] @ x[~near]), module._NEAR_ZERO
            square = (1 - a * v**2 + b * v**4) ** 2 + (far * v + k * v**3) ** 2 + 2 * a * b * v**6
            bound = np.maximum(np.sqrt(square + 2e-11 * a * v**2), np.sqrt(square[-1] + 2e-11 * a))
            assert found[row] == pytest.approx(bound + 16 * unit, rel=4e-16, abs=0.0)
            modulus = np.abs(np.exp(1j * np.outer(end * v, one.away[row])) @ weights)
            assert (modulus <= found[row]).all()
    assert (near.sum(), (~near).sum()) != (near.size, 0) or far == 0.0


def test_frequencies_between_near_zero_and_the_limit_are_all_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is near zero but its first frequency, the bound is the largest sample, from the very end on."""
    whole = Composition(blocks([(FEW, 2), (OTHER, 3)]), 0.1)
    (one,) = whole.tilted(0.7)
    monkeypatch.setattr(
        module.Tilted, "near_zero", lambda *_: np.where(np.arange(200) == 0, 1.0, 1e-30) * np.ones((2, 1))
    )
    spacing, end, limit = 0.25 / float(one.spread.max()), 1.0 / float(one.deviation.max()), 20.0
    cut, bound = decay_of(whole, 0.7, limit, 0.99)
    assert cut == pytest.approx(end * module._NEAR_ZERO[1], rel=1e-12)
    samples = spacing * np.arange(int(end / spacing + 0.5), math.ceil(limit / spacing) + 2)
    starts = np.maximum(samples - 0.5 * spacing, end)
    assert samples[0] - 0.5 * spacing <= end
    assert samples[-1] + 0.5 * spacing >= limit
    total = np.exp(-0.05 * starts * starts)
    for row, steps in enumerate((2, 3)):
        modulus = np.abs(np.exp(1j * np.outer(samples, one.away[row])) @ one.weights[row])
        total = total * np.minimum(modulus + 0.5 * spacing * one.spread[row], 1.0) ** steps
    assert bound == pytest.approx(float(total.max()), rel=1e-9)
    assert decay_of(whole, 0.7, limit, 1.0) == (limit, 1.0)  # nothing to be found at once
    assert decay_of(whole, 0.7, limit, 1e-300) == (limit, 1.0)  # or at all


def test_blocks_count_the_size_of_losses_and_slices_their_tilts() -> None:
    (block,) = blocks([(FEW, 3), (OTHER, 2)])
    assert block.size == pytest.approx([0.5 * 0.4 + 0.4 * 0.1 + 0.1 * 0.9, 0.8 * 0.05 + 0.2 * 0.3])
    c = 0.8
    tilted = module.Tilted(c, block)
    for row, law in enumerate((FEW, OTHER)):
        weights = np.exp(law.log_mass + c * law.loss)
        weights, scale = weights / weights.sum(), math.log(weights.sum())
        centre = float(weights @ law.loss)
        away = np.abs(law.loss - centre)
        assert (tilted.log_scale[row], tilted.centre[row]) == pytest.approx((scale, centre), rel=1e-13)
        assert tilted.spread[row] == pytest.approx(float(weights @ away), rel=1e-13)
        assert tilted.deviation[row] == pytest.approx(math.sqrt(float(weights @ away**2)), rel=1e-13)
        slope = (PHASE_ERROR + MASS_ERROR) * (tilted.spread[row] + abs(centre) + block.size[row])
        assert tilted.slope[row] == pytest.approx(slope, rel=1e-12, abs=0.0)
