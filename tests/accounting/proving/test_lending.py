"""The lending bound: against 50 digits, at its limits, and against exact laws of small data sets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from mpmath import mp, mpf
from tests import lending_cases as cases
from tests.adversary import Draw, draws, hunt, streams
from tests.enumeration import ADJACENCIES, Config
from tests.reference import lending as reference

from filet import Adjacency
from filet._binomial import CapWeights, cap_weights
from filet._rounding import LEAST_LIGHT
from filet.accounting.proving import lending
from filet.accounting.proving.lending import Step
from filet.accounting.search.lending import choose_shares
from filet.errors import NotCertifiedError


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mp.workdps(70):
        yield


def arguments(step: Step, loss: float) -> tuple[int, float, int, float, str, float]:
    return step.n, step.p, step.cap, step.sigma, str(step.adjacency), loss


def tolerance(step: Step, loss: float) -> float:
    """1e-10, but a - 1 + p loses digits where it is far below p; at 1 - p nothing is left."""
    low = math.expm1(loss) + step.p
    return 1e-10 * max(1.0, 0.01 * step.p / low) if low > 1e-9 * step.p else math.inf


# --- against 50 digits ---


@pytest.mark.parametrize("seed", range(12))
def test_lending_is_above_its_50_digits_and_close(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = 0
    for _ in range(5):
        step = cases.some(rng, 500)
        loss = cases.losses(step, rng, 4)
        share, tilt = choose_shares(step).at(loss)
        ours = lending.lent_excess(step, loss, share, tilt)
        for i in np.flatnonzero(np.isfinite(ours)):
            exact = reference.bound(*arguments(step, float(loss[i])), share[i], tilt[i], excess=bool(loss[i] < 0))
            seen += 1
            assert mpf(float(ours[i])) >= exact, (step, loss[i])
            assert float(ours[i] / exact - 1) < 1e-10 or exact < 1e-40, (step, loss[i])
    assert seen > 8


@pytest.mark.parametrize("seed", range(6))
def test_random_shares_and_tilts_are_bounds_too(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    for _ in range(6):
        step = cases.some(rng, 200)
        loss = cases.losses(step, rng, 4)
        share, tilt = rng.uniform(size=(5, step.lenders)) ** rng.choice([0.2, 1, 5]), 2 * rng.normal(size=5)
        ours = lending.lent_excess(step, loss, share, tilt)
        for i in np.flatnonzero(np.isfinite(ours)):
            exact = reference.bound(*arguments(step, float(loss[i])), share[i], tilt[i], excess=bool(loss[i] < 0))
            assert mpf(float(ours[i])) >= exact, (step, loss[i])


@pytest.mark.parametrize("seed", range(6))
def test_swap_is_above_its_50_digits_and_close(seed: int) -> None:
    rng = np.random.default_rng(200 + seed)
    for _ in range(12):
        step = cases.some(rng, 500)
        loss = cases.losses(step, rng, 5)
        for at, ours in zip(loss, lending.swap_excess(step, loss), strict=True):
            exact = reference.swap(*arguments(step, float(at)), excess=bool(at < 0))
            assert mpf(float(ours)) >= exact, (step, at)
            assert float(ours) <= exact * (1 + tolerance(step, float(at))) + 1e-40, (step, at)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("n", "p", "B", "sigma"), [(60_000, 256 / 60_000, 256, 1.0), (50_000, 0.08192, 4_200, 3.0)])
def test_real_sizes_agree_with_50_digits(n: int, p: float, B: int, sigma: float, adjacency: str) -> None:
    step = cases.make(n, p, B, sigma, adjacency)
    loss = np.log1p(p * np.expm1(np.array([-0.02, 0.5, 2.0, 4.0])))
    share, tilt = choose_shares(step).at(loss)
    ours = lending.lent_excess(step, loss, share, tilt)
    for i in np.flatnonzero(np.isfinite(ours)):
        exact = reference.bound(*arguments(step, float(loss[i])), share[i], tilt[i], excess=bool(loss[i] < 0))
        assert 0 <= float(ours[i] / exact - 1) < 1e-9  # the binomial weights are good to 1e-12


def test_the_cover_is_on_the_safe_side() -> None:
    """M is below its 50 digits and theta above, for masses that count as exact."""
    rng = np.random.default_rng(6)
    for _ in range(60):
        step = cases.some(rng, 300)
        k = np.arange(1.0, step.lenders + 1)
        m0, m1 = (10 ** rng.uniform(-12, 0, 3) for _ in range(2))
        lent, tilt = 10 ** rng.uniform(-12, 0, (k.size, 3)), 2 * rng.normal(size=3)
        M, theta = lending.cover(step, m0, m1, lent, tilt)
        for i in range(3):
            masses = reference.Masses(mpf(0), mpf(0), mpf(float(m0[i])), mpf(float(m1[i])), mpf(0))
            exact = reference.cover(masses, [mpf(float(v)) for v in lent[:, i]], mpf(float(tilt[i])), mpf(step.sigma))
            assert exact[0] * (1 - mpf(10) ** -10) <= mpf(float(M[i])) <= exact[0]
            if exact[1] > 0 and theta[i] > 0:
                assert abs(mpf(float(theta[i])) / exact[1] - 1) < 1e-10


@pytest.mark.parametrize("replaced", [False, True])
def test_the_top_is_above_its_50_digits_for_weights_that_count_as_exact(replaced: bool) -> None:
    """As a function of M the theorem's Top may rise or fall, so it is compared at the very same numbers."""
    rng, tight = np.random.default_rng(7), 0
    for _ in range(150):
        step = cases.some(rng, int(rng.choice([40, 4_000])))
        step = replace(step, sigma=float(10 ** rng.uniform(-1, 2)))
        c = float(10 ** rng.uniform(-8, 0))
        M, theta = c * float(10 ** rng.uniform(-3, 3)), float(rng.uniform(0, 0.6))
        top2 = c * float(10 ** rng.uniform(0, 2)) if replaced else 0.0
        one = [np.array([v]) for v in (c, M, top2, theta)]
        base, rise = lending.top(step, one[0], one[1], one[2] if replaced else None, one[3])
        with mp.workdps(200):
            exact = reference.top(step.n, step.cap, mpf(c), mpf(M), mpf(theta), mpf(top2), mpf(step.sigma))
        ours = float(base[0] + rise[0])
        assert mpf(ours) * (1 + mpf(2) ** -50) >= exact, (step, c, M, theta, top2)
        tight += float(ours / exact - 1) < 1e-10
    assert tight > 100


def off(weights: CapWeights, error: float, rng: np.random.Generator) -> CapWeights:
    """Weights that are wrong by up to the error that they state."""
    names = ("room", "w", "tau", "tq", "c", "swap", "stay")
    by = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=len(names))
    wrong = {name: getattr(weights, name) / (1 + error * float(one)) for name, one in zip(names, by, strict=True)}
    return replace(weights, **wrong, error=error)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_wrong_weights_are_on_the_safe_side_in_every_mass(adjacency: str) -> None:
    rng = np.random.default_rng(9)
    for _ in range(60):
        true = replace(cases.some(rng, 500), adjacency=Adjacency(adjacency))
        wrong = replace(true, weights=off(true.weights, 1e-4, rng))
        loss = np.append(
            cases.losses(true, rng, 12), math.log1p(-true.p) * rng.uniform(1.0, 3.0, size=4)
        )  # beyond all hits
        for exact, both in zip(true.masses(loss), wrong.masses(loss), strict=True):
            assert (both.down <= exact.up * (1 + 1e-9)).all()
            assert (both.up >= exact.down * (1 - 1e-9)).all()


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_wrong_weights_never_lower_the_swap_bound_and_lending_has_its_side(adjacency: str) -> None:
    rng, below = np.random.default_rng(10), 0
    for _ in range(80):
        true = replace(cases.some(rng, 500), adjacency=Adjacency(adjacency))
        wrong = replace(true, weights=off(true.weights, 1e-4, rng))
        loss = cases.losses(true, rng, 12)
        assert (lending.swap_excess(wrong, loss) >= lending.swap_excess(true, loss) * (1 - 1e-9)).all()
        share, tilt = choose_shares(true).at(loss)
        below += int(np.isfinite(lending.lent_excess(true, loss, share, tilt)[loss < 0.0]).sum())
    assert (below > 0) == (adjacency != "zero-out")  # there nothing is lent below a = 1


def test_shares_beyond_all_and_none_lend_all_and_none() -> None:
    step = cases.make(400, 0.1, 41, 1.0, "add-remove")
    loss = np.log1p(0.1 * np.expm1(np.array([-0.3, 0.5, 2.0])))
    for share, same in ((1.7, 1.0), (-0.4, 0.0), (math.nan, 0.0)):
        found, clipped = (
            lending.lent_excess(step, loss, np.full((3, step.lenders), one), np.zeros(3)) for one in (share, same)
        )
        assert np.isfinite(clipped).all()
        assert found.tolist() == clipped.tolist()


def test_where_concavity_is_not_known_the_top_is_bounded_by_distances_alone() -> None:
    step = cases.make(400, 0.1, 41, 2.0, "replace-one")
    c, mass, theta = np.array([1e-2]), np.array([6e-3]), np.array([0.3])
    m, kappa = step.draws
    away = kappa * 0.3 / math.sqrt(m)
    last = math.sqrt(3.0)  # known up to it, but for the rounding of an edge
    for edge, known in ((1.9, False), (1.8, False), (last - 2e-9, False), (last - 5e-9, True), (1.5, True)):
        top2 = c * math.exp(-(edge - 0.5))
        (_, rise), (_, found) = (lending.top(step, c, mass, top2, one) for one in (0.0 * theta, theta))
        sure = rise[0] + mass[0] * (away + away * away) / (4.0 * math.sqrt(2 * math.pi))
        assert (found[0] < sure * (1 - 1e-3)) == known
        assert found[0] <= sure * (1 + 1e-12)
    for top2, equal in ((c * math.exp(-3.0), c), (0.0 * c, 2.0 * c)):  # and where M is at least c, wherever the edge is
        (_, rise), (_, found) = (lending.top(step, c, equal, top2, one) for one in (0.0 * theta, theta))
        assert found[0] < (rise[0] + equal[0] * (away + away * away) / (4.0 * math.sqrt(2 * math.pi))) * (1 - 1e-3)


# --- order and limits ---


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_lending_is_below_swap_and_swap_below_the_note(adjacency: str) -> None:
    from tests.reference import profile_float

    gained = 0
    for n, p, B, sigma in [(60, 0.4, 24, 1.0), (400, 0.1, 41, 0.6), (2_000, 0.05, 100, 1.5), (5_000, 0.02, 130, 1.0)]:
        step = cases.make(n, p, B, sigma, adjacency)
        loss = np.log1p(p * np.expm1(np.linspace(-1.0, 2.0 / sigma**2 + 3.0 / sigma, 60)))
        swap = lending.swap_excess(step, loss)
        both = lending.profile_excess(step, loss, *choose_shares(step).at(loss))
        assert (both <= swap).all()
        gained += int((both < 0.9 * swap).sum())
        rest = np.where(loss < 0, -np.expm1(np.minimum(loss, 0)), 0.0)
        note = profile_float.profile(loss, n=n, p=p, B=B, sigma=sigma, adjacency=adjacency, analysis="note")
        assert (swap + rest <= note * (1 + 1e-9) + 1e-14).all()
    assert gained > 20


@pytest.mark.parametrize(("n", "p", "B", "sigma"), [(10, 0.5, 10, 1.0), (10, 0.5, 1, 1.0), (10, 1.0, 5, 1.0), (10, 0.5, 5, 1e-3)])  # fmt: skip
def test_where_there_is_nothing_to_lend_it_is_refused(n: int, p: float, B: int, sigma: float) -> None:
    v = cap_weights(10, 0.5, 5)
    with pytest.raises(NotCertifiedError, match="use the swap analysis"):
        Step(n, p, B, sigma, Adjacency.ADD_REMOVE, v, 1)


def test_weights_without_digits_and_as_many_lenders_as_places_are_refused() -> None:
    v = cap_weights(40, 0.3, 15)
    for error, lenders in ((2e-3, 5), (2e-3, 0), (1e-9, 15)):
        with pytest.raises(NotCertifiedError, match="use the swap analysis"):
            Step(40, 0.3, 15, 1.0, Adjacency.ADD_REMOVE, replace(v, error=error), lenders)


def test_noise_errors_and_weights_up_to_their_limits_are_let_in() -> None:
    v = replace(cap_weights(40, 0.3, 15), error=1e-3, w=LEAST_LIGHT)
    assert all(lending.lendable(v, sigma) for sigma in (0.01, 1.0, 1e8))
    assert not any(lending.lendable(v, sigma) for sigma in (math.nextafter(0.01, 0.0), math.nextafter(1e8, 1e9)))
    assert not lending.lendable(replace(v, error=math.nextafter(1e-3, 1.0)), 1.0)
    assert not lending.lendable(replace(v, tau=math.nextafter(LEAST_LIGHT, 0.0)), 1.0)
    with pytest.raises(NotCertifiedError, match="use the swap analysis"):
        Step(40, 0.0, 15, 1.0, Adjacency.ADD_REMOVE, v, 1)  # nobody is ever drawn


def test_weights_that_underflow_are_refused() -> None:
    with pytest.raises(NotCertifiedError, match="use the swap analysis"):
        cases.make(60_000, 0.004, 3_000, 1.0, "add-remove")


EDGES = [
    (50, 0.9, 49, 1.0),  # B = n - 1, more inside the batch than outside
    (200, 0.7, 150, 0.8),  # b > N - b
    (30, 1e-6, 3, 1.0),  # p -> 0: and tau below 1e-18
    (400, 0.02, 40, 1.0),  # tau -> 0
    (40, 0.5, 20, 50.0),  # much noise
    (40, 0.5, 20, 0.05),  # little noise
    (6, 0.999999, 3, 1.0),  # p -> 1
]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("n", "p", "B", "sigma"), EDGES)
def test_edges_agree_with_50_digits(n: int, p: float, B: int, sigma: float, adjacency: str) -> None:
    step = cases.make(n, p, B, sigma, adjacency, 8)
    y = 1 / sigma
    loss = np.unique(np.append(np.log1p(p * np.expm1(np.linspace(-y, 0.5 * y * y + 3 * y, 6))), [0.0, 1e-3 * p]))
    share, tilt = choose_shares(step).at(loss)
    both = lending.profile_excess(step, loss, share, tilt)
    for i in range(loss.size):
        at, below = arguments(step, float(loss[i])), bool(loss[i] < 0)
        exact = reference.swap(*at, excess=below)
        if np.isfinite(lending.lent_excess(step, loss, share, tilt)[i]):
            exact = min(exact, reference.bound(*at, share[i], tilt[i], excess=below))
        assert mpf(float(both[i])) >= exact
        assert float(both[i]) <= exact * (1 + 100 * tolerance(step, float(loss[i]))) + 1e-60


# --- against exact laws of small data sets ---


def lending_bound(draw: Draw, eps: np.ndarray) -> np.ndarray:
    """Enclosure directions of the bound, pointwise."""
    c = draw.config
    step = cases.make(c.n, c.p, c.B, c.sigma, c.adjacency)
    shares = choose_shares(step)
    forward, back = (lending.profile_excess(step, at, *shares.at(at)) for at in (eps, -eps))
    return np.concatenate([forward, back * np.exp(eps)])


def concerned(seed: int, count: int) -> Iterator[Draw]:
    which, _ = streams(seed)
    for draw in draws(which, count):
        c = draw.config
        if draw.analysis == "refined" and c.overflow == "truncate" and 1 < c.B < c.n and c.p < 1:
            yield draw


def test_no_small_data_set_violates_the_bound() -> None:
    rng = np.random.default_rng(1)
    tried = 0
    for draw in concerned(50_000, 300):
        search = hunt(draw, lending_bound, rng)
        assert not search.violated, (draw, search.margin, search.worst)
        tried += search.divergences
    assert tried > 5_000


def test_without_the_correction_small_data_sets_violate_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the search can fail, and psi is needed: n = 3 and 4, with two others that are far apart."""
    whole = lending.top
    monkeypatch.setattr(lending, "top", lambda step, c, m, top2, theta: whole(step, c, m, top2, 0.0 * theta))
    rng = np.random.default_rng(2)
    found = set()
    for n in (3, 4):
        for p, sigma in [(p, sigma) for p in (0.1, 0.3, 0.6) for sigma in (0.7, 1.0, 2.0)]:
            for adjacency in ADJACENCIES:
                draw = Draw(Config(n, p, 2, sigma, "truncate", adjacency), 1, "refined")
                search = hunt(draw, lending_bound, rng)
                if search.violated:
                    found.add(n)
    assert found == {3, 4}
