"""The loop: true and narrow brackets for one question or many, whatever decides the answer."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.accounting.laws import KINDS, Answers, Counted, law_of, pair_of, random_laws, rows, usual_law

from filet import Adjacency, Analysis, Bounds, CappedPoisson, Phase, account
from filet.accounting.proving.closed_form import gaussian_log_delta
from filet.accounting.proving.pair import Pair, PhaseLaw, phase_law
from filet.accounting.proving.pmf import LossPMF
from filet.accounting.proving.theorems import loss_law
from filet.accounting.search import solve
from filet.accounting.search.effort import TOLERANCE
from filet.accounting.search.grid import uniform_grid
from filet.accounting.terms import Brackets

COMPOSED = rows("composed.csv")
DELTAS = np.geomspace(1e-10, 1e-2, 9)


def overlap(one: Brackets, other: Brackets) -> bool:
    return bool((np.maximum(one.lower, other.lower) <= np.minimum(one.upper, other.upper) * (1 + 1e-9)).all())


# --- truth and width --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(5))
def test_arrays_of_questions_contain_the_references(part: int) -> None:
    """Each among others of all sizes; those of several steps, as one step has a closed form."""
    for row in [row for row in COMPOSED if int(row["steps"]) > 1][part::40]:
        epsilon, delta = float(row["epsilon"]), float(row["delta"])
        slack = epsilon * 10.0 ** -float(row["digits"]) + 1e-15
        pair = pair_of((law_of(row), int(row["steps"])))
        found = solve.epsilons(pair, np.sort(np.append(delta, DELTAS)))
        place = int(np.searchsorted(np.sort(np.append(delta, DELTAS)), delta))
        assert found.lower[place] - slack <= epsilon <= found.upper[place] + slack, row
        assert not TOLERANCE.wide(*found).any(), row
        assert (np.diff(found.lower) <= 1e-3 * found.upper[1:] + 1e-4).all()
        deltas = solve.deltas(pair, epsilon * np.array([0.3, 1.0, 1.7]))
        assert deltas.lower[1] - slack - 1e-9 * delta <= delta <= deltas.upper[1] + slack + 1e-9 * delta, row


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_proven_of_discrete_losses_from_below_is_below(kind: str) -> None:
    """`epsilon_below` for certificates, against the sum over all outcomes."""
    told = 0
    for seed in range(4):
        rng = np.random.default_rng([seed, KINDS.index(kind)])
        laws = random_laws(rng, kind)
        exact = Counted(laws)
        pmf = LossPMF(laws, 0.0, False)
        for epsilon in exact.queries(rng):
            delta = float(exact.delta(epsilon))
            if not 1e-200 < delta < 0.9:
                continue
            try:
                lower = solve.epsilon_below(pmf, delta)
            except ArithmeticError:
                continue
            told += 1
            assert float(exact.delta(lower)) >= delta * (1 - 1e-9) or lower == 0.0
    assert told > 0


def test_guesses_of_an_epsilon_are_near() -> None:
    law = usual_law()
    pmf = pair_of((law, 500)).pmf([uniform_grid(law, 10.0, 0.1)], above=True, negligible=0.0)
    assert solve.guess_epsilon(pmf, math.log(1e-6)) == pytest.approx(Answers(law, 500).epsilon(1e-6).upper, rel=0.2)


@pytest.mark.parametrize("gaussian", [0.01, 1.0, 9.0])
def test_a_release_beside_losses_of_nothing_is_a_gaussian_mechanism(gaussian: float) -> None:
    """Noise of a thousand and few steps: what is left is the release."""
    pair = pair_of((usual_law(1e3), 2), gaussian=Bounds(gaussian, gaussian))
    for delta, lower, upper in zip(DELTAS, *solve.epsilons(pair, DELTAS), strict=True):
        assert upper - lower <= max(1e-3 * upper, 1e-4)
        assert gaussian_log_delta(math.sqrt(gaussian), upper * (1 + 1e-3) + 1e-4) <= math.log(delta)
        assert gaussian_log_delta(math.sqrt(gaussian), max(lower * (1 - 1e-3) - 1e-4, 0.0)) >= math.log(delta)


def test_equal_steps_in_phases_cost_what_they_cost_in_one() -> None:
    law = usual_law()
    whole = solve.epsilons(pair_of((law, 120)), DELTAS)
    for phases in ([(law, 50), (law, 70)], [(law, 1)] * 20 + [(law, 100)], [(law, 2)] * 60):
        cut = solve.epsilons(pair_of(*phases), DELTAS)
        assert overlap(cut, whole)
        assert not TOLERANCE.wide(*cut).any()


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_both_orders_are_answered_by_the_larger(adjacency: Adjacency) -> None:
    one = phase_law(Phase(CappedPoisson(1_000, 0.05, 60), 1.0, 30, Analysis.SWAP), adjacency, 1)
    pair, deltas = Pair((one,)), np.array([1e-9, 1e-5, 1e-2])
    each = [solve.epsilons(Pair(order.phases, symmetric=True), deltas) for order in (pair, pair.reversed())]
    larger = Brackets(np.maximum(each[0].lower, each[1].lower), np.maximum(each[0].upper, each[1].upper))
    assert overlap(solve.epsilons(pair, deltas), larger)
    assert overlap(solve.epsilons(pair.reversed(), deltas), larger)
    at = larger.upper[::-1]
    apart = [solve.deltas(order, at, both=False) for order in (pair, pair.reversed())]
    both = Brackets(np.maximum(apart[0].lower, apart[1].lower), np.maximum(apart[0].upper, apart[1].upper))
    assert overlap(solve.deltas(pair, at), both)


# --- unpleasant runs --------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[CappedPoisson, float, int, float]] = {
    "one big jump decides": (CappedPoisson(10**9, 1e-6, 1_100), 0.3, 1_000, 1e-4),
    "a kink between jump and bulk": (CappedPoisson(10**7, 1e-4, 1_100), 0.4, 3_000, 1e-5),
    "rare losses, many steps": (CappedPoisson(10**9, 1e-7, 200), 0.5, 10**6, 1e-9),
    "nearly nothing": (CappedPoisson(10**9, 1e-9, 100), 5.0, 10, 1e-6),
    "near zero": (CappedPoisson(10**6, 1e-4, 130), 20.0, 100, 1e-6),
    "very many steps": (CappedPoisson(10**6, 1e-3, 1_100), 4.0, 10**8, 1e-6),
    "far out": (CappedPoisson(60_000, 256 / 60_000, 256), 1.0, 1_000, 1e-60),
    "very far out": (CappedPoisson(60_000, 256 / 60_000, 256), 1.0, 1_000, 1e-200),
    "little noise": (CappedPoisson(1_000, 0.1, 120), 0.1, 20, 1e-5),
    "half of all": (CappedPoisson(1_000, 0.5, 500), 1.0, 10, 1e-5),
    "large delta": (CappedPoisson(1_000, 0.1, 120), 1.0, 10, 0.3),
    "two steps": (CappedPoisson(1_000, 0.01, 12), 1.0, 2, 1e-12),
}


@pytest.mark.parametrize("overflow", ["truncate", "reject"])
@pytest.mark.parametrize("name", CASES)
def test_unpleasant_runs_are_answered_within_the_promised_width(name: str, overflow: str) -> None:
    scheme, sigma, steps, delta = CASES[name]
    scheme = CappedPoisson(scheme.dataset_size, scheme.sampling_probability, scheme.max_batch_size, overflow)  # type: ignore[arg-type]
    analysis = Analysis.SWAP if overflow == "truncate" else Analysis.REFINED
    for adjacency in Adjacency:
        one = Pair((phase_law(Phase(scheme, sigma, steps, analysis), adjacency, 1),))
        found = solve.epsilons(one, np.array([delta]))
        assert not TOLERANCE.wide(*found).any(), (adjacency, found)
        if found.upper[0] > 1e-3:
            back = solve.deltas(one, np.array([found.lower[0], found.upper[0]]))
            assert back.lower[1] <= delta * (1 + 1e-9)
            assert back.upper[0] >= delta * (1 - 1e-9)


@pytest.mark.parametrize("sigma", [0.02, 0.05])
def test_bounded_losses_end_in_a_cliff(sigma: float) -> None:
    """Reversed, hardly any noise: no loss is above -log(1 - p), and below that delta falls as from a cliff."""
    p, steps = 0.3, 7
    law = loss_law(CappedPoisson(100, p, 100), sigma, Adjacency.ADD_REMOVE, Analysis.REFINED).reversed()
    most = -steps * math.log1p(-p)
    found = solve.epsilons(pair_of((law, steps)), np.array([1e-12, 1e-6, 1e-2]))
    assert (found.upper <= most * (1 + 1e-6)).all()
    assert not TOLERANCE.wide(*found).any()
    deltas = solve.deltas(pair_of((law, steps)), np.array([0.5 * most, 1.1 * most]))
    assert deltas.upper[1] < 1e-9 < deltas.lower[0]


def test_deltas_of_epsilons_from_zero_to_far_out_are_true_and_fall() -> None:
    law = usual_law()
    at = np.concatenate([[0.0], np.geomspace(1e-6, 60.0, 12)])
    found = solve.deltas(pair_of((law, 100)), at)
    assert (found.lower <= found.upper).all()
    assert (np.diff(found.upper) <= 1e-3 * found.upper[:-1]).all()
    assert (found.upper - found.lower <= 2e-3 * found.upper).all()


# --- an answer depends on its question alone --------------------------------------------------------------------------


def lending_pair(adjacency: Adjacency = Adjacency.ADD_REMOVE) -> Pair:
    return Pair((phase_law(Phase(CappedPoisson(1_000, 0.05, 50), 1.0, 20), adjacency, 6),))


@pytest.mark.parametrize("pair", [pair_of((usual_law(), 200)), lending_pair()], ids=["plain", "lending"])
def test_the_same_question_has_the_same_digits_whenever_and_wherever_it_is_asked(pair: Pair) -> None:
    def ask(which: int) -> Any:
        if which % 2:
            return [one.tolist() for one in solve.epsilons(pair, DELTAS[which % 3 : 6])]
        return [one.tolist() for one in solve.deltas(pair, np.array([0.1, 0.4 + which % 3, 4.0]))]

    alone = [ask(which) for which in range(6)]
    assert [ask(which) for which in reversed(range(6))] == alone[::-1]
    with ThreadPoolExecutor(3) as pool, np.errstate(all="ignore"):
        assert list(pool.map(lambda which: _quiet(ask, which), range(6))) == alone


def _quiet(ask: Any, which: int) -> Any:
    with np.errstate(all="ignore"):
        return ask(which)


@pytest.mark.parametrize("pair", [pair_of((usual_law(), 200)), lending_pair()], ids=["plain", "lending"])
def test_arrays_are_within_the_promise_of_single_questions(pair: Pair) -> None:
    many = solve.epsilons(pair, DELTAS)
    for i in (0, 4, 8):
        alone = solve.epsilons(pair, DELTAS[i : i + 1])
        assert many.upper[i] == pytest.approx(alone.upper[0], rel=1e-3, abs=1e-4)


def test_deltas_over_many_decades_are_answered_in_groups() -> None:
    deltas = np.geomspace(1e-60, 1e-2, 30)
    found = solve.epsilons(pair_of((usual_law(), 200)), deltas)
    assert not TOLERANCE.wide(*found).any()
    assert (np.diff(found.upper) <= 0.0).all()


# --- lending ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_lending_is_used_where_it_helps_and_is_never_above_the_swap(adjacency: Adjacency) -> None:
    pair = lending_pair(adjacency)
    swap = Pair(tuple(PhaseLaw(one.law, one.steps) for one in pair.phases))
    lent, plain = solve.epsilons(pair, DELTAS), solve.epsilons(swap, DELTAS)
    assert (lent.upper <= plain.upper * (1 + 1e-4)).all()
    assert (lent.upper[:4] < 0.97 * plain.lower[:4]).all()
    assert solve.lending_used(pair, 1e-6) != [None]
    seldom = phase_law(Phase(CappedPoisson(1_000, 0.05, 95), 1.0, 20), adjacency, 6)
    assert solve.lending_used(Pair((seldom,)), 1e-6) == [None]


def test_a_phase_that_lends_beside_one_that_cannot() -> None:
    lends = lending_pair().phases[0]
    plain = PhaseLaw(loss_law(CappedPoisson(1_000, 0.02, 1_000), 1.0, Adjacency.ADD_REMOVE, Analysis.REFINED), 30)
    both = Pair((lends, plain))
    used = solve.lending_used(both, 1e-6)
    assert used[0] is not None
    assert used[1] is None
    found = solve.epsilons(both, np.array([1e-6]))
    alone = solve.epsilons(Pair((lends,)), np.array([1e-6]))
    swap = solve.epsilons(Pair((PhaseLaw(lends.law, lends.steps), plain)), np.array([1e-6]))
    assert alone.lower[0] < found.upper[0] < swap.upper[0]


@pytest.mark.parametrize(
    ("n", "p", "cap", "sigma", "steps", "delta", "adjacency"),
    [
        (54_879_719, 1.18e-6, 67, 52.96, 46_199, 2.17e-51, "zero-out"),
        (1_660, 1 / 1_660, 2, 0.329, 4, 2.68e-54, "zero-out"),
        (108_077_447, 1.384e-3, 150_725, 0.2269, 5, 9.66e-54, "zero-out"),
        (100_000, 0.01, 1_062, 3.0, 2, 1e-30, "add-remove"),
    ],
)
def test_bounded_losses_of_the_other_order_and_sums_below_a_cap_do_not_prevent_an_answer(
    n: int, p: float, cap: int, sigma: float, steps: int, delta: float, adjacency: str
) -> None:
    """Nodes of bounded losses end where floats are too far apart; sums below a cap may never reach epsilon."""
    run = account(CappedPoisson(n, p, cap), noise_multiplier=sigma, steps=steps, adjacency=adjacency)
    bounds = run.epsilon_bounds(delta)
    assert not TOLERANCE.wide(bounds.lower, bounds.upper)
