"""Batches by Spark on a real cluster: the bytes of every other engine, and one line for what is wrong."""

from __future__ import annotations

import contextlib
import io
import os
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import functions
from tests.integrations.beam_jobs import (
    NOT_PUBLIC,
    SCHEME,
    SIZE,
    STEPS,
    arrays,
    assert_is_the_samplers,
    contents,
    expected,
    from_parquet,
    not_public,
    sampler_of,
    secret,
    warned_of,
    words,
    write_job,
    write_parquet,
)
from tests.integrations.planted import PLANTED, folder_tells, tells
from tests.integrations.spark_cluster import SMALL, frame

import filet
from filet.integrations.spark import KeyFile, KeyVariable, open_batches, read_examples, write_batches

RUNS = [("truncate", 1, "arrow"), ("reject", 1, "parquet"), ("truncate", 3, "tfrecord"), ("reject", 4, "avro")]


@pytest.mark.parametrize(("overflow", "cycle", "form"), RUNS)
def test_both_policies_and_cycles_have_the_bytes_of_the_in_memory_sampler(session, tmp_path, overflow, cycle, form):
    scheme = filet.CappedPoisson(SIZE, 0.03 * cycle, 12, overflow=overflow, cycle_length=cycle)
    key = secret(tmp_path)
    write_batches(frame(session), tmp_path / "out", scheme, STEPS, key, format=form, **SMALL)
    assert contents(tmp_path / "out") == contents(expected(tmp_path, scheme, form=form, rows_per_key=32))
    assert_is_the_samplers(open_batches(tmp_path / "out"), sampler_of(scheme, key), arrays(), words())


@pytest.mark.parametrize(("size", "planned"), NOT_PUBLIC)
def test_files_of_a_secret_size_hold_the_batches_of_the_true_number(session, tmp_path, size, planned):
    scheme, key = not_public(size, planned), secret(tmp_path)
    with warned_of(planned):
        write_batches(frame(session), tmp_path / "out", scheme, STEPS, key, **SMALL)
    assert contents(tmp_path / "out") == contents(expected(tmp_path, scheme, rows_per_key=32))
    assert_is_the_samplers(open_batches(tmp_path / "out"), sampler_of(scheme, key, records=SIZE), arrays(), words())


def test_files_in_and_out_have_beams_bytes(session, tmp_path):
    key, data = secret(tmp_path), write_parquet(tmp_path / "in", 3, texts=True)
    more = {"start": 3, "secure": False}
    write_batches(read_examples(session, str(data), "parquet"), tmp_path / "out", SCHEME, STEPS, key, **SMALL, **more)
    write_job(from_parquet(data), tmp_path / "beam", key, **more)
    assert contents(tmp_path / "out") == contents(tmp_path / "beam")


def test_a_run_without_steps_has_a_manifest_only(session, tmp_path):
    write_batches(frame(session), tmp_path / "out", SCHEME, STEPS, secret(tmp_path), STEPS)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["manifest.json"]
    assert len(open_batches(tmp_path / "out")) == 0


# --- what is refused -------------------------------------------------------------------------------------------------

WRONG = {
    "too few": ("index != 5", None, "the data has 299 examples, not dataset_size=300"),
    "twice": (None, ("index", "if(index = 5, 6, index)"), "the index 6 is there twice"),
    "out of range": (None, ("index", "if(index = 5, 300, index)"), r"index 300, not in \[0, 300\)"),
    "negative": (None, ("index", "if(index = 5, -1, index)"), r"index -1, not in \[0, 300\)"),
    "text as index": (None, ("index", "cast(index as string)"), "the column 'index' .* is of type string"),
    "another shape": (None, ("weight", "if(index = 7, array(1.0D), weight)"), r"example 7 has shape \(1,\).*'weight'"),
    "empty": (None, ("label", "if(index = 7, null, label)"), "the column 'label' of 'the frame' has empty values"),
    "text": (None, ("text", "'a'"), "the column 'text' of 'the frame' is of type string"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_one_line_and_nothing_to_read(session, tmp_path, kind):
    condition, column, words_of_it = WRONG[kind]
    wrong = frame(session).filter(condition) if condition else frame(session)
    wrong = wrong.withColumn(column[0], functions.expr(column[1])) if column else wrong
    refused(tmp_path, words_of_it, wrong, secret(tmp_path))


def refused(tmp_path, match, examples, key, error=filet.InvalidArgumentError, **more):
    with pytest.raises(error, match=match) as caught:
        write_batches(examples, tmp_path / "out", more.pop("scheme", SCHEME), STEPS, key, **{**SMALL, **more})
    assert "\n" not in str(caught.value)
    with pytest.raises(filet.StateError, match=r"manifest\.json"):
        open_batches(tmp_path / "out")


def test_arguments_and_keys_that_are_wrong_are_one_line(session, tmp_path):
    examples, key = frame(session), secret(tmp_path)
    refused(tmp_path, "pass KeyFile", examples, Path(key.path).read_bytes())
    refused(tmp_path, "cannot read the key file", examples, KeyFile(str(tmp_path / "none")))
    refused(tmp_path, "FILET_TEST_NONE is not set here", examples, KeyVariable("FILET_TEST_NONE"))
    refused(tmp_path, "format='csv' is unknown", examples, key, format="csv")
    refused(tmp_path, "has no column 'place'", examples, key, index="place")
    refused(tmp_path, "frame is of type list", [1], key)
    refused(tmp_path, "records is above dataset_size=200", examples, key, scheme=not_public("at-most", 200))
    shifted = examples.withColumn("index", functions.expr("index + 1"))
    refused(tmp_path, "not below the number of examples", shifted, key, scheme=not_public("secret", 200))
    refused(tmp_path, "the data has no examples", examples.limit(0), key, scheme=not_public("secret", 200))
    fails = examples.withColumn("label", functions.expr("1 / (index - index)"))
    refused(tmp_path, r"the job failed: .*DIVIDE_BY_ZERO", fails, key, error=filet.OutputError)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(filet.OutputError, match="choose a writable directory"):
        write_batches(examples, tmp_path / "file", SCHEME, STEPS, key)


def test_files_that_cannot_be_read_are_one_line(session, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(filet.InvalidArgumentError, match="cannot be read as parquet"):
        read_examples(session, str(tmp_path / "*.parquet"))
    with pytest.raises(filet.InvalidArgumentError, match="no file matches"):
        read_examples(session, str(tmp_path / "*.avro"))


# --- the number of records, and the key ---------------------------------------------------------------------------------------------------------

MARK = b"planted where a test must find it"


def found_in(folder: Path, words_of_it: list[bytes]) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # files come and go
            content = path.read_bytes() if path.is_file() else b""
            found += [str(path) for one in words_of_it if one in content]
    return found


def pages(session) -> bytes:
    """What the user interface shows of every job, stage, query and setting."""
    url = session.sparkContext.uiWebUrl
    names = ["jobs/", "stages/", "SQL/", "environment/", "executors/", "storage/", "SQL/execution/?id=0"]
    names += [f"api/v1/applications/{session.sparkContext.applicationId}/{name}" for name in ("sql", "environment")]
    content = b""
    for name in names:
        with urllib.request.urlopen(f"{url}/{name}") as page:
            content += page.read()
    return content


@pytest.mark.parametrize(("size", "planned"), [("secret", 1_000), ("at-most", 100_000)])
def test_a_secret_number_is_in_no_plan_and_in_nothing_that_is_written(session, tmp_path, capfd, size, planned):
    """Rows of tasks are counted in Spark's pages and event logs, which no library can keep from whoever sees them."""
    from filet.integrations.spark import capped_poisson_batches

    many = session.range(PLANTED).selectExpr("id as index", "id % 11 as x").filter("index >= 0")
    scheme, key = not_public(size, planned, rate=10 / planned, cap=16), secret(tmp_path)
    path = write_batches(many, tmp_path / "out", scheme, STEPS, key, steps_per_file=6)
    batches = open_batches(tmp_path / "out")
    assert_is_the_samplers(batches, sampler_of(scheme, key, records=PLANTED), {"x": np.arange(PLANTED) % 11})
    rows = capped_poisson_batches(many, scheme, STEPS, key, start=18)
    assert rows.count() == 2 * 16
    rows.explain("extended")
    shown = capfd.readouterr()
    assert "mapInArrow" in shown.out or "MapInArrow" in shown.out
    plan = "\n".join(line for line in shown.out.splitlines() if "Range (0, " not in line)  # the test's own data
    assert plan != shown.out
    assert not [one for one in (plan, shown.err, path, repr(batches), repr(rows)) if tells(one)]
    assert not folder_tells(tmp_path / "out")


def test_the_key_is_in_no_plan_page_log_or_shuffle_file(session, cluster, tmp_path):
    key = secret(tmp_path)
    value = Path(key.path).read_bytes()
    forms = [value, value.hex().encode(), repr(value).encode()]
    marked = frame(session).withColumn("text", functions.lit(MARK)).persist()
    from filet.integrations.spark import capped_poisson_batches

    batches = capped_poisson_batches(marked, SCHEME, STEPS, key, **{"steps_per_range": 6, "rows_per_key": 32})
    assert batches.count() == STEPS * 12
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        batches.explain("extended")
    write_batches(marked, tmp_path / "out", SCHEME, STEPS, key, **SMALL)
    assert found_in(cluster.folder, [MARK]), "the search must find what is in shuffle files"
    assert found_in(cluster.folder / "events", [b"mapInArrow", b"MapInArrow"])
    assert b"mapinarrow" in pages(session).lower() + plan.getvalue().lower().encode()
    assert found_in(cluster.folder, forms) == []
    assert not [one for one in forms if one in pages(session) or one in plan.getvalue().encode()]
    assert found_in(tmp_path / "out", forms) == []
    assert os.stat(tmp_path / "out" / "manifest.json").st_mode & 0o077 == 0
