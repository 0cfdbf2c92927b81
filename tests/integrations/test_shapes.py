"""What fixed shapes buy: the benchmark runs, and its stored results and the documentation's table say what it measures."""

from __future__ import annotations

import json
from pathlib import Path

import bench_shapes
import pytest

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "benchmarks" / "results" / "shapes.json"


def test_fixed_shapes_benchmark_compiles_once_where_other_batches_do_not():
    capped, poisson, doubled, largest = (
        bench_shapes.measure("perceptron", shape, "jax.jit", 8)
        for shape in ("capped", "variable", "power of two", "own largest")
    )
    assert (capped.compilations, capped.shapes_seen) == (1, 1)
    assert (largest.compilations, largest.shapes_seen) == (1, 1)
    assert poisson.compilations == poisson.shapes_seen > 1
    assert doubled.compilations == doubled.shapes_seen
    assert poisson.rows_wasted == 0
    assert 0 < capped.rows_wasted < 0.4
    assert capped.epsilon == pytest.approx(poisson.epsilon, rel=0.1)


def test_fixed_shapes_benchmark_has_the_same_mean_batch_for_all():
    means = [bench_shapes.scheme_of(shape).expected_batch_size for shape in bench_shapes.SHAPES]
    assert means == pytest.approx([bench_shapes.MEAN] * 4, rel=1e-6)


def test_fixed_shapes_transformers_of_both_frameworks_train():
    for run in ("jax.jit", "torch eager"):
        result = bench_shapes.measure("transformer", "capped", run, 2)
        assert (result.model, result.shapes_seen) == ("transformer", 1)


def test_fixed_shapes_table_of_the_documentation_is_what_was_measured():
    results = [bench_shapes.Result(**row) for row in json.loads(STORED.read_text())["results"]]
    assert bench_shapes.report(results) in (ROOT / "docs" / "fixed_shapes.md").read_text()
    compilations = {(r.shape, r.run): r.compilations for r in results if r.model == "perceptron"}
    assert compilations["capped", "torch.compile"] == compilations["capped", "jax.jit"] == 1
    assert compilations["variable", "jax.jit"] > 20
    assert (ROOT / "benchmarks" / "figures" / "shapes.svg").exists()
