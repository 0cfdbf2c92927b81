"""Checks of sizes catch the faults that loaders have in them, and leave true samplers alone."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.sampling.laws import failed, poisson_draws

import filet
from filet.sampling.audits import audit
from filet.sampling.size_checks import _pool, after_full_check, sequence_check, size_checks, size_law_around_mean


def test_catches_a_cap_applied_by_each_rank_on_its_own():
    scheme = filet.CappedPoisson(1_000, 0.05, 56)
    batches = [
        np.concatenate([drawn[drawn % 4 == rank][:14] for rank in range(4)]) for drawn in poisson_draws(scheme, 600)
    ]
    assert failed(audit(batches, scheme)) & {"size law", "empty or full"}


def test_catches_a_loader_that_skips_empty_batches():
    scheme = filet.CappedPoisson(1_000, 0.003, 12)
    batches = [batch for batch in scheme.sampler(0).batches(400) if batch.size]
    report = audit(batches, scheme)
    assert "empty or full" in failed(report)
    assert "0 empty, expected" in report.summary()


def test_catches_the_wrong_overflow_policy():
    truncate, reject = filet.CappedPoisson(1_000, 0.05, 50), filet.CappedPoisson(1_000, 0.05, 50, "reject")
    assert "size law" in failed(audit(truncate.sampler(0), reject, steps=300))
    assert "size law" in failed(audit(reject.sampler(0), truncate, steps=300))


def test_catches_the_wrong_sampling_probability_and_a_batch_above_the_cap():
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    assert "size law" in failed(audit(filet.CappedPoisson(1_000, 0.055, 60).sampler(0), scheme, steps=300))
    report = audit(filet.CappedPoisson(1_000, 0.05, 61).sampler(0), scheme, steps=300)
    assert "well-formed" in failed(report)


def sizes_of(scheme, steps, rng):
    """Sizes by the law itself, quicker than batches."""
    first, law = size_law_around_mean(scheme)
    return first + rng.choice(law.size, size=steps, p=law / law.sum())


def carried_over(scheme, steps, rng):
    """A loader that keeps what did not fit for the next batch."""
    left, batches = np.empty(0, dtype=np.int64), []
    for _ in range(steps):
        drawn = np.flatnonzero(rng.random(scheme.dataset_size) < scheme.sampling_probability)
        rows = rng.permutation(np.union1d(left, drawn))
        batches.append(rows[: scheme.max_batch_size])
        left = rows[scheme.max_batch_size :]
    return batches


def test_catches_a_probability_that_is_wrong_by_two_percent():
    """Twelve runs of 1,000 steps; chi-square of the sizes alone catches 5 to 8 of such runs."""
    scheme, wrong = filet.CappedPoisson(2_000, 0.05, 120), filet.CappedPoisson(2_000, 0.051, 120)
    rng = np.random.default_rng(0)
    reports = [size_checks(sizes_of(wrong, 1_000, rng), scheme) for _ in range(12)]
    caught = [min(check.p_value for check in checks) * 10 < 1e-3 for checks in reports]
    assert sum(caught) >= 11
    assert sum(checks[0].p_value * 10 < 1e-3 for checks in reports) < sum(caught)
    assert "mean size" in failed(audit(wrong.sampler(1), scheme, steps=1_000))


def test_catches_remainders_that_are_carried_over():
    """Eight runs of 3,000 steps, sizes alone; the correlation of neighbouring sizes catches 1 to 4."""
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    rng = np.random.default_rng(3)
    caught = older = 0
    for _ in range(8):
        sizes, left = [], 0
        for drawn in rng.binomial(1_000, 0.05, 3_000).tolist():
            sizes.append(min(60, drawn + left))
            left += drawn - sizes[-1]
        found = after_full_check(np.array(sizes), scheme, [])
        caught += found[0].p_value * 10 < 1e-3
        older += any(check.p_value * 10 < 1e-3 for check in sequence_check(np.array(sizes), scheme, []))
    assert caught >= 7
    assert older < caught
    report = audit(carried_over(scheme, 3_000, np.random.default_rng(0)), scheme)
    assert "sizes after full batches" in failed(report)


@pytest.mark.parametrize(
    ("scheme", "steps"),
    [
        (filet.CappedPoisson(1_000, 0.05, 50), 60),
        (filet.CappedPoisson(1_000, 0.05, 60), 300),
        (filet.CappedPoisson(8, 0.4, 3), 200),
        (filet.CappedPoisson(1_000, 0.05, 45, "reject"), 100),
    ],
    ids=str,
)
@pytest.mark.long
def test_new_checks_raise_no_more_false_alarms_than_stated(scheme, steps):
    rng = np.random.default_rng(9)
    found = {"mean size": [], "sizes after full batches": []}
    for _ in range(600):
        sizes = sizes_of(scheme, steps, rng)
        for check in [*size_checks(sizes, scheme), *after_full_check(sizes, scheme, [])]:
            if check.name in found:
                found[check.name].append(check.p_value)
    for name, values in found.items():
        assert np.mean(np.array(values) < 0.05) <= 0.05 + 3.1 * 0.0089, name  # chance 1e-3 for a level of 5 %
        assert np.mean(np.array(values) < 0.3) >= 0.2, name  # and they are not blind


def test_sizes_after_full_batches_are_not_tested_where_there_are_none():
    skipped = []
    assert after_full_check(np.array([3, 2, 4]), filet.CappedPoisson(100, 0.03, 10), skipped) == []
    assert after_full_check(np.array([20, 20]), filet.CappedPoisson(50, 1.0, 20), skipped) == []
    assert [text.split(":")[0] for text in skipped] == ["sizes after full batches"] * 2


def test_a_scheme_of_one_size_has_no_mean_to_test():
    names = [check.name for check in size_checks(np.full(30, 20), filet.CappedPoisson(50, 1.0, 20))]
    assert names == ["size law", "empty or full"]


def test_the_law_around_the_mean_sums_to_one():
    for scheme in (filet.CappedPoisson(1_000, 0.05, 50), filet.CappedPoisson(10**12, 4e-9, 4_000, "reject")):
        first, law = size_law_around_mean(scheme)
        assert law.sum() == pytest.approx(1, abs=1e-9)
        assert float(law @ (first + np.arange(law.size))) == pytest.approx(scheme.expected_batch_size, rel=1e-9)


def test_the_law_of_two_sizes_is_tested_and_that_of_one_is_not():
    """One example: batches of 0 or 1. At 60 of 100 where 30 are expected, chi-square is 900 / 30 + 900 / 70."""
    scheme = filet.CappedPoisson(1, 0.3, 1)
    law, *_ = size_checks(np.repeat([0, 1], [40, 60]), scheme)
    assert law.name == "size law"
    assert "in 2 bins" in law.detail
    assert law.p_value == pytest.approx(math.erfc(math.sqrt(900 / 42)), rel=1e-9, abs=0)
    only, *_ = size_checks(np.ones(100, dtype=np.int64), filet.CappedPoisson(1, 1.0, 1))
    assert "in 1 bins" in only.detail
    assert only.p_value == 1.0


# --- each statistic, from its definition ---

SMALL = filet.CappedPoisson(8, 0.4, 3)
SIZES = np.array([3, 1, 3, 3, 0, 2, 3, 2, 3, 3, 1, 3, 0, 3, 2, 3, 3, 3, 1, 2, 3, 3, 2, 3, 3, 3, 3, 2, 3, 3] * 9)


def exact_law(scheme):
    """Chances of all sizes, from the definition."""
    n, p, cap = scheme.group_size, scheme.sampling_probability, min(scheme.max_batch_size, scheme.group_size)
    poisson = stats.binom.pmf(np.arange(n + 1), n, p)
    if scheme.overflow is filet.Overflow.REJECT:
        return poisson[: cap + 1] / poisson[: cap + 1].sum()
    return np.append(poisson[:cap], poisson[cap:].sum())


def p_value_of_sum(total, count, law):
    sums = np.ones(1)
    for _ in range(count):
        sums = np.convolve(sums, law)
    above = total >= count * (law @ np.arange(law.size))
    return min(1.0, 2 * (sums[total:].sum() if above else sums[: total + 1].sum()))


@pytest.mark.parametrize("scheme", [
    SMALL, filet.CappedPoisson(8, 0.4, 3, "reject"), filet.CappedPoisson(8, 0.4, 9, "reject"), filet.CappedPoisson(5, 1.0, 3),
    filet.CappedPoisson(1_000, 0.05, 40), filet.CappedPoisson(1_000, 0.05, 40, "reject"), filet.CappedPoisson(1_000, 0.05, 90, "reject"),
    filet.CappedPoisson(1_001, 0.3, 400, cycle_length=2), filet.CappedPoisson(100, 1.0, 50),
], ids=str)  # fmt: skip
def test_the_law_around_the_mean_is_that_of_the_definition(scheme):
    first, law = size_law_around_mean(scheme)
    exact = exact_law(scheme)
    assert law == pytest.approx(exact[first : first + law.size], rel=1e-9, abs=1e-300)
    assert exact[:first].sum() + exact[first + law.size :].sum() < 1e-15


def test_the_mean_size_has_the_p_value_of_the_sum_of_all():
    law = exact_law(SMALL)
    mean = law @ np.arange(4)
    deviation = math.sqrt(law @ (np.arange(4) - mean) ** 2)
    check = size_checks(SIZES, SMALL)[1]
    assert check.p_value == pytest.approx(p_value_of_sum(int(SIZES.sum()), SIZES.size, law), rel=1e-9)
    z = (SIZES.mean() - mean) / deviation * math.sqrt(SIZES.size)
    assert abs(z) > 0.5
    assert (check.name, check.detail) == ("mean size", f"{z:+.2f} standard deviations from the expected one")


def test_the_law_of_sizes_has_the_p_value_of_chi_square():
    expected = SIZES.size * exact_law(SMALL)
    observed = np.bincount(SIZES)
    joined = [observed[:2].sum(), *observed[2:]], [expected[:2].sum(), *expected[2:]]  # five are fewer than ten
    check = size_checks(SIZES, SMALL)[0]
    assert check.p_value == pytest.approx(stats.chisquare(*joined).pvalue, rel=1e-9)
    mean = exact_law(SMALL) @ np.arange(4)
    assert check.detail == f"mean {SIZES.mean():.6g}, expected {mean:.6g}, in 3 bins"
    odd = size_checks(np.append(SIZES, [4, 7]), SMALL)[0]
    assert odd.p_value == 0.0
    assert odd.detail.endswith(", in 3 bins, 2 of an all but impossible size")
    rare = size_checks(np.append(np.full(50, 50), 101), filet.CappedPoisson(1_000, 0.05, 110))[0]
    assert rare.detail.endswith(" bins")  # a chance of 1e-11 is no impossible one
    rarer = size_checks(np.append(np.full(50, 50), 120), filet.CappedPoisson(1_000, 0.05, 130))[0]
    assert (rarer.p_value, rarer.detail.rsplit(", ", 1)[1]) == (0.0, "1 of an all but impossible size")


def test_bins_are_joined_until_each_expects_ten_and_the_rest_joins_the_last():
    observed, expected = _pool(np.array([1, 2, 3, 4, 5, 6]), np.array([4.0, 6.0, 12.0, 9.5, 0.25, 0.125]))
    assert observed.tolist() == [3, 18]
    assert expected.tolist() == [10.0, 21.875]
    observed, expected = _pool(np.array([1, 2]), np.array([4.0, 5.0]))
    assert (observed.tolist(), expected.tolist()) == ([3], [9.0])
    assert _pool(np.array([1]), np.array([0.5]))[1].tolist() == [0.5]


def test_empty_and_full_batches_have_twice_the_smaller_of_their_p_values():
    law = exact_law(SMALL)
    counts = [int((SIZES == 0).sum()), int((SIZES == 3).sum())]
    both = [
        2 * min(stats.binom.cdf(count, SIZES.size, chance), stats.binom.sf(count - 1, SIZES.size, chance))
        for count, chance in zip(counts, law[[0, 3]], strict=True)
    ]
    check = size_checks(SIZES, SMALL)[2]
    assert check.p_value == pytest.approx(min(1.0, 2 * min(both)), rel=1e-9)
    empty, full = (f"{SIZES.size * chance:.4g}" for chance in law[[0, 3]])
    assert (check.name, check.detail) == (
        "empty or full", f"{counts[0]} empty, expected {empty}; {counts[1]} full, expected {full}"
    )  # fmt: skip


def test_sizes_after_full_batches_have_the_p_value_of_their_sum():
    after = SIZES[1:][SIZES[:-1] == 3]
    law = exact_law(SMALL)
    [check] = after_full_check(SIZES, SMALL, [])
    assert check.p_value == pytest.approx(p_value_of_sum(int(after.sum()), after.size, law), rel=1e-9)
    assert check.detail == f"mean {after.mean():.6g} of {after.size}, expected {law @ np.arange(4):.6g}"


def test_neighbouring_sizes_are_tested_by_their_correlation():
    law = exact_law(SMALL)
    mean = law @ np.arange(4)
    variance = law @ (np.arange(4) - mean) ** 2
    z = ((SIZES[:-1] - mean) * (SIZES[1:] - mean)).sum() / (variance * math.sqrt(SIZES.size - 1))
    [check] = sequence_check(SIZES, SMALL, [])
    assert check.p_value == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-9)
    assert (check.name, check.detail) == ("size sequence", f"lag-one correlation {z / math.sqrt(SIZES.size):.3g}")
    skipped = []
    few = math.ceil(25 / (1 - law.max()) ** 2)
    assert sequence_check(np.ones(few, dtype=np.int64), SMALL, skipped) == []
    assert skipped == ["size sequence: not tested, too few batches differ in size"]
    assert sequence_check(np.ones(few + 1, dtype=np.int64), SMALL, skipped)


def test_sizes_far_from_zero_are_counted_from_the_first_that_matters():
    """At a mean of 500,000 the table holds some deviations around it: as few numbers as that, and none is odd."""
    scheme = filet.CappedPoisson(10**6, 0.5, 10**6)
    first, law = size_law_around_mean(scheme)
    assert first > 490_000
    assert law.size < 20 * 500 + 100
    checks = size_checks(sizes_of(scheme, 400, np.random.default_rng(4)), scheme)
    assert checks[0].p_value > 1e-3
    assert checks[0].detail.endswith(" bins")


def test_usual_numbers_of_empty_and_full_batches_are_no_evidence():
    scheme = filet.CappedPoisson(2, 0.5, 2)  # empty, full: a quarter each
    assert size_checks(np.array([0, 1, 1, 2] * 10), scheme)[2].p_value == 1.0
