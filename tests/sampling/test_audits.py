"""The audit passes true samplers and catches the faults that loaders really have. Keys and seeds are fixed."""

import numpy as np
import pytest

import filet
from filet.sampling.audits import AuditReport, Check, audit

SCHEMES = {
    "truncate": filet.CappedPoisson(1_000, 0.05, 55),
    "reject": filet.CappedPoisson(1_000, 0.05, 50, "reject"),
    "tiny": filet.CappedPoisson(8, 0.4, 3),
    "sparse": filet.CappedPoisson(10**12, 5e-12, 8),
    "cyclic": filet.CappedPoisson(302, 0.1, 12, cycle_length=3),
    "fixed": filet.CappedPoisson(50, 1.0, 20),
    "rare": filet.CappedPoisson(100, 0.001, 2),
    "uncapped": filet.CappedPoisson(100, 0.1, 100),
    "one": filet.CappedPoisson(1, 0.5, 1),
}


def poisson_draws(scheme, steps, seed=0):
    rng = np.random.default_rng(seed)
    n, p = scheme.dataset_size, scheme.sampling_probability
    return [np.flatnonzero(rng.random(n) < p) for _ in range(steps)]


def failed(report):
    return {check.name for check in report.failures}


@pytest.mark.parametrize("key", range(3))
@pytest.mark.parametrize("name", SCHEMES)
def test_passes_the_true_sampler(name, key):
    report = audit(SCHEMES[name].sampler(key), SCHEMES[name], steps=400)
    assert report.passed
    assert report.steps == 400
    assert not report.failures
    assert report.summary().startswith("passed: 400 batches")


def test_false_alarms_are_as_rare_as_promised():
    scheme = filet.CappedPoisson(200, 0.1, 22)
    reports = [audit(scheme.sampler(key), scheme, steps=120, significance=0.05) for key in range(200)]
    assert sum(not report.passed for report in reports) <= 18  # 10 expected at most; 18 has chance 1 %
    for name in ("size law", "inclusion", "positions", "overlap of steps", "size sequence"):
        small = np.mean([check.p_value < 0.1 for report in reports for check in report.checks if check.name == name])
        assert 0.03 <= small <= 0.17, name  # p-values are roughly uniform: neither blind nor trigger-happy


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


def test_catches_the_wrong_overflow_policy():
    truncate, reject = filet.CappedPoisson(1_000, 0.05, 50), filet.CappedPoisson(1_000, 0.05, 50, "reject")
    assert "size law" in failed(audit(truncate.sampler(0), reject, steps=300))
    assert "size law" in failed(audit(reject.sampler(0), truncate, steps=300))


def test_catches_the_wrong_sampling_probability_and_a_batch_above_the_cap():
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    assert "size law" in failed(audit(filet.CappedPoisson(1_000, 0.055, 60).sampler(0), scheme, steps=300))
    report = audit(filet.CappedPoisson(1_000, 0.05, 61).sampler(0), scheme, steps=300)
    assert "well-formed" in failed(report)


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


def test_repeated_examples_are_impossible():
    scheme = filet.CappedPoisson(10, 0.5, 10)
    batches = [batch.indices[batch.mask] for batch in scheme.sampler(0).batches(50)]
    batches[7] = np.array([3, 3, 4])
    report = audit(batches, scheme)
    assert report.p_value == 0.0
    assert "1 batches repeat" in report.summary()


def test_reads_batches_pairs_with_masks_padding_and_lists_alike():
    scheme = SCHEMES["truncate"]
    run = scheme.sampler(5).batches(100)
    whole = audit(run, scheme)
    assert whole == audit(scheme.sampler(5), scheme, steps=100)
    assert whole == audit([batch.indices for batch in run], scheme)
    assert whole == audit([np.random.default_rng(0).permutation(batch.indices) for batch in run], scheme)
    assert whole == audit(((np.where(batch.mask, batch.indices, 0), batch.mask) for batch in run), scheme)
    assert whole == audit([batch.indices[batch.mask].tolist() for batch in run], scheme)
    assert whole == audit(scheme.sampler(5).batches(200), scheme, steps=100)


def test_says_what_could_not_be_tested():
    report = audit(SCHEMES["rare"].sampler(0), SCHEMES["rare"], steps=5)
    assert any("positions" in text for text in report.skipped)
    assert "not tested" in report.summary()


def test_failures_follow_holm():
    checks = tuple(Check(name, p, "") for name, p in (("a", 0.02), ("b", 0.004), ("c", 0.02), ("d", 0.9)))
    report = AuditReport(SCHEMES["tiny"], 10, 0.05, checks, ())
    assert [check.name for check in report.failures] == ["b"]  # 0.004 * 4 < 0.05, but 0.02 * 3 is not
    assert report.p_value == pytest.approx(0.016)
    assert not report.passed


@pytest.mark.parametrize(("batches", "options", "message"), [
    ([[10]], {}, "row number 10"),
    ([[-2]], {}, "row number -2"),
    ([[0.5]], {}, "batch 0"),
    ([[0], "text"], {}, "batch 1"),
    ([[[1], [2]]], {}, "batch 0"),
    ([(np.arange(3), np.ones(2, dtype=bool))], {}, "batch 0"),
    ([], {}, "no batches"),
    (3, {}, "iterable"),
    ([[0]], {"significance": 0.0}, "significance"),
    ([[0]], {"significance": "x"}, "significance"),
    ([[0]], {"steps": -1}, "steps"),
    ([[0]], {"scheme": None}, "scheme"),
])  # fmt: skip
def test_refuses_what_is_no_stream_of_batches(batches, options, message):
    options = {"scheme": filet.CappedPoisson(10, 0.5, 5), **options}
    with pytest.raises(filet.InvalidArgumentError, match=message):
        audit(batches, **options)


def test_refuses_an_endless_sampler_and_a_rank_s_share():
    scheme = SCHEMES["truncate"]
    with pytest.raises(filet.InvalidArgumentError, match="steps"):
        audit(scheme.sampler(0), scheme)
    for share in (scheme.sampler(0).shard(0, 2), scheme.sampler(0).shard(0, 2).batches(10)):
        with pytest.raises(filet.InvalidArgumentError, match="rank"):
            audit(share, scheme, steps=10)
