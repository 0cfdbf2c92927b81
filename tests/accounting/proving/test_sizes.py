"""Sizes that are not public: no data set, no number of records and no second step costs more than is certified."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests import enumeration
from tests.enumeration import TOLERANCE, Neighbours, axis_masses, both_ways, line_profiles, positive_cells, subsets
from tests.reference import secret_size
from tests.settings import SETTINGS

import filet
from filet._binomial import cap_weights, hazard
from filet._rounding import FEW, LIGHTEST
from filet.accounting.proving import sizes
from filet.accounting.proving.lending import LEAST_NOISE
from filet.accounting.proving.sizes import SecretSize, SizesUpTo, poisson_excess, spread_sizes
from filet.accounting.proving.tails import upper
from filet.accounting.search.lending import choose, lenders
from filet.accounting.terms import Adjacency
from filet.scheme import CappedPoisson


@pytest.fixture(autouse=True)
def fresh_laws() -> None:
    """No law of sizes is left over from another test."""
    spread_sizes.cache_clear()


def batch_law(planned: int, p: float, cap: int, records: int) -> np.ndarray:
    """The chance of every batch of records, in the order of `subsets`: filled and empty slots are drawn alike."""
    sizes, slots = secret_size.size_law(planned, p, cap), max(records, planned)
    inside = subsets(records, cap).sum(axis=1)
    return np.array(
        [
            sum(
                sizes[s] * math.comb(slots - records, s - k) / math.comb(slots, s)
                for s in range(k, cap + 1)
                if s - k <= slots - records
            )
            for k in inside
        ]
    )


def neighbours(planned: int, p: float, cap: int, records: int, second: int | None = None) -> Neighbours:
    """x_1 and others against the others alone; `second` is the neighbour's planned size, if that follows the data."""
    with_x, others = subsets(records, cap), np.pad(subsets(records - 1, cap), ((0, 0), (1, 0)))
    P = batch_law(planned, p, cap, records)
    Q = batch_law(planned if second is None else second, p, cap, records - 1)
    members = np.concatenate([with_x, others]).astype(float)
    weights = np.array([np.append(P, np.zeros(len(Q))), np.append(np.zeros(len(P)), Q)])
    _, first, where = np.unique(members, axis=0, return_index=True, return_inverse=True)
    merged = np.zeros((2, len(first)))
    for row, weight in zip(merged, weights, strict=True):
        np.add.at(row, where.ravel(), weight)
    return Neighbours(members[first], merged)


def lines(count: int, rng: np.random.Generator) -> np.ndarray:
    """Data on a line: x_1 first; others zero, opposite, alike, mixed, random."""
    others = count - 1
    rows = [np.zeros(others), -np.ones(others), np.ones(others), np.where(np.arange(others) % 2, 1.0, -1.0)]
    rows += [rng.choice([-1.0, 0.0, 1.0], others) for _ in range(6)] + [rng.uniform(-1, 1, others) for _ in range(6)]
    return np.array([[1.0, *row] for row in rows])


def both_bounds(step: SecretSize | SizesUpTo, eps: np.ndarray) -> np.ndarray:
    """Bounds of H_a(P||Q) and of H_a(Q||P) at a = e^eps."""
    with np.errstate(all="ignore"):
        shares = choose(step, {})
        ahead, back = (step.excess(at, *(shares.at(at) if shares else ())) for at in (eps, -eps))
    return np.concatenate([ahead, back * np.exp(eps)])


CASES = [
    (planned, p, cap, sigma)
    for (planned, cap), p, sigma in itertools.product([(3, 1), (4, 2), (5, 2), (6, 5)], [0.1, 0.4, 0.8], [0.4, 1.5])
]


@pytest.mark.parametrize(("planned", "p", "cap", "sigma"), CASES)
def test_no_small_data_set_of_any_size_loses_more_in_one_step(planned: int, p: float, cap: int, sigma: float) -> None:
    scheme = CappedPoisson(planned, p, cap, overflow="reject", size="secret")
    step, rng = SecretSize(scheme, sigma), np.random.default_rng([planned, cap, int(100 * p)])
    corners = [abs(math.log1p(-j / planned)) for j in range(min(cap, planned - 1) + 1)]
    eps = np.unique(np.concatenate([np.geomspace(1e-3, 4, 9), corners, [0.0]]))
    bound = both_bounds(step, eps)
    for records in range(1, 8):
        pair = neighbours(planned, p, cap, records)
        means = lines(records, rng) @ pair.members.T / sigma
        values, sizes = line_profiles(means, pair.weights, both_ways(eps))
        assert (values <= bound + TOLERANCE * sizes).all(), records


def test_a_planned_size_that_follows_the_data_would_lose_more() -> None:
    """The search notices the habit of passing len(data), which voids the theorem."""
    scheme = CappedPoisson(6, 2 / 6, 2, overflow="reject", size="secret")
    eps = np.linspace(0, 3, 61)
    bound = both_bounds(SecretSize(scheme, 0.3), eps)
    with_x, others = neighbours(6, 2 / 6, 2, 6), neighbours(5, 2 / 5, 2, 5)
    habit = Neighbours(with_x.members, with_x.weights.copy())
    habit.weights[1] = 0.0
    for member, weight in zip(np.pad(others.members, ((0, 0), (1, 0))), others.weights[0], strict=True):
        habit.weights[1][(habit.members == member).all(axis=1)] += weight
    assert habit.weights.sum(axis=1) == pytest.approx([1.0, 1.0])
    means = lines(6, np.random.default_rng(1)) @ habit.members.T / 0.3
    values, _ = line_profiles(means, habit.weights, both_ways(eps))
    assert (values - bound).max() > 0.005


def first_cells(pair: Neighbours, data: np.ndarray, sigma: float) -> np.ndarray:
    """Masses of one step's outcomes in cells, under P and Q."""
    means = pair.members @ data / sigma
    edges = np.concatenate([[-np.inf], np.arange(means.min() - 4, means.max() + 4, 0.2), [np.inf]])
    return np.asarray(pair.weights @ axis_masses(means, edges))


def adaptive(first: np.ndarray, second: list[np.ndarray], mix: np.ndarray) -> np.ndarray:
    """The divergence of two steps if the second data set is chosen by the first outcome."""
    total = np.zeros(len(mix))
    for cell in first.T:
        one = [positive_cells(cell[:, None] * cells, mix)[0] for cells in second]
        total += np.max(one, axis=0)
    return total


@pytest.mark.parametrize("records", [2, 4, 5, 6])
def test_two_adaptive_steps_lose_no_more_than_is_accounted(records: int) -> None:
    planned, p, cap, sigma = 4, 0.35, 2, 1.0
    scheme = CappedPoisson(planned, p, cap, overflow="reject", size="secret")
    curve = filet.account(scheme, noise_multiplier=sigma, steps=2, adjacency="add-remove")
    eps = np.array([0.1, 0.7, 1.5])
    bound = np.array([curve.delta(float(e)) for e in eps])
    pair = neighbours(planned, p, cap, records)
    cells = [first_cells(pair, data, sigma) for data in lines(records, np.random.default_rng(records))[:8]]
    for first in cells:
        found = adaptive(first, cells, both_ways(eps)).reshape(2, -1)
        assert (found <= bound + 1e-12).all()


def both_directions(pair: np.ndarray, sigma: float, eps: np.ndarray) -> np.ndarray:
    """H_a(P||Q) and H_a(Q||P) at a = e^eps, from the mechanism."""
    ahead = [secret_size.profile(pair, sigma, math.exp(e)) for e in eps]
    back = [math.exp(e) * (secret_size.profile(pair, sigma, math.exp(-e)) - 1) + 1 for e in eps]
    return np.array([*ahead, *back])


@pytest.mark.parametrize("sigma", [0.8, 2.0])
@pytest.mark.parametrize("cap", [30, 34, 60])
def test_no_number_of_records_has_a_larger_profile_and_the_bound_is_no_larger_than_the_theorem(
    cap: int, sigma: float
) -> None:
    planned, p = 300, 0.1
    step = SecretSize(CappedPoisson(planned, p, cap, overflow="reject", size="secret"), sigma)
    eps = np.array([0.0, 0.01, 0.1, 0.5, 1.0])
    bound = both_bounds(step, eps)
    for records in (1, 30, 299, 300, 301, 310, 600, 3_000, 30_000):
        found = both_directions(secret_size.labelled_pair(planned, p, cap, records), sigma, eps)
        assert (found <= bound * (1 + 1e-9) + 1e-13).all()
    theorem = secret_size.labelled_pair(planned, p, cap, planned)  # z; and h at the planned size itself:
    found = both_directions(theorem, sigma, eps)
    theorem[:, 2] = secret_size.size_law(planned, p, cap)
    found = np.maximum(found, both_directions(theorem, sigma, eps))
    assert (found <= bound * (1 + 1e-9) + 1e-13).all()
    assert (bound <= 1.02 * found + 1.5e-4).all()  # what the spread onto knots adds


@pytest.mark.parametrize(
    ("planned", "p", "cap"), [(300, 0.1, 34), (300, 0.1, 299), (40, 0.5, 12), (40, 0.9, 39), (9, 0.3, 1)]
)
def test_knots_have_the_mass_and_the_mean_of_the_sizes_below_the_cap(planned: int, p: float, cap: int) -> None:
    law = np.array(secret_size.size_law(planned, p, cap))
    found, below = spread_sizes(planned, p, cap), np.arange(cap)
    assert found.at_cap == pytest.approx(law[-1], rel=1e-14, abs=0)
    assert found.weights.sum() == pytest.approx(law[:-1].sum(), rel=1e-14, abs=0)
    assert found.weights @ found.knots == pytest.approx(law[:-1] @ below, rel=1e-13, abs=0)
    assert (found.knots == np.rint(found.knots)).all()
    assert (found.knots[0], found.knots[-1]) == (0, cap - 1)
    for bend in range(1, cap - 1):  # convex functions only grow
        assert found.weights @ np.abs(found.knots - bend) >= (law[:-1] @ np.abs(below - bend)) * (1 - 1e-13)
    if cap > 1:
        mean = law[:-1] @ below / law[:-1].sum()
        spread = math.sqrt(law[:-1] @ np.square(below - mean) / law[:-1].sum())
        assert found.weights @ np.square(found.knots - mean) / law[:-1].sum() <= 1.15 * spread**2 + 0.25
        assert (found.weights >= 0.0).all()
    assert found.knots.size <= 19
    assert 0.0 < found.left < 1e-290


def test_sizes_that_are_left_out_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few sizes are added up here, so that much is left out on both sides."""
    planned, p, cap = 5_000, 0.4, 2_600
    law = np.array(secret_size.size_law(planned, p, cap))
    monkeypatch.setattr(sizes, "_DEVIATIONS", 0.0)
    found = spread_sizes(planned, p, cap)
    first, last = int(found.knots[0]), int(found.knots[-1])
    left = law[:first].sum() + law[last + 1 :].sum()
    assert 0 < first < last < cap - 1
    assert 1e-60 < left < found.left < 1.1 * left
    assert found.at_cap == 0.0
    monkeypatch.undo()
    at_the_end = spread_sizes(planned, 0.01, cap)  # sizes begin with 0, and end far below the cap
    assert at_the_end.knots[0] == 0.0
    assert at_the_end.knots[-1] < 1_000


def test_what_follows_a_chance_is_a_geometric_series() -> None:
    for ratio in (0.0, 0.25, 0.5, 0.99):
        exact = 0.125 * ratio / (1 - ratio)
        assert exact * (1 + 0.9e-6) <= sizes._beyond(np.longdouble(0.125), ratio) <= exact * (1 + 1.1e-6)
    for ratio in (0.999999, 1.0, 1.5, math.nan):
        with pytest.raises(filet.NotCertifiedError, match="does not fall off"):
            sizes._beyond(np.longdouble(0.1), ratio)


LOSSES = np.array([-2.0, -0.5, -0.05, -0.001, 0.0, 0.001, 0.05, 0.5, 2.0])


def secret_step() -> SecretSize:
    return SecretSize(CappedPoisson(300, 0.1, 34, overflow="reject", size="secret"), 0.8)


def test_every_error_of_a_secret_size_raises_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is made far worse than it is."""
    step, off = secret_step(), 1e-3
    least = step.excess(LOSSES)
    law, at_cap, below_cap = step.sizes, *hazard(34, 300, 0.1)
    assert step.room >= below_cap + at_cap * 34 / 300
    monkeypatch.setattr(sizes, "relative_error", lambda log: off * max(1.0, -log))
    assert secret_step().room >= step.room * (1 + 4 * off * max(1.0, -math.log(at_cap))) * (1 - 1e-12)
    above = step._above(LOSSES)
    step.sizes = replace(law, error=0.5)
    assert (step._above(LOSSES) >= 1.499 * above)[above > 1e-200].all()
    step.sizes = replace(law, left=0.5)
    assert (step._above(LOSSES) >= above + 0.5 / 0.9 - 1e-12).all()
    step.sizes = law
    monkeypatch.setattr(sizes, "FEW", off)
    worse, hits = step._above(LOSSES), step.hits
    assert (step.excess(LOSSES) >= np.maximum(worse, step._up_to(LOSSES)) * (1 + 0.99 * off)).all()
    monkeypatch.setattr(sizes, "FEW", FEW)
    sign = np.where(LOSSES >= 0.0, 1.0, -1.0)
    for way in (1.0, -1.0):
        step.hits = hits * (1 + way * off)
        assert (worse[sign == way] >= step._above(LOSSES)[sign == way]).all()
    step.hits = hits
    assert (step.excess(LOSSES) == least).all()


def test_thresholds_are_rounded_to_the_safe_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "FEW", 1e-3)
    gap, share = np.array([-0.5, -0.05, 0.0, 0.05, 3.0]), 0.1
    total, off = gap + share, 1e-3 * (np.abs(gap) + share)
    assert sizes._rounded(gap, share, np.ones(5)) == pytest.approx(np.maximum(total - off, 0.0), abs=1e-15)
    assert sizes._rounded(gap, share, -np.ones(5)) == pytest.approx(np.maximum(total + off, 0.0), abs=1e-15)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_every_rounding_of_plain_poissons_profile_raises_it(
    adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the unit grows, the bound rises by as much as each rounded number can change it."""
    p, sigma, off = 0.3, 0.9, 1e-4
    small = poisson_excess(LOSSES, p, sigma, adjacency)
    monkeypatch.setattr(sizes, "FEW", off)
    large = poisson_excess(LOSSES, p, sigma, adjacency)
    if adjacency is Adjacency.REPLACE_ONE:
        gap = np.expm1(np.abs(LOSSES))
        scale, top = np.exp(np.minimum(LOSSES, 0.0)), np.full_like(gap, p)
        low, second = (1 - p) * gap, (gap + 1) * p
        rises = [
            scale * (upper(top, low * (1 - off), second, 1 / sigma) - upper(top, low, second, 1 / sigma)),
            scale * (upper(top, low, second * (1 - off), 1 / sigma) - upper(top, low, second, 1 / sigma)),
            small * off,
        ]
        assert (large >= small + 0.999 * sum(rises) - 1e-15).all()
        assert small == pytest.approx((small * np.exp(-LOSSES))[::-1], rel=1e-12, abs=0)  # both orders are alike
    else:
        assert (large > small)[small > 1e-6].all()


def test_sizes_that_are_not_public_have_limits() -> None:
    for n, sigma in ((10**15 + 1, 1.0), (300, LEAST_NOISE * 0.999), (10**15 + 1, LEAST_NOISE * 0.999)):
        with pytest.raises(filet.NotCertifiedError, match=f"noise_multiplier={sigma!r} and dataset_size={n}"):
            sizes._resolved_noise(n, sigma)
    assert sizes._resolved_noise(10**15, LEAST_NOISE) == LEAST_NOISE


@pytest.mark.long
def test_no_number_of_records_costs_more_and_more_records_cost_less() -> None:
    """From a tenth of the planned size to a hundred times it, each accounted with its own pair."""
    planned, p, cap, sigma, steps, delta = 300, 0.1, 34, 1.2, 20, 1e-5
    scheme = CappedPoisson(planned, p, cap, overflow="reject", size="secret")
    certified = filet.account(scheme, noise_multiplier=sigma, steps=steps, adjacency="add-remove").epsilon(delta)
    found = []
    for records in (30, 299, 300, 301, 330, 600, 3_000, 30_000):
        pair = secret_size.labelled_pair(planned, p, cap, records)
        assert secret_size.composed_epsilon(pair, sigma, steps, delta, grid=4e-4, down=True) <= certified
        found.append(secret_size.composed_epsilon(pair, sigma, steps, delta, grid=4e-4, down=False))
    assert max(found) > 0.995 * certified
    assert max(found[:3]) - min(found[:3]) < 1e-3  # up to the planned size: one pair
    assert (np.diff(found[3:]) < 0.0).all()


# --- every size up to a largest one -----------------------------------------------------------------------------------

MOST = [
    (7, 0.3, 2, 0.5, ()),
    (7, 0.6, 2, 1.5, (4, 6)),
    (6, 0.5, 1, 0.7, (3, 5)),
    (6, 0.9, 4, 1.0, ()),
    (5, 0.4, 4, 0.6, ()),
]


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("most", "p", "cap", "sigma", "starts"), MOST)
def test_no_small_data_set_up_to_the_largest_size_loses_more_in_one_step(
    most: int, p: float, cap: int, sigma: float, starts: tuple[int, ...], adjacency: Adjacency
) -> None:
    scheme = CappedPoisson(most, p, cap, size="at-most")
    step = SizesUpTo(scheme, sigma, adjacency, lenders(cap, sigma), starts or None)
    eps = np.unique(np.concatenate([np.geomspace(1e-3, 4, 11), [0.0, -math.log1p(-p)]]))
    bound, rng = both_bounds(step, eps), np.random.default_rng([most, cap])
    for records in range(1, most + 1):
        pair = enumeration.neighbours(enumeration.Config(records, p, cap, sigma, "truncate", adjacency.value))
        data = lines(pair.vectors, rng)
        means = (
            np.concatenate([data, data * np.where(np.arange(pair.vectors) == 1, -1.0, 1.0)]) @ pair.members.T / sigma
        )
        values, sizes = line_profiles(means, pair.weights, both_ways(eps))
        assert (values <= bound + TOLERANCE * sizes).all(), records


@pytest.mark.parametrize("starts", [None, (), (22, 100), (500, 21, 10, 77, 501, 23)])
def test_cells_cover_every_size_above_the_cap_once(starts: tuple[int, ...] | None) -> None:
    step = SizesUpTo(CappedPoisson(500, 0.05, 20, size="at-most"), 1.0, Adjacency.ADD_REMOVE, 3, starts)
    assert step.cells[0].least == 21
    assert step.cells[-1].n == 500
    for cell, following in itertools.pairwise(step.cells):
        assert cell.least <= cell.n == following.least - 1
    if starts:
        inside = sorted(start for start in starts if 21 < start <= 500)
        assert [cell.least for cell in step.cells] == [21, *inside]


def test_a_cell_has_the_levels_of_its_largest_size_and_the_hits_of_its_least() -> None:
    step = SizesUpTo(CappedPoisson(500, 0.05, 20, size="at-most"), 1.0, Adjacency.ADD_REMOVE, 3, (100,))
    for cell in step.cells:
        found, least, most = cell.weights, cap_weights(cell.least, 0.05, 20), cap_weights(cell.n, 0.05, 20)
        assert (found.q, found.rest_rate, found.drop) == (least.q, least.rest_rate, least.drop)
        assert (found.room, found.w, found.tau, found.stay) == (most.room, most.w, most.tau, most.stay)
        assert (found.tq, found.swap) == (most.tau * least.q, most.tau * least.rest_rate)
        assert found.c == pytest.approx(0.05 * most.w + found.tq, rel=1e-15)
        assert found.error >= 2.0 * (least.error + most.error) + 0.999 * FEW


def test_cells_lend_from_twice_the_room_on() -> None:
    scheme = CappedPoisson(500, 0.05, 20, size="at-most")
    for least, lends in ((38, 0), (39, 3)):  # 2 (20 - 1) others
        step = SizesUpTo(scheme, 1.0, Adjacency.ADD_REMOVE, 3, (least, 60))
        assert next(cell.lenders for cell in step.cells if cell.least == least) == lends


def test_cells_whose_full_batches_are_too_rare_cost_their_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    rare = SizesUpTo(CappedPoisson(10**6, 1e-6, 300, size="at-most"), 1.0, Adjacency.ADD_REMOVE, 3)
    assert not rare.cells
    loss = np.array([30.0])
    assert poisson_excess(loss, 1e-6, 1.0, Adjacency.ADD_REMOVE) < LIGHTEST
    assert rare.excess(loss) >= LIGHTEST


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_errors_of_sizes_up_to_a_largest_one_raise_the_bound(
    adjacency: Adjacency, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = SizesUpTo(CappedPoisson(500, 0.05, 20, size="at-most"), 1.0, adjacency, 0)
    least = step.excess(LOSSES)
    step.light = 0.5
    assert (step.excess(LOSSES) >= 0.5 + poisson_excess(LOSSES, 0.05, 1.0, adjacency)).all()
    step.light = 0.0
    monkeypatch.setattr(sizes, "FEW", 1e-3)
    assert (step.excess(LOSSES) >= least * (1 + 0.999e-3)).all()
    monkeypatch.setattr(sizes, "UNDERFLOW", 0.5)
    assert (step.excess(LOSSES) >= 0.5).all()


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_size_is_as_good_as_a_public_one_and_all_sizes_are_covered(adjacency: Adjacency) -> None:
    """A public size is within what is certified for all sizes up to it, and little below."""
    whole = filet.account(
        CappedPoisson(3_000, 0.02, 64, size="at-most"), noise_multiplier=1.0, steps=300, adjacency=adjacency
    )
    epsilon = whole.epsilon(1e-6)
    own = [
        filet.account(CappedPoisson(n, 0.02, 64), noise_multiplier=1.0, steps=300, adjacency=adjacency).epsilon_bounds(
            1e-6
        )
        for n in (65, 1_000, 2_000, 2_800, 3_000)
    ]
    assert max(one.lower for one in own) <= epsilon <= 1.003 * own[-1].upper


@pytest.mark.parametrize("records", [3, 5, 6])
def test_two_adaptive_steps_up_to_the_largest_size_lose_no_more(records: int) -> None:
    p, cap, sigma, eps = 0.5, 2, 1.0, np.array([0.2, 1.0, 2.0])
    scheme = CappedPoisson(6, p, cap, size="at-most")
    curve = filet.account(scheme, noise_multiplier=sigma, steps=2, adjacency="add-remove")
    bound = np.array([curve.delta(float(e)) for e in eps])
    pair = enumeration.neighbours(enumeration.Config(records, p, cap, sigma, "truncate", "add-remove"))
    cells = [first_cells(pair, data, sigma) for data in lines(records, np.random.default_rng(records))[:8]]
    for first in cells:
        assert (adaptive(first, cells, both_ways(eps)).reshape(2, -1) <= bound + 1e-12).all()


# --- figures ----------------------------------------------------------------------------------------------------------

SECRET = {"A": 2.8191, "B": 6.634, "C": 3.411, "D": 0.644, "E": 2.7875}
AT_MOST = {"A": 2.8283, "B": 6.985, "C": 3.638, "D": 1.129, "E": 4.897}


@pytest.mark.parametrize("name", "ABCDE")
def test_figures_of_the_theory(name: str) -> None:
    s = SETTINGS[name]
    arguments: dict[str, Any] = {"noise_multiplier": s.sigma, "steps": s.steps, "adjacency": "add-remove"}
    secret = CappedPoisson(s.n, s.p, s.cap, overflow="reject", size="secret")
    found = filet.account(secret, **arguments).epsilon_bounds(s.delta)
    assert found.upper == pytest.approx(SECRET[name], abs=1e-3)
    assert found.lower >= found.upper - 1e-3
    at_most = CappedPoisson(s.n, s.p, s.cap, size="at-most")
    found = filet.account(at_most, **arguments).epsilon_bounds(s.delta)
    assert found.upper <= AT_MOST[name] + 1e-3
    public = CappedPoisson(s.n, s.p, s.cap)
    assert found.upper >= filet.account(public, **arguments).epsilon_bounds(s.delta).lower
