"""Checks of members catch shuffling, biased cuts, favourites, repetitions and wrong groups."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from tests.sampling.laws import failed, poisson_draws

import filet
from filet.sampling.audits import audit
from filet.sampling.member_checks import inclusion_check, overlap_check, position_checks, split_groups


def test_catches_a_shuffled_loader():
    scheme = filet.CappedPoisson(1_000, 0.05, 80)
    rng = np.random.default_rng(1)
    batches = np.concatenate([rng.permutation(1_000).reshape(20, 50) for _ in range(15)])
    report = audit(batches, scheme)
    assert {"size law", "inclusion", "overlap of steps"} <= failed(report)


def test_catches_a_shuffled_loader_whose_sizes_follow_the_law():
    scheme = filet.CappedPoisson(1_000, 0.05, 80)
    rng = np.random.default_rng(2)
    order, batches = np.empty(0, dtype=np.int64), []
    for batch in scheme.sampler(4).batches(300):
        if order.size < batch.size:
            order = rng.permutation(1_000)
        batches.append(order[: batch.size])
        order = order[batch.size :]
    report = audit(batches, scheme)
    assert {"inclusion", "overlap of steps"} <= failed(report)
    assert "size law" not in failed(report)


@pytest.mark.parametrize(
    "cut", [lambda drawn, cap: drawn[:cap], lambda drawn, cap: drawn[-cap:]], ids=["last", "first"]
)
def test_catches_a_cut_of_the_last_or_first_instead_of_random_examples(cut):
    scheme = filet.CappedPoisson(1_000, 0.05, 48)
    report = audit([cut(drawn, 48) for drawn in poisson_draws(scheme, 400)], scheme)
    assert "positions in full batches" in failed(report)
    assert "size law" not in failed(report)


def test_passes_a_random_cut_by_another_implementation():
    scheme = filet.CappedPoisson(1_000, 0.05, 48)
    rng = np.random.default_rng(3)
    assert audit([rng.permutation(drawn)[:48] for drawn in poisson_draws(scheme, 400)], scheme).passed


def test_catches_batches_that_are_used_twice():
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    twice = [batch for batch in scheme.sampler(0).batches(150) for _ in range(2)]
    assert {"overlap of steps", "inclusion", "size sequence"} <= failed(audit(twice, scheme))


def test_catches_favoured_examples():
    scheme = filet.CappedPoisson(400, 0.05, 400)
    rng = np.random.default_rng(0)
    rate = np.where(np.arange(400) % 2 == 0, 0.06, 0.04)
    batches = [np.flatnonzero(rng.random(400) < rate) for _ in range(400)]
    assert failed(audit(batches, scheme)) & {"inclusion", "overlap of steps"}


def test_catches_a_cyclic_loader_with_overlapping_groups():
    scheme = filet.CappedPoisson(300, 0.1, 20, cycle_length=3)
    plain = filet.CappedPoisson(300, 10 / 300, 20)
    assert "groups" in failed(audit(plain.sampler(0), scheme, steps=300))


@pytest.mark.parametrize(("ends", "crowded"), [((102, 201), 1), ((101, 202), 2), ((100, 200), 0)])
def test_catches_a_cyclic_loader_whose_groups_differ_in_size(ends, crowded):
    """No example is in two groups; but one group has 102 of the 300, or two have 101."""
    scheme = filet.CappedPoisson(300, 0.1, 20, cycle_length=3)
    rng = np.random.default_rng(0)
    groups = np.split(np.arange(300), ends)
    batches = [one[rng.random(one.size) < 0.1][:20] for _ in range(100) for one in groups]
    report = audit(batches, scheme)
    assert ("groups" in failed(report)) is bool(crowded)
    [check] = [check for check in report.checks if check.name == "groups"]
    assert check.detail == f"0 examples appear in two groups, {crowded} groups are too large"


def random_sets(n, sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(n, size=size, replace=False)) for size in sizes]


def moments(pairs, n):
    """Seen, mean and variance of the number of shared examples, from the hypergeometric laws of single pairs."""
    seen = sum(np.intersect1d(one, two).size for one, two in pairs)
    means = [one.size * two.size / n for one, two in pairs]
    parts = [(n - one.size) * (n - two.size) / (n * (n - 1)) for one, two in pairs]
    return seen, sum(means), sum(mean * part for mean, part in zip(means, parts, strict=True))


@pytest.mark.parametrize(
    ("n", "sizes"), [(40, [4, 7, 0, 10, 12, 3] * 5), (400, [40, 90, 70, 55] * 10), (500, [20] * 9), (2, [1] * 100)]
)
def test_inclusion_is_tested_by_the_shared_examples_of_all_pairs_of_steps(n, sizes):
    sets, skipped = random_sets(n, sizes), []
    seen, mean, variance = moments(list(itertools.combinations(sets, 2)), n)
    spread = sum(size * (1 - size / n) for size in sizes)  # of the counts around their mean, summed over examples
    law = stats.gamma(spread**2 / (4 * variance), scale=4 * variance / spread)
    squares = spread + 2 * (seen - mean)
    expected = 2 * min(law.cdf(squares), law.sf(squares))
    if mean <= 1000:
        expected = max(expected, 2 * min(stats.poisson.cdf(seen, mean), stats.poisson.sf(seen - 1, mean)))
    [check] = inclusion_check([sets], n, skipped)
    assert check.name == "inclusion"
    assert check.p_value == pytest.approx(min(1.0, expected), rel=1e-9)
    assert check.detail == f"variance of the examples' counts {squares / spread:.4g} times the expected one"
    assert not skipped


def test_inclusion_of_groups_is_tested_by_all_of_them_together():
    sizes = [40, 90, 70, 55] * 4
    parts = [random_sets(400, sizes, seed) for seed in (1, 2)]
    halves = [moments(list(itertools.combinations(sets, 2)), 400) for sets in parts]
    seen, mean, variance = (sum(values) for values in zip(*halves, strict=True))
    assert mean > 1_000  # from there on by the gamma law alone
    spread = 2 * sum(size * (1 - size / 400) for size in sizes)
    squares, law = spread + 2 * (seen - mean), stats.gamma(spread**2 / (4 * variance), scale=4 * variance / spread)
    expected = 2 * min(law.cdf(squares), law.sf(squares))
    assert inclusion_check(parts, 400, [])[0].p_value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("sizes", "tested"), [([2, 5], True), ([3, 5], True), ([2, 4], False)])
def test_pairs_are_tested_from_one_expected_shared_example_on(sizes, tested):
    sets = random_sets(10, sizes)
    assert bool(inclusion_check([sets], 10, [])) is tested
    assert bool(overlap_check(sets, filet.CappedPoisson(10, 0.3, 8), [])) is tested


def test_two_examples_are_enough_for_overlaps():
    sets = random_sets(2, [1] * 12)
    seen, mean, variance = moments(list(itertools.pairwise(sets)), 2)
    [check] = overlap_check(sets, filet.CappedPoisson(2, 0.5, 1), [])
    assert variance == pytest.approx(11 / 4)
    poisson = 2 * min(stats.poisson.cdf(seen, mean), stats.poisson.sf(seen - 1, mean))
    assert check.p_value == pytest.approx(min(1.0, poisson), rel=1e-9)


@pytest.mark.parametrize(("batches", "tested"), [(50, False), (51, True)])
def test_positions_are_tested_from_about_fifty_rows_on(batches, tested):
    sets = random_sets(1_000, [1] * batches)
    assert bool(position_checks([sets], filet.CappedPoisson(1_000, 0.001, 8), [])) is tested


@pytest.mark.parametrize(("sizes", "fewest"), [([8, 12, 9] * 8, 0), ([8, 12, 9] * 8, 12)])
def test_positions_are_tested_by_the_sum_of_row_numbers(sizes, fewest):
    """So many distinct numbers below n have the mean k (n - 1) / 2 and the variance k (n - k) (n + 1) / 12."""
    n, scheme = 60, filet.CappedPoisson(60, 0.2, 12)
    sets = random_sets(n, sizes)
    counted = [rows for rows in sets if rows.size >= fewest]
    gap = sum(rows.sum() - rows.size * (n - 1) / 2 for rows in counted)
    z = gap / math.sqrt(sum(rows.size * (n - rows.size) * (n + 1) / 12 for rows in counted))
    check = position_checks([sets], scheme, [])[bool(fewest)]
    assert check.name == ("positions in full batches" if fewest else "positions")
    assert check.p_value == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-9)
    assert check.detail == f"{z:+.2f} standard deviations towards the end"


@pytest.mark.parametrize("cycle", [1, 2])
def test_overlap_of_steps_is_tested_by_the_shared_examples_of_a_group_s_neighbouring_steps(cycle):
    scheme = filet.CappedPoisson(50 * cycle, 0.2, 20, cycle_length=cycle)
    sets = random_sets(50, [11, 9, 14, 5, 10] * 8)
    for step in range(10, 14):
        sets[step] = sets[step - cycle][:5]
    seen, mean, variance = moments(list(zip(sets[:-cycle], sets[cycle:], strict=True)), 50)
    [check] = overlap_check(sets, scheme, [])
    assert variance > 25
    assert seen > mean + 5
    assert check.p_value == pytest.approx(2 * stats.norm.sf((abs(seen - mean) - 0.5) / math.sqrt(variance)), rel=1e-9)
    assert (check.name, check.detail) == ("overlap of steps", f"{seen} shared examples, expected {mean:.6g}")


def test_what_is_too_rare_to_test_is_said_once_and_not_where_groups_are_unknown():
    scheme, skipped = filet.CappedPoisson(1_000, 0.001, 5, cycle_length=1), []
    sets = random_sets(1_000, [1, 0, 1, 1])
    assert inclusion_check([sets], 1_000, skipped) == []
    assert position_checks([sets], scheme, skipped) == []
    assert overlap_check(sets, scheme, skipped) == []
    assert skipped == [
        "inclusion: not tested, no example is expected twice",
        "positions: not tested, too few examples",
        "positions in full batches: not tested, too few examples",
        "overlap of steps: not tested, it is too rare",
    ]
    nothing = []
    assert inclusion_check([], 1_000, nothing) == position_checks([], scheme, nothing) == nothing == []


def test_batches_of_everybody_show_nothing():
    full, skipped = filet.CappedPoisson(1, 1.0, 1), []
    sets = [np.zeros(1, dtype=np.int64)] * 30
    assert inclusion_check([sets], 1, skipped) == overlap_check(sets, full, skipped) == []
    assert len(skipped) == 2


def test_groups_are_numbered_from_within_once_all_their_members_were_seen():
    scheme = filet.CappedPoisson(7, 0.5, 3, cycle_length=2)
    sets = [np.array(rows) for rows in ([0, 4], [1, 2], [4, 6], [2, 5], [0], [1, 5])]
    checks, skipped = [], []
    parts = split_groups(sets, scheme, checks, skipped)
    assert [[rows.tolist() for rows in part] for part in parts] == [[[0, 1], [1, 2], [0]], [[0, 1], [1, 2], [0, 2]]]
    assert [(check.name, check.p_value) for check in checks] == [("groups", 1.0)]
    assert not skipped
    assert split_groups(sets[:3], scheme, checks, skipped) == []
    assert skipped == ["inclusion and positions: not tested, as some members of groups were never drawn"]
    checks.clear()
    split_groups([*sets[:3], np.array([0, 2])], scheme, checks, [])
    assert [(check.p_value, check.detail) for check in checks] == [
        (0.0, "1 examples appear in two groups, 0 groups are too large")
    ]
    plain = filet.CappedPoisson(7, 0.5, 3)
    assert split_groups(sets, plain, checks, skipped) == [sets]
    assert len(checks) == 1
