"""Checks of sizes catch the faults that loaders have in them, and leave true samplers alone."""

import numpy as np
import pytest
from tests.sampling.laws import failed, poisson_draws

import filet
from filet.sampling.audits import audit
from filet.sampling.size_checks import after_full_check, sequence_check, size_checks, size_law_around_mean


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
