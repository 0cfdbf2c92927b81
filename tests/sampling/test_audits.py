"""The audit passes true samplers, reads batches of every form, and says what it found. Keys and seeds are fixed."""

import itertools

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
    "tiny10": filet.CappedPoisson(10, 0.3, 5),
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


ROWS = "pass row numbers of the data set, with -1 or a mask for padding"
SHAPE = "is not a list of row numbers; pass one-dimensional integers, with -1 or a boolean mask of the same shape for padding"


@pytest.mark.parametrize(("batches", "options", "message"), [
    ([[0], [10, 3]], {}, f"batch 1 holds the row number 10, which is not in [0, dataset_size=10); {ROWS}"),
    ([[0, 3, 12]], {}, f"batch 0 holds the row number 12, which is not in [0, dataset_size=10); {ROWS}"),
    ([[-2, 12]], {}, f"batch 0 holds the row number -2, which is not in [0, dataset_size=10); {ROWS}"),
    ([[0.5]], {}, f"batch 0, [0.5], {SHAPE}"),
    ([[0], "text"], {}, f"batch 1, 'text', {SHAPE}"),
    ([[[1], [2]]], {}, f"batch 0, [[1], [2]], {SHAPE}"),
    ([(np.arange(3), np.ones(2, dtype=bool))], {}, f"batch 0, array([0, 1, 2]), {SHAPE}"),
    ([], {}, "there are no batches to audit; pass at least a few hundred"),
    (3, {}, "batches=3 is neither a Sampler nor iterable; pass an iterable of index arrays"),
    ([[0]], {"significance": 0.0}, "significance=0.0 is not in (0, 1); pass a small chance such as 1e-3"),
    ([[0]], {"significance": 1.0}, "significance=1.0 is not in (0, 1); pass a small chance such as 1e-3"),
    ([[0]], {"significance": [1]}, "significance=[1] is not a number in (0, 1); pass a small chance such as 1e-3"),
    ([[0]], {"steps": -1}, "steps=-1 is below 0; pass the whole number of training steps"),
    ([[0]], {"scheme": None}, "scheme=None is not a CappedPoisson; pass filet.CappedPoisson(...)"),
])  # fmt: skip
def test_refuses_what_is_no_stream_of_batches(batches, options, message):
    options = {"scheme": filet.CappedPoisson(10, 0.5, 5), **options}
    with pytest.raises(filet.InvalidArgumentError) as caught:
        audit(batches, **options)
    assert str(caught.value) == message


def test_the_first_and_the_last_row_and_empty_batches_are_rows_and_batches():
    report = audit(
        [[9, 0], [], np.array([], dtype=np.float64), (np.arange(3), np.zeros(3, dtype=bool))] * 3, SCHEMES["tiny10"]
    )
    assert report.steps == 12
    assert report.checks[0] == Check(
        "well-formed", 1.0, "0 batches repeat an example, 0 are larger than max_batch_size"
    )


def test_repetitions_and_batches_above_the_cap_are_counted():
    good = [[0, 4], [1], [2, 3]] * 5
    for wrong, repeated, oversize in (([1, 5, 5], 1, 0), ([0, 1, 2, 3, 4, 5], 0, 1), ([1] * 6, 1, 1)):
        well_formed = audit([*good, wrong], SCHEMES["tiny10"]).checks[0]
        detail = f"{repeated} batches repeat an example, {oversize} are larger than max_batch_size"
        assert well_formed == Check("well-formed", 0.0, detail)


def test_a_report_says_its_verdict_each_check_and_what_was_not_tested():
    checks = (Check("first", 0.5, "nothing"), Check("second", 1.25e-6, "everything"))
    report = AuditReport(SCHEMES["tiny"], 10, 0.01, checks, ("third: not tested",))
    scheme = "CappedPoisson(dataset_size=8, sampling_probability=0.4, max_batch_size=3, overflow=<Overflow.TRUNCATE: 'truncate'>, cycle_length=1"
    first, *others = report.summary().splitlines()
    assert first.startswith(f"FAILED: 10 batches against {scheme}")
    assert others == [
        "  ok    p=0.5       first: nothing",
        "  fail  p=1.25e-06  second: everything",
        "  -     third: not tested",
    ]
    page = report._repr_html_()
    assert page.startswith("<table><caption>FAILED: 10 batches against CappedPoisson(")
    assert page.endswith(
        "</caption><thead><tr><th></th><th>p-value</th><th>check</th><th>found</th></tr></thead><tbody>"
        "<tr><td>ok</td><td>0.5</td><td>first</td><td>nothing</td></tr>"
        "<tr><td>fail</td><td>1.25e-06</td><td>second</td><td>everything</td></tr>"
        "<tr><td>skipped</td><td></td><td></td><td>third: not tested</td></tr></tbody></table>"
    )
    fine = AuditReport(SCHEMES["tiny"], 10, 0.01, checks[:1], ())
    assert fine.summary().startswith("passed: 10 batches")
    assert fine._repr_html_().startswith("<table><caption>passed: 10 batches")


def test_an_audit_of_one_record_or_none_has_a_law():
    """Of at most so many: no record is a batch of one slot that is empty."""
    scheme = filet.CappedPoisson(6, 0.6, 3, size="at-most")
    assert audit(scheme.sampler(5, records=1), scheme, steps=300, records=1).passed
    assert not audit([[]] * 300, scheme, records=1).passed


def test_an_audit_reads_no_more_batches_than_it_was_told():
    def endless():
        for step in itertools.count():
            assert step <= 30
            yield [step % 10]

    assert audit(endless(), SCHEMES["tiny10"], steps=30).steps == 30


def test_refuses_an_endless_sampler_and_a_rank_s_share():
    scheme = SCHEMES["truncate"]
    with pytest.raises(filet.InvalidArgumentError) as caught:
        audit(scheme.sampler(0), scheme)
    assert str(caught.value) == "steps=None is not an integer, and a sampler has no end; pass the number of batches"
    for share in (scheme.sampler(0).shard(0, 2), scheme.sampler(0).shard(0, 2).batches(10)):
        with pytest.raises(filet.InvalidArgumentError) as caught:
            audit(share, scheme, steps=10)
        words = "the sampler holds one of 2 ranks' shares; pass the whole sampler, or the ranks' union"
        assert str(caught.value) == words


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


SECRET = filet.CappedPoisson(1_000, 0.05, 55, overflow="reject", size="secret")


@pytest.mark.parametrize("records", [1_000, 1_700, 20_000])
def test_batches_of_a_secret_size_pass_at_any_number_of_records_from_the_planned_one_on(records):
    report = audit(SECRET.sampler(3, records=records), SECRET, steps=600, records=records)
    assert report.passed, report.failures
    assert str(records) not in repr(report.scheme) or records == 1_000


def test_an_audit_notices_sizes_that_depend_on_the_number_of_records():
    """Policy reject at the true number, at the same rate: the law that voids the guarantee."""
    wrong = filet.CappedPoisson(1_100, 0.05, 55, overflow="reject").sampler(3)
    report = audit(wrong, SECRET, steps=600, records=1_100)
    assert not report.passed
    assert "size law" in [check.name for check in report.failures]


def test_batches_of_at_most_so_many_records_are_audited_at_the_true_number():
    scheme = filet.CappedPoisson(1_000, 0.05, 45, size="at-most")
    assert audit(scheme.sampler(3, records=800), scheme, steps=600, records=800).passed
    assert not audit(scheme.sampler(3, records=800), scheme, steps=600, records=1_000).passed


def test_an_audit_asks_for_the_records_where_they_are_secret_and_refuses_empty_slots():
    with pytest.raises(filet.InvalidArgumentError, match="needs the true number of records"):
        audit(SECRET.sampler(3, records=1_000), SECRET, steps=10)
    with pytest.raises(filet.InvalidArgumentError, match="at least as many records as were planned"):
        audit(SECRET.sampler(3, records=999), SECRET, steps=10, records=999)
    with pytest.raises(filet.InvalidArgumentError, match="leave it out"):
        audit(SCHEMES["truncate"].sampler(0), SCHEMES["truncate"], steps=10, records=5)
