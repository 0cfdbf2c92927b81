"""What neighbours lend: shares and nodes of one step serve another, and stay valid whatever they are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from filet import CappedPoisson
from filet.accounting.proving.lending import Step, part, stacked
from filet.accounting.proving.theorems import lending_step
from filet.accounting.proving.view import View
from filet.accounting.searching import lending_crowds
from filet.accounting.searching.lending_crowds import Model, model, one_way_model
from filet.accounting.searching.lending_looks import Laws, Query, laws, look
from filet.accounting.searching.lending_shares import lenders
from filet.accounting.terms import Adjacency

QUERY = Query(300, math.log(1e-5))


def step(sigma: float = 1.0, rate: float = 256.0, adjacency: Adjacency = Adjacency.ADD_REMOVE) -> Step:
    made = lending_step(CappedPoisson(60_000, rate / 60_000, 256), sigma, adjacency, lenders(256, sigma))
    assert made is not None
    return made


def made(one: Step) -> Model:
    seen = look(one, QUERY)
    assert seen is not None
    return model(seen, QUERY)


def mgf(found: Laws, tilt: float = 4.0) -> float:
    return sum(
        float(View([(law, 300)], 0.0, True).whole.log_mgf(np.array([tilt]))[0])
        for law in (found.forward, found.reverse)
    )


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 256.0), (0.93, 256.0), (1.1, 256.0), (1.0, 250.0), (1.05, 262.0)])
def test_a_neighbours_model_is_nearly_as_good_as_ones_own(sigma: float, rate: float, adjacency: Adjacency) -> None:
    other = step(sigma, rate, adjacency)
    (found,) = made(step(adjacency=adjacency)).laws([other], QUERY)
    own = laws(other, QUERY)
    assert found is not None
    assert own is not None
    assert mgf(found) <= mgf(own) * 1.02 + 1e-3


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_steps_side_by_side_have_the_parts_they_have_alone(adjacency: Adjacency) -> None:
    steps = [step(0.9, 256.0, adjacency), step(1.2, 240.0, adjacency), step(1.0, 270.0, adjacency)]
    one = made(step(adjacency=adjacency))
    nodes = [one.loss[::k] for k in (1, 2, 3)]
    few = min(each.lenders for each in steps)
    stack, loss = stacked(steps, [at.size for at in nodes], few), np.concatenate(nodes)
    shares, tilts = np.full((loss.size, few), 0.3), np.full(loss.size, -0.5)
    together = np.split(part(stack, loss, shares, tilts), np.cumsum([at.size for at in nodes])[:-1])
    for each, at, found in zip(steps, nodes, together, strict=True):
        alone = Step(each.n, each.p, each.cap, each.sigma, adjacency, each.weights, few)
        assert np.allclose(found, part(alone, at, shares[: at.size], tilts[: at.size]), rtol=1e-12, atol=0.0)


def test_nodes_move_with_the_rate_and_stay_in_order() -> None:
    one = made(step())
    assert one._nodes(step(1.1)) is one.loss
    for rate in (150.0, 200.0, 300.0, 400.0):
        moved = one._nodes(step(1.0, rate))
        assert (np.diff(moved) > 0.0).all()
        assert np.isclose(np.expm1(moved[-1]) / np.expm1(one.loss[-1]), rate / 256.0)


def test_an_unresolved_tail_is_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(step())
    short = Model(one.shares, one.loss[one.loss < 1.0])
    assert short.laws([step()], QUERY) == [None]


def test_many_steps_come_back_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    one, steps = made(step()), [step(0.9 + 0.01 * i) for i in range(23)]
    whole = one.laws(steps, QUERY)
    monkeypatch.setattr(lending_crowds, "_AT_ONCE", 5_000)
    for left, right in zip(whole, one.laws(steps, QUERY), strict=True):
        assert left is not None
        assert right is not None
        assert np.allclose(left.forward.loss, right.forward.loss)
        assert np.allclose(left.forward.log_mass, right.forward.log_mass, atol=1e-9)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 256.0), (0.9, 256.0), (1.1, 250.0)])
def test_one_way_a_law_has_more_nodes_and_is_as_good(sigma: float, rate: float, adjacency: Adjacency) -> None:
    seen, other = look(step(adjacency=adjacency), QUERY), step(sigma, rate, adjacency)
    assert seen is not None
    found = one_way_model(seen, QUERY, 300).law(other, QUERY)
    own = laws(other, QUERY)
    assert own is not None
    tilts = np.array([1.0, 4.0])
    one, best = (View([(law, 300)], 0.0, True).whole.log_mgf(tilts) for law in (found, own.forward))
    assert one == pytest.approx(best, rel=3e-3)
