"""Every rounding of lending is on its safe side: seen with roundings and errors of weights that are far worse than they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests import lending_cases as cases
from tests.enumeration import ADJACENCIES

from filet.accounting.proving import lending
from filet.accounting.proving.lending import Step
from filet.accounting.proving.tails import integral, upper

SMALL, WEIGHTS, UNIT = 1e-5, 1e-4, 1e-7  # of a few operations, of a weight, and of one operation
LOSS = np.array([-0.4, -0.2, -0.04, -0.01, 0.0, 0.003, 0.1, 0.7, 2.0])


@pytest.fixture(autouse=True)
def _bad_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "FEW", SMALL)
    monkeypatch.setattr(lending, "UNIT", 0.0)


def a_step(adjacency: str) -> Step:
    step = cases.make(400, 0.1, 41, 0.9, adjacency, 6)
    made = replace(step, weights=replace(step.weights, error=WEIGHTS))
    assert made.error == WEIGHTS
    return made


def ends(value: np.ndarray, size: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
    """A weight moved down and up by the error of what it is made of, as far as zero."""
    return np.maximum(value - error * size, 0.0), np.maximum(value + error * size, 0.0)


def table(step: Step, loss: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The theorem's table, each entry with both its ends: low, low2, m_0, m_1, top2."""
    v, p, a, gap, none = step.weights, step.p, np.exp(loss), np.expm1(loss), np.zeros_like(loss)
    if step.adjacency == "replace-one":
        low, low2 = ends((1 - p) * gap, np.abs((1 - p) * gap), SMALL), ends(a * p, a * p, SMALL)
        rest = (v.stay * gap, v.swap * gap, a * v.c)
        return [low, low2, *(ends(one, np.abs(one), WEIGHTS) for one in rest)]
    below, above = (gap + p + sign * SMALL * (np.abs(gap) + p) for sign in (-1.0, 1.0))
    low = np.maximum(below, 0.0), np.maximum(above, 0.0)
    products = below * v.w - WEIGHTS * np.abs(below * v.w), above * v.w + WEIGHTS * np.abs(above * v.w)
    if step.adjacency == "add-remove":
        m0 = np.maximum(products[0], 0.0), np.maximum(products[1], 0.0)
        m1 = ends(gap * v.tau + v.tq, np.abs(gap) * v.tau + v.tq, WEIGHTS)
    else:
        hits = a * v.tq * (1 - WEIGHTS), a * v.tq * (1 + WEIGHTS)
        m0 = np.maximum(products[0] + hits[0], 0.0), np.maximum(products[1] + hits[1], 0.0)
        m1 = ends(gap * v.swap, np.abs(gap * v.swap), WEIGHTS)
    return [low, (none, none), m0, m1, (none, none)]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_every_entry_of_the_table_is_moved_by_the_error_of_what_it_is_made_of(adjacency: str) -> None:
    step = a_step(adjacency)
    for found, (down, up) in zip(step.masses(LOSS), table(step, LOSS), strict=True):
        assert found.down == pytest.approx(down, rel=1e-12, abs=1e-17)
        assert found.up == pytest.approx(up, rel=1e-12, abs=1e-17)


def test_what_is_left_to_those_that_do_not_lend_and_the_draws_are_rounded_up() -> None:
    step = a_step("add-remove")
    lend, room = float(step.levels.sum()), step.weights.room
    assert float(step.far[0]) == pytest.approx(room - lend + WEIGHTS * (room + lend), rel=1e-12)
    mirrored = cases.make(400, 0.9, 380, 0.9, "zero-out", 6)
    for one, count, ratio in ((step, 40, 399 / 359), (mirrored, 20, 399 / 379)):
        assert one.draws[0] == count
        assert one.draws[1] == pytest.approx(ratio * (1 + SMALL), rel=1e-12)


def swap(step: Step, loss: float) -> float:
    """Theorem 2 with its weights on their safe sides: positive ones up and negative ones down, or the other way in an excess."""
    v, y, hit, mirrored = step.weights, 1.0 / step.sigma, np.array([step.p]), step.adjacency == "replace-one"
    at = np.array([abs(loss) if mirrored else loss])
    (low, more), (low2, _), (m0, m0_more), (m1, m1_more), (top2, _) = table(step, at)
    room, c, c_less = v.room * (1 + WEIGHTS), np.array([v.c * (1 + WEIGHTS)]), np.array([v.c * (1 - WEIGHTS)])
    if mirrored:
        far = (m1 + top2) * (1 - SMALL)
        part = (room * upper(hit, low, low2, y) + upper(c, m0, far, y)) * np.exp(min(loss, 0.0)) * (1 + SMALL)
    elif loss >= 0.0:
        part = room * upper(hit, low, None, y) + upper(c, m0, m1, y)
    else:
        part, gap = room * upper(hit, more, None, y, -1.0), -np.expm1(loss)
        if step.adjacency == "add-remove":
            surplus = max(gap * v.tau * (1 - WEIGHTS) - v.tq * (1 + WEIGHTS), 0.0)
            part += upper((c_less + surplus) * (1 - SMALL), m0_more, m1_more, y, -1.0)
        else:
            part += upper(m0_more, (gap * v.swap * (1 - WEIGHTS) + c_less) * (1 - SMALL), None, y)
    return float(part[0]) * (1 + SMALL)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_swap_bound_has_every_weight_on_its_safe_side(adjacency: str) -> None:
    step = a_step(adjacency)
    for loss, found in zip(LOSS.tolist(), lending.swap_excess(step, LOSS), strict=True):
        needed = swap(step, loss)
        assert needed * (1 - 1e-9) <= found <= needed * (1 + 4 * SMALL)


def lent(step: Step, loss: float, share: np.ndarray, tilt: float) -> float:
    """Theorem 4 with its weights on their safe sides, from the cover and the top."""
    y, mirrored, above = 1.0 / step.sigma, step.adjacency == "replace-one", loss >= 0.0
    at = np.array([loss if not mirrored else abs(loss)])
    (low, more), (low2, _), (m0, m0_more), (m1, m1_more), (top2, _) = table(step, at)
    level, share = step.levels, share[:, None]
    second = low2 if mirrored else None
    above = above or mirrored
    c = np.array([step.weights.c * (1 + WEIGHTS if above else 1 - WEIGHTS)])
    mass, theta = lending.cover(step, m0, m1, share * low * level * (1 - WEIGHTS), np.array([tilt]))
    base, rise = lending.top(step, c, mass, top2 if mirrored else None, theta)
    hit = np.full((step.lenders, 1), step.p)
    if above:
        own, kept, sign = low, (1 - share) * low * (1 - SMALL), 1.0
        result = base + rise
    else:
        own, kept, sign = more, (1 - share) * more * (1 + SMALL), -1.0
        given = (share * more * level).sum() * (1 + 2 * WEIGHTS) + m0_more + m1_more
        result = rise + np.maximum(given * (1 + SMALL) - np.minimum(mass, c), 0.0) + SMALL * given
    others = None if second is None else np.broadcast_to(second, kept.shape)
    result = result + (level * upper(hit, kept, others, y, sign)).sum() * (1 + 2 * WEIGHTS)
    result = result + step.far * upper(hit[:1, 0], own, second, y, sign)
    mirror = np.exp(min(loss, 0.0)) * (1 + SMALL) if mirrored else 1.0
    return float(result[0]) * float(mirror) * (1 + 16 * WEIGHTS)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("most", [0.05, 0.6, 1.0])
def test_the_lending_bound_has_every_weight_on_its_safe_side(adjacency: str, most: float) -> None:
    step, rng = a_step(adjacency), np.random.default_rng(3)
    share, tilt = most * rng.uniform(size=(LOSS.size, 6)), rng.normal(size=LOSS.size)
    found = lending.lent_excess(step, LOSS, share, tilt)
    for i in np.flatnonzero(np.isfinite(found)):
        assert found[i] == pytest.approx(lent(step, float(LOSS[i]), share[i], float(tilt[i])), rel=1e-10)
    assert np.isfinite(found).sum() == {"add-remove": 7, "zero-out": 5, "replace-one": 9}[adjacency]


def covered(step: Step, m0: float, m1: float, lent: np.ndarray, tilt: float, longest: bool) -> tuple[float, float]:
    """M and theta: exponentials are off by four units of their argument, sums by one of each term, logarithms by two.

    The arguments of the exponentials count as they are, or all as the longest.
    """
    k, i, terms = np.arange(1.0, lent.size + 1), 0.5 / step.sigma**2, lent.size + 8
    at = np.full_like(k, k[-1]) if longest else k
    e = lent * np.exp(-k * tilt - k * k * i) * (1 - 4 * UNIT * (at * abs(tilt) + at * at * i + 8))
    up = float(k @ e)
    total = up + m0 + e.sum()
    theta, logs = up / total, (np.log(m1), i, tilt, np.log(up))
    rest = logs[0] - i + tilt - logs[3]
    off = 2 * terms * (1 + theta * (1 + abs(rest))) + 4 * theta * sum(abs(one) for one in logs)
    return total * np.exp(theta * rest) * (1 - 2 * UNIT * off), theta * (1 + 2 * terms * UNIT)


@pytest.mark.parametrize("sigma", [0.4, 3.0])
def test_a_cover_is_rounded_down_and_its_share_up(monkeypatch: pytest.MonkeyPatch, sigma: float) -> None:
    monkeypatch.setattr(lending, "UNIT", UNIT)
    rng, step = np.random.default_rng(8), replace(cases.make(400, 0.1, 41, 0.9, "zero-out", 6), sigma=sigma)
    m0, m1, lent = 10 ** rng.uniform(-4, 0, 40), 10 ** rng.uniform(-4, 0, 40), 10 ** rng.uniform(-4, 0, (6, 40))
    tilt, used = 2 * rng.normal(size=40), 0
    for i, found in enumerate(zip(*lending.cover(step, m0, m1, lent, tilt), strict=True)):
        ways = [covered(step, float(m0[i]), float(m1[i]), lent[:, i], float(tilt[i]), one) for one in (False, True)]
        if ways[0][0] <= m0[i] * (1 + 1e-3):
            continue
        used += 1
        for one, (low, high) in zip(found, (sorted(pair) for pair in zip(*ways, strict=True)), strict=True):
            assert low * (1 - 1e-11) <= one <= high * (1 + 1e-11)
    assert used > 10
    some = np.array([0.3]), np.array([1e-9]), np.full((6, 1), 1e-3), np.zeros(1)
    assert [float(one[0]) for one in lending.cover(step, *some)] == [
        0.3,
        0.0,
    ]  # where nothing is gained nothing is lent
    beyond = lending.cover(step, np.zeros(1), np.ones(1), np.ones((6, 1)), np.array([740.0 - 0.5 / sigma**2]))
    assert [float(one[0]) for one in beyond] == [0.0, 0.0]  # nor where it is no float


def tangent(step: Step, c: float, mass: float, top2: float | None, theta: float, r: float) -> float:
    """(V_r - V_0) e^{psi - slope (r - 1)}: the slope up where it raises the bound and down where it lowers it."""
    (m, kappa), few, unit = step.draws, vars(lending)["FEW"], vars(lending)["UNIT"]
    one, second, y = np.array([c]), None if top2 is None else np.array([top2]), np.sqrt(r) / step.sigma
    v = integral(one, np.array([mass]), second, y, -1.0 if second is None and mass < c else 1.0)
    rise, error, z = float(v.value[0]), float(v.error[0]), float(v.x[0]) - y
    if second is not None:
        start = integral(np.array([max(c - mass, 0.0)]), np.zeros(1), second, y)
        rise, error = rise - float(start.value[0]), error + 2 * float(start.error[0])
    slope = mass * np.exp(-z * z / 2) / np.sqrt(2 * np.pi) / (2 * step.sigma * np.sqrt(r))
    loose = 2 * (abs(z) + 1) * (float(v.off[0]) + 4 * unit * (abs(z) + y + 8))
    steep, flat = slope * (1 + loose) / (rise - error), slope * (1 - loose) / (rise + error)
    reach = steep * (kappa * theta) ** 2 * (1 + few)
    left = 1 - 2 * reach / m * (1 + few)
    psi = (4 * reach / left + 2 * steep * reach / left**2) / m * (1 + few) - flat * (r - 1) * (1 - few)
    return float((rise + error) * np.exp(psi) * (1 + 4 * unit * (abs(psi) + 8)))


def sure(step: Step, c: float, mass: float, top2: float | None, theta: float) -> float:
    """What the distances alone say."""
    (m, kappa), second = step.draws, None if top2 is None else np.array([top2])
    rise = float(lending.top(step, np.array([c]), np.array([mass]), second, np.zeros(1))[1][0])
    away = kappa * theta / np.sqrt(m)
    return rise + mass * (away + away**2) / (2 * step.sigma * np.sqrt(2 * np.pi)) * (1 + vars(lending)["FEW"])


@pytest.mark.parametrize(
    ("c", "mass", "theta", "sigma"), [(0.1, 0.3, 0.5, 0.8), (0.02, 0.03, 0.5, 0.9), (0.1, 0.4, 0.2, 0.5)]
)
@pytest.mark.parametrize("unit", [UNIT, 2e-3])  # with the second a slope has no digits, and says nothing
def test_the_tangent_at_one_is_rounded_up(
    monkeypatch: pytest.MonkeyPatch, c: float, mass: float, theta: float, sigma: float, unit: float
) -> None:
    monkeypatch.setattr(lending, "UNIT", unit)
    step, top2 = replace(cases.make(400, 0.1, 41, 0.9, "replace-one", 6), sigma=sigma), 2.0 * c
    base, found = lending.top(step, np.array([c]), np.array([mass]), np.array([top2]), np.array([theta]))
    at_one, distances = tangent(step, c, mass, top2, theta, 1.0), sure(step, c, mass, top2, theta)
    assert at_one < distances
    assert found[0] == pytest.approx(at_one if unit == UNIT else distances, rel=1e-11)
    least = np.array([max(c - mass, 0.0) * (1 + SMALL)])
    assert base[0] == pytest.approx(
        float(upper(least, np.zeros(1), np.array([top2]), 1 / sigma)[0]), rel=1e-12, abs=1e-299
    )


@pytest.mark.parametrize(("c", "mass", "theta", "sigma"), [(0.1, 0.02, 0.3, 1.0), (0.1, 0.3, 0.5, 0.8), (0.1, 0.2, 0.9, 0.5), (0.1, 0.01, 0.9, 0.4)])  # fmt: skip
def test_tangents_further_out_are_rounded_up(
    monkeypatch: pytest.MonkeyPatch, c: float, mass: float, theta: float, sigma: float
) -> None:
    """Whichever of them is taken, none is below the best one with all its margins."""
    monkeypatch.setattr(lending, "UNIT", 1e-4)
    monkeypatch.setattr(lending, "FEW", 1e-2)
    step = replace(cases.make(400, 0.1, 41, 0.9, "zero-out", 6), sigma=sigma)
    base, found = lending.top(step, np.array([c]), np.array([mass]), None, np.array([theta]))
    best = min(tangent(step, c, mass, None, theta, r) for r in np.linspace(1.0, 2.5, 151).tolist())
    at_one, distances = tangent(step, c, mass, None, theta, 1.0), sure(step, c, mass, None, theta)
    assert at_one > best * (1 + 1e-3)
    assert best * (1 - 1e-5) <= found[0] <= min(at_one, distances)
    assert base[0] == pytest.approx(max(c - mass, 0.0) * (1 + 1e-2), rel=1e-12)
