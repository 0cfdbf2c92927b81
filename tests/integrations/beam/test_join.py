"""The distributed join: each step once with its batch, and no row lost or taken twice."""

from __future__ import annotations

import pickle

import apache_beam as beam
from apache_beam.testing.util import assert_that
from tests.integrations.beam_jobs import (
    SCHEME,
    SIZE,
    STEPS,
    arrays,
    assert_is_the_samplers,
    created,
    examples,
    sampler_of,
    secret,
    write_job,
)

import filet
from filet.integrations.batch_files.job import Run
from filet.integrations.beam import (
    CappedPoissonBatches,
    open_batches,
)
from filet.integrations.beam.join import Draw


def test_the_transform_yields_each_step_once_with_its_batch(tmp_path):
    key = secret(tmp_path)
    sampler, data = sampler_of(SCHEME, key), arrays()

    def check(found):
        assert sorted(step for step, _ in found) == list(range(3, STEPS))
        assert all(step == batch.step for step, batch in found)
        assert_is_the_samplers([batch for _, batch in found], sampler, data)

    with beam.Pipeline(runner="FnApiRunner") as job:
        pairs = job | beam.Create(examples())
        found = pairs | CappedPoissonBatches(SCHEME, STEPS, key, start=3, steps_per_range=4, rows_per_key=50)
        assert_that(found, check)


def test_empty_batches_are_batches_of_padding(tmp_path):
    scheme, key = filet.CappedPoisson(SIZE, 1e-4, 4), secret(tmp_path)
    write_job(created(examples()), tmp_path / "out", key, scheme=scheme, steps_per_file=3)
    batches = open_batches(tmp_path / "out", reread=True)
    assert sum(batch.size == 0 for batch in batches) > STEPS // 2
    assert_is_the_samplers(batches, sampler_of(scheme, key), arrays())


def test_a_drawing_worker_pickles_without_its_key(tmp_path):
    draw = Draw(Run.checked(SCHEME, STEPS, secret(tmp_path)))
    list(draw.process(0))
    copy = pickle.loads(pickle.dumps(draw))
    assert draw._sampler is not None
    assert copy._sampler is None
