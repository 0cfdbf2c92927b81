"""Options: their figures follow from the scheme, the noise and the steps."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from filet.accounting.terms import Analysis
from filet.planning.options import Option
from filet.planning.target import Target
from filet.scheme import CappedPoisson

SCHEME = CappedPoisson(1_000, 0.02, 1_000)  # no cap: the hardware's batch is smaller
TARGET = Target.checked(2.0, 1e-5, "zero-out", "refined")
OPTION = Option("microbatches", "words", SCHEME, Analysis.REFINED, 1.5, 400, 1.9, 32, 40.0, False, 1.25, TARGET)


def test_figures_follow_from_scheme_noise_and_steps() -> None:
    assert OPTION.expected_batch_size == pytest.approx(20.0)
    assert OPTION.utilization == pytest.approx(0.5)
    assert OPTION.wasted_percent == pytest.approx(50.0)
    assert OPTION.effective_noise == pytest.approx(1.5 / 20.0)
    assert OPTION.run_noise == pytest.approx(1.5 / 20.0 / 20.0)
    assert OPTION.hardware_rows == 16_000.0


def test_overflow_is_that_of_the_hardwares_batch() -> None:
    exact = sum(math.comb(1_000, k) * 0.02**k * 0.98 ** (1_000 - k) for k in range(33, 120))
    assert OPTION.overflow_probability == pytest.approx(exact, rel=1e-9)
    assert SCHEME.overflow_probability == 0.0


def test_only_fixed_shapes_with_the_refined_analysis_are_recommended() -> None:
    assert not OPTION.recommendable
    assert replace(OPTION, fixed_shape=True).recommendable
    assert not replace(OPTION, fixed_shape=True, analysis=Analysis.NOTE).recommendable


def test_the_dictionary_is_json_with_the_hardwares_batch() -> None:
    data = json.loads(json.dumps(OPTION.to_dict(), allow_nan=False))
    assert data["max_batch_size"] == 32
    assert {**data, "max_batch_size": 1_000}.items() >= SCHEME.to_dict().items()
    assert data["command"] == OPTION.command()
    assert data["python"] == OPTION.python()
    assert data["run_file"] == OPTION.run_file()
    for name in ("noise_multiplier", "steps", "epsilon", "run_noise", "ratio_to_ideal", "utilization", "hardware_rows"):
        assert data[name] == getattr(OPTION, name)
