"""The checker's tables, against integrals, the engine's own profiles, and enumerated data sets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from scipy.special import ndtr
from scipy.stats import binom
from tests.checking.checking_lending import rows

from filet.accounting.certificate import lending_rows
from filet.accounting.proving.lending import lent_part
from filet.accounting.proving.theorems import lending_step, loss_law
from filet.accounting.searching.crossings import crossings
from filet.accounting.searching.lending_shares import choose, lenders
from filet.accounting.terms import Adjacency, Analysis
from filet.checking.theorems import Step, kernel, point, tail
from filet.scheme import CappedPoisson

ADJACENCIES = ("add-remove", "zero-out", "replace-one")
KINDS = (("truncate", "swap"), ("truncate", "note"), ("reject", "refined"), ("truncate", "union"))


@pytest.fixture(autouse=True)
def _bits():
    with ctx.workprec(200):
        yield


def exact(value: float) -> fmpq:
    return fmpq(*float(value).as_integer_ratio())


def step(n: int, p: float, cap: int, sigma: float, overflow: str, adjacency: str, analysis: str, lend=None) -> Step:
    return Step(n, exact(p), cap, exact(sigma) ** 2, overflow, adjacency, analysis, lend or {})


# --- binomials and the kernel ---


@pytest.mark.parametrize(
    ("n", "p"), [(60_000, 256 / 60_000), (45_000_000, 65_536 / 45_000_000), (50, 0.9), (1_000, 0.5), (7, 1.0)]
)
def test_binomials_agree_with_scipy(n: int, p: float) -> None:
    mean, spread = n * p, math.sqrt(n * p * (1 - p)) + 1
    for z in (-6, -1, 0, 1, 6):
        j = min(max(round(mean + z * spread), 0), n)
        assert float(point(j, n, exact(p))) == pytest.approx(binom.pmf(j, n, p), rel=1e-9)
        assert float(tail(j, n, exact(p))) == pytest.approx(binom.sf(j - 1, n, p), rel=1e-9)


@pytest.mark.parametrize(
    ("n", "p", "j"),
    [(10**15, 0.3, 3 * 10**14), (10**15, 1 - 1e-12, 10**15 - 900), (10**15, 1e-12, 1050), (10**6, 0.5, 10), (10**9, 0.5, 5 * 10**8)],
)  # fmt: skip
def test_binomials_keep_their_digits_far_out(n: int, p: float, j: int) -> None:
    """Neighbouring tails differ by the point between them, in 150 bits and more."""
    difference = tail(j, n, exact(p)) - tail(j + 1, n, exact(p)) - point(j, n, exact(p))
    assert difference.contains(0)
    assert difference.rad() < arb(2) ** -150


@pytest.mark.parametrize(
    "parts", [((0.3, 1),), ((0.2, 1), (0.1, 2)), ((0.2, 2), (0.1, 3)), ((0.4, 1), (0.01, 3)), ((0.1, 2), (0.3, 4))]
)
@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_the_kernel_is_the_integral(parts: tuple[tuple[float, int], ...], sigma: float) -> None:
    c = 0.25
    x = np.linspace(-12, 12, 200_001) * max(sigma, 1)
    cells = [np.diff(ndtr((x - d) / sigma)) for d in range(5)]
    value = np.maximum(c * cells[0] - sum(m * cells[d] for m, d in parts), 0).sum()  # a set of cells, so from below
    found = kernel(arb(exact(sigma)), arb(c), *((arb(m), d) for m, d in parts))
    assert found.rad() < arb(2) ** -120
    assert value <= float(found) + 1e-13
    assert float(found) == pytest.approx(value, abs=1e-7)


# --- one step ---


@pytest.mark.parametrize(("overflow", "analysis"), KINDS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    ("n", "p", "cap", "sigma"),
    [(60_000, 256 / 60_000, 300, 1.0), (60_000, 256 / 60_000, 256, 1.0), (50_000, 4096 / 50_000, 4200, 3.0), (9, 0.4, 3, 0.7)],
)  # fmt: skip
def test_profiles_agree_with_the_engine(overflow: str, analysis: str, adjacency: str, n: int, p: float, cap: int, sigma: float) -> None:  # fmt: skip
    mine = step(n, p, cap, sigma, overflow, adjacency, analysis)
    law = loss_law(CappedPoisson(n, p, cap, overflow=overflow), sigma, Adjacency(adjacency), Analysis(analysis))  # type: ignore[arg-type]
    losses = np.array([-0.5, -0.05, -0.003, -1e-3, 0.0, 1e-3, 0.02, 0.3, 1.0, 2.5])
    theirs, _ = law.profile(losses, crossings)
    for loss, value in zip(losses, theirs, strict=True):
        assert float(mine.profile(arb(loss), 0)) == pytest.approx(value, rel=1e-9, abs=1e-16)


def mixtures(n: int, p: float, cap: int, overflow: str, adjacency: str, data: list[float]) -> list[dict[float, float]]:
    """The laws of the sum (mean -> weight) on [x_1, others...] and its neighbour, by drawing every batch; last is x_1'."""
    *records, other = data
    sets = [records, {"add-remove": records[1:], "zero-out": [0.0, *records[1:]]}.get(adjacency, [other, *records[1:]])]
    laws_ = []
    for values in sets:
        law: dict[float, float] = {}
        for size in range(len(values) + 1):
            chance = p**size * (1 - p) ** (len(values) - size)
            for drawn in itertools.combinations(values, size):
                if size <= cap:
                    law[sum(drawn)] = law.get(sum(drawn), 0.0) + chance
                elif overflow == "truncate":
                    for kept in itertools.combinations(drawn, cap):
                        law[sum(kept)] = law.get(sum(kept), 0.0) + chance / math.comb(size, cap)
        total = sum(law.values())
        laws_.append({mean: weight / total for mean, weight in law.items()})
    return laws_


def divergence(P: dict[float, float], Q: dict[float, float], sigma: float, a: float) -> float:
    """A lower bound of H_a(P||Q): what the cells of a grid with P > aQ hold."""
    x = np.concatenate([[-np.inf], np.linspace(-8, 8, 4001), [np.inf]]) * max(1.0, sigma)
    cells = [sum(w * np.diff(ndtr((x - mean) / sigma)) for mean, w in law.items()) for law in (P, Q)]
    return float(np.maximum(cells[0] - a * cells[1], 0).sum())


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("overflow", "analysis"), [*KINDS[:3], ("truncate", "refined")])
def test_no_small_data_set_exceeds_a_profile(overflow: str, analysis: str, adjacency: str) -> None:
    """Also with lending, whatever shares and tilts the witness names."""
    rng = np.random.default_rng(5)
    for _ in range(12):
        n, p, sigma = int(rng.integers(3, 6)), float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.4, 2))
        cap = int(rng.integers(1, n))
        lend = {}
        if analysis == "refined" and overflow == "truncate":
            for k in range(40):
                shares = [fmpq(int(v), 4096) for v in rng.integers(0, 4097, cap - 1)]
                lend[k] = shares, fmpq(int(rng.integers(-3000, 1000)), 1000)
        one = step(n, p, cap, sigma, overflow, adjacency, analysis, lend)
        starts = [[1.0] * (n + 1), [1.0, *[-1.0] * n], [-1.0, *[1.0] * n], [1.0, *[0.0] * (n - 1), -1.0]]
        for data in [*starts, *rng.uniform(-1, 1, (4, n + 1)).round(6).tolist()]:
            P, Q = mixtures(n, p, cap, overflow, adjacency, data)
            for k in (-20, -3, 0, 1, 4, 12, 30):
                a, bound = math.exp(0.05 * k), float(one.profile(arb(k) / 20, k).upper())
                assert divergence(P, Q, sigma, a) <= bound + 1e-12, (n, p, cap, sigma, data, k)
                b = 1 / a  # H_b(Q||P) = 1 - b + b H_a(P||Q)
                assert divergence(Q, P, sigma, b) <= 1 - b + b * bound + 1e-12, (n, p, cap, sigma, data, k)


def test_lending_is_used_and_helps() -> None:
    """With the shares of the fixed point the bound is well below the exchange argument's."""
    phase = {"dataset_size": 60_000, "cycle_length": 1, "max_batch_size": 256, "sampling_probability": str(256 / 60_000),
             "noise_multiplier": "1"}  # fmt: skip
    (row,) = rows(phase, "zero-out", [1000], 1e-3)
    assert row is not None
    lend = {1000: ([fmpq(v, 4096) for v in row[1:]], fmpq(row[0], 2**20))}
    with_, without = (step(60_000, 256 / 60_000, 256, 1.0, "truncate", "zero-out", "refined", x) for x in (lend, None))
    assert float(with_.profile(arb(1), 1000)) < 0.3 * float(without.profile(arb(1), 1000))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("n", "p", "cap", "sigma"), [(200, 0.1, 22, 1.0), (1_000, 0.05, 52, 1.0)])
def test_lending_is_as_tight_as_the_engines(n: int, p: float, cap: int, sigma: float, adjacency: str) -> None:
    """At small caps it matters where the tangent of the theorem is taken."""
    theirs = lending_step(CappedPoisson(n, p, cap), sigma, Adjacency(adjacency), lenders(cap, sigma))
    assert theirs is not None
    nodes, shares = [50, 200, 500, 1_000, 1_800], choose(theirs)
    losses = np.array(nodes) / 1_000
    values = lent_part(theirs, losses, *shares.at(losses))
    for k, row, value in zip(nodes, lending_rows(shares, nodes, 1e-3), values, strict=True):
        assert row is not None
        lend = {k: ([fmpq(v, 4096) for v in row[1:]], fmpq(row[0], 2**20))}
        mine = step(n, p, cap, sigma, "truncate", adjacency, "refined").lent((arb(k) / 1_000).exp(), *lend[k])
        assert 0.97 * value < float(mine) < 1.002 * value, k
