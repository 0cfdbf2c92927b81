"""The audit passes true samplers, reads batches of every form, and says what it found. Keys and seeds are fixed."""

import numpy as np
import pytest

import filet
from filet.sampling.audits import AuditReport, audit
from filet.sampling.p_values import Check

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


@pytest.mark.parametrize("key", range(3))
@pytest.mark.parametrize("name", SCHEMES)
def test_passes_the_true_sampler(name, key):
    report = audit(SCHEMES[name].sampler(key), SCHEMES[name], steps=400)
    assert report.passed
    assert report.steps == 400
    assert not report.failures
    assert report.summary().startswith("passed: 400 batches")


@pytest.mark.long
def test_false_alarms_are_as_rare_as_promised():
    scheme = filet.CappedPoisson(200, 0.1, 22)
    reports = [audit(scheme.sampler(key), scheme, steps=120, significance=0.05) for key in range(200)]
    assert sum(not report.passed for report in reports) <= 18  # 10 expected at most; 18 has chance 1 %
    for name in ("size law", "mean size", "inclusion", "positions", "overlap of steps", "size sequence"):
        small = np.mean([check.p_value < 0.1 for report in reports for check in report.checks if check.name == name])
        assert 0.03 <= small <= 0.17, name  # p-values are roughly uniform: neither blind nor trigger-happy


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


def test_a_notebook_shows_every_check_and_the_verdict():
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    for batches, verdict in (
        (scheme.sampler(key=1), "passed: 300 batches"),
        ([np.arange(50)] * 300, "FAILED: 300 batches"),
    ):
        report = audit(batches, scheme, steps=300)
        page = report._repr_html_()
        assert verdict in page
        assert page.count("<td>ok</td>") + page.count("<td>fail</td>") == len(report.checks)
        assert page.count("<td>fail</td>") == len(report.failures)
